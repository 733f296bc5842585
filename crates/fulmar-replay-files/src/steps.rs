//! The rows of a storage as steps, and back.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::Storage;
use fulmar_tensor::{Entry, TensorDict};

/// Returns the whole `storage` as `[time, lanes..]`, with zeros for rows that were never written. If rows
/// have entries that are not tensors, returns only the written steps.
pub fn steps_of(storage: &dyn Storage) -> Result<TensorDict> {
    let (len, capacity, shape) = (storage.len(), storage.capacity(), storage.shape());
    let rows: Vec<usize> = (0..len).collect();
    let items = if rows.is_empty() { TensorDict::new(&[0])? } else { storage.get(&rows)? };
    let is_dense = items.leaf_keys().into_iter().all(|key| matches!(items.get(key), Some(Entry::Tensor(_))));
    let items = if is_dense && len < capacity { items.pad(&[(0, capacity - len)], 0.0)? } else { items };
    if shape.len() == 1 {
        return Ok(items);
    }
    let lanes: usize = shape[1..].iter().product();
    let time = num_steps(&items) / lanes.max(1);
    let dims: Vec<isize> = [&[time], &shape[1..]].concat().into_iter().map(|len| len as isize).collect();
    items.unflatten(0, &dims)
}

/// Returns the first `len` rows of the steps of a storage of `shape`.
pub fn written_rows(steps: &TensorDict, len: usize, shape: &[usize]) -> Result<TensorDict> {
    let (size, rank) = (steps.batch_size(), shape.len());
    let lanes: usize = shape[1..].iter().product();
    let is_of_shape = size.len() >= rank && size[1..rank] == shape[1..];
    if !is_of_shape || (size[0] != shape[0] && size[0].checked_mul(lanes) != Some(len)) {
        let detail = format!("the folder must be of a storage of shape {shape:?}: got {size:?}");
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let flat = if rank > 1 { steps.flatten(0, rank as isize - 1)? } else { steps.clone() };
    let count = num_steps(&flat);
    if len > count || !len.is_multiple_of(lanes.max(1)) {
        let detail = format!("len must be at most {count} and whole steps of {lanes} lanes: got {len}");
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    flat.slice(0..len)
}

/// Returns the length of the first batch dimension.
fn num_steps(steps: &TensorDict) -> usize {
    steps.batch_size().first().copied().unwrap_or(0)
}
