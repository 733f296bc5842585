//! Returns by temporal differences, and the reward to go.

use fulmar_compute::cpu::lanes;
use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Error, ErrorKind, Result};

use super::recursion::{Stretch, each_set, recur};
use super::{PerStep, StepBatch, TimeAxis, above, check_flags, finite};
use crate::Real;
use crate::batch::check_len;

/// Returns one reward plus the discounted value after it.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` is not in `0..=1`, or a flag is not 0 or 1;
/// `NonFinite` if a result is not finite.
pub fn td0_return_estimate<T: Real>(steps: &StepBatch<'_, T>, gamma: PerStep<'_, T>) -> Result<Vec<T>> {
    let len = steps.check()?;
    gamma.check("gamma", len)?;
    let terminated = steps.terminated();
    let at = |index: usize| {
        let next: f64 = steps.next_value[index].into();
        let future = if terminated[index] == 0 { next } else { 0.0 };
        T::narrow(steps.reward[index].into() + gamma.at(index) * future)
    };
    let returns: Vec<T> = dispatch!(steps.compute, cpu => (0..len).map(at).collect());
    finite("return", &returns)?;
    Ok(returns)
}

/// Returns [`td0_return_estimate`] minus the value of the observation before each step.
///
/// # Errors
/// The errors of [`td0_return_estimate`].
pub fn td0_advantage_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: PerStep<'_, T>,
) -> Result<Vec<T>> {
    above(steps, &td0_return_estimate(steps, gamma)?, value)
}

/// Returns all rewards to the end of the trajectory, discounted, plus the value after that end.
///
/// With `rolling_gamma` a reward is discounted by the gammas of the steps before it, else by powers of the
/// gamma of the step whose return it is part of.
///
/// # Errors
/// The errors of [`td_lambda_return_estimate`].
///
/// # Examples
/// ```
/// use fulmar_objective::{PerStep, StepBatch, TimeAxis, td1_return_estimate};
/// let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
/// let steps = StepBatch {
///     axis,
///     reward: &[1.0_f32, 1.0],
///     next_value: &[9.0, 8.0],
///     done: &[0, 0],
///     terminated: None,
///     compute: Default::default(),
/// };
/// assert_eq!(td1_return_estimate(&steps, PerStep::All(0.5), true)?, [3.5, 5.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn td1_return_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    gamma: PerStep<'_, T>,
    rolling_gamma: bool,
) -> Result<Vec<T>> {
    td_lambda_return_estimate(steps, gamma, PerStep::All(1.0), rolling_gamma)
}

/// Returns [`td1_return_estimate`] minus the value of the observation before each step.
///
/// # Errors
/// The errors of [`td_lambda_return_estimate`].
pub fn td1_advantage_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: PerStep<'_, T>,
    rolling_gamma: bool,
) -> Result<Vec<T>> {
    above(steps, &td1_return_estimate(steps, gamma, rolling_gamma)?, value)
}

/// Returns the returns of all lengths, weighted by powers of `lambda`: 0 gives TD(0), 1 gives TD(1).
///
/// Without `rolling_gamma` (see [`td1_return_estimate`]; the same holds for `lambda`) every step needs its
/// own pass to the end of its trajectory; otherwise one pass serves all.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` or `lambda` is not in `0..=1`, a flag is not 0
/// or 1, or `rolling_gamma` is false although neither differs from step to step; `NonFinite` if a result is
/// not finite.
pub fn td_lambda_return_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    gamma: PerStep<'_, T>,
    lambda: PerStep<'_, T>,
    rolling_gamma: bool,
) -> Result<Vec<T>> {
    let len = steps.check()?;
    gamma.check("gamma", len)?;
    lambda.check("lambda", len)?;
    dispatch!(steps.compute, cpu => match (gamma, lambda, rolling_gamma) {
        (_, _, true) => rolling(steps, gamma, lambda),
        (PerStep::All(_), PerStep::All(_), false) => {
            let detail = "rolling_gamma must be true where gamma and lambda are one number for all steps";
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
        (_, _, false) => {
            let returns = fixed(steps, |index| (gamma.at(index), lambda.at(index)));
            finite("return", &returns)?;
            Ok(returns)
        }
    })
}

/// Returns [`td_lambda_return_estimate`] minus the value of the observation before each step.
///
/// # Errors
/// The errors of [`td_lambda_return_estimate`].
pub fn td_lambda_advantage_estimate<T: Real>(
    steps: &StepBatch<'_, T>,
    value: &[T],
    gamma: PerStep<'_, T>,
    lambda: PerStep<'_, T>,
    rolling_gamma: bool,
) -> Result<Vec<T>> {
    above(steps, &td_lambda_return_estimate(steps, gamma, lambda, rolling_gamma)?, value)
}

/// Returns the discounted sum of the rewards from each step to the end of its trajectory; the last step of
/// the array ends all.
///
/// # Errors
/// `ShapeMismatch` if lengths differ; `OutOfRange` if `gamma` is not in `0..=1`, or a flag is not 0 or 1;
/// `NonFinite` if a result is not finite.
///
/// # Examples
/// ```
/// use fulmar_objective::{TimeAxis, reward2go};
/// let axis = TimeAxis { outer: 1, time: 3, inner: 1 };
/// assert_eq!(reward2go(axis, &[1.0_f32, 1.0, 1.0], &[0, 1, 0], 0.5, Default::default())?, [1.5, 1.0, 1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn reward2go<T: Real>(
    axis: TimeAxis,
    reward: &[T],
    done: &[u8],
    gamma: f64,
    compute: Compute,
) -> Result<Vec<T>> {
    dispatch!(compute, cpu => reward2go_on_cpu(axis, reward, done, gamma))
}

fn reward2go_on_cpu<T: Real>(axis: TimeAxis, reward: &[T], done: &[u8], gamma: f64) -> Result<Vec<T>> {
    let len = axis.len()?;
    check_len("reward", reward.len(), "the elements of the axis", len)?;
    check_flags("done", done, len)?;
    PerStep::<T>::All(gamma).check("gamma", len)?;
    let [returns] = recur(
        axis,
        ["return"],
        |_| 0.0,
        |Stretch { range, .. }, b, a| {
            rewards_to_go(&reward[range.clone()], &done[range], gamma, b, a);
        },
        write,
    )?;
    Ok(returns)
}

fn rolling<T: Real>(
    steps: &StepBatch<'_, T>,
    gamma: PerStep<'_, T>,
    lambda: PerStep<'_, T>,
) -> Result<Vec<T>> {
    let terminated = steps.terminated();
    let [returns] = recur(
        steps.axis,
        ["return"],
        |last| if terminated[last] == 0 { steps.next_value[last].into() } else { 0.0 },
        |Stretch { range, .. }, b, a| {
            let (gamma, lambda) = (gamma.of(range.clone()), lambda.of(range.clone()));
            lambda_terms(&steps.of(range), gamma, lambda, b, a);
        },
        write,
    )?;
    Ok(returns)
}

lanes! {
    fn lambda_terms<T: Real>(
        steps: &StepBatch<'_, T>, gamma: PerStep<'_, T>, lambda: PerStep<'_, T>, b: &mut [f64], a: &mut [f64],
    ) {
        match (gamma, lambda) {
            (PerStep::All(gamma), PerStep::All(lambda)) => lambda_terms_by(steps, |_| gamma, |_| lambda, b, a),
            _ => lambda_terms_by(steps, |at| gamma.at(at), |at| lambda.at(at), b, a),
        }
    }
}

#[inline(always)]
fn lambda_terms_by<T: Real>(
    steps: &StepBatch<'_, T>,
    gamma: impl Fn(usize) -> f64,
    lambda: impl Fn(usize) -> f64,
    b: &mut [f64],
    a: &mut [f64],
) {
    let len = b.len();
    let (reward, next_value, a) = (&steps.reward[..len], &steps.next_value[..len], &mut a[..len]);
    for at in 0..len {
        let (gamma, lambda) = (gamma(at), lambda(at));
        b[at] = reward[at].into() + gamma * (1.0 - lambda) * next_value[at].into();
        a[at] = gamma * lambda;
    }
    each_set(steps.done, |at| {
        b[at] = reward[at].into() + gamma(at) * next_value[at].into();
        a[at] = 0.0;
    });
    each_set(steps.terminated(), |at| b[at] = reward[at].into());
}

lanes! {
    fn rewards_to_go<T: Real>(reward: &[T], done: &[u8], gamma: f64, b: &mut [f64], a: &mut [f64]) {
        for (((b, a), reward), done) in b.iter_mut().zip(a).zip(reward).zip(done) {
            *b = (*reward).into();
            *a = if *done == 0 { gamma } else { 0.0 };
        }
    }
}

/// Returns each step's return with the step's own gamma and lambda throughout.
fn fixed<T: Real>(steps: &StepBatch<'_, T>, factors: impl Fn(usize) -> (f64, f64)) -> Vec<T> {
    let TimeAxis { time, inner, .. } = steps.axis;
    let terminated = steps.terminated();
    let one = |index: usize| {
        let (gamma, lambda) = factors(index);
        let left = time - 1 - index / inner % time;
        let on_the_way = (0..left).take_while(|step| steps.done[index + step * inner] == 0).count();
        let future = |at: usize| if terminated[at] == 0 { steps.next_value[at].into() } else { 0.0 };
        let end = index + on_the_way * inner;
        let mut sum = steps.reward[end].into() + gamma * future(end);
        for step in (0..on_the_way).rev() {
            let at = index + step * inner;
            sum = steps.reward[at].into() + gamma * ((1.0 - lambda) * future(at) + lambda * sum);
        }
        T::narrow(sum)
    };
    (0..steps.reward.len()).map(one).collect()
}

fn write<T: Real>(Stretch { out: [returns], .. }: Stretch<'_, T, 1>, x: &[f64], _: &mut [f64]) {
    narrowed(x, returns);
}

lanes! {
    fn narrowed<T: Real>(x: &[f64], returns: &mut [T]) {
        returns.iter_mut().zip(x).for_each(|(to, x)| *to = T::narrow(*x));
    }
}
