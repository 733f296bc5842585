//! Storages: the items of a buffer by row.

use std::borrow::Cow;

use fulmar_compute::Compute;
use fulmar_core::{Device, Result};
use fulmar_tensor::{Key, TensorDict};

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
    /// Returns the maximum number of rows.
    fn capacity(&self) -> usize;

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

    /// Runs [`Storage::set`] for one item without a batch dimension.
    ///
    /// # Errors
    /// The errors of [`Storage::set`].
    fn set_one(&mut self, row: usize, item: &TensorDict) -> Result<()> {
        self.set(&[row], &item.unsqueeze(0)?)
    }

    /// Returns the items in `rows`, in that order; a row may come twice.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item; an error if the items do not form one batch.
    fn get(&self, rows: &[usize]) -> Result<TensorDict>;

    /// Runs [`Storage::get`] and may omit all but the entries at `keys`.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        let _ = keys;
        self.get(rows)
    }

    /// Runs [`Storage::get`] and may reuse the memory of `out`.
    ///
    /// # Errors
    /// The errors of [`Storage::get`]. After an error `out` is unchanged.
    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        *out = self.get(rows)?;
        Ok(())
    }

    /// Runs [`Storage::set`] and [`Storage::note_writer`] atomically, if nothing has changed since
    /// `revision`. Otherwise returns `false` and changes nothing.
    ///
    /// # Errors
    /// The errors of [`Storage::set`] and [`Storage::note_writer`].
    fn set_if_unchanged(
        &mut self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        if self.revision() != revision {
            return Ok(false);
        }
        self.set(rows, items)?;
        if let Some((cursor, write_count)) = writer {
            self.note_writer(cursor, write_count)?;
        }
        Ok(true)
    }

    /// Empties every row.
    fn clear(&mut self);

    /// Reads the changes of other processes to the rows, if there are any. Buffers call this before they draw
    /// or write.
    ///
    /// # Errors
    /// If the storage cannot read them.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Returns a number that increases with every write and every clearing.
    fn revision(&self) -> u64;

    /// Returns the rows written after `revision`, if several buffers write to one storage; empty otherwise.
    fn written_after(&self, revision: u64) -> Vec<usize> {
        let _ = revision;
        Vec::new()
    }

    /// Records the position of a buffer's writer after a write: the time step that is written next, and the
    /// write count. For storages that outlive their buffer.
    ///
    /// # Errors
    /// If the storage cannot store it.
    fn note_writer(&mut self, cursor: usize, write_count: u64) -> Result<()> {
        let _ = (cursor, write_count);
        Ok(())
    }

    /// Returns the last position of [`Storage::note_writer`], if the storage outlives its buffer.
    fn noted_writer(&self) -> Option<(usize, u64)> {
        None
    }

    /// Returns a number above every generation of earlier openings, for storages that outlive their buffer,
    /// so that an old generation updates no row written since. Such storages keep the leaves of their first
    /// items.
    fn first_generation(&self) -> Option<i64> {
        None
    }
}
