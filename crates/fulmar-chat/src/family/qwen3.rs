//! Qwen3: the frame, the tools and the calls of Qwen2.5, and reasoning between `<think>` tags.
//!
//! An intended difference from the template: with thinking disabled the generation prompt contains an empty
//! `<think>` wrapper. Earlier turns without reasoning write it again, so that the sampled tokens after it
//! stay a prefix; turns with reasoning follow the template.
//!
//! Lossy in `parse(render(x))`: blanks around content and reasoning; an empty reasoning, which becomes none.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use super::qwen2_5::{self, Pieces};
use super::{Family, Table};
use crate::completion::{ReasoningFormat, ReasoningState, Tag};
use crate::message_view::MessageView;
use crate::script::{Scaffold, Script};
use crate::{Origin, PrefixStability, Result, ThinkingRetention};

/// The options of Qwen3.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Qwen3Options {
    /// If true, the model thinks before it answers; if not, the generation prompt contains an empty wrapper.
    pub enable_thinking: bool,
    /// The messages that a bridge may cross. Defaults to all without thinking, else to those of a tool cycle.
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

impl Qwen3 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>, options: &Qwen3Options) -> Result<Self> {
        let lexicon = qwen2_5::lexicon(&*tokenizer, &["<think>", "</think>"])?;
        let derived =
            if options.enable_thinking { ThinkingRetention::ToolCycle } else { ThinkingRetention::All };
        let mut table = qwen2_5::table(tokenizer, &lexicon);
        table.retention = options.thinking_retention.unwrap_or(derived);
        table.stability = match options.enable_thinking {
            // The last turn's empty wrapper is removed when a tool's answer follows.
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
        let (reasoning, content) = split_reasoning(message.reasoning, &message.text);
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
                Origin::Tool => self.pieces.write_answer(script, messages, index, &message.text),
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

    fn is_query(&self, message: &MessageView<'_>) -> bool {
        is_query(message.role, &message.text)
    }
}

/// Returns whether a user asks something: a message that only wraps a tool's answer does not.
pub(super) fn is_query(role: &str, text: &str) -> bool {
    role == "user" && !(text.starts_with("<tool_response>") && text.ends_with("</tool_response>"))
}

/// Returns the reasoning of a message and its content. Without a separate reasoning, it is searched for in
/// the content.
pub(crate) fn split_reasoning<'a>(reasoning: Option<&'a str>, content: &'a str) -> (&'a str, &'a str) {
    if let Some(reasoning) = reasoning {
        return (reasoning, content);
    }
    let Some(at) = memmem::find(content.as_bytes(), b"</think>") else { return ("", content) };
    let before = &content[..at];
    let before = before.trim_end_matches('\n');
    let reasoning = before.rsplit_once("<think>").map_or(before, |(_, reasoning)| reasoning);
    let rest = content.rsplit_once("</think>").map_or(content, |(_, rest)| rest);
    (reasoning.trim_start_matches('\n'), rest.trim_start_matches('\n'))
}
