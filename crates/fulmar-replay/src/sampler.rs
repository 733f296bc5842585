//! Samplers: the choice of rows for a batch.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::{Deserialize, Serialize};

use crate::read::TrajectoryKeys;
use crate::{
    ConsumingSampler, Follower, PrioritizedOptions, PrioritizedSampler, PrioritizedSliceSampler,
    PromptGroupOptions, PromptGroupSampler, RandomSampler, SamplerWithoutReplacement, SliceOptions,
    SliceSamplerWithoutReplacement, StalenessAwareSampler, WithoutReplacementOptions,
};

pub(crate) mod consuming;
pub(crate) mod fragmented_slices;
pub(crate) mod lane_slices;
pub(crate) mod prioritized;
pub(crate) mod prioritized_slice;
pub(crate) mod prompt_group;
pub(crate) mod random;
pub(crate) mod slice;
pub(crate) mod slice_without_replacement;
pub(crate) mod staleness;
pub(crate) mod streaming_slice;
pub(crate) mod without_replacement;

/// Rows of a batch with the sampler's info.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The rows, in the order of the batch.
    pub rows: Vec<usize>,
    /// Leaves of batch size `[rows]`: weights, staleness, masks.
    pub info: TensorDict,
    /// The lengths of the slices that the rows form; empty for single rows.
    pub slice_lens: Vec<usize>,
}

impl Sampled {
    /// Returns rows without info.
    ///
    /// # Errors
    /// Never for valid rows.
    pub fn plain(rows: Vec<usize>) -> Result<Self> {
        let info = TensorDict::new(&[rows.len()])?;
        Ok(Self { rows, info, slice_lens: Vec::new() })
    }
}

/// Draws rows.
pub trait Sampler: Follower {
    /// Draws `count` rows, or all if there are fewer, of a buffer of `len` rows.
    ///
    /// # Errors
    /// `Empty` if there are no rows; `OutOfRange` if `count` is 0, above the limit of a draw, or cannot be
    /// drawn.
    fn sample(&mut self, len: usize, count: usize) -> Result<Sampled>;

    /// Checks that [`Sampler::update_priority`] would accept these priorities of written rows. A buffer checks
    /// before it stores the items.
    ///
    /// # Errors
    /// The errors of [`Sampler::update_priority`].
    fn check_priorities(&self, priorities: &[f32]) -> Result<()> {
        let _ = priorities;
        Ok(())
    }

    /// Sets the priorities of `rows`; ignored if draws do not depend on priorities.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ; `NonFinite` or `OutOfRange` for a priority that is not a finite
    /// number >= 0.
    fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        let _ = (rows, priorities);
        Ok(())
    }

    /// Returns the number of `len` rows that can be drawn.
    fn num_live(&self, len: usize) -> usize {
        len
    }

    /// Returns whether the last draw ended an epoch.
    fn ran_out(&self) -> bool {
        false
    }

    /// Returns rows that new items should reuse, in order.
    fn freed(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Returns the parameter called `name`, which a schedule may change.
    ///
    /// # Errors
    /// `UnknownName` if there is no such parameter.
    fn parameter(&self, name: &str) -> Result<f64> {
        Err(no_parameter(name))
    }

    /// Changes a parameter.
    ///
    /// # Errors
    /// `UnknownName` if there is no such parameter; `OutOfRange` for an invalid value.
    fn set_parameter(&mut self, name: &str, value: f64) -> Result<()> {
        let _ = value;
        Err(no_parameter(name))
    }
}

/// The kind of a sampler, with its options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum SamplerOptions {
    /// A [`RandomSampler`].
    #[default]
    Random,
    /// A [`SamplerWithoutReplacement`].
    WithoutReplacement {
        /// If true, an epoch ends before a batch that would be short. Defaults to false.
        #[serde(default)]
        drop_last: bool,
        /// If true, rows come in random order. Defaults to true.
        #[serde(default = "yes")]
        shuffle: bool,
    },
    /// A [`ConsumingSampler`].
    Consuming {
        /// Number of draws after which a row is freed. Defaults to 1.
        #[serde(default = "one")]
        max_sample_count: u32,
    },
    /// A [`PrioritizedSampler`].
    Prioritized {
        /// Options of priorities.
        #[serde(default)]
        priorities: PrioritizedOptions,
    },
    /// A [`LaneSliceSampler`](crate::LaneSliceSampler).
    Slice {
        /// The shape of a batch.
        slices: SliceOptions,
        /// The keys that delimit trajectories.
        #[serde(default)]
        trajectories: TrajectoryKeys,
    },
    /// A [`FragmentedSliceSampler`](crate::FragmentedSliceSampler).
    FragmentedSlice {
        /// The shape of a batch.
        slices: SliceOptions,
        /// The keys of trajectories, by an id.
        #[serde(default)]
        trajectories: TrajectoryKeys,
        /// The key of the step count. Defaults to `"step_count"`.
        #[serde(default = "step_key")]
        step_key: Key,
    },
    /// A [`SliceSamplerWithoutReplacement`](crate::SliceSamplerWithoutReplacement).
    SliceWithoutReplacement {
        /// The shape of a batch.
        slices: SliceOptions,
        /// The order of an epoch and its last batch.
        #[serde(default)]
        epochs: WithoutReplacementOptions,
        /// The keys that delimit trajectories.
        #[serde(default)]
        trajectories: TrajectoryKeys,
    },
    /// A [`PrioritizedSliceSampler`](crate::PrioritizedSliceSampler).
    PrioritizedSlice {
        /// The shape of a batch.
        slices: SliceOptions,
        /// Options of priorities.
        #[serde(default)]
        priorities: PrioritizedOptions,
        /// The keys that delimit trajectories.
        #[serde(default)]
        trajectories: TrajectoryKeys,
    },
    /// A [`StreamingSliceSampler`](crate::StreamingSliceSampler).
    StreamingSlice {
        /// Steps of a slice, at least 1.
        slice_len: usize,
        /// The keys that delimit trajectories.
        #[serde(default)]
        trajectories: TrajectoryKeys,
    },
    /// A [`StalenessAwareSampler`](crate::StalenessAwareSampler); its parameter `consumerVersion` is the learner's.
    StalenessAware {
        /// Maximum number of versions that a row may lag; absent for any number.
        #[serde(default)]
        max_staleness: Option<u64>,
        /// The weight of each staleness from 0, the last for all beyond; empty for `1 / (1 + staleness)`.
        #[serde(default)]
        weights: Vec<f64>,
        /// The key of an item's version. Defaults to `"policy_version"`.
        #[serde(default = "version_key")]
        version_key: Key,
    },
    /// A [`PromptGroupSampler`](crate::PromptGroupSampler).
    PromptGroup {
        /// The shape of a batch.
        groups: PromptGroupOptions,
        /// The key of an item's prompt. Defaults to `"query"`.
        #[serde(default = "group_key")]
        group_key: Key,
        /// The key of its reward, read only for strategies that rank by it. Defaults to `["next", "reward"]`.
        #[serde(default = "reward_key")]
        reward_key: Key,
    },
}

impl SamplerOptions {
    /// Returns the sampler of a storage of `shape`, `[capacity]` or `[time, lanes..]`; `seed` makes its draws
    /// reproducible.
    ///
    /// # Errors
    /// The errors of the sampler's constructor; `Incompatible` for a storage with several lanes if the
    /// sampler does not support them.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::SamplerOptions;
    /// let options: SamplerOptions =
    ///     serde_json::from_str(r#"{"kind": "prioritized", "priorities": {"alpha": 0.6}}"#).unwrap();
    /// assert_eq!(options.build(&[100], 7)?.parameter("alpha")? as f32, 0.6);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn build(&self, shape: &[usize], seed: u64) -> Result<Box<dyn Sampler>> {
        let capacity: usize = shape.iter().product();
        let num_lanes: usize = shape.get(1..).unwrap_or_default().iter().product();
        let takes_lanes = matches!(
            self,
            Self::Random
                | Self::WithoutReplacement { .. }
                | Self::Prioritized { .. }
                | Self::Slice { .. }
                | Self::StalenessAware { .. }
        );
        if num_lanes > 1 && !takes_lanes {
            let detail = format!("the storage must have one dimension for this sampler: got {shape:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(match self {
            Self::Random => Box::new(RandomSampler::new(seed)),
            Self::WithoutReplacement { drop_last, shuffle } => {
                let options = WithoutReplacementOptions { drop_last: *drop_last, shuffle: *shuffle };
                Box::new(SamplerWithoutReplacement::new(options, seed))
            }
            Self::Consuming { max_sample_count } => Box::new(ConsumingSampler::new(*max_sample_count, seed)?),
            Self::Prioritized { priorities } => {
                Box::new(PrioritizedSampler::new(capacity, *priorities, seed)?)
            }
            Self::Slice { slices, trajectories } => {
                Box::new(lane_slices::LaneSliceSampler::new(shape, *slices, trajectories.clone(), seed)?)
            }
            Self::FragmentedSlice { slices, trajectories, step_key } => {
                let (keys, step_key) = (trajectories.clone(), step_key.clone());
                Box::new(fragmented_slices::FragmentedSliceSampler::new(
                    capacity, *slices, keys, step_key, seed,
                )?)
            }
            Self::SliceWithoutReplacement { slices, epochs, trajectories } => {
                let sampler = SliceSamplerWithoutReplacement::new(capacity, *slices, *epochs, seed)?;
                Box::new(sampler.keyed(trajectories.clone()))
            }
            Self::PrioritizedSlice { slices, priorities, trajectories } => {
                let sampler = PrioritizedSliceSampler::new(capacity, *slices, *priorities, seed)?;
                Box::new(sampler.keyed(trajectories.clone()))
            }
            Self::StreamingSlice { slice_len, trajectories } => Box::new(
                streaming_slice::StreamingSliceSampler::new(capacity, *slice_len, trajectories.clone())?,
            ),
            Self::StalenessAware { max_staleness, weights, version_key } => {
                let sampler = StalenessAwareSampler::new(*max_staleness, seed).keyed(version_key.clone());
                Box::new(sampler.weighted(weights.clone())?)
            }
            Self::PromptGroup { groups, group_key, reward_key } => {
                let sampler = PromptGroupSampler::new(*groups, seed)?;
                Box::new(sampler.keyed(group_key.clone(), reward_key.clone()))
            }
        })
    }
}

pub(crate) fn no_parameter(name: &str) -> Error {
    Error::new(ErrorKind::UnknownName, format!("parameter must be one of the sampler: got {name:?}"))
}

/// Returns the rows of slices, with a padding mask if some are padded.
pub(crate) fn sampled_slices(slices: crate::Slices) -> Result<Sampled> {
    let mut sampled = Sampled::plain(slices.rows)?;
    if slices.mask.contains(&false) {
        let mask = Tensor::from_vec(&[slices.mask.len()], slices.mask)?;
        sampled.info.set(["collector", "mask"], mask)?;
    }
    sampled.slice_lens = slices.lens;
    Ok(sampled)
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

fn step_key() -> Key {
    Key::from("step_count")
}

pub(crate) fn version_key() -> Key {
    Key::from("policy_version")
}

pub(crate) fn group_key() -> Key {
    Key::from("query")
}

pub(crate) fn reward_key() -> Key {
    Key::from(["next", "reward"])
}
