//! Selects entries.

use fulmar_core::Result;
use fulmar_tensor::{Key, TensorDict};
use serde::Deserialize;

use crate::transform::Transform;

/// Reads only the entries at some keys; ignores keys without an entry.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{SelectTransform, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("obs", Tensor::from_vec(&[], vec![1_i64])?)?;
/// batch.set("info", Tensor::from_vec(&[], vec![2_i64])?)?;
/// batch.set(["next", "reward"], Tensor::from_vec(&[], vec![3_i64])?)?;
/// let selected = SelectTransform::new(vec!["obs".into()]).forward(batch)?;
/// assert_eq!(selected.leaf_keys(), ["obs".into(), ["next", "reward"].into()]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectTransform {
    /// The keys to keep.
    pub keys: Vec<Key>,
    /// If true, keeps `reward` too, at the root and below `next`.
    #[serde(default = "yes")]
    pub keep_rewards: bool,
    /// If true, keeps `done`, `terminated` and `truncated` too, at the root and below `next`.
    #[serde(default = "yes")]
    pub keep_dones: bool,
}

fn yes() -> bool {
    true
}

impl SelectTransform {
    /// Keeps the entries at `keys`, rewards and end flags.
    #[must_use]
    pub fn new(keys: Vec<Key>) -> Self {
        Self { keys, keep_rewards: true, keep_dones: true }
    }

    pub(crate) fn checked(self) -> Result<Self> {
        Ok(self)
    }
}

impl Transform for SelectTransform {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        let rewards = ["reward"].into_iter().filter(|_| self.keep_rewards);
        let dones = ["done", "terminated", "truncated"].into_iter().filter(|_| self.keep_dones);
        let mut keys = self.keys.clone();
        for name in rewards.chain(dones) {
            keys.extend([Key::from(name), Key::from(["next", name])]);
        }
        let mut selected = dict.select_known(&keys);
        // A dictionary on the path to a missing key would stay as an empty one.
        let asked_for = |name: &str| self.keys.iter().any(|key| key.path()[..] == [name.to_owned()]);
        if !asked_for("next") && selected.dict("next").is_ok_and(TensorDict::is_empty) {
            selected.remove("next")?;
        }
        Ok(selected)
    }
}

/// Reads all entries except those at some keys; ignores keys without an entry.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{ExcludeTransform, Transform};
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("info", Tensor::from_vec(&[], vec![2_i64])?)?;
/// assert_eq!(ExcludeTransform { keys: vec!["info".into()] }.forward(batch)?.num_entries(), 0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExcludeTransform {
    /// The keys to remove.
    pub keys: Vec<Key>,
}

impl ExcludeTransform {
    pub(crate) fn checked(self) -> Result<Self> {
        Ok(self)
    }
}

impl Transform for ExcludeTransform {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        Ok(dict.exclude(&self.keys))
    }
}
