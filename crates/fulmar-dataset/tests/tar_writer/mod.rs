//! Archives of members in memory.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses a part")]

use std::io::Write;

use lzma_rust2::{XzOptions, XzWriter};

/// Returns a tar of files.
pub fn tar(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Returns a tar of one member, with any name and kind.
pub fn tar_of_kind(name: &str, kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, bytes).unwrap();
    builder.into_inner().unwrap()
}

/// Changes the size in the first header.
pub fn set_size(archive: &mut [u8], size: u64) {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes().copy_from_slice(&archive[..512]);
    header.set_size(size);
    header.set_cksum();
    archive[..512].copy_from_slice(header.as_bytes());
}

/// Returns the bytes as an xz stream.
pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// The checksum of xz, a bit at a time.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
