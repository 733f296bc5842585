//! Slices in write order, each once.

use std::collections::VecDeque;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::{Reads, TrajectoryKeys, flags, integers};
use crate::row::{checked_capacity, checked_draw, checked_row};
use crate::sampler::{Sampled, Sampler};
use crate::stateful::{check_capacity, from_state, to_state};
use crate::{Follower, Stateful};

/// Returns slices of `slice_len` consecutive steps of one trajectory, in write order. The rest of a
/// trajectory at its end is skipped, and so is a slice with an overwritten row; steps that are overwritten
/// before they are in a slice are in none. At most as many slices wait as fit in the ring.
///
/// # Examples
/// ```
/// use fulmar_replay::{Follower, Sampler, StreamingSliceSampler};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut sampler = StreamingSliceSampler::new(8, 2, Default::default())?;
/// let mut items = TensorDict::new(&[5])?;
/// let done = vec![false, false, true, false, false];
/// items.set(["next", "done"], Tensor::from_vec(&[5], done)?)?;
/// sampler.extend(&[0, 1, 2, 3, 4], &items)?;
/// assert_eq!(sampler.sample(5, 4)?.rows, [0, 1, 3, 4]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamingSliceSampler {
    keys: TrajectoryKeys,
    state: StreamingSliceSamplerState,
}

/// The state of a [`StreamingSliceSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StreamingSliceSamplerState {
    /// Number of rows of the ring.
    pub capacity: usize,
    /// Steps of a slice.
    pub slice_len: usize,
    /// The number of writes of each row, up to the highest one needed.
    pub writes: Vec<u32>,
    /// The rows of the waiting slices, each with its number of writes at that time.
    pub queued: VecDeque<Vec<(usize, u32)>>,
    /// The rows of the unfinished trajectory that are in no slice yet.
    pub pending: Vec<(usize, u32)>,
    /// The id of the last step, if ids are used.
    pub last_id: Option<i64>,
}

impl StreamingSliceSamplerState {
    /// Counts a write of `row` and returns the number of its writes.
    fn count_write(&mut self, row: usize) -> u32 {
        if row >= self.writes.len() {
            self.writes.resize(row + 1, 0);
        }
        self.writes[row] = self.writes[row].wrapping_add(1);
        self.writes[row]
    }

    /// Removes pending steps up to the last overwritten one.
    fn drop_stale_pending(&mut self) {
        let is_stale = |(row, writes): &(usize, u32)| self.writes.get(*row) != Some(writes);
        let num_gone = self.pending.iter().rposition(is_stale).map_or(0, |last| last + 1);
        self.pending.drain(..num_gone);
    }
}

impl StreamingSliceSampler {
    /// Returns a sampler of slices of `slice_len` steps of a ring of `capacity` rows. Both the ids and the
    /// flags at `keys` end a trajectory; without keys, the flags at `["next", "done"]` do.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0 or `slice_len` not in `1..=capacity`, `LimitExceeded` if `capacity` is above the limit of a buffer.
    pub fn new(capacity: usize, slice_len: usize, keys: TrajectoryKeys) -> Result<Self> {
        let capacity = checked_capacity(capacity)?;
        if slice_len == 0 || slice_len > capacity {
            let detail = format!("slice_len must be in 1..={capacity}: got {slice_len}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let (writes, queued, pending) = (Vec::new(), VecDeque::new(), Vec::new());
        let state =
            StreamingSliceSamplerState { capacity, slice_len, writes, queued, pending, last_id: None };
        Ok(Self { keys, state })
    }

    /// Returns the waiting slices and steps.
    #[must_use]
    pub const fn waiting(&self) -> &StreamingSliceSamplerState {
        &self.state
    }

    fn is_fresh(&self, slice: &[(usize, u32)]) -> bool {
        slice.iter().all(|(row, writes)| self.state.writes.get(*row) == Some(writes))
    }

    /// Returns the id of each step, if there are ids, and whether it ends its trajectory.
    fn steps(&self, rows: &[usize], items: &TensorDict) -> Result<(Option<Vec<i64>>, Vec<bool>)> {
        let ids = self.keys.id_key.as_ref().map(|key| integers(items, key)).transpose()?;
        let mut end_t = vec![false; rows.len()];
        for key in self.keys.end_keys.as_deref().unwrap_or(&[["next", "done"].into()]) {
            end_t.iter_mut().zip(flags(items, key)?).for_each(|(end, flag)| *end |= flag);
        }
        for &row in rows {
            checked_row(row, self.state.capacity)?;
        }
        Ok((ids, end_t))
    }
}

impl Sampler for StreamingSliceSampler {
    fn sample(&mut self, len: usize, count: usize) -> Result<Sampled> {
        checked_draw(len, count)?;
        let slice_len = self.state.slice_len;
        if !count.is_multiple_of(slice_len) {
            let detail = format!("count must be divisible by {slice_len}: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let fresh = self.state.queued.iter().filter(|slice| self.is_fresh(slice)).count();
        if fresh * slice_len < count {
            let detail = format!("as many slices must wait as are drawn, {}: got {fresh}", count / slice_len);
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let mut rows = Vec::with_capacity(count);
        while rows.len() < count {
            let Some(slice) = self.state.queued.pop_front() else { break };
            if self.is_fresh(&slice) {
                rows.extend(slice.iter().map(|(row, _)| *row));
            }
        }
        let mut sampled = Sampled::plain(rows)?;
        sampled.slice_lens = vec![slice_len; count / slice_len];
        Ok(sampled)
    }

    fn num_live(&self, _: usize) -> usize {
        self.state.queued.iter().filter(|slice| self.is_fresh(slice)).count() * self.state.slice_len
    }

    fn ran_out(&self) -> bool {
        self.num_live(0) == 0
    }
}

impl Stateful for StreamingSliceSampler {
    fn state(&self) -> Result<Value> {
        to_state(&self.state)
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        let state: StreamingSliceSamplerState = from_state("sampler", state)?;
        check_capacity(self.state.capacity, state.capacity)?;
        let whole = state.queued.iter().all(|slice| slice.len() == state.slice_len);
        let rows = state.queued.iter().flatten().chain(&state.pending);
        let known = rows.into_iter().all(|(row, _)| *row < state.writes.len());
        if !(whole
            && known
            && state.slice_len == self.state.slice_len
            && state.writes.len() <= state.capacity)
        {
            let detail = format!("slices must be of {} rows of the ring: they are not", self.state.slice_len);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        self.state = state;
        Ok(())
    }
}

impl Follower for StreamingSliceSampler {
    fn reads(&self) -> Reads {
        let ends = self.keys.end_keys.clone().unwrap_or_else(|| vec![["next", "done"].into()]);
        Reads::Keys(self.keys.id_key.iter().cloned().chain(ends).collect())
    }

    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.steps(rows, items).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let (ids, end_t) = self.steps(rows, items)?;
        let state = &mut self.state;
        // Count all writes first: a step that a later one overwrites is gone before it can be in a slice.
        let writes: Vec<u32> = rows.iter().map(|row| state.count_write(*row)).collect();
        state.drop_stale_pending();
        for (step, (&row, ends)) in rows.iter().zip(end_t).enumerate() {
            let id = ids.as_ref().map(|ids| ids[step]);
            if id != state.last_id {
                state.pending.clear();
            }
            state.last_id = id;
            if state.writes[row] != writes[step] {
                state.pending.clear();
                continue;
            }
            state.pending.push((row, writes[step]));
            if state.pending.len() == state.slice_len {
                state.queued.push_back(std::mem::take(&mut state.pending));
                if state.queued.len() > state.capacity / state.slice_len {
                    state.queued.pop_front();
                }
            }
            if ends {
                state.pending.clear();
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.state.writes.clear();
        self.state.queued.clear();
        self.state.pending.clear();
        self.state.last_id = None;
    }
}
