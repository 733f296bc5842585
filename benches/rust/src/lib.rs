//! Shared code of the programs of this folder: their answers to a bench.

use std::io::Write;

use fulmar::core::{Error, ErrorKind, Result};
use serde_json::Value;

/// Answers with one line.
///
/// # Errors
/// `Malformed` if the reader is closed.
pub fn say(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(broken)
}

/// The error of an input that a bench should not have given.
pub fn broken(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Malformed, format!("the bench's input must be readable: got {error}"))
}
