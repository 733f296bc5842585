//! The parts of a line of an ARFF file.

use fulmar_core::{Error, ErrorKind, Result};

use crate::arff::corrupt;

/// A line that is read from its beginning.
pub(crate) struct Line<'a> {
    rest: &'a str,
}

impl<'a> Line<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    /// Returns the next character that is no blank.
    pub(crate) fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    pub(crate) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the characters up to the next blank.
    pub(crate) fn word(&mut self) -> &'a str {
        self.peek();
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// Takes the name of an attribute.
    pub(crate) fn name(&mut self) -> Result<String> {
        let name = match self.peek() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
            _ => {
                let end = self.rest.find(|next: char| next.is_whitespace() || next == '{');
                self.take(end.unwrap_or(self.rest.len())).to_owned()
            }
        };
        if name.is_empty() { Err(corrupt("an attribute must have a name: got nothing")) } else { Ok(name) }
    }

    /// Takes a list of values in braces.
    pub(crate) fn nominal(&mut self) -> Result<Vec<String>> {
        let mut inner = self.braces()?;
        let mut values = Vec::new();
        while inner.peek().is_some() {
            values.push(inner.value(',')?.unwrap_or_else(|| "?".to_owned()));
        }
        Ok(values)
    }

    /// Takes a sparse row: places and values in braces.
    pub(crate) fn sparse(&mut self) -> Result<Vec<(usize, Option<String>)>> {
        let mut inner = self.braces()?;
        let mut values = Vec::new();
        let mut next_place = 0;
        while inner.peek().is_some() {
            let word = inner.word();
            let place = word.parse::<usize>().ok().filter(|place| *place >= next_place);
            let place = place.ok_or_else(|| {
                corrupt(format!("a sparse row must name attributes by number in order: got {word:?}"))
            })?;
            next_place = place + 1;
            values.push((place, inner.value(',')?));
        }
        Ok(values)
    }

    /// Takes a value, and the separator behind it. `None` is a missing value.
    pub(crate) fn value(&mut self, separator: char) -> Result<Option<String>> {
        let value = match self.peek() {
            Some(quote @ ('\'' | '"')) => Some(self.quoted(quote)?),
            _ => {
                let end = self.rest.find(separator).unwrap_or(self.rest.len());
                let text = self.take(end).trim_end();
                if text.is_empty() {
                    return Err(corrupt("a value must not be empty: got nothing before a comma or the end"));
                }
                (text != "?").then(|| text.to_owned())
            }
        };
        match self.peek() {
            None => Ok(value),
            Some(next) if next == separator => {
                self.take(next.len_utf8());
                self.peek().ok_or_else(|| corrupt("a comma must have a value behind it: got the end"))?;
                Ok(value)
            }
            Some(_) => {
                let rest: String = self.rest.chars().take(20).collect();
                Err(corrupt(format!("a value must end at a comma: got {rest:?}")))
            }
        }
    }

    /// Takes what is in braces, to the end of the line.
    fn braces(&mut self) -> Result<Line<'a>> {
        let mut open = None;
        let mut is_escaped = false;
        for (at, next) in self.rest.char_indices().skip(1) {
            match (next, open) {
                _ if is_escaped => is_escaped = false,
                ('\\', Some(_)) => is_escaped = true,
                ('\'' | '"', None) => open = Some(next),
                (quote, Some(by)) if quote == by => open = None,
                ('}', None) => {
                    let inner = Line::new(&self.rest[1..at]);
                    self.take(at + 1);
                    return if self.peek().is_none_or(|next| next == '%') {
                        Ok(inner)
                    } else {
                        Err(weights())
                    };
                }
                _ => {}
            }
        }
        Err(corrupt("a brace must be closed on its line: it is open"))
    }

    /// Takes a text in quotes.
    fn quoted(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, next)) = chars.next() {
            match next {
                '\\' => text.extend(chars.next().map(|(_, escaped)| unescaped(escaped))),
                _ if next == quote => {
                    self.take(at + quote.len_utf8());
                    return Ok(text);
                }
                _ => text.push(next),
            }
        }
        Err(corrupt(format!("a quote {quote} must be closed on its line: it is open")))
    }

    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

fn unescaped(escaped: char) -> char {
    match escaped {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        other => other,
    }
}

fn weights() -> Error {
    let detail = "a list in braces must end the line: rows with weights are not read";
    Error::new(ErrorKind::Incompatible, detail)
}
