//! The files of a durable store, raw and with valid checksums; and records of rows.

#[cfg(unix)]
use std::sync::atomic::{AtomicU64, Ordering};

use fulmar::core::ErrorKind;
#[cfg(unix)]
use fulmar::store::FsDisk;
use fulmar::store::{Disk, MemoryDisk, RowSchema, Store};

/// The files of the corpus have segments of this length; longer ones would only take memory.
const SEGMENT_BYTES: usize = 4096;
const SUPERBLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 64;

/// Checks that files are refused or opened, and that an opened store keeps new rows when it is reopened.
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
    #[cfg(unix)]
    if files.iter().any(|(_, bytes)| KINDS.iter().any(|kind| bytes.starts_with(kind))) {
        check_folder(&files);
    }
    if let Some((_, schema)) = files.iter().find(|(name, _)| name.starts_with("schema")) {
        decode(&String::from_utf8_lossy(schema), data);
    }
}

/// The parts of `data`: a name of at most 64 bytes, a line break and the content of the file, without the zeros at its end.
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
    // It was the last opening that its number has room for.
    if again.as_ref().is_err_and(|error| error.kind() == ErrorKind::LimitExceeded) {
        return;
    }
    let found = again.as_ref().map(|store| (store.end_seq(), store.read(last)));
    assert_eq!(found, Ok((end_seq, Ok(b"new".to_vec()))), "what was acknowledged is there as it was written");
}

/// The first bytes of a file that a link, a folder or a socket replaces.
#[cfg(unix)]
const KINDS: [&[u8]; 3] = [b"@link", b"@folder", b"@socket"];
#[cfg(unix)]
const DECOY: &[u8] = b"a file that no store may change";
#[cfg(unix)]
static NUM_FOLDERS: AtomicU64 = AtomicU64::new(0);

/// Checks that a folder with links, folders and sockets under any names is refused or used, and that the target of a link stays unchanged.
#[cfg(unix)]
fn check_folder(files: &[(String, Vec<u8>)]) {
    let shared = std::path::PathBuf::from("/dev/shm");
    let parent = if shared.is_dir() { shared } else { std::env::temp_dir() };
    let number = NUM_FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("fulmar-fuzz-{}-{number}", std::process::id()));
    let (store, decoy) = (folder.join("store"), folder.join("decoy"));
    let is_plain = |name: &str| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) && !name.contains("..")
    };
    if std::fs::create_dir_all(&store).and_then(|()| std::fs::write(&decoy, DECOY)).is_err() {
        return;
    }
    for (name, bytes) in files.iter().filter(|(name, _)| is_plain(name) && name != ".") {
        let path = store.join(name);
        // Names that come twice keep what came first.
        let _ = if bytes.starts_with(KINDS[0]) {
            std::os::unix::fs::symlink(&decoy, path)
        } else if bytes.starts_with(KINDS[1]) {
            std::fs::create_dir(path)
        } else if bytes.starts_with(KINDS[2]) {
            std::os::unix::net::UnixListener::bind(path).map(drop)
        } else if path.symlink_metadata().is_err() {
            let mut bytes = bytes.clone();
            bytes.resize(bytes.len().next_multiple_of(SEGMENT_BYTES), 0);
            std::fs::write(path, bytes)
        } else {
            Ok(())
        };
    }
    if let Ok(disk) = FsDisk::new(&store) {
        let described = Store::describe(&disk).ok().flatten();
        let options = described.unwrap_or_else(|| fulmar::store::StoreOptions {
            segment_bytes: SEGMENT_BYTES as u32,
            ..fulmar::store::StoreOptions::new(4)
        });
        if options.segment_bytes as usize <= 4 * SEGMENT_BYTES
            && let Ok(mut opened) = Store::open(disk, &options)
        {
            let _ = opened.append(&[b"new"]).and_then(|_| opened.commit());
        }
    }
    assert_eq!(std::fs::read(&decoy).ok().as_deref(), Some(DECOY), "nothing is written through a link");
    let _ = std::fs::remove_dir_all(folder);
}

/// Checks that records are refused, or give rows that encode to them again.
fn decode(schema: &str, record: &[u8]) {
    let Ok(schema) = RowSchema::parse(schema) else { return };
    for len in [0, 8, 16, record.len()] {
        if let Ok(rows) = schema.decode(&[&record[..len.min(record.len())]]) {
            let again = schema.encode(&rows).and_then(|records| schema.decode(&records));
            assert_eq!(again.map(|rows| rows.batch_size().to_vec()), Ok(vec![1]), "records bring them back");
        }
    }
}
