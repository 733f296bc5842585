//! Epochs: every row once, in a new order each time.

use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reads;
use crate::row::{checked_capacity, checked_draw};
use crate::sampler::{Sampled, Sampler};
use crate::stateful::{from_state, to_state};
use crate::{Follower, Stateful};

/// Options of the epochs of a [`SamplerWithoutReplacement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WithoutReplacementOptions {
    /// If true, an epoch ends before a batch that would be short. Defaults to false.
    pub drop_last: bool,
    /// If true, rows come in random order, else in row order. Defaults to true.
    pub shuffle: bool,
}

impl Default for WithoutReplacementOptions {
    fn default() -> Self {
        Self { drop_last: false, shuffle: true }
    }
}

/// Draws every row once before any comes again. An epoch starts over when the number of rows changes.
///
/// # Examples
/// ```
/// use fulmar_replay::SamplerWithoutReplacement;
/// let mut sampler = SamplerWithoutReplacement::new(Default::default(), 7);
/// let mut epoch = sampler.sample(5, 3)?;
/// epoch.extend(sampler.sample(5, 3)?);
/// epoch.sort_unstable();
/// assert_eq!((epoch, sampler.ran_out()), (vec![0, 1, 2, 3, 4], true));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SamplerWithoutReplacement {
    options: WithoutReplacementOptions,
    /// The rows of this epoch; those before `taken` were drawn.
    order: Vec<u32>,
    taken: usize,
    ran_out: bool,
    /// `true` if the order of this epoch was given, not drawn.
    is_given: bool,
    /// The generator before it ordered this epoch.
    epoch_rng: RngState,
    rng: Rng,
}

/// The state of a [`SamplerWithoutReplacement`] for a checkpoint. Its size does not depend on the number of
/// rows, unless their order was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SamplerWithoutReplacementState {
    /// The options.
    pub options: WithoutReplacementOptions,
    /// Number of rows in this epoch; 0 before the first.
    pub num_rows: usize,
    /// Number of rows already drawn.
    pub taken: usize,
    /// `true` if the last draw ended an epoch.
    pub ran_out: bool,
    /// The words of the generator's state before it ordered this epoch.
    pub rng: [u64; 3],
    /// All rows of this epoch in order, if the generator did not determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<u32>>,
}

impl SamplerWithoutReplacement {
    /// Returns a sampler; `seed` makes its orders reproducible.
    #[must_use]
    pub fn new(options: WithoutReplacementOptions, seed: u64) -> Self {
        let rng = Rng::new(seed).stream("sampler without replacement");
        Self {
            options,
            order: Vec::new(),
            taken: 0,
            ran_out: false,
            is_given: false,
            epoch_rng: rng.state(),
            rng,
        }
    }

    /// Draws the next `count` of the rows `0..num_rows`, fewer at the end of an epoch.
    ///
    /// # Errors
    /// `Empty` if `num_rows` is 0; `OutOfRange` if `count` is 0, above the limit of a draw, or above
    /// `num_rows` while short batches are dropped; `LimitExceeded` if `num_rows` is above the limit of a
    /// buffer.
    pub fn sample(&mut self, num_rows: usize, count: usize) -> Result<Vec<usize>> {
        checked_draw(num_rows, count)?;
        if self.options.drop_last && count > num_rows {
            let detail = format!("count must be <= {num_rows}, the rows there are: got {count}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        if self.order.len() != num_rows {
            self.start_epoch(num_rows)?;
        }
        let end = self.order.len().min(self.taken + count);
        let rows = self.order[self.taken..end].iter().map(|&row| row as usize).collect();
        self.taken = end;
        let least = if self.options.drop_last { count } else { 1 };
        self.ran_out = self.num_left() < least;
        if self.ran_out {
            self.start_epoch(num_rows)?;
        }
        Ok(rows)
    }

    /// Returns whether the last draw ended an epoch.
    #[must_use]
    pub const fn ran_out(&self) -> bool {
        self.ran_out
    }

    /// Returns the number of rows left in this epoch.
    #[must_use]
    pub fn num_left(&self) -> usize {
        self.order.len() - self.taken
    }

    /// Drops the rest of the epoch.
    pub fn clear(&mut self) {
        self.is_given = false;
        self.order.clear();
        self.taken = 0;
        self.ran_out = false;
        self.epoch_rng = self.rng.state();
    }

    /// Returns all that must be kept to continue with the same draws.
    #[must_use]
    pub fn state(&self) -> SamplerWithoutReplacementState {
        SamplerWithoutReplacementState {
            options: self.options,
            num_rows: self.order.len(),
            taken: self.taken,
            ran_out: self.ran_out,
            rng: self.epoch_rng.words(),
            order: self.is_given.then(|| self.order.clone()),
        }
    }

    /// Returns the sampler whose state was taken. O(rows).
    ///
    /// # Errors
    /// `Corrupt` if more rows were drawn than there are; `LimitExceeded` if there are more than a buffer may
    /// hold.
    pub fn from_state(state: &SamplerWithoutReplacementState) -> Result<Self> {
        let mut sampler = Self::new(state.options, 0);
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        sampler.epoch_rng = sampler.rng.state();
        if state.taken > state.num_rows {
            let detail = format!("taken must be <= numRows, {}: got {}", state.num_rows, state.taken);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        match &state.order {
            Some(order) => {
                check_order(order, state.num_rows)?;
                (sampler.order, sampler.is_given) = (order.clone(), true);
            }
            None if state.num_rows > 0 => sampler.start_epoch(state.num_rows)?,
            None => {}
        }
        sampler.taken = state.taken;
        sampler.ran_out = state.ran_out;
        Ok(sampler)
    }

    /// Returns the remaining rows of this epoch in order.
    pub(crate) fn rows_left(&self) -> Vec<i64> {
        self.order[self.taken..].iter().map(|row| i64::from(*row)).collect()
    }

    fn start_epoch(&mut self, num_rows: usize) -> Result<()> {
        let num_rows = checked_capacity(num_rows)? as u32;
        self.epoch_rng = self.rng.state();
        self.is_given = false;
        self.order = (0..num_rows).collect();
        if self.options.shuffle {
            self.rng.shuffle(&mut self.order);
        }
        self.taken = 0;
        Ok(())
    }
}

/// Refuses an order that does not have each of `num_rows` rows once.
fn check_order(order: &[u32], num_rows: usize) -> Result<()> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    if order.len() == num_rows && sorted.iter().enumerate().all(|(at, row)| at == *row as usize) {
        return Ok(());
    }
    let detail = format!("order must hold each of {num_rows} rows once: got {} of them", order.len());
    Err(Error::new(ErrorKind::Corrupt, detail))
}

impl Follower for SamplerWithoutReplacement {
    fn reads(&self) -> Reads {
        Reads::Nothing
    }

    fn extend(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for SamplerWithoutReplacement {
    fn sample(&mut self, len: usize, count: usize) -> Result<Sampled> {
        Sampled::plain(Self::sample(self, len, count)?)
    }

    fn ran_out(&self) -> bool {
        Self::ran_out(self)
    }
}

impl Stateful for SamplerWithoutReplacement {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        *self = Self::from_state(&from_state("sampler", state)?)?;
        Ok(())
    }
}
