//! Group advantages: a rollout is good if it did better than its siblings on the same prompt.
//!
//! ```text
//! A = (r - mean_g r) / (max(std, std_floor) + epsilon)      std of the group, of the batch, or no division
//! ```
//!
//! Mean and variance in two passes, in f64. A group whose scored rewards are all equal gets exactly 0 and is
//! flagged: otherwise a rounding error in the mean, divided by a tiny number, would train every token of it.
//!
//! The same formula in other libraries: TorchRL `MCAdvantage` is `epsilon: 0, std_floor: 1e-6`; TRL is
//! `epsilon: 1e-4, std_floor: 0`; torchtitan is `scale: None`, or `std: Population, epsilon: 1e-6, std_floor:
//! 0`; RLOO (<https://arxiv.org/abs/2402.14740>) is `baseline: LeaveOneOut, scale: None`, or `Batch` where it
//! normalises.

use fulmar_compute::cpu::lanes;
use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::batch::{check_len, check_offsets, finite, finite_value};
use crate::clip::out_of_range;
use crate::real::are_finite;

/// Groups whose means and deviations are computed at once.
const TILE: usize = 8;

/// The fewest rollouts that a group may have.
pub const GROUP_SIZE_MIN: usize = 2;

/// The rollouts that share a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Groups<'a> {
    /// Each run of this many rewards is one group.
    Size(usize),
    /// `[N + 1]` bounds: `offsets[n]..offsets[n + 1]` are the rollouts of prompt `n`.
    Offsets(&'a [u32]),
}

/// The value that is subtracted from a reward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Baseline {
    /// The mean of its group.
    #[default]
    Group,
    /// The mean of the others in its group: unbiased, as a reward is not compared with itself.
    LeaveOneOut,
}

/// The standard deviation that divides the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AdvantageScale {
    /// The deviation of the rollout's group.
    #[default]
    Group,
    /// The deviation of all scored rewards of the batch; with a leave-one-out baseline, of all differences
    /// from it, so of rollouts with another scored rollout in their group.
    Batch,
    /// None: the advantage keeps the unit of the reward (Dr. GRPO).
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
    /// The value that is subtracted from a reward. Defaults to the group mean.
    pub baseline: Baseline,
    /// The standard deviation that divides. Defaults to the group's.
    pub scale: AdvantageScale,
    /// The divisor of the variance. Defaults to `n - 1`.
    pub std: StdKind,
    /// Added to the standard deviation. Defaults to 1e-4.
    pub epsilon: f64,
    /// The least standard deviation, so that near-equal rewards are not scaled up. Defaults to 1e-3.
    pub std_floor: f64,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for AdvantageOptions {
    fn default() -> Self {
        Self {
            baseline: Baseline::Group,
            scale: AdvantageScale::Group,
            std: StdKind::Unbiased,
            epsilon: 1e-4,
            std_floor: 1e-3,
            device: Device::Cpu,
        }
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
    /// `[R]` the advantage of each rollout; 0 for a rollout without a score.
    pub advantage: Vec<f64>,
    /// `[N]` mean scored reward of each group; 0 if none was scored.
    pub mean: Vec<f64>,
    /// `[N]` standard deviation of each group's scored rewards; 0 below two.
    pub std: Vec<f64>,
    /// `[N]` `true` for a group without signal: its scored rewards are all equal, or fewer than two.
    pub degenerate: Vec<bool>,
}

impl GroupAdvantage {
    /// Returns the `[R]` advantages in the precision of a loss.
    ///
    /// # Errors
    /// `NonFinite` for an advantage that overflows single precision, such as of rewards beyond 1e38 without a
    /// scale.
    pub fn advantage_f32(&self) -> Result<Vec<f32>> {
        let narrow: Vec<f32> = self.advantage.iter().map(|&advantage| advantage as f32).collect();
        match narrow.iter().position(|advantage| !advantage.is_finite()) {
            None => Ok(narrow),
            Some(index) => {
                let detail = format!(
                    "advantage[{index}] must fit in single precision, whose largest number is {:e}: got {:e}",
                    f32::MAX,
                    self.advantage[index]
                );
                Err(Error::new(ErrorKind::NonFinite, detail))
            }
        }
    }
}

/// Compares each reward with the rewards of its group. `reward` is `[R]`, group after group. `scored`, if
/// given, is `[R]` with 0 for a rollout without a score: no statistic includes it, and its advantage is 0.
///
/// # Errors
/// `OutOfRange` for a group of fewer than [`GROUP_SIZE_MIN`] rollouts or an option outside its range;
/// `Unavailable` for a missing device; `ShapeMismatch` if the groups do not cover the rewards or `scored` has
/// another length; `Empty` without rewards; `NonFinite` if a scored reward is NaN or infinite, or the
/// deviation overflows.
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
    dispatch!(Compute::on(options.device)?, cpu => group_advantage_on_cpu(reward, scored, groups, options))
}

fn group_advantage_on_cpu(
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
    check_rewards(reward, scored)?;
    let table = Table { reward, scored };
    let spreads = match (groups, scored) {
        (Groups::Size(size), None) => {
            let mut spreads = Vec::with_capacity(reward.len() / size);
            spreads_of_equal(reward, size, options.std, &mut spreads);
            spreads
        }
        _ => bounds.windows(2).map(|pair| table.spread(pair[0]..pair[1], options.std)).collect(),
    };
    for (group, spread) in spreads.iter().enumerate() {
        finite("mean reward of group", group, spread.mean)?;
        finite("standard deviation of the rewards of group", group, spread.std)?;
    }
    let batch_std = match (options.scale, options.baseline) {
        (AdvantageScale::Batch, Baseline::Group) => table.spread(0..reward.len(), options.std).std,
        (AdvantageScale::Batch, Baseline::LeaveOneOut) => differences_std(&spreads, options.std),
        _ => 0.0,
    };
    finite_value("the standard deviation of the batch", batch_std)?;
    let scale_of = |group: &Spread| {
        let factor = group.difference_factor(options.baseline);
        let divisor = match options.scale {
            AdvantageScale::Group => (factor * group.std).max(options.std_floor) + options.epsilon,
            AdvantageScale::Batch => batch_std.max(options.std_floor) + options.epsilon,
            AdvantageScale::None => 1.0,
        };
        Difference { mean: group.mean, factor, divisor }
    };
    let scales: Vec<Option<Difference>> =
        spreads.iter().map(|group| (!group.is_degenerate()).then(|| scale_of(group))).collect();
    let mut advantage = vec![0.0; reward.len()];
    differences(reward, &bounds, &scales, &mut advantage);
    if scored.is_some() || !are_finite(&advantage) {
        settle(&mut advantage, scored)?;
    }
    Ok(GroupAdvantage {
        advantage,
        mean: spreads.iter().map(|group| group.mean).collect(),
        std: spreads.iter().map(|group| group.std).collect(),
        degenerate: spreads.iter().map(Spread::is_degenerate).collect(),
    })
}

/// Converts the rewards of a group to advantages.
struct Difference {
    mean: f64,
    factor: f64,
    divisor: f64,
}

lanes! {
    /// Writes `factor * (reward - mean) / divisor` for each reward of the groups with a difference.
    fn differences(reward: &[f64], bounds: &[usize], of: &[Option<Difference>], advantage: &mut [f64]) {
        for (pair, of) in bounds.windows(2).zip(of) {
            let Some(Difference { mean, factor, divisor }) = of else { continue };
            let group = pair[0]..pair[1];
            for (advantage, reward) in advantage[group.clone()].iter_mut().zip(&reward[group]) {
                *advantage = factor * (reward - mean) / divisor;
            }
        }
    }
}

/// Sets the advantages of rollouts without a score to 0; the others must be finite.
fn settle(advantage: &mut [f64], scored: Option<&[u8]>) -> Result<()> {
    for (at, advantage) in advantage.iter_mut().enumerate() {
        if scored.is_some_and(|scored| scored[at] == 0) {
            *advantage = 0.0;
        } else {
            finite("advantage", at, *advantage)?;
        }
    }
    Ok(())
}

/// The rule that makes one advantage of several rewards of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RewardAggregation {
    /// The reward is their weighted sum.
    #[default]
    SumThenNormalize,
    /// Each is compared within its group and divided by the group's deviation. Their weighted sum is
    /// compared, and divided, over the batch, so rewards of a large scale do not dominate (GDPO,
    /// <https://arxiv.org/abs/2601.05242>).
    NormalizeThenSum,
}

/// Several rewards of each of `R` rollouts, of `F` functions.
#[derive(Debug, Clone, Copy)]
pub struct RewardTable<'a> {
    /// `[R, F]`
    pub reward: &'a [f64],
    /// `[R, F]` 0 where a function gave no reward: no sum includes it. A rollout without any reward has no
    /// score.
    pub scored: Option<&'a [u8]>,
    /// `[F]`
    pub weights: &'a [f64],
}

/// Runs [`group_advantage`] for rollouts with several rewards. `mean`, `std` and `degenerate` are those of
/// the weighted sums.
///
/// # Errors
/// The errors of [`group_advantage`]; `Empty` without weights; `NonFinite` for a weight that is not finite.
///
/// # Examples
/// ```
/// use fulmar_objective::{AdvantageOptions, Groups, RewardAggregation, RewardTable, multi_reward_advantage};
/// let reward = [1.0, 0.0, 0.0, 100.0]; // two rollouts, two rewards each
/// let table = RewardTable { reward: &reward, scored: None, weights: &[1.0, 1.0] };
/// let options = AdvantageOptions::default();
/// let advantage = |how| multi_reward_advantage(table, Groups::Size(2), how, &options).map(|found| found.advantage);
/// assert!(advantage(RewardAggregation::SumThenNormalize)?[0] < -0.7, "the sum hears the loud one");
/// assert!(advantage(RewardAggregation::NormalizeThenSum)?[0].abs() < 0.2, "both count the same");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn multi_reward_advantage(
    table: RewardTable<'_>,
    groups: Groups<'_>,
    aggregation: RewardAggregation,
    options: &AdvantageOptions,
) -> Result<GroupAdvantage> {
    dispatch!(Compute::on(options.device)?, cpu => multi_reward_on_cpu(table, groups, aggregation, options))
}

fn multi_reward_on_cpu(
    table: RewardTable<'_>,
    groups: Groups<'_>,
    aggregation: RewardAggregation,
    options: &AdvantageOptions,
) -> Result<GroupAdvantage> {
    options.checked()?;
    let RewardTable { reward, scored, weights } = table;
    let num_functions = weights.len();
    if num_functions == 0 {
        return Err(Error::new(ErrorKind::Empty, "weights must hold at least one: got []"));
    }
    for (index, weight) in weights.iter().enumerate() {
        finite("weights", index, *weight)?;
    }
    let num_rollouts = reward.len() / num_functions;
    check_len("reward", reward.len(), "rollouts times weights", num_rollouts * num_functions)?;
    if let Some(scored) = scored {
        check_len("scored", scored.len(), "reward", reward.len())?;
    }
    check_rewards(reward, scored)?;
    let is_scored = |index: usize| scored.is_none_or(|scored| scored[index] != 0);
    let any_scored: Vec<u8> = (0..num_rollouts)
        .map(|rollout| u8::from((0..num_functions).any(|f| is_scored(rollout * num_functions + f))))
        .collect();
    let mut sum = vec![0.0; num_rollouts];
    for (f, weight) in weights.iter().enumerate() {
        let column: Vec<f64> = reward.iter().skip(f).step_by(num_functions).copied().collect();
        let scored: Vec<u8> = (0..num_rollouts).map(|r| u8::from(is_scored(r * num_functions + f))).collect();
        let column = match aggregation {
            RewardAggregation::SumThenNormalize => column,
            RewardAggregation::NormalizeThenSum => {
                let options = AdvantageOptions { scale: AdvantageScale::Group, ..options.clone() };
                group_advantage(&column, Some(&scored), groups, &options)?.advantage
            }
        };
        for ((sum, value), _) in sum.iter_mut().zip(column).zip(scored).filter(|(_, scored)| *scored != 0) {
            *sum += weight * value;
        }
    }
    let result = group_advantage(&sum, Some(&any_scored), groups, options)?;
    match aggregation {
        RewardAggregation::SumThenNormalize => Ok(result),
        RewardAggregation::NormalizeThenSum => {
            let batch = [0, num_rollouts as u32];
            let options = AdvantageOptions {
                baseline: Baseline::Group,
                scale: AdvantageScale::Group,
                ..options.clone()
            };
            let advantage =
                group_advantage(&sum, Some(&any_scored), Groups::Offsets(&batch), &options)?.advantage;
            Ok(GroupAdvantage { advantage, ..result })
        }
    }
}

/// Checks that scored rewards are finite.
fn check_rewards(reward: &[f64], scored: Option<&[u8]>) -> Result<()> {
    if are_finite(reward) {
        return Ok(());
    }
    for (index, reward) in reward.iter().enumerate() {
        if scored.is_none_or(|scored| scored[index] != 0) {
            finite("reward", index, *reward)?;
        }
    }
    Ok(())
}

/// Rewards, some of which may be missing.
#[derive(Clone, Copy)]
struct Table<'a> {
    reward: &'a [f64],
    scored: Option<&'a [u8]>,
}

impl Table<'_> {
    fn is_scored(self, index: usize) -> bool {
        self.scored.is_none_or(|scored| scored[index] != 0)
    }

    fn spread(self, range: std::ops::Range<usize>, kind: StdKind) -> Spread {
        match self.scored {
            None => Spread::of(self.reward[range].iter().copied(), kind),
            Some(_) => {
                let scored = range.filter(|&index| self.is_scored(index));
                Spread::of(scored.map(|index| self.reward[index]), kind)
            }
        }
    }
}

/// Returns the standard deviation of all differences from leave-one-out baselines, whose mean is 0 in each group.
fn differences_std(spreads: &[Spread], kind: StdKind) -> f64 {
    // A rollout that is alone in its group has no difference.
    let scored = spreads.iter().filter(|spread| spread.count > 1.0);
    let squares = scored
        .clone()
        .map(|spread| spread.difference_factor(Baseline::LeaveOneOut).powi(2) * spread.square_sum);
    let square_sum: f64 = squares.sum();
    let count = scored.map(|spread| spread.count).sum();
    if count < 2.0 { 0.0 } else { kind.deviation(square_sum, count) }
}

impl StdKind {
    /// Returns the deviation of `count` numbers.
    #[inline(always)]
    fn deviation(self, square_sum: f64, count: f64) -> f64 {
        let divisor = match self {
            Self::Unbiased => count - 1.0,
            Self::Population => count,
        };
        (square_sum / divisor).sqrt()
    }
}

impl<'a> Groups<'a> {
    /// Returns groups from a size or from bounds, whichever is given.
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

    /// Returns the checked `[N + 1]` bounds over `num_rewards` rollouts.
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
            Self::Size(size) => Ok((0..=num_rewards / size).map(|group| group * size).collect()),
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

/// Mean and squared deviations, with the range for the test of exact equality.
#[derive(Debug, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    square_sum: f64,
    /// Exactly 0 if all rewards are equal.
    std: f64,
    low: f64,
    high: f64,
}

lanes! {
    /// Adds the [`Spread`] of every `size` rewards, several groups at once, so that sums do not wait for each
    /// other.
    fn spreads_of_equal(reward: &[f64], size: usize, kind: StdKind, spreads: &mut Vec<Spread>) {
        let mut tile = vec![[0.0; TILE]; size];
        let whole = reward.chunks_exact(TILE * size);
        let rest = whole.remainder();
        for groups in whole {
            for (lane, group) in groups.chunks_exact(size).enumerate() {
                for (values, value) in tile.iter_mut().zip(group) {
                    values[lane] = *value;
                }
            }
            let origin = tile[0];
            let (mut sum, mut low, mut high) = ([0.0; TILE], [f64::INFINITY; TILE], [f64::NEG_INFINITY; TILE]);
            for values in &tile {
                for lane in 0..TILE {
                    sum[lane] += values[lane] - origin[lane];
                    low[lane] = if values[lane] < low[lane] { values[lane] } else { low[lane] };
                    high[lane] = if values[lane] > high[lane] { values[lane] } else { high[lane] };
                }
            }
            let (count, mut mean, mut square_sum) = (size as f64, [0.0; TILE], [0.0; TILE]);
            for lane in 0..TILE {
                mean[lane] = origin[lane] + sum[lane] / count;
            }
            for values in &tile {
                for lane in 0..TILE {
                    square_sum[lane] += (values[lane] - mean[lane]) * (values[lane] - mean[lane]);
                }
            }
            let mut std = square_sum.map(|square_sum| kind.deviation(square_sum, count));
            for lane in 0..TILE {
                std[lane] = if low[lane] == high[lane] { 0.0 } else { std[lane] };
            }
            spreads.extend((0..TILE).map(|lane| {
                let (mean, square_sum, std) = (mean[lane], square_sum[lane], std[lane]);
                Spread { count, mean, square_sum, std, low: low[lane], high: high[lane] }
            }));
        }
        spreads.extend(rest.chunks_exact(size).map(|group| Spread::of(group.iter().copied(), kind)));
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone, kind: StdKind) -> Self {
        let origin = values.clone().next().unwrap_or_default();
        let (mut count, mut sum, mut low, mut high) = (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for value in values.clone() {
            count += 1.0;
            sum += value - origin;
            low = if value < low { value } else { low };
            high = if value > high { value } else { high };
        }
        let mean = if count > 0.0 { origin + sum / count } else { 0.0 };
        let square_sum = values.map(|value| (value - mean) * (value - mean)).sum();
        let mut spread = Self { count, mean, square_sum, std: 0.0, low, high };
        if !spread.is_degenerate() {
            spread.std = kind.deviation(square_sum, count);
        }
        spread
    }

    /// Returns the factor that turns a difference from the mean into a difference from the baseline.
    fn difference_factor(&self, baseline: Baseline) -> f64 {
        match baseline {
            Baseline::Group => 1.0,
            Baseline::LeaveOneOut => self.count / (self.count - 1.0).max(1.0),
        }
    }

    fn is_degenerate(&self) -> bool {
        self.count < 2.0 || self.low == self.high
    }
}
