//! The second copy of headers and tables, in a file for each segment.

use fulmar_core::Result;

use crate::disk::Disk;
use crate::layout::{HEADER_BYTES, table_name, unfinished_table_name};

/// Initial length of a file; it doubles when it is full, since each growth is synced.
const FILE_BYTES_MIN: u64 = 4096;

/// The table copy of the current segment, and copies that wait until their groups are durable.
#[derive(Debug, Default)]
pub struct Tables {
    segment: u32,
    /// Size of the written copies in bytes.
    len: u64,
    file_len: u64,
    waiting: Vec<u8>,
    is_synced: bool,
}

impl Tables {
    /// Returns the copy of segment `segment`, which does not exist yet.
    pub fn new(segment: u32) -> Self {
        Self { segment, is_synced: true, ..Self::default() }
    }

    /// Returns the copy of segment `segment`, whose file must hold `bytes`: replaces it otherwise, as a crash
    /// or damage removed a part.
    pub fn restored(disk: &dyn Disk, segment: u32, bytes: &[u8]) -> Result<Self> {
        let name = table_name(segment);
        let file = disk.list()?.into_iter().find(|(file, _)| *file == name);
        let file_len = file.map_or(0, |(_, len)| len);
        let len = bytes.len() as u64;
        let restored = Self { segment, len, file_len, is_synced: false, ..Self::default() };
        if file_len >= len {
            let mut found = vec![0; bytes.len()];
            if len > 0 {
                disk.read_at(&name, 0, &mut found)?;
            }
            if found == bytes {
                return Ok(restored);
            }
        }
        let unfinished = unfinished_table_name(segment);
        disk.allocate(&unfinished, len.max(FILE_BYTES_MIN))?;
        disk.write_at(&unfinished, 0, bytes)?;
        disk.sync(&unfinished)?;
        disk.rename(&unfinished, &name)?;
        Ok(Self { file_len: len.max(FILE_BYTES_MIN), ..restored })
    }

    /// Adds the header and the table of a written group.
    pub fn push(&mut self, group: &[u8]) {
        self.waiting.extend_from_slice(group);
        self.waiting.resize(self.waiting.len().next_multiple_of(HEADER_BYTES as usize), 0);
    }

    /// Writes the copies of the added groups, all of which must be durable, so a copy proves that its group
    /// is.
    pub fn write(&mut self, disk: &dyn Disk) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let name = table_name(self.segment);
        let end = self.len + self.waiting.len() as u64;
        if end > self.file_len {
            let file_len = end.max(2 * self.file_len).max(FILE_BYTES_MIN);
            disk.allocate(&name, file_len)?;
            self.file_len = file_len;
        }
        disk.write_at(&name, self.len, &self.waiting)?;
        self.len = end;
        self.waiting.clear();
        self.is_synced = false;
        Ok(())
    }

    /// Makes the copies durable. Returns whether a sync was necessary.
    pub fn sync(&mut self, disk: &dyn Disk) -> Result<bool> {
        if self.is_synced || self.len == 0 {
            return Ok(false);
        }
        disk.sync(&table_name(self.segment))?;
        self.is_synced = true;
        Ok(true)
    }

    /// Returns whether all added groups are written.
    pub fn is_written(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the size of the written copies in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
}
