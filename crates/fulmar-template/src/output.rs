//! Rendered text with a maximum length.

use std::io::{self, Write};

/// Collects the text of a rendering, and refuses text beyond its limit.
#[derive(Debug)]
pub struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

impl Bounded {
    /// Makes a buffer of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_full: false }
    }

    /// Returns whether any text was refused.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the text, which is UTF-8, as the engine writes whole strings.
    pub fn into_text(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

impl Write for Bounded {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.most - self.bytes.len() < text.len() {
            self.is_full = true;
            return Err(io::Error::other("rendered text must stay below its limit"));
        }
        self.bytes.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
