//! The format of rows that may differ.

use std::fs;
use std::path::Path;

use fulmar_core::Result;
use fulmar_replay::folder::corrupt;
use fulmar_replay::{Storage, StorageCheckpointer, StoredRows};
use fulmar_tensor::{Entry, TensorDict, consolidated};

/// One consolidated file, `rows.consolidated`: a dictionary of the rows by index. Upstream cannot save such a
/// storage; its `TensorDict.from_consolidated` reads the file.
///
/// # Examples
/// ```
/// use fulmar_replay::{ListStorage, Storage, StorageCheckpointer};
/// use fulmar_replay_files::ListStorageCheckpointer;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut storage = ListStorage::new(4)?;
/// for (row, len) in [1, 3].into_iter().enumerate() {
///     let mut item = TensorDict::new(&[])?;
///     item.set("tokens", Tensor::from_vec(&[len], vec![7_i64; len])?)?;
///     storage.set(&[row], &item.unsqueeze(0)?)?;
/// }
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-list-storage-{}", std::process::id()));
/// ListStorageCheckpointer.save(&storage, 2, &folder)?;
/// let rows = ListStorageCheckpointer.load(&[4], &folder)?;
/// assert_eq!(rows.items, [storage.get(&[0])?, storage.get(&[1])?]);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListStorageCheckpointer;

const FILE: &str = "rows.consolidated";

impl StorageCheckpointer for ListStorageCheckpointer {
    fn save(&self, storage: &dyn Storage, _: usize, folder: &Path) -> Result<()> {
        let mut rows = TensorDict::new(&[])?;
        for (row, items) in StoredRows::of(storage)?.items.into_iter().enumerate() {
            rows.set(row.to_string().as_str(), items)?;
        }
        fs::create_dir(folder)?;
        consolidated::save(folder.join(FILE), &rows)
    }

    fn load(&self, _: &[usize], folder: &Path) -> Result<StoredRows> {
        let path = folder.join(FILE);
        let rows = consolidated::load(&path)?;
        let row = |row: usize| match rows.get(row.to_string().as_str()) {
            Some(Entry::Dict(items)) if items.batch_size().first() == Some(&1) => Ok(items.clone()),
            _ => Err(corrupt(format!("row {row} must be a dictionary of one item"))),
        };
        let items = (0..rows.num_entries()).map(row).collect::<Result<Vec<_>>>();
        Ok(StoredRows { items: items.map_err(|error| error.at(path.display()))?, cursor: None })
    }
}
