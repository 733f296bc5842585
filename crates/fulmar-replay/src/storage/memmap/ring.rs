//! The protocol by which many processes write to one ring of rows and read from it, over words that all of them see.
//!
//! ```text
//! reserve  slot[k].start, end = seq, seq + n;  CAS cursor (seq, j) -> (seq + n, k)            rows seq % capacity .. are k's
//! write    CAS state (v, ready) -> (v + 1, writing, k);  note the row whole in k's journal;  copy;  state = (v + 1, ready)
//!          slot[k].start = seq + 1
//! read     s = state, ready;  copy;  state is still s, or once more
//! publish  ready = min(cursor, start of every range that is not written yet): all before it are there
//! ```
//!
//! Who dies leaves in its slot the range that it had taken and, whole in its journal, the row that it was writing. Whoever comes
//! across it and holds the slot's lock writes that row to its end; the other rows of the range keep the items of the lap before. In
//! the first lap there are none: there one range is written at a time, and what is left of a dead writer's is given back.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

// A cursor is a sequence number, a tag that changes when the cursor is set back or ahead, and the slot that took the last range.
const SLOT_BITS: u32 = 6;
const SEQ_SHIFT: u32 = 12;
/// The slot of a cursor that was moved without a write.
const NOBODY: u64 = 63;
const SLOT: u64 = 63;

// A state is how often the row was written, the slot of its writer, and a phase; 0 before the first write.
const VERSION_SHIFT: u32 = 8;
const PHASE: u64 = 3;
const WRITING: u64 = 1;
const READY: u64 = 2;

// What the first words hold.
const CURSOR: usize = 0;
/// The sequence number of row 0 since the ring was emptied, a multiple of the capacity.
const BASE: usize = 1;
/// All before it is written.
const PUBLISHED: usize = 2;
const NUM_LOGGED: usize = 3;
/// One more than the highest slot that was ever taken.
const NUM_SLOTS: usize = 4;
const WRITE_COUNT: usize = 5;
const HEAD: usize = 8;

// What the words of a slot hold; a cache line each.
const START: usize = 0;
const END: usize = 1;
/// One more than the row whose new item lies whole in the journal.
const NOTED: usize = 2;
const SLOT_WORDS: usize = 8;

/// A word that all see.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Whether the word was `from`, and is `to` now.
    fn replace(&self, from: u64, to: u64) -> bool;
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Writers at once, below 63.
    pub slots: usize,
    /// Rows written outside the order of the ring that are remembered.
    pub log: usize,
    /// Rows.
    pub capacity: usize,
}

impl Sizes {
    pub(super) const fn num_words(self) -> usize {
        HEAD + SLOT_WORDS * self.slots + self.log + self.capacity
    }
}

/// The words, and what may be done with them. All zero, they are an empty ring.
pub(super) struct Ring<'a, W> {
    words: &'a [W],
    sizes: Sizes,
}

/// Why something cannot be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Busy {
    /// The writer of this slot must come to its end first.
    By(usize),
    /// Somebody was faster.
    Raced,
}

/// What there was to see of a ring at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first sequence number that was not published.
    pub ready: u64,
    /// Rows that were written outside the order of the ring.
    pub logged: u64,
    /// The number of row 0.
    pub base: u64,
}

impl<'a, W: Word> Ring<'a, W> {
    /// The ring of `words`, as many as `sizes` say.
    pub(super) const fn new(words: &'a [W], sizes: Sizes) -> Self {
        Self { words, sizes }
    }

    /// How many rows there are.
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

    /// The row of a sequence number.
    pub(super) const fn row(&self, seq: u64) -> usize {
        (seq % self.capacity()) as usize
    }

    /// Takes note that a slot is used.
    pub(super) fn enter(&self, slot: usize) {
        raise(&self.words[NUM_SLOTS], slot as u64 + 1);
    }

    /// How many rows hold an item.
    pub(super) fn len(&self) -> usize {
        self.seen().len(self.capacity())
    }

    /// What there is to see now.
    pub(super) fn seen(&self) -> Seen {
        let ready = self.ready().0;
        // The base after: an older one would count what was emptied.
        Seen {
            ready,
            base: self.words[BASE].load(Ordering::Acquire),
            logged: self.words[NUM_LOGGED].load(Ordering::Acquire),
        }
    }

    /// The row that the next range begins with: behind all rows that hold an item, or, once all do, behind all that were taken.
    pub(super) fn next_row(&self) -> usize {
        let seen = self.seen();
        let taken = self.words[CURSOR].load(Ordering::Acquire) >> SEQ_SHIFT;
        let is_full = seen.len(self.capacity()) == self.sizes.capacity;
        self.row(if is_full { taken.max(seen.base) } else { seen.ready.max(seen.base) })
    }

    /// The first sequence number that is not written, and the slot whose it is, if it was taken.
    fn ready(&self) -> (u64, Option<usize>) {
        loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            let mut first = (cursor >> SEQ_SHIFT, None);
            for slot in 0..(self.words[NUM_SLOTS].load(Ordering::Acquire) as usize).min(self.sizes.slots) {
                if let Some(range) = self.pending(slot).filter(|range| range.start < first.0) {
                    first = (range.start, Some(slot));
                }
            }
            // A cursor that was set back in between had counted rows that nobody wrote.
            if self.words[CURSOR].load(Ordering::Acquire) == cursor {
                raise(&self.words[PUBLISHED], first.0);
                // A range that is only asked for may begin before what is published.
                let published = self.words[PUBLISHED].load(Ordering::Acquire);
                return if published > first.0 { (published, None) } else { first };
            }
        }
    }

    /// What a slot has taken, or asks for, and has not written.
    fn pending(&self, slot: usize) -> Option<Range<u64>> {
        // The end first: a start that belongs to a later range is as good, as that one is not in the cursor that was read before.
        let end = self.slot(slot, END).load(Ordering::Acquire);
        let start = self.slot(slot, START).load(Ordering::Acquire);
        (start < end).then_some(start..end)
    }

    /// Takes the next `count` sequence numbers for `slot`, of which the first is that of `row`.
    pub(super) fn reserve(&self, slot: usize, row: usize, count: u64) -> Result<Range<u64>, Busy> {
        let taken = loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            let seq = cursor >> SEQ_SHIFT;
            let base = self.words[BASE].load(Ordering::Acquire);
            if seq < base {
                // Emptied, and whoever did has not come this far yet.
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

    /// Says that `slot` has written what it took before `seq`.
    pub(super) fn written(&self, slot: usize, seq: u64) {
        self.slot(slot, START).store(seq, Ordering::Release);
    }

    /// Says which row's item lies whole in the journal of `slot`.
    pub(super) fn note(&self, slot: usize, row: Option<usize>) {
        self.slot(slot, NOTED).store(row.map_or(0, |row| row as u64 + 1), Ordering::Release);
    }

    /// Takes a row to write it, if its state is `seen` still; what it holds is not changed before [`Ring::note`]. What comes back goes to
    /// [`Ring::release`].
    pub(super) fn claim(&self, slot: usize, row: usize, seen: Option<u64>) -> Result<u64, Busy> {
        let found = self.state(row).load(Ordering::Acquire);
        if found & PHASE == WRITING {
            return Err(Busy::By(owner(found)));
        }
        let claimed = ((found >> VERSION_SHIFT) + 1) << VERSION_SHIFT | (slot as u64) << 2 | WRITING;
        if seen.is_some_and(|seen| seen != found) || !self.state(row).replace(found, claimed) {
            return Err(Busy::Raced);
        }
        // No element is changed before the state says so.
        W::fence(Ordering::Release);
        Ok(claimed)
    }

    /// Shows a row that was taken.
    pub(super) fn release(&self, row: usize, claimed: u64) {
        self.state(row).store(claimed >> VERSION_SHIFT << VERSION_SHIFT | READY, Ordering::Release);
    }

    /// The state of a row that can be read.
    pub(super) fn readable(&self, row: usize) -> Result<u64, Busy> {
        let found = self.state(row).load(Ordering::Acquire);
        match found & PHASE {
            READY => Ok(found),
            WRITING => Err(Busy::By(owner(found))),
            _ => Err(Busy::Raced),
        }
    }

    /// Whether all that was read of a row is of one item.
    pub(super) fn is_still(&self, row: usize, seen: u64) -> bool {
        W::fence(Ordering::Acquire);
        self.state(row).load(Ordering::Relaxed) == seen
    }

    /// The slot that has taken `row` and has not written it.
    pub(super) fn taker(&self, row: usize) -> Option<usize> {
        let slots = (self.words[NUM_SLOTS].load(Ordering::Acquire) as usize).min(self.sizes.slots);
        (0..slots).find(|slot| {
            self.pending(*slot).is_some_and(|range| {
                let ahead = (row as u64 + self.capacity() - range.start % self.capacity()) % self.capacity();
                range.start + ahead < range.end
            })
        })
    }

    /// Takes note that a row is written outside the order of the ring, while it is taken; the number of the note.
    pub(super) fn log(&self, row: usize) -> u64 {
        let len = self.sizes.log as u64;
        loop {
            let number = self.words[NUM_LOGGED].load(Ordering::Acquire);
            let found = self.entry(number).load(Ordering::Acquire);
            // An entry is the lap of the log, from 1, before the row.
            let lap = number / len + 1;
            if found >> 32 >= lap {
                // Noted, and whoever did has not counted it yet.
                self.words[NUM_LOGGED].replace(number, number + 1);
            } else if self.entry(number).replace(found, lap << 32 | row as u64) {
                self.words[NUM_LOGGED].replace(number, number + 1);
                return number;
            }
        }
    }

    /// The rows of the notes of these numbers; none if those are no longer kept.
    pub(super) fn logged(&self, numbers: Range<u64>) -> Option<Vec<usize>> {
        let len = self.sizes.log as u64;
        let read = |number: u64| {
            let found = self.entry(number).load(Ordering::Acquire);
            (found >> 32 == number / len + 1).then_some((found & u64::from(u32::MAX)) as usize)
        };
        if numbers.end - numbers.start > len { None } else { numbers.map(read).collect() }
    }

    /// Ends what the writer of `slot` left when it died; the caller has its lock. `redo` copies the journal to a row.
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

    /// Gives a row back that a dead writer of `slot` had taken and not begun; the caller has the slot's lock.
    pub(super) fn free(&self, slot: usize, row: usize) {
        let found = self.state(row).load(Ordering::Acquire);
        if found & PHASE == WRITING && owner(found) == slot {
            let before = found >> VERSION_SHIFT == 1;
            self.state(row).store(if before { 0 } else { found & !0xFF | READY }, Ordering::Release);
        }
    }

    /// Gives all rows back that dead writers of `slot` had taken and not begun; the caller has the slot's lock. Whoever takes the slot
    /// must do so first: others wait for the writer of a row as long as it lives, and now that is the new one.
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
        // First the base: nobody sees the rows between.
        raise(&self.words[BASE], base);
        loop {
            let cursor = self.words[CURSOR].load(Ordering::Acquire);
            if cursor >> SEQ_SHIFT >= base || self.words[CURSOR].replace(cursor, moved(cursor, base)) {
                return;
            }
        }
    }

    /// Has the next range begin with `row`, where every row holds an item.
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

    /// More than any row was ever written.
    pub(super) fn num_writes(&self) -> u64 {
        (self.words[CURSOR].load(Ordering::Acquire) >> SEQ_SHIFT)
            + self.words[NUM_LOGGED].load(Ordering::Acquire)
    }

    /// Has every row written once, with what is in the files.
    #[cfg(test)]
    pub(super) fn fill(&self) {
        for row in 0..self.sizes.capacity {
            self.state(row).store(1 << VERSION_SHIFT | READY, Ordering::Release);
        }
        self.words[CURSOR].store(moved(0, self.capacity()), Ordering::Release);
    }

    /// How many items writers counted.
    pub(super) fn write_count(&self) -> u64 {
        self.words[WRITE_COUNT].load(Ordering::Acquire)
    }

    /// Takes note of how many items a writer counted.
    pub(super) fn count(&self, write_count: u64) {
        self.words[WRITE_COUNT].store(write_count, Ordering::Release);
    }
}

impl Seen {
    /// How many of `capacity` rows hold an item.
    pub(super) fn len(self, capacity: u64) -> usize {
        self.ready.saturating_sub(self.base).min(capacity) as usize
    }
}

/// A cursor that is set to `seq` without a write.
const fn moved(cursor: u64, seq: u64) -> u64 {
    let tag = ((cursor >> SLOT_BITS) + 1) & SLOT;
    seq << SEQ_SHIFT | tag << SLOT_BITS | NOBODY
}

const fn owner(state: u64) -> usize {
    (state >> 2 & SLOT) as usize
}

/// Makes a word no smaller than `value`.
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
