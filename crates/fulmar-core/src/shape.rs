//! Number of elements of a shape, without overflow.

use crate::limits::TENSOR_RANK_MAX;
use crate::{Error, ErrorKind, Result};

/// Returns the number of elements of `shape`; 1 for a scalar (`[]`).
///
/// # Errors
/// `LimitExceeded` if there are more than [`TENSOR_RANK_MAX`] dimensions, or if the product of their lengths,
/// zeros left out, does not fit an `isize`.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_core::num_elements(&[2, 3])?, 6);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn num_elements(shape: &[usize]) -> Result<usize> {
    if shape.len() > TENSOR_RANK_MAX {
        let detail = format!("shape must have at most {TENSOR_RANK_MAX} dimensions: got {}", shape.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    // Zeros are left out of the bounded product, so every part of a valid shape is countable too.
    let beside_zeros = shape.iter().try_fold(1_usize, |count, &dim| count.checked_mul(dim.max(1)));
    match beside_zeros.filter(|count| isize::try_from(*count).is_ok()) {
        Some(count) => Ok(if shape.contains(&0) { 0 } else { count }),
        None => {
            let detail = format!("shape must hold a countable number of elements: got {shape:?}");
            Err(Error::new(ErrorKind::LimitExceeded, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_product_are_bounded() {
        assert_eq!(num_elements(&[1; TENSOR_RANK_MAX]), Ok(1));
        assert_eq!(num_elements(&[1; TENSOR_RANK_MAX + 1]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[usize::MAX, 2]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[0, usize::MAX, 2]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[usize::MAX, 2, 0]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[isize::MAX as usize, 0]), Ok(0));
    }
}
