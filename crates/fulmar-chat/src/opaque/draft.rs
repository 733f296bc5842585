//! Locates the assistants' turns in a template's text.

use fulmar_tokenizer::Encoding;

use super::layout::{Anchor, Special};
use super::marks::MessageSpan;
use crate::Origin;
use crate::message_view::MessageView;

/// A conversation as text, with its analysis.
pub struct Draft<'a> {
    /// The conversation.
    pub views: &'a [MessageView<'a>],
    /// The template's output.
    pub text: String,
    /// The content of `generation` blocks, if there are any.
    pub spans: Option<Vec<[usize; 2]>>,
    /// The start of the generation prompt.
    pub whole_end: usize,
    /// The located texts of messages.
    pub message_spans: Vec<MessageSpan>,
    /// Its tokens, valid if all markers in it are the template's.
    pub encoding: Encoding,
    /// The template's markers, if messages or tools spell some too.
    pub markers: Option<Vec<Marker>>,
    /// The template's special tokens.
    pub specials: Vec<Special>,
}

/// A token that only markers become, with its place in a text.
#[derive(Debug, Clone, Copy)]
pub struct Marker {
    /// Its id.
    pub id: u32,
    /// Its start, in bytes.
    pub start: usize,
    /// Its end.
    pub end: usize,
}

impl Draft<'_> {
    /// Returns the turns in `generation` blocks. A block belongs to the assistant with text in it or, if
    /// there is one block for each assistant, to the one at its position.
    pub fn turns_of_spans(&self) -> Vec<Anchor> {
        let spans = self.spans.as_deref().unwrap_or_default();
        let assistants: Vec<usize> =
            (0..self.views.len()).filter(|index| self.views[*index].is_assistant()).collect();
        let turn = |(place, &[start, end]): (usize, &[usize; 2])| {
            let first = self.message_spans.partition_point(|span| span.end <= start);
            let message_spans = self.message_spans[first..].iter().take_while(|span| span.start < end);
            let mut speakers =
                message_spans.map(|span| span.message).filter(|index| self.views[*index].is_assistant());
            let by_place = || assistants.get(place).copied().filter(|_| spans.len() == assistants.len());
            let closed = start + self.text[start..end].trim_end().len();
            let last =
                self.specials[..self.specials.partition_point(|special| special.start < closed)].last();
            let inside = last.is_some_and(|special| special.is_stop && special.end == closed);
            let body_end = if inside { closed } else { end };
            speakers.next().or_else(by_place).map(|message| {
                let turn = self.turn(message, start, body_end);
                Anchor { is_closed: turn.is_closed || inside, ..turn }
            })
        };
        let turns = spans.iter().enumerate().filter(|(_, [start, end])| start < end);
        turns.filter_map(turn).filter(|turn| turn.end <= self.whole_end).collect()
    }

    /// Returns for each message whether one of `turns` belongs to it.
    pub fn owners(&self, turns: &[Anchor]) -> Vec<bool> {
        let mut has_turn = vec![false; self.views.len()];
        turns.iter().for_each(|turn| has_turn[turn.message] = true);
        has_turn
    }

    /// Returns the turns that open with the first of `openings` that occurs. They end with a stop token or,
    /// as some do once other messages follow, with another special token directly after the last text.
    pub fn turns_behind(&self, openings: &[String]) -> Vec<Anchor> {
        let mut turns = Vec::new();
        let mut before = 0;
        let mut runs = self.message_spans.chunk_by(|a, b| a.message == b.message).peekable();
        while let Some(run) = runs.next() {
            let (first, last) = (run[0], run[run.len() - 1]);
            let limit = runs.peek().map_or(self.whole_end, |next| next[0].start);
            if self.views[first.message].is_assistant() {
                let frame = &self.text[before..first.start];
                let behind = |opening: &String| Some(before + frame.rfind(opening.as_str())? + opening.len());
                let start = openings.iter().find_map(behind);
                let end = self.close_between(first.start, limit).or_else(|| self.special_at(last.end, limit));
                if let (Some(start), Some(end)) = (start, end) {
                    let (message, origin) = (first.message, Origin::Assistant);
                    turns.push(Anchor { message, start, end, origin, is_closed: true });
                }
            }
            before = last.end;
        }
        turns
    }

    /// Returns the end of the first token that ends turns and begins in `start..limit`.
    fn close_between(&self, start: usize, limit: usize) -> Option<usize> {
        let first = self.specials.partition_point(|special| special.start < start);
        let mut specials = self.specials[first..].iter().take_while(|special| special.start < limit);
        specials.find(|special| special.is_stop).map(|stop| stop.end)
    }

    /// Returns the end of the special token that begins at `at`, before `limit`.
    fn special_at(&self, at: usize, limit: usize) -> Option<usize> {
        let first = self.specials.partition_point(|special| special.start < at);
        let special = self.specials.get(first).filter(|special| special.start == at && at < limit);
        special.map(|special| special.end)
    }

    /// Returns the turn of `message`, with the stop token at `body_end` if there is one.
    pub fn turn(&self, message: usize, start: usize, body_end: usize) -> Anchor {
        let at = self.specials.partition_point(|special| special.start < body_end);
        let stop = self.specials.get(at).filter(|special| special.is_stop && special.start == body_end);
        let end = stop.map_or(body_end, |stop| stop.end);
        Anchor { message, start, end, origin: Origin::Assistant, is_closed: stop.is_some() }
    }
}
