//! One tensor for each leaf, with a row for each row of the buffer.

use fulmar_core::limits::REPLAY_STORAGE_BYTES_MAX;
use fulmar_core::{Device, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde_json::Value;

use crate::row::{check_count, check_written, checked_capacity, grown_len};
use crate::storage::abilities::{PartialReads, StorageAbilities};
use crate::storage::{Storage, checked_device, placed};

/// Stores each dense leaf in one tensor, made of zeros at the first write, and ragged leaves and JSON values
/// row by row. Every later item has the same leaves, dtypes and shapes.
///
/// # Examples
/// ```
/// use fulmar_replay::{Storage, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = TensorStorage::new(&[4])?;
/// let mut items = TensorDict::new(&[2])?;
/// items.set("id", Tensor::from_vec(&[2], vec![7_i64, 8])?)?;
/// storage.set(&[0, 1], &items)?;
/// assert_eq!(storage.get(&[1, 1])?.tensor("id")?.to_vec::<i64>()?, [8, 8]);
/// assert!(storage.get(&[2]).is_err());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorStorage {
    shape: Vec<usize>,
    capacity: usize,
    bytes_max: u64,
    device: Device,
    len: usize,
    revision: u64,
    /// The dense leaves, with a row for each row of the buffer.
    dense: Option<TensorDict>,
    loose: Vec<(Key, Loose)>,
}

/// A leaf that is stored row by row.
#[derive(Debug)]
enum Loose {
    /// Tensors that agree in all but their first dimension.
    Ragged(Vec<Tensor>),
    Json(Vec<Value>),
}

impl TensorStorage {
    /// Returns a storage for items of `shape`: `[capacity]`, or `[time, lanes..]`. Allocates nothing before
    /// the first write.
    ///
    /// # Errors
    /// `OutOfRange` for a capacity of 0; `LimitExceeded` for more rows than a buffer may hold.
    pub fn new(shape: &[usize]) -> Result<Self> {
        let capacity = checked_capacity(fulmar_core::num_elements(shape)?)?;
        let (dense, loose) = (None, Vec::new());
        let (bytes_max, device) = (REPLAY_STORAGE_BYTES_MAX, Device::Cpu);
        Ok(Self { shape: shape.to_vec(), capacity, bytes_max, device, len: 0, revision: 0, dense, loose })
    }

    /// Limits the allocation to `bytes_max`.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> Self {
        Self { bytes_max, ..self }
    }

    /// Puts tensors on `device`; items from other devices are copied. For an empty storage.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device.
    pub fn on(self, device: Device) -> Result<Self> {
        Ok(Self { device: checked_device(device)?, ..self })
    }

    /// Returns a storage of the elements of `dict` as rows, all written. Shares the elements until the first
    /// write.
    ///
    /// # Errors
    /// The errors of [`TensorStorage::new`]; `ShapeMismatch` if `dict` has no batch dimension.
    pub fn over(dict: &TensorDict) -> Result<Self> {
        let Some(&capacity) = dict.batch_size().first() else {
            let detail = "items must have a batch dimension, that of the rows: got batch size []";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let mut storage = Self::new(&[capacity])?;
        let rows: Vec<usize> = (0..capacity).collect();
        if loose_keys(dict)?.is_empty() {
            storage.dense = Some(dict.clone());
            (storage.len, storage.revision) = (capacity, 1);
        } else {
            storage.set(&rows, dict)?;
        }
        Ok(storage)
    }

    /// Returns the size in bytes of the dense leaves for items like these.
    fn bytes_of(&self, items: &TensorDict) -> Result<u64> {
        let mut bytes = 0_u64;
        for key in items.leaf_keys() {
            if let Entry::Tensor(tensor) = items.entry(key)? {
                let row: u64 = tensor.shape()[1..].iter().map(|len| *len as u64).product();
                bytes = bytes.saturating_add(row.saturating_mul(tensor.dtype().size_bytes() as u64));
            }
        }
        Ok(bytes.saturating_mul(self.capacity as u64))
    }

    fn checked_bytes(&self, bytes: u64) -> Result<()> {
        if bytes <= self.bytes_max {
            return Ok(());
        }
        let detail = format!(
            "a storage must take at most {} bytes: got {} rows of {} bytes, {bytes} together",
            self.bytes_max,
            self.capacity,
            bytes / self.capacity as u64
        );
        Err(Error::new(ErrorKind::LimitExceeded, detail))
    }

    /// Returns zeros for every row, like `items`, and the leaves that are stored row by row.
    fn schema(&self, items: &TensorDict) -> Result<(TensorDict, Vec<(Key, Loose)>)> {
        self.checked_bytes(self.bytes_of(items)?)?;
        let keys = loose_keys(items)?;
        let mut loose = Vec::with_capacity(keys.len());
        for key in &keys {
            let rows = match items.entry(key.clone())? {
                Entry::NonTensor(_) => Loose::Json(Vec::new()),
                _ => Loose::Ragged(Vec::new()),
            };
            loose.push((key.clone(), rows));
        }
        Ok((blank(&items.exclude(&keys), self.capacity)?.to_device(self.device)?, loose))
    }

    /// Returns whether `items` match the stored ones, if there are any.
    fn fits(&self, rows: &[usize], items: &TensorDict) -> bool {
        let keys: Vec<Key> = self.loose.iter().map(|(key, _)| key.clone()).collect();
        let fit = |dense: &TensorDict| dense.check_rows(&items.exclude(&keys), rows.len()).is_ok();
        self.dense.as_ref().is_some_and(fit)
            && self.loose.iter().all(|(key, leaf)| leaf.checked(items, key).is_ok())
    }

    fn write(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        // An emptied storage adopts the schema of the next items, and keeps its memory if they match.
        let keeps = self.len > 0 || self.fits(rows, items);
        let fresh = if keeps { None } else { Some(self.schema(items)?) };
        let loose = fresh.as_ref().map_or(&self.loose, |(_, loose)| loose);
        let mut parts = Vec::with_capacity(loose.len());
        for (key, have) in loose {
            parts.push(have.checked(items, key).map_err(|error| error.at(key))?);
        }
        let keys: Vec<Key> = loose.iter().map(|(key, _)| key.clone()).collect();
        let excluded = if keys.is_empty() { None } else { Some(items.exclude(&keys)) };
        let items = excluded.as_ref().unwrap_or(items);
        if let Some((dense, loose)) = fresh {
            dense.check_rows(items, rows.len())?;
            (self.dense, self.loose) = (Some(dense), loose);
        }
        if let Some(dense) = &mut self.dense {
            dense.index_copy(rows, items)?;
        }
        for ((_, have), part) in self.loose.iter_mut().zip(parts) {
            have.write(rows, part);
        }
        Ok(())
    }
}

impl Storage for TensorStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.len
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let len = grown_len(self.len, self.capacity, rows)?;
        check_count(rows, items)?;
        self.write(rows, &*placed(items, self.device)?)?;
        self.len = len;
        self.revision += 1;
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        check_written(rows, self.len)?;
        let Some(dense) = &self.dense else { return TensorDict::new(&[0]) };
        let mut items = dense.index_select(rows)?;
        for (key, leaf) in &self.loose {
            let batch_size = match key.path().split_last() {
                Some((_, [])) | None => items.batch_size().to_vec(),
                Some((_, parents)) => items.dict(parents.to_vec())?.batch_size().to_vec(),
            };
            items.set(key.clone(), leaf.get(rows, &batch_size)?)?;
        }
        Ok(items)
    }

    fn clear(&mut self) {
        self.len = 0;
        self.revision += 1;
        for (_, leaf) in &mut self.loose {
            match leaf {
                Loose::Ragged(rows) => rows.clear(),
                Loose::Json(rows) => rows.clear(),
            }
        }
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), ..Default::default() }
    }
}

impl PartialReads for TensorStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        check_written(rows, self.len)?;
        let Some(dense) = self.dense.as_ref().filter(|_| self.loose.is_empty()) else {
            return self.get(rows);
        };
        dense.select_known(keys).index_select(rows)
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        check_written(rows, self.len)?;
        match &self.dense {
            Some(dense) if self.loose.is_empty() => dense.index_select_into(rows, out),
            _ => {
                *out = self.get(rows)?;
                Ok(())
            }
        }
    }
}

/// Rows of one write to a leaf that is stored row by row.
enum Part {
    Ragged(Vec<Tensor>),
    Json(Vec<Value>),
}

impl Loose {
    /// Returns the rows at `key` of `items`, after checking that they may be stored here.
    fn checked(&self, items: &TensorDict, key: &Key) -> Result<Part> {
        let count = items.batch_size().first().copied().unwrap_or(0);
        match (self, items.get(key.clone())) {
            (Self::Ragged(rows), Some(Entry::Ragged(ragged))) => {
                if let Some(have) = rows.first()
                    && (have.dtype() != ragged.values().dtype()
                        || have.shape()[1..] != ragged.values().shape()[1..])
                {
                    let detail = format!(
                        "rows must be of {} and shape {:?} after the first dimension: got {} and {:?}",
                        have.dtype().name(),
                        &have.shape()[1..],
                        ragged.values().dtype().name(),
                        &ragged.values().shape()[1..]
                    );
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                let row = |at| ragged.row(at).map(|row| row.copied());
                Ok(Part::Ragged((0..count).map(row).collect::<Result<_>>()?))
            }
            (Self::Json(_), Some(Entry::NonTensor(values))) => match (values.shape(), values.to_json()) {
                (Some(_), Value::Array(rows)) => Ok(Part::Json(rows)),
                (_, value) => {
                    let inner = items.batch_size().get(1..).unwrap_or_default();
                    let row = inner.iter().rev().fold(value, |row, len| Value::Array(vec![row; *len]));
                    Ok(Part::Json(vec![row; count]))
                }
            },
            (_, Some(other)) => {
                let detail = format!("kind must be the one that is stored: got {}", other.kind());
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
            (_, None) => {
                Err(Error::new(ErrorKind::UnknownName, "leaf must be given, as the storage holds it"))
            }
        }
    }

    fn write(&mut self, rows: &[usize], part: Part) {
        match (self, part) {
            (Self::Ragged(have), Part::Ragged(new)) => put(have, rows, new),
            (Self::Json(have), Part::Json(new)) => put(have, rows, new),
            // `checked` returns the same kind.
            _ => {}
        }
    }

    fn get(&self, rows: &[usize], batch_size: &[usize]) -> Result<Entry> {
        Ok(match self {
            Self::Ragged(all) => {
                let rows: Vec<Tensor> = rows.iter().map(|row| all[*row].clone()).collect();
                Ragged::from_rows(&rows)?.into()
            }
            Self::Json(all) => {
                let rows = rows.iter().map(|row| all[*row].clone()).collect();
                NonTensor::nested(batch_size, Value::Array(rows))?.into()
            }
        })
    }
}

/// Writes each value to its row; rows are contiguous, but in any order.
fn put<T: Clone>(have: &mut Vec<T>, rows: &[usize], values: Vec<T>) {
    let end = rows.iter().max().map_or(0, |row| row + 1);
    if let Some(any) = values.first().filter(|_| end > have.len()) {
        have.resize(end, any.clone());
    }
    rows.iter().zip(values).for_each(|(row, value)| have[*row] = value);
}

fn loose_keys(items: &TensorDict) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    for key in items.leaf_keys() {
        if !matches!(items.entry(key.clone())?, Entry::Tensor(_)) {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Returns zeros like `items`, for `capacity` of them.
fn blank(items: &TensorDict, capacity: usize) -> Result<TensorDict> {
    let rows = |shape: &[usize]| [&[capacity], shape.get(1..).unwrap_or_default()].concat();
    let mut zeros = TensorDict::new(&rows(items.batch_size()))?;
    for (name, entry) in items.entries() {
        match entry {
            Entry::Tensor(tensor) => {
                let leaf = Tensor::zeros(tensor.dtype(), &rows(tensor.shape()));
                zeros.set(name, leaf.map_err(|error| error.at(format!("{name:?}")))?)?;
            }
            Entry::Dict(dict) => zeros.set(name, blank(dict, capacity)?)?,
            Entry::Ragged(_) | Entry::NonTensor(_) => {}
        }
    }
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_estimated_before_it_is_taken() {
        let mut storage = TensorStorage::new(&[100]).unwrap().with_bytes_max(799);
        let mut items = TensorDict::new(&[1]).unwrap();
        items.set("x", Tensor::zeros(fulmar_core::Dtype::F32, &[1, 2]).unwrap()).unwrap();
        let error = storage.set(&[0], &items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.detail().ends_with("got 100 rows of 8 bytes, 800 together"), "{error}");
        assert!(storage.is_empty());
        storage.with_bytes_max(800).set(&[0], &items).unwrap();
        let storage = TensorStorage::new(&[1]).unwrap();
        storage.checked_bytes(REPLAY_STORAGE_BYTES_MAX).unwrap();
        assert!(storage.checked_bytes(REPLAY_STORAGE_BYTES_MAX + 1).is_err());
    }
}
