//! Conversations with chat templates: text, ids and masks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_chat::{
    ChatTemplateOptions, EncodedChats, History, MaskOptions, MaskPreset, MaskedTurns, Message, Straddling,
    apply_chat_template,
};
use fulmar_core::{Error, ErrorKind, limits};
use fulmar_template::{Template, TemplateRegistry};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
use serde_json::{Value, json};

/// A template without `generation` blocks.
const PLAIN: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";
/// The same with blocks that include the end of the turn.
const TAGGED: &str = "{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}";
/// Reasoning, content and calls, all in the turn.
const PARTS: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ '\n' }}<call>{{ c.name }}</call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn tokenizer() -> CharTokenizer {
    CharTokenizer::new(CharTokenizerOptions::default()).unwrap()
}

fn options(mask: MaskOptions) -> ChatTemplateOptions {
    ChatTemplateOptions { add_generation_prompt: false, mask: Some(mask), ..Default::default() }
}

/// Returns the text that counts, with a bar at each gap.
fn counted(source: &str, chat: &Value, options: &ChatTemplateOptions) -> Result<String, Error> {
    let (tokenizer, template) = (tokenizer(), Template::new(source)?);
    let history = History::from_json(&chat.to_string())?;
    let chat = apply_chat_template(&template, Some(&tokenizer), history.chat()?, options)?;
    let masks = chat.masks.unwrap();
    let names = chat.ids.iter().zip(&masks.assistant).map(|(id, counts)| match counts {
        true => tokenizer.token_of(*id).unwrap(),
        false => "|".to_owned(),
    });
    let text = names.collect::<String>();
    let runs: Vec<&str> = text.split('|').filter(|run| !run.is_empty()).collect();
    // Names of special tokens hold bars themselves.
    Ok(runs.join("|").replace("<|im_end|>", "$"))
}

fn two_turns() -> Value {
    json!([
        { "role": "user", "content": "yes" }, { "role": "assistant", "content": "yes" },
        { "role": "user", "content": "no" }, { "role": "assistant", "content": "no!" },
    ])
}

#[test]
fn a_template_without_blocks_is_asked_for_the_turns() {
    let preset = |preset| {
        counted(PLAIN, &two_turns(), &options(MaskOptions { preset, ..Default::default() })).unwrap()
    };
    assert_eq!(preset(MaskPreset::TorchRl), "yes|no!", "the user's equal text does not count");
    assert_eq!(preset(MaskPreset::Trl), "yes$|no!$");
    assert_eq!(preset(MaskPreset::Generated), "no!$");
}

#[test]
fn blocks_count_as_they_are_unless_the_end_of_turn_is_asked_about() {
    let with = |mask| counted(TAGGED, &two_turns(), &options(mask)).unwrap();
    assert_eq!(with(MaskOptions::default()), "yes$\n|no!$\n");
    assert_eq!(with(MaskOptions { end_of_turn: Some(false), ..Default::default() }), "yes|\n|no!|\n");
    assert_eq!(with(MaskOptions { preset: MaskPreset::Trl, ..Default::default() }), "yes$\n|no!$\n");
    let chatml = TemplateRegistry::builtin().source("chatml_format").unwrap();
    let trl = options(MaskOptions { preset: MaskPreset::Trl, ..Default::default() });
    assert_eq!(counted(chatml, &two_turns(), &trl).unwrap(), "yes$|no!$");
    assert_eq!(counted(chatml, &two_turns(), &options(MaskOptions::default())).unwrap(), "yes|no!");
    let last = options(MaskOptions { turns: Some(MaskedTurns::Last), ..Default::default() });
    assert_eq!(counted(chatml, &two_turns(), &last).unwrap(), "no!");
}

#[test]
fn reasoning_and_tool_calls_count_or_not() {
    let chat = json!([
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "reasoning_content": "hm", "content": "See.", "tool_calls": [{ "name": "add" }] },
    ]);
    let with = |mask| counted(PARTS, &chat, &options(mask)).unwrap();
    let all = MaskOptions { preset: MaskPreset::Trl, ..Default::default() };
    assert_eq!(with(all), "<think>\nhm\n</think>\n\nSee.\n<call>add</call>$");
    assert_eq!(with(MaskOptions { reasoning: Some(false), ..all }), "See.\n<call>add</call>$");
    assert_eq!(with(MaskOptions { tool_calls: Some(false), ..all }), "<think>\nhm\n</think>\n\nSee.|$");
    let content =
        MaskOptions { reasoning: Some(false), tool_calls: Some(false), end_of_turn: Some(false), ..all };
    assert_eq!(with(content), "See.");
}

#[test]
fn the_first_token_may_be_the_whole_turn() {
    let chat = json!([{ "role": "assistant", "content": "x" }]);
    let source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %} tail{% endfor %}";
    assert_eq!(counted(source, &chat, &options(MaskOptions::default())).unwrap(), "x");
    assert_eq!(
        counted("{{ messages[0].content }}<|im_end|>", &chat, &options(MaskOptions::default())).unwrap(),
        "x"
    );
}

#[test]
fn an_empty_mask_is_refused_with_its_reason() {
    let user = json!([{ "role": "user", "content": "x" }]);
    let silent = json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": "" }]);
    let unmarked = "{% for m in messages %}{{ m.content }}{% if false %}{% generation %}{% endgeneration %}{% endif %}{% endfor %}";
    let mask = options(MaskOptions::default());
    let short = ChatTemplateOptions { max_length: Some(3), ..mask.clone() };
    for (source, chat, options, reason) in [
        (PLAIN, &user, &mask, "no message is an assistant's"),
        (PLAIN, &silent, &mask, "messages are empty"),
        (unmarked, &two_turns(), &mask, "generation blocks hold no token"),
        (PLAIN, &two_turns(), &short, "truncation"),
    ] {
        let error = counted(source, chat, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Empty);
        assert!(error.detail().contains(reason), "{error:?}");
        let allowed = MaskOptions { allow_empty: true, ..Default::default() };
        assert_eq!(
            counted(source, chat, &ChatTemplateOptions { mask: Some(allowed), ..options.clone() }).unwrap(),
            ""
        );
    }
}

#[test]
fn truncation_cuts_ids_and_masks_alike() {
    let left = ChatTemplateOptions {
        max_length: Some(4),
        truncation_side: fulmar_chat::Side::Left,
        ..options(MaskOptions::default())
    };
    assert_eq!(counted(PLAIN, &two_turns(), &left).unwrap(), "o!");
    let right = ChatTemplateOptions { max_length: Some(29), ..options(MaskOptions::default()) };
    assert_eq!(counted(PLAIN, &two_turns(), &right).unwrap(), "yes");
}

#[test]
fn a_text_that_changes_behind_itself_is_refused_with_the_place() {
    let source = "{% for m in messages %}{{ m.role }} {{ m.content if loop.last else '...' }}\n{% endfor %}{% if add_generation_prompt %}assistant {% endif %}";
    let error = counted(source, &two_turns(), &options(MaskOptions::default())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().contains("at byte"), "{error:?}");
}

#[test]
fn tokens_across_a_border_follow_the_policy() {
    // The token " w" begins before the assistant's "w" does.
    let chat = json!([{ "role": "user", "content": "u" }, { "role": "assistant", "content": "é" }]);
    let bytes = fulmar_tokenizer::HfTokenizer::from_json(
        r#"{"model":{"type":"BPE","vocab":{" ":0,"u":1,"a":2,"w":3," w":4},"merges":[[" ","w"]]}}"#,
    )
    .unwrap();
    let template = Template::new(
        "{% for m in messages %}{{ m.role[0] }} {% generation %}{{ 'w' if m.role == 'assistant' }}{% endgeneration %}{% endfor %}",
    );
    let history = History::from_json(&chat.to_string()).unwrap();
    let run = |straddling| {
        let options = options(MaskOptions { straddling, allow_empty: true, ..Default::default() });
        apply_chat_template(template.as_ref().unwrap(), Some(&bytes), history.chat().unwrap(), &options)
    };
    let sum =
        |straddling| run(straddling).unwrap().masks.unwrap().assistant.iter().filter(|bit| **bit).count();
    assert_eq!((sum(Straddling::Include), sum(Straddling::Exclude)), (1, 0));
    assert_eq!(run(Straddling::Error).unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn two_beginnings_are_refused_unless_allowed() {
    let source = "{{ bos_token }}{{ messages[0].content }}";
    let chat = json!([{ "role": "user", "content": "<|im_start|>x" }]);
    let (tokenizer, template) = (tokenizer(), Template::new(source).unwrap());
    let history = History::from_json(&chat.to_string()).unwrap();
    let special = json!({ "bos_token": "<|im_start|>" });
    let mut options =
        ChatTemplateOptions { special_tokens: special.as_object().unwrap().clone(), ..Default::default() };
    let apply = |options: &ChatTemplateOptions| {
        apply_chat_template(&template, Some(&tokenizer), history.chat().unwrap(), options)
    };
    assert_eq!(apply(&options).unwrap_err().kind(), ErrorKind::Incompatible);
    options.allow_double_bos = true;
    assert_eq!(apply(&options).unwrap().ids.len(), 3);
}

#[test]
fn what_only_fills_or_flags_is_not_shown() {
    let source = "{% for m in messages %}{{ m.keys() | list | join(',') }};{% endfor %}";
    let chat = json!([{ "role": "user", "content": "x", "is_complete": false }, { "role": "<none>", "content": "" }]);
    let template = Template::new(source).unwrap();
    let history = History::from_json(&chat.to_string()).unwrap();
    let chats =
        history.unsqueeze(0).unwrap().apply_chat_template(&template, None, &ChatTemplateOptions::default());
    assert_eq!(chats.unwrap()[0].text, "role,content;");
    let mask = options(MaskOptions::default());
    assert_eq!(
        history.apply_chat_template(&template, None, &mask).unwrap_err().kind(),
        ErrorKind::Incompatible
    );
}

#[test]
fn turns_up_to_the_limit_are_found_by_rendering_and_none_past_it() {
    let turn = json!({ "role": "assistant", "content": "a" });
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let chat = |length| Value::Array(vec![turn.clone(); length]);
    let mask = options(MaskOptions::default());
    assert_eq!(
        counted(source, &chat(limits::MASK_PREFIX_TURNS_MAX), &mask).unwrap().len(),
        limits::MASK_PREFIX_TURNS_MAX
    );
    let error = counted(source, &chat(limits::MASK_PREFIX_TURNS_MAX + 1), &mask).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_template_without_a_generation_prompt_keeps_the_names_of_speakers_out() {
    let source = "{% for m in messages %}{{ m.role }}: {% if m.thinking %}({{ m.thinking }}) {% endif %}{{ m.content }}<|im_end|>{% endfor %}";
    let chat = json!([
        { "role": "user", "content": "assistant: x" },
        { "role": "assistant", "content": "a" },
        { "role": "assistant", "content": "b" },
    ]);
    let trl = MaskOptions { preset: MaskPreset::Trl, ..Default::default() };
    assert_eq!(counted(source, &chat, &options(trl)).unwrap(), "a$|b$");
    let thinks = json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": "a", "thinking": "hm" }]);
    assert_eq!(counted(source, &thinks, &options(trl)).unwrap(), "(hm) a$");
}

#[test]
fn a_template_whose_beginning_depends_on_the_words_behind_is_refused() {
    let any = r#"{"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}}"#;
    let any = fulmar_tokenizer::HfTokenizer::from_json(any).unwrap();
    // The other beginning ends inside the character with which this one begins.
    let source = "{% for m in messages %}{% if m.content == 'b' %}\u{e9}{% else %}a{% endif %}{{ m.content }}{% endfor %}";
    let template = Template::new(source).unwrap();
    let chat = [Message::new("assistant", "b").unwrap()];
    let refused = apply_chat_template(&template, Some(&any), &chat, &options(MaskOptions::default()));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn a_batch_gives_what_its_rows_give_one_by_one() {
    let template = TemplateRegistry::builtin().get("qwen").unwrap();
    let tokenizer = tokenizer();
    let chat = |n: usize| {
        let turn = |i: usize| json!({ "role": if i.is_multiple_of(2) { "user" } else { "assistant" }, "content": format!("{n}:{i}") });
        Value::Array((0..2 + n % 5).map(turn).collect())
    };
    let batch = History::from_chats((0..100).map(chat).collect()).unwrap();
    let options = options(MaskOptions::default());
    let together = batch.apply_chat_template(&template, Some(&tokenizer), &options).unwrap();
    let alone: Vec<_> = (0..100)
        .flat_map(|row| {
            batch.at(row).unwrap().apply_chat_template(&template, Some(&tokenizer), &options).unwrap()
        })
        .collect();
    assert_eq!(together, alone);
    let encoded = EncodedChats::new(&together).unwrap();
    assert_eq!((encoded.offsets.len(), encoded.assistant_mask.len()), (101, encoded.ids.len()));
    let cube = History::stack(vec![batch.clone(), batch]).unwrap();
    assert_eq!(cube.apply_chat_template(&template, Some(&tokenizer), &options).unwrap().len(), 200);
    let refused =
        History::from_chats((0..100).map(|_| json!([{ "role": "user", "content": "x" }])).collect()).unwrap();
    assert_eq!(
        refused.apply_chat_template(&template, Some(&tokenizer), &options).unwrap_err().kind(),
        ErrorKind::Empty
    );
}
