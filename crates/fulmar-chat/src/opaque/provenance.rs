//! Determines which characters of a template's output came from messages or tools.
//!
//! The conversation is rendered again with each given text replaced by another one of the same length.
//! Characters that change were given; all others are the template's own. A template that branches on the
//! texts may then render something else, so the result counts only if each difference is one replaced
//! character.

use std::ops::Range;

use serde_json::{Map, Value};

/// Fields whose values are part of the format, which templates compare.
const FORMAT_KEYS: [&str; 2] = ["role", "type"];

/// Values of `type` that templates compare; any other is a given text.
const FORMAT_TYPES: [&str; 9] =
    ["text", "function", "object", "string", "number", "integer", "boolean", "array", "null"];

/// Characters that printing may escape with a backslash, so that replacing them could change the length.
const QUOTES: [char; 3] = ['"', '\'', '\\'];

/// Returns the message with all given texts replaced.
pub fn disguised_message(fields: &Map<String, Value>) -> Map<String, Value> {
    let field = |(key, value): (&String, &Value)| match key.as_str() {
        "role" => (key.clone(), value.clone()),
        _ => (disguised_key(key, false), disguised(value, key)),
    };
    fields.iter().map(field).collect()
}

/// Returns the tools, or calls of tools, with all given texts replaced.
pub fn disguised_list(items: &[Value]) -> Vec<Value> {
    items.iter().map(|item| disguised(item, "")).collect()
}

/// Replaces all given texts in `value`, which has the key `key`. Names of arguments and of properties are
/// given texts, other names only if they could be more than a name.
fn disguised(value: &Value, key: &str) -> Value {
    let is_format = |text: &str| FORMAT_KEYS.contains(&key) && FORMAT_TYPES.contains(&text);
    match value {
        Value::String(text) if is_format(text) => value.clone(),
        Value::String(text) => Value::String(text.chars().map(replacement).collect()),
        Value::Array(items) => items.iter().map(|item| disguised(item, key)).collect(),
        Value::Object(fields) => {
            let are_given = key == "arguments" || key == "properties";
            let field = |(name, value): (&String, &Value)| {
                let inner = if key == "arguments" { key } else { name.as_str() };
                (disguised_key(name, are_given), disguised(value, inner))
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn disguised_key(key: &str, is_given: bool) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '$';
    if is_given || !key.chars().all(is_name) {
        return key.chars().map(replacement).collect();
    }
    key.to_owned()
}

/// Returns the replacement of `c`: another character with the same number of bytes and the same class (blank,
/// letter or sign), different for different characters. Blanks, quotes and control characters stay.
fn replacement(c: char) -> char {
    match c {
        '!'..='~' if !QUOTES.contains(&c) => {
            let next = |c: u8| if c == b'~' { b'!' } else { c + 1 };
            let mut code = next(c as u8);
            while QUOTES.contains(&char::from(code)) {
                code = next(code);
            }
            char::from(code)
        }
        c if c.is_ascii() => c,
        c => {
            let is_alike = |other: &char| {
                let kinds = |c: char| [c.is_alphanumeric(), c.is_whitespace(), c.is_control()];
                kinds(c) == kinds(*other) && !c.is_whitespace() && !c.is_control()
            };
            char::from_u32(u32::from(c) ^ 1).filter(is_alike).unwrap_or(c)
        }
    }
}

/// Returns whether `text` holds a character that a disguise changes.
pub fn is_visible(text: &str) -> bool {
    text.chars().any(|c| replacement(c) != c)
}

/// Returns the ranges of `text` that were given, in bytes, if `disguised` equals `text` everywhere else.
pub fn given_ranges(text: &str, disguised: &str) -> Option<Vec<Range<usize>>> {
    if text.len() != disguised.len() {
        return None;
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut others = disguised.chars();
    for (at, c) in text.char_indices() {
        let other = others.next()?;
        if other == c {
            continue;
        }
        if other != replacement(c) {
            return None;
        }
        let end = at + c.len_utf8();
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => ranges.push(at..end),
        }
    }
    Some(ranges)
}

/// Returns whether `start..end` shares a character with one of `ranges`, which are in order.
pub fn overlaps(ranges: &[Range<usize>], start: usize, end: usize) -> bool {
    let first = ranges.partition_point(|range| range.end <= start);
    ranges.get(first).is_some_and(|range| range.start < end)
}

/// Returns whether one of the given texts in `fields` could produce `marker` or a part of it: it contains the
/// marker, overlaps its beginning or end, or is a piece of it.
pub fn could_give(fields: &Map<String, Value>, marker: &str) -> bool {
    fields.iter().any(|(key, value)| {
        let is_format = FORMAT_KEYS.contains(&key.as_str()) && value.is_string();
        key.contains(marker) || !is_format && value_could_give(value, marker)
    })
}

fn value_could_give(value: &Value, marker: &str) -> bool {
    match value {
        Value::String(text) => {
            let core = text.trim();
            let shares_end = |(at, _)| core.ends_with(&marker[..at]) || core.starts_with(&marker[at..]);
            let is_piece = core.contains(marker) || marker.contains(core);
            !core.is_empty() && (is_piece || marker.char_indices().skip(1).any(shares_end))
        }
        Value::Array(items) => items.iter().any(|item| value_could_give(item, marker)),
        Value::Object(fields) => could_give(fields, marker),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_disguise_keeps_lengths_blanks_and_quotes_and_changes_all_else() {
        let mut seen = std::collections::HashSet::new();
        for code in 0..0x3_0000_u32 {
            let Some(c) = char::from_u32(code) else { continue };
            let other = replacement(c);
            assert!(seen.insert(other), "{c:?}: different characters stay different");
            assert_eq!(c.len_utf8(), other.len_utf8(), "{c:?}");
            assert_eq!(c.is_whitespace(), other.is_whitespace(), "{c:?}");
            assert!(other != c || !c.is_ascii_graphic() || QUOTES.contains(&c), "{c:?} is changed");
        }
        assert!(is_visible("<|im_end|>") && is_visible("猫") && !is_visible(" \n\"'\\"));
    }

    #[test]
    fn words_of_the_format_stay_and_given_words_do_not() {
        let message = json!({
            "role": "assistant", "content": [{ "type": "text", "text": "ab" }],
            "tool_calls": [{ "type": "function", "id": "c", "function": { "name": "f", "arguments": { "a": "text" } } }],
        });
        let disguised = Value::Object(disguised_message(message.as_object().unwrap()));
        let expected = json!({
            "role": "assistant", "content": [{ "type": "text", "text": "bc" }],
            "tool_calls": [{ "type": "function", "id": "d", "function": { "name": "g", "arguments": { "b": "ufyu" } } }],
        });
        assert_eq!(disguised, expected);
        let tool = json!({ "parameters": { "type": "object", "properties": { "x": { "type": "string" } }, "required": ["x"] } });
        let expected = json!({ "parameters": { "type": "object", "properties": { "y": { "type": "string" } }, "required": ["y"] } });
        assert_eq!(disguised_list(&[tool]), [expected]);
    }

    #[test]
    fn only_replaced_characters_count_as_given() {
        assert_eq!(given_ranges("<a b> a", "<b c> a"), Some(vec![1..2, 3..4]));
        assert_eq!(given_ranges("<a>", "<a>"), Some(vec![]));
        assert_eq!(given_ranges("<a>", "<c>"), None, "another letter");
        assert_eq!(given_ranges("<a>", "<b>!"), None, "another length");
        assert!(overlaps(&[1..2, 3..4], 2, 4) && !overlaps(&[1..2, 3..4], 2, 3));
    }

    #[test]
    fn pieces_of_a_marker_could_give_it() {
        for text in ["a <|end|> b", "<|e", "a <|", "nd|> b", "end", "\n|>"] {
            assert!(value_could_give(&json!([{ "text": text }]), "<|end|>"), "{text:?}");
        }
        for text in ["", "a", "the end of it", "< |end|", "<|begin|>x"] {
            assert!(!value_could_give(&json!({ "role": "end", "text": text }), "<|end|>"), "{text:?}");
        }
    }
}
