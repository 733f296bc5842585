//! Spans of `generation` blocks: the text is the same as without them, and the spans are their content.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_template::{Template, TemplateInput};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn render(source: &str, kwargs: &Value) -> (String, Vec<String>) {
    let empty = Map::new();
    let kwargs = kwargs.as_object().unwrap_or(&empty);
    let rendered =
        Template::new(source).unwrap().render(&TemplateInput { kwargs, ..TemplateInput::default() }).unwrap();
    let spans = rendered.assistant_spans.unwrap_or_default();
    let parts = spans.iter().map(|&[start, end]| rendered.text[start..end].to_owned()).collect();
    (rendered.text, parts)
}

#[test]
fn every_form_of_the_tag_is_known() {
    for (source, text, parts) in [
        ("{%generation%}x{%endgeneration%}y", "xy", vec!["x"]),
        ("a  {%- generation -%}  x  {%- endgeneration -%}  b", "axb", vec!["x"]),
        ("{%\n generation\n%}\nx\n{% endgeneration %}\ny", "x\ny", vec!["x\n"]),
        ("  {% generation %}x{% endgeneration %}", "x", vec!["x"]),
        ("  {%+ generation +%}\nx{% endgeneration %}", "  \nx", vec!["\nx"]),
        (
            "{# {% generation %} #}{% raw %}{% generation %}{% endraw %}{{ '{% generation %}' }}",
            "{% generation %}{% generation %}",
            vec![],
        ),
        ("{% generation %}{% endgeneration %}", "", vec![""]),
        ("{% set generation = 1 %}{{ generation }}", "1", vec![]),
    ] {
        let (got, got_parts) = render(source, &json!({}));
        assert_eq!(
            (got.as_str(), got_parts),
            (text, parts.into_iter().map(str::to_owned).collect()),
            "{source}"
        );
    }
}

#[test]
fn spans_pass_through_macros_loops_and_captures() {
    let source = "{% macro m(t) %}[{% generation %}{{ t }}{% endgeneration %}]{% endmacro %}{% set s %}{{ m('é') }}{% endset %}\
                  <{{ s }}{% for i in [1, 2] %}{% generation %}{{ i }}{% generation %}n{% endgeneration %}{% endgeneration %},{% endfor %}{{ s | upper }}>";
    let (text, parts) = render(source, &json!({}));
    assert_eq!(text, "<[é]1n,2n,[É]>");
    assert_eq!(parts, ["é", "1n", "2n", "É"]);
}

#[test]
fn a_block_is_a_scope_of_its_own() {
    let source = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}";
    assert_eq!(render(source, &json!({})), ("21".to_owned(), vec!["2".to_owned()]));
}

#[test]
fn content_that_looks_like_a_tag_or_a_mark_is_content() {
    let content = "{% generation %}{% endgeneration %}\u{F0000}\u{F0001}{{ x }}";
    let (text, parts) =
        render("{% generation %}{{ c }}{% endgeneration %}\u{F0002}", &json!({ "c": content }));
    assert_eq!(text, format!("{content}\u{F0002}"));
    assert_eq!(parts, [content]);
}

/// Pieces of a nested template; `<` and `>` represent the tags.
fn template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("{{ c }}".to_owned()),
        Just("text\n".to_owned()),
        Just("  ".to_owned()),
        Just("é\u{F0000}".to_owned()),
        Just("{{ l | join(',') }}".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|parts| parts.concat()),
            inner.clone().prop_map(|body| format!("{{% for i in l %}}{body}{{% endfor %}}")),
            inner.clone().prop_map(|body| format!("{{% if l %}}{body}{{% endif %}}")),
            inner.clone().prop_map(|body| format!("{{% filter upper %}}{body}{{% endfilter %}}")),
            inner.prop_map(|body| format!("{{% generation %}}{body}{{% endgeneration %}}")),
        ]
    })
}

proptest! {
    #[test]
    fn text_is_that_of_the_template_without_tags(source in template(), content in ".{0,12}") {
        let kwargs = json!({ "c": content, "l": [1.0, content] });
        // A block without effect replaces each tag, so that whitespace control is the same.
        let plain = source.replace("{% generation %}", "{% if true %}").replace("{% endgeneration %}", "{% endif %}");
        prop_assert_eq!(&render(&source, &kwargs).0, &render(&plain, &kwargs).0);
    }

    #[test]
    fn any_source_gives_a_template_or_an_error(source in "(\\{[{%#]|[%#}]\\}|[ -~]|[a-z]{1,9} ?|é){0,40}") {
        if let Ok(template) = Template::new(&source) {
            let _ = template.render(&TemplateInput::default());
        }
    }
}
