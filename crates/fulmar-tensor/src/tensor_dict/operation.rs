//! Operations on dictionaries as data, for callers that use JSON.

use fulmar_core::{Device, Dtype, Result};
use serde::Deserialize;

use super::TensorDict;
use crate::index::Index;
use crate::key::Key;
use crate::tensor::Tensor;

/// An operation from one dictionary to another; each runs the method of its name.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Operation, TensorDict};
/// let batch = TensorDict::new(&[4, 3])?;
/// let json = r#"{ "op": "at", "index": ["...", [2, 0]] }"#;
/// let operation: Operation = fulmar_core::options_from_json("operation", json)?;
/// assert_eq!(batch.operate(&operation)?.batch_size(), [4, 2]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", deny_unknown_fields)]
pub enum Operation {
    /// [`TensorDict::at`].
    At {
        /// One item for each dimension, see [`Index`].
        index: Vec<Index>,
    },
    /// [`TensorDict::gather`].
    Gather {
        /// The dimension to gather along.
        dim: isize,
        /// The shape of the index.
        shape: Vec<usize>,
        /// The positions, row-major.
        at: Vec<i64>,
    },
    /// [`TensorDict::masked_fill`].
    MaskedFill {
        /// The elements to fill, row-major over the batch.
        mask: Vec<bool>,
        /// The value to write.
        value: f64,
    },
    /// [`TensorDict::reshape`].
    Reshape {
        /// The new batch size; one -1 is inferred.
        sizes: Vec<isize>,
    },
    /// [`TensorDict::view`].
    View {
        /// The new batch size; one -1 is inferred.
        sizes: Vec<isize>,
    },
    /// [`TensorDict::flatten`].
    Flatten {
        /// The first dimension to merge.
        first: isize,
        /// The last dimension to merge.
        last: isize,
    },
    /// [`TensorDict::unflatten`].
    Unflatten {
        /// The dimension to split.
        dim: isize,
        /// The lengths that replace it; one -1 is inferred.
        sizes: Vec<isize>,
    },
    /// [`TensorDict::permute`].
    Permute {
        /// The old dimension at each place.
        order: Vec<isize>,
    },
    /// [`TensorDict::transpose`].
    Transpose {
        /// The first dimension.
        left: isize,
        /// The second dimension.
        right: isize,
    },
    /// [`TensorDict::unsqueeze`].
    Unsqueeze {
        /// The place of the new dimension.
        dim: isize,
    },
    /// [`TensorDict::squeeze`], or [`TensorDict::squeeze_all`] without a dimension.
    Squeeze {
        /// The dimension of length 1.
        dim: Option<isize>,
    },
    /// [`TensorDict::expand`].
    Expand {
        /// The new batch size.
        sizes: Vec<usize>,
    },
    /// [`TensorDict::repeat`].
    Repeat {
        /// The number of repeats for each dimension.
        counts: Vec<usize>,
    },
    /// [`TensorDict::repeat_interleave`].
    RepeatInterleave {
        /// The number of repeats.
        count: usize,
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::roll`].
    Roll {
        /// The number of places.
        shift: isize,
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::flip`].
    Flip {
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::with_batch_size`].
    WithBatchSize {
        /// The new batch size.
        sizes: Vec<usize>,
    },
    /// [`TensorDict::auto_batch_size`].
    AutoBatchSize {
        /// The maximum number of dimensions.
        #[serde(rename = "dimsMax")]
        dims_max: Option<usize>,
    },
    /// [`TensorDict::pad`].
    Pad {
        /// The number of elements before and after, for each dimension from the first on.
        around: Vec<(usize, usize)>,
        /// The padding value.
        value: f64,
    },
    /// [`TensorDict::to`].
    To {
        /// The name of the element type.
        dtype: String,
    },
    /// [`TensorDict::to_device`].
    ToDevice {
        /// The name of the device.
        device: Device,
    },
    /// [`TensorDict::zeros_like`].
    ZerosLike,
    /// [`TensorDict::sum`].
    Sum {
        /// The dimension; `None` for all elements.
        dim: Option<isize>,
    },
    /// [`TensorDict::structure`].
    Structure,
    /// [`TensorDict::select_known`].
    SelectKnown {
        /// The keys; unknown ones are ignored.
        keys: Vec<Key>,
    },
    /// [`TensorDict::flatten_keys`].
    FlattenKeys {
        /// The text between names.
        separator: String,
    },
    /// [`TensorDict::unflatten_keys`].
    UnflattenKeys {
        /// The text between names.
        separator: String,
    },
}

/// A way to split a dictionary; each runs the method of its name.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Partition, TensorDict};
/// let partition: Partition = fulmar_core::options_from_json("partition", r#"{ "by": "chunk", "count": 2, "dim": 0 }"#)?;
/// assert_eq!(TensorDict::new(&[5])?.part(&partition)?.len(), 2);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "by", rename_all = "camelCase", deny_unknown_fields)]
pub enum Partition {
    /// [`TensorDict::split`].
    Split {
        /// The length of each part.
        size: usize,
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::split_sizes`].
    SplitSizes {
        /// The length of each part.
        sizes: Vec<usize>,
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::chunk`].
    Chunk {
        /// The maximum number of parts.
        count: usize,
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::unbind`].
    Unbind {
        /// The dimension.
        dim: isize,
    },
    /// [`TensorDict::split_keys`].
    SplitKeys {
        /// The keys of each part but the last.
        sets: Vec<Vec<Key>>,
    },
}

impl TensorDict {
    /// Runs `operation` on this dictionary.
    ///
    /// # Errors
    /// The errors of the method of its name.
    pub fn operate(&self, operation: &Operation) -> Result<Self> {
        match operation {
            Operation::At { index } => self.at(index),
            Operation::Gather { dim, shape, at } => self.gather(*dim, &Tensor::from_slice(shape, at)?),
            Operation::MaskedFill { mask, value } => {
                self.masked_fill(&Tensor::from_slice(&self.batch_size, mask)?, *value)
            }
            Operation::Reshape { sizes } => self.reshape(sizes),
            Operation::View { sizes } => self.view(sizes),
            Operation::Flatten { first, last } => self.flatten(*first, *last),
            Operation::Unflatten { dim, sizes } => self.unflatten(*dim, sizes),
            Operation::Permute { order } => self.permute(order),
            Operation::Transpose { left, right } => self.transpose(*left, *right),
            Operation::Unsqueeze { dim } => self.unsqueeze(*dim),
            Operation::Squeeze { dim: Some(dim) } => self.squeeze(*dim),
            Operation::Squeeze { dim: None } => self.squeeze_all(),
            Operation::Expand { sizes } => self.expand(sizes),
            Operation::Repeat { counts } => self.repeat(counts),
            Operation::RepeatInterleave { count, dim } => self.repeat_interleave(*count, *dim),
            Operation::Roll { shift, dim } => self.roll(*shift, *dim),
            Operation::Flip { dim } => self.flip(*dim),
            Operation::WithBatchSize { sizes } => self.with_batch_size(sizes),
            Operation::AutoBatchSize { dims_max } => self.auto_batch_size(*dims_max),
            Operation::Pad { around, value } => self.pad(around, *value),
            Operation::To { dtype } => self.to(Dtype::parse(dtype)?),
            Operation::ToDevice { device } => self.to_device(*device),
            Operation::ZerosLike => self.zeros_like(),
            Operation::Sum { dim } => self.sum(*dim),
            Operation::Structure => Ok(self.structure()),
            Operation::SelectKnown { keys } => Ok(self.select_known(keys)),
            Operation::FlattenKeys { separator } => self.flatten_keys(separator),
            Operation::UnflattenKeys { separator } => self.unflatten_keys(separator),
        }
    }

    /// Splits this dictionary by `partition`.
    ///
    /// # Errors
    /// The errors of the method of its name.
    pub fn part(&self, partition: &Partition) -> Result<Vec<Self>> {
        match partition {
            Partition::Split { size, dim } => self.split(*size, *dim),
            Partition::SplitSizes { sizes, dim } => self.split_sizes(sizes, *dim),
            Partition::Chunk { count, dim } => self.chunk(*count, *dim),
            Partition::Unbind { dim } => self.unbind(*dim),
            Partition::SplitKeys { sets } => self.split_keys(sets),
        }
    }
}
