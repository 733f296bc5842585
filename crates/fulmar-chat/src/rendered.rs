//! The result of rendering: ids with their attribution.

mod words;

use std::collections::BTreeMap;

use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use crate::{Message, Origin, Result};

/// Token ids with their origins: parallel lists of shape `[T]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The message of each token, frame included; -1 for the generation prompt.
    pub message_index: Vec<i32>,
    /// `true` if an assistant samples this token: the text of assistant messages and their closing token.
    pub sampled_mask: Vec<bool>,
    /// `true` if the token is text of its message; for assistant messages the same as `sampled_mask`.
    pub is_content: Vec<bool>,
    /// The origin of each token.
    pub origin: Vec<Origin>,
}

impl Rendered {
    /// Returns the number of tokens of each of `num_messages` messages, frame included, or only of sampled
    /// tokens.
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::{Message, RenderOptions, RendererConfig, create_renderer};
    /// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
    /// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
    /// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
    /// let chat = [Message::new("user", "1+1?")?, Message::new("assistant", "2")?];
    /// let rendered = renderer.render(&chat, &RenderOptions::default())?;
    /// assert_eq!(rendered.tokens_per_message(2, true), [0, 2], "the answer and what closes it");
    /// assert_eq!(rendered.message_token_spans(2), [Some([0, 12]), Some([12, 26])]);
    /// assert_eq!(rendered.tokens_by_role(&chat)["user"], 12);
    /// assert_eq!(rendered.content_token_spans_by_role(&chat)["user"], [[6, 10]]);
    /// assert_eq!(rendered.content_mask_for_roles(&chat, &["assistant"]), rendered.sampled_mask);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn tokens_per_message(&self, num_messages: usize, sampled_only: bool) -> Vec<usize> {
        let mut counts = vec![0; num_messages];
        for (index, sampled) in self.message_index.iter().zip(&self.sampled_mask) {
            let count = usize::try_from(*index).ok().and_then(|index| counts.get_mut(index));
            if let Some(count) = count.filter(|_| *sampled || !sampled_only) {
                *count += 1;
            }
        }
        counts
    }

    /// Returns the range of tokens of each of `num_messages` messages; `None` for one without tokens. Tokens
    /// of no message may be in between.
    #[must_use]
    pub fn message_token_spans(&self, num_messages: usize) -> Vec<Option<[usize; 2]>> {
        let mut spans: Vec<Option<[usize; 2]>> = vec![None; num_messages];
        for (t, index) in self.message_index.iter().enumerate() {
            if let Some(span) = usize::try_from(*index).ok().and_then(|index| spans.get_mut(index)) {
                *span = Some([span.map_or(t, |[start, _]| start), t + 1]);
            }
        }
        spans
    }

    /// Returns the spans of [`Rendered::message_token_spans`] by role; a role without tokens has none.
    #[must_use]
    pub fn role_token_spans<'a>(&self, messages: &'a [Message]) -> BTreeMap<&'a str, Vec<[usize; 2]>> {
        let mut spans = BTreeMap::new();
        for (message, span) in messages.iter().zip(self.message_token_spans(messages.len())) {
            let of_role: &mut Vec<_> = spans.entry(message.role()).or_default();
            of_role.extend(span);
        }
        spans
    }

    /// Returns the number of tokens in the messages of each role, frames included.
    #[must_use]
    pub fn tokens_by_role<'a>(&self, messages: &'a [Message]) -> BTreeMap<&'a str, usize> {
        let mut counts = BTreeMap::new();
        for (message, count) in messages.iter().zip(self.tokens_per_message(messages.len(), false)) {
            *counts.entry(message.role()).or_default() += count;
        }
        counts
    }

    /// Returns the runs of content tokens, by the role of their message.
    #[must_use]
    pub fn content_token_spans_by_role<'a>(
        &self,
        messages: &'a [Message],
    ) -> BTreeMap<&'a str, Vec<[usize; 2]>> {
        let mut spans: BTreeMap<_, Vec<[usize; 2]>> =
            messages.iter().map(|message| (message.role(), Vec::new())).collect();
        let mut last = None;
        for t in (0..self.ids.len()).filter(|t| self.is_content[*t]) {
            let index = self.message_index[t];
            let Some(of_role) =
                self.message_of(t, messages).and_then(|message| spans.get_mut(message.role()))
            else {
                continue;
            };
            match of_role.last_mut() {
                Some(span) if last == Some((index, t)) => span[1] = t + 1,
                _ => of_role.push([t, t + 1]),
            }
            last = Some((index, t + 1));
        }
        spans
    }

    /// Returns whether each token is content of a message of one of `roles`. Shape `[T]`.
    #[must_use]
    pub fn content_mask_for_roles(&self, messages: &[Message], roles: &[&str]) -> Vec<bool> {
        let counts = |t| {
            self.is_content[t]
                && self.message_of(t, messages).is_some_and(|message| roles.contains(&message.role()))
        };
        (0..self.ids.len()).map(counts).collect()
    }

    /// Returns the message of token `t`.
    pub(crate) fn message_of<'a>(&self, t: usize, messages: &'a [Message]) -> Option<&'a Message> {
        usize::try_from(self.message_index[t]).ok().and_then(|index| messages.get(index))
    }

    /// Returns an empty result with capacity for `num_tokens`.
    pub(crate) fn with_capacity(num_tokens: usize) -> Self {
        Self {
            ids: Vec::with_capacity(num_tokens),
            message_index: Vec::with_capacity(num_tokens),
            sampled_mask: Vec::with_capacity(num_tokens),
            is_content: Vec::with_capacity(num_tokens),
            origin: Vec::with_capacity(num_tokens),
        }
    }

    /// Appends tokens that share one attribution. `origin` [`Origin::Assistant`] means content that an assistant samples.
    pub(crate) fn push(&mut self, ids: &[u32], message_index: i32, origin: Origin) {
        let num_ids = self.ids.len() + ids.len();
        let is_content = matches!(origin, Origin::System | Origin::User | Origin::Assistant | Origin::Tool);
        self.ids.extend_from_slice(ids);
        self.message_index.resize(num_ids, message_index);
        self.sampled_mask.resize(num_ids, origin == Origin::Assistant);
        self.is_content.resize(num_ids, is_content);
        self.origin.resize(num_ids, origin);
    }

    /// Appends the tokens of `other`.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.ids.append(&mut other.ids);
        self.message_index.append(&mut other.message_index);
        self.sampled_mask.append(&mut other.sampled_mask);
        self.is_content.append(&mut other.is_content);
        self.origin.append(&mut other.origin);
    }

    /// Removes the first `count` tokens, which must exist.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.ids.drain(..count);
        self.message_index.drain(..count);
        self.sampled_mask.drain(..count);
        self.is_content.drain(..count);
        self.origin.drain(..count);
    }
}

/// Returns the completion up to its last stop id: tokens sampled past the end of a turn are not part of the
/// conversation. Without a stop id, returns all of it.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_chat::trim_to_turn_close(&[5, 9, 6, 9, 7], &[9]), [5, 9, 6, 9]);
/// assert_eq!(fulmar_chat::trim_to_turn_close(&[5, 6], &[9]), [5, 6]);
/// ```
#[must_use]
pub fn trim_to_turn_close<'a>(completion: &'a [u32], stop_ids: &[u32]) -> &'a [u32] {
    let last_stop = completion.iter().rposition(|id| stop_ids.contains(id));
    &completion[..last_stop.map_or(completion.len(), |stop| stop + 1)]
}

/// Returns whether `new_messages` contain an assistant message, which a bridge refuses: sampled tokens come
/// as tokens, never as text.
#[must_use]
pub fn reject_assistant_in_extension(new_messages: &[Message]) -> bool {
    new_messages.iter().any(|message| message.role() == "assistant")
}

/// Returns the tool of each message: the `name` of a tool's answer, or else the name of the call with its
/// `tool_call_id`. `None` for all others.
///
/// # Examples
/// ```
/// use fulmar_chat::{Message, extract_message_tool_names};
/// use serde_json::json;
/// let call = json!({ "id": "a", "function": { "name": "add", "arguments": {} } });
/// let chat = [
///     Message::from_value(json!({ "role": "assistant", "content": "", "tool_calls": [call] }))?,
///     Message::from_value(json!({ "role": "tool", "content": "2", "tool_call_id": "a" }))?,
/// ];
/// assert_eq!(extract_message_tool_names(&chat), [None, Some("add")]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[must_use]
pub fn extract_message_tool_names(messages: &[Message]) -> Vec<Option<&str>> {
    let mut called: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names = Vec::with_capacity(messages.len());
    for message in messages {
        for call in message.tool_calls() {
            let name = text_of(call.get("function").unwrap_or(call).get("name"));
            called.extend(text_of(call.get("id")).zip(name));
        }
        let answered = || text_of(message.value("tool_call_id")).and_then(|id| called.get(id).copied());
        let name = text_of(message.value("name")).or_else(answered);
        names.push(name.filter(|_| message.role() == "tool"));
    }
    names
}

fn text_of(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str)
}

/// Encodes `segments`, texts that are content or frame, in one pass, so that tokens merge across borders as
/// in a template's text. A token belongs to the segment of its first character or, with `overlap_is_content`,
/// to the content if it shares any character with it. Returns ids and whether each is content.
///
/// # Errors
/// The errors of [`Tokenizer::encode`].
///
/// # Examples
/// ```
/// use fulmar_chat::attribute_text_segments;
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let (ids, is_content) = attribute_text_segments(&tokenizer, &[("user\n", false), ("Hi", true)], false)?;
/// assert_eq!((ids.len(), is_content), (7, vec![false, false, false, false, false, true, true]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn attribute_text_segments(
    tokenizer: &dyn Tokenizer,
    segments: &[(&str, bool)],
    overlap_is_content: bool,
) -> Result<(Vec<u32>, Vec<bool>)> {
    let text: String = segments.iter().map(|(text, _)| *text).collect();
    let mut ends = Vec::with_capacity(segments.len());
    for (text, is_content) in segments.iter().filter(|(text, _)| !text.is_empty()) {
        ends.push((ends.last().map_or(0, |(end, _)| *end) + text.len(), *is_content));
    }
    let encoding = tokenizer.encode(&text)?;
    let is_content = |&[start, end]: &[u32; 2]| {
        let (start, end) = (start as usize, end as usize);
        let first = ends.partition_point(|(segment_end, _)| *segment_end <= start);
        let last = ends.partition_point(|(segment_end, _)| *segment_end < end);
        let reach = if overlap_is_content { first..=last.max(first) } else { first..=first };
        ends.get(reach).is_some_and(|segments| segments.iter().any(|(_, is_content)| *is_content))
    };
    let is_content = encoding.offsets.iter().map(is_content).collect();
    Ok((encoding.ids, is_content))
}
