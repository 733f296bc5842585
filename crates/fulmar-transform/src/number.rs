//! Arithmetic on elements of any dtype, in doubles.

use fulmar_core::limits::TRANSFORM_ELEMENTS_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Key, Tensor, TensorDict};

/// Applies `to` to every element, rounded to the dtype of `tensor`.
pub(crate) fn mapped(tensor: &Tensor, to: impl Fn(f64) -> f64) -> Result<Tensor> {
    let values = doubles(tensor)?.into_iter().map(to).collect();
    Tensor::from_vec::<f64>(tensor.shape(), values)?.to(tensor.dtype())
}

pub(crate) fn doubles(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to(Dtype::F64)?.to_vec()
}

/// Applies `to` to the tensor at each of `in_keys`, and stores it at the corresponding `out_keys`, or in
/// place if it is empty.
pub(crate) fn replaced(
    mut dict: TensorDict,
    in_keys: &[Key],
    out_keys: &[Key],
    to: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<TensorDict> {
    let out_keys = if out_keys.is_empty() { in_keys } else { out_keys };
    for (from, into) in in_keys.iter().zip(out_keys) {
        let result = to(dict.tensor(from.clone())?).map_err(|error| error.at(from))?;
        dict.set(into.clone(), result)?;
    }
    Ok(dict)
}

/// Checks that there are as many output as input keys, or none.
pub(crate) fn check_out_keys(in_keys: &[Key], out_keys: &[Key]) -> Result<()> {
    if out_keys.is_empty() || out_keys.len() == in_keys.len() {
        return Ok(());
    }
    let detail = format!("outKeys must be {}, as many as inKeys: got {}", in_keys.len(), out_keys.len());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

/// Checks that a tensor of `shape` may be made.
pub(crate) fn check_size(shape: &[usize]) -> Result<usize> {
    let len = num_elements(shape)?;
    if len > TRANSFORM_ELEMENTS_MAX {
        let detail = format!("a result must have at most {TRANSFORM_ELEMENTS_MAX} elements: got {shape:?}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(len)
}

/// Returns the dimension `dim`, from the last if negative; it must be after the `batch` dimensions.
pub(crate) fn feature_dim(tensor: &Tensor, dim: isize, batch: usize) -> Result<usize> {
    let rank = tensor.rank() as isize;
    let at = if dim < 0 { dim + rank } else { dim };
    if at < batch as isize || at >= rank {
        let detail = format!(
            "dim must be a dimension of {:?} after the {batch} batch dimensions: got {dim}",
            tensor.shape()
        );
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    Ok(at as usize)
}

pub(crate) fn finite(name: &str, value: f64) -> Result<()> {
    if value.is_finite() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NonFinite, format!("{name} must be finite: got {value}")))
}

/// Checks that a discount is in `(0, 1]`.
pub(crate) fn check_gamma(name: &str, gamma: f64) -> Result<()> {
    if gamma > 0.0 && gamma <= 1.0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be > 0 and <= 1: got {gamma}")))
}

pub(crate) fn at_least_1(name: &str, value: usize) -> Result<()> {
    if value > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be >= 1: got 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_more_elements_than_the_limit_is_refused_before_it_is_made() {
        assert_eq!(check_size(&[TRANSFORM_ELEMENTS_MAX]).unwrap(), TRANSFORM_ELEMENTS_MAX);
        let error = check_size(&[1, TRANSFORM_ELEMENTS_MAX + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
