//! Sums of tensors, over all elements or along one dimension.

use fulmar_compute::dispatch;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};

use crate::tensor::Tensor;

impl Tensor {
    /// Returns the sum of all elements as a scalar. Integers and bools add up to `i64`; floats are summed in
    /// double precision and returned in their dtype.
    ///
    /// # Errors
    /// `OutOfRange` if the sum of integers exceeds an `i64`.
    ///
    /// # Examples
    /// ```
    /// let counts = fulmar_tensor::Tensor::from_vec(&[2, 2], vec![1_u8, 2, 3, 250])?;
    /// assert_eq!(counts.sum()?.as_slice::<i64>()?, [256]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn sum(&self) -> Result<Self> {
        self.reshape(&[self.num_elements()])?.sum_dim(0)
    }

    /// Returns the sums along dimension `dim`, which is removed; dtypes as in [`Tensor::sum`].
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension, or as in [`Tensor::sum`]; `OutOfMemory` if the result does not fit in memory.
    ///
    /// # Examples
    /// ```
    /// let rows = fulmar_tensor::Tensor::from_vec(&[2, 2], vec![1_i32, 2, 3, 4])?;
    /// assert_eq!(rows.sum_dim(0)?.as_slice::<i64>()?, [4, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn sum_dim(&self, dim: usize) -> Result<Self> {
        dispatch!(self.compute(), cpu => self.sum_dim_on_cpu(dim))
    }

    fn sum_dim_on_cpu(&self, dim: usize) -> Result<Self> {
        let len = self.dim_len(dim)?;
        let shape = [&self.shape[..dim], &self.shape[dim + 1..]].concat();
        let inner: usize = self.shape[dim + 1..].iter().product();
        // The positions of the elements of each sum, `inner` apart.
        let places = (0..num_elements(&shape)?).map(|place| {
            let start = place / inner * len * inner + place % inner;
            (0..len).map(move |at| start + at * inner)
        });
        match self.dtype {
            Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
                let elements = self.to(Dtype::F64)?.to_vec::<f64>()?;
                // Start from 0, as the standard library's sum of nothing is -0.
                let sums = places.map(|place| place.fold(0.0, |sum, at| sum + elements[at])).collect();
                Self::from_vec::<f64>(&shape, sums)?.to(self.dtype)
            }
            _ => {
                let elements = self.to(Dtype::I64)?.to_vec::<i64>()?;
                let sums = places.map(|mut place| {
                    place.try_fold(0_i64, |sum, at| sum.checked_add(elements[at])).ok_or_else(too_large)
                });
                Self::from_vec(&shape, sums.collect::<Result<Vec<_>>>()?)
            }
        }
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::OutOfRange, "a sum must fit an i64: got a larger one")
}
