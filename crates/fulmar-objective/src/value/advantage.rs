//! Generalised advantage estimation.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Error, ErrorKind, Result};

use super::recursion::{each_set, recur};
use super::{PerStep, StepBatch, ValueEstimate, finite};
use crate::Real;
use crate::batch::check_len;

/// Advantages as the discounted sum of temporal differences, and the targets `advantage + value`.
///
/// `value` is that of the observation before each step. Time and memory are linear in the number of steps.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` or `lambda` is not in `0..=1`, or a flag not 0 or 1;
/// `NonFinite` if a result would be.
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
    // Two numbers are the common case, and the loop over them runs in vector lanes.
    dispatch!(steps.compute, cpu => match (gamma, lambda) {
        (PerStep::All(gamma), PerStep::All(lambda)) => estimate(steps, value, |_| gamma, |_| lambda),
        _ => estimate(steps, value, |index| gamma.at(index), |index| lambda.at(index)),
    })
}

fn estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: impl Fn(usize) -> f64,
    lambda: impl Fn(usize) -> f64,
) -> Result<ValueEstimate<T>> {
    let len = value.len();
    let (mut advantage, mut target) = (vec![T::narrow(0.0); len], vec![T::narrow(0.0); len]);
    recur(
        steps.axis,
        |_| 0.0,
        |range, b, a| {
            let (reward, value) = (&steps.reward[range.clone()], &value[range.clone()]);
            let (next_value, first) = (&steps.next_value[range.clone()], range.start);
            let (done, terminated) = (&steps.done[range.clone()], &steps.terminated()[range]);
            let len = b.len();
            let (reward, value, next_value) = (&reward[..len], &value[..len], &next_value[..len]);
            let (done, terminated, a) = (&done[..len], &terminated[..len], &mut a[..len]);
            for at in 0..len {
                let gamma = gamma(first + at);
                b[at] = reward[at].into() + gamma * next_value[at].into() - value[at].into();
                a[at] = gamma * lambda(first + at);
            }
            each_set(terminated, |at| b[at] = reward[at].into() - value[at].into());
            each_set(done, |at| a[at] = 0.0);
        },
        |range, x| {
            let (advantage, target) = (&mut advantage[range.clone()], &mut target[range.clone()]);
            for (((advantage, target), value), x) in
                advantage.iter_mut().zip(target).zip(&value[range]).zip(x)
            {
                *advantage = T::narrow(*x);
                *target = T::narrow(*x + (*value).into());
            }
        },
    );
    Ok(ValueEstimate { advantage: finite("advantage", advantage)?, target: finite("target", target)? })
}

/// The advantages less their mean, divided by their sample deviation or 1e-4, if that is more: TorchRL's `average_gae`.
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
