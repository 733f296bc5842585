//! One storage that several buffers write to.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use fulmar_core::Result;
use fulmar_tensor::TensorDict;

use crate::storage::Storage;

/// Writes that are remembered; who is further behind takes note of all rows.
const WRITES_KEPT: usize = 256;

/// A handle to a storage; clones of it are handles to the same. Each buffer that has one learns, before it draws or writes, which
/// rows the others wrote.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, SharedStorage, Storage};
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
    inner: Arc<RwLock<Inner>>,
}

struct Inner {
    storage: Box<dyn Storage>,
    /// The last writes, each with the revision that it made.
    writes: VecDeque<(u64, Vec<usize>)>,
}

impl SharedStorage {
    /// The first handle to `storage`.
    #[must_use]
    pub fn new(storage: Box<dyn Storage>) -> Self {
        let shape = storage.shape().to_vec();
        Self { shape, inner: Arc::new(RwLock::new(Inner { storage, writes: VecDeque::new() })) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // Storages change nothing before an error, so what a thread left that panicked is whole.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Notes which rows were written since `before`, unless the storage does that itself.
    fn remember(&mut self, before: u64, rows: &[usize]) {
        if !self.storage.written_after(before).is_empty() {
            return;
        }
        self.writes.push_back((self.storage.revision(), rows.to_vec()));
        if self.writes.len() > WRITES_KEPT {
            self.writes.pop_front();
        }
    }
}

impl std::fmt::Debug for SharedStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStorage").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Storage for SharedStorage {
    fn capacity(&self) -> usize {
        self.read().storage.capacity()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.read().storage.len()
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let mut inner = self.write();
        let before = inner.storage.revision();
        inner.storage.set(rows, items)?;
        inner.remember(before, rows);
        Ok(())
    }

    fn set_if_unchanged(
        &mut self,
        revision: u64,
        rows: &[usize],
        items: &TensorDict,
        writer: Option<(usize, u64)>,
    ) -> Result<bool> {
        let mut inner = self.write();
        let is_set = inner.storage.set_if_unchanged(revision, rows, items, writer)?;
        if is_set {
            inner.remember(revision, rows);
        }
        Ok(is_set)
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.read().storage.get(rows)
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        self.read().storage.read_into(rows, out)
    }

    fn clear(&mut self) {
        let mut inner = self.write();
        inner.storage.clear();
        inner.writes.clear();
    }

    fn refresh(&self) -> Result<()> {
        self.read().storage.refresh()
    }

    fn revision(&self) -> u64 {
        self.read().storage.revision()
    }

    fn note_writer(&mut self, cursor: usize, write_count: u64) -> Result<()> {
        self.write().storage.note_writer(cursor, write_count)
    }

    fn noted_writer(&self) -> Option<(usize, u64)> {
        self.read().storage.noted_writer()
    }

    fn first_generation(&self) -> Option<i64> {
        self.read().storage.first_generation()
    }

    fn written_after(&self, revision: u64) -> Vec<usize> {
        let inner = self.read();
        let known = inner.storage.written_after(revision);
        if !known.is_empty() {
            return known;
        }
        let first = inner.writes.front().map_or(u64::MAX, |(first, _)| *first);
        let mut rows: Vec<usize> = if revision.saturating_add(1) < first {
            (0..inner.storage.len()).collect()
        } else {
            let newer = inner.writes.iter().filter(|(made, _)| *made > revision);
            newer
                .flat_map(|(_, rows)| rows.iter().copied())
                .filter(|row| *row < inner.storage.len())
                .collect()
        };
        if inner.storage.revision() == revision {
            rows.clear();
        }
        rows
    }
}
