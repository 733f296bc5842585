//! The float types of inputs and gradients. All sums run in f64; only the first and the last step are narrow.

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32`, or `f64` for those who check a gradient by finite differences.
pub trait Real: Copy + Into<f64> + sealed::Sealed {
    /// The nearest value of this type.
    fn narrow(value: f64) -> Self;
}

impl Real for f32 {
    fn narrow(value: f64) -> Self {
        value as Self
    }
}

impl Real for f64 {
    fn narrow(value: f64) -> Self {
        value
    }
}
