//! Forged files with valid checksums and invalid numbers. Nothing may panic or hang.

use fulmar_core::{ErrorKind, Result, Rng};
use fulmar_store::{Disk, MemoryDisk, Store, StoreOptions};

/// Numbers at the limits of fields.
const EDGES: [u64; 12] =
    [0, 1, 63, 64, 4095, 4096, 0xFFFF, 0xFFFF_FFFF, 0x1_0000_0000, (1 << 62) - 1, (1 << 63) - 1, u64::MAX];
const HEADER_BYTES: usize = 64;
const SUPERBLOCK_BYTES: usize = 4096;

#[test]
fn forged_numbers_are_refused_or_survived() {
    let (disk, options) = made().unwrap();
    let (mut num_opened, mut num_refused) = (0, 0);
    for seed in 0..1500 {
        let forged = copied(&disk).unwrap();
        forge(&forged, &mut Rng::new(seed)).unwrap();
        // Larger segments than these would only take memory.
        let described = Store::describe(&forged).ok().flatten();
        match described.filter(|found| found.segment_bytes <= 4 * options.segment_bytes) {
            Some(described) if used(&forged, &described).unwrap_or(false) => num_opened += 1,
            _ => num_refused += 1,
        }
    }
    assert!(num_opened > 300 && num_refused > 20, "both must happen: got {num_opened} and {num_refused}");
}

#[test]
fn a_store_that_was_opened_too_often_is_refused_by_its_limit() {
    let kind_after = |epoch: u32| {
        let (disk, options) = made().unwrap();
        for (name, _) in disk.list().unwrap().iter().filter(|(name, _)| name.starts_with("super.")) {
            let mut bytes = bytes_of(&disk, name).unwrap();
            bytes[12..16].copy_from_slice(&epoch.to_le_bytes());
            seal_superblock(&mut bytes);
            disk.write_at(name, 0, &bytes).unwrap();
        }
        Store::open(disk, &options).map_err(|error| error.kind()).map(|store| store.len())
    };
    assert_eq!(kind_after(u32::MAX - 1), Ok(20));
    assert_eq!(kind_after(u32::MAX), Err(ErrorKind::LimitExceeded));
}

/// Returns a store of several segments with groups of all kinds.
fn made() -> Result<(MemoryDisk, StoreOptions)> {
    let (disk, options) =
        (MemoryDisk::default(), StoreOptions { segment_bytes: 4096, ..StoreOptions::new(20) });
    let mut store = Store::open(disk.clone(), &options)?;
    for i in 0..60_u8 {
        store.append(&[&vec![i; usize::from(i) * 3]])?;
        store.update(u64::from(i) % store.len(), b"other")?;
        store.set_marks(&[0], &[u64::from(i)])?;
        if i == 9 {
            store.clear()?;
        }
        store.commit()?;
    }
    store.close()?;
    Ok((disk, options))
}

fn copied(disk: &MemoryDisk) -> Result<MemoryDisk> {
    let copy = MemoryDisk::default();
    for (name, _) in disk.list()? {
        copy.allocate(&name, 4096)?;
        copy.write_at(&name, 0, &bytes_of(disk, &name)?)?;
    }
    Ok(copy)
}

fn bytes_of(disk: &MemoryDisk, name: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    disk.read_at(name, 0, &mut bytes)?;
    Ok(bytes)
}

/// Changes some numbers and makes the checksums fit.
fn forge(disk: &MemoryDisk, rng: &mut Rng) -> Result<()> {
    for _ in 0..1 + rng.below(3)? {
        let files = disk.list()?;
        let name = &files[rng.below(files.len() as u64)? as usize].0;
        let mut bytes = bytes_of(disk, name)?;
        let edge = EDGES[rng.below(EDGES.len() as u64)? as usize].wrapping_add(rng.below(3)?).wrapping_sub(1);
        if name.starts_with("super.") {
            let at = 4 * rng.below(20)? as usize;
            bytes[at..at + 8].copy_from_slice(&edge.to_le_bytes());
            seal_superblock(&mut bytes);
        } else {
            forge_group(&mut bytes, edge, rng)?;
        }
        disk.write_at(name, 0, &bytes)?;
    }
    Ok(())
}

fn seal_superblock(bytes: &mut [u8]) {
    let crc = crc32fast::hash(&bytes[..SUPERBLOCK_BYTES - 4]);
    bytes[SUPERBLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn forge_group(bytes: &mut [u8], edge: u64, rng: &mut Rng) -> Result<()> {
    let starts: Vec<usize> =
        (0..bytes.len()).step_by(HEADER_BYTES).filter(|at| bytes[*at..].starts_with(b"FGRP")).collect();
    let Some(&start) = starts.get(rng.below(starts.len().max(1) as u64)? as usize) else { return Ok(()) };
    // A field of the header, or of the first entries after it.
    let at = start + 4 + 4 * rng.below(18)? as usize;
    if let Some(field) = bytes.get_mut(at..at + 8) {
        field.copy_from_slice(&edge.to_le_bytes());
    }
    let count =
        u32::from_le_bytes([bytes[start + 20], bytes[start + 21], bytes[start + 22], bytes[start + 23]]);
    let table = bytes.get(start + HEADER_BYTES..).and_then(|rest| rest.get(..16 * count as usize));
    let table_crc = crc32fast::hash(table.unwrap_or_default());
    bytes[start + 28..start + 32].copy_from_slice(&table_crc.to_le_bytes());
    let crc = crc32fast::hash(&bytes[start..start + 60]);
    bytes[start + 60..start + 64].copy_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// Opens, reads, writes and reopens; the last write must be there.
fn used(disk: &MemoryDisk, options: &StoreOptions) -> Result<bool> {
    let mut store = Store::open(disk.clone(), options)?;
    for slot in 0..store.len().min(30) {
        let (_, _) = (store.read(slot), store.mark(slot));
    }
    for i in 0..40_u64 {
        store.append(&[&[7; 300]])?;
        store.set_marks(&[store.len() - 1], &[i])?;
        store.update(0, &i.to_le_bytes())?;
        store.commit()?;
    }
    store.checkpoint("copy")?;
    let last = (store.cursor() + store.capacity() - 1) % store.capacity();
    let end_seq = store.end_seq();
    drop(store);
    let store = Store::open(disk.clone(), options)?;
    assert_eq!(store.end_seq(), end_seq, "what was acknowledged is there");
    assert!(last == 0 || store.read(last)? == [7; 300], "the last row is there");
    Ok(true)
}
