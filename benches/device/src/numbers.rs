//! Inputs of the checks, each a function of its name and shape.

use fulmar_core::Rng;

/// Returns `len` numbers between `-scale` and `scale`.
pub fn random(name: &str, len: usize, scale: f32) -> Vec<f32> {
    let mut rng = Rng::new(22).stream(name).fork(len as u64);
    (0..len).map(|_| (rng.uniform_f32() * 2.0 - 1.0) * scale).collect()
}
