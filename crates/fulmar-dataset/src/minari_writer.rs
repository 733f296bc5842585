//! Steps as the file of a Minari data set: the reverse of [`read_minari`](crate::read_minari).
//!
//! ```text
//! observation, next.observation   episode_<k>/observations [T + 1]: the rows, then the last of the next ones
//! info, next.info, and others     the same
//! action                          actions [T]
//! next.reward                     rewards [T]
//! next.terminated, .truncated     terminations [T], truncations [T]
//! episode                         k; without it episodes are counted, each from behind a done step to the next one
//! ```
//!
//! The reward and the flags at the root are not written: they are those of the step before.

use std::collections::BTreeSet;
use std::ops::Range;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_ted::{Hdf5Attributes, write_hdf5_with_texts};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::Value;

use crate::rows::{either, flags, named, one_number, unfit};

/// Returns the bytes of a `main_data.hdf5` of steps, `[steps]`, which [`read_minari`](crate::read_minari) reads back.
///
/// # Errors
/// `ShapeMismatch` for other than one batch dimension; `Empty` without steps; with the key, `UnknownName` if `observation`,
/// `action` or what must be below `"next"` is missing; `Incompatible` if a next observation is not the row after it, `done`
/// is not where a step is terminated or truncated, two parts have the same episode, or an entry has no place in the format;
/// `OutOfRange` for flags other than 0 and 1, or a negative episode; those of [`write_hdf5_with_texts`].
///
/// # Examples
/// ```
/// use fulmar_dataset::{MinariMetadata, read_minari, write_minari};
/// use fulmar_ted::Hdf5File;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[2])?;
/// steps.set("observation", Tensor::from_vec_f32(&[2, 1], vec![1.0, 2.0])?)?;
/// steps.set("action", Tensor::from_vec(&[2], vec![0_i64, 1])?)?;
/// steps.set(["next", "observation"], Tensor::from_vec_f32(&[2, 1], vec![2.0, 3.0])?)?;
/// steps.set(["next", "reward"], Tensor::from_vec_f32(&[2, 1], vec![0.0, 1.0])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[2, 1], vec![false, true])?)?;
/// let file = Hdf5File::from_bytes(write_minari(&steps)?)?;
/// let metadata = MinariMetadata::parse(
///     r#"{ "total_episodes": 1, "total_steps": 2, "observation_space": "{}", "action_space": "{}" }"#,
/// )?;
/// let again = read_minari(&file, &metadata)?;
/// assert_eq!(again.tensor(["next", "observation"])?, steps.tensor(["next", "observation"])?);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn write_minari(steps: &TensorDict) -> Result<Vec<u8>> {
    let ends = Ends::of(steps)?;
    let columns = columns_of(steps, &ends)?;
    let (mut file, mut attributes) = (TensorDict::new(&[])?, Hdf5Attributes::new());
    for (number, rows) in episodes_of(steps, &ends)? {
        let name = format!("episode_{number}");
        let mut group = TensorDict::new(&[])?;
        for (key, column) in &columns {
            let entry = column.rows(&rows).map_err(|error| named(named(error, key), &name))?;
            group.set(key.as_str(), entry)?;
        }
        let num_steps = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        attributes.insert(name.clone(), vec![("id", number), ("total_steps", num_steps)]);
        file.set(name.as_str(), group)?;
    }
    write_hdf5_with_texts(&file, &attributes)
}

/// Returns the number of episodes that [`write_minari`] finds.
///
/// # Errors
/// The errors of [`write_minari`] about episodes and flags.
pub fn count_episodes(steps: &TensorDict) -> Result<usize> {
    Ok(episodes_of(steps, &Ends::of(steps)?)?.len())
}

/// The flags of steps, `[steps, 1]`.
struct Ends {
    terminated: Tensor,
    truncated: Tensor,
    done: Tensor,
}

impl Ends {
    fn of(steps: &TensorDict) -> Result<Self> {
        let [num_steps] = *steps.batch_size() else {
            let detail = format!("steps must have one batch dimension: got {:?}", steps.batch_size());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        if num_steps == 0 {
            return Err(Error::new(ErrorKind::Empty, "there must be steps: there are none"));
        }
        Self::below(steps.dict("next")?).map_err(|error| named(error, "next"))
    }

    fn below(next: &TensorDict) -> Result<Self> {
        let flag = |name| next.get(name).map(flags).transpose().map_err(|error| named(error, name));
        let stated = flag("done")?;
        let terminated = match (flag("terminated")?, &stated) {
            (Some(terminated), _) => terminated,
            (None, Some(done)) => done.clone(),
            (None, None) => flags(next.entry("done")?)?,
        };
        let truncated = match (flag("truncated")?, &stated) {
            (Some(truncated), _) => truncated,
            (None, Some(done)) => but_not(done, &terminated)?,
            (None, None) => Tensor::zeros(Dtype::Bool, terminated.shape())?,
        };
        let done = either(&terminated, &truncated)?;
        if stated.is_some_and(|stated| stated != done) {
            let detail = "must be true exactly where a step is terminated or truncated: it is not";
            return Err(named(Error::new(ErrorKind::Incompatible, detail), "done"));
        }
        Ok(Self { terminated, truncated, done })
    }
}

fn but_not(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let flags = left.to_vec::<bool>()?.into_iter().zip(right.to_vec::<bool>()?);
    Tensor::from_vec(left.shape(), flags.map(|(left, right)| left && !right).collect::<Vec<_>>())
}

/// Returns the number and the rows of each episode.
fn episodes_of(steps: &TensorDict, ends: &Ends) -> Result<Vec<(i64, Range<usize>)>> {
    let numbers = match steps.get("episode") {
        Some(column) => numbers_in(column).map_err(|error| named(error, "episode"))?,
        None => numbers_by(&ends.done.to_vec::<bool>()?),
    };
    let (mut episodes, mut seen, mut start) = (Vec::new(), BTreeSet::new(), 0);
    for run in numbers.chunk_by(|left, right| left == right) {
        if run[0] < 0 || !seen.insert(run[0]) {
            let (kind, rule) = match run[0] < 0 {
                true => (ErrorKind::OutOfRange, "must be at least 0"),
                false => (ErrorKind::Incompatible, "must be the number of rows one behind the other"),
            };
            let detail = format!("{rule}: got {} at row {start}", run[0]);
            return Err(named(Error::new(kind, detail), "episode"));
        }
        episodes.push((run[0], start..start + run.len()));
        start += run.len();
    }
    Ok(episodes)
}

fn numbers_in(column: &Entry) -> Result<Vec<i64>> {
    one_number(column)?.to(Dtype::I64)?.to_vec::<i64>()
}

/// Returns the number of the episode of each row by its ends.
fn numbers_by(done: &[bool]) -> Vec<i64> {
    let ended = done.iter().scan(0, |ended, done| {
        let number = *ended;
        *ended += i64::from(*done);
        Some(number)
    });
    ended.collect()
}

/// A column of the file.
enum Column {
    Once(Rows),
    /// A row before each step and one behind the last.
    Both(Rows, Rows),
}

impl Column {
    fn rows(&self, rows: &Range<usize>) -> Result<Entry> {
        match self {
            Self::Once(column) => column.slice(rows),
            Self::Both(before, after) => chained(before, after, rows),
        }
    }
}

/// Names of columns that have a rule of their own.
const NAMES: [&str; 6] = ["observations", "actions", "rewards", "terminations", "truncations", "infos"];

fn columns_of(steps: &TensorDict, ends: &Ends) -> Result<Vec<(String, Column)>> {
    let num_steps = steps.batch_size()[0];
    let next = steps.dict("next")?;
    let once = |entry: &Entry| Rows::of(entry, num_steps).map(Column::Once);
    let below = |error, name: &str| named(named(error, name), "next");
    let mut columns = Vec::new();
    for name in ["observation", "action"] {
        steps.entry(name)?;
    }
    for (name, entry) in steps.entries() {
        let column = match (name, next.get(name)) {
            ("next" | "episode" | "reward" | "done" | "terminated" | "truncated", _) => continue,
            ("observation" | "info", None) => return Err(below(missing(), name)),
            (_, Some(after)) if name != "action" => Column::Both(
                Rows::of(entry, num_steps).map_err(|error| named(error, name))?,
                Rows::of(after, num_steps).map_err(|error| below(error, name))?,
            ),
            _ => once(entry).map_err(|error| named(error, name))?,
        };
        columns.push((name_of(name)?, column));
    }
    for (name, _) in next.entries() {
        let is_kept = matches!(name, "reward" | "done" | "terminated" | "truncated");
        if !is_kept && (name == "action" || steps.get(name).is_none()) {
            let detail = "must be left out: the format has no place for it";
            return Err(below(Error::new(ErrorKind::Incompatible, detail), name));
        }
    }
    let reward = next.entry("reward").and_then(one_number).map_err(|error| below(error, "reward"))?;
    for (name, tensor) in
        [("rewards", &reward), ("terminations", &ends.terminated), ("truncations", &ends.truncated)]
    {
        let entry = Entry::Tensor(tensor.squeeze(1)?);
        columns.push((name.to_owned(), once(&entry).map_err(|error| named(error, name))?));
    }
    Ok(columns)
}

fn missing() -> Error {
    Error::new(ErrorKind::UnknownName, "must be there: it is missing")
}

/// Returns the name of a column in the file.
fn name_of(name: &str) -> Result<String> {
    if NAMES.contains(&name) {
        let detail = "must have another name: that is one of the format's own columns";
        return Err(named(Error::new(ErrorKind::Incompatible, detail), name));
    }
    let plural = matches!(name, "observation" | "action" | "info");
    Ok(if plural { format!("{name}s") } else { name.to_owned() })
}

/// The rows of a column, of which ranges are taken.
enum Rows {
    Numbers(Tensor),
    Texts(Vec<Value>),
    Group(Vec<(String, Rows)>),
}

impl Rows {
    fn of(entry: &Entry, num_rows: usize) -> Result<Self> {
        Ok(match entry {
            Entry::Tensor(tensor) => Self::Numbers(tensor.clone()),
            Entry::NonTensor(values) => match (values.shape(), values.to_json()) {
                (Some(_), Value::Array(values)) => Self::Texts(values),
                (_, value) => Self::Texts(vec![value; num_rows]),
            },
            Entry::Dict(columns) => {
                let mut group = Vec::new();
                for (name, column) in columns.entries() {
                    let rows = Self::of(column, num_rows).map_err(|error| named(error, name))?;
                    group.push((name.to_owned(), rows));
                }
                Self::Group(group)
            }
            other => return Err(unfit(other)),
        })
    }

    fn slice(&self, rows: &Range<usize>) -> Result<Entry> {
        Ok(match self {
            Self::Numbers(tensor) => tensor.slice(0, rows.clone())?.into(),
            Self::Texts(values) => texts(values.get(rows.clone()).unwrap_or_default().to_vec()),
            Self::Group(columns) => {
                let mut dict = TensorDict::new(&[])?;
                for (name, column) in columns {
                    dict.set(name.as_str(), column.slice(rows).map_err(|error| named(error, name))?)?;
                }
                dict.into()
            }
        })
    }
}

fn texts(values: Vec<Value>) -> Entry {
    NonTensor::shared(Value::Array(values)).into()
}

/// Returns the rows of `before`, then the last one of `after`.
fn chained(before: &Rows, after: &Rows, rows: &Range<usize>) -> Result<Entry> {
    let (first, last) = (rows.start, rows.end - 1);
    Ok(match (before, after) {
        (Rows::Numbers(before), Rows::Numbers(after)) => {
            let (left, right) = (before.slice(0, first + 1..rows.end)?, after.slice(0, first..last)?);
            let is_alike = left.dtype() == right.dtype() && left.shape() == right.shape();
            if !is_alike || left.to_bytes() != right.to_bytes() {
                return Err(unchained());
            }
            Tensor::cat(&[before.slice(0, rows.clone())?, after.slice(0, last..rows.end)?], 0)?.into()
        }
        (Rows::Texts(before), Rows::Texts(after)) => {
            if before.get(first + 1..rows.end) != after.get(first..last) {
                return Err(unchained());
            }
            let mut values = before.get(rows.clone()).unwrap_or_default().to_vec();
            values.extend(after.get(last).cloned());
            texts(values)
        }
        (Rows::Group(before), Rows::Group(after)) => {
            let mut dict = TensorDict::new(&[])?;
            for (name, column) in before {
                let later = after.iter().find(|(other, _)| other == name).map(|(_, later)| later);
                let entry = later.ok_or_else(unchained).and_then(|later| chained(column, later, rows));
                dict.set(name.as_str(), entry.map_err(|error| named(error, name))?)?;
            }
            if before.len() != after.len() {
                return Err(unchained());
            }
            dict.into()
        }
        _ => return Err(unchained()),
    })
}

fn unchained() -> Error {
    let detail = "must be below \"next\" what it is one row later in an episode: it differs";
    Error::new(ErrorKind::Incompatible, detail)
}
