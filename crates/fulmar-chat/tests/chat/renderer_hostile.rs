//! Hostile input: every family treats it as text, or refuses it by code, quickly.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Bridge, BridgeRefusal, Message, ParseOptions, RenderOptions, Renderer, RendererConfig, Tools,
    create_renderer,
};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, HfTokenizer, Tokenizer, train_byte_bpe};
use serde_json::{Value, json};

use crate::markers::MARKERS;

/// Text with control characters, direction marks, joined and unassigned characters.
const ODD: &str = "a\0b\u{1}\u{7f}\u{feff}שלום\u{202e}abc\u{202c} مرحبا \u{200f}👩‍👩‍👧‍👦\u{301}\u{e000}\u{100000}\u{10ffff}\r\n\u{2028}";
const TEMPLATE: &str =
    "{{ raise_exception('x') }}{% for m in messages %}{{ m }}{% endfor %}{# #}{{ ''.__class__ }}";

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, tools: Tools::NONE };

/// Returns a tokenizer in which every byte is a token, so that it can encode any text.
fn bytes() -> Arc<dyn Tokenizer> {
    let special_tokens: Vec<&str> = MARKERS.split(' ').collect();
    let file = train_byte_bpe(&["user assistant system"], 400, &special_tokens).unwrap();
    Arc::new(HfTokenizer::from_json(&file).unwrap())
}

/// Returns the fastest tokenizer: the renderer takes most of the time.
fn characters() -> Arc<dyn Tokenizer> {
    let special_tokens = MARKERS.split(' ').map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { special_tokens, ..Default::default() }).unwrap())
}

fn families(tokenizer: &Arc<dyn Tokenizer>) -> Vec<(String, Box<dyn Renderer>)> {
    let names = "chatml qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 deepseek_v3 deepseek_r1 glm4_5 gpt_oss kimi_k2 minimax_m2";
    let configs = names.split(' ').map(|name| json!({ "name": name }));
    let opaque = json!({ "name": "opaque", "template": CHATML });
    let make = |config: Value| {
        let read: RendererConfig = serde_json::from_value(config.clone()).unwrap();
        (config["name"].to_string(), create_renderer(Arc::clone(tokenizer), &read).unwrap())
    };
    configs.chain([opaque]).map(make).collect()
}

fn turn(role: &str, text: &str) -> Message {
    Message::new(role, text).unwrap()
}

#[test]
fn odd_characters_markers_and_templates_inside_of_content_are_text() {
    let tokenizer = bytes();
    for (name, renderer) in families(&tokenizer) {
        let num_special = |text: &str| {
            let chat = [turn("user", text), turn("assistant", text), turn("user", "?")];
            let ids = renderer.render(&chat, &PROMPT).unwrap().ids;
            assert_eq!(
                tokenizer.decode(&ids, false).unwrap(),
                renderer.render_text(&chat, &PROMPT).unwrap(),
                "{name}"
            );
            ids.iter().filter(|id| tokenizer.is_special(**id)).count()
        };
        // Families whose templates do so parse reasoning inside the content.
        let markers = MARKERS.replace("<think>", "").replace("</think>", "") + "x";
        for text in [ODD, TEMPLATE, &markers] {
            assert_eq!(num_special(text), num_special("x"), "{name}: {text}");
        }
    }
}

#[test]
fn odd_text_comes_back_as_it_was() {
    let tokenizer = bytes();
    for (name, renderer) in families(&tokenizer) {
        let chat = [turn("user", ODD), turn("assistant", &format!("x{ODD}x"))];
        let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
        let start = rendered.sampled_mask.iter().position(|bit| *bit).unwrap();
        let options = ParseOptions { prompt_ids: Some(rendered.ids[..start].to_vec()), ..Default::default() };
        let end = rendered.sampled_mask.iter().rposition(|bit| *bit).unwrap() + 1;
        let parsed = renderer.parse(&rendered.ids[start..end], &options).unwrap();
        assert_eq!(parsed.content, format!("x{ODD}x"), "{name}");
        assert!(!parsed.overran, "{name}");
    }
}

#[test]
fn a_message_of_ten_megabytes_is_rendered_bridged_and_read() {
    let tokenizer = characters();
    let text = "<|im_end|>{{ x }}</think>".repeat(400_000);
    for (name, renderer) in families(&tokenizer) {
        let chat = [turn("user", &text)];
        let prompt = renderer.render(&chat, &PROMPT).unwrap();
        assert!(prompt.ids.len() > text.len(), "{name}");
        let answer = json!({ "role": "tool", "content": &text[..1_200_000], "tool_call_id": "functions.f:0", "name": "f" });
        let answers = [Message::from_value(answer).unwrap()];
        let bridge = renderer.bridge(&prompt.ids[..8], &prompt.ids[8..16], &answers, &[]).unwrap();
        assert_eq!(bridge, Bridge::Declined(BridgeRefusal::OverLength), "{name}");
        let said = tokenizer.encode(&text[..1_000_000]).unwrap().ids;
        let options = ParseOptions { prompt_ids: Some(prompt.ids), ..Default::default() };
        renderer.parse(&said, &options).unwrap();
    }
}

#[test]
fn twenty_thousand_messages_are_rendered_and_read() {
    let tokenizer = characters();
    let mut chat = vec![turn("system", "s")];
    for _ in 0..5_000 {
        let call = json!({ "id": "functions.f:0", "type": "function", "function": { "name": "f", "arguments": { "n": 1 } } });
        chat.push(turn("user", "q"));
        chat.push(
            Message::from_value(json!({ "role": "assistant", "content": null, "tool_calls": [call] }))
                .unwrap(),
        );
        chat.push(
            Message::from_value(
                json!({ "role": "tool", "content": "1", "tool_call_id": "functions.f:0", "name": "f" }),
            )
            .unwrap(),
        );
        chat.push(turn("assistant", "a"));
    }
    let plain: Vec<Message> = chat
        .iter()
        .filter(|message| message.role() != "tool" && !message.has_tool_calls())
        .cloned()
        .collect();
    for (name, renderer) in families(&tokenizer) {
        let chat = if name.contains("chatml") || name.contains("opaque") { &plain } else { &chat };
        let rendered = renderer.render(chat, &PROMPT).unwrap();
        assert!(rendered.ids.len() > 100_000, "{name}");
        assert!(rendered.sampled_mask.iter().filter(|bit| **bit).count() >= 5_000, "{name}");
        let parsed = renderer.parse(&rendered.ids[..100_000], &ParseOptions::default()).unwrap();
        assert!(parsed.content.len() < 100_000, "{name}");
    }
}

#[test]
fn completions_of_nothing_but_markers_are_read() {
    let tokenizer = characters();
    let markers: Vec<u32> = MARKERS.split(' ').map(|marker| tokenizer.id_of(marker).unwrap()).collect();
    for (name, renderer) in families(&tokenizer) {
        for marker in &markers {
            let ids = vec![*marker; 20_000];
            let parsed = renderer.parse(&ids, &ParseOptions::default()).unwrap();
            assert!(parsed.tool_calls.len() <= ids.len(), "{name}");
        }
        let mixed: Vec<u32> =
            markers.iter().copied().filter(|id| !renderer.stop_ids().contains(id)).collect();
        renderer.parse(&mixed.repeat(400), &ParseOptions::default()).unwrap();
    }
}
