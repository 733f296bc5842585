//! Damages the files of a store in one place, or of a closed one in two, and compares the rest with the
//! acknowledged data.

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_store::{Disk, MemoryDisk, Store};

use crate::model::{Model, Path, Step, options, step_at, take};

/// Number of damages to the files of one store, before another store is made.
const DAMAGES_PER_STORE: u64 = 40;

/// Statistics of the runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Number of rows that were read correctly.
    pub num_read: u64,
    /// Number of rows refused with `Corrupt`.
    pub num_refused: u64,
    /// Number of stores refused with `Corrupt`.
    pub num_unopened: u64,
}

/// Damages the files of stores `num_damages` times, reads all rows, writes and reads again.
pub fn damage_files(path: Path, seed: u64, num_damages: u64) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut made = Made::new(path, seed)?;
    for index in 0..num_damages {
        if index > 0 && index % DAMAGES_PER_STORE == 0 {
            made = Made::new(path, seed + index)?;
        }
        let damaged = copied(&made.disk)?;
        let mut rng = Rng::new(seed).stream("damage").fork(index);
        // Exchanging two files is two damages.
        let what = if made.is_closed && rng.below(3)? == 0 {
            let (one, two) = (rng.below(EXCHANGE)?, rng.below(EXCHANGE)?);
            let one = damage(&damaged, &made.other, one, &mut rng)?;
            format!("{one}, and {}", damage(&damaged, &made.other, two, &mut rng)?)
        } else {
            let kind = rng.below(EXCHANGE + 1)?;
            damage(&damaged, &made.other, kind, &mut rng)?
        };
        let end = if made.is_closed { "closed" } else { "killed" };
        let place = format!("{path:?}, seed {seed}, damage {index} of a store that was {end}: {what}");
        check(&damaged, &made.model, &mut counts).map_err(|error| error.at(&place))?;
    }
    Ok(counts)
}

/// A store and everything that it acknowledged.
struct Made {
    disk: MemoryDisk,
    model: Model,
    is_closed: bool,
    /// Files with the same names, of another store.
    other: MemoryDisk,
}

impl Made {
    fn new(path: Path, seed: u64) -> Result<Self> {
        let mut rng = Rng::new(seed).stream("trace");
        let (num_steps, is_closed) = (40 + rng.below(200)?, rng.below(2)? == 0);
        let (disk, model) = run(path, seed, num_steps, is_closed)?;
        let (other, _) = run(path, seed + 1, num_steps, is_closed)?;
        Ok(Self { disk, model, is_closed, other })
    }
}

/// Returns the files after `num_steps` steps, with openings between them. The last one is a commit.
fn run(path: Path, seed: u64, num_steps: u64, is_closed: bool) -> Result<(MemoryDisk, Model)> {
    let disk = MemoryDisk::default();
    let mut rng = Rng::new(seed).stream("openings");
    let mut store = Store::open(disk.clone(), &options())?;
    let mut model = Model::default();
    for index in 0..num_steps {
        let step = step_at(path, seed, index, model.len());
        take(&mut store, &step, index)?;
        model.apply(&step);
        if matches!(step, Step::Commit) && rng.below(8)? == 0 {
            if rng.below(2)? == 0 {
                store.close()?;
            } else {
                drop(store);
            }
            store = Store::open(disk.clone(), &options())?;
        }
    }
    store.commit()?;
    if is_closed {
        store.close()?;
    }
    Ok((disk, model))
}

fn copied(disk: &MemoryDisk) -> Result<MemoryDisk> {
    let copy = MemoryDisk::default();
    for (name, _) in disk.list()? {
        put(&copy, &name, &bytes_of(disk, &name)?)?;
    }
    Ok(copy)
}

fn bytes_of(disk: &MemoryDisk, name: &str) -> Result<Vec<u8>> {
    let len = disk.list()?.into_iter().find(|(file, _)| file == name).map_or(0, |(_, len)| len);
    let mut bytes = vec![0; len as usize];
    disk.read_at(name, 0, &mut bytes)?;
    Ok(bytes)
}

fn put(disk: &MemoryDisk, name: &str, bytes: &[u8]) -> Result<()> {
    disk.allocate(name, bytes.len() as u64)?;
    disk.truncate(name, bytes.len() as u64)?;
    disk.write_at(name, 0, bytes)
}

/// The kind of damage that exchanges two files.
const EXCHANGE: u64 = 11;

/// Applies one kind of damage and returns a description.
fn damage(disk: &MemoryDisk, other: &MemoryDisk, kind: u64, rng: &mut Rng) -> Result<String> {
    let files = disk.list()?;
    let (name, len) = &files[rng.below(files.len() as u64)? as usize];
    let offset = rng.below((*len).max(1))?;
    let how = match kind {
        0 => disk.truncate(name, offset).map(|()| "cut"),
        1 => {
            let page = if rng.next_u32().is_multiple_of(2) { 512 } else { 4096 };
            let start = offset / page * page;
            disk.write_at(name, start, &vec![0; page.min(len - start) as usize]).map(|()| "zeroed page")
        }
        2 => disk.remove(name).map(|()| "removed"),
        3 => disk.truncate(name, 0).map(|()| "emptied"),
        4 => disk.write_at(name, 0, &vec![0; *len as usize]).map(|()| "zeroed"),
        5 => {
            let bytes: Vec<u8> = (0..*len).map(|_| rng.next_u32() as u8).collect();
            disk.write_at(name, 0, &bytes).map(|()| "random bytes")
        }
        EXCHANGE => {
            let with = &files[rng.below(files.len() as u64)? as usize].0;
            // Damaging a segment and its copy at once would be two damages to the same groups.
            if with.trim_start_matches(char::is_alphabetic) == name.trim_start_matches(char::is_alphabetic) {
                return Ok("nothing".to_owned());
            }
            let (one, two) = (bytes_of(disk, name)?, bytes_of(disk, with)?);
            put(disk, name, &two)?;
            put(disk, with, &one)?;
            return Ok(format!("{name} exchanged for {with}"));
        }
        6 if other.list()?.iter().any(|(file, _)| file == name) => {
            put(disk, name, &bytes_of(other, name)?).map(|()| "of another store")
        }
        _ if *len > 0 => disk.damage(name, offset, 1 << (rng.next_u32() % 8)).map(|()| "flipped bit"),
        _ => Ok("nothing"),
    };
    Ok(format!("{} in {name} at {offset}", how?))
}

/// Opens, reads, overwrites, reopens and reads again.
fn check(disk: &MemoryDisk, model: &Model, counts: &mut Counts) -> Result<()> {
    let mut store = match Store::open(disk.clone(), &options()) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            counts.num_unopened += 1;
            return Ok(());
        }
        opened => opened?,
    };
    let mut lost = read_all(&store, model, None, counts)?;
    let stats = store.stats();
    let is_reported = lost.is_empty() || stats.num_gaps > 0;
    if stats.num_damaged_rows != lost.len() as u64 || !is_reported {
        return wrong(format!("{} rows are lost and must be counted: got {stats:?}", lost.len()));
    }
    let mut model = model.clone();
    for index in 0..6_u64 {
        let step = if index % 2 == 0 || model.len() == 0 {
            Step::Append(format!("row {index} after the damage").into_bytes())
        } else {
            Step::Update(index % model.len(), format!("row {index} again").into_bytes())
        };
        take(&mut store, &step, index)?;
        let slot = match &step {
            Step::Update(slot, _) => *slot,
            _ => (store.cursor() + store.capacity() - 1) % store.capacity(),
        };
        model.apply(&step);
        lost.retain(|lost| *lost != slot);
    }
    store.commit()?;
    drop(store);
    let again = Store::open(disk.clone(), &options())?;
    read_all(&again, &model, Some(&lost), counts).map_err(|error| error.at("opened again")).map(drop)
}

/// Compares all rows; returns the slots of lost ones. The store must list the same, all of them in `lost` if
/// that is given.
fn read_all(store: &Store, model: &Model, lost: Option<&[u64]>, counts: &mut Counts) -> Result<Vec<u64>> {
    if store.len() != model.len() {
        return wrong(format!("a store must have {} rows: got {}", model.len(), store.len()));
    }
    let mut refused = Vec::new();
    for (slot, record, mark) in model.slots() {
        match store.read(slot) {
            Ok(found) if found == *record => counts.num_read += 1,
            Err(error) if error.kind() == ErrorKind::Corrupt => refused.push(slot),
            found => return wrong(format!("slot {slot} must hold its row or be refused: got {found:?}")),
        }
        match store.mark(slot) {
            Ok(found) if found == mark => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            found => return wrong(format!("slot {slot} must have its mark or be refused: got {found:?}")),
        }
    }
    refused.sort_unstable();
    counts.num_refused += refused.len() as u64;
    let named = store.damaged_slots()?;
    if named != refused {
        return wrong(format!("slots {refused:?} are lost and must be named: got {named:?}"));
    }
    if lost.is_some_and(|lost| refused.iter().any(|slot| !lost.contains(slot))) {
        return wrong(format!("slots {lost:?} alone were lost before: got {refused:?}"));
    }
    Ok(refused)
}

fn wrong<T>(detail: String) -> Result<T> {
    Err(Error::new(ErrorKind::Corrupt, detail))
}
