//! Epochs of trajectories, with one slice of each.

use fulmar_core::Result;
use serde::{Deserialize, Serialize};

use crate::row::checked_draw;
use crate::sampler::slice::{SliceOptions, SliceSampler, SliceSamplerState, Slices};
use crate::sampler::without_replacement::{
    SamplerWithoutReplacement, SamplerWithoutReplacementState, WithoutReplacementOptions,
};
use crate::{Trajectory, TrajectoryIndex};

/// Draws slices of which no two come from one trajectory before all trajectories had one. A write begins a new epoch;
/// unshuffled, trajectories come from the oldest.
///
/// # Examples
/// ```
/// use fulmar_replay::{SliceOptions, SliceSamplerWithoutReplacement};
/// let slices = SliceOptions { slice_len: Some(2), ..Default::default() };
/// let mut sampler = SliceSamplerWithoutReplacement::new(10, slices, Default::default(), 7)?;
/// sampler.extend(&[false, true, false, false, true]);
/// let batch = sampler.sample(10)?;
/// assert_eq!((batch.lens, sampler.ran_out()), (vec![2, 2], true));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SliceSamplerWithoutReplacement {
    slices: SliceSampler,
    epochs: SamplerWithoutReplacement,
    /// The trajectories of this epoch and the least length that they have; none before the first draw after a write.
    epoch: Option<(usize, Vec<Trajectory>)>,
}

/// All that a [`SliceSamplerWithoutReplacement`] must keep to go on as if never stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SliceSamplerWithoutReplacementState {
    /// The slices.
    pub slices: SliceSamplerState,
    /// The order of the trajectories.
    pub epochs: SamplerWithoutReplacementState,
    /// The least length of this epoch's trajectories; absent before the first draw after a write.
    pub min_len: Option<usize>,
}

impl SliceSamplerWithoutReplacement {
    /// A sampler of slices of a ring of `capacity` rows; `seed` fixes its draws.
    ///
    /// # Errors
    /// As [`SliceSampler::new`].
    pub fn new(
        capacity: usize,
        slices: SliceOptions,
        epochs: WithoutReplacementOptions,
        seed: u64,
    ) -> Result<Self> {
        let slices = SliceSampler::new(capacity, slices, seed)?;
        Ok(Self { slices, epochs: SamplerWithoutReplacement::new(epochs, seed), epoch: None })
    }

    /// Takes note of the next steps of the ring: `end_t` flags those that end a trajectory.
    pub fn extend(&mut self, end_t: &[bool]) {
        self.slices.extend(end_t);
        self.restart();
    }

    /// Takes note of the next steps of the ring: a trajectory is a run of equal ids.
    pub fn extend_ids(&mut self, id_t: &[i64]) {
        self.slices.extend_ids(id_t);
        self.restart();
    }

    /// The trajectories that slices come from.
    #[must_use]
    pub const fn index(&self) -> &TrajectoryIndex {
        self.slices.index()
    }

    /// Draws slices of `count` rows together; of fewer at the end of an epoch, or as [`SliceSampler::sample`].
    ///
    /// # Errors
    /// As [`SliceSampler::sample`]; `OutOfRange` if there are fewer trajectories than slices while short batches are dropped.
    pub fn sample(&mut self, count: usize) -> Result<Slices> {
        checked_draw(self.slices.index().len(), count)?;
        let (num_slices, slice_len) = self.slices.options.shape(count)?;
        let min_len = if self.slices.options.strict_length { slice_len } else { 1 };
        if self.epoch.as_ref().is_none_or(|(other, _)| *other != min_len) {
            self.restart();
            self.epoch = Some((min_len, self.long(min_len)));
        }
        let mut slices = Slices::default();
        if let Some((_, trajectories)) = &self.epoch {
            if trajectories.is_empty() {
                return Err(self.slices.too_short(slice_len));
            }
            for place in self.epochs.sample(trajectories.len(), num_slices)? {
                self.slices.take(trajectories[place], slice_len, &mut slices)?;
            }
        }
        Ok(slices)
    }

    /// Whether the last draw ended an epoch.
    #[must_use]
    pub const fn ran_out(&self) -> bool {
        self.epochs.ran_out()
    }

    /// Forgets all steps.
    pub fn clear(&mut self) {
        self.slices.clear();
        self.restart();
    }

    /// All that must be kept to go on as if never stopped. O(trajectories).
    #[must_use]
    pub fn state(&self) -> SliceSamplerWithoutReplacementState {
        SliceSamplerWithoutReplacementState {
            slices: self.slices.state(),
            epochs: self.epochs.state(),
            min_len: self.epoch.as_ref().map(|(min_len, _)| *min_len),
        }
    }

    /// The sampler whose state was taken.
    ///
    /// # Errors
    /// As [`SliceSampler::from_state`] and [`SamplerWithoutReplacement::from_state`].
    pub fn from_state(state: &SliceSamplerWithoutReplacementState) -> Result<Self> {
        let slices = SliceSampler::from_state(&state.slices)?;
        let epochs = SamplerWithoutReplacement::from_state(&state.epochs)?;
        let mut sampler = Self { slices, epochs, epoch: None };
        sampler.epoch = state.min_len.map(|min_len| (min_len, sampler.long(min_len)));
        Ok(sampler)
    }

    /// From the oldest.
    fn long(&self, min_len: usize) -> Vec<Trajectory> {
        self.slices.index().trajectories().filter(|one| one.len >= min_len).collect()
    }

    fn restart(&mut self) {
        self.epoch = None;
        self.epochs.clear();
    }
}
