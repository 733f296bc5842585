//! The formats that store each trajectory's observations once.

use std::fs;
use std::path::Path;

use fulmar_core::limits::HDF5_FILE_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::folder::{corrupt, read_bytes};
use fulmar_replay::{Storage, StorageCheckpointer, StoredRows};
use fulmar_ted::{
    Ring, TedKeys, flat_to_ted, hdf5_combine, hdf5_split, nested_to_ted, read_hdf5, ted_to_flat,
    ted_to_nested, write_hdf5,
};
use fulmar_tensor::{TensorDict, memmap, replace_file};

use crate::steps::{steps_of, written_rows};
use crate::tensor::{read_len, write_len};

/// The first bytes of every HDF5 file.
const HDF5_MAGIC: &[u8] = b"\x89HDF\r\n\x1a\n";

/// A folder of memory-mapped leaves with all trajectories in sequence, the oldest first, see [`ted_to_flat`].
/// Not for items whose next observation differs from the observation of the next step.
///
/// # Examples
/// ```
/// use fulmar_replay::{Storage, StorageCheckpointer, TensorStorage};
/// use fulmar_replay_files::FlatStorageCheckpointer;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = TensorStorage::new(&[4])?;
/// let mut items = TensorDict::new(&[2])?;
/// items.set("observation", Tensor::from_vec(&[2], vec![7_i64, 8])?)?;
/// items.set("done", Tensor::from_vec(&[2, 1], vec![false; 2])?)?;
/// items.set(["next", "observation"], Tensor::from_vec(&[2], vec![8_i64, 9])?)?;
/// items.set(["next", "done"], Tensor::from_vec(&[2, 1], vec![false, true])?)?;
/// storage.set(&[0, 1], &items)?;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-flat-storage-{}", std::process::id()));
/// let flat = FlatStorageCheckpointer::default();
/// flat.save(&storage, 2, &folder)?;
/// assert_eq!(flat.load(&[4], &folder)?.items, [items]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlatStorageCheckpointer {
    /// The entries below `"next"` that are not observations.
    pub keys: TedKeys,
}

impl StorageCheckpointer for FlatStorageCheckpointer {
    fn save(&self, storage: &dyn Storage, cursor: usize, folder: &Path) -> Result<()> {
        memmap::save(folder, &ted_to_flat(&steps_of(storage)?, ring_of(storage, cursor), &self.keys)?)?;
        write_len(storage.len(), folder)
    }

    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows> {
        let flat = memmap::load(folder)?;
        let read = || of_ring(flat_to_ted(&flat, &self.keys)?, Some(read_len(folder)?), shape);
        read().map_err(|error| error.at(folder.display()))
    }
}

/// Like [`FlatStorageCheckpointer`], with a ragged row for each trajectory, see [`ted_to_nested`].
///
/// # Examples
/// ```
/// let form = fulmar_replay_files::NestedStorageCheckpointer::default();
/// assert_eq!(form.keys.done, "done".into());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NestedStorageCheckpointer {
    /// The entries below `"next"` that are not observations.
    pub keys: TedKeys,
}

impl StorageCheckpointer for NestedStorageCheckpointer {
    fn save(&self, storage: &dyn Storage, cursor: usize, folder: &Path) -> Result<()> {
        memmap::save(folder, &ted_to_nested(&steps_of(storage)?, ring_of(storage, cursor), &self.keys)?)?;
        write_len(storage.len(), folder)
    }

    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows> {
        let nested = memmap::load(folder)?;
        let read = || of_ring(nested_to_ted(&nested, &self.keys)?, Some(read_len(folder)?), shape);
        read().map_err(|error| error.at(folder.display()))
    }
}

/// An HDF5 file with a group for each trajectory, see [`hdf5_split`].
///
/// # Examples
/// ```
/// let form = fulmar_replay_files::H5StorageCheckpointer::default();
/// assert_eq!(form.file, "checkpoint.h5");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H5StorageCheckpointer {
    /// The name of the file in the folder.
    pub file: String,
    /// The entries below `"next"` that are not observations.
    pub keys: TedKeys,
}

impl Default for H5StorageCheckpointer {
    fn default() -> Self {
        Self { file: "checkpoint.h5".to_owned(), keys: TedKeys::default() }
    }
}

impl StorageCheckpointer for H5StorageCheckpointer {
    fn save(&self, storage: &dyn Storage, cursor: usize, folder: &Path) -> Result<()> {
        let nested = ted_to_nested(&steps_of(storage)?, ring_of(storage, cursor), &self.keys)?;
        let bytes = write_hdf5(&hdf5_split(&nested, &self.keys)?)?;
        fs::create_dir(folder)?;
        replace_file(folder.join(&self.file), |writer| Ok(writer.write_all(&bytes)?))
    }

    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows> {
        let path = folder.join(&self.file);
        let bytes = read_bytes(&path, HDF5_MAGIC, HDF5_FILE_BYTES_MAX)?;
        let read = || {
            of_ring(nested_to_ted(&hdf5_combine(&read_hdf5(&bytes)?, &self.keys)?, &self.keys)?, None, shape)
        };
        read().map_err(|error| error.at(path.display()))
    }
}

/// Returns the ring of `storage`. A ring that is not full begins with row 0, whatever the cursor.
fn ring_of(storage: &dyn Storage, cursor: usize) -> Ring {
    let is_full = storage.len() == storage.capacity();
    let lanes: usize = storage.shape()[1..].iter().product();
    Ring { cursor: if is_full { cursor } else { storage.len() / lanes.max(1) }, is_full }
}

/// Returns the written rows of steps after checking that there are `len`.
fn of_ring((steps, ring): (TensorDict, Ring), len: Option<usize>, shape: &[usize]) -> Result<StoredRows> {
    if steps.batch_size().get(..shape.len()) != Some(shape) {
        let detail =
            format!("the folder must be of a storage of shape {shape:?}: got {:?}", steps.batch_size());
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let written = ring.written(shape[0])? * shape[1..].iter().product::<usize>();
    if let Some(len) = len.filter(|len| *len != written) {
        return Err(corrupt(format!("len must be {written}, the length of the ring: got {len}")));
    }
    let items = written_rows(&steps, written, shape)?;
    Ok(StoredRows { items: vec![items], cursor: Some(ring.cursor) })
}
