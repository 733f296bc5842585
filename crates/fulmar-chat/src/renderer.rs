//! The contract between conversations and token ids.

use fulmar_core::{Error, ErrorKind, num_utf16_units};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Message, Rendered, Result, Tools};

/// The origin of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The frame around messages: role tags, separators, the generation prompt.
    Template,
    /// The text of a system message.
    System,
    /// The text of a user message.
    User,
    /// An assistant's turn as text in the context: an example, or a history that was rendered again.
    Assistant,
    /// The text of a tool's answer.
    Tool,
    /// Context without a finer origin.
    Env,
    /// Sampled by the policy.
    Sampled,
    /// A closing token that a bridge added because the policy had sampled none.
    Synthetic,
}

impl Origin {
    /// Every origin; the index is its code across language boundaries.
    pub const ALL: [Self; 8] = [
        Self::Template,
        Self::System,
        Self::User,
        Self::Assistant,
        Self::Tool,
        Self::Env,
        Self::Sampled,
        Self::Synthetic,
    ];

    /// Returns the index in [`Origin::ALL`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the origins of these codes.
    ///
    /// # Errors
    /// `OutOfRange` for an unknown code.
    pub fn from_codes(codes: &[u8]) -> Result<Vec<Self>> {
        let read = |(t, &code): (usize, &u8)| {
            let detail = || format!("origins[{t}] must be the code of an origin, 0 to 7: got {code}");
            Self::ALL
                .get(usize::from(code))
                .copied()
                .ok_or_else(|| Error::new(ErrorKind::OutOfRange, detail()))
        };
        codes.iter().enumerate().map(read).collect()
    }
}

/// Options of [`Renderer::render`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RenderOptions {
    /// If true, the opening of an assistant's turn follows the messages.
    pub add_generation_prompt: bool,
    /// The available tools.
    pub tools: Tools,
}

/// Options of [`Renderer::parse`].
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ParseOptions {
    /// The prompt of the completion: its end determines whether reasoning was already open or closed.
    /// Defaults to the renderer's own generation prompt.
    pub prompt_ids: Option<Vec<u32>>,
    /// The available tools. Their schemas determine the types of arguments, and a call of another tool is
    /// `unknown_tool`. Empty: any name is accepted.
    pub tools: Tools,
}

/// The reason why a renderer cannot extend the last turn's tokens. The caller then renders the whole
/// conversation again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BridgeRefusal {
    /// There is no prompt to extend.
    EmptyPrompt,
    /// There is no message to extend it with.
    EmptyExtension,
    /// The new messages contain an assistant message: sampled tokens come as tokens, never as text.
    AssistantInExtension,
    /// A role that the family does not have.
    UnknownRole,
    /// A user's query would remove reasoning from earlier turns, so they must be rendered again.
    UserQueryUnderToolCycle,
    /// The turn stopped while its reasoning was open: closing it would insert tokens before a sampled one.
    OpenReasoningAfterStop,
    /// The template is opaque, and it changed earlier text.
    OpaqueTemplate,
    /// The next prompt would be longer than the renderer allows.
    OverLength,
}

impl PrefixStability {
    /// Returns the stable name: `always`, `within_tool_cycle`, `never` or `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::WithinToolCycle => "within_tool_cycle",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }
}

impl BridgeRefusal {
    /// Every refusal; the index is its code across language boundaries.
    pub const ALL: [Self; 8] = [
        Self::EmptyPrompt,
        Self::EmptyExtension,
        Self::AssistantInExtension,
        Self::UnknownRole,
        Self::UserQueryUnderToolCycle,
        Self::OpenReasoningAfterStop,
        Self::OpaqueTemplate,
        Self::OverLength,
    ];

    /// Returns the index in [`BridgeRefusal::ALL`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the stable name: `empty_prompt`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EmptyPrompt => "empty_prompt",
            Self::EmptyExtension => "empty_extension",
            Self::AssistantInExtension => "assistant_in_extension",
            Self::UnknownRole => "unknown_role",
            Self::UserQueryUnderToolCycle => "user_query_under_tool_cycle",
            Self::OpenReasoningAfterStop => "open_reasoning_after_stop",
            Self::OpaqueTemplate => "opaque_template",
            Self::OverLength => "over_length",
        }
    }
}

/// The result of [`Renderer::bridge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bridge {
    /// The tokens to append.
    Extended(Extension),
    /// The reason why the turn cannot be extended.
    Declined(BridgeRefusal),
}

/// The tokens that a bridge appends to a prompt and its completion. Their number depends on the new messages,
/// not on the length of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Number of tokens of the completion to keep: up to its last stop token, or all.
    pub num_kept: usize,
    /// The tokens to append; message indices count from the first new message, and no token is marked as
    /// sampled.
    pub rendered: Rendered,
}

impl Extension {
    /// Returns the next prompt: `prev_prompt ++ prev_completion[..num_kept] ++ rendered.ids`, with the
    /// arguments of the bridge.
    ///
    /// # Panics
    /// If `prev_completion` is shorter than `num_kept`.
    #[must_use]
    pub fn next_prompt(&self, prev_prompt: &[u32], prev_completion: &[u32]) -> Vec<u32> {
        [prev_prompt, &prev_completion[..self.num_kept], &self.rendered.ids].concat()
    }
}

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCallStatus {
    /// The call is usable.
    Ok,
    /// Its arguments are not JSON.
    InvalidJson,
    /// Its block was opened but not closed.
    UnclosedBlock,
    /// It has no tool name.
    MissingName,
    /// It does not have the structure of the family's calls.
    MalformedStructure,
    /// It names an unavailable tool.
    UnknownTool,
}

/// One tool call in a completion. Broken calls are data, never errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParsedToolCall {
    /// The sampled text of the call.
    pub raw: String,
    /// Its status.
    pub status: ToolCallStatus,
    /// The tool's name, if it has one.
    pub name: Option<String>,
    /// The arguments as JSON text, if there are any.
    pub arguments: Option<String>,
    /// The call's id, if the family has ids.
    pub id: Option<String>,
    /// Its range in the completion: `[start, end)` of its ids.
    pub token_span: [usize; 2],
}

/// A parsed completion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parsed {
    /// The text before the first stop token outside of reasoning and calls, trimmed; plain ChatML does not trim.
    pub content: String,
    /// The reasoning; `None` if the family has none or the completion holds none.
    pub reasoning_content: Option<String>,
    /// `true` if any opened reasoning was also closed.
    pub reasoning_complete: bool,
    /// The tool calls, in order.
    pub tool_calls: Vec<ParsedToolCall>,
    /// `true` if a stop token was sampled.
    pub finished: bool,
    /// `true` if the content contains special tokens; they are written by name.
    pub overran: bool,
}

impl Parsed {
    /// Returns the form that JavaScript reads: one character of flags, the content, the reasoning, and the calls as JSON. The flags
    /// are the bits of the character after `0`: 1 if a stop was sampled, 2 if the content contains special tokens, 4 if the
    /// reasoning was not closed, 8 if there is reasoning, 16 if there are calls. With one of the last two, the lengths of content
    /// and reasoning in units of UTF-16 follow the flags, each with a comma after it.
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::Parsed;
    /// let parsed = Parsed { content: "4".to_owned(), reasoning_complete: true, finished: true, ..Parsed::default() };
    /// assert_eq!(parsed.to_text(), "14");
    /// let thought = Parsed { reasoning_content: Some("2+2".to_owned()), ..parsed };
    /// assert_eq!(thought.to_text(), "91,3,42+2");
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.append_text(&mut text);
        text
    }

    /// Appends [`Parsed::to_text`] to `text`, and returns its length in units of UTF-16.
    pub(crate) fn append_text(&self, text: &mut String) -> u32 {
        let start = text.len();
        let (has_reasoning, has_calls) = (self.reasoning_content.is_some(), !self.tool_calls.is_empty());
        let flags = [self.finished, self.overran, !self.reasoning_complete, has_reasoning, has_calls];
        let bits = flags.into_iter().rev().fold(0, |bits, flag| 2 * bits + u8::from(flag));
        text.push(char::from(b'0' + bits));
        let reasoning = self.reasoning_content.as_deref().unwrap_or_default();
        if has_reasoning || has_calls {
            let lengths = [&*self.content, reasoning].map(num_utf16_units);
            text.push_str(&format!("{},{},", lengths[0], lengths[1]));
        }
        text.push_str(&self.content);
        text.push_str(reasoning);
        if has_calls {
            // Keys are text, so this cannot fail.
            text.push_str(&serde_json::to_string(&self.tool_calls).unwrap_or_default());
        }
        num_utf16_units(&text[start..]) as u32
    }
}

/// The messages that can be appended after an assistant's turn without changing the earlier tokens when the
/// conversation is rendered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrefixStability {
    /// All messages.
    Always,
    /// Tool answers; a new user message may change earlier tokens.
    WithinToolCycle,
    /// None, not even tool answers.
    Never,
    /// Unknown, as the template is opaque.
    Unknown,
}

/// The new messages that a [`Renderer::bridge`] may cross while keeping the reasoning before them. It never
/// changes the output of [`Renderer::render`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingRetention {
    /// The messages for which the family's template keeps reasoning: tool answers.
    Template,
    /// Tool answers; after a user's query the caller must render the whole conversation again.
    ToolCycle,
    /// All messages: reasoning stays as it was sampled.
    All,
}

impl ThinkingRetention {
    /// Returns the stable name: `template`, `tool_cycle` or `all`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::ToolCycle => "tool_cycle",
            Self::All => "all",
        }
    }
}

/// The constants of a renderer in one struct, which other languages read once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RendererFacts {
    /// The name of its configuration, such as `qwen3` or `opaque`; empty for a renderer made without one.
    pub name: String,
    /// The reason why [`crate::create_renderer`] chose it, as a sentence; empty for a renderer made without
    /// it.
    pub reason: String,
    /// [`Renderer::stop_ids`].
    pub stop_ids: Vec<u32>,
    /// [`Renderer::prefix_stability`], by name.
    pub prefix_stability: &'static str,
    /// [`Renderer::thinking_retention`], by name.
    pub thinking_retention: &'static str,
}

/// Converts conversations to token ids and back, for one family of models.
///
/// Implementations must pass [`crate::check_renderer`].
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fulmar_chat::{Bridge, ChatMlRenderer, Message, RenderOptions, Renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = ChatMlRenderer::new(tokenizer.clone())?;
/// let options = RenderOptions { add_generation_prompt: true, ..Default::default() };
/// let prompt = renderer.render(&[Message::new("user", "1+1?")?], &options)?;
/// let completion = [tokenizer.encode("2")?.ids, renderer.stop_ids()[..1].to_vec()].concat();
/// let Bridge::Extended(extension) = renderer.bridge(&prompt.ids, &completion, &[Message::new("user", "2+2?")?], &[])? else {
///     unreachable!("nothing to refuse here")
/// };
/// let next = extension.next_prompt(&prompt.ids, &completion);
/// assert!(next.starts_with(&[prompt.ids, completion].concat()), "sampled tokens stay as they are");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait Renderer: Send + Sync {
    /// Returns the ids of a conversation.
    ///
    /// # Errors
    /// `Empty` if there is no message; `UnknownName` for an unknown role or part; `Incompatible` for tool
    /// calls if the family's tools are not supported; `UnknownText` from the tokenizer.
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered>;

    /// Returns the text of the ids of [`Renderer::render`], special tokens by name.
    ///
    /// # Errors
    /// The errors of [`Renderer::render`], except for those of the tokenizer.
    fn render_text(&self, messages: &[Message], options: &RenderOptions) -> Result<String>;

    /// Returns the tokens that the next prompt adds to `prev_prompt ++ prev_completion` (cut after its last
    /// stop token): a closing token if none was sampled `++` separator `++ new_messages ++` generation
    /// prompt. No added token is marked as sampled.
    ///
    /// # Errors
    /// The errors of [`Renderer::render`] for `new_messages`; a [`BridgeRefusal`] is not an error.
    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        tools: &[Value],
    ) -> Result<Bridge>;

    /// Parses a completion. Broken completions are data. Markers count as ids only: text that spells one is
    /// text.
    ///
    /// # Errors
    /// `OutOfRange` if an id is not in the vocabulary.
    fn parse(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed>;

    /// Returns the ids that end an assistant's turn; the first is the one that closes it properly.
    fn stop_ids(&self) -> &[u32];

    /// Returns the prefix stability of a re-render; [`Renderer::bridge`] may be more stable.
    fn prefix_stability(&self) -> PrefixStability;

    /// Returns the messages that a bridge may cross.
    fn thinking_retention(&self) -> ThinkingRetention;

    /// Returns the constants of the renderer.
    fn facts(&self) -> RendererFacts {
        RendererFacts {
            name: String::new(),
            reason: String::new(),
            stop_ids: self.stop_ids().to_vec(),
            prefix_stability: self.prefix_stability().name(),
            thinking_retention: self.thinking_retention().name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_their_index_as_code() {
        for (code, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(origin.code()), code);
            assert_eq!(Origin::from_codes(&[origin.code()]), Ok(vec![origin]));
        }
        assert_eq!(Origin::from_codes(&[0, 8]).unwrap_err().kind(), ErrorKind::OutOfRange);
        for (code, refusal) in BridgeRefusal::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(refusal.code()), code, "{}", refusal.name());
        }
    }
}
