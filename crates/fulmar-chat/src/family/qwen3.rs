//! Qwen3 and Qwen2.5: ChatML with tools, calls as JSON between `<tool_call>` tags, and, in Qwen3, reasoning.
//!
//! A template deviation, on purpose: with thinking disabled the generation prompt holds an empty `<think>` wrapper.
//! Earlier turns without reasoning write it again, so that what was sampled behind it stays a prefix; turns that carry
//! reasoning stay as the template has them.
//!
//! Lossy in `parse(render(x))`: blanks around content and reasoning; an empty reasoning is none.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

use super::chatml::{self, Frame};
use super::{Family, Table};
use crate::completion::{CallBody, CallFormat, ReasoningFormat, ReasoningState, Tag};
use crate::message_view::MessageView;
use crate::python_json::write_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::{Origin, PrefixStability, Result, ThinkingRetention};

const CALL_MARKERS: [&str; 4] = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"];
const OPTIONAL_MARKERS: [&str; 3] = ["<|endoftext|>", "<tool_response>", "</tool_response>"];

/// The knobs of Qwen3.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Qwen3Options {
    /// Whether the model thinks before it answers; if not, the generation prompt holds an empty wrapper.
    pub enable_thinking: bool,
    /// Which messages a bridge may cross. Default: all without thinking, else those of a tool cycle.
    pub thinking_retention: Option<ThinkingRetention>,
}

impl Default for Qwen3Options {
    fn default() -> Self {
        Self { enable_thinking: true, thinking_retention: None }
    }
}

/// The renderer of Qwen3.
pub(crate) struct Qwen3 {
    table: Table,
    pieces: Pieces,
    wrapper: Wrapper,
    enable_thinking: bool,
}

/// The texts around reasoning.
struct Wrapper {
    open: Scaffold,
    close: Scaffold,
    empty: Scaffold,
}

/// What Qwen2.5 and Qwen3 write alike.
pub(super) struct Pieces {
    pub frame: Frame,
    tools_open: Scaffold,
    tools_close: Scaffold,
    call_open: Scaffold,
    call_close: Scaffold,
    response_open: Scaffold,
    response_close: Scaffold,
    open_user: Scaffold,
}

impl Qwen3 {
    /// The renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &Qwen3Options) -> Result<Self> {
        let required = [&CALL_MARKERS[..], &["<think>", "</think>"]].concat();
        let lexicon = Lexicon::new(&*tokenizer, &required, &OPTIONAL_MARKERS)?;
        let derived =
            if options.enable_thinking { ThinkingRetention::ToolCycle } else { ThinkingRetention::All };
        let mut table = chatml::table(tokenizer, &lexicon);
        table.retention = options.thinking_retention.unwrap_or(derived);
        table.stability = match options.enable_thinking {
            // The last turn's empty wrapper goes when an answer of a tool follows.
            true => PrefixStability::Never,
            false => PrefixStability::WithinToolCycle,
        };
        table.reasoning = Some(ReasoningFormat {
            open: Tag::new(&lexicon, "<think>"),
            close: Tag::new(&lexicon, "</think>"),
            initial: if options.enable_thinking { ReasoningState::Absent } else { ReasoningState::Closed },
            call_ends_reasoning: true,
            keeps_empty: false,
            synthetic_close: lexicon.scaffold("\n</think>\n\n"),
        });
        table.calls = Some(call_format(&lexicon));
        table.trims_content = true;
        let wrapper = Wrapper {
            open: lexicon.scaffold("<think>\n"),
            close: lexicon.scaffold("\n</think>\n\n"),
            empty: lexicon.scaffold("<think>\n\n</think>\n\n"),
        };
        Ok(Self { table, pieces: Pieces::new(&lexicon), wrapper, enable_thinking: options.enable_thinking })
    }

    fn write_assistant(
        &self,
        script: &mut Script,
        message: &MessageView<'_>,
        is_recent: bool,
        is_last: bool,
    ) -> Result<()> {
        let (reasoning, content) = split_reasoning(message);
        let without_newlines = content.trim_start_matches('\n');
        self.pieces.frame.open(script, message.role);
        if !self.enable_thinking && reasoning.is_empty() {
            script.frame(&self.wrapper.empty);
            script.text(without_newlines, Origin::Assistant);
        } else if is_recent && (is_last || !reasoning.is_empty()) {
            script.scaffold(&self.wrapper.open, Origin::Assistant);
            script.text(reasoning.trim_matches('\n'), Origin::Assistant);
            script.scaffold(&self.wrapper.close, Origin::Assistant);
            script.text(without_newlines, Origin::Assistant);
        } else {
            script.text(content, Origin::Assistant);
        }
        self.pieces.write_calls(script, message, !content.is_empty())?;
        self.pieces.frame.close(script, Origin::Assistant);
        Ok(())
    }
}

impl Family for Qwen3 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        let system = messages.first().filter(|message| message.role == "system");
        if !tools.is_empty() {
            self.pieces.frame.open(script, "system");
            if let Some(message) = system {
                script.start_message(0);
                script.text(&message.text, Origin::System);
                script.text("\n\n", Origin::Template);
                script.leave_messages();
            }
            self.pieces.write_tools(script, tools)?;
        } else if let Some(message) = system {
            script.start_message(0);
            self.pieces.frame.message(script, message.role, &message.text, Origin::System);
        }
        Ok(usize::from(system.is_some()))
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        let last = messages.len() - 1;
        let last_query = messages.iter().rposition(|message| self.is_query(message)).unwrap_or(last);
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            match message.origin {
                Origin::Assistant => {
                    self.write_assistant(script, message, index > last_query, index == last)?;
                }
                Origin::Tool => self.pieces.write_answer(script, messages, index),
                origin => self.pieces.frame.message(script, message.role, &message.text, origin),
            }
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        self.pieces.frame.open(script, "assistant");
        if !self.enable_thinking {
            script.frame(&self.wrapper.empty);
        }
    }

    /// A user's message that only wraps the answer of a tool is no query.
    fn is_query(&self, message: &MessageView<'_>) -> bool {
        message.role == "user"
            && !(message.text.starts_with("<tool_response>") && message.text.ends_with("</tool_response>"))
    }
}

/// The reasoning of a message and its content. Reasoning that was not given apart is looked for in the content.
fn split_reasoning<'a>(message: &'a MessageView<'_>) -> (&'a str, &'a str) {
    let content = &*message.text;
    if let Some(reasoning) = message.reasoning {
        return (reasoning, content);
    }
    let Some((before, _)) = content.split_once("</think>") else { return ("", content) };
    let before = before.trim_end_matches('\n');
    let reasoning = before.rsplit_once("<think>").map_or(before, |(_, reasoning)| reasoning);
    let rest = content.rsplit_once("</think>").map_or(content, |(_, rest)| rest);
    (reasoning.trim_start_matches('\n'), rest.trim_start_matches('\n'))
}

/// Calls as JSON objects between tags.
pub(super) fn call_format(lexicon: &Lexicon) -> CallFormat {
    CallFormat {
        section: None,
        open: Tag::new(lexicon, "<tool_call>"),
        close: Tag::new(lexicon, "</tool_call>"),
        read: |body: &CallBody<'_>| body.read_json("arguments"),
    }
}

impl Pieces {
    pub(super) fn new(lexicon: &Lexicon) -> Self {
        Self {
            frame: Frame::new(lexicon),
            tools_open: lexicon.scaffold(concat!(
                "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n",
                "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
            )),
            tools_close: lexicon.scaffold(concat!(
                "\n</tools>\n\nFor each function call, return a json object with function name and arguments within ",
                "<tool_call></tool_call> XML tags:\n<tool_call>\n",
                "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n"
            )),
            call_open: lexicon.scaffold("<tool_call>\n{\"name\": \""),
            call_close: lexicon.scaffold("}\n</tool_call>"),
            response_open: lexicon.scaffold("\n<tool_response>\n"),
            response_close: lexicon.scaffold("\n</tool_response>"),
            open_user: lexicon.scaffold("<|im_start|>user"),
        }
    }

    /// What the model is told of its tools, up to the end of the system's turn.
    pub(super) fn write_tools(&self, script: &mut Script, tools: &[Value]) -> Result<()> {
        script.frame(&self.tools_open);
        for tool in tools {
            script.text_with(Origin::Template, |out| {
                out.push('\n');
                write_json(out, tool)
            })?;
        }
        script.frame(&self.tools_close);
        Ok(())
    }

    /// The calls of an assistant, each on a new line; the first only after content.
    pub(super) fn write_calls(
        &self,
        script: &mut Script,
        message: &MessageView<'_>,
        after_content: bool,
    ) -> Result<()> {
        for (index, call) in message.calls.iter().enumerate() {
            if index > 0 || after_content {
                script.text("\n", Origin::Assistant);
            }
            script.scaffold(&self.call_open, Origin::Assistant);
            script.text_with(Origin::Assistant, |out| {
                out.push_str(call.name);
                out.push_str("\", \"arguments\": ");
                call.write_arguments(out)
            })?;
            script.scaffold(&self.call_close, Origin::Assistant);
        }
        Ok(())
    }

    /// A tool's answer; consecutive ones share one user's turn.
    pub(super) fn write_answer(&self, script: &mut Script, messages: &[MessageView<'_>], index: usize) {
        let is_tool = |index: usize| messages.get(index).is_some_and(MessageView::is_tool);
        if index == 0 || !is_tool(index - 1) {
            script.frame(&self.open_user);
        }
        script.frame(&self.response_open);
        script.text(&messages[index].text, Origin::Tool);
        script.frame(&self.response_close);
        if !is_tool(index + 1) {
            self.frame.close(script, Origin::Tool);
        }
    }
}
