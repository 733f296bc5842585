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

use std::collections::BTreeMap;
use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_ted::{Hdf5File, Hdf5Group};
use fulmar_tensor::{Entry, Index, Tensor, TensorDict, memmap};
use serde::{Deserialize, Serialize};

use crate::rows::{either, flags, named, on_all_threads, one_number, slice, unfit};
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

fn read(file: &Hdf5File, options: D4rlOptions) -> Result<D4rl> {
    let root = file.root()?;
    let mut steps = Columns::of(&root)?.steps(options)?;
    if options.split_trajs {
        steps = split_trajectories(&steps)?;
        let mut done = steps.tensor(["next", "done"])?.clone();
        let yes = Tensor::from_vec(&[], vec![true])?;
        done.set_at(&[Index::ALL, Index::At(-1)], &yes)?;
        steps.set(["next", "done"], done)?;
    }
    let metadata = match has(root.groups(), "metadata") {
        true => root.group("metadata")?.to_dict().map_err(|error| named(error, "metadata"))?,
        false => TensorDict::new(&[])?,
    };
    Ok(D4rl { steps, metadata })
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

/// The data sets of a file by rows.
struct Columns<'a> {
    root: &'a Hdf5Group<'a>,
    num_rows: usize,
    /// The data sets of the root that have so many rows.
    columns: BTreeMap<&'a str, Entry>,
}

impl<'a> Columns<'a> {
    fn of(root: &'a Hdf5Group<'a>) -> Result<Self> {
        for name in ["observations", "actions", "rewards", "terminals"] {
            root.shape(name)?;
        }
        let num_rows = root.shape("observations")?.first().copied().unwrap_or(0);
        if num_rows < 2 {
            let detail =
                format!("must have at least 2 rows, of which one transition remains: got {num_rows}");
            return Err(named(Error::new(ErrorKind::Empty, detail), "observations"));
        }
        let mut names = Vec::new();
        for name in root.data_sets() {
            if root.shape(name)?.first() == Some(&num_rows) {
                names.push(name.as_str());
            }
        }
        let columns = names.iter().copied().zip(on_all_threads(&names, |name| root.read(name))?).collect();
        Ok(Self { root, num_rows, columns })
    }

    fn steps(&self, options: D4rlOptions) -> Result<TensorDict> {
        let last = self.num_rows - 1;
        let terminated = self.column("terminals", flags)?;
        let truncated =
            if has(self.root.data_sets(), "timeouts") { Some(self.column("timeouts", flags)?) } else { None };
        let done = match &truncated {
            Some(truncated) if options.use_truncated_as_done => either(&terminated, truncated)?,
            _ => terminated.clone(),
        };
        let mut steps = TensorDict::new(&[last])?;
        let observation = self.numbers("observations")?;
        let next_observation = match has(self.root.data_sets(), "next_observations") {
            true => self.numbers("next_observations")?.slice(0, 0..last)?,
            false => observation.slice(0, 1..self.num_rows)?,
        };
        let done_rows = done.slice(0, 0..last)?;
        steps.set(["next", "observation"], zeroed_where(next_observation, &done_rows)?)?;
        steps.set("observation", observation.slice(0, 0..last)?)?;
        steps.set("action", self.numbers("actions")?.slice(0, 0..last)?)?;
        let mut shifted = vec![("terminated", terminated), ("done", done)];
        shifted.extend(truncated.map(|truncated| ("truncated", truncated)));
        shifted.push(("reward", self.column("rewards", one_number)?));
        for (name, column) in shifted {
            steps.set(name, one_later(&column, last)?)?;
            steps.set(["next", name], column.slice(0, 0..last)?)?;
        }
        self.set_others(&mut steps)?;
        Ok(steps)
    }

    /// Sets what only some files have: infos, and data sets of other names.
    fn set_others(&self, steps: &mut TensorDict) -> Result<()> {
        let last = self.num_rows - 1;
        if has(self.root.groups(), "infos") {
            let infos = self.infos(&self.root.group("infos")?).map_err(|error| named(error, "infos"))?;
            steps.set("info", slice(&infos, 0..last)?)?;
            steps.set(["next", "info"], slice(&infos, 1..self.num_rows)?)?;
        }
        for (name, column) in self.columns.iter().filter(|(name, _)| !KNOWN.contains(*name)) {
            steps.set(*name, slice(column, 0..last)?)?;
        }
        Ok(())
    }

    fn infos(&self, group: &Hdf5Group<'_>) -> Result<Entry> {
        let mut infos = TensorDict::new(&[])?;
        for name in group.data_sets() {
            self.check_rows(group, name)?;
        }
        let columns = on_all_threads(group.data_sets(), |name| group.read(name))?;
        for (name, column) in group.data_sets().iter().zip(columns) {
            infos.set(name.as_str(), column)?;
        }
        for name in group.groups() {
            let inner = self.infos(&group.group(name)?).map_err(|error| named(error, name))?;
            infos.set(name.as_str(), inner)?;
        }
        if infos.num_entries() == 0 {
            let detail =
                "must have data sets in this file: it has none, and links to other files are not followed";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(infos.into())
    }

    fn column(&self, name: &str, read: impl Fn(&Entry) -> Result<Tensor>) -> Result<Tensor> {
        read(self.rows(name)?).map_err(|error| named(error, name))
    }

    fn numbers(&self, name: &str) -> Result<Tensor> {
        match self.rows(name)? {
            Entry::Tensor(tensor) => Ok(tensor.clone()),
            other => Err(named(unfit(other), name)),
        }
    }

    /// Returns a data set of as many rows as there are observations.
    fn rows(&self, name: &str) -> Result<&Entry> {
        self.check_rows(self.root, name)?;
        self.columns
            .get(name)
            .ok_or_else(|| named(Error::new(ErrorKind::UnknownName, "must be read: it is not"), name))
    }

    fn check_rows(&self, group: &Hdf5Group<'_>, name: &str) -> Result<()> {
        let shape = group.shape(name)?;
        if shape.first() == Some(&self.num_rows) {
            return Ok(());
        }
        let detail = format!("must have {} rows as observations have: got shape {shape:?}", self.num_rows);
        Err(named(Error::new(ErrorKind::ShapeMismatch, detail), name))
    }
}

/// Names with a rule of their own.
const KNOWN: [&str; 6] = ["observations", "next_observations", "actions", "rewards", "terminals", "timeouts"];

/// Returns `[0, rows 0..last - 1]`.
fn one_later(column: &Tensor, last: usize) -> Result<Tensor> {
    let zero = Tensor::zeros(column.dtype(), &[1, 1])?;
    Tensor::cat(&[zero, column.slice(0, 0..last - 1)?], 0)
}

fn zeroed_where(column: Tensor, flags: &Tensor) -> Result<Tensor> {
    let rows: Vec<_> =
        (0..).zip(flags.to_vec::<bool>()?).filter_map(|(row, flag)| flag.then_some(row)).collect();
    if rows.is_empty() {
        return Ok(column);
    }
    let mut column = column.copied();
    let zero = Tensor::zeros(column.dtype(), &[])?;
    column.set_at(&[Index::list(rows)], &zero)?;
    Ok(column)
}
