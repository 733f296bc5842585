//! Files of a tree in a folder or in a ZIP archive, for reading and for writing.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use fulmar_core::limits::{ARCHIVE_MEMBERS_MAX, TENSOR_DICT_DEPTH_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements, open_regular};
use zip::read::Config;
use zip::unstable::read::ZipIterable;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::file_name::key_of;
use crate::key::Key;
use crate::replace_file::{sync_folder_of, temporary_beside};

/// Elements in an archive begin at a multiple of this many bytes, so that they can be mapped.
const ALIGNMENT_BYTES: u16 = 64;

/// The length of a file and its content.
pub type Opened<'a> = (u64, Box<dyn Read + 'a>);

/// Files by their path inside a tree, with `/` between names.
pub trait Files {
    /// Opens the file at `path`, if it exists.
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>>;

    /// Returns true for a tensor whose elements stay in the file at `path`, which is as long as they are.
    fn leaves(&mut self, _path: &str, _dtype: Dtype, _shape: &[usize]) -> Result<bool> {
        Ok(false)
    }

    /// Returns the path of a description or of a file of elements that was never opened, if there is one.
    fn stray(&mut self) -> Result<Option<String>>;
}

/// Returns whether `name` belongs to the format, so that an undescribed file of that name would be lost.
fn is_of_format(name: &str) -> bool {
    name == META || name.ends_with(".memmap")
}

const META: &str = "meta.json";

/// A writer for the files of a tree.
pub trait Sink {
    /// Adds a file that `write` fills. `elements` is `true` for the elements of a tensor.
    fn put(&mut self, path: &str, elements: bool, write: &dyn Fn(&mut dyn Write) -> Result<()>)
    -> Result<()>;
}

/// A tensor of a folder whose elements stay in their file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLeaf {
    /// Its key in the dictionary.
    pub key: Key,
    /// Its dtype.
    pub dtype: Dtype,
    /// Its shape, whose first lengths are the batch size.
    pub shape: Vec<usize>,
    /// The file, which has exactly its elements, row-major and little-endian.
    pub path: PathBuf,
}

pub struct Folder<'a> {
    root: &'a Path,
    opened: HashSet<String>,
    /// Most bytes of a tensor that is read.
    bytes_max: u64,
    left: Vec<FileLeaf>,
}

impl<'a> Folder<'a> {
    pub fn new(root: &'a Path) -> Self {
        Self::up_to(root, u64::MAX)
    }

    /// Leaves tensors of more bytes in their files.
    pub fn up_to(root: &'a Path, bytes_max: u64) -> Self {
        Self { root, opened: HashSet::new(), bytes_max, left: Vec::new() }
    }

    /// Returns the tensors that were left.
    pub fn into_left(self) -> Vec<FileLeaf> {
        self.left
    }

    /// Returns [`Files::stray`] of the folder at `prefix`, which is empty or ends in `/`.
    fn stray_in(&self, prefix: &str, depth: usize) -> Result<Option<String>> {
        if depth > TENSOR_DICT_DEPTH_MAX {
            let detail =
                format!("folders must be nested at most {TENSOR_DICT_DEPTH_MAX} deep: got {prefix:?}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        for entry in fs::read_dir(self.root.join(prefix))? {
            let entry = entry?;
            // A name that is not UTF-8, or begins with this prefix, is not of the format; such a folder is
            // not read.
            let Some(name) =
                entry.file_name().to_str().filter(|name| !name.starts_with('%')).map(str::to_owned)
            else {
                continue;
            };
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if let Some(stray) = self.stray_in(&format!("{path}/"), depth + 1)? {
                    return Ok(Some(stray));
                }
            } else if is_of_format(&name) && !self.opened.contains(&path) && entry.metadata()?.len() > 0 {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

impl Files for Folder<'_> {
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>> {
        let place = self.root.join(path);
        if !place.try_exists()? {
            return Ok(None);
        }
        self.opened.insert(path.to_owned());
        let (file, size_bytes) = open_regular(place)?;
        Ok(Some((size_bytes, Box::new(file))))
    }

    fn leaves(&mut self, path: &str, dtype: Dtype, shape: &[usize]) -> Result<bool> {
        let want = (num_elements(shape)? as u64).saturating_mul(dtype.size_bytes() as u64);
        if want <= self.bytes_max {
            return Ok(false);
        }
        let place = self.root.join(path);
        let (_, size_bytes) = open_regular(&place)?;
        if size_bytes != want {
            let detail = format!("{path} must hold {want} bytes: got {size_bytes}");
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        self.opened.insert(path.to_owned());
        let names = path.strip_suffix(".memmap").unwrap_or(path).split('/').map(key_of);
        let key = Key::from(names.collect::<Vec<_>>());
        self.left.push(FileLeaf { key, dtype, shape: shape.to_vec(), path: place });
        Ok(true)
    }

    fn stray(&mut self) -> Result<Option<String>> {
        self.stray_in("", 0)
    }
}

pub struct Archive<R> {
    zip: ZipArchive<R>,
    opened: HashSet<String>,
}

impl<R: Read + Seek> Archive<R> {
    pub fn new(mut reader: R) -> Result<Self> {
        check_num_members(&mut reader)?;
        let zip = ZipArchive::new(reader).map_err(zip_error)?;
        Ok(Self { zip, opened: HashSet::new() })
    }
}

/// Refuses an archive of too many members before room for them is made.
fn check_num_members(reader: &mut (impl Read + Seek)) -> Result<()> {
    let archive = ZipIterable::try_new(reader, Config::default());
    let mut archive = archive.map_err(zip_error)?;
    let num_members = archive.len();
    if num_members > ARCHIVE_MEMBERS_MAX {
        let detail = format!("an archive must have at most {ARCHIVE_MEMBERS_MAX} members: got {num_members}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    // With a damaged list of members, the crate would search for another list, of another length.
    for member in archive.files().map_err(zip_error)? {
        member.map_err(zip_error)?;
    }
    Ok(())
}

impl<R: Read + Seek> Files for Archive<R> {
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>> {
        match self.zip.by_name(path) {
            Ok(member) => {
                self.opened.insert(path.to_owned());
                Ok(Some((member.size(), Box::new(member))))
            }
            Err(zip::result::ZipError::FileNotFound) => Ok(None),
            Err(error) => Err(zip_error(error)),
        }
    }

    fn stray(&mut self) -> Result<Option<String>> {
        for at in 0..self.zip.len() {
            let member = self.zip.by_index_raw(at).map_err(zip_error)?;
            let path = member.name().map_err(zip_error)?;
            let name = path.rsplit('/').next().unwrap_or_default();
            if is_of_format(name) && !self.opened.contains(&*path) && member.size() > 0 {
                return Ok(Some(path.into_owned()));
            }
        }
        Ok(None)
    }
}

/// A hidden folder next to its final path. Dropping it before [`FolderWriter::finish`] removes it.
pub struct FolderWriter<'a> {
    temporary: PathBuf,
    target: &'a Path,
    finished: bool,
}

impl<'a> FolderWriter<'a> {
    pub fn beside(target: &'a Path) -> Result<Self> {
        let temporary = temporary_beside(target)?;
        fs::create_dir(&temporary)?;
        Ok(Self { temporary, target, finished: false })
    }

    pub fn finish(mut self) -> Result<()> {
        super::sync_folders(&self.temporary)?;
        fs::rename(&self.temporary, self.target)?;
        self.finished = true;
        sync_folder_of(self.target)
    }
}

impl Sink for FolderWriter<'_> {
    fn put(
        &mut self,
        path: &str,
        _elements: bool,
        write: &dyn Fn(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let path = self.temporary.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut writer = BufWriter::new(OpenOptions::new().write(true).create_new(true).open(path)?);
        write(&mut writer)?;
        let file = writer.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(file.sync_all()?)
    }
}

impl Drop for FolderWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // Keep the error that stopped the writing; a leftover that cannot be removed is harmless.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

pub struct ArchiveWriter(ZipWriter<Cursor<Vec<u8>>>);

impl ArchiveWriter {
    pub fn new() -> Self {
        Self(ZipWriter::new(Cursor::new(Vec::new())))
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        self.0.finish().map(Cursor::into_inner).map_err(zip_error)
    }
}

impl Sink for ArchiveWriter {
    fn put(
        &mut self,
        path: &str,
        elements: bool,
        write: &dyn Fn(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(true)
            .last_modified_time(zip::DateTime::default())
            .with_alignment(if elements { ALIGNMENT_BYTES } else { 1 });
        self.0.start_file(path, options).map_err(zip_error)?;
        write(&mut self.0)
    }
}

fn zip_error(error: zip::result::ZipError) -> Error {
    match error {
        zip::result::ZipError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => error.into(),
        error => {
            let detail = format!("must be a ZIP archive of stored members: got {error}");
            Error::new(ErrorKind::Corrupt, detail).because(error)
        }
    }
}
