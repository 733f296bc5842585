//! Structural operations as data: one [`Step`] rearranges the leading dimensions of a shape, of its tables,
//! and so of any spec.

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use crate::leaf::check_elements;
use crate::shape::Shape;

/// A rearrangement of the first dimensions of a spec.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Broadcasts the first `rank` dimensions to `shape`; dimensions of length 1 and new leading ones grow.
    Expand { rank: usize, shape: Shape },
    /// Reshapes the first `rank` dimensions to `shape`, with the same number of elements.
    Reshape { rank: usize, shape: Shape },
    /// Inserts a dimension of length 1 before `dim`.
    Unsqueeze(usize),
    /// Removes dimension `dim`, of length 1.
    Squeeze(usize),
    /// Removes dimension `dim` and keeps only the part at `index`.
    Select { dim: usize, index: usize },
    /// Keeps only `start..end` of dimension `dim`.
    Slice { dim: usize, start: usize, end: usize },
    /// Keeps only `indices` of dimension `dim`.
    Pick { dim: usize, indices: Vec<usize> },
}

impl Step {
    /// Returns the names of the first dimensions after the step, which leaves `rank` dimensions. Reshaped
    /// dimensions have none.
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

    /// Returns the shape after the step.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or index, or a dynamic dimension is picked from;
    /// `ShapeMismatch` if the new shape does not match the old; `LimitExceeded` if there would be too many
    /// dimensions.
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
                        "range must be within dimension {dim}, which must not be dynamic, of {shape}: got {start}..{end}"
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

    /// Returns `table` after the step. All of its dimensions but the last `tail` are broadcast to those of
    /// `shape`, which [`Step::shape`] must accept.
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

/// Returns the smallest table with the same broadcast: dimensions along which nothing changes have length 1
/// or, if leading, are removed.
pub fn canonical(table: &Tensor, tail: usize) -> Result<Tensor> {
    let mut small = table.clone();
    for dim in 0..table.rank() - tail {
        let len = small.shape()[dim];
        let first = if len > 1 { small.select(dim, 0)? } else { continue };
        // An empty table is the same at every index of a long dimension.
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

/// Returns whether the dimensions of `table` but the last `tail` can be broadcast to those of `shape`.
pub fn broadcasts(table: &Tensor, shape: &Shape, tail: usize) -> bool {
    let Some(aligned) = table.rank().checked_sub(tail) else { return false };
    let Some(before) = shape.rank().checked_sub(aligned) else { return false };
    let fits = |(have, want): (&usize, &Option<usize>)| *have == 1 || Some(*have) == *want;
    table.shape()[..aligned].iter().zip(&shape.dims()[before..]).all(fits)
}

/// Returns the row of `table` for each cell of a value with the batch `sizes`, row-major.
pub fn rows(table: &Tensor, sizes: &[usize], tail: usize) -> Vec<usize> {
    let aligned = &table.shape()[..table.rank() - tail];
    // Return early: a long dimension before one of length 0 would otherwise be iterated.
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

/// Materialises every broadcast dimension of `table`.
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

/// Infers the dynamic dimension of `new` from the elements of `old`, if possible.
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
        // A dynamic dimension accepts any index.
        None => Ok(()),
        Some(len) if index < len => Ok(()),
        Some(len) => {
            let detail = format!("index must be < {len}, the length of dimension {dim}: got {index}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}
