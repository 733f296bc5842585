//! Priorities of rows that were drawn.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Tensor, TensorDict};

use super::ReplayBuffer;
use crate::read::{numbers, tell_stored};
use crate::row::check_written;

impl ReplayBuffer {
    /// Sets the priority of each of `rows`; ignores negative rows; if a row comes twice, the last priority
    /// wins.
    ///
    /// # Errors
    /// `ShapeMismatch` unless there is one priority for each row, or one for all; the errors of
    /// [`Sampler::update_priority`](crate::Sampler::update_priority).
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
        let reads = self.sampler.reads();
        let tell = |rows: &[usize], items: &TensorDict| self.sampler.extend(rows, items);
        tell_stored(&*self.storage, &reads, rows.iter().copied(), tell)
    }

    /// Returns the number of rewrites of each of `rows`; -1 if never written or not tracked.
    #[must_use]
    pub fn generations_of(&self, rows: &[i64]) -> Vec<i64> {
        self.writer.generations_of(rows).unwrap_or_else(|| vec![-1; rows.len()])
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
    pub(super) fn priorities_of(&self, items: &TensorDict) -> Result<Vec<f32>> {
        let reduced = crate::read::reduced(items, &self.options.priority_key, self.options.reduction)?;
        Ok(reduced.into_iter().map(|priority| priority as f32).collect())
    }
}
