//! Fields of all messages, in lists nested as the messages are.

use serde_json::Value;

use super::History;

impl History {
    /// The field `key` of each message, `null` where a message has none. `is_complete` is true where it is not said.
    #[must_use]
    pub fn column(&self, key: &str) -> Value {
        self.map(&|message| match key {
            "is_complete" => Value::Bool(message.is_complete()),
            "reasoning_content" => message.reasoning().map_or(Value::Null, Value::from),
            _ => message.value(key).cloned().unwrap_or(Value::Null),
        })
    }
}
