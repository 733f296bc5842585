//! Reading and editing rows of a buffer by index.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Index, Key, Tensor, TensorDict};

use super::ReplayBuffer;
use crate::read::count_of;
use crate::row::check_written;

impl ReplayBuffer {
    /// Returns the items at `index` of `[rows]`, or of `[lanes.., time]` with lanes.
    ///
    /// # Errors
    /// The errors of [`Tensor::at`] for the index; an error if the items do not form one batch.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{ListStorage, ReplayBuffer};
    /// use fulmar_tensor::TensorDict;
    /// let mut buffer = ReplayBuffer::new(Box::new(ListStorage::new(4)?), Default::default())?;
    /// buffer.extend(&TensorDict::new(&[3])?)?;
    /// assert_eq!(buffer.at(&[(-1).into()])?.tensor("index")?.to_vec::<i64>()?, [2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn at(&self, index: &[Index]) -> Result<TensorDict> {
        let (rows, shape) = self.rows_at(index)?;
        let items = self.storage.get(&rows)?;
        if shape.is_empty() {
            return items.index(0);
        }
        if shape.len() == 1 {
            return Ok(items);
        }
        let lens: Vec<isize> = shape.iter().map(|len| *len as isize).collect();
        items.unflatten(0, &lens)
    }

    /// Returns the rows at `index`, and their shape.
    ///
    /// # Errors
    /// The errors of [`Tensor::at`].
    pub fn rows_at(&self, index: &[Index]) -> Result<(Vec<usize>, Vec<usize>)> {
        let len = self.storage.len();
        let shape = self.storage.shape();
        let lanes = &shape[1..];
        let num_lanes: usize = lanes.iter().product();
        let lens = [&[len / num_lanes.max(1)], lanes].concat();
        let rows = Tensor::from_vec(&lens, (0..lens.iter().product::<usize>() as i64).collect())?;
        // Items have lanes before time.
        let order: Vec<usize> = (1..lens.len()).chain([0]).collect();
        let picked = rows.permute(&order)?.at(index)?;
        Ok((picked.to_vec::<i64>()?.into_iter().map(|row| row as usize).collect(), picked.shape().to_vec()))
    }

    /// Returns all rows with items in order, or the first `end`.
    ///
    /// # Errors
    /// `OutOfRange` if there are fewer than `end`; an error if the items do not form one batch.
    pub fn read_all_in_order(&self, end: Option<usize>) -> Result<TensorDict> {
        let rows = self.first_rows(end)?;
        if rows.is_empty() {
            return TensorDict::new(&[0]);
        }
        self.storage.get(&rows)
    }

    /// Writes `items` over all rows in order, or over the first `end`. Leaves that `items` lacks stay; new
    /// leaves are zeros in other rows.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of items differs; the errors of the storage, which name the leaf. After
    /// an error nothing has changed.
    pub fn write_all(&mut self, items: &TensorDict, end: Option<usize>) -> Result<()> {
        let rows = self.first_rows(end)?;
        self.edit(&rows, items)
    }

    /// Writes `items`, broadcast, over the items at `index`, as [`ReplayBuffer::write_all`] does. Empty rows
    /// are refused, and the cursor stays.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::at`] and of the storage. After an error nothing has changed.
    pub fn set_at(&mut self, index: &[Index], items: &TensorDict) -> Result<()> {
        let (rows, shape) = self.rows_at(index)?;
        let rest = items.batch_size().len().saturating_sub(shape.len());
        let features = &items.batch_size()[items.batch_size().len() - rest..];
        let wide = if shape.is_empty() {
            items.unsqueeze(0)?
        } else {
            let wide = items.expand(&[&shape[..], features].concat())?;
            if shape.len() > 1 { wide.flatten(0, shape.len() as isize - 1)? } else { wide }
        };
        self.edit(&rows, &wide)
    }

    /// Writes whole `items` over `rows`, which must hold items, as new ones: they count as writes, their
    /// generation increases and they get the default priority. The cursor stays.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item; the errors of writer, storage and sampler. After one of the
    /// storage nothing has changed.
    pub fn write_at(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let mut items = items.clone();
        self.put_index(&mut items, rows)?;
        self.retry(|buffer| {
            check_written(rows, buffer.storage.len())?;
            buffer.storage.set_if_unchanged(buffer.seen, rows, &items, None)
        })?;
        self.seen = self.storage.revision();
        self.writer.write_at(rows, false)?;
        if !self.sampler.in_order() {
            self.sampler.extend(rows, &items)?;
        }
        self.tell_all(false)
    }

    /// Writes `value`, broadcast, to the leaf at `key` of the rows at `index`.
    ///
    /// # Errors
    /// `UnknownName` if there is no such leaf; the errors of [`ReplayBuffer::set_at`].
    pub fn set_key_at(&mut self, key: &Key, value: &Tensor, index: &[Index]) -> Result<()> {
        let (rows, shape) = self.rows_at(index)?;
        let Some(Entry::Tensor(have)) = self.storage.get(&rows)?.get(key.clone()).cloned() else {
            let detail = format!("key must be that of a tensor that is stored: got {key}");
            return Err(Error::new(ErrorKind::UnknownName, detail));
        };
        let features = have.shape()[1..].to_vec();
        let wide = value.expand(&[&shape[..], &features].concat())?;
        let flat = wide.reshape(&[&[rows.len()], &features[..]].concat())?;
        let mut part = TensorDict::new(&[rows.len()])?;
        part.set(key.clone(), flat)?;
        self.edit(&rows, &part)
    }

    /// Writes the leaves of `part` over those of `rows`, which must hold items.
    pub(super) fn edit(&mut self, rows: &[usize], part: &TensorDict) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if count_of(part) != rows.len() {
            let detail =
                format!("items must be as many as rows, {}: got {:?}", rows.len(), part.batch_size());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        self.retry(|buffer| buffer.edit_once(rows, part))?;
        self.tell_all(false)
    }

    /// Returns `false` if another buffer wrote in the meantime.
    pub(super) fn edit_once(&mut self, rows: &[usize], part: &TensorDict) -> Result<bool> {
        let mut items = self.storage.get(rows)?;
        let new = part.leaf_keys().into_iter().find(|key| items.get(key.clone()).is_none());
        items.update(part)?;
        if let Some(key) = new {
            if self.storage.first_generation().is_some() {
                let detail = format!(
                    "{key} must be a leaf of the first items, as the storage outlives its buffer: got a new key"
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            self.widen(rows, part)?;
        } else if !self.storage.set_if_unchanged(self.seen, rows, &items, None)? {
            return Ok(false);
        }
        self.seen = self.storage.revision();
        Ok(true)
    }

    /// Adds the new leaves of `part` to all rows: its values in `rows`, zeros in others.
    fn widen(&mut self, rows: &[usize], part: &TensorDict) -> Result<()> {
        let all: Vec<usize> = (0..self.storage.len()).collect();
        let before = self.storage.get(&all)?;
        let mut after = before.clone();
        let at = [Index::list(rows.iter().map(|row| *row as i64).collect())];
        after.set_at(&at, part)?;
        self.storage.clear();
        let written = self.storage.set(&all, &after);
        if written.is_err() {
            self.storage.set(&all, &before)?;
        }
        written
    }

    fn first_rows(&self, end: Option<usize>) -> Result<Vec<usize>> {
        let len = self.storage.len();
        let end = end.unwrap_or(len);
        if end > len {
            let detail = format!("end must be <= {len}, the number of rows: got {end}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok((0..end).collect())
    }
}
