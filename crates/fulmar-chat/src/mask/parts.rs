//! The parts of an assistant's turn: reasoning, then content, then tool calls.

use fulmar_core::{Error, ErrorKind};

use super::turn::TextTurn;
use crate::{Message, Result};

/// Returns the part of `turn` that counts, in bytes of `text`: without reasoning at its beginning or calls at
/// its end, as requested.
///
/// # Errors
/// `Incompatible` if tool calls are excluded and the message's content is not in the turn.
pub fn counted(
    text: &str,
    turn: TextTurn,
    message: &Message,
    reasoning: bool,
    tool_calls: bool,
) -> Result<[usize; 2]> {
    let body = &text[turn.start..turn.body_end];
    let thought = end_of_reasoning(body, message);
    let start = if reasoning { 0 } else { thought };
    let end = if tool_calls || !message.has_tool_calls() {
        body.len()
    } else {
        end_of_content(body, thought, message, turn)?
    };
    Ok([turn.start + start, turn.start + end.max(start)])
}

/// Returns the end of the reasoning of `body`, its closing tag and the space after it included; 0 without
/// reasoning.
fn end_of_reasoning(body: &str, message: &Message) -> usize {
    let named = message.reasoning().map(str::trim).filter(|reasoning| !reasoning.is_empty());
    let end = match named.and_then(|reasoning| body.find(reasoning).map(|at| at + reasoning.len())) {
        Some(end) => behind_closing_tag(body, end),
        None => body.find("</think>").map(|at| at + "</think>".len()),
    };
    end.map_or(0, |end| body.len() - body[end..].trim_start().len())
}

/// Returns the end of a tag like `</think>` or `[/THINK]` that follows `at`, else `at`.
fn behind_closing_tag(body: &str, at: usize) -> Option<usize> {
    let rest = body[at..].trim_start();
    let close = if rest.starts_with("</") { '>' } else { ']' };
    let is_tag = rest.starts_with("</") || rest.starts_with("[/");
    let length =
        rest.char_indices().take(64).find(|(_, c)| is_tag && *c == close).map(|(length, _)| length + 1);
    Some(length.map_or(at, |length| body.len() - rest.len() + length))
}

fn end_of_content(body: &str, thought: usize, message: &Message, turn: TextTurn) -> Result<usize> {
    let content = message.text()?;
    let content = content.rsplit_once("</think>").map_or(&*content, |(_, after)| after).trim();
    if content.is_empty() {
        return Ok(thought);
    }
    body[thought..].find(content).map(|at| thought + at + content.len()).ok_or_else(|| {
        let detail = format!(
            "message {} must appear unchanged in its turn, so that its tool calls can be excluded",
            turn.message
        );
        Error::new(ErrorKind::Incompatible, detail)
    })
}
