//! Fields of all messages, in lists nested like the messages.

use serde_json::Value;

use super::History;

impl History {
    /// Returns the field `key` of each message, `null` for a message without it. `is_complete` defaults to
    /// true.
    #[must_use]
    pub fn column(&self, key: &str) -> Value {
        self.map(&|message| match key {
            "is_complete" => Value::Bool(message.is_complete()),
            "reasoning_content" => message.reasoning().map_or(Value::Null, Value::from),
            _ => message.value(key).cloned().unwrap_or(Value::Null),
        })
    }
}
