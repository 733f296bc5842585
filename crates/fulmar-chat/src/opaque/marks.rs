//! Finds in a template's text what messages said: renders the conversation a second time with marks around each value,
//! and believes them only if the text without the marks is the text of the first time.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::message_view::MessageView;
use crate::{Origin, Result};

/// Where marks come from: the last plane of private-use characters.
const PLANE: Range<u32> = 0x10_0000..0x10_FFFE;
/// Characters that one conversation needs: 64 digits, an opening and a closing mark.
const BLOCK: u32 = 66;
/// Digits of a message's index.
const DIGITS: u32 = 3;
/// The longest conversation whose messages have marks of their own.
const MARKED_MESSAGES_MAX: usize = 64_usize.pow(DIGITS);

/// The text of a conversation whose messages have these fields.
pub type Render<'a> = dyn Fn(&[&Map<String, Value>]) -> Result<String> + 'a;

/// What one message said somewhere in a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The message.
    pub message: usize,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// The characters of the marks.
#[derive(Debug, Clone, Copy)]
struct Block {
    first: u32,
}

/// How marks are put around a text.
#[derive(Debug, Clone, Copy)]
struct Style {
    block: Block,
    /// Whether blanks at the ends of a text are inside of its marks.
    with_blanks: bool,
}

/// What messages said in `text`, in order and apart from each other; `None` if the template reads what it writes, so
/// that marks change its text or let it fail. Before that it is asked again with marks inside of the blanks at the ends,
/// which many templates strip, and at last with marks in the assistants' messages alone.
pub fn find_said(render: &Render, views: &[MessageView<'_>], text: &str) -> Option<Vec<Said>> {
    let block = Block::unused_in(text).filter(|_| views.len() <= MARKED_MESSAGES_MAX)?;
    let tries = [(true, false), (false, false), (false, true)];
    let has_blanks = views.iter().any(|view| view.text.trim() != view.text);
    tries[usize::from(!has_blanks)..].iter().find_map(|&(with_blanks, assistants_only)| {
        let is_marked = |view: &MessageView<'_>| !assistants_only || view.is_assistant();
        if !views.iter().any(is_marked) {
            return None;
        }
        let marked: Vec<Map<String, Value>> = views
            .iter()
            .enumerate()
            .map(|(index, view)| {
                let style = Style { block, with_blanks };
                if is_marked(view) { style.mark_message(view, index) } else { view.message.fields().clone() }
            })
            .collect();
        let marked_text = render(&marked.iter().collect::<Vec<_>>()).ok()?;
        let (bare, said) = block.take_out(&marked_text);
        let is_sound = bare == text && said.iter().all(|said| said.message < views.len());
        is_sound.then_some(said)
    })
}

impl Block {
    fn unused_in(text: &str) -> Option<Self> {
        let mut taken: Vec<u32> = text.chars().map(u32::from).filter(|c| PLANE.contains(c)).collect();
        taken.sort_unstable();
        let blocks = PLANE.step_by(BLOCK as usize).take_while(|first| first + BLOCK <= PLANE.end);
        blocks.map(|first| Self { first }).find(|block| {
            let at = taken.partition_point(|c| *c < block.first);
            taken.get(at).is_none_or(|c| *c >= block.first + BLOCK)
        })
    }

    fn push(self, mark: u32, message: usize, out: &mut String) {
        let digits = (0..DIGITS).map(|digit| (message as u32 >> (6 * digit)) & 63);
        out.extend(
            [64 + mark].into_iter().chain(digits).filter_map(|offset| char::from_u32(self.first + offset)),
        );
    }

    /// The text without marks, and what stood between an opening mark and the closing one that follows it.
    fn take_out(self, marked: &str) -> (String, Vec<Said>) {
        let mut bare = String::with_capacity(marked.len());
        let mut said = Vec::new();
        let mut open: Option<(usize, usize)> = None;
        let mut rest = marked.char_indices();
        let mut copied = 0;
        while let Some((at, c)) = rest.next() {
            let offset = u32::from(c).wrapping_sub(self.first);
            if offset >= BLOCK {
                continue;
            }
            bare.push_str(&marked[copied..at]);
            copied = at + c.len_utf8();
            if offset < 64 {
                continue;
            }
            let mut message = 0;
            for digit in 0..DIGITS {
                let Some((at, c)) = rest.next() else { break };
                message |= (u32::from(c).wrapping_sub(self.first) as usize & 63) << (6 * digit);
                copied = at + c.len_utf8();
            }
            match open.take() {
                Some((start, opened)) if offset == 65 && opened == message => {
                    said.push(Said { message, start, end: bare.len() });
                }
                _ if offset == 64 => open = Some((bare.len(), message)),
                _ => {}
            }
        }
        bare.push_str(&marked[copied..]);
        (bare, said)
    }
}

impl Style {
    /// `text` with marks around it; blank text stays as it is.
    fn mark_text(self, text: &str, message: usize) -> String {
        if text.trim().is_empty() {
            return text.to_owned();
        }
        let core = if self.with_blanks { text } else { text.trim() };
        let start = if self.with_blanks { 0 } else { text.len() - text.trim_start().len() };
        let mut out = String::with_capacity(text.len() + 32);
        out.push_str(&text[..start]);
        self.block.push(0, message, &mut out);
        out.push_str(core);
        self.block.push(1, message, &mut out);
        out.push_str(&text[start + core.len()..]);
        out
    }

    fn mark_value(self, value: &mut Value, message: usize) {
        if let Value::String(text) = value {
            *text = self.mark_text(text, message);
        }
    }

    fn mark_message(self, view: &MessageView<'_>, index: usize) -> Map<String, Value> {
        let mut fields = view.message.fields().clone();
        for key in ["content", "reasoning_content", "thinking", "reasoning"] {
            match fields.get_mut(key) {
                Some(Value::Array(parts)) => {
                    for part in parts {
                        part.get_mut("text").into_iter().for_each(|text| self.mark_value(text, index));
                    }
                }
                Some(value) => self.mark_value(value, index),
                None => {}
            }
        }
        let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
        for call in calls.filter(|_| view.origin == Origin::Assistant) {
            let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
            let Some(function) = function else { continue };
            function.get_mut("name").into_iter().for_each(|name| self.mark_value(name, index));
            let arguments = function.get_mut("arguments").and_then(Value::as_object_mut);
            arguments
                .into_iter()
                .flat_map(Map::values_mut)
                .for_each(|argument| self.mark_value(argument, index));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_go_out_as_they_came_in_and_torn_ones_tell_nothing() {
        let block = Block { first: PLANE.start };
        let style = Style { block, with_blanks: false };
        let marked = style.mark_text(" ab ", 70_000) + &style.mark_text("c", 3);
        let said = vec![Said { message: 70_000, start: 1, end: 3 }, Said { message: 3, start: 4, end: 5 }];
        assert_eq!(block.take_out(&marked), (" ab c".to_owned(), said));
        let num_chars = marked.chars().count();
        for cut in 0..num_chars {
            let torn: String = marked.chars().take(cut).chain(marked.chars().skip(cut + 1)).collect();
            let (bare, said) = block.take_out(&torn);
            assert!(said.iter().all(|said| said.start <= said.end && said.end <= bare.len()), "{cut}");
        }
    }

    #[test]
    fn a_text_that_holds_private_characters_gets_marks_from_elsewhere() {
        let taken: String = PLANE.step_by(BLOCK as usize).filter_map(char::from_u32).collect();
        assert!(Block::unused_in(&taken).is_none(), "one of every block");
        let first = char::from_u32(PLANE.start + 1).map(String::from).unwrap_or_default();
        assert_eq!(Block::unused_in(&first).map(|block| block.first), Some(PLANE.start + BLOCK));
    }
}
