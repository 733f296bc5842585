//! The position of a ring, its entries for ends and rewards, and their keys in a converted dictionary.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Key, NonTensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The key of the steps' shape in a converted dictionary.
pub(crate) const STORAGE_SHAPE: &str = "_storage_shape";

/// The position of a ring. Its steps have the shape `[time]` or `[time, lanes...]`; all lanes are written
/// together. By default all steps are written and the first is the oldest.
///
/// # Examples
/// ```
/// use fulmar_ted::Ring;
/// let ring = Ring { cursor: 3, is_full: true };
/// assert_eq!((ring.oldest(8)?, ring.written(8)?), (3, 8));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ring {
    /// The time at which the next step is written. While the ring is not full, it is the number of written
    /// steps; the capacity means 0 in a full one. In JSON `shift`, as upstream.
    #[serde(rename = "shift")]
    pub cursor: usize,
    /// If true, every step was written at least once.
    pub is_full: bool,
}

impl Default for Ring {
    fn default() -> Self {
        Self { cursor: 0, is_full: true }
    }
}

impl Ring {
    /// Returns the time of the oldest of `capacity` steps of a lane.
    ///
    /// # Errors
    /// `OutOfRange` if the cursor is past the capacity; `Empty` if no step was written.
    pub fn oldest(&self, capacity: usize) -> Result<usize> {
        self.written(capacity)?;
        Ok(if self.is_full { self.cursor % capacity } else { 0 })
    }

    /// Returns the number of `capacity` steps of a lane that were written.
    ///
    /// # Errors
    /// The errors of [`Ring::oldest`].
    pub fn written(&self, capacity: usize) -> Result<usize> {
        if self.cursor > capacity {
            let detail = format!("cursor must be <= {capacity}, the capacity: got {}", self.cursor);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let written = if self.is_full { capacity } else { self.cursor };
        if written == 0 {
            return Err(Error::new(ErrorKind::Empty, "a ring must hold at least one step: got 0"));
        }
        Ok(written)
    }
}

/// The entries below `"next"` that are not observations, and the keys of the ring's position in a converted
/// dictionary.
///
/// # Examples
/// ```
/// let keys = fulmar_ted::TedKeys::default();
/// assert_eq!(keys.ends, ["done".into(), "truncated".into(), "terminated".into()]);
/// assert_eq!((keys.done, keys.rewards), ("done".into(), vec!["reward".into()]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TedKeys {
    /// The end of a trajectory: bools, one a step.
    #[serde(rename = "doneKey")]
    pub done: Key,
    /// Flags of ends, including `done`. At the root they are false everywhere.
    #[serde(rename = "doneKeys")]
    pub ends: Vec<Key>,
    /// Rewards, which exist only below `"next"`.
    #[serde(rename = "rewardKeys")]
    pub rewards: Vec<Key>,
    /// The key of the ring's cursor in a converted dictionary.
    #[serde(rename = "shiftKey")]
    pub shift: Key,
    /// The key of the flag that the ring was full.
    #[serde(rename = "isFullKey")]
    pub is_full: Key,
}

impl Default for TedKeys {
    fn default() -> Self {
        Self {
            done: "done".into(),
            ends: vec!["done".into(), "truncated".into(), "terminated".into()],
            rewards: vec!["reward".into()],
            shift: "shift".into(),
            is_full: "is_full".into(),
        }
    }
}

impl TedKeys {
    /// Returns whether the entry at `key` is stored once a step, as below `"next"`.
    pub(crate) fn is_of_step(&self, key: &Key) -> bool {
        self.ends.contains(key) || self.rewards.contains(key)
    }

    /// Returns whether `key` is one of the ring's position in a converted dictionary.
    pub(crate) fn is_of_ring(&self, key: &Key) -> bool {
        *key == self.shift || *key == self.is_full || *key == STORAGE_SHAPE.into()
    }
}

/// Returns `key` below `"next"`.
pub(crate) fn next(key: &Key) -> Key {
    [&["next".to_owned()], key.path()].concat().into()
}

/// Returns an empty dictionary of `batch_size` with the position of the ring of steps of `shape`.
pub(crate) fn with_ring(
    batch_size: &[usize],
    ring: Ring,
    shape: &[usize],
    keys: &TedKeys,
) -> Result<TensorDict> {
    let mut dict = TensorDict::new(batch_size)?;
    // Upstream writes the capacity for the cursor of a full ring that starts over.
    let shift = if ring.is_full && ring.cursor == 0 { shape[0] } else { ring.cursor };
    dict.set(keys.is_full.clone(), NonTensor::shared(json!(ring.is_full)))?;
    dict.set(keys.shift.clone(), NonTensor::shared(json!(shift)))?;
    dict.set(STORAGE_SHAPE, NonTensor::shared(json!(shape)))?;
    Ok(dict)
}

/// Returns the ring and the shape of steps in a converted dictionary.
pub(crate) fn ring_of(dict: &TensorDict, keys: &TedKeys) -> Result<(Ring, Vec<usize>)> {
    let value = |key: &Key| dict.non_tensor(key.clone()).map(NonTensor::to_json);
    let count = |key: &Key, value: &Value| {
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| bad(key, "a count", value))
    };
    let is_full = value(&keys.is_full)?;
    let is_full = is_full.as_bool().ok_or_else(|| bad(&keys.is_full, "true or false", &is_full))?;
    let shape_key = STORAGE_SHAPE.into();
    let shape = value(&shape_key)?;
    let shape = match &shape {
        Value::Array(dims) if !dims.is_empty() => {
            dims.iter().map(|dim| count(&shape_key, dim)).collect::<Result<Vec<_>>>()?
        }
        // Upstream writes the single length of a ring without lanes as a number.
        Value::Number(_) => vec![count(&shape_key, &shape)?],
        _ => return Err(bad(&shape_key, "the shape of the steps", &shape)),
    };
    num_elements(&shape)?;
    Ok((Ring { cursor: count(&keys.shift, &value(&keys.shift)?)?, is_full }, shape))
}

/// Returns the leaves of a converted dictionary, which must be of one kind.
pub(crate) fn leaves<'a>(dict: &'a TensorDict, keys: &'a TedKeys) -> impl Iterator<Item = (Key, &'a Entry)> {
    let leaves = dict.leaf_keys().into_iter().filter(|key| !keys.is_of_ring(key));
    leaves.filter_map(|key| dict.get(key.clone()).map(|entry| (key, entry)))
}

fn bad(key: &Key, rule: &str, value: &Value) -> Error {
    Error::new(ErrorKind::Malformed, format!("{key} must be {rule}: got {value}"))
}
