//! Safetensors files: eight bytes of header length, a JSON header, then the elements of all tensors without gaps.
//!
//! Reading checks lengths, offsets, names and shapes before it allocates memory, and an error names the
//! tensor. Writing is deterministic: the same tensors and metadata give the same bytes as the format's own
//! crate (widest dtype first, then by name).
//! <https://huggingface.co/docs/safetensors>

mod header;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use fulmar_core::limits::SAFETENSORS_HEADER_BYTES_MAX;
use fulmar_core::{Error, ErrorKind, Result, open_regular};

use self::header::{Header, Known, layout_rank};
use crate::replace_file;
use crate::storage::Storage;
use crate::tensor::Tensor;

/// The bytes before the header: its length as a little-endian `u64`.
const LENGTH_BYTES: u64 = 8;

/// The content of a safetensors file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct File {
    /// The tensors, sorted by name.
    pub tensors: BTreeMap<String, Tensor>,
    /// The texts of the header's `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// The dtypes of tensors that were not read, as [`fulmar_core::Dtype`] does not have them.
    pub unread: BTreeMap<String, String>,
}

impl File {
    /// Returns the tensor called `name`.
    ///
    /// # Errors
    /// `UnknownName` if the file has no such tensor; `Unavailable`, with its dtype, if it was not read.
    ///
    /// # Examples
    /// ```
    /// let file = fulmar_tensor::safetensors::File::default();
    /// assert_eq!(file.tensor("w").unwrap_err().detail(), "tensor must be one of the 0 in the file: got \"w\"");
    /// ```
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| {
            if let Some(dtype) = self.unread.get(name) {
                let detail = format!("tensor {name:?} must be of one of {}: got {dtype}", header::names());
                return Error::new(ErrorKind::Unavailable, detail);
            }
            let detail =
                format!("tensor must be one of the {} in the file: got {name:?}", self.tensors.len());
            Error::new(ErrorKind::UnknownName, detail)
        })
    }

    /// Returns the bytes of the file, see [`write()`].
    ///
    /// # Errors
    /// The errors of [`write()`]; `Unavailable` for a file of which some tensors were not read.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if let Some(name) = self.unread.keys().next() {
            self.tensor(name)?;
        }
        let metadata: Vec<_> =
            self.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        write(self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)), &metadata)
    }
}

/// Reads a whole file from memory. Copies the elements.
///
/// # Errors
/// `Corrupt` if the bytes break a rule of the format (truncated, overlapping or out-of-range offsets, a
/// duplicate name, a length that does not match the shape); `LimitExceeded` if the header is longer than
/// [`SAFETENSORS_HEADER_BYTES_MAX`] or a shape has too many dimensions; `UnknownName` for a dtype that the
/// format does not have. The message names the tensor. A tensor of a dtype that the format has and
/// [`fulmar_core::Dtype`] does not is skipped: [`File::tensor`] names the dtype.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, safetensors};
/// let weight = Tensor::from_vec_f32(&[2], vec![1.0, 2.0])?;
/// let bytes = safetensors::write([("weight", &weight)], &[("format", "pt")])?;
/// let file = safetensors::read(&bytes)?;
/// assert_eq!((file.tensor("weight")?, &*file.metadata["format"]), (&weight, "pt"));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<File> {
    read_from(&mut &*bytes, bytes.len() as u64)
}

/// Reads the file at `path`; checks its size against its header before it reads any tensor.
///
/// # Errors
/// The errors of [`open_regular`] and [`read`]. The message names the path.
pub fn load_file(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    let (mut file, size_bytes) = open_regular(path)?;
    read_from(&mut file, size_bytes).map_err(|error| error.at(path.display()))
}

/// Returns the bytes of a file with `tensors` and `metadata`. A view is written as its own elements only.
///
/// # Errors
/// `Malformed` if a name is a duplicate or `__metadata__`; `LimitExceeded` if the header is longer than
/// [`SAFETENSORS_HEADER_BYTES_MAX`].
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, safetensors};
/// let mask = Tensor::from_vec(&[3], vec![true, false, true])?;
/// let bytes = safetensors::write([("mask", &mask)], &[])?;
/// assert_eq!(bytes[bytes.len() - 3..], [1, 0, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn write<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &[(&str, &str)],
) -> Result<Vec<u8>> {
    let (tensors, header) = laid_out(tensors, metadata)?;
    let data_len: usize = tensors.iter().map(|(_, tensor)| tensor.size_bytes()).sum();
    let mut bytes = Vec::with_capacity(header.len() + data_len);
    write_to(&mut bytes, &header, &tensors)?;
    Ok(bytes)
}

/// Writes a file at `path` atomically, see [`replace_file`].
///
/// # Errors
/// `Io` if the system refuses; the errors of [`write()`]. After an error the old file, if any, is unchanged.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, safetensors};
/// let path = std::env::temp_dir().join(format!("fulmar-doc-{}.safetensors", std::process::id()));
/// let weight = Tensor::from_vec_f32(&[2], vec![1.0, 2.0])?;
/// safetensors::save_file(&path, [("weight", &weight)], &[])?;
/// assert_eq!(safetensors::load_file(&path)?.tensor("weight")?, &weight);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn save_file<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
    metadata: &[(&str, &str)],
) -> Result<()> {
    let (tensors, header) = laid_out(tensors, metadata)?;
    replace_file(path, |writer| write_to(writer, &header, &tensors))
}

fn read_from(reader: &mut dyn Read, size_bytes: u64) -> Result<File> {
    let header_len = read_header_len(reader, size_bytes)?;
    let mut text = vec![0; header_len];
    reader.read_exact(&mut text)?;
    let header = Header::parse(&text, size_bytes - LENGTH_BYTES - header_len as u64)?;
    let (mut tensors, mut unread) = (BTreeMap::new(), BTreeMap::new());
    for (name, entry) in header.tensors {
        match entry.dtype {
            Known::Dtype(dtype) => {
                let storage = Storage::read(dtype, entry.len, reader)
                    .map_err(|error| error.at(format!("tensor {name:?}")))?;
                tensors.insert(name, Tensor::over(storage, dtype, &entry.shape));
            }
            Known::Not(dtype) => {
                pass_over(reader, entry.size_bytes).map_err(|error| error.at(format!("tensor {name:?}")))?;
                unread.insert(name, dtype);
            }
        }
    }
    Ok(File { tensors, metadata: header.metadata, unread })
}

/// Skips `size_bytes`.
fn pass_over(reader: &mut dyn Read, size_bytes: u64) -> Result<()> {
    let passed = std::io::copy(&mut reader.take(size_bytes), &mut std::io::sink())?;
    if passed == size_bytes {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, format!("data must have {size_bytes} bytes: got {passed}")))
}

/// Returns the header's length after checking it against the limit and the file.
fn read_header_len(reader: &mut dyn Read, size_bytes: u64) -> Result<usize> {
    let Some(rest) = size_bytes.checked_sub(LENGTH_BYTES) else {
        let detail = format!("a safetensors file must have at least {LENGTH_BYTES} bytes: got {size_bytes}");
        return Err(Error::new(ErrorKind::Corrupt, detail));
    };
    let mut length = [0; LENGTH_BYTES as usize];
    reader.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > SAFETENSORS_HEADER_BYTES_MAX as u64 {
        let detail = format!("header must have at most {SAFETENSORS_HEADER_BYTES_MAX} bytes: got {length}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    if length > rest {
        let detail = format!("header must fit in the {rest} bytes that follow its length: got {length}");
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    Ok(length as usize)
}

type Named<'a> = (&'a str, &'a Tensor);

/// Returns the tensors in file order, and the header with its length prefix.
fn laid_out<'a>(
    tensors: impl IntoIterator<Item = Named<'a>>,
    metadata: &[(&str, &str)],
) -> Result<(Vec<Named<'a>>, Vec<u8>)> {
    let mut tensors: Vec<_> = tensors.into_iter().collect();
    tensors.sort_by(|(left_name, left), (right_name, right)| {
        layout_rank(right.dtype()).cmp(&layout_rank(left.dtype())).then(left_name.cmp(right_name))
    });
    let text = header::text(&tensors, metadata)?;
    if text.len() > SAFETENSORS_HEADER_BYTES_MAX {
        let detail =
            format!("header must have at most {SAFETENSORS_HEADER_BYTES_MAX} bytes: got {}", text.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend_from_slice(text.as_bytes());
    Ok((tensors, header))
}

fn write_to(writer: &mut dyn Write, header: &[u8], tensors: &[Named<'_>]) -> Result<()> {
    writer.write_all(header)?;
    tensors.iter().try_for_each(|(_, tensor)| tensor.write_bytes(writer))
}
