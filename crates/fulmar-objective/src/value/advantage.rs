//! Generalised advantage estimation.

use fulmar_compute::cpu::lanes;
use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Error, ErrorKind, Result};

use super::recursion::{Stretch, each_set, recur};
use super::{PerStep, StepBatch, ValueEstimate};
use crate::Real;
use crate::batch::check_len;

/// Returns advantages as discounted sums of temporal differences, and the targets `advantage + value`.
///
/// `value` holds the value of the observation before each step. Time and memory are linear in the number of
/// steps.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` or `lambda` is not in `0..=1`, or a flag is not
/// 0 or 1; `NonFinite` if a result is not finite.
///
/// # Examples
/// ```
/// use fulmar_objective::{PerStep, StepBatch, TimeAxis, generalized_advantage_estimate};
/// let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
/// let steps = StepBatch {
///     axis,
///     reward: &[1.0_f64, 1.0],
///     next_value: &[2.0, 0.0],
///     done: &[0, 1],
///     terminated: None,
///     compute: Default::default(),
/// };
/// let gae = generalized_advantage_estimate(&steps, &[1.0, 2.0], PerStep::All(0.5), PerStep::All(0.5))?;
/// assert_eq!((gae.advantage, gae.target), (vec![0.75, -1.0], vec![1.75, 1.0]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn generalized_advantage_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: PerStep<'_, T>,
    lambda: PerStep<'_, T>,
) -> Result<ValueEstimate<T>> {
    let len = steps.check()?;
    check_len("value", value.len(), "reward", len)?;
    gamma.check("gamma", len)?;
    lambda.check("lambda", len)?;
    let [advantage, target] = dispatch!(steps.compute, cpu => recur(
        steps.axis,
        ["advantage", "target"],
        |_| 0.0,
        |Stretch { range, .. }, b, a| {
            let (gamma, lambda) = (gamma.of(range.clone()), lambda.of(range.clone()));
            terms(&steps.of(range.clone()), &value[range], gamma, lambda, b, a);
        },
        |Stretch { range, out: [advantage, target], .. }, x, _| {
            written(x, &value[range], advantage, target);
        },
    ))?;
    Ok(ValueEstimate { advantage, target })
}

lanes! {
    fn terms<T: Real>(
        steps: &StepBatch<'_, T>, value: &[T], gamma: PerStep<'_, T>, lambda: PerStep<'_, T>,
        b: &mut [f64], a: &mut [f64],
    ) {
        // Two numbers are the common case, and the loop over them vectorises.
        match (gamma, lambda) {
            (PerStep::All(gamma), PerStep::All(lambda)) => terms_by(steps, value, |_| gamma, |_| lambda, b, a),
            _ => terms_by(steps, value, |at| gamma.at(at), |at| lambda.at(at), b, a),
        }
    }
}

#[inline(always)]
fn terms_by<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: impl Fn(usize) -> f64,
    lambda: impl Fn(usize) -> f64,
    b: &mut [f64],
    a: &mut [f64],
) {
    let len = b.len();
    let (reward, next_value) = (&steps.reward[..len], &steps.next_value[..len]);
    let (value, a) = (&value[..len], &mut a[..len]);
    for at in 0..len {
        let gamma = gamma(at);
        b[at] = reward[at].into() + gamma * next_value[at].into() - value[at].into();
        a[at] = gamma * lambda(at);
    }
    each_set(steps.terminated(), |at| b[at] = reward[at].into() - value[at].into());
    each_set(steps.done, |at| a[at] = 0.0);
}

lanes! {
    fn written<T: Real>(x: &[f64], value: &[T], advantage: &mut [T], target: &mut [T]) {
        for (((advantage, target), value), x) in advantage.iter_mut().zip(target).zip(value).zip(x) {
            *advantage = T::narrow(*x);
            *target = T::narrow(*x + (*value).into());
        }
    }
}

/// Returns the advantages minus their mean, divided by their sample deviation or 1e-4, whichever is larger:
/// TorchRL's `average_gae`.
///
/// # Errors
/// `NonFinite` for a NaN or an infinity.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_objective::standardized(&[1.0_f64, 2.0, 3.0], Default::default())?, [-1.0, 0.0, 1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn standardized<T: Real>(advantage: &[T], compute: Compute) -> Result<Vec<T>> {
    dispatch!(compute, cpu => standardized_on_cpu(advantage))
}

fn standardized_on_cpu<T: Real>(advantage: &[T]) -> Result<Vec<T>> {
    let len = advantage.len() as f64;
    let mean = advantage.iter().map(|value| (*value).into()).sum::<f64>() / len.max(1.0);
    let squares = advantage.iter().map(|value| (*value).into() - mean);
    let deviation = (squares.map(|off| off * off).sum::<f64>() / (len - 1.0).max(1.0)).sqrt();
    if !deviation.is_finite() {
        let detail = format!("advantage must be finite: got a deviation of {deviation}");
        return Err(Error::new(ErrorKind::NonFinite, detail));
    }
    Ok(advantage.iter().map(|value| T::narrow(((*value).into() - mean) / deviation.max(1e-4))).collect())
}
