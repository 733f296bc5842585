//! What a store asks of a disk.

use fulmar_core::Result;

/// A flat folder of named files that can be written at any place and made durable one by one.
///
/// [`FsDisk`](crate::FsDisk) is a folder of the file system, [`MemoryDisk`](crate::MemoryDisk) keeps files in memory and can
/// lose its power, [`FaultyDisk`](crate::FaultyDisk) fails where it is told to.
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
    /// The files with their lengths in bytes, in any order. Folders are not listed.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn list(&self) -> Result<Vec<(String, u64)>>;

    /// Fills `bytes` with what stands at `offset` of the file.
    ///
    /// # Errors
    /// `Io` if there is no such file, if it ends before, or if the system refuses.
    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()>;

    /// Makes the file at least `len` bytes long, the new ones zero, with space taken for them. Makes the file if there is
    /// none. File and length are durable afterwards.
    ///
    /// # Errors
    /// `Io`, with what was asked for and what is free, if there is no room.
    fn allocate(&self, name: &str, len: u64) -> Result<()>;

    /// Writes `bytes` at `offset` of a file that is long enough. Durable only after [`Disk::sync`].
    ///
    /// # Errors
    /// `Io` if the system refuses; then any part of `bytes` may have been written.
    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes all that was written to the file durable.
    ///
    /// # Errors
    /// `Io` if the system refuses; then nothing is known about what was written since the last sync.
    fn sync(&self, name: &str) -> Result<()>;

    /// Gives a file another name at once and durably, in place of the file that may have had it.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a file. It may come back when the power fails soon after.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn remove(&self, name: &str) -> Result<()>;

    /// Gives the file a second name, the same one in `folder`: it costs no copy where the disk can share contents.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn link(&self, name: &str, folder: &str) -> Result<()>;

    /// The disk of a folder below this one, made if there is none.
    ///
    /// # Errors
    /// `Io` if the system refuses.
    fn folder(&self, name: &str) -> Result<Box<dyn Disk>>;

    /// Takes the only lock of this folder, until the answer is dropped or the process ends.
    ///
    /// # Errors
    /// `Incompatible`, with who holds it, if it is taken; `Io` if the system refuses.
    fn lock(&self) -> Result<DiskLock>;
}

/// A lock that is given back when this is dropped.
pub type DiskLock = Box<dyn std::any::Any + Send + Sync>;
