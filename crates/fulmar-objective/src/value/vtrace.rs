//! Advantages of steps that another policy took.

use fulmar_compute::cpu::lanes;
use fulmar_compute::dispatch;
use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::recursion::{Stretch, recur};
use super::{PerStep, StepBatch, ValueEstimate, finite};
use crate::Real;
use crate::batch::check_len;

/// The bounds of [`vtrace_advantage_estimate`] on importance weights.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VtraceOptions {
    /// Largest weight of a temporal difference: determines the policy whose values are estimated.
    pub rho_max: f64,
    /// Largest weight of later differences: determines the speed of convergence.
    pub c_max: f64,
}

impl Default for VtraceOptions {
    fn default() -> Self {
        Self { rho_max: 1.0, c_max: 1.0 }
    }
}

/// Returns advantages for a policy gradient and targets for a critic, from steps whose actions had the
/// log-probability `log_mu` under the policy that took them and have `log_pi` now. Nothing flows back across
/// the end of a trajectory, truncation included.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` is not in `0..=1`, a bound is negative or not
/// finite, or a flag is not 0 or 1; `NonFinite` if a log-probability or a result is not finite.
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
    // A NaN ratio would pass as one over its bound.
    finite("log_pi", log_pi)?;
    finite("log_mu", log_mu)?;
    let [advantage, target] = recur(
        steps.axis,
        ["advantage", "target"],
        |_| 0.0,
        |Stretch { range, out: [ratio, _], .. }, b, a| {
            T::ratios(&log_pi[range.clone()], &log_mu[range.clone()], ratio);
            let (steps, value, gamma) = (steps.of(range.clone()), &value[range.clone()], gamma.of(range));
            terms(&steps, value, gamma, options, ratio, b, a);
        },
        |Stretch { range, num_last, out: [advantage, target] }, x, x_behind| {
            let behind = value.get(range.start + steps.axis.inner..).unwrap_or_default();
            let (steps, value, gamma) = (steps.of(range.clone()), &value[range.clone()], gamma.of(range));
            let (inside, last) = x_behind.split_at_mut(x.len() - num_last);
            inside.iter_mut().zip(behind).for_each(|(x, value)| *x += (*value).into());
            // The values after the last steps are the values after any end.
            let next_value = &steps.next_value[x.len() - num_last..];
            last.iter_mut().zip(next_value).for_each(|(x, value)| *x = (*value).into());
            advantages(&steps, value, gamma, options, x_behind, advantage);
            targets(x, value, target);
        },
    )?;
    Ok(ValueEstimate { advantage, target })
}

lanes! {
    /// The terms of the recursion.
    fn terms<T: Real>(
        steps: &StepBatch<'_, T>, value: &[T], gamma: PerStep<'_, T>, options: VtraceOptions,
        ratio: &[T], b: &mut [f64], a: &mut [f64],
    ) {
        let len = b.len();
        let (reward, value, next_value) = (&steps.reward[..len], &value[..len], &steps.next_value[..len]);
        let (done, terminated) = (&steps.done[..len], &steps.terminated()[..len]);
        let (ratio, a) = (&ratio[..len], &mut a[..len]);
        for at in 0..len {
            let (gamma, ratio): (f64, f64) = (gamma.at(at), ratio[at].into());
            let onward = if done[at] == 0 { ratio.min(options.c_max) } else { 0.0 };
            let future = if terminated[at] == 0 { next_value[at].into() } else { 0.0 };
            b[at] = ratio.min(options.rho_max) * (reward[at].into() + gamma * future - value[at].into());
            a[at] = gamma * onward;
        }
    }
}

lanes! {
    /// Writes advantages over ratios, given the corrected values after each step.
    fn advantages<T: Real>(
        steps: &StepBatch<'_, T>, value: &[T], gamma: PerStep<'_, T>, options: VtraceOptions,
        behind: &[f64], advantage: &mut [T],
    ) {
        let len = advantage.len();
        let (reward, value, next_value) = (&steps.reward[..len], &value[..len], &steps.next_value[..len]);
        let (done, terminated, behind) = (&steps.done[..len], &steps.terminated()[..len], &behind[..len]);
        for at in 0..len {
            let (gamma, ratio): (f64, f64) = (gamma.at(at), advantage[at].into());
            let future = if done[at] == 0 { behind[at] } else { next_value[at].into() };
            let future = if terminated[at] == 0 { future } else { 0.0 };
            let difference = reward[at].into() + gamma * future - value[at].into();
            advantage[at] = T::narrow(ratio.min(options.rho_max) * difference);
        }
    }
}

lanes! {
    fn targets<T: Real>(x: &[f64], value: &[T], target: &mut [T]) {
        for ((target, value), x) in target.iter_mut().zip(value).zip(x) {
            *target = T::narrow(x + (*value).into());
        }
    }
}
