//! The files of a durable store: as they come, and with checksums that fit; and records of rows.

use fulmar::store::{Disk, MemoryDisk, RowSchema, Store};

/// The files of the corpus have segments of this length; longer ones would only take memory.
const SEGMENT_BYTES: usize = 4096;
const SUPERBLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 64;

/// Files are refused or opened, and what is written to an opened store is there when it is opened again.
pub fn run(data: &[u8]) {
    let files = files(data);
    for is_sealed in [false, true] {
        let disk = MemoryDisk::default();
        for (name, bytes) in &files {
            let mut bytes = bytes.clone();
            if is_sealed {
                seal(name, &mut bytes);
            }
            let len = bytes.len().next_multiple_of(SEGMENT_BYTES);
            if disk.allocate(name, len as u64).is_ok() {
                let _ = disk.write_at(name, 0, &bytes);
            }
        }
        check(&disk);
    }
    if let Some((_, schema)) = files.iter().find(|(name, _)| name.starts_with("schema")) {
        decode(&String::from_utf8_lossy(schema), data);
    }
}

/// The parts of `data`: a name of at most 64 bytes, a line break and what the file holds, without the zeros at its end.
fn files(data: &[u8]) -> Vec<(String, Vec<u8>)> {
    let separator = super::SEPARATOR.as_bytes();
    let mut files = Vec::new();
    let mut rest = data;
    while !rest.is_empty() && files.len() < 32 {
        let end = rest.windows(separator.len()).position(|part| part == separator).unwrap_or(rest.len());
        let file = &rest[..end];
        rest = rest.get(end + separator.len()..).unwrap_or_default();
        let line = file.iter().take(64).position(|byte| *byte == b'\n').unwrap_or(0);
        let name = String::from_utf8_lossy(&file[..line]).into_owned();
        if !name.is_empty() {
            files.push((name, file[line + 1..].to_vec()));
        }
    }
    files
}

/// Puts the checksums that a writer would have put there.
fn seal(name: &str, bytes: &mut Vec<u8>) {
    if name.starts_with("super.") {
        bytes.resize(SUPERBLOCK_BYTES, 0);
        let crc = crc32fast::hash(&bytes[..SUPERBLOCK_BYTES - 4]);
        bytes[SUPERBLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        return;
    }
    for start in (0..bytes.len()).step_by(HEADER_BYTES) {
        if !bytes[start..].starts_with(b"FGRP") || bytes.len() < start + HEADER_BYTES {
            continue;
        }
        let count = u32::from_le_bytes([20, 21, 22, 23].map(|at| bytes[start + at])) as usize;
        let table = bytes.get(start + HEADER_BYTES..).and_then(|rest| rest.get(..count.checked_mul(16)?));
        let table_crc = crc32fast::hash(table.unwrap_or_default());
        bytes[start + 28..start + 32].copy_from_slice(&table_crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[start..start + 60]);
        bytes[start + 60..start + 64].copy_from_slice(&crc.to_le_bytes());
    }
}

fn check(disk: &MemoryDisk) {
    let described = Store::describe(disk).ok().flatten();
    let Some(options) = described.filter(|found| found.segment_bytes as usize <= 4 * SEGMENT_BYTES) else {
        return;
    };
    let Ok(mut store) = Store::open(disk.clone(), &options) else { return };
    for slot in 0..store.len().min(32) {
        let _ = (store.read(slot), store.mark(slot));
    }
    let written = (|| {
        store.append(&[b"new"])?;
        store.set_marks(&[(store.cursor() + store.capacity() - 1) % store.capacity()], &[7])?;
        store.commit()
    })();
    let (end_seq, last) = (store.end_seq(), (store.cursor() + store.capacity() - 1) % store.capacity());
    drop(store);
    if written.is_err() {
        return;
    }
    let again = Store::open(disk.clone(), &options);
    let found = again.as_ref().map(|store| (store.end_seq(), store.read(last)));
    assert_eq!(found, Ok((end_seq, Ok(b"new".to_vec()))), "what was acknowledged is there as it was written");
}

/// Records are refused, or rows that make them again.
fn decode(schema: &str, record: &[u8]) {
    let Ok(schema) = RowSchema::parse(schema) else { return };
    for len in [0, 8, 16, record.len()] {
        if let Ok(rows) = schema.decode(&[&record[..len.min(record.len())]]) {
            let again = schema.encode(&rows).and_then(|records| schema.decode(&records));
            assert_eq!(again.map(|rows| rows.batch_size().to_vec()), Ok(vec![1]), "records bring them back");
        }
    }
}
