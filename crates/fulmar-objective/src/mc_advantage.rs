//! Advantages of groups whose rollouts arrive one by one: they wait in a queue of their group until there are
//! enough.
//!
//! ```text
//! without trajectory_return: A of each reward = (r - mean) / max(std, 1e-6) over all rewards of the group
//! with it: R of a rollout = sum, max or mean of its rewards; A of each = (R - mean R) / max(std R, 1e-6)
//! ```
//! Std has the divisor n - 1. A group of equal returns gets exactly 0. With `trajectory_return` a group may
//! be selected from more candidates, so that its mean return is within bounds: groups in which all rollouts
//! win or fail have no signal (dynamic sampling, DAPO, <https://arxiv.org/abs/2503.14476>). TorchRL
//! `MCAdvantage`.

use fulmar_compute::Compute;
use fulmar_core::limits::GROUP_ROLLOUTS_MAX;
use fulmar_core::{Device, Error, ErrorKind, Result};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::advantage::{AdvantageOptions, GROUP_SIZE_MIN, Groups, group_advantage};
use crate::batch::{check_len, finite, finite_value};
use crate::selector::{McAdvantageSelector, check_bounds, check_pending};

/// The return of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrajectoryReturn {
    /// The sum of its rewards.
    Sum,
    /// Its largest reward.
    Max,
    /// The mean of its rewards.
    Mean,
}

impl TrajectoryReturn {
    fn of(self, rewards: &[f64]) -> f64 {
        let sum = rewards.iter().sum::<f64>();
        match self {
            Self::Sum => sum,
            Self::Max => rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Mean => sum / rewards.len() as f64,
        }
    }
}

/// Options of [`McAdvantage`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McAdvantageOptions {
    /// Rollouts in a group, at least 2.
    pub grpo_size: usize,
    /// Compares rollouts by their returns; by single rewards if absent.
    #[serde(default)]
    pub trajectory_return: Option<TrajectoryReturn>,
    /// Exclusive bounds: a group is kept if its mean return is between them. Needs `trajectory_return`.
    #[serde(default)]
    pub keep_return_bounds: Option<[f64; 2]>,
    /// Most rollouts that may arrive before a group without a selection is dropped. Defaults to `grpo_size`.
    /// Needs `trajectory_return`.
    #[serde(default)]
    pub candidate_group_size: Option<usize>,
    /// Rollouts that must arrive before a selection is tried. Defaults to `grpo_size`.
    #[serde(default)]
    pub candidate_selection_min_size: Option<usize>,
    /// The rule of a selection.
    #[serde(default)]
    pub candidate_selector: McAdvantageSelector,
    /// The device. Defaults to the CPU.
    #[serde(default)]
    pub device: Device,
}

impl McAdvantageOptions {
    /// Returns the default options with groups of `grpo_size`.
    #[must_use]
    pub fn of_size(grpo_size: usize) -> Self {
        Self {
            grpo_size,
            trajectory_return: None,
            keep_return_bounds: None,
            candidate_group_size: None,
            candidate_selection_min_size: None,
            candidate_selector: McAdvantageSelector::default(),
            device: Device::Cpu,
        }
    }

    fn candidates_max(&self) -> usize {
        self.candidate_group_size.unwrap_or(self.grpo_size)
    }

    fn candidates_min(&self) -> usize {
        self.candidate_selection_min_size.unwrap_or(self.grpo_size)
    }

    fn check(&self) -> Result<()> {
        Compute::on(self.device)?;
        let refuse = |detail: String| Err(Error::new(ErrorKind::OutOfRange, detail));
        let (size, most, least) = (self.grpo_size, self.candidates_max(), self.candidates_min());
        if size < GROUP_SIZE_MIN {
            return refuse(format!("grpoSize must be at least {GROUP_SIZE_MIN}: got {size}"));
        }
        if !(size..=GROUP_ROLLOUTS_MAX).contains(&most) {
            return refuse(format!(
                "candidateGroupSize must be from grpoSize = {size} to {GROUP_ROLLOUTS_MAX}: got {most}"
            ));
        }
        if !(size..=most).contains(&least) {
            return refuse(format!(
                "candidateSelectionMinSize must be from grpoSize = {size} to candidateGroupSize = {most}: got {least}"
            ));
        }
        if self.trajectory_return.is_none() && (most > size || self.keep_return_bounds.is_some()) {
            return refuse(format!(
                "trajectoryReturn must be given for dynamic sampling, here with candidateGroupSize {most} and keepReturnBounds {:?}",
                self.keep_return_bounds
            ));
        }
        check_bounds(self.keep_return_bounds)?;
        self.candidate_selector.check()
    }
}

/// Counts since the start or [`McAdvantage::reset_stats`]; the last three are current sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct McAdvantageStats {
    /// Rollouts that arrived.
    pub completed_trajectories: u64,
    /// Rewards that arrived.
    pub completed_decisions: u64,
    /// The sum of the sums of their rewards; counted with `trajectory_return` only, as are the next two.
    pub trajectory_return_sum: f64,
    /// The largest of these sums; `None` before the first.
    pub trajectory_return_max: Option<f64>,
    /// Rollouts whose sum is above 0.
    pub successful_trajectories: u64,
    /// Groups that left their queue.
    pub completed_groups: u64,
    /// Groups that were returned.
    pub written_groups: u64,
    /// Groups that were dropped.
    pub dropped_groups: u64,
    /// Returned groups that needed more candidates than a group has.
    pub rescued_groups: u64,
    /// Rollouts that were selected; counted with `trajectory_return` only, as is the next.
    pub selected_trajectories: u64,
    /// Candidates of returned groups that were not selected.
    pub unselected_trajectories: u64,
    /// Groups in the queue.
    pub queued_groups: usize,
    /// Rollouts in the queue.
    pub queued_trajectories: usize,
    /// The most rollouts in the queue of one group.
    pub max_queued_trajectories_per_group: usize,
}

impl McAdvantageStats {
    const ZERO: Self = Self {
        completed_trajectories: 0,
        completed_decisions: 0,
        trajectory_return_sum: 0.0,
        trajectory_return_max: None,
        successful_trajectories: 0,
        completed_groups: 0,
        written_groups: 0,
        dropped_groups: 0,
        rescued_groups: 0,
        selected_trajectories: 0,
        unselected_trajectories: 0,
        queued_groups: 0,
        queued_trajectories: 0,
        max_queued_trajectories_per_group: 0,
    };
}

/// The result of adding a rollout to a group.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct McGroup {
    /// The rollouts of the finished group, in order; empty if it waits or was dropped.
    pub tickets: Vec<u64>,
    /// For each of them, the advantage of each of its rewards.
    pub advantages: Vec<Vec<f64>>,
    /// All rollouts that left the queue, selected or not.
    pub released: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Queued {
    ticket: u64,
    rewards: Vec<f64>,
}

/// Queues of groups. The caller keeps the data of a rollout under its ticket.
///
/// # Examples
/// ```
/// use fulmar_objective::{McAdvantage, McAdvantageOptions};
/// let mut queues = McAdvantage::new(McAdvantageOptions::of_size(2))?;
/// assert_eq!(queues.push("a", &[0.0])?.0, 0);
/// let (ticket, group) = queues.push("a", &[1.0])?;
/// assert_eq!((ticket, group.tickets), (1, vec![0, 1]));
/// assert_eq!(group.advantages, [[-0.7071067811865475], [0.7071067811865475]]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct McAdvantage {
    options: McAdvantageOptions,
    state: State,
}

/// The state that survives a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    queues: IndexMap<String, Vec<Queued>>,
    stats: McAdvantageStats,
    num_pushed: u64,
}

impl McAdvantage {
    /// Makes empty queues.
    ///
    /// # Errors
    /// `OutOfRange` or `NonFinite` for an invalid option, or one that needs another option.
    pub fn new(options: McAdvantageOptions) -> Result<Self> {
        options.check()?;
        let state = State { queues: IndexMap::new(), stats: McAdvantageStats::ZERO, num_pushed: 0 };
        Ok(Self { options, state })
    }

    /// Adds a rollout to `group` and returns its ticket, counted from 0, and the group, which is finished if
    /// there are enough rollouts.
    ///
    /// # Errors
    /// The errors of [`McAdvantage::enqueue`].
    pub fn push(&mut self, group: &str, rewards: &[f64]) -> Result<(u64, McGroup)> {
        let ticket = self.enqueue(group, rewards)?;
        let Some(returns) = self.candidates(group) else { return Ok((ticket, McGroup::default())) };
        let McAdvantageOptions { grpo_size, keep_return_bounds, candidate_selector, .. } = &self.options;
        let chosen = candidate_selector.select(&returns, *grpo_size, *keep_return_bounds)?;
        Ok((ticket, self.settle(group, chosen.as_deref())?))
    }

    /// Adds a rollout to `group` without a selection: for custom selections, see [`McAdvantage::candidates`].
    ///
    /// # Errors
    /// `Empty` without rewards; `NonFinite` for a reward that is not finite; `LimitExceeded` if too many
    /// groups wait, or if a selection is due: see [`McAdvantage::settle`]. After an error nothing was added.
    pub fn enqueue(&mut self, group: &str, rewards: &[f64]) -> Result<u64> {
        if rewards.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "rewards must hold at least one: got []"));
        }
        let mut sum = 0.0;
        for (index, reward) in rewards.iter().enumerate() {
            sum += finite("rewards", index, *reward)?;
        }
        finite_value("the sum of rewards", sum)?;
        let total = self.state.stats.trajectory_return_sum + sum;
        if self.options.trajectory_return.is_some() {
            finite_value("the sum of the returns of all rollouts", total)?;
        }
        let num_queued = self.state.queues.get(group).map_or(0, Vec::len);
        check_pending(self.state.queues.len(), num_queued > 0)?;
        if num_queued >= self.options.candidates_max() {
            let detail =
                format!("group {group:?} must be settled before it grows: got {num_queued} rollouts");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let State { queues, stats, num_pushed } = &mut self.state;
        let ticket = *num_pushed;
        *num_pushed += 1;
        queues.entry(group.to_owned()).or_default().push(Queued { ticket, rewards: rewards.to_vec() });
        stats.completed_trajectories += 1;
        stats.completed_decisions += rewards.len() as u64;
        if self.options.trajectory_return.is_some() {
            stats.trajectory_return_sum = total;
            stats.trajectory_return_max = Some(stats.trajectory_return_max.map_or(sum, |max| max.max(sum)));
            stats.successful_trajectories += u64::from(sum > 0.0);
        }
        Ok(ticket)
    }

    /// Returns the returns of a group's rollouts (the sums of their rewards without `trajectory_return`), if
    /// there are enough for a selection.
    #[must_use]
    pub fn candidates(&self, group: &str) -> Option<Vec<f64>> {
        let queue = self.state.queues.get(group)?;
        let of = self.options.trajectory_return.unwrap_or(TrajectoryReturn::Sum);
        (queue.len() >= self.options.candidates_min())
            .then(|| queue.iter().map(|queued| of.of(&queued.rewards)).collect())
    }

    /// Finishes `group` with the `chosen` of its candidates. Without a choice the group continues to wait, or
    /// is dropped if all rollouts that may arrive have.
    ///
    /// # Errors
    /// `UnknownName` for a group that does not wait; `ShapeMismatch` for another number than `grpo_size`;
    /// `OutOfRange` for an index that is out of range or comes twice; `NonFinite` if the returns are too far
    /// apart. After an error the group continues to wait.
    pub fn settle(&mut self, group: &str, chosen: Option<&[usize]>) -> Result<McGroup> {
        let Some(queue) = self.state.queues.get(group) else {
            let detail = format!("group must be one that waits: got {group:?}");
            return Err(Error::new(ErrorKind::UnknownName, detail));
        };
        let num_queued = queue.len();
        let is_dropped = chosen.is_none() && num_queued >= self.options.candidates_max();
        if chosen.is_none() && !is_dropped {
            return Ok(McGroup::default());
        }
        let advantages = chosen.map_or(Ok(vec![]), |chosen| self.advantages(queue, chosen))?;
        let released: Vec<u64> = queue.iter().map(|queued| queued.ticket).collect();
        let tickets: Vec<u64> = chosen.unwrap_or_default().iter().map(|&index| released[index]).collect();
        self.state.queues.shift_remove(group);
        let stats = &mut self.state.stats;
        stats.completed_groups += 1;
        stats.dropped_groups += u64::from(is_dropped);
        if !is_dropped {
            stats.written_groups += 1;
            stats.rescued_groups += u64::from(num_queued > self.options.candidates_min());
            if self.options.trajectory_return.is_some() {
                stats.selected_trajectories += tickets.len() as u64;
                stats.unselected_trajectories += (num_queued - tickets.len()) as u64;
            }
        }
        Ok(McGroup { tickets, advantages, released })
    }

    fn advantages(&self, queue: &[Queued], chosen: &[usize]) -> Result<Vec<Vec<f64>>> {
        check_len("choice", chosen.len(), "grpoSize", self.options.grpo_size)?;
        for (place, &index) in chosen.iter().enumerate() {
            if index >= queue.len() || chosen[..place].contains(&index) {
                let detail =
                    format!("choice[{place}] must be a new index below {}: got {index}", queue.len());
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        let group: Vec<&[f64]> = chosen.iter().map(|&index| queue[index].rewards.as_slice()).collect();
        let compared: Vec<f64> = match self.options.trajectory_return {
            Some(of) => group.iter().map(|rewards| of.of(rewards)).collect(),
            None => group.concat(),
        };
        let options = AdvantageOptions {
            epsilon: 0.0,
            std_floor: 1e-6,
            device: self.options.device,
            ..AdvantageOptions::default()
        };
        let result = group_advantage(&compared, None, Groups::Size(compared.len()), &options)?;
        let mut advantage = result.advantage.into_iter();
        let of_rollout = |rewards: &&[f64]| match self.options.trajectory_return {
            Some(_) => vec![advantage.next().unwrap_or_default(); rewards.len()],
            None => advantage.by_ref().take(rewards.len()).collect(),
        };
        Ok(group.iter().map(of_rollout).collect())
    }

    /// Returns the counts.
    #[must_use]
    pub fn stats(&self) -> McAdvantageStats {
        let lengths = || self.state.queues.values().map(Vec::len);
        McAdvantageStats {
            queued_groups: self.state.queues.len(),
            queued_trajectories: lengths().sum(),
            max_queued_trajectories_per_group: lengths().max().unwrap_or(0),
            ..self.state.stats.clone()
        }
    }

    /// Sets the counts to 0; the queues stay.
    pub fn reset_stats(&mut self) {
        self.state.stats = McAdvantageStats::ZERO;
    }

    /// Removes all waiting rollouts and returns their tickets; the counts stay.
    pub fn clear_queues(&mut self) -> Vec<u64> {
        let queues = std::mem::take(&mut self.state.queues);
        queues.into_values().flatten().map(|queued| queued.ticket).collect()
    }

    /// Removes the rollouts of the group that has waited longest and returns their tickets; the group counts
    /// as dropped. Returns nothing if no group waits.
    pub fn evict_oldest(&mut self) -> Vec<u64> {
        let Some((_, queue)) = self.state.queues.shift_remove_index(0) else { return vec![] };
        self.state.stats.completed_groups += 1;
        self.state.stats.dropped_groups += 1;
        queue.into_iter().map(|queued| queued.ticket).collect()
    }

    /// Returns the queues and the counts as JSON.
    ///
    /// # Errors
    /// Never for finite rewards, and all rewards are finite.
    pub fn state_json(&self) -> Result<String> {
        serde_json::to_string(&self.state).map_err(|error| {
            Error::new(ErrorKind::NonFinite, format!("state must be written: {error}")).because(error)
        })
    }

    /// Restores the state that [`McAdvantage::state_json`] returned, with the same tickets.
    ///
    /// # Errors
    /// `Corrupt` for a text that is not such a state, or not a state of these options; nothing changes then.
    pub fn load_state_json(&mut self, json: &str) -> Result<()> {
        let corrupt =
            |detail: String| Error::new(ErrorKind::Corrupt, format!("state must be readable: {detail}"));
        let state: State =
            serde_json::from_str(json).map_err(|error| corrupt(error.to_string()).because(error))?;
        check_pending(state.queues.len().saturating_sub(1), false)?;
        let most = self.options.candidates_max();
        let is_bad = |queued: &Queued| {
            queued.ticket >= state.num_pushed
                || queued.rewards.is_empty()
                || !queued.rewards.iter().all(|reward| reward.is_finite())
        };
        for (group, queue) in &state.queues {
            if queue.is_empty() || queue.len() > most || queue.iter().any(is_bad) {
                return Err(corrupt(format!("group {group:?} must hold 1 to {most} finite rollouts")));
            }
        }
        self.state = state;
        Ok(())
    }
}
