//! Prefetched batches.
//!
//! ```text
//! next    lock(parts) { the oldest of the queue, or a draw; then draws until the queue is full or an epoch ends }
//! copy    lock(storage, to read) { copy }, by whichever comes first: the worker, the request for the
//! batch, or a write over its rows
//! ```
//!
//! Rows are drawn in the order of requests, whichever thread copies them, and have the content they had when
//! they were drawn. So batches depend on neither threads nor time.

use std::sync::Arc;

use fulmar_core::limits::REPLAY_PREFETCH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Tensor, TensorDict};

use crate::read::count_of;
use crate::sampler::Sampled;
use crate::storage::shared::PendingRows;
use crate::{Batch, ReplayBufferOptions, SharedReplayBuffer};

/// A batch with drawn rows.
#[derive(Debug)]
pub struct Drawn {
    pub sampled: Sampled,
    pub items: Arc<PendingRows>,
    pub is_last: bool,
}

/// A drawn batch that may still have to be copied. It has the content its rows had when they were drawn.
///
/// # Examples
/// ```
/// use fulmar_replay::{ReplayBufferOptions, SharedReplayBuffer, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let options = ReplayBufferOptions { batch_size: Some(4), prefetch: 2, ..Default::default() };
/// let buffer = SharedReplayBuffer::new(Box::new(TensorStorage::new(&[1])?), options)?;
/// let items = |id: i64| {
///     let mut items = TensorDict::new(&[1])?;
///     items.set("id", Tensor::from_vec(&[1], vec![id])?)?;
///     Ok::<_, fulmar_core::Error>(items)
/// };
/// buffer.extend(&items(7)?)?;
/// let first = buffer.next_batch()?;
/// buffer.extend(&items(8)?)?;
/// assert_eq!(first.batch()?.items.tensor("id")?.to_vec::<i64>()?, [7; 4]);
/// assert_eq!(buffer.stats()?.prefetch_queue_size, 2);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PendingBatch {
    buffer: SharedReplayBuffer,
    drawn: Arc<Drawn>,
}

impl PendingBatch {
    pub(crate) const fn new(buffer: SharedReplayBuffer, drawn: Arc<Drawn>) -> Self {
        Self { buffer, drawn }
    }

    /// Returns whether an epoch ended with this batch.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.drawn.is_last
    }

    /// Returns whether the batch is copied.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.drawn.items.is_copied()
    }

    /// Returns the batch; copies it now if necessary.
    ///
    /// # Errors
    /// If its rows do not form one batch.
    pub fn batch(&self) -> Result<Batch> {
        self.buffer.batch_of_drawn(&self.drawn)
    }
}

impl Drawn {
    /// Converts the batch for a checkpoint, with a flag for the last of an epoch.
    ///
    /// # Errors
    /// The errors of [`TensorDict::set`].
    pub fn to_dict(&self, batch: Batch) -> Result<TensorDict> {
        let count = batch.rows.len();
        let mut dict = TensorDict::new(&[count])?;
        let rows = batch.rows.into_iter().map(|row| row as i64).collect();
        dict.set("rows", Tensor::from_vec(&[count], rows)?)?;
        dict.set("is_last", Tensor::from_vec(&[count], vec![self.is_last; count])?)?;
        dict.set("items", batch.items)?;
        dict.set("info", batch.info)?;
        Ok(dict)
    }

    /// Restores a batch from [`Drawn::to_dict`] for a buffer of `capacity` rows.
    ///
    /// # Errors
    /// `UnknownName` or `Corrupt` if `dict` is not such a batch.
    pub fn from_dict(dict: &TensorDict, capacity: usize) -> Result<Self> {
        let corrupt = |detail: &str| Error::new(ErrorKind::Corrupt, format!("a batch drawn ahead {detail}"));
        let part = |name: &str| match dict.get(name) {
            Some(Entry::Dict(part)) => Ok(part.clone()),
            _ => Err(corrupt(&format!("must have {name}"))),
        };
        let rows = dict.tensor("rows")?.to_vec::<i64>()?.into_iter();
        let rows: Vec<usize> = rows.filter_map(|row| usize::try_from(row).ok()).collect();
        let is_last = dict.tensor("is_last")?.to_vec::<bool>()?.first() == Some(&true);
        let (items, info) = (part("items")?, part("info")?);
        let is_whole = !rows.is_empty() && rows.iter().all(|row| *row < capacity);
        if !is_whole || [&items, &info].iter().any(|part| count_of(part) != rows.len()) {
            return Err(corrupt("must have one item for each row, with rows of this buffer"));
        }
        let sampled = Sampled { rows, info, slice_lens: Vec::new() };
        Ok(Self { items: Arc::new(PendingRows::copied(items)), sampled, is_last })
    }
}

/// Refuses invalid prefetch options.
///
/// # Errors
/// `LimitExceeded` for too many batches; `OutOfRange` for batches without a size.
pub fn check_prefetch(options: &ReplayBufferOptions) -> Result<()> {
    if options.prefetch > REPLAY_PREFETCH_MAX {
        let detail = format!("prefetch must be <= {REPLAY_PREFETCH_MAX}: got {}", options.prefetch);
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    if options.prefetch > 0 && options.batch_size.is_none() {
        let detail = "a batch size must be given to draw ahead";
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    Ok(())
}
