//! Shapes: how many elements they hold, without overflow.

use crate::limits::TENSOR_RANK_MAX;
use crate::{Error, ErrorKind, Result};

/// The number of elements of `shape`; 1 for a scalar (`[]`).
///
/// # Errors
/// `LimitExceeded` if there are more than [`TENSOR_RANK_MAX`] dimensions or the product does not fit a `usize`.
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
    shape.iter().try_fold(1_usize, |count, &dim| count.checked_mul(dim)).ok_or_else(|| {
        Error::new(
            ErrorKind::LimitExceeded,
            format!("shape must hold a countable number of elements: got {shape:?}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_product_are_bounded() {
        assert_eq!(num_elements(&[1; TENSOR_RANK_MAX]), Ok(1));
        assert_eq!(num_elements(&[1; TENSOR_RANK_MAX + 1]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[usize::MAX, 2]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(num_elements(&[usize::MAX, 2, 0]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
