//! A disk that ignores some syncs, to check that the torture notices.

use fulmar_core::Result;
use fulmar_store::{Disk, DiskLock, MemoryDisk};

/// The syncs that are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    Sync,
    SyncOfSegments,
    SyncOfSuperblocks,
}

pub struct LyingDisk {
    pub inner: MemoryDisk,
    pub lie: Lie,
}

impl Disk for LyingDisk {
    fn sync(&self, name: &str) -> Result<()> {
        let is_segment = name.starts_with("seg-");
        let is_lie = match self.lie {
            Lie::Sync => true,
            Lie::SyncOfSegments => is_segment,
            Lie::SyncOfSuperblocks => !is_segment,
        };
        if is_lie { Ok(()) } else { self.inner.sync(name) }
    }

    fn list(&self) -> Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, bytes)
    }

    fn allocate(&self, name: &str, len: u64) -> Result<()> {
        self.inner.allocate(name, len)
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(name, offset, bytes)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn link(&self, name: &str, folder: &str) -> Result<()> {
        self.inner.link(name, folder)
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Disk>> {
        self.inner.folder(name)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner.lock()
    }
}
