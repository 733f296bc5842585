//! Templates as renderers: equal to the families of their templates, and careful if the text is ambiguous.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Bridge, BridgeRefusal, Extension, Message, OpaqueOptions, OpaqueRenderer, Origin, ParseOptions,
    PrefixStability, RenderOptions, Rendered, Renderer, RendererConfig, ThinkingRetention, Tools,
    check_renderer, create_renderer,
};
use fulmar_core::ErrorKind;
use fulmar_template::TemplateRegistry;
use fulmar_tokenizer::{
    CharTokenizer, CharTokenizerOptions, HfFiles, HfTokenizer, Tokenizer, train_byte_bpe,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, tools: Tools::NONE };
const WHOLE: RenderOptions = RenderOptions { add_generation_prompt: false, tools: Tools::NONE };

const MARKERS: &str = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> \
    <tool_response> </tool_response> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> \
    <|end_of_text|> <|eom_id|> <|python_tag|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> \
    <arg_key> </arg_key> <arg_value> </arg_value> <s> </s> <|end|> [INST] [/INST] <start_of_turn> <end_of_turn> \
    <|start|> <|channel|> <|message|> <|return|> <|call|> <|constrain|> <|im_system|> <|im_user|> <|im_assistant|> \
    <|im_middle|> <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> \
    <|tool_call_argument_begin|> <|tool_call_end|> ]~!b[ ]~b] [e~[ <minimax:tool_call> </minimax:tool_call>";

fn characters() -> Arc<dyn Tokenizer> {
    let alphabet = std::iter::once('\n').chain(' '..='~').chain("éß—\u{2028}\u{100000}".chars()).collect();
    let special_tokens = MARKERS.split(' ').map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { alphabet, special_tokens }).unwrap())
}

fn byte_pairs() -> Arc<dyn Tokenizer> {
    let special_tokens: Vec<&str> = MARKERS.split(' ').collect();
    let text = "the assistant said user\nsystem\n to the user, and the tool answered\n".repeat(4);
    let file = train_byte_bpe(&[&text], 400, &special_tokens).unwrap();
    Arc::new(HfTokenizer::from_json(&file).unwrap())
}

fn renderer(tokenizer: Arc<dyn Tokenizer>, config: Value) -> Box<dyn Renderer> {
    create_renderer(tokenizer, &serde_json::from_value::<RendererConfig>(config).unwrap()).unwrap()
}

/// Returns a built-in template's source, with or without its `generation` blocks.
fn source(name: &str, has_blocks: bool) -> String {
    let source = TemplateRegistry::builtin().source(name).unwrap().to_owned();
    if has_blocks {
        return source;
    }
    let mut bare = source;
    for tag in ["generation", "endgeneration"] {
        for (open, close) in [("{%-", "-%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%", "%}")] {
            bare = bare.replace(
                &format!("{open} {tag} {close}"),
                &format!("{open} if true {close}{open} endif {close}"),
            );
        }
    }
    bare
}

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

fn chat() -> Value {
    json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "content": "2" },
        { "role": "user", "content": " the end <|im_end|></think> " },
        { "role": "assistant", "content": "the assistant said", "reasoning_content": "so" },
    ])
}

fn tool_chat() -> Value {
    json!([
        { "role": "user", "content": "1+1?" },
        { "role": "assistant", "content": "", "tool_calls": [
            { "id": "call00000", "type": "function", "function": { "name": "add", "arguments": { "a": 1, "b": "x" } } },
        ] },
        { "role": "tool", "content": "[2]", "tool_call_id": "call00000", "name": "add" },
        { "role": "assistant", "content": "the assistant said 2", "reasoning_content": "so" },
    ])
}

/// Returns the parts of a family's rendering that an opaque template can reproduce: not the owner of a frame.
fn claims(rendered: &Rendered) -> (Vec<u32>, Vec<bool>, Vec<bool>, Vec<Origin>) {
    let Rendered { ids, sampled_mask, is_content, origin, .. } = rendered.clone();
    (ids, sampled_mask, is_content, origin)
}

fn extended(bridge: Bridge) -> Extension {
    match bridge {
        Bridge::Extended(extension) => Some(extension),
        Bridge::Declined(_) => None,
    }
    .unwrap()
}

#[test]
fn templates_say_what_the_families_say() {
    let pairs = [
        ("chatml_format", json!({ "name": "chatml" }), json!({}), vec![chat()]),
        ("qwen3", json!({ "name": "qwen3" }), json!({}), vec![chat(), tool_chat()]),
        ("llama3", json!({ "name": "llama3", "systemBlock": false }), json!({}), vec![chat()]),
        ("qwen2_5", json!({ "name": "qwen2_5" }), json!({}), vec![chat(), tool_chat()]),
        ("kimi_k2", json!({ "name": "kimi_k2" }), json!({}), vec![chat()]),
        ("minimax_m2", json!({ "name": "minimax_m2" }), json!({}), vec![chat()]),
        (
            "gpt_oss",
            json!({ "name": "gpt_oss", "conversationStartDate": "2026-01-02" }),
            json!({}),
            vec![chat()],
        ),
    ];
    for tokenizer in [characters(), byte_pairs()] {
        for (name, config, kwargs, chats) in &pairs {
            let family = renderer(tokenizer.clone(), config.clone());
            for has_blocks in [true, false] {
                let opaque = renderer(
                    tokenizer.clone(),
                    json!({
                        "name": "opaque", "template": source(name, has_blocks), "templateKwargs": kwargs,
                        "specialTokens": { "bos_token": "<|begin_of_text|>" }, "now": "2026-01-02",
                    }),
                );
                for chat in chats {
                    for options in [&WHOLE, &PROMPT] {
                        let chat = messages(chat);
                        let place = format!("{name} {has_blocks} {}", options.add_generation_prompt);
                        assert_eq!(
                            opaque.render_text(&chat, options).unwrap(),
                            family.render_text(&chat, options).unwrap(),
                            "{place}"
                        );
                        let found = opaque.render(&chat, options).unwrap();
                        let expected = family.render(&chat, options).unwrap();
                        assert_eq!(found.ids, expected.ids, "{place}");
                        let text = |rendered: &Rendered| {
                            let kept =
                                rendered.ids.iter().zip(&rendered.sampled_mask).filter(|(_, bit)| **bit);
                            tokenizer.decode(&kept.map(|(id, _)| *id).collect::<Vec<_>>(), false).unwrap()
                        };
                        assert_eq!(text(&found), text(&expected), "{place}");
                        assert_eq!(claims(&found), claims(&expected), "{place}");
                    }
                }
            }
        }
    }
}

#[test]
fn templates_pass_the_common_suite() {
    let qwen3 = json!({ "name": "qwen3" });
    let suites = [
        ("chatml_format", None, vec![chat()]),
        ("qwen3", Some(&qwen3), vec![chat(), tool_chat()]),
        ("llama3", None, vec![chat()]),
        ("phi4", None, vec![chat()]),
        (
            "gemma",
            None,
            vec![json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "the" }])],
        ),
        ("smollm2", None, vec![chat()]),
        (
            "mistral",
            None,
            vec![json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "the" }])],
        ),
    ];
    for (name, parser, chats) in suites {
        for has_blocks in [true, false] {
            let mut config = json!({
                "name": "opaque", "template": source(name, has_blocks),
                "specialTokens": { "bos_token": "<s>", "eos_token": "</s>" },
            });
            if let Some(parser) = parser {
                config["parser"] = parser.clone();
            }
            let chats: Vec<_> = chats.iter().map(messages).collect();
            config.as_object_mut().unwrap().shift_remove("name");
            let options: OpaqueOptions = serde_json::from_value(config).unwrap();
            let renderer = OpaqueRenderer::new(characters(), &options).unwrap();
            check_renderer(&renderer, &chats).unwrap_or_else(|error| panic!("{name} {has_blocks}: {error}"));
        }
    }
}

#[test]
fn bridges_add_what_the_family_adds() {
    let tokenizer = characters();
    let opaque =
        renderer(tokenizer.clone(), json!({ "name": "opaque", "template": source("chatml_format", false) }));
    let family = renderer(tokenizer.clone(), json!({ "name": "chatml" }));
    let prompt = family.render(&messages(&json!([{ "role": "user", "content": "a" }])), &PROMPT).unwrap().ids;
    let said = tokenizer.encode("the").unwrap().ids;
    let new = messages(&json!([
        { "role": "user", "content": "more <|im_end|>" }, { "role": "tool", "content": "2" },
    ]));
    let closed = [&said[..], &opaque.stop_ids()[..1]].concat();
    let overrun = [&closed[..], &said].concat();
    for completion in [&said, &closed, &overrun] {
        let found = extended(opaque.bridge(&prompt, completion, &new, &[]).unwrap());
        let expected = extended(family.bridge(&prompt, completion, &new, &[]).unwrap());
        assert_eq!(found.num_kept, expected.num_kept);
        assert_eq!(claims(&found.rendered), claims(&expected.rendered));
        let second = |extension: &Extension| {
            extension.rendered.message_index.iter().filter(|index| **index == 1).count()
        };
        assert_eq!(second(&found), second(&expected));
    }
}

#[test]
fn a_bridge_is_refused_where_the_template_would_change_what_stands() {
    let tokenizer = characters();
    for has_blocks in [true, false] {
        let config = json!({
            "name": "opaque", "template": source("qwen3", has_blocks), "parser": { "name": "qwen3" },
        });
        let opaque = renderer(tokenizer.clone(), config);
        let family = renderer(tokenizer.clone(), json!({ "name": "qwen3" }));
        let prompt =
            family.render(&messages(&json!([{ "role": "user", "content": "a" }])), &PROMPT).unwrap().ids;
        let completion = tokenizer.encode_added("<think>\nso\n</think>\n\nthe<|im_end|>").unwrap().ids;
        let bridge = |completion: &[u32], new: Value| {
            opaque.bridge(&prompt, completion, &messages(&new), &[]).unwrap()
        };
        let user = json!([{ "role": "user", "content": "b" }]);
        assert_eq!(
            bridge(&completion, user),
            Bridge::Declined(BridgeRefusal::OpaqueTemplate),
            "reasoning would go"
        );
        let answers = json!([{ "role": "tool", "content": "1" }, { "role": "tool", "content": "2" }]);
        let found = extended(bridge(&completion, answers.clone()));
        let expected = extended(family.bridge(&prompt, &completion, &messages(&answers), &[]).unwrap());
        assert_eq!(claims(&found.rendered), claims(&expected.rendered));
        let open = tokenizer.encode_added("<think>\nso").unwrap().ids;
        assert_eq!(bridge(&open, answers.clone()), Bridge::Declined(BridgeRefusal::OpaqueTemplate));
        let stopped = tokenizer.encode_added("<think>\nso<|im_end|>").unwrap().ids;
        assert_eq!(bridge(&stopped, answers), Bridge::Declined(BridgeRefusal::OpenReasoningAfterStop));
    }
}

#[test]
fn a_template_that_raises_declines_a_bridge_and_names_its_reason_in_a_render() {
    let opaque = renderer(
        characters(),
        json!({
            "name": "opaque", "specialTokens": { "bos_token": "<s>", "eos_token": "</s>" },
            "template": "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\
                <|im_start|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}",
        }),
    );
    let answer = messages(&json!([{ "role": "tool", "content": "1" }]));
    assert_eq!(opaque.bridge(&[1], &[2], &answer, &[]), Ok(Bridge::Declined(BridgeRefusal::OpaqueTemplate)));
    assert_eq!(opaque.render(&answer, &WHOLE).unwrap_err().kind(), ErrorKind::TemplateRaised);
    assert_eq!(
        (opaque.prefix_stability(), opaque.thinking_retention()),
        (PrefixStability::Unknown, ThinkingRetention::Template,)
    );
}

#[test]
fn what_messages_say_never_becomes_a_marker() {
    for tokenizer in [characters(), byte_pairs()] {
        for name in ["chatml_format", "qwen3", "llama3", "phi4"] {
            let config = json!({
                "name": "opaque", "template": source(name, true), "specialTokens": { "bos_token": "<s>" },
            });
            let opaque = renderer(tokenizer.clone(), config);
            let count = |content: &str| {
                let chat = messages(&json!([
                    { "role": "user", "content": content }, { "role": "assistant", "content": content },
                    { "role": "user", "content": "x" },
                ]));
                let rendered = opaque.render(&chat, &PROMPT).unwrap();
                let text = opaque.render_text(&chat, &PROMPT).unwrap();
                assert_eq!(tokenizer.decode(&rendered.ids, false).unwrap(), text);
                rendered.ids.iter().filter(|&&id| tokenizer.is_special(id)).count()
            };
            let hostile = MARKERS.replace("<think>", "").replace("</think>", "");
            assert_eq!(count(&hostile), count("x"), "{name}");
        }
    }
}

#[test]
fn turns_that_cannot_be_found_are_context() {
    // Without a generation prompt, and with changed earlier text, the start of the turn is unknown.
    let opaque = renderer(
        characters(),
        json!({
            "name": "opaque", "stopTokens": ["<|im_end|>"],
            "template": "{{ messages | length }}{% for m in messages %} {{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}",
        }),
    );
    let rendered = opaque
        .render(
            &messages(&json!([
                { "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
            ])),
            &WHOLE,
        )
        .unwrap();
    assert!(!rendered.sampled_mask.contains(&true));
    let env: Vec<usize> = (0..rendered.ids.len()).filter(|&t| rendered.origin[t] == Origin::Env).collect();
    assert_eq!(env.len(), 1, "the word of the assistant");
    assert_eq!(rendered.message_index[env[0]], 1);
    assert!(!rendered.is_content[env[0]]);
}

#[test]
fn turns_of_the_past_are_found_where_the_prompt_says_more_than_they_do() {
    // The prompt opens reasoning that past turns do not show; a conversation without a prompt is closed.
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% else %}<|endoftext|>{% endif %}";
    let tokenizer = characters();
    let opaque = renderer(
        tokenizer.clone(),
        json!({ "name": "opaque", "template": template, "parser": { "name": "qwen3" } }),
    );
    let chat = messages(&json!([
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "the" }, { "role": "user", "content": "b" },
    ]));
    for options in [&PROMPT, &WHOLE] {
        let rendered = opaque.render(&chat, options).unwrap();
        let sampled: Vec<u32> = rendered
            .ids
            .iter()
            .zip(&rendered.sampled_mask)
            .filter(|(_, bit)| **bit)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(tokenizer.decode(&sampled, false).unwrap(), "the<|im_end|>");
    }
    let prompt = opaque.render(&chat, &PROMPT).unwrap();
    assert_eq!(
        prompt.message_index.iter().rev().take_while(|index| **index == -1).count(),
        "<assistant\n<\n".len()
    );
}

#[test]
fn a_turn_that_thought_is_not_extended_where_the_template_shows_no_thoughts() {
    let tokenizer = characters();
    let config = json!({ "name": "opaque", "template": source("chatml_format", false), "parser": { "name": "qwen3" } });
    let opaque = renderer(tokenizer.clone(), config);
    let answer = messages(&json!([{ "role": "tool", "content": "1" }]));
    let bridge = |completion: &str| {
        let ids = tokenizer.encode_added(completion).unwrap().ids;
        opaque.bridge(&[1], &ids, &answer, &[]).unwrap()
    };
    assert!(matches!(bridge("the<|im_end|>"), Bridge::Extended(_)));
    let thought = bridge("<think>\nso\n</think>\n\nthe<|im_end|>");
    assert_eq!(thought, Bridge::Declined(BridgeRefusal::OpaqueTemplate));
}

#[test]
fn a_template_that_reads_what_it_writes_is_asked_with_fewer_marks() {
    let opaque = renderer(
        characters(),
        json!({
            "name": "opaque",
            "template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'user' %}{{ m.content | length }}\
                {% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}\
                {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        }),
    );
    let rendered = opaque
        .render(
            &messages(&json!([
                { "role": "user", "content": "abc" }, { "role": "assistant", "content": "the" },
            ])),
            &WHOLE,
        )
        .unwrap();
    assert_eq!(rendered.sampled_mask.iter().filter(|bit| **bit).count(), 4);
    assert!(!rendered.origin.contains(&Origin::User));
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let refused = |config: Value| {
        let config: RendererConfig = serde_json::from_value(config).unwrap();
        create_renderer(characters(), &config).err().unwrap().kind()
    };
    assert_eq!(refused(json!({ "name": "opaque" })), ErrorKind::Incompatible, "no template");
    assert_eq!(refused(json!({ "name": "opaque", "template": "{{" })), ErrorKind::Malformed);
    assert_eq!(
        refused(json!({ "name": "opaque", "template": "x" })),
        ErrorKind::Incompatible,
        "nothing ends a turn"
    );
    let unknown = json!({ "name": "opaque", "template": "x", "stopTokens": ["<nothing>"] });
    assert_eq!(refused(unknown), ErrorKind::UnknownName);
    let nested = json!({ "name": "opaque", "template": "x", "parser": { "name": "opaque" } });
    assert_eq!(refused(nested), ErrorKind::Incompatible);
    let guessed = json!({ "name": "opaque", "template": "x", "parser": { "name": "auto", "model": "?" } });
    assert_eq!(refused(guessed), ErrorKind::Incompatible);
    assert_eq!(refused(json!({ "name": "auto", "model": "?" })), ErrorKind::Incompatible, "no template");
    let retention = json!({ "name": "opaque", "template": "x", "thinkingRetention": "all" });
    assert!(serde_json::from_value::<RendererConfig>(retention).is_err(), "nothing is known to be retained");
}

#[test]
fn a_model_is_of_the_family_that_is_known_by_its_exact_name() {
    let auto = renderer(characters(), json!({ "name": "auto", "model": "Qwen/Qwen3-8B" }));
    let family = renderer(characters(), json!({ "name": "qwen3" }));
    let chat = messages(&chat());
    assert_eq!(auto.render(&chat, &PROMPT), family.render(&chat, &PROMPT));
    let small = renderer(characters(), json!({ "name": "auto", "model": "Qwen/Qwen3.5-2B" }));
    assert!(small.render_text(&chat, &PROMPT).unwrap().ends_with("<think>\n\n</think>\n\n"));
}

#[test]
fn null_content_is_missing_content_and_a_template_that_needs_it_says_so() {
    let call = json!({ "type": "function", "function": { "name": "add", "arguments": "{}" } });
    let chat = |content: Option<Value>| {
        let mut answer = json!({ "role": "assistant", "tool_calls": [call] });
        if let Some(content) = content {
            answer["content"] = content;
        }
        messages(&json!([{ "role": "user", "content": "a" }, answer]))
    };
    let config = |name: &str| json!({ "name": "opaque", "template": source(name, true), "stopTokens": ["<|im_end|>"] });
    let qwen3 = renderer(characters(), config("qwen3"));
    assert_eq!(qwen3.render_text(&chat(Some(Value::Null)), &WHOLE), qwen3.render_text(&chat(None), &WHOLE));
    let deepseek = renderer(characters(), config("deepseek_r1"));
    for content in [Some(Value::Null), None] {
        let error = deepseek.render_text(&chat(content), &WHOLE).unwrap_err();
        assert!(error.detail().contains("messages[1] has no content"), "{error}");
    }
}

/// Returns a tokenizer that came with a chat template.
fn with_template(source: &str) -> Arc<dyn Tokenizer> {
    let markers: Vec<&str> = MARKERS.split(' ').collect();
    let files = HfFiles {
        tokenizer: train_byte_bpe(&["user assistant system"], 400, &markers).unwrap(),
        config: Some(json!({ "chat_template": source, "eos_token": "<|im_end|>" }).to_string()),
        ..HfFiles::default()
    };
    Arc::new(HfTokenizer::from_files(files).unwrap())
}

#[test]
fn auto_decides_by_the_template_and_says_what_and_why() {
    let facts = |template: &str, config: Value| {
        let facts = renderer(with_template(template), config).facts();
        (facts.name, facts.reason)
    };
    let qwen3 = source("qwen3", true);
    let smollm2 = source("smollm2", true);
    for config in [json!({ "name": "auto" }), json!({ "name": "auto", "model": "ada/Qwen3-8B-tuned" })] {
        let (name, reason) = facts(&qwen3, config.clone());
        assert_eq!(name, "qwen3");
        assert!(reason.contains("template writes what this family writes"), "{reason}");
        let (name, reason) = facts(&smollm2, config);
        assert_eq!(name, "opaque");
        assert!(reason.contains("no known family"), "{reason}");
    }
    let (name, reason) = facts(&smollm2, json!({ "name": "auto", "model": "Qwen/Qwen3-8B" }));
    assert!(name == "qwen3" && reason.contains("Qwen/Qwen3-8B"), "{reason}");
    assert_eq!(facts(&qwen3, json!({ "name": "qwen3" })).1, "it was asked for by its name");
    let parsed = renderer(with_template(&qwen3), json!({ "name": "opaque", "parser": { "name": "auto" } }));
    assert_eq!(parsed.facts().name, "opaque");
}

#[test]
fn auto_refuses_a_name_of_another_case_and_one_that_the_template_contradicts() {
    let refused = |tokenizer: Arc<dyn Tokenizer>, model: Option<&str>| {
        let mut config = json!({ "name": "auto" });
        if let Some(model) = model {
            config["model"] = model.into();
        }
        let config: RendererConfig = serde_json::from_value(config).unwrap();
        let error = create_renderer(tokenizer, &config).err().unwrap();
        (error.kind(), error.detail().to_owned())
    };
    let qwen3 = with_template(&source("qwen3", true));
    for tokenizer in [qwen3.clone(), characters()] {
        let (kind, detail) = refused(tokenizer, Some("Qwen/Qwen3-8b"));
        assert_eq!(kind, ErrorKind::UnknownName);
        assert!(detail.contains("did you mean \"Qwen/Qwen3-8B\""), "{detail}");
    }
    let (kind, detail) = refused(qwen3, Some("Qwen/Qwen2.5-7B-Instruct"));
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(detail.contains("qwen2_5") && detail.contains("qwen3"), "{detail}");
    let (kind, detail) = refused(characters(), Some("Qwen/Qwen3-8BB"));
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(detail.contains("\"Qwen/Qwen3-8B\""), "{detail}");
    assert_eq!(refused(characters(), None).0, ErrorKind::Incompatible);
}

#[test]
fn variables_and_the_clock_reach_the_template() {
    let config = json!({
        "name": "opaque", "stopTokens": ["<|im_end|>"], "templateKwargs": { "x": 1.0 }, "now": "2026-01-02T03:04:05",
        "template": "{{ x }} {{ strftime_now('%Y') }} {{ tools is none }}",
    });
    let opaque = renderer(characters(), config);
    let chat = messages(&json!([{ "role": "user", "content": "a" }]));
    assert_eq!(opaque.render_text(&chat, &WHOLE).unwrap(), "1.0 2026 True");
    let with_tools = RenderOptions { tools: vec![json!({ "name": "add" })].into(), ..WHOLE };
    assert_eq!(opaque.render_text(&chat, &with_tools).unwrap(), "1.0 2026 False");
}

#[test]
fn completions_are_read_as_content_or_as_the_family_reads_them() {
    let tokenizer = characters();
    let ids = tokenizer.encode_added("<think>\nso\n</think>\n\n the <|im_end|>x").unwrap().ids;
    let config = json!({ "name": "opaque", "template": source("qwen3", true) });
    let plain = renderer(tokenizer.clone(), config.clone()).parse(&ids, &ParseOptions::default()).unwrap();
    assert_eq!((plain.content.as_str(), plain.overran), ("<think>\nso\n</think>\n\n the", true));
    assert!(plain.finished && plain.reasoning_content.is_none());
    let mut config = config;
    config["parser"] = json!({ "name": "qwen3" });
    let read = renderer(tokenizer, config).parse(&ids, &ParseOptions::default()).unwrap();
    assert_eq!(
        (read.content.as_str(), read.reasoning_content.as_deref(), read.finished),
        ("the", Some("so"), true)
    );
}

fn any_chat() -> impl Strategy<Value = Vec<Message>> {
    let text = "[ a-z\n<|_>\u{100000}é]{0,16}|<\\|im_end\\|>|the <\\|im_start\\|>user\n";
    let role = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    prop::collection::vec((role, text), 1..8)
        .prop_map(|turns| turns.into_iter().map(|(role, text)| Message::new(role, &text).unwrap()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn chatml_is_the_same_whoever_writes_it(chat in any_chat(), has_blocks: bool, prompt: bool) {
        for tokenizer in [characters(), byte_pairs()] {
            let config = json!({ "name": "opaque", "template": source("chatml_format", has_blocks) });
            let opaque = renderer(tokenizer.clone(), config);
            let family = renderer(tokenizer.clone(), json!({ "name": "chatml" }));
            let options = RenderOptions { add_generation_prompt: prompt, ..WHOLE };
            let found = opaque.render(&chat, &options).unwrap();
            let expected = family.render(&chat, &options).unwrap();
            prop_assert_eq!(&found.ids, &expected.ids);
            // Blank texts cannot be marked.
            if chat.iter().all(|message| !message.text().unwrap().trim().is_empty()) {
                prop_assert_eq!(claims(&found), claims(&expected));
            }
        }
    }
}
