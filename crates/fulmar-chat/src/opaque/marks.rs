//! Finds in a template's text what messages said: renders the conversation a second time with marks around each value,
//! and believes them only if the text without the marks is the text of the first time, but for what a disguise changed.

use std::ops::Range;

use serde_json::{Map, Value};

use super::provenance::{disguised_list, disguised_message, given_ranges};
use crate::message_view::MessageView;
use crate::{Origin, Result};

/// Where marks come from: the last plane of private-use characters.
const PLANE: Range<u32> = 0x10_0000..0x10_FFFE;
/// Characters that one conversation needs: 64 digits, and an opening and a closing mark each for words and for calls.
const BLOCK: u32 = 68;
/// The first opening mark; the closing one is next to it.
const WORDS: u32 = 64;
/// The opening mark of what belongs to a call of a tool.
const CALL: u32 = 66;
/// Digits of a message's index.
const DIGITS: u32 = 3;
/// The longest conversation whose messages have marks of their own.
const MARKED_MESSAGES_MAX: usize = 64_usize.pow(DIGITS);

/// The text of a conversation whose messages have these fields, with these tools.
pub type Render<'a> = dyn Fn(&[&Map<String, Value>], &[Value]) -> Result<String> + 'a;

/// What one message said somewhere in a text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The message.
    pub message: usize,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Whether it belongs to a call of a tool.
    pub is_call: bool,
}

/// Where a template's text came from.
#[derive(Debug)]
pub struct Sources {
    /// What each message said, in order and apart from each other; nothing if marks do not show it.
    pub said: Vec<Said>,
    /// The characters that messages and tools gave, in order; `None` if the template decides by what they say.
    pub given: Option<Vec<Range<usize>>>,
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
    /// Whether only assistants' messages are marked.
    assistants_only: bool,
}

/// The sources of `text`, which the template writes for `views` and `tools`. Marks and a disguise are tried at once
/// first, and one by one if the template minds either.
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
        let (bare, said) = style.block.take_out(&marked_text);
        Some((given_ranges(text, &bare)?, said))
    });
    if let Some((given, said)) = both {
        return Sources { said, given: Some(given) };
    }
    let marked = find_marked(views, text, &tries, |style| {
        let mark = |(index, view): (usize, &MessageView<'_>)| {
            let fields = view.message.fields();
            if style.is_marked(view) { style.mark_message(view, fields, index) } else { fields.clone() }
        };
        let marked: Vec<Map<String, Value>> = views.iter().enumerate().map(mark).collect();
        let marked_text = render(&marked.iter().collect::<Vec<_>>(), tools).ok()?;
        let (bare, said) = style.block.take_out(&marked_text);
        (bare == text).then_some(((), said))
    });
    let bare = render(&disguised.iter().collect::<Vec<_>>(), &disguised_tools).ok();
    let said = marked.map(|((), said)| said).unwrap_or_default();
    Sources { said, given: bare.and_then(|bare| given_ranges(text, &bare)) }
}

/// How marks are put, in the order in which it is tried: around blanks at the ends of texts if there are such, inside of
/// them, as many templates strip texts, and at last in the assistants' messages alone.
fn tries(views: &[MessageView<'_>]) -> Vec<(bool, bool)> {
    let has_blanks = views.iter().any(|view| view.text.trim() != view.text);
    [(true, false), (false, false), (false, true)][usize::from(!has_blanks)..].to_vec()
}

/// The first of `tries` that `read` believes: what it found, and what messages said.
fn find_marked<T>(
    views: &[MessageView<'_>],
    text: &str,
    tries: &[(bool, bool)],
    read: impl Fn(Style) -> Option<(T, Vec<Said>)>,
) -> Option<(T, Vec<Said>)> {
    let block = Block::unused_in(text).filter(|_| views.len() <= MARKED_MESSAGES_MAX)?;
    tries.iter().find_map(|&(with_blanks, assistants_only)| {
        let style = Style { block, with_blanks, assistants_only };
        let found = views.iter().any(|view| style.is_marked(view)).then(|| read(style))??;
        found.1.iter().all(|said| said.message < views.len()).then_some(found)
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

    /// The text without marks, and what stood between an opening mark and the closing one that follows it.
    fn take_out(self, marked: &str) -> (String, Vec<Said>) {
        let mut bare = String::with_capacity(marked.len());
        let mut said = Vec::new();
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
                    said.push(Said { message, start, end: bare.len(), is_call: mark == CALL });
                }
                _ if offset == WORDS || offset == CALL => open = Some((bare.len(), message, offset)),
                _ => {}
            }
        }
        bare.push_str(&marked[copied..]);
        (bare, said)
    }
}

impl Style {
    fn is_marked(self, view: &MessageView<'_>) -> bool {
        !self.assistants_only || view.is_assistant()
    }

    /// `text` with `mark` and the one that closes it around; blank text stays as it is.
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

    /// `fields`, those of the message `view` at `index`, with marks.
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
        let said = vec![
            Said { message: 70_000, start: 1, end: 3, is_call: false },
            Said { message: 3, start: 4, end: 5, is_call: true },
        ];
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
