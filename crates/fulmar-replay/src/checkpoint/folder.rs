//! Folders that are written atomically, and the files of a checkpoint, which are untrusted when they are read.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::limits::CHECKPOINT_JSON_BYTES_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements, open_regular};
use fulmar_tensor::{Tensor, replace_file};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A hidden folder next to its target. Dropping it before [`NewFolder::finish`] removes it.
pub(crate) struct NewFolder<'a> {
    hidden: PathBuf,
    target: &'a Path,
    finished: bool,
}

impl<'a> NewFolder<'a> {
    /// `Io` if `target` exists, as a checkpoint never overwrites another.
    pub fn beside(target: &'a Path) -> Result<Self> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let (Some(name), Err(_)) = (target.file_name(), fs::symlink_metadata(target)) else {
            let detail = format!("path must name a folder that is not there yet: got {}", target.display());
            return Err(Error::new(ErrorKind::Io, detail));
        };
        // The process number makes the name unique, as two live processes never share one.
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let name = format!(".{}.{}-{call}.new", name.to_string_lossy(), number_of_process());
        let hidden = target.with_file_name(name);
        fs::create_dir(&hidden)?;
        Ok(Self { hidden, target, finished: false })
    }

    pub fn path(&self) -> &Path {
        &self.hidden
    }

    /// Renames the folder to its target. Its files are already durable.
    pub fn finish(mut self) -> Result<()> {
        sync_folder(&self.hidden)?;
        fs::rename(&self.hidden, self.target)?;
        self.finished = true;
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))
    }
}

impl Drop for NewFolder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Return the first error; a hidden folder that cannot be removed is harmless.
            let _ = fs::remove_dir_all(&self.hidden);
        }
    }
}

#[cfg(not(target_family = "wasm"))]
fn number_of_process() -> u32 {
    std::process::id()
}

/// WebAssembly has no folders: making one fails with `Io`.
#[cfg(target_family = "wasm")]
const fn number_of_process() -> u32 {
    0
}

/// Only Unix can sync a folder.
fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(path)?.sync_all()?;
    }
    Ok(())
}

/// Writes `value` as JSON to the file at `path`.
///
/// # Errors
/// `LimitExceeded` above [`CHECKPOINT_JSON_BYTES_MAX`]; `Malformed` if it has no JSON form; `Io`.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(value)
        .map_err(|error| Error::new(ErrorKind::Malformed, error.to_string()).because(error))?;
    check_bytes(text.len() as u64).map_err(|error| error.at(path.display()))?;
    replace_file(path, |writer| Ok(writer.write_all(&text)?))
}

/// Returns the value in the file at `path`, if the file exists.
///
/// # Errors
/// With the path: `LimitExceeded` above [`CHECKPOINT_JSON_BYTES_MAX`], `Corrupt` for other content, `Io`.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let read = || {
        let Some((bytes, file)) = opened(path)? else { return Ok(None) };
        check_bytes(bytes)?;
        serde_json::from_reader(BufReader::new(file.take(bytes))).map(Some).map_err(|error| {
            corrupt(format!("must be JSON of the documented form: got {error}")).because(error)
        })
    };
    read().map_err(|error: Error| error.at(path.display()))
}

/// Runs [`read_json`] for a required file.
///
/// # Errors
/// The errors of [`read_json`]; `Corrupt` if there is no file.
pub fn expect_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let none = || corrupt(format!("{}: must be there: got no such file", path.display()));
    read_json(path)?.ok_or_else(none)
}

/// Writes the elements of `tensor`, without a header.
///
/// # Errors
/// `Io` if the system refuses.
pub fn write_elements(path: &Path, tensor: &Tensor) -> Result<()> {
    replace_file(path, |writer| tensor.write_bytes(writer))
}

/// Returns the elements in the file at `path`, which must have exactly their length.
///
/// # Errors
/// With the path: `Corrupt` if the file is missing or has another length, `Io`.
pub fn read_elements(path: &Path, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
    let read = || {
        let want = (num_elements(shape)? as u64).saturating_mul(dtype.size_bytes() as u64);
        if want == 0 {
            return Tensor::zeros(dtype, shape);
        }
        match opened(path)? {
            None => Err(corrupt(format!("must hold {want} bytes: got no such file"))),
            Some((got, _)) if got != want => Err(corrupt(format!("must hold {want} bytes: got {got}"))),
            Some((_, file)) => {
                let mut bytes = Vec::new();
                file.take(want).read_to_end(&mut bytes)?;
                Tensor::from_bytes(dtype, shape, &bytes)
            }
        }
    };
    read().map_err(|error| error.at(path.display()))
}

/// Returns the content of the file at `path`, which must begin with `magic` and have at most `bytes_max`
/// bytes.
///
/// # Errors
/// With the path: `Corrupt` if the file is missing or begins otherwise, `LimitExceeded` above `bytes_max`, `Io`.
pub fn read_bytes(path: &Path, magic: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
    let read = || match opened(path)? {
        None => Err(corrupt("must be there: got no such file")),
        Some((bytes, mut file)) => {
            if bytes > bytes_max {
                let detail = format!("a file must have at most {bytes_max} bytes: got {bytes}");
                return Err(Error::new(ErrorKind::LimitExceeded, detail));
            }
            let mut all = Vec::new();
            file.by_ref().take(magic.len() as u64).read_to_end(&mut all)?;
            if all != magic {
                return Err(corrupt("must begin with the first bytes of its format"));
            }
            file.take(bytes - all.len() as u64).read_to_end(&mut all)?;
            Ok(all)
        }
    };
    read().map_err(|error| error.at(path.display()))
}

/// Opens the file at `path` and returns it with its length, if it exists.
fn opened(path: &Path) -> Result<Option<(u64, File)>> {
    if !path.try_exists()? {
        return Ok(None);
    }
    open_regular(path).map(|(file, bytes)| Some((bytes, file)))
}

fn check_bytes(bytes: u64) -> Result<()> {
    if bytes <= CHECKPOINT_JSON_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("a description must take at most {CHECKPOINT_JSON_BYTES_MAX} bytes: got {bytes}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

/// Returns an error of kind `Corrupt`.
pub fn corrupt(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_up_to_their_limit_and_not_past_it() {
        let path = std::env::temp_dir().join(format!("fulmar-description-{}", std::process::id()));
        let read = |bytes| {
            let file = File::create(&path).unwrap();
            file.set_len(bytes).unwrap();
            read_json::<u8>(&path).unwrap_err().kind()
        };
        // Zeros are not JSON; past the limit the file is not read.
        assert_eq!(read(CHECKPOINT_JSON_BYTES_MAX), ErrorKind::Corrupt);
        assert_eq!(read(CHECKPOINT_JSON_BYTES_MAX + 1), ErrorKind::LimitExceeded);
        fs::remove_file(path).unwrap();
    }
}
