//! The float types of inputs and gradients. All sums run in f64; only the first and the last step are narrow.

use fulmar_compute::cpu::{exp, lanes};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32`, or `f64` for those who check a gradient by finite differences.
pub trait Real: Copy + Into<f64> + sealed::Sealed {
    /// The nearest value of this type.
    fn narrow(value: f64) -> Self;

    /// `e^(a - b)` of each pair, in the precision of this type.
    fn ratios(a: &[Self], b: &[Self]) -> Vec<f64>;
}

impl Real for f32 {
    fn narrow(value: f64) -> Self {
        value as Self
    }

    fn ratios(a: &[Self], b: &[Self]) -> Vec<f64> {
        let mut ratios = vec![0.0; a.len()];
        ratios_f32(a, b, &mut ratios);
        ratios
    }
}

impl Real for f64 {
    fn narrow(value: f64) -> Self {
        value
    }

    fn ratios(a: &[Self], b: &[Self]) -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| libm::exp(a - b)).collect()
    }
}

lanes! {
    fn ratios_f32(a: &[f32], b: &[f32], ratios: &mut [f64]) {
        for ((a, b), ratio) in a.iter().zip(b).zip(ratios) {
            *ratio = f64::from(exp(a - b));
        }
    }
}
