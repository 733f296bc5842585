//! A ring: the newest item replaces the oldest.
//!
//! ```text
//! rows   = (cursor + 0..count) mod capacity
//! cursor = (cursor + count) mod capacity;  len = min(capacity, len + count);  write_count += count
//! ```

use std::collections::HashSet;

use fulmar_core::limits::REPLAY_ROWS_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Stateful;
use crate::read::count_of;
use crate::row::{checked_capacity, checked_row};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::writer::{WritePlan, Writer};

/// Chooses rows in a ring, and optionally counts the writes of each row.
///
/// # Examples
/// ```
/// let mut writer = fulmar_replay::RoundRobinWriter::new(5)?;
/// assert_eq!(writer.extend(3)?, [0, 1, 2]);
/// assert_eq!(writer.extend(4)?, [3, 4, 0, 1]);
/// assert_eq!((writer.len(), writer.cursor(), writer.write_count()), (5, 2, 7));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundRobinWriter {
    capacity: usize,
    cursor: usize,
    len: usize,
    write_count: u64,
    /// Generations of the rows ever written; `None` if not tracked.
    generations: Option<Vec<i64>>,
    /// The generation of a row that is written for the first time.
    first_generation: i64,
}

/// The state of a [`RoundRobinWriter`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoundRobinWriterState {
    /// Maximum number of rows.
    pub capacity: usize,
    /// The row that is written next.
    pub cursor: usize,
    /// Number of rows that hold an item.
    pub len: usize,
    /// Number of items ever written.
    pub write_count: u64,
    /// The number of rewrites of each row ever written; absent if not tracked.
    pub generations: Option<Vec<i64>>,
}

impl RoundRobinWriter {
    /// Returns a ring of `capacity` rows, none of them written.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above [`REPLAY_ROWS_MAX`].
    pub fn new(capacity: usize) -> Result<Self> {
        let capacity = checked_capacity(capacity)?;
        Ok(Self { capacity, cursor: 0, len: 0, write_count: 0, generations: None, first_generation: 0 })
    }

    /// Enables counting the writes of each row. 8 bytes a row.
    #[must_use]
    pub fn tracking_generations(self) -> Self {
        Self { generations: Some(Vec::new()), ..self }
    }

    /// Returns the maximum number of rows.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the row that is written next.
    #[must_use]
    pub const fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns the number of rows with items, `0..len`.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no row holds an item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether every row holds an item.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Returns the number of items ever written.
    #[must_use]
    pub const fn write_count(&self) -> u64 {
        self.write_count
    }

    /// Returns the rows of the next `count` items in order. If `count` is above the capacity, a row comes
    /// several times and its last item wins.
    ///
    /// # Errors
    /// `Empty` if `count` is 0, `LimitExceeded` if it is above [`REPLAY_ROWS_MAX`].
    pub fn extend(&mut self, count: usize) -> Result<Vec<usize>> {
        check_count(count)?;
        let rows: Vec<usize> = (0..count).map(|offset| (self.cursor + offset) % self.capacity).collect();
        self.cursor = (self.cursor + count) % self.capacity;
        self.len = self.capacity.min(self.len + count);
        self.note(&rows);
        Ok(rows)
    }

    /// Returns the rows of the next `count` items: first those of `freed` in order, then the ring, skipping
    /// rows already used in this call.
    ///
    /// # Errors
    /// The errors of [`RoundRobinWriter::extend`]; `OutOfRange` if `count` is above the capacity or a freed
    /// row holds no item.
    pub fn extend_reusing(
        &mut self,
        freed: impl IntoIterator<Item = usize>,
        count: usize,
    ) -> Result<Vec<usize>> {
        check_count(count)?;
        if count > self.capacity {
            let detail = format!("count must be <= capacity, {}: got {count}", self.capacity);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut given = HashSet::new();
        let mut rows = Vec::with_capacity(count);
        for row in freed.into_iter().take(count) {
            checked_row(row, self.len)?;
            if given.insert(row) {
                rows.push(row);
            }
        }
        while rows.len() < count {
            if given.insert(self.cursor) {
                rows.push(self.cursor);
                self.len = self.len.max(self.cursor + 1);
            }
            self.cursor = (self.cursor + 1) % self.capacity;
        }
        self.note(&rows);
        Ok(rows)
    }

    /// Records that `rows`, which hold items, were overwritten. The cursor stays.
    ///
    /// # Errors
    /// `Empty` if `rows` is empty, `OutOfRange` if a row holds no item.
    pub fn write_at(&mut self, rows: &[usize]) -> Result<()> {
        check_count(rows.len())?;
        for &row in rows {
            checked_row(row, self.len)?;
        }
        self.note(rows);
        Ok(())
    }

    /// Returns the number of rewrites of each row: 0 after the first write, more over a storage that outlived
    /// a buffer; -1 if never written, beyond the capacity or not tracked. A row's number changes when it is
    /// written and when the buffer is emptied.
    #[must_use]
    pub fn generations_of(&self, rows: &[i64]) -> Vec<i64> {
        let generations = self.generations.as_deref().unwrap_or_default();
        let of = |&row: &i64| usize::try_from(row).ok().and_then(|row| generations.get(row)).copied();
        rows.iter().map(|row| of(row).unwrap_or(-1)).collect()
    }

    /// Empties the ring. The write count stays.
    pub fn clear(&mut self) {
        self.cursor = 0;
        self.len = 0;
        for generation in self.generations.iter_mut().flatten() {
            *generation += i64::from(*generation >= 0);
        }
    }

    /// Sets the write count to 0.
    pub fn reset_write_count(&mut self) {
        self.write_count = 0;
    }

    /// Returns the state for a checkpoint.
    #[must_use]
    pub fn state(&self) -> RoundRobinWriterState {
        RoundRobinWriterState {
            capacity: self.capacity,
            cursor: self.cursor,
            len: self.len,
            write_count: self.write_count,
            generations: self.generations.clone(),
        }
    }

    /// Restores a writer from its state.
    ///
    /// # Errors
    /// The errors of [`RoundRobinWriter::new`]; `Corrupt` if cursor, length and generations are inconsistent.
    pub fn from_state(state: &RoundRobinWriterState) -> Result<Self> {
        let capacity = checked_capacity(state.capacity)?;
        let ring = state.cursor < capacity && state.len <= capacity;
        let filling = state.len == capacity || state.cursor == state.len;
        let counted = state.generations.as_ref().is_none_or(|all| all.len() <= capacity);
        if !(ring && filling && counted) {
            let detail = format!(
                "cursor and len must be those of a ring of {capacity}: got {}, {}",
                state.cursor, state.len
            );
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let (cursor, len, write_count) = (state.cursor, state.len, state.write_count);
        let generations = state.generations.clone();
        Ok(Self { capacity, cursor, len, write_count, generations, first_generation: 0 })
    }

    fn note(&mut self, rows: &[usize]) {
        self.write_count += rows.len() as u64;
        self.raise(rows);
    }

    fn raise(&mut self, rows: &[usize]) {
        let Some(generations) = &mut self.generations else { return };
        for &row in rows {
            if row >= generations.len() {
                generations.resize(row + 1, -1);
            }
            let count = &mut generations[row];
            *count = if *count < 0 { self.first_generation } else { *count + 1 };
        }
    }
}

impl Writer for RoundRobinWriter {
    fn plan(&self, items: &TensorDict, freed: &[usize]) -> Result<WritePlan> {
        let Self { capacity, cursor, len, write_count, first_generation, .. } = *self;
        let mut trial = Self { capacity, cursor, len, write_count, generations: None, first_generation };
        let count = count_of(items);
        let rows = if freed.is_empty() {
            trial.extend(count)?
        } else {
            trial.extend_reusing(freed.iter().copied(), count)?
        };
        let rows = rows.into_iter().map(Some).collect();
        Ok(WritePlan { rows, cursor: trial.cursor, write_count: trial.write_count })
    }

    fn commit(&mut self, items: &TensorDict, freed: &[usize]) -> Result<()> {
        let count = count_of(items);
        if freed.is_empty() {
            self.extend(count)?;
        } else {
            self.extend_reusing(freed.iter().copied(), count)?;
        }
        Ok(())
    }

    fn write_at(&mut self, rows: &[usize], foreign: bool) -> Result<()> {
        if foreign {
            self.raise(rows);
            return Ok(());
        }
        Self::write_at(self, rows)
    }

    fn position(&self) -> (usize, u64) {
        (self.cursor, self.write_count)
    }

    fn resume(
        &mut self,
        len: usize,
        (cursor, write_count): (usize, u64),
        _: &dyn Fn() -> Result<TensorDict>,
    ) -> Result<()> {
        let state =
            RoundRobinWriterState { capacity: self.capacity, cursor, len, write_count, generations: None };
        let ring = Self::from_state(&state)?;
        let mut generations = self.generations.take();
        if let Some(generations) = generations.as_mut().filter(|generations| generations.len() < len) {
            generations.resize(len, self.first_generation);
        }
        *self = Self { generations, first_generation: self.first_generation, ..ring };
        Ok(())
    }

    fn start_generations(&mut self, first: i64) {
        self.first_generation = first;
    }

    fn generations_of(&self, rows: &[i64]) -> Option<Vec<i64>> {
        self.generations.as_ref().map(|_| Self::generations_of(self, rows))
    }

    fn clear(&mut self, keeps_count: bool) {
        Self::clear(self);
        if !keeps_count {
            self.reset_write_count();
        }
    }
}

impl Stateful for RoundRobinWriter {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let ring = Self::from_state(&from_state("writer", state)?)?;
        check_capacity(self.capacity, ring.capacity)?;
        *self = Self { first_generation: self.first_generation, ..ring };
        Ok(())
    }
}

fn check_count(count: usize) -> Result<()> {
    if count == 0 {
        return Err(Error::new(ErrorKind::Empty, "a write must hold at least one item: got 0"));
    }
    if count > REPLAY_ROWS_MAX {
        let detail = format!("count must be <= {REPLAY_ROWS_MAX}: got {count}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}
