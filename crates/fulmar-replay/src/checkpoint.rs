//! Checkpoint folders of buffers in TorchRL's layout.
//!
//! A [`StorageCheckpointer`] is one format of the rows in such a folder.
//! [`ReplayBuffer::dumps`](crate::ReplayBuffer::dumps) adds the folders of sampler and writer. Nothing is
//! ever pickled, and no pickle is read.

use std::path::Path;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;

use crate::Storage;
use crate::read::count_of;

pub(crate) mod ensemble;
pub mod folder;
pub(crate) mod parts;

/// A format of the folder of a storage. The crate `fulmar-replay-files` has those of TorchRL.
///
/// # Examples
/// ```
/// use std::path::Path;
/// use fulmar_core::Result;
/// use fulmar_replay::{ReplayBuffer, Storage, StorageCheckpointer, StoredRows, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
///
/// struct Leaves;
///
/// impl StorageCheckpointer for Leaves {
///     fn save(&self, storage: &dyn Storage, _: usize, folder: &Path) -> Result<()> {
///         memmap::save(folder, &storage.get(&(0..storage.len()).collect::<Vec<_>>())?)
///     }
///     fn load(&self, _: &[usize], folder: &Path) -> Result<StoredRows> {
///         Ok(StoredRows { items: vec![memmap::load(folder)?], cursor: None })
///     }
/// }
///
/// let buffer = || ReplayBuffer::new(Box::new(TensorStorage::new(&[8])?), Default::default());
/// let (mut one, mut other) = (buffer()?, buffer()?);
/// let mut items = TensorDict::new(&[3])?;
/// items.set("action", Tensor::from_vec(&[3], vec![4_i64, 5, 6])?)?;
/// one.extend(&items)?;
/// let path = std::env::temp_dir().join(format!("fulmar-doc-dumps-{}", std::process::id()));
/// one.dumps(&path, &Leaves)?;
/// other.loads(&path, &Leaves)?;
/// assert_eq!(other.sample(Some(2))?, one.sample(Some(2))?);
/// # std::fs::remove_dir_all(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait StorageCheckpointer: Send + Sync {
    /// Writes `storage` as `folder`, which must not exist, inside an existing folder. `cursor` is the time
    /// step that is written next.
    ///
    /// # Errors
    /// `Io` if the system refuses; an error that names a leaf that the format cannot store. After an error a
    /// part of the folder may exist.
    fn save(&self, storage: &dyn Storage, cursor: usize, folder: &Path) -> Result<()>;

    /// Reads the rows of a storage of `shape` from `folder`.
    ///
    /// # Errors
    /// `Io` if the system refuses; with the file or the leaf, `Corrupt` if it is damaged or has another
    /// format, `Incompatible` for another shape, `LimitExceeded` past a limit.
    fn load(&self, shape: &[usize], folder: &Path) -> Result<StoredRows>;
}

/// The rows in a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRows {
    /// Every row in order, in batches of similar rows.
    pub items: Vec<TensorDict>,
    /// The time step that is written next, if the format stores it.
    pub cursor: Option<usize>,
}

impl StoredRows {
    /// Returns the rows of `storage` one by one, which may differ in their leaves.
    ///
    /// # Errors
    /// The errors of [`Storage::get`].
    pub fn of(storage: &dyn Storage) -> Result<Self> {
        let items = (0..storage.len()).map(|row| storage.get(&[row])).collect::<Result<_>>()?;
        Ok(Self { items, cursor: None })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.iter().map(count_of).sum()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the content of `storage` by the rows.
    ///
    /// # Errors
    /// `OutOfRange` if there is no room for them; the errors of [`Storage::set`], after which rows are
    /// missing.
    pub fn put(&self, storage: &mut dyn Storage) -> Result<()> {
        if self.len() > storage.capacity() {
            let detail =
                format!("rows must be at most {}, the capacity: got {}", storage.capacity(), self.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        storage.clear();
        let mut start = 0;
        for items in self.items.iter().filter(|items| count_of(items) > 0) {
            let rows: Vec<usize> = (start..start + count_of(items)).collect();
            storage.set(&rows, items)?;
            start += rows.len();
        }
        Ok(())
    }
}
