//! Archives of memory-mapped leaves, raw and with a valid tree inside, and the folders that they describe.

use std::io::{Cursor, Write};

use fulmar::tensor::memmap;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Checks that accepted input can be written and read again.
pub fn run(data: &[u8]) {
    for bytes in [data.to_vec(), packed(data)] {
        if let Ok(dict) = memmap::read_archive(&bytes)
            && let Ok(written) = memmap::write_archive(&dict)
        {
            // NaN equals nothing, so bytes are compared.
            let again = memmap::read_archive(&written).and_then(|dict| memmap::write_archive(&dict));
            assert_eq!(again.as_ref(), Ok(&written), "bytes bring it back");
        }
    }
}

/// An archive whose members are the parts of `data`: a path, a line break and the content of the file.
fn packed(data: &[u8]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut rest = data;
    while !rest.is_empty() {
        let end = place_of(rest, super::SEPARATOR.as_bytes());
        let member = &rest[..end];
        rest = rest.get(end + super::SEPARATOR.len()..).unwrap_or_default();
        let line = member.iter().position(|byte| *byte == b'\n').unwrap_or(member.len());
        let path = String::from_utf8_lossy(&member[..line]);
        if archive.start_file(&*path, options).is_ok() {
            // Writing to memory cannot fail.
            let _ = archive.write_all(member.get(line + 1..).unwrap_or_default());
        }
    }
    archive.finish().map_or_else(|_| Vec::new(), Cursor::into_inner)
}

/// Returns the offset of `part` in `whole`, or the length of `whole`.
fn place_of(whole: &[u8], part: &[u8]) -> usize {
    whole.windows(part.len()).position(|window| window == part).unwrap_or(whole.len())
}
