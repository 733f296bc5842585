//! Reads a sampled completion by ids: the stop, the reasoning, the tool calls.
//!
//! Text that only spells a marker never counts. The exception is a family whose reasoning tags are plain text
//! in its tokenizer: those are searched for in the decoded text.

use fulmar_tokenizer::Tokenizer;
use serde_json::Value;

use crate::family::Table;
use crate::script::{Lexicon, Scaffold};
use crate::tool_call::{ReadCall, is_offered};
use crate::{Parsed, ParsedToolCall, Result, ToolCallStatus};

/// Number of ids at a prompt's end that may hold a reasoning tag and the blanks after it.
const PROMPT_TAIL: usize = 16;

/// A marker: a special token or, in a tokenizer that has no such token, plain text.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    name: &'static str,
    id: Option<u32>,
}

impl Tag {
    /// Returns the tag in a tokenizer.
    pub(crate) fn new(lexicon: &Lexicon, name: &'static str) -> Self {
        Self { name, id: lexicon.id(name) }
    }
}

/// The state in which a prompt leaves the reasoning of the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReasoningState {
    /// Not opened: the completion may open it.
    Absent,
    /// Opened by the prompt.
    Open,
    /// Opened and closed by the prompt: content follows.
    Closed,
}

/// The format of a family's reasoning.
pub(crate) struct ReasoningFormat {
    pub open: Tag,
    pub close: Tag,
    /// The state after the generation prompt.
    pub initial: ReasoningState,
    /// If true, a tool call ends reasoning that was not closed; else such a call is part of the reasoning.
    pub call_ends_reasoning: bool,
    /// If true, an empty reasoning differs from no reasoning.
    pub keeps_empty: bool,
    /// Closes the reasoning of a turn that was cut off.
    pub synthetic_close: Scaffold,
}

/// The format of a family's tool calls.
pub(crate) struct CallFormat {
    /// The markers around all calls of a turn, in families that have them. Not part of the content.
    pub section: Option<(Tag, Tag)>,
    pub open: Tag,
    pub close: Tag,
    /// Reads the text between `open` and `close`.
    pub read: fn(&CallBody<'_>) -> ReadCall,
}

/// The text between the markers of one call.
pub(crate) struct CallBody<'a> {
    pub text: &'a str,
    /// The available tools.
    pub tools: &'a [Value],
}

/// A completion up to its first stop.
pub(crate) struct Completion<'a> {
    table: &'a Table,
    ids: &'a [u32],
    finished: bool,
    state: ReasoningState,
}

/// The end of the reasoning. Without reasoning `content_start` is 0.
struct Split {
    reasoning: Option<String>,
    is_complete: bool,
    /// The first id after the reasoning.
    content_start: usize,
    /// Text after a textual closing tag that shares its last token.
    carry: String,
}

impl Split {
    fn none() -> Self {
        Self { reasoning: None, is_complete: true, content_start: 0, carry: String::new() }
    }
}

impl<'a> Completion<'a> {
    /// Returns the completion `ids` of `prompt`, or, without a prompt, of the family's own generation prompt.
    ///
    /// # Errors
    /// `OutOfRange` for prompt ids outside of the vocabulary.
    pub(crate) fn new(table: &'a Table, ids: &'a [u32], prompt: Option<&[u32]>) -> Result<Self> {
        let stop = ids.iter().position(|id| table.stop_ids.contains(id));
        let state = match (&table.reasoning, prompt) {
            (None, _) => ReasoningState::Closed,
            (Some(format), None) => format.initial,
            (Some(format), Some(prompt)) => format.state_behind(&*table.tokenizer, prompt)?,
        };
        Ok(Self { table, ids: &ids[..stop.unwrap_or(ids.len())], finished: stop.is_some(), state })
    }

    /// Returns the ids before the stop.
    pub(crate) fn ids(&self) -> &'a [u32] {
        self.ids
    }

    /// Returns whether the completion ends inside of reasoning.
    ///
    /// # Errors
    /// `OutOfRange` for ids outside of the vocabulary.
    pub(crate) fn is_reasoning_open(&self) -> Result<bool> {
        Ok(!self.split()?.is_complete)
    }

    /// Parses the completion, given the available tools.
    ///
    /// # Errors
    /// `OutOfRange` for ids outside of the vocabulary.
    pub(crate) fn parse(&self, tools: &[Value]) -> Result<Parsed> {
        let split = self.split()?;
        let mut content = split.carry;
        let tool_calls = if split.is_complete {
            self.read_content(split.content_start, tools, &mut content)?
        } else {
            Vec::new()
        };
        if self.table.trims_content {
            content = trimmed(content);
        }
        let keeps_empty = self.table.reasoning.as_ref().is_some_and(|format| format.keeps_empty);
        let reasoning = split.reasoning.map(trimmed);
        let overran = self.overran(&tool_calls);
        Ok(Parsed {
            content,
            reasoning_content: reasoning.filter(|text| keeps_empty || !text.is_empty()),
            reasoning_complete: split.is_complete,
            tool_calls,
            finished: self.finished,
            overran,
        })
    }

    /// Returns whether a token that no completion of the family may contain occurs outside of `calls`, which
    /// are in order.
    fn overran(&self, calls: &[ParsedToolCall]) -> bool {
        let starts = std::iter::once(0).chain(calls.iter().map(|call| call.token_span[1]));
        let ends = calls.iter().map(|call| call.token_span[0]).chain([self.ids.len()]);
        starts.zip(ends).any(|(start, end)| self.ids[start..end].iter().any(|&id| self.is_foreign(id)))
    }

    /// Finds the end of the reasoning.
    fn split(&self) -> Result<Split> {
        let Some(format) = self.table.reasoning.as_ref().filter(|_| self.state != ReasoningState::Closed)
        else {
            return Ok(Split::none());
        };
        if let (Some(open), Some(close)) = (format.open.id, format.close.id) {
            self.split_by_id(format, open, close)
        } else {
            self.split_by_text(format)
        }
    }

    fn split_by_id(&self, format: &ReasoningFormat, open: u32, close: u32) -> Result<Split> {
        let opener = self.ids.iter().position(|&id| id == open);
        if let Some(end) = self.ids.iter().position(|&id| id == close) {
            return self.reasoning(opener, end, end + 1, true);
        }
        let is_open = self.state == ReasoningState::Open || self.starts_with(opener)?;
        if !is_open {
            return Ok(Split::none());
        }
        match self.first_call().filter(|_| format.call_ends_reasoning) {
            Some(call) => self.reasoning(opener, call, call, true),
            None => self.reasoning(opener, self.ids.len(), self.ids.len(), false),
        }
    }

    /// Returns the reasoning in `ids[..end]` without its opener.
    fn reasoning(
        &self,
        opener: Option<usize>,
        end: usize,
        content_start: usize,
        is_complete: bool,
    ) -> Result<Split> {
        let mut text = String::new();
        let opener = opener.filter(|&opener| opener < end);
        if let Some(opener) = opener {
            text = self.decode(&self.ids[..opener])?;
        }
        text += &self.decode(&self.ids[opener.map_or(0, |opener| opener + 1)..end])?;
        Ok(Split { reasoning: Some(text), is_complete, content_start, carry: String::new() })
    }

    /// Returns whether there are only blanks before the id at `opener`.
    fn starts_with(&self, opener: Option<usize>) -> Result<bool> {
        let Some(opener) = opener else { return Ok(false) };
        Ok(self.decode(&self.ids[..opener])?.trim().is_empty())
    }

    fn split_by_text(&self, format: &ReasoningFormat) -> Result<Split> {
        let text = self.decode(self.ids)?;
        let opened = text.trim_start().strip_prefix(format.open.name);
        let Some(end) = text.find(format.close.name) else {
            if opened.is_none() && self.state != ReasoningState::Open {
                return Ok(Split::none());
            }
            let reasoning = opened.unwrap_or(&text).to_owned();
            let content_start = self.ids.len();
            return Ok(Split {
                reasoning: Some(reasoning),
                is_complete: false,
                content_start,
                carry: String::new(),
            });
        };
        let before = &text[..end];
        let reasoning = before.trim_start().strip_prefix(format.open.name).unwrap_or(before).to_owned();
        let content_start = self.ids_up_to(format.close.name)?;
        let head = self.decode(&self.ids[..content_start])?;
        let carry = head.get(end + format.close.name.len()..).unwrap_or_default().to_owned();
        Ok(Split { reasoning: Some(reasoning), is_complete: true, content_start, carry })
    }

    /// Returns the smallest number of ids whose text contains `name`, which the whole text does.
    fn ids_up_to(&self, name: &str) -> Result<usize> {
        let (mut low, mut high) = (0, self.ids.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.decode(&self.ids[..middle])?.contains(name) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Returns the position of the first call or section.
    fn first_call(&self) -> Option<usize> {
        let calls = self.table.calls.as_ref()?;
        let section = calls.section.as_ref().and_then(|(open, _)| open.id);
        self.ids.iter().position(|&id| Some(id) == calls.open.id || Some(id) == section)
    }

    /// Reads the calls after `start`; appends the text around them to `content`.
    fn read_content(
        &self,
        start: usize,
        tools: &[Value],
        content: &mut String,
    ) -> Result<Vec<ParsedToolCall>> {
        let Some(format) = self.table.calls.as_ref() else {
            *content += &self.decode(&self.ids[start..])?;
            return Ok(Vec::new());
        };
        let mut calls = Vec::new();
        let mut at = start;
        while let Some(open) = self.position(at, format.open.id) {
            self.read_text(at..open, content)?;
            let next_open = self.position(open + 1, format.open.id).unwrap_or(self.ids.len());
            // Searches up to the next call only: a search to the end for each call would be quadratic.
            let close = self.ids[open + 1..next_open].iter().position(|&id| Some(id) == format.close.id);
            let close = close.map(|offset| open + 1 + offset);
            at = close.map_or(next_open, |close| close + 1);
            calls.push(self.read_call(format, [open, at], close, tools)?);
        }
        self.read_text(at..self.ids.len(), content)?;
        Ok(calls)
    }

    /// Appends the text of `range`, without the markers of a section and without blanks between calls.
    fn read_text(&self, range: std::ops::Range<usize>, content: &mut String) -> Result<()> {
        let section = self.table.calls.as_ref().and_then(|calls| calls.section.as_ref());
        let is_frame =
            |id: &u32| section.is_some_and(|(open, close)| [open.id, close.id].contains(&Some(*id)));
        for ids in self.ids[range].split(is_frame) {
            let text = self.decode(ids)?;
            if content.is_empty() {
                *content = text;
            } else if !text.trim().is_empty() {
                content.push_str(&text);
            }
        }
        Ok(())
    }

    fn read_call(
        &self,
        format: &CallFormat,
        token_span: [usize; 2],
        close: Option<usize>,
        tools: &[Value],
    ) -> Result<ParsedToolCall> {
        let ids = &self.ids[token_span[0] + 1..close.unwrap_or(token_span[1])];
        let text = self.decode(ids)?;
        let body = CallBody { text: &text, tools };
        let read = (format.read)(&body);
        let status = match (close, read.status) {
            (None, _) => ToolCallStatus::UnclosedBlock,
            (Some(_), ToolCallStatus::Ok) if !is_offered(tools, read.name.as_deref()) => {
                ToolCallStatus::UnknownTool
            }
            (Some(_), status) => status,
        };
        let raw = self.decode(&self.ids[token_span[0]..token_span[1]])?;
        Ok(ParsedToolCall {
            raw,
            status,
            name: read.name,
            arguments: read.arguments,
            id: read.id,
            token_span,
        })
    }

    fn position(&self, start: usize, id: Option<u32>) -> Option<usize> {
        let id = id?;
        self.ids[start..].iter().position(|&other| other == id).map(|at| start + at)
    }

    /// Returns whether a token ends or begins something that no completion of the family may contain.
    pub(crate) fn is_foreign(&self, id: u32) -> bool {
        let table = self.table;
        let reasoning = table.reasoning.iter().flat_map(|format| [&format.open, &format.close]);
        let section = |calls: &'a CallFormat| calls.section.iter().flat_map(|(open, close)| [open, close]);
        let calls =
            table.calls.iter().flat_map(move |calls| section(calls).chain([&calls.open, &calls.close]));
        table.tokenizer.is_special(id) && !reasoning.chain(calls).any(|tag| tag.id == Some(id))
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.table.tokenizer.decode(ids, false)
    }
}

/// Returns `text` without blanks around it.
fn trimmed(text: String) -> String {
    match text.trim() {
        inner if inner.len() < text.len() => inner.to_owned(),
        _ => text,
    }
}

impl ReasoningFormat {
    /// Returns the state after a prompt: its last tag, if only blanks follow it.
    fn state_behind(&self, tokenizer: &dyn Tokenizer, prompt: &[u32]) -> Result<ReasoningState> {
        let tail = &prompt[prompt.len().saturating_sub(PROMPT_TAIL)..];
        let (Some(open), Some(close)) = (self.open.id, self.close.id) else {
            let text = tokenizer.decode(tail, false)?;
            let ends_with = |tag: &Tag| text.trim_end().ends_with(tag.name);
            return Ok(match (ends_with(&self.open), ends_with(&self.close)) {
                (true, _) => ReasoningState::Open,
                (_, true) => ReasoningState::Closed,
                _ => ReasoningState::Absent,
            });
        };
        let Some(last) = tail.iter().rposition(|&id| id == open || id == close) else {
            return Ok(ReasoningState::Absent);
        };
        Ok(match (tokenizer.decode(&tail[last + 1..], false)?.trim().is_empty(), tail[last] == open) {
            (false, _) => ReasoningState::Absent,
            (true, true) => ReasoningState::Open,
            (true, false) => ReasoningState::Closed,
        })
    }
}
