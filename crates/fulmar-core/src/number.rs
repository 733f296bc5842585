//! Numbers that arrive as JavaScript's only number type.

use crate::{Error, ErrorKind, Result};

/// Largest integer that a double holds without gaps below it, `Number.MAX_SAFE_INTEGER`.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Converts `value` to an integer; errors call the argument `name`.
///
/// # Errors
/// `OutOfRange` if `value` is not a whole number between 0 and 2^53 - 1.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_core::integer_from_f64("seed", 7.0)?, 7);
/// let error = fulmar_core::integer_from_f64("seed", -1.5).unwrap_err();
/// assert_eq!(error.detail(), "seed must be an integer from 0 to 9007199254740991: got -1.5");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn integer_from_f64(name: &str, value: f64) -> Result<u64> {
    if (0.0..=SAFE_INTEGER_MAX).contains(&value) && value.fract() == 0.0 {
        return Ok(value as u64);
    }
    let detail = format!("{name} must be an integer from 0 to {SAFE_INTEGER_MAX}: got {value}");
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

/// Converts `value` to an index or a length.
///
/// # Errors
/// `OutOfRange` if `value` is not a whole number from 0 to the largest `usize`.
pub fn index_from_f64(name: &str, value: f64) -> Result<usize> {
    let integer = integer_from_f64(name, value)?;
    usize::try_from(integer).map_err(|_| {
        Error::new(ErrorKind::OutOfRange, format!("{name} must be at most {}: got {value}", usize::MAX))
    })
}

/// Converts `value` to a token id; a number past 32 bits becomes `u32::MAX`, which no vocabulary has.
///
/// # Errors
/// The errors of [`integer_from_f64`].
///
/// # Examples
/// ```
/// assert_eq!(fulmar_core::id_from_f64("id", 7.0)?, 7);
/// assert_eq!(fulmar_core::id_from_f64("id", 1e12)?, u32::MAX);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn id_from_f64(name: &str, value: f64) -> Result<u32> {
    Ok(u32::try_from(integer_from_f64(name, value)?).unwrap_or(u32::MAX))
}

/// Converts indices or the dimensions of a shape; the error names the first invalid one.
///
/// # Errors
/// The errors of [`index_from_f64`].
///
/// # Examples
/// ```
/// assert_eq!(fulmar_core::indices_from_f64("shape", &[2.0, 3.0])?, [2, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn indices_from_f64(name: &str, values: &[f64]) -> Result<Vec<usize>> {
    values.iter().map(|value| index_from_f64(name, *value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_safe_range_is_accepted_to_its_ends_and_nothing_beyond() {
        assert_eq!(integer_from_f64("n", SAFE_INTEGER_MAX).unwrap(), (1 << 53) - 1);
        assert_eq!(integer_from_f64("n", -0.0).unwrap(), 0);
        for refused in [SAFE_INTEGER_MAX + 1.0, -1.0, 0.5, f64::NAN, f64::INFINITY] {
            assert_eq!(integer_from_f64("n", refused).unwrap_err().kind(), ErrorKind::OutOfRange);
            assert_eq!(indices_from_f64("n", &[0.0, refused]).unwrap_err().kind(), ErrorKind::OutOfRange);
        }
    }
}
