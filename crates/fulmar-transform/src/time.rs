//! Steps along the last batch dimension, with the starts and ends of trajectories.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};

/// The steps of one batch: `sequences` in sequence, each of length `len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub sequences: usize,
    pub len: usize,
}

impl Steps {
    /// # Errors
    /// `ShapeMismatch` without a batch dimension.
    pub(crate) fn of(dict: &TensorDict) -> Result<Self> {
        let Some((len, others)) = dict.batch_size().split_last() else {
            let detail = "a dictionary must have a batch dimension, which is time: got batch size []";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        Ok(Self { sequences: others.iter().product(), len: *len })
    }

    pub(crate) fn total(&self) -> usize {
        self.sequences * self.len
    }

    /// Returns for each step the first of its trajectory, which begins after an end or with its sequence.
    pub(crate) fn firsts(&self, ends: &[bool]) -> Vec<usize> {
        let mut first = 0;
        let each = (0..self.total()).map(|at| {
            if at % self.len == 0 || ends[at - 1] {
                first = at;
            }
            first
        });
        each.collect()
    }

    /// Returns for each step the last of its trajectory, which is an end or the last of its sequence.
    pub(crate) fn lasts(&self, ends: &[bool]) -> Vec<usize> {
        let mut lasts = vec![0; self.total()];
        let mut last = 0;
        for at in (0..self.total()).rev() {
            if (at + 1) % self.len == 0 || ends[at] {
                last = at;
            }
            lasts[at] = last;
        }
        lasts
    }
}

/// Returns one bool for each batch element: the tensor at `key`, in the batch shape or with one more
/// dimension of length 1.
///
/// # Errors
/// `UnknownName` if there is no such tensor; `Incompatible` if it does not hold bools; `ShapeMismatch` for
/// another shape.
pub(crate) fn flags(dict: &TensorDict, key: &Key) -> Result<Vec<bool>> {
    let tensor = dict.tensor(key.clone())?;
    if tensor.dtype() != Dtype::Bool {
        let detail = format!("{key} must hold bools: got {}", tensor.dtype().name());
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let batch = dict.batch_size();
    if tensor.shape() != batch && tensor.shape() != [batch, &[1]].concat() {
        let detail =
            format!("{key} must hold one bool for each of {batch:?}: got shape {:?}", tensor.shape());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    tensor.to_vec()
}

/// Joins the rows released by two calls, consecutive in time.
pub(crate) fn joined(first: Option<TensorDict>, second: Option<TensorDict>) -> Result<Option<TensorDict>> {
    match (first, second) {
        (Some(first), Some(second)) => TensorDict::cat(&[first, second], -1).map(Some),
        (first, second) => Ok(first.or(second)),
    }
}

/// Returns the key `name` of the dictionary `next`.
pub(crate) fn next_key(key: &Key) -> Key {
    let mut path = vec!["next".to_owned()];
    path.extend_from_slice(key.path());
    Key::from(path)
}
