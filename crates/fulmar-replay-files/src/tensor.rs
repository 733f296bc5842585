//! The plain format: each leaf is a file of all rows.

use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::folder::{corrupt, expect_json, read_elements, write_json};
use fulmar_replay::{Storage, StorageCheckpointer, StoredRows};
use fulmar_tensor::{TensorDict, from_torch_name, memmap};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::steps::{steps_of, written_rows};

/// The file with the number of written rows.
const METADATA: &str = "storage_metadata.json";

/// A folder of memory-mapped leaves, `[time, lanes..]` each, and `storage_metadata.json`. Rows that were
/// never written are zeros.
///
/// # Examples
/// ```
/// use fulmar_replay::{Storage, StorageCheckpointer, TensorStorage};
/// use fulmar_replay_files::TensorStorageCheckpointer;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = TensorStorage::new(&[4])?;
/// let mut items = TensorDict::new(&[2])?;
/// items.set("action", Tensor::from_vec(&[2], vec![7_i64, 8])?)?;
/// storage.set(&[0, 1], &items)?;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-tensor-storage-{}", std::process::id()));
/// TensorStorageCheckpointer.save(&storage, 2, &folder)?;
/// assert_eq!(TensorStorageCheckpointer.load(&[4], &folder)?.items, [items]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TensorStorageCheckpointer;

impl StorageCheckpointer for TensorStorageCheckpointer {
    fn save(&self, storage: &dyn Storage, _: usize, folder: &Path) -> Result<()> {
        memmap::save(folder, &steps_of(storage)?)?;
        write_len(storage.len(), folder)
    }

    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows> {
        let about = About::read(folder)?;
        let steps = if about.is_pytree { about.tree(folder)? } else { memmap::load(folder)? };
        let items = written_rows(&steps, about.len, shape).map_err(|error| error.at(folder.display()))?;
        Ok(StoredRows { items: vec![items], cursor: None })
    }
}

/// Stores in a folder of leaves that `len` rows are written.
///
/// # Errors
/// `Io` if the system refuses.
pub fn write_len(len: usize, folder: &Path) -> Result<()> {
    write_json(&folder.join(METADATA), &About { metadata: Map::new(), is_pytree: false, len })
}

/// Reads the number of written rows from a folder of leaves.
///
/// # Errors
/// `Corrupt` if the folder does not have it; `Io` if the system refuses.
pub fn read_len(folder: &Path) -> Result<usize> {
    Ok(About::read(folder)?.len)
}

#[derive(Debug, Serialize, Deserialize)]
struct About {
    /// The leaves of a tree that is not a dictionary of tensors, by their dotted path.
    metadata: Map<String, Value>,
    is_pytree: bool,
    len: usize,
}

#[derive(Deserialize)]
struct Leaf {
    dtype: String,
    shape: Vec<usize>,
}

impl About {
    fn read(folder: &Path) -> Result<Self> {
        expect_json(&folder.join(METADATA))
    }

    /// Returns a tree of lists and mappings as a dictionary: list positions become keys `"0"`, `"1"`.
    fn tree(&self, folder: &Path) -> Result<TensorDict> {
        let mut leaves = Vec::new();
        for (name, about) in &self.metadata {
            let leaf = Leaf::deserialize(about)
                .map_err(|error| {
                    corrupt(format!("a leaf must have a dtype and a shape: got {error}")).because(error)
                })
                .and_then(|leaf| read_leaf(name, &leaf, folder));
            leaves.push(leaf.map_err(|error| error.at(format!("{name:?}")))?);
        }
        let Some(rows) = leaves.first().and_then(|(_, tensor)| tensor.shape().first().copied()) else {
            return Err(corrupt("a tree must have a leaf with rows").at(folder.display()));
        };
        let mut dict = TensorDict::new(&[rows])?;
        for (key, tensor) in leaves {
            dict.set(key, tensor)?;
        }
        Ok(dict)
    }
}

fn read_leaf(name: &str, leaf: &Leaf, folder: &Path) -> Result<(Vec<String>, fulmar_tensor::Tensor)> {
    let path: Vec<String> = name.split('.').map(str::to_owned).collect();
    // A name becomes a path: a path outside of the folder is never opened.
    if path.iter().any(|part| part.is_empty() || part.contains(['/', '\\', ':'])) {
        let detail = "a name must be parts joined by points, without path separators";
        return Err(Error::new(ErrorKind::Forbidden, detail));
    }
    let file = folder.join(format!("{}.memmap", path.join("/")));
    Ok((path, read_elements(&file, from_torch_name(&leaf.dtype)?, &leaf.shape)?))
}
