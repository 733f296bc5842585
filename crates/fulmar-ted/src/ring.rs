//! Where a ring stands, which of its entries mark ends and rewards, and how both are written beside the steps.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Key, NonTensor, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The word under which a converted dictionary says which shape its steps had.
pub(crate) const STORAGE_SHAPE: &str = "_storage_shape";

/// Where a ring stands. Its steps have the shape `[time]` or `[time, lanes...]`; all lanes are written together. Unless told, all steps
/// are written and the first is the oldest.
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
    /// The time at which the next step will be written. As long as the ring is not full, so many steps were; the capacity means 0
    /// in a full one. In JSON `shift`, as upstream has it.
    #[serde(rename = "shift")]
    pub cursor: usize,
    /// Whether every step was written at least once.
    pub is_full: bool,
}

impl Default for Ring {
    fn default() -> Self {
        Self { cursor: 0, is_full: true }
    }
}

impl Ring {
    /// The time of the oldest of `capacity` steps of a lane.
    ///
    /// # Errors
    /// `OutOfRange` if the cursor is past the capacity; `Empty` if nothing was written.
    pub fn oldest(&self, capacity: usize) -> Result<usize> {
        self.written(capacity)?;
        Ok(if self.is_full { self.cursor % capacity } else { 0 })
    }

    /// How many of `capacity` steps of a lane were written.
    ///
    /// # Errors
    /// Those of [`Ring::oldest`].
    pub fn written(&self, capacity: usize) -> Result<usize> {
        if self.cursor > capacity {
            let detail = format!("cursor must be <= {capacity}, the capacity: got {}", self.cursor);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let written = if self.is_full { capacity } else { self.cursor };
        if written == 0 {
            return Err(Error::new(ErrorKind::Empty, "a ring must hold at least one step: got none"));
        }
        Ok(written)
    }
}

/// Which entries below `"next"` are not observations, and where a converted dictionary says where its ring stood.
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
    /// Marks of ends, this one among them. At the root they are false everywhere.
    #[serde(rename = "doneKeys")]
    pub ends: Vec<Key>,
    /// Rewards, which stand below `"next"` alone.
    #[serde(rename = "rewardKeys")]
    pub rewards: Vec<Key>,
    /// Where the cursor of the ring stands in a converted dictionary.
    #[serde(rename = "shiftKey")]
    pub shift: Key,
    /// Where it says whether the ring was full.
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
    /// Whether the entry at `key` is kept once a step, as it stands below `"next"`.
    pub(crate) fn is_of_step(&self, key: &Key) -> bool {
        self.ends.contains(key) || self.rewards.contains(key)
    }

    /// Whether a converted dictionary says something of its ring at `key`.
    pub(crate) fn is_of_ring(&self, key: &Key) -> bool {
        *key == self.shift || *key == self.is_full || *key == STORAGE_SHAPE.into()
    }
}

/// `key` below `"next"`.
pub(crate) fn next(key: &Key) -> Key {
    [&["next".to_owned()], key.path()].concat().into()
}

/// An empty dictionary of `batch_size` that says where the ring of steps of `shape` stands.
pub(crate) fn with_ring(
    batch_size: &[usize],
    ring: Ring,
    shape: &[usize],
    keys: &TedKeys,
) -> Result<TensorDict> {
    let mut dict = TensorDict::new(batch_size)?;
    // Upstream writes the capacity for the cursor of a full ring that begins anew.
    let shift = if ring.is_full && ring.cursor == 0 { shape[0] } else { ring.cursor };
    dict.set(keys.is_full.clone(), NonTensor::shared(json!(ring.is_full)))?;
    dict.set(keys.shift.clone(), NonTensor::shared(json!(shift)))?;
    dict.set(STORAGE_SHAPE, NonTensor::shared(json!(shape)))?;
    Ok(dict)
}

/// The ring and the shape of steps that a converted dictionary says.
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
        // Upstream writes the one length of a ring without lanes as a number.
        Value::Number(_) => vec![count(&shape_key, &shape)?],
        _ => return Err(bad(&shape_key, "the shape of the steps", &shape)),
    };
    num_elements(&shape)?;
    Ok((Ring { cursor: count(&keys.shift, &value(&keys.shift)?)?, is_full }, shape))
}

/// The leaves of a converted dictionary, which must be of one kind.
pub(crate) fn leaves<'a>(dict: &'a TensorDict, keys: &'a TedKeys) -> impl Iterator<Item = (Key, &'a Entry)> {
    let leaves = dict.leaf_keys().into_iter().filter(|key| !keys.is_of_ring(key));
    leaves.filter_map(|key| dict.get(key.clone()).map(|entry| (key, entry)))
}

fn bad(key: &Key, rule: &str, value: &Value) -> Error {
    Error::new(ErrorKind::Malformed, format!("{key} must be {rule}: got {value}"))
}
