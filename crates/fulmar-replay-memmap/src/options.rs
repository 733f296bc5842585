//! Options of a storage in memory-mapped files.

use std::path::PathBuf;

use fulmar_core::Device;
use serde::{Deserialize, Serialize};

/// Options of a [`LazyMemmapStorage`](crate::LazyMemmapStorage).
///
/// # Examples
/// ```
/// use fulmar_replay_memmap::LazyMemmapStorageOptions;
/// let options = LazyMemmapStorageOptions::default();
/// assert_eq!((options.scratch_dir, options.exists_ok, options.shared_init), (None, false, false));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LazyMemmapStorageOptions {
    /// The folder. Defaults to a new temporary folder.
    pub scratch_dir: Option<PathBuf>,
    /// If true, an existing storage in the folder may be replaced by an empty one. Defaults to false.
    pub exists_ok: bool,
    /// If true, joins an existing storage in the folder, or one that another process makes there first, and
    /// shares its rows. Defaults to false.
    pub shared_init: bool,
    /// If true, removes the folder with the last handle. Defaults to true for a temporary folder only.
    pub auto_cleanup: Option<bool>,
    /// Maximum size of the rows in bytes. Defaults to the limit of a storage.
    pub bytes_max: Option<u64>,
    /// The device of read items; rows stay in their files. Defaults to the CPU.
    pub device: Device,
}
