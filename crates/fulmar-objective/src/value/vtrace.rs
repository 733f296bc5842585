//! Advantages of steps that another policy took.

use fulmar_compute::dispatch;
use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::recursion::recur;
use super::{PerStep, StepBatch, TimeAxis, ValueEstimate, finite};
use crate::Real;
use crate::batch::check_len;

/// The bounds of [`vtrace_advantage_estimate`] on importance weights.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VtraceOptions {
    /// Largest weight of a temporal difference: which policy the values are of.
    pub rho_max: f64,
    /// Largest weight of what follows: how fast they are found.
    pub c_max: f64,
}

impl Default for VtraceOptions {
    fn default() -> Self {
        Self { rho_max: 1.0, c_max: 1.0 }
    }
}

/// Advantages for a policy gradient and targets for a critic, from steps whose actions had `log_mu` under the policy that took them
/// and have `log_pi` now. A trajectory that ends, by truncation too, hears nothing from the next one.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` is not in `0..=1`, a bound is negative or not finite, or a flag is not
/// 0 or 1; `NonFinite` if a result would be.
///
/// # Examples
/// ```
/// use fulmar_objective::{PerStep, StepBatch, TimeAxis, VtraceOptions, vtrace_advantage_estimate};
/// let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
/// let steps = StepBatch {
///     axis,
///     reward: &[1.0_f64, 1.0],
///     next_value: &[2.0, 0.0],
///     done: &[0, 1],
///     terminated: None,
///     compute: Default::default(),
/// };
/// let log_prob = [-1.0, -1.0];
/// let vtrace =
///     vtrace_advantage_estimate(&steps, &[1.0, 2.0], [&log_prob, &log_prob], PerStep::All(0.5), VtraceOptions::default())?;
/// assert_eq!((vtrace.advantage, vtrace.target), (vec![0.5, -1.0], vec![1.5, 1.0]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn vtrace_advantage_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    [log_pi, log_mu]: [&[T]; 2],
    gamma: PerStep<'_, T>,
    options: VtraceOptions,
) -> Result<ValueEstimate<T>> {
    dispatch!(steps.compute, cpu => vtrace_on_cpu(steps, value, [log_pi, log_mu], gamma, options))
}

fn vtrace_on_cpu<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    [log_pi, log_mu]: [&[T]; 2],
    gamma: PerStep<'_, T>,
    options: VtraceOptions,
) -> Result<ValueEstimate<T>> {
    let len = steps.check()?;
    for (name, values) in [("value", value), ("log_pi", log_pi), ("log_mu", log_mu)] {
        check_len(name, values.len(), "reward", len)?;
    }
    gamma.check("gamma", len)?;
    for (name, bound) in [("rho_max", options.rho_max), ("c_max", options.c_max)] {
        if !(0.0..f64::INFINITY).contains(&bound) {
            let detail = format!("{name} must be a finite number >= 0: got {bound}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
    }
    let (ratio, terminated) = (T::ratios(log_pi, log_mu), steps.terminated());
    let difference = |index: usize| {
        let future = if terminated[index] == 0 { steps.next_value[index].into() } else { 0.0 };
        steps.reward[index].into() + gamma.at(index) * future - value[index].into()
    };
    let mut corrected = vec![0.0; len];
    recur(
        steps.axis,
        |_| 0.0,
        |range, b, a| {
            for ((index, b), a) in range.zip(b).zip(a) {
                let onward = if steps.done[index] == 0 { ratio[index].min(options.c_max) } else { 0.0 };
                *b = ratio[index].min(options.rho_max) * difference(index);
                *a = gamma.at(index) * onward;
            }
        },
        |range, x| {
            for (index, x) in range.zip(x) {
                corrected[index] = x + value[index].into();
            }
        },
    );
    let TimeAxis { outer, time, inner } = steps.axis;
    let advantage = |index: usize, is_last: bool| {
        let rho = ratio[index].min(options.rho_max);
        if is_last || steps.done[index] == 1 {
            return T::narrow(rho * difference(index));
        }
        let future = if terminated[index] == 0 { corrected[index + inner] } else { 0.0 };
        T::narrow(rho * (steps.reward[index].into() + gamma.at(index) * future - value[index].into()))
    };
    let mut advantages = Vec::with_capacity(len);
    for row in 0..outer * time {
        let is_last = (row + 1) % time == 0;
        advantages.extend((row * inner..(row + 1) * inner).map(|index| advantage(index, is_last)));
    }
    Ok(ValueEstimate {
        advantage: finite("advantage", advantages)?,
        target: finite("target", corrected.into_iter().map(T::narrow).collect())?,
    })
}
