//! The family of a chat template: the one that renders the same text, for conversations that exercise each of
//! its parts.
//!
//! Names of models are less reliable: a fine-tune keeps the name and changes the template, or the other way
//! round.

use std::sync::Arc;

use fulmar_template::{CivilTime, Template, TemplateInput};
use fulmar_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::{RendererConfig, family, model};
use crate::{DeepseekV3Options, GptOssOptions, Message, RenderOptions, Renderer, Result};

/// The date for templates during the comparison.
const TODAY: &str = "2024-07-26";

/// A conversation that exercises a part of a template.
struct Probe {
    messages: Vec<Message>,
    options: RenderOptions,
}

/// Returns the configuration of the family that renders the same text as `source` with the tokenizer's
/// special tokens.
///
/// # Errors
/// `Malformed` or `LimitExceeded` if `source` is not a template.
pub(super) fn family_of(tokenizer: &Arc<dyn Tokenizer>, source: &str) -> Result<Option<RendererConfig>> {
    let template = Template::new(source)?;
    let probes = probes()?;
    let probes: Vec<(Probe, Option<String>)> =
        probes.into_iter().map(|probe| written(&template, tokenizer, probe)).collect();
    let is_equal = |config: &RendererConfig| {
        let Ok(family) = family(Arc::clone(tokenizer), &dated(config)) else { return false };
        probes.iter().all(|(probe, text)| agrees(&*family, probe, text.as_deref()))
    };
    let thinking = RendererConfig::DeepseekV3(DeepseekV3Options { enable_thinking: true });
    let mut candidates = [RendererConfig::Chatml {}, thinking].into_iter().chain(model::configs());
    Ok(candidates.find(is_equal))
}

/// Returns the configuration with the date of the comparison, for families that write a date only if it is
/// given.
fn dated(config: &RendererConfig) -> RendererConfig {
    match config {
        RendererConfig::GptOss(options) => RendererConfig::GptOss(GptOssOptions {
            conversation_start_date: Some(TODAY.to_owned()),
            ..options.clone()
        }),
        other => other.clone(),
    }
}

/// Returns whether the family renders `text`. For a probe that the template cannot render, the family alone
/// counts; both must render the plain ones.
fn agrees(family: &dyn Renderer, probe: &Probe, text: Option<&str>) -> bool {
    let is_plain =
        probe.options.tools.is_empty() && !probe.messages.iter().any(|message| message.role() == "tool");
    match (family.render_text(&probe.messages, &probe.options), text) {
        (Ok(written), Some(text)) => written == text,
        (Err(_), Some(_)) => false,
        (_, None) => !is_plain,
    }
}

/// Returns a probe with the template's text. A template that takes arguments of calls only as text gets text.
fn written(template: &Template, tokenizer: &Arc<dyn Tokenizer>, probe: Probe) -> (Probe, Option<String>) {
    let text = write(template, tokenizer, &probe);
    if text.is_some() {
        return (probe, text);
    }
    let messages =
        probe.messages.iter().map(|message| with_text_arguments(message).unwrap_or_else(|| message.clone()));
    let other = Probe { messages: messages.collect(), options: probe.options };
    let text = write(template, tokenizer, &other);
    (other, text)
}

/// Returns the message with the arguments of its calls as JSON text.
fn with_text_arguments(message: &Message) -> Option<Message> {
    let mut fields = message.fields().clone();
    for call in fields.get_mut("tool_calls")?.as_array_mut()? {
        let arguments = call.get_mut("function")?.get_mut("arguments")?;
        *arguments = Value::String(arguments.to_string());
    }
    Message::from_value(Value::Object(fields)).ok()
}

/// Returns the template's text; `None` if it fails, or omits the tools or their calls.
fn write(template: &Template, tokenizer: &Arc<dyn Tokenizer>, probe: &Probe) -> Option<String> {
    let text = |messages: &[Map<String, Value>], tools: &[Value]| {
        let rendered = template.render(&TemplateInput {
            messages: messages.iter().collect(),
            tools: Some(tools).filter(|tools| !tools.is_empty()),
            add_generation_prompt: probe.options.add_generation_prompt,
            special_tokens: tokenizer.special_tokens(),
            now: CivilTime::parse(TODAY).ok(),
            ..TemplateInput::default()
        });
        rendered.ok().map(|rendered| rendered.text)
    };
    let messages: Vec<Map<String, Value>> =
        probe.messages.iter().map(|message| message.fields().clone()).collect();
    let whole = text(&messages, &probe.options.tools)?;
    let mut without_calls = messages.clone();
    without_calls.iter_mut().for_each(|fields| drop(fields.shift_remove("tool_calls")));
    let leaves_tools_out = || text(&messages, &[]).as_ref() == Some(&whole);
    let leaves_calls_out = || text(&without_calls, &probe.options.tools).as_ref() == Some(&whole);
    let has_calls = without_calls != messages;
    let is_short = !probe.options.tools.is_empty() && leaves_tools_out() || has_calls && leaves_calls_out();
    (!is_short).then_some(whole)
}

fn probes() -> Result<Vec<Probe>> {
    let tool = json!({ "type": "function", "function": {
        "name": "add", "description": "Adds.",
        "parameters": { "type": "object", "properties": { "a": { "type": "integer", "description": "One." } }, "required": ["a"] },
    } });
    let call = json!({ "id": "functions.add:0", "type": "function", "function": { "name": "add", "arguments": { "a": 1 } } });
    let answer = json!({ "role": "tool", "content": "2", "tool_call_id": "functions.add:0", "name": "add" });
    let user = json!({ "role": "user", "content": "How much?" });
    let said = json!({ "role": "assistant", "content": "Two." });
    let thought = json!({ "role": "assistant", "content": "Two.", "reasoning_content": "One and one." });
    let called = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
    let blanks = json!({ "role": "user", "content": " a\n" });
    let system = json!({ "role": "system", "content": "Be brief." });
    let chats = [
        (vec![&user], true, false),
        (vec![&system, &user, &said, &blanks], true, false),
        (vec![&user, &said], false, false),
        (vec![&user, &thought, &user], true, false),
        (vec![&user, &thought], false, false),
        (vec![&system, &user], true, true),
        (vec![&user], true, true),
        (vec![&user, &said, &answer, &answer], true, false),
        (vec![&user, &called, &answer], true, true),
        (vec![&user, &called, &answer, &said, &user], true, false),
    ];
    let probe = |(chat, add_generation_prompt, has_tools): (Vec<&Value>, bool, bool)| {
        let messages = chat.into_iter().map(|message| Message::from_value(message.clone()));
        let tools = if has_tools { vec![tool.clone()] } else { Vec::new() };
        Ok(Probe {
            messages: messages.collect::<Result<_>>()?,
            options: RenderOptions { add_generation_prompt, tools: tools.into() },
        })
    };
    chats.into_iter().map(probe).collect()
}

#[cfg(test)]
mod tests {
    use fulmar_template::TemplateRegistry;
    use fulmar_tokenizer::{HfFiles, HfTokenizer, train_byte_bpe};

    use super::*;
    use crate::Llama3Options;

    /// Returns a tokenizer with the special tokens of all families.
    fn tokenizer(begin: &str) -> Arc<dyn Tokenizer> {
        let markers = "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <tool_call> </tool_call> <|begin_of_text|> \
            <|start_header_id|> <|end_header_id|> <|eot_id|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> \
            <｜Assistant｜> <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> \
            <｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> <｜tool▁output▁end｜> [gMASK] <sop> <|system|> \
            <|user|> <|assistant|> <|observation|> <|start|> <|channel|> <|message|> <|end|> <|return|> <|call|> \
            <|im_system|> <|im_user|> <|im_assistant|> <|im_middle|> <|tool_calls_section_begin|> \
            <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> <|tool_call_end|> ]~!b[ ]~b] [e~[ \
            <minimax:tool_call> </minimax:tool_call>";
        let markers: Vec<&str> = markers.split_whitespace().collect();
        let files = HfFiles {
            tokenizer: train_byte_bpe(&["user assistant system"], 400, &markers).unwrap(),
            config: Some(json!({ "bos_token": begin, "eos_token": "<|im_end|>" }).to_string()),
            ..HfFiles::default()
        };
        Arc::new(HfTokenizer::from_files(files).unwrap())
    }

    #[test]
    fn a_template_is_of_the_family_that_writes_what_it_writes_and_others_are_of_none() {
        let deepseek = "<｜begin▁of▁sentence｜>";
        for (name, begin, family) in [
            ("chatml_format", "", Some("chatml")),
            ("qwen2_5", "", Some("qwen2_5")),
            ("qwen3", "", Some("qwen3")),
            ("llama3", "<|begin_of_text|>", Some("llama3")),
            ("llama3_1", "<|begin_of_text|>", Some("llama3")),
            ("deepseek_v3", deepseek, Some("deepseek_v3")),
            ("deepseek_r1", deepseek, Some("deepseek_r1")),
            ("gpt_oss", "", Some("gpt_oss")),
            ("kimi_k2", "", Some("kimi_k2")),
            ("minimax_m2", "", Some("minimax_m2")),
            ("smollm2", "", None),
            ("phi4", "", None),
            ("gemma", "", None),
            ("glm4", "", Some("glm4_5")),
            ("llama4", "", None),
        ] {
            let source = TemplateRegistry::builtin().source(name).unwrap();
            let found = family_of(&tokenizer(begin), source).unwrap();
            assert_eq!(found.map(|config| config.name()), family, "{name}");
        }
    }

    #[test]
    fn a_template_that_differs_in_one_part_is_of_no_family() {
        let source = TemplateRegistry::builtin().source("qwen3").unwrap();
        let tokenizer = tokenizer("");
        for (from, to) in
            [("# Tools", "# Functions"), ("<tool_response>", "<answer>"), ("<think>", "<thought>")]
        {
            let changed = source.replace(from, to);
            assert_ne!(changed, source);
            assert_eq!(family_of(&tokenizer, &changed).unwrap(), None, "{from}");
        }
    }

    #[test]
    fn options_of_a_family_are_found_with_it() {
        let source = TemplateRegistry::builtin().source("llama3").unwrap();
        let expected =
            RendererConfig::Llama3(Llama3Options { system_block: false, ..Llama3Options::default() });
        assert_eq!(family_of(&tokenizer("<|begin_of_text|>"), source).unwrap(), Some(expected));
    }
}
