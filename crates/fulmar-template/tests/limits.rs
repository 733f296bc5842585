//! What a template may ask for: each limit holds at its bound and refuses what is one past it.

use fulmar_core::ErrorKind;
use fulmar_core::limits::{
    TEMPLATE_CHAIN_MAX, TEMPLATE_NESTING_MAX, TEMPLATE_OUTPUT_BYTES_MAX, TEMPLATE_SOURCE_BYTES_MAX,
    TEMPLATE_STEPS_MAX,
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
    // The chain of a tag counts its first word too, and that of a subscript what stands in the brackets.
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
    assert_eq!((most.steps, most.output_bytes), (TEMPLATE_STEPS_MAX, TEMPLATE_OUTPUT_BYTES_MAX));
    let needed = (1..20_000).find(|&steps| rendered(source, Limits { steps, ..most }).is_ok());
    let needed = needed.unwrap_or_default();
    assert!(needed > 1000);
    assert_eq!(rendered(source, Limits { steps: needed - 1, ..most }), Err(ErrorKind::LimitExceeded));
    let error = Template::with_limits("", Limits { steps: TEMPLATE_STEPS_MAX + 1, ..most }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_rendering_gives_at_most_its_bytes() {
    let limits = |output_bytes| Limits { output_bytes, ..Limits::default() };
    assert_eq!(rendered("{{ 'é' }}a", limits(3)).as_deref(), Ok("éa"));
    assert_eq!(rendered("{{ 'é' }}a", limits(2)), Err(ErrorKind::LimitExceeded));
    let error = Template::with_limits("", limits(TEMPLATE_OUTPUT_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
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
