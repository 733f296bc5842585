//! The interface of builds that cannot speak to a driver.

use fulmar_core::{Error, ErrorKind, Result};

use crate::Gpu;

/// None: this build has no CUDA.
///
/// # Errors
/// `Unavailable`, always.
pub fn gpus() -> Result<Vec<Gpu>> {
    let detail = "CUDA must be built in: this build has none";
    Err(Error::new(ErrorKind::Unavailable, detail))
}
