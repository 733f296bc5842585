//! Atari DQN replay: the logs of agents that play Atari 2600 games, in splits of six compressed arrays each.
//!
//! ```text
//! $store$_observation_ckpt.K.gz [N, H, W] u8   data/observation [N + 1, H, W], the last frame zero
//! $store$_action_ckpt.K.gz      [N] i32        data/action [N]
//! $store$_reward_ckpt.K.gz      [N] f32        data/next/reward [N]
//! $store$_terminal_ckpt.K.gz    [N] u8         data/next/terminated [N]
//! add_count_ckpt.K.gz           [] i64         add_count
//! invalid_range_ckpt.K.gz       [any] i64      invalid_range
//! ```
//!
//! The folder of a split is TorchRL's: row `t + 1` of the frames is what follows row `t`, so each frame is stored once.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fulmar_core::{Dtype, Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{NonTensor, Tensor, TensorDict, memmap};
use serde_json::{Value, json};

use crate::npy::{GzArray, NpyHeader, cut, read_npy_gz};
use crate::rows::flags;

/// Most numbers of `add_count` and `invalid_range`.
pub(crate) const ATARI_METADATA_LEN_MAX: usize = 4096;

/// Bytes of frames that are in memory at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Converts the files of split `split` in the folder `source` to a folder that TorchRL opens as its own, and returns the number of
/// steps. Frames are written as they are inflated. `id` is the data set's, such as `Pong/1`. After an error there is no folder.
///
/// # Errors
/// `Io`, with the file, if it is missing, and if the system refuses, also if `folder` is there. With the file: `Corrupt` for what is not
/// a compressed array, is cut off, has another checksum, or more or fewer bytes than its header states; `Incompatible`, with both, for
/// another dtype; `ShapeMismatch`, with both lengths, for another number of rows than there are frames; `OutOfRange` for flags other
/// than 0 and 1; `Empty` without steps; `LimitExceeded` past the limits of [`NpyHeader`].
///
/// # Examples
/// ```
/// use fulmar_dataset::{AtariStorage, convert_atari_split};
/// use fulmar_replay::{ReplayBuffer, ReplayBufferOptions};
/// # let source = "../../tests/golden/dataset/raw/gs/atari-replay-datasets/dqn/Pong/1/replay_logs";
/// # let folder = std::env::temp_dir().join(format!("fulmar-doc-atari-{}", std::process::id()));
/// convert_atari_split(source, 0, "Pong/1", folder.join("0"))?;
/// let mut buffer = ReplayBuffer::new(Box::new(AtariStorage::open(&folder)?), ReplayBufferOptions::default())?;
/// assert_eq!(buffer.sample(Some(4))?.items.tensor("observation")?.shape(), [4, 84, 84]);
/// # drop(buffer);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn convert_atari_split(
    source: impl AsRef<Path>,
    split: usize,
    id: &str,
    folder: impl AsRef<Path>,
) -> Result<usize> {
    let (files, folder) = (SplitFiles { folder: source.as_ref(), split }, folder.as_ref());
    let mut frames = files.frames()?;
    let dict = files.columns(frames.num_steps(), id)?;
    let parent = folder.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| at(error.into(), parent))?;
    memmap::save(folder, &dict)?;
    let written = frames.write(&folder.join("data"));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(folder);
    }
    written.map_err(|error| error.at(frames.path.display()))?;
    Ok(frames.num_steps())
}

/// The files of a split.
struct SplitFiles<'a> {
    folder: &'a Path,
    split: usize,
}

impl SplitFiles<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}_ckpt.{}.gz", self.split))
    }

    /// Opens the frames, and reads their header.
    fn frames(&self) -> Result<Frames> {
        let path = self.path("$store$_observation");
        let open = || {
            let mut array = GzArray::new(open_regular(&path)?.0)?;
            let header = NpyHeader::read(&mut array)?;
            if header.dtype != Dtype::U8 || header.shape.len() != 3 {
                let got = format!("{} {:?}", header.dtype.name(), header.shape);
                let detail = format!("frames must be u8 [steps, height, width]: got {got}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            if header.shape.contains(&0) {
                let detail = format!("a split must have frames: got shape {:?}", header.shape);
                return Err(Error::new(ErrorKind::Empty, detail));
            }
            Ok((header, array))
        };
        let (header, array) = open().map_err(|error| at(error, &path))?;
        Ok(Frames { path, header, array })
    }

    /// Reads what is not frames, as TorchRL arranges it.
    fn columns(&self, num_steps: usize, id: &str) -> Result<TensorDict> {
        let mut data = TensorDict::new(&[])?;
        data.set("action", self.column("action", Dtype::I32, num_steps)?)?;
        data.set(["next", "reward"], self.column("reward", Dtype::F32, num_steps)?)?;
        data.set(["next", "terminated"], self.terminated(num_steps)?)?;
        let mut dict = TensorDict::new(&[])?;
        dict.set("data", data)?;
        for name in ["add_count", "invalid_range"] {
            dict.set(name, self.numbers(name)?)?;
        }
        dict.set("dataset_id", NonTensor::shared(Value::String(id.to_owned())))?;
        Ok(dict)
    }

    fn column(&self, name: &str, dtype: Dtype, num_steps: usize) -> Result<Tensor> {
        self.read(&format!("$store$_{name}"), |column| {
            check_dtype(column, dtype)?;
            if column.shape() == [num_steps] {
                return Ok(());
            }
            let detail = format!("must have {num_steps} rows, as the frames: got shape {:?}", column.shape());
            Err(Error::new(ErrorKind::ShapeMismatch, detail))
        })
    }

    /// Returns u8, also from bools.
    fn terminated(&self, num_steps: usize) -> Result<Tensor> {
        let name = "$store$_terminal";
        let column = self.read(name, |column| match column.dtype() {
            Dtype::Bool if column.shape() == [num_steps] => Ok(()),
            Dtype::U8 if column.shape() == [num_steps] => flags(&column.clone().into()).map(drop),
            Dtype::Bool | Dtype::U8 => {
                let got = column.shape();
                let detail = format!("must have {num_steps} rows, as the frames: got shape {got:?}");
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
            _ => check_dtype(column, Dtype::U8),
        })?;
        column.to(Dtype::U8)
    }

    fn numbers(&self, name: &str) -> Result<Tensor> {
        self.read(name, |numbers| {
            check_dtype(numbers, Dtype::I64)?;
            if numbers.num_elements() <= ATARI_METADATA_LEN_MAX {
                return Ok(());
            }
            let got = numbers.num_elements();
            let detail = format!("must have at most {ATARI_METADATA_LEN_MAX} numbers: got {got}");
            Err(Error::new(ErrorKind::LimitExceeded, detail))
        })
    }

    fn read(&self, name: &str, check: impl FnOnce(&Tensor) -> Result<()>) -> Result<Tensor> {
        let path = self.path(name);
        let read = || {
            let array = read_npy_gz(open_regular(&path)?.0)?;
            check(&array)?;
            Ok(array)
        };
        read().map_err(|error| at(error, &path))
    }
}

fn check_dtype(array: &Tensor, dtype: Dtype) -> Result<()> {
    if array.dtype() == dtype {
        return Ok(());
    }
    let detail = format!("must be of dtype {}: got {}", dtype.name(), array.dtype().name());
    Err(Error::new(ErrorKind::Incompatible, detail))
}

/// The frames of a split that are not read yet.
struct Frames {
    path: PathBuf,
    header: NpyHeader,
    array: GzArray<File>,
}

impl Frames {
    fn num_steps(&self) -> usize {
        self.header.shape[0]
    }

    /// Writes the frames and a zero one to `folder`, and adds them to its description.
    fn write(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join("observation.memmap");
        let mut file = File::create_new(&path)?;
        if self.header.is_row_major() {
            self.copy(&mut file)?;
        } else {
            self.header.elements(&mut self.array)?.write_bytes(&mut file)?;
        }
        let frame_bytes = self.header.shape[1] * self.header.shape[2];
        file.write_all(&vec![0; frame_bytes])?;
        file.sync_all()?;
        let mut shape = self.header.shape.clone();
        shape[0] += 1;
        describe(&folder.join("meta.json"), &shape)
    }

    fn copy(&mut self, file: &mut File) -> Result<()> {
        let num_bytes = self.header.size_bytes()?;
        let (mut left, mut chunk) = (num_bytes, vec![0; CHUNK_BYTES.min(num_bytes)]);
        while left > 0 {
            let most = left.min(chunk.len());
            let len = self.array.read(&mut chunk[..most]).map_err(cut)?;
            if len == 0 {
                let detail = format!("an array must have {num_bytes} bytes: got {}", num_bytes - left);
                return Err(Error::new(ErrorKind::Corrupt, detail));
            }
            file.write_all(&chunk[..len])?;
            left -= len;
        }
        self.header.check_end(&mut self.array)
    }
}

/// Adds the frames to the description of a folder.
fn describe(path: &Path, shape: &[usize]) -> Result<()> {
    let mut meta: Value = serde_json::from_slice(&fs::read(path)?).unwrap_or_default();
    meta["observation"] =
        json!({ "device": "cpu", "shape": shape, "dtype": "torch.uint8", "is_nested": false });
    let mut file = File::create(path)?;
    file.write_all(meta.to_string().as_bytes())?;
    Ok(file.sync_all()?)
}

/// Adds the file to an error, unless it has it: those of opening do.
pub(crate) fn at(error: Error, path: &Path) -> Error {
    let path = path.display().to_string();
    if error.to_string().contains(&path) { error } else { error.at(path) }
}
