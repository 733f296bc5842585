//! Consolidated files: a dictionary as one run of bytes, in the format of tensordict's `consolidate`.
//!
//! A file holds the elements of all leaves, each padded to a multiple of 8 bytes, then a JSON description,
//! then the length of that description in 8 little-endian bytes. Writing gives tensordict's own bytes.
//! Reading checks all positions before it allocates memory, and an error names the leaf.

mod read;
mod write;

use std::io::Cursor;
use std::path::Path;

use fulmar_core::{Result, open_regular};

use crate::replace_file;
use crate::tensor_dict::TensorDict;

/// Size of the trailer after the description: its length as a little-endian `i64`.
const LENGTH_BYTES: u64 = 8;

/// The elements of a leaf begin at a multiple of this many bytes.
const ALIGNMENT_BYTES: usize = 8;

/// Keys that describe a dictionary itself; they share an object with its nested dictionaries.
const CONTROL_KEYS: [&str; 4] = ["cls", "non_tensors", "leaves", "cls_metadata"];

/// A ragged tensor is written as tensors of these names before its key.
const VALUES: &str = "<NJT_VALUES>";
const LENGTHS: &str = "<NJT_LENGTHS>";
const OFFSETS: &str = "<NJT_OFFSETS>";

/// Returns the bytes of a consolidated file of `dict`.
///
/// # Errors
/// `Malformed`, naming the entry, if the key of a nested dictionary or of per-element values is a reserved
/// word of the format, or if the key of a tensor begins like the parts of ragged tensors; `LimitExceeded` if
/// the description is longer than [`MEMMAP_META_BYTES_MAX`](fulmar_core::limits::MEMMAP_META_BYTES_MAX).
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict, consolidated};
/// let mut dict = TensorDict::new(&[3])?;
/// dict.set("done", Tensor::from_vec(&[3], vec![false, false, true])?)?;
/// let bytes = consolidated::write(&dict)?;
/// assert_eq!(bytes[..8], [0, 0, 1, 0, 0, 0, 0, 0]);
/// assert_eq!(consolidated::read(&bytes)?, dict);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn write(dict: &TensorDict) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write::to(dict, &mut bytes)?;
    Ok(bytes)
}

/// Reads a consolidated file from memory. Copies the elements.
///
/// # Errors
/// With the key of the leaf, `Corrupt` if a length or a position breaks the format or is outside the file;
/// `UnknownName` for an unsupported dtype; `ShapeMismatch` if a shape does not begin with the batch size;
/// `Incompatible` for a ragged tensor whose rows are not along its second dimension, or a lazy stack with
/// parts that cannot be stacked; `LimitExceeded` if the description is longer than
/// [`MEMMAP_META_BYTES_MAX`](fulmar_core::limits::MEMMAP_META_BYTES_MAX).
pub fn read(bytes: &[u8]) -> Result<TensorDict> {
    read::from(&mut Cursor::new(bytes), bytes.len() as u64)
}

/// Writes a consolidated file at `path`, whole or not at all, see [`replace_file`].
///
/// # Errors
/// The errors of [`write()`]; `Io` if the system refuses. After an error the old file, if any, is unchanged.
pub fn save(path: impl AsRef<Path>, dict: &TensorDict) -> Result<()> {
    replace_file(path, |writer| write::to(dict, writer))
}

/// Reads the consolidated file at `path`.
///
/// # Errors
/// The errors of [`read`], with the path; `Io` if the system refuses.
pub fn load(path: impl AsRef<Path>) -> Result<TensorDict> {
    let path = path.as_ref();
    let (mut file, size_bytes) = open_regular(path)?;
    read::from(&mut file, size_bytes).map_err(|error| error.at(path.display()))
}
