//! The steps of Atari DQN replay, read from the folders of their splits row by row.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fulmar_core::limits::MEMMAP_META_BYTES_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, open_regular, read_exact_at};
use fulmar_replay::{PartialReads, Storage, StorageAbilities};
use fulmar_tensor::{Entry, Key, NonTensor, Tensor, TensorDict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::atari::{ATARI_METADATA_LEN_MAX, at};
use crate::rows::{flags, named};

/// Most splits of a data set.
pub const ATARI_SPLITS_MAX: usize = 4096;

/// Most bytes of a column of numbers of a split.
const COLUMN_BYTES_MAX: u64 = 1 << 32;

/// Rows whose frames are read at a time.
const PART_ROWS: usize = 256;

/// Most bytes of a frame.
const FRAME_BYTES_MAX: u64 = 1 << 24;

/// The steps of all splits in a folder. Frames stay in their files, each is stored once, and a step reads its own and the next one;
/// what else the steps have, 9 bytes a step, is in memory, once for all clones. The rows cannot be written.
///
/// `next.observation` is zero where a step is terminal, and in the last step of a split. `metadata` has `add_count`, `invalid_range`
/// and `dataset_id` of the split.
///
/// # Examples
/// ```
/// use fulmar_dataset::AtariStorage;
/// assert!(AtariStorage::open("/nowhere").is_err());
/// ```
#[derive(Debug, Clone)]
pub struct AtariStorage {
    shape: [usize; 1],
    frame: [usize; 2],
    splits: Arc<[Split]>,
    /// Memory of reads into a batch that is there.
    pairs: Arc<Mutex<Vec<u8>>>,
}

/// The steps of a split.
#[derive(Debug)]
struct Split {
    /// Rows before this split.
    start: usize,
    path: PathBuf,
    frames: File,
    action: Vec<i32>,
    reward: Vec<f32>,
    terminated: Vec<bool>,
    metadata: Value,
}

impl AtariStorage {
    /// Opens the folder of a data set, whose folders are the splits, by their numbers.
    ///
    /// # Errors
    /// `Io` if the system refuses; `Empty` without splits; `LimitExceeded` for more than [`ATARI_SPLITS_MAX`]; with the file, `Corrupt` for
    /// one that is not as its description, `Incompatible` for another dtype, `ShapeMismatch` for another number of rows than there are
    /// frames, or frames of another size than in the first split.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let (mut splits, mut frame, mut len) = (Vec::new(), None, 0);
        for number in split_numbers(folder).map_err(|error| error.at(folder.display()))? {
            let (split, size) = Split::open(folder.join(number.to_string()), len)?;
            if *frame.get_or_insert(size) != size {
                let detail = format!("frames must be {frame:?} as in the first split: got {size:?}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(split.path.display()));
            }
            len += split.action.len();
            splits.push(split);
        }
        Ok(Self {
            shape: [len],
            frame: frame.unwrap_or_default(),
            splits: splits.into(),
            pairs: Arc::default(),
        })
    }

    /// Returns the number of terminal steps up to each row, that row included, as TorchRL numbers episodes.
    #[must_use]
    pub fn episodes(&self) -> Vec<i64> {
        let flags = self.splits.iter().flat_map(|split| &split.terminated);
        let count = |count: &mut i64, flag: &bool| {
            *count += i64::from(*flag);
            Some(*count)
        };
        flags.scan(0, count).collect()
    }

    /// Returns the metadata of each split.
    #[must_use]
    pub fn metadata(&self) -> Vec<&Value> {
        self.splits.iter().map(|split| &split.metadata).collect()
    }

    /// Returns the split of each row, and the step in it.
    fn places(&self, rows: &[usize]) -> Result<Vec<(&Split, usize)>> {
        let place = |row: &usize| {
            let after = self.splits.partition_point(|split| split.start <= *row);
            let split = after.checked_sub(1).and_then(|at| self.splits.get(at));
            let split = split.filter(|split| row - split.start < split.action.len());
            split.map(|split| (split, row - split.start)).ok_or_else(|| {
                let detail = format!("row must be < {}, the number of rows: got {row}", self.shape[0]);
                Error::new(ErrorKind::OutOfRange, detail)
            })
        };
        rows.iter().map(place).collect()
    }

    /// Returns what rows have besides frames.
    fn columns(&self, places: &[(&Split, usize)]) -> Result<TensorDict> {
        let len = places.len();
        let mut next = TensorDict::new(&[len])?;
        let mut items = TensorDict::new(&[len])?;
        let rewards = places.iter().map(|(split, step)| split.reward[*step]).collect();
        next.set("reward", Tensor::from_vec(&[len], rewards)?)?;
        let ends: Vec<bool> = places.iter().map(|(split, step)| split.terminated[*step]).collect();
        let ends = Tensor::from_vec(&[len, 1], ends)?;
        let none = Tensor::from_vec(&[len, 1], vec![false; len])?;
        for name in ["done", "terminated", "truncated"] {
            items.set(name, none.clone())?;
            next.set(name, if name == "truncated" { none.clone() } else { ends.clone() })?;
        }
        let actions = places.iter().map(|(split, step)| split.action[*step]).collect();
        items.set("action", Tensor::from_vec(&[len], actions)?)?;
        items.set("next", next)?;
        items.set("metadata", metadata_of(places)?)?;
        Ok(items)
    }

    /// Returns rows with their frames, a part of the rows at a time.
    fn items(&self, places: &[(&Split, usize)]) -> Result<TensorDict> {
        let [height, width] = self.frame;
        let shape = [places.len(), height, width];
        let (mut now, mut then) = (Tensor::zeros(Dtype::U8, &shape)?, Tensor::zeros(Dtype::U8, &shape)?);
        let part_bytes = PART_ROWS * height * width;
        let nows = now.as_mut_slice::<u8>()?.chunks_mut(part_bytes);
        let thens = then.as_mut_slice::<u8>()?.chunks_mut(part_bytes);
        let mut pairs = Vec::new();
        for (places, (now, then)) in places.chunks(PART_ROWS).zip(nows.zip(thens)) {
            self.read_pairs(places, &mut pairs)?;
            self.spread(&pairs, now, then);
        }
        let mut items = self.columns(places)?;
        items.set("observation", now)?;
        items.set(["next", "observation"], then)?;
        Ok(items)
    }

    /// Reads the frame of each step with the one that follows, which is zero behind a terminal step.
    fn read_pairs(&self, places: &[(&Split, usize)], pairs: &mut Vec<u8>) -> Result<()> {
        let frame_bytes = self.frame[0] * self.frame[1];
        pairs.resize(2 * frame_bytes * places.len(), 0);
        for ((split, step), pair) in places.iter().zip(pairs.chunks_exact_mut(2 * frame_bytes)) {
            let offset = (*step as u64).saturating_mul(frame_bytes as u64);
            if split.terminated[*step] {
                split.read_at(offset, &mut pair[..frame_bytes])?;
                pair[frame_bytes..].fill(0);
            } else {
                split.read_at(offset, pair)?;
            }
        }
        Ok(())
    }

    fn spread(&self, pairs: &[u8], now: &mut [u8], then: &mut [u8]) {
        let frame_bytes = self.frame[0] * self.frame[1];
        let targets = now.chunks_exact_mut(frame_bytes).zip(then.chunks_exact_mut(frame_bytes));
        for (pair, (now, then)) in pairs.chunks_exact(2 * frame_bytes).zip(targets) {
            now.copy_from_slice(&pair[..frame_bytes]);
            then.copy_from_slice(&pair[frame_bytes..]);
        }
    }

    /// Returns the frames of a batch like this one, to be written over.
    fn memory(&self, num_rows: usize, out: &mut TensorDict) -> Option<[Tensor; 2]> {
        let shape = [num_rows, self.frame[0], self.frame[1]];
        let keys: [Key; 2] = ["observation".into(), ["next", "observation"].into()];
        let fits = |key: &Key| match out.get(key.clone()) {
            Some(Entry::Tensor(tensor)) => tensor.dtype() == Dtype::U8 && tensor.shape() == shape,
            _ => false,
        };
        if !keys.iter().all(fits) {
            return None;
        }
        let [now, then] = keys.map(|key| out.remove(key));
        match (now, then) {
            (Ok(Some(Entry::Tensor(now))), Ok(Some(Entry::Tensor(then)))) => Some([now, then]),
            _ => None,
        }
    }
}

/// Returns one value if all rows are of one split.
fn metadata_of(places: &[(&Split, usize)]) -> Result<NonTensor> {
    match places.first() {
        Some((first, _)) if places.iter().all(|(split, _)| split.start == first.start) => {
            Ok(NonTensor::shared(first.metadata.clone()))
        }
        _ => {
            let values = places.iter().map(|(split, _)| split.metadata.clone()).collect();
            NonTensor::each(&[places.len()], values)
        }
    }
}

impl Storage for AtariStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.shape[0]
    }

    fn set(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Err(Error::new(
            ErrorKind::Forbidden,
            "rows of Atari DQN replay must not be written: they are read-only",
        ))
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.items(&self.places(rows)?)
    }

    /// Does nothing: the rows are read-only.
    fn clear(&mut self) {}

    fn revision(&self) -> u64 {
        1
    }

    fn abilities(&self) -> StorageAbilities<'_> {
        StorageAbilities { partial_reads: Some(self), ..Default::default() }
    }
}

impl PartialReads for AtariStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        let has_frames = keys.iter().any(|key| match key.path() {
            [only] => only == "observation" || only == "next",
            [.., last] => last == "observation",
            [] => true,
        });
        let places = self.places(rows)?;
        let items = if has_frames { self.items(&places) } else { self.columns(&places) };
        Ok(items?.select_known(keys))
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        let places = self.places(rows)?;
        if places.len() > PART_ROWS {
            *out = self.items(&places)?;
            return Ok(());
        }
        // Nothing of `out` is touched before all is read. Readers at the same time have memory of their own.
        let mut other = Vec::new();
        let mut kept = self.pairs.try_lock().ok();
        let pairs = kept.as_deref_mut().unwrap_or(&mut other);
        self.read_pairs(&places, pairs)?;
        let mut items = self.columns(&places)?;
        let Some([mut now, mut then]) = self.memory(places.len(), out) else {
            *out = self.items(&places)?;
            return Ok(());
        };
        self.spread(pairs, now.as_mut_slice::<u8>()?, then.as_mut_slice::<u8>()?);
        items.set("observation", now)?;
        items.set(["next", "observation"], then)?;
        *out = items;
        Ok(())
    }
}

/// Descriptions of a folder in its `meta.json`.
#[derive(Deserialize)]
struct Leaf {
    shape: Vec<usize>,
    dtype: String,
}

impl Split {
    /// Opens the folder of a split; returns it with height and width of its frames.
    fn open(path: PathBuf, start: usize) -> Result<(Self, [usize; 2])> {
        let data = path.join("data");
        let leaf = leaf_of(&data.join("meta.json"), "observation")?;
        let frames_path = data.join("observation.memmap");
        let at_frames = |error: Error| error.at(frames_path.display());
        let (len, size) = match (leaf.shape.as_slice(), &*leaf.dtype) {
            (&[len, height, width], "torch.uint8") if len > 1 && height > 0 && width > 0 => {
                (len - 1, [height, width])
            }
            (_, dtype) => {
                let detail =
                    format!("frames must be uint8 [steps + 1, height, width]: got {dtype} {:?}", leaf.shape);
                return Err(at_frames(Error::new(ErrorKind::Incompatible, detail)));
            }
        };
        let frame_bytes = (size[0] as u64).saturating_mul(size[1] as u64);
        if frame_bytes > FRAME_BYTES_MAX {
            let detail = format!("a frame must have at most {FRAME_BYTES_MAX} bytes: got {frame_bytes}");
            return Err(at_frames(Error::new(ErrorKind::LimitExceeded, detail)));
        }
        let (frames, num_bytes) = open_regular(&frames_path)?;
        check_bytes(num_bytes, frame_bytes.saturating_mul(leaf.shape[0] as u64)).map_err(at_frames)?;
        let terminated = column(&data.join("next"), "terminated", &[Dtype::U8, Dtype::Bool], Some(len))?;
        let terminated = flags(&terminated.into()).map_err(|error| named(error, "terminated"))?;
        let split = Self {
            start,
            frames,
            action: column(&data, "action", &[Dtype::I32], Some(len))?.to_vec()?,
            reward: column(&data.join("next"), "reward", &[Dtype::F32], Some(len))?.to_vec()?,
            terminated: terminated.to_vec()?,
            metadata: metadata_in(&path)?,
            path,
        };
        Ok((split, size))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        read_exact_at(&self.frames, offset, bytes)
            .map_err(|error| error.at(self.path.join("data").join("observation.memmap").display()))
    }
}

/// Reads the metadata of a split.
fn metadata_in(path: &Path) -> Result<Value> {
    let numbers = |name: &str| column(path, name, &[Dtype::I64], None);
    let add_count = numbers("add_count")?.to_vec::<i64>()?;
    let [add_count] = *add_count else {
        let detail = format!("add_count must be one number: got {}", add_count.len());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(path.display()));
    };
    let invalid_range = numbers("invalid_range")?.to_vec::<i64>()?;
    let id = json_of(&path.join("dataset_id").join("meta.json"))?;
    Ok(json!({ "invalid_range": invalid_range, "add_count": add_count, "dataset_id": id["data"] }))
}

/// Reads a column of `len` rows, or a few numbers.
fn column(folder: &Path, name: &str, dtypes: &[Dtype], len: Option<usize>) -> Result<Tensor> {
    let leaf = leaf_of(&folder.join("meta.json"), name)?;
    let path = folder.join(format!("{name}.memmap"));
    let read = || {
        let torch_name = |dtype: Dtype| match dtype {
            Dtype::U8 => "torch.uint8",
            Dtype::Bool => "torch.bool",
            Dtype::I32 => "torch.int32",
            Dtype::F32 => "torch.float32",
            _ => "torch.int64",
        };
        let Some(dtype) = dtypes.iter().copied().find(|dtype| torch_name(*dtype) == leaf.dtype) else {
            let detail = format!("must be of dtype {}: got {}", dtypes[0].name(), leaf.dtype);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        if let Some(len) = len
            && leaf.shape != [len]
        {
            let detail = format!("must have {len} rows, as the frames: got shape {:?}", leaf.shape);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let num = fulmar_core::num_elements(&leaf.shape)?;
        if len.is_none() && num > ATARI_METADATA_LEN_MAX {
            let detail = format!("must have at most {ATARI_METADATA_LEN_MAX} numbers: got {num}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let want = (num as u64).saturating_mul(dtype.size_bytes() as u64);
        if want == 0 {
            return Tensor::zeros(dtype, &leaf.shape);
        }
        if want > COLUMN_BYTES_MAX {
            let detail = format!("must have at most {COLUMN_BYTES_MAX} bytes: got {want}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let (mut file, num_bytes) = open_regular(&path)?;
        check_bytes(num_bytes, want)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(&mut file, want), &mut bytes)?;
        check_bytes(bytes.len() as u64, want)?;
        Tensor::from_bytes(dtype, &leaf.shape, &bytes)
    };
    read().map_err(|error| at(error, &path))
}

fn check_bytes(got: u64, want: u64) -> Result<()> {
    if got == want {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("must have {want} bytes, as its description states: got {got}"),
    ))
}

fn leaf_of(path: &Path, name: &str) -> Result<Leaf> {
    let meta = json_of(path)?;
    Leaf::deserialize(&meta[name]).map_err(|error| {
        let detail = format!("must describe the tensor {name:?}: {error}");
        Error::new(ErrorKind::Corrupt, detail).because(error).at(path.display())
    })
}

fn json_of(path: &Path) -> Result<Value> {
    let (file, num_bytes) = open_regular(path)?;
    if num_bytes > MEMMAP_META_BYTES_MAX as u64 {
        let detail = format!("must have at most {MEMMAP_META_BYTES_MAX} bytes: got {num_bytes}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail).at(path.display()));
    }
    let file = std::io::Read::take(file, MEMMAP_META_BYTES_MAX as u64);
    serde_json::from_reader(std::io::BufReader::new(file)).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("must be JSON: {error}")).because(error).at(path.display())
    })
}

/// Returns the numbers that folders have as their names, in order.
fn split_numbers(folder: &Path) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<usize>().ok());
        numbers.extend(number.filter(|number| entry.file_name().to_str() == Some(&*number.to_string())));
        if numbers.len() > ATARI_SPLITS_MAX {
            let detail = format!("must have at most {ATARI_SPLITS_MAX} splits: it has more");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
    }
    numbers.sort_unstable();
    if numbers.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "must have folders of splits: it has none"));
    }
    Ok(numbers)
}
