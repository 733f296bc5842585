//! The writer of a read-only buffer.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde_json::Value;

use crate::Stateful;
use crate::read::count_of;
use crate::writer::{WritePlan, Writer};

/// Refuses every write: for data sets that are read through a buffer.
///
/// # Examples
/// ```
/// assert!(fulmar_replay::ImmutableWriter.extend(1).is_err());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImmutableWriter;

impl ImmutableWriter {
    /// Refuses the write.
    ///
    /// # Errors
    /// `Incompatible`, always.
    pub fn extend(&self, count: usize) -> Result<Vec<usize>> {
        let detail = format!("the buffer must be writable to take {count} items: its data are immutable");
        Err(Error::new(ErrorKind::Incompatible, detail))
    }
}

impl Writer for ImmutableWriter {
    fn plan(&self, items: &TensorDict, _: &[usize]) -> Result<WritePlan> {
        let rows = self.extend(count_of(items))?.into_iter().map(Some).collect();
        Ok(WritePlan { rows, cursor: 0, write_count: 0 })
    }

    fn commit(&mut self, items: &TensorDict, _: &[usize]) -> Result<()> {
        self.extend(count_of(items)).map(|_| ())
    }

    fn write_at(&mut self, rows: &[usize], foreign: bool) -> Result<()> {
        if foreign { Ok(()) } else { self.extend(rows.len()).map(|_| ()) }
    }

    fn position(&self) -> (usize, u64) {
        (0, 0)
    }

    fn resume(&mut self, _: usize, _: (usize, u64), _: &dyn Fn() -> Result<TensorDict>) -> Result<()> {
        Ok(())
    }

    fn check_clear(&self) -> Result<()> {
        let detail = "the buffer must be writable to be emptied: its data are immutable";
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    fn clear(&mut self, _: bool) {}
}

impl Stateful for ImmutableWriter {
    fn state(&self) -> Result<Value> {
        Ok(Value::Null)
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        if state.is_null() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Malformed, format!("writer must be null: got {state}")))
    }
}
