//! The losses of `parse(render(x))`, family by family, against the table in the documentation of
//! `RendererConfig`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    History, Message, ParseOptions, Parsed, RenderOptions, Renderer, RendererConfig, create_renderer,
};
use fulmar_core::{ErrorKind, Result};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
use serde_json::{Value, json};

use crate::markers::MARKERS;

fn renderer(name: &str) -> Box<dyn Renderer> {
    let special_tokens = MARKERS.split(' ').map(str::to_owned).collect();
    let tokenizer =
        CharTokenizer::new(CharTokenizerOptions { special_tokens, ..Default::default() }).unwrap();
    let config: RendererConfig = serde_json::from_value(json!({ "name": name })).unwrap();
    create_renderer(Arc::new(tokenizer), &config).unwrap()
}

/// Returns an assistant's answer to a question after rendering and parsing.
fn back(renderer: &dyn Renderer, turn: Value) -> Result<Parsed> {
    let chat = [Message::new("user", "?")?, Message::from_value(turn)?];
    let rendered = renderer.render(&chat, &RenderOptions::default())?;
    let start = rendered.sampled_mask.iter().position(|bit| *bit).unwrap();
    let end = rendered.sampled_mask.iter().rposition(|bit| *bit).unwrap() + 1;
    let prompt_ids = Some(rendered.ids[..start].to_vec());
    renderer.parse(&rendered.ids[start..end], &ParseOptions { prompt_ids, ..Default::default() })
}

fn word(found: Option<&str>, given: &str) -> &'static str {
    match found {
        Some(found) if found == given => "kept",
        Some(found) if found == given.trim() => "trimmed",
        _ => "lost",
    }
}

/// Returns the row of a family: blanks around content, reasoning, content with a call, several calls, ids of
/// calls.
fn row(name: &str) -> Vec<&'static str> {
    let renderer = &*renderer(name);
    let say = |turn: Value| back(renderer, turn);
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "f", "arguments": { "n": 1 } } });
    let calls = |content: Option<&str>, ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        json!({ "role": "assistant", "content": content, "tool_calls": calls })
    };
    let refused = |error: fulmar_core::Error| {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{name}");
        "refused"
    };
    let content = say(json!({ "role": "assistant", "content": " a " })).unwrap().content;
    let thought = say(json!({ "role": "assistant", "content": "a", "reasoning_content": " b " })).unwrap();
    let beside = say(calls(Some("a"), &["functions.f:0"])).map_or_else(refused, |parsed| {
        match (parsed.content.as_str(), parsed.reasoning_content.as_deref(), parsed.tool_calls.len()) {
            ("a", None | Some(""), 1) => "kept",
            ("", Some("a"), 1) => "as reasoning",
            ("a", None | Some(""), 0) => "without the call",
            _ => "lost",
        }
    });
    let several = say(calls(None, &["functions.f:0", "functions.f:1"]))
        .map_or_else(refused, |parsed| if parsed.tool_calls.len() == 2 { "kept" } else { "lost" });
    let lone = calls(None, &["functions.f:0"]);
    let id = say(lone).map_or_else(refused, |parsed| {
        assert_eq!(
            parsed.tool_calls[0].arguments.as_deref().map(|text| text.replace(' ', "")).as_deref(),
            Some("{\"n\":1}")
        );
        word(parsed.tool_calls[0].id.as_deref(), "functions.f:0")
    });
    vec![word(Some(&content), " a "), word(thought.reasoning_content.as_deref(), " b "), beside, several, id]
}

#[test]
fn the_documented_table_of_what_is_lost_is_what_is_seen() {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/config.rs")).unwrap();
    let rows: Vec<Vec<&str>> = source
        .lines()
        .filter_map(|line| line.strip_prefix("/// | `"))
        .map(|line| {
            line.trim_end_matches('|').split('|').map(|cell| cell.trim().trim_end_matches('`')).collect()
        })
        .collect();
    assert_eq!(rows.len(), 12, "one row a family");
    let seen: Vec<Vec<&str>> = rows.iter().map(|cells| [&cells[..1], &row(cells[0])].concat()).collect();
    assert_eq!(rows, seen, "the first is documented, the second seen");
}

#[test]
fn integers_of_arguments_keep_all_their_digits() {
    let digits = "123456789012345678901234567890";
    let arguments = format!(r#"{{"id":{digits},"ids":[-{digits},9223372036854775809]}}"#);
    for name in ["qwen2_5", "qwen3", "qwen3_5", "glm4_5", "minimax_m2", "llama3", "deepseek_v3"] {
        let renderer = renderer(name);
        let call = format!(r#"{{"type":"function","function":{{"name":"f","arguments":{arguments}}}}}"#);
        let history = format!(
            r#"[{{"role":"user","content":"?"}},{{"role":"assistant","content":"","tool_calls":[{call}]}}]"#
        );
        let history = History::from_json(&history).unwrap();
        assert!(history.to_json().contains(&arguments), "{name}");
        let turn = history.chat().unwrap()[1].clone().into_value();
        let parsed = back(&*renderer, turn).unwrap();
        let read = parsed.tool_calls[0].arguments.as_deref().unwrap().replace(' ', "");
        assert_eq!(read, arguments, "{name}");
        let text = json!([{ "function": { "name": "f", "arguments": arguments } }]);
        let parsed =
            back(&*renderer, json!({ "role": "assistant", "content": "", "tool_calls": text })).unwrap();
        let read = parsed.tool_calls[0].arguments.as_deref().unwrap().replace(' ', "");
        assert_eq!(read, arguments, "{name}, arguments as text");
    }
}
