//! The source of a chat template and, after a separator, its input as JSON.

use fulmar::template::{Limits, Template};

/// A second input with which every source is rendered.
const INPUT: &str = r#"{
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 1? \u00e9 \ud83d\ude00 <|im_end|>"}]},
        {"role": "assistant", "content": null, "reasoning_content": "two",
         "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "add", "arguments": {"x": 1.0}}}]},
        {"role": "tool", "tool_call_id": "a1", "content": "2"},
        {"role": "assistant", "content": "2"}
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
    "addGenerationPrompt": true,
    "specialTokens": {"bos_token": "<s>", "eos_token": "</s>"},
    "now": "2026-01-02T03:04:05"
}"#;
/// Small limits, so that a bomb is refused quickly.
const LIMITS: Limits = Limits { steps: 100_000, output_bytes: 1 << 20, made_bytes: 1 << 24 };

/// Compiles and renders, twice each: the same text, spans inside it, and never beyond the limits.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (source, input) = super::halves(&text, INPUT);
    let Ok(template) = Template::with_limits(source, LIMITS) else { return };
    for input in [input, INPUT] {
        let Ok(rendered) = template.render_json(input) else { continue };
        assert_eq!(template.render_json(input).as_ref(), Ok(&rendered), "rendering is a function");
        assert!(rendered.text.len() <= LIMITS.output_bytes, "the limit of the text holds");
        let mut end = 0;
        for &[start, stop] in rendered.assistant_spans.iter().flatten() {
            assert!(end <= start && start <= stop, "spans are in order: [{start}, {stop}] after {end}");
            assert!(rendered.text.get(start..stop).is_some(), "a span is a piece of the text");
            end = stop;
        }
    }
}
