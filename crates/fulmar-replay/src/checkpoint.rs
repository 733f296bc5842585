//! Checkpoint folders of storages in TorchRL's layouts.
//!
//! A [`StorageCheckpointer`] is one format of such a folder.
//! [`ReplayBuffer::dumps`](crate::ReplayBuffer::dumps) adds the folders of sampler and writer. Nothing is
//! ever pickled, and no pickle is read.

use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, TensorDict};

use crate::Storage;
use crate::read::count_of;

pub(crate) mod compressed;
pub(crate) mod ensemble;
pub(crate) mod folder;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod parts;
pub(crate) mod ted;
pub(crate) mod tensor;

/// A format of the folder of a storage.
pub trait StorageCheckpointer: Send + Sync {
    /// Writes `storage` as `folder`, which must not exist, inside an existing folder. `cursor` is the time
    /// step that is written next.
    ///
    /// # Errors
    /// `Io` if the system refuses; an error that names a leaf that the format cannot store. After an error a
    /// part of the folder may exist.
    fn save(&self, storage: &dyn Storage, cursor: usize, folder: &Path) -> Result<()>;

    /// Reads the rows of a storage of `shape` from `folder`.
    ///
    /// # Errors
    /// `Io` if the system refuses; with the file or the leaf, `Corrupt` if it is damaged or has another
    /// format, `Incompatible` for another shape, `LimitExceeded` past a limit.
    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows>;
}

/// The rows in a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRows {
    /// Every row in order, in batches of similar rows.
    pub items: Vec<TensorDict>,
    /// The time step that is written next, if the format stores it.
    pub cursor: Option<usize>,
}

impl StoredRows {
    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.iter().map(count_of).sum()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the content of `storage` by the rows.
    ///
    /// # Errors
    /// `OutOfRange` if there is no room for them; the errors of [`Storage::set`], after which rows are
    /// missing.
    pub fn put(&self, storage: &mut dyn Storage) -> Result<()> {
        if self.len() > storage.capacity() {
            let detail =
                format!("rows must be at most {}, the capacity: got {}", storage.capacity(), self.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        storage.clear();
        let mut start = 0;
        for items in self.items.iter().filter(|items| count_of(items) > 0) {
            let rows: Vec<usize> = (start..start + count_of(items)).collect();
            storage.set(&rows, items)?;
            start += rows.len();
        }
        Ok(())
    }
}

/// Returns the rows one by one, which may differ in their leaves.
pub(crate) fn rows_of(storage: &dyn Storage) -> Result<Vec<TensorDict>> {
    (0..storage.len()).map(|row| storage.get(&[row])).collect()
}

/// Returns the whole `storage` as `[time, lanes..]`, with zeros for rows that were never written. If rows
/// have entries that are not tensors, returns only the written steps.
pub(crate) fn steps_of(storage: &dyn Storage) -> Result<TensorDict> {
    let (len, capacity, shape) = (storage.len(), storage.capacity(), storage.shape());
    let rows: Vec<usize> = (0..len).collect();
    let items = if rows.is_empty() { TensorDict::new(&[0])? } else { storage.get(&rows)? };
    let is_dense = items.leaf_keys().into_iter().all(|key| matches!(items.get(key), Some(Entry::Tensor(_))));
    let items = if is_dense && len < capacity { items.pad(&[(0, capacity - len)], 0.0)? } else { items };
    if shape.len() == 1 {
        return Ok(items);
    }
    let lanes: usize = shape[1..].iter().product();
    let time = count_of(&items) / lanes.max(1);
    let dims: Vec<isize> = [&[time], &shape[1..]].concat().into_iter().map(|len| len as isize).collect();
    items.unflatten(0, &dims)
}

/// Returns the first `len` rows of the steps of a storage of `shape`.
pub(crate) fn written_rows(steps: &TensorDict, len: usize, shape: &[usize]) -> Result<TensorDict> {
    let (size, rank) = (steps.batch_size(), shape.len());
    let lanes: usize = shape[1..].iter().product();
    let is_of_shape = size.len() >= rank && size[1..rank] == shape[1..];
    if !is_of_shape || (size[0] != shape[0] && size[0].checked_mul(lanes) != Some(len)) {
        let detail = format!("the folder must be of a storage of shape {shape:?}: got {size:?}");
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let flat = if rank > 1 { steps.flatten(0, rank as isize - 1)? } else { steps.clone() };
    let count = count_of(&flat);
    if len > count || !len.is_multiple_of(lanes.max(1)) {
        let detail = format!("len must be at most {count} and whole steps of {lanes} lanes: got {len}");
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    flat.slice(0..len)
}
