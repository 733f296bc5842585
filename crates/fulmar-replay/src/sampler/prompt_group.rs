//! Batches of whole groups: rows of the same prompt.

use std::collections::HashMap;

use fulmar_core::limits::REPLAY_ROWS_MAX;
use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{Reads, Reduction, names, reduced};
use crate::row::{checked_draw, checked_row};
use crate::sampler::{Sampled, Sampler, group_key, reward_key};
use crate::stateful::{from_state, to_state};
use crate::{Follower, Stateful};

/// The selection of rows from a group with more than enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GroupStrategy {
    /// Any.
    #[default]
    Random,
    /// The rows written last.
    Recency,
    /// The rows with the highest rewards.
    Reward,
    /// The lowest and the highest rewards, in the numbers that maximise the variance; ties by the highest
    /// sum.
    Variance,
}

/// The shape of a batch; checked by [`PromptGroupSampler::new`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PromptGroupOptions {
    /// Number of groups in a batch, at least 1; exclusive with `samples_per_group`.
    pub num_groups: Option<usize>,
    /// Number of rows in each group, at least 1; exclusive with `num_groups`.
    pub samples_per_group: Option<usize>,
    /// The selection of rows. Defaults to random.
    pub strategy: GroupStrategy,
}

/// Draws groups without replacement and rows within them. If there are too few groups, or rows in one, all
/// come once and the rest is drawn with replacement.
///
/// # Examples
/// ```
/// use fulmar_replay::{PromptGroupOptions, PromptGroupSampler};
/// let options = PromptGroupOptions { samples_per_group: Some(2), ..Default::default() };
/// let mut sampler = PromptGroupSampler::new(options, 7)?;
/// sampler.extend(&[0, 1, 2, 3], &["a", "b", "b", "a"], &[0.0; 4])?;
/// let mut rows = sampler.sample(4)?;
/// rows[..2].sort_unstable();
/// assert!(rows[..2] == [0, 3] || rows[..2] == [1, 2], "a block is one group: {rows:?}");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PromptGroupSampler {
    options: PromptGroupOptions,
    groups: Vec<Group>,
    /// Index of each key's group.
    group_of: HashMap<String, usize>,
    rows: Vec<Option<Member>>,
    clock: u64,
    rng: Rng,
    group_key: Key,
    reward_key: Key,
}

#[derive(Debug, Clone)]
struct Group {
    key: String,
    rows: Vec<usize>,
}

/// A row with its group, its position there, its reward and its write number.
#[derive(Debug, Clone, Copy)]
struct Member {
    group: usize,
    place: usize,
    reward: f64,
    clock: u64,
}

/// A row of a group in a saved state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupMember {
    /// The row.
    pub row: usize,
    /// Its reward.
    pub reward: f64,
    /// Number of rows written before it.
    pub clock: u64,
}

/// The state of a [`PromptGroupSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromptGroupSamplerState {
    /// The options.
    pub options: PromptGroupOptions,
    /// Each key and its rows, in the order on which draws depend.
    pub groups: Vec<(String, Vec<GroupMember>)>,
    /// Number of rows ever written.
    pub clock: u64,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl PromptGroupSampler {
    /// Returns a sampler of batches of the shape in `options`; `seed` makes its draws reproducible.
    ///
    /// # Errors
    /// `OutOfRange` unless exactly one of `num_groups` and `samples_per_group` is given, and at least 1.
    pub fn new(options: PromptGroupOptions, seed: u64) -> Result<Self> {
        let given = [options.num_groups, options.samples_per_group];
        if given.iter().flatten().count() != 1 || given.contains(&Some(0)) {
            let detail =
                format!("one of num_groups and samples_per_group must be given, and >= 1: got {given:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let rng = Rng::new(seed).stream("prompt group sampler");
        let (groups, group_of, rows) = (Vec::new(), HashMap::new(), Vec::new());
        let (group_key, reward_key) = (group_key(), reward_key());
        Ok(Self { options, groups, group_of, rows, clock: 0, rng, group_key, reward_key })
    }

    /// Sets the keys of an item's prompt and of its reward. Default to `"query"` and `["next", "reward"]`.
    #[must_use]
    pub fn keyed(self, group_key: Key, reward_key: Key) -> Self {
        Self { group_key, reward_key, ..self }
    }

    /// Records that `rows` were written, each an answer to a prompt in `keys` with a reward.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ, `NonFinite` if a reward is NaN or infinite, `OutOfRange` if a row is beyond the limit
    /// of a buffer.
    pub fn extend(&mut self, rows: &[usize], keys: &[impl AsRef<str>], rewards: &[f64]) -> Result<()> {
        if keys.len() != rows.len() || rewards.len() != rows.len() {
            let (num_keys, num_rewards) = (keys.len(), rewards.len());
            let detail = format!(
                "keys and rewards must have one item a row, {}: got {num_keys}, {num_rewards}",
                rows.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        for &row in rows {
            checked_row(row, REPLAY_ROWS_MAX)?;
        }
        check_rewards(rows, rewards)?;
        for ((&row, key), &reward) in rows.iter().zip(keys).zip(rewards) {
            self.remove(row);
            self.insert(row, key.as_ref(), reward, self.clock);
            self.clock += 1;
        }
        Ok(())
    }

    /// Returns the number of groups with rows.
    #[must_use]
    pub fn num_groups(&self) -> usize {
        self.groups.len()
    }

    /// Draws `count` rows in blocks of one group each.
    ///
    /// # Errors
    /// `Empty` if no row was written; `OutOfRange` if `count` is 0, above the limit of a draw, or not
    /// divisible by the number of groups or of rows in one.
    pub fn sample(&mut self, count: usize) -> Result<Vec<usize>> {
        checked_draw(self.groups.len(), count)?;
        let part = self.options.num_groups.or(self.options.samples_per_group).unwrap_or(1);
        if !count.is_multiple_of(part) {
            let detail = format!("count must be divisible by {part}: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (num_groups, size) =
            if self.options.num_groups.is_some() { (part, count / part) } else { (count / part, part) };
        let mut groups: Vec<usize> = (0..self.groups.len()).collect();
        draw_prefix(&mut self.rng, &mut groups, num_groups)?;
        let mut rows = Vec::with_capacity(count);
        for group in groups {
            let mut members = self.groups[group].rows.clone();
            self.choose(&mut members, size)?;
            rows.append(&mut members);
        }
        Ok(rows)
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.groups.clear();
        self.group_of.clear();
        self.rows.clear();
    }

    /// Returns all that must be kept to continue with the same draws. O(rows).
    #[must_use]
    pub fn state(&self) -> PromptGroupSamplerState {
        let member = |&row: &usize| {
            let Member { reward, clock, .. } = self.rows.get(row).copied().flatten()?;
            Some(GroupMember { row, reward, clock })
        };
        let group = |group: &Group| (group.key.clone(), group.rows.iter().filter_map(member).collect());
        PromptGroupSamplerState {
            options: self.options,
            groups: self.groups.iter().map(group).collect(),
            clock: self.clock,
            rng: self.rng.state().words(),
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// The errors of [`PromptGroupSampler::new`]; `Corrupt` if a row or a key comes twice, a group is empty
    /// or a row is beyond the limit.
    pub fn from_state(state: &PromptGroupSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.options, 0)?;
        for (key, members) in &state.groups {
            let is_new = !members.is_empty() && !sampler.group_of.contains_key(key);
            for &GroupMember { row, reward, clock } in members {
                let taken = row >= REPLAY_ROWS_MAX || sampler.rows.get(row).is_some_and(Option::is_some);
                if !is_new || taken || !reward.is_finite() {
                    let detail = format!("every row must be in one group, with a reward: row {row} is not");
                    return Err(Error::new(ErrorKind::Corrupt, detail));
                }
                sampler.insert(row, key, reward, clock);
            }
        }
        sampler.clock = state.clock;
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        Ok(sampler)
    }

    /// Reduces or extends `members`, rows of one group, to `size` rows by the strategy.
    fn choose(&mut self, members: &mut Vec<usize>, size: usize) -> Result<()> {
        if members.len() <= size || self.options.strategy == GroupStrategy::Random {
            return draw_prefix(&mut self.rng, members, size);
        }
        let of = |row: &usize| {
            self.rows.get(*row).copied().flatten().map_or((0.0, 0), |one| (one.reward, one.clock))
        };
        if self.options.strategy == GroupStrategy::Recency {
            members.sort_by_key(|row| of(row).1);
        } else {
            members.sort_by(|a, b| of(a).0.total_cmp(&of(b).0).then(of(a).1.cmp(&of(b).1)));
        }
        let rewards: Vec<f64> = members.iter().map(|row| of(row).0).collect();
        let num_lowest =
            if self.options.strategy == GroupStrategy::Variance { widest(&rewards, size) } else { 0 };
        members.drain(num_lowest..members.len() - (size - num_lowest));
        Ok(())
    }

    fn insert(&mut self, row: usize, key: &str, reward: f64, clock: u64) {
        let group = *self.group_of.entry(key.to_owned()).or_insert(self.groups.len());
        if group == self.groups.len() {
            self.groups.push(Group { key: key.to_owned(), rows: Vec::new() });
        }
        if row >= self.rows.len() {
            self.rows.resize(row + 1, None);
        }
        let place = self.groups[group].rows.len();
        self.groups[group].rows.push(row);
        self.rows[row] = Some(Member { group, place, reward, clock });
    }

    fn remove(&mut self, row: usize) {
        let Some(member) = self.rows.get_mut(row).and_then(Option::take) else { return };
        let group = &mut self.groups[member.group];
        group.rows.swap_remove(member.place);
        if let Some(moved) = group.rows.get(member.place).and_then(|&row| self.rows[row].as_mut()) {
            moved.place = member.place;
        }
        if !group.rows.is_empty() {
            return;
        }
        let gone = self.groups.swap_remove(member.group);
        self.group_of.remove(&gone.key);
        if let Some(moved) = self.groups.get(member.group) {
            self.group_of.insert(moved.key.clone(), member.group);
            for &row in &moved.rows {
                if let Some(peer) = self.rows[row].as_mut() {
                    peer.group = member.group;
                }
            }
        }
    }
}

impl PromptGroupSampler {
    /// Returns whether the strategy reads rewards.
    const fn ranks(&self) -> bool {
        matches!(self.options.strategy, GroupStrategy::Reward | GroupStrategy::Variance)
    }

    /// Returns the prompt and the reward of each item; 0 for rewards that no strategy reads.
    fn answers(&self, rows: &[usize], items: &TensorDict) -> Result<(Vec<String>, Vec<f64>)> {
        let rewards = if self.ranks() {
            reduced(items, &self.reward_key, Reduction::Mean)?
        } else {
            vec![0.0; rows.len()]
        };
        check_rewards(rows, &rewards)?;
        Ok((names(items, &self.group_key)?, rewards))
    }
}

impl Follower for PromptGroupSampler {
    fn reads(&self) -> Reads {
        let reward_key = self.ranks().then_some(&self.reward_key);
        Reads::Keys([Some(&self.group_key), reward_key].into_iter().flatten().cloned().collect())
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.answers(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let (keys, rewards) = self.answers(rows, items)?;
        Self::extend(self, rows, &keys, &rewards)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for PromptGroupSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        Sampled::plain(Self::sample(self, count)?)
    }
}

impl Stateful for PromptGroupSampler {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = Self::from_state(&from_state("sampler", state)?)?;
        *self = sampler.keyed(self.group_key.clone(), self.reward_key.clone());
        Ok(())
    }
}

/// Reduces or extends `items` to `size`: a random subset in random order, or all of them plus random repeats.
fn draw_prefix(rng: &mut Rng, items: &mut Vec<usize>, size: usize) -> Result<()> {
    let num_items = items.len();
    for index in 0..size.min(num_items) {
        let other = index + rng.below((num_items - index) as u64)? as usize;
        items.swap(index, other);
    }
    items.truncate(size);
    for _ in num_items..size {
        items.push(items[rng.below(num_items as u64)? as usize]);
    }
    Ok(())
}

/// Returns the number of the `size` rewards to take from the lower end of `sorted`, the others from the
/// upper, for the largest variance.
fn widest(sorted: &[f64], size: usize) -> usize {
    let mut best = (f64::NEG_INFINITY, 0);
    for num_lowest in 0..=size {
        let upper = &sorted[sorted.len() - (size - num_lowest)..];
        let taken = || sorted[..num_lowest].iter().chain(upper);
        let mean = taken().sum::<f64>() / size as f64;
        let variance = taken().map(|reward| (reward - mean) * (reward - mean)).sum();
        if variance > best.0 {
            best = (variance, num_lowest);
        }
    }
    best.1
}

/// Refuses rewards without an order or a variance.
fn check_rewards(rows: &[usize], rewards: &[f64]) -> Result<()> {
    match rows.iter().zip(rewards).find(|(_, reward)| !reward.is_finite()) {
        None => Ok(()),
        Some((row, reward)) => {
            let detail = format!("reward of row {row} must be a finite number: got {reward}");
            Err(Error::new(ErrorKind::NonFinite, detail))
        }
    }
}
