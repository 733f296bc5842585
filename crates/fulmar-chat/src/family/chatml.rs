//! ChatML, the frame of Qwen2 and many others: `<|im_start|>role\ncontent<|im_end|>\n`.
//!
//! The newline after `<|im_end|>` is frame, not sampled: an engine stops at `<|im_end|>`, and the next
//! message adds the newline. The generation prompt is `<|im_start|>assistant
//! `. No default system message is added. Content is not trimmed, so `parse(render(x)) == x`.

use std::sync::Arc;

use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use super::{Family, Table};
use crate::message_view::MessageView;
use crate::script::{Lexicon, Scaffold, Script};
use crate::{Origin, PrefixStability, Result, ThinkingRetention};

/// The roles of ChatML and its descendants.
pub(super) const ROLES: [(&str, Origin); 4] = [
    ("system", Origin::System),
    ("user", Origin::User),
    ("assistant", Origin::Assistant),
    ("tool", Origin::Tool),
];

/// The ChatML renderer over any tokenizer that has `<|im_start|>` and `<|im_end|>` as special tokens.
///
/// Roles are `system`, `user`, `assistant` and `tool`; a tool's answer is framed like any other message.
/// Messages with `tool_calls` are refused, as plain ChatML has no format for them. See [`crate::Renderer`]
/// for an example.
pub struct ChatMlRenderer {
    table: Table,
    frame: Frame,
}

/// The pieces around a message.
pub(super) struct Frame {
    open: Scaffold,
    close: Scaffold,
    newline: Scaffold,
}

impl ChatMlRenderer {
    /// Returns a renderer with `tokenizer`. Stop ids are `<|im_end|>` and, if the tokenizer has it,
    /// `<|endoftext|>`.
    ///
    /// # Errors
    /// `Incompatible` if `<|im_start|>` or `<|im_end|>` is not a special token of `tokenizer`; `UnknownText` if it
    /// cannot express a newline or the word `assistant`.
    pub fn new(tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let lexicon = Lexicon::new(&*tokenizer, &["<|im_start|>", "<|im_end|>"], &["<|endoftext|>"])?;
        tokenizer.encode("assistant\n")?;
        Ok(Self { table: table(tokenizer, &lexicon), frame: Frame::new(&lexicon) })
    }
}

/// Returns the table of a family with this frame, without reasoning and calls.
pub(super) fn table(tokenizer: Arc<dyn Tokenizer>, lexicon: &Lexicon) -> Table {
    Table {
        tokenizer,
        roles: &ROLES,
        stop_ids: lexicon.ids(&["<|im_end|>", "<|endoftext|>"]),
        close: lexicon.scaffold("<|im_end|>"),
        separator: lexicon.scaffold("\n"),
        retention: ThinkingRetention::All,
        stability: PrefixStability::Always,
        reasoning: None,
        calls: None,
        has_tools: false,
        fixes_system: false,
        trims_content: false,
    }
}

impl Frame {
    pub(super) fn new(lexicon: &Lexicon) -> Self {
        Self {
            open: lexicon.scaffold("<|im_start|>"),
            close: lexicon.scaffold("<|im_end|>"),
            newline: lexicon.scaffold("\n"),
        }
    }

    /// Writes `<|im_start|>role
    /// `.
    pub(super) fn open(&self, script: &mut Script, role: &str) {
        script.frame(&self.open);
        script.text(role, Origin::Template);
        script.frame(&self.newline);
    }

    /// Writes `<|im_end|>
    /// `; the marker of an assistant is sampled.
    pub(super) fn close(&self, script: &mut Script, origin: Origin) {
        let is_assistant = origin == Origin::Assistant;
        script.scaffold(&self.close, if is_assistant { origin } else { Origin::Template });
        script.frame(&self.newline);
    }

    /// Writes a whole message of text.
    pub(super) fn message(&self, script: &mut Script, role: &str, text: &str, origin: Origin) {
        self.open(script, role);
        script.text(text, origin);
        self.close(script, origin);
    }
}

impl Family for ChatMlRenderer {
    fn table(&self) -> &Table {
        &self.table
    }

    fn write_header(&self, _: &mut Script, _: &[MessageView<'_>], _: &[Value]) -> Result<usize> {
        Ok(0)
    }

    fn write_messages(&self, script: &mut Script, messages: &[MessageView<'_>], first: usize) -> Result<()> {
        for (index, message) in messages.iter().enumerate().skip(first) {
            script.start_message(index);
            self.frame.message(script, message.role, &message.text, message.origin);
        }
        Ok(())
    }

    fn write_generation_prompt(&self, script: &mut Script, _: &[MessageView<'_>]) {
        self.frame.open(script, "assistant");
    }
}
