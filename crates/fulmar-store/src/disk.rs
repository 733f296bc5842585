//! The interface of a store to its disk.

use fulmar_core::Result;

/// A flat folder of named files that can be written at any place and made durable one by one.
///
/// [`FsDisk`](crate::FsDisk) is a folder of the file system, [`MemoryDisk`](crate::MemoryDisk) keeps files in
/// memory and can simulate a loss of power, [`FaultyDisk`](crate::FaultyDisk) injects failures.
///
/// # Examples
/// ```
/// use fulmar_store::{Disk, MemoryDisk};
/// let disk = MemoryDisk::default();
/// disk.allocate("a", 4)?;
/// disk.write_at("a", 1, &[7])?;
/// let mut bytes = [9; 4];
/// disk.read_at("a", 0, &mut bytes)?;
/// assert_eq!(bytes, [0, 7, 0, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait Disk: Send + Sync {
    /// Returns the files with their lengths in bytes, in any order. Folders are not listed.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn list(&self) -> Result<Vec<(String, u64)>>;

    /// Reads `bytes` at `offset` of the file.
    ///
    /// # Errors
    /// `Io` if there is no such file, if it ends before, or if the system refuses.
    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Extends the file to at least `len` bytes, the new ones zero, with space allocated. Makes the file if
    /// it does not exist. File and length are durable afterwards.
    ///
    /// # Errors
    /// `Io`, with the requested and the free size, if there is no room.
    fn allocate(&self, name: &str, len: u64) -> Result<()>;

    /// Writes `bytes` at `offset` of a file that is long enough. Durable only after [`Disk::sync`].
    ///
    /// # Errors
    /// `Io` if the system refuses; then any part of `bytes` may have been written.
    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes all writes to the file durable.
    ///
    /// # Errors
    /// `Io` if the system refuses; then the state of the writes since the last sync is unknown.
    fn sync(&self, name: &str) -> Result<()>;

    /// Renames a file atomically and durably, replacing any file of the new name.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. It may reappear after a loss of power.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn remove(&self, name: &str) -> Result<()>;

    /// Adds a link to the file, of the same name in `folder`; no copy if the disk can share contents.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn link(&self, name: &str, folder: &str) -> Result<()>;

    /// Returns the disk of a folder below this one; makes it if necessary.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn folder(&self, name: &str) -> Result<Box<dyn Disk>>;

    /// Takes the only lock of this folder, until the result is dropped or the process ends.
    ///
    /// # Errors
    /// `Incompatible`, with the holder, if it is taken; `Io` if the system refuses.
    fn lock(&self) -> Result<DiskLock>;
}

/// A lock that is released when this is dropped.
pub type DiskLock = Box<dyn std::any::Any + Send + Sync>;
