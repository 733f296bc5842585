//! Binary digits to whole numbers.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::Tensor;
use serde::Deserialize;

/// Most digits of one number: a sum of them fits 64 bits.
const BITS_MAX: usize = 62;

/// Options of [`BinaryToDecimal`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BinaryToDecimalOptions {
    /// Digits of one number, from 1 to 62.
    pub num_bits: usize,
    /// True: a feature above 0 is the digit 1, any other 0. Without it features are truncated to whole numbers.
    #[serde(default)]
    pub convert_to_binary: bool,
}

/// Reads each `num_bits` features of a row, the highest digit first, as a number, and adds the numbers of a row.
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// use fulmar_tree::{BinaryToDecimal, BinaryToDecimalOptions};
/// let read = BinaryToDecimal::new(BinaryToDecimalOptions { num_bits: 4, convert_to_binary: false })?;
/// let digits = Tensor::from_vec(&[8], vec![0_i64, 0, 1, 0, 0, 0, 0, 1])?;
/// assert_eq!(read.forward(&digits)?.to_vec::<i64>()?, [2 + 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BinaryToDecimal {
    options: BinaryToDecimalOptions,
}

impl BinaryToDecimal {
    /// Makes one.
    ///
    /// # Errors
    /// `OutOfRange` if `num_bits` is not from 1 to 62.
    pub fn new(options: BinaryToDecimalOptions) -> Result<Self> {
        if !(1..=BITS_MAX).contains(&options.num_bits) {
            let detail = format!("num_bits must be from 1 to {BITS_MAX}: got {}", options.num_bits);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self { options })
    }

    /// Returns one `i64` for each row of `features` `[.., F]`: `[N]`, where N is the product of the dimensions before the last, and
    /// `[1]` for one row. Sums wrap at 64 bits.
    ///
    /// # Errors
    /// `ShapeMismatch` if F is not a multiple of `num_bits`, or 0; `NonFinite` for a feature that is NaN or infinite.
    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        let num_bits = self.options.num_bits;
        let num_features = features.shape().last().copied().unwrap_or(0);
        if num_features == 0 || !num_features.is_multiple_of(num_bits) {
            let detail =
                format!("the number of features must be a multiple of {num_bits}: got {num_features}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let digits = self.digits(features)?;
        let numbers: Vec<i64> = digits
            .chunks_exact(num_features)
            .map(|row| row.chunks_exact(num_bits).map(number).fold(0, i64::wrapping_add))
            .collect();
        Tensor::from_vec(&[numbers.len()], numbers)
    }

    fn digits(&self, features: &Tensor) -> Result<Vec<i64>> {
        if features.dtype() == Dtype::I64 && !self.options.convert_to_binary {
            return features.to_vec::<i64>();
        }
        let numbers = features.to(Dtype::F64)?.to_vec::<f64>()?;
        if let Some(wrong) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(Error::new(ErrorKind::NonFinite, format!("features must be finite: got {wrong}")));
        }
        let digit = |number: f64| {
            if self.options.convert_to_binary { i64::from(number > 0.0) } else { number as i64 }
        };
        Ok(numbers.into_iter().map(digit).collect())
    }
}

fn number(digits: &[i64]) -> i64 {
    digits.iter().fold(0_i64, |sum, digit| sum.wrapping_mul(2).wrapping_add(*digit))
}
