//! Gen-DGRL: a `.tar.xz` of `.npy` files, each one episode of Procgen as a pickled dictionary of arrays.
//!
//! ```text
//! observations[T + 1, 3, 64, 64]   observation = rows 0..T, next.observation = rows 1..T + 1
//! actions[T]                       action
//! rewards[T]                       next.reward
//! dones[T]                         next.done, next.terminated [T, 1]
//!                                  done, terminated, truncated, next.truncated: false [T, 1]
//! ```

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use fulmar_core::{Dtype, Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{Entry, Tensor, TensorDict, memmap};
use serde::{Deserialize, Serialize};

use crate::archive::each_file_of_xz;
use crate::episodes::{cat, check_alike};
use crate::object_file::read_object_file;
use crate::pickle::PickleItem;
use crate::rows::{flags, named, slice};
use crate::rows_folder::RowsFolder;
use crate::split::split_trajectories;

/// Options of [`convert_gen_dgrl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GenDgrlOptions {
    /// Most rows; what follows is not read.
    pub num_rows_max: usize,
    /// If true, each row of the result is a trajectory, see [`split_trajectories`]. Then all rows are in memory at once.
    pub split_trajs: bool,
}

impl Default for GenDgrlOptions {
    fn default() -> Self {
        Self { num_rows_max: usize::MAX, split_trajs: false }
    }
}

/// Reads an archive of Gen-DGRL as `[steps]`, at most `num_rows_max`, into memory.
///
/// # Errors
/// With the member and the key, `UnknownName` for an array that is missing; `ShapeMismatch`, with both numbers, for one of another
/// number of rows, or of rows of another shape or dtype than in the first member; `OutOfRange` for `dones` other than 0 and 1;
/// `Incompatible` for a member without a dictionary of arrays; `Empty` without steps; `Forbidden` for a pickle that names other
/// functions than those that make arrays, and for a member whose name leads out of the archive; `LimitExceeded` for what is
/// beyond the limits of pickles and archives; `Corrupt` for damaged bytes.
///
/// # Examples
/// ```
/// use fulmar_dataset::read_gen_dgrl;
/// let error = read_gen_dgrl(&b"<html>Not Found</html>"[..], 1_000_000).unwrap_err();
/// assert_eq!(error.kind(), fulmar_core::ErrorKind::Corrupt);
/// ```
pub fn read_gen_dgrl(archive: impl Read, num_rows_max: usize) -> Result<TensorDict> {
    let (mut parts, mut total) = (Vec::<TensorDict>::new(), 0);
    each_episode(archive, num_rows_max, |steps| {
        if let Some(first) = parts.first() {
            check_alike(first, &steps)?;
        }
        total += steps.batch_size()[0];
        parts.push(steps);
        Ok(total)
    })?;
    if parts.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "an archive must have steps: it has none"));
    }
    cat(&parts.iter().collect::<Vec<_>>(), total)
}

/// Converts the archive at `source` to a folder of steps that TorchRL opens as its own, an episode at a time. Returns the number
/// of steps. After an error there is no folder.
///
/// # Errors
/// With the file, the errors of [`read_gen_dgrl`]; `Io` if the system refuses, also if `folder` is there.
///
/// # Examples
/// ```
/// use fulmar_dataset::{GenDgrlOptions, convert_gen_dgrl};
/// use fulmar_tensor::memmap;
/// # let source = "../../tests/golden/dataset/raw/web/dl.fbaipublicfiles.com/DGRL/Procgen/Datasets/Compressed/100k/level_1/expert/bigfish.tar.xz";
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-gen-dgrl-{}", std::process::id()));
/// let options = GenDgrlOptions { num_rows_max: 5, ..Default::default() };
/// assert_eq!(convert_gen_dgrl(source, &folder, options)?, 5); // a file such as bigfish.tar.xz
/// assert_eq!(memmap::load(&folder)?.tensor("observation")?.shape(), [5, 3, 64, 64]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_gen_dgrl(
    source: impl AsRef<Path>,
    folder: impl AsRef<Path>,
    options: GenDgrlOptions,
) -> Result<usize> {
    let (source, folder) = (source.as_ref(), folder.as_ref());
    let file = BufReader::new(open_regular(source)?.0);
    match options.split_trajs {
        true => convert_split(file, folder, options),
        false => RowsFolder::fill(folder, |rows| {
            each_episode(file, options.num_rows_max, |steps| {
                rows.append(&steps)?;
                Ok(rows.num_rows())
            })
        }),
    }
    .map_err(|error| error.at(source.display()))
}

fn convert_split(file: BufReader<File>, folder: &Path, options: GenDgrlOptions) -> Result<usize> {
    let steps = read_gen_dgrl(file, options.num_rows_max)?;
    memmap::save(folder, &split_trajectories(&steps)?)?;
    Ok(steps.batch_size()[0])
}

/// Calls `body` with the steps of each member until there are `num_rows_max`; `body` returns how many there are.
fn each_episode(
    archive: impl Read,
    num_rows_max: usize,
    mut body: impl FnMut(TensorDict) -> Result<usize>,
) -> Result<()> {
    let mut num_rows = 0;
    each_file_of_xz(archive, |_, bytes| {
        let steps = read_object_file(bytes, steps_of)?;
        let num_steps = steps.batch_size()[0].min(num_rows_max - num_rows);
        if num_steps > 0
            && let Entry::Dict(steps) = slice(&steps.into(), 0..num_steps)?
        {
            num_rows = body(steps)?;
        }
        Ok(num_rows < num_rows_max)
    })
}

/// Returns the steps of one episode.
fn steps_of(episode: PickleItem<'_>) -> Result<TensorDict> {
    let mut arrays = TensorDict::new(&[])?;
    for (name, value) in episode.entries()? {
        let tensor = value.to_tensor().and_then(|tensor| tensor.ok_or_else(|| no_array(value)));
        arrays.set(name, tensor.map_err(|error| named(error, name))?)?;
    }
    let column = |name: &'static str| match arrays.get(name) {
        Some(Entry::Tensor(tensor)) => Ok(tensor),
        _ => Err(named(Error::new(ErrorKind::UnknownName, "must be in every member: it is missing"), name)),
    };
    let (observations, actions) = (column("observations")?, column("actions")?);
    let num_steps = actions.shape().first().copied().unwrap_or(0);
    check_rows("observations", observations, num_steps + 1)?;
    for name in ["actions", "rewards", "dones"] {
        check_rows(name, column(name)?, num_steps)?;
    }
    let done = flags(&column("dones")?.clone().into()).map_err(|error| named(error, "dones"))?;
    let no = Tensor::zeros(Dtype::Bool, &[num_steps, 1])?;
    let mut steps = TensorDict::new(&[num_steps])?;
    steps.set("observation", observations.slice(0, 0..num_steps)?)?;
    steps.set("action", actions.clone())?;
    for name in ["done", "terminated", "truncated"] {
        steps.set(name, no.clone())?;
        steps.set(["next", name], if name == "truncated" { no.clone() } else { done.clone() })?;
    }
    steps.set(["next", "observation"], observations.slice(0, 1..num_steps + 1)?)?;
    steps.set(["next", "reward"], column("rewards")?.clone())?;
    for (name, other) in arrays.entries().filter(|(name, _)| !KNOWN.contains(name)) {
        if let Entry::Tensor(tensor) = other {
            check_rows(name, tensor, num_steps)?;
            steps.set(name, tensor.clone())?;
        }
    }
    Ok(steps)
}

/// Names with a rule of their own.
const KNOWN: [&str; 4] = ["observations", "actions", "rewards", "dones"];

fn check_rows(name: &str, tensor: &Tensor, num_rows: usize) -> Result<()> {
    if tensor.shape().first() == Some(&num_rows) {
        return Ok(());
    }
    let detail = format!("must have {num_rows} rows beside the actions: got shape {:?}", tensor.shape());
    Err(named(Error::new(ErrorKind::ShapeMismatch, detail), name))
}

fn no_array(value: PickleItem<'_>) -> Error {
    Error::new(ErrorKind::Incompatible, format!("must be an array: got a value of kind {}", value.kind()))
}
