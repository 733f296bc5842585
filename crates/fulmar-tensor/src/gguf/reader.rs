//! Reads the little-endian values of a GGUF file in sequence.

use fulmar_core::limits::GGUF_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde_json::Value;

use super::corrupt;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            let left = self.bytes.len() - self.at;
            return Err(corrupt(format!("a GGUF file must hold {len} bytes more: got {left}")));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn len(&mut self) -> Result<usize> {
        let len = self.u64()?;
        usize::try_from(len).map_err(|_| corrupt(format!("a length must fit in memory: got {len}")))
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let len = self.len()?;
        let bytes = self.take(len)?;
        Ok(std::str::from_utf8(bytes).map_err(|_| corrupt("texts must be UTF-8"))?.to_owned())
    }

    /// Reads a value after its type.
    pub(super) fn value(&mut self) -> Result<Value> {
        let kind = self.u32()?;
        self.value_of(kind, 0)
    }

    fn value_of(&mut self, kind: u32, depth: usize) -> Result<Value> {
        Ok(match kind {
            0 => u8::from_le_bytes(self.array()?).into(),
            1 => i8::from_le_bytes(self.array()?).into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            3 => i16::from_le_bytes(self.array()?).into(),
            4 => self.u32()?.into(),
            5 => i32::from_le_bytes(self.array()?).into(),
            6 => f32::from_le_bytes(self.array()?).into(),
            7 => match self.array::<1>()? {
                [0] => false.into(),
                [1] => true.into(),
                [byte] => return Err(corrupt(format!("a bool must be 0 or 1: got {byte}"))),
            },
            8 => self.text()?.into(),
            9 => self.values(depth)?,
            10 => self.u64()?.into(),
            11 => i64::from_le_bytes(self.array()?).into(),
            12 => f64::from_le_bytes(self.array()?).into(),
            _ => return Err(corrupt(format!("the type of a value must be from 0 to 12: got {kind}"))),
        })
    }

    fn values(&mut self, depth: usize) -> Result<Value> {
        if depth == GGUF_DEPTH_MAX {
            let detail = format!("arrays must be nested at most {GGUF_DEPTH_MAX} deep");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let kind = self.u32()?;
        let len = self.len()?;
        // Every value takes at least a byte, so this bounds the work that a forged count can cause.
        if len > self.bytes.len() - self.at {
            return Err(corrupt(format!("an array must end within the file: got {len} values")));
        }
        (0..len).map(|_| self.value_of(kind, depth + 1)).collect()
    }

    /// Returns the bytes from the next multiple of `alignment` on.
    pub(super) fn aligned_rest(&self, alignment: u64) -> &'a [u8] {
        let start = (self.at as u64).checked_next_multiple_of(alignment);
        let start = start.and_then(|start| usize::try_from(start).ok());
        start.and_then(|start| self.bytes.get(start..)).unwrap_or_default()
    }
}
