//! Samplers that read items: trajectories, versions or prompts.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::read::{Reads, Reduction, Steps, TrajectoryKeys, integers, names, reduced};
use crate::sampler::prompt_group::check_rewards;
use crate::sampler::{Sampled, Sampler, no_parameter, sampled_slices};
use crate::writer::{check_capacity, from_state, to_state};
use crate::{
    GroupStrategy, PrioritizedSliceSampler, PromptGroupOptions, PromptGroupSampler,
    SliceSamplerWithoutReplacement, StalenessAwareSampler, TrajectoryIndex,
};

/// A sampler of slices of one ring, with the keys that delimit trajectories.
#[derive(Debug, Clone)]
pub struct KeyedSlices<S> {
    slices: S,
    keys: TrajectoryKeys,
}

impl<S> KeyedSlices<S> {
    pub const fn new(slices: S, keys: TrajectoryKeys) -> Self {
        Self { slices, keys }
    }

    /// Returns the trajectories of items for `rows`, which follow those in `index`.
    fn steps(&self, index: &TrajectoryIndex, rows: &[usize], items: &TensorDict) -> Result<Steps> {
        check_follows(index.cursor(), index.capacity(), rows)?;
        self.keys.read(items)
    }
}

/// Refuses rows that are not consecutive in a ring from `cursor` on.
pub fn check_follows(cursor: usize, capacity: usize, rows: &[usize]) -> Result<()> {
    match rows.iter().zip(cursor..).find(|(row, next)| **row != next % capacity) {
        None => Ok(()),
        Some((row, next)) => {
            let detail =
                format!("rows of trajectories must be written in a ring: got {row} for {}", next % capacity);
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

impl Sampler for KeyedSlices<SliceSamplerWithoutReplacement> {
    fn reads(&self) -> Reads {
        self.keys.reads()
    }

    fn check(&self, rows: &[usize], items: &TensorDict, _: &[f32]) -> Result<()> {
        self.steps(self.slices.index(), rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        match self.steps(self.slices.index(), rows, items)? {
            Steps::Ids(id_t) => self.slices.extend_ids(&id_t),
            Steps::Ends(end_t) => self.slices.extend(&end_t),
        }
        Ok(())
    }

    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        sampled_slices(self.slices.sample(count)?)
    }

    fn ran_out(&self) -> bool {
        self.slices.ran_out()
    }

    fn in_order(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.slices.clear();
    }

    fn state(&self) -> Result<Value> {
        to_state(&self.slices.state())
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let slices = SliceSamplerWithoutReplacement::from_state(&from_state("sampler", state)?)?;
        check_capacity(self.slices.index().capacity(), slices.index().capacity())?;
        self.slices = slices;
        Ok(())
    }
}

impl Sampler for KeyedSlices<PrioritizedSliceSampler> {
    fn reads(&self) -> Reads {
        self.keys.reads()
    }

    fn check(&self, rows: &[usize], items: &TensorDict, priorities: &[f32]) -> Result<()> {
        self.slices.priorities().leaves_of(priorities)?;
        self.steps(self.slices.index(), rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        match self.steps(self.slices.index(), rows, items)? {
            Steps::Ids(id_t) => self.slices.extend_ids(&id_t),
            Steps::Ends(end_t) => self.slices.extend(&end_t),
        }
    }

    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        let drawn = self.slices.sample(count)?;
        let mut sampled = sampled_slices(drawn.slices)?;
        sampled.info.set("priority_weight", Tensor::from_vec(&[drawn.weights.len()], drawn.weights)?)?;
        Ok(sampled)
    }

    fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        self.slices.update_priority(rows, priorities)
    }

    fn in_order(&self) -> bool {
        true
    }

    fn clear(&mut self) {
        self.slices.clear();
    }

    fn state(&self) -> Result<Value> {
        to_state(&self.slices.state())
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let slices = PrioritizedSliceSampler::from_state(&from_state("sampler", state)?)?;
        check_capacity(self.slices.index().capacity(), slices.index().capacity())?;
        self.slices = slices;
        Ok(())
    }
}

/// A [`StalenessAwareSampler`] that reads the versions of items.
#[derive(Debug, Clone)]
pub struct VersionSampler {
    sampler: StalenessAwareSampler,
    weights: Vec<f64>,
    version_key: Key,
    consumer_version: i64,
}

impl VersionSampler {
    pub fn new(max_staleness: Option<u64>, weights: Vec<f64>, version_key: Key, seed: u64) -> Result<Self> {
        let sampler = StalenessAwareSampler::new(max_staleness, seed).weighted(weights.clone())?;
        Ok(Self { sampler, weights, version_key, consumer_version: 0 })
    }
}

impl Sampler for VersionSampler {
    fn reads(&self) -> Reads {
        Reads::Keys(vec![self.version_key.clone()])
    }

    fn check(&self, _: &[usize], items: &TensorDict, _: &[f32]) -> Result<()> {
        integers(items, &self.version_key).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.sampler.extend(rows, &integers(items, &self.version_key)?)
    }

    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        let drawn = self.sampler.sample(self.consumer_version, count)?;
        let mut sampled = Sampled::plain(drawn.rows)?;
        let staleness = drawn.staleness.into_iter().map(|staleness| staleness as f32).collect();
        sampled.info.set("staleness", Tensor::from_vec(&[sampled.rows.len()], staleness)?)?;
        Ok(sampled)
    }

    fn parameter(&self, name: &str) -> Result<f64> {
        if name == "consumerVersion" { Ok(self.consumer_version as f64) } else { Err(no_parameter(name)) }
    }

    fn set_parameter(&mut self, name: &str, value: f64) -> Result<()> {
        if name != "consumerVersion" {
            return Err(no_parameter(name));
        }
        if value.fract() != 0.0 || value.abs() > 2_f64.powi(53) {
            let detail = format!("consumerVersion must be a whole number up to 2^53: got {value}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.consumer_version = value as i64;
        Ok(())
    }

    fn clear(&mut self) {
        self.sampler.clear();
    }

    fn state(&self) -> Result<Value> {
        Ok(json!({ "sampler": to_state(&self.sampler.state())?, "consumerVersion": self.consumer_version }))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = StalenessAwareSampler::from_state(&from_state("sampler", &state["sampler"])?)?;
        let sampler = sampler.weighted(self.weights.clone())?;
        self.consumer_version = from_state("consumerVersion", &state["consumerVersion"])?;
        self.sampler = sampler;
        Ok(())
    }
}

/// A [`PromptGroupSampler`] that reads the prompts and rewards of items.
#[derive(Debug, Clone)]
pub struct GroupSampler {
    sampler: PromptGroupSampler,
    group_key: Key,
    /// Absent if no strategy ranks by it.
    reward_key: Option<Key>,
}

impl GroupSampler {
    pub fn new(options: PromptGroupOptions, group_key: Key, reward_key: Key, seed: u64) -> Result<Self> {
        let ranks = matches!(options.strategy, GroupStrategy::Reward | GroupStrategy::Variance);
        let sampler = PromptGroupSampler::new(options, seed)?;
        Ok(Self { sampler, group_key, reward_key: ranks.then_some(reward_key) })
    }

    /// Returns the prompt and the reward of each item.
    fn answers(&self, rows: &[usize], items: &TensorDict) -> Result<(Vec<String>, Vec<f64>)> {
        let rewards = match &self.reward_key {
            Some(key) => reduced(items, key, Reduction::Mean)?,
            None => vec![0.0; rows.len()],
        };
        check_rewards(rows, &rewards)?;
        Ok((names(items, &self.group_key)?, rewards))
    }
}

impl Sampler for GroupSampler {
    fn reads(&self) -> Reads {
        Reads::Keys(
            [Some(&self.group_key), self.reward_key.as_ref()].into_iter().flatten().cloned().collect(),
        )
    }

    fn check(&self, rows: &[usize], items: &TensorDict, _: &[f32]) -> Result<()> {
        self.answers(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let (keys, rewards) = self.answers(rows, items)?;
        self.sampler.extend(rows, &keys, &rewards)
    }

    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        Sampled::plain(self.sampler.sample(count)?)
    }

    fn clear(&mut self) {
        self.sampler.clear();
    }

    fn state(&self) -> Result<Value> {
        to_state(&self.sampler.state())
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        self.sampler = PromptGroupSampler::from_state(&from_state("sampler", state)?)?;
        Ok(())
    }
}
