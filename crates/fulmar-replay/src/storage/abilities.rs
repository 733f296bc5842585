//! Abilities that only some storages have.

use fulmar_core::Result;
use fulmar_tensor::{Key, TensorDict};

use crate::storage::Storage;

/// The abilities of a storage.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, Storage, TensorStorage};
/// assert!(TensorStorage::new(&[4])?.abilities().partial_reads.is_some());
/// assert!(ListStorage::new(4)?.abilities().partial_reads.is_none());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone, Copy, Default)]
pub struct StorageAbilities<'a> {
    /// If present, a part of the items can be read, or all into memory of an earlier batch.
    pub partial_reads: Option<&'a dyn PartialReads>,
    /// If present, several buffers write to the storage.
    pub shared_writes: Option<&'a dyn SharedWrites>,
    /// If present, the rows outlive their buffer.
    pub lasting_rows: Option<&'a dyn LastingRows>,
}

/// Reads of a part of the items.
pub trait PartialReads {
    /// Runs [`Storage::get`] and may omit all but the entries at `keys`.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict>;

    /// Runs [`Storage::get`] and may reuse the memory of `out`.
    ///
    /// # Errors
    /// The errors of [`Storage::get`]. After an error `out` is unchanged.
    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()>;
}

/// Writes of several buffers, of this process or of several.
pub trait SharedWrites {
    /// Runs [`Storage::set`] and [`LastingRows::note_writer`] atomically, if nothing has changed since
    /// `revision`. Otherwise returns `false` and changes nothing.
    ///
    /// # Errors
    /// The errors of [`Storage::set`] and [`LastingRows::note_writer`].
    fn set_if_unchanged(
        &self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool>;

    /// Reads the changes of other processes to the rows, if there are any. Buffers call this before they draw
    /// or write.
    ///
    /// # Errors
    /// If the storage cannot read them.
    fn refresh(&self) -> Result<()>;

    /// Returns the rows written after `revision`.
    fn written_after(&self, revision: u64) -> Vec<usize>;
}

/// Rows that outlive their buffer. Their storage keeps the leaves of its first items.
pub trait LastingRows {
    /// Records the position of a buffer's writer after a write: the time step that is written next, and the
    /// write count.
    ///
    /// # Errors
    /// If the storage cannot store it.
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()>;

    /// Returns the last position of [`LastingRows::note_writer`], if it is known.
    fn noted_writer(&self) -> Option<(usize, u64)>;

    /// Returns a number above every generation of earlier openings, so that an old generation updates no row
    /// written since.
    fn first_generation(&self) -> i64;
}

impl dyn Storage + '_ {
    /// Returns the maximum number of rows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shape().iter().product()
    }

    /// Runs [`PartialReads::read_keys`]; reads whole items without that ability.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    pub fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        match self.abilities().partial_reads {
            Some(reads) => reads.read_keys(rows, keys),
            None => self.get(rows),
        }
    }

    /// Runs [`PartialReads::read_into`]; allocates without that ability.
    ///
    /// # Errors
    /// The errors of [`Storage::get`]. After an error `out` is unchanged.
    pub fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        match self.abilities().partial_reads {
            Some(reads) => reads.read_into(rows, out),
            None => {
                *out = self.get(rows)?;
                Ok(())
            }
        }
    }

    /// Runs [`SharedWrites::set_if_unchanged`]. Without that ability no one else writes between its steps.
    ///
    /// # Errors
    /// The errors of [`Storage::set`] and [`LastingRows::note_writer`].
    pub fn set_if_unchanged(
        &mut self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        if let Some(writes) = self.abilities().shared_writes {
            return writes.set_if_unchanged(revision, rows, items, writer);
        }
        if self.revision() != revision {
            return Ok(false);
        }
        self.set(rows, items)?;
        if let Some((cursor, write_count)) = writer {
            self.note_writer(cursor, write_count)?;
        }
        Ok(true)
    }

    /// Runs [`SharedWrites::refresh`]; does nothing without that ability.
    ///
    /// # Errors
    /// If the storage cannot read the changes.
    pub fn refresh(&self) -> Result<()> {
        self.abilities().shared_writes.map_or(Ok(()), SharedWrites::refresh)
    }

    /// Runs [`SharedWrites::written_after`]; empty without that ability.
    #[must_use]
    pub fn written_after(&self, revision: u64) -> Vec<usize> {
        self.abilities().shared_writes.map_or_else(Vec::new, |writes| writes.written_after(revision))
    }

    /// Runs [`LastingRows::note_writer`]; does nothing without that ability.
    ///
    /// # Errors
    /// If the storage cannot store the position.
    pub fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        self.abilities().lasting_rows.map_or(Ok(()), |rows| rows.note_writer(cursor, write_count))
    }

    /// Runs [`LastingRows::noted_writer`]; `None` without that ability.
    #[must_use]
    pub fn noted_writer(&self) -> Option<(usize, u64)> {
        self.abilities().lasting_rows?.noted_writer()
    }

    /// Runs [`LastingRows::first_generation`]; `None` without that ability.
    #[must_use]
    pub fn first_generation(&self) -> Option<i64> {
        Some(self.abilities().lasting_rows?.first_generation())
    }
}
