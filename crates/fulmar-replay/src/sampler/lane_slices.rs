//! Slices of trajectories that are written in parallel lanes.

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::TensorDict;
use serde_json::{Value, json};

use crate::read::{Reads, Steps, TrajectoryKeys, of_lane};
use crate::row::checked_draw;
use crate::sampler::slice::{SliceOptions, SliceSampler, Slices};
use crate::sampler::{Sampled, Sampler, sampled_slices};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::trajectory::check_follows;
use crate::{Follower, Stateful};

/// A [`SliceSampler`] over the lanes of a storage. All trajectories (or all first steps, by its options) are
/// equally likely, whatever their lane.
///
/// # Examples
/// ```
/// use fulmar_replay::{Follower, LaneSliceSampler, Sampler, SliceOptions};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let options = SliceOptions { slice_len: Some(2), ..Default::default() };
/// let mut sampler = LaneSliceSampler::new(&[4, 2], options, Default::default(), 7)?;
/// let mut items = TensorDict::new(&[4])?;
/// items.set("episode", Tensor::from_vec(&[4], vec![5_i64, 6, 5, 6])?)?;
/// sampler.extend(&[0, 1, 2, 3], &items)?;
/// let batch = sampler.sample(4, 2)?;
/// assert!(batch.rows == [0, 2] || batch.rows == [1, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LaneSliceSampler {
    keys: TrajectoryKeys,
    lanes: Vec<SliceSampler>,
    rng: Rng,
}

impl LaneSliceSampler {
    /// Returns a sampler of slices of a storage of `shape`, `[time]` or `[time, lanes..]`; `seed` makes its
    /// draws reproducible.
    ///
    /// # Errors
    /// The errors of [`SliceSampler::new`]; `Empty` for an empty `shape`.
    pub fn new(shape: &[usize], options: SliceOptions, keys: TrajectoryKeys, seed: u64) -> Result<Self> {
        let Some((&capacity, lanes)) = shape.split_first() else {
            return Err(Error::new(ErrorKind::Empty, "shape must have a dimension, that of time: got []"));
        };
        let num_lanes = fulmar_core::num_elements(lanes)?;
        let root = Rng::new(seed);
        let lane = |lane: usize| SliceSampler::new(capacity, options, root.fork(lane as u64).next_u64());
        let lanes = (0..num_lanes).map(lane).collect::<Result<_>>()?;
        Ok(Self { keys, lanes, rng: root.stream("lane slice sampler") })
    }

    fn draw(&mut self, count: usize) -> Result<Slices> {
        checked_draw(self.lanes.iter().map(|lane| lane.index().len()).sum(), count)?;
        let options = self.lanes.first().map_or_else(SliceOptions::default, |lane| lane.options);
        let (num_slices, slice_len) = options.shape(count)?;
        let mut total = 0;
        let mut through = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            total += lane.num_choices(slice_len);
            through.push(total);
        }
        if total == 0 {
            let lens = self.lanes.iter().flat_map(|lane| lane.index().trajectories()).map(|one| one.len);
            let longest = lens.max().unwrap_or_default();
            let detail = format!("a trajectory must have {slice_len} steps: the longest has {longest}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (mut slices, num_lanes) = (Slices::default(), self.lanes.len());
        for _ in 0..num_slices {
            let place = self.rng.below(total)?;
            let lane = through.partition_point(|through| *through <= place);
            let before = if lane == 0 { 0 } else { through[lane - 1] };
            let first = slices.rows.len();
            self.lanes[lane].take_choice(place - before, slice_len, &mut slices)?;
            slices.rows[first..].iter_mut().for_each(|row| *row = *row * num_lanes + lane);
        }
        Ok(slices)
    }

    /// Returns the trajectories of items for `rows`, which follow those of their lanes.
    fn steps(&self, rows: &[usize], items: &TensorDict) -> Result<Steps> {
        let num_lanes = self.lanes.len();
        for (lane, sampler) in self.lanes.iter().enumerate() {
            let steps: Vec<usize> =
                of_lane(rows, rows, lane, num_lanes).into_iter().map(|row| row / num_lanes).collect();
            check_follows(sampler.index().cursor(), sampler.index().capacity(), &steps)?;
        }
        self.keys.read(items)
    }
}

impl Sampler for LaneSliceSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        sampled_slices(self.draw(count)?)
    }
}

impl Stateful for LaneSliceSampler {
    fn state(&self) -> Result<Value> {
        let lanes = self.lanes.iter().map(|lane| to_state(&lane.state())).collect::<Result<Vec<_>>>()?;
        Ok(json!({ "lanes": lanes, "rng": self.rng.state().words() }))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let states: Vec<crate::SliceSamplerState> = from_state("sampler", &state["lanes"])?;
        check_capacity(self.lanes.len(), states.len())?;
        let lanes = states.iter().map(SliceSampler::from_state).collect::<Result<Vec<_>>>()?;
        for (have, lane) in self.lanes.iter().zip(&lanes) {
            check_capacity(have.index().capacity(), lane.index().capacity())?;
        }
        let words: [u64; 3] = from_state("rng", &state["rng"])?;
        self.rng = Rng::from_state(RngState::from_words(&words)?);
        self.lanes = lanes;
        Ok(())
    }
}

impl Follower for LaneSliceSampler {
    fn reads(&self) -> Reads {
        self.keys.reads()
    }

    fn in_order(&self) -> bool {
        true
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.steps(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let steps = self.steps(rows, items)?;
        let num_lanes = self.lanes.len();
        for (lane, sampler) in self.lanes.iter_mut().enumerate() {
            match &steps {
                Steps::Ids(id_t) => sampler.extend_ids(&of_lane(id_t, rows, lane, num_lanes)),
                Steps::Ends(end_t) => sampler.extend(&of_lane(end_t, rows, lane, num_lanes)),
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.lanes.iter_mut().for_each(SliceSampler::clear);
    }
}
