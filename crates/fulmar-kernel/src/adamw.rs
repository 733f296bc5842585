//! AdamW (Loshchilov and Hutter, <https://arxiv.org/abs/1711.05101>), in the order of operations of PyTorch.
//!
//! ```text
//! w -= lr decay w
//! m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
//! w -= (lr / (1 - b1^t)) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
//! ```

use crate::lanes::{dot, lanes};
use crate::parallel::{for_rows2, map_tasks};

/// The scalars of one step; [`AdamwStep::at`] computes the bias corrections.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamwStep {
    /// The learning rate.
    pub learning_rate: f32,
    /// Weight decay, as a share of the learning rate.
    pub decay: f32,
    /// Factor of the old first moment.
    pub beta1: f32,
    /// Factor of the old second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// The learning rate divided by the correction of the first moment.
    pub step_size: f32,
    /// Factor of the root of the second moment: one over the root of its correction.
    pub inv_sqrt_correction2: f32,
    /// Factor of the gradients (the clipping coefficient), applied first.
    pub gradient_scale: f32,
}

impl AdamwStep {
    /// Returns the scalars of step number `step` (counted from 1). Gradients are multiplied by `gradient_scale` first
    /// (the clipping coefficient).
    #[must_use]
    pub fn at(
        step: u64,
        learning_rate: f64,
        (beta1, beta2): (f64, f64),
        eps: f64,
        decay: f64,
        gradient_scale: f64,
    ) -> Self {
        let correction1 = 1.0 - libm::pow(beta1, step as f64);
        let correction2 = 1.0 - libm::pow(beta2, step as f64);
        Self {
            learning_rate: learning_rate as f32,
            decay: decay as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: eps as f32,
            step_size: (learning_rate / correction1) as f32,
            inv_sqrt_correction2: (1.0 / libm::sqrt(correction2)) as f32,
            gradient_scale: gradient_scale as f32,
        }
    }
}

/// Updates `weights` and the two moments in place from `gradients`.
///
/// # Panics
/// If the lengths disagree.
///
/// # Examples
/// ```
/// use fulmar_kernel::{AdamwStep, adamw_step};
/// let (mut weights, mut moment1, mut moment2) = ([1.0], [0.0], [0.0]);
/// let step = AdamwStep::at(1, 0.1, (0.9, 0.999), 1e-8, 0.0, 1.0);
/// adamw_step(step, &mut weights, &[2.0], &mut moment1, &mut moment2);
/// assert!((weights[0] - 0.9_f32).abs() < 1e-6);
/// ```
pub fn adamw_step(
    step: AdamwStep,
    weights: &mut [f32],
    gradients: &[f32],
    moment1: &mut [f32],
    moment2: &mut [f32],
) {
    assert!(weights.len() == gradients.len() && weights.len() == moment2.len(), "lengths must agree");
    assert_eq!(weights.len(), moment1.len(), "lengths must agree");
    for_rows2(moment1, moment2, (1, 1), |first, moment1, moment2| {
        update_moments(step, &gradients[first..], moment1, moment2);
    });
    let (moment1, moment2) = (&*moment1, &*moment2);
    crate::parallel::for_rows(weights, 1, |first, weights| {
        update_weights(step, weights, &moment1[first..], &moment2[first..]);
    });
}

/// Returns the sum of the squares of `x`, in double precision over blocks of fixed size.
#[must_use]
pub fn sum_of_squares(x: &[f32]) -> f64 {
    const BLOCK: usize = 4096;
    map_tasks(x.len().div_ceil(BLOCK), |task| {
        f64::from(square_sum(&x[task * BLOCK..((task + 1) * BLOCK).min(x.len())]))
    })
    .iter()
    .sum()
}

lanes! {
    fn square_sum(x: &[f32]) -> f32 {
        dot(x, x)
    }
}

lanes! {
    fn update_moments(step: AdamwStep, gradients: &[f32], moment1: &mut [f32], moment2: &mut [f32]) {
        for ((m, v), g) in moment1.iter_mut().zip(moment2).zip(gradients) {
            let g = g * step.gradient_scale;
            *m += (g - *m) * (1.0 - step.beta1);
            *v = *v * step.beta2 + g * g * (1.0 - step.beta2);
        }
    }
}

lanes! {
    fn update_weights(step: AdamwStep, weights: &mut [f32], moment1: &[f32], moment2: &[f32]) {
        for ((w, m), v) in weights.iter_mut().zip(moment1).zip(moment2) {
            let decayed = *w - step.learning_rate * step.decay * *w;
            *w = decayed - step.step_size * m / (v.sqrt() * step.inv_sqrt_correction2 + step.eps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    #[test]
    fn five_steps_equal_the_formula_in_double_precision() {
        let mut weights = random(1, 40_000);
        let (mut w, mut m, mut v) =
            (crate::finite_difference::widen(&weights), vec![0.0; 40_000], vec![0.0; 40_000]);
        let (mut moment1, mut moment2) = (vec![0.0; weights.len()], vec![0.0; weights.len()]);
        let (lr, beta1, beta2, eps, decay) = (1e-2_f64, 0.9_f64, 0.99_f64, 1e-8, 0.1);
        for t in 1..=5 {
            let g = random(10 + t, weights.len());
            let step = AdamwStep::at(t, lr, (beta1, beta2), eps, decay, 0.5);
            adamw_step(step, &mut weights, &g, &mut moment1, &mut moment2);
            for i in 0..w.len() {
                let g = f64::from(g[i]) * 0.5;
                w[i] -= lr * decay * w[i];
                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                let denominator = f64::sqrt(v[i]) / (1.0 - beta2.powi(t as i32)).sqrt() + eps;
                w[i] -= lr / (1.0 - beta1.powi(t as i32)) * m[i] / denominator;
            }
        }
        let worst = weights.iter().zip(&w).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-5, "largest difference {worst}");
    }

    #[test]
    fn the_sum_of_squares_equals_double_precision() {
        let x = random(3, 10_001);
        let exact: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        assert!((sum_of_squares(&x) - exact).abs() / exact < 1e-6);
    }
}
