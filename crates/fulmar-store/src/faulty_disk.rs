//! A disk with injected failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::{Disk, DiskLock};

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error before anything is done.
    Io,
    /// No space: nothing is done.
    Full,
    /// A write stops after half of its bytes; any other operation is not done.
    ShortWrite,
}

/// A [`Disk`] over another one, in which one of the operations (reads, writes, allocations, syncs, renames,
/// removals, links) fails.
///
/// # Examples
/// ```
/// use fulmar_store::{Disk, Fault, FaultyDisk, MemoryDisk};
/// let disk = FaultyDisk::new(MemoryDisk::default(), 1, Fault::Full);
/// disk.allocate("a", 1)?;
/// assert!(disk.write_at("a", 0, &[1]).unwrap_err().detail().contains("no space left"));
/// disk.write_at("a", 0, &[1])?;
/// assert_eq!(disk.num_ops(), 3);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FaultyDisk<D> {
    inner: D,
    num_ops: Arc<AtomicU64>,
    fails_at: u64,
    fault: Fault,
}

impl<D: Disk> FaultyDisk<D> {
    /// Wraps `inner`; its operation number `fails_at`, counted from 0, fails with `fault`.
    pub fn new(inner: D, fails_at: u64, fault: Fault) -> Self {
        Self { inner, num_ops: Arc::default(), fails_at, fault }
    }

    /// Returns the number of operations so far.
    pub fn num_ops(&self) -> u64 {
        self.num_ops.load(Ordering::Relaxed)
    }

    fn count(&self) -> Result<()> {
        if self.num_ops.fetch_add(1, Ordering::Relaxed) != self.fails_at {
            return Ok(());
        }
        let detail = match self.fault {
            Fault::Io => "input/output error",
            Fault::Full => "no space left on device",
            Fault::ShortWrite => "short write",
        };
        Err(Error::new(ErrorKind::Io, detail))
    }
}

impl<D: Disk> Disk for FaultyDisk<D> {
    fn list(&self) -> Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.count()?;
        self.inner.read_at(name, offset, bytes)
    }

    fn allocate(&self, name: &str, len: u64) -> Result<()> {
        self.count()?;
        self.inner.allocate(name, len)
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.count() {
            if self.fault == Fault::ShortWrite {
                self.inner.write_at(name, offset, &bytes[..bytes.len() / 2])?;
            }
            return Err(error);
        }
        self.inner.write_at(name, offset, bytes)
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.count()?;
        self.inner.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.count()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.count()?;
        self.inner.remove(name)
    }

    fn link(&self, name: &str, folder: &str) -> Result<()> {
        self.count()?;
        self.inner.link(name, folder)
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Disk>> {
        self.inner.folder(name)
    }

    fn lock(&self) -> Result<DiskLock> {
        self.inner.lock()
    }
}
