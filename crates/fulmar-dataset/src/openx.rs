//! Open X-Embodiment: `.tar` files of episodes, each the pickle of a dictionary with a list of steps.
//!
//! ```text
//! observation                      observation; next.observation: that of the next step, zeros (or an empty text) in the last
//! reward                           next.reward [T, 1]
//! is_first                         is_init [T]
//! is_last                          next.done [T, 1]
//! is_terminal                      next.terminated [T, 1]; next.truncated = done and not terminated
//! action, discount, language_*     the same
//! number of the episode            episode i32 [T]
//!                                  done, terminated, truncated: false [T, 1]
//! ```

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use fulmar_core::{Dtype, Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::Value;

use crate::archive::{each_file, next_file};
use crate::pickle::Pickle;
use crate::rows::{flags, named, one_number, slice, texts, unfit};
use crate::rows_folder::RowsFolder;
use crate::step_columns::columns;

/// An episode of an Open X-Embodiment file.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenXEpisode {
    /// Steps, `[T]`.
    pub steps: TensorDict,
    /// Position in bytes behind the episode, where the next one is read from.
    pub end: u64,
}

impl OpenXEpisode {
    /// Reads the episode of the `.tar` at `path` that is the first at the position `start`, which is 0 or the end of another
    /// episode. `number` becomes the column `episode`. Returns `None` behind the last.
    ///
    /// # Errors
    /// With file, member and key, the errors of [`read_openx`].
    pub fn open(path: impl AsRef<Path>, start: u64, number: i32) -> Result<Option<Self>> {
        let path = path.as_ref();
        let read = || {
            let (file, size) = open_regular(path)?;
            if start > size {
                let detail = format!("start must be at most the {size} bytes of the file: got {start}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
            let mut file = BufReader::new(file);
            file.seek(SeekFrom::Start(start))?;
            let found = next_file(file, |bytes| steps_of(bytes, number))?;
            Ok(found.map(|(steps, len)| Self { steps, end: start + len }))
        };
        read().map_err(|error| error.at(path.display()))
    }
}

/// Reads the episodes of a `.tar` of Open X-Embodiment, and calls `body` with the steps of each, `[T]`. An episode is in memory at
/// a time. The first has the number `first_number`. Returns how many there are.
///
/// # Errors
/// With the member, the key and the step, `UnknownName` for a key that is missing, in all steps or in one; `ShapeMismatch` for
/// numbers or images of different shapes; `OutOfRange` for flags other than 0 and 1; `Incompatible` for values that are not numbers,
/// texts or images, and for images that are neither PNG nor JPEG; `Empty` for an episode without steps; `Forbidden` for a pickle that
/// names other functions than those that make arrays, and for a member whose name leads out of the archive; `LimitExceeded` for
/// what is beyond the limits of pickles, images and archives; `Corrupt` for damaged bytes; those of `body`.
///
/// # Examples
/// ```
/// use fulmar_dataset::read_openx;
/// let empty = [0; 1024]; // a tar without members
/// assert_eq!(read_openx(&empty[..], 0, |_| Ok(()))?, 0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_openx(
    archive: impl Read,
    first_number: i32,
    mut body: impl FnMut(&TensorDict) -> Result<()>,
) -> Result<i32> {
    let mut number = first_number;
    each_file(archive, |_, bytes| {
        body(&steps_of(bytes, number)?)?;
        number = number.saturating_add(1);
        Ok(true)
    })?;
    Ok(number - first_number)
}

/// Converts `.tar` files to one folder of steps that TorchRL opens as its own, an episode at a time. Returns the number of steps. After
/// an error there is no folder.
///
/// # Errors
/// With the file, the errors of [`read_openx`]; `UnknownName` or `ShapeMismatch` for steps that are not like the first; `Empty`
/// without steps; `Io` if the system refuses, also if `folder` is there.
///
/// # Examples
/// ```
/// use fulmar_dataset::convert_openx;
/// use fulmar_tensor::memmap;
/// # let files = ["../../tests/golden/dataset/raw/hub/datasets/jxu124/OpenX-Embodiment/viola/viola_00000.tar"];
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-openx-{}", std::process::id()));
/// let num_steps = convert_openx(&files, &folder)?; // files `*.tar` in their order
/// assert_eq!(memmap::load(&folder)?.batch_size(), [num_steps]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_openx(sources: &[impl AsRef<Path>], folder: impl AsRef<Path>) -> Result<usize> {
    RowsFolder::fill(folder.as_ref(), |rows| {
        let mut number = 0;
        for source in sources {
            let source = source.as_ref();
            let read = open_regular(source)
                .and_then(|(file, _)| read_openx(BufReader::new(file), number, |steps| rows.append(steps)));
            number += read.map_err(|error| error.at(source.display()))?;
        }
        Ok(())
    })
}

/// Returns the steps of one pickle.
fn steps_of(bytes: &[u8], number: i32) -> Result<TensorDict> {
    let pickle = Pickle::read(bytes)?;
    let root = pickle.root().entries()?;
    let Some(list) = root.get("steps") else {
        return Err(named(
            Error::new(ErrorKind::UnknownName, "must be in every member: it is missing"),
            "steps",
        ));
    };
    let Some(items) = list.items() else {
        let detail = format!("must be a list: got a value of kind {}", list.kind());
        return Err(named(Error::new(ErrorKind::Incompatible, detail), "steps"));
    };
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        return Err(named(Error::new(ErrorKind::Empty, "must have a step: it has none"), "steps"));
    }
    rows_of(&columns(&items)?, number)
}

/// Names with a rule of their own.
const KNOWN: [&str; 5] = ["observation", "reward", "is_first", "is_last", "is_terminal"];

fn rows_of(columns: &TensorDict, number: i32) -> Result<TensorDict> {
    for name in KNOWN.into_iter().chain(["action"]) {
        if columns.get(name).is_none() {
            let detail = "must be in every step: it is missing";
            return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
        }
    }
    let num_steps = columns.batch_size()[0];
    let column = |name: &str, read: fn(&Entry) -> Result<Tensor>| {
        columns.entry(name).and_then(read).map_err(|error| named(error, name))
    };
    let done = column("is_last", flags)?;
    let terminated = column("is_terminal", flags)?;
    let mut steps = TensorDict::new(&[num_steps])?;
    steps.set(["next", "observation"], one_earlier(columns.entry("observation")?, num_steps)?)?;
    steps.set(["next", "truncated"], truncated(&done, &terminated)?)?;
    steps.set(["next", "done"], done)?;
    steps.set(["next", "terminated"], terminated)?;
    steps.set(["next", "reward"], column("reward", one_number)?)?;
    steps.set("is_init", column("is_first", flags)?.reshape(&[num_steps])?)?;
    let no = Tensor::zeros(Dtype::Bool, &[num_steps, 1])?;
    for name in ["done", "terminated", "truncated"] {
        steps.set(name, no.clone())?;
    }
    steps.set("episode", Tensor::from_vec(&[num_steps], vec![number; num_steps])?)?;
    for (name, entry) in columns.entries().filter(|(name, _)| *name == "observation" || !KNOWN.contains(name))
    {
        steps.set(name, entry.clone())?;
    }
    Ok(steps)
}

fn truncated(done: &Tensor, terminated: &Tensor) -> Result<Tensor> {
    let flags = done.to_vec::<bool>()?.into_iter().zip(terminated.to_vec::<bool>()?);
    Tensor::from_vec(done.shape(), flags.map(|(done, terminated)| done && !terminated).collect())
}

/// Returns the rows behind the first, and a last one of zeros or of an empty text.
fn one_earlier(column: &Entry, num_steps: usize) -> Result<Entry> {
    Ok(match column {
        Entry::Tensor(tensor) => {
            let last = Tensor::zeros(tensor.dtype(), &[&[1], &tensor.shape()[1..]].concat())?;
            Tensor::cat(&[tensor.slice(0, 1..num_steps)?, last], 0)?.into()
        }
        Entry::Dict(columns) => {
            let mut shifted = TensorDict::new(&[num_steps])?;
            for (name, column) in columns.entries() {
                shifted.set(name, one_earlier(column, num_steps)?)?;
            }
            shifted.into()
        }
        Entry::NonTensor(_) => {
            let mut values = texts(&slice(column, 1..num_steps)?);
            values.push(Value::String(String::new()));
            NonTensor::each(&[num_steps], values)?.into()
        }
        other => return Err(unfit(other)),
    })
}
