//! Formats that frame each message with markers: a start, a role, a border, the content, an end.

use super::ParsedTurn;

/// The markers of a format.
pub struct Markers {
    start: &'static str,
    border: &'static str,
    ends: &'static [&'static str],
}

pub const CHATML: Markers =
    Markers { start: "<|im_start|>", border: "\n", ends: &["<|im_end|>", "<|endoftext|>"] };
pub const LLAMA4: Markers =
    Markers { start: "<|header_start|>", border: "<|header_end|>\n\n", ends: &["<|eot|>"] };
pub const LLAMA3: Markers = Markers {
    start: "<|start_header_id|>",
    border: "<|end_header_id|>\n\n",
    ends: &["<|eot_id|>", "<|eom_id|>"],
};

/// Maximum length of a role with its border, in characters; longer searches would read a hostile text over
/// and over.
const ROLE_LENGTH_MAX: usize = 64;

/// Parses the messages of `text` in one pass. A start marker inside content is content: only an end closes a
/// message.
pub fn read(text: &str, markers: &Markers) -> Vec<ParsedTurn> {
    let mut turns = Vec::new();
    let mut rest = text;
    while let Some((_, block)) = rest.split_once(markers.start) {
        rest = block;
        if let Some((role, body)) = role_of(block, markers.border) {
            let end = first_end(body, markers.ends);
            let (content, after) = end.map_or((body, ""), |[start, end]| (&body[..start], &body[end..]));
            turns.push(ParsedTurn::new(role, content, end.is_some()));
            rest = after;
        }
    }
    turns
}

/// Returns the role and the text after its border; `None` if the start marker is part of running text.
fn role_of<'a>(block: &'a str, border: &str) -> Option<(&'a str, &'a str)> {
    let window_end = block.char_indices().nth(ROLE_LENGTH_MAX).map_or(block.len(), |(end, _)| end);
    let length = block[..window_end].find(border)?;
    let role = &block[..length];
    let is_role = !role.trim().is_empty() && !role.contains(['\n', '<', '>']);
    is_role.then_some((role, &block[length + border.len()..]))
}

/// Returns the range of the first of `ends` in `text`; all begin with `<|`.
fn first_end(text: &str, ends: &[&str]) -> Option<[usize; 2]> {
    text.match_indices("<|").find_map(|(start, _)| {
        let end = ends.iter().find(|end| text[start..].starts_with(**end))?;
        Some([start, start + end.len()])
    })
}
