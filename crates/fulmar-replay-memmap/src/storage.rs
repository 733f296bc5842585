//! Rows in memory-mapped files that several processes can write and read at the same time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fulmar_compute::Compute;
use fulmar_core::limits::REPLAY_STORAGE_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_replay::row::{check_count, check_written, checked_capacity, grown_len};
use fulmar_replay::{LastingRows, PartialReads, SharedWrites, Storage, StorageAbilities};
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::folder::{self, Folder, Slot};
use crate::news::News;
use crate::options::LazyMemmapStorageOptions;
use crate::patience::Patience;
use crate::ring::Busy;
use crate::schema::{Leaf, Schema};

/// One memory-mapped file for each leaf, in tensordict's format, so that `TensorDict.load_memmap` reads the
/// folder. The files are made at the first write, which determines leaves, dtypes and shapes of all later
/// items; leaves must be dense. Space is allocated ahead.
///
/// Several processes may have a storage over one folder, by `shared_init`. Each has a buffer with its own
/// sampler, which reads the writes of the others before it draws or writes. A torn read is repeated. A
/// process that dies during a write loses the items that it had not written yet, and no others. Rows outlive
/// processes; those of a `DurableStorage` outlive the machine.
///
/// Clones are the same storage.
///
/// # Examples
/// ```
/// use fulmar_replay::ReplayBuffer;
/// use fulmar_replay_memmap::{LazyMemmapStorage, LazyMemmapStorageOptions};
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-storage-{}", std::process::id()));
/// let open = || {
///     let options = LazyMemmapStorageOptions { scratch_dir: Some(folder.clone()), shared_init: true, ..Default::default() };
///     ReplayBuffer::new(Box::new(LazyMemmapStorage::new(&[100], options)?), Default::default())
/// };
/// let (mut one, mut other) = (open()?, open()?);
/// let mut items = TensorDict::new(&[2])?;
/// items.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
/// assert_eq!(one.extend(&items)?, [Some(0), Some(1)]);
/// assert_eq!(other.extend(&items)?, [Some(2), Some(3)]);
/// assert_eq!(memmap::load(&folder)?.tensor("reward")?.as_f32()?[..5], [0.5, 1.0, 0.5, 1.0, 0.0]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct LazyMemmapStorage {
    inner: Arc<Inner>,
}

struct Inner {
    shape: Vec<usize>,
    capacity: usize,
    path: PathBuf,
    options: LazyMemmapStorageOptions,
    cleans: bool,
    folder: OnceLock<Folder>,
    slot: OnceLock<Slot>,
    /// Held during changes of rows: there is one slot.
    writing: Mutex<()>,
    news: Mutex<News>,
    /// 1 once the folder is removed.
    removed: AtomicU64,
}

impl LazyMemmapStorage {
    /// Returns a storage for items of `shape`, `[capacity]` or `[time, lanes..]`. Makes no file before the
    /// first write.
    ///
    /// # Errors
    /// `OutOfRange` or `LimitExceeded` for invalid shapes; `Incompatible`, naming `existsOk`, if the folder
    /// has a storage that may be neither joined nor replaced, or a joined one has another shape; `Corrupt`,
    /// with the file, if it is damaged; `Io`.
    pub fn new(shape: &[usize], options: LazyMemmapStorageOptions) -> Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Compute::on(options.device)?;
        let capacity = checked_capacity(num_elements(shape)?)?;
        let path = options.scratch_dir.clone().unwrap_or_else(|| {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            std::env::temp_dir().join(format!("fulmar-memmap-{}-{number}", std::process::id()))
        });
        let joins = options.shared_init && folder::has_board(&path);
        // A folder that another process is making is joined, or refused, at the first write.
        if !options.shared_init && !options.exists_ok && folder::is_taken(&path) {
            return Err(folder::taken(&path));
        }
        let cleans = options.auto_cleanup.unwrap_or(options.scratch_dir.is_none());
        let inner = Inner {
            shape: shape.to_vec(),
            capacity,
            path,
            options,
            cleans,
            folder: OnceLock::new(),
            slot: OnceLock::new(),
            writing: Mutex::new(()),
            news: Mutex::new(News::default()),
            removed: AtomicU64::new(0),
        };
        if joins {
            inner.joined()?;
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Removes the folder with its content and closes the storage; returns `false` if it was already removed.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    pub fn cleanup(&self) -> Result<bool> {
        if self.inner.removed.swap(1, Ordering::AcqRel) == 1 {
            return Ok(false);
        }
        let existed = self.inner.path.exists();
        folder::remove(&self.inner.path)?;
        Ok(existed)
    }
}

impl std::fmt::Debug for LazyMemmapStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyMemmapStorage")
            .field("path", &self.inner.path)
            .field("shape", &self.inner.shape)
            .finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.cleans && *self.removed.get_mut() == 0 {
            // A drop cannot report a folder that cannot be removed.
            let _ = folder::remove(&self.path);
        }
    }
}

impl Inner {
    fn writing(&self) -> MutexGuard<'_, ()> {
        // A thread that panicked leaves the same state as a process that died, and is recovered from alike.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> MutexGuard<'_, News> {
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
    fn joined(&self) -> Result<Option<&Folder>> {
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
    fn made(&self, items: &TensorDict) -> Result<&Folder> {
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
    fn slot(&self, folder: &Folder) -> Result<&Slot> {
        match self.slot.get() {
            Some(slot) => Ok(slot),
            None => {
                let slot = folder.take_slot()?;
                Ok(self.slot.get_or_init(|| slot))
            }
        }
    }

    fn len(&self) -> usize {
        // A read reports an error of joining.
        self.joined().ok().flatten().map_or(0, |folder| folder.ring().len())
    }

    /// Reads the changes of other processes.
    fn refresh(&self) -> Result<()> {
        if let Some(folder) = self.joined()? {
            self.news().look(&folder.ring());
        }
        Ok(())
    }

    /// Writes items to consecutive rows of the ring, if the first of them is still the next row; returns
    /// whether it was.
    fn append(&self, folder: &Folder, rows: &[usize], items: &TensorDict) -> Result<bool> {
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

    /// Runs [`Inner::replace`] if no process has changed anything since `revision`, all rows or none; returns
    /// whether it did.
    fn replace_if(
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
    fn set(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
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
    fn get(&self, rows: &[usize], wanted: &dyn Fn(&Key) -> bool) -> Result<TensorDict> {
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
    fn to_device(&self, items: TensorDict) -> Result<TensorDict> {
        let device = self.options.device;
        if items.is_on(device) { Ok(items) } else { items.to_device(device) }
    }
}

/// Returns the elements of each leaf, row by row.
fn bytes_of(folder: &Folder, items: &TensorDict) -> Result<Vec<Vec<u8>>> {
    folder.leaves().map(|leaf| Ok(items.tensor(leaf.key.clone())?.to_bytes())).collect()
}

/// Returns the rows in order, each with the index of its last item.
fn last_of_each(rows: &[usize]) -> Vec<(usize, usize)> {
    let mut last: Vec<(usize, usize)> = rows.iter().copied().zip(0..).collect();
    last.sort_unstable_by_key(|(row, at)| (*row, std::cmp::Reverse(*at)));
    last.dedup_by_key(|(row, _)| *row);
    last
}

impl Storage for LazyMemmapStorage {
    fn shape(&self) -> &[usize] {
        &self.inner.shape
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        grown_len(self.len(), self.inner.capacity, rows)?;
        check_count(rows, items)?;
        let _writing = self.inner.writing();
        self.inner.set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.inner.to_device(self.inner.get(rows, &|_| true)?)
    }

    /// Other processes may still show writes that they had begun before.
    fn clear(&mut self) {
        let _writing = self.inner.writing();
        if let Ok(Some(folder)) = self.inner.joined() {
            folder.ring().clear();
            self.inner.news().reset(&folder.ring());
        }
    }

    fn revision(&self) -> u64 {
        self.inner.news().number()
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), shared_writes: Some(self), lasting_rows: Some(self) }
    }
}

impl PartialReads for LazyMemmapStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        let is_wanted = |leaf: &Key| keys.iter().any(|key| leaf.path().starts_with(key.path()));
        self.inner.to_device(self.inner.get(rows, &is_wanted)?.select_known(keys))
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        *out = self.get(rows)?;
        Ok(())
    }
}

impl SharedWrites for LazyMemmapStorage {
    fn set_if_unchanged(
        &self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        check_count(rows, items)?;
        let inner = &*self.inner;
        let _writing = inner.writing();
        let folder = inner.made(items)?;
        let ring = folder.ring();
        let Some((cursor, write_count)) = writer else {
            check_written(rows, ring.len())?;
            return inner.replace_if(folder, revision, &last_of_each(rows), items);
        };
        let follow = rows.windows(2).all(|pair| pair[1] == (pair[0] + 1) % inner.capacity);
        if follow && rows.first().is_some_and(|row| *row == ring.next_row()) {
            let is_set = inner.append(folder, rows, items)?;
            if is_set {
                ring.count(write_count);
            }
            return Ok(is_set);
        }
        inner.news().look(&ring);
        if inner.news().number() != revision {
            return Ok(false);
        }
        inner.set(rows, items)?;
        self.note_writer(cursor, write_count)?;
        Ok(true)
    }

    fn refresh(&self) -> Result<()> {
        self.inner.refresh()
    }

    fn written_after(&self, revision: u64) -> Vec<usize> {
        let Some(folder) = self.inner.folder.get() else { return Vec::new() };
        self.inner.news().written_after(revision, &folder.ring())
    }
}

impl LastingRows for LazyMemmapStorage {
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        if let Some(folder) = self.inner.joined()? {
            let lanes: usize = self.inner.shape[1..].iter().product();
            folder.ring().count(write_count);
            folder.ring().seek(cursor * lanes);
            self.inner.news().reset(&folder.ring());
        }
        Ok(())
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        let folder = self.inner.joined().ok().flatten()?;
        let lanes: usize = self.inner.shape[1..].iter().product();
        Some((folder.ring().next_row() / lanes, folder.ring().write_count()))
    }

    /// Returns a generation above all those ever written to the folder.
    fn first_generation(&self) -> i64 {
        let folder = self.inner.joined().ok().flatten();
        folder.map_or(0, |folder| folder.ring().num_writes() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_a_dead_writer_took_and_did_not_begin_holds_nobody_up_once_its_slot_is_taken() {
        let path = std::env::temp_dir().join(format!("fulmar-memmap-heir-{}", std::process::id()));
        let open = || {
            let scratch_dir = Some(path.clone());
            let options = LazyMemmapStorageOptions { scratch_dir, shared_init: true, ..Default::default() };
            LazyMemmapStorage::new(&[4], options).unwrap()
        };
        let items = |numbers: Vec<i64>| {
            let mut items = TensorDict::new(&[numbers.len()]).unwrap();
            items.set("number", Tensor::from_vec(&[numbers.len()], numbers).unwrap()).unwrap();
            items
        };
        let mut first = open();
        first.set(&[0, 1, 2, 3], &items(vec![0, 1, 2, 3])).unwrap();
        let dying = open();
        let folder = dying.inner.joined().unwrap().unwrap();
        let slot = dying.inner.slot(folder).unwrap().index;
        folder.ring().claim(slot, 2, None).unwrap();
        drop(dying);
        let mut heir = open();
        heir.set(&[0], &items(vec![4])).unwrap();
        assert_eq!(heir.inner.slot.get().unwrap().index, slot);
        first.set(&[2], &items(vec![5])).unwrap();
        assert_eq!(heir.get(&[0, 1, 2, 3]).unwrap(), items(vec![4, 1, 5, 3]));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn of_a_row_that_comes_twice_the_last_stays() {
        assert_eq!(last_of_each(&[3, 1, 3, 0]), [(0, 3), (1, 1), (3, 2)]);
    }
}
