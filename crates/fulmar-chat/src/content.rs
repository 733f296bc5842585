//! A piece of a message's content: text, or data for a processor.

use fulmar_core::options_from_json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;

/// The kind of a piece of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentKind {
    /// Text.
    Text,
    /// An image.
    Image,
    /// Audio.
    Audio,
    /// Video.
    Video,
    /// A file of any kind.
    File,
    /// A function call.
    FunctionCall,
}

/// A typed piece of content. Templates see it as a dictionary of its fields; images and audio are never read
/// here.
///
/// # Examples
/// ```
/// use fulmar_chat::ContentBase;
/// let dictionary = serde_json::json!({ "type": "image", "url": "https://example.org/cat.png" });
/// let piece = ContentBase::from_value(&dictionary)?;
/// assert_eq!(piece.url.as_deref(), Some("https://example.org/cat.png"));
/// assert_eq!(serde_json::to_value(&piece).unwrap(), dictionary);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentBase {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: ContentKind,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The data in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The media type, such as `image/png`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The file name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The length in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The called function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_name: Option<String>,
    /// The arguments of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function_args: Option<Map<String, Value>>,
}

impl ContentBase {
    /// Returns a piece of text.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self {
            kind: ContentKind::Text,
            text: Some(text.to_owned()),
            url: None,
            data: None,
            mime_type: None,
            name: None,
            size: None,
            function_name: None,
            function_args: None,
        }
    }

    /// Reads a piece from the JSON object `value`.
    ///
    /// # Errors
    /// `UnknownName` for an unknown type or field; `Malformed` if a field has another type.
    pub fn from_value(value: &Value) -> Result<Self> {
        options_from_json("content", &value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_are_closed_and_keep_what_they_hold() {
        let call = json!({ "type": "function_call", "function_name": "f", "function_args": { "b": 1.0, "a": null } });
        let piece = ContentBase::from_value(&call).unwrap();
        assert_eq!(serde_json::to_string(&piece).unwrap(), call.to_string());
        let kind = |value: Value| ContentBase::from_value(&value).unwrap_err().kind();
        assert_eq!(kind(json!({ "type": "smell" })), ErrorKind::UnknownName);
        assert_eq!(kind(json!({ "type": "text", "txt": "a" })), ErrorKind::UnknownName);
        assert_eq!(kind(json!({ "text": "a" })), ErrorKind::Malformed);
        assert_eq!(kind(json!({ "type": "text", "size": "big" })), ErrorKind::Malformed);
    }
}
