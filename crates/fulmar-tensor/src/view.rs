//! Parts of a tensor as views: other strides and offsets over the same storage. Copies no elements.

use std::ops::Range;

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Error, ErrorKind, Result};

use crate::tensor::Tensor;

impl Tensor {
    /// Returns the part at `index` of dimension `dim`, without that dimension. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or index.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let matrix = Tensor::from_vec(&[2, 3], vec![1_i64, 2, 3, 4, 5, 6])?;
    /// assert_eq!(matrix.select(0, 1)?.to_vec::<i64>()?, [4, 5, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn select(&self, dim: usize, index: usize) -> Result<Self> {
        let len = self.dim_len(dim)?;
        if index >= len {
            let detail = format!("index must be < {len}, the length of dimension {dim}: got {index}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut view = self.clone();
        view.offset += index * view.strides[dim];
        view.shape.remove(dim);
        view.strides.remove(dim);
        Ok(view)
    }

    /// Returns the part `range` of dimension `dim`; an empty range gives a dimension of length 0. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension, or the range is backwards or ends past it.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let matrix = Tensor::from_vec(&[2, 3], vec![1_i64, 2, 3, 4, 5, 6])?;
    /// assert_eq!(matrix.slice(1, 1..3)?.to_vec::<i64>()?, [2, 3, 5, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn slice(&self, dim: usize, range: Range<usize>) -> Result<Self> {
        let len = self.dim_len(dim)?;
        if range.start > range.end || range.end > len {
            let detail = format!("range must be in 0..{len}, the length of dimension {dim}: got {range:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut view = self.clone();
        view.shape[dim] = range.len();
        if !range.is_empty() {
            view.offset += range.start * view.strides[dim];
        }
        Ok(view)
    }

    /// Exchanges two dimensions. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let matrix = Tensor::from_vec(&[2, 2], vec![1_i8, 2, 3, 4])?;
    /// assert_eq!(matrix.transpose(0, 1)?.to_vec::<i8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn transpose(&self, left: usize, right: usize) -> Result<Self> {
        self.dim_len(left)?;
        self.dim_len(right)?;
        let mut view = self.clone();
        view.shape.swap(left, right);
        view.strides.swap(left, right);
        Ok(view)
    }

    /// Inserts a dimension of length 1 before `dim`; `dim == rank` appends it. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if `dim` is greater than the rank; `LimitExceeded` if there would be too many dimensions.
    pub fn unsqueeze(&self, dim: usize) -> Result<Self> {
        let rank = self.rank();
        if dim > rank {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("dim must be <= {rank}, the rank: got {dim}"),
            ));
        }
        if rank == TENSOR_RANK_MAX {
            let detail = format!("a tensor must have at most {TENSOR_RANK_MAX} dimensions: got {}", rank + 1);
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let mut view = self.clone();
        view.shape.insert(dim, 1);
        view.strides.insert(dim, 1);
        Ok(view)
    }

    /// Returns the length of dimension `dim`.
    pub(crate) fn dim_len(&self, dim: usize) -> Result<usize> {
        self.shape.get(dim).copied().ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("dim must be < {}, the rank: got {dim}", self.rank()))
        })
    }

    /// Returns the contiguous runs of the storage that hold the elements in row-major order.
    pub(crate) fn runs(&self) -> Runs<'_> {
        let mut run_len = 1;
        let mut outer_rank = self.rank();
        while outer_rank > 0 && (self.strides[outer_rank - 1] == run_len || self.shape[outer_rank - 1] == 1) {
            outer_rank -= 1;
            run_len *= self.shape[outer_rank];
        }
        let left = if self.num_elements() == 0 { 0 } else { self.num_elements() / run_len };
        Runs { tensor: self, index: vec![0; outer_rank], start: self.offset, run_len, left }
    }
}

/// Iterates over the outer dimensions like an odometer; the inner ones are one dense run.
pub struct Runs<'a> {
    tensor: &'a Tensor,
    index: Vec<usize>,
    start: usize,
    run_len: usize,
    left: usize,
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        self.left = self.left.checked_sub(1)?;
        let run = self.start..self.start + self.run_len;
        for dim in (0..self.index.len()).rev() {
            self.index[dim] += 1;
            self.start += self.tensor.strides[dim];
            if self.index[dim] < self.tensor.shape[dim] {
                break;
            }
            self.start -= self.tensor.strides[dim] * self.index[dim];
            self.index[dim] = 0;
        }
        Some(run)
    }
}
