//! The rows of a step of an engine, which a GPU reads from one block of memory.
//!
//! ```text
//! block: end of ranges and number of keys of each row | ids | positions | cache rows | ranges
//! ```
//! A step copies the block once. In a [`StepBlock`] it has the same address each time, and launches do not depend on lengths, so
//! that a captured step can be repeated.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::{Buffer, Card};
use fulmar_kernel::AttentionShape;

use crate::cuda::{AttentionPlan, segment_keys_max};
use crate::plan::Words;
use crate::{Compute, RowNumbers, Spans, kept};

/// Rows that go through the layers of a decoder together.
///
/// # Examples
/// ```
/// use fulmar_compute::StepRows;
/// let mut rows = StepRows::default();
/// rows.push(7, 2, 40, &[(38, 41)]); // token 7 at position 2 attends to the two before it and to itself
/// rows.pad(2, 90);
/// assert_eq!((rows.len(), &**rows.ids(), &**rows.cache_rows()), (2, &[7, 0][..], &[40, 90][..]));
/// ```
#[derive(Debug, Default)]
pub struct StepRows {
    ids: RowNumbers,
    positions: RowNumbers,
    cache_rows: RowNumbers,
    spans: Spans,
}

/// Memory of a GPU for the numbers of steps with the same number of rows.
#[derive(Debug)]
pub struct StepBlock {
    card: Card,
    words: Arc<Buffer<u32>>,
    room: StepRoom,
}

/// The steps that a [`StepBlock`] has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRoom {
    /// Number of rows.
    pub rows: usize,
    /// Most ranges of all rows together.
    pub ranges: usize,
    /// Most keys of a row, up to [`StepRoom::keys_max`] for attention in bfloat16: it takes time and memory for all of them.
    pub keys: usize,
}

impl StepRoom {
    /// Returns the most keys of a row that attention in bfloat16 has memory for in steps of `num_rows` rows.
    ///
    /// # Examples
    /// ```
    /// use fulmar_compute::{AttentionShape, StepRoom};
    /// let shape = AttentionShape { num_heads: 32, num_kv_heads: 8, head_dim: 128 };
    /// assert_eq!(StepRoom::keys_max(shape, 256), 16_384);
    /// ```
    #[must_use]
    pub fn keys_max(shape: AttentionShape, num_rows: usize) -> usize {
        segment_keys_max(shape, num_rows)
    }
}

impl StepRows {
    /// Adds a row: the id of its token, its position, the row of the cache for its key and its value, and the rows of the cache
    /// that it attends to.
    pub fn push(&mut self, id: u32, position: u32, cache_row: u32, ranges: &[(u32, u32)]) {
        self.ids.push(id);
        self.positions.push(position);
        self.cache_rows.push(cache_row);
        self.spans.push_row(ranges);
    }

    /// Adds rows up to `num_rows`, whose results nothing reads. Each of them has `cache_row` of the cache, and attends to it alone.
    pub fn pad(&mut self, num_rows: usize, cache_row: u32) {
        while self.len() < num_rows {
            self.push(0, 0, cache_row, &[(cache_row, cache_row + 1)]);
        }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns `true` if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the id of each row.
    #[must_use]
    pub const fn ids(&self) -> &RowNumbers {
        &self.ids
    }

    /// Returns the position of each row.
    #[must_use]
    pub const fn positions(&self) -> &RowNumbers {
        &self.positions
    }

    /// Returns the row of the cache of each row.
    #[must_use]
    pub const fn cache_rows(&self) -> &RowNumbers {
        &self.cache_rows
    }

    /// Returns the rows of the cache that each row attends to.
    #[must_use]
    pub const fn spans(&self) -> &Spans {
        &self.spans
    }

    /// Copies all numbers to the device of `compute` at once, if that is a GPU. An error is kept for [`Compute::check`].
    pub fn upload(&self, compute: Compute) {
        let Compute::Cuda(card) = compute else { return };
        kept::run("upload", || {
            let words = Words::upload(card, &self.words().concat())?;
            self.read_from(card, &words.block, None);
            Ok(())
        });
    }

    /// Returns whether all ids, positions and rows are below these numbers.
    #[must_use]
    pub fn are_below(&self, num_ids: usize, num_positions: usize, num_cache_rows: usize) -> bool {
        let is_below = |numbers: &[u32], end: usize| numbers.iter().all(|number| (*number as usize) < end);
        let last = self.spans.rows().flatten().map(|(_, end)| *end as usize).max().unwrap_or(0);
        is_below(&self.ids, num_ids)
            && is_below(&self.positions, num_positions)
            && is_below(&self.cache_rows, num_cache_rows)
            && last <= num_cache_rows
    }

    /// Returns the parts of a block.
    fn words(&self) -> [Vec<u32>; 2] {
        let (mut words, ranges) = AttentionPlan::words(self.spans.rows());
        for numbers in [&self.ids, &self.positions, &self.cache_rows] {
            words.extend_from_slice(numbers);
        }
        // Kernels read ranges in pairs, at addresses of pairs.
        words.resize(first_range(self.len()), 0);
        [words, ranges]
    }

    /// Returns the number of keys of the row with most of them.
    #[must_use]
    pub fn most_keys(&self) -> usize {
        self.spans.most_keys()
    }

    /// Returns the number of ranges of all rows.
    #[must_use]
    pub fn num_ranges(&self) -> usize {
        self.spans.rows().map(<[_]>::len).sum()
    }

    /// Lets operations read the numbers from a block that holds them, with room for `keys_max` keys of a row.
    fn read_from(&self, card: Card, block: &Arc<Buffer<u32>>, keys_max: Option<usize>) {
        let (rows, num_rows) = (Words { block: Arc::clone(block), first: 0 }, self.len());
        self.ids.on_card.set(card, rows.from(2 * num_rows));
        self.positions.on_card.set(card, rows.from(3 * num_rows));
        self.cache_rows.on_card.set(card, rows.from(4 * num_rows));
        let ranges = rows.from(first_range(num_rows));
        self.spans.plan.set(card, AttentionPlan { rows, ranges, keys_max });
    }
}

impl StepBlock {
    /// Allocates a block for steps of `room.rows` rows.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it; `Unavailable` on the CPU, and for a GPU that fails.
    pub fn new(compute: Compute, room: StepRoom) -> Result<Self> {
        let Compute::Cuda(card) = compute else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the device of a block of rows must be a GPU: got cpu",
            ));
        };
        let words = Arc::new(card.zeros(first_range(room.rows) + 2 * room.ranges)?);
        Ok(Self { card, words, room })
    }

    /// Returns whether the block has room for these rows, and none of an earlier step are left that read from it.
    #[must_use]
    pub fn has_room(&self, rows: &StepRows) -> bool {
        rows.len() == self.room.rows
            && rows.num_ranges() <= self.room.ranges
            && rows.most_keys() <= self.room.keys
            && Arc::strong_count(&self.words) == 1
    }

    /// Copies the rows to the block at once; operations then read them there.
    ///
    /// # Errors
    /// `Incompatible` without [`StepBlock::has_room`]; `Unavailable` for a GPU that fails.
    pub fn write(&mut self, rows: &StepRows) -> Result<()> {
        let has_room = self.has_room(rows);
        match Arc::get_mut(&mut self.words).filter(|_| has_room) {
            Some(block) => {
                let words = rows.words().concat();
                self.card.write(&words, block.view_mut().slice(0..words.len()))?;
            }
            None => {
                let StepRoom { rows: room, ranges, keys } = self.room;
                let got = [rows.len(), rows.num_ranges(), rows.most_keys()];
                let detail = format!(
                    "rows, ranges and keys of a row must fit a block for {room}, {ranges} and {keys}: got {got:?}"
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        rows.read_from(self.card, &self.words, Some(self.room.keys));
        Ok(())
    }
}

/// Returns the place of the first range in a block.
const fn first_range(num_rows: usize) -> usize {
    (5 * num_rows).next_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_the_numbers_of_its_rows_and_ranges_at_an_address_of_pairs() {
        let mut rows = StepRows::default();
        rows.push(3, 5, 9, &[(2, 4), (8, 10)]);
        rows.pad(3, 40);
        let [words, ranges] = rows.words();
        assert_eq!(words, [2, 4, 3, 1, 4, 1, 3, 0, 0, 5, 0, 0, 9, 40, 40, 0]);
        assert_eq!(ranges, [2, 0, 8, 2, 40, 0, 40, 0]);
        assert!(rows.are_below(4, 6, 41) && !rows.is_empty());
        assert!(
            ![(3, 6, 41), (4, 5, 41), (4, 6, 40)]
                .into_iter()
                .any(|(id, at, row)| rows.are_below(id, at, row))
        );
        rows.upload(Compute::Cpu);
        assert_eq!((rows.num_ranges(), rows.most_keys()), (4, 4));
        let room = StepRoom { rows: 3, ranges: 4, keys: 4 };
        assert_eq!(StepBlock::new(Compute::Cpu, room).unwrap_err().kind(), ErrorKind::Unavailable);
    }
}
