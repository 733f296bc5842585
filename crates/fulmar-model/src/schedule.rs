//! Learning-rate schedules: linear warmup, then linear or cosine decay (Loshchilov and Hutter,
//! <https://arxiv.org/abs/1608.03983>), or none.

use fulmar_core::{Error, ErrorKind, Result, integer_from_f64};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The decay after the warmup. `done` is the share of the steps after the warmup that were taken, and `f` the
/// final fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decline {
    /// `1 - (1 - f) done`
    #[default]
    Linear,
    /// `f + (1 - f) (1 + cos(pi done)) / 2`
    Cosine,
    /// No decay.
    Constant,
}

/// The learning rate as a function of the step.
///
/// # Examples
/// ```
/// use fulmar_model::{Decline, Schedule};
/// let schedule = Schedule { warmup_steps: 2, decline: Decline::Cosine, ..Schedule::new(1.0) };
/// let rates: Vec<f64> = (0..=6).map(|step| schedule.at(step, 6)).collect::<Result<_, _>>()?;
/// assert_eq!((rates[0], rates[1], rates[2], rates[4], rates[6]), (0.5, 1.0, 1.0, 0.5, 0.0));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Schedule {
    /// The largest rate, > 0.
    pub learning_rate: f64,
    /// Number of warmup steps, in which the rate rises in equal parts; the first step takes one part, not 0.
    #[serde(default, deserialize_with = "warmup_steps")]
    pub warmup_steps: u64,
    /// Share of the rate at the end, in `[0, 1]`.
    #[serde(default)]
    pub final_fraction: f64,
    /// The decay after the warmup.
    #[serde(default)]
    pub decline: Decline,
}

impl Schedule {
    /// Returns a linear decay from `learning_rate` to 0.
    #[must_use]
    pub const fn new(learning_rate: f64) -> Self {
        Self { learning_rate, warmup_steps: 0, final_fraction: 0.0, decline: Decline::Linear }
    }

    /// Returns the rate of step `step`, counted from 0, of `num_steps`; after the last step it stays at its
    /// final value. The same bits on every target.
    ///
    /// # Errors
    /// `OutOfRange`, naming the field.
    pub fn at(&self, step: u64, num_steps: u64) -> Result<f64> {
        let Self { learning_rate, warmup_steps, final_fraction, decline } = *self;
        let out_of_range = |name: &str, rule: &str, value: f64| {
            Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")))
        };
        if !(learning_rate.is_finite() && learning_rate > 0.0) {
            return out_of_range("learningRate", "> 0", learning_rate);
        }
        if !(0.0..=1.0).contains(&final_fraction) {
            return out_of_range("finalFraction", "in [0, 1]", final_fraction);
        }
        if step < warmup_steps {
            return Ok(learning_rate * (step + 1) as f64 / warmup_steps as f64);
        }
        let falling = num_steps.saturating_sub(warmup_steps).max(1);
        let done = ((step - warmup_steps) as f64 / falling as f64).min(1.0);
        let left = match decline {
            Decline::Linear => 1.0 - done,
            Decline::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done)),
            Decline::Constant => 1.0,
        };
        Ok(learning_rate * (final_fraction + (1.0 - final_fraction) * left))
    }
}

fn warmup_steps<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    integer_from_f64("warmupSteps", value).map_err(|error| D::Error::custom(error.detail()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, num_steps: u64) -> Vec<f64> {
        (0..=num_steps + 2).map(|step| schedule.at(step, num_steps).unwrap()).collect()
    }

    #[test]
    fn rates_rise_in_equal_parts_fall_to_the_final_share_and_stay_there() {
        let linear = Schedule { warmup_steps: 4, final_fraction: 0.5, ..Schedule::new(2.0) };
        assert_eq!(rates(linear, 8), [0.5, 1.0, 1.5, 2.0, 2.0, 1.75, 1.5, 1.25, 1.0, 1.0, 1.0]);
        let constant = Schedule { decline: Decline::Constant, warmup_steps: 1, ..linear };
        assert_eq!(rates(constant, 2), [2.0; 5]);
        let cosine = Schedule { decline: Decline::Cosine, warmup_steps: 0, ..linear };
        let expected = |done: f64| 1.0 + 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        for (step, rate) in rates(cosine, 7).into_iter().enumerate() {
            assert!((rate - expected((step as f64 / 7.0).min(1.0))).abs() < 1e-12, "step {step}: {rate}");
        }
    }

    #[test]
    fn a_run_that_ends_while_it_rises_only_rises() {
        let schedule = Schedule { warmup_steps: 10, ..Schedule::new(1.0) };
        assert_eq!((schedule.at(3, 5), schedule.at(9, 5)), (Ok(0.4), Ok(1.0)));
        assert_eq!(schedule.at(0, 0), Ok(0.1));
    }

    #[test]
    fn bad_fields_are_refused_by_name() {
        let of = |schedule: Schedule| schedule.at(0, 1).unwrap_err().detail().to_owned();
        assert_eq!(of(Schedule::new(0.0)), "learningRate must be > 0: got 0");
        assert_eq!(of(Schedule::new(f64::NAN)), "learningRate must be > 0: got NaN");
        let far = Schedule { final_fraction: 1.5, ..Schedule::new(1.0) };
        assert_eq!(of(far), "finalFraction must be in [0, 1]: got 1.5");
    }
}
