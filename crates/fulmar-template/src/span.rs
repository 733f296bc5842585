//! Marks in rendered text, and their conversion to spans.
//!
//! A `generation` tag writes one private-use character where it opens and one where it closes. They pass
//! through macros, `set` blocks and filters like any text, and are removed at the end. The two characters are
//! chosen for each rendering so that neither the template nor its data contains them.

use std::collections::BTreeSet;

use fulmar_core::{Error, ErrorKind, Result};
use memchr::{memchr, memchr_iter};
use serde_json::{Map, Value as Json};

/// The range of marks: the first supplementary private-use plane. All of it starts with byte 0xF3 in UTF-8.
const PLANE: std::ops::RangeInclusive<u32> = 0xF_0000..=0xF_FFFD;
const FIRST_BYTE: u8 = 0xF3;

/// The characters that mark the start and the end of a span.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// Start of a span.
    pub open: char,
    /// End of a span.
    pub close: char,
}

/// The characters of the plane that texts contain.
#[derive(Debug, Clone, Default)]
pub struct Taken(BTreeSet<char>);

impl Taken {
    /// Records the characters of a text, in one pass that searches for one byte.
    pub fn add_text(&mut self, text: &str) {
        if memchr(FIRST_BYTE, text.as_bytes()).is_some() {
            self.0.extend(text.chars().filter(|c| PLANE.contains(&u32::from(*c))));
        }
    }

    /// Records the characters of every text in `json`, keys included.
    pub fn add_json(&mut self, json: &Json) {
        match json {
            Json::String(text) => self.add_text(text),
            Json::Array(items) => items.iter().for_each(|item| self.add_json(item)),
            Json::Object(map) => self.add_map(map),
            _ => {}
        }
    }

    /// Records the characters of every key and every text of a JSON object.
    pub fn add_map(&mut self, map: &Map<String, Json>) {
        for (key, value) in map {
            self.add_text(key);
            self.add_json(value);
        }
    }

    /// Returns the first two unused characters.
    ///
    /// # Errors
    /// `LimitExceeded` if the texts contain all 65,534 of them.
    pub fn free(&self) -> Result<Marks> {
        let mut free = PLANE.filter_map(char::from_u32).filter(|c| !self.0.contains(c));
        match (free.next(), free.next()) {
            (Some(open), Some(close)) => Ok(Marks { open, close }),
            _ => Err(Error::new(
                ErrorKind::LimitExceeded,
                "texts must leave two of the characters U+F0000..U+FFFFD unused",
            )),
        }
    }
}

/// Returns the text without marks, and the spans between them in bytes of it, in order. Of nested spans only
/// the outermost counts; a mark without its partner, cut off by a filter, is dropped.
pub fn extract(marked: String, marks: Marks) -> (String, Vec<[usize; 2]>) {
    let mut starts = Vec::new();
    let mut spans = Vec::new();
    let mut text = String::new();
    let mut copied = 0;
    for at in memchr_iter(FIRST_BYTE, marked.as_bytes()) {
        let is_open = marked[at..].starts_with(marks.open);
        if !is_open && !marked[at..].starts_with(marks.close) {
            continue;
        }
        if text.is_empty() {
            text.reserve(marked.len());
        }
        text.push_str(&marked[copied..at]);
        copied = at + marks.open.len_utf8();
        if is_open {
            starts.push((text.len(), spans.len()));
        } else if let Some((start, num_before)) = starts.pop() {
            // The spans inside this one came first.
            spans.truncate(num_before);
            spans.push([start, text.len()]);
        }
    }
    if copied == 0 {
        return (marked, spans);
    }
    text.push_str(&marked[copied..]);
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
