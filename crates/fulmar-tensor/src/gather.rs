//! New tensors made from parts of others: selected rows, stacks, concatenations and padding. All of these
//! copy.

use fulmar_compute::dispatch;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};

use crate::device::compute_of;
use crate::element::{Element, with_element};
use crate::index::Index;
use crate::storage::reserved;
use crate::tensor::Tensor;

impl Tensor {
    /// Returns the parts at `indices` of dimension `dim`, in that order; an index may come twice. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or index.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let rows = Tensor::from_vec(&[3, 2], vec![1_i32, 2, 3, 4, 5, 6])?;
    /// assert_eq!(rows.index_select(0, &[2, 0, 2])?.to_vec::<i32>()?, [5, 6, 1, 2, 5, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn index_select(&self, dim: usize, indices: &[usize]) -> Result<Self> {
        let len = self.dim_len(dim)?;
        if let Some(index) = indices.iter().find(|index| **index >= len) {
            let detail = format!("index must be < {len}, the length of dimension {dim}: got {index}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut shape = self.shape.clone();
        shape[dim] = indices.len();
        let (outer, inner) = around(&self.shape, dim);
        with_element!(self.dtype, T => {
            let dense = self.dense()?;
            let elements = dense.as_slice::<T>()?;
            let mut values = self.compute().zeros::<T>(outer * indices.len() * inner)?;
            let to = values.cpu_mut().chunks_exact_mut((indices.len() * inner).max(1));
            for (from, to) in elements.chunks_exact((len * inner).max(1)).zip(to) {
                self.compute().gather(from, inner, indices, to);
            }
            Self::held(values, &shape)
        })
    }

    /// Joins `parts` along a new dimension `dim`. Copies.
    ///
    /// # Errors
    /// `Empty` without parts; `ShapeMismatch` or `Incompatible` if they differ in shape or dtype;
    /// `OutOfRange` if `dim` is greater than the rank; `LimitExceeded` if the result has too many dimensions.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let (left, right) = (Tensor::from_slice(&[2], &[1_u8, 2])?, Tensor::from_slice(&[2], &[3_u8, 4])?);
    /// assert_eq!(Tensor::stack(&[left, right], 1)?.to_vec::<u8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn stack(parts: &[Self], dim: usize) -> Result<Self> {
        if let Some(first) = parts.first()
            && let Some(other) = parts.iter().find(|part| part.shape != first.shape)
        {
            return Err(mismatch("parts must have one shape", first, other));
        }
        let parts = parts.iter().map(|part| part.unsqueeze(dim)).collect::<Result<Vec<_>>>()?;
        Self::cat(&parts, dim)
    }

    /// Joins `parts` along their dimension `dim`; the other dimensions must agree. Copies.
    ///
    /// # Errors
    /// `Empty` without parts; `ShapeMismatch` or `Incompatible` if they differ in another dimension, or in dtype or device; `OutOfRange` if there
    /// is no such dimension.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let (left, right) = (Tensor::from_slice(&[1], &[1_u8])?, Tensor::from_slice(&[2], &[2_u8, 3])?);
    /// assert_eq!(Tensor::cat(&[left, right], 0)?.to_vec::<u8>()?, [1, 2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn cat(parts: &[Self], dim: usize) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(Error::new(ErrorKind::Empty, "parts must hold at least one tensor: got 0"));
        };
        first.dim_len(dim)?;
        for part in parts {
            check_joinable(first, part, dim)?;
        }
        dispatch!(compute_of(parts)?, cpu => with_element!(first.dtype, T => cat_elements::<T>(parts, dim)))
    }

    /// Pads dimension `i` with `around[i]` elements of `value` before and after. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if `around` is longer than the rank; `OutOfRange` if no element of the dtype equals `value` (floats round it,
    /// every number but 0 is `true`); `OutOfMemory` if the result does not fit in memory.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::Tensor;
    /// let row = Tensor::from_vec(&[2], vec![1_i32, 2])?;
    /// assert_eq!(row.pad(&[(1, 2)], -1.0)?.to_vec::<i32>()?, [-1, 1, 2, -1, -1]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn pad(&self, around: &[(usize, usize)], value: f64) -> Result<Self> {
        if around.len() > self.rank() {
            let detail =
                format!("padding must be for at most {} dimensions: got {}", self.rank(), around.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut shape = self.shape.clone();
        let mut inner: Vec<Index> = Vec::with_capacity(around.len());
        for (dim, (before, after)) in around.iter().enumerate() {
            let len =
                before.checked_add(shape[dim]).and_then(|len| len.checked_add(*after)).ok_or_else(|| {
                    Error::new(
                        ErrorKind::OutOfMemory,
                        format!("padding must fit in memory: got {before} and {after}"),
                    )
                })?;
            inner.push((*before as i64..(*before + shape[dim]) as i64).into());
            shape[dim] = len;
        }
        let mut padded = Self::zeros(self.dtype, &shape)?.to_device(self.device())?;
        padded.set_at(&[], &self.like_scalar(value)?)?;
        padded.set_at(&inner, self)?;
        Ok(padded)
    }

    /// Returns [`Tensor::scalar`] with the dtype and device of this tensor.
    pub(crate) fn like_scalar(&self, value: f64) -> Result<Self> {
        Self::scalar(self.dtype, value)?.to_device(self.device())
    }

    /// Returns `value` as a tensor without dimensions; as a bool, `true` if it is not 0.
    ///
    /// # Errors
    /// `OutOfRange` if no element of `dtype` equals `value`; floats round it.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_tensor::Tensor;
    /// assert_eq!(Tensor::scalar(Dtype::U8, 7.0)?.to_vec::<u8>()?, [7]);
    /// assert!(Tensor::scalar(Dtype::U8, -1.0).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn scalar(dtype: Dtype, value: f64) -> Result<Self> {
        let exact = if dtype == Dtype::Bool { f64::from(u8::from(value != 0.0)) } else { value };
        with_element!(dtype, T => match <T as Element>::from_f64(exact) {
            Some(element) => Self::from_vec(&[], vec![element]),
            None => {
                let detail = format!("value must be a value of {}: got {value}", dtype.name());
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
        })
    }
}

fn cat_elements<T: Element>(parts: &[Tensor], dim: usize) -> Result<Tensor> {
    let mut shape = parts[0].shape.clone();
    shape[dim] = parts.iter().map(|part| part.shape[dim]).sum();
    // Return early: a long dimension before an empty one would otherwise be iterated.
    if num_elements(&shape)? == 0 {
        return Tensor::from_vec::<T>(&shape, Vec::new());
    }
    let (outer, inner) = around(&shape, dim);
    let dense = parts.iter().map(Tensor::dense).collect::<Result<Vec<_>>>()?;
    let mut values = reserved(outer * shape[dim] * inner)?;
    for block in 0..outer {
        for part in &dense {
            let block_len = part.shape[dim] * inner;
            values.extend_from_slice(&part.as_slice::<T>()?[block * block_len..][..block_len]);
        }
    }
    Tensor::from_vec(&shape, values)
}

/// Returns the number of elements before and after dimension `dim`.
fn around(shape: &[usize], dim: usize) -> (usize, usize) {
    (shape[..dim].iter().product(), shape[dim + 1..].iter().product())
}

fn check_joinable(first: &Tensor, part: &Tensor, dim: usize) -> Result<()> {
    if first.dtype != part.dtype {
        let detail =
            format!("parts must have one dtype: got {} and {}", first.dtype.name(), part.dtype.name());
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let same = |(index, (left, right)): (usize, (&usize, &usize))| index == dim || left == right;
    if first.rank() == part.rank() && first.shape.iter().zip(&part.shape).enumerate().all(same) {
        return Ok(());
    }
    Err(mismatch(&format!("parts must agree in all dimensions but {dim}"), first, part))
}

fn mismatch(rule: &str, first: &Tensor, other: &Tensor) -> Error {
    Error::new(ErrorKind::ShapeMismatch, format!("{rule}: got {:?} and {:?}", first.shape, other.shape))
}
