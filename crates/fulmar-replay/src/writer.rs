//! Writers: which rows new items go to.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Reduction;

pub(crate) mod immutable;
pub(crate) mod max_value;
pub(crate) mod ranked;
pub(crate) mod round_robin;

/// Chooses the rows of new items. A write is planned, then stored, then committed: an error on the way leaves no hole.
pub trait Writer: Send {
    /// Where `items` would go. `freed` rows are there to be reused.
    ///
    /// # Errors
    /// `Empty` without items, and what keeps the writer from taking them.
    fn plan(&self, items: &TensorDict, freed: &[usize]) -> Result<WritePlan>;

    /// Does what the same call of [`Writer::plan`] gave.
    ///
    /// # Errors
    /// Those of [`Writer::plan`].
    fn commit(&mut self, items: &TensorDict, freed: &[usize]) -> Result<()>;

    /// Takes note that `rows`, which hold items, were written over; `foreign` if by another buffer of the same storage.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item.
    fn write_at(&mut self, rows: &[usize], foreign: bool) -> Result<()>;

    /// The row that is written next.
    fn cursor(&self) -> usize;

    /// How many items were ever written.
    fn write_count(&self) -> u64;

    /// Stands where others left the storage: `len` time steps are written, the next goes to `cursor`, `write_count` ever were. `items`
    /// reads all of them.
    ///
    /// # Errors
    /// `Corrupt` if the writer could not have left it so; those of `items`.
    fn resume(
        &mut self,
        len: usize,
        position: (usize, u64),
        items: &dyn Fn() -> Result<TensorDict>,
    ) -> Result<()>;

    /// Counts rewrites from `first` on, above those that are counted already. Nothing where they are not.
    fn start_generations(&mut self, first: i64) {
        let _ = first;
    }

    /// How often each row was rewritten; -1 if never written or not tracked.
    fn generations_of(&self, rows: &[i64]) -> Vec<i64> {
        vec![-1; rows.len()]
    }

    /// Whether [`Writer::generations_of`] is tracked.
    fn tracks_generations(&self) -> bool {
        false
    }

    /// Empties every row, and forgets how many items were ever written unless `keeps_count`.
    fn clear(&mut self, keeps_count: bool);

    /// All that must be kept to go on as if never stopped.
    ///
    /// # Errors
    /// What keeps the writer from it.
    fn state(&self) -> Result<Value>;

    /// Goes on where `state` was taken.
    ///
    /// # Errors
    /// `Malformed` if it is not the state of such a writer, `Corrupt` if it breaks its rules, `Incompatible` if it is of
    /// another capacity. After an error nothing has changed.
    fn restore(&mut self, state: &Value) -> Result<()>;
}

/// What a write would do.
///
/// # Examples
/// ```
/// use fulmar_replay::{RoundRobinWriter, WritePlan, Writer};
/// use fulmar_tensor::TensorDict;
/// let plan = Writer::plan(&RoundRobinWriter::new(4)?, &TensorDict::new(&[2])?, &[])?;
/// assert_eq!(plan, WritePlan { rows: vec![Some(0), Some(1)], cursor: 2, write_count: 2 });
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePlan {
    /// The row that each item takes, `None` for those that are not kept.
    pub rows: Vec<Option<usize>>,
    /// [`Writer::cursor`] afterwards.
    pub cursor: usize,
    /// [`Writer::write_count`] afterwards.
    pub write_count: u64,
}

/// A writer as options describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum WriterOptions {
    /// A [`RoundRobinWriter`](crate::RoundRobinWriter).
    RoundRobin {
        /// Whether rows count how often they are written. False.
        #[serde(default)]
        track_generations: bool,
    },
    /// A [`MaxValueWriter`](crate::MaxValueWriter) of what items have at a key.
    MaxValue {
        /// Where the rank of an item is. `["next", "reward"]`.
        #[serde(default = "reward_key")]
        rank_key: Key,
        /// How the values there become one rank. Their sum.
        #[serde(default = "sum")]
        reduction: Reduction,
    },
    /// An [`ImmutableWriter`](crate::ImmutableWriter).
    Immutable,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self::RoundRobin { track_generations: false }
    }
}

impl WriterOptions {
    /// The writer of a storage of `capacity` rows, or time steps where there are lanes.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::WriterOptions;
    /// let options: WriterOptions = serde_json::from_str(r#"{"kind": "roundRobin", "trackGenerations": true}"#).unwrap();
    /// assert!(options.build(4)?.tracks_generations());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn build(&self, capacity: usize) -> Result<Box<dyn Writer>> {
        Ok(match self {
            Self::RoundRobin { track_generations } => {
                let ring = round_robin::RoundRobinWriter::new(capacity)?;
                Box::new(if *track_generations { ring.tracking_generations() } else { ring })
            }
            Self::MaxValue { rank_key, reduction } => {
                Box::new(ranked::RankedWriter::new(capacity, rank_key.clone(), *reduction)?)
            }
            Self::Immutable => Box::new(immutable::ImmutableWriter),
        })
    }
}

fn reward_key() -> Key {
    Key::from(["next", "reward"])
}

const fn sum() -> Reduction {
    Reduction::Sum
}

/// `value` as JSON.
pub(crate) fn to_state(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|error| Error::new(ErrorKind::Malformed, error.to_string()))
}

/// The state that `value` holds.
pub(crate) fn from_state<T: serde::de::DeserializeOwned>(name: &str, value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("{name} must be of the documented form: got {error}"))
    })
}

/// Refuses the state of another capacity.
pub(crate) fn check_capacity(want: usize, got: usize) -> Result<()> {
    if want == got {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Incompatible, format!("capacity must be {want}: got {got}")))
}
