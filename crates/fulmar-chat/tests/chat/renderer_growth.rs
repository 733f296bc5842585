//! Parsing a completion takes time in proportion to its length, for any content.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fulmar_chat::{ParseOptions, Renderer, RendererConfig, TextFormat, create_renderer, from_text};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
use serde_json::json;

use crate::markers::MARKERS;

const FAMILIES: &str = "chatml qwen2_5 qwen3 qwen3_5 qwen3_6 llama3 deepseek_v3 deepseek_r1 glm4_5 gpt_oss kimi_k2 minimax_m2 opaque";

/// Optional markers of families, which are then text.
const OPTIONAL: &str = "<arg_key> </arg_key> <arg_value> </arg_value> <tool_response> </tool_response> <｜tool▁calls▁begin｜> \
    <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> /nothink <|constrain|>";

/// The repeated parts of completions, after the opening of a call. `\u{0}` separates the two.
const SHAPES: [&str; 22] = [
    "\0<tool_call>",
    "\0<tool_call>f</tool_call>",
    "\0</tool_call>",
    "<tool_call>f\n\0<arg_key>",
    "<tool_call>f\n\0<arg_key>k</arg_key>",
    "<tool_call>f\n\0<arg_value>",
    "<tool_call>f\n\0</arg_value><arg_key>",
    "<tool_call>\n<function=f>\n\0<parameter=",
    "<tool_call>\n<function=f>\n\0<parameter=a>1</parameter>",
    "<tool_call>\n<function=f>\n\0<parameter=a>\n</parameter",
    "<tool_call>\0{\"a\":",
    "<tool_call>\0[",
    "\0<minimax:tool_call>",
    "<minimax:tool_call>\0<invoke",
    "<minimax:tool_call>\0<invoke name=\"f\"></invoke>",
    "<minimax:tool_call><invoke name=\"f\">\0<parameter",
    "<minimax:tool_call><invoke name=\"f\">\0<parameter name=a>1</parameter>",
    "\0<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
    "\0<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    "\0<|start|>assistant<|channel|>analysis<|message|>",
    "\0 to=functions.f<|channel|>",
    "\0<think></think>",
];

/// A large input is as long as this many small ones together. Linear work takes as long as all of them,
/// quadratic work sixteen times as long.
const FACTOR: usize = 16;
const GROWTH_MAX: u32 = 5;
const LARGE: usize = 32_000;

/// Shorter times are too small to compare.
const FLOOR: Duration = Duration::from_millis(20);

/// Returns the CPU time of this thread so far, or the wall time if the system does not report it.
fn spent(since: Instant) -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let nanos = stat.ok().and_then(|stat| stat.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

fn work(body: &dyn Fn()) -> Duration {
    let since = Instant::now();
    let before = spent(since);
    body();
    spent(since).saturating_sub(before)
}

/// Checks that `run`, given the length of its input, takes linear time.
fn assert_linear(name: &str, run: &dyn Fn(usize)) {
    if work(&|| run(LARGE)) <= FLOOR {
        return;
    }
    // The least of three: other work on the machine only adds time.
    let least = |body: &dyn Fn()| (0..3).map(|_| work(body)).min().unwrap_or_default();
    let large = least(&|| run(LARGE));
    let small = least(&|| (0..FACTOR).for_each(|_| run(LARGE / FACTOR)));
    assert!(large <= small.max(FLOOR / 2) * GROWTH_MAX, "{name}: {small:?} became {large:?}");
}

/// Returns a tokenizer with all markers, and one in which the optional ones are text.
fn tokenizers() -> [Arc<dyn Tokenizer>; 2] {
    let optional: Vec<&str> = OPTIONAL.split(' ').collect();
    [&[][..], &optional].map(|left_out| {
        let markers = MARKERS.split(' ').filter(|marker| !left_out.contains(marker)).map(str::to_owned);
        let alphabet = std::iter::once('\n').chain(' '..='~').chain("｜▁".chars()).collect();
        let options = CharTokenizerOptions { alphabet, special_tokens: markers.collect() };
        Arc::new(CharTokenizer::new(options).unwrap()) as Arc<dyn Tokenizer>
    })
}

fn family(tokenizer: &Arc<dyn Tokenizer>, name: &str) -> Box<dyn Renderer> {
    let mut config = json!({ "name": name });
    if name == "opaque" {
        config["template"] = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}".into();
        config["parser"] = json!({ "name": "glm4_5" });
    }
    let config: RendererConfig = serde_json::from_value(config).unwrap();
    create_renderer(Arc::clone(tokenizer), &config).unwrap()
}

#[test]
fn reading_a_completion_is_linear_in_every_family() {
    for tokenizer in tokenizers() {
        for name in FAMILIES.split(' ') {
            let renderer = family(&tokenizer, name);
            for shape in SHAPES {
                let (head, unit) = shape.split_once('\0').unwrap();
                let encode = |text: &str| tokenizer.encode_added(text).unwrap().ids;
                let (head, unit) = (encode(head), encode(unit));
                let ids = [&head[..], &unit.repeat(LARGE / unit.len())].concat();
                assert_linear(&format!("{name} {shape:?}"), &|length| {
                    let ids = &ids[..ids.len().min(length)];
                    let parsed = renderer.parse(ids, &ParseOptions::default()).unwrap();
                    assert!(parsed.tool_calls.len() <= ids.len());
                });
            }
        }
    }
}

#[test]
fn reading_a_rendered_chat_is_linear_in_every_format() {
    let formats = [
        TextFormat::Chatml,
        TextFormat::DialoGpt,
        TextFormat::Falcon,
        TextFormat::DeepSeek,
        TextFormat::Llama4,
        TextFormat::Llama3,
    ];
    let shapes = [
        "<|im_start|>",
        "<|im_start|>user\n",
        "<|im_start|>user\n<tool_response>\n",
        "\n</tool_response>\n<tool_response>\n",
        "<tool_call>\n",
        "<tool_call>\n{}\n</tool_call>",
        "User: ",
        "\n\nUser: a",
        "\n\nAssistant: a",
        "   \nAssistant:",
        "<|header_start|>",
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|",
        "<a>",
    ];
    for format in formats {
        for shape in shapes {
            for head in ["", "<|im_start|>assistant\n", "<|im_start|>user\n<tool_response>\n"] {
                assert_linear(&format!("{format:?} {head:?} {shape:?}"), &|length| {
                    let text = head.to_owned() + &shape.repeat(length / shape.len());
                    for eos_token in [None, Some("<a>")] {
                        let _ = from_text(&text, format, eos_token);
                    }
                });
            }
        }
    }
}
