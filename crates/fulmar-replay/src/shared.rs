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

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_core::{ErrorKind, Result};
use fulmar_tensor::TensorDict;

use crate::{
    Batch, ReplayBuffer, ReplayBufferOptions, ReplayBufferState, ReplayBufferStats, Sampler, SharedStorage,
    Storage,
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
    parts: Arc<Mutex<ReplayBuffer>>,
    storage: SharedStorage,
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
        let buffer = ReplayBuffer::new(Box::new(storage.clone()), options)?;
        Ok(Self { parts: Arc::new(Mutex::new(buffer)), storage })
    }

    /// The first handle to a buffer that draws by `sampler`, whatever `options` say of it.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::new`].
    pub fn with_sampler(
        storage: SharedStorage,
        sampler: Box<dyn Sampler>,
        options: ReplayBufferOptions,
    ) -> Result<Self> {
        let unit = options.unit.build(storage.shape())?;
        let writer = options.writer.build(storage.shape().first().copied().unwrap_or_default())?;
        let buffer = ReplayBuffer::of_parts(Box::new(storage.clone()), sampler, writer, unit, options)?;
        Ok(Self { parts: Arc::new(Mutex::new(buffer)), storage })
    }

    /// Writes items, as [`ReplayBuffer::extend`].
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::extend`].
    pub fn extend(&self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.parts().extend(items)
    }

    /// Draws a batch, as [`ReplayBuffer::sample`]. Threads that draw copy their rows beside each other.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::sample`].
    pub fn sample(&self, count: Option<usize>) -> Result<Batch> {
        for _ in 0..REDRAWS_MAX {
            let sampled = self.parts().draw(count)?;
            match self.storage.get(&sampled.rows).and_then(|items| self.parts().finish(items, sampled)) {
                // Emptied after the choice; the next draw finds what there is now.
                Err(error) if error.kind() == ErrorKind::OutOfRange => {}
                drawn => return drawn,
            }
        }
        // Nobody empties it while the parts are held.
        self.parts().sample(count)
    }

    /// Sets priorities, as [`ReplayBuffer::update_priority`].
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::update_priority`].
    pub fn update_priority(&self, rows: &[i64], priorities: &[f32]) -> Result<()> {
        self.parts().update_priority(rows, priorities)
    }

    /// Empties the buffer; what was written stays counted if `keeps_count`.
    pub fn clear(&self, keeps_count: bool) {
        self.parts().clear(keeps_count);
    }

    /// How many rows can be drawn.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts().len()
    }

    /// Whether no row can be drawn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures.
    #[must_use]
    pub fn stats(&self) -> ReplayBufferStats {
        self.parts().stats()
    }

    /// All that must be kept to go on as if never stopped. Holds all others up.
    ///
    /// # Errors
    /// Those of [`ReplayBuffer::state`].
    pub fn state(&self) -> Result<ReplayBufferState> {
        self.parts().state()
    }

    /// Does `to` to the buffer while nobody else does anything.
    pub fn with<T>(&self, to: impl FnOnce(&mut ReplayBuffer) -> T) -> T {
        to(&mut self.parts())
    }

    fn parts(&self) -> MutexGuard<'_, ReplayBuffer> {
        // A thread that panicked left the parts as its last whole step did.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
