//! Several buffers drawn from as one, and mixtures of offline and online data.

use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Index, Key, TensorDict};
use serde::{Deserialize, Serialize};

use crate::read::{count_of, integers};
use crate::{Batch, ReplayBuffer, SharedReplayBuffer};

mod checkpoint;
pub(crate) mod members;

/// The rule that selects an item's buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Routing {
    /// The index of the buffer is at a key.
    Key(Key),
    /// A batch dimension, from the end if negative, with one part for each buffer.
    Dim(isize),
}

/// Options of an ensemble; checked by [`ReplayBufferEnsemble::new`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EnsembleOptions {
    /// The seed of the choice of buffers. Defaults to 0.
    pub seed: u64,
    /// The default batch size. Absent by default.
    pub batch_size: Option<usize>,
    /// The weight of each buffer; absent for equal weights.
    pub p: Option<Vec<f64>>,
    /// If true, each buffer gives a part of every batch, in order. Defaults to false.
    pub sample_from_all: bool,
    /// Number of buffers in a batch. Defaults to all.
    pub num_buffer_sampled: Option<usize>,
    /// The routing of written items; without it the ensemble is read-only.
    pub routing: Option<Routing>,
}

/// A batch of several buffers.
#[derive(Debug, Clone, PartialEq)]
pub struct EnsembleBatch {
    /// The items, `[buffers drawn, rows of each]`.
    pub items: TensorDict,
    /// The buffer of each part. Shape `[buffers drawn]`.
    pub buffer_ids: Vec<usize>,
    /// The parts.
    pub parts: Vec<Batch>,
}

/// Draws from several buffers, each with its own sampler.
///
/// # Examples
/// ```
/// use fulmar_replay::{EnsembleOptions, ListStorage, ReplayBufferEnsemble, SharedReplayBuffer};
/// use fulmar_tensor::TensorDict;
/// let mut buffers = Vec::new();
/// for _ in 0..2 {
///     let buffer = SharedReplayBuffer::new(Box::new(ListStorage::new(4)?), Default::default())?;
///     buffer.extend(&TensorDict::new(&[3])?)?;
///     buffers.push(buffer);
/// }
/// let options = EnsembleOptions { sample_from_all: true, ..Default::default() };
/// let batch = ReplayBufferEnsemble::new(buffers, options)?.sample(Some(6))?;
/// assert_eq!((batch.items.batch_size(), batch.buffer_ids), (&[2, 3][..], vec![0, 1]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReplayBufferEnsemble {
    buffers: Vec<SharedReplayBuffer>,
    options: EnsembleOptions,
    /// The cumulative probability up to and including each buffer.
    through: Vec<f64>,
    rng: Rng,
}

impl ReplayBufferEnsemble {
    /// Returns an ensemble of `buffers`.
    ///
    /// # Errors
    /// `Empty` without buffers; `ShapeMismatch` unless there is one probability for each buffer; `OutOfRange`
    /// unless they are numbers >= 0 with at least one above 0, or if zero buffers are to be drawn;
    /// `Incompatible` if probabilities are given and all buffers are drawn.
    pub fn new(buffers: Vec<SharedReplayBuffer>, options: EnsembleOptions) -> Result<Self> {
        let count = buffers.len();
        if count == 0 {
            return Err(Error::new(ErrorKind::Empty, "an ensemble must have at least one buffer: got 0"));
        }
        if options.p.is_some() && options.sample_from_all {
            let detail = "p must be absent if sample_from_all is true";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let drawn = options.num_buffer_sampled.unwrap_or(count);
        if drawn == 0 || (options.sample_from_all && drawn != count) {
            let detail =
                format!("num_buffer_sampled must be >= 1, and {count} where all are drawn: got {drawn}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let p = options.p.clone().unwrap_or_else(|| vec![1.0; count]);
        if p.len() != count {
            let detail = format!("p must have one item a buffer, {count}: got {}", p.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let total: f64 = p.iter().sum();
        if p.iter().any(|p| !p.is_finite() || *p < 0.0) || total <= 0.0 {
            let detail = format!("p must be finite numbers >= 0, and one of them above: got {p:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let sum = |through: &mut f64, p: &f64| {
            *through += p / total;
            Some(*through)
        };
        let through = p.iter().scan(0.0, sum).collect();
        let rng = Rng::new(options.seed).stream("replay buffer ensemble");
        Ok(Self { buffers, options, through, rng })
    }

    /// Returns the buffers.
    #[must_use]
    pub fn buffers(&self) -> &[SharedReplayBuffer] {
        &self.buffers
    }

    /// Draws a batch of `count` rows, in equal parts.
    ///
    /// # Errors
    /// `OutOfRange` if no size is given or it is not divisible by the drawn buffers; the errors of
    /// [`ReplayBuffer::sample`]; an error if the parts do not form one batch.
    pub fn sample(&mut self, count: Option<usize>) -> Result<EnsembleBatch> {
        let Some(count) = count.or(self.options.batch_size) else {
            let detail = "batch_size must be given, here or to the ensemble";
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        let drawn = self.options.num_buffer_sampled.unwrap_or(self.buffers.len());
        if !count.is_multiple_of(drawn) {
            let detail = format!("batch_size must be divisible by {drawn}, the buffers drawn: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let buffer_ids: Vec<usize> = if self.options.sample_from_all {
            (0..drawn).collect()
        } else {
            (0..drawn).map(|_| self.draw_buffer()).collect()
        };
        let draw = |id: &usize| self.buffers[*id].sample(Some(count / drawn));
        let parts = buffer_ids.iter().map(draw).collect::<Result<Vec<_>>>()?;
        let items: Vec<TensorDict> = parts.iter().map(|part| part.items.clone()).collect();
        Ok(EnsembleBatch { items: TensorDict::stack(&items, 0)?, buffer_ids, parts })
    }

    /// Returns the items at `index` of every buffer, stacked.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::at`]; an error if the parts do not form one batch.
    pub fn at(&self, index: &[Index]) -> Result<TensorDict> {
        let parts = self
            .buffers
            .iter()
            .map(|buffer| buffer.with(|buffer| buffer.at(index)))
            .collect::<Result<Vec<_>>>()?;
        TensorDict::stack(&parts, 0)
    }

    /// Writes each of `items` to the buffer selected by routing; returns that buffer and the row there.
    ///
    /// # Errors
    /// `Incompatible` if the ensemble has no routing; `OutOfRange` if an item names no buffer;
    /// `ShapeMismatch` if the routing dimension has another length; the errors of [`ReplayBuffer::extend`].
    /// Buffers before the one that fails keep their items.
    pub fn extend(&mut self, items: &TensorDict) -> Result<Vec<(usize, Option<usize>)>> {
        let (ids, items) = self.routed(items)?;
        let mut taken = vec![(0, None); ids.len()];
        for id in 0..self.buffers.len() {
            let places: Vec<usize> = (0..ids.len()).filter(|at| ids[*at] == id).collect();
            if places.is_empty() {
                continue;
            }
            let rows = self.buffers[id].extend(&items.index_select(&places)?)?;
            places.iter().zip(rows).for_each(|(at, row)| taken[*at] = (id, row));
        }
        Ok(taken)
    }

    /// Writes one item without a batch dimension to the buffer of its key.
    ///
    /// # Errors
    /// The errors of [`ReplayBufferEnsemble::extend`]; `Incompatible` if a dimension routes or the item has
    /// one.
    pub fn add(&mut self, item: &TensorDict) -> Result<(usize, Option<usize>)> {
        if matches!(self.options.routing, Some(Routing::Dim(_))) || !item.batch_size().is_empty() {
            let detail = format!(
                "an item must have no batch dimension, and be routed by a key: got {:?}",
                item.batch_size()
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(self.extend(&item.unsqueeze(0)?)?.first().copied().unwrap_or((0, None)))
    }

    /// Returns the buffer of each item, and the items as one batch dimension.
    fn routed(&self, items: &TensorDict) -> Result<(Vec<usize>, TensorDict)> {
        let count = self.buffers.len();
        match &self.options.routing {
            None => {
                let detail = "an ensemble must have routing before rows can be written to it";
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
            Some(Routing::Key(key)) => {
                let rank = items.batch_size().len();
                let items = if rank > 1 { items.flatten(0, rank as isize - 1)? } else { items.clone() };
                if count_of(&items) == 0 {
                    return Err(Error::new(ErrorKind::Empty, "a write must hold at least one item: got 0"));
                }
                let dtype = items.tensor(key.clone())?.dtype();
                if matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::Bool) {
                    let detail = format!(
                        "{key}: dtype must be one of integers to name a buffer: got {}",
                        dtype.name()
                    );
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
                let id = |id: i64| {
                    usize::try_from(id).ok().filter(|id| *id < count).ok_or_else(|| {
                        Error::new(
                            ErrorKind::OutOfRange,
                            format!("{key}: buffer must be in 0..{count}: got {id}"),
                        )
                    })
                };
                let ids = integers(&items, key)?.into_iter().map(id).collect::<Result<Vec<_>>>()?;
                Ok((ids, items))
            }
            Some(Routing::Dim(dim)) => {
                let batch_size = items.batch_size();
                let place = if *dim < 0 { dim.checked_add_unsigned(batch_size.len()) } else { Some(*dim) };
                let len = place.and_then(|dim| usize::try_from(dim).ok()).and_then(|dim| batch_size.get(dim));
                if len != Some(&count) {
                    let detail = format!(
                        "dimension {dim} must be as long as there are buffers, {count}: got {batch_size:?}"
                    );
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                let behind = place.map_or(0, |dim| dim.unsigned_abs() + 1);
                let stride: usize = batch_size[behind..].iter().product();
                let total: usize = batch_size.iter().product();
                let ids = (0..total).map(|at| at / stride.max(1) % count).collect();
                let rank = batch_size.len();
                let flat = if rank > 1 { items.flatten(0, rank as isize - 1)? } else { items.clone() };
                Ok((ids, flat))
            }
        }
    }

    fn draw_buffer(&mut self) -> usize {
        let uniform = self.rng.uniform_f64();
        let drawn = self.through.partition_point(|through| *through <= uniform);
        // Rounding may leave the last sum below 1; a buffer of weight 0 is never drawn.
        let last =
            (0..self.through.len()).rev().find(|id| *id == 0 || self.through[*id] > self.through[*id - 1]);
        drawn.min(last.unwrap_or(0))
    }
}

/// Batches with a fixed fraction of offline data.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, OfflineToOnline, SharedReplayBuffer};
/// use fulmar_tensor::TensorDict;
/// let buffer = || SharedReplayBuffer::new(Box::new(ListStorage::new(4)?), Default::default());
/// let (offline, online) = (buffer()?, buffer()?);
/// offline.extend(&TensorDict::new(&[4])?)?;
/// let mut both = OfflineToOnline::new(offline, online.clone(), 0.25)?;
/// assert_eq!(both.sample(8)?.1, 8);
/// online.extend(&TensorDict::new(&[1])?)?;
/// assert_eq!(both.sample(8)?.1, 2);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OfflineToOnline {
    offline: SharedReplayBuffer,
    online: SharedReplayBuffer,
    initial: f64,
    fraction: f64,
}

impl OfflineToOnline {
    /// Returns a mixture with `offline_fraction`, between 0 and 1, of offline data.
    ///
    /// # Errors
    /// `OutOfRange` if the fraction is not between 0 and 1.
    pub fn new(
        offline: SharedReplayBuffer,
        online: SharedReplayBuffer,
        offline_fraction: f64,
    ) -> Result<Self> {
        if !(offline_fraction > 0.0 && offline_fraction < 1.0) {
            let detail = format!("offline_fraction must be between 0 and 1: got {offline_fraction}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self { offline, online, initial: offline_fraction, fraction: offline_fraction })
    }

    /// Returns the offline data.
    #[must_use]
    pub const fn offline(&self) -> &SharedReplayBuffer {
        &self.offline
    }

    /// Returns the online data.
    #[must_use]
    pub const fn online(&self) -> &SharedReplayBuffer {
        &self.online
    }

    /// Returns the fraction of offline data in a batch.
    #[must_use]
    pub const fn offline_fraction(&self) -> f64 {
        self.fraction
    }

    /// Reduces the offline fraction linearly to 0 at step `total` and later.
    ///
    /// # Errors
    /// `OutOfRange` if `total` is 0.
    pub fn anneal(&mut self, step: u64, total: u64) -> Result<()> {
        if total == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "total must be >= 1: got 0"));
        }
        self.fraction = self.initial * (1.0 - step as f64 / total as f64).max(0.0);
        Ok(())
    }

    /// Returns a batch of `count` items and the number of offline items, which come first: the nearest whole
    /// number to the fraction, or all while there are no online items.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::sample`]; an error if the two parts do not form one batch.
    pub fn sample(&mut self, count: usize) -> Result<(TensorDict, usize)> {
        let part = (self.fraction * count as f64).round() as usize;
        let num_offline = if self.online.is_empty()? { count } else { part.min(count) };
        let mut parts = Vec::with_capacity(2);
        if num_offline > 0 {
            parts.push(self.offline.sample(Some(num_offline))?.items);
        }
        if num_offline < count {
            parts.push(self.online.sample(Some(count - num_offline))?.items);
        }
        Ok((TensorDict::cat(&parts, 0)?, num_offline))
    }
}

impl ReplayBuffer {
    /// Writes the first `count` items of `source`, or all, each once and in order, `chunk_size` at a time.
    ///
    /// # Errors
    /// `OutOfRange` if `source` has fewer or `chunk_size` is 0; the errors of [`ReplayBuffer::extend`].
    pub fn prefill(&mut self, source: &Self, count: Option<usize>, chunk_size: usize) -> Result<()> {
        let len = source.storage().len();
        let count = count.unwrap_or(len);
        if count > len || chunk_size == 0 {
            let detail = format!("count must be <= {len} and chunk_size >= 1: got {count} and {chunk_size}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        for start in (0..count).step_by(chunk_size) {
            let rows: Vec<usize> = (start..count.min(start + chunk_size)).collect();
            self.extend(&source.storage().get(&rows)?)?;
        }
        Ok(())
    }
}
