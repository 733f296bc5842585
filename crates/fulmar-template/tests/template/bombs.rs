//! Templates that try to exhaust time, memory or the stack: each ends in a typed error, whatever the limits
//! are.

use std::time::Instant;

use fulmar_core::ErrorKind;
use fulmar_template::{Limits, Template};
use proptest::prelude::*;

/// Low limits, so that unmetered work shows as a test that does not end.
const LOW: Limits = Limits { steps: 300_000, output_bytes: 1 << 20, made_bytes: 16 << 20 };
/// A list that contains itself twice, 26 times over.
const DOUBLED: &str = "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(26) %}\
    {% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
/// 1,000 numbers, and a megabyte of text.
const LONG: &str = "{% set l = range(1000) | list %}{% set t = 'xy' * 500000 %}";

fn outcome(source: &str, input: &str, limits: Limits) -> Result<String, ErrorKind> {
    let rendered = Template::with_limits(source, limits).and_then(|template| template.render_json(input));
    rendered.map(|rendered| rendered.text).map_err(|error| error.kind())
}

fn loops(depth: usize, body: &str) -> String {
    format!("{}{body}{}", "{% for i in range(1000) %}".repeat(depth), "{% endfor %}".repeat(depth))
}

fn growing(start: &str, expression: &str) -> String {
    format!(
        "{{% set ns = namespace(x={start}) %}}{{% for i in range(100000) %}}{{% set ns.x = {expression} %}}{{% endfor %}}{{{{ ns.x | length }}}}"
    )
}

fn repeated(body: &str) -> String {
    format!("{LONG}{}", loops(2, body))
}

/// Returns templates by the resource that they abuse; all must reach a limit.
fn bombs() -> Vec<(&'static str, String)> {
    let macros: String = (0..30)
        .map(|at| format!("{{% macro a{}() %}}{{{{ a{at}() }}}}{{{{ a{at}() }}}}{{% endmacro %}}", at + 1))
        .collect();
    let raw = "x".repeat(1000);
    vec![
        ("nested loops", loops(6, "")),
        ("a range of a billion", "{% for i in range(1000000000) %}{% endfor %}".to_owned()),
        ("text times a billion", "{{ 'x' * 1000000000 }}".to_owned()),
        ("a list times a billion", "{{ [0] * 1000000000 }}".to_owned()),
        ("an empty list times 10 ** 20, often", loops(3, "{{ [] * 10 ** 20 }}")),
        ("doubling by concatenation", growing("'x'", "ns.x ~ ns.x")),
        ("doubling by addition of texts", growing("'x'", "ns.x + ns.x")),
        ("doubling by addition of lists", growing("[0]", "ns.x + ns.x")),
        ("doubling by addition of tuples", growing("(0,)", "ns.x + ns.x")),
        ("doubling by replace", growing("'xx'", "ns.x | replace('x', 'xx')")),
        ("doubling by a method", growing("'xx'", "ns.x.replace('x', 'xx')")),
        ("doubling by join", growing("'x'", "[ns.x, ns.x] | join(ns.x)")),
        ("doubling by format", growing("'x'", "'%s%s' | format(ns.x, ns.x)")),
        ("doubling by percent", growing("'x'", "'%s%s' % (ns.x, ns.x)")),
        ("doubling by str.format", growing("'x'", "'{0}{0}'.format(ns.x)")),
        ("doubling by sum", growing("[0]", "[ns.x, ns.x] | sum(start=[])")),
        ("doubling by a block", "{% set ns = namespace(x='xx') %}{% for i in range(64) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}".to_owned()),
        ("doubling by batches", growing("[0]", "ns.x | batch(100000, 0) | list")),
        ("a join of a join", "{% set a = range(100000) | join('xxxxxxxxxx') %}{{ [a] * 100 | int | join(a) }}".replace(" | int", "")),
        ("a wide format", "{{ '%1000000000d' % 1 }}".to_owned()),
        ("a wide center", "{{ 'x' | center(1000000000) }}".to_owned()),
        ("a wide indentation", "{{ [[1]] | tojson(indent=1000000000) }}".to_owned()),
        ("a storm of macros", format!("{{% macro a0() %}}x{{% endmacro %}}{macros}{{{{ a30() }}}}")),
        ("a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned()),
        ("a loop over itself", "{% set l = [1, 2, 3] %}{% for i in l recursive %}{{ loop(l) }}{% endfor %}".to_owned()),
        ("text between tags in a block", format!("{{% set x %}}{}{{% endset %}}", loops(2, &raw))),
        ("text between tags in a macro", format!("{{% macro m() %}}{raw}{{% endmacro %}}{{% set x %}}{}{{% endset %}}", loops(2, "{{ m() }}"))),
        ("comparison of lists that double", format!("{DOUBLED}{{{{ ns.l == ns.m }}}}")),
        ("order of lists that double", format!("{DOUBLED}{{{{ ns.l < ns.m }}}}")),
        ("a list that doubles in another", format!("{DOUBLED}{{{{ ns.l in [ns.m] }}}}")),
        ("loop.changed with lists that double", format!("{DOUBLED}{{% for x in [ns.l, ns.m] %}}{{{{ loop.changed(x) }}}}{{% endfor %}}")),
        ("a tuple that doubles, as a key", DOUBLED.replace('[', "(").replace(']', ",)") + "{{ {ns.l: 1} }}"),
        ("printing lists that double", format!("{DOUBLED}{{{{ ns.l | string | length }}}}")),
        ("JSON of lists that double", format!("{DOUBLED}{{{{ ns.l | tojson(indent=8) | length }}}}")),
        ("sorting", repeated("{% set x = l | sort(reverse=true) %}")),
        ("groupby", repeated("{% set x = l | batch(2) | groupby(0) %}")),
        ("unique", repeated("{% set x = l | unique | list %}")),
        ("max, min and sum", repeated("{{ l | max + l | min + l | sum }}")),
        ("cycle with many arguments", repeated("{% for x in [1] %}{% set y = loop.cycle(*l) %}{% endfor %}")),
        ("a cycler of many items", repeated("{% set y = cycler(*l) %}")),
        ("slices", repeated("{% set x = l[::-1] %}")),
        ("membership", repeated("{% set x = -1 in l %}")),
        ("dictionaries", repeated("{% set x = dict(l | batch(2)) %}")),
        ("a search in long text", repeated("{% set x = t.find('z') %}")),
        ("a long argument", repeated("{% set x = 'x'.split(t) %}")),
        ("a strip of many characters", repeated("{% set x = 'x'.strip(t) %}")),
        ("a comparison of long texts", repeated("{% set x = t == (t ~ '') %}")),
        ("a character far away", repeated("{% set x = t[-1] ~ t[900000] %}")),
        ("the length of a long text", repeated("{% set x = t | length %}")),
        ("upper case of a long text", repeated("{% set x = t | upper %}")),
        ("a test of a long text", repeated("{% set x = t is upper %}")),
        ("a loop over a long text", repeated("{% for c in t %}{% break %}{% endfor %}")),
        ("a filter with long arguments", repeated("{% set x = 'x' | replace(t, t) %}")),
        ("map over a long list", repeated("{% set x = l | map('default', t) | list %}")),
        ("lists that nest deep", growing("[0]", "[ns.x]")),
        ("tuples that nest deep", growing("(0,)", "(ns.x,)")),
        ("dictionaries that nest deep", growing("{}", "{'x': ns.x}")),
        ("bound methods that nest deep", growing("{}", "{'x': ns.x}.get")),
        ("cyclers that nest deep", growing("1", "cycler(ns.x)")),
        ("joiners that nest deep", growing("1", "joiner(ns.x)")),
        ("groups that nest deep", growing("[1]", "[ns.x] | groupby('a')")),
    ]
}

#[test]
fn a_bomb_ends_in_a_typed_error_within_its_steps() {
    for (name, source) in bombs() {
        let start = Instant::now();
        let kind = outcome(&source, "{}", LOW).err();
        println!("{:>6} ms  {name}", start.elapsed().as_millis());
        assert_eq!(kind, Some(ErrorKind::LimitExceeded), "{name}: {source:.200}");
    }
}

#[test]
fn a_bomb_ends_at_the_default_limits_too() {
    // Templates that only the limit of steps ends take seconds; the others must not wait for them.
    for (name, source) in bombs().into_iter().filter(|(name, _)| name.starts_with("doubling")) {
        let kind = outcome(&source, "{}", Limits::default()).err();
        assert_eq!(kind, Some(ErrorKind::LimitExceeded), "{name}");
    }
    let deep = format!("{{\"messages\": [{{\"content\": {}{}}}]}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(outcome("{{ messages | tojson }}", &deep, Limits::default()).is_err());
    let literal = format!("{{{{ '{}' }}}}", "x".repeat(10_000_000));
    assert_eq!(outcome(&literal, "{}", Limits::default()), Err(ErrorKind::LimitExceeded));
}

#[test]
fn namespaces_that_contain_each_other_are_compared_printed_and_refused_as_in_python() {
    let cycle = "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = b %}{% set b.x = a %}";
    for (body, expected) in [
        ("{{ a == b }}{{ a == a }}{{ a != b }}", Ok("FalseTrueTrue")),
        ("{{ [a] == [a] }}{{ [a] == [b] }}{{ a in [b] }}", Ok("TrueFalseFalse")),
        ("{{ {a: 1, b: 2, a: 3}[a] }}{{ ([a, b, a] | unique | list | length) }}", Ok("32")),
        ("{% for n in [a, a, b] %}{{ loop.changed(n) }}{% endfor %}", Ok("TrueFalseTrue")),
        ("{{ a < b }}", Err(ErrorKind::Incompatible)),
        ("{{ [a, b] | sort }}", Err(ErrorKind::Incompatible)),
        ("{{ [a, b] | max }}", Err(ErrorKind::Incompatible)),
        ("{{ a | tojson }}", Err(ErrorKind::Incompatible)),
        ("{{ a | length }}", Err(ErrorKind::Incompatible)),
        ("{% for x in a %}{% endfor %}", Err(ErrorKind::Incompatible)),
        ("{{ a }}", Err(ErrorKind::LimitExceeded)),
        ("{{ a | string }}", Err(ErrorKind::LimitExceeded)),
        ("{{ '%s' % a }}", Err(ErrorKind::LimitExceeded)),
        ("{{ a | pprint }}", Err(ErrorKind::Incompatible)),
    ] {
        let source = format!("{cycle}{body}");
        assert_eq!(outcome(&source, "{}", Limits::default()), expected.map(str::to_owned), "{body}");
    }
}

#[test]
fn a_chain_of_namespaces_of_any_length_is_taken_apart() {
    let chain = "{% set ns = namespace(x=none) %}{% for i in range(100000) %}{% set m = namespace(x=ns.x) %}\
        {% set ns.x = m %}{% endfor %}{{ ns.x.x.x is none }}";
    assert_eq!(outcome(chain, "{}", Limits::default()).as_deref(), Ok("False"));
}

#[test]
fn containers_do_not_hold_the_loop() {
    for body in ["[loop]", "(loop,)", "{'a': loop}", "namespace(x=loop)", "cycler(loop)", "joiner(loop)"] {
        let source = format!("{{% for i in [1] %}}{{% set x = {body} %}}{{% endfor %}}");
        assert_eq!(outcome(&source, "{}", Limits::default()), Err(ErrorKind::Incompatible), "{body}");
    }
    let outer = "{% for i in [1] %}{% set outer = loop %}{% for j in [1, 2] %}{{ outer.index }}{% endfor %}{% endfor %}";
    assert_eq!(outcome(outer, "{}", Limits::default()).as_deref(), Ok("11"));
}

/// Expressions over namespaces, containers, filters and comparisons.
fn expression() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "a", "b", "a.x", "b.y", "ns.l", "i", "1", "-2.5", "'xy'", "[]", "{}", "none", "true", "u", "[a, b]",
        "10 ** 30", "loop",
    ]);
    atom.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let operator = prop::sample::select(vec![
            "+", "-", "*", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or", "< 3 <=",
        ]);
        let filter = prop::sample::select(vec![
            "sort",
            "unique",
            "max",
            "sum",
            "list",
            "join('ab')",
            "string",
            "tojson",
            "length",
            "groupby(0)",
            "items",
            "batch(2, 1)",
            "map('string')",
            "select('in', [1])",
            "replace('x', 'yyyy')",
            "upper",
            "reverse",
            "indent(50)",
            "center(5000)",
            "last",
            "int",
            "round",
            "dictsort",
            "format(1)",
            "pprint",
            "default(2)",
            "slice(3)",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (inner.clone(), filter).prop_map(|(a, f)| format!("({a} | {f})")),
            inner.clone().prop_map(|a| format!("[{a}, {a}]")),
            inner.clone().prop_map(|a| format!("({a}, 'k')")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            inner.clone().prop_map(|a| format!("({a})[::-1]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("cycler({a}, *{b})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_templates_end_within_their_limits(
        expressions in prop::collection::vec(expression(), 1..6),
        rounds in 1_usize..60,
    ) {
        let targets = ["a.x", "b.y", "ns.l", "ns.k"];
        let body: String = expressions
            .iter()
            .enumerate()
            .map(|(at, value)| format!("{{% set {} = {value} %}}{{{{ {value} }}}}", targets[at % targets.len()]))
            .collect();
        let source = format!(
            "{{% set a = namespace(x=1) %}}{{% set b = namespace(y=a) %}}{{% set ns = namespace(l=[1, 'b'], k=2) %}}\
             {{% set a.b = b %}}{{% for i in range({rounds}) %}}{body}{{% endfor %}}"
        );
        let limits = Limits { steps: 20_000, output_bytes: 1 << 16, made_bytes: 1 << 20 };
        let first = outcome(&source, "{}", limits);
        prop_assert_eq!(&first, &outcome(&source, "{}", limits));
        if let Ok(text) = first {
            prop_assert!(text.len() <= limits.output_bytes);
            prop_assert_eq!(outcome(&source, "{}", Limits::default()), Ok(text));
        }
    }
}
