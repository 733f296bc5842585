//! Copies of a store that cost only the open segment.

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::Disk;
use crate::layout::{SUPERBLOCK_NAMES, segment_name, segment_number, table_name, table_number};
use crate::store::Store;
use crate::superblock::free_log_name;

/// Bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The cost of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Full segments that the checkpoint shares with the store.
    pub num_linked: u32,
    /// Bytes of the open segment that were copied.
    pub copied_bytes: u64,
    /// The number of the row after the last one in it.
    pub end_seq: u64,
}

impl Store {
    /// Copies the current store to a new folder called `name` below its own; the copy is a store and is
    /// opened like one. Full segments are shared, the open one is copied. The last step renames the
    /// superblock, so the folder holds either the whole checkpoint or no store.
    ///
    /// # Errors
    /// `Malformed` if `name` is empty, contains other characters than letters, digits, `-`, `_` and `.`, or
    /// begins with a dot; `Incompatible` if that folder already has a store; `Io` and `Closed` as for
    /// [`Store::commit`]: the folder then holds no store, and the call may be repeated.
    ///
    /// # Examples
    /// ```
    /// use fulmar_store::{Disk, MemoryDisk, Store, StoreOptions};
    /// let disk = MemoryDisk::default();
    /// let mut store = Store::open(disk.clone(), &StoreOptions::new(8))?;
    /// store.append(&[b"one"])?;
    /// assert_eq!(store.checkpoint("step-1")?.end_seq, 1);
    /// store.append(&[b"two"])?;
    /// let copy = Store::open(disk.subfolder("step-1"), &StoreOptions::new(8))?;
    /// assert_eq!((store.len(), copy.len()), (2, 1));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn checkpoint(&mut self, name: &str) -> Result<CheckpointStats> {
        check_name(name)?;
        self.begin_write()?;
        self.flush()?;
        self.make_durable()?;
        let target = self.disk.folder(name)?;
        let leftovers = target.list()?;
        if leftovers.iter().any(|(file, _)| SUPERBLOCK_NAMES.contains(&file.as_str())) {
            let detail = format!("a checkpoint must go to a folder without a store: got {name:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let store_id = self.superblocks.newest.store_id;
        // Only leftovers of an earlier attempt: the folder may hold other files.
        for (file, _) in &leftovers {
            if segment_number(file).is_some() || table_number(file).is_some() {
                free_log_name(&*target, file, store_id)?;
            }
        }
        let files = self.disk.list()?;
        let first = self.superblocks.newest.first_segment;
        let mut num_linked = 0;
        for (file, _) in &files {
            let is_full = |number: u32| (first..self.head.segment).contains(&number);
            let is_segment = segment_number(file).is_some_and(is_full);
            // One of them may be missing in a damaged store.
            if is_segment || table_number(file).is_some_and(is_full) && !file.ends_with(".tmp") {
                self.disk.link(file, name)?;
                num_linked += u32::from(is_segment);
            }
        }
        let copied_bytes = u64::from(self.head.offset);
        self.copy_open(&*target, &segment_name(self.head.segment), copied_bytes)?;
        self.copy_open(&*target, &table_name(self.head.segment), self.tables.len())?;
        self.superblocks.publish(&*target, &self.superblock())?;
        Ok(CheckpointStats { num_linked, copied_bytes, end_seq: self.durable_seq })
    }

    /// Copies the first `len` bytes of a file that is still being written.
    fn copy_open(&self, target: &dyn Disk, name: &str, len: u64) -> Result<()> {
        target.allocate(name, len)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < len {
            let chunk = &mut bytes[..(len - offset).min(CHUNK_BYTES as u64) as usize];
            self.disk.read_at(name, offset, chunk)?;
            target.write_at(name, offset, chunk)?;
            offset += chunk.len() as u64;
        }
        target.sync(name)
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        let detail = format!("name must be letters, digits, '-', '_' and '.', not first: got {name:?}");
        return Err(Error::new(ErrorKind::Malformed, detail));
    }
    Ok(())
}
