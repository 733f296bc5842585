//! Messages from JavaScript: JSON, plus the unescaped contents of plain messages.

use std::fmt;

use fulmar_core::{Error, ErrorKind, keep_integers};
use memchr::memmem;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Node, check_num_messages};
use crate::{History, Message, Result};

/// Ends each of the contents.
const END: u8 = 0;
/// The character that JavaScript's encoders write for half a surrogate pair.
const REPLACEMENT: &str = "\u{fffd}";

/// An item of the list: the role of a plain message, or a whole message.
enum Item {
    Role(String),
    Whole(Map<String, Value>),
}

impl History {
    /// Reads a JSON list in which a text is the role of a plain message, whose content is the next of
    /// `contents`. Contents are UTF-8, each followed by a NUL. Contents that contain a NUL or U+FFFD are
    /// refused, as these are ambiguous with the terminator and with half a surrogate pair: send them as JSON,
    /// which [`History::from_json`] reads, without `contents`.
    ///
    /// # Errors
    /// `Malformed` if `list` or `contents` does not have that form or they do not match; the errors of
    /// [`History::from_chats`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::History;
    /// let list = r#"["user",{"role":"assistant","content":"4"}]"#;
    /// let history = History::from_packed(list, Some(b"2+2?\0"))?;
    /// assert_eq!(history.to_json(), r#"[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]"#);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_packed(list: &str, contents: Option<&[u8]>) -> Result<Self> {
        let Some(contents) = contents else { return Self::from_json(list) };
        let items: Vec<Item> = serde_json::from_str(&keep_integers(list)?).map_err(misfit)?;
        check_num_messages(items.len())?;
        let contents = str::from_utf8(contents).map_err(misfit)?;
        if memmem::find(contents.as_bytes(), REPLACEMENT.as_bytes()).is_some() {
            return Err(misfit("U+FFFD"));
        }
        let mut contents = contents.split_terminator(char::from(END));
        let mut messages = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let fields = match item {
                Item::Whole(fields) => fields,
                Item::Role(role) => plain(role, contents.next().ok_or_else(|| misfit("too few"))?),
            };
            let message = Message::from_value(Value::Object(fields));
            messages.push(message.map_err(|error| error.at(format!("messages[{index}]")))?);
        }
        match contents.next() {
            None => Ok(Self { node: Node::Chat(messages) }),
            Some(_) => Err(misfit("too many")),
        }
    }
}

fn plain(role: String, content: &str) -> Map<String, Value> {
    let fields = [("role", role), ("content", content.to_owned())];
    fields.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text))).collect()
}

fn misfit(got: impl fmt::Display) -> Error {
    let detail = format!(
        "packed messages must be a list of roles and messages with the contents of the roles: got {got}"
    );
    Error::new(ErrorKind::Malformed, detail)
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(input: D) -> std::result::Result<Self, D::Error> {
        struct ItemVisitor;
        impl<'de> Visitor<'de> for ItemVisitor {
            type Value = Item;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a role or a message")
            }

            fn visit_str<E>(self, role: &str) -> std::result::Result<Item, E> {
                Ok(Item::Role(role.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> std::result::Result<Item, A::Error> {
                Map::deserialize(MapAccessDeserializer::new(fields)).map(Item::Whole)
            }
        }
        input.deserialize_any(ItemVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(list: &str, contents: &str) -> Result<String> {
        Ok(History::from_packed(list, Some(contents.as_bytes()))?.to_json())
    }

    #[test]
    fn roles_take_their_contents_in_order() {
        let list = r#"["user",{"role":"tool","content":null,"x":1.0},"assistant","user"]"#;
        let expected = concat!(
            r#"[{"role":"user","content":"é"},{"role":"tool","content":null,"x":1.0},"#,
            r#"{"role":"assistant","content":""},{"role":"user","content":"😀\n"}]"#
        );
        assert_eq!(json_of(list, "é\0\0😀\n\0").unwrap(), expected);
        assert_eq!(json_of("[]", "").unwrap(), "[]");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        for (list, contents) in [
            (r#"["user"]"#, ""),
            (r#"["user"]"#, "a\0b\0"),
            (r#"["user"]"#, "a\u{fffd}\0"),
            ("[]", "a\0"),
            ("[1]", ""),
            ("{}", ""),
            ("[", ""),
        ] {
            assert_eq!(json_of(list, contents).unwrap_err().kind(), ErrorKind::Malformed, "{list}");
        }
        assert!(History::from_packed(r#"["user"]"#, Some(&[0xff, 0])).is_err());
        assert_eq!(json_of(r#"["user",""]"#, "a\0b\0").unwrap_err().kind(), ErrorKind::Empty);
    }
}
