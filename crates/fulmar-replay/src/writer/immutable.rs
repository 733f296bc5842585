//! The writer of a buffer that nobody may write to.

use fulmar_core::{Error, ErrorKind, Result};

/// Refuses every write: for data sets that are read through a buffer.
///
/// # Examples
/// ```
/// assert!(fulmar_replay::ImmutableWriter.extend(1).is_err());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImmutableWriter;

impl ImmutableWriter {
    /// Refuses.
    ///
    /// # Errors
    /// `Incompatible`, always.
    pub fn extend(&self, count: usize) -> Result<Vec<usize>> {
        let detail = format!("the buffer must be writable to take {count} items: its data are immutable");
        Err(Error::new(ErrorKind::Incompatible, detail))
    }
}
