//! Slices that begin at a row drawn by priority.
//!
//! A second tree holds only the leaves of rows at which a slice may begin, so a draw never changes the
//! priorities themselves:
//!
//! ```text
//! start ~ P(start) over rows with slice_len steps to the end of their trajectory
//!         (and over the first row of a shorter one, if lengths are not strict)
//! w     = (leaf_start / min_j leaf_j)^-beta           the minimum over all rows, for every row of the slice
//! ```

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{Reads, Steps, TrajectoryKeys};
use crate::row::checked_draw;
use crate::sampler::slice::{SliceOptions, SliceSampler, Slices, Span};
use crate::sampler::{Sampled, Sampler, sampled_slices};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::{
    Follower, PrioritizedOptions, PrioritizedSampler, PrioritizedSamplerState, PriorityTree, Stateful,
    TrajectoryIndex, TrajectoryIndexState,
};

/// Draws slices in proportion to a power of the priority of their first row.
///
/// # Examples
/// ```
/// use fulmar_replay::{PrioritizedSliceSampler, SliceOptions};
/// let slices = SliceOptions { slice_len: Some(2), ..Default::default() };
/// let mut sampler = PrioritizedSliceSampler::new(8, slices, Default::default(), 7)?;
/// sampler.extend(&[false, false, true, false, true])?;
/// sampler.update_priority(&[1, 2], &[1e6, 1e9])?;
/// let batch = sampler.sample(20)?;
/// let often = batch.slices.rows.chunks(2).filter(|slice| *slice == [1, 2]).count();
/// assert!(often >= 9, "row 2 is more urgent, but no slice begins there: {often} of 10");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PrioritizedSliceSampler {
    options: SliceOptions,
    keys: TrajectoryKeys,
    priorities: PrioritizedSampler,
    index: TrajectoryIndex,
    /// The leaves of the rows at which a slice of `slice_len` may begin.
    starts: PriorityTree,
    may_start: Vec<bool>,
    slice_len: usize,
}

/// A batch of slices with the weight of each row.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedSlices {
    /// The slices.
    pub slices: Slices,
    /// The importance weight of each row, the same for all of a slice, in `(0, 1]`.
    pub weights: Vec<f32>,
}

/// The state of a [`PrioritizedSliceSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrioritizedSliceSamplerState {
    /// The options of the slices.
    pub options: SliceOptions,
    /// The priorities of all rows.
    pub priorities: PrioritizedSamplerState,
    /// The trajectories.
    pub index: TrajectoryIndexState,
    /// Two to this power is above all leaves at which a slice may begin; determines their unit.
    pub starts_top: i32,
    /// Number of steps in the slices drawn last.
    pub slice_len: usize,
}

impl PrioritizedSliceSampler {
    /// Returns a sampler of slices of a ring of `capacity` rows; `seed` makes its draws reproducible.
    ///
    /// # Errors
    /// The errors of [`SliceSampler::new`] and [`PrioritizedSampler::new`]; `OutOfRange` for a span, as a
    /// drawn row is the first of its slice.
    pub fn new(
        capacity: usize,
        slices: SliceOptions,
        priorities: PrioritizedOptions,
        seed: u64,
    ) -> Result<Self> {
        SliceSampler::new(capacity, slices, seed)?;
        if slices.left_span != Span::None || slices.right_span != Span::None {
            let spans = [slices.left_span, slices.right_span];
            let detail = format!("spans must be none where slices begin at drawn rows: got {spans:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self {
            options: slices,
            keys: TrajectoryKeys::default(),
            priorities: PrioritizedSampler::new(capacity, priorities, seed)?,
            index: TrajectoryIndex::new(capacity)?,
            starts: PriorityTree::new(capacity)?,
            may_start: vec![false; capacity],
            slice_len: slices.slice_len.unwrap_or(1),
        })
    }

    /// Sets the keys of items that delimit trajectories.
    #[must_use]
    pub fn keyed(self, keys: TrajectoryKeys) -> Self {
        Self { keys, ..self }
    }

    /// Records the next steps of the ring: `end_t` flags those that end a trajectory. Their rows get the
    /// largest priority so far, as in [`PrioritizedSampler::extend`].
    ///
    /// # Errors
    /// As [`PrioritizedSampler::extend`].
    pub fn extend(&mut self, end_t: &[bool]) -> Result<()> {
        self.write(end_t, |index, end| index.extend(&[end]))
    }

    /// Records the next steps of the ring: a trajectory is a run of equal ids.
    ///
    /// # Errors
    /// As [`PrioritizedSampler::extend`].
    pub fn extend_ids(&mut self, id_t: &[i64]) -> Result<()> {
        self.write(id_t, |index, id| index.extend_ids(&[id]))
    }

    /// Sets the priority of each of `rows`, for slices that begin there.
    ///
    /// # Errors
    /// As [`PrioritizedSampler::update_priority`].
    pub fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        self.priorities.update_priority(rows, priorities)?;
        self.copy_leaves(rows)
    }

    /// Returns the priorities of all rows.
    #[must_use]
    pub const fn priorities(&self) -> &PrioritizedSampler {
        &self.priorities
    }

    /// Returns the trajectories.
    #[must_use]
    pub const fn index(&self) -> &TrajectoryIndex {
        &self.index
    }

    /// Draws slices of `count` rows in all, as [`SliceSampler::sample`]. Costs O(rows) if the slice length
    /// changes from one call to the next.
    ///
    /// # Errors
    /// `Empty` if no step was written; `OutOfRange` if `count` is 0, above the limit of a draw or not
    /// divisible by the number or length of slices, if no slice can begin anywhere, or if a priority is 0.
    pub fn sample(&mut self, count: usize) -> Result<WeightedSlices> {
        checked_draw(self.index.len(), count)?;
        let (num_slices, slice_len) = self.options.shape(count)?;
        if slice_len != self.slice_len {
            self.slice_len = slice_len;
            self.find_starts()?;
        }
        if self.starts.total() == 0 {
            let detail = format!("a trajectory must have {slice_len} steps and a priority > 0: none has");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let starts = self.starts.sample(&mut self.priorities.rng, num_slices)?;
        let weight_of_slice = self.priorities.weights_of(&starts)?;
        let mut drawn = WeightedSlices { slices: Slices::default(), weights: Vec::with_capacity(count) };
        let padded_len = if self.options.pad_output { slice_len } else { 0 };
        for (start, weight) in starts.into_iter().zip(weight_of_slice) {
            let left = self.index.at(start).map_or(1, |(trajectory, before)| trajectory.len - before);
            let rows = (start..start + left.min(slice_len)).map(|row| row % self.index.capacity());
            drawn.slices.push(rows, padded_len);
            drawn.weights.resize(drawn.slices.rows.len(), weight);
        }
        Ok(drawn)
    }

    /// Removes all steps and priorities.
    pub fn clear(&mut self) {
        self.priorities.clear();
        self.index.clear();
        self.starts.clear();
        self.may_start.fill(false);
    }

    /// Returns all that must be kept to continue with the same draws. O(rows).
    #[must_use]
    pub fn state(&self) -> PrioritizedSliceSamplerState {
        PrioritizedSliceSamplerState {
            options: self.options,
            priorities: self.priorities.state(),
            index: self.index.state(),
            starts_top: self.starts.state().top,
            slice_len: self.slice_len,
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// As [`PrioritizedSampler::from_state`] and [`TrajectoryIndex::from_state`]; `Corrupt` if their capacities differ.
    pub fn from_state(state: &PrioritizedSliceSamplerState) -> Result<Self> {
        let priorities = PrioritizedSampler::from_state(&state.priorities)?;
        let index = TrajectoryIndex::from_state(&state.index)?;
        let capacity = index.capacity();
        if priorities.tree().capacity() != capacity || state.slice_len == 0 {
            let detail = format!("priorities and index must have one capacity: got {capacity} in the index");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let mut sampler = Self::new(capacity, state.options, *priorities.options(), 0)?;
        (sampler.priorities, sampler.index, sampler.slice_len) = (priorities, index, state.slice_len);
        sampler.find_starts()?;
        let mut starts = sampler.starts.state();
        starts.top = state.starts_top;
        sampler.starts = PriorityTree::from_state(&starts)?;
        Ok(sampler)
    }

    fn write<T: Copy>(&mut self, steps: &[T], push: impl Fn(&mut TrajectoryIndex, T)) -> Result<()> {
        let mut rows = Vec::with_capacity(steps.len());
        let mut changed = Vec::with_capacity(2 * steps.len());
        for &step in steps {
            let row = self.index.cursor();
            push(&mut self.index, step);
            rows.push(row);
            self.may_start[row] = false;
            changed.push(row);
            self.note_starts(row, &mut changed);
        }
        self.priorities.extend(&rows)?;
        self.copy_leaves(&changed)
    }

    /// Records the possible starts of slices now that the newest step is in `row`.
    fn note_starts(&mut self, row: usize, changed: &mut Vec<usize>) {
        let Some([oldest, newest]) = self.index.outermost() else { return };
        let capacity = self.index.capacity();
        let mut starts = Vec::with_capacity(3);
        if newest.len >= self.slice_len {
            starts.push((row + capacity + 1 - self.slice_len) % capacity);
        }
        if !self.options.strict_length {
            // The first row of a short trajectory; that of the oldest moves as the ring overwrites its rows.
            starts.extend([newest.start, oldest.start]);
        }
        for start in starts {
            if !self.may_start[start] {
                self.may_start[start] = true;
                changed.push(start);
            }
        }
    }

    /// Recomputes the possible starts of slices. O(rows).
    fn find_starts(&mut self) -> Result<()> {
        self.may_start.fill(false);
        let capacity = self.index.capacity();
        for one in self.index.trajectories() {
            let num_starts =
                (one.len + 1).saturating_sub(self.slice_len).max(usize::from(!self.options.strict_length));
            for step in 0..num_starts {
                self.may_start[(one.start + step) % capacity] = true;
            }
        }
        self.starts.clear();
        let all: Vec<usize> = (0..capacity).filter(|&row| self.may_start[row]).collect();
        self.copy_leaves(&all)
    }

    /// Copies the leaves of `rows` to the tree of starts.
    fn copy_leaves(&mut self, rows: &[usize]) -> Result<()> {
        let leaf = |&row: &usize| {
            if self.may_start[row] { self.priorities.tree().leaf(row).unwrap_or_default() } else { 0.0 }
        };
        let leaves: Vec<f32> = rows.iter().map(leaf).collect();
        self.starts.update(rows, &leaves)
    }
}

impl Follower for PrioritizedSliceSampler {
    fn reads(&self) -> Reads {
        self.keys.reads()
    }

    fn in_order(&self) -> bool {
        true
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.keys.read_next(&self.index, rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        match self.keys.read_next(&self.index, rows, items)? {
            Steps::Ids(id_t) => self.extend_ids(&id_t),
            Steps::Ends(end_t) => Self::extend(self, &end_t),
        }
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for PrioritizedSliceSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        let drawn = Self::sample(self, count)?;
        let mut sampled = sampled_slices(drawn.slices)?;
        sampled.info.set("priority_weight", Tensor::from_vec(&[drawn.weights.len()], drawn.weights)?)?;
        Ok(sampled)
    }

    fn check_priorities(&self, priorities: &[f32]) -> Result<()> {
        self.priorities.check_priorities(priorities)
    }

    fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        Self::update_priority(self, rows, priorities)
    }
}

impl Stateful for PrioritizedSliceSampler {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = Self::from_state(&from_state("sampler", state)?)?;
        check_capacity(self.index.capacity(), sampler.index.capacity())?;
        *self = sampler.keyed(std::mem::take(&mut self.keys));
        Ok(())
    }
}
