//! One message: an open dictionary, as chat APIs exchange it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use fulmar_core::{Error, ErrorKind, limits};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{ContentBase, PADDING_ROLE, Result};

/// A dictionary with a `role` and `content`: text, a list of parts, or null. Unknown keys are kept, in order.
///
/// # Examples
/// ```
/// use fulmar_chat::Message;
/// let dictionary = serde_json::json!({ "role": "user", "content": "Hi", "name": "Ada" });
/// let message = Message::from_value(dictionary.clone())?;
/// assert_eq!((message.role(), message.text()?.as_ref()), ("user", "Hi"));
/// assert_eq!(message.into_value(), dictionary);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Message {
    form: Form,
}

/// The fields of a message. Copies share texts and maps: histories copy messages often and change none.
#[derive(Debug, Clone)]
enum Form {
    /// A role and a text, in this order, as most messages are: a map of them costs more than rendering them.
    Plain {
        role: Cow<'static, str>,
        content: Arc<str>,
        fields: OnceLock<Arc<Map<String, Value>>>,
    },
    Whole(Arc<Map<String, Value>>),
}

impl Message {
    /// Makes a message of text.
    ///
    /// # Errors
    /// `Empty` if `role` is empty; `LimitExceeded` if the strings together exceed
    /// [`limits::MESSAGE_BYTES_MAX`].
    pub fn new(role: &str, content: &str) -> Result<Self> {
        check_num_bytes("role".len() + role.len() + "content".len() + content.len())?;
        if role.is_empty() {
            return Err(empty_role());
        }
        Ok(Self::plain(role, content))
    }

    fn plain(role: &str, content: &str) -> Self {
        let known = ROLES.iter().find(|known| **known == role);
        let role = known.map_or_else(|| Cow::Owned(role.to_owned()), |known| Cow::Borrowed(*known));
        Self { form: Form::Plain { role, content: content.into(), fields: OnceLock::new() } }
    }

    /// Reads a message from the JSON object `value`.
    ///
    /// # Errors
    /// `Malformed` if `value` is not an object with a `role` of text and a `content` of text, parts or null;
    /// `Empty` if the role is empty; `LimitExceeded` if its strings together exceed
    /// [`limits::MESSAGE_BYTES_MAX`].
    pub fn from_value(value: Value) -> Result<Self> {
        check_num_bytes(string_bytes(&value))?;
        let Value::Object(fields) = value else {
            return Err(malformed("message must be an object", &value));
        };
        match fields.get("role") {
            Some(Value::String(role)) if role.is_empty() => return Err(empty_role()),
            Some(Value::String(_)) => {}
            other => return Err(malformed("role must be text", other.unwrap_or(&Value::Null))),
        }
        match fields.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => check_parts(parts)?,
            Some(other) => return Err(malformed("content must be text, a list of parts or null", other)),
        }
        Ok(Self { form: Form::Whole(Arc::new(fields)) })
    }

    /// Returns the role.
    #[must_use]
    pub fn role(&self) -> &str {
        match &self.form {
            Form::Plain { role, .. } => role,
            Form::Whole(_) => self.value("role").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    /// Returns the value of `key`, known or unknown.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        let fields: &Map<String, Value> = match &self.form {
            Form::Plain { .. } if !["role", "content"].contains(&key) => return None,
            Form::Plain { .. } => self.fields(),
            Form::Whole(fields) => fields,
        };
        // A message has few keys: a linear search is cheaper than hashing.
        fields.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns the content as one text: parts of type `text` concatenated, or an empty text without content.
    ///
    /// # Errors
    /// `UnknownName` if a part is not of type `text`; `Malformed` if a text part has no text.
    pub fn text(&self) -> Result<Cow<'_, str>> {
        if let Form::Plain { content, .. } = &self.form {
            return Ok(Cow::Borrowed(content));
        }
        match self.value("content") {
            Some(Value::String(text)) => Ok(Cow::Borrowed(text)),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().enumerate().map(|(index, part)| text_of_part(index, part));
                texts.collect::<Result<String>>().map(Cow::Owned)
            }
            _ => Ok(Cow::Borrowed("")),
        }
    }

    /// Returns whether there is content: text, even an empty one, or parts.
    pub(crate) fn has_content(&self) -> bool {
        match &self.form {
            Form::Plain { .. } => true,
            Form::Whole(_) => self.value("content").is_some_and(|content| !content.is_null()),
        }
    }

    /// Returns whether the message calls tools: its `tool_calls` is neither null nor an empty list.
    #[must_use]
    pub fn has_tool_calls(&self) -> bool {
        match self.value("tool_calls") {
            None | Some(Value::Null) => false,
            Some(Value::Array(calls)) => !calls.is_empty(),
            Some(_) => true,
        }
    }

    /// Returns the tool calls; empty if there is no list of them.
    #[must_use]
    pub fn tool_calls(&self) -> &[Value] {
        self.list("tool_calls")
    }

    /// Returns the answers of tools inside the message itself.
    #[must_use]
    pub fn tool_responses(&self) -> &[Value] {
        self.list("tool_responses")
    }

    fn list(&self, key: &str) -> &[Value] {
        self.value(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Returns the reasoning, under whichever of its three names: `reasoning_content`, `thinking`, `reasoning`.
    #[must_use]
    pub fn reasoning(&self) -> Option<&str> {
        let names = ["reasoning_content", "thinking", "reasoning"];
        names.iter().find_map(|name| self.value(name)).and_then(Value::as_str)
    }

    /// Returns whether the message is complete; true unless `is_complete` is false.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.value("is_complete").and_then(Value::as_bool).unwrap_or(true)
    }

    /// Returns the typed pieces of the content: one for a text, none without content.
    ///
    /// # Errors
    /// The errors of [`ContentBase::from_value`], with the piece's index.
    pub fn pieces(&self) -> Result<Vec<ContentBase>> {
        match self.value("content") {
            Some(Value::String(text)) => Ok(vec![ContentBase::of_text(text)]),
            Some(Value::Array(parts)) => {
                let pieces = parts.iter().enumerate().map(|(index, part)| {
                    ContentBase::from_value(part).map_err(|error| error.at(format!("content[{index}]")))
                });
                pieces.collect()
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns a padding message.
    pub(crate) fn padding() -> Self {
        Self::plain(PADDING_ROLE, "")
    }

    /// Returns the dictionary.
    #[must_use]
    pub fn fields(&self) -> &Map<String, Value> {
        match &self.form {
            Form::Plain { role, content, fields } => fields.get_or_init(|| {
                let pairs = [("role", &**role), ("content", &**content)];
                Arc::new(pairs.map(|(key, value)| (key.to_owned(), value.into())).into_iter().collect())
            }),
            Form::Whole(fields) => fields,
        }
    }

    /// Returns the dictionary, unchanged.
    #[must_use]
    pub fn into_value(self) -> Value {
        Value::Object(self.into())
    }
}

impl From<Message> for Map<String, Value> {
    fn from(message: Message) -> Self {
        match message.form {
            Form::Whole(fields) => Arc::unwrap_or_clone(fields),
            form @ Form::Plain { .. } => Message { form }.fields().clone(),
        }
    }
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, output: S) -> std::result::Result<S::Ok, S::Error> {
        self.fields().serialize(output)
    }
}

impl TryFrom<Value> for Message {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self> {
        Self::from_value(value)
    }
}

/// The roles of most messages, which need no memory of their own.
static ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

fn empty_role() -> Error {
    Error::new(ErrorKind::Empty, "role must be a name: got an empty one")
}

fn check_parts(parts: &[Value]) -> Result<()> {
    for (index, part) in parts.iter().enumerate() {
        if part.get("type").and_then(Value::as_str).is_none() {
            return Err(malformed(&format!("content[{index}] must be an object with a type"), part));
        }
    }
    Ok(())
}

fn text_of_part(index: usize, part: &Value) -> Result<&str> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind != "text" {
        let detail = format!("content[{index}].type must be \"text\" in a text conversation: got {kind:?}");
        return Err(Error::new(ErrorKind::UnknownName, detail));
    }
    let text = part.get("text").unwrap_or(&Value::Null);
    text.as_str().ok_or_else(|| malformed(&format!("content[{index}].text must be text"), text))
}

/// Bytes of all strings and keys inside `value`.
fn string_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(string_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + string_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn check_num_bytes(num_bytes: usize) -> Result<()> {
    if num_bytes > limits::MESSAGE_BYTES_MAX {
        let max = limits::MESSAGE_BYTES_MAX;
        let detail = format!("message must hold at most {max} bytes of text: got {num_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

fn malformed(rule: &str, got: &Value) -> Error {
    let kind = match got {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "another object",
    };
    Error::new(ErrorKind::Malformed, format!("{rule}: got {kind}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind_of(value: Value) -> ErrorKind {
        Message::from_value(value).unwrap_err().kind()
    }

    #[test]
    fn unknown_keys_and_their_order_are_kept() {
        let text =
            r#"{"z":1.5,"role":"assistant","content":null,"tool_calls":[{"id":"a"}],"a":{"b":[1,null]}}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        assert!(message.has_tool_calls());
        assert_eq!(message.value("z"), Some(&json!(1.5)));
    }

    #[test]
    fn text_parts_are_joined_and_missing_content_is_no_text() {
        let parts = json!({ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] });
        assert_eq!(Message::from_value(parts).unwrap().text().unwrap(), "ab");
        assert_eq!(Message::from_value(json!({ "role": "assistant" })).unwrap().text().unwrap(), "");
        let no_calls = json!({ "role": "assistant", "content": null, "tool_calls": [] });
        assert!(!Message::from_value(no_calls).unwrap().has_tool_calls());
    }

    #[test]
    fn parts_that_are_not_text_are_kept_and_have_no_text() {
        let image = json!({ "role": "user", "content": [{ "type": "image_url", "image_url": "x" }] });
        let message = Message::from_value(image).unwrap();
        assert_eq!(message.text().unwrap_err().kind(), ErrorKind::UnknownName);
        let textless =
            Message::from_value(json!({ "role": "user", "content": [{ "type": "text" }] })).unwrap();
        assert_eq!(textless.text().unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn what_a_message_holds_besides_content_has_names() {
        let message = json!({
            "role": "assistant", "content": "a", "thinking": "hm", "is_complete": false,
            "tool_calls": [{ "id": "a" }], "tool_responses": ["2"],
        });
        let message = Message::from_value(message).unwrap();
        assert_eq!((message.reasoning(), message.is_complete()), (Some("hm"), false));
        assert_eq!((message.tool_calls().len(), message.tool_responses()), (1, &[json!("2")][..]));
        let plain = Message::new("user", "a").unwrap();
        assert_eq!((plain.reasoning(), plain.is_complete()), (None, true));
        assert!(plain.tool_calls().is_empty() && plain.tool_responses().is_empty());
        assert_eq!(plain.pieces().unwrap(), [ContentBase::of_text("a")]);
    }

    #[test]
    fn what_is_not_a_message_is_refused() {
        for value in [
            json!("user"),
            json!({ "content": "x" }),
            json!({ "role": 3 }),
            json!({ "role": "user", "content": 3 }),
            json!({ "role": "user", "content": ["x"] }),
            json!({ "role": "user", "content": [{ "text": "x" }] }),
        ] {
            assert_eq!(kind_of(value.clone()), ErrorKind::Malformed, "{value}");
        }
        assert_eq!(kind_of(json!({ "role": "", "content": "x" })), ErrorKind::Empty);
        assert!(serde_json::from_str::<Message>(r#"{"role":"user","content":"\ud800"}"#).is_err());
    }

    #[test]
    fn a_message_holds_as_much_text_as_the_limit_and_no_more() {
        let frame = "role".len() + "user".len() + "content".len();
        let mut text = "x".repeat(limits::MESSAGE_BYTES_MAX - frame);
        assert!(Message::new("user", &text).is_ok());
        text.push('x');
        assert_eq!(Message::new("user", &text).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
