//! Operations on specs as data, with negative dimensions and indices counted from the end.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Index, Tensor};
use serde::Deserialize;

use crate::json::Name;
use crate::lazy::consolidate_spec;
use crate::leaf::check_elements;
use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::structure::At;

/// An operation from one spec to another. In JSON an object with `op` and the operation's arguments.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", deny_unknown_fields)]
pub enum Operation {
    /// [`TensorSpec::expand`].
    Expand {
        /// The new shape.
        sizes: Shape,
    },
    /// [`TensorSpec::reshape`].
    Reshape {
        /// The new shape.
        sizes: Shape,
    },
    /// [`TensorSpec::flatten`].
    Flatten {
        /// The first dimension to merge.
        first: i64,
        /// The last dimension to merge.
        last: i64,
    },
    /// [`TensorSpec::unflatten`].
    Unflatten {
        /// The dimension to split.
        dim: i64,
        /// The lengths that replace it.
        sizes: Shape,
    },
    /// [`TensorSpec::unsqueeze`].
    Unsqueeze {
        /// The place of the new dimension.
        dim: i64,
    },
    /// [`TensorSpec::squeeze`], or [`TensorSpec::squeeze_all`].
    Squeeze {
        /// The dimension to remove; all of length 1 if absent.
        dim: Option<i64>,
    },
    /// [`TensorSpec::at`].
    At {
        /// One item for each dimension; at most one may be a list or a mask.
        index: Vec<Index>,
    },
    /// [`TensorSpec::to_dtype`].
    To {
        /// The element type.
        dtype: Name,
    },
    /// [`TensorSpec::to_one_hot_spec`].
    ToOneHot,
    /// [`TensorSpec::to_categorical_spec`].
    ToCategorical,
    /// [`consolidate_spec`].
    Consolidate,
    /// [`TensorSpec::empty`].
    Empty,
    /// [`Composite::refine_names`](crate::Composite::refine_names).
    RefineNames {
        /// One for each dimension; `"..."` represents any number of dimensions.
        names: Vec<Option<String>>,
    },
}

impl TensorSpec {
    /// Runs `operation` on this spec.
    ///
    /// # Errors
    /// The errors of the method of its name; `OutOfRange` for a missing dimension or index.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::{Dtype, options_from_json};
    /// use fulmar_spec::TensorSpec;
    /// let rows = TensorSpec::unbounded([5, 3], Dtype::F32)?;
    /// let last = options_from_json("operation", r#"{"op": "at", "index": ["...", -1]}"#)?;
    /// assert_eq!(rows.operate(&last)?.shape(), [5].into());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn operate(&self, operation: &Operation) -> Result<Self> {
        let rank = self.shape().rank();
        match operation {
            Operation::Expand { sizes } => self.expand(sizes.clone()),
            Operation::Reshape { sizes } => self.reshape(sizes.clone()),
            Operation::Flatten { first, last } => self.flatten(wrap(*first, rank)?, wrap(*last, rank)?),
            Operation::Unflatten { dim, sizes } => self.unflatten(wrap(*dim, rank)?, sizes.clone()),
            Operation::Unsqueeze { dim } => self.unsqueeze(wrap(*dim, rank + 1)?),
            Operation::Squeeze { dim: Some(dim) } => self.squeeze(wrap(*dim, rank)?),
            Operation::Squeeze { dim: None } => self.squeeze_all(),
            Operation::At { index } => self.at(&self.places(index)?),
            Operation::To { dtype } => self.to_dtype(dtype.0),
            Operation::ToOneHot => self.to_one_hot_spec(),
            Operation::ToCategorical => self.to_categorical_spec(),
            Operation::Consolidate => consolidate_spec(self),
            Operation::Empty => self.empty(),
            Operation::RefineNames { names } => {
                let mut spec = self.clone();
                spec.as_composite_mut()?.refine_names(names)?;
                Ok(spec)
            }
        }
    }

    /// Returns `index` with positions counted from the beginning.
    fn places(&self, index: &[Index]) -> Result<Vec<At>> {
        let shape = self.shape();
        if index.iter().filter(|item| matches!(item, Index::Pick(_))).count() > 1 {
            let detail =
                "index must hold at most one list or mask: got several, which values would read together";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let named = index.iter().filter(|item| !matches!(item, Index::Ellipsis | Index::NewAxis)).count();
        let mut dim = 0;
        let mut places = Vec::with_capacity(index.len());
        for item in index {
            let len = shape.dims().get(dim).copied().flatten();
            places.push(match item {
                Index::NewAxis => At::New,
                Index::Ellipsis => At::Ellipsis,
                Index::At(at) => At::Index(position(*at, len, dim)?),
                Index::Slice { start, stop, step } => stretch(*start, *stop, *step, len, dim)?,
                Index::Pick(tensor) => At::Indices(picked(tensor, len, dim)?),
            });
            dim += match item {
                Index::NewAxis => 0,
                Index::Ellipsis => shape.rank().saturating_sub(named),
                _ => 1,
            };
        }
        Ok(places)
    }
}

/// Returns `dim` of `end` dimensions counted from the first.
fn wrap(dim: i64, end: usize) -> Result<usize> {
    let from_first = if dim < 0 { dim + end as i64 } else { dim };
    usize::try_from(from_first).ok().filter(|dim| *dim < end).ok_or_else(|| {
        Error::new(ErrorKind::OutOfRange, format!("dim must be from -{end} to before {end}: got {dim}"))
    })
}

fn position(at: i64, len: Option<usize>, dim: usize) -> Result<usize> {
    let from_first = if at < 0 { len.map(|len| at + len as i64) } else { Some(at) };
    from_first.and_then(|at| usize::try_from(at).ok()).ok_or_else(|| {
        let len = len.map_or("any".to_owned(), |len| len.to_string());
        let detail = format!("index must be a position of dimension {dim}, which has {len}: got {at}");
        Error::new(ErrorKind::OutOfRange, detail)
    })
}

/// Clamps bounds past an end to that end, as in a slice of values.
fn stretch(start: Option<i64>, stop: Option<i64>, step: usize, len: Option<usize>, dim: usize) -> Result<At> {
    if (start, stop, step) == (None, None, 1) {
        return Ok(At::All);
    }
    let Some(len) = len else {
        let detail =
            format!("a range must be whole along dimension {dim}, which is dynamic: got a part of it");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    };
    let bound =
        |at: i64| (if at < 0 { at.saturating_add(len as i64) } else { at }).clamp(0, len as i64) as usize;
    let start = start.map_or(0, bound);
    let end = stop.map_or(len, bound).max(start);
    if step == 1 {
        return Ok(At::Range(start..end));
    }
    if step == 0 {
        return Err(Error::new(ErrorKind::OutOfRange, "step must be at least 1: got 0"));
    }
    check_elements((end - start) / step)?;
    Ok(At::Indices((start..end).step_by(step).collect()))
}

fn picked(tensor: &Tensor, len: Option<usize>, dim: usize) -> Result<Vec<usize>> {
    if tensor.rank() != 1 {
        let detail = format!("a list of an index must have one dimension: got shape {:?}", tensor.shape());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    if tensor.dtype() != Dtype::Bool {
        return tensor.to_vec::<i64>()?.into_iter().map(|at| position(at, len, dim)).collect();
    }
    let mask = tensor.to_vec::<bool>()?;
    if len != Some(mask.len()) {
        let detail = format!("a mask must be as long as dimension {dim}, {len:?}: got {}", mask.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(mask.iter().enumerate().filter(|(_, allowed)| **allowed).map(|(at, _)| at).collect())
}
