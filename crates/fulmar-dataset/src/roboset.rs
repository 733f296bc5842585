//! RoboSet: HDF5 files with a group for each trial, that become rows one behind the other.
//!
//! ```text
//! Trial<k>/observations   observation; next.observation = one row later, zero in the last
//! Trial<k>/actions        action
//! Trial<k>/rewards        next.reward [T, 1]
//! Trial<k>/done           done, next.done, next.terminated [T, 1]; truncated and the rest are false
//! Trial<k>/env_infos      info; next.info = one row later, zero in the last; groups stay groups
//! Trial<k>/time           time, as all other data sets
//! k                       episode
//! number of the file      seed
//! ```

use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_ted::{Hdf5File, Hdf5Group};
use fulmar_tensor::{Entry, Tensor, TensorDict};

use crate::episodes::{cat, check_alike, check_rows};
use crate::files::files_in;
use crate::rows::{flags, named, num_rows, one_number, shifted, slice};
use crate::rows_folder::RowsFolder;
use crate::split::{done_of, split_behind};

/// Most files of a data set of RoboSet.
pub const ROBOSET_FILES_MAX: usize = 1 << 12;

/// Opens the files `*.h5` in `folder`, in the order of their names, see [`read_roboset`].
///
/// # Errors
/// `Io` if the folder or a file cannot be read; `Empty`, with the folder, if it has none of them; `LimitExceeded` for more than
/// [`ROBOSET_FILES_MAX`]; those of [`read_roboset`].
pub fn open_roboset(folder: impl AsRef<Path>) -> Result<TensorDict> {
    read_roboset(&open_files(folder.as_ref())?)
}

/// Converts the files of [`open_roboset`] to a folder of steps that TorchRL opens as its own, a trial at a time. Returns the number of steps.
/// After an error there is no folder.
///
/// # Errors
/// The errors of [`open_roboset`]; `Io` if the system refuses, also if `folder` is there.
///
/// # Examples
/// ```
/// use fulmar_dataset::convert_roboset;
/// use fulmar_tensor::memmap;
/// # let source = "../../tests/golden/dataset/raw/hub/datasets/jdvakil/RoboSet_Sim/DAPG(expert)/door_v2d-v1";
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-roboset-{}", std::process::id()));
/// let num_steps = convert_roboset(source, &folder)?; // a folder with files `*.h5`
/// assert_eq!(memmap::load(&folder)?.batch_size(), [num_steps]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_roboset(source: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<usize> {
    let files = open_files(source.as_ref())?;
    RowsFolder::fill(folder.as_ref(), |rows| each_trial(&files, |steps| rows.append(&steps)))
}

fn open_files(folder: &Path) -> Result<Vec<Hdf5File>> {
    let paths = files_in(folder, &["h5"], ROBOSET_FILES_MAX).map_err(|error| error.at(folder.display()))?;
    paths.iter().map(Hdf5File::open).collect()
}

/// Reads the trials of all files as `[steps]`, in the order of their numbers, those of one number in the order of the files. A
/// trial without steps is passed over.
///
/// # Errors
/// With file, trial and key, `UnknownName` if a trial lacks what it must have or what another one has; `ShapeMismatch`, with both
/// numbers, for a data set of another number of rows, or of rows of another shape or dtype than in the first trial;
/// `OutOfRange` for `done` other than 0 and 1; `Malformed` for a group that is not a trial, and for two trials of one number in a
/// file; `Empty` without steps; those of [`Hdf5Group::read`].
///
/// # Examples
/// ```
/// use fulmar_dataset::read_roboset;
/// use fulmar_ted::{Hdf5File, write_hdf5};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut file = TensorDict::new(&[])?;
/// file.set(["Trial3", "observations"], Tensor::from_vec_f32(&[2, 1], vec![1.0, 2.0])?)?;
/// file.set(["Trial3", "actions"], Tensor::from_vec_f32(&[2, 1], vec![0.1, 0.2])?)?;
/// file.set(["Trial3", "rewards"], Tensor::from_vec_f32(&[2], vec![4.0, 5.0])?)?;
/// file.set(["Trial3", "done"], Tensor::from_vec(&[2], vec![false, true])?)?;
/// let steps = read_roboset(&[Hdf5File::from_bytes(write_hdf5(&file)?)?])?;
/// assert_eq!(steps.tensor(["next", "observation"])?.to_f32_vec(), [2.0, 0.0]);
/// assert_eq!(steps.tensor("episode")?.to_vec::<i64>()?, [3, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_roboset(files: &[Hdf5File]) -> Result<TensorDict> {
    let mut parts: Vec<TensorDict> = Vec::new();
    each_trial(files, |steps| {
        if let Some(first) = parts.first() {
            check_alike(first, &steps)?;
        }
        if steps.batch_size() != [0] {
            parts.push(steps);
        }
        Ok(())
    })?;
    if parts.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the trials must have steps: they have none"));
    }
    let total = parts.iter().map(|part| part.batch_size()[0]).sum();
    cat(&parts.iter().collect::<Vec<_>>(), total)
}

/// Returns the steps of [`read_roboset`] with trials side by side, see [`crate::split_trajectories`]. A trial ends at its last row,
/// whatever its flags are.
///
/// # Errors
/// `UnknownName` without `episode`, `seed` or `next.done`; `Empty` without rows; `OutOfMemory`.
///
/// # Examples
/// ```
/// use fulmar_dataset::split_trials;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("episode", Tensor::from_vec(&[3], vec![0_i64, 0, 1])?)?;
/// steps.set("seed", Tensor::from_vec(&[3], vec![0_i64, 0, 0])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3, 1], vec![false; 3])?)?;
/// assert_eq!(split_trials(&steps)?.tensor("mask")?.to_vec::<bool>()?, [true, true, true, false]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn split_trials(steps: &TensorDict) -> Result<TensorDict> {
    let (numbers, seeds) =
        (steps.tensor("episode")?.to_vec::<i64>()?, steps.tensor("seed")?.to_vec::<i64>()?);
    let mut ends = done_of(steps)?;
    for (row, end) in ends.iter_mut().enumerate() {
        *end |= numbers.get(row) != numbers.get(row + 1) || seeds.get(row) != seeds.get(row + 1);
    }
    split_behind(steps, &ends)
}

/// Calls `body` with the steps of each trial, one at a time, in the order of their numbers and then of the files.
fn each_trial(files: &[Hdf5File], mut body: impl FnMut(TensorDict) -> Result<()>) -> Result<()> {
    let mut roots = Vec::with_capacity(files.len());
    for file in files {
        roots.push(file.root().map_err(|error| file.locate(error))?);
    }
    let mut trials = Vec::new();
    for ((seed, file), root) in files.iter().enumerate().zip(&roots) {
        let names = trials_of(root).map_err(|error| file.locate(error))?;
        trials.extend(names.into_iter().map(|(number, name)| (number, seed, name)));
    }
    trials.sort_unstable();
    for (number, seed, name) in trials {
        let seed_number = i64::try_from(seed).unwrap_or(i64::MAX);
        let steps = roots[seed].group(name).and_then(|group| trial(&group, number, seed_number));
        let used = steps.and_then(&mut body);
        used.map_err(|error| files[seed].locate(named(error, name)))?;
    }
    Ok(())
}

/// Returns the numbers and names of the trials in order.
fn trials_of<'a>(root: &'a Hdf5Group<'_>) -> Result<Vec<(i64, &'a str)>> {
    if let Some(name) = root.data_sets().first() {
        return Err(named(
            Error::new(ErrorKind::Malformed, "must be a group `Trial<number>`: it is a data set"),
            name,
        ));
    }
    let mut trials = Vec::with_capacity(root.groups().len());
    for name in root.groups() {
        let digits = name.strip_prefix("Trial").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(|| {
            named(Error::new(ErrorKind::Malformed, "must be a group `Trial<number>`: it is not"), name)
        })?;
        trials.push((number, name.as_str()));
    }
    trials.sort_unstable();
    match trials.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let detail = format!("must be the only trial {}: {:?} is one too", pair[1].0, pair[0].1);
            Err(named(Error::new(ErrorKind::Malformed, detail), pair[1].1))
        }
        None => Ok(trials),
    }
}

fn trial(group: &Hdf5Group<'_>, number: i64, seed: i64) -> Result<TensorDict> {
    let columns = group.to_dict()?;
    for name in ["observations", "actions", "rewards", "done"] {
        if columns.get(name).is_none() {
            let detail = "must be in every trial: it is missing";
            return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
        }
    }
    let num_steps = num_rows(columns.entry("actions")?).unwrap_or(0);
    let mut steps = TensorDict::new(&[num_steps])?;
    for (name, value) in [("episode", number), ("seed", seed)] {
        steps.set(name, Tensor::from_vec(&[num_steps], vec![value; num_steps])?)?;
    }
    for name in ["terminated", "truncated"] {
        steps.set(name, Tensor::from_vec(&[num_steps, 1], vec![false; num_steps])?)?;
    }
    steps.set(["next", "truncated"], steps.tensor("truncated")?.clone())?;
    for (name, column) in columns.entries() {
        check_column(column, num_steps)
            .and_then(|()| set(&mut steps, name, column, num_steps))
            .map_err(|error| named(error, name))?;
    }
    Ok(steps)
}

/// Refuses a column with a leaf of another number of rows.
fn check_column(column: &Entry, rows: usize) -> Result<()> {
    let Entry::Dict(columns) = column else { return check_rows(num_rows(column), rows) };
    for (name, column) in columns.entries() {
        check_column(column, rows).map_err(|error| named(error, name))?;
    }
    Ok(())
}

fn set(steps: &mut TensorDict, name: &str, column: &Entry, num_steps: usize) -> Result<()> {
    match name {
        "observations" | "env_infos" => {
            let key = if name == "observations" { "observation" } else { "info" };
            let next = if num_steps == 0 { column.clone() } else { shifted(column)? };
            steps.set(key, slice(column, 0..num_steps)?)?;
            steps.set(["next", key], slice(&next, 0..num_steps)?)
        }
        "actions" => steps.set("action", column.clone()),
        "rewards" => steps.set(["next", "reward"], one_number(column)?),
        "done" => {
            let done = flags(column)?;
            steps.set("done", done.clone())?;
            steps.set(["next", "done"], done.clone())?;
            steps.set(["next", "terminated"], done)
        }
        "episode" | "seed" | "next" | "terminated" | "truncated" => {
            let detail = "must have another name: the rows have a column of this one already";
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
        other => steps.set(other, slice(column, 0..num_steps)?),
    }
}
