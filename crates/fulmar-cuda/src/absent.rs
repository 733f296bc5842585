//! The interface of builds without CUDA.

use fulmar_core::{Error, ErrorKind, Result};

use crate::Gpu;

/// Returns the error for a build without CUDA.
///
/// # Errors
/// `Unavailable`, always.
pub fn gpus() -> Result<Vec<Gpu>> {
    let detail = "CUDA must be built in: this build does not include it";
    Err(Error::new(ErrorKind::Unavailable, detail))
}
