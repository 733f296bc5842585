//! Results of a command, one JSON object a line, written one by one: a command that is ended early leaves those it has.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use fulmar_core::Result;
use serde_json::Value;

use crate::unusable;

/// A file of records, or none.
#[derive(Default)]
pub struct Records(Option<PathBuf>);

impl Records {
    /// Returns the records of the file `path`, to which they are appended.
    pub fn into(path: &Path) -> Self {
        Self(Some(path.to_owned()))
    }

    /// Appends one record, if there is a file.
    ///
    /// # Errors
    /// `Io` if the file cannot be written.
    pub fn add(&self, record: &Value) -> Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{record}")).map_err(|error| unusable(path, &error))
    }
}
