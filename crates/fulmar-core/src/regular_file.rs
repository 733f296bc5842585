//! Files that can be read to their end: no pipes, no devices, no folders; and reads at a position of them.

use std::fs::{self, File};
use std::path::Path;

use crate::{Error, ErrorKind, Result};

/// Opens the regular file at `path` for reading and returns its size in bytes. Refuses pipes and devices, as
/// opening a pipe waits for its writer and a device may have no end. Follows symbolic links.
///
/// # Errors
/// `Io`, with the path, if the system refuses; `Corrupt` if it is not a regular file.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("fulmar-doc-regular-{}", std::process::id()));
/// std::fs::write(&path, "four")?;
/// assert_eq!(fulmar_core::open_regular(&path)?.1, 4);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn open_regular(path: impl AsRef<Path>) -> Result<(File, u64)> {
    let path = path.as_ref();
    let open = || {
        let found = fs::metadata(path)?;
        if !found.is_file() {
            let kind = if found.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
            let detail = format!("must be a regular file: got {kind}");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        Ok((File::open(path)?, found.len()))
    };
    open().map_err(|error| error.at(path.display()))
}

/// Fills `bytes` from position `offset` of a file on. Moves no position, so threads can share the file.
///
/// # Errors
/// `Io` if the system refuses, the file ends before, or the platform has no such reads.
///
/// # Examples
/// ```
/// use std::fs::File;
/// let path = std::env::temp_dir().join(format!("fulmar-doc-read-at-{}", std::process::id()));
/// std::fs::write(&path, "four")?;
/// let mut bytes = [0; 2];
/// fulmar_core::read_exact_at(&File::open(&path)?, 1, &mut bytes)?;
/// assert_eq!(&bytes, b"ou");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_exact_at(file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
    Ok(os::read_exact_at(file, offset, bytes)?)
}

mod os {
    use std::fs::File;
    use std::io::Result;

    #[cfg(unix)]
    pub(super) fn read_exact_at(file: &File, offset: u64, bytes: &mut [u8]) -> Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
    }

    #[cfg(windows)]
    pub(super) fn read_exact_at(file: &File, mut offset: u64, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                len => (offset, bytes) = (offset + len as u64, &mut bytes[len..]),
            }
        }
        Ok(())
    }

    #[cfg(not(any(unix, windows)))]
    pub(super) fn read_exact_at(_: &File, _: u64, _: &mut [u8]) -> Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_devices_and_what_is_not_there_are_refused_without_waiting() {
        let kind = |path: &Path| open_regular(path).unwrap_err().kind();
        assert_eq!(kind(&std::env::temp_dir()), ErrorKind::Corrupt);
        assert_eq!(kind(Path::new("/nowhere/at/all")), ErrorKind::Io);
        if cfg!(target_os = "linux") {
            assert_eq!(kind(Path::new("/dev/zero")), ErrorKind::Corrupt);
        }
    }
}
