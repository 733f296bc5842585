//! NumPy's `.npz`: a ZIP archive of arrays.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
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
    /// `Corrupt` if it is not a ZIP archive, has a name twice, or lists a member by another name, method, size or checksum than its own
    /// header has; `Forbidden`, with the name, for a member whose name is a path out of
    /// the archive, which is never opened; `Malformed` for a member that is no `.npy`; `LimitExceeded` for more than
    /// [`NPZ_MEMBERS_MAX`] members.
    pub fn new(mut source: R) -> Result<Self> {
        let names = names_in(&mut source)?;
        let archive = check_listing(ZipArchive::new(source).map_err(zip_error)?)?;
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
            let (wanted, num_bytes, method) = (member.crc32(), member.size(), member.compression());
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
            let mut source = Summed { source, hasher: crc32fast::Hasher::new(), wanted, left: num_bytes };
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

/// The description of a member: in the list of the archive, and again ahead of its bytes.
#[derive(Debug, PartialEq)]
struct Stated {
    name: Vec<u8>,
    method: u16,
    checksum: u32,
    compressed_bytes: u64,
    num_bytes: u64,
}

/// Bytes of the header of a member ahead of its name.
const LOCAL_HEADER_BYTES: usize = 30;

/// The mark of a size that is among the extra fields.
const ZIP64: u32 = u32::MAX;

/// Refuses an archive whose list differs from the headers of its members: other readers would read other arrays.
fn check_listing<R: Read + Seek>(mut archive: ZipArchive<R>) -> Result<ZipArchive<R>> {
    let mut members = Vec::with_capacity(archive.len());
    for place in 0..archive.len() {
        let member = archive.by_index_raw(place).map_err(zip_error)?;
        #[expect(deprecated, reason = "the crate has no other way to a method's number")]
        let method = member.compression().to_u16();
        let stated = Stated {
            name: member.name_raw().to_vec(),
            method,
            checksum: member.crc32(),
            compressed_bytes: member.compressed_size(),
            num_bytes: member.size(),
        };
        members.push((member.header_start(), stated));
    }
    let mut source = archive.into_inner();
    for (start, listed) in &members {
        let local = stated_at(&mut source, *start, listed)?;
        if local != *listed {
            let name = String::from_utf8_lossy(&listed.name).into_owned();
            let detail =
                format!("a member must be as it is listed, {listed:?}: its own header states {local:?}");
            return Err(named(corrupt(detail), &name));
        }
    }
    ZipArchive::new(source).map_err(zip_error)
}

/// Reads the header of a member. Sizes and checksum that come after its bytes are those of `listed`.
fn stated_at(source: &mut (impl Read + Seek), start: u64, listed: &Stated) -> Result<Stated> {
    source.seek(SeekFrom::Start(start))?;
    let mut header = [0; LOCAL_HEADER_BYTES];
    source.read_exact(&mut header).map_err(cut)?;
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let mut name = vec![0; usize::from(short(26))];
    source.read_exact(&mut name).map_err(cut)?;
    let mut extra = vec![0; usize::from(short(28))];
    source.read_exact(&mut extra).map_err(cut)?;
    let mut wide = zip64_of(&extra);
    let mut size = |at: usize| match long(at) {
        ZIP64 => wide.next().unwrap_or(u64::from(ZIP64)),
        size => u64::from(size),
    };
    let (num_bytes, compressed_bytes) = (size(22), size(18));
    let stated = Stated { name, method: short(8), checksum: long(14), compressed_bytes, num_bytes };
    let is_behind = short(6) & 8 != 0 && stated.checksum == 0 && compressed_bytes == 0 && num_bytes == 0;
    if !is_behind {
        return Ok(stated);
    }
    let Stated { checksum, compressed_bytes, num_bytes, .. } = *listed;
    Ok(Stated { checksum, compressed_bytes, num_bytes, ..stated })
}

/// Returns the sizes of 64 bits among the extra fields.
fn zip64_of(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut sizes = Vec::new();
    while let [kind, kind_high, len, len_high, rest @ ..] = extra {
        let len = usize::from(u16::from_le_bytes([*len, *len_high])).min(rest.len());
        let (field, after) = rest.split_at(len);
        if u16::from_le_bytes([*kind, *kind_high]) == 1 && sizes.is_empty() {
            let words = field.chunks_exact(8);
            sizes.extend(
                words.map(|word| word.iter().rev().fold(0, |size, byte| size << 8 | u64::from(*byte))),
            );
        }
        extra = after;
    }
    sizes.into_iter()
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
    /// Bytes of the stated size that were not read.
    left: u64,
}

impl<R: Read> Summed<R> {
    /// Compares the size and the checksum of what was read.
    fn check(&mut self) -> Result<()> {
        if self.left > 0 {
            return Err(corrupt(format!(
                "a member must end with its array: {} bytes are stated behind it",
                self.left
            )));
        }
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
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let detail = "a member has more bytes than its archive states";
            std::io::Error::new(std::io::ErrorKind::InvalidData, detail)
        })?;
        Ok(count)
    }
}
