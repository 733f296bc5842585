//! The compiled kernels that a build embeds.

use fulmar_core::{Error, ErrorKind, Result};

/// Returns the kernels that are embedded in this build: one image for all supported GPUs, which the driver's
/// `cuModuleLoadData` reads. `cargo xtask kernels` compiles them; a build embeds them if they come from its sources.
///
/// # Errors
/// `Unavailable` for a build without them.
///
/// # Examples
/// ```
/// match fulmar_cuda::fatbin() {
///     Ok(image) => assert!(image.len() > 1000),
///     Err(error) => assert!(error.detail().contains("cargo xtask kernels")),
/// }
/// ```
pub fn fatbin() -> Result<&'static [u8]> {
    embedded().ok_or_else(|| {
        let detail = "this build has no kernels: cargo xtask kernels makes them";
        Error::new(ErrorKind::Unavailable, detail)
    })
}

#[cfg(has_kernels)]
fn embedded() -> Option<&'static [u8]> {
    /// Bytes of the mark, by which `scripts/kernels.mjs` finds kernels in a file.
    const MARK_BYTES: usize = 32;
    /// The driver reads words.
    #[repr(align(8))]
    struct Aligned<T: ?Sized>(T);
    static IMAGE: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("FULMAR_FATBIN")));
    IMAGE.0.get(MARK_BYTES..)
}

#[cfg(not(has_kernels))]
fn embedded() -> Option<&'static [u8]> {
    None
}
