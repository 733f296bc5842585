//! One dictionary of any shapes for each row.

use fulmar_core::{Device, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Ragged, Tensor, TensorDict};

use crate::storage::Storage;
use crate::storage::list::ListStorage;

/// Stores each item as its own dictionary. Rows that are read together give the leaves that all of them have:
/// tensors of one shape stacked, tensors that differ in their first dimension as a ragged tensor.
///
/// # Examples
/// ```
/// use fulmar_replay::{LazyStackStorage, Storage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = LazyStackStorage::new(4)?;
/// for (row, len) in [2, 3].into_iter().enumerate() {
///     let mut item = TensorDict::new(&[])?;
///     item.set("ids", Tensor::from_vec(&[len], vec![7_i64; len])?)?;
///     storage.set(&[row], &item.unsqueeze(0)?)?;
/// }
/// assert_eq!(storage.get(&[0, 1])?.ragged("ids")?.offsets(), [0, 2, 5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct LazyStackStorage(ListStorage);

impl LazyStackStorage {
    /// Returns a storage of `capacity` items.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize) -> Result<Self> {
        Ok(Self(ListStorage::new(capacity)?))
    }

    /// Puts tensors on `device`; items from other devices are copied. For an empty storage.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device.
    pub fn on(self, device: Device) -> Result<Self> {
        Ok(Self(self.0.on(device)?))
    }
}

impl Storage for LazyStackStorage {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.0.set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        if rows.is_empty() {
            return TensorDict::new(&[0]);
        }
        let items = rows.iter().map(|row| self.0.one(*row)).collect::<Result<Vec<_>>>()?;
        stacked(&items)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn revision(&self) -> u64 {
        self.0.revision()
    }
}

/// Returns the leaves that all of `items` have; there must be at least one item.
fn stacked(items: &[&TensorDict]) -> Result<TensorDict> {
    let rest = items.iter().map(|item| item.batch_size()).reduce(|a, b| if a == b { a } else { &[] });
    let mut batch = TensorDict::new(&[&[items.len()], rest.unwrap_or_default()].concat())?;
    for (name, first) in items[0].entries() {
        let found: Vec<&Entry> = items.iter().filter_map(|item| item.get(name)).collect();
        if found.len() < items.len() {
            continue;
        }
        let entry = joined(first, &found).map_err(|error| error.at(format!("{name:?}")))?;
        batch.set(name, entry)?;
    }
    Ok(batch)
}

fn joined(first: &Entry, entries: &[&Entry]) -> Result<Entry> {
    match first {
        Entry::Tensor(first) => {
            let pick = |entry: &&Entry| if let Entry::Tensor(one) = entry { Some(one.clone()) } else { None };
            let tensors: Vec<Tensor> = entries.iter().filter_map(pick).collect();
            if tensors.len() < entries.len() {
                return Err(mixed(first.dtype().name()));
            }
            if tensors.iter().all(|one| one.shape() == first.shape()) {
                return Tensor::stack(&tensors, 0).map(Entry::Tensor);
            }
            if tensors.iter().any(|one| one.rank() == 0) {
                return Err(mixed("a scalar"));
            }
            Ragged::from_rows(&tensors).map(Entry::Ragged)
        }
        Entry::Dict(_) => {
            let pick = |entry: &&Entry| if let Entry::Dict(one) = entry { Some(one.clone()) } else { None };
            let dicts: Vec<TensorDict> = entries.iter().filter_map(pick).collect();
            if dicts.len() < entries.len() {
                return Err(mixed("a dictionary"));
            }
            stacked(&dicts.iter().collect::<Vec<_>>()).map(Entry::Dict)
        }
        Entry::NonTensor(_) | Entry::Ragged(_) => {
            let wrap = |entry: &&Entry| {
                let mut dict = TensorDict::new(&[])?;
                dict.set("it", (*entry).clone())?;
                Ok(dict)
            };
            let dicts = entries.iter().map(wrap).collect::<Result<Vec<_>>>()?;
            TensorDict::stack(&dicts, 0)?.entry("it").cloned()
        }
    }
}

fn mixed(kind: &str) -> Error {
    let detail = format!("rows that are read together must be of one kind: got {kind} and another");
    Error::new(ErrorKind::Incompatible, detail)
}
