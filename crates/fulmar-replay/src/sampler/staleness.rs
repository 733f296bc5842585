//! Draws that prefer rows of recent policies.
//!
//! ```text
//! s_i = consumer_version - version_i          rows with s above max_staleness are left out
//! P(i) is proportional to 1 / (1 + s_i), or to the weight that a table gives s_i
//! ```

use std::collections::BTreeMap;

use fulmar_core::limits::{REPLAY_ROWS_MAX, REPLAY_STALENESS_WEIGHTS_MAX};
use fulmar_core::{Error, ErrorKind, Result, Rng, RngState};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::read::{Reads, integers};
use crate::row::{checked_draw, checked_row};
use crate::sampler::{Sampled, Sampler, no_parameter, version_key};
use crate::stateful::{from_state, to_state};
use crate::{Follower, Stateful};

/// Draws rows with replacement; fresher rows are more likely. A draw costs O(versions), whatever the number
/// of rows.
///
/// # Examples
/// ```
/// let mut sampler = fulmar_replay::StalenessAwareSampler::new(Some(2), 7);
/// sampler.extend(&[0, 1, 2], &[3, 1, 4])?;
/// let batch = sampler.sample_for(5, 100)?;
/// assert!(batch.rows.iter().all(|&row| row != 1), "version 1 is 4 behind");
/// assert!(batch.rows.iter().zip(&batch.staleness).all(|(&row, &s)| s == if row == 0 { 2 } else { 1 }));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StalenessAwareSampler {
    max_staleness: Option<u64>,
    /// The weight of each staleness from 0; the last applies to all beyond. If empty, it is `1 / (1 + s)`.
    weights: Vec<f64>,
    rows_by_version: BTreeMap<i64, Vec<u32>>,
    /// The version of each row and its position among the rows of that version.
    places: Vec<Option<(i64, usize)>>,
    rng: Rng,
    version_key: Key,
    consumer_version: i64,
}

/// Rows of a batch with their staleness. Both of shape `[count]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleRows {
    /// The drawn rows.
    pub rows: Vec<usize>,
    /// The number of versions that each row lags.
    pub staleness: Vec<u64>,
}

/// The state of a [`StalenessAwareSampler`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StalenessAwareSamplerState {
    /// Maximum number of versions that a row may lag; absent for any number.
    pub max_staleness: Option<u64>,
    /// Each version and its rows, in the order on which draws depend.
    pub versions: Vec<(i64, Vec<u32>)>,
    /// The words of the generator's state.
    pub rng: [u64; 3],
}

impl StalenessAwareSampler {
    /// Returns a sampler of rows that lag at most `max_staleness` versions, or any number if absent; `seed`
    /// makes its draws reproducible.
    #[must_use]
    pub fn new(max_staleness: Option<u64>, seed: u64) -> Self {
        let rng = Rng::new(seed).stream("staleness aware sampler");
        Self {
            max_staleness,
            weights: Vec::new(),
            rows_by_version: BTreeMap::new(),
            places: Vec::new(),
            rng,
            version_key: version_key(),
            consumer_version: 0,
        }
    }

    /// Sets the key of an item's version. Defaults to `"policy_version"`.
    #[must_use]
    pub fn keyed(self, version_key: Key) -> Self {
        Self { version_key, ..self }
    }

    /// Sets a weight for each staleness from 0, the last for all beyond. Rows of weight 0 are never drawn. An
    /// empty list restores `1 / (1 + s)`.
    ///
    /// # Errors
    /// `NonFinite` or `OutOfRange` for a weight that is not a finite number >= 0; `LimitExceeded` for more
    /// than [`REPLAY_STALENESS_WEIGHTS_MAX`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::StalenessAwareSampler;
    /// let mut sampler = StalenessAwareSampler::new(None, 7).weighted(vec![0.0, 1.0, 0.0])?;
    /// sampler.extend(&[0, 1, 2], &[5, 4, 1])?;
    /// assert_eq!(sampler.sample_for(5, 3)?.rows, [1, 1, 1]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn weighted(self, weights: Vec<f64>) -> Result<Self> {
        if weights.len() > REPLAY_STALENESS_WEIGHTS_MAX {
            let detail =
                format!("weights must be at most {REPLAY_STALENESS_WEIGHTS_MAX}: got {}", weights.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            let kind = if weight.is_finite() { ErrorKind::OutOfRange } else { ErrorKind::NonFinite };
            return Err(Error::new(kind, format!("weights must be numbers >= 0: got {weight}")));
        }
        Ok(Self { weights, ..self })
    }

    fn weight(&self, staleness: u64) -> f64 {
        let Some(last) = self.weights.len().checked_sub(1) else { return 1.0 / (1.0 + staleness as f64) };
        self.weights[usize::try_from(staleness).unwrap_or(last).min(last)]
    }

    /// Records that `rows` were written by policies of `versions`.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ, `OutOfRange` if a row is beyond the limit of a buffer.
    pub fn extend(&mut self, rows: &[usize], versions: &[i64]) -> Result<()> {
        if rows.len() != versions.len() {
            let detail = format!("versions must have one item a row, {}: got {}", rows.len(), versions.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        for &row in rows {
            checked_row(row, REPLAY_ROWS_MAX)?;
        }
        for (&row, &version) in rows.iter().zip(versions) {
            self.remove(row);
            if row >= self.places.len() {
                self.places.resize(row + 1, None);
            }
            let peers = self.rows_by_version.entry(version).or_default();
            self.places[row] = Some((version, peers.len()));
            peers.push(row as u32);
        }
        Ok(())
    }

    /// Draws `count` rows for a learner at `consumer_version`.
    ///
    /// # Errors
    /// `Empty` if no row was written; `OutOfRange` if `count` is 0 or above the limit of a draw, if a row is newer than
    /// the learner, or if every row is too stale.
    pub fn sample_for(&mut self, consumer_version: i64, count: usize) -> Result<StaleRows> {
        checked_draw(self.rows_by_version.len(), count)?;
        let mut classes = Vec::new();
        let mut total = 0.0;
        for (&version, rows) in &self.rows_by_version {
            let Some(staleness) = consumer_version.checked_sub(version).and_then(|s| u64::try_from(s).ok())
            else {
                let detail = format!("versions must be <= {consumer_version}, the consumer's: got {version}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            };
            let weight = self.weight(staleness);
            if weight > 0.0 && self.max_staleness.is_none_or(|max| staleness <= max) {
                total += rows.len() as f64 * weight;
                classes.push((total, staleness, rows));
            }
        }
        let Some(&freshest) = classes.last() else {
            let max = self.max_staleness.map_or_else(|| "any number".to_owned(), |max| max.to_string());
            let detail = format!(
                "at least one row must lag at most max_staleness, {max}, versions behind {consumer_version} and have a weight above 0"
            );
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        let mut drawn = StaleRows { rows: Vec::with_capacity(count), staleness: Vec::with_capacity(count) };
        for _ in 0..count {
            let mass = self.rng.uniform_f64() * total;
            let class = classes.partition_point(|(through, ..)| *through <= mass);
            let (_, staleness, rows) = classes.get(class).copied().unwrap_or(freshest);
            drawn.rows.push(rows[self.rng.below(rows.len() as u64)? as usize] as usize);
            drawn.staleness.push(staleness);
        }
        Ok(drawn)
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.rows_by_version.clear();
        self.places.clear();
    }

    /// Returns all that must be kept to continue with the same draws. O(rows).
    #[must_use]
    pub fn state(&self) -> StalenessAwareSamplerState {
        let versions = self.rows_by_version.iter().map(|(&version, rows)| (version, rows.clone())).collect();
        StalenessAwareSamplerState {
            max_staleness: self.max_staleness,
            versions,
            rng: self.rng.state().words(),
        }
    }

    /// Returns the sampler whose state was taken.
    ///
    /// # Errors
    /// `Corrupt` if a row comes twice; `OutOfRange` as for [`StalenessAwareSampler::extend`].
    pub fn from_state(state: &StalenessAwareSamplerState) -> Result<Self> {
        let mut sampler = Self::new(state.max_staleness, 0);
        for (version, rows) in &state.versions {
            for &row in rows {
                if sampler.places.get(row as usize).is_some_and(Option::is_some) {
                    let detail = format!("a row must have one version: row {row} comes twice");
                    return Err(Error::new(ErrorKind::Corrupt, detail));
                }
                sampler.extend(&[row as usize], &[*version])?;
            }
        }
        sampler.rng = Rng::from_state(RngState::from_words(&state.rng)?);
        Ok(sampler)
    }

    fn remove(&mut self, row: usize) {
        let Some((version, place)) = self.places.get_mut(row).and_then(Option::take) else { return };
        let Some(peers) = self.rows_by_version.get_mut(&version) else { return };
        peers.swap_remove(place);
        if let Some(&moved) = peers.get(place) {
            self.places[moved as usize] = Some((version, place));
        } else if peers.is_empty() {
            self.rows_by_version.remove(&version);
        }
    }
}

impl Follower for StalenessAwareSampler {
    fn reads(&self) -> Reads {
        Reads::Keys(vec![self.version_key.clone()])
    }

    fn check(&self, _: &[usize], items: &TensorDict) -> Result<()> {
        integers(items, &self.version_key).map(|_| ())
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        let versions = integers(items, &self.version_key)?;
        Self::extend(self, rows, &versions)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}

impl Sampler for StalenessAwareSampler {
    /// Draws for a learner at the parameter `consumerVersion`.
    fn sample(&mut self, _: usize, count: usize) -> Result<Sampled> {
        let drawn = self.sample_for(self.consumer_version, count)?;
        let mut sampled = Sampled::plain(drawn.rows)?;
        let staleness = drawn.staleness.into_iter().map(|staleness| staleness as f32).collect();
        sampled.info.set("staleness", Tensor::from_vec(&[sampled.rows.len()], staleness)?)?;
        Ok(sampled)
    }

    fn parameter(&self, name: &str) -> Result<f64> {
        if name == "consumerVersion" { Ok(self.consumer_version as f64) } else { Err(no_parameter(name)) }
    }

    fn set_parameter(&mut self, name: &str, value: f64) -> Result<()> {
        if name != "consumerVersion" {
            return Err(no_parameter(name));
        }
        if value.fract() != 0.0 || value.abs() > 2_f64.powi(53) {
            let detail = format!("consumerVersion must be a whole number up to 2^53: got {value}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.consumer_version = value as i64;
        Ok(())
    }
}

impl Stateful for StalenessAwareSampler {
    fn state(&self) -> Result<Value> {
        Ok(json!({ "sampler": to_state(&Self::state(self))?, "consumerVersion": self.consumer_version }))
    }

    /// Weights and keys are options: they stay.
    fn restore(&mut self, state: &Value) -> Result<()> {
        let sampler = Self::from_state(&from_state("sampler", &state["sampler"])?)?;
        let consumer_version = from_state("consumerVersion", &state["consumerVersion"])?;
        let (weights, version_key) = (self.weights.clone(), self.version_key.clone());
        *self = Self { weights, version_key, consumer_version, ..sampler };
        Ok(())
    }
}
