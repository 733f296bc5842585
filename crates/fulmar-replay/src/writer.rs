//! Writers: the choice of rows for new items.

use fulmar_core::Result;
use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};

use crate::{Reduction, Stateful};

pub(crate) mod immutable;
pub(crate) mod max_value;
pub(crate) mod ranked;
pub(crate) mod round_robin;

/// Chooses the rows of new items. A write is planned, stored, then committed, so an error in between leaves
/// no hole.
pub trait Writer: Stateful {
    /// Plans the rows of `items`. `freed` rows may be reused.
    ///
    /// # Errors
    /// `Empty` without items; other errors of the writer.
    fn plan(&self, items: &TensorDict, freed: &[usize]) -> Result<WritePlan>;

    /// Commits the plan of the same call of [`Writer::plan`].
    ///
    /// # Errors
    /// The errors of [`Writer::plan`].
    fn commit(&mut self, items: &TensorDict, freed: &[usize]) -> Result<()>;

    /// Records that `rows`, which hold items, were overwritten; `foreign` if by another buffer of the same
    /// storage.
    ///
    /// # Errors
    /// `OutOfRange` if a row holds no item.
    fn write_at(&mut self, rows: &[usize], foreign: bool) -> Result<()>;

    /// Returns the row that is written next, and the number of items ever written.
    fn position(&self) -> (usize, u64);

    /// Resumes after other writers: `len` time steps are written, and they ended at `position`. `items` reads
    /// all of them.
    ///
    /// # Errors
    /// `Corrupt` if the writer could not have left the storage in this state; the errors of `items`.
    fn resume(
        &mut self,
        len: usize,
        position: (usize, u64),
        items: &dyn Fn() -> Result<TensorDict>,
    ) -> Result<()>;

    /// Counts generations from `first` on, above existing ones. Ignored if generations are not tracked.
    fn start_generations(&mut self, first: i64) {
        let _ = first;
    }

    /// Returns the number of rewrites of each row, -1 if it was never written; `None` if generations are not
    /// tracked.
    fn generations_of(&self, rows: &[i64]) -> Option<Vec<i64>> {
        let _ = rows;
        None
    }

    /// Refuses to empty the rows, where they must stay.
    ///
    /// # Errors
    /// `Incompatible` of a writer that refuses every write.
    fn check_clear(&self) -> Result<()> {
        Ok(())
    }

    /// Empties every row; `keeps_count` keeps the write count.
    fn clear(&mut self, keeps_count: bool);
}

impl dyn Writer + '_ {
    /// Returns the row that is written next.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.position().0
    }

    /// Returns the number of items ever written.
    #[must_use]
    pub fn write_count(&self) -> u64 {
        self.position().1
    }

    /// Returns whether generations are tracked.
    #[must_use]
    pub fn tracks_generations(&self) -> bool {
        self.generations_of(&[]).is_some()
    }
}

/// The plan of a write.
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
    /// The row of each item; `None` for items that are not kept.
    pub rows: Vec<Option<usize>>,
    /// The row that is written next, after the write.
    pub cursor: usize,
    /// The number of items ever written, after the write.
    pub write_count: u64,
}

/// The kind of a writer, with its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum WriterOptions {
    /// A [`RoundRobinWriter`](crate::RoundRobinWriter).
    RoundRobin {
        /// If true, counts the writes of each row. Defaults to false.
        #[serde(default)]
        track_generations: bool,
    },
    /// A [`MaxValueWriter`](crate::MaxValueWriter) of the values at a key.
    MaxValue {
        /// The key of an item's rank. Defaults to `["next", "reward"]`.
        #[serde(default = "reward_key")]
        rank_key: Key,
        /// The reduction of the values there to one rank. Defaults to their sum.
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
    /// Returns the writer of a storage of `capacity` rows, or time steps with lanes.
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
