//! Other shapes for the same elements: merged, split, reordered, repeated and added dimensions, as views if
//! possible.

use fulmar_core::limits::TENSOR_EXPANDED_MAX;
use fulmar_core::{Error, ErrorKind, Result, num_elements};

use crate::tensor::{Tensor, contiguous_strides};

impl Tensor {
    /// Returns the same elements, row-major, in another shape. Shares the storage if the strides allow, else
    /// copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if `shape` holds another number of elements; `LimitExceeded` if it has too many dimensions.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let flat = Tensor::from_vec(&[6], vec![1_u8, 2, 3, 4, 5, 6])?;
    /// assert_eq!(flat.reshape(&[3, 2])?.select(0, 2)?.to_vec::<u8>()?, [5, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        self.check_holds_same(shape)?;
        let (source, strides) = match self.strides_for(shape) {
            Some(strides) => (self.clone(), strides),
            None => (self.dense()?, contiguous_strides(shape)),
        };
        Ok(Self { shape: shape.to_vec(), strides, ..source })
    }

    /// Reshapes without a copy.
    ///
    /// # Errors
    /// The errors of [`Tensor::reshape`]; `Incompatible` if the strides do not allow it.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let matrix = Tensor::from_vec(&[2, 3], vec![1_u8, 2, 3, 4, 5, 6])?;
    /// assert!(matrix.view(&[6])?.shares_storage(&matrix));
    /// assert!(matrix.transpose(0, 1)?.view(&[6]).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn view(&self, shape: &[usize]) -> Result<Self> {
        self.check_holds_same(shape)?;
        if let Some(strides) = self.strides_for(shape) {
            return Ok(Self { shape: shape.to_vec(), strides, ..self.clone() });
        }
        let detail = format!(
            "shape must be possible without a copy (reshape copies): got {shape:?} for shape {:?} with strides {:?}",
            self.shape, self.strides
        );
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    /// Reorders the dimensions: dimension `i` of the result is `order[i]` of this tensor. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `ShapeMismatch` if `order` does not name each dimension once.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let cube = Tensor::zeros(fulmar_core::Dtype::F32, &[2, 3, 4])?;
    /// assert_eq!(cube.permute(&[2, 0, 1])?.shape(), [4, 2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        for dim in order {
            self.dim_len(*dim)?;
        }
        if order.len() != self.rank() || (0..self.rank()).any(|dim| !order.contains(&dim)) {
            let detail = format!("order must name each of {} dimensions once: got {order:?}", self.rank());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut view = self.clone();
        view.shape = order.iter().map(|dim| self.shape[*dim]).collect();
        view.strides = order.iter().map(|dim| self.strides[*dim]).collect();
        Ok(view)
    }

    /// Removes dimension `dim` if its length is 1. Shares the storage.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension.
    pub fn squeeze(&self, dim: usize) -> Result<Self> {
        if self.dim_len(dim)? == 1 { self.select(dim, 0) } else { Ok(self.clone()) }
    }

    /// Broadcasts dimensions of length 1, and new leading ones, to `shape`. Shares the storage.
    ///
    /// # Errors
    /// `ShapeMismatch` if `shape` has fewer dimensions, or another length for a dimension that is not 1;
    /// `LimitExceeded` if it has too many dimensions, or the result repeats elements and has more than
    /// [`TENSOR_EXPANDED_MAX`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let row = Tensor::from_vec(&[2], vec![1_i32, 2])?;
    /// assert_eq!(row.expand(&[3, 2])?.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn expand(&self, shape: &[usize]) -> Result<Self> {
        let len = num_elements(shape)?;
        let added = shape.len().checked_sub(self.rank()).ok_or_else(|| not_expandable(&self.shape, shape))?;
        if len > self.num_elements().max(TENSOR_EXPANDED_MAX) {
            let detail =
                format!("an expanded tensor must show at most {TENSOR_EXPANDED_MAX} elements: got {len}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let mut strides = vec![0; added];
        for ((want, have), stride) in shape[added..].iter().zip(&self.shape).zip(&self.strides) {
            match (*want, *have) {
                (want, have) if want == have => strides.push(*stride),
                (_, 1) => strides.push(0),
                _ => return Err(not_expandable(&self.shape, shape)),
            }
        }
        Ok(Self { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// Tiles the tensor `counts[i]` times along dimension `i`. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if there is not one count for each dimension; `LimitExceeded` if the result has more than
    /// [`TENSOR_EXPANDED_MAX`] elements, or this has more than half as many dimensions as a tensor may have.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let row = Tensor::from_vec(&[2], vec![1_i32, 2])?;
    /// assert_eq!(row.repeat(&[2])?.to_vec::<i32>()?, [1, 2, 1, 2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn repeat(&self, counts: &[usize]) -> Result<Self> {
        if counts.len() != self.rank() {
            let detail = format!("counts must be one for each of {} dimensions: got {counts:?}", self.rank());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let beside = |left: &[usize], right: &[usize]| -> Vec<usize> {
            left.iter().zip(right).flat_map(|(left, right)| [*left, *right]).collect()
        };
        let spread = self.reshape(&beside(&vec![1; self.rank()], &self.shape))?;
        let repeated = spread.expand(&beside(counts, &self.shape))?;
        let shape: Vec<_> = counts.iter().zip(&self.shape).map(|(count, len)| count * len).collect();
        repeated.reshape(&shape)
    }

    fn check_holds_same(&self, shape: &[usize]) -> Result<()> {
        if num_elements(shape)? == self.num_elements() {
            return Ok(());
        }
        let detail =
            format!("shape must hold {} elements like {:?}: got {shape:?}", self.num_elements(), self.shape);
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }

    /// Returns strides over this storage that give `shape`, if there are any. `shape` has the same number of
    /// elements.
    fn strides_for(&self, shape: &[usize]) -> Option<Vec<usize>> {
        let mut strides = contiguous_strides(shape);
        let Some(&last) = self.strides.last().filter(|_| self.num_elements() > 0) else {
            return Some(strides);
        };
        // From the last dimension on, deals out one run of evenly spaced elements after another to the new
        // dimensions.
        let (mut spacing, mut stretch, mut dim) = (last, 1, shape.len());
        for at in (0..self.rank()).rev() {
            stretch *= self.shape[at];
            let goes_on = at > 0 && (self.shape[at - 1] == 1 || self.strides[at - 1] == stretch * spacing);
            if goes_on {
                continue;
            }
            let mut dealt = 1;
            while dim > 0 && (dealt < stretch || shape[dim - 1] == 1) {
                dim -= 1;
                strides[dim] = dealt * spacing;
                dealt *= shape[dim];
            }
            if dealt != stretch {
                return None;
            }
            if at > 0 {
                (spacing, stretch) = (self.strides[at - 1], 1);
            }
        }
        Some(strides)
    }
}

fn not_expandable(have: &[usize], want: &[usize]) -> Error {
    let detail = format!("shape must agree with {have:?} in all its lengths but those of 1: got {want:?}");
    Error::new(ErrorKind::ShapeMismatch, detail)
}
