//! A folder of the file system.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::{Disk, DiskLock};
use crate::layout::{LOCK_NAME, is_store_name};

/// Maximum number of open files; the oldest names are reopened when needed.
const OPEN_FILES_MAX: usize = 128;

/// The beginning of a lock file held by a writer.
const LOCK_MAGIC: &str = "process ";
/// Maximum size of the lock file in bytes.
const LOCK_BYTES_MAX: u64 = 256;

/// A [`Disk`] in a folder. The path may contain symbolic links; inside the folder none is followed, and a
/// store's file names must be those of regular files.
///
/// # Examples
/// ```
/// use fulmar_store::{Disk, FsDisk};
/// let path = std::env::temp_dir().join(format!("fulmar-doc-disk-{}", std::process::id()));
/// let disk = FsDisk::new(&path)?;
/// disk.allocate("a", 4096)?;
/// assert_eq!(disk.list()?, [("a".to_owned(), 4096)]);
/// # std::fs::remove_dir_all(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct FsDisk {
    path: PathBuf,
    open: Mutex<HashMap<String, Arc<File>>>,
}

impl FsDisk {
    /// Returns the disk of the folder at `path`, which is made before the first file.
    ///
    /// # Errors
    /// `Io`, with the path, if another file is there.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        if fs::metadata(&path).is_ok_and(|found| !found.is_dir()) {
            return Err(Error::new(ErrorKind::Io, "a disk must be a folder: got a file").at(path.display()));
        }
        Ok(Self { path, open: Mutex::default() })
    }

    fn make_folder(&self) -> Result<()> {
        if self.path.is_dir() { Ok(()) } else { fulmar_tensor::make_folder(&self.path) }
    }

    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the free space in bytes, if the folder exists and the system reports it.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        os::free_bytes(&self.path).ok()
    }

    fn file(&self, name: &str) -> Result<Arc<File>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(name) {
            return Ok(Arc::clone(file));
        }
        if open.len() >= OPEN_FILES_MAX {
            open.clear();
        }
        let path = self.path.join(name);
        let file = Arc::new(os::open(&path, Missing::Refuse).map_err(at(&path))?);
        open.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    /// Returns the disk of a folder in this one; no link leads out of it.
    fn checked_folder(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) {
            let detail = "a folder of a disk must not be a symbolic link: got one";
            return Err(Error::new(ErrorKind::Io, detail).at(path.display()));
        }
        Self::new(path)
    }

    fn forget(&self, name: &str) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn error_at(&self, name: &str, error: std::io::Error) -> Error {
        Error::from(error).at(self.path.join(name).display())
    }

    fn sync_folder(&self) -> Result<()> {
        os::sync_folder(&self.path).map_err(at(&self.path))
    }
}

impl Disk for FsDisk {
    fn list(&self) -> Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        if !self.path.try_exists().map_err(at(&self.path))? {
            return Ok(files);
        }
        for entry in fs::read_dir(&self.path).map_err(at(&self.path))? {
            let entry = entry.map_err(at(&self.path))?;
            // Metadata of the entry itself: no link is followed.
            let metadata = entry.metadata().map_err(at(&self.path))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if metadata.is_file() {
                files.push((name, metadata.len()));
            } else if is_store_name(&name) {
                let detail = format!("{name} of a store must be a regular file");
                return Err(Error::new(ErrorKind::Incompatible, detail).at(self.path.display()));
            }
        }
        Ok(files)
    }

    fn read_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> Result<()> {
        os::read_at(&*self.file(name)?, offset, bytes).map_err(|error| self.error_at(name, error))
    }

    fn allocate(&self, name: &str, len: u64) -> Result<()> {
        self.make_folder()?;
        let path = self.path.join(name);
        let allocated = || {
            let file = os::open(&path, Missing::Create)?;
            os::allocate(&file, len)?;
            file.sync_all()
        };
        allocated().map_err(|error| {
            let free =
                os::free_bytes(&self.path).map_or("an unknown number".to_owned(), |free| free.to_string());
            let detail = format!("disk must have room for {len} bytes: got {free} free ({error})");
            Error::new(ErrorKind::Io, detail).at(path.display()).because(error)
        })?;
        self.sync_folder()
    }

    fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        os::write_at(&*self.file(name)?, offset, bytes).map_err(|error| self.error_at(name, error))
    }

    fn sync(&self, name: &str) -> Result<()> {
        self.file(name)?.sync_data().map_err(|error| self.error_at(name, error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.forget(from);
        self.forget(to);
        fs::rename(self.path.join(from), self.path.join(to)).map_err(at(&self.path.join(from)))?;
        self.sync_folder()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.forget(name);
        fs::remove_file(self.path.join(name)).map_err(|error| self.error_at(name, error))
    }

    fn link(&self, name: &str, folder: &str) -> Result<()> {
        self.checked_folder(folder)?.make_folder()?;
        let (from, to) = (self.path.join(name), self.path.join(folder).join(name));
        fs::hard_link(&from, &to).map_err(at(&to))
    }

    fn folder(&self, name: &str) -> Result<Box<dyn Disk>> {
        Ok(Box::new(self.checked_folder(name)?))
    }

    fn lock(&self) -> Result<DiskLock> {
        self.make_folder()?;
        let path = self.path.join(LOCK_NAME);
        let Some(file) = os::lock(&path).map_err(at(&path))? else {
            let owner = os::open(&path, Missing::Refuse).and_then(|file| beginning(&file));
            let owner = owner.unwrap_or_else(|_| "another process".to_owned());
            let detail = format!("a store must be open once: got {}, held by {owner}", self.path.display());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        let found = beginning(&file).map_err(at(&path))?;
        if !found.is_empty() && !found.starts_with(LOCK_MAGIC) {
            let detail = "lock must be the lock of a store: got a file with other contents";
            return Err(Error::new(ErrorKind::Incompatible, detail).at(path.display()));
        }
        // The lock file names its holder for error messages; the lock itself is the system's and ends with
        // the process.
        let owner = format!("{LOCK_MAGIC}{} of boot {}", std::process::id(), os::boot_id());
        file.set_len(0).and_then(|()| os::write_at(&file, 0, owner.as_bytes())).map_err(at(&path))?;
        Ok(Box::new(file))
    }
}

/// The treatment of a missing file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Create,
    Refuse,
}

/// Returns the text at the beginning of a lock file.
fn beginning(file: &File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(LOCK_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::from(error).at(path.display())
}

#[cfg(unix)]
mod os {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    use rustix::fs::{FlockOperation, OFlags};

    use super::{Missing, checked};

    /// Opens a regular file, without following a link and without waiting for the other end of a pipe.
    pub(super) fn open(path: &Path, missing: Missing) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(missing == Missing::Create).truncate(false);
        checked(options.custom_flags(flags.bits() as i32).open(path)?)
    }

    pub(super) fn read_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }

    pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Allocates the blocks if the file system can; else writes zeros, so that a full disk fails here and not
    /// later.
    pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
        let old_len = file.metadata()?.len();
        if old_len >= len {
            return Ok(());
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        super::write_zeros(file, old_len, len)
    }

    pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
        let figures = rustix::fs::statvfs(path)?;
        Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
    }

    pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Returns the file with its lock; `None` if another process has the lock.
    pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
        let file = open(path, Missing::Create)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns an identifier of this boot of the machine, if the system has one.
    pub(super) fn boot_id() -> String {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        if id.is_empty() { "unknown".to_owned() } else { id.trim().to_owned() }
    }
}

#[cfg(windows)]
mod os {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::windows::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    use super::{Missing, checked};

    /// The system's flag to open a link itself instead of its target.
    const OPEN_REPARSE_POINT: u32 = 0x0020_0000;

    pub(super) fn open(path: &Path, missing: Missing) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(missing == Missing::Create).truncate(false);
        checked(options.custom_flags(OPEN_REPARSE_POINT).open(path)?)
    }

    /// The system's answer to a second open of a file that is not shared.
    const SHARING_VIOLATION: i32 = 32;

    pub(super) fn read_at(file: &File, mut offset: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = file.seek_read(bytes, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }

    pub(super) fn write_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = file.seek_write(bytes, offset)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }

    pub(super) fn allocate(file: &File, len: u64) -> io::Result<()> {
        super::write_zeros(file, file.metadata()?.len(), len)
    }

    pub(super) fn free_bytes(_: &Path) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Only Unix can sync a folder.
    pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).share_mode(0);
        match options.custom_flags(OPEN_REPARSE_POINT).open(path) {
            Ok(file) => checked(file).map(Some),
            Err(error) if error.raw_os_error() == Some(SHARING_VIOLATION) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn boot_id() -> String {
        "unknown".to_owned()
    }
}

/// Returns `file` if it is a regular one.
fn checked(file: File) -> std::io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let detail = "a file of a store must be a regular file";
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, detail))
}

/// Writes zeros from `start` to `end`, to allocate the space.
fn write_zeros(file: &File, start: u64, end: u64) -> std::io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut offset = start;
    while offset < end {
        let count = (end - offset).min(zeros.len() as u64);
        os::write_at(file, offset, &zeros[..count as usize])?;
        offset += count;
    }
    Ok(())
}
