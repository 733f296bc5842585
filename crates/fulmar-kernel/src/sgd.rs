//! Stochastic gradient descent with momentum (Polyak) or Nesterov's (<https://proceedings.mlr.press/v28/sutskever13.html>), in the
//! order of operations of PyTorch.
//!
//! ```text
//! g += decay w
//! b = momentum b + (1 - dampening) g      (b = g in the first step)
//! w -= lr (g + momentum b)                with Nesterov; lr b without; lr g without momentum
//! ```

use crate::lanes::lanes;
use crate::parallel::{for_rows, for_rows2};

/// The scalars of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// The learning rate.
    pub learning_rate: f32,
    /// Factor of the old momentum buffer.
    pub momentum: f32,
    /// Reduces the gradient's share in the buffer: its factor is `1 - dampening`.
    pub dampening: f32,
    /// If true, the step uses Nesterov's look-ahead.
    pub nesterov: bool,
    /// Weight decay: this factor times the weights is added to the gradient.
    pub decay: f32,
    /// Factor of the gradients (the clipping coefficient), applied first.
    pub gradient_scale: f32,
    /// If true, the buffer is still empty, and the gradient initialises it.
    pub first: bool,
}

/// Updates `weights` in place from `gradients`, and the momentum `buffer`, which has the same length, or is
/// empty without momentum.
///
/// # Panics
/// If the lengths disagree.
///
/// # Examples
/// ```
/// use fulmar_kernel::{SgdStep, sgd_step};
/// let (mut weights, mut buffer) = ([1.0], [0.0]);
/// let step = SgdStep {
///     learning_rate: 0.5, momentum: 0.5, dampening: 0.0, nesterov: true, decay: 0.0, gradient_scale: 1.0, first: true,
/// };
/// sgd_step(step, &mut weights, &[1.0], &mut buffer);
/// assert_eq!((weights, buffer), ([0.25], [1.0]));
/// ```
pub fn sgd_step(step: SgdStep, weights: &mut [f32], gradients: &[f32], buffer: &mut [f32]) {
    assert_eq!(weights.len(), gradients.len(), "lengths must agree");
    if buffer.is_empty() {
        for_rows(weights, 1, |first, weights| update_plain(step, weights, &gradients[first..]));
        return;
    }
    assert_eq!(weights.len(), buffer.len(), "lengths must agree");
    for_rows2(weights, buffer, (1, 1), |first, weights, buffer| {
        update_with_momentum(step, weights, &gradients[first..], buffer);
    });
}

lanes! {
    fn update_plain(step: SgdStep, weights: &mut [f32], gradients: &[f32]) {
        for (w, g) in weights.iter_mut().zip(gradients) {
            *w -= step.learning_rate * (g * step.gradient_scale + step.decay * *w);
        }
    }
}

lanes! {
    fn update_with_momentum(step: SgdStep, weights: &mut [f32], gradients: &[f32], buffer: &mut [f32]) {
        let (keep, take) = if step.first { (0.0, 1.0) } else { (step.momentum, 1.0 - step.dampening) };
        for ((w, b), g) in weights.iter_mut().zip(buffer).zip(gradients) {
            let g = g * step.gradient_scale + step.decay * *w;
            *b = *b * keep + take * g;
            let direction = if step.nesterov { g + step.momentum * *b } else { *b };
            *w -= step.learning_rate * direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{random, widen};

    #[test]
    fn five_steps_equal_the_formula_in_double_precision() {
        for (momentum, dampening, nesterov) in
            [(0.0, 0.0, false), (0.9, 0.0, false), (0.9, 0.25, false), (0.8, 0.0, true)]
        {
            let mut weights = random(1, 30_000);
            let mut buffer = vec![0.0; if momentum > 0.0 { weights.len() } else { 0 }];
            let (mut w, mut b) = (widen(&weights), vec![0.0; weights.len()]);
            for t in 1..=5_u64 {
                let g = random(10 + t, weights.len());
                let step = SgdStep {
                    learning_rate: 0.1,
                    momentum: momentum as f32,
                    dampening: dampening as f32,
                    nesterov,
                    decay: 0.01,
                    gradient_scale: 0.5,
                    first: t == 1,
                };
                sgd_step(step, &mut weights, &g, &mut buffer);
                for i in 0..w.len() {
                    let g = f64::from(g[i]) * 0.5 + 0.01 * w[i];
                    b[i] = if t == 1 { g } else { momentum * b[i] + (1.0 - dampening) * g };
                    w[i] -= 0.1
                        * if nesterov {
                            g + momentum * b[i]
                        } else if momentum > 0.0 {
                            b[i]
                        } else {
                            g
                        };
                }
            }
            let worst = weights.iter().zip(&w).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-5, "momentum {momentum}: largest difference {worst}");
        }
    }
}
