//! Kimi K2: every turn names its speaker, no reasoning, and call ids that contain the name of their tool.
//!
//! A conversation without a leading system message gets a default one. A call without an id gets the one that
//! its model would sample, `functions.NAME:INDEX`, counted over the conversation; the stock template omits
//! the id.
//!
//! Lossy in `parse(render(x))`: blanks around content; the name of a message's speaker.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};
use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use super::chatml::ROLES;
use super::{Family, Table};
use crate::completion::{CallBody, CallFormat, Tag};
use crate::message_view::MessageView;
use crate::python_json::write_sorted_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::tool_call::{ReadCall, read_arguments};
use crate::{Origin, PrefixStability, Result, ThinkingRetention, ToolCallStatus};

const MARKERS: [&str; 10] = [
    "<|im_system|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_middle|>",
    "<|im_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    ARGUMENTS,
    "<|tool_call_end|>",
];
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";

/// The renderer of Kimi K2.
pub(crate) struct KimiK2 {
    table: Table,
    pieces: Pieces,
}

struct Pieces {
    default_system: Scaffold,
    tools: Scaffold,
    system: Scaffold,
    user: Scaffold,
    assistant: Scaffold,
    middle: Scaffold,
    end: Scaffold,
    section_open: Scaffold,
    section_close: Scaffold,
    call_open: Scaffold,
    call_arguments: Scaffold,
    call_close: Scaffold,
}

impl KimiK2 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &MARKERS, &[])?;
        let section = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>");
        let table = Table {
            tokenizer,
            roles: &ROLES,
            stop_ids: lexicon.ids(&["<|im_end|>"]),
            close: lexicon.scaffold("<|im_end|>"),
            separator: Scaffold::default(),
            retention: ThinkingRetention::All,
            stability: PrefixStability::Always,
            reasoning: None,
            calls: Some(CallFormat {
                section: Some((Tag::new(&lexicon, section.0), Tag::new(&lexicon, section.1))),
                open: Tag::new(&lexicon, "<|tool_call_begin|>"),
                close: Tag::new(&lexicon, "<|tool_call_end|>"),
                read: read_call,
            }),
            has_tools: true,
            fixes_system: false,
            trims_content: true,
        };
        Ok(Self { table, pieces: Pieces::new(&lexicon) })
    }

    fn open(&self, script: &mut Script, message: &MessageView<'_>) {
        script.frame(match message.origin {
            Origin::User => &self.pieces.user,
            Origin::Assistant => &self.pieces.assistant,
            _ => &self.pieces.system,
        });
        let named = message.message.value("name").and_then(Value::as_str);
        script.text(named.filter(|name| !name.is_empty()).unwrap_or(message.role), Origin::Template);
        script.frame(&self.pieces.middle);
    }

    /// Writes the calls of an assistant; `index` is the number of calls before them.
    fn write_calls(&self, script: &mut Script, message: &MessageView<'_>, index: usize) -> Result<()> {
        let spoken = Origin::Assistant;
        script.scaffold(&self.pieces.section_open, spoken);
        for (offset, call) in message.calls.iter().enumerate() {
            script.scaffold(&self.pieces.call_open, spoken);
            match call.id {
                Some(id) => script.text(id, spoken),
                None => script.text(&format!("functions.{}:{}", call.name, index + offset), spoken),
            }
            script.scaffold(&self.pieces.call_arguments, spoken);
            script.text_with(spoken, |out| call.write_arguments(out))?;
            script.scaffold(&self.pieces.call_close, spoken);
        }
        script.scaffold(&self.pieces.section_close, spoken);
        Ok(())
    }
}

impl Family for KimiK2 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        if !tools.is_empty() {
            script.frame(&self.pieces.tools);
            script.text_with(Origin::Template, |out| write_sorted_json(out, &Value::from(tools)))?;
            script.frame(&self.pieces.end);
        }
        if messages.first().is_some_and(|message| message.role != "system") {
            script.frame(&self.pieces.default_system);
        }
        Ok(0)
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        let mut num_calls = 0;
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            self.open(script, message);
            if message.is_tool() {
                let Some(id) = message.message.value("tool_call_id").and_then(Value::as_str) else {
                    let detail = format!(
                        "messages[{index}].tool_call_id must name the call that it answers, but it is missing"
                    );
                    return Err(Error::new(ErrorKind::Malformed, detail));
                };
                script.text("## Return of ", Origin::Template);
                script.text(id, Origin::Template);
                script.text("\n", Origin::Template);
            }
            script.text(&message.text, message.origin);
            if !message.calls.is_empty() {
                self.write_calls(script, message, num_calls)?;
                num_calls += message.calls.len();
            }
            let origin = if message.is_assistant() { Origin::Assistant } else { Origin::Template };
            script.scaffold(&self.pieces.end, origin);
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        script.frame(&self.pieces.assistant);
        script.text("assistant", Origin::Template);
        script.frame(&self.pieces.middle);
    }
}

/// Reads `functions.NAME:INDEX`, the marker of arguments, and JSON.
fn read_call(body: &CallBody<'_>) -> ReadCall {
    let Some((id, arguments)) = body.text.split_once(ARGUMENTS) else {
        return ReadCall::broken(ToolCallStatus::MalformedStructure, None);
    };
    let id = id.trim();
    let name = id.strip_prefix("functions.").unwrap_or(id);
    let name = name.rsplit_once(':').map_or(name, |(name, _)| name);
    let id = Some(id.to_owned()).filter(|id| !id.is_empty());
    if name.is_empty() {
        return ReadCall { id, ..ReadCall::broken(ToolCallStatus::MissingName, None) };
    }
    ReadCall { id, ..read_arguments(Some(name.to_owned()), arguments) }
}

impl Pieces {
    fn new(lexicon: &Lexicon) -> Self {
        Self {
            default_system: lexicon.scaffold(concat!(
                "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.",
                "<|im_end|>\n"
            )),
            tools: lexicon.scaffold("<|im_system|>tool_declare<|im_middle|>"),
            system: lexicon.scaffold("<|im_system|>"),
            user: lexicon.scaffold("<|im_user|>"),
            assistant: lexicon.scaffold("<|im_assistant|>"),
            middle: lexicon.scaffold("<|im_middle|>"),
            end: lexicon.scaffold("<|im_end|>"),
            section_open: lexicon.scaffold("<|tool_calls_section_begin|>"),
            section_close: lexicon.scaffold("<|tool_calls_section_end|>"),
            call_open: lexicon.scaffold("<|tool_call_begin|>"),
            call_arguments: lexicon.scaffold(ARGUMENTS),
            call_close: lexicon.scaffold("<|tool_call_end|>"),
        }
    }
}
