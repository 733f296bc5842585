//! Atomic replacement of files: after a crash a file is the old one or the new one, never a part.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::{Error, ErrorKind, Result};

const BUFFER_BYTES: usize = 1 << 20;

/// Replaces the file at `path` atomically by the output of `write`: writes a temporary file in the same
/// folder, syncs it, renames it and syncs the folder. After an error the old file is unchanged and no
/// temporary file remains.
///
/// # Errors
/// `Io`, with the path, if the system refuses a step; the errors of `write`.
///
/// # Examples
/// ```
/// let path = std::env::temp_dir().join(format!("fulmar-doc-{}", std::process::id()));
/// fulmar_tensor::replace_file(&path, |writer| Ok(writer.write_all(b"whole")?))?;
/// assert_eq!(std::fs::read(&path)?, b"whole");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn replace_file(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut files = FileBatch::default();
    files.stage(path, write)?;
    files.commit()
}

/// Files that are written under temporary names and then renamed together. Dropping the batch before
/// [`FileBatch::commit`] removes its files and leaves the old ones.
///
/// # Examples
/// ```
/// use fulmar_tensor::FileBatch;
/// let folder = std::env::temp_dir().join(format!("fulmar-doc-batch-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let mut files = FileBatch::default();
/// files.stage(folder.join("a"), |writer| Ok(writer.write_all(b"1")?))?;
/// files.stage(folder.join("b"), |writer| Ok(writer.write_all(b"2")?))?;
/// assert!(!folder.join("a").exists());
/// files.commit()?;
/// assert_eq!(std::fs::read(folder.join("b"))?, b"2");
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FileBatch {
    /// The temporary and the final path of each file.
    staged: Vec<(PathBuf, PathBuf)>,
}

impl FileBatch {
    /// Writes the file for `path` under a temporary name in the same folder, and syncs it.
    ///
    /// # Errors
    /// `Io`, with the path, if the system refuses; the errors of `write`. The batch is then unchanged.
    pub fn stage(
        &mut self,
        path: impl AsRef<Path>,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let path = path.as_ref();
        let temporary = temporary_beside(path)?;
        if let Err(error) = write_synced(&temporary, write) {
            // Return the first error; a leftover that cannot be removed is harmless.
            let _ = fs::remove_file(&temporary);
            return Err(error.at(path.display()));
        }
        self.staged.push((temporary, path.to_path_buf()));
        Ok(())
    }

    /// Renames all files, the last staged one first, and makes that rename durable before the others follow.
    ///
    /// # Errors
    /// `Io`, with the path, if the system refuses. The files after it are then unchanged.
    pub fn commit(mut self) -> Result<()> {
        while let Some((temporary, path)) = self.staged.pop() {
            let renamed = fs::rename(&temporary, &path).map_err(Error::from);
            if renamed.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            renamed.and_then(|()| sync_folder_of(&path)).map_err(|error| error.at(path.display()))?;
        }
        Ok(())
    }
}

impl Drop for FileBatch {
    fn drop(&mut self) {
        for (temporary, _) in &self.staged {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Makes the folder at `path` and its missing parents, so that they survive a loss of power once this
/// returns.
///
/// # Errors
/// `Io`, with the path, if the system refuses.
///
/// # Examples
/// ```
/// let around = std::env::temp_dir().join(format!("fulmar-doc-folder-{}", std::process::id()));
/// fulmar_tensor::make_folder(around.join("runs/one"))?;
/// assert!(around.join("runs/one").is_dir());
/// # std::fs::remove_dir_all(around)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn make_folder(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let make = || {
        let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
        fs::create_dir_all(path)?;
        missing.into_iter().try_for_each(sync_folder_of)
    };
    make().map_err(|error: Error| error.at(path.display()))
}

fn write_synced(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    write(&mut writer)?;
    let file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(file.sync_all()?)
}

/// Returns a hidden name in the same folder that no other call of this or another process uses.
pub(crate) fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::new(ErrorKind::Io, format!("path must name a file: got {}", path.display())));
    };
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    Ok(path.with_file_name(format!(".{}.{}-{call}.tmp", name.to_string_lossy(), process_number())))
}

#[cfg(not(target_family = "wasm"))]
fn process_number() -> u32 {
    std::process::id()
}

/// WebAssembly has neither processes nor files: opening the file then fails with `Io`.
#[cfg(target_family = "wasm")]
const fn process_number() -> u32 {
    0
}

/// Makes the rename itself durable. Only Unix can sync a folder, and Miri cannot.
pub(crate) fn sync_folder_of(path: &Path) -> Result<()> {
    if cfg!(all(unix, not(miri))) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn fresh_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fulmar-replace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else() {
        let folder = fresh_folder("half");
        let path = folder.join("weights");
        replace_file(&path, |writer| Ok(writer.write_all(b"old")?)).unwrap();
        let error = replace_file(&path, |writer| {
            writer.write_all(&vec![1; 3 * BUFFER_BYTES])?;
            Err(std::io::Error::other("disk full").into())
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.detail().contains("weights: disk full"), "{error}");
        assert_eq!(
            (fs::read(&path).unwrap(), names_in(&folder)),
            (b"old".to_vec(), vec!["weights".to_owned()])
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_batch_is_put_into_place_together_or_leaves_what_was_there() {
        let folder = fresh_folder("batch");
        let write = |files: &mut FileBatch, name: &str, text: &str| {
            files.stage(folder.join(name), |writer| Ok(writer.write_all(text.as_bytes())?)).unwrap();
        };
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let mut files = FileBatch::default();
        write(&mut files, "a", "old");
        write(&mut files, "b", "old");
        files.commit().unwrap();
        let mut files = FileBatch::default();
        write(&mut files, "a", "new");
        let full = files.stage(folder.join("b"), |_| Err(std::io::Error::other("disk full").into()));
        assert!(full.unwrap_err().detail().ends_with("b: disk full"));
        drop(files);
        assert_eq!((read("a"), read("b"), names_in(&folder).len()), ("old".to_owned(), "old".to_owned(), 2));
        let mut files = FileBatch::default();
        write(&mut files, "a", "new");
        write(&mut files, "b", "new");
        files.commit().unwrap();
        assert_eq!((read("a"), read("b"), names_in(&folder).len()), ("new".to_owned(), "new".to_owned(), 2));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_rename_that_fails_leaves_nothing_beside_the_target() {
        let folder = fresh_folder("rename");
        let path = folder.join("taken");
        fs::create_dir_all(path.join("inside")).unwrap();
        let error = replace_file(&path, |writer| Ok(writer.write_all(b"new")?)).unwrap_err();
        assert_eq!((error.kind(), names_in(&folder)), (ErrorKind::Io, vec!["taken".to_owned()]));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_does_not_exist_and_a_path_without_a_name_are_io_errors() {
        let folder = fresh_folder("missing");
        let error = replace_file(folder.join("no/file"), |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(replace_file("/", |_| Ok(())).unwrap_err().kind(), ErrorKind::Io);
        fs::remove_dir_all(folder).unwrap();
    }
}
