//! GLM-4.5 and GLM-5: role markers open a turn, and nothing closes it. The model ends its turn by sampling
//! the marker of the next speaker, so that marker is part of the assistant's turn.
//!
//! Intended differences from the stock template: with thinking disabled, the empty wrapper in the generation
//! prompt does not count as sampled; a tool's answer is its text, also if it is given as parts; text
//! arguments are parsed as JSON, because the family writes each argument separately.
//!
//! Lossy in `parse(render(x))`: blanks around content and reasoning; an empty reasoning, which becomes none;
//! call ids; without the tool's schema, text that parses as JSON becomes its value.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

use super::chatml::ROLES;
use super::qwen3::split_reasoning;
use super::{Family, Table};
use crate::completion::{CallFormat, Completion, ReasoningFormat, ReasoningState, Tag};
use crate::message_view::{CallView, MessageView};
use crate::python_json::write_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::tool_call::{Arguments, ReadCall, is_offered};
use crate::{
    Origin, ParseOptions, Parsed, ParsedToolCall, PrefixStability, Result, ThinkingRetention, ToolCallStatus,
};

const MARKERS: [&str; 10] = [
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
];
const ARGUMENT_MARKERS: [&str; 4] = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];
const OPTIONAL_MARKERS: [&str; 4] = ["<|endoftext|>", "<tool_response>", "</tool_response>", "/nothink"];

/// The options of GLM-4.5.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Glm45Options {
    /// If true, the model thinks before it answers; if not, each user's text ends with `/nothink`.
    pub enable_thinking: bool,
    /// The messages that a bridge may cross. Defaults to those of a tool cycle.
    pub thinking_retention: Option<ThinkingRetention>,
}

impl Default for Glm45Options {
    fn default() -> Self {
        Self { enable_thinking: true, thinking_retention: None }
    }
}

/// The renderer of GLM-4.5.
pub(crate) struct Glm45 {
    table: Table,
    pieces: Pieces,
    enable_thinking: bool,
    /// `<arg_key>`, `</arg_key>`, `<arg_value>`, `</arg_value>`.
    argument_ids: [Option<u32>; 4],
    argument_tokens: bool,
}

struct Pieces {
    header: Scaffold,
    tools_open: Scaffold,
    tools_close: Scaffold,
    openers: [(Origin, Scaffold); 4],
    newline: Scaffold,
    think_open: Scaffold,
    think_close: Scaffold,
    no_thought: Scaffold,
    call_open: Scaffold,
    call_close: Scaffold,
    key_open: Scaffold,
    key_close: Scaffold,
    value_close: Scaffold,
    answer_open: Scaffold,
    answer_close: Scaffold,
    nothink: Scaffold,
}

impl Glm45 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &Glm45Options) -> Result<Self> {
        let optional = [&OPTIONAL_MARKERS[..], &ARGUMENT_MARKERS].concat();
        let lexicon = Lexicon::new(&*tokenizer, &MARKERS, &optional)?;
        let enable_thinking = options.enable_thinking;
        let table = Table {
            tokenizer,
            roles: &ROLES,
            stop_ids: lexicon.ids(&["<|endoftext|>", "<|user|>", "<|observation|>"]),
            close: Scaffold::default(),
            separator: Scaffold::default(),
            retention: options.thinking_retention.unwrap_or(ThinkingRetention::ToolCycle),
            stability: PrefixStability::WithinToolCycle,
            reasoning: Some(ReasoningFormat {
                open: Tag::new(&lexicon, "<think>"),
                close: Tag::new(&lexicon, "</think>"),
                initial: if enable_thinking { ReasoningState::Absent } else { ReasoningState::Closed },
                call_ends_reasoning: true,
                keeps_empty: false,
                synthetic_close: lexicon.scaffold("</think>"),
            }),
            calls: Some(CallFormat {
                section: None,
                open: Tag::new(&lexicon, "<tool_call>"),
                close: Tag::new(&lexicon, "</tool_call>"),
                // Parsed again by id in `Family::read`, which distinguishes argument markers from text.
                read: |_| ReadCall::broken(ToolCallStatus::Ok, None),
            }),
            has_tools: true,
            fixes_system: false,
            trims_content: true,
        };
        let argument_ids = ARGUMENT_MARKERS.map(|name| lexicon.id(name));
        let argument_tokens = argument_ids.iter().all(Option::is_some);
        Ok(Self { table, pieces: Pieces::new(&lexicon), enable_thinking, argument_ids, argument_tokens })
    }

    /// Writes the speaker. After an assistant's turn the model samples that marker itself.
    fn open(&self, script: &mut Script, messages: &[MessageView<'_>], index: usize) {
        let follows_assistant = index > 0 && messages[index - 1].is_assistant();
        let origin = messages[index].origin;
        let Some((_, opener)) = self.pieces.openers.iter().find(|(other, _)| *other == origin) else {
            return;
        };
        if follows_assistant && matches!(origin, Origin::User | Origin::Tool) {
            script.start_message(index - 1);
            script.scaffold(opener, Origin::Assistant);
            script.start_message(index);
        } else {
            script.frame(opener);
        }
    }

    fn write_assistant(&self, script: &mut Script, message: &MessageView<'_>, is_recent: bool) -> Result<()> {
        let spoken = Origin::Assistant;
        let (reasoning, content) = split_reasoning(message.reasoning, &message.text);
        let (reasoning, content) = (if is_recent { reasoning.trim() } else { "" }, content.trim());
        if !self.enable_thinking && reasoning.is_empty() {
            script.frame(&self.pieces.no_thought);
        } else {
            script.scaffold(&self.pieces.think_open, spoken);
            script.text(reasoning, spoken);
            script.scaffold(&self.pieces.think_close, spoken);
        }
        if !content.is_empty() {
            script.text("\n", spoken);
            script.text(content, spoken);
        }
        for (index, call) in message.calls.iter().enumerate() {
            self.write_call(script, call).map_err(|error| error.at(format!("tool_calls[{index}]")))?;
        }
        Ok(())
    }

    fn write_call(&self, script: &mut Script, call: &CallView<'_>) -> Result<()> {
        let spoken = Origin::Assistant;
        script.scaffold(&self.pieces.call_open, spoken);
        script.text(call.name, spoken);
        script.scaffold(&self.pieces.newline, spoken);
        for (key, value) in call.argument_fields()?.iter() {
            script.scaffold(&self.pieces.key_open, spoken);
            script.text(key, spoken);
            script.scaffold(&self.pieces.key_close, spoken);
            match value {
                Value::String(text) => script.text(text, spoken),
                value => script.text_with(spoken, |out| write_json(out, value))?,
            }
            script.scaffold(&self.pieces.value_close, spoken);
        }
        script.scaffold(&self.pieces.call_close, spoken);
        Ok(())
    }

    /// Writes the messages from `first` on; `is_opened` is true if the marker of the first one is already
    /// written.
    fn write_turns(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        first: usize,
        is_opened: bool,
    ) -> Result<()> {
        let last_user = messages.iter().rposition(|message| message.origin == Origin::User);
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            let shares = message.is_tool() && index > 0 && messages[index - 1].is_tool();
            if !(shares || is_opened && index == first) {
                self.open(script, messages, index);
            }
            match message.origin {
                Origin::Assistant => self
                    .write_assistant(script, message, last_user.is_none_or(|user| index > user))
                    .map_err(|error| error.at(format!("messages[{index}]")))?,
                Origin::Tool => {
                    script.frame(&self.pieces.answer_open);
                    script.text(&message.text, Origin::Tool);
                    script.frame(&self.pieces.answer_close);
                }
                origin => {
                    script.frame(&self.pieces.newline);
                    script.text(&message.text, origin);
                    let is_told = message.text.ends_with("/nothink");
                    if origin == Origin::User && !self.enable_thinking && !is_told {
                        script.frame(&self.pieces.nothink);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the call at `span` by id: `name\n`, then keys and values between their markers.
    fn read_call(&self, call: &mut ParsedToolCall, ids: &[u32], tools: &[Value]) -> Result<()> {
        let [start, end] = call.token_span;
        let is_closed = call.status != ToolCallStatus::UnclosedBlock;
        let body = &ids[start + 1..end - usize::from(is_closed)];
        let parts = if self.argument_tokens { self.parts_by_id(body)? } else { self.parts_by_text(body)? };
        let name = parts.first().map_or("", |(_, text)| text.trim());
        let mut arguments = Arguments::new(tools, name);
        let is_well_formed = parts.len() % 4 == 1
            && parts[1..].chunks(4).all(|four| {
                arguments.insert(four[0].1.trim(), &four[2].1);
                let blank = |part: &(Option<usize>, String)| part.1.trim().is_empty();
                four.iter().map(|part| part.0).eq((0..4).map(Some)) && blank(&four[1]) && blank(&four[3])
            });
        let read = if name.is_empty() {
            ReadCall::broken(ToolCallStatus::MissingName, None)
        } else if is_well_formed {
            arguments.into_call(name)
        } else {
            ReadCall::broken(ToolCallStatus::MalformedStructure, Some(name.to_owned()))
        };
        if is_closed {
            let is_unknown = read.status == ToolCallStatus::Ok && !is_offered(tools, read.name.as_deref());
            call.status = if is_unknown { ToolCallStatus::UnknownTool } else { read.status };
        }
        (call.name, call.arguments) = (read.name, read.arguments);
        Ok(())
    }

    /// Returns the texts of a body, each with the index of the marker before it.
    fn parts_by_id(&self, body: &[u32]) -> Result<Vec<(Option<usize>, String)>> {
        let marker = |id: &u32| self.argument_ids.iter().position(|other| *other == Some(*id));
        let mut parts = Vec::new();
        let (mut start, mut before) = (0, None);
        for (at, id) in body.iter().enumerate() {
            if let Some(index) = marker(id) {
                parts.push((before, self.table.tokenizer.decode(&body[start..at], false)?));
                (start, before) = (at + 1, Some(index));
            }
        }
        parts.push((before, self.table.tokenizer.decode(&body[start..], false)?));
        Ok(parts)
    }

    /// Runs [`Glm45::parts_by_id`] for tokenizers in which the markers are text.
    fn parts_by_text(&self, body: &[u32]) -> Result<Vec<(Option<usize>, String)>> {
        let text = self.table.tokenizer.decode(body, false)?;
        let mut parts = Vec::new();
        let (mut start, mut before) = (0, None);
        // One pass: a search for each marker after every other one would be quadratic if one of them is
        // missing.
        for at in memchr::memchr_iter(b'<', text.as_bytes()) {
            let index = ARGUMENT_MARKERS.iter().position(|name| text[at..].starts_with(name));
            if let Some(index) = index {
                parts.push((before, text[start..at].to_owned()));
                (start, before) = (at + ARGUMENT_MARKERS[index].len(), Some(index));
            }
        }
        parts.push((before, text[start..].to_owned()));
        Ok(parts)
    }
}

impl Family for Glm45 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(&self, script: &mut Script, _: &[MessageView<'_>], tools: &[Value]) -> Result<usize> {
        script.frame(&self.pieces.header);
        if !tools.is_empty() {
            script.frame(&self.pieces.tools_open);
            for tool in tools {
                script.text_with(Origin::Template, |out| {
                    write_json(out, tool)?;
                    out.push('\n');
                    Ok(())
                })?;
            }
            script.frame(&self.pieces.tools_close);
        }
        Ok(0)
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        self.write_turns(script, messages, first, false)
    }

    fn write_extension(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        _: &[u32],
        completion: &[u32],
    ) -> Result<()> {
        let drawn = completion.last().and_then(|&id| self.table.tokenizer.token_of(id));
        let next = match messages.first().map(|message| message.origin) {
            Some(Origin::User) => "<|user|>",
            Some(Origin::Tool) => "<|observation|>",
            _ => "<|system|>",
        };
        self.write_turns(script, messages, 0, drawn.is_some_and(|drawn| *drawn == *next))
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        for (origin, opener) in &self.pieces.openers {
            if *origin == Origin::Assistant {
                script.frame(opener);
            }
        }
        if !self.enable_thinking {
            script.frame(&self.pieces.no_thought);
        }
    }

    fn read(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed> {
        let completion = Completion::new(&self.table, ids, options.prompt_ids.as_deref())?;
        let mut parsed = completion.parse(&options.tools)?;
        for call in &mut parsed.tool_calls {
            self.read_call(call, ids, &options.tools)?;
        }
        let is_argument = |id: u32| self.argument_ids.contains(&Some(id));
        parsed.overran = completion.ids().iter().any(|&id| completion.is_foreign(id) && !is_argument(id));
        Ok(parsed)
    }
}

impl Pieces {
    fn new(lexicon: &Lexicon) -> Self {
        Self {
            header: lexicon.scaffold("[gMASK]<sop>"),
            tools_open: lexicon.scaffold(concat!(
                "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n",
                "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            )),
            tools_close: lexicon.scaffold(concat!(
                "</tools>\n\nFor each function call, output the function name and arguments within the following XML ",
                "format:\n<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n",
                "<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n",
                "<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>"
            )),
            openers: [
                (Origin::System, lexicon.scaffold("<|system|>")),
                (Origin::User, lexicon.scaffold("<|user|>")),
                (Origin::Assistant, lexicon.scaffold("<|assistant|>")),
                (Origin::Tool, lexicon.scaffold("<|observation|>")),
            ],
            newline: lexicon.scaffold("\n"),
            think_open: lexicon.scaffold("\n<think>"),
            think_close: lexicon.scaffold("</think>"),
            no_thought: lexicon.scaffold("\n<think></think>"),
            call_open: lexicon.scaffold("\n<tool_call>"),
            call_close: lexicon.scaffold("</tool_call>"),
            key_open: lexicon.scaffold("<arg_key>"),
            key_close: lexicon.scaffold("</arg_key>\n<arg_value>"),
            value_close: lexicon.scaffold("</arg_value>\n"),
            answer_open: lexicon.scaffold("\n<tool_response>\n"),
            answer_close: lexicon.scaffold("\n</tool_response>"),
            nothink: lexicon.scaffold("/nothink"),
        }
    }
}
