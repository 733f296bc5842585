//! Rows of different lengths without padding: one flat tensor and the offsets of the rows.

use std::ops::Range;
use std::sync::Arc;

use fulmar_compute::dispatch;
use fulmar_core::{Error, ErrorKind, Result, num_elements};

use crate::element::{Element, with_element};
use crate::storage::zeroed;
use crate::tensor::Tensor;

/// `S` rows of any length: `values` of shape `[T, ...]`, and row `s` is `values[offsets[s]..offsets[s + 1]]`.
///
/// Cloning shares the elements. Two are equal if their rows are.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Ragged, Tensor};
/// let ids = Tensor::from_vec(&[5], vec![7_u32, 8, 9, 1, 2])?;
/// let rows = Ragged::new(ids, &[0_u32, 3, 3, 5])?;
/// assert_eq!((rows.num_rows(), rows.row(2)?.to_vec::<u32>()?), (3, vec![1, 2]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Ragged {
    values: Tensor,
    /// `S + 1` offsets: from 0, non-decreasing, to the length of `values`.
    offsets: Arc<[u64]>,
}

/// The side of short rows on which padding is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadSide {
    /// Before the row, as for prompts of batched generation.
    Left,
    /// After the row, as for training sequences.
    Right,
}

impl PadSide {
    /// Returns the side called `name`, `"left"` or `"right"`.
    ///
    /// # Errors
    /// `UnknownName` for any other name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "left" => Ok(Self::Left),
            "right" => Ok(Self::Right),
            _ => Err(Error::new(
                ErrorKind::UnknownName,
                format!("side must be \"left\" or \"right\": got {name:?}"),
            )),
        }
    }
}

impl Ragged {
    /// Shares `values` and copies `offsets` (`u32` or `u64`).
    ///
    /// # Errors
    /// `ShapeMismatch` if `values` is a scalar or `offsets` does not go from 0 to its length; `OutOfRange` if
    /// offsets decrease; `Empty` if there are no offsets (zero rows have the one offset 0).
    pub fn new(values: Tensor, offsets: &[impl Copy + Into<u64>]) -> Result<Self> {
        let offsets: Arc<[u64]> = offsets.iter().map(|offset| (*offset).into()).collect();
        let Some(&len) = values.shape().first() else {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                "values must have at least 1 dimension: got a scalar",
            ));
        };
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
            return Err(Error::new(ErrorKind::Empty, "offsets must hold at least the offset 0: it is empty"));
        };
        if let Some(row) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
            let detail = format!("offsets must not fall: got {} and then {}", offsets[row], offsets[row + 1]);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        if first != 0 || last != len as u64 {
            let detail =
                format!("offsets must go from 0 to {len}, the length of values: got {first} to {last}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Ok(Self { values, offsets })
    }

    /// Joins `rows` of shapes `[len, ...]`, which agree in all dimensions but the first. Copies.
    ///
    /// # Errors
    /// The errors of [`Tensor::cat`]; `Empty` without rows.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Ragged, Tensor};
    /// let rows = [Tensor::from_slice(&[1], &[1_i64])?, Tensor::from_slice(&[2], &[2_i64, 3])?];
    /// assert_eq!(Ragged::from_rows(&rows)?.offsets(), [0, 1, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_rows(rows: &[Tensor]) -> Result<Self> {
        let values = Tensor::cat(rows, 0)?;
        Ok(Self { values, offsets: offsets_of(rows.iter().map(|row| row.shape()[0] as u64)) })
    }

    /// Returns the number of rows, `S`.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns all rows concatenated, `[T, ...]`.
    #[must_use]
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// Returns the `S + 1` offsets of the rows in [`Ragged::values`]; the last is its length.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the offsets as `u32`, for JavaScript and the kernels.
    ///
    /// # Errors
    /// `LimitExceeded` if there are 2^32 values or more.
    pub fn offsets_u32(&self) -> Result<Vec<u32>> {
        let narrow = |offset: &u64| {
            u32::try_from(*offset).map_err(|_| {
                Error::new(ErrorKind::LimitExceeded, format!("offsets must fit 32 bits: got {offset}"))
            })
        };
        self.offsets.iter().map(narrow).collect()
    }

    /// Returns the row at `index`, `[len, ...]`. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such row.
    pub fn row(&self, index: usize) -> Result<Tensor> {
        self.values.slice(0, self.row_range(index)?)
    }

    /// Returns the rows `rows`. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if the range is backwards or ends past the rows.
    pub fn slice(&self, rows: Range<usize>) -> Result<Self> {
        if rows.start > rows.end || rows.end > self.num_rows() {
            let detail = format!("range must be in 0..{}, the number of rows: got {rows:?}", self.num_rows());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let offsets = &self.offsets[rows.start..=rows.end];
        let begin = offsets[0];
        let values = self.values.slice(0, begin as usize..offsets[rows.len()] as usize)?;
        Ok(Self { values, offsets: offsets.iter().map(|offset| offset - begin).collect() })
    }

    /// Returns the rows at `indices`, in that order; an index may come twice. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such row.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Ragged, Tensor};
    /// let rows = Ragged::new(Tensor::from_vec(&[3], vec![1_u8, 2, 3])?, &[0_u32, 1, 3])?;
    /// let swapped = rows.index_select(&[1, 0])?;
    /// assert_eq!((swapped.values().to_vec::<u8>()?, swapped.offsets()), (vec![2, 3, 1], &[0, 2, 3][..]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn index_select(&self, indices: &[usize]) -> Result<Self> {
        if indices.is_empty() {
            return self.slice(0..0);
        }
        let rows = indices.iter().map(|index| self.row(*index)).collect::<Result<Vec<_>>>()?;
        Self::from_rows(&rows)
    }

    /// Concatenates the rows of all `parts`. Copies.
    ///
    /// # Errors
    /// The errors of [`Tensor::cat`]; `Empty` without parts.
    pub fn cat(parts: &[Self]) -> Result<Self> {
        let values: Vec<_> = parts.iter().map(|part| part.values.clone()).collect();
        let lengths = parts.iter().flat_map(|part| part.offsets.windows(2).map(|pair| pair[1] - pair[0]));
        Ok(Self { values: Tensor::cat(&values, 0)?, offsets: offsets_of(lengths) })
    }

    /// Returns a dense tensor `[S, longest, ...]`, short rows padded with `fill` on `side`. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if no element of the dtype equals `fill` (floats round it); `LimitExceeded` if the result does not fit in
    /// memory.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{PadSide, Ragged, Tensor};
    /// let rows = Ragged::new(Tensor::from_vec(&[3], vec![1_u8, 2, 3])?, &[0_u32, 1, 3])?;
    /// assert_eq!(rows.to_padded(PadSide::Left, 0.0)?.to_vec::<u8>()?, [0, 1, 2, 3]);
    /// assert_eq!(rows.to_padded(PadSide::Right, 9.0)?.to_vec::<u8>()?, [1, 9, 2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn to_padded(&self, side: PadSide, fill: f64) -> Result<Tensor> {
        dispatch!(self.values.compute(), cpu => with_element!(self.values.dtype(), T => {
            self.padded::<T>(side, fill)
        }))
    }

    fn padded<T: Element>(&self, side: PadSide, fill: f64) -> Result<Tensor> {
        let dtype = T::DTYPE.name();
        let fill = T::from_f64(fill).ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("fill must be a value of {dtype}: got {fill}"))
        })?;
        let longest = self.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as usize;
        let row_shape = &self.values.shape()[1..];
        let shape = [&[self.num_rows(), longest], row_shape].concat();
        let inner = num_elements(row_shape)?;
        let mut padded = zeroed::<T>(num_elements(&shape)?)?;
        padded.fill(fill);
        let dense = self.values.contiguous();
        let values = dense.as_slice::<T>()?;
        for (row, pair) in self.offsets.windows(2).enumerate() {
            let (begin, len) = (pair[0] as usize, (pair[1] - pair[0]) as usize);
            let skipped = if side == PadSide::Left { longest - len } else { 0 };
            let target = (row * longest + skipped) * inner;
            padded[target..target + len * inner]
                .copy_from_slice(&values[begin * inner..(begin + len) * inner]);
        }
        Tensor::from_vec(&shape, padded)
    }

    fn row_range(&self, index: usize) -> Result<Range<usize>> {
        if index >= self.num_rows() {
            let detail = format!("row must be < {}, the number of rows: got {index}", self.num_rows());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(self.offsets[index] as usize..self.offsets[index + 1] as usize)
    }
}

fn offsets_of(lengths: impl Iterator<Item = u64>) -> Arc<[u64]> {
    let ends = lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}
