//! The protocol by which several processes write and read one ring of rows, over shared words.
//!
//! ```text
//! reserve  slot[k].start, end = seq, seq + n;  CAS cursor (seq, j) -> (seq + n, k)            rows seq % capacity .. are k's
//! write    CAS state (v, ready) -> (v + 1, writing, k);  note the row whole in k's journal;  copy;  state = (v + 1, ready)
//!          slot[k].start = seq + 1
//! read     s = state, ready;  copy;  state is still s, or once more
//! publish  ready = min(cursor, start of every range that is not written yet): all before it are there
//! ```
//!
//! A process that dies leaves the range it had taken in its slot, and the row it was writing complete in its
//! journal. Another process that finds it and holds the slot's lock completes that row; the other rows of the
//! range keep the items of the lap before. In the first lap rows have no such items: one range is written at a
//! time, and the rest of a dead writer's range is given back.

use std::ops::Range;
use std::sync::atomic::Ordering;

mod word;

pub(super) use word::Word;

// A cursor is a sequence number, a tag that changes when the cursor is moved, and the slot that took the last
// range.
const SLOT_BITS: u32 = 6;
const SEQ_SHIFT: u32 = 12;
/// The slot of a cursor that was moved without a write.
const NOBODY: u64 = 63;
const SLOT: u64 = 63;

// A state is the number of writes of the row, the slot of its writer, and a phase; 0 before the first write.
const VERSION_SHIFT: u32 = 8;
const PHASE: u64 = 3;
const WRITING: u64 = 1;
const READY: u64 = 2;

// The first words.
const CURSOR: usize = 0;
/// The sequence number of row 0 since the ring was emptied, a multiple of the capacity.
const BASE: usize = 1;
/// All sequence numbers before it are written.
const PUBLISHED: usize = 2;
const NUM_LOGGED: usize = 3;
/// One more than the highest slot ever taken.
const NUM_SLOTS: usize = 4;
const WRITE_COUNT: usize = 5;
const HEAD: usize = 8;

// The words of a slot; a cache line each.
const START: usize = 0;
const END: usize = 1;
/// One more than the row whose new item is complete in the journal.
const NOTED: usize = 2;
const SLOT_WORDS: usize = 8;

/// The sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Maximum number of writers at once, below 63.
    pub slots: usize,
    /// Number of entries in the log of rows written outside the order of the ring.
    pub log: usize,
    /// Number of rows.
    pub capacity: usize,
}

impl Sizes {
    pub(super) const fn num_words(self) -> usize {
        HEAD + SLOT_WORDS * self.slots + self.log + self.capacity
    }
}

/// The words with their operations. If all are zero, they are an empty ring.
pub(super) struct Ring<'a, W> {
    words: &'a [W],
    sizes: Sizes,
}

/// The reason why an operation cannot run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// The writer of this slot must finish first.
    By(usize),
    /// Another process was faster.
    Raced,
}

/// The state of a ring at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first unpublished sequence number.
    pub ready: u64,
    /// Number of rows written outside the order of the ring.
    pub logged: u64,
    /// The sequence number of row 0.
    pub base: u64,
}

impl<'a, W: Word> Ring<'a, W> {
    /// Returns the ring of `words`, which must match `sizes`.
    pub(super) const fn new(words: &'a [W], sizes: Sizes) -> Self {
        Self { words, sizes }
    }

    /// Returns the number of rows.
    pub(super) const fn capacity(&self) -> u64 {
        self.sizes.capacity as u64
    }

    fn slot(&self, slot: usize, field: usize) -> &W {
        &self.words[HEAD + slot * SLOT_WORDS + field]
    }

    fn entry(&self, number: u64) -> &W {
        &self.words[HEAD + self.sizes.slots * SLOT_WORDS + (number % self.sizes.log as u64) as usize]
    }

    fn state(&self, row: usize) -> &W {
        &self.words[HEAD + self.sizes.slots * SLOT_WORDS + self.sizes.log + row]
    }

    /// Returns the row of a sequence number.
    pub(super) const fn row(&self, seq: u64) -> usize {
        (seq % self.capacity()) as usize
    }

    /// Records that a slot is used.
    pub(super) fn enter(&self, slot: usize) {
        raise(&self.words[NUM_SLOTS], slot as u64 + 1);
    }

    /// Returns the number of rows with items.
    pub(super) fn len(&self) -> usize {
        self.seen().len(self.capacity())
    }

    /// Returns the current state.
    pub(super) fn seen(&self) -> Seen {
        let ready = self.ready().0;
        // The base is read last: an older one would count emptied rows.
        Seen {
            ready,
            base: self.words[BASE].load(Ordering::Acquire),
            logged: self.words[NUM_LOGGED].load(Ordering::Acquire),
        }
    }

    /// Returns the first row of the next range: after all rows with items or, once all rows hold items, after
    /// all taken rows.
    pub(super) fn next_row(&self) -> usize {
        let seen = self.seen();
        let taken = self.words[CURSOR].load(Ordering::Acquire) >> SEQ_SHIFT;
        let is_full = seen.len(self.capacity()) == self.sizes.capacity;
        self.row(if is_full { taken.max(seen.base) } else { seen.ready.max(seen.base) })
    }

    /// Returns the first unwritten sequence number and the slot that took it, if any.
    fn ready(&self) -> (u64, Option<usize>) {
        loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            let mut first = (cursor >> SEQ_SHIFT, None);
            for slot in 0..(self.words[NUM_SLOTS].load(Ordering::Acquire) as usize).min(self.sizes.slots) {
                if let Some(range) = self.pending(slot).filter(|range| range.start < first.0) {
                    first = (range.start, Some(slot));
                }
            }
            // If the cursor was moved back in between, unwritten rows were counted.
            if self.words[CURSOR].load(Ordering::Acquire) == cursor {
                raise(&self.words[PUBLISHED], first.0);
                // A requested range may begin before the published ones.
                let published = self.words[PUBLISHED].load(Ordering::Acquire);
                return if published > first.0 { (published, None) } else { first };
            }
        }
    }

    /// Returns the range that a slot has taken, or requests, and has not written.
    fn pending(&self, slot: usize) -> Option<Range<u64>> {
        // Read the end first: a start of a later range is valid too, as that range is not in the cursor read
        // before.
        let end = self.slot(slot, END).load(Ordering::Acquire);
        let start = self.slot(slot, START).load(Ordering::Acquire);
        (start < end).then_some(start..end)
    }

    /// Takes the next `count` sequence numbers for `slot`; the first must be that of `row`.
    pub(super) fn reserve(&self, slot: usize, row: usize, count: u64) -> Result<Range<u64>, Busy> {
        let taken = loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            let seq = cursor >> SEQ_SHIFT;
            let base = self.words[BASE].load(Ordering::Acquire);
            if seq < base {
                // The ring was emptied, and the process that did it has not moved the cursor yet.
                self.words[CURSOR].replace(cursor, moved(cursor, base));
                continue;
            }
            let (ready, by) = self.ready();
            let has_room = seq >= base + self.capacity() && seq + count <= ready + self.capacity();
            if ready != seq && !has_room {
                break Err(by.map_or(Busy::Raced, Busy::By));
            }
            if self.row(seq) != row {
                break Err(Busy::Raced);
            }
            self.slot(slot, START).store(seq, Ordering::Release);
            self.slot(slot, END).store(seq + count, Ordering::Release);
            let next = (seq + count) << SEQ_SHIFT | cursor & (SLOT << SLOT_BITS) | slot as u64;
            if self.words[CURSOR].replace(cursor, next) {
                return Ok(seq..seq + count);
            }
        };
        self.written(slot, self.slot(slot, END).load(Ordering::Relaxed));
        taken
    }

    /// Publishes that `slot` has written its range before `seq`.
    pub(super) fn written(&self, slot: usize, seq: u64) {
        self.slot(slot, START).store(seq, Ordering::Release);
    }

    /// Publishes the row whose item is complete in the journal of `slot`.
    pub(super) fn note(&self, slot: usize, row: Option<usize>) {
        self.slot(slot, NOTED).store(row.map_or(0, |row| row as u64 + 1), Ordering::Release);
    }

    /// Takes a row for writing if its state is still `seen`; its content does not change before
    /// [`Ring::note`]. Pass the result to [`Ring::release`].
    pub(super) fn claim(&self, slot: usize, row: usize, seen: Option<u64>) -> Result<u64, Busy> {
        let found = self.state(row).load(Ordering::Acquire);
        if found & PHASE == WRITING {
            return Err(Busy::By(owner(found)));
        }
        let claimed = ((found >> VERSION_SHIFT) + 1) << VERSION_SHIFT | (slot as u64) << 2 | WRITING;
        if seen.is_some_and(|seen| seen != found) || !self.state(row).replace(found, claimed) {
            return Err(Busy::Raced);
        }
        // The state must be visible before any element changes.
        W::fence(Ordering::Release);
        Ok(claimed)
    }

    /// Publishes a taken row.
    pub(super) fn release(&self, row: usize, claimed: u64) {
        self.state(row).store(claimed >> VERSION_SHIFT << VERSION_SHIFT | READY, Ordering::Release);
    }

    /// Returns the state of a readable row.
    pub(super) fn readable(&self, row: usize) -> Result<u64, Busy> {
        let found = self.state(row).load(Ordering::Acquire);
        match found & PHASE {
            READY => Ok(found),
            WRITING => Err(Busy::By(owner(found))),
            _ => Err(Busy::Raced),
        }
    }

    /// Returns whether everything read of a row belongs to one item.
    pub(super) fn is_still(&self, row: usize, seen: u64) -> bool {
        W::fence(Ordering::Acquire);
        self.state(row).load(Ordering::Relaxed) == seen
    }

    /// Returns the slot that has taken but not written `row`.
    pub(super) fn taker(&self, row: usize) -> Option<usize> {
        let slots = (self.words[NUM_SLOTS].load(Ordering::Acquire) as usize).min(self.sizes.slots);
        (0..slots).find(|slot| {
            self.pending(*slot).is_some_and(|range| {
                let ahead = (row as u64 + self.capacity() - range.start % self.capacity()) % self.capacity();
                range.start + ahead < range.end
            })
        })
    }

    /// Logs a row that is written outside the order of the ring, while it is taken; returns the entry's
    /// number.
    pub(super) fn log(&self, row: usize) -> u64 {
        let len = self.sizes.log as u64;
        loop {
            let number = self.words[NUM_LOGGED].load(Ordering::Acquire);
            let found = self.entry(number).load(Ordering::Acquire);
            // An entry is the lap of the log, from 1, followed by the row.
            let lap = number / len + 1;
            if found >> 32 >= lap {
                // Logged, but the process has not counted it yet.
                self.words[NUM_LOGGED].replace(number, number + 1);
            } else if self.entry(number).replace(found, lap << 32 | row as u64) {
                self.words[NUM_LOGGED].replace(number, number + 1);
                return number;
            }
        }
    }

    /// Returns the rows of these log entries; `None` if they were overwritten.
    pub(super) fn logged(&self, numbers: Range<u64>) -> Option<Vec<usize>> {
        let len = self.sizes.log as u64;
        let read = |number: u64| {
            let found = self.entry(number).load(Ordering::Acquire);
            (found >> 32 == number / len + 1).then_some((found & u64::from(u32::MAX)) as usize)
        };
        if numbers.end - numbers.start > len { None } else { numbers.map(read).collect() }
    }

    /// Completes the writes of the dead writer of `slot`; the caller has its lock. `redo` copies the journal
    /// to a row.
    pub(super) fn recover(&self, slot: usize, redo: impl FnOnce(usize)) {
        let noted = self.slot(slot, NOTED).load(Ordering::Acquire) as usize;
        if let Some(row) = noted.checked_sub(1).filter(|row| *row < self.sizes.capacity) {
            let found = self.state(row).load(Ordering::Acquire);
            if found & PHASE == WRITING && owner(found) == slot {
                redo(row);
                self.release(row, found);
                if let Some(range) = self.pending(slot).filter(|range| self.row(range.start) == row) {
                    self.written(slot, range.start + 1);
                }
            }
        }
        self.note(slot, None);
        let Some(range) = self.pending(slot) else { return };
        let cursor = self.words[CURSOR].load(Ordering::Acquire);
        let base = self.words[BASE].load(Ordering::Acquire);
        let is_last = cursor >> SEQ_SHIFT == range.end && cursor & SLOT == slot as u64;
        if is_last && range.start < base + self.capacity() {
            self.words[CURSOR].replace(cursor, moved(cursor, range.start.max(base)));
        }
        self.written(slot, range.end);
    }

    /// Frees a row that a dead writer of `slot` had taken but not begun; the caller has the slot's lock.
    pub(super) fn free(&self, slot: usize, row: usize) {
        let found = self.state(row).load(Ordering::Acquire);
        if found & PHASE == WRITING && owner(found) == slot {
            let before = found >> VERSION_SHIFT == 1;
            self.state(row).store(if before { 0 } else { found & !0xFF | READY }, Ordering::Release);
        }
    }

    /// Frees all rows that dead writers of `slot` had taken but not begun; the caller has the slot's lock. A
    /// process that takes the slot must call this first, as others wait for the writer of a row while it
    /// lives, and that is now the new one.
    pub(super) fn free_all(&self, slot: usize) {
        let was_used = self.words[NUM_SLOTS].load(Ordering::Acquire) > slot as u64;
        for row in 0..if was_used { self.sizes.capacity } else { 0 } {
            self.free(slot, row);
        }
    }

    /// Empties every row.
    pub(super) fn clear(&self) {
        let cursor = self.words[CURSOR].load(Ordering::Acquire);
        let base = (cursor >> SEQ_SHIFT).next_multiple_of(self.capacity());
        // Raise the base first: then the rows in between are never visible.
        raise(&self.words[BASE], base);
        loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            if cursor >> SEQ_SHIFT >= base || self.words[CURSOR].replace(cursor, moved(cursor, base)) {
                return;
            }
        }
    }

    /// Moves the next range to begin with `row`; every row must hold an item.
    pub(super) fn seek(&self, row: usize) {
        loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            let seq = cursor >> SEQ_SHIFT;
            let ahead = (row as u64 + self.capacity() - seq % self.capacity()) % self.capacity();
            let is_full = seq >= self.words[BASE].load(Ordering::Acquire) + self.capacity();
            if ahead == 0 || !is_full || self.words[CURSOR].replace(cursor, moved(cursor, seq + ahead)) {
                return;
            }
        }
    }

    /// Returns a number above the writes of any row.
    pub(super) fn num_writes(&self) -> u64 {
        (self.words[CURSOR].load(Ordering::Acquire) >> SEQ_SHIFT)
            + self.words[NUM_LOGGED].load(Ordering::Acquire)
    }

    /// Marks every row as written once, with the content of the files.
    #[cfg(test)]
    pub(super) fn fill(&self) {
        for row in 0..self.sizes.capacity {
            self.state(row).store(1 << VERSION_SHIFT | READY, Ordering::Release);
        }
        self.words[CURSOR].store(moved(0, self.capacity()), Ordering::Release);
    }

    /// Returns the write count.
    pub(super) fn write_count(&self) -> u64 {
        self.words[WRITE_COUNT].load(Ordering::Acquire)
    }

    /// Records a write count.
    pub(super) fn count(&self, write_count: u64) {
        self.words[WRITE_COUNT].store(write_count, Ordering::Release);
    }
}

impl Seen {
    /// Returns the number of `capacity` rows with items.
    pub(super) fn len(self, capacity: u64) -> usize {
        self.ready.saturating_sub(self.base).min(capacity) as usize
    }
}

/// Returns a cursor moved to `seq` without a write.
const fn moved(cursor: u64, seq: u64) -> u64 {
    let tag = ((cursor >> SLOT_BITS) + 1) & SLOT;
    seq << SEQ_SHIFT | tag << SLOT_BITS | NOBODY
}

const fn owner(state: u64) -> usize {
    (state >> 2 & SLOT) as usize
}

/// Raises a word to at least `value`.
fn raise(word: &impl Word, value: u64) {
    loop {
        let found = word.load(Ordering::Acquire);
        if found >= value || word.replace(found, value) {
            return;
        }
    }
}

#[cfg(test)]
mod model;
