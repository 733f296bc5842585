//! Storages: where the items of a buffer lie, by row.

use std::borrow::Cow;

use fulmar_compute::Compute;
use fulmar_core::{Device, Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};

pub(crate) mod compressed_list;
pub(crate) mod durable;
pub(crate) mod lazy_stack;
pub(crate) mod list;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod memmap;
pub(crate) mod options;
pub(crate) mod shared;
#[cfg(all(feature = "redis", not(target_family = "wasm")))]
pub(crate) mod store;
pub(crate) mod tensor;

/// `items` where a storage on `device` keeps them: themselves if they lie there.
pub(crate) fn placed(items: &TensorDict, device: Device) -> Result<Cow<'_, TensorDict>> {
    if items.lies_on(device) { Ok(Cow::Borrowed(items)) } else { items.to_device(device).map(Cow::Owned) }
}

/// What a storage read, on `device`.
pub(crate) fn read_on(items: TensorDict, device: Device) -> Result<TensorDict> {
    if items.lies_on(device) { Ok(items) } else { items.to_device(device) }
}

/// `device`, if there is one.
pub(crate) fn checked_device(device: Device) -> Result<Device> {
    Ok(Compute::on(device)?.device())
}

/// Items by row. Rows `0..len` hold one; what was never written is never shown.
pub trait Storage: Send + Sync {
    /// How many rows there is room for.
    fn capacity(&self) -> usize;

    /// `[capacity]`, or `[time, lanes..]` where rows count row-major through time and lanes.
    fn shape(&self) -> &[usize];

    /// How many rows hold an item.
    fn len(&self) -> usize;

    /// Whether no row holds an item.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts item `i` of `items`, whose first batch dimension is theirs, into `rows[i]`; of a row that comes twice the last stays.
    ///
    /// # Errors
    /// `ShapeMismatch` if there are not as many items as rows; `OutOfRange` if a row is beyond the capacity or would leave
    /// others before it empty; and, by the name of the leaf, whatever the storage cannot hold. After an error nothing has changed.
    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()>;

    /// [`Storage::set`] of one item without a batch dimension.
    ///
    /// # Errors
    /// Those of [`Storage::set`].
    fn set_one(&mut self, row: usize, item: &TensorDict) -> Result<()> {
        self.set(&[row], &item.unsqueeze(0)?)
    }

    /// The items in `rows`, in that order; a row may come twice.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item, and what keeps them from being one batch.
    fn get(&self, rows: &[usize]) -> Result<TensorDict>;

    /// [`Storage::get`] that may leave out all but the entries at `keys`, as far as the items have them.
    ///
    /// # Errors
    /// Those of [`Storage::get`].
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        let _ = keys;
        self.get(rows)
    }

    /// [`Storage::get`] that may use the memory of `out`.
    ///
    /// # Errors
    /// Those of [`Storage::get`]. After one `out` is as before.
    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        *out = self.get(rows)?;
        Ok(())
    }

    /// [`Storage::set`] and [`Storage::note_writer`] in one, if nothing has changed since `revision`; false, and nothing changes, if
    /// something has: somebody else was faster.
    ///
    /// # Errors
    /// Those of [`Storage::set`] and [`Storage::note_writer`].
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

    /// Looks what others did to the rows, where they lie outside this process. Buffers do before they draw or write.
    ///
    /// # Errors
    /// What keeps the storage from looking.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// A number that every write and every clearing raises.
    fn revision(&self) -> u64;

    /// The rows that were written after `revision`, where several buffers write to one storage; none where one does.
    fn written_after(&self, revision: u64) -> Vec<usize> {
        let _ = revision;
        Vec::new()
    }

    /// Takes note of where the writer of a buffer stands after a write: the time step that is written next, and how many ever were. For
    /// storages that outlive their buffer.
    ///
    /// # Errors
    /// What keeps the storage from it.
    fn note_writer(&mut self, cursor: usize, write_count: u64) -> Result<()> {
        let _ = (cursor, write_count);
        Ok(())
    }

    /// What [`Storage::note_writer`] was told last, where it outlived its buffer.
    fn noted_writer(&self) -> Option<(usize, u64)> {
        None
    }

    /// For storages that outlive their buffer: above every count of rewrites that buffers of earlier openings gave, so that who
    /// still has one updates no row that was written since. Such storages keep the leaves of their first items.
    fn first_generation(&self) -> Option<i64> {
        None
    }
}

/// How many rows hold an item once `rows` are written, of a storage that holds `len`.
pub(crate) fn grown_len(len: usize, capacity: usize, rows: &[usize]) -> Result<usize> {
    let Some(end) = rows.iter().max().map(|row| row + 1) else {
        return Err(Error::new(ErrorKind::Empty, "a write must hold an item: got none"));
    };
    if end > capacity {
        let detail = format!("row must be < {capacity}, the capacity: got {}", end - 1);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if end <= len {
        return Ok(len);
    }
    let mut written = vec![false; end - len];
    for row in rows.iter().filter_map(|row| row.checked_sub(len)) {
        written[row] = true;
    }
    match written.iter().position(|written| !written) {
        None => Ok(end),
        Some(gap) => {
            let detail =
                format!("rows must leave none before them empty: got {} without {}", end - 1, len + gap);
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}

/// Refuses rows that hold no item.
pub(crate) fn check_written(rows: &[usize], len: usize) -> Result<()> {
    match rows.iter().find(|row| **row >= len) {
        None => Ok(()),
        Some(row) => {
            let detail = format!("row must be < {len}, the number of rows that hold an item: got {row}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}

/// Refuses another number of items than of rows.
pub(crate) fn check_count(rows: &[usize], items: &TensorDict) -> Result<()> {
    if items.batch_size().first() == Some(&rows.len()) {
        return Ok(());
    }
    let detail = format!("items must have the batch size [{}]: got {:?}", rows.len(), items.batch_size());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
