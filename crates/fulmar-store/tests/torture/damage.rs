//! Flips bits, cuts files and zeroes pages of a closed store, one damage in each run.

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_store::{Disk, MemoryDisk, Store};

use crate::model::{Model, Path, options, step_at, take};

/// What the runs found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Rows that were read and were right.
    pub num_read: u64,
    /// Rows that were answered with `Corrupt`.
    pub num_refused: u64,
}

/// Damages the files of a store `num_damages` times and reads all its rows.
pub fn damage_files(path: Path, seed: u64, num_damages: u64) -> Result<Counts> {
    let disk = MemoryDisk::default();
    let mut store = Store::open(disk.clone(), &options())?;
    let mut model = Model::default();
    for index in 0..170 {
        let step = step_at(path, seed, index, model.len());
        take(&mut store, &step, index)?;
        model.apply(&step);
    }
    store.close()?;
    let mut counts = Counts::default();
    for index in 0..num_damages {
        let damaged = copied(&disk)?;
        let what = damage(&damaged, &mut Rng::new(seed).stream("damage").fork(index))?;
        let place = format!("{path:?}, seed {seed}, damage {index}, {what}");
        let store = Store::open(damaged, &options()).map_err(|error| error.at(&place))?;
        read_all(&store, &model, &mut counts).map_err(|error| error.at(&place))?;
    }
    Ok(counts)
}

fn copied(disk: &MemoryDisk) -> Result<MemoryDisk> {
    let copy = MemoryDisk::default();
    for (name, len) in disk.list()? {
        let mut bytes = vec![0; len as usize];
        disk.read_at(&name, 0, &mut bytes)?;
        copy.allocate(&name, len)?;
        copy.write_at(&name, 0, &bytes)?;
    }
    Ok(copy)
}

/// Damages one file and says how.
fn damage(disk: &MemoryDisk, rng: &mut Rng) -> Result<String> {
    let files = disk.list()?;
    let (name, len) = &files[rng.below(files.len() as u64)? as usize];
    let offset = rng.below(*len)?;
    match rng.next_u32() % 4 {
        0 => disk.truncate(name, offset)?,
        1 => {
            let page = if rng.next_u32().is_multiple_of(2) { 512 } else { 4096 };
            let start = offset / page * page;
            disk.write_at(name, start, &vec![0; page.min(len - start) as usize])?;
        }
        _ => disk.damage(name, offset, 1 << (rng.next_u32() % 8))?,
    }
    Ok(format!("{name} at {offset}"))
}

fn read_all(store: &Store, model: &Model, counts: &mut Counts) -> Result<()> {
    let wrong = |detail: String| Err(Error::new(ErrorKind::Corrupt, detail));
    if store.len() != model.len() {
        return wrong(format!("a store must have {} rows: got {}", model.len(), store.len()));
    }
    for (slot, record, mark) in model.slots() {
        match (store.read(slot), store.mark(slot)) {
            (Ok(found), Ok(found_mark)) if found == *record && found_mark == mark => counts.num_read += 1,
            (Err(error), _) if error.kind() == ErrorKind::Corrupt => counts.num_refused += 1,
            found => return wrong(format!("slot {slot} must hold its row or be refused: got {found:?}")),
        }
    }
    Ok(())
}
