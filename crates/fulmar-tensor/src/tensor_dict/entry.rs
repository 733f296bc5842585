//! The entries of a tensor dictionary.

use fulmar_core::{Error, ErrorKind, Result};

use super::TensorDict;
use crate::key::Key;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

/// A value of a [`TensorDict`].
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A tensor whose shape begins with the batch size.
    Tensor(Tensor),
    /// One row for each element of a batch with one dimension; any rows in a batch without dimensions.
    Ragged(Ragged),
    /// Texts and other JSON values.
    NonTensor(NonTensor),
    /// A nested dictionary, whose batch size begins with that of its parent.
    Dict(TensorDict),
}

impl Entry {
    /// Returns `"tensor"`, `"ragged"`, `"nonTensorData"` (one value), `"nonTensorStack"` (one for each
    /// element) or `"dict"`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "tensor",
            Self::Ragged(_) => "ragged",
            Self::NonTensor(values) if values.shape().is_none() => "nonTensorData",
            Self::NonTensor(_) => "nonTensorStack",
            Self::Dict(_) => "dict",
        }
    }

    /// Returns the number of names that lead to the deepest entry: 1 for a leaf.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Dict(dict) => 1 + dict.entries.values().map(Self::depth).max().unwrap_or(0),
            _ => 1,
        }
    }

    /// Converts this entry to an entry of a batch of `batch_size`.
    pub(super) fn fitted(self, batch_size: &[usize]) -> Result<Self> {
        match self {
            Self::Dict(dict) if !dict.batch_size.starts_with(batch_size) => {
                dict.rebatched(batch_size).map(Self::Dict)
            }
            Self::Dict(mut dict) => {
                // The copy inside another dictionary is not locked: a locked parent refuses entries.
                dict.unlock();
                Ok(Self::Dict(dict))
            }
            Self::Tensor(tensor) => {
                check_begins(tensor.shape(), batch_size)?;
                Ok(Self::Tensor(tensor))
            }
            Self::Ragged(ragged) => {
                check_begins(&[ragged.num_rows()], batch_size)?;
                Ok(Self::Ragged(ragged))
            }
            Self::NonTensor(values) => match values.shape() {
                Some(shape) if shape != batch_size => Err(mismatch(shape, "be", batch_size)),
                _ => Ok(Self::NonTensor(values)),
            },
        }
    }

    pub(super) fn is_not(&self, wanted: &str, key: &Key) -> Error {
        Error::new(
            ErrorKind::Incompatible,
            format!("{key} must be {wanted}: got an entry of kind {}", self.kind()),
        )
    }
}

impl TensorDict {
    /// Returns the same entry with another batch size.
    pub(super) fn rebatched(self, batch_size: &[usize]) -> Result<Self> {
        let mut dict = Self::new(batch_size)?;
        for (name, entry) in self.entries {
            let fitted = entry.fitted(batch_size).map_err(|error| error.at(format!("{name:?}")))?;
            dict.entries.insert(name, fitted);
        }
        Ok(dict)
    }
}

fn check_begins(shape: &[usize], batch_size: &[usize]) -> Result<()> {
    if shape.starts_with(batch_size) { Ok(()) } else { Err(mismatch(shape, "begin with", batch_size)) }
}

fn mismatch(shape: &[usize], verb: &str, batch_size: &[usize]) -> Error {
    let detail = format!("shape must {verb} the batch size {batch_size:?}: got {shape:?}");
    Error::new(ErrorKind::ShapeMismatch, detail)
}

impl From<Tensor> for Entry {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<Ragged> for Entry {
    fn from(ragged: Ragged) -> Self {
        Self::Ragged(ragged)
    }
}

impl From<NonTensor> for Entry {
    fn from(values: NonTensor) -> Self {
        Self::NonTensor(values)
    }
}

impl From<TensorDict> for Entry {
    fn from(dict: TensorDict) -> Self {
        Self::Dict(dict)
    }
}
