//! Group advantages: a rollout is good when it did better than its siblings on the same prompt.
//!
//! ```text
//! A = (r - mean_g r) / (max(std, std_floor) + epsilon)      std of the group, of the batch, or no division
//! ```
//!
//! Mean and variance by Welford's recurrence in f64. A group whose scored rewards are all equal gets exactly 0 and is
//! flagged: rounding in the mean, divided by a tiny number, would otherwise push every token of it.
//!
//! The same formula under other names: TorchRL `MCAdvantage` is `epsilon: 0, std_floor: 1e-6`; TRL is `epsilon: 1e-4,
//! std_floor: 0`; torchtitan is `scale: None`, or `std: Population, epsilon: 1e-6, std_floor: 0`.

use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::batch::{check_len, check_offsets, finite};
use crate::clip::out_of_range;

/// The fewest rollouts that a group may have.
pub const GROUP_SIZE_MIN: usize = 2;

/// Which rollouts share a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups<'a> {
    /// Every so many rewards in a row are one group.
    Size(usize),
    /// `[N + 1]` bounds: `offsets[n]..offsets[n + 1]` are the rollouts of prompt `n`.
    Offsets(&'a [u32]),
}

/// Whose standard deviation divides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AdvantageScale {
    /// That of the rollout's own group.
    #[default]
    Group,
    /// That of all scored rewards of the batch.
    Batch,
    /// Nobody's: the advantage keeps the unit of the reward (Dr. GRPO).
    None,
}

/// The divisor of a variance over `n` rewards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StdKind {
    /// `n - 1`.
    #[default]
    Unbiased,
    /// `n`.
    Population,
}

/// Options of [`group_advantage`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdvantageOptions {
    /// Whose standard deviation divides; the group's.
    pub scale: AdvantageScale,
    /// The divisor of the variance; `n - 1`.
    pub std: StdKind,
    /// Added to the standard deviation; 1e-4.
    pub epsilon: f64,
    /// The least standard deviation; 1e-3. Near-equal rewards are not blown up to unit size.
    pub std_floor: f64,
}

impl Default for AdvantageOptions {
    fn default() -> Self {
        Self { scale: AdvantageScale::Group, std: StdKind::Unbiased, epsilon: 1e-4, std_floor: 1e-3 }
    }
}

impl AdvantageOptions {
    fn checked(&self) -> Result<()> {
        for (name, value) in [("epsilon", self.epsilon), ("stdFloor", self.std_floor)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(out_of_range(&format!("{name} must be a finite number >= 0"), value));
            }
        }
        Ok(())
    }
}

/// Advantages of `R` rollouts in `N` groups.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupAdvantage {
    /// `[R]` the advantage of each rollout; 0 for one without a score.
    pub advantage: Vec<f64>,
    /// `[N]` mean scored reward of each group; 0 if none was scored.
    pub mean: Vec<f64>,
    /// `[N]` standard deviation of each group's scored rewards; 0 below two.
    pub std: Vec<f64>,
    /// `[N]` whether a group teaches nothing: its scored rewards are all equal, or fewer than two.
    pub degenerate: Vec<bool>,
}

impl GroupAdvantage {
    /// `[R]` the advantages in the precision of a loss.
    #[must_use]
    pub fn advantage_f32(&self) -> Vec<f32> {
        self.advantage.iter().map(|&advantage| advantage as f32).collect()
    }
}

/// Compares each reward with those of its group. `reward` is `[R]`, group after group; `scored`, when given, is `[R]`
/// with 0 for a rollout that nobody could score: it is left out of every statistic and its advantage is 0.
///
/// # Errors
/// `OutOfRange` for a group of fewer than [`GROUP_SIZE_MIN`] rollouts or an option outside its range; `ShapeMismatch` if
/// the groups do not cover the rewards or `scored` has another length; `Empty` without rewards; `NonFinite` if a scored
/// reward is NaN or infinite, or the spread of rewards overflows.
///
/// # Examples
/// ```
/// use fulmar_objective::{AdvantageOptions, AdvantageScale, Groups, group_advantage};
/// let options = AdvantageOptions { scale: AdvantageScale::None, ..AdvantageOptions::default() };
/// let result = group_advantage(&[1.0, 0.0, 0.1, 0.1], None, Groups::Size(2), &options)?;
/// assert_eq!(result.advantage, [0.5, -0.5, 0.0, 0.0]);
/// assert_eq!(result.degenerate, [false, true]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn group_advantage(
    reward: &[f64],
    scored: Option<&[u8]>,
    groups: Groups<'_>,
    options: &AdvantageOptions,
) -> Result<GroupAdvantage> {
    options.checked()?;
    let bounds = groups.bounds(reward.len())?;
    if let Some(scored) = scored {
        check_len("scored", scored.len(), "reward", reward.len())?;
    }
    let is_scored = |index: usize| scored.is_none_or(|scored| scored[index] != 0);
    for index in (0..reward.len()).filter(|&index| is_scored(index)) {
        finite("reward", index, reward[index])?;
    }
    let spread = |start: usize, end: usize| {
        Spread::of((start..end).filter(|&index| is_scored(index)).map(|index| reward[index]))
    };
    let batch_std = spread(0, reward.len()).std(options.std);
    let mut result =
        GroupAdvantage { advantage: vec![0.0; reward.len()], mean: vec![], std: vec![], degenerate: vec![] };
    for pair in bounds.windows(2) {
        let group = spread(pair[0], pair[1]);
        let group_std = group.std(options.std);
        let divisor = match options.scale {
            AdvantageScale::Group => group_std.max(options.std_floor) + options.epsilon,
            AdvantageScale::Batch => batch_std.max(options.std_floor) + options.epsilon,
            AdvantageScale::None => 1.0,
        };
        if !group.is_degenerate() {
            for index in (pair[0]..pair[1]).filter(|&index| is_scored(index)) {
                result.advantage[index] = finite("advantage", index, (reward[index] - group.mean) / divisor)?;
            }
        }
        result.mean.push(group.mean);
        result.std.push(group_std);
        result.degenerate.push(group.is_degenerate());
    }
    Ok(result)
}

impl<'a> Groups<'a> {
    /// Groups from a size or from bounds, whichever is given.
    ///
    /// # Errors
    /// `Malformed` if both are given or neither is.
    pub fn either(size: Option<usize>, offsets: Option<&'a [u32]>) -> Result<Self> {
        match (size, offsets) {
            (Some(size), None) => Ok(Self::Size(size)),
            (None, Some(offsets)) => Ok(Self::Offsets(offsets)),
            (size, _) => {
                let got = if size.is_some() { "both" } else { "neither" };
                let detail = format!("exactly one of groupSize and groupOffsets must be given: got {got}");
                Err(Error::new(ErrorKind::Malformed, detail))
            }
        }
    }

    /// Checked `[N + 1]` bounds over `num_rewards` rollouts.
    fn bounds(self, num_rewards: usize) -> Result<Vec<usize>> {
        if num_rewards == 0 {
            return Err(Error::new(ErrorKind::Empty, "reward must hold at least one group: got []"));
        }
        let too_small = |name: &str, size: usize| {
            let detail = format!("{name} must hold at least {GROUP_SIZE_MIN} rollouts: got {size}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        };
        match self {
            Self::Size(size) if size < GROUP_SIZE_MIN => too_small("a group", size),
            Self::Size(size) if !num_rewards.is_multiple_of(size) => {
                let detail =
                    format!("reward length must be a multiple of group size {size}: got {num_rewards}");
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
            Self::Size(size) => Ok((0..=num_rewards).step_by(size).collect()),
            Self::Offsets(offsets) => {
                check_offsets(offsets, num_rewards)?;
                let small =
                    offsets.windows(2).position(|pair| ((pair[1] - pair[0]) as usize) < GROUP_SIZE_MIN);
                if let Some(group) = small {
                    return too_small(
                        &format!("group {group}"),
                        (offsets[group + 1] - offsets[group]) as usize,
                    );
                }
                Ok(offsets.iter().map(|&bound| bound as usize).collect())
            }
        }
    }
}

/// Running mean and squared deviation (B. P. Welford, 1962), with the range for the test of exact equality.
#[derive(Debug, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    square_sum: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let empty =
            Self { count: 0.0, mean: 0.0, square_sum: 0.0, low: f64::INFINITY, high: f64::NEG_INFINITY };
        values.fold(empty, |spread, value| {
            let count = spread.count + 1.0;
            let delta = value - spread.mean;
            let mean = spread.mean + delta / count;
            Self {
                count,
                mean,
                square_sum: spread.square_sum + delta * (value - mean),
                low: spread.low.min(value),
                high: spread.high.max(value),
            }
        })
    }

    fn is_degenerate(&self) -> bool {
        self.count < 2.0 || self.low == self.high
    }

    fn std(&self, kind: StdKind) -> f64 {
        let divisor = match kind {
            StdKind::Unbiased => self.count - 1.0,
            StdKind::Population => self.count,
        };
        if self.is_degenerate() { 0.0 } else { (self.square_sum / divisor).sqrt() }
    }
}
