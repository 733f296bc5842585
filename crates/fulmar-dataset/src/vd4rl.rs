//! V-D4RL: steps with images, an episode a file as `.npz` (64 pixels), or several as HDF5 (84 pixels).
//!
//! ```text
//! .npz                 HDF5           rows
//! image                observation    pixels u8; next.pixels = one row later, zero in the last of a file
//! action               action         action
//! reward               reward         next.reward [T, 1]
//! discount             discount       discount
//! is_first             step_type = 0  is_init
//! is_last              step_type = 2  next.done [T, 1]
//! is_terminal          and discount 0 next.terminated [T, 1]; next.truncated where done alone
//! all others           all others     state.*; next.state.* = one row later, zero in the last of a file
//! ```

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_ted::Hdf5File;
use fulmar_tensor::{Entry, Tensor, TensorDict};
use serde::{Deserialize, Serialize};

use crate::episodes::{cat, check_alike};
use crate::files::files_in;
use crate::npz::Npz;
use crate::rows::{flags, named, one_number, shifted};
use crate::rows_folder::RowsFolder;
use crate::split::{done_of, split_behind};

/// Most files of a data set of V-D4RL.
pub const VD4RL_FILES_MAX: usize = 1 << 16;

/// Treatment of a file whose arrays have other numbers of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LengthPolicy {
    /// It is an error.
    #[default]
    Error,
    /// All arrays are cut to the shortest.
    Shortest,
}

/// Options of [`open_vd4rl`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Vd4rlOptions {
    /// Treatment of a file whose arrays have other numbers of rows.
    pub length_policy: LengthPolicy,
    /// Threads that read files, at most [`VD4RL_WORKERS_MAX`]; 0 and 1 read in the caller's.
    pub num_workers: usize,
}

/// Most threads that read files.
pub const VD4RL_WORKERS_MAX: usize = 64;

/// The steps of a data set of V-D4RL.
#[derive(Debug, Clone, PartialEq)]
pub struct Vd4rl {
    /// Steps of all files, `[steps]`.
    pub steps: TensorDict,
    /// Files that [`LengthPolicy::Shortest`] cut.
    pub num_cut: usize,
}

impl Vd4rl {
    /// Returns the same with episodes side by side, see [`crate::split_trajectories`]. An episode ends before the first row of the next one, also where
    /// its own last row was cut off.
    ///
    /// # Errors
    /// `UnknownName` without `is_init` or `next.done`; `Empty` without rows; `OutOfMemory`.
    pub fn split(self) -> Result<Self> {
        let is_first = self.steps.tensor("is_init")?.to_vec::<bool>()?;
        let mut ends = done_of(&self.steps)?;
        for (end, next_is_first) in ends.iter_mut().zip(is_first.iter().skip(1)) {
            *end |= *next_is_first;
        }
        Ok(Self { steps: split_behind(&self.steps, &ends)?, ..self })
    }
}

/// Opens the files `*.npz` and `*.hdf5` in `folder`, in the order of their names.
///
/// # Errors
/// `Io` if the folder or a file cannot be read; `Empty`, with the folder, without files, and without steps; `LimitExceeded` for more than
/// [`VD4RL_FILES_MAX`] files; with file and key, `UnknownName` if an array is missing; `ShapeMismatch`, with both numbers, for an array of
/// another number of rows unless the options allow it, or of rows of another shape or dtype than in the first file; `Incompatible` for
/// images of another dtype than u8; `OutOfRange` for other flags and kinds of steps than above; those of [`Npz`] and
/// [`fulmar_ted::Hdf5Group::read`].
///
/// # Examples
/// ```
/// use fulmar_dataset::{Vd4rlOptions, open_vd4rl};
/// assert!(open_vd4rl("/nowhere", Vd4rlOptions::default()).is_err());
/// ```
pub fn open_vd4rl(folder: impl AsRef<Path>, options: Vd4rlOptions) -> Result<Vd4rl> {
    let mut parts: Vec<TensorDict> = Vec::new();
    let num_cut = each_file(folder.as_ref(), options, |steps| {
        if let Some(first) = parts.first() {
            check_alike(first, &steps)?;
        }
        parts.push(steps);
        Ok(())
    })?;
    if parts.is_empty() {
        let error = Error::new(ErrorKind::Empty, "the files must have steps: they have none");
        return Err(error.at(folder.as_ref().display()));
    }
    let total = parts.iter().map(|part| part.batch_size()[0]).sum();
    Ok(Vd4rl { steps: cat(&parts.iter().collect::<Vec<_>>(), total)?, num_cut })
}

/// Converts the files of [`open_vd4rl`] to a folder of steps that TorchRL opens as its own. As many files are in memory at a time as threads read
/// them. Returns how many files [`LengthPolicy::Shortest`] cut. After an error there is no folder.
///
/// # Errors
/// The errors of [`open_vd4rl`]; `Io` if the system refuses, also if `folder` is there.
///
/// # Examples
/// ```
/// use fulmar_dataset::{Vd4rlOptions, convert_vd4rl};
/// use fulmar_tensor::memmap;
/// # let source = "../../tests/golden/dataset/raw/hub/datasets/conglu/vd4rl/vd4rl/main/walker_walk/random/64px";
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-vd4rl-{}", std::process::id()));
/// assert_eq!(convert_vd4rl(source, &folder, Vd4rlOptions::default())?, 0); // a folder with files `*.npz`: none was cut
/// assert_eq!(memmap::load(&folder)?.tensor("pixels")?.rank(), 4);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_vd4rl(
    source: impl AsRef<Path>,
    folder: impl AsRef<Path>,
    options: Vd4rlOptions,
) -> Result<usize> {
    let mut num_cut = 0;
    RowsFolder::fill(folder.as_ref(), |rows| {
        num_cut = each_file(source.as_ref(), options, |steps| rows.append(&steps))?;
        Ok(())
    })?;
    Ok(num_cut)
}

/// Calls `body` with the steps of each file that has some, in the order of their names. As many files are read at a time as threads are asked for.
/// Returns the number of files that were cut.
fn each_file(
    folder: &Path,
    options: Vd4rlOptions,
    mut body: impl FnMut(TensorDict) -> Result<()>,
) -> Result<usize> {
    if options.num_workers > VD4RL_WORKERS_MAX {
        let detail = format!("numWorkers must be at most {VD4RL_WORKERS_MAX}: got {}", options.num_workers);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let paths =
        files_in(folder, &["npz", "hdf5"], VD4RL_FILES_MAX).map_err(|error| error.at(folder.display()))?;
    let mut num_cut = 0;
    for paths in paths.chunks(options.num_workers.max(1)) {
        for (path, (steps, is_cut)) in paths.iter().zip(read_all(paths, options.length_policy)?) {
            num_cut += usize::from(is_cut);
            if steps.batch_size() != [0] {
                body(steps).map_err(|error| error.at(path.display()))?;
            }
        }
    }
    Ok(num_cut)
}

/// Reads the files, each but one alone in a thread of its own. The error is that of the first file that has one.
fn read_all(paths: &[PathBuf], lengths: LengthPolicy) -> Result<Vec<(TensorDict, bool)>> {
    if let [path] = paths {
        return Ok(vec![read(path, lengths)?]);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = paths.iter().map(|path| scope.spawn(move || read(path, lengths))).collect();
        let died = |_| Error::new(ErrorKind::Panic, "a thread must read its file: it panicked");
        threads.into_iter().map(|thread| thread.join().map_err(died)?).collect()
    })
}

fn read(path: &Path, lengths: LengthPolicy) -> Result<(TensorDict, bool)> {
    let arrays = if path.extension().is_some_and(|end| end == "npz") {
        Arrays::Npz(Npz::open(path).map_err(|error| error.at(path.display()))?)
    } else {
        Arrays::Hdf5(Hdf5File::open(path)?)
    };
    arrays.steps(lengths).map_err(|error| error.at(path.display()))
}

/// Reads one file from its bytes: those of HDF5 begin with its signature, others are of an `.npz` archive.
///
/// # Errors
/// The errors of [`open_vd4rl`]; `Empty` without steps.
///
/// # Examples
/// ```
/// use fulmar_dataset::{LengthPolicy, read_vd4rl};
/// use fulmar_ted::write_hdf5;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut file = TensorDict::new(&[])?;
/// file.set("observation", Tensor::from_vec(&[2, 3, 1, 1], vec![1_u8, 2, 3, 4, 5, 6])?)?;
/// file.set("action", Tensor::from_vec_f32(&[2, 1], vec![0.1, 0.2])?)?;
/// file.set("reward", Tensor::from_vec_f32(&[2], vec![0.0, 1.0])?)?;
/// file.set("discount", Tensor::from_vec_f32(&[2], vec![1.0, 0.0])?)?;
/// file.set("step_type", Tensor::from_vec(&[2], vec![0_i64, 2])?)?;
/// let steps = read_vd4rl(&write_hdf5(&file)?, LengthPolicy::Error)?.steps;
/// assert_eq!(steps.tensor(["next", "terminated"])?.to_vec::<bool>()?, [false, true]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_vd4rl(bytes: &[u8], lengths: LengthPolicy) -> Result<Vd4rl> {
    let arrays = if bytes.starts_with(HDF5_SIGNATURE) {
        Arrays::Hdf5(Hdf5File::from_bytes(bytes.to_vec())?)
    } else {
        Arrays::Npz(Npz::from_bytes(bytes)?)
    };
    let (steps, is_cut) = arrays.steps(lengths)?;
    if steps.batch_size() == [0] {
        return Err(Error::new(ErrorKind::Empty, "the file must have steps: it has none"));
    }
    Ok(Vd4rl { steps, num_cut: usize::from(is_cut) })
}

/// Bytes that a file of HDF5 begins with.
const HDF5_SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// The arrays of a file.
enum Arrays<R> {
    Npz(Npz<R>),
    Hdf5(Hdf5File),
}

impl<R: Read + Seek> Arrays<R> {
    /// Reads the steps, and whether they were cut.
    fn steps(mut self, lengths: LengthPolicy) -> Result<(TensorDict, bool)> {
        let is_npz = matches!(self, Self::Npz(_));
        let (columns, is_cut) = self.columns(lengths)?;
        Ok((steps_of(&columns, is_npz)?, is_cut))
    }

    /// Reads all arrays, once all are known to have as many rows as they must.
    fn columns(&mut self, lengths: LengthPolicy) -> Result<(Vec<(String, Tensor)>, bool)> {
        let (image, others): (_, &[&str]) = match self {
            Self::Npz(_) => {
                ("image", &["action", "reward", "discount", "is_first", "is_last", "is_terminal"])
            }
            Self::Hdf5(_) => ("observation", &["action", "reward", "discount", "step_type"]),
        };
        let names = self.names()?;
        for name in [image].iter().chain(others) {
            if !names.iter().any(|known| known == name) {
                let detail = "must be in every file: it is missing";
                return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
            }
        }
        let lens =
            names.iter().map(|name| Ok((name.as_str(), self.len(name)?))).collect::<Result<Vec<_>>>()?;
        let of_image = lens.iter().find(|(name, _)| *name == image).map_or(0, |(_, len)| *len);
        let shortest = lens.iter().map(|(_, len)| *len).min().unwrap_or(0);
        let odd = lens.iter().find(|(_, len)| *len != of_image);
        if let (LengthPolicy::Error, Some((name, len))) = (lengths, odd) {
            let detail = format!("must have {of_image} rows as {image:?}: got {len}");
            return Err(named(Error::new(ErrorKind::ShapeMismatch, detail), name));
        }
        let mut columns = Vec::with_capacity(names.len());
        for name in &names {
            let column = self.read(name)?.slice(0, 0..shortest)?;
            columns.push((if name == image { "pixels".to_owned() } else { name.clone() }, column));
        }
        Ok((columns, odd.is_some()))
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(match self {
            Self::Npz(npz) => npz.names().to_vec(),
            Self::Hdf5(file) => {
                let root = file.root()?;
                if let Some(name) = root.groups().first() {
                    let detail = "must be a data set: it is a group";
                    return Err(named(Error::new(ErrorKind::Incompatible, detail), name));
                }
                root.data_sets().to_vec()
            }
        })
    }

    /// Returns the number of rows, from the header alone.
    fn len(&mut self, name: &str) -> Result<usize> {
        let shape = match self {
            Self::Npz(npz) => npz.header(name)?.shape,
            Self::Hdf5(file) => file.root()?.shape(name)?,
        };
        shape.first().copied().ok_or_else(|| {
            named(Error::new(ErrorKind::ShapeMismatch, "must have rows: got a single value"), name)
        })
    }

    fn read(&mut self, name: &str) -> Result<Tensor> {
        match self {
            Self::Npz(npz) => npz.read(name),
            Self::Hdf5(file) => match file.root()?.read(name)? {
                Entry::Tensor(tensor) => Ok(tensor),
                other => Err(named(crate::rows::unfit(&other), name)),
            },
        }
    }
}

fn steps_of(columns: &[(String, Tensor)], is_npz: bool) -> Result<TensorDict> {
    let num_steps = columns.first().map_or(0, |(_, column)| column.shape()[0]);
    let mut steps = TensorDict::new(&[num_steps])?;
    for (name, column) in columns {
        set(&mut steps, name, column, is_npz).map_err(|error| named(error, name))?;
    }
    if !is_npz {
        set_flags(&mut steps, columns)?;
    }
    let (done, terminated) = (bools(&steps, "done")?, bools(&steps, "terminated")?);
    let truncated = done.iter().zip(&terminated).map(|(done, terminated)| *done && !terminated);
    steps.set(["next", "truncated"], Tensor::from_vec(&[num_steps, 1], truncated.collect::<Vec<_>>())?)?;
    for name in ["done", "terminated", "truncated"] {
        steps.set(name, Tensor::from_vec(&[num_steps, 1], vec![false; num_steps])?)?;
    }
    Ok(steps)
}

fn bools(steps: &TensorDict, name: &str) -> Result<Vec<bool>> {
    steps.tensor(["next", name])?.to_vec::<bool>()
}

fn set(steps: &mut TensorDict, name: &str, column: &Tensor, is_npz: bool) -> Result<()> {
    let entry = Entry::from(column.clone());
    match name {
        "pixels" => {
            if column.dtype() != Dtype::U8 || column.shape().len() != 4 {
                let got = format!("{} {:?}", column.dtype().name(), column.shape());
                let detail = format!("images must be u8 [rows, height, width, channels]: got {got}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            steps.set("pixels", entry.clone())?;
            steps.set(["next", "pixels"], later(&entry)?)
        }
        "action" | "discount" => steps.set(name, entry),
        "reward" => steps.set(["next", "reward"], one_number(&entry)?),
        "is_first" if is_npz => steps.set("is_init", flags(&entry)?.squeeze(1)?),
        "is_last" if is_npz => steps.set(["next", "done"], flags(&entry)?),
        "is_terminal" if is_npz => steps.set(["next", "terminated"], flags(&entry)?),
        other => {
            steps.set(["state", other], entry.clone())?;
            steps.set(["next", "state", other], later(&entry)?)
        }
    }
}

fn later(column: &Entry) -> Result<Entry> {
    match column {
        Entry::Tensor(tensor) if tensor.shape()[0] == 0 => Ok(column.clone()),
        column => shifted(column),
    }
}

/// Sets the flags that `step_type`, which is 0 at the first, 1 within and 2 at the last step, and `discount` state.
fn set_flags(steps: &mut TensorDict, columns: &[(String, Tensor)]) -> Result<()> {
    let numbers = |name: &str| -> Result<Vec<f64>> {
        let column =
            columns.iter().find(|(known, _)| known == name).map(|(_, column)| Entry::from(column.clone()));
        let column = column.ok_or_else(|| Error::new(ErrorKind::UnknownName, "must be in every file"));
        column
            .and_then(|column| one_number(&column)?.to(Dtype::F64)?.to_vec::<f64>())
            .map_err(|error| named(error, name))
    };
    let (kinds, discounts) = (numbers("step_type")?, numbers("discount")?);
    if let Some(kind) = kinds.iter().find(|kind| ![0.0, 1.0, 2.0].contains(*kind)) {
        let detail = format!("a kind of step must be 0, 1 or 2: got {kind}");
        return Err(named(Error::new(ErrorKind::OutOfRange, detail), "step_type"));
    }
    let shape = [kinds.len(), 1];
    let is_last = |at: usize| kinds[at] == 2.0;
    let done: Vec<_> = (0..kinds.len()).map(is_last).collect();
    let terminated: Vec<_> = (0..kinds.len()).map(|at| is_last(at) && discounts[at] == 0.0).collect();
    steps.set(
        "is_init",
        Tensor::from_vec(&shape[..1], kinds.iter().map(|kind| *kind == 0.0).collect::<Vec<_>>())?,
    )?;
    steps.set(["next", "done"], Tensor::from_vec(&shape, done)?)?;
    steps.set(["next", "terminated"], Tensor::from_vec(&shape, terminated)?)
}
