//! Prioritised sampling (Schaul et al., <https://arxiv.org/abs/1511.05952>).
//!
//! ```text
//! leaf_i = (priority_i + eps)^alpha         on update_priority; new rows take the largest priority so far, 1 at first
//! P(i)   = leaf_i / sum_j leaf_j
//! w_i    = (leaf_i / min_j leaf_j)^-beta    in (0, 1]
//! ```
//!
//! Draws are proportional to a leaf's mass (see [`PriorityTree`]), weights use the leaf itself: the two agree
//! to 2^-24 for a leaf above 2^24 units of the tree.

use std::ops::Range;

use fulmar_compute::cpu::{power, power_each};
use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::{Tensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reads;
use crate::sampler::{Sampled, Sampler, no_parameter};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::{Follower, PriorityTree, PriorityTreeState, Stateful};

/// Options of priorities; checked by [`PrioritizedSampler::new`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrioritizedOptions {
    /// Exponent of the priorities, finite and >= 0; 0 draws uniformly. Defaults to 0.7.
    pub alpha: f32,
    /// Exponent of the weights, finite and >= 0; with 0 all weights are 1. Defaults to 0.9.
    pub beta: f32,
    /// Added to each priority, finite and >= 0. Defaults to 1e-8.
    pub eps: f32,
    /// If true, the largest priority is that of a row still in the buffer, else of all time. Defaults to
    /// false.
    pub max_priority_within_buffer: bool,
}

impl Default for PrioritizedOptions {
    fn default() -> Self {
        Self { alpha: 0.7, beta: 0.9, eps: 1e-8, max_priority_within_buffer: false }
    }
}

/// Rows of a batch with their weights. Both of shape `[count]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeightedRows {
    /// The drawn rows.
    pub rows: Vec<usize>,
    /// The importance weight of each row, in `(0, 1]`.
    pub weights: Vec<f32>,
}

/// Draws rows with replacement, in proportion to a power of their priorities.
///
/// # Examples
/// ```
/// use fulmar_replay::{PrioritizedOptions, PrioritizedSampler};
/// let options = PrioritizedOptions { alpha: 1.0, beta: 1.0, ..Default::default() };
/// let mut sampler = PrioritizedSampler::new(8, options, 7)?;
/// sampler.extend(&[0, 1])?;
/// sampler.update_priority(&[0, 1], &[1.0, 3.0])?;
/// let batch = sampler.sample(4_000)?;
/// let often = batch.rows.iter().filter(|&&row| row == 1).count();
/// assert!((2_900..3_100).contains(&often), "three of four draws: got {often}");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PrioritizedSampler {
    options: PrioritizedOptions,
    tree: PriorityTree,
    max_priority: Option<(f32, usize)>,
    pub(crate) rng: Rng,
}

/// The state of a [`PrioritizedSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrioritizedSamplerState {
    /// The options.
    pub options: PrioritizedOptions,
    /// The leaves.
    pub tree: PriorityTreeState,
    /// The largest priority and the row that got it.
    pub max_priority: Option<(f32, usize)>,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl PrioritizedSampler {
    /// Returns a sampler over `capacity` rows, none of them written; `seed` makes its draws reproducible.
    ///
    /// # Errors
    /// `OutOfRange` if an option is outside its range or `capacity` is 0; `LimitExceeded` as for
    /// [`PriorityTree::new`].
    pub fn new(capacity: usize, options: PrioritizedOptions, seed: u64) -> Result<Self> {
        check_exponent("alpha", options.alpha)?;
        check_exponent("beta", options.beta)?;
        check_exponent("eps", options.eps)?;
        let tree = PriorityTree::new(capacity)?;
        Ok(Self { options, tree, max_priority: None, rng: Rng::new(seed).stream("prioritized sampler") })
    }

    /// Returns the current options.
    #[must_use]
    pub const fn options(&self) -> &PrioritizedOptions {
        &self.options
    }

    /// Returns the tree of leaves.
    #[must_use]
    pub const fn tree(&self) -> &PriorityTree {
        &self.tree
    }

    /// Returns the largest priority and the row that got it; `None` before any, and, within the buffer, once
    /// that row was rewritten.
    #[must_use]
    pub const fn max_priority(&self) -> Option<(f32, usize)> {
        self.max_priority
    }

    /// Returns the priority of new rows: the largest so far, 1 before any.
    #[must_use]
    pub fn default_priority(&self) -> f32 {
        self.max_priority.map_or(1.0, |(priority, _)| priority)
    }

    /// Records that `rows` were written: each gets [`PrioritizedSampler::default_priority`]. Within the
    /// buffer, if the row with the largest priority was overwritten, that is the largest of the remaining
    /// rows.
    ///
    /// # Errors
    /// `OutOfRange` if a row is beyond the capacity.
    pub fn extend(&mut self, rows: &[usize]) -> Result<()> {
        if self.options.max_priority_within_buffer && self.max_priority.is_none() {
            self.update_priority(rows, &vec![1.0; rows.len()])?;
        }
        self.update_priority(rows, &vec![self.default_priority(); rows.len()])?;
        let erased = || self.max_priority.is_some_and(|(_, holder)| rows.contains(&holder));
        if self.options.max_priority_within_buffer && erased() {
            self.max_priority = None;
        }
        Ok(())
    }

    /// Runs [`PrioritizedSampler::extend`] for a run of rows. O(1) if these and all earlier rows have the
    /// same priority, except for the largest within the buffer.
    ///
    /// # Errors
    /// `OutOfRange` if a row is beyond the capacity.
    pub fn extend_run(&mut self, rows: Range<usize>) -> Result<()> {
        if self.options.max_priority_within_buffer || rows.is_empty() {
            return self.extend(&rows.collect::<Vec<_>>());
        }
        let priority = self.default_priority();
        self.tree.fill(rows.clone(), self.leaves_of(&[priority])?[0])?;
        self.max_priority.get_or_insert((priority, rows.start));
        Ok(())
    }

    /// Sets the priority of each of `rows`. If a row comes twice, the last one wins. After an error nothing
    /// has changed.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ; `NonFinite` if a priority or its power is NaN or infinite;
    /// `OutOfRange` if a priority is negative or a row beyond the capacity.
    pub fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        self.tree.update(rows, &self.leaves_of(priorities)?)?;
        let largest = f32::from_bits(largest_bits(priorities));
        if self.max_priority.is_none_or(|(max, _)| largest > max) {
            let holder = priorities.iter().zip(rows).find(|(priority, _)| **priority == largest);
            self.max_priority = holder.map(|(&priority, &row)| (priority, row)).or(self.max_priority);
        }
        let holder_changed = || self.max_priority.is_some_and(|(_, holder)| rows.contains(&holder));
        if self.options.max_priority_within_buffer && self.options.alpha > 0.0 && holder_changed() {
            self.max_priority = self.tree.max().map(|(row, leaf)| (self.priority_of(leaf), row));
        }
        Ok(())
    }

    /// Returns the leaves of the tree for priorities.
    pub(crate) fn leaves_of(&self, priorities: &[f32]) -> Result<Vec<f32>> {
        let mut leaves: Vec<f32> = priorities.iter().map(|priority| priority + self.options.eps).collect();
        raise(&mut leaves, self.options.alpha);
        let beyond = f32::INFINITY.to_bits();
        if largest_bits(priorities) < beyond && largest_bits(&leaves) < beyond {
            return Ok(leaves);
        }
        let is_good =
            |index: &usize| (0.0..f32::INFINITY).contains(&priorities[*index]) && leaves[*index].is_finite();
        let index = (0..leaves.len()).find(|index| !is_good(index)).unwrap_or(0);
        let is_finite = priorities[index].is_finite() && leaves[index].is_finite();
        let kind = if is_finite { ErrorKind::OutOfRange } else { ErrorKind::NonFinite };
        let detail = format!(
            "priority {index} must be a finite number >= 0, and its power: got {}",
            priorities[index]
        );
        Err(Error::new(kind, detail))
    }

    /// Draws `count` rows and their weights.
    ///
    /// # Errors
    /// `Empty` if no row was written; `OutOfRange` if `count` is 0 or above the limit of a draw, if all
    /// priorities are 0, or if one is, as its weight would be infinite (`eps` above 0 prevents both).
    pub fn sample(&mut self, count: usize) -> Result<WeightedRows> {
        let mut batch = WeightedRows::default();
        self.sample_into(count, &mut batch)?;
        Ok(batch)
    }

    /// Runs [`PrioritizedSampler::sample`] and reuses the memory of `out`, which is empty after an error.
    ///
    /// # Errors
    /// The errors of [`PrioritizedSampler::sample`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{PrioritizedSampler, WeightedRows};
    /// let mut sampler = PrioritizedSampler::new(8, Default::default(), 7)?;
    /// sampler.extend(&[0, 1, 2])?;
    /// let mut batch = WeightedRows::default();
    /// for _ in 0..3 {
    ///     sampler.sample_into(64, &mut batch)?;
    ///     assert_eq!((batch.rows.len(), batch.weights.len()), (64, 64));
    /// }
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn sample_into(&mut self, count: usize, out: &mut WeightedRows) -> Result<()> {
        let WeightedRows { rows, weights } = out;
        let drawn = self.tree.sample_into(&mut self.rng, count, rows, weights);
        let weighed = drawn.and_then(|()| self.weigh(weights));
        if weighed.is_err() {
            rows.clear();
            weights.clear();
        }
        weighed
    }

    /// Returns the weight of each of `rows`.
    pub(crate) fn weights_of(&self, rows: &[usize]) -> Result<Vec<f32>> {
        let min = self.tree.min().unwrap_or_default();
        let mut weights = rows.iter().map(|&row| self.tree.leaf(row).unwrap_or(min)).collect::<Vec<_>>();
        self.weigh(&mut weights)?;
        Ok(weights)
    }

    /// Replaces each leaf by the weight of its row.
    fn weigh(&self, leaves: &mut [f32]) -> Result<()> {
        let min = self.tree.min().unwrap_or_default();
        if min <= 0.0 {
            return Err(Error::new(ErrorKind::OutOfRange, "the smallest priority must be > 0: got 0"));
        }
        leaves.iter_mut().for_each(|leaf| *leaf /= min);
        raise(leaves, -self.options.beta);
        Ok(())
    }

    /// Changes the exponent of the priorities and updates all rows. An exponent of 0 loses the priorities:
    /// after it, all rows have priority 1. O(rows).
    ///
    /// # Errors
    /// `OutOfRange` if `alpha` is not a finite number >= 0, `NonFinite` if a leaf overflows.
    pub fn set_alpha(&mut self, alpha: f32) -> Result<()> {
        check_exponent("alpha", alpha)?;
        // With an exponent of 0, every leaf is 1 and stays.
        if alpha != self.options.alpha && self.options.alpha > 0.0 {
            let ratio = alpha / self.options.alpha;
            self.tree.map_leaves(|leaf| power(leaf, ratio))?;
        }
        self.options.alpha = alpha;
        Ok(())
    }

    /// Changes the exponent of the weights.
    ///
    /// # Errors
    /// `OutOfRange` if `beta` is not a finite number >= 0.
    pub fn set_beta(&mut self, beta: f32) -> Result<()> {
        check_exponent("beta", beta)?;
        self.options.beta = beta;
        Ok(())
    }

    /// Removes all rows and the largest priority; the generator continues.
    pub fn clear(&mut self) {
        self.tree.clear();
        self.max_priority = None;
    }

    /// Returns all that must be kept to continue with the same draws. O(rows).
    #[must_use]
    pub fn state(&self) -> PrioritizedSamplerState {
        PrioritizedSamplerState {
            options: self.options,
            tree: self.tree.state(),
            max_priority: self.max_priority,
            rng: self.rng.state().words(),
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// The errors of [`PrioritizedSampler::new`] and [`PriorityTree::from_state`]; `Corrupt` if the largest
    /// priority is invalid.
    pub fn from_state(state: &PrioritizedSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.tree.capacity, state.options, 0)?;
        sampler.tree = PriorityTree::from_state(&state.tree)?;
        if let Some((priority, row)) = state.max_priority
            && !(priority >= 0.0 && priority.is_finite() && row < state.tree.capacity)
        {
            let detail =
                format!("max_priority must be a finite number >= 0 of a row: got {priority} of {row}");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        sampler.max_priority = state.max_priority;
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        Ok(sampler)
    }

    /// Returns the priority of `leaf`, up to rounding.
    fn priority_of(&self, leaf: f32) -> f32 {
        (power(leaf, 1.0 / self.options.alpha) - self.options.eps).max(0.0)
    }
}

fn check_exponent(name: &str, value: f32) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be a finite number >= 0: got {value}")))
}

/// Returns the largest of the bits of `values`, which have the order of the values; infinities, NaN and
/// negative numbers are above all others. 0 for none.
fn largest_bits(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, &value| largest.max((value + 0.0).to_bits()))
}

/// Replaces each value by its power.
fn raise(values: &mut [f32], exponent: f32) {
    if exponent != 1.0 {
        power_each(values, exponent);
    }
}

impl Follower for PrioritizedSampler {
    fn reads(&self) -> Reads {
        Reads::Rows
    }

    fn extend(&mut self, rows: &[usize], _: &TensorDict) -> Result<()> {
        Self::extend(self, rows)
    }

    fn extend_run(&mut self, rows: Range<usize>) -> Result<()> {
        Self::extend_run(self, rows)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for PrioritizedSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        let drawn = Self::sample(self, count)?;
        let mut sampled = Sampled::plain(drawn.rows)?;
        sampled.info.set("priority_weight", Tensor::from_vec(&[drawn.weights.len()], drawn.weights)?)?;
        Ok(sampled)
    }

    fn check_priorities(&self, priorities: &[f32]) -> Result<()> {
        self.leaves_of(priorities).map(|_| ())
    }

    fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        Self::update_priority(self, rows, priorities)
    }

    fn parameter(&self, name: &str) -> Result<f64> {
        match name {
            "alpha" => Ok(f64::from(self.options().alpha)),
            "beta" => Ok(f64::from(self.options().beta)),
            _ => Err(no_parameter(name)),
        }
    }

    fn set_parameter(&mut self, name: &str, value: f64) -> Result<()> {
        match name {
            "alpha" => self.set_alpha(value as f32),
            "beta" => self.set_beta(value as f32),
            _ => Err(no_parameter(name)),
        }
    }
}

impl Stateful for PrioritizedSampler {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = Self::from_state(&from_state("sampler", state)?)?;
        check_capacity(self.tree().capacity(), sampler.tree().capacity())?;
        *self = sampler;
        Ok(())
    }
}
