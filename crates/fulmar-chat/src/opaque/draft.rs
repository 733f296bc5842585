//! Where the assistants' turns are in a template's text.

use fulmar_tokenizer::Encoding;

use super::layout::{Anchor, Special};
use super::marks::Said;
use crate::Origin;
use crate::message_view::MessageView;

/// A conversation as text, with what is known of it.
pub struct Draft<'a> {
    /// The conversation.
    pub views: &'a [MessageView<'a>],
    /// What the template wrote.
    pub text: String,
    /// What stands in `generation` blocks, if there are such.
    pub spans: Option<Vec<[usize; 2]>>,
    /// Where the generation prompt begins.
    pub whole_end: usize,
    /// What messages said in it.
    pub said: Vec<Said>,
    /// Its tokens, if all markers in it are the template's.
    pub encoding: Encoding,
    /// The template's markers, where messages or tools spell some, too.
    pub markers: Option<Vec<Marker>>,
    /// The template's special tokens.
    pub specials: Vec<Special>,
}

/// A token that text becomes only where markers do, at its place in a text.
#[derive(Debug, Clone, Copy)]
pub struct Marker {
    /// Its id.
    pub id: u32,
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Draft<'_> {
    /// The turns that `generation` blocks hold. A block belongs to the assistant who says something in it or, if all
    /// blocks stand for all assistants, to the one of its place.
    pub fn turns_of_spans(&self) -> Vec<Anchor> {
        let spans = self.spans.as_deref().unwrap_or_default();
        let assistants: Vec<usize> =
            (0..self.views.len()).filter(|index| self.views[*index].is_assistant()).collect();
        let turn = |(place, &[start, end]): (usize, &[usize; 2])| {
            let first = self.said.partition_point(|said| said.end <= start);
            let said = self.said[first..].iter().take_while(|said| said.start < end);
            let mut speakers =
                said.map(|said| said.message).filter(|index| self.views[*index].is_assistant());
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

    /// For each message whether one of `turns` is its.
    pub fn owners(&self, turns: &[Anchor]) -> Vec<bool> {
        let mut has_turn = vec![false; self.views.len()];
        turns.iter().for_each(|turn| has_turn[turn.message] = true);
        has_turn
    }

    /// The turns that open with the first of `openings` that stands there, and end with a token that ends turns or, as
    /// some do once others speak, with another special token right behind the last words.
    pub fn turns_behind(&self, openings: &[String]) -> Vec<Anchor> {
        let mut turns = Vec::new();
        let mut before = 0;
        let mut runs = self.said.chunk_by(|a, b| a.message == b.message).peekable();
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

    /// The end of the first token that ends turns and begins in `start..limit`.
    fn close_between(&self, start: usize, limit: usize) -> Option<usize> {
        let first = self.specials.partition_point(|special| special.start < start);
        let mut specials = self.specials[first..].iter().take_while(|special| special.start < limit);
        specials.find(|special| special.is_stop).map(|stop| stop.end)
    }

    /// The end of the special token that begins at `at`, before `limit`.
    fn special_at(&self, at: usize, limit: usize) -> Option<usize> {
        let first = self.specials.partition_point(|special| special.start < at);
        let special = self.specials.get(first).filter(|special| special.start == at && at < limit);
        special.map(|special| special.end)
    }

    /// The turn of `message`, with the token that ends turns if it stands at `body_end`.
    pub fn turn(&self, message: usize, start: usize, body_end: usize) -> Anchor {
        let at = self.specials.partition_point(|special| special.start < body_end);
        let stop = self.specials.get(at).filter(|special| special.is_stop && special.start == body_end);
        let end = stop.map_or(body_end, |stop| stop.end);
        Anchor { message, start, end, origin: Origin::Assistant, is_closed: stop.is_some() }
    }
}
