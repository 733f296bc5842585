//! Samples and steps against masks that are easy to check by eye.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Message, RenderOptions, Renderer, RendererConfig, TrainingSampleOptions, attribute_text_segments,
    build_training_sample, build_trajectory_step, create_renderer,
};
use fulmar_core::ErrorKind;
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, HfTokenizer, Tokenizer, train_byte_bpe};
use serde_json::{Value, json};

fn tokenizer() -> Arc<CharTokenizer> {
    let markers = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> [gMASK] <sop> \
        <|system|> <|user|> <|assistant|> <|observation|>";
    let special_tokens = markers.split(' ').map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { special_tokens, ..Default::default() }).unwrap())
}

fn renderer(config: Value) -> Box<dyn Renderer> {
    create_renderer(tokenizer(), &serde_json::from_value::<RendererConfig>(config).unwrap()).unwrap()
}

fn chat() -> Vec<Message> {
    [("user", "1+1?"), ("assistant", "Let me"), ("tool", "2"), ("assistant", "two")]
        .map(|(role, text)| Message::new(role, text).unwrap())
        .into()
}

/// Returns the text of the tokens that train.
fn trained(config: Value, options: &TrainingSampleOptions) -> String {
    let sample = build_training_sample(&*renderer(config), &chat(), options).unwrap();
    assert_eq!(sample.ids.len(), sample.loss_mask.len());
    let kept: Vec<u32> =
        sample.ids.iter().zip(&sample.loss_mask).filter(|(_, bit)| **bit).map(|(id, _)| *id).collect();
    tokenizer().decode(&kept, false).unwrap()
}

#[test]
fn what_an_assistant_samples_trains_and_nothing_else() {
    let chatml = json!({ "name": "chatml" });
    let options = TrainingSampleOptions::default();
    assert_eq!(trained(chatml.clone(), &options), "Let me<|im_end|>two<|im_end|>");
    let taught = TrainingSampleOptions { content_sft_roles: vec!["tool".to_owned()], ..Default::default() };
    assert_eq!(trained(chatml.clone(), &taught), "Let me<|im_end|>2two<|im_end|>");
    let roles = TrainingSampleOptions { roles: Some(vec!["tool".to_owned()]), ..taught };
    assert_eq!(trained(chatml, &roles), "2", "tools' words are taught, no role's samples train");
}

#[test]
fn a_final_turn_is_closed_where_the_family_leaves_it_open() {
    let open = TrainingSampleOptions::default();
    let closed = TrainingSampleOptions { ensure_final_stop: true, ..Default::default() };
    let glm = json!({ "name": "glm4_5" });
    assert_eq!(trained(glm.clone(), &closed), trained(glm, &open) + "<|endoftext|>");
    let chatml = json!({ "name": "chatml" });
    assert_eq!(trained(chatml.clone(), &closed), trained(chatml, &open), "closed already");
}

#[test]
fn samples_that_would_teach_nothing_are_refused() {
    let chatml = renderer(json!({ "name": "chatml" }));
    let kind = |messages: &[Message]| {
        build_training_sample(&*chatml, messages, &TrainingSampleOptions::default()).unwrap_err().kind()
    };
    assert_eq!(kind(&[]), ErrorKind::Empty);
    assert_eq!(kind(&chat()[..1]), ErrorKind::Empty);
    let blind = renderer(json!({
        "name": "opaque", "stopTokens": ["<|im_end|>"],
        "template": "{{ messages | length }}{% for m in messages %} {{ m.content }}<|im_end|>{% endfor %}",
    }));
    let error = build_training_sample(&*blind, &chat(), &TrainingSampleOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().starts_with("messages[1] must be a turn"), "{error:?}");
}

#[test]
fn steps_part_where_the_completion_begins() {
    let chatml = renderer(json!({ "name": "chatml" }));
    let chat = chat();
    let step = build_trajectory_step(&*chatml, &chat[..1], &chat[1..], &[]).unwrap();
    let whole = chatml.render(&chat, &RenderOptions::default()).unwrap();
    assert_eq!([step.prompt_ids.clone(), step.completion_ids.clone()].concat(), whole.ids);
    assert_eq!(step.completion_mask, whole.sampled_mask[step.prompt_ids.len()..]);
    assert!(step.completion_mask[0]);
    let kind = |prompt: &[Message], completion: &[Message], config: Value| {
        build_trajectory_step(&*renderer(config), prompt, completion, &[]).unwrap_err().kind()
    };
    assert_eq!(kind(&chat[..1], &[], json!({ "name": "chatml" })), ErrorKind::Empty);
    // The prompt would contain a wrapper of empty reasoning; the turn with reasoning has another.
    let said = Message::from_value(json!({ "role": "assistant", "content": "a", "reasoning_content": "b" }))
        .unwrap();
    let config = json!({ "name": "qwen3", "enableThinking": false });
    assert_eq!(kind(&chat[..1], &[said], config), ErrorKind::Incompatible);
}

#[test]
fn segments_merge_across_borders_and_belong_to_their_first_character() {
    let text = "ab ab ab ab abc abc abc";
    let file = train_byte_bpe(&[text], 270, &[]).unwrap();
    let tokenizer = HfTokenizer::from_json(&file).unwrap();
    let segments = [("a", false), ("b", true), ("", false), (" a", false), ("b", true)];
    let whole = tokenizer.encode("ab ab").unwrap();
    let (ids, is_content) = attribute_text_segments(&tokenizer, &segments, false).unwrap();
    assert_eq!(ids, whole.ids, "one pass");
    assert!(ids.len() < 5, "tokens cross borders");
    assert!(!is_content.contains(&true), "all tokens begin with frame");
    let (_, widened) = attribute_text_segments(&tokenizer, &segments, true).unwrap();
    assert!(widened.iter().all(|bit| *bit), "all tokens share a letter with content: {widened:?}");
    assert_eq!(attribute_text_segments(&tokenizer, &[], false).unwrap(), (Vec::new(), Vec::new()));
}
