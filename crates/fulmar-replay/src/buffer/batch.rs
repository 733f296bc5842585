//! A batch from the rows that a sampler chose.

use fulmar_core::Result;
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};

use super::{Batch, ReplayBuffer};
use crate::read::{count_of, flags};
use crate::sampler::Sampled;

impl ReplayBuffer {
    /// Expands the drawn rows by the sample unit and adds generations. Generations are read first, so that
    /// none is newer than its item.
    pub(super) fn expand(&self, sampled: Sampled) -> Result<Sampled> {
        let mut sampled = self.unit.expand(sampled)?;
        sampled.info = self.with_generations(&sampled.rows, sampled.info)?;
        Ok(sampled)
    }

    pub(super) fn batch(&self, sampled: Sampled) -> Result<Batch> {
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
        let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
        if let Some(generations) = self.writer.generations_of(&rows) {
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
    pub(super) fn put_index(&self, items: &mut TensorDict, rows: &[usize]) -> Result<()> {
        if !self.options.write_info {
            return Ok(());
        }
        let shape = self.storage.shape();
        let rank = shape.len();
        let index = if rank == 1 {
            rows.iter().map(|row| *row as i64).collect()
        } else {
            rows.iter().flat_map(|row| self.coordinates(*row)).collect::<Vec<_>>()
        };
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
}

/// Repeats each row of `values`, `[rows, ..]`, for all elements of rows that are batches themselves:
/// `[rows, elements.., ..]`.
pub(super) fn spread(values: &Tensor, batch_size: &[usize]) -> Result<Tensor> {
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
