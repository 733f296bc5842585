//! Rows in memory-mapped files that several processes can write and read at the same time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use fulmar_compute::Compute;
use fulmar_core::{Result, num_elements};
use fulmar_replay::row::{check_count, check_written, checked_capacity, grown_len};
use fulmar_replay::{LastingRows, PartialReads, SharedWrites, Storage, StorageAbilities};
use fulmar_tensor::{Key, TensorDict};

use crate::folder;
use crate::news::News;
use crate::options::LazyMemmapStorageOptions;
use crate::rows::{Rows, last_of_each};

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
    rows: Arc<Rows>,
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
        let rows = Rows {
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
            rows.joined()?;
        }
        Ok(Self { rows: Arc::new(rows) })
    }

    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.rows.path
    }

    /// Removes the folder with its content and closes the storage; returns `false` if it was already removed.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    pub fn cleanup(&self) -> Result<bool> {
        if self.rows.removed.swap(1, Ordering::AcqRel) == 1 {
            return Ok(false);
        }
        let existed = self.rows.path.exists();
        folder::remove(&self.rows.path)?;
        Ok(existed)
    }
}

impl std::fmt::Debug for LazyMemmapStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyMemmapStorage")
            .field("path", &self.rows.path)
            .field("shape", &self.rows.shape)
            .finish()
    }
}

impl Storage for LazyMemmapStorage {
    fn shape(&self) -> &[usize] {
        &self.rows.shape
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        grown_len(self.len(), self.rows.capacity, rows)?;
        check_count(rows, items)?;
        let _writing = self.rows.writing();
        self.rows.set(rows, items)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.rows.to_device(self.rows.get(rows, &|_| true)?)
    }

    /// Other processes may still show writes that they had begun before.
    fn clear(&mut self) {
        let _writing = self.rows.writing();
        if let Ok(Some(folder)) = self.rows.joined() {
            folder.ring().clear();
            self.rows.news().reset(&folder.ring());
        }
    }

    fn revision(&self) -> u64 {
        self.rows.news().number()
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), shared_writes: Some(self), lasting_rows: Some(self) }
    }
}

impl PartialReads for LazyMemmapStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        let is_wanted = |leaf: &Key| keys.iter().any(|key| leaf.path().starts_with(key.path()));
        self.rows.to_device(self.rows.get(rows, &is_wanted)?.select_known(keys))
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
        let inner = &*self.rows;
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
        self.rows.refresh()
    }

    fn written_after(&self, revision: u64) -> Vec<usize> {
        let Some(folder) = self.rows.folder.get() else { return Vec::new() };
        self.rows.news().written_after(revision, &folder.ring())
    }
}

impl LastingRows for LazyMemmapStorage {
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        if let Some(folder) = self.rows.joined()? {
            let lanes: usize = self.rows.shape[1..].iter().product();
            folder.ring().count(write_count);
            folder.ring().seek(cursor * lanes);
            self.rows.news().reset(&folder.ring());
        }
        Ok(())
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        let folder = self.rows.joined().ok().flatten()?;
        let lanes: usize = self.rows.shape[1..].iter().product();
        Some((folder.ring().next_row() / lanes, folder.ring().write_count()))
    }

    /// Returns a generation above all those ever written to the folder.
    fn first_generation(&self) -> i64 {
        let folder = self.rows.joined().ok().flatten();
        folder.map_or(0, |folder| folder.ring().num_writes() as i64)
    }
}

#[cfg(test)]
mod tests {
    use fulmar_tensor::Tensor;

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
        let folder = dying.rows.joined().unwrap().unwrap();
        let slot = dying.rows.slot(folder).unwrap().index;
        folder.ring().claim(slot, 2, None).unwrap();
        drop(dying);
        let mut heir = open();
        heir.set(&[0], &items(vec![4])).unwrap();
        assert_eq!(heir.rows.slot.get().unwrap().index, slot);
        first.set(&[2], &items(vec![5])).unwrap();
        assert_eq!(heir.get(&[0, 1, 2, 3]).unwrap(), items(vec![4, 1, 5, 3]));
        std::fs::remove_dir_all(path).unwrap();
    }
}
