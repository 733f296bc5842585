//! The built-in templates against the families' own templates in transformers.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use fulmar_core::ErrorKind;
use fulmar_template::{CivilTime, Template, TemplateInput, TemplateRegistry};
use serde_json::{Map, Value};

#[test]
fn every_builtin_template_renders_its_golden_rows() {
    let rows = rows();
    for name in TemplateRegistry::builtin().names() {
        let template = TemplateRegistry::builtin().get(name).expect("it compiles");
        let mine: Vec<_> = rows.iter().filter(|row| row["template"] == name).collect();
        assert!(mine.len() >= 14, "{name} has {} rows", mine.len());
        for row in mine {
            check(&template, row);
        }
    }
}

#[test]
fn every_builtin_template_has_generation_blocks() {
    for name in TemplateRegistry::builtin().names() {
        let template = TemplateRegistry::builtin().get(name).expect("it compiles");
        assert!(template.has_generation(), "{name}");
    }
}

fn check(template: &Template, row: &Value) {
    let cases: Value = serde_json::from_str(&golden("builtin_cases.json")).expect("cases");
    let case = row.get("case").and_then(Value::as_str).map_or(row, |name| &cases[name]);
    let messages = case["messages"].as_array().expect("messages").iter();
    let input = TemplateInput {
        messages: messages.map(|message| message.as_object().expect("message")).collect(),
        tools: case["tools"].as_array().map(Vec::as_slice),
        add_generation_prompt: row["add_generation_prompt"] == true,
        special_tokens: map(&row["special_tokens"]),
        kwargs: map(&row["kwargs"]),
        now: Some(CivilTime::parse(row["now"].as_str().expect("now")).expect("a time")),
        ..TemplateInput::default()
    };
    match (template.render(&input), row["expected"].as_str()) {
        (Ok(rendered), Some(expected)) => {
            assert_eq!(rendered.text, expected, "{row}");
            let spans = rendered.assistant_spans.expect("spans");
            assert_eq!(words(expected, &spans), learned(row, expected), "{row}");
        }
        (Err(error), None) => {
            let expected = match row["expected_error"].as_str() {
                Some("TemplateError") => ErrorKind::TemplateRaised,
                Some("UndefinedError") => ErrorKind::UnknownName,
                _ => ErrorKind::Incompatible,
            };
            assert_eq!(error.kind(), expected, "{error} for {row}");
        }
        (rendered, expected) => panic!("got {rendered:?}, expected {expected:?} for {row}"),
    }
}

/// Returns the text in each of the row's spans, which count code points.
fn learned(row: &Value, text: &str) -> Vec<String> {
    let bytes: Vec<_> = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect();
    let place = |value: &Value| bytes[value.as_u64().expect("a place") as usize];
    let spans = row["assistant_char_spans"].as_array().expect("spans").iter();
    words(text, &spans.map(|span| [place(&span[0]), place(&span[1])]).collect::<Vec<_>>())
}

/// Returns the text in each non-empty span; adjacent spans count as one.
fn words(text: &str, spans: &[[usize; 2]]) -> Vec<String> {
    let mut merged: Vec<[usize; 2]> = Vec::new();
    for &[start, end] in spans.iter().filter(|[start, end]| start < end) {
        match merged.last_mut() {
            Some(last) if last[1] == start => last[1] = end,
            _ => merged.push([start, end]),
        }
    }
    merged.into_iter().map(|[start, end]| text[start..end].to_owned()).collect()
}

fn map(value: &Value) -> &Map<String, Value> {
    value.as_object().expect("an object")
}

fn rows() -> Vec<Value> {
    golden("builtin.jsonl").lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

fn golden(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/template");
    fs::read_to_string(folder.join(file)).expect("the golden file is there")
}
