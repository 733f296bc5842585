//! Schedules of a sampler's parameter, such as `beta`.
//!
//! ```text
//! linear    p_k = p_0 + min(k, num_steps) * (final - p_0) / num_steps
//! step      every num_steps steps p <- p * gamma, or p + gamma
//! lambda    p_k = p_0 * f(k)
//! all       clamped to [min, max]
//! ```

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::Sampler;

/// The schedule of a parameter, without functions, so that it can be serialised.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Schedule {
    /// Linear interpolation to a final value.
    Linear {
        /// The final value.
        final_value: f64,
        /// Number of steps to reach it, at least 1.
        num_steps: u64,
    },
    /// Multiplication by a factor, every `num_steps` steps.
    Multiply {
        /// The factor.
        gamma: f64,
        /// Number of steps, at least 1.
        num_steps: u64,
    },
    /// Addition of a summand, every `num_steps` steps.
    Add {
        /// The summand.
        gamma: f64,
        /// Number of steps, at least 1.
        num_steps: u64,
    },
}

/// A parameter with its schedule and its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParameterScheduler {
    /// The name of the sampler's parameter.
    pub parameter: String,
    /// The schedule.
    pub schedule: Schedule,
    /// The minimum value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The maximum value.
    #[serde(default)]
    pub max: Option<f64>,
    /// Its value before the first step; absent before that.
    #[serde(default)]
    pub initial: Option<f64>,
    /// Its value now, unclamped; absent before the first step.
    #[serde(default)]
    pub value: Option<f64>,
    /// Number of steps taken.
    #[serde(default)]
    pub num_taken: u64,
}

impl ParameterScheduler {
    /// Schedules `parameter`, without bounds.
    ///
    /// # Errors
    /// `OutOfRange` if the schedule takes no steps or its numbers are not finite.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{ParameterScheduler, PrioritizedSampler, Sampler, Schedule};
    /// let mut sampler = PrioritizedSampler::new(8, Default::default(), 7)?;
    /// let schedule = Schedule::Linear { final_value: 1.0, num_steps: 1 };
    /// ParameterScheduler::new("beta", schedule)?.step(&mut sampler)?;
    /// assert_eq!(sampler.parameter("beta")?, 1.0);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn new(parameter: &str, schedule: Schedule) -> Result<Self> {
        let (value, num_steps) = match schedule {
            Schedule::Linear { final_value, num_steps } => (final_value, num_steps),
            Schedule::Multiply { gamma, num_steps } | Schedule::Add { gamma, num_steps } => {
                (gamma, num_steps)
            }
        };
        if num_steps == 0 || !value.is_finite() {
            let detail = format!("schedule must take a step or more to finite numbers: got {schedule:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (parameter, initial, value) = (parameter.to_owned(), None, None);
        Ok(Self { parameter, schedule, min: None, max: None, initial, value, num_taken: 0 })
    }

    /// Takes one step and sets the parameter of `sampler`. The value before the first step is the initial
    /// one.
    ///
    /// # Errors
    /// `UnknownName` if the sampler has no such parameter; `OutOfRange` for an invalid value.
    pub fn step(&mut self, sampler: &mut dyn Sampler) -> Result<()> {
        let initial = match self.initial {
            Some(initial) => initial,
            None => sampler.parameter(&self.parameter)?,
        };
        let (now, step) = (self.value.unwrap_or(initial), self.num_taken + 1);
        let next = match self.schedule {
            Schedule::Linear { final_value, num_steps } if step < num_steps => {
                initial + step as f64 * ((final_value - initial) / num_steps as f64)
            }
            Schedule::Linear { final_value, .. } => final_value,
            Schedule::Multiply { gamma, num_steps } if step % num_steps == 0 => now * gamma,
            Schedule::Add { gamma, num_steps } if step % num_steps == 0 => now + gamma,
            Schedule::Multiply { .. } | Schedule::Add { .. } => now,
        };
        let next = clamped(next, self.min, self.max);
        sampler.set_parameter(&self.parameter, next)?;
        (self.initial, self.value, self.num_taken) = (Some(initial), Some(next), step);
        Ok(())
    }
}

/// Schedules a parameter by a function from the number of steps to a factor of the initial value.
pub struct LambdaScheduler {
    parameter: String,
    factor: Box<dyn Fn(u64) -> f64 + Send>,
    min: Option<f64>,
    max: Option<f64>,
    initial: Option<f64>,
    num_taken: u64,
}

impl std::fmt::Debug for LambdaScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LambdaScheduler").field("parameter", &self.parameter).finish_non_exhaustive()
    }
}

impl LambdaScheduler {
    /// Schedules `parameter`, clamped to `[min, max]` if given; 0 is a valid bound.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{LambdaScheduler, PrioritizedSampler, Sampler};
    /// let mut sampler = PrioritizedSampler::new(8, Default::default(), 7)?;
    /// sampler.set_parameter("beta", 0.5)?;
    /// LambdaScheduler::new("beta", Box::new(|step| 1.0 / (1 + step) as f64), None, None).step(&mut sampler)?;
    /// assert_eq!(sampler.parameter("beta")?, 0.25);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn new(
        parameter: &str,
        factor: Box<dyn Fn(u64) -> f64 + Send>,
        min: Option<f64>,
        max: Option<f64>,
    ) -> Self {
        Self { parameter: parameter.to_owned(), factor, min, max, initial: None, num_taken: 0 }
    }

    /// Takes one step and sets the parameter of `sampler`.
    ///
    /// # Errors
    /// The errors of [`ParameterScheduler::step`].
    pub fn step(&mut self, sampler: &mut dyn Sampler) -> Result<()> {
        let initial = match self.initial {
            Some(initial) => initial,
            None => sampler.parameter(&self.parameter)?,
        };
        let value = initial * (self.factor)(self.num_taken + 1);
        sampler.set_parameter(&self.parameter, clamped(value, self.min, self.max))?;
        (self.initial, self.num_taken) = (Some(initial), self.num_taken + 1);
        Ok(())
    }
}

fn clamped(value: f64, min: Option<f64>, max: Option<f64>) -> f64 {
    let value = min.map_or(value, |min| value.max(min));
    max.map_or(value, |max| value.min(max))
}
