//! The oracle of every backward pass: central differences of a plain double-precision forward pass.

use fulmar_core::Rng;

/// `len` normal floats from `seed`.
pub(crate) fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed).stream("test");
    (0..len).map(|_| rng.normal() as f32).collect()
}

pub(crate) fn widen(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// Asserts that `gradient` is the gradient of `loss` at `x`.
pub(crate) fn check_gradient(name: &str, x: &[f32], gradient: &[f32], loss: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    let mut x = widen(x);
    assert_eq!(x.len(), gradient.len());
    let scale = gradient.iter().fold(1e-3, |max: f64, g| max.max(f64::from(g.abs())));
    for index in 0..x.len() {
        let centre = x[index];
        x[index] = centre + STEP;
        let above = loss(&x);
        x[index] = centre - STEP;
        let below = loss(&x);
        x[index] = centre;
        let expected = (above - below) / (2.0 * STEP);
        let error = (f64::from(gradient[index]) - expected).abs() / scale;
        assert!(error < 2e-4, "{name}[{index}]: {} and {expected}", gradient[index]);
    }
}
