//! Epochs of trajectories, with one slice of each.

use fulmar_core::Result;
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{Reads, Steps, TrajectoryKeys};
use crate::row::checked_draw;
use crate::sampler::slice::{SliceOptions, SliceSampler, SliceSamplerState, Slices};
use crate::sampler::without_replacement::{
    SamplerWithoutReplacement, SamplerWithoutReplacementState, WithoutReplacementOptions,
};
use crate::sampler::{Sampled, Sampler, sampled_slices};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::{Follower, Stateful, Trajectory, TrajectoryIndex};

/// Draws one slice of each trajectory before any trajectory comes again. A write begins a new epoch; without
/// shuffling, trajectories come from the oldest.
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
    keys: TrajectoryKeys,
    /// The trajectories of this epoch and their minimum length; `None` before the first draw after a write.
    epoch: Option<(usize, Vec<Trajectory>)>,
}

/// The state of a [`SliceSamplerWithoutReplacement`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SliceSamplerWithoutReplacementState {
    /// The slices.
    pub slices: SliceSamplerState,
    /// The order of the trajectories.
    pub epochs: SamplerWithoutReplacementState,
    /// The minimum length of this epoch's trajectories; absent before the first draw after a write.
    pub min_len: Option<usize>,
}

impl SliceSamplerWithoutReplacement {
    /// Returns a sampler of slices of a ring of `capacity` rows; `seed` makes its draws reproducible.
    ///
    /// # Errors
    /// The errors of [`SliceSampler::new`].
    pub fn new(
        capacity: usize,
        slices: SliceOptions,
        epochs: WithoutReplacementOptions,
        seed: u64,
    ) -> Result<Self> {
        let slices = SliceSampler::new(capacity, slices, seed)?;
        let epochs = SamplerWithoutReplacement::new(epochs, seed);
        Ok(Self { slices, epochs, keys: TrajectoryKeys::default(), epoch: None })
    }

    /// Sets the keys of items that delimit trajectories.
    #[must_use]
    pub fn keyed(self, keys: TrajectoryKeys) -> Self {
        Self { keys, ..self }
    }

    /// Records the next steps of the ring: `end_t` flags those that end a trajectory.
    pub fn extend(&mut self, end_t: &[bool]) {
        self.slices.extend(end_t);
        self.restart();
    }

    /// Records the next steps of the ring: a trajectory is a run of equal ids.
    pub fn extend_ids(&mut self, id_t: &[i64]) {
        self.slices.extend_ids(id_t);
        self.restart();
    }

    /// Returns the trajectories.
    #[must_use]
    pub const fn index(&self) -> &TrajectoryIndex {
        self.slices.index()
    }

    /// Draws slices of `count` rows in all; fewer at the end of an epoch, or as in [`SliceSampler::sample`].
    ///
    /// # Errors
    /// The errors of [`SliceSampler::sample`]; `OutOfRange` if there are fewer trajectories than slices and
    /// short batches are dropped.
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

    /// Returns whether the last draw ended an epoch.
    #[must_use]
    pub const fn ran_out(&self) -> bool {
        self.epochs.ran_out()
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.slices.clear();
        self.restart();
    }

    /// Returns all that must be kept to continue with the same draws. O(trajectories).
    #[must_use]
    pub fn state(&self) -> SliceSamplerWithoutReplacementState {
        SliceSamplerWithoutReplacementState {
            slices: self.slices.state(),
            epochs: self.epochs.state(),
            min_len: self.epoch.as_ref().map(|(min_len, _)| *min_len),
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// As [`SliceSampler::from_state`] and [`SamplerWithoutReplacement::from_state`].
    pub fn from_state(state: &SliceSamplerWithoutReplacementState) -> Result<Self> {
        let slices = SliceSampler::from_state(&state.slices)?;
        let epochs = SamplerWithoutReplacement::from_state(&state.epochs)?;
        let mut sampler = Self { slices, epochs, keys: TrajectoryKeys::default(), epoch: None };
        sampler.epoch = state.min_len.map(|min_len| (min_len, sampler.long(min_len)));
        Ok(sampler)
    }

    /// Returns the trajectories of at least `min_len` steps, from the oldest.
    fn long(&self, min_len: usize) -> Vec<Trajectory> {
        self.slices.index().trajectories().filter(|one| one.len >= min_len).collect()
    }

    fn restart(&mut self) {
        self.epoch = None;
        self.epochs.clear();
    }
}

impl Follower for SliceSamplerWithoutReplacement {
    fn reads(&self) -> Reads {
        self.keys.reads()
    }

    fn in_order(&self) -> bool {
        true
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.keys.read_next(self.index(), rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        match self.keys.read_next(self.index(), rows, items)? {
            Steps::Ids(id_t) => self.extend_ids(&id_t),
            Steps::Ends(end_t) => Self::extend(self, &end_t),
        }
        Ok(())
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for SliceSamplerWithoutReplacement {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        sampled_slices(Self::sample(self, count)?)
    }

    fn ran_out(&self) -> bool {
        Self::ran_out(self)
    }
}

impl Stateful for SliceSamplerWithoutReplacement {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = Self::from_state(&from_state("sampler", state)?)?;
        check_capacity(self.index().capacity(), sampler.index().capacity())?;
        *self = sampler.keyed(std::mem::take(&mut self.keys));
        Ok(())
    }
}
