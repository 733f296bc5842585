//! Dictionaries as a history, and a history as JSON.

use std::borrow::Cow;

use fulmar_core::{Error, ErrorKind, keep_integers, restore_integers};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{History, Node, check_num_messages, check_rank};
use crate::{Message, Result};

impl History {
    /// Reads dictionaries as a conversation, or lists of dictionaries as a batch. An empty list is an empty
    /// conversation.
    ///
    /// # Errors
    /// The errors of [`Message::from_value`], with the message's index; `ShapeMismatch` if dictionaries and
    /// lists are mixed, or lists have different rank; `LimitExceeded` past [`MESSAGES_MAX`](fulmar_core::limits::MESSAGES_MAX) messages
    /// in a conversation or past [`HISTORY_RANK_MAX`](fulmar_core::limits::HISTORY_RANK_MAX) dimensions.
    pub fn from_chats(chats: Vec<Value>) -> Result<Self> {
        Self::from_list(chats, 1, "messages")
    }

    /// Reads a JSON list of dictionaries, a list of such lists, or one dictionary. Integers keep all their digits.
    ///
    /// # Errors
    /// `Malformed` if `text` is not such JSON; `LimitExceeded` for an integer with too many digits; the
    /// errors of [`History::from_chats`].
    pub fn from_json(text: &str) -> Result<Self> {
        match serde_json::from_str(&keep_integers(text)?).map_err(|error| unreadable(text, &error))? {
            Value::Array(chats) => Self::from_chats(chats),
            message @ Value::Object(_) => Ok(Message::from_value(message)?.into()),
            other => {
                let got: String = other.to_string().chars().take(80).collect();
                Err(Error::new(ErrorKind::Malformed, format!("messages must be a JSON list: got {got}")))
            }
        }
    }

    fn from_list(items: Vec<Value>, rank: usize, place: &str) -> Result<Self> {
        if !items.first().is_some_and(Value::is_array) {
            check_num_messages(items.len())?;
            let messages = items.into_iter().enumerate();
            let messages = messages.map(|(index, value)| {
                Message::from_value(value).map_err(|error| error.at(format!("{place}[{index}]")))
            });
            return Ok(Self { node: Node::Chat(messages.collect::<Result<_>>()?) });
        }
        check_rank(rank + 1)?;
        let mut rows: Vec<Self> = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let place = format!("{place}[{index}]");
            let Value::Array(items) = item else {
                let detail = format!("{place} must be a list, as the first one is: got a message");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            };
            let row = Self::from_list(items, rank + 1, &place)?;
            if let Some(first) = rows.first()
                && first.rank() != row.rank()
            {
                let (rank, got) = (first.rank(), row.rank());
                let detail = format!("{place} must be of rank {rank}, as the first one is: got {got}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
            rows.push(row);
        }
        Ok(Self { node: Node::Rows(rows) })
    }

    /// Returns the dictionaries as JSON, unchanged.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Keys are text, so this cannot fail.
        let json = serde_json::to_string(self).unwrap_or_default();
        match restore_integers(&json) {
            Cow::Borrowed(_) => json,
            Cow::Owned(restored) => restored,
        }
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, output: S) -> std::result::Result<S::Ok, S::Error> {
        match &self.node {
            Node::One(message) => message.serialize(output),
            Node::Chat(messages) => messages.serialize(output),
            Node::Rows(rows) => rows.serialize(output),
        }
    }
}

/// Returns the error for an unreadable `text`, naming the message that JSON or UTF-8 cannot represent, if it
/// can be found.
fn unreadable(text: &str, error: &serde_json::Error) -> Error {
    let reason = |error: &serde_json::Error| {
        let reason = error.to_string();
        let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason).to_owned();
        if reason.contains("surrogate") || reason.contains("hex escape") {
            return "text must be whole characters, but it holds half of a surrogate pair".to_owned();
        }
        format!("it is no JSON ({reason})")
    };
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let broken = items.iter().enumerate().find_map(|(index, item)| {
        let error = serde_json::from_str::<Value>(item.get()).err()?;
        Some(format!("messages[{index}]: {}", reason(&error)))
    });
    let detail = broken.unwrap_or_else(|| format!("messages must be a JSON list: {}", reason(error)));
    Error::new(ErrorKind::Malformed, detail)
}
