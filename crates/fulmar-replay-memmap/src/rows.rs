//! The rows of a folder: reads, and writes while other processes write.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use fulmar_core::limits::REPLAY_STORAGE_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::row::{check_written, grown_len};
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::LazyMemmapStorageOptions;
use crate::folder::{self, Folder, Slot};
use crate::news::News;
use crate::patience::Patience;
use crate::ring::Busy;
use crate::schema::{Leaf, Schema};

/// The rows of a folder, as this process has it open.
pub(super) struct Rows {
    pub(super) shape: Vec<usize>,
    pub(super) capacity: usize,
    pub(super) path: PathBuf,
    pub(super) options: LazyMemmapStorageOptions,
    /// If true, the folder is removed with these rows.
    pub(super) cleans: bool,
    pub(super) folder: OnceLock<Folder>,
    pub(super) slot: OnceLock<Slot>,
    /// Held during changes of rows: there is one slot.
    pub(super) writing: Mutex<()>,
    pub(super) news: Mutex<News>,
    /// 1 once the folder is removed.
    pub(super) removed: AtomicU64,
}

impl Drop for Rows {
    fn drop(&mut self) {
        if self.cleans && *self.removed.get_mut() == 0 {
            // A drop cannot report a folder that cannot be removed.
            let _ = folder::remove(&self.path);
        }
    }
}

impl Rows {
    pub(super) fn writing(&self) -> MutexGuard<'_, ()> {
        // A thread that panicked leaves the same state as a process that died, and is recovered from alike.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_there(&self) -> Result<()> {
        if self.removed.load(Ordering::Acquire) == 0 {
            return self.folder.get().map_or(Ok(()), Folder::check_current);
        }
        let detail = "the folder must be there: got one that was cleaned up";
        Err(Error::new(ErrorKind::Closed, detail).at(self.path.display()))
    }

    /// Returns the files, if they exist.
    pub(super) fn joined(&self) -> Result<Option<&Folder>> {
        self.check_there()?;
        if let Some(folder) = self.folder.get() {
            return Ok(Some(folder));
        }
        if !self.options.shared_init || !folder::has_board(&self.path) {
            return Ok(None);
        }
        let folder = Folder::join(&self.path, &self.shape)?;
        Ok(Some(self.folder.get_or_init(|| folder)))
    }

    /// Returns the files; makes them for items like these if necessary.
    pub(super) fn made(&self, items: &TensorDict) -> Result<&Folder> {
        if let Some(folder) = self.joined()? {
            folder.blank.check_rows(items, items.batch_size().first().copied().unwrap_or(0))?;
            return Ok(folder);
        }
        let schema = Schema::of(items)?;
        let row_bytes: u64 = schema.leaves()?.iter().map(|leaf| leaf.row_bytes as u64).sum();
        let (bytes, bytes_max) = (
            row_bytes.saturating_mul(self.capacity as u64),
            self.options.bytes_max.unwrap_or(REPLAY_STORAGE_BYTES_MAX),
        );
        if bytes > bytes_max {
            let detail = format!(
                "a storage must take at most {bytes_max} bytes: got {} rows of {row_bytes} bytes, {bytes} together",
                self.capacity
            );
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let blank = schema.rows(&[1], &mut |dtype, shape| Tensor::zeros(dtype, shape))?;
        let (joins, exists_ok) = (self.options.shared_init, self.options.exists_ok);
        let folder = Folder::make(&self.path, &self.shape, &blank, joins, exists_ok)?;
        let folder = self.folder.get_or_init(|| folder);
        folder.blank.check_rows(items, items.batch_size().first().copied().unwrap_or(0))?;
        Ok(folder)
    }

    /// Returns this process's slot among the writers.
    pub(super) fn slot(&self, folder: &Folder) -> Result<&Slot> {
        match self.slot.get() {
            Some(slot) => Ok(slot),
            None => {
                let slot = folder.take_slot()?;
                Ok(self.slot.get_or_init(|| slot))
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        // A read reports an error of joining.
        self.joined().ok().flatten().map_or(0, |folder| folder.ring().len())
    }

    /// Reads the changes of other processes.
    pub(super) fn refresh(&self) -> Result<()> {
        if let Some(folder) = self.joined()? {
            self.news().look(&folder.ring());
        }
        Ok(())
    }

    /// Writes items to consecutive rows of the ring, if the first of them is still the next row; returns
    /// whether it was.
    pub(super) fn append(&self, folder: &Folder, rows: &[usize], items: &TensorDict) -> Result<bool> {
        let (ring, slot) = (folder.ring(), self.slot(folder)?);
        let mut patience = Patience::default();
        let range = loop {
            match ring.reserve(slot.index, rows[0], rows.len() as u64) {
                Ok(range) => break range,
                Err(Busy::Raced) => return Ok(false),
                Err(busy) => patience.wait(folder, busy, None)?,
            }
        };
        let bytes = bytes_of(folder, items)?;
        for (at, seq) in range.clone().enumerate() {
            if let Err(error) = self.put(folder, slot, ring.row(seq), &bytes, at, None) {
                // The rest of the range keeps its old items; in the first lap it is given back.
                ring.recover(slot.index, |_| {});
                return Err(error);
            }
            ring.written(slot.index, seq + 1);
            ring.note(slot.index, None);
        }
        self.news().wrote(range.clone(), ring.row(range.end));
        Ok(true)
    }

    /// Writes item `at` of `bytes` to a row; waits for a live process that is writing it.
    fn put(
        &self,
        folder: &Folder,
        slot: &Slot,
        row: usize,
        bytes: &[Vec<u8>],
        at: usize,
        claimed: Option<u64>,
    ) -> Result<()> {
        let ring = folder.ring();
        let mut patience = Patience::default();
        let claimed = match claimed {
            Some(claimed) => claimed,
            None => loop {
                match ring.claim(slot.index, row, None) {
                    Ok(claimed) => break claimed,
                    Err(busy) => patience.wait(folder, busy, Some(row))?,
                }
            },
        };
        folder.note(slot, bytes, at);
        ring.note(slot.index, Some(row));
        folder.write(row, bytes, at);
        ring.release(row, claimed);
        Ok(())
    }

    /// Overwrites rows that hold items, each atomically.
    fn replace(&self, folder: &Folder, rows: &[(usize, usize)], items: &TensorDict) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (ring, slot, bytes) = (folder.ring(), self.slot(folder)?, bytes_of(folder, items)?);
        for (row, at) in rows {
            let mut patience = Patience::default();
            let claimed = loop {
                match ring.claim(slot.index, *row, None) {
                    Ok(claimed) => break claimed,
                    Err(busy) => patience.wait(folder, busy, Some(*row))?,
                }
            };
            let number = ring.log(*row);
            self.put(folder, slot, *row, &bytes, *at, Some(claimed))?;
            ring.note(slot.index, None);
            self.news().logged(number);
        }
        self.news().change();
        Ok(())
    }

    /// Runs [`Rows::replace`] if no process has changed anything since `revision`, all rows or none; returns
    /// whether it did.
    pub(super) fn replace_if(
        &self,
        folder: &Folder,
        revision: u64,
        rows: &[(usize, usize)],
        items: &TensorDict,
    ) -> Result<bool> {
        let (ring, slot, bytes) = (folder.ring(), self.slot(folder)?, bytes_of(folder, items)?);
        let mut states = Vec::with_capacity(rows.len());
        for (row, _) in rows {
            let mut patience = Patience::default();
            states.push(loop {
                match ring.taker(*row).map_or(ring.readable(*row), |slot| Err(Busy::By(slot))) {
                    Ok(state) => break state,
                    Err(busy) => patience.wait(folder, busy, Some(*row))?,
                }
            });
        }
        {
            // The states are those that this process has seen, or newer ones that are detected here.
            let mut news = self.news();
            news.look(&ring);
            if news.number() != revision {
                return Ok(false);
            }
        }
        let mut claims = Vec::with_capacity(rows.len());
        for ((row, _), state) in rows.iter().zip(states) {
            match ring.claim(slot.index, *row, Some(state)) {
                Ok(claimed) => claims.push(claimed),
                Err(_) => {
                    rows.iter().zip(claims).for_each(|((row, _), claimed)| ring.release(*row, claimed));
                    return Ok(false);
                }
            }
        }
        for ((row, at), claimed) in rows.iter().zip(claims) {
            let number = ring.log(*row);
            self.put(folder, slot, *row, &bytes, *at, Some(claimed))?;
            ring.note(slot.index, None);
            self.news().logged(number);
        }
        self.news().change();
        Ok(true)
    }

    /// Writes items unconditionally, to empty rows first.
    pub(super) fn set(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let folder = self.made(items)?;
        let len = folder.ring().len();
        let end = grown_len(len, self.capacity, rows)?;
        let last = last_of_each(rows);
        let split = last.partition_point(|(row, _)| *row < len);
        let (old, new) = last.split_at(split);
        if !new.is_empty() {
            let places: Vec<usize> = new.iter().map(|(_, at)| *at).collect();
            let rows: Vec<usize> = (len..end).collect();
            if !self.append(folder, &rows, &items.index_select(&places)?)? {
                let detail = format!(
                    "row {len} must be the first that holds no item: got a write of another process to it"
                );
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        self.replace(folder, old, items)
    }

    /// Returns the items in `rows`. Leaves that are not `wanted` are not read, and become zeros that use no
    /// memory.
    pub(super) fn get(&self, rows: &[usize], wanted: &dyn Fn(&Key) -> bool) -> Result<TensorDict> {
        let Some(folder) = self.joined()? else {
            check_written(rows, 0)?;
            return TensorDict::new(&[0]);
        };
        let ring = folder.ring();
        check_written(rows, ring.len())?;
        let wanted: Vec<bool> = folder.leaves().map(|leaf| wanted(&leaf.key)).collect();
        let bytes = |(leaf, wanted): (&Leaf, &bool)| wanted.then(|| vec![0; leaf.row_bytes * rows.len()]);
        let mut bytes: Vec<Option<Vec<u8>>> = folder.leaves().zip(&wanted).map(bytes).collect();
        for (at, row) in rows.iter().enumerate() {
            let mut patience = Patience::default();
            loop {
                match ring.readable(*row) {
                    Ok(state) => {
                        folder.read(*row, at, &mut bytes);
                        if ring.is_still(*row, state) {
                            break;
                        }
                        patience.wait(folder, Busy::Raced, None)?;
                    }
                    Err(busy) => patience.wait(folder, busy, Some(*row))?,
                }
            }
        }
        let mut leaves = folder.leaves().zip(bytes);
        folder.schema.rows(&[rows.len()], &mut |dtype, shape| match leaves.next() {
            Some((leaf, Some(bytes))) => {
                Tensor::from_bytes(dtype, shape, &bytes).map_err(|error| error.at(&leaf.key))
            }
            _ => Tensor::zeros(dtype, &[])?.expand(shape),
        })
    }

    /// Moves read items to the device of the options.
    pub(super) fn to_device(&self, items: TensorDict) -> Result<TensorDict> {
        let device = self.options.device;
        if items.is_on(device) { Ok(items) } else { items.to_device(device) }
    }
}

/// Returns the elements of each leaf, row by row.
fn bytes_of(folder: &Folder, items: &TensorDict) -> Result<Vec<Vec<u8>>> {
    folder.leaves().map(|leaf| Ok(items.tensor(leaf.key.clone())?.to_bytes())).collect()
}

/// Returns the rows in order, each with the index of its last item.
pub(super) fn last_of_each(rows: &[usize]) -> Vec<(usize, usize)> {
    let mut last: Vec<(usize, usize)> = rows.iter().copied().zip(0..).collect();
    last.sort_unstable_by_key(|(row, at)| (*row, std::cmp::Reverse(*at)));
    last.dedup_by_key(|(row, _)| *row);
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_row_that_comes_twice_the_last_stays() {
        assert_eq!(last_of_each(&[3, 1, 3, 0]), [(0, 3), (1, 1), (3, 2)]);
    }
}
