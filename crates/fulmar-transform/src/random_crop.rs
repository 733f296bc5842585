//! Random windows of sequences.

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::at_least_1;
use crate::time::flags;
use crate::transform::Transform;

/// Reads `subSeqLen` consecutive steps of every sequence of a batch, from a start drawn uniformly and
/// independently for each sequence.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{RandomCropTensorDict, Transform};
/// let mut batch = TensorDict::new(&[1, 4])?;
/// batch.set("id", Tensor::from_vec(&[1, 4], vec![0_i64, 1, 2, 3])?)?;
/// let ids = RandomCropTensorDict::new(2, 7)?.forward(batch)?.tensor("id")?.to_vec::<i64>()?;
/// assert_eq!(ids[1], ids[0] + 1);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomCropTensorDict {
    sub_seq_len: usize,
    #[serde(default = "last")]
    sample_dim: isize,
    #[serde(default)]
    mask_key: Option<Key>,
    #[serde(default)]
    seed: u64,
    #[serde(skip, default = "unseeded")]
    rng: Rng,
}

fn last() -> isize {
    -1
}

fn unseeded() -> Rng {
    Rng::new(0)
}

impl RandomCropTensorDict {
    /// Crops the last batch dimension. In JSON, `sampleDim` selects another, and `maskKey` bools that are
    /// true at the valid first steps of each sequence.
    ///
    /// # Errors
    /// `OutOfRange` if `sub_seq_len` is 0.
    pub fn new(sub_seq_len: usize, seed: u64) -> Result<Self> {
        Self { sub_seq_len, sample_dim: last(), mask_key: None, seed, rng: unseeded() }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        at_least_1("subSeqLen", self.sub_seq_len)?;
        let rng = Rng::new(self.seed).stream("random crop");
        Ok(Self { rng, ..self })
    }

    /// Returns for each sequence (all batch dimensions but `dim`) the number of valid steps.
    fn lengths(&self, dict: &TensorDict, dim: usize) -> Result<Vec<usize>> {
        let batch = dict.batch_size();
        let (len, inner) = (batch[dim], batch[dim + 1..].iter().product::<usize>());
        let outer: usize = batch[..dim].iter().product();
        let Some(key) = &self.mask_key else { return Ok(vec![len; outer * inner]) };
        let mask = flags(dict, key)?;
        let count = |sequence: usize| {
            let first = sequence / inner * len * inner + sequence % inner;
            (0..len).filter(|step| mask[first + step * inner]).count()
        };
        Ok((0..outer * inner).map(count).collect())
    }
}

impl Transform for RandomCropTensorDict {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let mut shape = dict.batch_size().to_vec();
        let rank = shape.len() as isize;
        let dim = if self.sample_dim < 0 { self.sample_dim + rank } else { self.sample_dim };
        if dim < 0 || dim >= rank {
            let detail =
                format!("sampleDim must be a dimension of the batch size {shape:?}: got {}", self.sample_dim);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let dim = dim as usize;
        let lengths = self.lengths(&dict, dim)?;
        if let Some(short) = lengths.iter().find(|length| **length < self.sub_seq_len) {
            let detail = format!(
                "subSeqLen must be at most {short}, the steps of a sequence: got {}",
                self.sub_seq_len
            );
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let spare = |length: &usize| (length - self.sub_seq_len + 1) as u64;
        let starts = lengths.iter().map(|length| self.rng.below(spare(length)));
        let starts = starts.collect::<Result<Vec<u64>>>()?;
        shape[dim] = self.sub_seq_len;
        let (steps, inner) = (self.sub_seq_len, shape[dim + 1..].iter().product::<usize>());
        let positions = (0..starts.len() * steps).map(|at| {
            let (step, sequence) = (at / inner % steps, at / (inner * steps) * inner + at % inner);
            (starts[sequence] + step as u64) as i64
        });
        dict.gather(dim as isize, &Tensor::from_vec::<i64>(&shape, positions.collect())?)
    }

    fn state(&self) -> Result<TensorDict> {
        let words = self.rng.state().words().map(|word| word as i64);
        let mut state = TensorDict::new(&[])?;
        state.set("rng", Tensor::from_slice(&[3], &words)?)?;
        Ok(state)
    }

    fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        let words: Vec<u64> =
            state.tensor("rng")?.to_vec::<i64>()?.into_iter().map(|word| word as u64).collect();
        self.rng = Rng::from_state(RngState::from_words(&words)?);
        Ok(())
    }
}
