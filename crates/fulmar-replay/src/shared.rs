//! A buffer that many threads write to and draw from.
//!
//! ```text
//! write    lock(parts) { plan -> lock(storage, to write) { copy } -> commit -> tell sampler and unit }
//! sample   lock(parts) { draw rows } -> lock(storage, to read) { copy } -> lock(parts) { say what is known of them }
//! ```
//!
//! Locks are always taken in this order, and the long part of a draw, the copy, holds only a lock that readers share: draws
//! wait for each other only while rows are chosen. A row is copied whole or not at all, so none is torn; one that is written
//! again between choice and copy is read as it is then.
//!
//! Parts that a program in another language keeps are called under these locks. A call of theirs that comes back to the buffer, or to
//! another one over the same storage, is refused with `Forbidden`.

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

/// How often a draw begins anew because the buffer was emptied in its middle, before it holds the others up.
const REDRAWS_MAX: usize = 16;

/// A handle to a [`ReplayBuffer`]; clones of it are handles to the same.
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
    /// Batches that were drawn and not asked for yet. Locked behind `parts`, before `storage`.
    ahead: Mutex<VecDeque<Arc<Drawn>>>,
}

/// Leads to a [`SharedReplayBuffer`] while a handle to it is open, and keeps none open.
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
    /// A handle to the buffer; none if all were dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<SharedReplayBuffer> {
        Some(SharedReplayBuffer { inner: self.0.upgrade()? })
    }
}

impl SharedReplayBuffer {
    /// The first handle to a buffer over `storage`.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::new`].
    pub fn new(storage: Box<dyn Storage>, options: ReplayBufferOptions) -> Result<Self> {
        Self::over(SharedStorage::new(storage), options)
    }

    /// The first handle to a buffer over a storage that others may write to as well.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::new`].
    pub fn over(storage: SharedStorage, options: ReplayBufferOptions) -> Result<Self> {
        check_prefetch(&options)?;
        let buffer = ReplayBuffer::new(Box::new(storage.clone()), options)?;
        Ok(Self::around(buffer, storage))
    }

    /// The first handle to a buffer that draws by `sampler` and writes by `writer`, whatever `options` say of those that are given.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::new`].
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

    /// What finds the buffer again and does not keep it.
    #[must_use]
    pub fn downgrade(&self) -> WeakReplayBuffer {
        WeakReplayBuffer(Arc::downgrade(&self.inner))
    }

    /// Whether both are handles to one buffer.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Where the items lie.
    #[must_use]
    pub fn storage(&self) -> &SharedStorage {
        &self.inner.storage
    }

    /// Writes items, as [`ReplayBuffer::extend`].
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::extend`].
    pub fn extend(&self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.parts()?.extend(items)
    }

    /// Draws a batch, as [`ReplayBuffer::sample`]. Threads that draw copy their rows beside each other.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::sample`].
    pub fn sample(&self, count: Option<usize>) -> Result<Batch> {
        for _ in 0..REDRAWS_MAX {
            let sampled = self.parts()?.draw(count)?;
            match self.inner.storage.get(&sampled.rows).and_then(|items| self.parts()?.finish(items, sampled))
            {
                // Emptied after the choice; the next draw finds what there is now.
                Err(error) if error.kind() == ErrorKind::OutOfRange => {}
                drawn => return drawn,
            }
        }
        // Nobody empties it while the parts are held.
        self.parts()?.sample(count)
    }

    /// The next batch of the batch size of the options: the oldest of those drawn ahead, or one that is drawn now. Then as many are
    /// drawn ahead as the options say, none of them behind the end of an epoch; what cannot be drawn is left for the next call to refuse.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::sample`] if none was drawn ahead.
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

    /// Copies the batches that are drawn ahead. Work for a thread that has nothing else to do.
    pub fn copy_ahead(&self) {
        if Held::mark(&*self.inner, "a buffer").is_err() {
            return;
        }
        let ahead: Vec<_> = self.ahead().iter().cloned().collect();
        for drawn in ahead {
            // Who asks for the batch hears of an error.
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

    /// What a state keeps of the batches that were drawn ahead.
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
    /// Those of [`ReplayBuffer::update_priority`].
    pub fn update_priority(&self, rows: &[i64], priorities: &[f32]) -> Result<()> {
        self.parts()?.update_priority(rows, priorities)
    }

    /// Empties the buffer, and drops what was drawn ahead; what was written stays counted if `keeps_count`.
    ///
    /// # Errors
    /// `Forbidden` in a part of the buffer that it is calling.
    pub fn clear(&self, keeps_count: bool) -> Result<()> {
        let mut parts = self.parts()?;
        parts.clear(keeps_count);
        self.ahead().clear();
        Ok(())
    }

    /// Returns the number of rows that can be drawn.
    ///
    /// # Errors
    /// `Forbidden` in a part of the buffer that it is calling.
    pub fn len(&self) -> Result<usize> {
        Ok(self.parts()?.len())
    }

    /// Returns whether no row can be drawn.
    ///
    /// # Errors
    /// `Forbidden` in a part of the buffer that it is calling.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Figures.
    ///
    /// # Errors
    /// `Forbidden` in a part of the buffer that it is calling.
    pub fn stats(&self) -> Result<ReplayBufferStats> {
        let parts = self.parts()?;
        Ok(ReplayBufferStats { prefetch_queue_size: self.ahead().len(), ..parts.stats() })
    }

    /// All that must be kept to go on as if never stopped. Holds all others up.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::state`].
    pub fn state(&self) -> Result<ReplayBufferState> {
        let parts = self.parts()?;
        Ok(ReplayBufferState { ahead: self.ahead_dicts(&parts)?, ..parts.state()? })
    }

    /// Goes on where `state` was taken, with the batches that were drawn ahead then.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::restore`]; `Corrupt` if a batch that was drawn ahead is none of such a buffer.
    pub fn restore(&self, state: &ReplayBufferState) -> Result<()> {
        let ahead = self.ahead_of(&state.ahead)?;
        let mut parts = self.parts()?;
        parts.restore_rest(state)?;
        *self.ahead() = ahead;
        Ok(())
    }

    /// Writes a folder, as [`ReplayBuffer::dumps`], with the batches that are drawn ahead.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::dumps`].
    pub fn dumps(&self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        let parts = self.parts()?;
        parts.dumps_with(path.as_ref(), checkpointer, &self.ahead_dicts(&parts)?)
    }

    /// Goes on where a folder was written, as [`ReplayBuffer::loads`], with the batches that were drawn ahead then.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::loads`] and [`SharedReplayBuffer::restore`].
    pub fn loads(&self, path: impl AsRef<Path>, checkpointer: &dyn StorageCheckpointer) -> Result<()> {
        let path = path.as_ref();
        let ahead = self.ahead_of(&load_ahead(path)?).map_err(|error| error.at(path.display()))?;
        let mut parts = self.parts()?;
        parts.loads(path, checkpointer)?;
        *self.ahead() = ahead;
        Ok(())
    }

    /// Does `to` to the buffer while no other thread uses it.
    ///
    /// # Errors
    /// `Forbidden` in a part of the buffer that it is calling; those of `to`.
    pub fn with<T>(&self, to: impl FnOnce(&mut ReplayBuffer) -> Result<T>) -> Result<T> {
        to(&mut *self.parts()?)
    }

    fn ahead(&self) -> MutexGuard<'_, VecDeque<Arc<Drawn>>> {
        self.inner.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> Result<Parts<'_>> {
        self.inner.storage.check_free()?;
        let held = Held::mark(&*self.inner, "a buffer")?;
        // A thread that panicked left the parts as its last whole step did.
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
