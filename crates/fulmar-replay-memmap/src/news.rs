//! Tracks the writes of other processes for the buffers of this process.

use std::collections::VecDeque;
use std::ops::Range;

use crate::ring::{Ring, Seen, Word};

/// Number of revisions that are remembered; a buffer that is further behind rereads all rows.
const REVISIONS_KEPT: usize = 256;

/// A ring as this process has seen it. It changes only when this process writes or refreshes, so no write is
/// missed between a refresh and its record.
#[derive(Debug)]
pub(super) struct News {
    /// The revision.
    number: u64,
    seen: Seen,
    /// The next row of the ring.
    next_row: usize,
    /// The state of the ring at the last revisions.
    revisions: VecDeque<(u64, Seen)>,
    /// Writes of this process to the ring after the oldest revision, and its entries in the log.
    own: VecDeque<Range<u64>>,
    own_logged: VecDeque<u64>,
}

impl Default for News {
    fn default() -> Self {
        let seen = Seen { ready: 0, logged: 0, base: 0 };
        let (own, own_logged) = (VecDeque::new(), VecDeque::new());
        Self { number: 0, seen, next_row: 0, revisions: VecDeque::from([(0, seen)]), own, own_logged }
    }
}

impl News {
    /// Returns the revision.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Reads the ring. The revision increases if another process wrote, or will write next.
    pub(super) fn look<W: Word>(&mut self, ring: &Ring<'_, W>) {
        let (seen, next_row) = (ring.seen(), ring.next_row());
        if (seen, next_row) == (self.seen, self.next_row) {
            return;
        }
        let is_own = seen.base == self.seen.base
            && next_row == self.next_row
            && self.foreign(self.seen, seen, ring).is_some_and(|rows| rows.is_empty());
        (self.seen, self.next_row) = (seen, next_row);
        if !is_own {
            self.change();
        } else if let Some((_, last)) = self.revisions.back_mut() {
            *last = seen;
        }
    }

    /// Returns the rows that others wrote between a revision and the last refresh.
    pub(super) fn written_after<W: Word>(&self, revision: u64, ring: &Ring<'_, W>) -> Vec<usize> {
        if revision == self.number {
            return Vec::new();
        }
        let known = self.revisions.iter().rev().find(|(number, _)| *number == revision);
        let rows = known.and_then(|(_, seen)| self.foreign(*seen, self.seen, ring));
        rows.unwrap_or_else(|| (0..self.seen.len(ring.capacity())).collect())
    }

    /// Records a write of this process to the ring.
    pub(super) fn wrote(&mut self, range: Range<u64>, next_row: usize) {
        self.own.push_back(range);
        self.next_row = next_row;
        self.change();
    }

    /// Records an entry of this process in the log of overwritten rows.
    pub(super) fn logged(&mut self, number: u64) {
        self.own_logged.push_back(number);
    }

    /// Begins a revision.
    pub(super) fn change(&mut self) {
        self.number += 1;
        self.revisions.push_back((self.number, self.seen));
        if self.revisions.len() > REVISIONS_KEPT {
            self.revisions.pop_front();
        }
        let Some((_, oldest)) = self.revisions.front() else { return };
        while self.own.front().is_some_and(|range| range.end <= oldest.ready) {
            self.own.pop_front();
        }
        while self.own_logged.front().is_some_and(|number| *number < oldest.logged) {
            self.own_logged.pop_front();
        }
    }

    /// Restarts from the current ring, after this process has emptied or moved it.
    pub(super) fn reset<W: Word>(&mut self, ring: &Ring<'_, W>) {
        (self.seen, self.next_row) = (ring.seen(), ring.next_row());
        self.revisions.clear();
        self.change();
    }

    /// Returns the rows that others wrote in between, in write order; `None` if they are no longer known.
    fn foreign<W: Word>(&self, from: Seen, to: Seen, ring: &Ring<'_, W>) -> Option<Vec<usize>> {
        let start = from.ready.max(to.base).max(to.ready.saturating_sub(ring.capacity()));
        let mut rows = Vec::new();
        let mut at = start;
        for own in &self.own {
            if own.end > at && own.start < to.ready {
                rows.extend((at..own.start.max(at)).map(|seq| ring.row(seq)));
                at = own.end;
            }
        }
        rows.extend((at..to.ready.max(at)).map(|seq| ring.row(seq)));
        let written_over = ring.logged(from.logged..to.logged)?;
        let others =
            (from.logged..).zip(written_over).filter(|(number, _)| !self.own_logged.contains(number));
        let len = to.len(ring.capacity());
        rows.extend(others.map(|(_, row)| row).filter(|row| *row < len));
        Some(rows)
    }
}
