//! Returns and advantages of recorded steps, along the time axis of `[..., T, ...]` arrays. Legend: `r` reward, `d` done (the
//! trajectory ends here), `e` terminated (and has no future), `V` value, `V'` value of the next observation, `V'_e = (1 - e) V'`:
//!
//! | | |
//! |---|---|
//! | TD(0) | `G_t = r_t + gamma V'_e` |
//! | TD(1) | `G_t = r_t + gamma (d_t ? V'_e : G_{t+1})` |
//! | TD(lambda) | `G_t = r_t + gamma ((1 - lambda) V'_e + lambda (d_t ? V'_e : G_{t+1}))` |
//! | reward to go | `G_t = r_t + gamma (1 - d_t) G_{t+1}` |
//! | GAE | `A_t = r_t + gamma V'_e - V_t + gamma lambda (1 - d_t) A_{t+1}`, target `A + V` |
//! | V-trace | `x_t = rho_t (r_t + gamma V'_e - V_t) + gamma c_t (1 - d_t) x_{t+1}`, target `x + V` |
//!
//! The last step of an array counts as done, but not as terminated. All are one recursion `x_t = b_t + a_t
//! x_{t+1}`, run once over the data in doubles. No gradients. Sutton and Barto, "Reinforcement Learning",
//! chapters 6 and 12; J. Schulman and others, <https://arxiv.org/abs/1506.02438>; L. Espeholt and others,
//! <https://arxiv.org/abs/1802.01561>.

mod advantage;
mod recursion;
mod td;
mod vtrace;

use std::ops::Range;

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Error, ErrorKind, Result};

pub use self::advantage::{generalized_advantage_estimate, standardized};
pub use self::td::{
    reward2go, td_lambda_advantage_estimate, td_lambda_return_estimate, td0_advantage_estimate,
    td0_return_estimate, td1_advantage_estimate, td1_return_estimate,
};
pub use self::vtrace::{VtraceOptions, vtrace_advantage_estimate};
use crate::Real;
use crate::batch::{self, check_len};
use crate::real::are_finite;

/// The time axis of row-major arrays, which are read as `[outer, time, inner]`.
///
/// # Examples
/// ```
/// use fulmar_objective::TimeAxis;
/// assert_eq!(TimeAxis::of(&[64, 1000, 1], -2)?, TimeAxis { outer: 64, time: 1000, inner: 1 });
/// assert_eq!(TimeAxis::of(&[1000, 64], 0)?, TimeAxis { outer: 1, time: 1000, inner: 64 });
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeAxis {
    /// Number of elements before the time dimension.
    pub outer: usize,
    /// Number of steps.
    pub time: usize,
    /// Number of elements after the time dimension; 1 if the steps of a sequence are adjacent.
    pub inner: usize,
}

impl TimeAxis {
    /// Returns the axis of arrays of `shape` with time in dimension `time_dim`; a negative one counts from the last.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `LimitExceeded` if `shape` has too many dimensions or elements.
    pub fn of(shape: &[usize], time_dim: isize) -> Result<Self> {
        fulmar_core::num_elements(shape)?;
        let rank = shape.len() as isize;
        let dim = if time_dim < 0 { time_dim + rank } else { time_dim };
        if dim < 0 || dim >= rank {
            let detail = format!("time_dim must be a dimension of {shape:?}: got {time_dim}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let dim = dim as usize;
        let (outer, inner) = (shape[..dim].iter().product(), shape[dim + 1..].iter().product());
        Ok(Self { outer, time: shape[dim], inner })
    }

    /// Returns the number of elements.
    ///
    /// # Errors
    /// `LimitExceeded` if no memory can hold this many.
    pub(crate) fn len(&self) -> Result<usize> {
        fulmar_core::num_elements(&[self.outer, self.time, self.inner])
    }
}

/// One number for all steps, or one for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PerStep<'a, T = f32> {
    /// The same number for every step.
    All(f64),
    /// One number for each step.
    Each(&'a [T]),
}

impl<T: Real> PerStep<'_, T> {
    fn check(&self, name: &str, len: usize) -> Result<()> {
        let bad = match self {
            Self::All(factor) => Some(*factor).filter(|factor| !(0.0..=1.0).contains(factor)),
            Self::Each(factors) => {
                check_len(name, factors.len(), "reward", len)?;
                factors.iter().map(|factor| (*factor).into()).find(|factor| !(0.0..=1.0).contains(factor))
            }
        };
        bad.map_or(Ok(()), |factor| {
            let detail = format!("{name} must be a number from 0 to 1: got {factor}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        })
    }

    /// Returns the numbers of some steps.
    fn of(self, range: Range<usize>) -> Self {
        match self {
            Self::All(factor) => Self::All(factor),
            Self::Each(factors) => Self::Each(&factors[range]),
        }
    }

    #[inline(always)]
    fn at(&self, index: usize) -> f64 {
        match self {
            Self::All(factor) => *factor,
            Self::Each(factors) => factors[index].into(),
        }
    }
}

/// The inputs of an estimate, one entry for each step. All slices are row-major and of one length.
///
/// # Examples
/// ```
/// use fulmar_objective::{PerStep, StepBatch, TimeAxis, td0_return_estimate};
/// let axis = TimeAxis { outer: 1, time: 2, inner: 1 };
/// let steps = StepBatch {
///     axis,
///     reward: &[1.0_f32, 1.0],
///     next_value: &[4.0, 8.0],
///     done: &[0, 1],
///     terminated: None,
///     compute: Default::default(),
/// };
/// assert_eq!(td0_return_estimate(&steps, PerStep::All(0.5))?, [3.0, 1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StepBatch<'a, T = f32> {
    /// The layout of the slices.
    pub axis: TimeAxis,
    /// The reward for each step.
    pub reward: &'a [T],
    /// The value of the observation after each step; ignored where `terminated` is 1.
    pub next_value: &'a [T],
    /// 1 where a trajectory ends, else 0.
    pub done: &'a [u8],
    /// 1 where it ends without a future to value. Defaults to `done`.
    pub terminated: Option<&'a [u8]>,
    /// The device of the estimates.
    pub compute: Compute,
}

impl<'a, T: Real> StepBatch<'a, T> {
    /// Checks the slices against each other and returns the number of steps.
    fn check(&self) -> Result<usize> {
        let len = self.axis.len()?;
        check_len("reward", self.reward.len(), "the elements of the axis", len)?;
        check_len("next_value", self.next_value.len(), "reward", len)?;
        check_flags("done", self.done, len)?;
        check_flags("terminated", self.terminated(), len)?;
        Ok(len)
    }

    /// Returns some of the steps.
    fn of(&self, range: Range<usize>) -> Self {
        Self {
            reward: &self.reward[range.clone()],
            next_value: &self.next_value[range.clone()],
            done: &self.done[range.clone()],
            terminated: self.terminated.map(|terminated| &terminated[range]),
            ..*self
        }
    }

    fn terminated(&self) -> &'a [u8] {
        self.terminated.unwrap_or(self.done)
    }
}

/// An advantage and the target of a critic, `advantage + value` except for V-trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueEstimate<T = f32> {
    /// The advantage of each step.
    pub advantage: Vec<T>,
    /// The target value of each step's observation.
    pub target: Vec<T>,
}

fn check_flags(name: &str, flags: &[u8], len: usize) -> Result<()> {
    check_len(name, flags.len(), "reward", len)?;
    // Without an early exit the loop vectorises.
    if flags.iter().fold(0, |all, flag| all | flag) <= 1 {
        return Ok(());
    }
    let index = flags.iter().position(|flag| *flag > 1).unwrap_or(0);
    let detail = format!("{name}[{index}] must be 0 or 1: got {}", flags[index]);
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

/// Refuses infinities and NaNs, which come from the inputs or from an overflow.
fn finite<T: Real>(name: &str, values: &[T]) -> Result<()> {
    if are_finite(values) {
        return Ok(());
    }
    let mut wide = values.iter().map(|value| (*value).into()).enumerate();
    wide.try_for_each(|(index, value)| batch::finite(name, index, value).map(|_| ()))
}

/// Returns `returns - value`, element by element.
fn above<T: Real>(steps: &StepBatch<'_, T>, returns: &[T], value: &[T]) -> Result<Vec<T>> {
    check_len("value", value.len(), "reward", returns.len())?;
    let pairs = returns.iter().zip(value);
    let difference = |(to, from): (&T, &T)| T::narrow((*to).into() - (*from).into());
    dispatch!(steps.compute, cpu => {
        let advantage: Vec<T> = pairs.map(difference).collect();
        finite("advantage", &advantage)?;
        Ok(advantage)
    })
}
