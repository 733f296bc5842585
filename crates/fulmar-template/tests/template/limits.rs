//! The limits of templates: each accepts its bound and refuses one more.

use fulmar_core::ErrorKind;
use fulmar_core::limits::{
    TEMPLATE_CHAIN_MAX, TEMPLATE_INDENT_MAX, TEMPLATE_LIST_ITEMS_MAX, TEMPLATE_MADE_BYTES,
    TEMPLATE_MADE_BYTES_MAX, TEMPLATE_NESTING_MAX, TEMPLATE_OUTPUT_BYTES, TEMPLATE_OUTPUT_BYTES_MAX,
    TEMPLATE_SOURCE_BYTES_MAX, TEMPLATE_STEPS, TEMPLATE_STEPS_MAX,
};
use fulmar_template::{Limits, Template, TemplateInput};

fn refusal(source: &str) -> Option<ErrorKind> {
    Template::new(source).err().map(|error| error.kind())
}

fn rendered(source: &str, limits: Limits) -> Result<String, ErrorKind> {
    let template = Template::with_limits(source, limits).map_err(|error| error.kind())?;
    template.render(&TemplateInput::default()).map(|rendered| rendered.text).map_err(|error| error.kind())
}

#[test]
fn a_source_has_at_most_a_mebibyte() {
    assert_eq!(refusal(&"x".repeat(TEMPLATE_SOURCE_BYTES_MAX)), None);
    assert_eq!(refusal(&"x".repeat(TEMPLATE_SOURCE_BYTES_MAX + 1)), Some(ErrorKind::LimitExceeded));
}

#[test]
fn brackets_and_blocks_nest_up_to_their_limit() {
    let brackets = |depth: usize| format!("{{{{ {}1{} }}}}", "(".repeat(depth), ")".repeat(depth));
    let blocks = |depth: usize| "{% if 1 %}".repeat(depth) + &"{% endif %}".repeat(depth);
    let most = TEMPLATE_NESTING_MAX;
    assert_eq!([refusal(&brackets(most)), refusal(&blocks(most))], [None, None]);
    for source in [brackets(most + 1), blocks(most + 1), brackets(400_000)] {
        assert_eq!(refusal(&source), Some(ErrorKind::LimitExceeded));
    }
}

#[test]
fn expressions_chain_up_to_their_limit() {
    // The chain of a tag includes its first word, and that of a subscript the expression in the brackets.
    let most = TEMPLATE_CHAIN_MAX - 1;
    type Chain = fn(usize) -> String;
    let chains: [Chain; 8] = [
        |n| format!("{{{{ 1{} }}}}", " + 1".repeat(n)),
        |n| format!("{{{{ {}1 }}}}", "not ".repeat(n)),
        |n| format!("{{{{ {}1 }}}}", "- ".repeat(n)),
        |n| format!("{{{{ 'a'{} }}}}", "|upper".repeat(n)),
        |n| format!("{{{{ a{} }}}}", ".b".repeat(n)),
        |n| format!("{{{{ 'a'{} }}}}", " ~ 1".repeat(n)),
        |n| format!("{{{{ a{} }}}}", "[0]".repeat(n - 1)),
        |n| format!("{{{{ 1{} }}}}", " if 1 else 1".repeat(n / 2)),
    ];
    for chain in chains {
        let source = chain(most);
        assert_ne!(refusal(&source), Some(ErrorKind::LimitExceeded), "{}", &source[..20]);
        assert_eq!(
            refusal(&chain(TEMPLATE_CHAIN_MAX + 1)),
            Some(ErrorKind::LimitExceeded),
            "{}",
            &source[..20]
        );
        assert!(refusal(&chain(50_000)).is_some());
    }
    let branches = |n: usize| format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(n));
    assert_eq!(refusal(&branches(TEMPLATE_CHAIN_MAX)), None);
    assert_eq!(refusal(&branches(TEMPLATE_CHAIN_MAX + 1)), Some(ErrorKind::LimitExceeded));
}

#[test]
fn a_rendering_takes_at_most_its_steps() {
    let source = "{% for i in range(1000) %}{{ i }}{% endfor %}";
    let most = Limits::default();
    assert_eq!((most.steps, most.output_bytes), (TEMPLATE_STEPS, TEMPLATE_OUTPUT_BYTES));
    let is_enough = |steps: u64| rendered(source, Limits { steps, ..most }).is_ok();
    let (mut too_few, mut needed) = (0, 30_000);
    assert!(is_enough(needed));
    while needed - too_few > 1 {
        let middle = u64::midpoint(too_few, needed);
        if is_enough(middle) { needed = middle } else { too_few = middle }
    }
    assert!(needed > 1000);
    assert_eq!(rendered(source, Limits { steps: needed - 1, ..most }), Err(ErrorKind::LimitExceeded));
}

#[test]
fn a_rendering_gives_at_most_its_bytes() {
    let limits = |output_bytes| Limits { output_bytes, ..Limits::default() };
    assert_eq!(rendered("{{ 'é' }}a", limits(3)).as_deref(), Ok("éa"));
    assert_eq!(rendered("{{ 'é' }}a", limits(2)), Err(ErrorKind::LimitExceeded));
}

#[test]
fn recursion_ends_in_an_error() {
    for source in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x={}) %}{% for i in range(1000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    ] {
        assert_eq!(rendered(source, Limits::default()), Err(ErrorKind::LimitExceeded), "{source}");
    }
}

#[test]
fn text_that_doubles_ends_in_an_error_and_not_in_the_end_of_memory() {
    let doubling = |body: &str| {
        format!(
            "{{% set ns = namespace(x='xx') %}}{{% for i in range(64) %}}{body}{{% endfor %}}{{{{ ns.x }}}}"
        )
    };
    for body in [
        "{% set ns.x = ns.x ~ ns.x %}",
        "{% set ns.x = ns.x + ns.x %}",
        "{% set ns.x = '%s%s' | format(ns.x, ns.x) %}",
        "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}",
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns.x = m(ns.x) %}",
    ] {
        let source = doubling(body);
        assert_eq!(rendered(&source, Limits::default()), Err(ErrorKind::LimitExceeded), "{source}");
    }
}

#[test]
fn a_rendering_makes_at_most_its_bytes() {
    let limits = |made_bytes| Limits { made_bytes, ..Limits::default() };
    assert_eq!(Limits::default().made_bytes, TEMPLATE_MADE_BYTES);
    let source = "{% set x = 'x' * 1000 %}{{ x | length }}";
    assert_eq!(rendered(source, limits(1004)).as_deref(), Ok("1000"));
    assert_eq!(rendered(source, limits(999)), Err(ErrorKind::LimitExceeded));
    // Output into a block is charged, the text between its tags included.
    let raw = "x".repeat(1000);
    for source in [
        format!("{{% set y %}}{{% for i in range(100) %}}{raw}{{% endfor %}}{{% endset %}}"),
        format!(
            "{{% macro m() %}}{raw}{{% endmacro %}}{{% set x = [m(), m(), m()] %}}{{% for i in range(97) %}}{{% set x = m() %}}{{% endfor %}}"
        ),
        "{% set x = 'x' * 1000 %}{% set y %}{% for i in range(99) %}{{ x }}{% endfor %}{% endset %}"
            .to_owned(),
    ] {
        assert_eq!(rendered(&source, limits(110_000)).as_deref(), Ok(""), "{source}");
        assert_eq!(rendered(&source, limits(99_000)), Err(ErrorKind::LimitExceeded), "{source}");
    }
}

#[test]
fn limits_may_be_raised_up_to_their_most() {
    let most = Limits {
        steps: TEMPLATE_STEPS_MAX,
        output_bytes: TEMPLATE_OUTPUT_BYTES_MAX,
        made_bytes: TEMPLATE_MADE_BYTES_MAX,
    };
    assert_eq!(rendered("{{ 1 }}", most).as_deref(), Ok("1"));
    for limits in [
        Limits { steps: TEMPLATE_STEPS_MAX + 1, ..most },
        Limits { output_bytes: TEMPLATE_OUTPUT_BYTES_MAX + 1, ..most },
        Limits { made_bytes: TEMPLATE_MADE_BYTES_MAX + 1, ..most },
        Limits { steps: 0, ..most },
        Limits { output_bytes: 0, ..most },
        Limits { made_bytes: 0, ..most },
    ] {
        assert_eq!(rendered("{{ 1 }}", limits), Err(ErrorKind::OutOfRange), "{limits:?}");
    }
}

#[test]
fn json_is_indented_up_to_its_limit() {
    let indented =
        |width: i64| rendered(&format!("{{{{ [1] | tojson(indent={width}) | length }}}}"), Limits::default());
    assert_eq!(indented(TEMPLATE_INDENT_MAX), Ok((TEMPLATE_INDENT_MAX + 5).to_string()));
    assert_eq!(indented(TEMPLATE_INDENT_MAX + 1), Err(ErrorKind::LimitExceeded));
    assert_eq!(indented(1_000_000_000), Err(ErrorKind::LimitExceeded));
}

#[test]
fn lists_that_are_added_are_kept_up_to_their_limit() {
    let adding = |most: usize| {
        format!("{{% set l = [0] * {} %}}{{% set l = l + [1] %}}{{{{ l | length }}}}", most - 1)
    };
    let most = TEMPLATE_LIST_ITEMS_MAX;
    assert_eq!(rendered(&adding(most), Limits::default()), Ok(most.to_string()));
    assert_eq!(rendered(&adding(most + 1), Limits::default()), Err(ErrorKind::LimitExceeded));
    let doubling =
        "{% set ns = namespace(l=[0]) %}{% for i in range(200) %}{% set ns.l = ns.l + ns.l %}{% endfor %}";
    assert_eq!(rendered(doubling, Limits::default()), Err(ErrorKind::LimitExceeded));
    let kept =
        "{% set a, b = [1] + [2], 3 %}{% set c = 'x, =' + 'y' %}{{ a }}{{ b }}{{ c }}{{ (1, 2) + (3,) }}";
    assert_eq!(rendered(kept, Limits::default()).as_deref(), Ok("[1, 2]3x, =y(1, 2, 3)"));
}

#[test]
fn formats_are_no_wider_than_a_text_may_be() {
    for source in [
        "{{ '%1000000000d' | format(1) }}",
        "{{ '%*d' | format(1000000000, 1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ ('%(a)99999d' * 9999) | format(a=1) }}",
        "{{ '%99999999999999999999999999d' | format(1) }}",
    ] {
        assert_eq!(rendered(source, Limits::default()), Err(ErrorKind::LimitExceeded), "{source}");
    }
    let source = "{{ '%5d|%(a)s' | format(7, a=1) if false else '%(a)s-%(b)05.1f' | format(a='x', b=1.25) }}{{ '%-4s|' | format('e') }}";
    assert_eq!(rendered(source, Limits::default()).as_deref(), Ok("x-001.2e   |"));
}

#[test]
fn ranges_and_repetitions_are_as_long_as_the_engine_allows() {
    for source in [
        "{% for i in range(100001) %}{% endfor %}",
        "{{ range(1000000000) | list }}",
        "{{ 'x' * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        "{{ (1, 2) * 1000000000 }}",
    ] {
        assert_eq!(rendered(source, Limits::default()), Err(ErrorKind::LimitExceeded), "{source}");
    }
    assert_eq!(rendered("{{ range(100000) | length }}", Limits::default()).as_deref(), Ok("100000"));
}

#[test]
fn lists_that_hold_lists_many_times_over_are_not_printed_for_ever() {
    let nested = "{% set ns = namespace(x=['x' * 1000000]) %}\
        {% for i in range(40) %}{% set ns.x = [ns.x, ns.x, ns.x, ns.x] %}{% endfor %}";
    for printed in ["{{ ns.x | string | length }}", "{{ ns.x | tojson }}"] {
        let source = format!("{nested}{printed}");
        assert_eq!(rendered(&source, Limits::default()), Err(ErrorKind::LimitExceeded), "{source}");
    }
}
