//! Arrays of NumPy in a pickle.

use std::borrow::Cow;

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::Tensor;

use super::Value;

/// Most dimensions of an array, as NumPy has it.
pub(super) const RANK_MAX: usize = 64;

/// The dtype of an array.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrayDtype {
    /// `None` for objects.
    dtype: Option<Dtype>,
    is_big_endian: bool,
}

impl ArrayDtype {
    /// Returns the dtype of a code such as `f4` or `<f4`.
    ///
    /// # Errors
    /// `Incompatible` for one that tensors lack.
    pub fn of(code: &str) -> Result<Self> {
        let (order, name) = match code.as_bytes() {
            [b'<' | b'>' | b'=' | b'|', ..] => code.split_at(1),
            _ => ("", code),
        };
        let dtype = match name {
            "f8" => Some(Dtype::F64),
            "f4" => Some(Dtype::F32),
            "f2" => Some(Dtype::F16),
            "i8" => Some(Dtype::I64),
            "i4" => Some(Dtype::I32),
            "i2" => Some(Dtype::I16),
            "i1" => Some(Dtype::I8),
            "u4" => Some(Dtype::U32),
            "u1" => Some(Dtype::U8),
            "b1" => Some(Dtype::Bool),
            "O8" | "O4" | "O" => None,
            _ => {
                let detail = format!("the dtype of an array must be one that tensors have: got {code:?}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        Ok(Self { dtype, is_big_endian: order == ">" })
    }

    /// Returns the same with the byte order of its state.
    pub fn with_order(self, order: &str) -> Self {
        Self { is_big_endian: order == ">", ..self }
    }
}

/// An array: its elements are another value, bytes or a list.
#[derive(Debug)]
pub(super) struct Array {
    content: Option<Content>,
}

#[derive(Debug)]
struct Content {
    shape: Vec<usize>,
    dtype: ArrayDtype,
    is_fortran: bool,
    data: usize,
}

impl Array {
    /// An array whose content comes later.
    pub fn empty() -> Self {
        Self { content: None }
    }

    /// # Errors
    /// `LimitExceeded` for more than 64 dimensions.
    pub fn new(shape: Vec<usize>, dtype: ArrayDtype, is_fortran: bool, data: usize) -> Result<Self> {
        if shape.len() > RANK_MAX {
            let detail = format!("an array must have at most {RANK_MAX} dimensions: got {}", shape.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(Self { content: Some(Content { shape, dtype, is_fortran, data }) })
    }

    /// Returns the position of the elements.
    pub fn data(&self) -> Option<usize> {
        self.content.as_ref().map(|content| content.data)
    }

    /// Returns the positions of the elements of an array of objects.
    pub fn objects<'p>(&self, values: &'p [Value<'_>]) -> Option<&'p [usize]> {
        let content = self.content.as_ref().filter(|content| content.dtype.dtype.is_none())?;
        let Value::List(items) = &values[content.data] else { return None };
        (num_elements(&content.shape).ok() == Some(items.len())).then_some(items)
    }

    /// # Errors
    /// See [`PickleItem::to_tensor`](super::PickleItem::to_tensor).
    pub fn to_tensor(&self, values: &[Value<'_>]) -> Result<Tensor> {
        let Some(content) = &self.content else {
            return Err(Error::new(ErrorKind::Corrupt, "an array must have elements: it has none"));
        };
        let Some(dtype) = content.dtype.dtype else {
            return Err(Error::new(ErrorKind::Incompatible, "an array must be of numbers: it is of objects"));
        };
        let bytes = match &values[content.data] {
            Value::Bytes(bytes) => &bytes[..],
            // Bytes of Python 2 that are ASCII.
            Value::Text(text) if text.is_ascii() => text.as_bytes(),
            _ => {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the elements of an array must be bytes: they are not",
                ));
            }
        };
        content.tensor(dtype, bytes)
    }
}

impl Content {
    fn tensor(&self, dtype: Dtype, bytes: &[u8]) -> Result<Tensor> {
        let size = num_elements(&self.shape)?.checked_mul(dtype.size_bytes());
        if size != Some(bytes.len()) {
            let want = size.map_or_else(|| "more than memory has".to_owned(), |size| size.to_string());
            let detail = format!(
                "an array of {} {:?} must have {want} bytes: got {}",
                dtype.name(),
                self.shape,
                bytes.len()
            );
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let bytes = match dtype.size_bytes() {
            width if width > 1 && self.dtype.is_big_endian => {
                Cow::Owned(bytes.chunks(width).flat_map(|element| element.iter().rev().copied()).collect())
            }
            _ => Cow::Borrowed(bytes),
        };
        if !self.is_fortran {
            return Tensor::from_bytes(dtype, &self.shape, &bytes);
        }
        let reversed: Vec<usize> = self.shape.iter().rev().copied().collect();
        let order: Vec<usize> = (0..reversed.len()).rev().collect();
        Ok(Tensor::from_bytes(dtype, &reversed, &bytes)?.permute(&order)?.copied())
    }
}
