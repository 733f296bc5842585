//! Parts of a buffer with a state, which goes into checkpoints as JSON.

use fulmar_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;

/// A part of a buffer with a state.
pub trait Stateful: Send {
    /// Returns the state for a checkpoint.
    ///
    /// # Errors
    /// If the part cannot store its state.
    fn state(&self) -> Result<Value>;

    /// Restores `state`.
    ///
    /// # Errors
    /// `Malformed` if it is not the state of such a part; `Corrupt` if it is inconsistent; `Incompatible` for
    /// another capacity. After an error nothing has changed.
    fn restore(&mut self, state: &Value) -> Result<()>;
}

/// Converts `value` to JSON.
pub(crate) fn to_state(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::Malformed, error.to_string()).because(error))
}

/// Parses the state in `value`.
pub(crate) fn from_state<T: serde::de::DeserializeOwned>(name: &str, value: &Value) -> Result<T> {
    T::deserialize(value).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("{name} must be a saved state: {error}")).because(error)
    })
}

/// Refuses the state of another capacity.
pub(crate) fn check_capacity(want: usize, got: usize) -> Result<()> {
    if want == got {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Incompatible, format!("capacity must be {want}: got {got}")))
}
