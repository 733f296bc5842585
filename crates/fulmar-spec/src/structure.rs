//! Reshapes, indexes and stacks specs, like the same operations on values.

use std::ops::Range;

use fulmar_core::limits::SPEC_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};

use crate::leaf::check_elements;
use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::stacked::Stacked;
use crate::step::Step;

/// One place of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// One index, which removes the dimension.
    Index(usize),
    /// A range of the dimension.
    Range(Range<usize>),
    /// These indices, in this order.
    Indices(Vec<usize>),
    /// A new dimension of length 1.
    New,
    /// The whole dimension.
    All,
    /// Any number of whole dimensions.
    Ellipsis,
}

impl TensorSpec {
    /// Broadcasts the spec to `shape`: new dimensions lead, those of length 1 grow. The shape of a dictionary
    /// is its batch size.
    ///
    /// # Errors
    /// `ShapeMismatch` if other dimensions would change; `OutOfRange` if the last dimension of a one-hot or
    /// multiple choice would change.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// let one = TensorSpec::categorical(4, [2], Dtype::I64)?;
    /// assert_eq!(one.expand([3, 2])?.shape(), [3, 2].into());
    /// assert!(one.expand([2, 3]).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        self.moved(&Step::Expand { rank: self.shape().rank(), shape: shape.into() })
    }

    /// Reshapes the spec to `shape`; one dynamic dimension is inferred.
    ///
    /// # Errors
    /// `ShapeMismatch` if `shape` has another number of elements; `OutOfRange` if the last dimension of a
    /// one-hot or multiple choice would change; `Incompatible` for stacked specs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        self.moved(&Step::Reshape { rank: self.shape().rank(), shape: shape.into() })
    }

    /// Merges the dimensions `first..=last`.
    ///
    /// # Errors
    /// `OutOfRange` if there are no such dimensions; the errors of [`TensorSpec::reshape`].
    pub fn flatten(&self, first: usize, last: usize) -> Result<Self> {
        let shape = self.shape();
        let dims = shape.dims();
        if first > last || last >= dims.len() {
            let detail =
                format!("first..=last must be within {} dimensions: got {first}..={last}", dims.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let one =
            dims[first..=last].iter().try_fold(1_usize, |len, dim| dim.and_then(|dim| len.checked_mul(dim)));
        self.reshape([&dims[..first], &[one], &dims[last + 1..]].concat())
    }

    /// Splits dimension `dim` into `sizes`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; the errors of [`TensorSpec::reshape`].
    pub fn unflatten(&self, dim: usize, sizes: impl Into<Shape>) -> Result<Self> {
        let shape = self.shape();
        let dims = shape.dims();
        if dim >= dims.len() {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("dim must be < {}: got {dim}", dims.len()),
            ));
        }
        self.reshape([&dims[..dim], sizes.into().dims(), &dims[dim + 1..]].concat())
    }

    /// Inserts a dimension of length 1 before `dim`.
    ///
    /// # Errors
    /// `OutOfRange` if `dim` is greater than the rank, or would be after the last dimension of a one-hot or
    /// multiple choice.
    pub fn unsqueeze(&self, dim: usize) -> Result<Self> {
        self.moved(&Step::Unsqueeze(dim))
    }

    /// Removes dimension `dim` of length 1.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `ShapeMismatch` if it is longer.
    pub fn squeeze(&self, dim: usize) -> Result<Self> {
        self.moved(&Step::Squeeze(dim))
    }

    /// Removes all dimensions of length 1; the last of a one-hot or multiple choice stays.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::squeeze`].
    pub fn squeeze_all(&self) -> Result<Self> {
        let shape = self.shape();
        let kept = if let Self::Leaf(leaf) = self { leaf.cell_rank() } else { 0 };
        let mut ones = (0..shape.rank() - kept).rev().filter(|dim| shape.dims()[*dim] == Some(1));
        ones.try_fold(self.clone(), |spec, dim| spec.squeeze(dim))
    }

    /// Returns one spec for each index of dimension `dim`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or it is dynamic; `LimitExceeded` if it is too long for any
    /// value.
    pub fn unbind(&self, dim: usize) -> Result<Vec<Self>> {
        let shape = self.shape();
        let Some(Some(len)) = shape.dims().get(dim) else {
            let detail = format!("dim must be a dimension of known length: got {dim} of {shape}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        check_elements(*len)?;
        (0..*len).map(|index| self.moved(&Step::Select { dim, index })).collect()
    }

    /// Returns the spec of the part of a value at `index`. The last dimension of one-hot, binary and
    /// multiple-choice specs cannot be indexed.
    ///
    /// # Errors
    /// `OutOfRange` for a missing index or dimension, a second ellipsis, or a part of a dynamic dimension.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::{At, TensorSpec};
    /// let rows = TensorSpec::unbounded([5, 3], Dtype::F32)?;
    /// assert_eq!(rows.at(&[At::Ellipsis, At::Range(1..3)])?.shape(), [5, 2].into());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn at(&self, index: &[At]) -> Result<Self> {
        let rank = self.free_rank();
        let ellipses = index.iter().filter(|at| **at == At::Ellipsis).count();
        let named = index.iter().filter(|at| !matches!(at, At::Ellipsis | At::New)).count();
        if named > rank || ellipses > 1 {
            let detail = format!("index must name at most {rank} dimensions and one ellipsis: got {index:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (mut spec, mut dim) = (self.clone(), 0);
        for at in index {
            dim += 1;
            match at {
                At::Index(index) => {
                    dim -= 1;
                    spec = spec.moved(&Step::Select { dim, index: *index })?;
                }
                At::Range(range) => {
                    spec = spec.moved(&Step::Slice { dim: dim - 1, start: range.start, end: range.end })?;
                }
                At::Indices(indices) => {
                    spec = spec.moved(&Step::Pick { dim: dim - 1, indices: indices.clone() })?;
                }
                At::New => spec = spec.unsqueeze(dim - 1)?,
                At::All => {}
                At::Ellipsis => dim = dim + rank - named - 1,
            }
        }
        Ok(spec)
    }

    /// Stacks specs along a new dimension `dim`. Equal specs give one spec of their class, others a
    /// [`Stacked`].
    ///
    /// # Errors
    /// `Empty` without specs; `Incompatible` if class or dtype differ; `ShapeMismatch` if the number of dimensions does; `OutOfRange` if `dim` is
    /// past it.
    pub fn stack(specs: &[Self], dim: usize) -> Result<Self> {
        let Some(first) = specs.first() else {
            return Err(Error::new(ErrorKind::Empty, "specs must hold at least one spec: got 0"));
        };
        if specs.iter().any(|spec| spec != first) {
            return Stacked::new(specs.to_vec(), dim).map(Self::Stacked);
        }
        let single = first.unsqueeze(dim)?;
        let mut dims = single.shape().dims()[..=dim].to_vec();
        dims[dim] = Some(specs.len());
        single.moved(&Step::Expand { rank: dim + 1, shape: dims.into() })
    }

    /// Returns the spec after `step`.
    pub(crate) fn moved(&self, step: &Step) -> Result<Self> {
        match self {
            Self::Leaf(leaf) => leaf.moved(step).map(Self::Leaf),
            Self::NonTensor(spec) => Ok(Self::NonTensor(spec.with_shape(step.shape(spec.shape())?))),
            Self::Choice(choice) => choice.moved(step).map(Self::Choice),
            Self::Composite(composite) => {
                let shape = step.shape(composite.shape())?;
                // An inferred dimension depends only on the batch, so it is computed once for all leaves.
                let step = match step {
                    Step::Reshape { rank, .. } => Step::Reshape { rank: *rank, shape: shape.clone() },
                    other => other.clone(),
                };
                composite.map_to(shape, &step, |spec| spec.moved(&step)).map(Self::Composite)
            }
            Self::Stacked(stacked) => stacked.moved(step),
        }
    }

    /// Returns the number of dimensions that can be indexed.
    fn free_rank(&self) -> usize {
        let rank = self.shape().rank();
        match self.kind() {
            "OneHot" | "MultiOneHot" | "MultiCategorical" | "Binary" => rank.saturating_sub(1),
            _ => rank,
        }
    }
}

/// Refuses to nest `specs` in another one past [`SPEC_DEPTH_MAX`].
pub(crate) fn check_depth(specs: &[TensorSpec]) -> Result<()> {
    check_depth_of(1 + specs.iter().map(TensorSpec::depth).max().unwrap_or(0))
}

/// Refuses a nesting past [`SPEC_DEPTH_MAX`].
pub(crate) fn check_depth_of(depth: usize) -> Result<()> {
    if depth <= SPEC_DEPTH_MAX {
        return Ok(());
    }
    let detail = format!("specs must be nested at most {SPEC_DEPTH_MAX} deep: got {depth}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}
