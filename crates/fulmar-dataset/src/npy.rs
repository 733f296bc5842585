//! NumPy's `.npy`: a header that states dtype, order and shape, then the elements.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use crate::arff::corrupt;

/// Most bytes of an array in `.npy`.
pub const NPY_BYTES_MAX: u64 = 1 << 36;

/// Most bytes of the header of an array in `.npy`.
pub const NPY_HEADER_BYTES_MAX: u64 = 1 << 16;

/// The header of an array in `.npy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// Dtype of the tensor; unsigned integers of 16 bits become `I32`.
    pub dtype: Dtype,
    /// Lengths of the dimensions.
    pub shape: Vec<usize>,
    element_bytes: usize,
    is_big_endian: bool,
    is_fortran: bool,
}

impl NpyHeader {
    /// Reads a header and leaves `source` at the first element.
    ///
    /// # Errors
    /// `Corrupt` if it is not one of `.npy`, version 1 to 3; `Incompatible`, with the dtype, for objects (pickles), texts, complex
    /// numbers, times, records, and unsigned integers of 64 bits; `LimitExceeded` past [`NPY_BYTES_MAX`] bytes of elements or
    /// [`NPY_HEADER_BYTES_MAX`] bytes of header; `Io` if the source fails.
    pub fn read(mut source: impl Read) -> Result<Self> {
        let mut start = [0; 8];
        source.read_exact(&mut start).map_err(cut)?;
        let length = match (&start[..6], start[6]) {
            (b"\x93NUMPY", 1) => u64::from(u16::from_le_bytes(bytes_of(&mut source)?)),
            (b"\x93NUMPY", 2 | 3) => u64::from(u32::from_le_bytes(bytes_of(&mut source)?)),
            _ => return Err(corrupt("must be an array of .npy, version 1 to 3: it does not begin so")),
        };
        if length > NPY_HEADER_BYTES_MAX {
            let detail = format!("a header must have at most {NPY_HEADER_BYTES_MAX} bytes: got {length}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let mut text = String::new();
        source.take(length).read_to_string(&mut text)?;
        if text.len() as u64 != length {
            return Err(corrupt(format!("a header must have {length} bytes: got {}", text.len())));
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let descr = value_of(text, "descr")?;
        let (order, kind) = match descr.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
            Some((kind, _)) if kind.len() >= 3 && kind.is_ascii() => kind.split_at(1),
            _ => return Err(no_numbers(descr)),
        };
        let (dtype, element_bytes) = dtype_of(kind).ok_or_else(|| no_numbers(descr))?;
        let is_big_endian = match order {
            "<" | "|" | "=" => false,
            ">" => true,
            _ => return Err(corrupt(format!("a byte order must be <, > or |: got {order:?}"))),
        };
        let is_fortran = match value_of(text, "fortran_order")? {
            value if value.starts_with("True") => true,
            value if value.starts_with("False") => false,
            value => {
                return Err(corrupt(format!(
                    "fortran_order must be True or False: got {:?}",
                    start_of(value)
                )));
            }
        };
        let shape = shape_of(value_of(text, "shape")?)?;
        let size_bytes =
            shape.iter().fold(element_bytes as u64, |size, len| size.saturating_mul(*len as u64));
        if size_bytes > NPY_BYTES_MAX {
            let detail = format!(
                "an array must have at most {NPY_BYTES_MAX} bytes: got {size_bytes} of shape {shape:?}"
            );
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(Self { dtype, shape, element_bytes, is_big_endian, is_fortran })
    }

    /// Returns the number of bytes of the elements.
    pub(crate) fn size_bytes(&self) -> Result<usize> {
        Ok(num_elements(&self.shape)?.saturating_mul(self.element_bytes))
    }

    /// Returns true if the elements follow each other by their last dimension.
    pub(crate) fn is_row_major(&self) -> bool {
        !self.is_fortran || self.shape.len() < 2
    }

    /// Refuses bytes behind the elements. Reaches the checksum at the end of compressed sources.
    pub(crate) fn check_end(&self, source: &mut impl Read) -> Result<()> {
        if source.read(&mut [0]).map_err(cut)? == 0 {
            return Ok(());
        }
        let size_bytes = self.size_bytes()?;
        Err(corrupt(format!("an array must have {size_bytes} bytes: got {} or more", size_bytes + 1)))
    }

    /// Reads the elements that the header states, which must be all that is left of `source`. Memory grows with the bytes that come.
    ///
    /// # Errors
    /// `Corrupt`, with both numbers, for fewer bytes, and for more; `OutOfMemory`; `Io` if the source fails.
    pub fn elements(&self, mut source: impl Read) -> Result<Tensor> {
        let size_bytes = self.size_bytes()?;
        let mut bytes = Vec::new();
        source.by_ref().take(size_bytes as u64).read_to_end(&mut bytes).map_err(cut)?;
        if bytes.len() != size_bytes {
            return Err(corrupt(format!("an array must have {size_bytes} bytes: got {}", bytes.len())));
        }
        self.check_end(&mut source)?;
        if self.is_big_endian {
            bytes.chunks_exact_mut(self.element_bytes).for_each(<[u8]>::reverse);
        }
        if self.element_bytes != self.dtype.size_bytes() {
            let wide = bytes.chunks_exact(2).map(|pair| i32::from(u16::from_le_bytes([pair[0], pair[1]])));
            bytes = wide.flat_map(i32::to_le_bytes).collect();
        }
        if self.is_row_major() {
            return Tensor::from_bytes(self.dtype, &self.shape, &bytes);
        }
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let order: Vec<usize> = (0..self.shape.len()).rev().collect();
        Ok(Tensor::from_bytes(self.dtype, &reversed, &bytes)?.permute(&order)?.contiguous())
    }
}

/// Reads an array of `.npy`: any dtype of numbers and bools, either byte order and either order of elements.
///
/// # Errors
/// The errors of [`NpyHeader::read`] and [`NpyHeader::elements`].
///
/// # Examples
/// ```
/// use fulmar_dataset::read_npy;
/// let mut bytes = b"\x93NUMPY\x01\x00\x3d\x00{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }   \n".to_vec();
/// bytes.extend([0, 7, 1, 0]);
/// assert_eq!(read_npy(&bytes[..])?.to_vec::<i16>()?, [7, 256]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn read_npy(mut source: impl Read) -> Result<Tensor> {
    NpyHeader::read(&mut source)?.elements(source)
}

/// Reads an array of `.npy` that is compressed by gzip. It is inflated as it is read, up to what its header states.
///
/// # Errors
/// The errors of [`read_npy`]; `Corrupt` for what is not gzip, is cut off, or has another checksum.
pub fn read_npy_gz(source: impl Read) -> Result<Tensor> {
    read_npy(GzArray::new(source)?)
}

/// An array that is compressed by gzip.
pub(crate) struct GzArray<R>(MultiGzDecoder<BufReader<R>>);

impl<R: Read> GzArray<R> {
    /// # Errors
    /// `Corrupt` for what is not gzip; `Io` if the source fails.
    pub fn new(source: R) -> Result<Self> {
        let mut source = BufReader::with_capacity(GZ_BUFFER_BYTES, source);
        if !source.fill_buf()?.starts_with(b"\x1f\x8b") {
            return Err(corrupt("must be compressed by gzip: it does not begin so"));
        }
        Ok(Self(MultiGzDecoder::new(source)))
    }
}

impl<R: Read> Read for GzArray<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

/// Bytes of a compressed source that are read at a time.
const GZ_BUFFER_BYTES: usize = 1 << 17;

/// An error of a compressed source, which says what its bytes are, not that the system failed.
pub(crate) fn cut(error: std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        UnexpectedEof => corrupt("must be whole: it is cut off").because(error),
        InvalidData | InvalidInput => corrupt(format!("must be whole: {error}")).because(error),
        _ => error.into(),
    }
}

fn bytes_of<const N: usize>(source: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).map_err(cut)?;
    Ok(bytes)
}

/// Returns the text behind a key of the header.
fn value_of<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let quoted = format!("'{key}':");
    match text.split_once(quoted.as_str()) {
        Some((_, value)) => Ok(value.trim_start()),
        None => Err(corrupt(format!("a header must have {key:?}: it has none"))),
    }
}

fn dtype_of(kind: &str) -> Option<(Dtype, usize)> {
    Some(match kind {
        "b1" => (Dtype::Bool, 1),
        "u1" => (Dtype::U8, 1),
        "u2" => (Dtype::I32, 2),
        "u4" => (Dtype::U32, 4),
        "i1" => (Dtype::I8, 1),
        "i2" => (Dtype::I16, 2),
        "i4" => (Dtype::I32, 4),
        "i8" => (Dtype::I64, 8),
        "f2" => (Dtype::F16, 2),
        "f4" => (Dtype::F32, 4),
        "f8" => (Dtype::F64, 8),
        _ => return None,
    })
}

fn shape_of(value: &str) -> Result<Vec<usize>> {
    let inner = value.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (inner, _) =
        inner.ok_or_else(|| corrupt(format!("a shape must be in brackets: got {:?}", start_of(value))))?;
    let lens = inner.split(',').map(str::trim).filter(|len| !len.is_empty());
    lens.map(|len| {
        let parsed = len.trim_end_matches('L').parse::<usize>();
        parsed.map_err(|error| corrupt(format!("a length must be a number: got {len:?}")).because(error))
    })
    .collect()
}

fn no_numbers(descr: &str) -> Error {
    let detail = format!("an array must be of numbers or bools: got {}", start_of(descr));
    Error::new(ErrorKind::Incompatible, detail)
}

fn start_of(value: &str) -> String {
    value.chars().take(40).take_while(|next| *next != ',' && *next != '}').collect()
}
