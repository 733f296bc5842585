//! Expressions against jinja2 as transformers configures it: the same text, or an error where it fails.
#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use fulmar_core::ErrorKind;
use fulmar_template::Template;
use serde_json::Value;

#[test]
fn expressions_give_what_jinja2_gives() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/template");
    let rows = fs::read_to_string(folder.join("expressions.jsonl")).expect("the golden file is there");
    let (head, rows) = rows.split_once('\n').expect("a line of variables, and rows");
    let (before, variables) =
        head.split_once('\t').expect("the text before each expression, and the variables");
    let input = format!("{{\"kwargs\":{variables}}}");
    let wrong: Vec<String> = rows.lines().filter_map(|row| difference(before, row, &input)).collect();
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn difference(before: &str, row: &str, input: &str) -> Option<String> {
    let row: Value = serde_json::from_str(row).expect("a row");
    let source = format!("{before}{{{{ {} }}}}", row["expression"].as_str().expect("an expression"));
    let rendered = Template::new(&source).and_then(|template| template.render_json(input));
    match (&rendered, row["text"].as_str()) {
        (Ok(rendered), Some(text)) if rendered.text == text => None,
        // jinja2's kinds of errors are coarser than ours, but undefined values have one kind in both.
        (Err(error), None) if row["error"] != "UndefinedError" || error.kind() == ErrorKind::UnknownName => {
            None
        }
        _ => Some(format!("{source}\n    expected {row}\n    got {rendered:?}")),
    }
}
