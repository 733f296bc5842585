//! A buffer of the items with the highest ranks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::row::{checked_capacity, checked_row};

/// Keeps the `capacity` items with the highest rank; ties keep the first.
///
/// # Examples
/// ```
/// let mut writer = fulmar_replay::MaxValueWriter::new(2)?;
/// assert_eq!(writer.extend(&[3.0, 1.0])?, [Some(0), Some(1)]);
/// assert_eq!(writer.extend(&[0.5, 2.0])?, [None, Some(1)]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MaxValueWriter {
    capacity: usize,
    write_count: u64,
    /// The lowest rank on top; ties by the lowest row.
    heap: BinaryHeap<Reverse<Entry>>,
}

/// The state of a [`MaxValueWriter`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MaxValueWriterState {
    /// Maximum number of rows.
    pub capacity: usize,
    /// Number of items ever accepted.
    pub write_count: u64,
    /// The rank of each row that holds an item.
    pub ranks: Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    rank: f64,
    row: usize,
}

impl MaxValueWriter {
    /// Returns a writer of `capacity` rows, none of them written.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize) -> Result<Self> {
        let capacity = checked_capacity(capacity)?;
        Ok(Self { capacity, write_count: 0, heap: BinaryHeap::new() })
    }

    /// Returns the maximum number of rows.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of rows with items, `0..len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no row holds an item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the number of items ever accepted, including items replaced by better ones in the same call.
    #[must_use]
    pub const fn write_count(&self) -> u64 {
        self.write_count
    }

    /// Returns the row of each item by its rank; `None` if it is not among the best, or no longer at the end
    /// of the call.
    ///
    /// # Errors
    /// `Empty` without ranks; `NonFinite` if a rank is NaN or infinite. After an error nothing has changed.
    pub fn extend(&mut self, ranks: &[f64]) -> Result<Vec<Option<usize>>> {
        if ranks.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "a write must hold at least one item: got 0"));
        }
        if let Some(index) = ranks.iter().position(|rank| !rank.is_finite()) {
            return Err(Error::new(
                ErrorKind::NonFinite,
                format!("rank {index} must be a finite number: got {}", ranks[index]),
            ));
        }
        let mut last = HashMap::new();
        let mut rows = Vec::with_capacity(ranks.len());
        for (index, &rank) in ranks.iter().enumerate() {
            let row = self.place(rank);
            if let Some(earlier) = row.and_then(|row| last.insert(row, index)) {
                rows[earlier] = None;
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Returns the rank of the item in each row. Shape `[len]`.
    #[must_use]
    pub fn ranks(&self) -> Vec<f64> {
        let mut ranks = vec![0.0; self.heap.len()];
        for Reverse(entry) in &self.heap {
            ranks[entry.row] = entry.rank;
        }
        ranks
    }

    /// Empties the buffer. The write count stays.
    pub fn clear(&mut self) {
        self.heap.clear();
    }

    /// Sets the write count to 0.
    pub fn reset_write_count(&mut self) {
        self.write_count = 0;
    }

    /// Returns the state for a checkpoint.
    #[must_use]
    pub fn state(&self) -> MaxValueWriterState {
        MaxValueWriterState { capacity: self.capacity, write_count: self.write_count, ranks: self.ranks() }
    }

    /// Restores a writer from its state.
    ///
    /// # Errors
    /// The errors of [`MaxValueWriter::new`]; `OutOfRange` if there are more ranks than rows; `NonFinite` if
    /// a rank is NaN or infinite.
    pub fn from_state(state: &MaxValueWriterState) -> Result<Self> {
        let mut writer = Self::new(state.capacity)?;
        checked_row(state.ranks.len(), state.capacity + 1).map_err(|error| error.at("ranks"))?;
        if !state.ranks.is_empty() {
            writer.extend(&state.ranks)?;
        }
        writer.write_count = state.write_count;
        Ok(writer)
    }

    fn place(&mut self, rank: f64) -> Option<usize> {
        let row = if self.heap.len() < self.capacity {
            self.heap.len()
        } else {
            let Reverse(worst) = *self.heap.peek()?;
            if rank <= worst.rank {
                return None;
            }
            self.heap.pop();
            worst.row
        };
        self.heap.push(Reverse(Entry { rank, row }));
        self.write_count += 1;
        Some(row)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.total_cmp(&other.rank).then(self.row.cmp(&other.row))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}
