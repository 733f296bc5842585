//! Tensors and dictionaries in another element type.

use fulmar_compute::dispatch;
use fulmar_core::{Dtype, Error, ErrorKind, Result};

use crate::element::{Element, with_element};
use crate::storage::reserved;
use crate::tensor::Tensor;
use crate::tensor_dict::TensorDict;

impl Tensor {
    /// Converts the elements to another dtype: floats round, integers drop the fraction, and a bool is `true`
    /// if the number is not 0. Copies unless the tensor already has the dtype. An `i64` past 2^53 first
    /// rounds to the nearest double.
    ///
    /// # Errors
    /// `OutOfRange` if an integer dtype cannot hold an element; `OutOfMemory` if the result does not fit in memory.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// let halves = fulmar_tensor::Tensor::from_vec(&[2], vec![1.5_f64, -2.5])?;
    /// assert_eq!(halves.to(Dtype::I32)?.to_vec::<i32>()?, [1, -2]);
    /// assert!(halves.to(Dtype::U8).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn to(&self, dtype: Dtype) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        dispatch!(self.compute(), cpu => with_element!(self.dtype(), T => {
            let numbers = self.to_vec::<T>()?.into_iter().map(<T as Element>::to_f64);
            with_element!(dtype, U => {
                let mut values = reserved(self.num_elements())?;
                for number in numbers {
                    values.push(cast::<U>(number)?);
                }
                Self::from_vec(self.shape(), values)
            })
        }))
    }
}

impl TensorDict {
    /// Converts every tensor, and the values of every ragged tensor, to another dtype, as [`Tensor::to`]
    /// does.
    ///
    /// # Errors
    /// The errors of [`Tensor::to`], with the key.
    pub fn to(&self, dtype: Dtype) -> Result<Self> {
        self.apply(&|tensor| tensor.to(dtype))
    }
}

fn cast<T: Element>(number: f64) -> Result<T> {
    let whole = match T::DTYPE {
        Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16 => number,
        Dtype::Bool => f64::from(u8::from(number != 0.0)),
        _ => number.trunc(),
    };
    <T as Element>::from_f64(whole).ok_or_else(|| {
        let detail = format!("an element must be a value of {}: got {number}", T::DTYPE.name());
        Error::new(ErrorKind::OutOfRange, detail)
    })
}
