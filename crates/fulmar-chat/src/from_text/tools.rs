//! Tool calls and tool answers between XML tags on their own lines, in Qwen's format.

use fulmar_core::keep_integers;
use memchr::memchr_iter;
use serde_json::Value;

use super::ParsedTurn;

const CALL: [&str; 2] = ["<tool_call>\n", "\n</tool_call>"];
const ANSWER: [&str; 2] = ["<tool_response>\n", "\n</tool_response>"];

/// Moves calls from the content of assistants into `tool_calls`, and makes a message of each answer inside a
/// tool turn, so that a parsed text renders as it was. A call that is not a JSON object stays in the content.
pub fn taken_out(turns: Vec<ParsedTurn>) -> Vec<ParsedTurn> {
    turns
        .into_iter()
        .flat_map(|turn| if turn.role == "assistant" { vec![with_calls(turn)] } else { answers(turn) })
        .collect()
}

fn with_calls(mut turn: ParsedTurn) -> ParsedTurn {
    let mut content = String::with_capacity(turn.content.len());
    let mut rest = turn.content.as_str();
    while let Some((before, body, after)) = block(rest, CALL) {
        content.push_str(before);
        match call_of(body) {
            Some(call @ Value::Object(_)) => {
                turn.tool_calls.push(call);
                content.truncate(content.trim_end().len());
            }
            _ => content.push_str(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    content.push_str(rest);
    turn.content = content.trim().to_owned();
    turn
}

/// Returns the JSON value of a call's text, integers with all their digits.
fn call_of(body: &str) -> Option<Value> {
    serde_json::from_str(&keep_integers(body).ok()?).ok()
}

/// Returns the answers of a turn that holds nothing else, or any other turn unchanged.
fn answers(turn: ParsedTurn) -> Vec<ParsedTurn> {
    let Some(bodies) = nested_bodies(&turn.content).or_else(|| plain_bodies(&turn.content)) else {
        return vec![turn];
    };
    let mut turns: Vec<ParsedTurn> = bodies.iter().map(|body| ParsedTurn::new("tool", body, true)).collect();
    if let Some(last) = turns.last_mut() {
        last.is_complete = turn.is_complete;
    }
    turns
}

/// Returns the bodies of answers whose own tags are balanced; `None` if the tags of the text are not.
fn nested_bodies(text: &str) -> Option<Vec<&str>> {
    let [open, close] = [ANSWER[0].trim_end(), ANSWER[1].trim_start()];
    let mut bodies = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for at in memchr_iter(b'<', text.as_bytes()) {
        let tag = &text[at..];
        if tag.starts_with(open) {
            if depth == 0 && !text[start..at].trim().is_empty() {
                return None;
            }
            depth += 1;
            start = if depth == 1 { at + open.len() } else { start };
        } else if tag.starts_with(close) {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                let body = text[start..at].strip_prefix('\n')?;
                // An empty body shares its one newline between the tags.
                bodies.push(if body.is_empty() { body } else { body.strip_suffix('\n')? });
                start = at + close.len();
            }
        }
    }
    let is_whole = depth == 0 && text[start..].trim().is_empty() && !bodies.is_empty();
    is_whole.then_some(bodies)
}

/// Returns the bodies of answers, each up to the first closing tag.
fn plain_bodies(text: &str) -> Option<Vec<&str>> {
    let mut bodies = Vec::new();
    let mut rest = text;
    while let Some((before, body, after)) = block(rest, ANSWER) {
        if !before.trim().is_empty() {
            return None;
        }
        bodies.push(body);
        rest = after;
    }
    (rest.trim().is_empty() && !bodies.is_empty()).then_some(bodies)
}

/// Returns the text before, in and after the first block of these tags.
fn block<'a>(text: &'a str, [open, close]: [&str; 2]) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, inner) = text.split_once(open)?;
    // An empty body shares its one newline between the tags.
    if let Some(after) = inner.strip_prefix(&close[1..]) {
        return Some((before, "", after));
    }
    let (body, after) = inner.split_once(close)?;
    Some((before, body, after))
}
