//! Storages: the items of a buffer by row.
//!
//! Every storage implements [`Storage`]. What only some can do is a trait of its own, which a storage names in
//! [`Storage::abilities`]; `dyn Storage` has a method for each, which does without where the ability is missing.

use std::borrow::Cow;

use fulmar_compute::Compute;
use fulmar_core::{Device, Result};
use fulmar_tensor::TensorDict;

use abilities::StorageAbilities;

pub(crate) mod abilities;
pub(crate) mod compressed_list;
pub(crate) mod lazy_stack;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod shared;
pub(crate) mod tensor;

/// Returns `items` on `device`; does not copy if they are already there.
pub(crate) fn placed(items: &TensorDict, device: Device) -> Result<Cow<'_, TensorDict>> {
    if items.is_on(device) { Ok(Cow::Borrowed(items)) } else { items.to_device(device).map(Cow::Owned) }
}

/// Moves items that a storage read to `device`.
pub(crate) fn read_on(items: TensorDict, device: Device) -> Result<TensorDict> {
    if items.is_on(device) { Ok(items) } else { items.to_device(device) }
}

/// Returns `device` if it exists.
pub(crate) fn checked_device(device: Device) -> Result<Device> {
    Ok(Compute::on(device)?.device())
}

/// Items by row. Rows `0..len` hold items; rows that were never written are never shown.
pub trait Storage: Send + Sync {
    /// Returns `[capacity]`, or `[time, lanes..]` if rows count row-major through time and lanes.
    fn shape(&self) -> &[usize];

    /// Returns the number of rows with items.
    fn len(&self) -> usize;

    /// Returns whether no row holds an item.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes item `i` of `items`, along their first batch dimension, to `rows[i]`; if a row comes twice, the
    /// last item wins.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of items differs from the number of rows; `OutOfRange` if a row is
    /// beyond the capacity or would leave earlier rows empty; an error that names a leaf that the storage
    /// cannot hold. After an error nothing has changed.
    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()>;

    /// Returns the items in `rows`, in that order; a row may come twice.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item; an error if the items do not form one batch.
    fn get(&self, rows: &[usize]) -> Result<TensorDict>;

    /// Empties every row.
    fn clear(&mut self);

    /// Returns a number that increases with every write and every clearing.
    fn revision(&self) -> u64;

    /// Returns the abilities of the storage, the same at every call.
    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities::default()
    }
}
