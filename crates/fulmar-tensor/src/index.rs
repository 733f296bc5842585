//! Indexing as in NumPy and PyTorch: integers, ranges, lists, masks, new dimensions and combinations of them.

use std::ops::Range;

use fulmar_compute::dispatch;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use serde::Deserialize;

use crate::device::compute_of;
use crate::element::{Element, with_element};
use crate::index_item::IndexItem;
use crate::storage::{Stored, reserved};
use crate::tensor::Tensor;

/// One item of an index. Each item consumes the next dimension; dimensions without an item stay whole.
///
/// As JSON an item is a position, `null` for a new dimension, `"..."`, a list of positions or of bools,
/// `{ "start", "stop", "step" }` with any of them, or `{ "shape", "at" }` and `{ "shape", "mask" }` with the elements of a tensor.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Index, Tensor};
/// let matrix = Tensor::from_vec(&[2, 3], vec![1_i64, 2, 3, 4, 5, 6])?;
/// assert_eq!(matrix.at(&[Index::Ellipsis, (-1).into()])?.to_vec::<i64>()?, [3, 6]);
/// assert_eq!(matrix.at(&[Index::ALL, Index::list(vec![2, 0])])?.to_vec::<i64>()?, [3, 1, 6, 4]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "IndexItem")]
pub enum Index {
    /// One position, from the end if negative. Removes the dimension.
    At(i64),
    /// Every `step`-th position from `start` up to `stop`, both from the end if negative. A missing bound is
    /// the end of the dimension, and bounds past an end are clamped to it.
    Slice {
        /// The first position.
        start: Option<i64>,
        /// The position before which to stop.
        stop: Option<i64>,
        /// The distance between positions, at least 1.
        step: usize,
    },
    /// Integers: positions, negative ones from the end; their shape replaces the dimension. Bools: a mask
    /// over as many dimensions as it has, which become one dimension of the positions where it is true.
    /// Several picks are broadcast to one shape, which comes first in the result if other dimensions are
    /// between them.
    Pick(Tensor),
    /// A new dimension of length 1; consumes none.
    NewAxis,
    /// As many whole dimensions as the other items leave; at most once.
    Ellipsis,
}

impl Index {
    /// A whole dimension.
    pub const ALL: Self = Self::Slice { start: None, stop: None, step: 1 };

    /// Picks the positions `at` in that order; a position may come twice.
    #[must_use]
    pub fn list(at: Vec<i64>) -> Self {
        let len = at.len();
        Self::Pick(Tensor::over(i64::store(at.into()), Dtype::I64, &[len]))
    }

    /// Returns the number of dimensions that this item consumes.
    pub(crate) fn dims(&self) -> usize {
        match self {
            Self::At(_) | Self::Slice { .. } => 1,
            Self::Pick(tensor) if tensor.dtype() == Dtype::Bool => tensor.rank(),
            Self::Pick(_) => 1,
            Self::NewAxis | Self::Ellipsis => 0,
        }
    }

    /// Returns the number of dimensions that this item produces if it is the only pick.
    pub(crate) fn dims_given(&self) -> usize {
        match self {
            Self::Slice { .. } | Self::NewAxis => 1,
            Self::Pick(mask) if mask.dtype() == Dtype::Bool => 1,
            Self::Pick(at) => at.rank(),
            Self::At(_) | Self::Ellipsis => 0,
        }
    }

    /// Returns `index` with whole dimensions in place of an ellipsis.
    ///
    /// # Errors
    /// `OutOfRange` if it consumes more than `rank` dimensions; `Incompatible` if it has two ellipses.
    pub(crate) fn within(index: &[Self], rank: usize) -> Result<Vec<Self>> {
        let dims: usize = index.iter().map(Self::dims).sum();
        if dims > rank {
            let detail = format!("index must take up at most {rank} dimensions: got {dims}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let is_ellipsis = |item: &Self| matches!(item, Self::Ellipsis);
        match index.iter().filter(|item| is_ellipsis(item)).count() {
            0 => return Ok(index.to_vec()),
            1 => {}
            more => {
                let detail = format!("index must have at most one ellipsis: got {more}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        let mut items = Vec::with_capacity(index.len() + rank - dims);
        for item in index {
            if is_ellipsis(item) {
                items.extend(std::iter::repeat_n(Self::ALL, rank - dims));
            } else {
                items.push(item.clone());
            }
        }
        Ok(items)
    }
}

impl From<i64> for Index {
    fn from(at: i64) -> Self {
        Self::At(at)
    }
}

impl From<Range<i64>> for Index {
    fn from(range: Range<i64>) -> Self {
        Self::Slice { start: Some(range.start), stop: Some(range.end), step: 1 }
    }
}

impl From<Tensor> for Index {
    fn from(tensor: Tensor) -> Self {
        Self::Pick(tensor)
    }
}

impl Tensor {
    /// Returns the part at `index`. Shares the storage unless an item is [`Index::Pick`] of more than one
    /// position; then it copies.
    ///
    /// # Errors
    /// `OutOfRange` if a position does not exist, the index consumes more dimensions than there are, or a
    /// step is 0; `ShapeMismatch` if the shape of a mask differs from its dimensions, or picks do not
    /// broadcast; `Incompatible` if a pick holds neither integers nor bools, or there are two ellipses;
    /// `LimitExceeded` if the result has too many dimensions; `OutOfMemory` if it does not fit in memory.
    pub fn at(&self, index: &[Index]) -> Result<Self> {
        let (view, picks) = laid_out(self, index)?;
        if picks.is_empty() { Ok(view) } else { Places::new(&view, &picks)?.read(&view) }
    }

    /// Writes `value`, broadcast, to the elements at `index`. If a position comes twice, the last value wins.
    /// Copies all elements first if another tensor shares them or the tensor has gaps.
    ///
    /// # Errors
    /// The errors of [`Tensor::at`]; `Incompatible` if `value` has another dtype; `ShapeMismatch` if it does
    /// not broadcast. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Index, Tensor};
    /// let mut rows = Tensor::from_vec(&[3], vec![1_i32, 2, 3])?;
    /// rows.set_at(&[Index::list(vec![2, 0])], &Tensor::from_vec(&[2], vec![7_i32, 8])?)?;
    /// assert_eq!(rows.to_vec::<i32>()?, [8, 2, 7]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn set_at(&mut self, index: &[Index], value: &Self) -> Result<()> {
        if value.dtype != self.dtype {
            let (want, got) = (self.dtype.name(), value.dtype.name());
            return Err(Error::new(ErrorKind::Incompatible, format!("value must be of {want}: got {got}")));
        }
        dispatch!(compute_of([&*self, value])?, cpu => with_element!(self.dtype, T => {
            // Only the layout of the dense elements: a view of the elements would keep them shared during the
            // write.
            let dense = Self::over(T::store(Vec::new().into()), self.dtype, &self.shape);
            let (view, picks) = laid_out(&dense, index)?;
            let places = Places::new(&view, &picks)?;
            let values = places.unarranged(&value.expand(&places.arranged_shape())?)?.to_vec::<T>()?;
            let elements = self.as_mut_slice::<T>()?;
            let mut values = values.iter();
            places.each_run(|run| {
                elements[run].iter_mut().zip(&mut values).for_each(|(element, value)| *element = *value);
            });
            Ok(())
        }))
    }
}

/// The dimensions of the view that a pick reads, each with its positions.
type Picks = Vec<(usize, Tensor)>;

/// Applies all items but picks to `tensor` as a view, and collects the picks.
fn laid_out(tensor: &Tensor, index: &[Index]) -> Result<(Tensor, Picks)> {
    let mut view = tensor.clone();
    let mut picks = Vec::new();
    let mut dim = 0;
    for item in Index::within(index, tensor.rank())? {
        match item {
            Index::At(at) => view = view.select(dim, position(at, view.dim_len(dim)?)?)?,
            Index::Slice { start, stop, step } => {
                view = stepped(&view, dim, start, stop, step)?;
                dim += 1;
            }
            Index::NewAxis => {
                view = view.unsqueeze(dim)?;
                dim += 1;
            }
            Index::Pick(mask) if mask.dtype() == Dtype::Bool => {
                for positions in true_positions(&mask, &view.shape[dim..])? {
                    picks.push((dim, positions));
                    dim += 1;
                }
            }
            Index::Pick(at) => {
                let positions = positions(&at, view.dim_len(dim)?)?;
                if let (0, [at]) = (at.rank(), &*positions) {
                    view = view.select(dim, *at as usize)?;
                } else {
                    picks.push((dim, Tensor::from_vec(at.shape(), positions)?));
                    dim += 1;
                }
            }
            // `within` has replaced the ellipsis.
            Index::Ellipsis => {}
        }
    }
    Ok((view, picks))
}

fn position(at: i64, len: usize) -> Result<usize> {
    let from_start = if at < 0 { at.checked_add_unsigned(len as u64) } else { Some(at) };
    from_start.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < len).ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfRange,
            if len == 0 {
                format!("index must be of an element, and the dimension has none: got {at}")
            } else {
                format!("index must be in -{len}..{len}, both ends of the dimension: got {at}")
            },
        )
    })
}

fn stepped(view: &Tensor, dim: usize, start: Option<i64>, stop: Option<i64>, step: usize) -> Result<Tensor> {
    if step == 0 {
        return Err(Error::new(ErrorKind::OutOfRange, "step must be at least 1: got 0"));
    }
    let len = view.dim_len(dim)?;
    let bound = |at: i64| {
        let from_start = if at < 0 { at.saturating_add_unsigned(len as u64) } else { at };
        usize::try_from(from_start.max(0)).map_or(len, |at| at.min(len))
    };
    let stop = stop.map_or(len, bound);
    let start = start.map_or(0, bound).min(stop);
    let mut part = view.slice(dim, start..stop)?;
    part.shape[dim] = (stop - start).div_ceil(step);
    if part.shape[dim] > 1 {
        part.strides[dim] *= step;
    }
    Ok(part)
}

/// Returns the positions in an integer tensor, counted from the start.
fn positions(at: &Tensor, len: usize) -> Result<Vec<i64>> {
    let checked = |at: i64| position(at, len).map(|at| at as i64);
    match at.dtype() {
        Dtype::I64 => at.to_vec::<i64>()?.into_iter().map(checked).collect(),
        Dtype::I32 => at.to_vec::<i32>()?.into_iter().map(|at| checked(at.into())).collect(),
        Dtype::I16 => at.to_vec::<i16>()?.into_iter().map(|at| checked(at.into())).collect(),
        Dtype::I8 => at.to_vec::<i8>()?.into_iter().map(|at| checked(at.into())).collect(),
        Dtype::U32 => at.to_vec::<u32>()?.into_iter().map(|at| checked(at.into())).collect(),
        Dtype::U8 => at.to_vec::<u8>()?.into_iter().map(|at| checked(at.into())).collect(),
        other => {
            let detail = format!("an index must hold integers or bools: got {}", other.name());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

/// Returns the positions where `mask` is true, one tensor for each of its dimensions. `mask` must cover the
/// first of `dims`.
fn true_positions(mask: &Tensor, dims: &[usize]) -> Result<Vec<Tensor>> {
    let rank = mask.rank();
    if rank == 0 || dims.get(..rank) != Some(mask.shape()) {
        let detail = format!(
            "a mask must have the shape of the dimensions that it covers, of {dims:?}: got {:?}",
            mask.shape()
        );
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let flat: Vec<usize> = mask
        .to_vec::<bool>()?
        .into_iter()
        .enumerate()
        .filter_map(|(at, is_true)| is_true.then_some(at))
        .collect();
    let mut inner = mask.num_elements();
    let positions = mask.shape().iter().map(|len| {
        inner = inner.checked_div(*len).unwrap_or(0);
        let of = |at: &usize| (at.checked_div(inner).unwrap_or(0) % len) as i64;
        Tensor::from_vec(&[flat.len()], flat.iter().map(of).collect())
    });
    positions.collect()
}

/// Picked parts: where each begins in the storage, and the layout of a part.
struct Places {
    starts: Vec<usize>,
    /// The shape of all picks, broadcast.
    picked: Vec<usize>,
    /// The dimensions that are not picked, from the first element of the storage.
    row: Tensor,
    /// The position of the picked dimensions among the dimensions of `row` in the result.
    before: usize,
}

impl Places {
    fn new(view: &Tensor, picks: &[(usize, Tensor)]) -> Result<Self> {
        let picked = picks.iter().try_fold(Vec::new(), |shape, (_, at)| broadcast(&shape, at.shape()))?;
        let count = num_elements(&picked)?;
        let mut starts = reserved(count)?;
        starts.resize(count, view.offset);
        let mut row = Tensor { offset: 0, ..view.clone() };
        for (dim, at) in picks.iter().rev() {
            let at = at.expand(&picked)?.to_vec::<i64>()?;
            starts.iter_mut().zip(at).for_each(|(start, at)| *start += at as usize * view.strides[*dim]);
            row.shape.remove(*dim);
            row.strides.remove(*dim);
        }
        let together = picks.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1);
        let before = picks.first().filter(|_| together).map_or(0, |(dim, _)| *dim);
        Ok(Self { starts, picked, row, before })
    }

    /// Copies the picked elements in the order of the index.
    fn read(&self, view: &Tensor) -> Result<Tensor> {
        let shape = [&self.picked[..], self.row.shape()].concat();
        let len = num_elements(&shape)?;
        let dense = dispatch!(view.compute(), cpu => with_element!(view.dtype, T => {
            Tensor::from_vec(&shape, self.copied::<T>(view, len)?)
        }))?;
        let (picked, before, rank) = (self.picked.len(), self.before, shape.len());
        let order: Vec<_> = (picked..picked + before).chain(0..picked).chain(picked + before..rank).collect();
        dense.permute(&order)?.dense()
    }

    fn copied<T: Element>(&self, view: &Tensor, len: usize) -> Result<Vec<T>> {
        let elements = view.elements::<T>()?;
        let mut values = reserved(len)?;
        self.each_run(|run| values.extend_from_slice(&elements[run]));
        Ok(values)
    }

    /// Visits the contiguous runs of the storage, part by part.
    fn each_run(&self, mut visit: impl FnMut(Range<usize>)) {
        let row: Vec<_> = self.row.runs().collect();
        for start in &self.starts {
            row.iter().for_each(|run| visit(start + run.start..start + run.end));
        }
    }

    /// Returns the shape of the result of [`Places::read`].
    fn arranged_shape(&self) -> Vec<usize> {
        let (left, right) = self.row.shape().split_at(self.before);
        [left, &self.picked, right].concat()
    }

    /// Returns a tensor of that shape with the picked dimensions first, in the order of the runs.
    fn unarranged(&self, arranged: &Tensor) -> Result<Tensor> {
        let (before, picked) = (self.before, self.picked.len());
        let order: Vec<_> =
            (before..before + picked).chain(0..before).chain(before + picked..arranged.rank()).collect();
        arranged.permute(&order)
    }
}

/// Returns the shape to which both shapes broadcast.
///
/// # Errors
/// `ShapeMismatch` if they differ where neither is 1.
pub fn broadcast(left: &[usize], right: &[usize]) -> Result<Vec<usize>> {
    let rank = left.len().max(right.len());
    let dim_of =
        |shape: &[usize], dim: usize| (dim + shape.len()).checked_sub(rank).map_or(1, |dim| shape[dim]);
    let dims = (0..rank).map(|dim| match (dim_of(left, dim), dim_of(right, dim)) {
        (1, len) | (len, 1) => Ok(len),
        (one, other) if one == other => Ok(one),
        _ => {
            let detail = format!("shapes must agree where neither is 1: got {left:?} and {right:?}");
            Err(Error::new(ErrorKind::ShapeMismatch, detail))
        }
    });
    dims.collect()
}
