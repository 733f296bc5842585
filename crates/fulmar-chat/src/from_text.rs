//! Parses rendered text back to messages, family by family.
//!
//! Each format has its own rules. All share these:
//! - roles and contents are trimmed;
//! - a message that the text does not close is incomplete: `is_complete` is false, and a bare opening at the
//!   end is an empty message;
//! - text outside of messages is skipped, but a text without any message is refused.

mod blocks;
mod tools;
mod turns;

use fulmar_core::{Error, ErrorKind};
use serde_json::{Map, Value};

use crate::{History, Message, Result};

/// The text format of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TextFormat {
    /// `<|im_start|>` role, newline, content, `<|im_end|>`; tool calls and answers between XML tags. Also for
    /// Qwen 2.5, Qwen 3 and SmolLM2.
    Chatml,
    /// Turns closed by the end-of-sequence token only, the user's first. Without such a token: lines that
    /// begin with `User:` or `Assistant:`.
    DialoGpt,
    /// `User: ` followed by an empty line, `Assistant: ` followed by a newline.
    Falcon,
    /// `User: ` followed by an empty line, `Assistant: ` followed by the end-of-sequence token.
    DeepSeek,
    /// Llama 4: `<|header_start|>` role `<|header_end|>`, an empty line, content, `<|eot|>`.
    Llama4,
    /// Llama 3: `<|start_header_id|>` role `<|end_header_id|>`, an empty line, content, `<|eot_id|>`.
    Llama3,
}

/// Template names and their formats.
const NAMES: [(&str, TextFormat); 14] = [
    ("chatml_format", TextFormat::Chatml),
    ("chatml", TextFormat::Chatml),
    ("qwen", TextFormat::Chatml),
    ("qwen2_5", TextFormat::Chatml),
    ("qwen2.5", TextFormat::Chatml),
    ("qwen3", TextFormat::Chatml),
    ("smollm2", TextFormat::Chatml),
    ("dialogpt", TextFormat::DialoGpt),
    ("falcon", TextFormat::Falcon),
    ("deepseek", TextFormat::DeepSeek),
    ("llama", TextFormat::Llama4),
    ("llama4", TextFormat::Llama4),
    ("llama3", TextFormat::Llama3),
    ("llama_3", TextFormat::Llama3),
];

impl TextFormat {
    /// Returns the format of the template `name`.
    ///
    /// # Errors
    /// `UnknownName` for a template without a known format.
    pub fn of_template(name: &str) -> Result<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format).ok_or_else(|| {
            let known = NAMES.map(|(known, _)| known).join(", ");
            let detail = format!("template must be one whose text can be parsed ({known}): got {name:?}");
            Error::new(ErrorKind::UnknownName, detail)
        })
    }

    /// Returns the format of the named template, or else the one whose markers `text` contains.
    ///
    /// # Errors
    /// The errors of [`TextFormat::of_template`].
    pub fn choose(template: Option<&str>, text: &str) -> Result<Self> {
        template.map_or_else(|| Ok(Self::detect(text)), Self::of_template)
    }

    /// Returns the format whose markers `text` contains; ChatML if it contains no markers.
    #[must_use]
    pub fn detect(text: &str) -> Self {
        match () {
            () if text.contains("<|im_start|>") => Self::Chatml,
            () if text.contains("<|start_header_id|>") => Self::Llama3,
            () if text.contains("<|header_start|>") => Self::Llama4,
            () => Self::Chatml,
        }
    }
}

/// Parses the messages in `text`. `eos_token` ends turns in formats without their own marker; without it, a
/// token between angle brackets at a possible end of a turn is used.
///
/// # Errors
/// `Malformed` if `text` contains no message; `LimitExceeded` past a limit of [`History`] or [`Message`].
///
/// # Examples
/// ```
/// use fulmar_chat::{TextFormat, from_text};
/// let history = from_text("User: 1+1?\n\nAssistant: 2\n", TextFormat::Falcon, None)?;
/// assert_eq!(history.column("role"), serde_json::json!(["user", "assistant"]));
/// assert_eq!(history.column("content"), serde_json::json!(["1+1?", "2"]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn from_text(text: &str, format: TextFormat, eos_token: Option<&str>) -> Result<History> {
    let eos_token = eos_token.filter(|token| !token.is_empty());
    let turns = match format {
        TextFormat::Chatml => tools::taken_out(blocks::read(text, &blocks::CHATML)),
        TextFormat::Llama4 => blocks::read(text, &blocks::LLAMA4),
        TextFormat::Llama3 => blocks::read(text, &blocks::LLAMA3),
        TextFormat::DialoGpt => turns::dialogpt(text, eos_token),
        TextFormat::Falcon => turns::falcon(text),
        TextFormat::DeepSeek => turns::deepseek(text, eos_token),
    };
    if turns.is_empty() {
        let start: String = text.chars().take(40).collect();
        let detail = format!("text must hold a message of the format {format:?}: got {start:?}");
        return Err(Error::new(ErrorKind::Malformed, detail));
    }
    History::from_chats(turns.into_iter().map(ParsedTurn::into_value).collect())
}

/// One message in a text.
struct ParsedTurn {
    role: String,
    content: String,
    is_complete: bool,
    tool_calls: Vec<Value>,
}

impl ParsedTurn {
    /// Returns a turn with trimmed `role` and `content`.
    fn new(role: &str, content: &str, is_complete: bool) -> Self {
        let [role, content] = [role, content].map(|text| text.trim().to_owned());
        Self { role, content, is_complete, tool_calls: Vec::new() }
    }

    fn into_value(self) -> Value {
        let mut fields = Map::new();
        fields.insert("role".to_owned(), self.role.into());
        fields.insert("content".to_owned(), self.content.into());
        if !self.is_complete {
            fields.insert("is_complete".to_owned(), false.into());
        }
        if !self.tool_calls.is_empty() {
            fields.insert("tool_calls".to_owned(), self.tool_calls.into());
        }
        Value::Object(fields)
    }
}

impl Message {
    /// Returns whether the message is padding, with the role [`crate::PADDING_ROLE`].
    #[must_use]
    pub fn is_padding(&self) -> bool {
        self.role() == crate::PADDING_ROLE
    }
}
