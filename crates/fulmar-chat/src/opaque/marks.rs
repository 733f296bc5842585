//! Locates the texts of messages in a template's output: renders the conversation again with marks around
//! each value, and accepts the result only if the text without the marks equals the first output, except for
//! disguised characters.

use std::ops::Range;

use serde_json::{Map, Value};

use super::provenance::{disguised_list, disguised_message, given_ranges};
use crate::message_view::MessageView;
use crate::{Origin, Result};

/// The characters of marks: the last plane of private-use characters.
const PLANE: Range<u32> = 0x10_0000..0x10_FFFE;
/// Characters that one conversation needs: 64 digits, and an opening and a closing mark each for words and for calls.
const BLOCK: u32 = 68;
/// The first opening mark; the closing one is next to it.
const WORDS: u32 = 64;
/// The opening mark of texts in a tool call.
const CALL: u32 = 66;
/// Digits of a message's index.
const DIGITS: u32 = 3;
/// The longest conversation whose messages have individual marks.
const MARKED_MESSAGES_MAX: usize = 64_usize.pow(DIGITS);

/// Renders a conversation of messages with these fields, with these tools.
pub type Render<'a> = dyn Fn(&[&Map<String, Value>], &[Value]) -> Result<String> + 'a;

/// The text of one message in an output, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSpan {
    /// The message.
    pub message: usize,
    /// Its start.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// `true` if it belongs to a tool call.
    pub is_call: bool,
}

/// The sources of a template's output.
#[derive(Debug)]
pub struct Sources {
    /// The texts of each message, in order and disjoint; empty if marks do not show them.
    pub message_spans: Vec<MessageSpan>,
    /// The characters from messages and tools, in order; `None` if the template branches on the texts.
    pub given: Option<Vec<Range<usize>>>,
}

/// The characters of the marks.
#[derive(Debug, Clone, Copy)]
struct Block {
    first: u32,
}

/// The placement of marks around a text.
#[derive(Debug, Clone, Copy)]
struct Style {
    block: Block,
    /// `true` if blanks at the ends of a text are inside its marks.
    with_blanks: bool,
    /// `true` if only assistants' messages are marked.
    assistants_only: bool,
}

/// Returns the sources of `text`, the template's output for `views` and `tools`. Tries marks and a disguise
/// together first, and separately if the template reacts to either.
pub fn find_sources(render: &Render, views: &[MessageView<'_>], tools: &[Value], text: &str) -> Sources {
    let disguised: Vec<Map<String, Value>> =
        views.iter().map(|view| disguised_message(view.message.fields())).collect();
    let disguised_tools = disguised_list(tools);
    let tries = tries(views);
    let both = find_marked(views, text, &tries[..tries.len() - 1], |style| {
        let mark =
            |(index, view): (usize, &MessageView<'_>)| style.mark_message(view, &disguised[index], index);
        let marked: Vec<Map<String, Value>> = views.iter().enumerate().map(mark).collect();
        let marked_text = render(&marked.iter().collect::<Vec<_>>(), &disguised_tools).ok()?;
        let (bare, message_spans) = style.block.take_out(&marked_text);
        Some((given_ranges(text, &bare)?, message_spans))
    });
    if let Some((given, message_spans)) = both {
        return Sources { message_spans, given: Some(given) };
    }
    let marked = find_marked(views, text, &tries, |style| {
        let mark = |(index, view): (usize, &MessageView<'_>)| {
            let fields = view.message.fields();
            if style.is_marked(view) { style.mark_message(view, fields, index) } else { fields.clone() }
        };
        let marked: Vec<Map<String, Value>> = views.iter().enumerate().map(mark).collect();
        let marked_text = render(&marked.iter().collect::<Vec<_>>(), tools).ok()?;
        let (bare, message_spans) = style.block.take_out(&marked_text);
        (bare == text).then_some(((), message_spans))
    });
    let bare = render(&disguised.iter().collect::<Vec<_>>(), &disguised_tools).ok();
    let message_spans = marked.map(|((), message_spans)| message_spans).unwrap_or_default();
    Sources { message_spans, given: bare.and_then(|bare| given_ranges(text, &bare)) }
}

/// Returns the placements of marks in the order in which they are tried: outside of blanks at the ends of
/// texts, if there are any; inside of them, as many templates strip texts; and last only for the assistants'
/// messages.
fn tries(views: &[MessageView<'_>]) -> Vec<(bool, bool)> {
    let has_blanks = views.iter().any(|view| view.text.trim() != view.text);
    [(true, false), (false, false), (false, true)][usize::from(!has_blanks)..].to_vec()
}

/// Returns the first of `tries` that `read` accepts: its result, and the texts of messages.
fn find_marked<T>(
    views: &[MessageView<'_>],
    text: &str,
    tries: &[(bool, bool)],
    read: impl Fn(Style) -> Option<(T, Vec<MessageSpan>)>,
) -> Option<(T, Vec<MessageSpan>)> {
    let block = Block::unused_in(text).filter(|_| views.len() <= MARKED_MESSAGES_MAX)?;
    tries.iter().find_map(|&(with_blanks, assistants_only)| {
        let style = Style { block, with_blanks, assistants_only };
        let found = views.iter().any(|view| style.is_marked(view)).then(|| read(style))??;
        found.1.iter().all(|span| span.message < views.len()).then_some(found)
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
        out.extend([mark].into_iter().chain(digits).filter_map(|offset| char::from_u32(self.first + offset)));
    }

    /// Returns the text without marks, and the texts between an opening mark and the next closing one.
    fn take_out(self, marked: &str) -> (String, Vec<MessageSpan>) {
        let mut bare = String::with_capacity(marked.len());
        let mut message_spans = Vec::new();
        let mut open: Option<(usize, usize, u32)> = None;
        let mut rest = marked.char_indices();
        let mut copied = 0;
        while let Some((at, c)) = rest.next() {
            let offset = u32::from(c).wrapping_sub(self.first);
            if offset >= BLOCK {
                continue;
            }
            bare.push_str(&marked[copied..at]);
            copied = at + c.len_utf8();
            if offset < WORDS {
                continue;
            }
            let mut message = 0;
            for digit in 0..DIGITS {
                let Some((at, c)) = rest.next() else { break };
                message |= (u32::from(c).wrapping_sub(self.first) as usize & 63) << (6 * digit);
                copied = at + c.len_utf8();
            }
            match open.take() {
                Some((start, opened, mark)) if offset == mark + 1 && opened == message => {
                    message_spans.push(MessageSpan {
                        message,
                        start,
                        end: bare.len(),
                        is_call: mark == CALL,
                    });
                }
                _ if offset == WORDS || offset == CALL => open = Some((bare.len(), message, offset)),
                _ => {}
            }
        }
        bare.push_str(&marked[copied..]);
        (bare, message_spans)
    }
}

impl Style {
    fn is_marked(self, view: &MessageView<'_>) -> bool {
        !self.assistants_only || view.is_assistant()
    }

    /// Returns `text` between `mark` and its closing mark; blank text stays unchanged.
    fn mark_text(self, text: &str, mark: u32, message: usize) -> String {
        if text.trim().is_empty() {
            return text.to_owned();
        }
        let core = if self.with_blanks { text } else { text.trim() };
        let start = if self.with_blanks { 0 } else { text.len() - text.trim_start().len() };
        let mut out = String::with_capacity(text.len() + 32);
        out.push_str(&text[..start]);
        self.block.push(mark, message, &mut out);
        out.push_str(core);
        self.block.push(mark + 1, message, &mut out);
        out.push_str(&text[start + core.len()..]);
        out
    }

    fn mark_value(self, value: &mut Value, mark: u32, message: usize) {
        if let Value::String(text) = value {
            *text = self.mark_text(text, mark, message);
        }
    }

    /// Returns `fields` of the message `view` at `index` with marks.
    fn mark_message(
        self,
        view: &MessageView<'_>,
        fields: &Map<String, Value>,
        index: usize,
    ) -> Map<String, Value> {
        let mut fields = fields.clone();
        for key in ["content", "reasoning_content", "thinking", "reasoning"] {
            match fields.get_mut(key) {
                Some(Value::Array(parts)) => {
                    for part in parts {
                        part.get_mut("text").into_iter().for_each(|text| self.mark_value(text, WORDS, index));
                    }
                }
                Some(value) => self.mark_value(value, WORDS, index),
                None => {}
            }
        }
        let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten();
        for call in calls.filter(|_| view.origin == Origin::Assistant) {
            let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
            let Some(function) = function else { continue };
            function.get_mut("name").into_iter().for_each(|name| self.mark_value(name, CALL, index));
            let arguments = function.get_mut("arguments").and_then(Value::as_object_mut);
            arguments
                .into_iter()
                .flat_map(Map::values_mut)
                .for_each(|argument| self.mark_value(argument, CALL, index));
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
        let style = Style { block, with_blanks: false, assistants_only: false };
        let marked = style.mark_text(" ab ", WORDS, 70_000) + &style.mark_text("c", CALL, 3);
        let message_spans = vec![
            MessageSpan { message: 70_000, start: 1, end: 3, is_call: false },
            MessageSpan { message: 3, start: 4, end: 5, is_call: true },
        ];
        assert_eq!(block.take_out(&marked), (" ab c".to_owned(), message_spans));
        let num_chars = marked.chars().count();
        for cut in 0..num_chars {
            let torn: String = marked.chars().take(cut).chain(marked.chars().skip(cut + 1)).collect();
            let (bare, message_spans) = block.take_out(&torn);
            assert!(
                message_spans.iter().all(|span| span.start <= span.end && span.end <= bare.len()),
                "{cut}"
            );
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
