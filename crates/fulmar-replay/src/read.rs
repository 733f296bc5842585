//! The parts of items that samplers and writers read: flags, numbers and names, one for each item.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde::{Deserialize, Serialize};

use crate::trajectory::check_follows;
use crate::{Storage, TrajectoryIndex};

/// Rows that are read at once for a part of a buffer, or passed at once as row numbers only.
const ROWS_AT_ONCE: usize = 256;
const NUMBERS_AT_ONCE: usize = 1 << 16;

/// The part of stored rows that a sampler or a sample unit reads.
///
/// # Examples
/// ```
/// use fulmar_replay::{Reads, SamplerOptions};
/// assert_eq!(SamplerOptions::Random.build(&[8], 0)?.reads(), Reads::Nothing);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reads {
    /// Nothing, not even row numbers.
    Nothing,
    /// The row numbers.
    Rows,
    /// The entries at these keys, if items have them.
    Keys(Vec<Key>),
    /// Whole items.
    Items,
}

impl Reads {
    /// Returns the part of the items in `rows` of `storage`, of batch size `[rows, ..]`.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    pub(crate) fn of(&self, storage: &dyn Storage, rows: &[usize]) -> Result<TensorDict> {
        match self {
            Self::Keys(keys) => storage.read_keys(rows, keys),
            Self::Items => storage.get(rows),
            Self::Nothing | Self::Rows => TensorDict::new(&[rows.len()]),
        }
    }
}

/// Calls `tell` with the stored `rows` in order, and with the entries that `reads` names, in chunks of
/// bounded size.
pub(crate) fn tell_stored(
    storage: &dyn Storage,
    reads: &Reads,
    mut rows: impl Iterator<Item = usize>,
    mut tell: impl FnMut(&[usize], &TensorDict) -> Result<()>,
) -> Result<()> {
    let at_once = match reads {
        Reads::Nothing => return Ok(()),
        Reads::Rows => NUMBERS_AT_ONCE,
        Reads::Keys(_) | Reads::Items => ROWS_AT_ONCE,
    };
    loop {
        let rows: Vec<usize> = rows.by_ref().take(at_once).collect();
        if rows.is_empty() {
            return Ok(());
        }
        tell(&rows, &reads.of(storage, &rows)?)?;
    }
}

/// A reduction of the values of one item to one number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    #[default]
    Max,
    /// The smallest.
    Min,
    /// Their mean.
    Mean,
    /// The median, the lower of two.
    Median,
}

impl Reduction {
    /// Returns one number of `values`; NaN if one of them is, so that a later check refuses it.
    ///
    /// # Errors
    /// `Empty` without values.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::Reduction;
    /// assert_eq!(Reduction::Median.of(&[4.0, 1.0, 3.0, 2.0])?, 2.0);
    /// assert!(Reduction::Max.of(&[f64::NAN, 5.0])?.is_nan());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn of(self, values: &[f64]) -> Result<f64> {
        if values.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "values must hold at least one value to reduce: got 0"));
        }
        if let Some(nan) = values.iter().find(|value| value.is_nan()) {
            return Ok(*nan);
        }
        Ok(match self {
            Self::Sum => values.iter().sum(),
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_unstable_by(f64::total_cmp);
                sorted[(sorted.len() - 1) / 2]
            }
        })
    }
}

/// Returns the number of items.
pub(crate) fn count_of(items: &TensorDict) -> usize {
    items.batch_size().first().copied().unwrap_or(0)
}

/// Returns all numbers of `tensor`.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to(Dtype::F64)?.to_vec::<f64>()
}

/// Returns the numbers at `key`, reduced to one an item.
pub(crate) fn reduced(items: &TensorDict, key: &Key, reduction: Reduction) -> Result<Vec<f64>> {
    if let Entry::Ragged(ragged) = items.entry(key.clone())? {
        let row = |at| reduction.of(&numbers(&ragged.row(at)?)?);
        return (0..ragged.num_rows()).map(row).collect();
    }
    let tensor = items.tensor(key.clone())?;
    let values = numbers(tensor)?;
    let width = values.len().checked_div(count_of(items)).unwrap_or(0);
    if width == 0 {
        return Ok(Vec::new());
    }
    values
        .chunks(width)
        .map(|values| reduction.of(values))
        .collect::<Result<_>>()
        .map_err(|error| error.at(key))
}

/// Returns whether any flag of each item is true at `key`.
pub(crate) fn flags(items: &TensorDict, key: &Key) -> Result<Vec<bool>> {
    Ok(reduced(items, key, Reduction::Max)?.into_iter().map(|flag| flag != 0.0).collect())
}

/// Returns the whole number of each item at `key`.
pub(crate) fn integers(items: &TensorDict, key: &Key) -> Result<Vec<i64>> {
    let values = items.tensor(key.clone())?.to(Dtype::I64).and_then(|tensor| tensor.to_vec::<i64>());
    let values = values.map_err(|error| error.at(key))?;
    if values.len() != count_of(items) {
        let detail =
            format!("{key}: leaf must hold one number an item: got {:?}", items.tensor(key.clone())?.shape());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(values)
}

/// Returns the value of each item at `key` as a text: equal texts for equal values.
pub(crate) fn names(items: &TensorDict, key: &Key) -> Result<Vec<String>> {
    let one = |at| match items.index(at)?.entry(key.clone())? {
        Entry::NonTensor(value) => Ok(value.to_json().to_string()),
        Entry::Tensor(tensor) => Ok(format!("{:?}", numbers(tensor)?)),
        other => {
            let detail =
                format!("{key} must be a JSON value or a tensor: got an entry of kind {}", other.kind());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    };
    (0..count_of(items)).map(one).collect()
}

/// The keys that delimit trajectories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TrajectoryKeys {
    /// The id of the trajectory, a whole number; takes precedence over the flags.
    pub id_key: Option<Key>,
    /// Flags of last steps, any of which ends a trajectory; no flags if empty. If absent, without `idKey`:
    /// the ids at `["collector", "traj_ids"]` or at `"episode"`, else the flags at `done`, `truncated` and
    /// `terminated` of `"next"`.
    pub end_keys: Option<Vec<Key>>,
}

/// The trajectories of some items.
pub(crate) enum Steps {
    Ids(Vec<i64>),
    Ends(Vec<bool>),
}

impl TrajectoryKeys {
    /// Returns the keys that [`TrajectoryKeys::read`] reads.
    pub(crate) fn reads(&self) -> Reads {
        Reads::Keys(match (&self.id_key, &self.end_keys) {
            (Some(key), _) => vec![key.clone()],
            (None, Some(keys)) => keys.clone(),
            (None, None) => id_keys().into_iter().chain(end_keys()).collect(),
        })
    }

    /// Runs [`TrajectoryKeys::read`] for items of `rows`, which must follow those in the ring of `index`.
    pub(crate) fn read_next(
        &self,
        index: &TrajectoryIndex,
        rows: &[usize],
        items: &TensorDict,
    ) -> Result<Steps> {
        check_follows(index.cursor(), index.capacity(), rows)?;
        self.read(items)
    }

    /// Reads the ids or flags of `items`.
    pub(crate) fn read(&self, items: &TensorDict) -> Result<Steps> {
        if let Some(key) = &self.id_key {
            return integers(items, key).map(Steps::Ids);
        }
        let ends = match &self.end_keys {
            Some(keys) => keys.clone(),
            None => {
                if let Some(key) = id_keys().into_iter().find(|key| items.get(key.clone()).is_some()) {
                    return integers(items, &key).map(Steps::Ids);
                }
                let keys: Vec<Key> =
                    end_keys().into_iter().filter(|key| items.get(key.clone()).is_some()).collect();
                if keys.is_empty() {
                    let detail = "items must mark the ends of trajectories at [\"next\", \"done\"]: there is no such leaf";
                    return Err(Error::new(ErrorKind::UnknownName, detail));
                }
                keys
            }
        };
        let mut end_t = vec![false; count_of(items)];
        for key in &ends {
            end_t.iter_mut().zip(flags(items, key)?).for_each(|(end, flag)| *end |= flag);
        }
        Ok(Steps::Ends(end_t))
    }
}

/// Returns the default keys of trajectory ids.
fn id_keys() -> [Key; 2] {
    [Key::from(["collector", "traj_ids"]), Key::from("episode")]
}

/// Returns the default keys of trajectory ends.
fn end_keys() -> [Key; 3] {
    ["done", "truncated", "terminated"].map(|name| Key::from(["next", name]))
}

/// Returns the indices of `values` whose rows are in `lane` of `num_lanes`.
pub(crate) fn of_lane<T: Copy>(values: &[T], rows: &[usize], lane: usize, num_lanes: usize) -> Vec<T> {
    let own = values.iter().zip(rows).filter(|(_, row)| *row % num_lanes == lane);
    own.map(|(value, _)| *value).collect()
}
