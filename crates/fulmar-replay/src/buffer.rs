//! The replay buffer: a storage, a writer, a sampler and a sample unit.
//!
//! ```text
//! write    writer.plan -> storage.set, begun anew if another buffer wrote first -> writer.commit -> sampler.extend, unit.extend -> priorities
//! sample   sampler.sample -> unit.expand -> storage.get -> what was said of the rows, set beside the items
//! ```
//!
//! In a storage with several lanes, items have the shape `[lanes.., time]` and are stored time-first: rows
//! count through time, then lanes.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::ops::Range;

use fulmar_core::limits::{REPLAY_SAMPLE_ROWS_MAX, REPLAY_WRITE_TRIES_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::Storage;
use crate::read::{Reads, count_of, flags, numbers, tell_stored};
use crate::sampler::{Sampled, Sampler};
use crate::storage::check_written;
use crate::unit::SampleUnit;
use crate::writer::Writer;

pub(crate) mod checkpoint;
mod conditional;
mod edit;
mod options;

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
        let mut buffer = Self { options, storage, sampler, writer, unit, seen, seen_len };
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
        if self.num_lanes() > 1 {
            let detail =
                "the storage must have one dimension to take one item: got lanes, which are written together";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let rows = self.extend(&item.unsqueeze(0)?)?;
        Ok(rows.first().copied().flatten())
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
        let all: Vec<Option<usize>> = plan.rows.iter().flat_map(spread).collect();
        let kept: Vec<usize> = (0..all.len()).filter(|at| all[*at].is_some()).collect();
        let rows: Vec<usize> = all.iter().copied().flatten().collect();
        if !rows.is_empty() {
            let flat = if lanes > 1 {
                steps.flatten(0, self.storage.shape().len() as isize - 1)?
            } else {
                steps.clone()
            };
            let mut kept = if kept.len() == all.len() { flat } else { flat.index_select(&kept)? };
            self.put_index(&mut kept, &rows)?;
            let has_priorities = prioritized && kept.get(self.options.priority_key.clone()).is_some();
            let priorities = if has_priorities { self.priorities_of(&kept)? } else { Vec::new() };
            self.sampler.check(&rows, &kept, &priorities)?;
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

    /// Sets the priority of each of `rows`; ignores negative rows; if a row comes twice, the last priority
    /// wins.
    ///
    /// # Errors
    /// `ShapeMismatch` unless there is one priority for each row, or one for all; the errors of
    /// [`Sampler::update_priority`].
    pub fn update_priority(&mut self, rows: &[i64], priorities: &[f32]) -> Result<()> {
        self.catch_up()?;
        let all = if priorities.len() == 1 { vec![priorities[0]; rows.len()] } else { priorities.to_vec() };
        if all.len() != rows.len() {
            let detail =
                format!("priorities must be one a row, {}, or one for all: got {}", rows.len(), all.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let given =
            rows.iter().zip(all).filter_map(|(row, priority)| Some((usize::try_from(*row).ok()?, priority)));
        let (rows, priorities): (Vec<usize>, Vec<f32>) = given.unzip();
        check_written(&rows, self.storage.capacity())?;
        // Skip rows that were emptied since they were drawn: with a priority they could be drawn, but are
        // empty.
        let len = self.storage.len();
        let held = rows.into_iter().zip(priorities).filter(|(row, _)| *row < len);
        let (rows, priorities): (Vec<usize>, Vec<f32>) = held.unzip();
        self.sampler.update_priority(&rows, &priorities)
    }

    /// Sets priorities from a batch: the values at the priority key, reduced to one for each row of
    /// `"index"`. For the steps of windows, which have an `"anchor_index"`, each anchor gets the largest of
    /// its valid steps.
    ///
    /// # Errors
    /// `UnknownName` if a key is missing; the errors of [`ReplayBuffer::update_priority`].
    pub fn update_tensordict_priority(&mut self, batch: &TensorDict) -> Result<()> {
        let count: usize = batch.batch_size().iter().product();
        let anchored = batch.get("anchor_index").is_some();
        let name = if anchored { "anchor_index" } else { "index" };
        let rows = self.rows_of_index(batch.tensor(name)?, batch.batch_size())?;
        let priorities = self.priorities_of(batch)?;
        if !anchored {
            let first = rows.len() / priorities.len().max(1);
            let rows: Vec<i64> = rows.iter().copied().step_by(first.max(1)).collect();
            return self.update_priority(&rows, &priorities);
        }
        let valid = match batch.get("validity_mask") {
            Some(Entry::Tensor(mask)) => numbers(mask)?,
            _ => vec![1.0; count],
        };
        // The anchors in order of appearance, and the position of each in that list.
        let (mut anchors, mut largest, mut places) = (Vec::new(), Vec::<f32>::new(), HashMap::new());
        let steps = rows.into_iter().zip(priorities).zip(valid).filter(|(_, valid)| *valid != 0.0);
        for ((row, priority), _) in steps {
            match places.entry(row) {
                MapEntry::Occupied(place) => {
                    let most: &mut f32 = &mut largest[*place.get()];
                    *most = most.max(priority);
                }
                MapEntry::Vacant(place) => {
                    place.insert(anchors.len());
                    anchors.push(row);
                    largest.push(priority);
                }
            }
        }
        self.update_priority(&anchors, &largest)
    }

    /// Marks `rows` as changed without a write through this buffer: they get the default priority.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item.
    pub fn mark_update(&mut self, rows: &[usize]) -> Result<()> {
        check_written(rows, self.storage.len())?;
        self.tell(rows.iter().copied(), true, false)
    }

    /// Returns the number of rewrites of each of `rows`; -1 if never written or not tracked.
    #[must_use]
    pub fn generations_of(&self, rows: &[i64]) -> Vec<i64> {
        self.writer.generations_of(rows)
    }

    /// Empties the buffer; `keeps_count` keeps the write count.
    pub fn clear(&mut self, keeps_count: bool) {
        self.storage.clear();
        self.writer.clear(keeps_count);
        self.sampler.clear();
        self.unit.clear();
        self.note_seen();
    }

    /// Returns the state for a checkpoint.
    ///
    /// # Errors
    /// If a part has no state.
    pub fn state(&self) -> Result<ReplayBufferState> {
        let parts = json!({
            "sampler": self.sampler.state()?,
            "writer": self.writer.state()?,
            "unit": self.unit.state()?,
            "len": self.storage.len(),
        });
        let items = match self.read_all_in_order(None) {
            Ok(all) => vec![all],
            // Items of lists may differ, so they may not form one batch.
            Err(error) if is_of_items(error.kind()) => {
                (0..self.storage.len()).map(|row| self.storage.get(&[row])).collect::<Result<_>>()?
            }
            Err(error) => return Err(error),
        };
        Ok(ReplayBufferState { parts, items, ahead: Vec::new() })
    }

    /// Restores `state`, taken from a buffer with the same parts.
    ///
    /// # Errors
    /// `Corrupt`, `Malformed` or `Incompatible` if the state is not of such a buffer, or has prefetched
    /// batches, which need a [`SharedReplayBuffer`](crate::SharedReplayBuffer); the errors of
    /// [`Storage::set`].
    pub fn restore(&mut self, state: &ReplayBufferState) -> Result<()> {
        if !state.ahead.is_empty() {
            let detail = format!("state must hold no batch drawn ahead: got {}", state.ahead.len());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.restore_rest(state)
    }

    /// Restores all but the prefetched batches.
    pub(crate) fn restore_rest(&mut self, state: &ReplayBufferState) -> Result<()> {
        let count: usize = state.items.iter().map(count_of).sum();
        if state.parts["len"] != count {
            let detail =
                format!("the number of items must be {}, as in the state: got {count}", state.parts["len"]);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let before = [self.sampler.state()?, self.writer.state()?, self.unit.state()?];
        let restored =
            self.restore_parts(&state.parts["sampler"], &state.parts["writer"], &state.parts["unit"]);
        if let Err(error) = restored {
            self.restore_parts(&before[0], &before[1], &before[2])?;
            return Err(error);
        }
        self.storage.clear();
        let mut start = 0;
        for items in state.items.iter().filter(|items| count_of(items) > 0) {
            let rows: Vec<usize> = (start..start + count_of(items)).collect();
            self.storage.set(&rows, items)?;
            start += rows.len();
        }
        self.note_seen();
        Ok(())
    }

    fn restore_parts(&mut self, sampler: &Value, writer: &Value, unit: &Value) -> Result<()> {
        self.sampler.restore(sampler)?;
        self.writer.restore(writer)?;
        self.unit.restore(unit)
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

    /// Expands the drawn rows by the sample unit and adds generations. Generations are read first, so that
    /// none is newer than its item.
    fn expand(&self, sampled: Sampled) -> Result<Sampled> {
        let mut sampled = self.unit.expand(sampled)?;
        sampled.info = self.with_generations(&sampled.rows, sampled.info)?;
        Ok(sampled)
    }

    fn batch(&self, sampled: Sampled) -> Result<Batch> {
        self.finish(self.storage.get(&sampled.rows)?, sampled)
    }

    /// Returns the batch of `items`, read from the rows of `sampled`.
    pub(crate) fn finish(&self, mut items: TensorDict, sampled: Sampled) -> Result<Batch> {
        let info = sampled.info;
        if !sampled.slice_lens.is_empty() {
            self.flag_slices(&mut items, &sampled.slice_lens, &info)?;
        }
        if self.options.write_info {
            self.put_index(&mut items, &sampled.rows)?;
            for key in info.leaf_keys() {
                let entry = match info.entry(key.clone())? {
                    Entry::Tensor(said) => spread(said, items.batch_size())?.into(),
                    other => other.clone(),
                };
                items.set(key, entry)?;
            }
        }
        Ok(Batch { items, rows: sampled.rows, info })
    }

    fn with_generations(&self, rows: &[usize], mut info: TensorDict) -> Result<TensorDict> {
        if self.writer.tracks_generations() {
            let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
            let generations = self.writer.generations_of(&rows);
            info.set("index_generation", Tensor::from_vec(&[rows.len()], generations)?)?;
        }
        Ok(info)
    }

    /// Flags the end of each slice at its last step that is not padding, and its beginning at its first.
    fn flag_slices(&self, items: &mut TensorDict, lens: &[usize], info: &TensorDict) -> Result<()> {
        let count = count_of(items);
        let mask = match info.get(["collector", "mask"]) {
            Some(_) => flags(info, &Key::from(["collector", "mask"]))?,
            None => vec![true; count],
        };
        let mut first = vec![false; count];
        let mut last = vec![false; count];
        let mut start = 0;
        for len in lens.iter().filter(|len| **len > 0) {
            first[start] = true;
            let steps = mask.iter().skip(start).take(*len).filter(|is_step| **is_step).count();
            last[start + steps.max(1) - 1] = true;
            start += len;
        }
        if let Some(key) = self.options.init_key.clone().filter(|key| items.get(key.clone()).is_some()) {
            let shape = items.tensor(key.clone())?.shape().to_vec();
            let stored = flags(items, &key)?;
            let flags: Vec<bool> = stored.iter().zip(first).map(|(stored, first)| *stored || first).collect();
            if shape.iter().product::<usize>() == count {
                items.set(key, Tensor::from_vec(&shape, flags)?)?;
            }
        }
        let Some(truncated_key) = &self.options.truncated_key else { return Ok(()) };
        let path = truncated_key.path();
        let parent = &path[..path.len().saturating_sub(1)];
        let beside = |name: &str| Key::from([parent, &[name.to_owned()]].concat());
        let stored = |items: &TensorDict, key: &Key| match items.get(key.clone()) {
            Some(_) => flags(items, key),
            None => Ok(vec![false; count]),
        };
        let done = stored(items, &beside("done"))?;
        let terminated = stored(items, &beside("terminated"))?;
        let done = done.iter().zip(&last).map(|(done, last)| *done || *last).collect();
        for (key, flags) in
            [(truncated_key.clone(), last), (beside("done"), done), (beside("terminated"), terminated)]
        {
            items.set(key, Tensor::from_vec(&[count, 1], flags)?)?;
        }
        Ok(())
    }

    /// Adds the rows of items at `"index"`: `[items]`, or `[items, dimensions]` with lanes.
    fn put_index(&self, items: &mut TensorDict, rows: &[usize]) -> Result<()> {
        if !self.options.write_info {
            return Ok(());
        }
        let shape = self.storage.shape();
        let rank = shape.len();
        let mut index = Vec::with_capacity(rows.len() * rank);
        for row in rows {
            index.extend(self.coordinates(*row));
        }
        let width = if rank > 1 { vec![rank] } else { Vec::new() };
        let index = Tensor::from_vec(&[&[rows.len()][..], &width].concat(), index)?;
        items.set("index", spread(&index, items.batch_size())?)
    }

    /// Returns the index of `row` in each dimension of the storage.
    #[must_use]
    pub fn coordinates(&self, row: usize) -> Vec<i64> {
        let mut left = row;
        let mut coordinates = vec![0; self.storage.shape().len()];
        for (at, len) in coordinates.iter_mut().zip(self.storage.shape()).rev() {
            *at = (left % len) as i64;
            left /= len;
        }
        coordinates
    }

    /// Returns the rows in an `"index"` of a batch of `batch_size`.
    fn rows_of_index(&self, index: &Tensor, batch_size: &[usize]) -> Result<Vec<i64>> {
        let values = index.to(Dtype::I64)?.to_vec::<i64>()?;
        let shape = self.storage.shape();
        if shape.len() == 1 || index.shape() == batch_size {
            return Ok(values);
        }
        let row = |at: &[i64]| at.iter().zip(shape).fold(0, |row, (at, len)| row * *len as i64 + at);
        Ok(values.chunks(shape.len()).map(row).collect())
    }

    /// Returns one priority for each element of the first batch dimension.
    fn priorities_of(&self, items: &TensorDict) -> Result<Vec<f32>> {
        let reduced = crate::read::reduced(items, &self.options.priority_key, self.options.reduction)?;
        Ok(reduced.into_iter().map(|priority| priority as f32).collect())
    }

    fn num_lanes(&self) -> usize {
        self.storage.shape().get(1..).unwrap_or_default().iter().product()
    }

    /// Converts `[lanes.., time, ..]` to `[time, lanes.., ..]`; unchanged without lanes.
    fn time_first(&self, items: &TensorDict) -> Result<TensorDict> {
        let shape = self.storage.shape();
        let rank = shape.len();
        if rank == 1 {
            return Ok(items.clone());
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
        items.permute(&order)
    }

    /// Returns the rows with items, from the oldest. A ring begins with row 0, so the rows before the oldest
    /// come first too; their second occurrence overwrites the first.
    fn rows_by_age(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        self.runs_by_age().into_iter().flatten()
    }

    /// Returns [`ReplayBuffer::rows_by_age`] as two runs.
    fn runs_by_age(&self) -> [Range<usize>; 2] {
        let len = self.storage.len();
        let first = if len == self.storage.capacity() { self.writer.cursor() * self.num_lanes() } else { 0 };
        [0..len, 0..first]
    }

    /// Returns the rows with items, from the oldest, each once.
    pub(crate) fn rows_from_oldest(&self) -> Vec<usize> {
        let rows: Vec<usize> = self.rows_by_age().collect();
        rows[rows.len() - self.storage.len()..].to_vec()
    }

    /// Passes all rows to sampler and unit again, from the oldest: to both, or only to those that depend on
    /// the order.
    fn tell_all(&mut self, both: bool) -> Result<()> {
        let (sampler, unit) = (both || self.sampler.in_order(), both || self.unit.in_order());
        if self.storage.is_empty() {
            return Ok(());
        }
        if sampler {
            self.sampler.clear();
            tell_runs(&*self.storage, self.runs_by_age(), &mut *self.sampler)?;
        }
        if unit {
            self.unit.clear();
            self.tell(self.rows_by_age(), false, true)?;
        }
        Ok(())
    }

    /// Passes stored rows to the sampler, the unit, or both, from the first.
    fn tell(&mut self, rows: impl Iterator<Item = usize> + Clone, sampler: bool, unit: bool) -> Result<()> {
        if sampler {
            let reads = self.sampler.reads();
            let tell = |rows: &[usize], items: &TensorDict| self.sampler.extend(rows, items);
            tell_stored(&*self.storage, &reads, rows.clone(), tell)?;
        }
        if unit {
            let reads = self.unit.reads();
            let tell = |rows: &[usize], items: &TensorDict| self.unit.extend(rows, items);
            tell_stored(&*self.storage, &reads, rows, tell)?;
        }
        Ok(())
    }

    /// Reads the changes of other writers to the storage, as draws and writes do first.
    ///
    /// # Errors
    /// The errors of [`Storage::refresh`]; the errors of sampler and unit for the new rows.
    pub fn catch_up(&mut self) -> Result<()> {
        self.storage.refresh()?;
        let revision = self.storage.revision();
        if revision == self.seen {
            return Ok(());
        }
        let rows = self.storage.written_after(self.seen);
        let len = self.storage.len();
        if len < self.seen_len {
            // The storage was emptied in between: the known rows are gone.
            self.sampler.clear();
            self.unit.clear();
            self.writer.clear(true);
        }
        if !rows.is_empty() {
            // Read first, then record: an error leaves the rows for the next refresh.
            let of_sampler = self.sampler.reads().of(&*self.storage, &rows)?;
            let of_unit = self.unit.reads().of(&*self.storage, &rows)?;
            (self.seen, self.seen_len) = (revision, len);
            self.sampler.extend(&rows, &of_sampler)?;
            self.unit.extend(&rows, &of_unit)?;
            self.writer.write_at(&rows, true)?;
        }
        (self.seen, self.seen_len) = (revision, len);
        self.follow_writer()
    }

    /// Records the storage's revision after this buffer's own change.
    fn note_seen(&mut self) {
        (self.seen, self.seen_len) = (self.storage.revision(), self.storage.len());
    }

    /// Puts the writer where the storage notes that writes ended.
    fn follow_writer(&mut self) -> Result<()> {
        let mut len = self.storage.len();
        let Some(mut position) = self.storage.noted_writer() else { return Ok(()) };
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            // Others may write in between: the two must be of one moment.
            let now = self.storage.len();
            if now == len {
                break;
            }
            len = now;
            position = self.storage.noted_writer().unwrap_or(position);
        }
        let lanes = self.num_lanes().max(1);
        let storage = &self.storage;
        let items = || storage.get(&(0..len).collect::<Vec<_>>());
        self.writer.resume(len / lanes, position, &items)
    }
}

/// Tells `sampler` of runs of stored rows.
fn tell_runs(storage: &dyn Storage, runs: [Range<usize>; 2], sampler: &mut dyn Sampler) -> Result<()> {
    let reads = sampler.reads();
    if reads == Reads::Rows {
        return runs.into_iter().try_for_each(|rows| sampler.extend_run(rows));
    }
    let tell = |rows: &[usize], items: &TensorDict| sampler.extend(rows, items);
    tell_stored(storage, &reads, runs.into_iter().flatten(), tell)
}

/// Returns whether an error says that items do not fit each other, and not that they cannot be read.
const fn is_of_items(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ShapeMismatch | ErrorKind::UnknownName | ErrorKind::Incompatible)
}

/// Repeats each row of `values`, `[rows, ..]`, for all elements of rows that are batches themselves:
/// `[rows, elements.., ..]`.
fn spread(values: &Tensor, batch_size: &[usize]) -> Result<Tensor> {
    let elements = batch_size.get(1..).unwrap_or_default();
    if elements.is_empty() {
        return Ok(values.clone());
    }
    let features = values.shape().get(1..).unwrap_or_default();
    let mut wide = values.clone();
    for at in 1..=elements.len() {
        wide = wide.unsqueeze(at)?;
    }
    Ok(wide.expand(&[batch_size, features].concat())?.contiguous())
}
