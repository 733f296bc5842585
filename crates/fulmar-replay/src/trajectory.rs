//! The trajectories in a ring: found by a scan, or tracked while writing.

use std::collections::VecDeque;

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::row::checked_capacity;

/// Consecutive rows of one episode, around the end of the ring if `stop < start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trajectory {
    /// The lane, of lanes written in parallel.
    pub lane: usize,
    /// Its first time step.
    pub start: usize,
    /// Its last time step.
    pub stop: usize,
    /// Number of time steps.
    pub len: usize,
}

/// Finds the trajectories from flags of their last steps: `end_tl` is row-major `[T, num_lanes]`. Sorted by
/// lane, then by last step. O(T). [`TrajectoryIndex`] gives the same result without a scan.
///
/// In a full ring, `newest` is the time step written last: it ends a trajectory whatever its flag, as the
/// step after it is the oldest. In a ring that is not full, step T - 1 does.
///
/// # Errors
/// `Empty` if there is no step; `ShapeMismatch` if the number of flags is not a multiple of the lanes;
/// `OutOfRange` if `newest` is not a step.
///
/// # Examples
/// ```
/// use fulmar_replay::find_trajectories;
/// let mut end_t = [false; 10];
/// (end_t[2], end_t[7]) = (true, true);
/// let found = find_trajectories(&end_t, 1, true, Some(4))?;
/// let spans: Vec<_> = found.iter().map(|one| (one.start, one.stop, one.len)).collect();
/// assert_eq!(spans, [(8, 2, 5), (3, 4, 2), (5, 7, 3)]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn find_trajectories(
    end_tl: &[bool],
    num_lanes: usize,
    is_full: bool,
    newest: Option<usize>,
) -> Result<Vec<Trajectory>> {
    let num_steps = checked_steps(end_tl.len(), num_lanes)?;
    if newest.is_some_and(|step| step >= num_steps) {
        let detail = format!("newest must be < {num_steps}: got {}", newest.unwrap_or_default());
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let forced = if is_full { newest } else { Some(num_steps - 1) };
    let mut found = Vec::new();
    for lane in 0..num_lanes {
        let ends_at = |step: &usize| end_tl[step * num_lanes + lane] || forced == Some(*step);
        let mut stops: Vec<usize> = (0..num_steps).filter(ends_at).collect();
        if stops.is_empty() {
            stops.push(num_steps - 1);
        }
        let mut before = stops[stops.len() - 1];
        for stop in stops {
            let start = (before + 1) % num_steps;
            let len = (stop + num_steps - start) % num_steps + 1;
            found.push(Trajectory { lane, start, stop, len });
            before = stop;
        }
    }
    Ok(found)
}

/// Flags the last steps of trajectories by their ids: a step before another id. Both are row-major `[T,
/// num_lanes]`. Step T - 1 is followed by step 0 in a full ring, and by nothing otherwise.
///
/// # Errors
/// `Empty` if there is no step; `ShapeMismatch` if the number of ids is not a multiple of the lanes.
///
/// # Examples
/// ```
/// let end_t = fulmar_replay::ends_of_ids(&[5, 5, 0, 5], 1, true)?;
/// assert_eq!(end_t, [false, true, true, false]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn ends_of_ids(id_tl: &[i64], num_lanes: usize, is_full: bool) -> Result<Vec<bool>> {
    let last = checked_steps(id_tl.len(), num_lanes)? - 1;
    let ends = id_tl.iter().enumerate().map(|(index, id)| {
        if index / num_lanes == last && !is_full {
            return true;
        }
        *id != id_tl[(index + num_lanes) % id_tl.len()]
    });
    Ok(ends.collect())
}

fn checked_steps(num_flags: usize, num_lanes: usize) -> Result<usize> {
    if num_lanes == 0 || !num_flags.is_multiple_of(num_lanes) {
        let detail = format!("flags must be a multiple of {num_lanes} lanes: got {num_flags}");
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    if num_flags == 0 {
        return Err(Error::new(ErrorKind::Empty, "trajectories must have at least one step: got 0"));
    }
    Ok(num_flags / num_lanes)
}

/// The trajectories of one ring, tracked while it is written: O(1) a step, whatever the capacity. It also
/// keeps a list of those with a minimal length, so that one of them is drawn in O(1).
///
/// Steps are counted from the first that was written; step s is in row s mod capacity.
#[derive(Debug, Clone)]
pub struct TrajectoryIndex {
    capacity: usize,
    num_written: u64,
    /// From the oldest to the newest.
    segments: VecDeque<Segment>,
    /// Number of segments removed at the front, which is the first one's number.
    num_dropped: u64,
    /// `true` if the next step belongs to the last segment.
    is_open: bool,
    last_id: Option<i64>,
    min_len: u64,
    /// The numbers of the segments of at least `min_len` steps.
    long: Vec<u64>,
}

/// Steps `start..end`, and the place in the list of long segments, if it is one.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    place: Option<usize>,
}

/// The state of a [`TrajectoryIndex`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrajectoryIndexState {
    /// Number of rows of the ring.
    pub capacity: usize,
    /// Number of steps ever written.
    pub num_written: u64,
    /// The end, exclusive, of each trajectory, from the oldest.
    pub ends: Vec<u64>,
    /// `true` if the next step belongs to the last trajectory.
    pub is_open: bool,
    /// The id of the last step, if ids are used.
    pub last_id: Option<i64>,
    /// The length from which a trajectory counts as long.
    pub min_len: u64,
    /// The long ones, by position in `ends`, in the order on which draws depend.
    pub long: Vec<usize>,
}

impl TrajectoryIndex {
    /// Returns the index of a ring of `capacity` rows, none of them written.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize) -> Result<Self> {
        Ok(Self {
            capacity: checked_capacity(capacity)?,
            num_written: 0,
            segments: VecDeque::new(),
            num_dropped: 0,
            is_open: false,
            last_id: None,
            min_len: 1,
            long: Vec::new(),
        })
    }

    /// Records the next steps: `end_t` flags those that end a trajectory.
    pub fn extend(&mut self, end_t: &[bool]) {
        self.last_id = None;
        for &ends in end_t {
            self.push();
            self.is_open = !ends;
        }
    }

    /// Records the next steps: a trajectory is a run of equal ids.
    pub fn extend_ids(&mut self, id_t: &[i64]) {
        for &id in id_t {
            self.is_open &= self.last_id == Some(id);
            self.last_id = Some(id);
            self.push();
            self.is_open = true;
        }
    }

    /// Returns the trajectories in the ring, from the oldest.
    pub fn trajectories(&self) -> impl Iterator<Item = Trajectory> + '_ {
        self.segments.iter().map(|segment| self.trajectory(*segment))
    }

    /// Returns the trajectory of the step in `row`, and the number of its steps before it; `None` for an
    /// empty row. O(log trajectories).
    #[must_use]
    pub fn at(&self, row: usize) -> Option<(Trajectory, usize)> {
        let (_, newer) = self.room(row)?;
        let step = self.num_written - 1 - newer as u64;
        let segment = *self.segments.get(self.segments.partition_point(|one| one.end <= step))?;
        if row >= self.capacity {
            None
        } else {
            Some((self.trajectory(segment), (step - segment.start) as usize))
        }
    }

    /// Returns the number of older and of newer steps than the one in `row`; `None` for an empty row.
    #[must_use]
    pub fn room(&self, row: usize) -> Option<(usize, usize)> {
        let newest = self.num_written.checked_sub(1)?;
        let capacity = self.capacity as u64;
        let newer = (newest % capacity + capacity).checked_sub(row as u64)? % capacity;
        let num_rows = self.num_written.min(capacity);
        if row >= self.capacity {
            None
        } else {
            Some(((num_rows - 1).checked_sub(newer)? as usize, newer as usize))
        }
    }

    /// Returns the row that the next step takes.
    pub(crate) fn cursor(&self) -> usize {
        (self.num_written % self.capacity as u64) as usize
    }

    /// Returns the oldest and the newest trajectory.
    pub(crate) fn outermost(&self) -> Option<[Trajectory; 2]> {
        Some([self.trajectory(*self.segments.front()?), self.trajectory(*self.segments.back()?)])
    }

    /// Returns the number of trajectories in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns whether no step was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the number of rows of the ring.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of trajectories with at least `min_len` steps (at least one). O(1) for the last
    /// `min_len`, else O(trajectories).
    pub fn num_long(&mut self, min_len: usize) -> usize {
        let min_len = min_len.max(1) as u64;
        if self.min_len != min_len {
            self.min_len = min_len;
            self.long.clear();
            for (number, segment) in (self.num_dropped..).zip(&mut self.segments) {
                segment.place = None;
                if segment.end - segment.start >= self.min_len {
                    segment.place = Some(self.long.len());
                    self.long.push(number);
                }
            }
        }
        self.long.len()
    }

    /// Returns number `index` of the trajectories counted last by [`TrajectoryIndex::num_long`], in no order;
    /// `None` beyond them.
    #[must_use]
    pub fn long(&self, index: usize) -> Option<Trajectory> {
        let number = self.long.get(index)?;
        self.segments.get((number - self.num_dropped) as usize).map(|segment| self.trajectory(*segment))
    }

    /// Removes all steps.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.long.clear();
        self.num_dropped = 0;
        self.num_written = 0;
        self.is_open = false;
        self.last_id = None;
    }

    /// Returns the state for a checkpoint. O(trajectories).
    #[must_use]
    pub fn state(&self) -> TrajectoryIndexState {
        TrajectoryIndexState {
            capacity: self.capacity,
            num_written: self.num_written,
            ends: self.segments.iter().map(|segment| segment.end).collect(),
            is_open: self.is_open,
            last_id: self.last_id,
            min_len: self.min_len,
            long: self.long.iter().map(|number| (number - self.num_dropped) as usize).collect(),
        }
    }

    /// Restores an index from its state.
    ///
    /// # Errors
    /// The errors of [`TrajectoryIndex::new`]; `Corrupt` if the trajectories do not fill the ring, or the
    /// list of long ones is wrong.
    pub fn from_state(state: &TrajectoryIndexState) -> Result<Self> {
        let corrupt = |what: &str| {
            Err(Error::new(ErrorKind::Corrupt, format!("{what} must fit the ring: they do not")))
        };
        let mut index = Self::new(state.capacity)?;
        let mut start = state.num_written.saturating_sub(state.capacity as u64);
        for &end in &state.ends {
            if end <= start || end > state.num_written {
                return corrupt("ends");
            }
            index.segments.push_back(Segment { start, end, place: None });
            start = end;
        }
        if start != state.num_written || state.min_len == 0 || (state.is_open && state.ends.is_empty()) {
            return corrupt("ends");
        }
        for (place, &position) in state.long.iter().enumerate() {
            match index.segments.get_mut(position) {
                Some(segment) if segment.place.is_none() => segment.place = Some(place),
                _ => return corrupt("long trajectories"),
            }
        }
        if index.segments.iter().any(|one| one.place.is_some() != (one.end - one.start >= state.min_len)) {
            return corrupt("long trajectories");
        }
        index.long = state.long.iter().map(|&position| position as u64).collect();
        (index.num_written, index.min_len) = (state.num_written, state.min_len);
        (index.is_open, index.last_id) = (state.is_open, state.last_id);
        Ok(index)
    }

    fn trajectory(&self, segment: Segment) -> Trajectory {
        let row = |step: u64| (step % self.capacity as u64) as usize;
        let len = (segment.end - segment.start) as usize;
        Trajectory { lane: 0, start: row(segment.start), stop: row(segment.end - 1), len }
    }

    /// Records one step, of the last segment if that is open.
    fn push(&mut self) {
        let step = self.num_written;
        self.num_written += 1;
        self.evict();
        if !self.is_open || self.segments.is_empty() {
            self.segments.push_back(Segment { start: step, end: step, place: None });
        }
        let number = self.num_dropped + self.segments.len() as u64 - 1;
        let place = self.long.len();
        if let Some(last) = self.segments.back_mut() {
            last.end = step + 1;
            if last.place.is_none() && last.end - last.start >= self.min_len {
                last.place = Some(place);
                self.long.push(number);
            }
        }
    }

    /// Removes the oldest step, if the ring is full of newer ones.
    fn evict(&mut self) {
        let oldest = self.num_written.saturating_sub(self.capacity as u64);
        let Some(first) = self.segments.front_mut() else { return };
        if first.start >= oldest {
            return;
        }
        first.start = oldest;
        let (is_gone, is_short) = (first.start >= first.end, first.end - first.start < self.min_len);
        if is_short && let Some(place) = first.place.take() {
            self.long.swap_remove(place);
            if let Some(&moved) = self.long.get(place) {
                self.segments[(moved - self.num_dropped) as usize].place = Some(place);
            }
        }
        if is_gone {
            self.segments.pop_front();
            self.num_dropped += 1;
        }
    }
}

/// Refuses rows that are not consecutive in a ring from `cursor` on.
pub(crate) fn check_follows(cursor: usize, capacity: usize, rows: &[usize]) -> Result<()> {
    match rows.iter().zip(cursor..).find(|(row, next)| **row != next % capacity) {
        None => Ok(()),
        Some((row, next)) => {
            let detail =
                format!("rows of trajectories must be written in a ring: got {row} for {}", next % capacity);
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}
