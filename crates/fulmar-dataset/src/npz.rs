//! NumPy's `.npz`: a ZIP archive of arrays.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;

use flate2::read::DeflateDecoder;
use fulmar_core::{Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{Tensor, TensorDict};
use zip::read::Config;
use zip::unstable::read::ZipIterable;
use zip::{CompressionMethod, ZipArchive};

use crate::arff::corrupt;
use crate::npy::{NPY_BYTES_MAX, NpyHeader, cut};
use crate::rows::named;

/// Most members of an `.npz` archive.
pub const NPZ_MEMBERS_MAX: usize = 1 << 12;

/// An open `.npz` archive. An array is read when it is asked for.
///
/// # Examples
/// ```
/// use fulmar_dataset::Npz;
/// assert!(Npz::from_bytes(&[0; 8]).is_err());
/// ```
pub struct Npz<R> {
    archive: ZipArchive<R>,
    names: Vec<String>,
}

impl Npz<BufReader<File>> {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// `Io` if it cannot be read; those of [`Npz::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(BufReader::new(open_regular(path)?.0))
    }
}

impl<'a> Npz<Cursor<&'a [u8]>> {
    /// Opens an archive that is in memory.
    ///
    /// # Errors
    /// The errors of [`Npz::new`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self> {
        Self::new(Cursor::new(bytes))
    }
}

impl<R: Read + Seek> Npz<R> {
    /// Opens an archive.
    ///
    /// # Errors
    /// `Corrupt` if it is not a ZIP archive, or has a name twice; `Forbidden`, with the name, for a member whose name is a path out of
    /// the archive, which is never opened; `Malformed` for a member that is no `.npy`; `LimitExceeded` for more than
    /// [`NPZ_MEMBERS_MAX`] members.
    pub fn new(mut source: R) -> Result<Self> {
        let names = names_in(&mut source)?;
        let archive = ZipArchive::new(source).map_err(zip_error)?;
        Ok(Self { archive, names })
    }

    /// Returns the names of the arrays, without `.npy`, in the order of the archive.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns what the header of the array `name` states.
    ///
    /// # Errors
    /// With the name, `UnknownName` for another one; those of [`NpyHeader::read`].
    pub fn header(&mut self, name: &str) -> Result<NpyHeader> {
        self.with(name, |source| NpyHeader::read(source))
    }

    /// Reads the array `name`, up to what its header states.
    ///
    /// # Errors
    /// With the name, `UnknownName` for another one; `Corrupt` if its checksum is another one; `Incompatible` for a member that is
    /// encrypted or compressed by another method than DEFLATE; those of [`crate::read_npy`].
    pub fn read(&mut self, name: &str) -> Result<Tensor> {
        self.with(name, |mut source| {
            let header = NpyHeader::read(&mut source)?;
            let tensor = header.elements(&mut source)?;
            source.check().map(|()| tensor)
        })
    }

    fn with<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Summed<Box<dyn Read + '_>>) -> Result<T>,
    ) -> Result<T> {
        let read_member = || {
            let place = self.names.iter().position(|known| known == name).ok_or_else(|| {
                let detail = format!("must be one of {}: there is no such array", self.names.join(", "));
                Error::new(ErrorKind::UnknownName, detail)
            })?;
            let member = self.archive.by_index_raw(place).map_err(zip_error)?;
            let (wanted, method) = (member.crc32(), member.compression());
            if member.encrypted() {
                return Err(Error::new(ErrorKind::Incompatible, "a member must not be encrypted: it is"));
            }
            let source: Box<dyn Read + '_> = match method {
                CompressionMethod::Stored => Box::new(member),
                CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(member)),
                other => {
                    let detail = format!("a member must be stored or deflated: got {other}");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            };
            let mut source = Summed { source, hasher: crc32fast::Hasher::new(), wanted };
            read(&mut source)
        };
        read_member().map_err(|error| named(error, name))
    }
}

/// Reads all arrays of an `.npz` archive.
///
/// # Errors
/// The errors of [`Npz::new`] and [`Npz::read`]; `LimitExceeded` for arrays of more than [`NPY_BYTES_MAX`] bytes in all.
pub fn read_npz(bytes: &[u8]) -> Result<TensorDict> {
    let mut npz = Npz::from_bytes(bytes)?;
    let mut dict = TensorDict::new(&[])?;
    let mut left = NPY_BYTES_MAX;
    for name in npz.names().to_vec() {
        let header = npz.header(&name)?;
        let size = header
            .shape
            .iter()
            .fold(header.dtype.size_bytes() as u64, |size, len| size.saturating_mul(*len as u64));
        left = left.checked_sub(size).ok_or_else(|| {
            Error::new(
                ErrorKind::LimitExceeded,
                format!("arrays must have at most {NPY_BYTES_MAX} bytes in all, of which {left} are left: got {size} of {name:?}"),
            )
        })?;
        dict.set(name.as_str(), npz.read(&name)?)?;
    }
    Ok(dict)
}

/// Returns the names of the arrays; refuses archives of too many before room for them is made.
fn names_in(source: &mut (impl Read + Seek)) -> Result<Vec<String>> {
    let mut listing = ZipIterable::try_new(source, Config::default()).map_err(zip_error)?;
    if listing.len() > NPZ_MEMBERS_MAX {
        let detail = format!("an archive must have at most {NPZ_MEMBERS_MAX} members: got {}", listing.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    for member in listing.files().map_err(zip_error)? {
        let member = member.map_err(zip_error)?;
        let path = member.name().map_err(zip_error)?;
        let name = name_of(&path)?;
        if !seen.insert(name.clone()) {
            return Err(corrupt(format!("an archive must have a name once: got {path:?} twice")));
        }
        names.push(name);
    }
    Ok(names)
}

fn name_of(path: &str) -> Result<String> {
    if path.starts_with('/') || path.contains(['\\', ':', '\0']) || path.split('/').any(|part| part == "..") {
        let detail = format!(
            "a member must have a name in the archive: got {:?}",
            path.chars().take(80).collect::<String>()
        );
        return Err(Error::new(ErrorKind::Forbidden, detail));
    }
    path.strip_suffix(".npy").map(str::to_owned).ok_or_else(|| {
        Error::new(ErrorKind::Malformed, format!("a member must be an array *.npy: got {path:?}"))
    })
}

fn zip_error(error: zip::result::ZipError) -> Error {
    match error {
        zip::result::ZipError::Io(error) => cut(error),
        other => corrupt(format!("must be a ZIP archive: {other}")).because(other),
    }
}

/// A source whose checksum is counted.
struct Summed<R> {
    source: R,
    hasher: crc32fast::Hasher,
    wanted: u32,
}

impl<R: Read> Summed<R> {
    /// Compares the checksum of what was read.
    fn check(&mut self) -> Result<()> {
        let found = self.hasher.clone().finalize();
        if found == self.wanted {
            return Ok(());
        }
        Err(corrupt(format!("a member must have the checksum {:08x}: got {found:08x}", self.wanted)))
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}
