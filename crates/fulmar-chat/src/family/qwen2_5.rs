//! Qwen2.5: ChatML with tools in the system turn, and calls as JSON between `<tool_call>` tags.
//!
//! Text arguments are written as they are, so that a parsed call is written as it was sampled; the family's
//! template would quote such text. Lossy in `parse(render(x))`: blanks around content.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use super::chatml::{self, Frame};
use super::{Family, Table};
use crate::completion::{CallBody, CallFormat, Tag};
use crate::message_view::MessageView;
use crate::python_json::write_json;
use crate::script::{Lexicon, Scaffold, Script};
use crate::{Origin, Result};

/// The template's system message for a conversation without one.
const DEFAULT_SYSTEM: &str = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

/// The renderer of Qwen2.5.
pub(crate) struct Qwen25 {
    table: Table,
    pieces: Pieces,
}

impl Qwen25 {
    /// Returns the renderer with `tokenizer`.
    ///
    /// # Errors
    /// `Incompatible` if the tokenizer lacks a special token of the family.
    pub(crate) fn new(tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let lexicon = lexicon(&*tokenizer, &[])?;
        Ok(Self { table: table(tokenizer, &lexicon), pieces: Pieces::new(&lexicon) })
    }
}

impl Family for Qwen25 {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        tools: &[Value],
    ) -> Result<usize> {
        let frame = &self.pieces.frame;
        let system = messages.first().filter(|message| message.role == "system");
        if system.is_some() && tools.is_empty() {
            script.start_message(0);
        }
        frame.open(script, "system");
        if let Some(message) = system {
            script.start_message(0);
            script.text(&message.text, Origin::System);
        } else {
            script.text(DEFAULT_SYSTEM, Origin::Template);
        }
        if tools.is_empty() {
            frame.close(script, Origin::System);
        } else {
            script.text("\n\n", Origin::Template);
            script.leave_messages();
            self.pieces.write_tools(script, tools)?;
        }
        script.leave_messages();
        Ok(usize::from(system.is_some()))
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            match message.origin {
                Origin::Assistant => {
                    self.pieces.frame.open(script, message.role);
                    script.text(&message.text, Origin::Assistant);
                    self.pieces.write_calls(script, message, !message.text.is_empty())?;
                    self.pieces.frame.close(script, Origin::Assistant);
                }
                Origin::Tool => self.pieces.write_answer(script, messages, index, &message.text),
                origin => self.pieces.frame.message(script, message.role, &message.text, origin),
            }
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        self.pieces.frame.open(script, "assistant");
    }
}

/// Returns the special tokens of Qwen2.5 and its descendants, plus `more`.
pub(super) fn lexicon(tokenizer: &dyn Tokenizer, more: &[&'static str]) -> Result<Lexicon> {
    let required = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"];
    let optional = ["<|endoftext|>", "<tool_response>", "</tool_response>"];
    Lexicon::new(tokenizer, &[&required[..], more].concat(), &optional)
}

/// Returns the table of a family with Qwen2.5's tool calls.
pub(super) fn table(tokenizer: Arc<dyn Tokenizer>, lexicon: &Lexicon) -> Table {
    let calls = CallFormat {
        section: None,
        open: Tag::new(lexicon, "<tool_call>"),
        close: Tag::new(lexicon, "</tool_call>"),
        read: |body: &CallBody<'_>| body.read_json("arguments"),
    };
    Table { calls: Some(calls), has_tools: true, trims_content: true, ..chatml::table(tokenizer, lexicon) }
}

/// Texts that Qwen2.5 and its descendants share.
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

    /// Writes the description of tools, up to the end of the system turn.
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

    /// Writes the calls of an assistant, each on a new line; the first only after content.
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

    /// Writes a tool's answer `text`; consecutive answers share one user turn.
    pub(super) fn write_answer(
        &self,
        script: &mut Script,
        messages: &[MessageView<'_>],
        index: usize,
        text: &str,
    ) {
        let is_tool = |index: usize| messages.get(index).is_some_and(MessageView::is_tool);
        if index == 0 || !is_tool(index - 1) {
            script.frame(&self.open_user);
        }
        script.frame(&self.response_open);
        script.text(text, Origin::Tool);
        script.frame(&self.response_close);
        if !is_tool(index + 1) {
            self.frame.close(script, Origin::Tool);
        }
    }
}
