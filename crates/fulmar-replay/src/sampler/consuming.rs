//! Rows that are drawn a fixed number of times and then freed for new items.

use std::collections::VecDeque;

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reads;
use crate::row::{checked_draw, checked_row};
use crate::sampler::{Sampled, Sampler};
use crate::stateful::{from_state, to_state};
use crate::{Follower, Stateful};

/// The position of a freed row.
const FREED: u32 = u32::MAX;

/// Draws distinct live rows; a row drawn `max_sample_count` times is freed; the first freed is reused first.
///
/// # Examples
/// ```
/// use fulmar_replay::{ConsumingSampler, RoundRobinWriter};
/// let mut writer = RoundRobinWriter::new(5)?;
/// let mut sampler = ConsumingSampler::new(1, 7)?;
/// sampler.extend(&writer.extend(5)?)?;
/// let drawn = sampler.sample(3)?;
/// assert_eq!((drawn.len(), sampler.num_live()), (3, 2));
/// let rows = writer.extend_reusing(sampler.freed(), 3)?;
/// assert_eq!(rows, drawn);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConsumingSampler {
    max_sample_count: u32,
    /// Number of draws of each row since it was written.
    counts: Vec<u32>,
    live: Vec<u32>,
    /// Position of each row in `live`, or [`FREED`].
    place: Vec<u32>,
    freed: VecDeque<usize>,
    rng: Rng,
}

/// The state of a [`ConsumingSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumingSamplerState {
    /// Number of draws after which a row is freed.
    pub max_sample_count: u32,
    /// Number of draws of each row since it was written.
    pub counts: Vec<u32>,
    /// The live rows, in the order on which draws depend.
    pub live: Vec<u32>,
    /// The freed rows in order of reuse.
    pub freed: Vec<usize>,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl ConsumingSampler {
    /// Returns a sampler that frees a row after `max_sample_count` draws; `seed` makes its draws
    /// reproducible.
    ///
    /// # Errors
    /// `OutOfRange` if `max_sample_count` is 0.
    pub fn new(max_sample_count: u32, seed: u64) -> Result<Self> {
        if max_sample_count == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "max_sample_count must be >= 1: got 0"));
        }
        let rng = Rng::new(seed).stream("consuming sampler");
        let (counts, live, place, freed) = (Vec::new(), Vec::new(), Vec::new(), VecDeque::new());
        Ok(Self { max_sample_count, counts, live, place, freed, rng })
    }

    /// Records that `rows` were written: each is live with 0 draws.
    ///
    /// # Errors
    /// `OutOfRange` if a row is beyond the limit of a buffer, or would leave earlier rows unwritten.
    pub fn extend(&mut self, rows: &[usize]) -> Result<()> {
        for &row in rows {
            checked_row(row, fulmar_core::limits::REPLAY_ROWS_MAX.min(self.counts.len() + 1))?;
            if row == self.counts.len() {
                self.counts.push(0);
                self.place.push(FREED);
            } else if self.place[row] == FREED {
                self.unfree(row);
            }
            self.counts[row] = 0;
            if self.place[row] == FREED {
                self.place[row] = self.live.len() as u32;
                self.live.push(row as u32);
            }
        }
        Ok(())
    }

    /// Draws `count` distinct live rows, or all if there are fewer.
    ///
    /// # Errors
    /// `Empty` if no row is live, `OutOfRange` if `count` is 0 or above the limit of a draw.
    pub fn sample(&mut self, count: usize) -> Result<Vec<usize>> {
        checked_draw(self.live.len(), count)?;
        let count = count.min(self.live.len());
        for index in 0..count {
            let other = index + self.rng.below((self.live.len() - index) as u64)? as usize;
            self.live.swap(index, other);
            self.place[self.live[index] as usize] = index as u32;
            self.place[self.live[other] as usize] = other as u32;
        }
        let rows: Vec<usize> = self.live[..count].iter().map(|&row| row as usize).collect();
        for &row in &rows {
            self.counts[row] += 1;
            if self.counts[row] >= self.max_sample_count {
                self.free(row);
            }
        }
        Ok(rows)
    }

    /// Frees `rows` as if they had been drawn often enough; rows that are already freed keep their place.
    ///
    /// # Errors
    /// `OutOfRange` if a row was never written.
    pub fn consume(&mut self, rows: &[usize]) -> Result<()> {
        for &row in rows {
            checked_row(row, self.counts.len())?;
        }
        for &row in rows {
            if self.place[row] != FREED {
                self.counts[row] = self.max_sample_count;
                self.free(row);
            }
        }
        Ok(())
    }

    /// Returns the freed rows in the order in which a writer should reuse them.
    pub fn freed(&self) -> impl Iterator<Item = usize> + '_ {
        self.freed.iter().copied()
    }

    /// Returns the number of rows that can still be drawn.
    #[must_use]
    pub fn num_live(&self) -> usize {
        self.live.len()
    }

    /// Returns the number of draws of each row since it was written.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Returns whether rows were written but none is live.
    #[must_use]
    pub fn ran_out(&self) -> bool {
        self.live.is_empty() && !self.counts.is_empty()
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.live.clear();
        self.place.clear();
        self.freed.clear();
    }

    /// Returns all that must be kept to continue with the same draws.
    #[must_use]
    pub fn state(&self) -> ConsumingSamplerState {
        ConsumingSamplerState {
            max_sample_count: self.max_sample_count,
            counts: self.counts.clone(),
            live: self.live.clone(),
            freed: self.freed().collect(),
            rng: self.rng.state().words(),
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// The errors of [`ConsumingSampler::new`]; `Corrupt` unless every row is live or freed, once, according
    /// to its count.
    pub fn from_state(state: &ConsumingSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.max_sample_count, 0)?;
        let mut place = vec![None; state.counts.len()];
        let live = state.live.iter().enumerate().map(|(index, &row)| (row as usize, index as u32));
        for (row, index) in live.chain(state.freed.iter().map(|&row| (row, FREED))) {
            let count = state.counts.get(row).copied();
            let fits = count.is_some_and(|count| (count >= state.max_sample_count) == (index == FREED));
            if !fits || place[row].replace(index).is_some() {
                let detail = format!(
                    "every row must be live or freed, once, according to its count: row {row} is not"
                );
                return Err(Error::new(ErrorKind::Corrupt, detail));
            }
        }
        let Some(place) = place.into_iter().collect() else {
            return Err(Error::new(ErrorKind::Corrupt, "every row must be live or freed: one is neither"));
        };
        sampler.place = place;
        sampler.counts.clone_from(&state.counts);
        sampler.live.clone_from(&state.live);
        sampler.freed = state.freed.iter().copied().collect();
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        Ok(sampler)
    }

    /// Removes a row from the freed ones: O(1) for the first, which writers reuse.
    fn unfree(&mut self, row: usize) {
        if self.freed.front() == Some(&row) {
            self.freed.pop_front();
        } else {
            self.freed.retain(|&freed| freed != row);
        }
    }

    /// Moves a live row to the freed ones. O(1).
    fn free(&mut self, row: usize) {
        let place = self.place[row] as usize;
        self.live.swap_remove(place);
        if let Some(&moved) = self.live.get(place) {
            self.place[moved as usize] = place as u32;
        }
        self.place[row] = FREED;
        self.freed.push_back(row);
    }
}

impl Follower for ConsumingSampler {
    fn reads(&self) -> Reads {
        Reads::Rows
    }

    fn extend(&mut self, rows: &[usize], _: &TensorDict) -> Result<()> {
        Self::extend(self, rows)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for ConsumingSampler {
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        Sampled::plain(Self::sample(self, count)?)
    }

    fn num_live(&self, _: usize) -> usize {
        Self::num_live(self)
    }

    fn ran_out(&self) -> bool {
        Self::ran_out(self)
    }

    fn freed(&self) -> Vec<usize> {
        Self::freed(self).collect()
    }
}

impl Stateful for ConsumingSampler {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        *self = Self::from_state(&from_state("sampler", state)?)?;
        Ok(())
    }
}
