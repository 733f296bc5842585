//! The parts of an ensemble: a storage, a sampler and a writer for each buffer.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};

use super::{EnsembleOptions, ReplayBufferEnsemble};
use crate::storage::Storage;
use crate::{ReplayBufferOptions, SamplerOptions, SharedReplayBuffer, SharedStorage, WriterOptions};

/// The storages of an ensemble's buffers by index.
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
    /// Returns an ensemble of `storages`.
    ///
    /// # Errors
    /// `Empty` without storages.
    pub fn new(storages: Vec<SharedStorage>) -> Result<Self> {
        if storages.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "an ensemble must have at least one storage: got 0"));
        }
        Ok(Self { storages })
    }

    /// Returns the storages.
    #[must_use]
    pub fn storages(&self) -> &[SharedStorage] {
        &self.storages
    }

    /// Returns the items in rows of storages: for each part the index of its storage, and the items.
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

/// The samplers of an ensemble's buffers, and the choice of buffers.
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
    /// The weight of each buffer; absent for equal weights.
    pub p: Option<Vec<f64>>,
    /// If true, each buffer gives a part of every batch, in order. Defaults to false.
    pub sample_from_all: bool,
    /// Number of buffers in a batch. Defaults to all.
    pub num_buffer_sampled: Option<usize>,
}

/// The writers of an ensemble's buffers. It writes nothing itself: items go to one of the buffers, directly
/// or by routing.
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
    /// Returns an ensemble of buffers with these parts. Buffer `i` has the seed `options.seed + i`.
    ///
    /// # Errors
    /// `ShapeMismatch` unless there is a sampler and a writer for each storage; `Incompatible` if both
    /// samplers and options set the choice of buffers; the errors of [`SharedReplayBuffer::over`] and
    /// [`ReplayBufferEnsemble::new`].
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
            let detail =
                "the choice of buffers must be set by the samplers of an ensemble, not by its options";
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
