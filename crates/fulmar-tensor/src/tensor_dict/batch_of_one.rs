//! One item as a batch, in memory that later items reuse.

use std::sync::Arc;

use fulmar_compute::Memory;
use fulmar_core::Result;

use super::{Entry, TensorDict};
use crate::storage::Storage;
use crate::tensor::Tensor;

/// Memory for the batch of an item, which [`BatchOfOne::of`] lends and [`BatchOfOne::keep`] takes back.
///
/// # Examples
/// ```
/// use fulmar_tensor::{BatchOfOne, Tensor, TensorDict};
/// let mut item = TensorDict::new(&[])?;
/// item.set("id", Tensor::from_vec(&[2], vec![7_i64, 8])?)?;
/// let mut memory = BatchOfOne::default();
/// for _ in 0..3 {
///     let batch = memory.of(&item)?;
///     assert_eq!(batch.tensor("id")?.shape(), [1, 2]);
///     memory.keep(batch);
/// }
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct BatchOfOne {
    /// The last batch, whose tensors have the shapes of its item, but hold no elements.
    last: Option<TensorDict>,
    no_elements: Arc<Storage>,
}

impl Default for BatchOfOne {
    fn default() -> Self {
        Self { last: None, no_elements: Arc::new(Storage::U8(Memory::from(Vec::new()))) }
    }
}

impl BatchOfOne {
    /// Returns the result of [`TensorDict::unsqueeze`] of `item` by a first dimension, which shares the
    /// elements. Allocates nothing if the batch that was kept had the same leaves in the same order, dtypes and
    /// shapes.
    ///
    /// # Errors
    /// The errors of [`TensorDict::unsqueeze`].
    pub fn of(&mut self, item: &TensorDict) -> Result<TensorDict> {
        match self.last.take() {
            Some(mut batch) if is_unsqueezed(&batch, item) => {
                share(&mut batch, item);
                Ok(batch)
            }
            _ => item.unsqueeze(0),
        }
    }

    /// Keeps the memory of `batch`, but not its elements, for the next item.
    pub fn keep(&mut self, mut batch: TensorDict) {
        if can_be_kept(&batch) {
            release(&mut batch, &self.no_elements);
            self.last = Some(batch);
        }
    }
}

/// Returns whether `batch` differs from the batch of `item` in its elements at most.
fn is_unsqueezed(batch: &TensorDict, item: &TensorDict) -> bool {
    let is_one = |shape: &[usize], of: &[usize]| shape.split_first() == Some((&1, of));
    let mut entries = batch.entries.iter().zip(&item.entries);
    is_one(&batch.batch_size, &item.batch_size)
        && item.names.is_empty()
        && batch.entries.len() == item.entries.len()
        && entries.all(|((name, to), (of, from))| {
            name == of
                && match (to, from) {
                    (Entry::Tensor(to), Entry::Tensor(from)) => {
                        to.dtype == from.dtype && is_one(&to.shape, &from.shape)
                    }
                    (Entry::Dict(to), Entry::Dict(from)) => is_unsqueezed(to, from),
                    _ => false,
                }
        })
}

/// Gives `batch` the elements of `item`.
fn share(batch: &mut TensorDict, item: &TensorDict) {
    for (to, from) in batch.entries.values_mut().zip(item.entries.values()) {
        match (to, from) {
            (Entry::Tensor(to), Entry::Tensor(from)) => {
                let Tensor { storage, strides, offset, .. } = to;
                *storage = Arc::clone(&from.storage);
                strides[1..].copy_from_slice(&from.strides);
                *offset = from.offset;
            }
            (Entry::Dict(to), Entry::Dict(from)) => share(to, from),
            // `is_unsqueezed` has refused other kinds.
            _ => {}
        }
    }
}

/// Drops the elements of `batch`.
fn release(batch: &mut TensorDict, no_elements: &Arc<Storage>) {
    for entry in batch.entries.values_mut() {
        match entry {
            Entry::Tensor(tensor) => tensor.storage = Arc::clone(no_elements),
            Entry::Dict(dict) => release(dict, no_elements),
            _ => {}
        }
    }
}

/// Returns whether `batch` is of tensors whose dimensions have no names.
fn can_be_kept(batch: &TensorDict) -> bool {
    batch.names.is_empty()
        && batch.entries.values().all(|entry| match entry {
            Entry::Tensor(_) => true,
            Entry::Dict(dict) => can_be_kept(dict),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(shape: &[usize], keys: &[&str]) -> TensorDict {
        let mut item = TensorDict::new(&shape[..shape.len().min(1)]).unwrap();
        for (at, key) in keys.iter().enumerate() {
            let values = (0..shape.iter().product()).map(|value| (10 * at + value) as f32).collect();
            item.set(["in", key], Tensor::from_vec_f32(shape, values).unwrap()).unwrap();
        }
        item
    }

    #[test]
    fn each_item_is_a_batch_as_if_it_were_unsqueezed() {
        let transposed = {
            let mut item = item(&[2, 3], &["a"]);
            let turned = item.tensor(["in", "a"]).unwrap().transpose(0, 1).unwrap();
            item = TensorDict::new(&[3]).unwrap();
            item.set(["in", "a"], turned).unwrap();
            item
        };
        let mut ids = TensorDict::new(&[]).unwrap();
        ids.set("in", Tensor::from_vec(&[2], vec![1_i64, 2]).unwrap()).unwrap();
        let mut values = TensorDict::new(&[]).unwrap();
        values.set("in", crate::NonTensor::shared(serde_json::json!("x"))).unwrap();
        let items = [
            item(&[2], &["a", "b"]),
            item(&[2], &["a", "b"]),
            item(&[2], &["b", "a"]),
            item(&[2], &["a"]),
            item(&[3, 2], &["a"]),
            transposed,
            item(&[], &["a"]),
            ids,
            values,
        ];
        let mut memory = BatchOfOne::default();
        for first in &items {
            for second in &items {
                for item in [first, second, second] {
                    let (batch, plain) = (memory.of(item).unwrap(), item.unsqueeze(0).unwrap());
                    assert_eq!(batch, plain);
                    assert_eq!(batch.leaf_keys(), plain.leaf_keys());
                    memory.keep(batch);
                }
            }
        }
    }

    #[test]
    fn a_kept_batch_holds_no_elements() {
        let item = item(&[2], &["a"]);
        let owners = || Arc::strong_count(&item.tensor(["in", "a"]).unwrap().storage);
        let mut memory = BatchOfOne::default();
        for _ in 0..2 {
            let batch = memory.of(&item).unwrap();
            assert_eq!(owners(), 2);
            memory.keep(batch);
            assert_eq!(owners(), 1);
        }
    }
}
