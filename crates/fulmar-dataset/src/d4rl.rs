//! D4RL: one HDF5 file of N rows, that become N - 1 transitions.
//!
//! ```text
//! file                     rows
//! observations[N, O]       observation = rows 0..N-1
//! next_observations        next.observation = rows 0..N-1 if it is there, else observations 1..N; zeros where done
//! actions                  action = rows 0..N-1
//! rewards, terminals,      next.reward, next.terminated, next.truncated = rows 0..N-1, [N-1, 1];
//! timeouts                 reward, terminated, truncated, done: the same one row later, zero at first
//! infos/*                  info = rows 0..N-1, next.info = rows 1..N
//! metadata/*               metadata
//! ```

use std::path::Path;
use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_ted::{Hdf5File, Hdf5Group};
use fulmar_tensor::{Entry, Index, Key, Tensor, TensorDict, memmap};
use serde::{Deserialize, Serialize};

use crate::rows::{either, flags, in_turn, named, one_number, slice, unfit};
use crate::rows_folder::ColumnsFolder;
use crate::split::split_trajectories;

/// Options of [`read_d4rl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct D4rlOptions {
    /// If true, a row that was cut off by a time limit is done.
    pub use_truncated_as_done: bool,
    /// If true, each row of the result is a trajectory, see [`split_trajectories`]. Then, as in TorchRL, `next.done` is true
    /// in the last column of all of them.
    pub split_trajs: bool,
}

impl Default for D4rlOptions {
    fn default() -> Self {
        Self { use_truncated_as_done: true, split_trajs: false }
    }
}

/// The content of a D4RL file.
#[derive(Debug, Clone, PartialEq)]
pub struct D4rl {
    /// Transitions, `[N - 1]`, or `[n, T_max]` if they are split.
    pub steps: TensorDict,
    /// The group `metadata`, empty if the file lacks it.
    pub metadata: TensorDict,
}

impl D4rl {
    /// Writes the steps as a folder that TorchRL opens as its own, see [`memmap::save`], and the metadata into it as
    /// `metadata.tdz`, which TorchRL does not read.
    ///
    /// # Errors
    /// The errors of [`memmap::save`].
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        memmap::save(&folder, &self.steps)?;
        memmap::save_archive(folder.as_ref().join(D4RL_METADATA), &self.metadata)
    }
}

/// Name of the metadata in a folder of steps.
const D4RL_METADATA: &str = "metadata.tdz";

/// Reads a D4RL file, a data set at a time.
///
/// # Errors
/// With the key, `UnknownName` if `observations`, `actions`, `rewards` or `terminals` are missing; `ShapeMismatch`,
/// with both numbers, for a data set of another number of rows, or `rewards` of more than one number a row;
/// `OutOfRange` for flags other than 0 and 1; `Incompatible` for texts in place of numbers, or infos without data sets; `Empty` if no
/// transition remains; those of [`Hdf5Group::read`].
///
/// # Examples
/// ```
/// use fulmar_dataset::{D4rlOptions, read_d4rl};
/// use fulmar_ted::{Hdf5File, write_hdf5};
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let mut columns = TensorDict::new(&[])?;
/// columns.set("observations", Tensor::from_vec_f32(&[3, 1], vec![1.0, 2.0, 3.0])?)?;
/// columns.set("actions", Tensor::from_vec_f32(&[3, 1], vec![0.1, 0.2, 0.3])?)?;
/// columns.set("rewards", Tensor::from_vec_f32(&[3], vec![4.0, 5.0, 6.0])?)?;
/// columns.set("terminals", Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let file = Hdf5File::from_bytes(write_hdf5(&columns)?)?;
/// let steps = read_d4rl(&file, D4rlOptions::default())?.steps;
/// assert_eq!(steps.tensor(["next", "observation"])?.to_f32_vec(), [2.0, 0.0]); // the second is done
/// assert_eq!(steps.tensor("reward")?.to_f32_vec(), [0.0, 4.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_d4rl(file: &Hdf5File, options: D4rlOptions) -> Result<D4rl> {
    read(file, options).map_err(|error| file.locate(error))
}

/// Converts the D4RL file at `source` to a folder as [`D4rl::save`] leaves it, and returns the number of transitions. A data set is
/// written as soon as it is read, so that each thread holds one in memory; with `split_trajs` all rows are.
///
/// # Errors
/// The errors of [`Hdf5File::open`], [`read_d4rl`] and [`D4rl::save`]. After an error there is no folder.
///
/// # Examples
/// ```
/// use fulmar_core::Dtype;
/// use fulmar_dataset::convert_d4rl;
/// use fulmar_replay::{ReplayBuffer, ReplayBufferOptions, TensorStorage};
/// use fulmar_ted::write_hdf5;
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let root = std::env::temp_dir().join(format!("fulmar-doc-d4rl-{}", std::process::id()));
/// std::fs::create_dir_all(&root)?;
/// let mut columns = TensorDict::new(&[])?;
/// for name in ["observations", "actions", "rewards", "terminals"] {
///     columns.set(name, Tensor::zeros(Dtype::F32, &[3])?)?;
/// }
/// let (source, folder) = (root.join("mine.hdf5"), root.join("mine"));
/// std::fs::write(&source, write_hdf5(&columns)?)?;
///
/// assert_eq!(convert_d4rl(&source, &folder, Default::default())?, 2);
/// let storage = TensorStorage::over(&memmap::load(&folder)?)?;
/// let mut buffer = ReplayBuffer::new(Box::new(storage), ReplayBufferOptions::default())?;
/// assert_eq!(buffer.sample(Some(4))?.items.batch_size(), [4]);
/// # std::fs::remove_dir_all(root)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_d4rl(
    source: impl AsRef<Path>,
    folder: impl AsRef<Path>,
    options: D4rlOptions,
) -> Result<usize> {
    let file = Hdf5File::open(source)?;
    if options.split_trajs {
        let read = read_d4rl(&file, options)?;
        read.save(folder)?;
        return Ok(read.steps.batch_size()[0]);
    }
    let folder = folder.as_ref();
    let root = file.root()?;
    let plan = Plan::of(&root, options).map_err(|error| file.locate(error))?;
    ColumnsFolder::fill(folder, plan.num_steps, &plan.keys(), |columns| {
        let leaves =
            plan.each_leaf(|key, rows| columns.put(key, rows)).map_err(|error| file.locate(error))?;
        let metadata = metadata_of(&root).map_err(|error| file.locate(error))?;
        memmap::save_archive(columns.path().join(D4RL_METADATA), &metadata)?;
        Ok(leaves)
    })?;
    Ok(plan.num_steps)
}

fn read(file: &Hdf5File, options: D4rlOptions) -> Result<D4rl> {
    let root = file.root()?;
    let plan = Plan::of(&root, options)?;
    let mut steps = TensorDict::new(&[plan.num_steps])?;
    for (key, rows) in plan.each_leaf(|_, rows| Ok(rows))? {
        steps.set(key, rows)?;
    }
    if options.split_trajs {
        steps = split_trajectories(&steps)?;
        let mut done = steps.tensor(["next", "done"])?.clone();
        let yes = Tensor::from_vec(&[], vec![true])?;
        done.set_at(&[Index::ALL, Index::At(-1)], &yes)?;
        steps.set(["next", "done"], done)?;
    }
    Ok(D4rl { steps, metadata: metadata_of(&root)? })
}

fn metadata_of(root: &Hdf5Group<'_>) -> Result<TensorDict> {
    match has(root.groups(), "metadata") {
        true => root.group("metadata")?.to_dict().map_err(|error| named(error, "metadata")),
        false => TensorDict::new(&[]),
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// The leaves that the data sets of a file become.
struct Plan<'a> {
    num_steps: usize,
    /// The steps that are done, `[N, 1]`.
    done: Tensor,
    columns: Vec<Column<'a>>,
}

/// A column, and the leaves that its rows become.
struct Column<'a> {
    source: Source<'a>,
    leaves: Vec<(Key, Rows)>,
}

enum Source<'a> {
    /// Flags that were read.
    Flags(Tensor),
    /// A data set of the root.
    Root(&'a Hdf5Group<'a>, &'a str),
    /// A data set below the group `infos`, by the names that lead to it.
    Info(Arc<Hdf5Group<'a>>, Vec<String>),
}

/// The rows of a column that a leaf has.
#[derive(Clone, Copy)]
enum Rows {
    /// All but the last.
    First,
    /// All but the first.
    Second,
    /// All but the first, with zeros where a step is done.
    SecondUnlessDone,
    /// Zeros, and all but the last two.
    Before,
}

impl<'a> Plan<'a> {
    fn of(root: &'a Hdf5Group<'a>, options: D4rlOptions) -> Result<Self> {
        for name in ["observations", "actions", "rewards", "terminals"] {
            root.shape(name)?;
        }
        let num_rows = root.shape("observations")?.first().copied().unwrap_or(0);
        if num_rows < 2 {
            let detail =
                format!("must have at least 2 rows, of which one transition remains: got {num_rows}");
            return Err(named(Error::new(ErrorKind::Empty, detail), "observations"));
        }
        let has_set = |name: &str| has(root.data_sets(), name);
        let read_flags = |name| {
            check_rows(root, name, num_rows)?;
            flags(&root.read(name)?).map_err(|error| named(error, name))
        };
        let terminated = read_flags("terminals")?;
        let truncated = if has_set("timeouts") { Some(read_flags("timeouts")?) } else { None };
        let done = match &truncated {
            Some(truncated) if options.use_truncated_as_done => either(&terminated, truncated)?,
            _ => terminated.clone(),
        };
        let mut plan = Self { num_steps: num_rows - 1, done: done.clone(), columns: Vec::new() };
        let before = |name: &str| vec![(name.into(), Rows::Before), (["next", name].into(), Rows::First)];
        let next = |rows| (["next", "observation"].into(), rows);
        let mut observations = vec![("observation".into(), Rows::First)];
        match has_set("next_observations") {
            true => plan.add_set(root, "next_observations", vec![next(Rows::First)], num_rows)?,
            false => observations.insert(0, next(Rows::SecondUnlessDone)),
        }
        plan.add_set(root, "observations", observations, num_rows)?;
        plan.add_set(root, "actions", vec![("action".into(), Rows::First)], num_rows)?;
        let flags = [("terminated", Some(terminated)), ("done", Some(done)), ("truncated", truncated)];
        for (name, flags) in flags {
            let source = flags.map(Source::Flags);
            plan.columns.extend(source.map(|source| Column { source, leaves: before(name) }));
        }
        plan.add_set(root, "rewards", before("reward"), num_rows)?;
        plan.add_others(root, num_rows)?;
        Ok(plan)
    }

    fn add_set(
        &mut self,
        root: &'a Hdf5Group<'a>,
        name: &'a str,
        leaves: Vec<(Key, Rows)>,
        num_rows: usize,
    ) -> Result<()> {
        check_rows(root, name, num_rows)?;
        self.columns.push(Column { source: Source::Root(root, name), leaves });
        Ok(())
    }

    /// Adds what only some files have: infos, and data sets of other names, which replace leaves of their name.
    fn add_others(&mut self, root: &'a Hdf5Group<'a>, num_rows: usize) -> Result<()> {
        if has(root.groups(), "infos") {
            let infos = Arc::new(root.group("infos")?);
            self.add_infos(&infos, &mut vec!["infos".to_owned()], num_rows)?;
        }
        for name in root.data_sets() {
            if KNOWN.contains(&&**name) || root.shape(name)?.first() != Some(&num_rows) {
                continue;
            }
            for column in &mut self.columns {
                column.leaves.retain(|(key, _)| key.path().first() != Some(name));
            }
            self.add_set(root, name, vec![(name.as_str().into(), Rows::First)], num_rows)?;
        }
        Ok(())
    }

    fn add_infos(
        &mut self,
        group: &Arc<Hdf5Group<'a>>,
        path: &mut Vec<String>,
        num_rows: usize,
    ) -> Result<()> {
        if group.data_sets().is_empty() && group.groups().is_empty() {
            let detail =
                "must have data sets in this file: it has none, and links to other files are not followed";
            return Err(at_path(Error::new(ErrorKind::Incompatible, detail), path));
        }
        for name in group.data_sets() {
            check_rows(group, name, num_rows).map_err(|error| at_path(error, path))?;
            path.push(name.clone());
            let key = |lead: &[&str]| {
                let lead = lead.iter().map(|name| (*name).to_owned());
                Key::from(lead.chain(path[1..].iter().cloned()).collect::<Vec<_>>())
            };
            let leaves = vec![(key(&["info"]), Rows::First), (key(&["next", "info"]), Rows::Second)];
            self.columns.push(Column { source: Source::Info(group.clone(), path.clone()), leaves });
            path.pop();
        }
        for name in group.groups() {
            let inner = group.group(name).map_err(|error| at_path(error, path))?;
            path.push(name.clone());
            self.add_infos(&Arc::new(inner), path, num_rows)?;
            path.pop();
        }
        Ok(())
    }

    /// Returns the keys of all leaves.
    fn keys(&self) -> Vec<Key> {
        self.columns.iter().flat_map(|column| column.leaves.iter().map(|(key, _)| key.clone())).collect()
    }

    /// Reads the columns, as many at once as there are threads, calls `put` with each leaf, and returns what it makes of them.
    fn each_leaf<T: Send>(
        &self,
        put: impl Fn(&Key, Entry) -> Result<T> + Send + Sync,
    ) -> Result<Vec<(Key, T)>> {
        let leaves = in_turn(&self.columns, |column| {
            let entry = self.read(&column.source)?;
            let leaf = |(key, rows): &(Key, Rows)| Ok((key.clone(), put(key, self.rows(&entry, *rows)?)?));
            column.leaves.iter().map(leaf).collect::<Result<Vec<_>>>()
        })?;
        Ok(leaves.into_iter().flatten().collect())
    }

    fn rows(&self, column: &Entry, rows: Rows) -> Result<Entry> {
        let last = self.num_steps;
        let (first, second) = (0..last, 1..last + 1);
        match (rows, column) {
            (Rows::First, _) => slice(column, first),
            (Rows::Second, _) => slice(column, second),
            (Rows::SecondUnlessDone, Entry::Tensor(tensor)) => {
                let done = self.done.slice(0, first)?;
                Ok(zeroed_where(tensor.slice(0, second)?.copied(), &done)?.into())
            }
            (Rows::Before, Entry::Tensor(tensor)) => Ok(one_later(tensor, last)?.into()),
            (_, other) => Err(unfit(other)),
        }
    }

    /// Returns all rows of a column.
    fn read(&self, source: &Source<'_>) -> Result<Entry> {
        match source {
            Source::Flags(flags) => Ok(flags.clone().into()),
            Source::Root(root, name) => {
                let checked = match (*name, root.read(name)?) {
                    ("rewards", column) => one_number(&column).map(Entry::from),
                    ("next_observations", Entry::Tensor(column)) => {
                        zeroed_where(column, &self.done).map(Entry::from)
                    }
                    ("observations" | "actions", Entry::Tensor(column)) => Ok(column.into()),
                    ("observations" | "next_observations" | "actions", other) => Err(unfit(&other)),
                    (_, column) => Ok(column),
                };
                checked.map_err(|error| named(error, name))
            }
            Source::Info(group, path) => {
                let (name, groups) =
                    path.split_last().map_or(("", [].as_slice()), |(name, lead)| (name, lead));
                group.read(name).map_err(|error| at_path(error, groups))
            }
        }
    }
}

fn check_rows(group: &Hdf5Group<'_>, name: &str, num_rows: usize) -> Result<()> {
    let shape = group.shape(name)?;
    if shape.first() == Some(&num_rows) {
        return Ok(());
    }
    let detail = format!("must have {num_rows} rows as observations have: got shape {shape:?}");
    Err(named(Error::new(ErrorKind::ShapeMismatch, detail), name))
}

/// Returns `error` with the names that lead to its place.
fn at_path(error: Error, path: &[String]) -> Error {
    path.iter().rev().fold(error, |error, name| named(error, name))
}

/// Names with a rule of their own.
const KNOWN: [&str; 6] = ["observations", "next_observations", "actions", "rewards", "terminals", "timeouts"];

/// Returns `[0, rows 0..last - 1]`.
fn one_later(column: &Tensor, last: usize) -> Result<Tensor> {
    let zero = Tensor::zeros(column.dtype(), &[1, 1])?;
    Tensor::cat(&[zero, column.slice(0, 0..last - 1)?], 0)
}

/// Sets rows to zero, in place unless the rows are shared.
fn zeroed_where(mut column: Tensor, flags: &Tensor) -> Result<Tensor> {
    let rows: Vec<_> =
        (0..).zip(flags.to_vec::<bool>()?).filter_map(|(row, flag)| flag.then_some(row)).collect();
    if !rows.is_empty() {
        let zero = Tensor::zeros(column.dtype(), &[])?;
        column.set_at(&[Index::list(rows)], &zero)?;
    }
    Ok(column)
}
