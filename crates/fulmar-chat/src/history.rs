//! A conversation: messages in order.

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::Value;

use crate::{Message, Result};

/// The messages of one conversation, oldest first.
///
/// # Examples
/// ```
/// use fulmar_chat::{History, Message};
/// let mut history = History::from_chats(vec![serde_json::json!({ "role": "user", "content": "1+1?" })])?;
/// history.append(Message::new("assistant", "2")?)?;
/// assert_eq!(history.len(), 2);
/// assert_eq!(History::from_json(&history.to_json())?, history);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    messages: Vec<Message>,
}

impl History {
    /// The conversation of these dictionaries. None at all is an empty history.
    ///
    /// # Errors
    /// As [`Message::from_value`], with the message's index; `LimitExceeded` past [`limits::MESSAGES_MAX`] messages.
    pub fn from_chats(chat: Vec<Value>) -> Result<Self> {
        check_num_messages(chat.len())?;
        let messages = chat.into_iter().enumerate();
        let messages = messages.map(|(index, value)| {
            Message::from_value(value).map_err(|error| error.at(format!("messages[{index}]")))
        });
        Ok(Self { messages: messages.collect::<Result<_>>()? })
    }

    /// Reads a JSON list of dictionaries.
    ///
    /// # Errors
    /// `Malformed` if `text` is not a JSON list; else as [`History::from_chats`].
    pub fn from_json(text: &str) -> Result<Self> {
        let chat: Vec<Value> = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::Malformed, format!("messages must be a JSON list: got {error}"))
        })?;
        Self::from_chats(chat)
    }

    /// Checks that the JSON list `text` could follow `num_held` messages, without keeping it.
    ///
    /// # Errors
    /// As [`History::from_json`]; `LimitExceeded` if there is no room.
    pub fn check_extension(num_held: usize, text: &str) -> Result<()> {
        check_num_messages(num_held.saturating_add(Self::from_json(text)?.len()))
    }

    /// Adds one message at the end.
    ///
    /// # Errors
    /// `LimitExceeded` if the history is full; it is unchanged then.
    pub fn append(&mut self, message: Message) -> Result<()> {
        self.extend(vec![message])
    }

    /// Adds messages at the end, all or none.
    ///
    /// # Errors
    /// `LimitExceeded` if they do not fit below [`limits::MESSAGES_MAX`]; the history is unchanged then.
    pub fn extend(&mut self, messages: Vec<Message>) -> Result<()> {
        check_num_messages(self.messages.len() + messages.len())?;
        self.messages.extend(messages);
        Ok(())
    }

    /// The messages, oldest first.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How many messages there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The dictionaries as a JSON list, as they came.
    #[must_use]
    pub fn to_json(&self) -> String {
        let chat = self.messages.iter().map(|message| message.clone().into_value());
        Value::Array(chat.collect()).to_string()
    }
}

fn check_num_messages(num_messages: usize) -> Result<()> {
    if num_messages > limits::MESSAGES_MAX {
        let max = limits::MESSAGES_MAX;
        let detail = format!("messages must be at most {max}: got {num_messages}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_go_in_and_out_unchanged() {
        let text = r#"[{"role":"user","content":"Hi","name":"Ada"},{"content":[{"type":"text","text":"a"}],"role":"tool"}]"#;
        assert_eq!(History::from_json(text).unwrap().to_json(), text);
        assert!(History::from_json("[]").unwrap().is_empty());
    }

    #[test]
    fn a_bad_dictionary_is_named_by_its_index() {
        let error = History::from_json(r#"[{"role":"user","content":"Hi"},{"content":"x"}]"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert_eq!(error.detail(), "messages[1]: role must be text: got nothing");
        assert_eq!(History::from_json("{}").unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn a_history_holds_as_many_messages_as_the_limit_and_no_more() {
        let message = Message::new("user", "x").unwrap();
        let mut history = History::default();
        history.extend(vec![message.clone(); limits::MESSAGES_MAX - 1]).unwrap();
        assert_eq!(history.extend(vec![message.clone(); 2]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        history.append(message.clone()).unwrap();
        assert_eq!(history.len(), limits::MESSAGES_MAX);
        assert_eq!(history.append(message).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(history.len(), limits::MESSAGES_MAX);
        let text = r#"[{"role":"user"}]"#;
        assert_eq!(History::check_extension(limits::MESSAGES_MAX - 1, text), Ok(()));
        let refused = History::check_extension(limits::MESSAGES_MAX, text).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    }
}
