//! Where a ring stands, which of its entries mark ends and rewards, and how both are written beside the steps.

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Key, NonTensor, TensorDict};
use serde_json::{Value, json};

/// The words under which a converted dictionary says where its ring stood.
pub(crate) const SHIFT: &str = "shift";
pub(crate) const IS_FULL: &str = "is_full";
pub(crate) const STORAGE_SHAPE: &str = "_storage_shape";

/// Where a ring stands. Its steps have the shape `[time]` or `[time, lanes...]`; all lanes are written together.
///
/// # Examples
/// ```
/// use fulmar_ted::Ring;
/// let ring = Ring { cursor: 3, is_full: true };
/// assert_eq!((ring.oldest(8)?, ring.written(8)?), (3, 8));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// The time at which the next step will be written. As long as the ring is not full, so many steps were; the capacity means 0
    /// in a full one.
    pub cursor: usize,
    /// Whether every step was written at least once.
    pub is_full: bool,
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

/// Which entries below `"next"` are not observations.
///
/// # Examples
/// ```
/// let keys = fulmar_ted::TedKeys::default();
/// assert_eq!(keys.ends, ["done".into(), "truncated".into(), "terminated".into()]);
/// assert_eq!((keys.done, keys.rewards), ("done".into(), vec!["reward".into()]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TedKeys {
    /// The end of a trajectory: bools, one a step.
    pub done: Key,
    /// Marks of ends, this one among them. At the root they are false everywhere.
    pub ends: Vec<Key>,
    /// Rewards, which stand below `"next"` alone.
    pub rewards: Vec<Key>,
}

impl Default for TedKeys {
    fn default() -> Self {
        Self {
            done: "done".into(),
            ends: vec!["done".into(), "truncated".into(), "terminated".into()],
            rewards: vec!["reward".into()],
        }
    }
}

impl TedKeys {
    /// Whether the entry at `key` is kept once a step, as it stands below `"next"`.
    pub(crate) fn is_of_step(&self, key: &Key) -> bool {
        self.ends.contains(key) || self.rewards.contains(key)
    }
}

/// `key` below `"next"`.
pub(crate) fn next(key: &Key) -> Key {
    [&["next".to_owned()], key.path()].concat().into()
}

/// An empty dictionary of `batch_size` that says where the ring of steps of `shape` stands.
pub(crate) fn with_ring(batch_size: &[usize], ring: Ring, shape: &[usize]) -> Result<TensorDict> {
    let mut dict = TensorDict::new(batch_size)?;
    // Upstream writes the capacity for the cursor of a full ring that begins anew.
    let shift = if ring.is_full && ring.cursor == 0 { shape[0] } else { ring.cursor };
    dict.set(IS_FULL, NonTensor::shared(json!(ring.is_full)))?;
    dict.set(SHIFT, NonTensor::shared(json!(shift)))?;
    dict.set(STORAGE_SHAPE, NonTensor::shared(json!(shape)))?;
    Ok(dict)
}

/// The ring and the shape of steps that a converted dictionary says.
pub(crate) fn ring_of(dict: &TensorDict) -> Result<(Ring, Vec<usize>)> {
    let value = |key: &str| dict.non_tensor(key).map(NonTensor::to_json);
    let count = |key: &str, value: &Value| {
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| bad(key, "a count", value))
    };
    let is_full = value(IS_FULL)?;
    let is_full = is_full.as_bool().ok_or_else(|| bad(IS_FULL, "true or false", &is_full))?;
    let shape = value(STORAGE_SHAPE)?;
    let shape = match &shape {
        Value::Array(dims) if !dims.is_empty() => {
            dims.iter().map(|dim| count(STORAGE_SHAPE, dim)).collect::<Result<Vec<_>>>()?
        }
        // Upstream writes the one length of a ring without lanes as a number.
        Value::Number(_) => vec![count(STORAGE_SHAPE, &shape)?],
        _ => return Err(bad(STORAGE_SHAPE, "the shape of the steps", &shape)),
    };
    num_elements(&shape)?;
    Ok((Ring { cursor: count(SHIFT, &value(SHIFT)?)?, is_full }, shape))
}

/// The leaves of a converted dictionary, which must be of one kind.
pub(crate) fn leaves(dict: &TensorDict) -> impl Iterator<Item = (Key, &Entry)> {
    let words = [SHIFT, IS_FULL, STORAGE_SHAPE].map(Key::from);
    let keys = dict.leaf_keys().into_iter().filter(move |key| !words.contains(key));
    keys.filter_map(|key| dict.get(key.clone()).map(|entry| (key, entry)))
}

fn bad(key: &str, rule: &str, value: &Value) -> Error {
    Error::new(ErrorKind::Malformed, format!("{key:?} must be {rule}: got {value}"))
}
