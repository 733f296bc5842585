//! The parts of an ensemble: a storage, a sampler and a writer for each of its buffers.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};

use super::{EnsembleOptions, ReplayBufferEnsemble};
use crate::storage::Storage;
use crate::{ReplayBufferOptions, SamplerOptions, SharedReplayBuffer, SharedStorage, WriterOptions};

/// The storages of an ensemble's buffers, by their number.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, SharedStorage, Storage, StorageEnsemble};
/// use fulmar_tensor::TensorDict;
/// let mut one = SharedStorage::new(Box::new(ListStorage::new(4)?));
/// one.set(&[0, 1], &TensorDict::new(&[2])?)?;
/// let other = SharedStorage::new(Box::new(ListStorage::new(4)?));
/// let storages = StorageEnsemble::new(vec![other, one])?;
/// let read = storages.get(&[(1, &[1, 0, 1])])?;
/// assert_eq!((read[0].0, read[0].1.batch_size()), (1, &[3][..]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StorageEnsemble {
    storages: Vec<SharedStorage>,
}

impl StorageEnsemble {
    /// An ensemble of `storages`.
    ///
    /// # Errors
    /// `Empty` without storages.
    pub fn new(storages: Vec<SharedStorage>) -> Result<Self> {
        if storages.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "an ensemble must have a storage: got none"));
        }
        Ok(Self { storages })
    }

    /// The storages.
    #[must_use]
    pub fn storages(&self) -> &[SharedStorage] {
        &self.storages
    }

    /// The items in rows of storages: for each part the number of its storage, and the items there.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such storage, or a row of it holds no item.
    pub fn get(&self, parts: &[(usize, &[usize])]) -> Result<Vec<(usize, TensorDict)>> {
        let read = |(id, rows): &(usize, &[usize])| {
            let Some(storage) = self.storages.get(*id) else {
                let detail = format!("storage must be < {}: got {id}", self.storages.len());
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            };
            let items = storage.get(rows).map_err(|error| error.at(format!("storage {id}")))?;
            Ok((*id, items))
        };
        parts.iter().map(read).collect()
    }
}

/// The samplers of an ensemble's buffers, and which buffers a batch takes.
///
/// # Examples
/// ```
/// use fulmar_replay::{SamplerEnsemble, SamplerOptions};
/// let samplers = SamplerEnsemble { samplers: vec![SamplerOptions::Random; 2], ..Default::default() };
/// assert!(!samplers.sample_from_all && samplers.p.is_none());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SamplerEnsemble {
    /// The sampler of each buffer.
    pub samplers: Vec<SamplerOptions>,
    /// How likely each buffer is, up to a factor; absent where all are equally.
    pub p: Option<Vec<f64>>,
    /// Whether each buffer gives its part of every batch, in order. False.
    pub sample_from_all: bool,
    /// How many buffers a batch takes; as many as there are where absent.
    pub num_buffer_sampled: Option<usize>,
}

/// The writers of an ensemble's buffers. It writes nothing itself: items go to one of the buffers, by routing or through it.
///
/// # Examples
/// ```
/// use fulmar_replay::{WriterEnsemble, WriterOptions};
/// let writers = WriterEnsemble { writers: vec![WriterOptions::Immutable, WriterOptions::default()] };
/// assert_eq!(writers.writers.len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WriterEnsemble {
    /// The writer of each buffer.
    pub writers: Vec<WriterOptions>,
}

impl ReplayBufferEnsemble {
    /// An ensemble of the buffers that have these parts. Buffer `i` draws by the seed `options.seed + i`.
    ///
    /// # Errors
    /// `ShapeMismatch` unless there is a sampler and a writer for each storage; `Incompatible` if samplers and options both say which
    /// buffers are drawn; those of [`SharedReplayBuffer::over`] and [`ReplayBufferEnsemble::new`].
    pub fn of_parts(
        storages: &StorageEnsemble,
        samplers: SamplerEnsemble,
        writers: WriterEnsemble,
        options: EnsembleOptions,
    ) -> Result<Self> {
        let count = storages.storages.len();
        for (name, found) in [("samplers", samplers.samplers.len()), ("writers", writers.writers.len())] {
            if found != count {
                let detail = format!("{name} must be one a storage, {count}: got {found}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        }
        if options.p.is_some() || options.sample_from_all || options.num_buffer_sampled.is_some() {
            let detail = "which buffers are drawn must be said by the samplers of an ensemble alone: got it in its options";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let SamplerEnsemble { samplers, p, sample_from_all, num_buffer_sampled } = samplers;
        let parts = storages.storages.iter().zip(samplers).zip(writers.writers);
        let buffers = parts.zip(options.seed..).map(|(((storage, sampler), writer), seed)| {
            let options = ReplayBufferOptions { sampler, writer, seed, ..Default::default() };
            SharedReplayBuffer::over(storage.clone(), options)
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        Self::new(buffers, EnsembleOptions { p, sample_from_all, num_buffer_sampled, ..options })
    }
}
