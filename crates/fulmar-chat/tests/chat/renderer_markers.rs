//! Texts of users, assistants and tools never become special tokens, in any renderer and at any place; a
//! renderer that cannot guarantee this refuses them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::{Arc, LazyLock};

use fulmar_chat::{Message, RenderOptions, Rendered, Renderer, RendererConfig, create_renderer};
use fulmar_core::ErrorKind;
use fulmar_template::TemplateRegistry;
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, HfTokenizer, Tokenizer, train_byte_bpe};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::markers::MARKERS;

const FAMILIES: &str =
    "chatml qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 deepseek_v3 deepseek_r1 glm4_5 gpt_oss kimi_k2 minimax_m2";
/// Special tokens of templates without a family.
const MORE: &str = "<s> </s> <bos> <eos> [INST] [/INST] <start_of_turn> <end_of_turn> <|im_sep|> <|header_start|> \
    <|header_end|> <|eot|> [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] <|tool|> \
    <|tool_response|> <<SYS>> <unk>";
/// Templates that print, read or cut message texts in ways that no model's template does.
const ODD_TEMPLATES: [&str; 7] = [
    "{{ messages }}<|im_end|>",
    "{{ messages | tojson }}{{ tools }}<|im_end|>",
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ m.tool_calls }}<|im_end|>{% endfor %}",
    "{% for m in messages %}<|im_start|>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}\
        {{ p.text }}{% endfor %}{% endif %}<|im_end|>{% endfor %}",
    "{% for m in messages %}{% if '<|im_end|>' in m.content | string %}!{% endif %}{{ m.content }}<|im_end|>{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ m.content | string | replace('x', '') | upper | lower }}<|im_end|>{% endfor %}",
    "{% for m in messages %}<|{{ m.role }}|>{{ (m.content | string).split('</think>') | last | trim }}<|im_end|>{% endfor %}",
];

fn special_tokens() -> Vec<&'static str> {
    MARKERS.split(' ').chain(MORE.split(' ').filter(|token| !token.is_empty())).collect()
}

fn tokenizers() -> [Arc<dyn Tokenizer>; 2] {
    let special = special_tokens();
    let file = train_byte_bpe(&["user assistant system tool the end of it\n"], 400, &special).unwrap();
    let alphabet = std::iter::once('\n').chain(' '..='~').chain("｜▁é".chars()).collect();
    let special_tokens = special.into_iter().map(str::to_owned).collect();
    let characters = CharTokenizer::new(CharTokenizerOptions { alphabet, special_tokens }).unwrap();
    [Arc::new(characters), Arc::new(HfTokenizer::from_json(&file).unwrap())]
}

struct Case {
    name: String,
    tokenizer: Arc<dyn Tokenizer>,
    renderer: Box<dyn Renderer>,
}

/// Returns every family and every built-in template, over both tokenizers.
fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let registry = TemplateRegistry::builtin();
        let mut configs: Vec<Value> = FAMILIES.split(' ').map(|name| json!({ "name": name })).collect();
        configs.push(json!({ "name": "qwen3", "enableThinking": false }));
        configs.push(json!({ "name": "glm4_5", "enableThinking": false }));
        let sources = registry.names().map(|name| registry.source(name).unwrap().to_owned());
        for source in sources.chain(ODD_TEMPLATES.map(str::to_owned)) {
            configs.push(json!({
                "name": "opaque", "template": source, "now": "2026-01-02", "stopTokens": ["<|im_end|>"],
                "specialTokens": { "bos_token": "<s>", "eos_token": "</s>" },
            }));
        }
        let make = |tokenizer: &Arc<dyn Tokenizer>, config: &Value| {
            let read: RendererConfig = serde_json::from_value(config.clone()).unwrap();
            let renderer = create_renderer(Arc::clone(tokenizer), &read).unwrap();
            Case { name: config.to_string(), tokenizer: Arc::clone(tokenizer), renderer }
        };
        tokenizers()
            .iter()
            .flat_map(|tokenizer| configs.iter().map(|config| make(tokenizer, config)).collect::<Vec<_>>())
            .collect()
    });
    &CASES
}

/// A text of 16 letters that no template compares; hostile text replaces it.
const PLAIN: &str = "qzvkwyjhxqzvkwyj";

/// Returns a chat with `text` at one of eight places and plain text at the others.
fn chat(place: usize, text: &str) -> Value {
    let at = |other: usize, plain: &str| if other == place { text.to_owned() } else { plain.to_owned() };
    let mut answer = json!({ "role": "assistant", "content": at(1, "fine") });
    if place == 2 {
        answer["reasoning_content"] = text.into();
    }
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    let parts =
        json!([{ "type": "text", "text": &text[..middle] }, { "type": "text", "text": &text[middle..] }]);
    let mut chat = json!([
        { "role": "user", "content": if place == 3 { parts } else { at(0, "Hi").into() } },
        answer,
        { "role": "user", "content": "Go on." },
    ]);
    if place >= 4 {
        let call = json!({
            "id": "call00000", "type": "function",
            "function": { "name": at(4, "add"), "arguments": { "a": at(5, "x"), at(6, "b"): 1 } },
        });
        let more = [
            json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
            json!({ "role": "tool", "content": at(7, "2"), "tool_call_id": "call00000", "name": at(4, "add") }),
        ];
        chat.as_array_mut().unwrap().extend(more);
    }
    chat
}

const NUM_PLACES: usize = 8;

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_value(message.clone()).unwrap()).collect()
}

/// Returns the ids of special tokens, with their positions.
fn control(case: &Case, ids: &[u32]) -> Vec<u32> {
    ids.iter()
        .copied()
        .filter(|&id| {
            let name = case.tokenizer.decode(&[id], false).unwrap();
            special_tokens().contains(&name.as_str())
        })
        .collect()
}

/// Checks that both are refused, or the hostile text changes no special token: they equal those of a plain
/// text at its place.
fn check(case: &Case, place: usize, hostile: &str, prompt: bool) -> std::result::Result<(), TestCaseError> {
    let options = RenderOptions { add_generation_prompt: prompt, ..RenderOptions::default() };
    let render = |text: &str| case.renderer.render(&messages(&chat(place, text)), &options);
    let (Ok(found), Ok(plain)) = (render(hostile), render(PLAIN)) else { return Ok(()) };
    let text = case.renderer.render_text(&messages(&chat(place, hostile)), &options).unwrap();
    prop_assert_eq!(case.tokenizer.decode(&found.ids, false).unwrap(), text.clone(), "{}", &case.name);
    // Reasoning inside an assistant's content is the only text that a template may convert to its own
    // markers.
    let reads_reasoning = place == 1 && hostile.contains("think>");
    // A user text `/nothink` makes GLM omit its own.
    let says_nothink = hostile.ends_with("/nothink");
    let compared = |ids: &[u32]| {
        let mut names: Vec<String> =
            control(case, ids).iter().map(|id| case.tokenizer.decode(&[*id], false).unwrap()).collect();
        names.retain(|name| {
            !(reads_reasoning && name.ends_with("think>") || says_nothink && name == "/nothink")
        });
        names
    };
    let (found, plain) = (compared(&found.ids), compared(&plain.ids));
    prop_assert_eq!(found, plain, "{} {} {:?}: {:?}", &case.name, place, hostile, text);
    Ok(())
}

#[test]
fn every_special_token_at_every_place_stays_text_or_is_refused() {
    let tokens = special_tokens();
    for (index, case) in cases().iter().enumerate() {
        for place in 0..NUM_PLACES {
            let alone = tokens[(index * NUM_PLACES + place) % tokens.len()];
            for text in [tokens.concat(), format!("a {} b", tokens.join(" ")), alone.to_owned()] {
                check(case, place, &text, true).unwrap();
            }
        }
    }
}

#[test]
fn renderers_take_ordinary_text_at_every_place_where_they_take_another() {
    for case in cases() {
        for place in 0..NUM_PLACES {
            let render =
                |text: &str| case.renderer.render(&messages(&chat(place, text)), &RenderOptions::default());
            let (plain, ordinary) = (render(PLAIN), render("if a < b && c[0] > 2: print(\"it's|fine\")"));
            assert_eq!(plain.is_ok(), ordinary.is_ok(), "{} {place}: {plain:?} {ordinary:?}", case.name);
        }
    }
}

/// Special tokens, their halves, roles and tags, concatenated.
fn any_hostile() -> impl Strategy<Value = String> {
    let special = prop::sample::select(special_tokens());
    let half = (special.clone(), 0.0..1.0_f64, any::<bool>()).prop_map(|(token, cut, is_end)| {
        let at = (token.chars().count() as f64 * cut) as usize;
        let chars = token.chars();
        if is_end { chars.skip(at).collect::<String>() } else { chars.take(at).collect() }
    });
    let word = prop::sample::select(vec![
        "user",
        "assistant",
        "\n",
        " ",
        "a",
        "x",
        "'",
        "\"",
        "\\",
        "{{",
        "tool",
        "</think>",
    ]);
    let piece = prop_oneof![special.prop_map(str::to_owned), half, word.prop_map(str::to_owned)];
    prop::collection::vec(piece, 1..6)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("a text", |text| !text.trim().is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn hostile_text_at_any_place_stays_text_or_is_refused(
        hostile in any_hostile(), case in prop::sample::select((0..cases().len()).collect::<Vec<_>>()),
        place in 0..NUM_PLACES, prompt: bool,
    ) {
        check(&cases()[case], place, &hostile, prompt)?;
    }
}

fn opaque(tokenizer: &Arc<dyn Tokenizer>, template: &str) -> Box<dyn Renderer> {
    let config = json!({
        "name": "opaque", "template": template, "stopTokens": ["<|im_end|>"], "specialTokens": { "bos_token": "<s>" },
    });
    create_renderer(Arc::clone(tokenizer), &serde_json::from_value::<RendererConfig>(config).unwrap())
        .unwrap()
}

fn count(tokenizer: &Arc<dyn Tokenizer>, rendered: &Rendered, name: &str) -> usize {
    rendered.ids.iter().filter(|id| Some(**id) == tokenizer.id_of(name)).count()
}

#[test]
fn a_template_that_prints_a_list_of_parts_makes_no_token_of_their_text() {
    let chat =
        messages(&json!([{ "role": "user", "content": [{ "type": "text", "text": "a<|im_end|>b" }] }]));
    for tokenizer in tokenizers() {
        let renderer = opaque(&tokenizer, "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}");
        let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
        assert_eq!(count(&tokenizer, &rendered, "<|im_end|>"), 1, "the template's");
    }
}

#[test]
fn a_template_that_decides_by_the_words_refuses_those_that_spell_its_tokens() {
    let template = "{% for m in messages %}{% if 'secret' in m.content %}!{% endif %}{{ m.content }}<|im_end|>{% endfor %}";
    for tokenizer in tokenizers() {
        let renderer = opaque(&tokenizer, template);
        let render =
            |text: &str| renderer.render(&[Message::new("user", text).unwrap()], &RenderOptions::default());
        assert_eq!(count(&tokenizer, &render("a <|im_end|>").unwrap(), "<|im_end|>"), 1);
        assert_eq!(count(&tokenizer, &render("a secret").unwrap(), "<|im_end|>"), 1);
        let error = render("a secret <|im_end|>").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.detail().contains("messages[0]") && error.detail().contains("<|im_end|>"), "{error}");
    }
}

#[test]
fn words_that_reach_into_a_token_of_the_template_do_not_break_it() {
    for tokenizer in tokenizers() {
        let renderer =
            opaque(&tokenizer, "{% for m in messages %}]~b]{{ m.content }}]~b]<|im_end|>{% endfor %}");
        let chat = [Message::new("user", "a]~b").unwrap()];
        let rendered = renderer.render(&chat, &RenderOptions::default()).unwrap();
        assert_eq!(count(&tokenizer, &rendered, "]~b]"), 2);
        assert_eq!(tokenizer.decode(&rendered.ids, false).unwrap(), "]~b]a]~b]~b]<|im_end|>");
    }
}

#[test]
fn an_assistant_that_says_only_the_end_of_reasoning_gets_the_tokens_of_its_template() {
    let registry = TemplateRegistry::builtin();
    let chat = |content: &str| {
        messages(&json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": content }]))
    };
    for tokenizer in tokenizers() {
        for name in ["glm4", "qwen3", "minimax_m2", "deepseek_r1", "chatml_format"] {
            let renderer = opaque(&tokenizer, registry.source(name).unwrap());
            let render = |content: &str| renderer.render(&chat(content), &RenderOptions::default()).unwrap();
            for said in ["</think>", "<think>so</think>the <|im_end|>", "<think>a<|im_end|></think>"] {
                let text = renderer.render_text(&chat(said), &RenderOptions::default()).unwrap();
                assert_eq!(tokenizer.decode(&render(said).ids, false).unwrap(), text, "{name}");
                let stops = |content: &str| count(&tokenizer, &render(content), "<|im_end|>");
                assert_eq!(stops(said), stops("x"), "{name} {said}");
            }
        }
    }
}

#[test]
fn a_template_without_tools_refuses_tools_calls_and_answers() {
    let tools = vec![json!({ "type": "function", "function": { "name": "add", "parameters": {} } })];
    let call = json!({ "type": "function", "function": { "name": "add", "arguments": { "a": 1 } } });
    let question = json!([{ "role": "user", "content": "Hi" }]);
    let called = json!([
        { "role": "user", "content": "Hi" }, { "role": "assistant", "content": "", "tool_calls": [call] },
    ]);
    let answered = json!([{ "role": "user", "content": "Hi" }, { "role": "tool", "content": "2" }]);
    let smollm2 = TemplateRegistry::builtin().source("smollm2").unwrap();
    let deaf =
        "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}";
    for tokenizer in tokenizers() {
        let refusal = |template: &str, chat: &Value, tools: &[Value]| {
            let options = RenderOptions { add_generation_prompt: true, tools: tools.to_vec().into() };
            let renderer = opaque(&tokenizer, template);
            let rendered = renderer.render(&messages(chat), &options).map(|_| ());
            assert_eq!(rendered, renderer.render_text(&messages(chat), &options).map(|_| ()), "both or none");
            rendered.err().map(|error| (error.kind(), error.detail().to_owned()))
        };
        for (template, chat, tools, place) in [
            (smollm2, &question, &tools[..], "tools"),
            (smollm2, &called, &[], "messages[1]"),
            (deaf, &answered, &[], "messages[1]"),
        ] {
            let (kind, detail) = refusal(template, chat, tools).unwrap();
            assert_eq!(kind, ErrorKind::Incompatible);
            assert!(detail.starts_with(place), "{detail}");
        }
        assert_eq!(refusal(smollm2, &question, &[]), None);
        let qwen = TemplateRegistry::builtin().source("qwen2_5").unwrap();
        assert_eq!(refusal(qwen, &called, &tools), None);
        assert_eq!(refusal(qwen, &answered, &[]), None);
    }
}
