//! Rows that are drawn a fixed number of times and then freed for new items.

use std::collections::VecDeque;

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use serde::{Deserialize, Serialize};

use crate::row::{checked_draw, checked_row};

/// No place among the live rows.
const FREED: u32 = u32::MAX;

/// Draws distinct live rows; a row drawn `max_sample_count` times is freed, first freed first reused.
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
    /// How often each row was drawn since it was written.
    counts: Vec<u32>,
    live: Vec<u32>,
    /// Where each row stands in `live`, or [`FREED`].
    place: Vec<u32>,
    freed: VecDeque<usize>,
    rng: Rng,
}

/// All that a [`ConsumingSampler`] must keep to go on as if never stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumingSamplerState {
    /// After how many draws a row is freed.
    pub max_sample_count: u32,
    /// How often each row was drawn since it was written.
    pub counts: Vec<u32>,
    /// The live rows, in the order that draws depend on.
    pub live: Vec<u32>,
    /// The freed rows, first freed first.
    pub freed: Vec<usize>,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl ConsumingSampler {
    /// A sampler that frees a row after `max_sample_count` draws; `seed` fixes its draws.
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

    /// Takes note that `rows` were written: each is live, its draws forgotten.
    ///
    /// # Errors
    /// `OutOfRange` if a row is beyond the limit of a buffer, or would leave rows before it unwritten.
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

    /// Frees `rows` as if they had been drawn often enough; those that are freed already stay where they are.
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

    /// The freed rows, first freed first: what a writer should reuse.
    pub fn freed(&self) -> impl Iterator<Item = usize> + '_ {
        self.freed.iter().copied()
    }

    /// How many rows can still be drawn.
    #[must_use]
    pub fn num_live(&self) -> usize {
        self.live.len()
    }

    /// How often each row was drawn since it was written.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Whether rows were written and none is live.
    #[must_use]
    pub fn ran_out(&self) -> bool {
        self.live.is_empty() && !self.counts.is_empty()
    }

    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.live.clear();
        self.place.clear();
        self.freed.clear();
    }

    /// All that must be kept to go on as if never stopped.
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

    /// The sampler whose state was taken.
    ///
    /// # Errors
    /// As [`ConsumingSampler::new`]; `Corrupt` unless every row is live or freed, once, as its count says.
    pub fn from_state(state: &ConsumingSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.max_sample_count, 0)?;
        let mut place = vec![None; state.counts.len()];
        let live = state.live.iter().enumerate().map(|(index, &row)| (row as usize, index as u32));
        for (row, index) in live.chain(state.freed.iter().map(|&row| (row, FREED))) {
            let count = state.counts.get(row).copied();
            let fits = count.is_some_and(|count| (count >= state.max_sample_count) == (index == FREED));
            if !fits || place[row].replace(index).is_some() {
                let detail =
                    format!("every row must be live or freed, once, as its count says: row {row} is not");
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

    /// Takes a row from the freed ones: O(1) for the first, which is the one that writers reuse.
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
