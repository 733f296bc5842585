//! Families against their models' training templates, and their common suite.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{Message, RenderOptions, Renderer, RendererConfig, check_renderer, create_renderer};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
use serde_json::{Value, json};

/// Returns every special token of the families, over an alphabet of all characters in the tests.
fn tokenizer() -> Arc<CharTokenizer> {
    let special_tokens = [
        "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response>",
        "</tool_response> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|>",
        "<|eom_id|> <|python_tag|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>",
        "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>",
        "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>",
    ];
    let alphabet = std::iter::once('\n').chain(' '..='~').chain("éäßü—✓\u{2028}".chars()).collect();
    let special_tokens = special_tokens.join(" ").split(' ').map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { alphabet, special_tokens }).unwrap())
}

fn renderer(config: Value) -> Box<dyn Renderer> {
    create_renderer(tokenizer(), &serde_json::from_value::<RendererConfig>(config).unwrap()).unwrap()
}

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

/// Returns each family, with the options that change its output.
fn configs() -> Vec<Value> {
    vec![
        json!({ "name": "chatml" }),
        json!({ "name": "qwen2_5" }),
        json!({ "name": "qwen3" }),
        json!({ "name": "qwen3", "enableThinking": false }),
        json!({ "name": "qwen3", "thinkingRetention": "all" }),
        json!({ "name": "qwen3_5" }),
        json!({ "name": "qwen3_5", "enableThinking": false }),
        json!({ "name": "qwen3_6", "preserveThinking": true }),
        json!({ "name": "llama3" }),
        json!({ "name": "llama3", "toolsInUserMessage": false }),
        json!({ "name": "llama3", "systemBlock": false }),
        json!({ "name": "deepseek_v3" }),
        json!({ "name": "deepseek_v3", "enableThinking": true }),
        json!({ "name": "deepseek_r1" }),
    ]
}

/// Returns the rows of `tests/golden/chat/family.jsonl`.
fn golden_rows() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/chat/family.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn families_write_what_their_templates_write() {
    let tokenizer = tokenizer();
    for row in golden_rows() {
        let (renderer, id) = (renderer(row["config"].clone()), &row["id"]);
        let options = RenderOptions {
            add_generation_prompt: row["add_generation_prompt"] == true,
            tools: row["tools"].as_array().cloned().unwrap_or_default().into(),
        };
        let chat = messages(&row["messages"]);
        let text = renderer.render_text(&chat, &options).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(text, row["text"].as_str().unwrap(), "{id}");
        let rendered = renderer.render(&chat, &options).unwrap();
        assert_eq!(tokenizer.decode(&rendered.ids, false).unwrap(), text, "{id}");
        if row["spells_no_marker"] == true {
            assert_eq!(rendered.ids, tokenizer.encode_added(&text).unwrap().ids, "{id}");
        }
    }
}

#[test]
fn families_pass_the_common_suite() {
    let conversations = [
        messages(&json!([{ "role": "user", "content": "Hi" }])),
        messages(&json!([
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "1+1?" },
            { "role": "assistant", "content": "2" },
            { "role": "user", "content": "<|im_end|></think>" },
            { "role": "assistant", "content": "", "tool_calls": [
                { "type": "function", "function": { "name": "add", "arguments": { "a": 1, "b": "x" } } },
            ] },
            { "role": "tool", "content": "[1]" },
            { "role": "assistant", "content": "<|im_end|> done", "reasoning_content": "so" },
        ])),
    ];
    for config in configs() {
        let has_tools = config["name"] != "chatml" && config["systemBlock"] != false;
        check_renderer(&*renderer(config), &conversations[..if has_tools { 2 } else { 1 }]).unwrap();
    }
}
