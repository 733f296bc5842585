//! Structural operations as data: one [`Step`] rearranges the leading dimensions of a shape, of the tables that belong to it,
//! and so of any spec.

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use crate::leaf::check_elements;
use crate::shape::Shape;

/// One rearrangement of the first dimensions of a spec.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The first `rank` dimensions become `shape`; dimensions of length 1 and new ones in front grow.
    Expand { rank: usize, shape: Shape },
    /// The first `rank` dimensions become `shape`, which holds as many elements.
    Reshape { rank: usize, shape: Shape },
    /// A dimension of length 1 before `dim`.
    Unsqueeze(usize),
    /// Dimension `dim`, of length 1, goes.
    Squeeze(usize),
    /// Dimension `dim` goes; only what stands at `index` stays.
    Select { dim: usize, index: usize },
    /// Only `start..end` of dimension `dim` stays.
    Slice { dim: usize, start: usize, end: usize },
    /// Only `indices` of dimension `dim` stay.
    Pick { dim: usize, indices: Vec<usize> },
}

impl Step {
    /// What becomes of the names of the first dimensions, of which there are `rank` after the step. What is reshaped has none.
    pub fn names(&self, names: &[Option<String>], rank: usize) -> Vec<Option<String>> {
        let mut names = names.to_vec();
        match self {
            Self::Expand { .. } => {
                let added = rank.saturating_sub(names.len());
                names.splice(..0, std::iter::repeat_n(None, added));
            }
            Self::Reshape { .. } => names = vec![None; rank],
            Self::Unsqueeze(dim) => names.insert(*dim, None),
            Self::Squeeze(dim) | Self::Select { dim, .. } => {
                names.remove(*dim);
            }
            Self::Slice { .. } | Self::Pick { .. } => {}
        }
        names
    }

    /// What becomes of a spec of `shape`.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or index, or a dynamic dimension is picked from; `ShapeMismatch` if the new shape
    /// does not fit the old; `LimitExceeded` if there would be too many dimensions.
    pub fn shape(&self, shape: &Shape) -> Result<Shape> {
        let mut dims = shape.dims().to_vec();
        match self {
            Self::Expand { rank, shape: new } => {
                check_expands(&prefix(shape, *rank)?, new)?;
                dims.splice(..*rank, new.dims().iter().copied());
            }
            Self::Reshape { rank, shape: new } => {
                let new = resolved(&prefix(shape, *rank)?, new)?;
                dims.splice(..*rank, new.dims().iter().copied());
            }
            Self::Unsqueeze(dim) => {
                check_dim(*dim, dims.len() + 1)?;
                dims.insert(*dim, Some(1));
            }
            Self::Squeeze(dim) => {
                check_dim(*dim, dims.len())?;
                if dims.remove(*dim) != Some(1) {
                    let detail =
                        format!("dimension {dim} must be of length 1 to be squeezed: got shape {shape}");
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
            }
            Self::Select { dim, index } => {
                check_index(shape, *dim, *index)?;
                dims.remove(*dim);
            }
            Self::Slice { dim, start, end } => {
                check_dim(*dim, dims.len())?;
                if start > end || dims[*dim].is_none_or(|len| *end > len) {
                    let detail = format!(
                        "range must lie in dimension {dim}, which must not be dynamic, of {shape}: got {start}..{end}"
                    );
                    return Err(Error::new(ErrorKind::OutOfRange, detail));
                }
                dims[*dim] = Some(end - start);
            }
            Self::Pick { dim, indices } => {
                check_dim(*dim, dims.len())?;
                if dims[*dim].is_none() {
                    let detail =
                        format!("dimension {dim} must not be dynamic to be picked from: got shape {shape}");
                    return Err(Error::new(ErrorKind::OutOfRange, detail));
                }
                indices.iter().try_for_each(|index| check_index(shape, *dim, *index))?;
                dims[*dim] = Some(indices.len());
            }
        }
        if dims.len() > TENSOR_RANK_MAX {
            let detail = format!("a spec must have at most {TENSOR_RANK_MAX} dimensions: got {}", dims.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(dims.into())
    }

    /// What becomes of `table`, whose dimensions but the last `tail` are broadcast to those of `shape`; [`Step::shape`] accepts
    /// `shape`.
    pub fn table(&self, shape: &Shape, table: &Tensor, tail: usize) -> Result<Tensor> {
        let aligned = table.rank() - tail;
        let before = shape.rank() - aligned;
        let moved = match self {
            Self::Expand { .. } => Ok(table.clone()),
            Self::Reshape { rank, .. } if before >= *rank => Ok(table.clone()),
            Self::Reshape { rank, shape: new } => {
                let full = repeated(table, shape, tail)?;
                let new = resolved(&prefix(shape, *rank)?, new)?;
                full.reshape(&[&new.sizes(), &full.shape()[*rank..]].concat())
            }
            Self::Unsqueeze(dim) if *dim > before => table.unsqueeze(dim - before),
            Self::Squeeze(dim) if *dim >= before => table.select(dim - before, 0),
            Self::Select { dim, index } if *dim >= before => {
                let one = table.shape()[dim - before] == 1;
                table.select(dim - before, if one { 0 } else { *index })
            }
            Self::Slice { dim, start, end } if *dim >= before && table.shape()[dim - before] != 1 => {
                table.slice(dim - before, *start..*end)
            }
            Self::Pick { dim, indices } if *dim >= before && table.shape()[dim - before] != 1 => {
                table.index_select(dim - before, indices)
            }
            _ => Ok(table.clone()),
        };
        canonical(&moved?, tail)
    }
}

/// The smallest table that is broadcast to the same: dimensions along which nothing changes have length 1 or, in front, are gone.
pub fn canonical(table: &Tensor, tail: usize) -> Result<Tensor> {
    let mut small = table.clone();
    for dim in 0..table.rank() - tail {
        let len = small.shape()[dim];
        let first = if len > 1 { small.select(dim, 0)? } else { continue };
        // What is empty is the same at every index of a long dimension.
        let rest = if first.num_elements() == 0 { 1..1 } else { 1..len };
        if rest
            .into_iter()
            .try_fold(true, |same, index| Ok::<_, Error>(same && small.select(dim, index)? == first))?
        {
            small = small.slice(dim, 0..1)?;
        }
    }
    while small.rank() > tail && small.shape()[0] == 1 {
        small = small.select(0, 0)?;
    }
    Ok(small.contiguous())
}

/// Whether the dimensions of `table` but the last `tail` can be broadcast to those of `shape`.
pub fn broadcasts(table: &Tensor, shape: &Shape, tail: usize) -> bool {
    let Some(aligned) = table.rank().checked_sub(tail) else { return false };
    let Some(before) = shape.rank().checked_sub(aligned) else { return false };
    let fits = |(have, want): (&usize, &Option<usize>)| *have == 1 || Some(*have) == *want;
    table.shape()[..aligned].iter().zip(&shape.dims()[before..]).all(fits)
}

/// For each cell of a value whose batch is `sizes`, row-major, which row of `table` belongs to it.
pub fn rows(table: &Tensor, sizes: &[usize], tail: usize) -> Vec<usize> {
    let aligned = &table.shape()[..table.rank() - tail];
    // Without this, a long dimension before one of length 0 would be counted through.
    if sizes.contains(&0) {
        return Vec::new();
    }
    let mut rows = vec![0];
    for (back, size) in sizes.iter().enumerate() {
        let from_right = sizes.len() - back;
        let len = if from_right <= aligned.len() { aligned[aligned.len() - from_right] } else { 1 };
        let next = |row: &usize| {
            let base = row * len;
            (0..*size).map(move |index| if len == 1 { base } else { base + index })
        };
        rows = rows.iter().flat_map(next).collect();
    }
    rows
}

/// `table` with every broadcast dimension written out.
fn repeated(table: &Tensor, shape: &Shape, tail: usize) -> Result<Tensor> {
    if shape.dims().contains(&None) {
        let detail = format!(
            "a spec whose bounds or masks vary must have no dynamic dimension to be reshaped: got {shape}"
        );
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let whole = [&shape.sizes(), &table.shape()[table.rank() - tail..]].concat();
    check_elements(num_elements(&whole)?)?;
    Ok(table.expand(&whole)?.contiguous())
}

fn prefix(shape: &Shape, rank: usize) -> Result<Shape> {
    shape.dims().get(..rank).map(|dims| dims.to_vec().into()).ok_or_else(|| {
        let detail = format!("a spec must have at least {rank} dimensions: got {shape}");
        Error::new(ErrorKind::OutOfRange, detail)
    })
}

fn check_expands(old: &Shape, new: &Shape) -> Result<()> {
    let grows = |(from, to): (&Option<usize>, &Option<usize>)| from == to || *from == Some(1);
    let added = new.rank().checked_sub(old.rank());
    if added.is_some_and(|added| old.dims().iter().zip(&new.dims()[added..]).all(grows)) {
        return Ok(());
    }
    let detail = format!(
        "the last {} dimensions of the expanded shape must be {old}, of which 1 may grow: got {new}",
        old.rank()
    );
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

/// `new` with its one dynamic dimension counted from the elements of `old`, where that can be done.
fn resolved(old: &Shape, new: &Shape) -> Result<Shape> {
    let refuse = || {
        let detail = format!("shape must hold as many elements as {old}: got {new}");
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    };
    let product =
        |shape: &Shape| shape.dims().iter().flatten().try_fold(1_usize, |len, dim| len.checked_mul(*dim));
    let dynamic = |shape: &Shape| shape.dims().iter().filter(|dim| dim.is_none()).count();
    let (Some(have), Some(want)) = (product(old), product(new)) else { return refuse() };
    match (dynamic(old), dynamic(new)) {
        (0, 1) if want > 0 && have.is_multiple_of(want) => {
            Ok(new.dims().iter().map(|dim| Some(dim.unwrap_or(have / want))).collect::<Vec<_>>().into())
        }
        (left, right) if left == right && left < 2 && have == want => Ok(new.clone()),
        _ => refuse(),
    }
}

fn check_dim(dim: usize, end: usize) -> Result<()> {
    if dim < end {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("dim must be < {end}: got {dim}")))
}

fn check_index(shape: &Shape, dim: usize, index: usize) -> Result<()> {
    check_dim(dim, shape.rank())?;
    match shape.dims()[dim] {
        // A dynamic dimension has whatever index is asked for.
        None => Ok(()),
        Some(len) if index < len => Ok(()),
        Some(len) => {
            let detail = format!("index must be < {len}, the length of dimension {dim}: got {index}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}
