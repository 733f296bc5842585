//! The functions and classes that a pickle may name.

use fulmar_core::{Error, ErrorKind, Result};

/// A global that makes arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Global {
    Reconstruct,
    FromBuffer,
    Ndarray,
    Dtype,
    Encode,
}

/// All of them: module, name, what they are here. NumPy 2 renamed `core` to `_core`.
const ALLOWED: [(&str, &str, Global); 7] = [
    ("numpy._core.multiarray", "_reconstruct", Global::Reconstruct),
    ("numpy.core.multiarray", "_reconstruct", Global::Reconstruct),
    ("numpy._core.numeric", "_frombuffer", Global::FromBuffer),
    ("numpy.core.numeric", "_frombuffer", Global::FromBuffer),
    ("numpy", "ndarray", Global::Ndarray),
    ("numpy", "dtype", Global::Dtype),
    ("_codecs", "encode", Global::Encode),
];

/// Most characters of a name in a message.
const SHOWN_CHARS_MAX: usize = 100;

impl Global {
    /// Returns the global called `name` in `module`.
    ///
    /// # Errors
    /// `Forbidden`, with the name, for one that does not make arrays.
    pub fn named(module: &str, name: &str) -> Result<Self> {
        let known = ALLOWED.iter().find(|allowed| (allowed.0, allowed.1) == (module, name));
        known.map(|allowed| allowed.2).ok_or_else(|| {
            let shown: String = format!("{module}.{name}").chars().take(SHOWN_CHARS_MAX).collect();
            let detail =
                format!("a global of a pickle must be one of NumPy's that make arrays: got {shown:?}");
            Error::new(ErrorKind::Forbidden, detail)
        })
    }
}
