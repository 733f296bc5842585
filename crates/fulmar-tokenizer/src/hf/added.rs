//! Added tokens, such as `<|im_end|>`, and their occurrences in a text.

use aho_corasick::{AhoCorasick, MatchKind};
use fulmar_core::{Error, ErrorKind};
use serde::Deserialize;

use crate::Result;

/// One entry of `added_tokens`.
#[derive(Debug, Clone, Deserialize)]
pub struct AddedToken {
    #[serde(default)]
    pub id: u32,
    pub content: String,
    /// If true, matches only if no letter or digit is adjacent.
    #[serde(default)]
    pub single_word: bool,
    /// If true, includes the spaces before it.
    #[serde(default)]
    pub lstrip: bool,
    /// If true, includes the spaces after it.
    #[serde(default)]
    pub rstrip: bool,
    /// If true, is searched for in the normalised text.
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// Returns a special token that matches exactly its name.
    pub fn special(id: u32, content: &str) -> Self {
        let content = content.to_owned();
        Self {
            id,
            content,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }
}

/// A range of text, `start..end` in bytes: an added token, or the text between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub id: Option<u32>,
    pub start: usize,
    pub end: usize,
}

/// Finds added tokens in text: the leftmost, ties by length.
#[derive(Debug)]
pub struct Finder {
    automaton: Option<AhoCorasick>,
    tokens: Vec<AddedToken>,
}

impl Finder {
    /// Searches for `patterns[i]` as `tokens[i]`.
    pub fn new(patterns: &[String], tokens: Vec<AddedToken>) -> Result<Self> {
        let mut builder = AhoCorasick::builder();
        let automaton = builder.match_kind(MatchKind::LeftmostLongest).build(patterns).map_err(|error| {
            Error::new(ErrorKind::LimitExceeded, format!("added_tokens must fit one automaton: got {error}"))
                .because(error)
        })?;
        Ok(Self { automaton: (!tokens.is_empty()).then_some(automaton), tokens })
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Splits `text` at the added tokens in it. Two tokens that include the same spaces may overlap.
    pub fn split(&self, text: &str) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut last_end = 0;
        let Some(automaton) = &self.automaton else {
            return vec![Stretch { id: None, start: 0, end: text.len() }];
        };
        for found in automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (before, behind) = (&text[..found.start()], &text[found.end()..]);
            if token.single_word && touches_word(before, behind) {
                continue;
            }
            let mut start = found.start();
            if token.lstrip {
                start = before.trim_end().len().max(last_end);
            }
            let spaces = if token.rstrip { behind.len() - behind.trim_start().len() } else { 0 };
            if last_end < start {
                stretches.push(Stretch { id: None, start: last_end, end: start });
            }
            last_end = found.end() + spaces;
            stretches.push(Stretch { id: Some(token.id), start, end: last_end });
        }
        if last_end < text.len() {
            stretches.push(Stretch { id: None, start: last_end, end: text.len() });
        }
        stretches
    }
}

/// The added tokens, those that are looked for in the text as it is and those in the normalised text.
pub fn finders(tokens: &[AddedToken], normalized: impl Fn(&str) -> Result<String>) -> Result<[Finder; 2]> {
    let (normal, raw): (Vec<_>, Vec<_>) = tokens.iter().cloned().partition(|token| token.normalized);
    let as_they_are: Vec<String> = raw.iter().map(|token| token.content.clone()).collect();
    let mut patterns = Vec::with_capacity(normal.len());
    let mut found = Vec::with_capacity(normal.len());
    for token in normal {
        let pattern = normalized(&token.content)?;
        if !pattern.is_empty() {
            patterns.push(pattern);
            found.push(token);
        }
    }
    Ok([Finder::new(&as_they_are, raw)?, Finder::new(&patterns, found)?])
}

fn touches_word(before: &str, behind: &str) -> bool {
    let is_word = |character: Option<char>| character.is_some_and(regex_syntax::is_word_character);
    is_word(before.chars().next_back()) || is_word(behind.chars().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut AddedToken);

    fn finder(tokens: &[(&str, Change)]) -> Finder {
        let tokens: Vec<AddedToken> = (0..)
            .zip(tokens)
            .map(|(id, (content, set))| {
                let mut token = AddedToken::special(id, content);
                set(&mut token);
                token
            })
            .collect();
        let patterns: Vec<String> = tokens.iter().map(|token| token.content.clone()).collect();
        Finder::new(&patterns, tokens).unwrap()
    }

    fn split<'a>(finder: &Finder, text: &'a str) -> Vec<(Option<u32>, &'a str)> {
        finder.split(text).iter().map(|stretch| (stretch.id, &text[stretch.start..stretch.end])).collect()
    }

    #[test]
    fn the_leftmost_and_longest_token_is_found() {
        let finder = finder(&[("<a>", |_| {}), ("<a><b>", |_| {}), ("b>x", |_| {})]);
        assert_eq!(split(&finder, "<a><b>x<a>"), [(Some(1), "<a><b>"), (None, "x"), (Some(0), "<a>")]);
        assert_eq!(split(&finder, "é"), [(None, "é")]);
        assert_eq!(split(&finder, ""), []);
    }

    #[test]
    fn stripping_tokens_take_the_spaces_beside_them() {
        let finder = finder(&[("<l>", |token| token.lstrip = true), ("<r>", |token| token.rstrip = true)]);
        let expected =
            [(None, "a"), (Some(0), " \u{3000}<l>"), (None, " "), (Some(1), "<r>\n "), (None, "b")];
        assert_eq!(split(&finder, "a \u{3000}<l> <r>\n b"), expected);
        assert_eq!(split(&finder, "<r>  <l>"), [(Some(1), "<r>  "), (Some(0), "<l>")]);
    }

    #[test]
    fn single_words_touch_no_letter_digit_mark_or_underscore() {
        let finder = finder(&[("day", |token| token.single_word = true)]);
        for text in ["days", "1day", "_day", "day\u{301}", "aday"] {
            assert_eq!(split(&finder, text), [(None, text)], "{text}");
        }
        assert_eq!(split(&finder, "a day."), [(None, "a "), (Some(0), "day"), (None, ".")]);
    }
}
