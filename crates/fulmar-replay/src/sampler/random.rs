//! Uniform draws with replacement.

use fulmar_core::{Result, Rng, RngState};
use fulmar_tensor::TensorDict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::Reads;
use crate::row::checked_draw;
use crate::sampler::{Sampled, Sampler};
use crate::stateful::{from_state, to_state};
use crate::{Follower, Stateful};

/// Draws rows uniformly with replacement.
///
/// # Examples
/// ```
/// let mut sampler = fulmar_replay::RandomSampler::new(7);
/// assert!(sampler.sample(3, 100)?.iter().all(|&row| row < 3));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RandomSampler {
    rng: Rng,
}

/// The state of a [`RandomSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomSamplerState {
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl RandomSampler {
    /// Returns a sampler; `seed` makes its draws reproducible.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed).stream("random sampler") }
    }

    /// Draws `count` of the rows `0..num_rows`.
    ///
    /// # Errors
    /// `Empty` if `num_rows` is 0, `OutOfRange` if `count` is 0 or above the limit of a draw.
    pub fn sample(&mut self, num_rows: usize, count: usize) -> Result<Vec<usize>> {
        checked_draw(num_rows, count)?;
        (0..count).map(|_| Ok(self.rng.below(num_rows as u64)? as usize)).collect()
    }

    /// Returns all that must be kept to continue with the same draws.
    #[must_use]
    pub fn state(&self) -> RandomSamplerState {
        RandomSamplerState { rng: self.rng.state().words() }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// The errors of [`RngState::from_words`].
    pub fn from_state(state: &RandomSamplerState) -> Result<Self> {
        Ok(Self { rng: Rng::from_state(RngState::from_words(&state.rng)?) })
    }
}

impl Follower for RandomSampler {
    fn reads(&self) -> Reads {
        Reads::Nothing
    }

    fn extend(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self) {}
}

impl Sampler for RandomSampler {
    fn sample(&mut self, len: usize, count: usize) -> Result<Sampled> {
        Sampled::plain(Self::sample(self, len, count)?)
    }
}

impl Stateful for RandomSampler {
    fn state(&self) -> Result<Value> {
        to_state(&Self::state(self))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        *self = Self::from_state(&from_state("sampler", state)?)?;
        Ok(())
    }
}
