//! Selection of rollouts of a group: some of the candidates, or the best of the last ones.
//!
//! ```text
//! first     the first of them
//! uniform   sorted by return, evenly spaced: round(k (C - 1) / (G - 1)) for k = 0 .. G - 1
//! balanced  of all C-choose-G subsets whose mean is within the bounds, that nearest to their middle, of equals the widest;
//!           where these are too many: from the uniform ones, exchange one at a time as long as the mean comes nearer
//! ```
//! Bounds are exclusive. TorchRL `MCAdvantageSelector` and `TopKRewardSelector`.

use std::collections::VecDeque;

use fulmar_core::limits::{GROUP_ROLLOUTS_MAX, PENDING_GROUPS_MAX, SELECTOR_COMBINATIONS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::batch::{finite, finite_value};

/// The rule of a [`McAdvantageSelector`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SelectionStrategy {
    /// A mean near the middle of the bounds, and a wide spread.
    #[default]
    Balanced,
    /// The first candidates.
    First,
    /// Evenly spaced in the order of returns.
    Uniform,
}

/// Selects a group from candidates by their returns.
///
/// # Examples
/// ```
/// use fulmar_objective::McAdvantageSelector;
/// let selector = McAdvantageSelector::default();
/// assert_eq!(selector.select(&[0.0, 0.0, 0.0, 1.0], 2, Some([0.1, 0.9]))?, Some(vec![0, 3]));
/// assert_eq!(selector.select(&[0.0, 0.0, 0.0], 2, Some([0.1, 0.9]))?, None);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McAdvantageSelector {
    /// The rule.
    pub strategy: SelectionStrategy,
    /// Most subsets that `Balanced` compares; above, it exchanges one candidate at a time. 1 to
    /// [`SELECTOR_COMBINATIONS_MAX`]. Defaults to 100,000.
    pub max_combinations: usize,
}

impl Default for McAdvantageSelector {
    fn default() -> Self {
        Self { strategy: SelectionStrategy::Balanced, max_combinations: 100_000 }
    }
}

impl McAdvantageSelector {
    pub(crate) fn check(&self) -> Result<()> {
        if (1..=SELECTOR_COMBINATIONS_MAX).contains(&self.max_combinations) {
            return Ok(());
        }
        let detail = format!(
            "maxCombinations must be from 1 to {SELECTOR_COMBINATIONS_MAX}: got {}",
            self.max_combinations
        );
        Err(Error::new(ErrorKind::OutOfRange, detail))
    }

    /// Selects the indices of `group_size` candidates by their `returns`; `None` if no selection has a mean
    /// within `bounds`.
    ///
    /// # Errors
    /// `OutOfRange` for fewer candidates than `group_size`, a group of 0, bounds that do not increase, or
    /// `max_combinations` outside its range; `LimitExceeded` for more than [`GROUP_ROLLOUTS_MAX`] candidates;
    /// `NonFinite` for a return or a bound that is not finite.
    pub fn select(
        &self,
        returns: &[f64],
        group_size: usize,
        bounds: Option<[f64; 2]>,
    ) -> Result<Option<Vec<usize>>> {
        self.check()?;
        check_bounds(bounds)?;
        check_candidates(returns.len(), group_size)?;
        let mut size = 0.0;
        for (index, value) in returns.iter().enumerate() {
            size += finite("returns", index, *value)?.abs();
        }
        finite_value("the sum of the sizes of returns", size)?;
        let candidates = Candidates { returns, group_size, bounds };
        let chosen = match (self.strategy, bounds) {
            _ if returns.len() == group_size => (0..group_size).collect(),
            (SelectionStrategy::First, _) => (0..group_size).collect(),
            (SelectionStrategy::Uniform, _) | (SelectionStrategy::Balanced, None) => candidates.uniform(),
            (SelectionStrategy::Balanced, Some(bounds)) => {
                let middle = f64::midpoint(bounds[0], bounds[1]);
                return Ok(if num_subsets(returns.len(), group_size) <= self.max_combinations as u128 {
                    candidates.best_subset(middle)
                } else {
                    Some(candidates.exchanged(middle)).filter(|chosen| candidates.accept(chosen))
                });
            }
        };
        Ok(Some(chosen).filter(|chosen| candidates.accept(chosen)))
    }
}

pub(crate) fn check_bounds(bounds: Option<[f64; 2]>) -> Result<()> {
    let Some([low, high]) = bounds else { return Ok(()) };
    finite("keepReturnBounds", 0, low)?;
    finite("keepReturnBounds", 1, high)?;
    if low < high {
        return Ok(());
    }
    let detail = format!("keepReturnBounds must be increasing: got [{low}, {high}]");
    Err(Error::new(ErrorKind::OutOfRange, detail))
}

fn check_candidates(num_candidates: usize, group_size: usize) -> Result<()> {
    if num_candidates > GROUP_ROLLOUTS_MAX {
        let detail = format!("candidates must be at most {GROUP_ROLLOUTS_MAX}: got {num_candidates}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    if group_size == 0 || num_candidates < group_size {
        let least = group_size.max(1);
        let detail =
            format!("candidates must be at least {least} for a group of {group_size}: got {num_candidates}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    Ok(())
}

/// Returns `n` choose `k`, or a number above any limit.
fn num_subsets(n: usize, k: usize) -> u128 {
    (0..k.min(n - k))
        .try_fold(1_u128, |count, i| Some(count.checked_mul((n - i) as u128)? / (i as u128 + 1)))
        .unwrap_or(u128::MAX)
}

struct Candidates<'a> {
    returns: &'a [f64],
    group_size: usize,
    bounds: Option<[f64; 2]>,
}

impl Candidates<'_> {
    fn mean(&self, chosen: &[usize]) -> f64 {
        chosen.iter().map(|&index| self.returns[index]).sum::<f64>() / chosen.len() as f64
    }

    fn spread(&self, chosen: &[usize]) -> f64 {
        let of = |fold: fn(f64, f64) -> f64, start| {
            chosen.iter().map(|&index| self.returns[index]).fold(start, fold)
        };
        of(f64::max, f64::MIN) - of(f64::min, f64::MAX)
    }

    fn accept(&self, chosen: &[usize]) -> bool {
        let mean = self.mean(chosen);
        self.bounds.is_none_or(|[low, high]| low < mean && mean < high)
    }

    /// Returns indices by increasing return, ties by the earlier index.
    fn sorted(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.returns.len()).collect();
        order.sort_by(|&a, &b| self.returns[a].total_cmp(&self.returns[b]));
        order
    }

    fn uniform(&self) -> Vec<usize> {
        let (order, last) = (self.sorted(), self.returns.len() - 1);
        if self.group_size == 1 {
            return vec![order[order.len() / 2]];
        }
        let place =
            |k: usize| (k as f64 * last as f64 / (self.group_size - 1) as f64).round_ties_even() as usize;
        (0..self.group_size).map(|k| order[place(k)]).collect()
    }

    /// Returns the best of all subsets in lexicographic order.
    fn best_subset(&self, middle: f64) -> Option<Vec<usize>> {
        let (n, k) = (self.returns.len(), self.group_size);
        let mut subset: Vec<usize> = (0..k).collect();
        let mut best: Option<(f64, f64, Vec<usize>)> = None;
        loop {
            if self.accept(&subset) {
                let (off, spread) = ((self.mean(&subset) - middle).abs(), self.spread(&subset));
                let is_better = best.as_ref().is_none_or(|(best_off, best_spread, _)| {
                    off < *best_off || (off == *best_off && spread > *best_spread)
                });
                if is_better {
                    best = Some((off, spread, subset.clone()));
                }
            }
            let Some(place) = (0..k).rev().find(|&place| subset[place] < n - k + place) else {
                return best.map(|(_, _, subset)| subset);
            };
            subset[place] += 1;
            for later in place + 1..k {
                subset[later] = subset[later - 1] + 1;
            }
        }
    }

    /// Starts with the uniform selection and repeats the single exchange that brings the mean nearest to
    /// `middle`, as long as one does. Every exchange brings it nearer, so no selection comes twice.
    fn exchanged(&self, middle: f64) -> Vec<usize> {
        let (order, mut chosen) = (self.sorted(), self.uniform());
        let off = |chosen: &[usize]| (self.mean(chosen) - middle).abs();
        for _ in 0..self.returns.len() {
            let mut best: Option<(f64, usize, usize)> = None;
            for place in 0..chosen.len() {
                for &other in order.iter().rev().filter(|other| !chosen.contains(other)) {
                    let step = (self.returns[other] - self.returns[chosen[place]]) / chosen.len() as f64;
                    let off = (self.mean(&chosen) + step - middle).abs();
                    if best.is_none_or(|(best_off, _, _)| off < best_off) {
                        best = Some((off, place, other));
                    }
                }
            }
            let before = off(&chosen);
            let Some((_, place, other)) = best.filter(|(off, _, _)| *off < before) else { break };
            chosen[place] = other;
        }
        chosen
    }
}

/// Options of [`TopKRewardSelector`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TopKRewardOptions {
    /// The number of rollouts of a prompt that are compared.
    pub total_dialog_turns: usize,
    /// The most rollouts to keep, at most `total_dialog_turns`.
    pub topk_size: usize,
}

/// Keeps the best of every `total_dialog_turns` rollouts of a prompt: those above the (lower) median reward,
/// at most `topk_size`.
///
/// After a comparison, a prompt starts with an empty list again.
///
/// # Examples
/// ```
/// use fulmar_objective::{TopKRewardOptions, TopKRewardSelector};
/// let mut selector = TopKRewardSelector::new(TopKRewardOptions { total_dialog_turns: 3, topk_size: 2 })?;
/// assert_eq!(selector.push("prompt", 0.5)?.compared, None);
/// assert_eq!(selector.push("prompt", 0.0)?.compared, None);
/// let last = selector.push("prompt", 1.0)?;
/// assert_eq!((last.ticket, last.compared), (2, Some(vec![2])), "only 1 is above the median 0.5");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TopKRewardSelector {
    options: TopKRewardOptions,
    queues: IndexMap<String, VecDeque<(u64, f64)>>,
    num_pushed: u64,
}

/// The result of adding a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Compared {
    /// The number of this rollout, from 0.
    pub ticket: u64,
    /// The kept rollouts, the best first, if this rollout completed a comparison; empty if all rewards are
    /// equal.
    pub compared: Option<Vec<u64>>,
    /// The rollouts that are no longer needed, kept or not.
    pub released: Vec<u64>,
}

impl TopKRewardSelector {
    /// Returns a selector without rollouts.
    ///
    /// # Errors
    /// `OutOfRange` unless `1 <= topk_size <= total_dialog_turns <= `[`GROUP_ROLLOUTS_MAX`].
    pub fn new(options: TopKRewardOptions) -> Result<Self> {
        let TopKRewardOptions { total_dialog_turns, topk_size } = options;
        if topk_size == 0 || topk_size > total_dialog_turns || total_dialog_turns > GROUP_ROLLOUTS_MAX {
            let detail = format!(
                "1 <= topkSize <= totalDialogTurns <= {GROUP_ROLLOUTS_MAX} must hold: got {topk_size} and {total_dialog_turns}"
            );
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self { options, queues: IndexMap::new(), num_pushed: 0 })
    }

    /// Adds a rollout of `prompt` with the mean of its rewards.
    ///
    /// # Errors
    /// `NonFinite` for a reward that is not finite; `LimitExceeded` for more than [`PENDING_GROUPS_MAX`]
    /// prompts that wait for more rollouts.
    pub fn push(&mut self, prompt: &str, reward: f64) -> Result<Compared> {
        if !reward.is_finite() {
            return Err(Error::new(ErrorKind::NonFinite, format!("reward must be finite: got {reward}")));
        }
        check_pending(self.queues.len(), self.queues.contains_key(prompt))?;
        let ticket = self.num_pushed;
        self.num_pushed += 1;
        let queue = self.queues.entry(prompt.to_owned()).or_default();
        queue.push_back((ticket, reward));
        if queue.len() < self.options.total_dialog_turns {
            return Ok(Compared { ticket, ..Compared::default() });
        }
        let mut rollouts: Vec<(u64, f64)> = self.queues.shift_remove(prompt).unwrap_or_default().into();
        let released = rollouts.iter().map(|(ticket, _)| *ticket).collect();
        // Sorted by decreasing reward, ties by the earlier rollout; the lower median of n is the (n / 2)-th
        // from above.
        rollouts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let median = rollouts[rollouts.len() / 2].1;
        let above = rollouts.iter().filter(|(_, reward)| *reward > median).take(self.options.topk_size);
        Ok(Compared { ticket, compared: Some(above.map(|(ticket, _)| *ticket).collect()), released })
    }
}

/// Refuses another group above the limit of waiting groups.
pub(crate) fn check_pending(num_groups: usize, is_known: bool) -> Result<()> {
    if is_known || num_groups < PENDING_GROUPS_MAX {
        return Ok(());
    }
    let detail = format!(
        "at most {PENDING_GROUPS_MAX} groups can wait for more rollouts: this one would be number {}",
        num_groups + 1
    );
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}
