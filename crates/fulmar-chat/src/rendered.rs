//! What rendering gives: ids, and of each whose it is.

use crate::{Message, Origin};

/// Token ids and where each came from: parallel lists of shape `[T]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rendered {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The message of each token, its frame included; -1 for the generation prompt and for what a bridge was given.
    pub message_index: Vec<i32>,
    /// Whether an assistant samples this token: the text of assistant messages and their closing token.
    pub sampled_mask: Vec<bool>,
    /// Whether the token is text of its message; on assistant messages the same as `sampled_mask`.
    pub is_content: Vec<bool>,
    /// Where each token came from.
    pub origin: Vec<Origin>,
}

impl Rendered {
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

    /// Takes the tokens of `other` behind its own.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.ids.append(&mut other.ids);
        self.message_index.append(&mut other.message_index);
        self.sampled_mask.append(&mut other.sampled_mask);
        self.is_content.append(&mut other.is_content);
        self.origin.append(&mut other.origin);
    }

    /// Forgets the first `count` tokens, which there are.
    pub(crate) fn drop_first(&mut self, count: usize) {
        self.ids.drain(..count);
        self.message_index.drain(..count);
        self.sampled_mask.drain(..count);
        self.is_content.drain(..count);
        self.origin.drain(..count);
    }
}

/// The completion up to its last stop id: what an engine sampled past the end of a turn is no part of the conversation.
/// Without a stop id, all of it.
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

/// Whether an assistant speaks in `new_messages`, which a bridge refuses: sampled tokens come as tokens, never as text.
#[must_use]
pub fn reject_assistant_in_extension(new_messages: &[Message]) -> bool {
    new_messages.iter().any(|message| message.role() == "assistant")
}
