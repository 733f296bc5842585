//! One storage that several buffers write to.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use fulmar_core::{Held, Result};
use fulmar_tensor::{Key, TensorDict};

use crate::row::check_written;
use crate::storage::Storage;
use crate::storage::abilities::{LastingRows, PartialReads, SharedWrites, StorageAbilities};

/// Number of writes that are remembered; a buffer that is further behind rereads all rows.
const WRITES_KEPT: usize = 256;

/// A handle to a storage; clones are handles to the same storage. Each buffer with a handle reads, before it
/// draws or writes, the rows that the others wrote.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, SharedStorage, SharedWrites, Storage};
/// use fulmar_tensor::TensorDict;
/// let mut mine = SharedStorage::new(Box::new(ListStorage::new(4)?));
/// let others = mine.clone();
/// mine.set(&[0, 1], &TensorDict::new(&[2])?)?;
/// assert_eq!((others.len(), others.written_after(0)), (2, vec![0, 1]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedStorage {
    shape: Vec<usize>,
    /// `true` if the rows outlive their buffers.
    lasts: bool,
    inner: Arc<RwLock<Inner>>,
}

struct Inner {
    storage: Box<dyn Storage>,
    /// The last writes, each with the revision that it made.
    writes: VecDeque<(u64, Vec<usize>)>,
    /// The last revision whose write is forgotten.
    forgotten: u64,
    /// Readers that copy rows later in their current state.
    pending: Mutex<Vec<Weak<PendingRows>>>,
}

/// Rows with their content at the time of the request, copied by the first that needs it: a reader, or a
/// write over them.
#[derive(Debug)]
pub struct PendingRows {
    rows: Vec<usize>,
    items: OnceLock<Result<TensorDict>>,
}

impl PendingRows {
    /// Returns rows that are already copied.
    pub fn copied(items: TensorDict) -> Self {
        Self { rows: Vec::new(), items: OnceLock::from(Ok(items)) }
    }

    pub fn is_copied(&self) -> bool {
        self.items.get().is_some()
    }
}

impl SharedStorage {
    /// Returns the first handle to `storage`.
    #[must_use]
    pub fn new(storage: Box<dyn Storage>) -> Self {
        let shape = storage.shape().to_vec();
        let lasts = storage.abilities().lasting_rows.is_some();
        Self {
            shape,
            lasts,
            inner: Arc::new(RwLock::new(Inner {
                storage,
                writes: VecDeque::new(),
                forgotten: 0,
                pending: Mutex::default(),
            })),
        }
    }

    /// Returns the maximum number of rows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shape.iter().product()
    }

    /// Requests the items in `rows` with their current content, to be copied later. Does not block writes of
    /// other processes.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item.
    pub(crate) fn pending(&self, rows: &[usize]) -> Result<Arc<PendingRows>> {
        let inner = self.read()?;
        check_written(rows, inner.storage.len())?;
        let one = Arc::new(PendingRows { rows: rows.to_vec(), items: OnceLock::new() });
        let mut pending = inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|other| other.upgrade().is_some_and(|other| !other.is_copied()));
        pending.push(Arc::downgrade(&one));
        Ok(one)
    }

    /// Copies pending rows unless they are already copied.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    pub(crate) fn copied(&self, pending: &PendingRows) -> Result<TensorDict> {
        let inner = self.read()?;
        pending.items.get_or_init(|| inner.storage.get(&pending.rows)).clone()
    }

    /// Refuses a callback of the storage.
    ///
    /// # Errors
    /// `Forbidden` if this thread is in the middle of an operation of the storage.
    pub fn check_free(&self) -> Result<()> {
        self.mark().map(drop)
    }

    fn mark(&self) -> Result<Held> {
        Held::mark(&*self.inner, "a storage")
    }

    fn read(&self) -> Result<Locked<RwLockReadGuard<'_, Inner>>> {
        let held = self.mark()?;
        // Storages change nothing before an error, so the state that a panicked thread left is consistent.
        Ok(Locked { guard: self.inner.read().unwrap_or_else(PoisonError::into_inner), _held: held })
    }

    fn write(&self) -> Result<Locked<RwLockWriteGuard<'_, Inner>>> {
        let held = self.mark()?;
        Ok(Locked { guard: self.inner.write().unwrap_or_else(PoisonError::into_inner), _held: held })
    }

    /// Locks for a read that cannot fail. Buffers check before that this thread is not inside an operation;
    /// otherwise a panic is better than a deadlock.
    #[expect(clippy::expect_used, reason = "the trait leaves no room for an error here")]
    fn look(&self) -> Locked<RwLockReadGuard<'_, Inner>> {
        self.read().expect("a storage must not be used by a function that it is calling")
    }
}

/// A storage, locked.
struct Locked<G> {
    guard: G,
    _held: Held,
}

impl<G: Deref<Target = Inner>> Deref for Locked<G> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.guard
    }
}

impl<G: DerefMut<Target = Inner>> DerefMut for Locked<G> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.guard
    }
}

impl Inner {
    /// Copies the pending rows that `written` may change.
    fn settle(&mut self, written: &Range<usize>) {
        let storage = &self.storage;
        let pending = self.pending.get_mut().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|one| {
            let Some(one) = one.upgrade().filter(|one| !one.is_copied()) else { return false };
            let is_changed = one.rows.iter().any(|row| written.contains(row));
            if is_changed {
                one.items.get_or_init(|| storage.get(&one.rows));
            }
            !is_changed
        });
    }

    /// Records the rows written since `before`, unless the storage does that itself.
    fn remember(&mut self, before: u64, rows: &[usize]) {
        if !self.storage.written_after(before).is_empty() {
            return;
        }
        self.writes.push_back((self.storage.revision(), rows.to_vec()));
        if self.writes.len() > WRITES_KEPT
            && let Some((forgotten, _)) = self.writes.pop_front()
        {
            self.forgotten = forgotten;
        }
    }
}

impl std::fmt::Debug for SharedStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStorage").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Storage for SharedStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.look().storage.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let mut inner = self.write()?;
        inner.settle(&range_of(rows));
        let before = inner.storage.revision();
        inner.storage.set(rows, items)?;
        inner.remember(before, rows);
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.read()?.storage.get(rows)
    }

    #[expect(clippy::expect_used, reason = "the trait leaves no room for an error here")]
    fn clear(&mut self) {
        let mut inner = self.write().expect("a storage must not be emptied by a function that it is calling");
        inner.settle(&(0..usize::MAX));
        inner.storage.clear();
        inner.writes.clear();
        inner.forgotten = inner.storage.revision();
    }

    fn revision(&self) -> u64 {
        self.look().storage.revision()
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        let lasting_rows: Option<&dyn LastingRows> = if self.lasts { Some(self) } else { None };
        StorageAbilities { partial_reads: Some(self), shared_writes: Some(self), lasting_rows }
    }
}

impl PartialReads for SharedStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        self.read()?.storage.read_keys(rows, keys)
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        self.read()?.storage.read_into(rows, out)
    }
}

impl SharedWrites for SharedStorage {
    fn set_if_unchanged(
        &self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        let mut inner = self.write()?;
        inner.settle(&range_of(rows));
        let is_set = inner.storage.set_if_unchanged(revision, rows, items, writer)?;
        if is_set {
            inner.remember(revision, rows);
        }
        Ok(is_set)
    }

    fn refresh(&self) -> Result<()> {
        self.read()?.storage.refresh()
    }

    fn written_after(&self, revision: u64) -> Vec<usize> {
        let inner = self.look();
        let len = inner.storage.len();
        if inner.storage.revision() == revision {
            return Vec::new();
        }
        if revision < inner.forgotten {
            return (0..len).collect();
        }
        // Writes outside this process, and writes of handles.
        let outside = inner.storage.written_after(revision);
        let newer = inner.writes.iter().filter(|(made, _)| *made > revision);
        outside
            .into_iter()
            .chain(newer.flat_map(|(_, rows)| rows.iter().copied()))
            .filter(|row| *row < len)
            .collect()
    }
}

impl LastingRows for SharedStorage {
    fn note_writer(&self, cursor: usize, write_count: u64) -> Result<()> {
        self.write()?.storage.note_writer(cursor, write_count)
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        self.look().storage.noted_writer()
    }

    fn first_generation(&self) -> i64 {
        self.look().storage.first_generation().unwrap_or(0)
    }
}

/// Returns the range from the first of `rows` to the last.
fn range_of(rows: &[usize]) -> Range<usize> {
    rows.iter().min().map_or(0, |first| *first)..rows.iter().max().map_or(0, |last| last + 1)
}
