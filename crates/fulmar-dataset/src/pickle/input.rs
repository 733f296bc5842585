//! The bytes of a pickle, read from the front.

use fulmar_core::{Error, ErrorKind, Result};

/// Bytes and a position in them.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some((taken, _)) = rest.split_at_checked(len) else {
            return Err(corrupt(format!("{len} bytes must follow: got {}", rest.len())));
        };
        self.at += len;
        Ok(taken)
    }

    /// Returns the bytes behind their number, which has `width` bytes.
    pub fn counted(&mut self, width: usize) -> Result<&'a [u8]> {
        let len = self.length(width)?;
        self.take(len)
    }

    pub fn length(&mut self, width: usize) -> Result<usize> {
        let len = self.unsigned(width)?;
        usize::try_from(len).map_err(|_| corrupt(format!("{len} bytes must follow: there are fewer")))
    }

    pub fn unsigned(&mut self, width: usize) -> Result<u64> {
        Ok(self.take(width)?.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
    }

    /// Reads a little-endian integer in two's complement.
    pub fn integer(&mut self, len: usize) -> Result<i64> {
        let bytes = self.take(len)?;
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let (low, high) = bytes.split_at(len.min(8));
        let mut whole = [sign; 8];
        whole[..low.len()].copy_from_slice(low);
        let number = i64::from_le_bytes(whole);
        match high.iter().all(|byte| *byte == sign) && (number < 0) == (sign != 0) {
            true => Ok(number),
            false => Err(no_integer()),
        }
    }

    /// Returns the bytes up to the end of the line.
    pub fn line(&mut self) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(len) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(corrupt("a line must end: it does not"));
        };
        self.at += len + 1;
        Ok(&rest[..len])
    }

    pub fn ascii_line(&mut self) -> Result<&'a str> {
        let line = std::str::from_utf8(self.line()?)
            .map_err(|error| corrupt("a line must be text").because(error))?;
        Ok(line.strip_suffix('\r').unwrap_or(line))
    }

    pub fn parsed<T: std::str::FromStr>(&mut self, what: &str) -> Result<T> {
        let line = self.ascii_line()?;
        line.trim().parse().map_err(|_| corrupt(format!("a line must be {what}: it is not")))
    }
}

pub(super) fn no_integer() -> Error {
    Error::new(ErrorKind::Incompatible, "an integer must be one of 64 bits: it is not")
}

pub(super) fn corrupt(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}
