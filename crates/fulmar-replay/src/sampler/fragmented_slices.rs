//! Slices of trajectories whose steps are not adjacent.
//!
//! ```text
//! run   = steps of one trajectory in the order they were written, each counted one after the step before it
//! run   ~ uniform over those of at least slice_len steps (over all, if lengths are not strict)
//! first ~ uniform over 0 ..= len - min(len, slice_len)
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{Reads, Steps, TrajectoryKeys, integers};
use crate::row::{checked_capacity, checked_draw};
use crate::sampler::slice::{SliceBy, SliceOptions, Slices, Span, check_shape};
use crate::sampler::{Sampled, Sampler, sampled_slices};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::trajectory::check_follows;
use crate::{Follower, Stateful};

/// Draws slices of trajectories whose steps are interleaved with others: consecutive step counts form a run,
/// and a gap begins another one. Writing costs O(log runs) a step, a batch O(runs).
///
/// # Examples
/// ```
/// use fulmar_replay::{Follower, FragmentedSliceSampler, Sampler, SliceOptions};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let options = SliceOptions { slice_len: Some(2), ..Default::default() };
/// let mut sampler = FragmentedSliceSampler::new(8, options, Default::default(), "step".into(), 7)?;
/// let mut items = TensorDict::new(&[4])?;
/// items.set("episode", Tensor::from_vec(&[4], vec![5_i64, 6, 5, 6])?)?;
/// items.set("step", Tensor::from_vec(&[4], vec![0_i64, 0, 1, 3])?)?;
/// sampler.extend(&[0, 1, 2, 3], &items)?;
/// assert_eq!(sampler.sample(4, 2)?.rows, [0, 2]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FragmentedSliceSampler {
    options: SliceOptions,
    keys: TrajectoryKeys,
    step_key: Key,
    runs: Runs,
    rng: Rng,
}

impl FragmentedSliceSampler {
    /// Returns a sampler of slices of a ring of `capacity` rows, with step counts at `step_key`; `seed` makes
    /// its draws reproducible.
    ///
    /// # Errors
    /// The errors of [`SliceSampler::new`](crate::SliceSampler::new); `Incompatible` for spans, or for slices
    /// drawn by their first step.
    pub fn new(
        capacity: usize,
        options: SliceOptions,
        keys: TrajectoryKeys,
        step_key: Key,
        seed: u64,
    ) -> Result<Self> {
        check_shape(&options)?;
        if [options.left_span, options.right_span] != [Span::None; 2] || options.by != SliceBy::Trajectories {
            let detail = "slices of fragments must be whole and drawn by trajectories: got a span, or steps";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let rng = Rng::new(seed).stream("fragmented slice sampler");
        Ok(Self { options, keys, step_key, runs: Runs::new(checked_capacity(capacity)?), rng })
    }

    fn read(&self, rows: &[usize], items: &TensorDict) -> Result<(Vec<i64>, Vec<i64>)> {
        check_follows(self.runs.cursor(), self.runs.capacity, rows)?;
        match self.keys.read(items)? {
            Steps::Ids(ids) => Ok((ids, integers(items, &self.step_key)?)),
            Steps::Ends(_) => {
                let detail = "items must have trajectory ids for fragmented slices: got flags of ends";
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }

    fn draw(&mut self, count: usize) -> Result<Slices> {
        checked_draw(self.runs.steps.len(), count)?;
        let (num_slices, slice_len) = self.options.shape(count)?;
        let min_len = if self.options.strict_length { slice_len } else { 1 };
        let long: Vec<&VecDeque<u64>> = self.runs.runs.values().filter(|run| run.len() >= min_len).collect();
        if long.is_empty() {
            let longest = self.runs.runs.values().map(VecDeque::len).max().unwrap_or_default();
            let detail = format!("a run must have {slice_len} steps: the longest has {longest}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let padded_len = if self.options.pad_output { slice_len } else { 0 };
        let mut slices = Slices::default();
        for _ in 0..num_slices {
            let run = long[self.rng.below(long.len() as u64)? as usize];
            let seq = slice_len.min(run.len());
            let first = self.rng.below((run.len() - seq + 1) as u64)? as usize;
            let row = |at: usize| (run[at] % self.runs.capacity as u64) as usize;
            slices.push((first..first + seq).map(row), padded_len);
        }
        Ok(slices)
    }
}

impl Sampler for FragmentedSliceSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        sampled_slices(self.draw(count)?)
    }
}

impl Stateful for FragmentedSliceSampler {
    fn state(&self) -> Result<Value> {
        to_state(&State {
            capacity: self.runs.capacity,
            written: self.runs.written,
            steps: self.runs.steps.iter().copied().collect(),
            rng: self.rng.state().words(),
        })
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let state: State = from_state("sampler", state)?;
        check_capacity(self.runs.capacity, state.capacity)?;
        let before = state.written.checked_sub(state.steps.len() as u64);
        let (Some(before), true) = (before, state.steps.len() <= state.capacity) else {
            let detail = format!(
                "steps must be at most {} and those written: got {}",
                state.capacity,
                state.steps.len()
            );
            return Err(Error::new(ErrorKind::Corrupt, detail));
        };
        let rng = Rng::from_state(RngState::from_words(&state.rng)?);
        self.clear();
        self.runs.written = before;
        state.steps.into_iter().for_each(|step| self.runs.push(step));
        self.rng = rng;
        Ok(())
    }
}

impl Follower for FragmentedSliceSampler {
    fn reads(&self) -> Reads {
        match self.keys.reads() {
            Reads::Keys(keys) => Reads::Keys([keys, vec![self.step_key.clone()]].concat()),
            other => other,
        }
    }

    fn in_order(&self) -> bool {
        true
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.read(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let (ids, steps) = self.read(rows, items)?;
        ids.into_iter().zip(steps).for_each(|step| self.runs.push(step));
        Ok(())
    }

    fn clear(&mut self) {
        self.runs = Runs::new(self.runs.capacity);
    }
}

/// The state consists of the steps of the ring: the runs follow from them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct State {
    capacity: usize,
    written: u64,
    /// Trajectory and step count of each step, oldest first.
    steps: Vec<(i64, i64)>,
    rng: [u64; 3],
}

/// The runs of the steps in a ring; steps are numbered in write order.
#[derive(Debug, Clone)]
struct Runs {
    capacity: usize,
    written: u64,
    /// Trajectory and step count of each step in the ring, oldest first.
    steps: VecDeque<(i64, i64)>,
    /// The step numbers of each run, by its first: ordered by oldest step, on which alone draws depend.
    runs: BTreeMap<u64, VecDeque<u64>>,
    /// The newest run of each trajectory, and its last step count.
    newest: HashMap<i64, (u64, i64)>,
}

impl Runs {
    fn new(capacity: usize) -> Self {
        let (steps, runs, newest) = (VecDeque::new(), BTreeMap::new(), HashMap::new());
        Self { capacity, written: 0, steps, runs, newest }
    }

    fn cursor(&self) -> usize {
        (self.written % self.capacity as u64) as usize
    }

    fn push(&mut self, (id, step): (i64, i64)) {
        if self.steps.len() == self.capacity {
            self.drop_oldest();
        }
        let number = self.written;
        let follows = self.newest.get(&id).filter(|(_, last)| last.checked_add(1) == Some(step));
        let first = follows.map_or(number, |(first, _)| *first);
        self.runs.entry(first).or_default().push_back(number);
        self.newest.insert(id, (first, step));
        self.steps.push_back((id, step));
        self.written += 1;
    }

    /// The oldest step is the first of its run, as runs are in write order.
    fn drop_oldest(&mut self) {
        let oldest = self.written - self.steps.len() as u64;
        let (Some((id, _)), Some(mut run)) = (self.steps.pop_front(), self.runs.remove(&oldest)) else {
            return;
        };
        run.pop_front();
        let next = run.front().copied();
        if let Some(next) = next {
            self.runs.insert(next, run);
        }
        if let Some((_, last)) = self.newest.get(&id).copied().filter(|(first, _)| *first == oldest) {
            match next {
                Some(next) => self.newest.insert(id, (next, last)),
                None => self.newest.remove(&id),
            };
        }
    }
}
