//! The float types of inputs and gradients. All sums run in f64; only the first and the last step use the
//! narrow type.

use fulmar_compute::cpu::{exp, lanes};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32`, or `f64` to check a gradient by finite differences.
pub trait Real: Copy + Into<f64> + Send + Sync + sealed::Sealed {
    /// Returns the nearest value of this type.
    fn narrow(value: f64) -> Self;

    /// Writes `e^(a - b)` of each pair.
    fn ratios(a: &[Self], b: &[Self], ratios: &mut [Self]);
}

impl Real for f32 {
    fn narrow(value: f64) -> Self {
        value as Self
    }

    fn ratios(a: &[Self], b: &[Self], ratios: &mut [Self]) {
        ratios_f32(a, b, ratios);
    }
}

impl Real for f64 {
    fn narrow(value: f64) -> Self {
        value
    }

    fn ratios(a: &[Self], b: &[Self], ratios: &mut [Self]) {
        for ((a, b), ratio) in a.iter().zip(b).zip(ratios) {
            *ratio = libm::exp(a - b);
        }
    }
}

lanes! {
    fn ratios_f32(a: &[f32], b: &[f32], ratios: &mut [f32]) {
        for ((a, b), ratio) in a.iter().zip(b).zip(ratios) {
            *ratio = exp(a - b);
        }
    }
}

lanes! {
    pub(crate) fn are_finite<T: Real>(values: &[T]) -> bool {
        // Without an early exit the loop vectorises.
        values.iter().fold(0, |bad, value| bad | u32::from(!(*value).into().is_finite())) == 0
    }
}
