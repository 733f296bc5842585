//! Messages from JavaScript: contents of plain messages without escapes, and all others as JSON.
//!
//! A packed text is records, each ended by a NUL. A record is a message: a letter for the role with the content after
//! it, or a JSON object. Their number comes with them: a content with a NUL would be two records.

use std::fmt;

use fulmar_core::{Error, ErrorKind, keep_integers, limits};
use memchr::{memchr, memchr_iter, memmem};
use serde_json::{Map, Value};

use super::{Node, check_num_messages};
use crate::{History, Message, Result};

/// Ends each record.
const END: u8 = 0;
/// The character that JavaScript's encoders write for half a surrogate pair.
const REPLACEMENT: &str = "\u{fffd}";
/// Roles of plain messages, by their letters.
const ROLES: [(u8, &str); 4] = [(b's', "system"), (b'u', "user"), (b'a', "assistant"), (b't', "tool")];

/// Begins a record that is a JSON list of messages.
const JSON: char = 'j';

/// The records of a packed text that are not read yet.
#[derive(Clone)]
pub(crate) struct Records<'a> {
    rest: &'a str,
    num_left: usize,
}

impl<'a> Records<'a> {
    /// Returns the `num_records` records of `packed`.
    ///
    /// # Errors
    /// `Malformed` if it contains U+FFFD, which half a surrogate pair becomes on its way here.
    pub(crate) fn of(packed: &'a str, num_records: usize) -> Result<Self> {
        if memmem::find(packed.as_bytes(), REPLACEMENT.as_bytes()).is_some() {
            return Err(misfit("U+FFFD"));
        }
        Ok(Self { rest: packed, num_left: num_records })
    }

    /// Takes the next record; `None` after the last one.
    ///
    /// # Errors
    /// `Malformed` if the record has no end, or if there are fewer or more records than were given.
    pub(crate) fn next(&mut self) -> Result<Option<&'a str>> {
        if self.rest.is_empty() && self.num_left == 0 {
            return Ok(None);
        }
        let end = memchr(END, self.rest.as_bytes()).ok_or_else(|| misfit("a record without an end"))?;
        self.num_left = self.num_left.checked_sub(1).ok_or_else(|| misfit("more of them"))?;
        let record = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(Some(record))
    }

    /// Returns the `num_records` records of steps, of which some may be JSON.
    ///
    /// # Errors
    /// `Malformed` if there is another number of them, or if one that is not JSON contains U+FFFD.
    pub(crate) fn of_steps(packed: &'a str, num_records: usize) -> Result<Self> {
        if memchr_iter(END, packed.as_bytes()).count() != num_records
            || !packed.is_empty() && !packed.ends_with('\0')
        {
            return Err(misfit("another number of them"));
        }
        if memmem::find(packed.as_bytes(), REPLACEMENT.as_bytes()).is_some()
            && packed.split('\0').any(|record| !record.starts_with(JSON) && record.contains(REPLACEMENT))
        {
            return Err(misfit("U+FFFD"));
        }
        Ok(Self { rest: packed, num_left: num_records })
    }

    /// Returns true if all records are taken.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the records up to an empty one, without that.
    ///
    /// # Errors
    /// `Malformed` if no empty record follows.
    pub(crate) fn group(&mut self) -> Result<Self> {
        let (whole, num_records) = (self.rest, self.num_left);
        loop {
            let start = whole.len() - self.rest.len();
            match self.next()? {
                None => return Err(misfit("a conversation without an end")),
                Some("") => {
                    let num_left = num_records - self.num_left - 1;
                    return Ok(Self { rest: &whole[..start], num_left });
                }
                Some(_) => {}
            }
        }
    }

    /// Returns the JSON of the messages, if these records are that.
    pub(crate) fn as_json(&self) -> Option<&'a str> {
        let record = self.rest.strip_suffix('\0').filter(|_| self.num_left == 1)?;
        record.strip_prefix(JSON)
    }

    /// Takes all records as messages.
    ///
    /// # Errors
    /// `Malformed` for a record that is not a message; the errors of [`Message::from_value`], with the message's
    /// index; `LimitExceeded` for too many messages.
    pub(crate) fn messages(&mut self) -> Result<Vec<Message>> {
        let mut messages = Vec::with_capacity(self.num_left.min(limits::MESSAGES_MAX));
        while let Some(record) = self.next()? {
            push(&mut messages, record)?;
        }
        Ok(messages)
    }
}

impl History {
    /// Reads `num_messages` packed messages: each is `s`, `u`, `a` or `t` for the role `system`, `user`, `assistant` or `tool` with the
    /// content after it, or a JSON object, and is followed by a NUL. Contents that contain a NUL or U+FFFD cannot be
    /// packed, as these are ambiguous with the end and with half a surrogate pair: send such messages as JSON, which
    /// [`History::from_json`] reads.
    ///
    /// # Errors
    /// `Malformed` if `packed` does not have that form; the errors of [`History::from_chats`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::History;
    /// let history = History::from_packed("u2+2?\0{\"role\":\"assistant\",\"content\":\"4\"}\0", 2)?;
    /// assert_eq!(history.to_json(), r#"[{"role":"user","content":"2+2?"},{"role":"assistant","content":"4"}]"#);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_packed(packed: &str, num_messages: usize) -> Result<Self> {
        Ok(Self { node: Node::Chat(Records::of(packed, num_messages)?.messages()?) })
    }
}

fn push(messages: &mut Vec<Message>, record: &str) -> Result<()> {
    let index = messages.len();
    check_num_messages(index + 1)?;
    messages.push(message(record).map_err(|error| error.at(format!("messages[{index}]")))?);
    Ok(())
}

fn message(record: &str) -> Result<Message> {
    let letter = record.as_bytes().first();
    if let Some((_, role)) = ROLES.iter().find(|(of_role, _)| Some(of_role) == letter) {
        return Message::new(role, &record[1..]);
    }
    let fields: Map<String, Value> = serde_json::from_str(&keep_integers(record)?).map_err(misfit)?;
    Message::from_value(Value::Object(fields))
}

fn misfit(got: impl fmt::Display) -> Error {
    let detail = format!("packed messages must be records of a role and a content, or of JSON: got {got}");
    Error::new(ErrorKind::Malformed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(packed: &str, num_messages: usize) -> Result<String> {
        Ok(History::from_packed(packed, num_messages)?.to_json())
    }

    #[test]
    fn letters_are_roles_and_objects_are_whole_messages() {
        let packed = "ué\0{\"role\":\"tool\",\"content\":null,\"x\":1.0}\0a\0u😀\n\0sS\0tT\0";
        let expected = concat!(
            r#"[{"role":"user","content":"é"},{"role":"tool","content":null,"x":1.0},"#,
            r#"{"role":"assistant","content":""},{"role":"user","content":"😀\n"},"#,
            r#"{"role":"system","content":"S"},{"role":"tool","content":"T"}]"#
        );
        assert_eq!(json_of(packed, 6).unwrap(), expected);
        assert_eq!(json_of("", 0).unwrap(), "[]");
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        for (packed, num_messages) in [
            ("u", 1),
            ("ua", 0),
            ("", 1),
            ("ua\0", 2),
            ("ua\0ub\0", 1),
            ("ua\u{fffd}\0", 1),
            ("ua\0\0", 2),
            ("[]\0", 1),
            ("1\0", 1),
            ("{\0", 1),
            ("{}\0", 1),
        ] {
            let error = json_of(packed, num_messages).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{packed:?}");
        }
        assert_eq!(json_of("ua\0{\"role\":\"\"}\0", 2).unwrap_err().kind(), ErrorKind::Empty);
    }
}
