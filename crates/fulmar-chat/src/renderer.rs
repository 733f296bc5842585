//! The contract between conversations and token ids.

use fulmar_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Message, Rendered, Result};

/// Where a token came from.
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
    /// An assistant's turn as text, given as context: an example, or a history that was rendered again.
    Assistant,
    /// The text of a tool's answer.
    Tool,
    /// Context that came without a finer origin.
    Env,
    /// Drawn by the policy.
    Sampled,
    /// A closing token that a bridge put where the policy had sampled none.
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

    /// The index in [`Origin::ALL`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The origins with these codes.
    ///
    /// # Errors
    /// `OutOfRange` for a code that no origin has.
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

/// What [`Renderer::render`] is told besides the messages.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RenderOptions {
    /// Whether the opening of an assistant's turn follows the messages.
    pub add_generation_prompt: bool,
    /// The tools on offer, as OpenAI envelopes or flat `{name, description, parameters}`.
    pub tools: Vec<Value>,
}

/// What [`Renderer::parse`] is told besides the completion.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ParseOptions {
    /// The prompt that the completion answers: its end says whether reasoning was already open or closed. Without it,
    /// the renderer's own generation prompt is taken for its end.
    pub prompt_ids: Option<Vec<u32>>,
    /// The tools on offer; their schemas decide the types of arguments, and a call of another tool is `unknown_tool`.
    /// Empty: any name is accepted.
    pub tools: Vec<Value>,
}

/// Why a renderer cannot extend the last turn's tokens. The caller then renders the whole conversation again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BridgeRefusal {
    /// There is no prompt to extend.
    EmptyPrompt,
    /// There is no message to extend it with.
    EmptyExtension,
    /// An assistant message among the new ones: sampled tokens come as tokens, never as text.
    AssistantInExtension,
    /// A role that the family does not have.
    UnknownRole,
    /// A user's query would take reasoning out of earlier turns, so they must be rendered again.
    UserQueryUnderToolCycle,
    /// The turn stopped while its reasoning was open: closing it would put tokens before a sampled one.
    OpenReasoningAfterStop,
    /// The template is opaque, and it did not keep what it had written before.
    OpaqueTemplate,
    /// The next prompt would be longer than the renderer allows.
    OverLength,
}

impl PrefixStability {
    /// The stable name: `always`, `within_tool_cycle`, `never` or `unknown`.
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
    /// The stable name: `empty_prompt`, ...
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

/// What [`Renderer::bridge`] answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bridge {
    /// What follows the tokens that are there.
    Extended(Extension),
    /// Why nothing can.
    Declined(BridgeRefusal),
}

/// What a bridge puts behind a prompt and its completion. Its size is that of the new messages, however long the conversation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// How many tokens of the completion stay: up to its last stop token, or all.
    pub num_kept: usize,
    /// What is added; its messages count from the first of the new ones, and nothing is marked as sampled.
    pub rendered: Rendered,
}

impl Extension {
    /// The next prompt: `prev_prompt ++ prev_completion[..num_kept] ++ rendered.ids`, of what the bridge was given.
    ///
    /// # Panics
    /// If `prev_completion` is shorter than `num_kept`.
    #[must_use]
    pub fn next_prompt(&self, prev_prompt: &[u32], prev_completion: &[u32]) -> Vec<u32> {
        [prev_prompt, &prev_completion[..self.num_kept], &self.rendered.ids].concat()
    }
}

/// Why a tool call is or is not usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCallStatus {
    /// It is usable.
    Ok,
    /// Its arguments are not JSON.
    InvalidJson,
    /// Its block was opened and not closed.
    UnclosedBlock,
    /// It names no tool.
    MissingName,
    /// It is not built as the family builds calls.
    MalformedStructure,
    /// It names a tool that was not offered.
    UnknownTool,
}

/// One tool call in a completion. Broken calls are data, never errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParsedToolCall {
    /// The text of the call as it was sampled.
    pub raw: String,
    /// Whether it is usable.
    pub status: ToolCallStatus,
    /// The tool's name, where one was found.
    pub name: Option<String>,
    /// The arguments as JSON text, where some were found.
    pub arguments: Option<String>,
    /// The call's id, where the family has ids.
    pub id: Option<String>,
    /// Where the call stands in the completion: `[start, end)` of its ids.
    pub token_span: [usize; 2],
}

/// What a completion says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parsed {
    /// The text before the first stop token outside of reasoning and calls, trimmed; plain ChatML does not trim.
    pub content: String,
    /// The reasoning; `None` if the family has none or the completion holds none.
    pub reasoning_content: Option<String>,
    /// Whether reasoning that was opened was also closed; true where there is none.
    pub reasoning_complete: bool,
    /// The tool calls, in order.
    pub tool_calls: Vec<ParsedToolCall>,
    /// Whether a stop token was sampled.
    pub finished: bool,
    /// Whether special tokens stand inside the content, where they are written by name.
    pub overran: bool,
}

/// Which messages, appended to a conversation that ends with an assistant's turn, leave the tokens before them as they
/// are when the conversation is rendered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrefixStability {
    /// All.
    Always,
    /// Those that answer tools; a new user message may change what came before.
    WithinToolCycle,
    /// Not even those.
    Never,
    /// The template is opaque: nobody can say.
    Unknown,
}

/// Which new messages a [`Renderer::bridge`] may cross without forgetting the reasoning before them. It never changes
/// what [`Renderer::render`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingRetention {
    /// Those that the family's template would not take reasoning away for: what answers tools.
    Template,
    /// What answers tools; a user's query makes the caller render the whole conversation again.
    ToolCycle,
    /// All: reasoning stays, as it was sampled.
    All,
}

impl ThinkingRetention {
    /// The stable name: `template`, `tool_cycle` or `all`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Template => "template",
            Self::ToolCycle => "tool_cycle",
            Self::All => "all",
        }
    }
}

/// What never changes about a renderer, in one piece: what other languages are told once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RendererFacts {
    /// The name of its configuration, such as `qwen3` or `opaque`; empty for a renderer that was made without one.
    pub name: String,
    /// Why [`crate::create_renderer`] chose it, in a sentence; empty likewise.
    pub reason: String,
    /// [`Renderer::stop_ids`].
    pub stop_ids: Vec<u32>,
    /// [`Renderer::prefix_stability`], by name.
    pub prefix_stability: &'static str,
    /// [`Renderer::thinking_retention`], by name.
    pub thinking_retention: &'static str,
}

/// Conversations to token ids and back, for one family of models.
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
    /// The ids of a conversation.
    ///
    /// # Errors
    /// `Empty` if there is no message; `UnknownName` for a role or a part that the family does not have;
    /// `Incompatible` for tool calls where the family's tools are not supported; `UnknownText` from the tokenizer.
    fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered>;

    /// The text that the ids of [`Renderer::render`] stand for, special tokens by name.
    ///
    /// # Errors
    /// As [`Renderer::render`], without those of the tokenizer.
    fn render_text(&self, messages: &[Message], options: &RenderOptions) -> Result<String>;

    /// What the next prompt adds to `prev_prompt ++ prev_completion` (cut after its last stop token): a closing token if none
    /// was sampled `++` separator `++ new_messages ++` generation prompt. Nothing added is marked as sampled.
    ///
    /// # Errors
    /// As [`Renderer::render`] for `new_messages`, except for what a [`BridgeRefusal`] says.
    fn bridge(
        &self,
        prev_prompt: &[u32],
        prev_completion: &[u32],
        new_messages: &[Message],
        tools: &[Value],
    ) -> Result<Bridge>;

    /// What a completion says. Broken completions are data. Markers count as ids only: text that spells one is text.
    ///
    /// # Errors
    /// `OutOfRange` if an id is not in the vocabulary.
    fn parse(&self, ids: &[u32], options: &ParseOptions) -> Result<Parsed>;

    /// The ids that end an assistant's turn; the first is the one that closes it properly.
    fn stop_ids(&self) -> &[u32];

    /// What a re-render promises; [`Renderer::bridge`] may promise more.
    fn prefix_stability(&self) -> PrefixStability;

    /// Which messages a bridge may cross.
    fn thinking_retention(&self) -> ThinkingRetention;

    /// What never changes, in one piece.
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
    }
}
