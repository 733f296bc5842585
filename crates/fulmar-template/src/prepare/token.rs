//! Finds tags and splits them into words.

/// The kind of a word, as far as rewriting needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Name,
    /// A number.
    Number,
    /// A string literal.
    Text,
    /// Anything else.
    Operator,
}

/// One word of a tag.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    /// The kind.
    pub kind: Kind,
    /// Its first byte in the source.
    pub start: usize,
    /// The byte after it.
    pub end: usize,
}

impl Token {
    /// Returns the word itself.
    pub fn text(self, source: &str) -> &str {
        &source[self.start..self.end]
    }
}

/// A tag with the words between its delimiters.
#[derive(Debug)]
pub struct Tag {
    /// The words.
    pub tokens: Vec<Token>,
    /// The start of the closing delimiter, whitespace control included.
    pub closer: usize,
    /// The byte after the closing delimiter.
    pub end: usize,
}

/// Operators of two characters.
const PAIRS: [&str; 6] = ["==", "!=", "<=", ">=", "//", "**"];

/// Reads the tag whose opening delimiter is at `start`; `None` if it never ends or its brackets do not match.
pub fn read_tag(source: &str, start: usize) -> Option<Tag> {
    let bytes = source.as_bytes();
    let close: &[u8] = if bytes[start + 1] == b'%' { b"%}" } else { b"}}" };
    let mut at = start + 2;
    if matches!(bytes.get(at), Some(b'-' | b'+')) {
        at += 1;
    }
    let mut tokens = Vec::new();
    let mut open = Vec::new();
    loop {
        at += source[at..].len() - source[at..].trim_start().len();
        let first = *bytes.get(at)?;
        if open.is_empty() {
            let control = usize::from(matches!(first, b'-' | b'+'));
            if bytes[at + control..].starts_with(close) {
                return Some(Tag { tokens, closer: at, end: at + control + 2 });
            }
        }
        let (kind, end) = read_token(source, at)?;
        match first {
            b'(' => open.push(b')'),
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            b')' | b']' | b'}' if open.pop() != Some(first) => return None,
            _ => {}
        }
        tokens.push(Token { kind, start: at, end });
        at = end;
    }
}

fn read_token(source: &str, at: usize) -> Option<(Kind, usize)> {
    let rest = &source[at..];
    let first = rest.chars().next()?;
    if first == '_' || first.is_alphabetic() {
        let length = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
        return Some((Kind::Name, at + length));
    }
    if first.is_ascii_digit() {
        let follows_dot = at > 0 && source.as_bytes()[at - 1] == b'.';
        return Some((Kind::Number, at + number_length(rest.as_bytes(), follows_dot)));
    }
    if matches!(first, '\'' | '"') {
        return Some((Kind::Text, at + text_length(rest.as_bytes())?));
    }
    let length = if PAIRS.iter().any(|pair| rest.starts_with(pair)) { 2 } else { first.len_utf8() };
    Some((Kind::Operator, at + length))
}

/// Returns the length of digits with fraction and exponent. After a dot only digits count: `x.0.1` is two
/// subscripts.
fn number_length(bytes: &[u8], follows_dot: bool) -> usize {
    let digits = |from: usize| {
        let is_digit = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        from + bytes[from..].iter().take_while(is_digit).count()
    };
    let mut end = digits(0);
    if follows_dot {
        return end;
    }
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    let has_exponent =
        matches!(bytes[end - 1], b'e' | b'E') && !bytes.starts_with(b"0x") && !bytes.starts_with(b"0X");
    if has_exponent
        && matches!(bytes.get(end), Some(b'-' | b'+'))
        && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)
    {
        end = digits(end + 1);
    }
    end
}

/// Returns the length of a string literal with its quotes; `None` if it is not closed.
fn text_length(bytes: &[u8]) -> Option<usize> {
    let quote = bytes[0];
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// Returns whether `tag` is `{% name %}`, with any whitespace control.
pub fn is_tag(tag: &str, name: &str) -> bool {
    let inside = tag[2..].strip_prefix(['-', '+']).unwrap_or(&tag[2..]);
    let Some(rest) = inside.trim_start().strip_prefix(name) else { return false };
    let rest = rest.trim_start();
    rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with("%}")
}

/// Returns the end of the `endraw` tag of the `raw` tag at `start`.
pub fn end_of_raw(source: &str, start: usize) -> Option<usize> {
    let mut at = start + 2;
    loop {
        at += source[at..].find("{%")?;
        if is_tag(&source[at..], "endraw") {
            return Some(at + source[at..].find("%}")? + 2);
        }
        at += 2;
    }
}
