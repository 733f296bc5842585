//! Folders and archives of memory-mapped leaves, in the format of tensordict and TorchRL.
//!
//! A dictionary is a folder: `meta.json` describes its entries, `<key>.memmap` holds the elements of a tensor (row-major,
//! little-endian, without a header), a nested dictionary and a JSON value are folders below. Ragged tensors have their row
//! shapes in `<key>.shape.memmap`; an empty tensor has no file. An archive (`.tdz`) is the same tree in a ZIP file with
//! members stored at multiples of 64 bytes.
//!
//! Reading checks that every file exists and has the length of its description before it allocates memory,
//! refuses undescribed files of elements and descriptions, and names the leaf in errors. Pickled values are
//! never read. The format does not keep dimension names, locks and tensor classes; a tensor class is read as
//! the dictionary that it wraps, a lazy stack as the dictionary of its stacked entries.

mod file_name;
mod files;
mod outline;
mod read;
mod write;

use std::io::Cursor;
use std::path::Path;

use fulmar_core::{Result, open_regular};

pub use self::files::FileLeaf;
use self::files::{Archive, ArchiveWriter, Folder, FolderWriter};
pub use self::outline::{leaf_path, outline};
pub use self::write::check_length;
use crate::replace_file;
use crate::tensor_dict::TensorDict;

/// Writes `dict` as a folder at `path` atomically: writes a hidden folder next to it, syncs all files and
/// renames it.
///
/// # Errors
/// `Io` if the system refuses, also if there is a file or a non-empty folder at `path`; `Malformed`, naming
/// the entry, if its key is a reserved word of the format (`shape`, `device`, `_type`: TorchRL would lose it)
/// or its file name equals that of another entry; `LimitExceeded` for texts and other values that [`load`] would refuse. After an
/// error no temporary file remains.
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
/// `Io` if the system refuses; with the key of the leaf, `Corrupt` if a file is missing, the length of a file
/// does not match its description, or a description breaks the format; with its path, `Corrupt` for an
/// undescribed `.memmap` or `meta.json`, as it would be lost; `UnknownName` for an unsupported dtype;
/// `Forbidden` for a pickled value; `ShapeMismatch` if a shape does not begin with the batch size;
/// `Incompatible` for a lazy stack with parts that cannot be stacked; `LimitExceeded` if a `meta.json` is
/// longer than [`MEMMAP_VALUES_BYTES_MAX`](fulmar_core::limits::MEMMAP_VALUES_BYTES_MAX) or folders are nested
/// too deep.
pub fn load(path: impl AsRef<Path>) -> Result<TensorDict> {
    let path = path.as_ref();
    read::dict(&mut Folder::new(path)).map_err(|error| error.at(path.display()))
}

/// Reads the folder at `path` but for tensors of more than `bytes_max` bytes, which stay in their files and are returned apart.
///
/// # Errors
/// The errors of [`load`]; `Io` if the file of a tensor that stays there is missing.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict, memmap};
/// let mut steps = TensorDict::new(&[2])?;
/// steps.set("image", Tensor::from_vec(&[2, 100], vec![7_u8; 200])?)?;
/// steps.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
/// let path = std::env::temp_dir().join(format!("fulmar-doc-up-to-{}", std::process::id()));
/// memmap::save(&path, &steps)?;
/// let (short, long) = memmap::load_up_to(&path, 100)?;
/// assert_eq!(short.leaf_keys(), ["reward".into()]);
/// assert_eq!(long[0].path, path.join("image.memmap"));
/// # std::fs::remove_dir_all(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn load_up_to(path: impl AsRef<Path>, bytes_max: u64) -> Result<(TensorDict, Vec<FileLeaf>)> {
    let path = path.as_ref();
    let mut folder = Folder::up_to(path, bytes_max);
    let dict = read::dict(&mut folder).map_err(|error| error.at(path.display()))?;
    Ok((dict, folder.into_left()))
}

/// Makes the names of all files in `folder` and in its folders durable; their bytes are not synced. Folders are nested no deeper than
/// the dictionaries of a folder of [`save`].
///
/// # Errors
/// `Io` if the system refuses.
pub fn sync_folders(folder: impl AsRef<Path>) -> Result<()> {
    // Other systems cannot open a folder.
    if cfg!(unix) {
        let folder = folder.as_ref();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                sync_folders(entry.path())?;
            }
        }
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes `dict` as an archive at `path` atomically, see [`replace_file`].
///
/// # Errors
/// The errors of [`save`], except that an existing file at `path` is replaced.
pub fn save_archive(path: impl AsRef<Path>, dict: &TensorDict) -> Result<()> {
    let bytes = write_archive(dict)?;
    replace_file(path, |writer| Ok(writer.write_all(&bytes)?))
}

/// Reads the archive at `path`.
///
/// # Errors
/// The errors of [`read_archive`]; `Io` if the system refuses.
pub fn load_archive(path: impl AsRef<Path>) -> Result<TensorDict> {
    let path = path.as_ref();
    let (file, _) = open_regular(path)?;
    Archive::new(std::io::BufReader::new(file))
        .and_then(|mut archive| read::dict(&mut archive))
        .map_err(|error| error.at(path.display()))
}

/// Returns the bytes of an archive of `dict`: the same dictionary gives the same bytes.
///
/// # Errors
/// `Malformed` as for [`save`]; `LimitExceeded` if a path inside would be too long for the format.
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

/// Reads an archive from memory. Copies the elements.
///
/// # Errors
/// `Corrupt` if the bytes are not a ZIP archive, a member is compressed, or its checksum is wrong;
/// `LimitExceeded` if it has more than [`ARCHIVE_MEMBERS_MAX`](fulmar_core::limits::ARCHIVE_MEMBERS_MAX)
/// members; the errors of [`load`].
pub fn read_archive(bytes: &[u8]) -> Result<TensorDict> {
    read::dict(&mut Archive::new(Cursor::new(bytes))?)
}
