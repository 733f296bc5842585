//! Attributes each part of a template's text to a message.

use std::ops::Range;

use crate::Origin;

/// A part of a text that belongs to one message, or to none, up to its end in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its end.
    pub end: usize,
    /// The message; -1 for none.
    pub message_index: i32,
    /// The origin of its text.
    pub origin: Origin,
}

/// A text that is known to belong to one message: its text or, for an assistant, its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The message.
    pub message: usize,
    /// Its start.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// The origin of its text.
    pub origin: Origin,
    /// `true` if it includes the token that closes the message.
    pub is_closed: bool,
}

/// A special token in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// Its start, in bytes.
    pub start: usize,
    /// Its end.
    pub end: usize,
    /// `true` if it ends an assistant's turn.
    pub is_stop: bool,
}

/// Returns the pieces of a text of `length` bytes whose generation prompt begins at `whole_end`. The frame
/// between two anchors is split after the token that closes the first, at the next special token. Text before
/// the first anchor is its frame, unless it closes a message that was not given.
pub fn pieces(mut anchors: Vec<Anchor>, specials: &[Special], whole_end: usize, length: usize) -> Vec<Piece> {
    anchors.sort_by_key(|anchor| anchor.start);
    let mut pieces: Vec<Piece> = Vec::with_capacity(2 * anchors.len() + 2);
    let push = |pieces: &mut Vec<Piece>, end: usize, message_index: i32, origin: Origin| {
        if end > pieces.last().map_or(0, |piece| piece.end) {
            pieces.push(Piece { end, message_index, origin });
        }
    };
    let (mut at, mut message, mut is_closed) = (0, -1, false);
    for anchor in anchors.iter().filter(|anchor| anchor.end <= whole_end) {
        if anchor.start < at {
            continue;
        }
        let next = anchor.message as i32;
        let border = if message == next { at } else { border(specials, at..anchor.start, is_closed) };
        push(&mut pieces, border, message, Origin::Template);
        push(&mut pieces, anchor.start, next, Origin::Template);
        push(&mut pieces, anchor.end, next, anchor.origin);
        (at, message, is_closed) = (anchor.end, next, anchor.is_closed);
    }
    push(&mut pieces, whole_end, message, Origin::Template);
    push(&mut pieces, length, -1, Origin::Template);
    pieces
}

/// Returns the border between the frames of two consecutive messages.
fn border(specials: &[Special], range: Range<usize>, mut is_closed: bool) -> usize {
    let mut border = range.start;
    let first = specials.partition_point(|special| special.start < range.start);
    for special in specials[first..].iter().take_while(|special| special.start < range.end) {
        if is_closed {
            return special.start;
        }
        if special.is_stop {
            (is_closed, border) = (true, special.end);
        }
    }
    border
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(message: usize, range: Range<usize>, is_closed: bool) -> Anchor {
        Anchor { message, start: range.start, end: range.end, origin: Origin::User, is_closed }
    }

    fn special(start: usize, is_stop: bool) -> Special {
        Special { start, end: start + 1, is_stop }
    }

    fn owners(pieces: &[Piece]) -> Vec<(usize, i32)> {
        pieces.iter().map(|piece| (piece.end, piece.message_index)).collect()
    }

    #[test]
    fn frames_are_parted_behind_the_token_that_closes() {
        // "[xx]\n[yy]\n[" with a generation prompt of one byte.
        let specials: Vec<Special> = [(0, false), (3, true), (5, false), (8, true), (10, false)]
            .map(|(at, stop)| special(at, stop))
            .into();
        let found = pieces(vec![anchor(0, 1..3, false), anchor(1, 6..8, false)], &specials, 10, 11);
        assert_eq!(owners(&found), [(1, 0), (3, 0), (5, 0), (6, 1), (8, 1), (10, 1), (11, -1)]);
        let closed = pieces(vec![anchor(0, 1..4, true), anchor(1, 6..8, false)], &specials, 10, 11);
        assert_eq!(owners(&closed), [(1, 0), (4, 0), (5, 0), (6, 1), (8, 1), (10, 1), (11, -1)]);
    }

    #[test]
    fn what_a_template_says_by_itself_belongs_to_nobody() {
        let specials: Vec<Special> =
            [(0, false), (3, true), (4, false), (7, true)].map(|(at, stop)| special(at, stop)).into();
        let found = pieces(vec![anchor(0, 5..7, false)], &specials, 8, 8);
        assert_eq!(owners(&found), [(4, -1), (5, 0), (7, 0), (8, 0)]);
        assert_eq!(owners(&pieces(Vec::new(), &specials, 8, 8)), [(8, -1)]);
    }
}
