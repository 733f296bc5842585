//! A format of checkpoints for tests: the rows of a storage as one folder of leaves.

use std::path::Path;

use fulmar_core::Result;
use fulmar_replay::{Storage, StorageCheckpointer, StoredRows};
use fulmar_tensor::memmap;

pub struct PlainRows;

impl StorageCheckpointer for PlainRows {
    fn save(&self, storage: &dyn Storage, _: usize, folder: &Path) -> Result<()> {
        memmap::save(folder, &storage.get(&(0..storage.len()).collect::<Vec<_>>())?)
    }

    fn load(&self, _: &[usize], folder: &Path) -> Result<StoredRows> {
        Ok(StoredRows { items: vec![memmap::load(folder)?], cursor: None })
    }
}
