//! The replay buffer: a storage, a writer, a sampler and a sample unit.
//!
//! ```text
//! write    writer.plan -> storage.set, begun anew if another buffer wrote first -> writer.commit -> sampler.extend, unit.extend -> priorities
//! sample   sampler.sample -> unit.expand -> storage.get -> the columns of the rows, added to the items
//! ```
//!
//! In a storage with several lanes, items have the shape `[lanes.., time]` and are stored time-first: rows
//! count through time, then lanes.

use std::borrow::Cow;

use fulmar_core::limits::{REPLAY_SAMPLE_ROWS_MAX, REPLAY_WRITE_TRIES_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{BatchOfOne, TensorDict};

use crate::Storage;
use crate::read::count_of;
use crate::sampler::{Sampled, Sampler};
use crate::unit::SampleUnit;
use crate::writer::Writer;

mod batch;
pub(crate) mod checkpoint;
mod conditional;
mod edit;
mod follow;
mod options;
mod priority;
mod state;

use follow::tell_runs;

pub use conditional::{ConditionalUpdate, ConditionalUpdateResult};
pub use options::{Batch, ReplayBufferOptions, ReplayBufferState, ReplayBufferStats};

/// Stores items and draws batches of them.
///
/// # Examples
/// ```
/// use fulmar_replay::{ReplayBuffer, ReplayBufferOptions, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let storage = Box::new(TensorStorage::new(&[100])?);
/// let mut buffer = ReplayBuffer::new(storage, ReplayBufferOptions::default())?;
/// let mut items = TensorDict::new(&[3])?;
/// items.set("reward", Tensor::from_vec_f32(&[3], vec![0.0, 1.0, 2.0])?)?;
/// assert_eq!(buffer.extend(&items)?, [Some(0), Some(1), Some(2)]);
/// let batch = buffer.sample(Some(32))?;
/// assert_eq!(batch.items.tensor("reward")?.shape(), [32]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct ReplayBuffer {
    options: ReplayBufferOptions,
    storage: Box<dyn Storage>,
    sampler: Box<dyn Sampler>,
    writer: Box<dyn Writer>,
    unit: Box<dyn SampleUnit>,
    /// The storage's revision that sampler and unit have seen.
    seen: u64,
    /// The number of its rows at that revision.
    seen_len: usize,
    /// Memory of [`ReplayBuffer::add`].
    one: BatchOfOne,
}

impl std::fmt::Debug for ReplayBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayBuffer").field("options", &self.options).field("len", &self.len()).finish()
    }
}

impl ReplayBuffer {
    /// Returns a buffer over `storage` with the parts of `options`. The parts get all rows that the storage
    /// already holds.
    ///
    /// # Errors
    /// The errors of the parts' constructors.
    pub fn new(storage: Box<dyn Storage>, options: ReplayBufferOptions) -> Result<Self> {
        let sampler = options.sampler.build(storage.shape(), options.seed)?;
        let unit = options.unit.build(storage.shape())?;
        let time = storage.shape().first().copied().unwrap_or_default();
        let writer = options.writer.build(time)?;
        Self::of_parts(storage, sampler, writer, unit, options)
    }

    /// Returns a buffer of these parts; they override `options`.
    ///
    /// # Errors
    /// If sampler or unit refuse the stored rows.
    pub fn of_parts(
        storage: Box<dyn Storage>,
        sampler: Box<dyn Sampler>,
        writer: Box<dyn Writer>,
        unit: Box<dyn SampleUnit>,
        options: ReplayBufferOptions,
    ) -> Result<Self> {
        storage.refresh()?;
        let seen = storage.revision();
        let seen_len = storage.len();
        let one = BatchOfOne::default();
        let mut buffer = Self { options, storage, sampler, writer, unit, seen, seen_len, one };
        buffer.writer.start_generations(buffer.storage.first_generation().unwrap_or(0));
        buffer.follow_writer()?;
        buffer.tell_all(true)?;
        Ok(buffer)
    }

    /// Returns the options.
    #[must_use]
    pub const fn options(&self) -> &ReplayBufferOptions {
        &self.options
    }

    /// Returns the storage.
    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Returns the sampler.
    #[must_use]
    pub fn sampler(&self) -> &dyn Sampler {
        &*self.sampler
    }

    /// Returns the sampler for changes of its parameters.
    pub fn sampler_mut(&mut self) -> &mut dyn Sampler {
        &mut *self.sampler
    }

    /// Returns the writer.
    #[must_use]
    pub fn writer(&self) -> &dyn Writer {
        &*self.writer
    }

    /// Replaces the sampler and returns the old one; the new one gets all rows.
    ///
    /// # Errors
    /// If the new sampler refuses the rows; then nothing has changed.
    pub fn replace_sampler(&mut self, mut sampler: Box<dyn Sampler>) -> Result<Box<dyn Sampler>> {
        sampler.clear();
        tell_runs(&*self.storage, self.runs_by_age(), &mut *sampler)?;
        Ok(std::mem::replace(&mut self.sampler, sampler))
    }

    /// Replaces the writer and returns the old one.
    pub fn replace_writer(&mut self, writer: Box<dyn Writer>) -> Box<dyn Writer> {
        std::mem::replace(&mut self.writer, writer)
    }

    /// Returns the number of rows that can be drawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sampler.num_live(self.storage.len())
    }

    /// Returns whether no row can be drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns statistics at no cost.
    #[must_use]
    pub fn stats(&self) -> ReplayBufferStats {
        let (size, capacity) = (self.storage.len(), self.storage.capacity());
        let utilization = size as f64 / capacity as f64;
        ReplayBufferStats {
            size,
            capacity,
            write_count: self.writer.write_count(),
            utilization,
            prefetch_queue_size: 0,
        }
    }

    /// Writes one item without a batch dimension and returns its row, or `None` if it is not kept.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::extend`]; `Incompatible` for a storage with lanes, which are written
    /// together.
    pub fn add(&mut self, item: &TensorDict) -> Result<Option<usize>> {
        self.add_batch(|memory| memory.of(item))
    }

    /// Runs [`ReplayBuffer::add`] with an item that `batch` puts into the memory of a batch.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::add`] and those of `batch`.
    pub fn add_batch(
        &mut self,
        batch: impl FnOnce(&mut BatchOfOne) -> Result<TensorDict>,
    ) -> Result<Option<usize>> {
        let batch = batch(&mut self.one)?;
        let rows = if self.num_lanes() > 1 {
            let detail =
                "the storage must have one dimension to take one item: got lanes, which are written together";
            Err(Error::new(ErrorKind::Incompatible, detail))
        } else {
            self.extend(&batch)
        };
        self.one.keep(batch);
        Ok(rows?.first().copied().flatten())
    }

    /// Writes `items`, `[items]`, or `[lanes.., time]` with lanes, and returns the row of each, time first.
    /// If they have priorities at the priority key, sets those.
    ///
    /// # Errors
    /// `Empty` without items; `OutOfRange` if there are more than the buffer holds and overwriting is not
    /// allowed; the errors of writer, storage and sampler, which name the leaf. After one of the first two
    /// nothing has changed.
    pub fn extend(&mut self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.write(items, true)
    }

    /// Runs [`ReplayBuffer::extend`] with the sampler's default priorities, ignoring priorities in the items.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::extend`].
    pub fn extend_without_priorities(&mut self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.write(items, false)
    }

    fn write(&mut self, items: &TensorDict, prioritized: bool) -> Result<Vec<Option<usize>>> {
        let mut rows = None;
        self.retry(|buffer| {
            rows = buffer.write_once(items, prioritized)?;
            Ok(rows.is_some())
        })?;
        Ok(rows.unwrap_or_default())
    }

    /// Repeats `change` until it returns `true`: it returns `false` if another buffer wrote first.
    fn retry(&mut self, mut change: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            self.catch_up()?;
            if change(self)? {
                return Ok(());
            }
        }
        let detail = format!(
            "a write must succeed within {REPLAY_WRITE_TRIES_MAX} tries: other writers changed the storage each time"
        );
        Err(Error::new(ErrorKind::LimitExceeded, detail))
    }

    /// Returns the row of each item; `None` if another buffer wrote in the meantime.
    fn write_once(&mut self, items: &TensorDict, prioritized: bool) -> Result<Option<Vec<Option<usize>>>> {
        let steps = self.time_first(items)?;
        let count = count_of(&steps);
        let time = self.storage.shape().first().copied().unwrap_or_default();
        if count > time && !self.options.allow_overwrite {
            let detail = format!("items must be at most {time}, the capacity: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let freed = self.sampler.freed();
        let plan = self.writer.plan(&steps, &freed)?;
        let lanes = self.num_lanes();
        let spread = |row: &Option<usize>| {
            (0..lanes).map(|lane| row.map(|row| row * lanes + lane)).collect::<Vec<_>>()
        };
        let all: Vec<Option<usize>> =
            if lanes == 1 { plan.rows } else { plan.rows.iter().flat_map(spread).collect() };
        let rows: Vec<usize> = all.iter().copied().flatten().collect();
        if !rows.is_empty() {
            let mut kept = Cow::Borrowed(&*steps);
            if lanes > 1 {
                kept = Cow::Owned(kept.flatten(0, self.storage.shape().len() as isize - 1)?);
            }
            if rows.len() < all.len() {
                let places: Vec<usize> = (0..all.len()).filter(|at| all[*at].is_some()).collect();
                kept = Cow::Owned(kept.index_select(&places)?);
            }
            if self.options.write_info {
                self.put_index(kept.to_mut(), &rows)?;
            }
            let has_priorities = prioritized && kept.get(self.options.priority_key.clone()).is_some();
            let priorities = if has_priorities { self.priorities_of(&kept)? } else { Vec::new() };
            self.sampler.check(&rows, &kept)?;
            self.sampler.check_priorities(&priorities)?;
            self.unit.check(&rows, &kept)?;
            let position = (plan.cursor, plan.write_count);
            if !self.storage.set_if_unchanged(self.seen, &rows, &kept, Some(position))? {
                return Ok(None);
            }
            self.note_seen();
            self.writer.commit(&steps, &freed)?;
            self.sampler.extend(&rows, &kept)?;
            self.unit.extend(&rows, &kept)?;
            if has_priorities {
                self.sampler.update_priority(&rows, &priorities)?;
            }
        } else {
            self.writer.commit(&steps, &freed)?;
        }
        Ok(Some(all))
    }

    /// Draws a batch of `count` rows, or of the default batch size.
    ///
    /// # Errors
    /// `OutOfRange` if neither is given, or the sampler cannot draw this many; `Empty` if there are no rows.
    pub fn sample(&mut self, count: Option<usize>) -> Result<Batch> {
        let sampled = self.draw(count)?;
        self.batch(sampled)
    }

    /// Runs [`ReplayBuffer::sample`] and may reuse the memory of `out.items`.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::sample`].
    pub fn sample_into(&mut self, count: Option<usize>, out: &mut Batch) -> Result<()> {
        let sampled = self.draw(count)?;
        if self.options.write_info || !sampled.slice_lens.is_empty() {
            *out = self.batch(sampled)?;
            return Ok(());
        }
        self.storage.read_into(&sampled.rows, &mut out.items)?;
        out.info = sampled.info;
        out.rows = sampled.rows;
        Ok(())
    }

    /// Returns the batch of the given rows as if they had been drawn.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item; `LimitExceeded` above [`REPLAY_SAMPLE_ROWS_MAX`] rows.
    pub fn batch_of(&self, rows: &[usize]) -> Result<Batch> {
        if rows.len() > REPLAY_SAMPLE_ROWS_MAX {
            let detail = format!("rows must be at most {REPLAY_SAMPLE_ROWS_MAX}: got {}", rows.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        self.batch(self.expand(Sampled::plain(rows.to_vec())?)?)
    }

    /// Returns whether the last draw ended an epoch.
    #[must_use]
    pub fn ran_out(&self) -> bool {
        self.sampler.ran_out()
    }

    /// Empties the buffer; `keeps_count` keeps the write count.
    ///
    /// # Errors
    /// `Incompatible` if its writer is an [`ImmutableWriter`](crate::ImmutableWriter).
    pub fn clear(&mut self, keeps_count: bool) -> Result<()> {
        self.writer.check_clear()?;
        self.storage.clear();
        self.writer.clear(keeps_count);
        self.sampler.clear();
        self.unit.clear();
        self.note_seen();
        Ok(())
    }

    pub(crate) fn draw(&mut self, count: Option<usize>) -> Result<Sampled> {
        let Some(count) = count.or(self.options.batch_size) else {
            let detail = "a batch size must be given, here or to the buffer";
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        self.catch_up()?;
        let sampled = self.sampler.sample(self.storage.len(), count)?;
        self.expand(sampled)
    }

    fn num_lanes(&self) -> usize {
        self.storage.shape().get(1..).unwrap_or_default().iter().product()
    }

    /// Converts `[lanes.., time, ..]` to `[time, lanes.., ..]`; unchanged without lanes.
    fn time_first<'a>(&self, items: &'a TensorDict) -> Result<Cow<'a, TensorDict>> {
        let shape = self.storage.shape();
        let rank = shape.len();
        if rank == 1 {
            return Ok(Cow::Borrowed(items));
        }
        let batch_size = items.batch_size();
        if batch_size.len() < rank || batch_size[..rank - 1] != shape[1..] {
            let detail =
                format!("items must have the batch size {:?} and then time: got {batch_size:?}", &shape[1..]);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let order: Vec<isize> = std::iter::once(rank as isize - 1)
            .chain(0..rank as isize - 1)
            .chain(rank as isize..batch_size.len() as isize)
            .collect();
        items.permute(&order).map(Cow::Owned)
    }
}

/// Returns whether an error says that items do not fit each other, and not that they cannot be read.
const fn is_of_items(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ShapeMismatch | ErrorKind::UnknownName | ErrorKind::Incompatible)
}
