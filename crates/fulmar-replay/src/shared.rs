//! A buffer that many threads write to and draw from.
//!
//! ```text
//! write    lock(parts) { plan -> lock(storage, to write) { copy } -> commit -> tell sampler and unit }
//! sample   lock(parts) { draw rows } -> lock(storage, to read) { copy } -> lock(parts) { say what is known of them }
//! ```
//!
//! Locks are always taken in this order, and the long part of a draw, the copy, holds only a shared read
//! lock, so draws wait for each other only while rows are chosen. A row is copied atomically, so none is
//! torn. A row that is rewritten between choice and copy is read as it is then.
//!
//! Parts in another language are called under these locks. If they call back into the buffer, or into another
//! one over the same storage, the call is refused with `Forbidden`.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fulmar_core::{Error, ErrorKind, Held, Result};
use fulmar_tensor::TensorDict;

use crate::ahead::{Drawn, PendingBatch, check_prefetch};
use crate::buffer::checkpoint::load_ahead;
use crate::checkpoint::StorageCheckpointer;
use crate::{
    Batch, ReplayBuffer, ReplayBufferOptions, ReplayBufferState, ReplayBufferStats, Sampler, SharedStorage,
    Storage, Writer,
};

/// Number of times that a draw restarts because the buffer was emptied in between, before it blocks others.
const REDRAWS_MAX: usize = 16;

/// A handle to a [`ReplayBuffer`]; clones are handles to the same buffer.
///
/// # Examples
/// ```
/// use fulmar_replay::{SharedReplayBuffer, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[100])?), Default::default())?;
/// let writer = buffer.clone();
/// std::thread::spawn(move || {
///     let mut items = TensorDict::new(&[2])?;
///     items.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
///     writer.extend(&items)
/// }).join().unwrap()?;
/// assert_eq!(buffer.sample(Some(5))?.items.batch_size(), [5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedReplayBuffer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: Mutex<ReplayBuffer>,
    storage: SharedStorage,
    /// Prefetched batches. Locked after `parts`, before `storage`.
    ahead: Mutex<VecDeque<Arc<Drawn>>>,
}

/// A weak handle that does not keep the [`SharedReplayBuffer`] open.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, SharedReplayBuffer};
/// let buffer = SharedReplayBuffer::new(Box::new(ListStorage::new(4)?), Default::default())?;
/// let weak = buffer.downgrade();
/// assert!(weak.upgrade().is_some_and(|other| other.is_same(&buffer)));
/// drop(buffer);
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WeakReplayBuffer(Weak<Inner>);

impl WeakReplayBuffer {
    /// Returns a handle to the buffer; `None` if all were dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<SharedReplayBuffer> {
        Some(SharedReplayBuffer { inner: self.0.upgrade()? })
    }
}

impl SharedReplayBuffer {
    /// Returns the first handle to a buffer over `storage`.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::new`].
    pub fn new(storage: Box<dyn Storage>, options: ReplayBufferOptions) -> Result<Self> {
        Self::over(SharedStorage::new(storage), options)
    }

    /// Returns the first handle to a buffer over a storage that others may write to.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::new`].
    pub fn over(storage: SharedStorage, options: ReplayBufferOptions) -> Result<Self> {
        check_prefetch(&options)?;
        let buffer = ReplayBuffer::new(Box::new(storage.clone()), options)?;
        Ok(Self::around(buffer, storage))
    }

    /// Returns the first handle to a buffer with the given `sampler` and `writer`, which override `options`.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::new`].
    pub fn with_parts(
        storage: SharedStorage,
        sampler: Option<Box<dyn Sampler>>,
        writer: Option<Box<dyn Writer>>,
        options: ReplayBufferOptions,
    ) -> Result<Self> {
        check_prefetch(&options)?;
        let unit = options.unit.build(storage.shape())?;
        let time = storage.shape().first().copied().unwrap_or_default();
        let writer = writer.map_or_else(|| options.writer.build(time), Ok)?;
        let sampler = sampler.map_or_else(|| options.sampler.build(storage.shape(), options.seed), Ok)?;
        let buffer = ReplayBuffer::of_parts(Box::new(storage.clone()), sampler, writer, unit, options)?;
        Ok(Self::around(buffer, storage))
    }

    fn around(buffer: ReplayBuffer, storage: SharedStorage) -> Self {
        Self { inner: Arc::new(Inner { parts: Mutex::new(buffer), storage, ahead: Mutex::default() }) }
    }

    /// Returns a weak handle.
    #[must_use]
    pub fn downgrade(&self) -> WeakReplayBuffer {
        WeakReplayBuffer(Arc::downgrade(&self.inner))
    }

    /// Returns whether both are handles to one buffer.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the storage of the items.
    #[must_use]
    pub fn storage(&self) -> &SharedStorage {
        &self.inner.storage
    }

    /// Writes items, as [`ReplayBuffer::extend`].
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::extend`].
    pub fn extend(&self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.parts()?.extend(items)
    }

    /// Draws a batch, as [`ReplayBuffer::sample`]. Threads copy their rows in parallel.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::sample`].
    pub fn sample(&self, count: Option<usize>) -> Result<Batch> {
        for _ in 0..REDRAWS_MAX {
            let sampled = self.parts()?.draw(count)?;
            match self.inner.storage.get(&sampled.rows).and_then(|items| self.parts()?.finish(items, sampled))
            {
                // Emptied after the choice; the next draw uses the current content.
                Err(error) if error.kind() == ErrorKind::OutOfRange => {}
                drawn => return drawn,
            }
        }
        // No thread can empty it while the parts are locked.
        self.parts()?.sample(count)
    }

    /// Returns the next batch of the default size: the oldest prefetched one, or one drawn now. Then
    /// prefetches as many as the options set, but none past the end of an epoch. A batch that cannot be drawn
    /// is left for the next call to refuse.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::sample`] if no batch was prefetched.
    pub fn next_batch(&self) -> Result<PendingBatch> {
        let mut parts = self.parts()?;
        let mut ahead = self.ahead();
        let next = match ahead.pop_front() {
            Some(drawn) => drawn,
            None => self.draw(&mut parts)?,
        };
        while ahead.len() < parts.options().prefetch && !ahead.back().unwrap_or(&next).is_last {
            let Ok(drawn) = self.draw(&mut parts) else { break };
            ahead.push_back(drawn);
        }
        Ok(PendingBatch::new(self.clone(), next))
    }

    /// Copies prefetched batches, for an idle thread.
    pub fn copy_ahead(&self) {
        if Held::mark(&*self.inner, "a buffer").is_err() {
            return;
        }
        let ahead: Vec<_> = self.ahead().iter().cloned().collect();
        for drawn in ahead {
            // The caller that takes the batch gets the error.
            let _ = self.inner.storage.copied(&drawn.items);
        }
    }

    fn draw(&self, parts: &mut ReplayBuffer) -> Result<Arc<Drawn>> {
        for _ in 0..REDRAWS_MAX {
            let sampled = parts.draw(None)?;
            // Another buffer of the storage may have emptied it after the choice.
            let Ok(items) = self.inner.storage.pending(&sampled.rows) else { continue };
            let is_last = parts.ran_out() || parts.is_empty();
            return Ok(Arc::new(Drawn { sampled, items, is_last }));
        }
        let detail =
            format!("rows must stay until they are copied, in {REDRAWS_MAX} draws: got emptied ones");
        Err(Error::new(ErrorKind::Empty, detail))
    }

    pub(crate) fn batch_of_drawn(&self, drawn: &Drawn) -> Result<Batch> {
        let items = self.inner.storage.copied(&drawn.items)?;
        self.parts()?.finish(items, drawn.sampled.clone())
    }

    /// Returns the prefetched batches for a checkpoint.
    fn ahead_dicts(&self, parts: &ReplayBuffer) -> Result<Vec<TensorDict>> {
        let kept = |drawn: &Arc<Drawn>| {
            let items = self.inner.storage.copied(&drawn.items)?;
            drawn.to_dict(parts.finish(items, drawn.sampled.clone())?)
        };
        self.ahead().iter().map(kept).collect()
    }

    fn ahead_of(&self, dicts: &[TensorDict]) -> Result<VecDeque<Arc<Drawn>>> {
        let capacity = self.inner.storage.capacity();
        dicts.iter().map(|dict| Drawn::from_dict(dict, capacity).map(Arc::new)).collect()
    }

    /// Sets priorities, as [`ReplayBuffer::update_priority`].
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::update_priority`].
    pub fn update_priority(&self, rows: &[i64], priorities: &[f32]) -> Result<()> {
        self.parts()?.update_priority(rows, priorities)
    }

    /// Empties the buffer and drops prefetched batches; `keeps_count` keeps the write count.
    ///
    /// # Errors
    /// `Forbidden` in a part that the buffer is calling; the errors of [`ReplayBuffer::clear`].
    pub fn clear(&self, keeps_count: bool) -> Result<()> {
        let mut parts = self.parts()?;
        parts.clear(keeps_count)?;
        self.ahead().clear();
        Ok(())
    }

    /// Returns the number of rows that can be drawn.
    ///
    /// # Errors
    /// `Forbidden` in a part that the buffer is calling.
    pub fn len(&self) -> Result<usize> {
        Ok(self.parts()?.len())
    }

    /// Returns whether no row can be drawn.
    ///
    /// # Errors
    /// `Forbidden` in a part that the buffer is calling.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns statistics.
    ///
    /// # Errors
    /// `Forbidden` in a part that the buffer is calling.
    pub fn stats(&self) -> Result<ReplayBufferStats> {
        let parts = self.parts()?;
        Ok(ReplayBufferStats { prefetch_queue_size: self.ahead().len(), ..parts.stats() })
    }

    /// Returns the state for a checkpoint. Blocks all other users.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::state`].
    pub fn state(&self) -> Result<ReplayBufferState> {
        let parts = self.parts()?;
        Ok(ReplayBufferState { ahead: self.ahead_dicts(&parts)?, ..parts.state()? })
    }

    /// Restores `state` with its prefetched batches.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::restore`]; `Corrupt` for a prefetched batch that does not match the
    /// buffer.
    pub fn restore(&self, state: &ReplayBufferState) -> Result<()> {
        let ahead = self.ahead_of(&state.ahead)?;
        let mut parts = self.parts()?;
        parts.restore_rest(state)?;
        *self.ahead() = ahead;
        Ok(())
    }

    /// Writes a folder, as [`ReplayBuffer::dumps`], with the prefetched batches.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::dumps`].
    pub fn dumps(&self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        let parts = self.parts()?;
        parts.dumps_with(path.as_ref(), checkpointer, &self.ahead_dicts(&parts)?)
    }

    /// Restores a folder, as [`ReplayBuffer::loads`], with its prefetched batches.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::loads`] and [`SharedReplayBuffer::restore`].
    pub fn loads(&self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        let path = path.as_ref();
        let ahead = self.ahead_of(&load_ahead(path)?).map_err(|error| error.at(path.display()))?;
        let mut parts = self.parts()?;
        parts.loads(path, checkpointer)?;
        *self.ahead() = ahead;
        Ok(())
    }

    /// Runs `to` with exclusive access to the buffer.
    ///
    /// # Errors
    /// `Forbidden` in a part that the buffer is calling; the errors of `to`.
    pub fn with<T>(&self, to: impl FnOnce(&mut ReplayBuffer) -> Result<T>) -> Result<T> {
        to(&mut *self.parts()?)
    }

    fn ahead(&self) -> MutexGuard<'_, VecDeque<Arc<Drawn>>> {
        self.inner.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> Result<Parts<'_>> {
        self.inner.storage.check_free()?;
        let held = Held::mark(&*self.inner, "a buffer")?;
        // A thread that panicked left the parts in the state of its last complete step.
        Ok(Parts { parts: self.inner.parts.lock().unwrap_or_else(PoisonError::into_inner), _held: held })
    }
}

/// The parts of a buffer, locked.
struct Parts<'a> {
    parts: MutexGuard<'a, ReplayBuffer>,
    _held: Held,
}

impl Deref for Parts<'_> {
    type Target = ReplayBuffer;

    fn deref(&self) -> &ReplayBuffer {
        &self.parts
    }
}

impl DerefMut for Parts<'_> {
    fn deref_mut(&mut self) -> &mut ReplayBuffer {
        &mut self.parts
    }
}
