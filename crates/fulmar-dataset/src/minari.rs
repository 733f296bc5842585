//! Minari: an HDF5 file with a group for each episode, that become rows one behind the other.
//!
//! ```text
//! episode_<k>/observations   [T + 1]: observation = 0..T, next.observation = 1..T + 1; groups stay groups
//! episode_<k>/actions        action
//! episode_<k>/rewards        next.reward [T, 1]
//! episode_<k>/terminations   next.terminated [T, 1]; next.done = terminated or truncated
//! episode_<k>/truncations    next.truncated [T, 1]
//! episode_<k>/infos          info and next.info as observations; of T rows: a row of zeros comes first
//! k                          episode
//! ```

use std::io::Read;
use std::path::Path;

use fulmar_core::limits::MEMMAP_META_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result, open_regular};
use fulmar_ted::{Hdf5File, Hdf5Group};
use fulmar_tensor::{Entry, Tensor, TensorDict, memmap, replace_file};

use crate::episodes::{cat, check_alike, check_rows};
use crate::minari_metadata::MinariMetadata;
use crate::rows::{
    either, flags, named, num_at_once, num_rows, on_all_threads, one_number, slice, zero_first,
};
use crate::rows_folder::RowsFolder;
use crate::split::split_trajectories;

/// The content of a Minari data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Minari {
    /// Steps of all episodes, `[steps]`, or `[n, T_max]` if they are split.
    pub steps: TensorDict,
    /// The fields of `metadata.json`.
    pub metadata: MinariMetadata,
}

/// Name of the metadata in a folder of steps, as TorchRL has it.
const ENV_METADATA: &str = "env_metadata.json";

impl Minari {
    /// Reads the folder `data` of a Minari data set.
    ///
    /// # Errors
    /// `Io` if a file cannot be read; those of [`read_minari`] and [`MinariMetadata::parse`], with the file.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let (file, metadata) = open_files(folder.as_ref())?;
        Ok(Self { steps: read_minari(&file, &metadata)?, metadata })
    }

    /// Returns the same with episodes side by side, see [`split_trajectories`].
    ///
    /// # Errors
    /// The errors of [`split_trajectories`].
    pub fn split(self) -> Result<Self> {
        Ok(Self { steps: split_trajectories(&self.steps)?, ..self })
    }

    /// Writes the steps as a folder that TorchRL opens as its own, see [`memmap::save`], and the metadata into it.
    ///
    /// # Errors
    /// The errors of [`memmap::save`].
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        memmap::save(&folder, &self.steps)?;
        save_metadata(&self.metadata, folder.as_ref())
    }
}

/// Converts the folder `data` of a Minari data set to a folder of steps that TorchRL opens as its own, with the metadata. A few episodes are
/// in memory at a time. Returns the number of steps. After an error there is no folder.
///
/// # Errors
/// The errors of [`Minari::open`]; `Io` if the system refuses, also if `folder` is there.
///
/// # Examples
/// ```
/// use fulmar_dataset::convert_minari;
/// use fulmar_tensor::memmap;
/// # let source = "../../tests/golden/dataset/raw/minari/cartpole/random-v0/data";
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-minari-{}", std::process::id()));
/// let num_steps = convert_minari(source, &folder)?; // the folder `data` of a data set
/// assert_eq!(memmap::load(&folder)?.batch_size(), [num_steps]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_minari(source: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<usize> {
    let (file, metadata) = open_files(source.as_ref())?;
    let num_rows = RowsFolder::fill(folder.as_ref(), |rows| {
        each_episode(&file, &metadata, |steps| rows.append(&steps)).map_err(|error| file.locate(error))?;
        save_metadata(&metadata, rows.path())
    })?;
    Ok(num_rows)
}

fn save_metadata(metadata: &MinariMetadata, folder: &Path) -> Result<()> {
    let text = metadata.to_json().to_string();
    replace_file(folder.join(ENV_METADATA), |writer| Ok(writer.write_all(text.as_bytes())?))
}

fn open_files(folder: &Path) -> Result<(Hdf5File, MinariMetadata)> {
    let path = folder.join("metadata.json");
    let metadata = read_metadata(&path).map_err(|error| error.at(path.display()))?;
    Ok((Hdf5File::open(folder.join("main_data.hdf5"))?, metadata))
}

fn read_metadata(path: &Path) -> Result<MinariMetadata> {
    let (file, size_bytes) = open_regular(path)?;
    if size_bytes > MEMMAP_META_BYTES_MAX as u64 {
        let detail = format!("metadata must have at most {MEMMAP_META_BYTES_MAX} bytes: got {size_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut text = String::new();
    file.take(MEMMAP_META_BYTES_MAX as u64).read_to_string(&mut text)?;
    MinariMetadata::parse(&text)
}

/// Reads the episodes of a `main_data.hdf5`, in the order of their numbers, as `[steps]`.
///
/// # Errors
/// With the group and the key, `UnknownName` if an episode lacks what it must have or what another one has;
/// `ShapeMismatch`, with both numbers, for a data set of another number of rows, or of rows of another shape or dtype
/// than in the first episode; `Malformed` for a group that is not an episode; `Corrupt`, with both numbers, if there
/// are other numbers of episodes or steps than `metadata` states; `Empty` without steps; those of [`Hdf5Group::read`].
pub fn read_minari(file: &Hdf5File, metadata: &MinariMetadata) -> Result<TensorDict> {
    read(file, metadata).map_err(|error| file.locate(error))
}

fn read(file: &Hdf5File, metadata: &MinariMetadata) -> Result<TensorDict> {
    let mut parts: Vec<TensorDict> = Vec::new();
    each_episode(file, metadata, |steps| {
        if let Some(first) = parts.first() {
            check_alike(first, &steps)?;
        }
        if steps.batch_size() != [0] {
            parts.push(steps);
        }
        Ok(())
    })?;
    if parts.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the episodes must have steps: they have none"));
    }
    cat(&parts.iter().collect::<Vec<_>>(), metadata.total_steps)
}

/// Calls `body` with the steps of each episode, in the order of their numbers. As many are read at a time as there are threads.
fn each_episode(
    file: &Hdf5File,
    metadata: &MinariMetadata,
    mut body: impl FnMut(TensorDict) -> Result<()>,
) -> Result<()> {
    let root = file.root()?;
    let numbers = episodes_of(&root)?;
    check_count("total_episodes", metadata.total_episodes, numbers.len())?;
    let mut total = 0;
    for numbers in numbers.chunks(num_at_once()) {
        let episodes = on_all_threads(numbers, |(number, name)| {
            let group = root.group(name)?;
            let steps = Episode::of(&group).and_then(|episode| episode.steps(*number));
            steps.map_err(|error| named(error, name))
        })?;
        for ((_, name), steps) in numbers.iter().zip(episodes) {
            total += steps.batch_size()[0];
            body(steps).map_err(|error| named(error, name))?;
        }
    }
    check_count("total_steps", metadata.total_steps, total)
}

/// Returns the numbers and names of the episodes in order.
fn episodes_of<'a>(root: &'a Hdf5Group<'_>) -> Result<Vec<(i64, &'a str)>> {
    let mut episodes = Vec::with_capacity(root.groups().len());
    for name in root.groups() {
        let digits =
            name.strip_prefix("episode_").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse::<i64>().ok()).ok_or_else(|| {
            named(Error::new(ErrorKind::Malformed, "must be a group `episode_<number>`: it is not"), name)
        })?;
        episodes.push((number, name.as_str()));
    }
    episodes.sort_unstable();
    if let Some(pair) = episodes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let detail = format!("must be the only episode {}: {:?} is one too", pair[1].0, pair[0].1);
        return Err(named(Error::new(ErrorKind::Malformed, detail), pair[1].1));
    }
    Ok(episodes)
}

fn check_count(name: &str, stated: usize, found: usize) -> Result<()> {
    if stated == found {
        return Ok(());
    }
    let detail = format!("metadata states {name} {stated}: the file has {found}");
    Err(Error::new(ErrorKind::Corrupt, detail))
}

/// One group of the file.
struct Episode {
    columns: TensorDict,
    num_steps: usize,
}

const KNOWN: [&str; 6] = ["observations", "actions", "rewards", "terminations", "truncations", "infos"];

impl Episode {
    fn of(group: &Hdf5Group<'_>) -> Result<Self> {
        let columns = group.to_dict()?;
        for name in &KNOWN[..5] {
            if columns.get(*name).is_none() {
                let detail = "must be in every episode: it is missing";
                return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
            }
        }
        let num_steps = rows_of(columns.entry("actions")?).unwrap_or(0);
        Ok(Self { columns, num_steps })
    }

    fn steps(&self, number: i64) -> Result<TensorDict> {
        let num_steps = self.num_steps;
        let mut steps = TensorDict::new(&[num_steps])?;
        steps.set("episode", Tensor::from_vec(&[num_steps], vec![number; num_steps])?)?;
        let terminated = self.column("terminations", flags)?;
        let truncated = self.column("truncations", flags)?;
        steps.set(["next", "reward"], self.column("rewards", one_number)?)?;
        steps.set(["next", "done"], either(&terminated, &truncated)?)?;
        steps.set(["next", "terminated"], terminated)?;
        steps.set(["next", "truncated"], truncated)?;
        for (name, column) in self.columns.entries() {
            match name {
                "rewards" | "terminations" | "truncations" => {}
                "observations" => self.set_both(&mut steps, "observation", name, column, false)?,
                "infos" => self.set_both(&mut steps, "info", name, column, true)?,
                "actions" => self.set_one(&mut steps, "action", name, column)?,
                other if num_rows(column) == Some(num_steps + 1) => {
                    self.set_both(&mut steps, other, name, column, false)?;
                }
                other => self.set_one(&mut steps, other, name, column)?,
            }
        }
        Ok(steps)
    }

    fn column(&self, name: &str, read: impl Fn(&Entry) -> Result<Tensor>) -> Result<Tensor> {
        let column = self.columns.entry(name)?;
        read(column)
            .and_then(|tensor| {
                check_rows(tensor.shape().first().copied(), self.num_steps)?;
                Ok(tensor)
            })
            .map_err(|error| named(error, name))
    }

    /// Sets a column of a row before each step and one behind the last, at the root and below `"next"`.
    fn set_both(
        &self,
        steps: &mut TensorDict,
        key: &str,
        name: &str,
        column: &Entry,
        may_lack_first: bool,
    ) -> Result<()> {
        let Some(column) =
            whole(column, self.num_steps + 1, may_lack_first).map_err(|error| named(error, name))?
        else {
            return Ok(());
        };
        steps.set(key, slice(&column, 0..self.num_steps)?)?;
        steps.set(["next", key], slice(&column, 1..self.num_steps + 1)?)
    }

    fn set_one(&self, steps: &mut TensorDict, key: &str, name: &str, column: &Entry) -> Result<()> {
        let column = whole(column, self.num_steps, false).map_err(|error| named(error, name))?;
        match column {
            Some(column) => steps.set(key, slice(&column, 0..self.num_steps)?),
            None => Ok(()),
        }
    }
}

/// Returns the number of rows of the first leaf.
fn rows_of(column: &Entry) -> Option<usize> {
    match column {
        Entry::Dict(columns) => columns.entries().find_map(|(_, column)| rows_of(column)),
        leaf => num_rows(leaf),
    }
}

/// Returns a column whose leaves all have `num_rows` rows; `None` for groups without leaves. With `may_lack_first` a
/// leaf of one row less gets a row of zeros at first.
fn whole(column: &Entry, rows: usize, may_lack_first: bool) -> Result<Option<Entry>> {
    if let Entry::Dict(columns) = column {
        let mut wholes = TensorDict::new(&[])?;
        for (name, column) in columns.entries() {
            if let Some(column) = whole(column, rows, may_lack_first).map_err(|error| named(error, name))? {
                wholes.set(name, column)?;
            }
        }
        return Ok((wholes.num_entries() > 0).then(|| wholes.into()));
    }
    let found = num_rows(column);
    if may_lack_first && found.is_some_and(|found| found + 1 == rows) {
        return zero_first(column).map(Some);
    }
    check_rows(found, rows)?;
    Ok(Some(column.clone()))
}
