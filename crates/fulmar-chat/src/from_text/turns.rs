//! Formats that separate turns by words and the end-of-sequence token.

use super::ParsedTurn;

/// Parses alternating turns closed by `eos_token`, the user's first; without the token in the text, lines
/// that begin with a name.
pub fn dialogpt(text: &str, eos_token: Option<&str>) -> Vec<ParsedTurn> {
    match eos_token.filter(|eos| text.contains(eos)) {
        Some(eos) => alternating(text, eos),
        None => text.trim().lines().filter_map(named_line).collect(),
    }
}

fn alternating(text: &str, eos: &str) -> Vec<ParsedTurn> {
    let mut turns = Vec::new();
    let mut rest = text;
    loop {
        let role = if turns.len() % 2 == 0 { "user" } else { "assistant" };
        let Some((content, after)) = rest.split_once(eos) else {
            // The generation prompt is one space: an assistant's turn has been opened.
            let is_open = if role == "assistant" { !rest.is_empty() } else { !rest.trim().is_empty() };
            if is_open {
                turns.push(ParsedTurn::new(role, rest, false));
            }
            return turns;
        };
        turns.push(ParsedTurn::new(role, content, true));
        rest = after;
    }
}

fn named_line(line: &str) -> Option<ParsedTurn> {
    let line = line.trim();
    let named = [("assistant", "Assistant:"), ("user", "User:")];
    let found = named.into_iter().find_map(|(role, name)| Some((role, line.strip_prefix(name)?)));
    let (role, content) = found.unwrap_or(("user", line));
    (!line.is_empty()).then(|| ParsedTurn::new(role, content, true))
}

/// Parses turns: a user's ends with an empty line, an assistant's with a newline; text before the first is
/// the system message. So a user's line that begins with a name is not a turn.
pub fn falcon(text: &str) -> Vec<ParsedTurn> {
    let is_behind = |before: &str, role: Option<&str>| match role {
        Some("user") => before.ends_with("\n\n"),
        Some(_) => before.ends_with('\n'),
        None => before.trim().is_empty() || before.ends_with("\n\n"),
    };
    let headers = headers(text, &is_behind);
    let close = |content: &str| content.strip_suffix('\n').map(str::len);
    between(text, 0, &headers, &close)
}

/// Parses turns as [`falcon`] does, but an assistant's turn ends with the end-of-sequence token, and the text
/// may begin with a token.
pub fn deepseek(text: &str, eos_token: Option<&str>) -> Vec<ParsedTurn> {
    let begin = text.len() - without_bos(text).len();
    let close = |content: &str| match eos_token {
        Some(eos) => content.trim_end().strip_suffix(eos).map(str::len),
        None => trailing_token(content.trim_end()),
    };
    let is_behind = |before: &str, role: Option<&str>| match role {
        Some("assistant") => close(before).is_some(),
        Some(_) => before.ends_with("\n\n"),
        None => before.len() <= begin || before.ends_with("\n\n"),
    };
    let headers = headers(text, &is_behind);
    between(text, begin, &headers, &close)
}

/// The header of a turn: its start, the start of its content, and its role.
struct Header {
    start: usize,
    content: usize,
    role: &'static str,
}

/// Returns the headers of `text`: names at positions where `is_behind` allows a turn, given the text before
/// it and the role of the previous turn.
fn headers(text: &str, is_behind: &dyn Fn(&str, Option<&str>) -> bool) -> Vec<Header> {
    let mut found: Vec<Header> = Vec::new();
    let mut at = 0;
    while let Some(colon) = text[at..].find(':').map(|index| at + index) {
        for (role, name) in [("user", "User"), ("assistant", "Assistant")] {
            if text[..colon].ends_with(name)
                && colon - name.len() >= at
                && is_behind(&text[..colon - name.len()], found.last().map(|header| header.role))
            {
                found.push(Header { start: colon - name.len(), content: colon + 1, role });
            }
        }
        at = colon + 1;
    }
    found
}

/// Returns the turns after `headers`; `close` returns the length of a closed assistant's content without its
/// end.
fn between(
    text: &str,
    begin: usize,
    headers: &[Header],
    close: &dyn Fn(&str) -> Option<usize>,
) -> Vec<ParsedTurn> {
    let mut turns = Vec::with_capacity(headers.len() + 1);
    let Some(first) = headers.first() else {
        return turns;
    };
    if !text[begin..first.start].trim().is_empty() {
        turns.push(ParsedTurn::new("system", &text[begin..first.start], true));
    }
    for (index, header) in headers.iter().enumerate() {
        let next = headers.get(index + 1);
        let content = &text[header.content..next.map_or(text.len(), |next| next.start)];
        let closed =
            if header.role == "user" { content.strip_suffix("\n\n").map(str::len) } else { close(content) };
        let is_complete = closed.is_some() || next.is_some();
        turns.push(ParsedTurn::new(header.role, &content[..closed.unwrap_or(content.len())], is_complete));
    }
    turns
}

/// Returns `text` without a leading token between angle brackets.
fn without_bos(text: &str) -> &str {
    match text.strip_prefix('<').and_then(|inner| inner.split_once('>')) {
        Some((name, rest)) if is_token_name(name) => rest,
        _ => text,
    }
}

/// Returns the length of `text` without the token between angle brackets that ends it.
fn trailing_token(text: &str) -> Option<usize> {
    let inner = text.strip_suffix('>')?;
    let name_start = inner.char_indices().rev().take(TOKEN_NAME_LENGTH_MAX + 1).find(|(_, c)| *c == '<')?.0;
    is_token_name(&inner[name_start + 1..]).then_some(name_start)
}

/// Names of tokens are short; longer searches would read a hostile text over and over.
const TOKEN_NAME_LENGTH_MAX: usize = 64;

fn is_token_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().take(TOKEN_NAME_LENGTH_MAX + 1).count() <= TOKEN_NAME_LENGTH_MAX
        && !name.contains(|c: char| c.is_whitespace() || c == '<')
}
