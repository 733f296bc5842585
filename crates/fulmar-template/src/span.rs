//! Marks in rendered text, and the spans they become.
//!
//! A `generation` tag writes one private-use character where it opens and one where it closes. They travel through
//! macros, `set` blocks and filters like any text, and are taken out at the end. The two characters are chosen for each
//! rendering so that neither the template nor its data holds them.

use std::collections::BTreeSet;

use fulmar_core::{Error, ErrorKind, Result};
use serde_json::{Map, Value as Json};

/// Where the marks come from: the first supplementary private-use plane. All of it starts with byte 0xF3 in UTF-8.
const PLANE: std::ops::RangeInclusive<u32> = 0xF_0000..=0xF_FFFD;
const FIRST_BYTE: u8 = 0xF3;

/// The characters that stand for the start and the end of a span.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// Start of a span.
    pub open: char,
    /// End of a span.
    pub close: char,
}

/// The characters of the plane that texts hold.
#[derive(Debug, Clone, Default)]
pub struct Taken(BTreeSet<char>);

impl Taken {
    /// Notes the characters of a text. One pass that looks for one byte.
    pub fn add_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if bytes.contains(&FIRST_BYTE) {
            self.0.extend(text.chars().filter(|c| PLANE.contains(&u32::from(*c))));
        }
    }

    /// Notes the characters of every text in `json`, keys included.
    pub fn add_json(&mut self, json: &Json) {
        match json {
            Json::String(text) => self.add_text(text),
            Json::Array(items) => items.iter().for_each(|item| self.add_json(item)),
            Json::Object(map) => self.add_map(map),
            _ => {}
        }
    }

    /// Notes the characters of every key and every text of a JSON object.
    pub fn add_map(&mut self, map: &Map<String, Json>) {
        for (key, value) in map {
            self.add_text(key);
            self.add_json(value);
        }
    }

    /// The first two characters that nobody uses.
    ///
    /// # Errors
    /// `LimitExceeded` if the texts hold all 65,534 of them.
    pub fn free(&self) -> Result<Marks> {
        let mut free = PLANE.filter_map(char::from_u32).filter(|c| !self.0.contains(c));
        match (free.next(), free.next()) {
            (Some(open), Some(close)) => Ok(Marks { open, close }),
            _ => Err(Error::new(
                ErrorKind::LimitExceeded,
                "texts must leave two of U+F0000..U+FFFFD free: got none",
            )),
        }
    }
}

/// The text without marks, and the spans between them in bytes of it, in order. Of spans inside others the outermost
/// counts; a mark whose partner a filter cut off is dropped.
pub fn extract(marked: String, marks: Marks) -> (String, Vec<[usize; 2]>) {
    if !marked.as_bytes().contains(&FIRST_BYTE) {
        return (marked, Vec::new());
    }
    let mut text = String::with_capacity(marked.len());
    let mut spans = Vec::new();
    let mut starts = Vec::new();
    let mut rest = marked.as_str();
    while let Some(at) = rest.find([marks.open, marks.close]) {
        text.push_str(&rest[..at]);
        if rest[at..].starts_with(marks.open) {
            starts.push((text.len(), spans.len()));
        } else if let Some((start, num_before)) = starts.pop() {
            // The spans inside this one came first.
            spans.truncate(num_before);
            spans.push([start, text.len()]);
        }
        rest = &rest[at + marks.open.len_utf8()..];
    }
    text.push_str(rest);
    (text, spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_spans_and_outer_spans_hold_inner_ones() {
        let marks = Marks { open: '\u{F0000}', close: '\u{F0001}' };
        let marked = "a<b>c<d<e>f>g><h".replace('<', "\u{F0000}").replace('>', "\u{F0001}");
        let (text, spans) = extract(marked, marks);
        assert_eq!((text.as_str(), spans), ("abcdefgh", vec![[1, 2], [3, 6]]));
    }

    #[test]
    fn marks_avoid_what_the_texts_hold() {
        let mut taken = Taken::default();
        taken.add_json(&serde_json::json!({"a\u{F0000}": ["\u{F0002}", {"b": "\u{F0001}"}]}));
        let marks = taken.free().unwrap();
        assert_eq!((marks.open, marks.close), ('\u{F0003}', '\u{F0004}'));
    }

    #[test]
    fn texts_that_hold_every_mark_are_refused() {
        let mut taken = Taken::default();
        taken.add_text(&PLANE.filter_map(char::from_u32).collect::<String>());
        assert_eq!(taken.free().unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
