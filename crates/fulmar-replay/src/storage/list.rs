//! One dictionary for each row.

use fulmar_core::{Device, Result};
use fulmar_tensor::TensorDict;

use crate::row::{check_count, check_written, checked_capacity, grown_len};
use crate::storage::{Storage, checked_device, placed};

/// Stores each item as its own dictionary and stacks them on reading: rows that are read together must be
/// alike.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, Storage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = ListStorage::new(4)?;
/// let mut item = TensorDict::new(&[])?;
/// item.set("id", Tensor::from_vec(&[], vec![7_i64])?)?;
/// storage.set(&[0], &item.unsqueeze(0)?)?;
/// assert_eq!(storage.get(&[0, 0])?.tensor("id")?.to_vec::<i64>()?, [7, 7]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ListStorage {
    capacity: [usize; 1],
    device: Device,
    pub(crate) rows: Vec<TensorDict>,
    revision: u64,
}

impl ListStorage {
    /// Returns a storage of `capacity` items.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize) -> Result<Self> {
        let capacity = [checked_capacity(capacity)?];
        Ok(Self { capacity, device: Device::Cpu, rows: Vec::new(), revision: 0 })
    }

    /// Puts tensors on `device`; items from other devices are copied. For an empty storage.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device.
    pub fn on(self, device: Device) -> Result<Self> {
        Ok(Self { device: checked_device(device)?, ..self })
    }

    /// Returns item `row`, whatever the other items look like.
    pub(crate) fn one(&self, row: usize) -> Result<&TensorDict> {
        check_written(&[row], self.rows.len())?;
        Ok(&self.rows[row])
    }
}

impl Storage for ListStorage {
    fn shape(&self) -> &[usize] {
        &self.capacity
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let len = grown_len(self.rows.len(), self.capacity[0], rows)?;
        check_count(rows, items)?;
        let items = placed(items, self.device)?;
        // Copy each: a view would keep the whole batch alive.
        let copies = (0..rows.len()).map(|at| items.index(at)?.apply(&|tensor| Ok(tensor.copied())));
        let copies = copies.collect::<Result<Vec<_>>>()?;
        if let Some(any) = copies.first().filter(|_| len > self.rows.len()) {
            self.rows.resize(len, any.clone());
        }
        rows.iter().zip(copies).for_each(|(row, item)| self.rows[*row] = item);
        self.revision += 1;
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        check_written(rows, self.rows.len())?;
        if rows.is_empty() {
            return TensorDict::new(&[0]);
        }
        let items: Vec<TensorDict> = rows.iter().map(|row| self.rows[*row].clone()).collect();
        TensorDict::stack(&items, 0)
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.revision += 1;
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}
