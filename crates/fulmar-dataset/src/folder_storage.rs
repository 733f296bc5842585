//! Rows of a folder of memory-mapped leaves, of which long columns stay in their files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements, open_regular, read_exact_at};
use fulmar_replay::{PartialReads, Storage, StorageAbilities};
use fulmar_tensor::{Key, Tensor, TensorDict, memmap};

/// The rows of a folder that a conversion made. Columns of up to so many bytes are in memory; rows of longer ones, such as images, are read from
/// their files when they are drawn, so that a data set may be larger than memory. The rows cannot be written.
///
/// # Examples
/// ```
/// use fulmar_dataset::FolderStorage;
/// use fulmar_replay::{ReplayBuffer, ReplayBufferOptions};
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("image", Tensor::from_vec(&[3, 2], vec![0_u8, 0, 1, 1, 2, 2])?)?;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-folder-storage-{}", std::process::id()));
/// memmap::save(&folder, &steps)?;
/// let storage = FolderStorage::open(&folder, 4)?; // `image` has 6 bytes, so it stays in its file
/// let mut buffer = ReplayBuffer::new(Box::new(storage), ReplayBufferOptions::default())?;
/// assert_eq!(buffer.sample(Some(4))?.items.tensor("image")?.shape(), [4, 2]);
/// # drop(buffer);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FolderStorage {
    shape: [usize; 1],
    /// Columns in memory.
    rows: TensorDict,
    columns: Arc<[Column]>,
}

/// A column in its file.
#[derive(Debug)]
struct Column {
    key: Key,
    dtype: Dtype,
    row_shape: Vec<usize>,
    row_bytes: usize,
    file: File,
    path: PathBuf,
}

impl FolderStorage {
    /// Opens a folder; columns of more than `column_bytes_max` bytes stay in their files.
    ///
    /// # Errors
    /// The errors of [`memmap::load_up_to`]; `ShapeMismatch` for rows without a batch size, and, with the key, for a column that does not begin with it;
    /// `LimitExceeded` for a row that does not fit in memory.
    pub fn open(folder: impl AsRef<Path>, column_bytes_max: u64) -> Result<Self> {
        let folder = folder.as_ref();
        let (rows, leaves) = memmap::load_up_to(folder, column_bytes_max)?;
        let Some(&len) = rows.batch_size().first() else {
            let error = Error::new(ErrorKind::ShapeMismatch, "rows must have a batch size: they have none");
            return Err(error.at(folder.display()));
        };
        let columns = leaves.into_iter().map(|leaf| {
            let key = leaf.key.clone();
            Column::open(leaf, rows.batch_size()).map_err(|error| error.at(key).at(folder.display()))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?.into();
        Ok(Self { shape: [len], rows, columns })
    }

    /// Returns rows; of keys that are not asked for, those in memory too.
    fn items(&self, rows: &[usize], keys: Option<&[Key]>) -> Result<TensorDict> {
        if let Some(row) = rows.iter().find(|row| **row >= self.shape[0]) {
            let detail = format!("row must be < {}, the number of rows: got {row}", self.shape[0]);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let is_wanted = |column: &Column| {
            let has = |key: &Key| column.key.path().starts_with(key.path());
            keys.is_none_or(|keys| keys.iter().any(has))
        };
        let mut items = match keys {
            Some(keys) => self.rows.select_known(keys).index_select(rows)?,
            None => self.rows.index_select(rows)?,
        };
        for column in self.columns.iter().filter(|column| is_wanted(column)) {
            items.set(column.key.clone(), column.read(rows)?)?;
        }
        Ok(items)
    }
}

impl Column {
    fn open(leaf: memmap::FileLeaf, batch_size: &[usize]) -> Result<Self> {
        if !leaf.shape.starts_with(batch_size) {
            let detail = format!("must begin with the batch size {batch_size:?}: got {:?}", leaf.shape);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let row_shape = leaf.shape[1..].to_vec();
        let Some(row_bytes) = num_elements(&row_shape)?.checked_mul(leaf.dtype.size_bytes()) else {
            return Err(Error::new(ErrorKind::LimitExceeded, "a row must fit in memory: it does not"));
        };
        let (file, _) = open_regular(&leaf.path)?;
        Ok(Self { key: leaf.key, dtype: leaf.dtype, row_shape, row_bytes, file, path: leaf.path })
    }

    /// Reads rows; those that follow one another at once.
    fn read(&self, rows: &[usize]) -> Result<Tensor> {
        let shape: Vec<_> = std::iter::once(rows.len()).chain(self.row_shape.iter().copied()).collect();
        let mut bytes = vec![0; num_elements(&shape)? * self.dtype.size_bytes()];
        let mut left = bytes.as_mut_slice();
        for run in rows.chunk_by(|row, next| row + 1 == *next) {
            let (part, rest) = left.split_at_mut(run.len() * self.row_bytes);
            let offset = (run[0] as u64).saturating_mul(self.row_bytes as u64);
            read_exact_at(&self.file, offset, part).map_err(|error| error.at(self.path.display()))?;
            left = rest;
        }
        Tensor::from_bytes(self.dtype, &shape, &bytes).map_err(|error| error.at(self.path.display()))
    }
}

impl Storage for FolderStorage {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn len(&self) -> usize {
        self.shape[0]
    }

    fn set(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Err(Error::new(ErrorKind::Forbidden, "rows of a data set must not be written: they are read-only"))
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        self.items(rows, None)
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

impl PartialReads for FolderStorage {
    fn read_keys(&self, rows: &[usize], keys: &[Key]) -> Result<TensorDict> {
        self.items(rows, Some(keys))
    }

    fn read_into(&self, rows: &[usize], out: &mut TensorDict) -> Result<()> {
        *out = self.items(rows, None)?;
        Ok(())
    }
}
