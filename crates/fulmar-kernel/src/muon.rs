//! The momentum of Muon (Jordan et al., <https://kellerjordan.github.io/posts/muon/>), in the order of operations of
//! `torch.optim.Muon`.
//!
//! ```text
//! b += (1 - momentum) (g - b)
//! u = g + momentum (b - g)      with Nesterov; b without
//! ```

/// Updates `momentum` in place from `gradients` times `gradient_scale` (the clipping coefficient), with `keep` as the factor of
/// the old momentum, and writes the direction of the step, before it is orthogonalised, to `direction`.
///
/// # Panics
/// If the lengths disagree.
///
/// # Examples
/// ```
/// let (mut momentum, mut direction) = ([0.0], [0.0]);
/// fulmar_kernel::muon_direction(&[2.0], &mut momentum, &mut direction, 1.0, 0.5, true);
/// assert_eq!((momentum, direction), ([1.0], [1.5]));
/// ```
pub fn muon_direction(
    gradients: &[f32],
    momentum: &mut [f32],
    direction: &mut [f32],
    gradient_scale: f32,
    keep: f32,
    nesterov: bool,
) {
    assert!(gradients.len() == momentum.len() && direction.len() == momentum.len(), "lengths must agree");
    for ((b, u), g) in momentum.iter_mut().zip(direction).zip(gradients) {
        let g = g * gradient_scale;
        *b += (1.0 - keep) * (g - *b);
        *u = if nesterov { g + keep * (*b - g) } else { *b };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn momentum_without_a_look_ahead_is_the_direction() {
        let (mut momentum, mut direction) = ([1.0, -1.0], [f32::NAN; 2]);
        muon_direction(&[8.0, 2.0], &mut momentum, &mut direction, 0.5, 0.75, false);
        assert_eq!((momentum, direction), ([1.75, -0.5], [1.75, -0.5]));
    }
}
