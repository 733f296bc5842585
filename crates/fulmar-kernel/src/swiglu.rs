//! The gated feed-forward activation SwiGLU (Shazeer, <https://arxiv.org/abs/2002.05202>).
//!
//! ```text
//! y = silu(g) u,  silu(g) = g / (1 + e^-g)
//! dg = dy u sigma(g) (1 + g (1 - sigma(g)))      du = dy silu(g)
//! ```

use crate::lanes::{exp, lanes};
use crate::parallel::{for_rows, for_rows2};

/// Writes `silu(gate) * up` to `out`, element by element.
///
/// # Panics
/// If the lengths disagree.
///
/// # Examples
/// ```
/// let mut out = [0.0];
/// fulmar_kernel::swiglu(&[0.0], &[5.0], &mut out);
/// assert_eq!(out, [0.0]);
/// ```
pub fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == out.len() && up.len() == out.len(), "lengths must agree");
    for_rows(out, 1, |first, out| forward(&gate[first..][..out.len()], &up[first..][..out.len()], out));
}

/// Overwrites `gate` and `up` with their gradients, given the gradient of the output.
///
/// # Panics
/// If the lengths disagree.
pub fn swiglu_backward(gate: &mut [f32], up: &mut [f32], d_out: &[f32]) {
    assert!(gate.len() == d_out.len() && up.len() == d_out.len(), "lengths must agree");
    for_rows2(gate, up, (1, 1), |first, gate, up| backward(gate, up, &d_out[first..]));
}

lanes! {
    fn forward(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

lanes! {
    fn backward(gate: &mut [f32], up: &mut [f32], d_out: &[f32]) {
        for ((gate, up), d_out) in gate.iter_mut().zip(up).zip(d_out) {
            let sigma = 1.0 / (1.0 + exp(-*gate));
            let silu = *gate * sigma;
            *gate = d_out * *up * (sigma * (1.0 + *gate * (1.0 - sigma)));
            *up = d_out * silu;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    #[test]
    fn both_gradients_equal_finite_differences() {
        let (gate, up, d_out) = (random(1, 30), random(2, 30), random(3, 30));
        let (mut d_gate, mut d_up) = (gate.clone(), up.clone());
        swiglu_backward(&mut d_gate, &mut d_up, &d_out);
        let (gate64, up64, d64) = (widen(&gate), widen(&up), widen(&d_out));
        let loss = |gate: &[f64], up: &[f64]| -> f64 {
            (0..gate.len()).map(|i| gate[i] / (1.0 + (-gate[i]).exp()) * up[i] * d64[i]).sum()
        };
        check_gradient("gate", &gate, &d_gate, |gate| loss(gate, &up64));
        check_gradient("up", &up, &d_up, |up| loss(&gate64, up));
        let mut out = vec![0.0; 30];
        swiglu(&gate, &up, &mut out);
        let forward: f64 = out.iter().zip(&d64).map(|(y, d)| f64::from(*y) * d).sum();
        assert!((forward - loss(&gate64, &up64)).abs() < 1e-4);
    }

    #[test]
    fn extreme_gates_stay_finite() {
        let (mut gate, mut up) = (vec![-200.0, 200.0], vec![1.0, 1.0]);
        let mut out = [0.0; 2];
        swiglu(&gate, &up, &mut out);
        swiglu_backward(&mut gate, &mut up, &[1.0, 1.0]);
        assert!(out.iter().chain(&gate).chain(&up).all(|x| x.is_finite()));
    }
}
