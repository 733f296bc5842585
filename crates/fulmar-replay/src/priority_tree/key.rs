//! Keys: a leaf's bits and one, 0 for a leaf that is unset, so that keys are ordered as their leaves.

use fulmar_core::{Error, ErrorKind, Result};

/// Returns the leaf of `key`; `None` if unset.
pub fn leaf_of(key: u32) -> Option<f32> {
    Some(f32::from_bits(key.checked_sub(1)?))
}

/// Returns the key of a leaf.
///
/// # Errors
/// `NonFinite` or `OutOfRange` for a leaf that is not a finite number >= 0.
pub fn key_of(leaf: f32) -> Result<u32> {
    if !leaf.is_finite() {
        return Err(Error::new(
            ErrorKind::NonFinite,
            format!("priority must be a finite number: got {leaf}"),
        ));
    }
    if leaf.is_sign_negative() && leaf != 0.0 {
        return Err(Error::new(ErrorKind::OutOfRange, format!("priority must be >= 0: got {leaf}")));
    }
    Ok(key_at(leaf))
}

/// Returns the key of a valid leaf.
pub fn key_at(leaf: f32) -> u32 {
    leaf.abs().to_bits() + 1 // -0 counts as 0
}

/// Returns the smallest power of two above the leaf of `key`.
pub fn top_of(key: u32) -> i32 {
    // Subnormal leaves count as the smallest normal number.
    (key.saturating_sub(1) >> 23) as i32 - 126
}

/// Returns two to the power of `exponent`.
pub fn power_of_two(exponent: i32) -> f64 {
    libm::ldexp(1.0, exponent)
}
