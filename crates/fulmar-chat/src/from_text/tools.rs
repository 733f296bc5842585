//! Tool calls and tool answers between XML tags on lines of their own, as Qwen writes them.

use serde_json::Value;

use super::ParsedTurn;

const CALL: [&str; 2] = ["<tool_call>\n", "\n</tool_call>"];
const ANSWER: [&str; 2] = ["<tool_response>\n", "\n</tool_response>"];

/// Calls move from the content of assistants into `tool_calls`; each answer inside a tool's turn becomes a message. So
/// what was read renders as it was written. A call that is no JSON object stays in the content.
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
        match serde_json::from_str::<Value>(body) {
            Ok(call @ Value::Object(_)) => {
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

/// The answers of a turn that holds nothing else; any other turn as it is.
fn answers(turn: ParsedTurn) -> Vec<ParsedTurn> {
    let mut turns: Vec<ParsedTurn> = Vec::new();
    let mut rest = turn.content.as_str();
    while let Some((before, body, after)) = block(rest, ANSWER) {
        if !before.trim().is_empty() {
            return vec![turn];
        }
        turns.push(ParsedTurn::new("tool", body, true));
        rest = after;
    }
    match turns.last_mut() {
        Some(last) if rest.trim().is_empty() => {
            last.is_complete = turn.is_complete;
            turns
        }
        _ => vec![turn],
    }
}

/// What stands before, in and behind the first block of these tags.
fn block<'a>(text: &'a str, [open, close]: [&str; 2]) -> Option<(&'a str, &'a str, &'a str)> {
    let (before, inner) = text.split_once(open)?;
    // An empty body shares its one newline between the tags.
    if let Some(after) = inner.strip_prefix(&close[1..]) {
        return Some((before, "", after));
    }
    let (body, after) = inner.split_once(close)?;
    Some((before, body, after))
}
