//! The files of a data set in their folder.

use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::{Error, ErrorKind, Result};

/// Returns the files in `folder` whose names end in one of `ends`, in the order of their names.
///
/// # Errors
/// `Io` if the folder cannot be read; `Empty` without files; `LimitExceeded` for more than `most`.
pub(crate) fn files_in(folder: &Path, ends: &[&str], most: usize) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().and_then(|end| end.to_str()).is_some_and(|end| ends.contains(&end)) {
            paths.push(path);
        }
        if paths.len() > most {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("must have at most {most} files: it has more"),
            ));
        }
    }
    paths.sort_unstable();
    match paths.is_empty() {
        true => {
            Err(Error::new(ErrorKind::Empty, format!("must have files *.{}: it has none", ends.join(", *."))))
        }
        false => Ok(paths),
    }
}
