//! Parsing and bridging in all families, with a tokenizer that has every family's markers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;

use fulmar_chat::{
    Bridge, BridgeRefusal, Extension, Message, Origin, ParseOptions, Parsed, PrefixStability, RenderOptions,
    Renderer, RendererConfig, ThinkingRetention, ToolCallStatus, Tools, create_renderer,
};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, tools: Tools::NONE };
const WHOLE: RenderOptions = RenderOptions { add_generation_prompt: false, tools: Tools::NONE };

/// Returns a tokenizer with the markers of the families; with `with_think` reasoning tags are special tokens.
fn tokenizer(with_think: bool) -> Arc<CharTokenizer> {
    let special_tokens = [
        "<|endoftext|> <|im_start|> <|im_end|> <tool_call> </tool_call> <tool_response> </tool_response>",
        "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|> <|eom_id|>",
        "<|python_tag|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>",
        "<｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜>",
        "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜>",
    ];
    let names = special_tokens.join(" ");
    let think = ["<think>", "</think>"];
    let names = names.split(' ').chain(think.into_iter().filter(|_| with_think));
    let special_tokens = names.map(str::to_owned).collect();
    Arc::new(CharTokenizer::new(CharTokenizerOptions { special_tokens, ..Default::default() }).unwrap())
}

/// A renderer with the tokenizer that it renders for.
struct Fixture {
    tokenizer: Arc<CharTokenizer>,
    renderer: Box<dyn Renderer>,
}

impl Fixture {
    fn new(config: Value) -> Self {
        let tokenizer = tokenizer(!config["name"].as_str().unwrap().starts_with("deepseek"));
        let config: RendererConfig = serde_json::from_value(config).unwrap();
        let renderer = create_renderer(tokenizer.clone(), &config).unwrap();
        Self { tokenizer, renderer }
    }

    /// Ids of a text whose markers are tokens.
    fn ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_added(text).unwrap().ids
    }

    fn parse(&self, text: &str) -> Parsed {
        self.renderer.parse(&self.ids(text), &ParseOptions::default()).unwrap()
    }

    fn parse_with(&self, text: &str, tools: &Value) -> Parsed {
        let options = ParseOptions { tools: tools.as_array().unwrap().clone().into(), ..Default::default() };
        self.renderer.parse(&self.ids(text), &options).unwrap()
    }

    fn text(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, false).unwrap()
    }

    fn bridge(&self, prompt: &[u32], completion: &str, replies: &Value) -> Bridge {
        self.renderer.bridge(prompt, &self.ids(completion), &messages(replies), &[]).unwrap()
    }

    fn prompt(&self, chat: &Value) -> Vec<u32> {
        self.renderer.render(&messages(chat), &PROMPT).unwrap().ids
    }
}

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

fn extended(bridge: Bridge) -> Extension {
    match bridge {
        Bridge::Extended(extension) => Some(extension),
        Bridge::Declined(_) => None,
    }
    .unwrap()
}

const QWENS: [&str; 3] = ["qwen2_5", "qwen3", "qwen3_5"];

fn families() -> Vec<Value> {
    let names = ["chatml", "qwen2_5", "qwen3", "qwen3_5", "qwen3_6", "llama3", "deepseek_v3", "deepseek_r1"];
    let mut configs: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    configs.push(json!({ "name": "qwen3", "enableThinking": false }));
    configs.push(json!({ "name": "qwen3_5", "enableThinking": false }));
    configs
}

fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

#[test]
fn content_is_what_stands_before_the_stop() {
    for config in families() {
        let name = config["name"].clone();
        let fixture = Fixture::new(config);
        let stop = fixture.text(&fixture.renderer.stop_ids()[..1]);
        let prompt_ids = Some(fixture.ids("x"));
        let parse = |text: &str| {
            let options = ParseOptions { prompt_ids: prompt_ids.clone(), ..Default::default() };
            fixture.renderer.parse(&fixture.ids(text), &options).unwrap()
        };
        let whole = parse(&format!("Hi{stop}junk"));
        assert_eq!((whole.content.as_str(), whole.finished, whole.overran), ("Hi", true, false), "{name}");
        assert!(whole.reasoning_content.is_none() && whole.reasoning_complete && whole.tool_calls.is_empty());
        assert_eq!(parse(&stop).content, "", "{name}");
        assert_eq!(parse("").content, "", "{name}");
        assert!(!parse("Hi").finished, "{name}");
    }
}

#[test]
fn a_prompt_that_opened_reasoning_makes_the_completion_reasoning() {
    let thinking = Fixture::new(json!({ "name": "qwen3_5" }));
    let cut = thinking.parse("Let me work through this.");
    assert_eq!(cut.reasoning_content.as_deref(), Some("Let me work through this."));
    assert_eq!((cut.content.as_str(), cut.reasoning_complete), ("", false));
    assert!(!thinking.parse("Still<|im_end|>").reasoning_complete, "a stop does not close reasoning");
    let closed = thinking.parse("So.\n</think>\n\nAnswer<|im_end|>");
    assert_eq!((closed.reasoning_content.as_deref(), closed.content.as_str()), (Some("So."), "Answer"));
    assert!(closed.reasoning_complete);
    let silent = Fixture::new(json!({ "name": "qwen3_5", "enableThinking": false }));
    assert_eq!(silent.parse("The answer is 4.").content, "The answer is 4.");
}

#[test]
fn prompt_ids_decide_over_the_mode() {
    let thinking = Fixture::new(json!({ "name": "qwen3_5" }));
    let silent = Fixture::new(json!({ "name": "qwen3_5", "enableThinking": false }));
    for (parser, prompter) in [(&thinking, &silent), (&silent, &thinking)] {
        let options = ParseOptions { prompt_ids: Some(prompter.prompt(&user("Q"))), ..Default::default() };
        let parsed = parser.renderer.parse(&parser.ids("text"), &options).unwrap();
        assert_eq!(parsed, prompter.parse("text"));
    }
}

#[test]
fn reasoning_ends_at_its_first_close_and_later_openers_are_content() {
    let qwen = Fixture::new(json!({ "name": "qwen3" }));
    let parsed = qwen.parse("<think>\na\n</think>\n\nb <think> c<|im_end|>");
    assert_eq!((parsed.reasoning_content.as_deref(), parsed.content.as_str()), (Some("a"), "b <think> c"));
    let alone = qwen.parse("</think>");
    assert_eq!((alone.content.as_str(), alone.reasoning_complete, alone.reasoning_content), ("", true, None));
    let empty = qwen.parse("<think>\n\n</think>\n\nHi<|im_end|>");
    assert_eq!(
        (empty.content.as_str(), empty.reasoning_content),
        ("Hi", None),
        "an empty reasoning becomes none"
    );
    let kept = Fixture::new(json!({ "name": "qwen3_5" })).parse("\n</think>\n\nHi<|im_end|>");
    assert_eq!(kept.reasoning_content.as_deref(), Some(""), "in Qwen3.5 an empty reasoning is one");
}

#[test]
fn text_that_only_spells_markers_is_content() {
    for name in QWENS {
        let fixture = Fixture::new(json!({ "name": name, }));
        let spelled = "<tool_call>{\"name\": \"f\"}</tool_call></think><|im_end|>";
        let ids = fixture.tokenizer.encode(spelled).unwrap().ids;
        let options = ParseOptions { prompt_ids: Some(vec![1]), ..Default::default() };
        let parsed = fixture.renderer.parse(&ids, &options).unwrap();
        assert_eq!((parsed.content.as_str(), parsed.finished), (spelled, false), "{name}");
        assert!(parsed.tool_calls.is_empty() && parsed.reasoning_content.is_none(), "{name}");
    }
}

#[test]
fn json_calls_are_read_with_their_spans_and_their_arguments_as_sampled() {
    let qwen = Fixture::new(json!({ "name": "qwen3" }));
    let text = "Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\":1.0,  \"a\": true}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\"}\n</tool_call><|im_end|>";
    let parsed = qwen.parse(text);
    assert_eq!(parsed.content, "Look.");
    let [first, second] = parsed.tool_calls.as_slice() else { panic!("two calls: {parsed:?}") };
    assert_eq!((first.status, first.name.as_deref()), (ToolCallStatus::Ok, Some("f")));
    assert_eq!(first.arguments.as_deref(), Some("{\"b\":1.0,  \"a\": true}"), "not a byte changes");
    assert_eq!((second.status, second.arguments.as_deref()), (ToolCallStatus::Ok, Some("{}")));
    let ids = qwen.ids(text);
    assert_eq!(qwen.text(&ids[first.token_span[0]..first.token_span[1]]), first.raw);
    assert!(first.raw.starts_with("<tool_call>") && first.raw.ends_with("</tool_call>"));
}

#[test]
fn broken_calls_are_data_with_a_status() {
    let qwen = Fixture::new(json!({ "name": "qwen2_5" }));
    for (body, status) in [
        ("{\"name\": \"f\", \"arguments\": {}}", ToolCallStatus::Ok),
        ("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", ToolCallStatus::Ok),
        ("not json", ToolCallStatus::InvalidJson),
        ("{\"name\": \"f\", \"arguments\": \"{oops\"}", ToolCallStatus::InvalidJson),
        ("{\"arguments\": {}}", ToolCallStatus::MissingName),
        ("{\"name\": \"\"}", ToolCallStatus::MissingName),
        ("[1]", ToolCallStatus::MalformedStructure),
        ("{\"name\": \"f\", \"arguments\": 3}", ToolCallStatus::MalformedStructure),
    ] {
        let parsed = qwen.parse(&format!("<tool_call>\n{body}\n</tool_call><|im_end|>"));
        assert_eq!(parsed.tool_calls[0].status, status, "{body}");
        assert!(parsed.tool_calls[0].raw.contains(body), "the text is kept");
        assert_eq!(parsed.content, "");
    }
    let cut = qwen.parse("Hm <tool_call>\n{\"name\": \"f\"");
    assert_eq!((cut.content.as_str(), cut.tool_calls[0].status), ("Hm", ToolCallStatus::UnclosedBlock));
    let call = "<tool_call>{\"name\": \"f\"}</tool_call>";
    let tools = json!([{ "type": "function", "function": { "name": "g" } }]);
    assert_eq!(qwen.parse_with(call, &tools).tool_calls[0].status, ToolCallStatus::UnknownTool);
    assert_eq!(qwen.parse_with(call, &json!([{ "name": "f" }])).tool_calls[0].status, ToolCallStatus::Ok);
}

#[test]
fn a_call_ends_reasoning_that_nothing_closed_but_a_draft_inside_of_it_is_a_thought() {
    let call = "<tool_call>\n{\"name\": \"danger\", \"arguments\": {}}\n</tool_call>";
    let qwen = Fixture::new(json!({ "name": "qwen3" }));
    let open = qwen.parse(&format!("<think>\nhm {call}<|im_end|>"));
    assert_eq!((open.reasoning_content.as_deref(), open.reasoning_complete), (Some("hm"), true));
    assert_eq!(open.tool_calls[0].status, ToolCallStatus::Ok);
    let draft = qwen.parse(&format!("<think>\nhm {call} no\n</think>\n\nNothing.<|im_end|>"));
    assert!(draft.tool_calls.is_empty() && draft.content == "Nothing.");
    assert!(draft.reasoning_content.unwrap().contains("danger"));
}

#[test]
fn reasoning_tags_of_many_tokens_are_found_and_strict_families_keep_calls_as_thoughts() {
    let r1 = Fixture::new(json!({ "name": "deepseek_r1" }));
    let parsed = r1.parse("Two.\n</think>\n\nFour<｜end▁of▁sentence｜>");
    assert_eq!((parsed.reasoning_content.as_deref(), parsed.content.as_str()), (Some("Two."), "Four"));
    let call = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let open = r1.parse(call);
    assert!(open.tool_calls.is_empty() && !open.reasoning_complete && open.content.is_empty());
    let v3 = Fixture::new(json!({ "name": "deepseek_v3" }));
    assert_eq!(v3.parse("plain").content, "plain");
    let called = v3.parse(&format!("Look{call}<｜end▁of▁sentence｜>"));
    assert_eq!(called.content, "Look");
    let call = &called.tool_calls[0];
    assert_eq!(
        (call.status, call.name.as_deref(), call.arguments.as_deref()),
        (ToolCallStatus::Ok, Some("f"), Some("{\"a\": 1}"))
    );
}

#[test]
fn a_llama_turn_is_a_call_where_it_is_one_json_object_with_parameters() {
    let llama = Fixture::new(json!({ "name": "llama3" }));
    let call = llama.parse("{\"name\": \"f\", \"parameters\": {\"a\": \"1\"}}<|eot_id|>");
    assert_eq!((call.content.as_str(), call.tool_calls[0].status), ("", ToolCallStatus::Ok));
    assert_eq!(call.tool_calls[0].arguments.as_deref(), Some("{\"a\": \"1\"}"));
    assert_eq!(
        llama.parse("<|python_tag|>{\"name\": \"f\"}<|eom_id|>").tool_calls[0].status,
        ToolCallStatus::Ok
    );
    let cut = llama.parse("{\"name\": \"f\", \"parameters\": {\"a\"");
    assert_eq!(cut.tool_calls[0].status, ToolCallStatus::UnclosedBlock);
    let broken = llama.parse("{\"name\": \"f\", \"parameters\": {\"a\"<|eot_id|>");
    assert_eq!(broken.tool_calls[0].status, ToolCallStatus::InvalidJson);
    let data = llama.parse("{\"name\": \"Ada\", \"age\": 3}<|eot_id|>");
    assert!(data.tool_calls.is_empty() && !data.content.is_empty(), "an answer in JSON is an answer");
}

#[test]
fn arguments_written_as_text_take_the_types_of_their_schema() {
    let qwen = Fixture::new(json!({ "name": "qwen3_5", "enableThinking": false }));
    let value_of = |text: &str, schema: Value| {
        let tools = json!([{ "name": "f", "parameters": { "properties": { "x": schema } } }]);
        let call = format!(
            "<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"
        );
        let parsed = qwen.parse_with(&call, &tools).tool_calls.remove(0);
        let arguments: Value = serde_json::from_str(&parsed.arguments.unwrap()).unwrap();
        (parsed.status, arguments["x"].clone())
    };
    for text in ["true", "42", "null", "[1,2,3]", "{\"k\": 1}"] {
        let string = (ToolCallStatus::Ok, json!(text));
        assert_eq!(value_of(text, json!({ "type": "string" })), string, "declared text stays text");
        let parsed: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value_of(text, json!({})), (ToolCallStatus::Ok, parsed), "else JSON is read");
    }
    let optional = json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }, { "type": "null" }] });
    assert_eq!(value_of("abc", optional.clone()), (ToolCallStatus::Ok, json!("abc")));
    assert_eq!(value_of("42", optional.clone()), (ToolCallStatus::Ok, json!(42)));
    assert_eq!(value_of("None", optional), (ToolCallStatus::Ok, Value::Null));
    assert_eq!(value_of("True", json!({ "type": "boolean" })), (ToolCallStatus::Ok, json!(true)));
    assert_eq!(value_of("abc", json!({ "type": "integer" })), (ToolCallStatus::InvalidJson, json!("abc")));
    assert_eq!(value_of("1.5", json!({ "type": ["number", "null"] })), (ToolCallStatus::Ok, json!(1.5)));
    assert_eq!(value_of("a\nb", json!({ "type": "string" })), (ToolCallStatus::Ok, json!("a\nb")));
    let large = "123456789012345678901234567890";
    for schema in [json!({}), json!({ "type": "integer" }), json!({ "type": ["number", "null"] })] {
        let tools = json!([{ "name": "f", "parameters": { "properties": { "x": schema } } }]);
        let call = format!("<tool_call><function=f><parameter=x>{large}</parameter></function></tool_call>");
        let parsed = qwen.parse_with(&call, &tools).tool_calls.remove(0);
        assert_eq!(
            (parsed.status, parsed.arguments),
            (ToolCallStatus::Ok, Some(format!("{{\"x\":{large}}}")))
        );
    }
    let parse = |body: &str| qwen.parse(&format!("<tool_call>{body}</tool_call>")).tool_calls[0].status;
    assert_eq!(parse("{\"name\": \"f\"}"), ToolCallStatus::MalformedStructure);
    assert_eq!(parse("<function=>\n</function>"), ToolCallStatus::MissingName);
    assert_eq!(parse("<function=f>\n<parameter=x>\n1"), ToolCallStatus::MalformedStructure);
}

#[test]
fn a_user_query_is_declined_under_a_tool_cycle_and_answers_of_tools_are_not() {
    let qwen = Fixture::new(json!({ "name": "qwen3" }));
    let prompt = qwen.prompt(&user("Q"));
    let declined = Bridge::Declined(BridgeRefusal::UserQueryUnderToolCycle);
    assert_eq!(qwen.bridge(&prompt, "A<|im_end|>", &user("again")), declined);
    let answer = json!([{ "role": "tool", "content": "1" }, { "role": "tool", "content": "2" }]);
    let next = extended(qwen.bridge(&prompt, "A<|im_end|>", &answer));
    let added = "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(
        (next.num_kept, qwen.text(&next.rendered.ids)),
        (2, added.to_owned()),
        "two answers share one envelope"
    );
    extended(qwen.bridge(&prompt, "A<|im_end|>", &user("<tool_response>\n1\n</tool_response>")));
    let all = Fixture::new(json!({ "name": "qwen3", "thinkingRetention": "all" }));
    extended(all.bridge(&prompt, "A<|im_end|>", &user("again")));
}

#[test]
fn a_bridge_closes_what_was_cut_off_and_refuses_reasoning_that_a_stop_left_open() {
    let qwen = Fixture::new(json!({ "name": "qwen3_5" }));
    let prompt = qwen.prompt(&user("Q"));
    let answer = json!([{ "role": "tool", "content": "1" }]);
    let Extension { num_kept, rendered: added } = extended(qwen.bridge(&prompt, "so the", &answer));
    assert_eq!(num_kept, 6);
    assert!(qwen.text(&added.ids).starts_with("\n</think>\n\n<|im_end|>\n<|im_start|>user"));
    let is_synthetic = |t: &usize| added.origin[*t] == Origin::Synthetic;
    let synthetic: Vec<u32> = (0..added.ids.len()).filter(is_synthetic).map(|t| added.ids[t]).collect();
    assert_eq!(qwen.text(&synthetic), "\n</think>\n\n<|im_end|>");
    assert!(!added.sampled_mask.contains(&true) && added.is_content.iter().filter(|&&is| is).count() == 1);
    let refused = Bridge::Declined(BridgeRefusal::OpenReasoningAfterStop);
    assert_eq!(qwen.bridge(&prompt, "so the<|im_end|>", &answer), refused);
    let called = "so <tool_call>\n<function=f>\n</function>\n</tool_call><|im_end|>";
    extended(qwen.bridge(&prompt, called, &answer));
}

#[test]
fn where_thinking_is_off_every_prompt_begins_with_the_one_before_and_bridges_equal_renders() {
    for name in ["qwen3", "qwen3_5", "qwen3_6"] {
        let fixture = Fixture::new(json!({ "name": name, "enableThinking": false }));
        let mut chat = vec![json!({ "role": "user", "content": "1" })];
        let mut prompt = fixture.prompt(&json!(chat));
        for turn in 0..3 {
            chat.push(json!({ "role": "assistant", "content": format!("a{turn}") }));
            let replies = json!([{ "role": "user", "content": format!("q{turn}") }]);
            chat.push(replies[0].clone());
            let completion = format!("a{turn}<|im_end|>");
            let next = extended(fixture.bridge(&prompt, &completion, &replies))
                .next_prompt(&prompt, &fixture.ids(&completion));
            prompt = fixture.prompt(&json!(chat));
            assert_eq!(next, prompt, "{name}");
        }
    }
}

#[test]
fn systems_that_can_only_speak_first_are_no_extension() {
    for name in ["deepseek_v3", "qwen3_5"] {
        let fixture = Fixture::new(json!({ "name": name }));
        let late = json!([{ "role": "tool", "content": "1" }, { "role": "system", "content": "s" }]);
        assert_eq!(fixture.bridge(&[1], "a", &late), Bridge::Declined(BridgeRefusal::UnknownRole), "{name}");
    }
}

#[test]
fn an_extension_past_the_longest_sequence_is_declined() {
    let fixture = Fixture::new(json!({ "name": "chatml" }));
    let added = extended(fixture.bridge(&[1], "", &user("Q"))).rendered.ids.len();
    let longest = fulmar_core::limits::SEQUENCE_TOKENS_MAX - added;
    extended(fixture.bridge(&vec![1; longest], "", &user("Q")));
    let too_long = fixture.bridge(&vec![1; longest + 1], "", &user("Q"));
    assert_eq!(too_long, Bridge::Declined(BridgeRefusal::OverLength));
}

#[test]
fn tools_are_accepted_by_bridges_and_change_nothing() {
    for name in ["qwen3", "llama3", "deepseek_v3"] {
        let fixture = Fixture::new(json!({ "name": name }));
        let answer = messages(&json!([{ "role": "tool", "content": "1" }]));
        let tools = [json!({ "name": "f" })];
        let without = fixture.renderer.bridge(&[1], &[2], &answer, &[]);
        assert_eq!(fixture.renderer.bridge(&[1], &[2], &answer, &tools), without);
    }
}

#[test]
fn unknown_and_contradictory_knobs_are_refused() {
    let read =
        |config: Value| serde_json::from_value::<RendererConfig>(config).map_err(|error| error.to_string());
    let unknown = read(json!({ "name": "qwen3", "preserveAllThinking": true })).unwrap_err();
    assert!(unknown.contains("`enableThinking` or `thinkingRetention`"), "{unknown}");
    assert!(read(json!({ "name": "qwen33" })).unwrap_err().contains("qwen3"));
    assert!(read(json!({ "name": "qwen2_5", "enableThinking": true })).is_err());
    let config =
        read(json!({ "name": "qwen3_6", "preserveThinking": true, "thinkingRetention": "tool_cycle" }));
    assert!(create_renderer(tokenizer(true), &config.unwrap()).is_err());
    assert!(create_renderer(tokenizer(false), &read(json!({ "name": "qwen3" })).unwrap()).is_err());
}

#[test]
fn several_calls_in_one_llama_turn_are_refused() {
    let llama = Fixture::new(json!({ "name": "llama3" }));
    let call = json!({ "function": { "name": "f", "arguments": {} } });
    let chat =
        json!([{ "role": "user", "content": "x" }, { "role": "assistant", "tool_calls": [call, call] }]);
    let error = llama.renderer.render(&messages(&chat), &WHOLE).unwrap_err();
    assert_eq!(error.detail(), "messages[1]: tool_calls must hold one call in this family: got 2");
}

#[test]
fn retention_follows_the_knobs() {
    for (config, retention) in [
        (json!({ "name": "qwen3" }), ThinkingRetention::ToolCycle),
        (json!({ "name": "qwen3", "enableThinking": false }), ThinkingRetention::All),
        (json!({ "name": "qwen3_6", "preserveThinking": true }), ThinkingRetention::All),
        (json!({ "name": "deepseek_v3" }), ThinkingRetention::All),
        (json!({ "name": "deepseek_r1" }), ThinkingRetention::Template),
        (json!({ "name": "llama3" }), ThinkingRetention::All),
    ] {
        assert_eq!(Fixture::new(config).renderer.thinking_retention(), retention);
    }
}

/// Returns whether appending `replies` to `chat` keeps the text of `chat`.
fn keeps_prefix(fixture: &Fixture, chat: &[Value], replies: &[Value]) -> bool {
    let longer = [chat, replies].concat();
    let render = |chat: &[Value]| fixture.renderer.render(&messages(&json!(chat)), &WHOLE).unwrap().ids;
    render(&longer).starts_with(&render(chat))
}

#[test]
fn prefix_stability_has_its_witnesses() {
    let turn = |content: &str, reasoning: &str| json!({ "role": "assistant", "content": content, "reasoning_content": reasoning });
    let query = json!({ "role": "user", "content": "q" });
    let (thought, silent) = (turn("a", "r"), json!({ "role": "assistant", "content": "a" }));
    let tool = json!({ "role": "tool", "content": "t" });
    for config in families() {
        let fixture = Fixture::new(config.clone());
        let breaks = |reply: &Value| {
            let chats = [&thought, &silent].map(|last| [query.clone(), last.clone()]);
            chats.iter().any(|chat| !keeps_prefix(&fixture, chat, std::slice::from_ref(reply)))
        };
        let expected = match (breaks(&query), breaks(&tool)) {
            (false, false) => PrefixStability::Always,
            (true, false) => PrefixStability::WithinToolCycle,
            (_, true) => PrefixStability::Never,
        };
        let claimed = fixture.renderer.prefix_stability();
        let is_deepseek = config["name"].as_str().unwrap().starts_with("deepseek");
        assert!(
            claimed == expected || is_deepseek,
            "{config}: {claimed:?} is claimed, {expected:?} was seen"
        );
    }
    // DeepSeek breaks in the second round of tools, and after answers without a following turn.
    let v3 = Fixture::new(json!({ "name": "deepseek_v3" }));
    assert!(!keeps_prefix(&v3, &[query.clone(), silent, tool], &[query]));
}

fn marked_text() -> impl Strategy<Value = String> {
    let pieces = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<|im_end|>",
        "<|im_start|>",
        "<|eot_id|>",
        "{\"name\": ",
        "\"f\"",
        "\"parameters\"",
        "}",
        "<function=f>",
        "<parameter=x>",
        "</parameter>",
        "</function>",
        "a",
        "\n",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜end▁of▁sentence｜>",
        "```json",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_completion_parses_and_bridges_without_a_failure(text in marked_text()) {
        for config in families() {
            let fixture = Fixture::new(config);
            let text = text.replace("<think>", "").replace("</think>", "");
            let ids = fixture.tokenizer.encode_added(&text).unwrap().ids;
            let parsed = fixture.renderer.parse(&ids, &ParseOptions::default()).unwrap();
            for call in &parsed.tool_calls {
                let raw = fixture.text(&ids[call.token_span[0]..call.token_span[1]]);
                prop_assert!(raw.contains(call.raw.trim()), "{raw:?} holds {:?}", call.raw);
            }
            let replies = messages(&json!([{ "role": "tool", "content": "1" }]));
            if let Bridge::Extended(next) = fixture.renderer.bridge(&[1, 2], &ids, &replies, &[]).unwrap() {
                let kept = fulmar_chat::trim_to_turn_close(&ids, fixture.renderer.stop_ids());
                prop_assert_eq!(next.num_kept, kept.len());
                prop_assert!(!next.rendered.sampled_mask.contains(&true));
            }
        }
    }

    #[test]
    fn any_completion_of_a_thinking_model_parses(text in marked_text()) {
        for name in ["qwen3", "qwen3_5"] {
            let fixture = Fixture::new(json!({ "name": name }));
            let ids = fixture.ids(&text);
            for end in 0..=ids.len() {
                let parsed = fixture.renderer.parse(&ids[..end], &ParseOptions::default()).unwrap();
                prop_assert!(parsed.reasoning_complete || parsed.content.is_empty());
            }
        }
    }

    #[test]
    fn what_is_rendered_parses_back(content in "[a-z ]{1,12}", reasoning in "[a-z]{0,8}", number in -9_i32..9) {
        for config in families() {
            let name = config["name"].as_str().unwrap().to_owned();
            let fixture = Fixture::new(config);
            let (has_calls, keeps_reasoning) = (name != "chatml", name.starts_with("qwen3"));
            let mut turn = json!({ "role": "assistant", "content": content.trim() });
            if keeps_reasoning && !reasoning.is_empty() {
                turn["reasoning_content"] = json!(reasoning);
            }
            if has_calls && name != "deepseek_r1" {
                let call = json!({ "type": "function", "function": { "name": "f", "arguments": { "n": number } } });
                turn["tool_calls"] = json!([call]);
            }
            let chat = messages(&json!([{ "role": "user", "content": "q" }, turn]));
            let spoken = fixture.renderer.render(&chat, &WHOLE).unwrap();
            let first = spoken.sampled_mask.iter().position(|&is| is).unwrap();
            let options = ParseOptions { prompt_ids: Some(spoken.ids[..first].to_vec()), ..Default::default() };
            let parsed = fixture.renderer.parse(&spoken.ids[first..], &options).unwrap();
            prop_assert!(parsed.finished);
            if name != "llama3" {
                prop_assert_eq!(parsed.content.trim(), content.trim(), "{}", name);
            }
            if keeps_reasoning && !reasoning.is_empty() {
                prop_assert_eq!(parsed.reasoning_content, Some(reasoning.clone()), "{}", name);
            }
            if has_calls && name != "deepseek_r1" {
                let arguments: Value = serde_json::from_str(parsed.tool_calls[0].arguments.as_ref().unwrap()).unwrap();
                prop_assert_eq!(&arguments, &json!({ "n": number }), "{}", name);
            }
        }
    }
}
