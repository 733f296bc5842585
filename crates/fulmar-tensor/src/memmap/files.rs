//! Where the files of a tree stand: in a folder or in a ZIP archive, for reading and for writing.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use fulmar_core::{Error, ErrorKind, Result};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::replace_file::{sync_folder_of, temporary_beside};

/// Elements in an archive begin at a multiple of this many bytes, so that they can be mapped.
const ALIGNMENT_BYTES: u16 = 64;

/// The length of a file and what it holds.
pub type Opened<'a> = (u64, Box<dyn Read + 'a>);

/// Files by their path inside a tree, with `/` between names.
pub trait Files {
    /// The file at `path`, or nothing if there is none.
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>>;
}

/// What takes the files of a tree.
pub trait Sink {
    /// Adds a file that `write` fills. `elements` says that it holds those of a tensor.
    fn put(&mut self, path: &str, elements: bool, write: &dyn Fn(&mut dyn Write) -> Result<()>)
    -> Result<()>;
}

pub struct Folder<'a>(&'a Path);

impl<'a> Folder<'a> {
    pub const fn new(root: &'a Path) -> Self {
        Self(root)
    }
}

impl Files for Folder<'_> {
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>> {
        let path = self.0.join(path);
        match fs::metadata(&path) {
            // Opening a pipe or a device could wait for ever.
            Ok(found) if found.is_file() => Ok(Some((found.len(), Box::new(File::open(path)?)))),
            Ok(_) => Err(Error::new(ErrorKind::Corrupt, "must be a file: got something else")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

pub struct Archive<R>(ZipArchive<R>);

impl<R: Read + Seek> Archive<R> {
    pub fn new(reader: R) -> Result<Self> {
        ZipArchive::new(reader).map(Self).map_err(|error| zip_error(&error))
    }
}

impl<R: Read + Seek> Files for Archive<R> {
    fn open(&mut self, path: &str) -> Result<Option<Opened<'_>>> {
        match self.0.by_name(path) {
            Ok(member) => Ok(Some((member.size(), Box::new(member)))),
            Err(zip::result::ZipError::FileNotFound) => Ok(None),
            Err(error) => Err(zip_error(&error)),
        }
    }
}

/// A hidden folder beside the one that it becomes. Dropped before [`FolderWriter::finish`], it is removed.
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
        sync_folders(&self.temporary)?;
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
            // The error that stopped the writing is the one to tell; a leftover that cannot be removed is harmless.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Makes the names of all files durable. Our own folders: no deeper than a dictionary.
fn sync_folders(folder: &Path) -> Result<()> {
    if cfg!(unix) {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                sync_folders(&entry.path())?;
            }
        }
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

pub struct ArchiveWriter(ZipWriter<Cursor<Vec<u8>>>);

impl ArchiveWriter {
    pub fn new() -> Self {
        Self(ZipWriter::new(Cursor::new(Vec::new())))
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        self.0.finish().map(Cursor::into_inner).map_err(|error| zip_error(&error))
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
        self.0.start_file(path, options).map_err(|error| zip_error(&error))?;
        write(&mut self.0)
    }
}

fn zip_error(error: &zip::result::ZipError) -> Error {
    match error {
        zip::result::ZipError::Io(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Io, error.to_string())
        }
        _ => Error::new(ErrorKind::Corrupt, format!("must be a ZIP archive of stored members: got {error}")),
    }
}
