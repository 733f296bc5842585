//! Completions as a policy might sample them: any ids, cut anywhere.

use std::sync::{Arc, LazyLock};

use fulmar::chat::{Bridge, Message, ParseOptions, RenderOptions, Renderer, RendererConfig, create_renderer};
use fulmar::core::options_from_json;
use fulmar::tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};

/// The markers of all families. New ones go to the end: the corpus names them by their index.
pub const MARKERS: &str = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <tool_response> \
    </tool_response> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|> <|eom_id|> \
    <|python_tag|> <\u{ff5c}begin\u{2581}of\u{2581}sentence\u{ff5c}> <\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}> <\u{ff5c}User\u{ff5c}> <\u{ff5c}Assistant\u{ff5c}> <\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}> \
    <\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}> <\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}> <\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}> <\u{ff5c}tool\u{2581}sep\u{ff5c}> <\u{ff5c}tool\u{2581}outputs\u{2581}begin\u{ff5c}> \
    <\u{ff5c}tool\u{2581}outputs\u{2581}end\u{ff5c}> <\u{ff5c}tool\u{2581}output\u{2581}begin\u{ff5c}> <\u{ff5c}tool\u{2581}output\u{2581}end\u{ff5c}> \
    [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <arg_key> </arg_key> <arg_value> </arg_value> \
    /nothink <|start|> <|channel|> <|message|> <|end|> <|return|> <|call|> <|constrain|> <|im_system|> <|im_user|> \
    <|im_assistant|> <|im_middle|> <|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> \
    <|tool_call_argument_begin|> <|tool_call_end|> ]~!b[ ]~b] [e~[ <minimax:tool_call> </minimax:tool_call>";
/// New ones go to the end: the corpus names them by their index.
const CONFIGS: [&str; 15] = [
    r#"{"name":"chatml"}"#,
    r#"{"name":"qwen3"}"#,
    r#"{"name":"qwen2_5"}"#,
    r#"{"name":"qwen3_5"}"#,
    r#"{"name":"qwen3_6","preserveThinking":true}"#,
    r#"{"name":"llama3"}"#,
    r#"{"name":"deepseek_v3","enableThinking":true}"#,
    r#"{"name":"deepseek_r1"}"#,
    r#"{"name":"glm4_5"}"#,
    r#"{"name":"glm4_5","enableThinking":false,"thinkingRetention":"all"}"#,
    r#"{"name":"gpt_oss","autoDropAnalysis":false}"#,
    r#"{"name":"kimi_k2"}"#,
    r#"{"name":"minimax_m2"}"#,
    r#"{"name":"opaque","template":"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}"#,
    r#"{"name":"opaque","parser":{"name":"qwen3"},"stopTokens":["<|im_end|>"],"template":"{{ messages | tojson }}{% if tools %}{{ tools }}{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"}"#,
];
/// One tool, whose schema has two kinds of arguments.
pub const TOOLS: &str = r#"[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":
    {"x":{"type":"number"},"y":{"anyOf":[{"type":"string"},{"type":"null"}]}}}}}]"#;
/// Longer completions find no more than shorter ones.
const IDS_MAX: usize = 512;

/// All families over one tokenizer that has all markers.
pub fn families() -> &'static [Box<dyn Renderer>] {
    static FAMILIES: LazyLock<Vec<Box<dyn Renderer>>> =
        LazyLock::new(|| families_over(&(Arc::clone(&TOKENIZER) as _)));
    &FAMILIES
}

/// All families over `tokenizer`, which has the markers that they need.
pub fn families_over(tokenizer: &Arc<dyn Tokenizer>) -> Vec<Box<dyn Renderer>> {
    let renderer = |config: &&str| {
        let config: RendererConfig = options_from_json("config", config).ok()?;
        create_renderer(Arc::clone(tokenizer), &config).ok()
    };
    let families: Vec<_> = CONFIGS.iter().filter_map(renderer).collect();
    assert_eq!(families.len(), CONFIGS.len(), "every family is there");
    families
}

static TOKENIZER: LazyLock<Arc<CharTokenizer>> = LazyLock::new(|| {
    let alphabet = std::iter::once('\n')
        .chain(' '..='~')
        .chain("\u{e9}\u{df}\u{2014}\u{2713}\u{2028}\u{1f600}".chars())
        .collect();
    let special_tokens = MARKERS.split(' ').map(str::to_owned).collect();
    let tokenizer = CharTokenizer::new(CharTokenizerOptions { alphabet, special_tokens });
    Arc::new(tokenizer.unwrap_or_else(|error| unreachable!("{error}")))
});

/// The first byte chooses the family, the second where the prompt ends; the rest is ASCII in which a byte above 127
/// means a marker.
pub fn run(data: &[u8]) {
    let [family, cut, rest @ ..] = data else { return };
    let families = families();
    let renderer = families[usize::from(*family) % families.len()].as_ref();
    let ids: Vec<u32> = rest.iter().take(IDS_MAX).map(|&byte| id_of(byte)).collect();
    let (prompt, completion) = ids.split_at(usize::from(*cut).min(ids.len()));
    for end in cuts(completion.len()) {
        check_parse(renderer, prompt, &completion[..end]);
    }
    check_bridge(renderer, prompt, completion);
}

fn id_of(byte: u8) -> u32 {
    static IDS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let letters =
            (0..128).filter_map(|byte: u8| TOKENIZER.id_of(char::from(byte).encode_utf8(&mut [0; 4])));
        letters.chain(MARKERS.split(' ').filter_map(|marker| TOKENIZER.id_of(marker))).collect()
    });
    let num_letters = IDS.len() - MARKERS.split(' ').count();
    match byte.checked_sub(128) {
        Some(index) => IDS[num_letters + usize::from(index) % (IDS.len() - num_letters)],
        None => TOKENIZER.id_of(char::from(byte).encode_utf8(&mut [0; 4])).unwrap_or(0),
    }
}

/// Every cut of a short completion, some of a long one.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..=length).filter(move |end| length - end < 8 || end % 8 == length % 8)
}

fn check_parse(renderer: &dyn Renderer, prompt: &[u32], completion: &[u32]) {
    let tools = options_from_json("tools", TOOLS).unwrap_or_default();
    let options = [ParseOptions::default(), ParseOptions { prompt_ids: Some(prompt.to_vec()), tools }];
    for options in options {
        let parsed = renderer.parse(completion, &options);
        let parsed = parsed.unwrap_or_else(|error| unreachable!("broken completions are data: {error}"));
        let mut last = 0;
        for call in &parsed.tool_calls {
            let [start, end] = call.token_span;
            assert!(
                last <= start && start <= end && end <= completion.len(),
                "calls are in order: {parsed:?}"
            );
            last = end;
        }
        assert_eq!(renderer.parse(completion, &options), Ok(parsed), "parsing is a function");
    }
}

fn check_bridge(renderer: &dyn Renderer, prompt: &[u32], completion: &[u32]) {
    let replies = [Message::new("tool", "2"), Message::new("user", "Go on.")].map(Result::ok);
    for reply in replies.into_iter().flatten() {
        let Ok(Bridge::Extended(next)) = renderer.bridge(prompt, completion, &[reply], &[]) else { continue };
        let kept = fulmar::chat::trim_to_turn_close(completion, renderer.stop_ids());
        assert_eq!(next.num_kept, kept.len(), "what was sampled stays, up to where the turn ended");
        assert!(!next.rendered.sampled_mask.contains(&true), "a bridge marks nothing as sampled");
    }
}

/// Renders if possible, and checks that attributions fit and that the tokenizer has the ids.
pub fn check_render(renderer: &dyn Renderer, chat: &[Message]) {
    for add_generation_prompt in [false, true] {
        let options = RenderOptions { add_generation_prompt, ..RenderOptions::default() };
        let Ok(rendered) = renderer.render(chat, &options) else { continue };
        let lengths = [rendered.message_index.len(), rendered.sampled_mask.len(), rendered.origin.len()];
        assert_eq!(lengths, [rendered.ids.len(); 3], "one attribution for each id");
        assert!(TOKENIZER.decode(&rendered.ids, false).is_ok(), "ids of the vocabulary");
    }
}
