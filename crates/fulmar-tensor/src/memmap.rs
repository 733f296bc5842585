//! Folders and archives of memory-mapped leaves, as tensordict and TorchRL write and read them.
//!
//! A dictionary is a folder: `meta.json` describes its entries, `<key>.memmap` holds the elements of a tensor (row-major,
//! little-endian, without a header), a nested dictionary and a JSON value are folders below. Ragged tensors have their row
//! shapes in `<key>.shape.memmap`; an empty tensor has no file. An archive (`.tdz`) is the same tree in a ZIP file with
//! members stored at multiples of 64 bytes.
//!
//! Reading trusts nothing: every file must exist and be as long as its description says before memory is taken for it, a file of
//! elements or a description that nothing describes is refused, and an error names the leaf. Pickled values are never read. Dimension names, locks and tensor classes are not kept by the format;
//! a tensor class is read as the dictionary that it wraps, a lazy stack as the dictionary of its stacked entries.

mod file_name;
mod files;
mod outline;
mod read;
mod write;

use std::io::Cursor;
use std::path::Path;

use fulmar_core::{Result, open_regular};

use self::files::{Archive, ArchiveWriter, Folder, FolderWriter};
pub use self::outline::{leaf_path, outline};
use crate::replace_file;
use crate::tensor_dict::TensorDict;

/// Writes `dict` as a folder at `path`, whole or not at all: a hidden folder beside it, all files synced, renamed.
///
/// # Errors
/// `Io` if the system refuses, so also if there is a file or a folder with something in it at `path`; `Malformed`, naming the
/// entry, if its key is one of the format's own words (`shape`, `device`, `_type`: TorchRL would lose it) or would take the file
/// of another entry. After an error nothing is left behind.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let mut steps = TensorDict::new(&[2])?;
/// steps.set(["next", "reward"], Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
/// let path = std::env::temp_dir().join(format!("fulmar-doc-memmap-{}", std::process::id()));
/// memmap::save(&path, &steps)?;
/// assert_eq!(std::fs::read(path.join("next/reward.memmap"))?, [0, 0, 0, 63, 0, 0, 128, 63]);
/// assert_eq!(memmap::load(&path)?, steps);
/// # std::fs::remove_dir_all(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn save(path: impl AsRef<Path>, dict: &TensorDict) -> Result<()> {
    let path = path.as_ref();
    let mut folder = FolderWriter::beside(path).map_err(|error| error.at(path.display()))?;
    write::dict(dict, &mut folder)?;
    folder.finish().map_err(|error| error.at(path.display()))
}

/// Reads the folder at `path`. Copies the elements; the files are opened for reading only.
///
/// # Errors
/// `Io` if the system refuses; with the key of the leaf, `Corrupt` if a file is missing, or shorter or longer than its
/// description says, or a description breaks the format; with its path, `Corrupt` for a `.memmap` or `meta.json` that no description
/// names, as it would be lost; `UnknownName` for a dtype that there is not here; `Forbidden` for a value
/// that upstream pickled; `ShapeMismatch` if a shape does not begin with the batch size; `Incompatible` for a lazy stack whose
/// parts do not fit together; `LimitExceeded` if a `meta.json` is longer than
/// [`MEMMAP_META_BYTES_MAX`](fulmar_core::limits::MEMMAP_META_BYTES_MAX) or folders lie too deep.
pub fn load(path: impl AsRef<Path>) -> Result<TensorDict> {
    let path = path.as_ref();
    read::dict(&mut Folder::new(path)).map_err(|error| error.at(path.display()))
}

/// Writes `dict` as an archive at `path`, whole or not at all, see [`replace_file`].
///
/// # Errors
/// Those of [`save`]; a file that stands at `path` is replaced.
pub fn save_archive(path: impl AsRef<Path>, dict: &TensorDict) -> Result<()> {
    let bytes = write_archive(dict)?;
    replace_file(path, |writer| Ok(writer.write_all(&bytes)?))
}

/// Reads the archive at `path`.
///
/// # Errors
/// Those of [`read_archive`]; `Io` if the system refuses.
pub fn load_archive(path: impl AsRef<Path>) -> Result<TensorDict> {
    let path = path.as_ref();
    let (file, _) = open_regular(path)?;
    Archive::new(std::io::BufReader::new(file))
        .and_then(|mut archive| read::dict(&mut archive))
        .map_err(|error| error.at(path.display()))
}

/// The bytes of an archive of `dict`: the same dictionary gives the same bytes.
///
/// # Errors
/// `Malformed` as [`save`] says; `LimitExceeded` if a path inside would be too long for the format.
///
/// # Examples
/// ```
/// use fulmar_tensor::{NonTensor, TensorDict, memmap};
/// let mut dict = TensorDict::new(&[3])?;
/// dict.set("task", NonTensor::shared("sum".into()))?;
/// assert_eq!(memmap::read_archive(&memmap::write_archive(&dict)?)?, dict);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn write_archive(dict: &TensorDict) -> Result<Vec<u8>> {
    let mut archive = ArchiveWriter::new();
    write::dict(dict, &mut archive)?;
    archive.finish()
}

/// Reads an archive that stands in memory. Copies the elements.
///
/// # Errors
/// `Corrupt` if the bytes are no ZIP archive, a member is compressed, or its checksum is wrong; `LimitExceeded` if it has more than
/// [`ARCHIVE_MEMBERS_MAX`](fulmar_core::limits::ARCHIVE_MEMBERS_MAX) members; those of [`load`].
pub fn read_archive(bytes: &[u8]) -> Result<TensorDict> {
    read::dict(&mut Archive::new(Cursor::new(bytes))?)
}
