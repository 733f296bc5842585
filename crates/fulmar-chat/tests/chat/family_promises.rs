//! Prefix stability of the newer families, and text arguments in all families.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Bridge, Message, ParseOptions, PrefixStability, RenderOptions, Renderer, RendererConfig, ToolCallStatus,
    Tools, create_renderer,
};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::markers::MARKERS;

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, tools: Tools::NONE };
const WHOLE: RenderOptions = RenderOptions { add_generation_prompt: false, tools: Tools::NONE };

fn tokenizer() -> Arc<CharTokenizer> {
    let special_tokens = MARKERS.split(' ').map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { special_tokens, ..Default::default() }).unwrap())
}

fn renderer(config: Value) -> Box<dyn Renderer> {
    create_renderer(tokenizer(), &serde_json::from_value::<RendererConfig>(config).unwrap()).unwrap()
}

fn messages(chat: &[Value]) -> Vec<Message> {
    chat.iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

/// Returns the completion of the last message, and the ids before it.
fn last_turn(renderer: &dyn Renderer, chat: &[Value]) -> (Vec<u32>, Vec<u32>) {
    let rendered = renderer.render(&messages(chat), &WHOLE).unwrap();
    let is_last =
        |t: &usize| rendered.message_index[*t] == chat.len() as i32 - 1 && rendered.sampled_mask[*t];
    let turn: Vec<usize> = (0..rendered.ids.len()).filter(is_last).collect();
    let (start, end) = (turn[0], turn[turn.len() - 1] + 1);
    (rendered.ids[..start].to_vec(), rendered.ids[start..end].to_vec())
}

#[test]
fn text_that_looks_like_another_type_stays_text_where_the_schema_says_so() {
    let families =
        "qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 deepseek_v3 deepseek_r1 glm4_5 gpt_oss kimi_k2 minimax_m2";
    let schemas =
        [json!({ "type": "string" }), json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] })];
    for name in families.split(' ') {
        let renderer = renderer(json!({ "name": name }));
        for (place, schema) in schemas.iter().enumerate() {
            let properties = json!({ "type": "object", "properties": { "s": schema } });
            let tools =
                vec![json!({ "type": "function", "function": { "name": "f", "parameters": properties } })];
            let texts: &[&str] =
                if place == 0 { &["true", "42", "null", "[1,2,3]", "{\"k\": 1}", "abc"] } else { &["abc"] };
            for text in texts {
                let call = json!({
                    "id": "functions.f:0", "type": "function", "function": { "name": "f", "arguments": { "s": text } },
                });
                let turn = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
                let (prompt, completion) =
                    last_turn(&*renderer, &[json!({ "role": "user", "content": "?" }), turn]);
                let options = ParseOptions { prompt_ids: Some(prompt), tools: tools.clone().into() };
                let parsed = renderer.parse(&completion, &options).unwrap();
                let [call] = &parsed.tool_calls[..] else { panic!("{name}: {parsed:?}") };
                assert_eq!(call.status, ToolCallStatus::Ok, "{name}: {call:?}");
                let read: Value = serde_json::from_str(call.arguments.as_deref().unwrap()).unwrap();
                assert_eq!(read, json!({ "s": text }), "{name}");
            }
        }
    }
}

#[test]
fn prefix_stability_of_the_newer_families_has_its_witnesses() {
    let query = json!({ "role": "user", "content": "q" });
    let call =
        json!({ "id": "functions.f:0", "type": "function", "function": { "name": "f", "arguments": {} } });
    let answer = json!({ "role": "tool", "content": "t", "name": "f", "tool_call_id": "functions.f:0" });
    for config in [
        json!({ "name": "glm4_5" }),
        json!({ "name": "glm4_5", "enableThinking": false }),
        json!({ "name": "gpt_oss" }),
        json!({ "name": "gpt_oss", "autoDropAnalysis": false }),
        json!({ "name": "kimi_k2" }),
        json!({ "name": "minimax_m2" }),
    ] {
        let renderer = renderer(config.clone());
        let ids = |chat: &[Value]| renderer.render(&messages(chat), &WHOLE).unwrap().ids;
        let keeps = |chat: &[Value], reply: &Value| {
            ids(&[chat, std::slice::from_ref(reply)].concat()).starts_with(&ids(chat))
        };
        let turn = |reasoning: &str| {
            let said = json!({ "role": "assistant", "content": "a", "reasoning_content": reasoning });
            [query.clone(), said]
        };
        let called = |reasoning: &str| {
            [
                query.clone(),
                json!({ "role": "assistant", "content": null, "reasoning_content": reasoning, "tool_calls": [call] }),
            ]
        };
        let breaks_by_query = ["r", ""].iter().any(|reasoning| !keeps(&turn(reasoning), &query));
        let breaks_by_answer = ["r", ""].iter().any(|reasoning| !keeps(&called(reasoning), &answer));
        let seen = match (breaks_by_query, breaks_by_answer) {
            (false, false) => PrefixStability::Always,
            (true, false) => PrefixStability::WithinToolCycle,
            (_, true) => PrefixStability::Never,
        };
        let claimed = renderer.prefix_stability();
        let rank = |stability: PrefixStability| match stability {
            PrefixStability::Always => 2,
            PrefixStability::WithinToolCycle => 1,
            _ => 0,
        };
        assert!(rank(claimed) <= rank(seen), "{config}: {claimed:?} is claimed, {seen:?} was seen");
        assert!(
            claimed != PrefixStability::WithinToolCycle || breaks_by_query,
            "{config}: a query breaks it"
        );
    }
}

#[test]
fn without_thinking_every_prompt_of_glm_begins_with_the_one_before() {
    let renderer = renderer(json!({ "name": "glm4_5", "enableThinking": false, "thinkingRetention": "all" }));
    let mut chat = vec![json!({ "role": "user", "content": "a" })];
    let mut prompt = renderer.render(&messages(&chat), &PROMPT).unwrap().ids;
    for (answer, query) in [("b", "c"), ("d", "e"), ("", "f")] {
        let said = if answer.is_empty() { String::new() } else { format!("\n{answer}") };
        let completion = tokenizer().encode_added(&(said + "<|user|>")).unwrap().ids;
        let reply = json!({ "role": "user", "content": query });
        chat.extend([json!({ "role": "assistant", "content": answer }), reply.clone()]);
        let next = renderer.render(&messages(&chat), &PROMPT).unwrap().ids;
        assert!(next.starts_with(&[&prompt[..], &completion].concat()));
        let Bridge::Extended(extension) =
            renderer.bridge(&prompt, &completion, &messages(&[reply]), &[]).unwrap()
        else {
            panic!("nothing forgets here")
        };
        assert_eq!(extension.next_prompt(&prompt, &completion), next, "a bridge is the re-render");
        prompt = next;
    }
}

/// Sampled pieces: words and any markers, a closing token among them.
fn completion() -> impl Strategy<Value = String> {
    let markers: Vec<String> = MARKERS.split(' ').map(str::to_owned).collect();
    let piece = prop_oneof![3 => "[a-z {}\":\n]{1,6}", 1 => prop::sample::select(markers)];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_rollout_over_bridges_holds_every_sampled_token_in_its_place(
        turns in prop::collection::vec((completion(), any::<bool>(), any::<bool>(), "[a-z<|>_]{1,8}"), 1..5),
    ) {
        let names = "chatml qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 deepseek_v3 deepseek_r1 glm4_5 gpt_oss kimi_k2 minimax_m2";
        let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
            {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        let opaque = json!({ "name": "opaque", "template": template });
        for config in names.split(' ').map(|name| json!({ "name": name })).chain([opaque]) {
            let renderer = renderer(config.clone());
            let tokenizer = tokenizer();
            let mut prompt = renderer.render(&messages(&[json!({ "role": "user", "content": "q" })]), &PROMPT).unwrap().ids;
            for (completion, is_closed, is_tool, reply) in &turns {
                let mut sampled = tokenizer.encode_added(completion).unwrap().ids;
                sampled.extend(renderer.stop_ids().first().filter(|_| *is_closed));
                let options = ParseOptions { prompt_ids: Some(prompt.clone()), ..Default::default() };
                renderer.parse(&sampled, &options).unwrap();
                let reply = if *is_tool {
                    json!({ "role": "tool", "content": reply, "name": "f", "tool_call_id": "functions.f:0" })
                } else {
                    json!({ "role": "user", "content": reply })
                };
                let Bridge::Extended(next) = renderer.bridge(&prompt, &sampled, &messages(&[reply]), &[]).unwrap()
                else {
                    break;
                };
                let kept = fulmar_chat::trim_to_turn_close(&sampled, renderer.stop_ids());
                prop_assert_eq!(next.num_kept, kept.len(), "{}", config);
                prop_assert!(!next.rendered.sampled_mask.contains(&true), "{}", config);
                prop_assert!(next.rendered.message_index.contains(&0), "{}: the reply is there", config);
                prompt = next.next_prompt(&prompt, &sampled);
            }
        }
    }
}
