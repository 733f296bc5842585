//! The in-memory index of each row's place.

use std::collections::{BTreeMap, HashMap};

use crate::layout::Position;

/// Rows in a page. Small, so that a damaged file that names distant rows cannot ask for much more memory than
/// its size.
const PAGE_ROWS: u64 = 64;

/// The place of a row's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The position of the row's own bytes.
    pub position: Position,
    pub len: u32,
    pub crc: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot<T> {
    /// The lap of the ring when this was set, modulo 2^32; an older lap is another row.
    lap: u32,
    segment: u32,
    value: T,
}

type Pages<T> = HashMap<u64, Box<[Option<Slot<T>>; PAGE_ROWS as usize]>>;

/// The window of live rows, their places and marks, and the number of live entries in each segment.
#[derive(Debug, Default)]
pub struct Index {
    pub capacity: u64,
    /// The first row of slot 0.
    pub base_seq: u64,
    pub end_seq: u64,
    /// Rows before this one have an unknown mark unless one is stored.
    unmarked_before: u64,
    places: Pages<(u32, u32, u32)>,
    marks: Pages<u64>,
    /// Segment -> number of rows and marks in it that are the newest of their slot.
    live: BTreeMap<u32, u64>,
    live_bytes: u64,
}

impl Index {
    pub fn new(capacity: u64, base_seq: u64, end_seq: u64) -> Self {
        Self { capacity, base_seq, end_seq, ..Self::default() }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> u64 {
        (self.end_seq - self.base_seq).min(self.capacity)
    }

    /// Returns whether row `seq` is live: not overwritten, cleared or in the future.
    pub fn is_live(&self, seq: u64) -> bool {
        seq < self.end_seq && seq >= self.end_seq - self.len()
    }

    /// Returns the row in `slot`.
    pub fn seq_of(&self, slot: u64) -> Option<u64> {
        if slot >= self.len() {
            return None;
        }
        let last = self.end_seq - 1 - self.base_seq;
        let back = (last % self.capacity + self.capacity - slot) % self.capacity;
        Some(self.end_seq - 1 - back)
    }

    pub fn place(&self, seq: u64) -> Option<Place> {
        let slot = found(&self.places, self.slot_lap(seq))?;
        let (offset, len, crc) = slot.value;
        Some(Place { position: Position { segment: slot.segment, offset }, len, crc })
    }

    /// Sets the place of row `seq`, which must be live.
    pub fn set_place(&mut self, seq: u64, place: Place) {
        let key = self.slot_lap(seq);
        let slot = Slot {
            lap: key.1,
            segment: place.position.segment,
            value: (place.position.offset, place.len, place.crc),
        };
        if let Some(old) = replaced(&mut self.places, key.0, slot) {
            self.release(old.segment);
            self.live_bytes -= u64::from(old.value.1);
        }
        self.live_bytes += u64::from(place.len);
        self.hold(place.position.segment);
        // A slot's mark belongs to its row: the first place of the next row removes it.
        if let Some(mark) = taken_if(&mut self.marks, key.0, |mark| mark.lap != key.1) {
            self.release(mark.segment);
        }
    }

    /// Removes the place of row `seq`.
    pub fn remove_place(&mut self, seq: u64) {
        let (slot, _) = self.slot_lap(seq);
        if let Some(old) = taken_if(&mut self.places, slot, |_| true) {
            self.release(old.segment);
            self.live_bytes -= u64::from(old.value.1);
        }
    }

    /// Returns whether the mark of row `seq` may be lost.
    pub fn mark_is_unknown(&self, seq: u64) -> bool {
        seq < self.unmarked_before && self.mark(seq).is_none()
    }

    /// Returns the mark of row `seq` and its segment.
    pub fn mark(&self, seq: u64) -> Option<(u64, u32)> {
        found(&self.marks, self.slot_lap(seq)).map(|slot| (slot.value, slot.segment))
    }

    /// Sets the mark of row `seq`, which must be live.
    pub fn set_mark(&mut self, seq: u64, value: u64, segment: u32) {
        let (slot, lap) = self.slot_lap(seq);
        if let Some(old) = replaced(&mut self.marks, slot, Slot { lap, segment, value }) {
            self.release(old.segment);
        }
        self.hold(segment);
    }

    /// Removes all rows; the next one is the first of slot 0.
    pub fn clear(&mut self, base_seq: u64) {
        self.forget(base_seq);
        self.base_seq = base_seq;
        self.end_seq = base_seq;
    }

    /// Removes the places and marks of all rows before `seq`, because lost entries may have replaced them.
    pub fn forget(&mut self, seq: u64) {
        self.unmarked_before = seq;
        self.places.clear();
        self.marks.clear();
        self.live.clear();
        self.live_bytes = 0;
    }

    /// Returns the number of rows and marks that keep `segment` from being removed.
    pub fn live_in(&self, segment: u32) -> u64 {
        self.live.get(&segment).copied().unwrap_or(0)
    }

    /// Returns the first segment with a live row or mark.
    pub fn first_held(&self) -> Option<u32> {
        self.live.keys().next().copied()
    }

    /// Returns the number of rows and marks with a place.
    pub fn num_held(&self) -> u64 {
        self.live.values().sum()
    }

    /// Returns the size of the rows in bytes.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Returns the number of live rows with a place, O(rows).
    pub fn num_placed(&self) -> u64 {
        let lap = |seq| self.slot_lap(seq).1;
        let newest = self.end_seq.checked_sub(1).filter(|seq| *seq >= self.base_seq);
        let Some(newest) = newest else { return 0 };
        let last_slot = (newest - self.base_seq) % self.capacity;
        let mut count = 0;
        for (page, rows) in &self.places {
            for (row, slot) in rows.iter().enumerate() {
                let number = page * PAGE_ROWS + row as u64;
                let newest_lap = if number <= last_slot { lap(newest) } else { lap(newest).wrapping_sub(1) };
                count += u64::from(slot.is_some_and(|slot| slot.lap == newest_lap));
            }
        }
        count
    }

    fn slot_lap(&self, seq: u64) -> (u64, u32) {
        let since = seq - self.base_seq;
        (since % self.capacity, (since / self.capacity) as u32)
    }

    fn hold(&mut self, segment: u32) {
        *self.live.entry(segment).or_default() += 1;
    }

    fn release(&mut self, segment: u32) {
        if let Some(count) = self.live.get_mut(&segment) {
            *count -= 1;
            if *count == 0 {
                self.live.remove(&segment);
            }
        }
    }
}

fn found<T: Copy>(pages: &Pages<T>, (slot, lap): (u64, u32)) -> Option<Slot<T>> {
    let page = pages.get(&(slot / PAGE_ROWS))?;
    page[(slot % PAGE_ROWS) as usize].filter(|found| found.lap == lap)
}

fn replaced<T: Copy>(pages: &mut Pages<T>, slot: u64, with: Slot<T>) -> Option<Slot<T>> {
    let page = pages.entry(slot / PAGE_ROWS).or_insert_with(|| Box::new([None; PAGE_ROWS as usize]));
    page[(slot % PAGE_ROWS) as usize].replace(with)
}

fn taken_if<T: Copy>(
    pages: &mut Pages<T>,
    slot: u64,
    condition: impl FnOnce(&Slot<T>) -> bool,
) -> Option<Slot<T>> {
    let found = &mut pages.get_mut(&(slot / PAGE_ROWS))?[(slot % PAGE_ROWS) as usize];
    if found.as_ref().is_some_and(condition) { found.take() } else { None }
}
