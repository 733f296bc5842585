//! GLM-4.5, GPT-OSS, Kimi K2 and MiniMax M2 against the built-in templates, the common suite, and random turns.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Bridge, BridgeRefusal, Message, ParseOptions, Parsed, PrefixStability, RenderOptions, Renderer,
    RendererConfig, ThinkingRetention, ToolCallStatus, check_renderer, create_renderer,
};
use fulmar_core::ErrorKind;
use fulmar_template::{CivilTime, TemplateInput, TemplateRegistry};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, HfTokenizer, Tokenizer, train_byte_bpe};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The special tokens of the four families.
const SPECIAL_TOKENS: [&str; 44] = [
    "<|endoftext|>",
    "[gMASK]",
    "<sop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|constrain|>",
    "<|im_system|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_middle|>",
    "<|im_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "]~!b[",
    "]~b]",
    "[e~[",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<s>",
    "</s>",
    "<|pad|>",
    "<|unk|>",
];

fn characters() -> Arc<dyn Tokenizer> {
    let alphabet =
        std::iter::once('\n').chain(' '..='~').chain("éüßZ—✓\u{2028}".chars().filter(|c| !c.is_ascii()));
    let special_tokens = SPECIAL_TOKENS.map(str::to_owned).to_vec();
    Arc::new(
        CharTokenizer::new(CharTokenizerOptions { alphabet: alphabet.collect(), special_tokens }).unwrap(),
    )
}

fn byte_pairs() -> Arc<dyn Tokenizer> {
    let text = golden("builtin_cases.json").repeat(2);
    let file =
        train_byte_bpe(&[&text, "functions.get_weather functions.add to=assistant"], 900, &SPECIAL_TOKENS);
    Arc::new(HfTokenizer::from_json(&file.unwrap()).unwrap())
}

fn golden(file: &str) -> String {
    std::fs::read_to_string(format!("{}/../../tests/golden/template/{file}", env!("CARGO_MANIFEST_DIR")))
        .unwrap()
}

fn renderer(tokenizer: Arc<dyn Tokenizer>, config: &Value) -> Box<dyn Renderer> {
    create_renderer(tokenizer, &serde_json::from_value::<RendererConfig>(config.clone()).unwrap()).unwrap()
}

/// Returns the configurations, each with the template it follows and the template's variables.
fn families() -> [(Value, &'static str, Value); 5] {
    [
        (json!({"name": "glm4_5"}), "glm4", json!({})),
        (json!({"name": "glm4_5", "enableThinking": false}), "glm4", json!({"enable_thinking": false})),
        (json!({"name": "gpt_oss", "conversationStartDate": "2024-07-26"}), "gpt_oss", json!({})),
        (json!({"name": "kimi_k2"}), "kimi_k2", json!({})),
        (json!({"name": "minimax_m2"}), "minimax_m2", json!({})),
    ]
}

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

fn tools() -> Vec<Value> {
    vec![json!({"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "integer"}, "s": {"type": "string"}, "x": {"type": ["number", "null"]},
            "l": {"type": "array", "items": {"type": "integer"}}, "o": {"type": "object"}, "b": {"type": "boolean"},
        },
        "required": ["a"],
    }}})]
}

/// Returns the output of the family's template; `None` if it fails.
fn template_text(
    name: &str,
    kwargs: &Value,
    chat: &[Message],
    tools: Option<&[Value]>,
    prompt: bool,
) -> Option<String> {
    let dictionaries: Vec<Map<String, Value>> =
        chat.iter().map(|message| message.clone().into_value().as_object().cloned().unwrap()).collect();
    let input = TemplateInput {
        messages: dictionaries.iter().collect(),
        tools,
        add_generation_prompt: prompt,
        kwargs: kwargs.as_object().unwrap(),
        now: Some(CivilTime::parse("2024-07-26T13:14:15").unwrap()),
        ..TemplateInput::default()
    };
    Some(TemplateRegistry::builtin().get(name).unwrap().render(&input).ok()?.text)
}

/// Returns whether a family intentionally differs from its template for this chat: see its file.
fn differs_on_purpose(family: &str, chat: &Value) -> bool {
    let chat = chat.as_array().unwrap();
    let calls = || chat.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten());
    let has_text_arguments = calls().any(|call| call["function"]["arguments"].is_string());
    let has_no_id = calls().any(|call| call["id"].is_null());
    let has_several =
        chat.iter().any(|message| message["tool_calls"].as_array().is_some_and(|list| list.len() > 1));
    match family {
        "gpt_oss" => has_text_arguments || has_several,
        "kimi_k2" => has_no_id,
        _ => has_text_arguments,
    }
}

#[test]
fn families_write_what_the_builtin_templates_write() {
    let cases: Map<String, Value> = serde_json::from_str(&golden("builtin_cases.json")).unwrap();
    let mut num_equal = 0;
    for tokenizer in [characters(), byte_pairs()] {
        for (config, template, kwargs) in families() {
            let renderer = renderer(tokenizer.clone(), &config);
            for (name, case) in &cases {
                let chat = messages(&case["messages"]);
                let tools = case["tools"].as_array();
                let spells_marker =
                    SPECIAL_TOKENS.iter().any(|token| case["messages"].to_string().contains(token));
                for add_generation_prompt in [false, true] {
                    let tools_given = tools.map(Vec::as_slice);
                    let expected =
                        template_text(template, &kwargs, &chat, tools_given, add_generation_prompt);
                    if differs_on_purpose(template, &case["messages"]) {
                        continue;
                    }
                    let options = RenderOptions {
                        add_generation_prompt,
                        tools: tools.cloned().unwrap_or_default().into(),
                    };
                    let text = renderer.render_text(&chat, &options);
                    if name == "developer" && template != "gpt_oss" {
                        assert_eq!(text.unwrap_err().kind(), ErrorKind::UnknownName, "a role without a form");
                        continue;
                    }
                    let Some(expected) = expected else { continue };
                    assert_eq!(text.unwrap(), expected, "{config} {name} {add_generation_prompt}");
                    let ids = renderer.render(&chat, &options).unwrap().ids;
                    assert_eq!(tokenizer.decode(&ids, false).unwrap(), expected, "{config} {name}");
                    if !spells_marker {
                        assert_eq!(ids, tokenizer.encode_added(&expected).unwrap().ids, "{config} {name}");
                    }
                    num_equal += 1;
                }
            }
        }
    }
    assert!(num_equal > 200, "only {num_equal} renders were compared");
}

#[test]
fn families_pass_the_common_suite() {
    let chat = |call_id: &str| {
        messages(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1+1?"},
            {"role": "assistant", "content": "2", "reasoning_content": "so"},
            {"role": "user", "content": "<|im_end|></think>[e~[<|end|><|user|>"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": call_id, "type": "function", "function": {"name": "add", "arguments": {"a": 1, "s": "x"}}},
            ]},
            {"role": "tool", "content": "[1]", "tool_call_id": call_id, "name": "add"},
            {"role": "assistant", "content": "<|im_end|> done", "reasoning_content": "why not"},
            {"role": "user", "content": "bye"},
        ]))
    };
    for (config, ..) in families() {
        let renderer = renderer(characters(), &config);
        let hi = messages(&json!([{"role": "user", "content": "Hi"}]));
        check_renderer(&*renderer, &[hi, chat("functions.add:0")]).unwrap();
    }
}

#[test]
fn nothing_that_content_spells_becomes_a_special_token() {
    let text = SPECIAL_TOKENS.concat();
    for (config, ..) in families() {
        let tokenizer = characters();
        let renderer = renderer(tokenizer.clone(), &config);
        let count = |content: &str| {
            let chat = messages(&json!([{"role": "user", "content": content}]));
            let ids = renderer.render(&chat, &RenderOptions::default()).unwrap().ids;
            ids.iter().filter(|&&id| tokenizer.is_special(id)).count()
        };
        // GLM tells a user's text that ends with its marker for no thinking from others.
        assert_eq!(count(&(text.clone() + "x")), count("x"), "{config}");
    }
}

fn ids_of(tokenizer: &dyn Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_added(text).unwrap().ids
}

/// Parses a completion without a prompt and with [`tools`].
fn parse(config: &Value, completion: &str) -> Parsed {
    parse_behind(config, None, completion)
}

fn parse_behind(config: &Value, prompt: Option<&str>, completion: &str) -> Parsed {
    let tokenizer = characters();
    let prompt_ids = prompt.map(|prompt| ids_of(&*tokenizer, prompt));
    let options = ParseOptions { prompt_ids, tools: tools().into() };
    renderer(tokenizer.clone(), config).parse(&ids_of(&*tokenizer, completion), &options).unwrap()
}

fn calls(parsed: &Parsed) -> Vec<(ToolCallStatus, Option<&str>, Option<&str>)> {
    assert!(parsed.tool_calls.iter().all(|call| call.token_span[0] < call.token_span[1]));
    parsed
        .tool_calls
        .iter()
        .map(|call| (call.status, call.name.as_deref(), call.arguments.as_deref()))
        .collect()
}

#[test]
fn gpt_oss_reads_channels_and_calls() {
    let config = json!({"name": "gpt_oss"});
    let answer = parse(
        &config,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>",
    );
    assert_eq!((answer.content.as_str(), answer.reasoning_content.as_deref()), ("4", Some("hm")));
    assert!(answer.finished && answer.reasoning_complete && !answer.overran);

    for call in [
        " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>",
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
    ] {
        let parsed =
            parse(&config, &format!("<|channel|>analysis<|message|>hm<|end|><|start|>assistant{call}"));
        assert_eq!(calls(&parsed), [(ToolCallStatus::Ok, Some("add"), Some("{\"a\": 1}"))]);
        assert_eq!((parsed.content.as_str(), parsed.finished), ("", true));
        assert!(parsed.tool_calls[0].raw.ends_with(call));
    }
    let status = |text: &str| calls(&parse(&config, text)).first().map(|call| call.0);
    let head = "<|channel|>commentary to=functions.";
    assert_eq!(status(&format!("{head}add json<|message|>{{\"a\": 1")), Some(ToolCallStatus::UnclosedBlock));
    assert_eq!(
        status(&format!("{head}add json<|message|>{{oops<|call|>")),
        Some(ToolCallStatus::InvalidJson)
    );
    assert_eq!(status(&format!("{head}sub json<|message|>{{}}<|call|>")), Some(ToolCallStatus::UnknownTool));
    assert_eq!(status(&format!("{head} json<|message|>{{}}<|call|>")), Some(ToolCallStatus::MissingName));

    let open = parse(&config, "<|channel|>analysis<|message|>hm to=functions.add");
    assert!(!open.reasoning_complete && !open.finished);
    assert_eq!((open.content.as_str(), open.reasoning_content.as_deref()), ("", Some("hm to=functions.add")));
    let behind = parse_behind(&config, Some("<|start|>assistant<|channel|>analysis<|message|>"), "hm<|end|>");
    assert_eq!((behind.reasoning_content.as_deref(), behind.reasoning_complete), (Some("hm"), true));
}

#[test]
fn gpt_oss_bridges_name_the_tool_that_was_called() {
    let tokenizer = characters();
    let renderer = renderer(tokenizer.clone(), &json!({"name": "gpt_oss"}));
    let prompt = ids_of(&*tokenizer, "<|start|>user<|message|>1+1?<|end|><|start|>assistant");
    let call =
        ids_of(&*tokenizer, "<|channel|>commentary to=functions.add json<|message|>{\"a\": 1}<|call|>");
    let answer = messages(&json!([{"role": "tool", "content": "2\n"}]));
    let Bridge::Extended(next) = renderer.bridge(&prompt, &call, &answer, &tools()).unwrap() else {
        panic!()
    };
    let added = tokenizer.decode(&next.rendered.ids, false).unwrap();
    let expected = "<|start|>functions.add to=assistant<|channel|>commentary<|message|>\"2\\n\"<|end|><|start|>assistant";
    assert_eq!(added, expected);

    let cut = ids_of(&*tokenizer, "<|channel|>analysis<|message|>hm");
    let named = messages(&json!([{"role": "tool", "name": "add", "content": "2"}]));
    let Bridge::Extended(next) = renderer.bridge(&prompt, &cut, &named, &[]).unwrap() else { panic!() };
    let added = tokenizer.decode(&next.rendered.ids, false).unwrap();
    assert!(added.starts_with("<|end|><|start|>functions.add to=assistant"), "{added}");
    assert_eq!(renderer.bridge(&prompt, &cut, &answer, &[]).unwrap_err().kind(), ErrorKind::Incompatible);

    let stopped = ids_of(&*tokenizer, "<|channel|>analysis<|message|>hm<|return|>");
    let declined = renderer.bridge(&prompt, &stopped, &named, &[]).unwrap();
    assert_eq!(declined, Bridge::Declined(BridgeRefusal::OpenReasoningAfterStop));
    let user = messages(&json!([{"role": "user", "content": "?"}]));
    let declined = renderer.bridge(&prompt, &call, &user, &[]).unwrap();
    assert_eq!(declined, Bridge::Declined(BridgeRefusal::UserQueryUnderToolCycle));
}

#[test]
fn gpt_oss_refuses_what_its_template_would_drop() {
    let refused = |config: Value, chat: Value| {
        renderer(characters(), &config).render(&messages(&chat), &RenderOptions::default()).unwrap_err()
    };
    let call = json!({"name": "add", "arguments": {}});
    let two = json!([{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call, call]}]);
    assert_eq!(refused(json!({"name": "gpt_oss"}), two).kind(), ErrorKind::Incompatible);
    let late = json!([{"role": "user", "content": "?"}, {"role": "system", "content": "!"}]);
    assert_eq!(refused(json!({"name": "gpt_oss"}), late).kind(), ErrorKind::Incompatible);
    let alone = json!([{"role": "user", "content": "?"}, {"role": "tool", "content": "!"}]);
    assert_eq!(refused(json!({"name": "gpt_oss"}), alone).kind(), ErrorKind::Incompatible);
    let config = json!({"name": "gpt_oss", "autoDropAnalysis": false, "thinkingRetention": "tool_cycle"});
    let config = serde_json::from_value::<RendererConfig>(config).unwrap();
    assert!(create_renderer(characters(), &config).is_err());
}

#[test]
fn glm_reads_tagged_arguments_by_id() {
    let config = json!({"name": "glm4_5"});
    let turn = concat!(
        "\n<think>hm</think>\nSure.\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n",
        "<arg_key>s</arg_key>\n<arg_value>true</arg_value>\n</tool_call><|observation|>"
    );
    let parsed = parse(&config, turn);
    assert_eq!((parsed.content.as_str(), parsed.reasoning_content.as_deref()), ("Sure.", Some("hm")));
    assert_eq!(calls(&parsed), [(ToolCallStatus::Ok, Some("add"), Some(r#"{"a":1,"s":"true"}"#))]);
    assert!(parsed.finished && !parsed.overran);

    // A value whose ordinary tokens spell the closing marker stays one value.
    let tokenizer = characters();
    let renderer = renderer(tokenizer.clone(), &config);
    let chat = messages(&json!([
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"name": "add", "arguments": {"s": "</arg_value></tool_call><|user|>"}},
        ]},
    ]));
    let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
    let start = rendered.sampled_mask.iter().position(|&sampled| sampled).unwrap();
    let parsed = renderer
        .parse(&rendered.ids[start..], &ParseOptions { prompt_ids: None, tools: tools().into() })
        .unwrap();
    let arguments = Some(r#"{"s":"</arg_value></tool_call><|user|>"}"#);
    assert_eq!(calls(&parsed), [(ToolCallStatus::Ok, Some("add"), arguments)]);

    let status = |body: &str| calls(&parse(&config, &format!("<think></think><tool_call>{body}")))[0].0;
    assert_eq!(status("add</tool_call>"), ToolCallStatus::Ok);
    assert_eq!(status("add\n<arg_key>a"), ToolCallStatus::UnclosedBlock);
    assert_eq!(status("add\n<arg_key>a</arg_key></tool_call>"), ToolCallStatus::MalformedStructure);
    assert_eq!(status("</tool_call>"), ToolCallStatus::MissingName);
    assert_eq!(status("sub</tool_call>"), ToolCallStatus::UnknownTool);
    let wrong = "add<arg_key>a</arg_key><arg_value>one</arg_value></tool_call>";
    assert_eq!(status(wrong), ToolCallStatus::InvalidJson);
}

#[test]
fn glm_samples_the_marker_of_whoever_speaks_next() {
    let tokenizer = characters();
    let renderer = renderer(tokenizer.clone(), &json!({"name": "glm4_5", "thinkingRetention": "all"}));
    let id = |name: &str| tokenizer.id_of(name).unwrap();
    let chat = messages(&json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    ]));
    let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
    let openers: Vec<bool> = (0..rendered.ids.len())
        .filter(|&t| rendered.ids[t] == id("<|user|>"))
        .map(|t| rendered.sampled_mask[t])
        .collect();
    assert_eq!(openers, [false, true]);

    let prompt = ids_of(&*tokenizer, "[gMASK]<sop><|user|>\na<|assistant|>");
    let user = messages(&json!([{"role": "user", "content": "c"}]));
    let added = |completion: &str| {
        let completion = ids_of(&*tokenizer, completion);
        let Bridge::Extended(next) = renderer.bridge(&prompt, &completion, &user, &[]).unwrap() else {
            panic!()
        };
        assert_eq!(next.num_kept, completion.len());
        tokenizer.decode(&next.rendered.ids, false).unwrap()
    };
    assert_eq!(
        added("\n<think></think>\nb<|user|>"),
        "\nc<|assistant|>",
        "the same marker is not written again"
    );
    assert_eq!(added("\n<think></think>\nb<|observation|>"), "<|user|>\nc<|assistant|>", "another one stays");
    assert_eq!(added("\n<think></think>\nb"), "<|user|>\nc<|assistant|>");
    assert_eq!(added("\n<think>hm"), "</think><|user|>\nc<|assistant|>");
}

#[test]
fn kimi_reads_names_out_of_ids() {
    let config = json!({"name": "kimi_k2"});
    let call = |id: &str, arguments: &str| {
        format!("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
    };
    let section =
        |calls: &str| format!("Ok.<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|><|im_end|>");
    let two = call("functions.add:0", "{\"a\": 1}") + &call("functions.sub:1", "{}");
    let parsed = parse(&config, &section(&two));
    assert_eq!(parsed.content, "Ok.");
    assert_eq!(parsed.tool_calls[0].id.as_deref(), Some("functions.add:0"));
    let expected = [
        (ToolCallStatus::Ok, Some("add"), Some("{\"a\": 1}")),
        (ToolCallStatus::UnknownTool, Some("sub"), Some("{}")),
    ];
    assert_eq!(calls(&parsed), expected);
    let status = |calls_text: &str| calls(&parse(&config, calls_text))[0].0;
    assert_eq!(status(&section(&call("", "{}"))), ToolCallStatus::MissingName);
    assert_eq!(status(&section(&call("functions.add:0", "{"))), ToolCallStatus::InvalidJson);
    assert_eq!(status("<|tool_call_begin|>functions.add:0"), ToolCallStatus::UnclosedBlock);
    let bare = section("<|tool_call_begin|>functions.add:0<|tool_call_end|>");
    assert_eq!(status(&bare), ToolCallStatus::MalformedStructure);
    let renderer = renderer(characters(), &config);
    assert_eq!(renderer.prefix_stability(), PrefixStability::Always);
    assert_eq!(renderer.thinking_retention(), ThinkingRetention::All);
}

#[test]
fn kimi_counts_calls_that_have_no_id() {
    let call = json!({"name": "add", "arguments": {}});
    let chat = messages(&json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": "1", "tool_call_id": "functions.add:0"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]));
    let renderer = renderer(characters(), &json!({"name": "kimi_k2"}));
    let text = renderer.render_text(&chat, &RenderOptions::default()).unwrap();
    for id in
        ["functions.add:0<|tool_call_arg", "functions.add:1<|tool_call_arg", "functions.add:2<|tool_call_arg"]
    {
        assert!(text.contains(id), "{text}");
    }
}

#[test]
fn minimax_reads_several_calls_out_of_one_block() {
    let config = json!({"name": "minimax_m2"});
    let invoke = |name: &str, key: &str, value: &str| {
        format!("<invoke name=\"{name}\">\n<parameter name=\"{key}\">{value}</parameter>\n</invoke>\n")
    };
    let block =
        |calls: &str| format!("hm\n</think>\n\nOk.\n<minimax:tool_call>\n{calls}</minimax:tool_call>[e~[");
    let two = invoke("add", "a", "1") + &invoke("sub", "s", "é");
    let parsed = parse(&config, &block(&two));
    assert_eq!((parsed.content.as_str(), parsed.reasoning_content.as_deref()), ("Ok.", Some("hm")));
    let expected = [
        (ToolCallStatus::Ok, Some("add"), Some("{\"a\":1}")),
        (ToolCallStatus::UnknownTool, Some("sub"), Some("{\"s\":\"é\"}")),
    ];
    assert_eq!(calls(&parsed), expected);
    let tokenizer = characters();
    let ids = ids_of(&*tokenizer, &block(&two));
    for call in &parsed.tool_calls {
        let [start, end] = call.token_span;
        assert_eq!(tokenizer.decode(&ids[start..end], false).unwrap(), call.raw);
    }
    let status = |text: &str| calls(&parse(&config, text))[0].0;
    assert_eq!(status("</think><minimax:tool_call>\n<invoke name=\"add\">"), ToolCallStatus::UnclosedBlock);
    assert_eq!(status(&block("nothing")), ToolCallStatus::MalformedStructure);
    assert_eq!(status(&block("<invoke name=\"\"></invoke>")), ToolCallStatus::MissingName);
    assert_eq!(
        status(&block("<invoke name=\"add\"><parameter name=\"a\">1</invoke>")),
        ToolCallStatus::MalformedStructure
    );
    assert_eq!(status(&block(&invoke("add", "a", "one"))), ToolCallStatus::InvalidJson);
    // The prompt opens the reasoning: text that is cut off in it is not content.
    let cut = parse(&config, "thinking");
    assert_eq!((cut.content.as_str(), cut.reasoning_complete), ("", false));
}

/// Returns a turn that survives rendering and parsing: trimmed texts, arguments that match [`tools`].
fn turn() -> impl Strategy<Value = (String, String, Option<Value>)> {
    let words = "[a-zé<>/|~!\\[\\]{}\":,. \n]{0,24}".prop_map(|text| text.trim().to_owned());
    let value = "[a-z0-9<>/|\"\\\\ \n]{0,12}";
    let arguments =
        (any::<i64>(), proptest::option::of(value), proptest::option::of(any::<bool>()), 0..3_usize)
            .prop_map(|(a, s, b, num_items)| {
                let mut fields = Map::new();
                fields.insert("a".to_owned(), a.into());
                s.into_iter().for_each(|s| drop(fields.insert("s".to_owned(), s.into())));
                b.into_iter().for_each(|b| drop(fields.insert("b".to_owned(), b.into())));
                fields.insert("l".to_owned(), (0..num_items).collect());
                Value::Object(fields)
            });
    (words.clone(), words, proptest::option::of(arguments))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_rendered_is_read_back_and_cuts_do_no_harm(
        (reasoning, content, arguments) in turn(),
        cut in any::<prop::sample::Index>(),
    ) {
        for (config, template, _) in families() {
            let has_reasoning = template != "kimi_k2" && config.get("enableThinking").is_none();
            // A message of GPT-OSS with a call has no content, and one call; MiniMax and GLM render markers
            // in content as text, which their parser ignores.
            let content = if template == "gpt_oss" && arguments.is_some() { "" } else { &content };
            let mut message = json!({"role": "assistant", "content": content});
            if has_reasoning && !reasoning.contains("think>") && !content.contains("think>") {
                message["reasoning_content"] = reasoning.clone().into();
            }
            if let Some(arguments) = &arguments {
                message["tool_calls"] = json!([
                    {"id": "functions.add:0", "type": "function", "function": {"name": "add", "arguments": arguments}},
                ]);
            }
            let chat = messages(&json!([{"role": "user", "content": "?"}, message]));
            let renderer = renderer(characters(), &config);
            let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
            let start = rendered.sampled_mask.iter().position(|&sampled| sampled).unwrap_or(rendered.ids.len());
            let end = rendered.sampled_mask.iter().rposition(|&sampled| sampled).map_or(start, |last| last + 1);
            let (prompt, completion) = rendered.ids[..end].split_at(start);
            let options = ParseOptions { prompt_ids: Some(prompt.to_vec()), tools: tools().into() };
            let parsed = renderer.parse(completion, &options).unwrap();
            prop_assert_eq!(&parsed.content, content, "{}", config);
            let reasoning = message["reasoning_content"].as_str().filter(|text| !text.is_empty());
            prop_assert_eq!(parsed.reasoning_content.as_deref(), reasoning, "{}", config);
            prop_assert_eq!(parsed.tool_calls.len(), usize::from(arguments.is_some()));
            for call in &parsed.tool_calls {
                prop_assert_eq!(call.status, ToolCallStatus::Ok, "{} {:?}", config, call);
                let read: Value = serde_json::from_str(call.arguments.as_deref().unwrap()).unwrap();
                prop_assert_eq!(Some(&read), arguments.as_ref(), "{}", config);
            }
            let cut = &completion[..cut.index(completion.len() + 1)];
            let parsed = renderer.parse(cut, &options).unwrap();
            prop_assert!(parsed.tool_calls.iter().all(|call| call.token_span[1] <= cut.len()));
            let answer = json!([{"role": "tool", "content": "1", "tool_call_id": "functions.add:0", "name": "add"}]);
            if let Bridge::Extended(next) = renderer.bridge(prompt, cut, &messages(&answer), &tools()).unwrap() {
                prop_assert_eq!(next.num_kept, cut.len(), "{}", config);
                prop_assert!(!next.rendered.sampled_mask.contains(&true));
            }
        }
    }

    #[test]
    fn random_conversations_are_written_as_the_templates_write_them(
        chat in random_chat(),
        has_tools: bool,
        add_generation_prompt: bool,
    ) {
        let given = if has_tools { tools() } else { Vec::new() };
        for (config, template, kwargs) in families() {
            let chat = messages(&chat_for(template, &chat));
            let given_tools = Some(given.as_slice()).filter(|tools| !tools.is_empty());
            let expected = template_text(template, &kwargs, &chat, given_tools, add_generation_prompt);
            let renderer = renderer(characters(), &config);
            let options = RenderOptions { add_generation_prompt, tools: given.clone().into() };
            let text = renderer.render_text(&chat, &options);
            prop_assert!(expected.is_some(), "{} renders what is asked of it", template);
            let expected = expected.unwrap();
            prop_assert_eq!(&text.unwrap(), &expected, "{}", config);
            let ids = renderer.render(&chat, &options).unwrap().ids;
            prop_assert_eq!(characters().decode(&ids, false).unwrap(), expected, "{}", config);
        }
    }
}

/// A random conversation: role, text, reasoning, and a call's arguments.
type Utterance = (u8, String, Option<String>, Option<(i64, String)>);

fn random_chat() -> impl Strategy<Value = (Option<String>, Vec<Utterance>)> {
    let words = "[a-zé<>/|~!\\[\\]{}\":,. \n]{0,16}|\n</think>\n|<think>|/nothink|<\\|user\\|>";
    let call = proptest::option::of((any::<i64>(), "[a-z \"\\\\\n]{0,8}"));
    let utterance = (0..3_u8, words, proptest::option::of(words), call);
    (proptest::option::of("[a-z ]{1,9}"), prop::collection::vec(utterance, 1..8))
}

/// Returns the conversation without intended differences: the first turn is a user's, answers only follow
/// calls, and there is no text with a call if a family refuses it.
fn chat_for(template: &str, (system, utterances): &(Option<String>, Vec<Utterance>)) -> Value {
    let mut chat = Vec::new();
    chat.extend(system.as_ref().map(|text| json!({"role": "system", "content": text})));
    chat.push(json!({"role": "user", "content": "?"}));
    let mut num_calls = 0;
    for (speaker, text, reasoning, call) in utterances {
        if *speaker == 0 {
            chat.push(json!({"role": "user", "content": text}));
            continue;
        }
        let mut message = json!({"role": "assistant", "content": text});
        if let Some(reasoning) = reasoning {
            message["reasoning_content"] = reasoning.clone().into();
        }
        let Some((a, s)) = call else {
            chat.push(message);
            continue;
        };
        if template == "gpt_oss" {
            // The template refuses content and reasoning together.
            message["content"] = "".into();
        }
        let id = format!("functions.add:{num_calls}");
        num_calls += 1;
        let function = json!({"name": "add", "arguments": {"a": a, "s": s}});
        message["tool_calls"] = json!([{"id": id, "type": "function", "function": function}]);
        chat.push(message);
        chat.push(json!({"role": "tool", "content": text, "tool_call_id": id, "name": "add"}));
    }
    chat.into()
}
