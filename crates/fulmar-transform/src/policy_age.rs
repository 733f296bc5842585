//! Filters rows by the age of their policy.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde::Deserialize;

use crate::transform::Transform;

/// Keeps the rows made by a policy at most `maxPolicyLag` versions older than the current one, both when rows
/// are written and when a batch is read. A row of several steps is as old as its oldest step. May return an
/// empty batch.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{PolicyAgeFilter, Transform};
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set("policy_version", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// let mut filter = PolicyAgeFilter { version: 3, max_policy_lag: 1, ..Default::default() }.checked()?;
/// assert_eq!(filter.forward(batch.clone())?.batch_size(), [2]);
/// filter.set_policy_version(9);
/// assert_eq!(filter.forward(batch)?.batch_size(), [0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyAgeFilter {
    /// The current version, until [`Transform::set_policy_version`] sets another. Defaults to 0.
    pub version: i64,
    /// Maximum number of versions that a row may lag. Defaults to 0.
    pub max_policy_lag: i64,
    /// The key of a row's version. Defaults to `policy_version`.
    pub policy_version_key: Key,
    /// If true, rows must have a version; by default rows without one are kept.
    pub strict: bool,
}

impl Default for PolicyAgeFilter {
    fn default() -> Self {
        Self { version: 0, max_policy_lag: 0, policy_version_key: "policy_version".into(), strict: false }
    }
}

impl PolicyAgeFilter {
    /// Checks and returns these options.
    ///
    /// # Errors
    /// `OutOfRange` if `max_policy_lag` is negative.
    pub fn checked(self) -> Result<Self> {
        if self.max_policy_lag < 0 {
            let detail = format!("maxPolicyLag must be >= 0: got {}", self.max_policy_lag);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(self)
    }

    fn young(&self, dict: TensorDict) -> Result<TensorDict> {
        let key = &self.policy_version_key;
        if !self.strict && dict.get(key.clone()).is_none() {
            return Ok(dict);
        }
        let versions =
            dict.tensor(key.clone())?.to(Dtype::I64).map_err(|error| error.at(key))?.to_vec::<i64>()?;
        let Some(&num_rows) = dict.batch_size().first() else {
            let detail = "rows must have a batch dimension to be filtered: got batch size []";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let oldest = self.version.saturating_sub(self.max_policy_lag);
        let size = versions.len() / num_rows.max(1);
        let is_young = |row: &usize| versions[row * size..][..size].iter().all(|version| *version >= oldest);
        let rows: Vec<usize> = (0..num_rows).filter(is_young).collect();
        if rows.len() == num_rows { Ok(dict) } else { dict.index_select(&rows) }
    }
}

impl Transform for PolicyAgeFilter {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        self.young(dict)
    }

    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        self.young(dict).map(Some)
    }

    fn set_policy_version(&mut self, version: i64) {
        self.version = version;
    }
}
