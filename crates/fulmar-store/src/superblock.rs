//! The two superblock files, written alternately.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::Disk;
use crate::layout::{
    HEADER_BYTES, Header, Position, SUPERBLOCK_BYTES, SUPERBLOCK_NAMES, Superblock, UNFINISHED_SUPERBLOCK,
    begins_like_superblock, corrupt, segment_number, table_number,
};
use crate::options::StoreOptions;

/// The content of the two files.
pub struct Superblocks {
    pub newest: Superblock,
    /// The file with the newest superblock.
    newest_turn: usize,
    pub schema: String,
    /// The files that can be overwritten: the others are missing or damaged and are made anew.
    is_whole: [bool; 2],
}

impl Superblocks {
    /// Opens the superblocks of the store on `disk`; makes them if there is no store.
    pub fn open(disk: &dyn Disk, options: &StoreOptions) -> Result<Self> {
        let Some(found) = Self::find(disk)? else { return Self::create(disk, options) };
        if found.newest.capacity != options.capacity {
            let detail = format!(
                "capacity must be that of the store, {}: got {}",
                found.newest.capacity, options.capacity
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if found.schema != options.schema {
            let detail =
                format!("schema must be that of the store, {:?}: got {:?}", found.schema, options.schema);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(found)
    }

    /// Returns the superblocks of the store on `disk`; `None` if there is no store.
    pub fn find(disk: &dyn Disk) -> Result<Option<Self>> {
        let files = disk.list()?;
        let mut blocks = Vec::new();
        let mut first_error = None;
        for (turn, name) in SUPERBLOCK_NAMES.into_iter().enumerate() {
            let Some((_, len)) = files.iter().find(|(file, _)| file == name) else { continue };
            match read(disk, name, *len) {
                Ok((block, schema)) => blocks.push(Found { turn, block, schema }),
                Err(error) => first_error = first_error.or(Some(error.at(name))),
            }
        }
        let is_of_log = |name: &str| segment_number(name).is_some() || table_number(name).is_some();
        put_newest_first(disk, &mut blocks)?;
        let turns: Vec<_> = blocks.iter().map(|found| (found.turn, found.block.store_id)).collect();
        match (blocks.into_iter().next(), first_error) {
            (Some(Found { turn, block, schema }), _) => {
                if matches!(num_files_of(disk, &block)?, (0, 1..)) {
                    let detail = "super.0 and super.1 must be those of the segments: got a superblock of another store";
                    return Err(corrupt(detail));
                }
                // The other one may belong to another store.
                let is_whole = [0, 1].map(|turn| turns.contains(&(turn, block.store_id)));
                Ok(Some(Self { newest: block, newest_turn: turn, schema, is_whole }))
            }
            (None, Some(error)) => Err(error),
            (None, None) if files.iter().any(|(name, _)| is_of_log(name)) => {
                Err(corrupt("a folder with segments must have a superblock: super.0 and super.1 are missing"))
            }
            (None, None) => Ok(None),
        }
    }

    fn create(disk: &dyn Disk, options: &StoreOptions) -> Result<Self> {
        let newest = Superblock {
            write_index: 0,
            epoch: 0,
            capacity: options.capacity,
            segment_bytes: options.segment_bytes,
            first_segment: 0,
            committed: Position::default(),
            base_seq: 0,
            end_seq: 0,
            revision: 0,
            schema_len: options.schema.len() as u32,
            schema_crc: crc32fast::hash(options.schema.as_bytes()),
            // The system draws the keys of a standard hasher at random.
            store_id: RandomState::new().hash_one(options.capacity) as u32,
        };
        let schema = options.schema.clone();
        let created = Self { newest, newest_turn: 0, schema, is_whole: [true, false] };
        created.publish(disk, &created.newest)?;
        Ok(created)
    }

    /// Publishes `block` as the first superblock of a folder, atomically: the folder then holds a store.
    pub fn publish(&self, disk: &dyn Disk, block: &Superblock) -> Result<()> {
        free_superblock_name(disk, UNFINISHED_SUPERBLOCK, block.store_id)?;
        self.write_whole(disk, UNFINISHED_SUPERBLOCK, block)?;
        disk.rename(UNFINISHED_SUPERBLOCK, SUPERBLOCK_NAMES[0])
    }

    /// Replaces the older of the two by `block`, durably.
    pub fn write(&mut self, disk: &dyn Disk, block: &Superblock) -> Result<()> {
        let block = Superblock { write_index: self.newest.write_index + 1, ..block.clone() };
        let turn = 1 - self.newest_turn;
        if self.is_whole[turn] {
            disk.write_at(SUPERBLOCK_NAMES[turn], 0, &block.encode())?;
            disk.sync(SUPERBLOCK_NAMES[turn])?;
        } else {
            free_superblock_name(disk, SUPERBLOCK_NAMES[turn], block.store_id)?;
            self.write_whole(disk, SUPERBLOCK_NAMES[turn], &block)?;
            self.is_whole[turn] = true;
        }
        (self.newest, self.newest_turn) = (block, turn);
        Ok(())
    }

    /// Frees the names of files that the log does not use: those before it, and those after segment `last`.
    pub fn remove_leftovers(&self, disk: &dyn Disk, last: u32) -> Result<()> {
        let used = self.newest.first_segment..=last;
        let is_used = |name: &str| {
            let number = segment_number(name).or_else(|| table_number(name));
            number.is_none_or(|number| used.contains(&number)) && !name.ends_with(".tmp")
        };
        let files = disk.list()?;
        let of_log =
            files.iter().filter(|(name, _)| segment_number(name).is_some() || table_number(name).is_some());
        of_log
            .filter(|(name, _)| !is_used(name))
            .try_for_each(|(name, _)| free_log_name(disk, name, self.newest.store_id))
    }

    fn write_whole(&self, disk: &dyn Disk, name: &str, block: &Superblock) -> Result<()> {
        disk.allocate(name, (SUPERBLOCK_BYTES + self.schema.len()) as u64)?;
        disk.write_at(name, SUPERBLOCK_BYTES as u64, self.schema.as_bytes())?;
        disk.write_at(name, 0, &block.encode())?;
        disk.sync(name)
    }
}

fn read(disk: &dyn Disk, name: &str, len: u64) -> Result<(Superblock, String)> {
    if len < SUPERBLOCK_BYTES as u64 {
        return Err(corrupt(format!("a superblock must have {SUPERBLOCK_BYTES} bytes: got {len}")));
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    disk.read_at(name, 0, &mut bytes)?;
    let block = Superblock::decode(&bytes)?;
    if len - (SUPERBLOCK_BYTES as u64) < u64::from(block.schema_len) {
        return Err(corrupt(format!("a schema must have {} bytes: got a file of {len}", block.schema_len)));
    }
    let mut schema = vec![0; block.schema_len as usize];
    disk.read_at(name, SUPERBLOCK_BYTES as u64, &mut schema)?;
    if crc32fast::hash(&schema) != block.schema_crc {
        return Err(corrupt("a schema must have the checksum in its superblock"));
    }
    let schema = String::from_utf8(schema).map_err(|_| corrupt("a schema must be UTF-8"))?;
    Ok((block, schema))
}

/// A readable superblock, and its file.
struct Found {
    turn: usize,
    block: Superblock,
    schema: String,
}

/// Sorts the newest superblock first; for two stores, the one with more files first.
fn put_newest_first(disk: &dyn Disk, blocks: &mut [Found]) -> Result<()> {
    blocks.sort_by_key(|found| std::cmp::Reverse(found.block.write_index));
    let [Found { block: one, .. }, Found { block: other, .. }] = blocks else { return Ok(()) };
    if one.store_id == other.store_id {
        return Ok(());
    }
    match num_files_of(disk, one)?.0.cmp(&num_files_of(disk, other)?.0) {
        Ordering::Less => blocks.reverse(),
        Ordering::Greater => {}
        Ordering::Equal => {
            return Err(corrupt(
                "super.0 and super.1 must be those of the segments: got those of two stores",
            ));
        }
    }
    Ok(())
}

/// Returns the number of log files that begin like those of the store of `block`, and of another store.
fn num_files_of(disk: &dyn Disk, block: &Superblock) -> Result<(usize, usize)> {
    let (mut num_own, mut num_others) = (0, 0);
    for (name, len) in disk.list()? {
        if segment_number(&name).is_none() && table_number(&name).is_none() {
            continue;
        }
        let bytes = beginning(disk, &name, len)?;
        match bytes.first_chunk().and_then(|bytes| Header::decode(bytes, u64::MAX)) {
            Some(header) if header.store_id == block.store_id => num_own += 1,
            Some(_) => num_others += 1,
            None => {}
        }
    }
    Ok((num_own, num_others))
}

/// Returns the first bytes of a file, fewer than a header's if the file is shorter.
fn beginning(disk: &dyn Disk, name: &str, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len.min(u64::from(HEADER_BYTES)) as usize];
    disk.read_at(name, 0, &mut bytes)?;
    Ok(bytes)
}

fn begins_with_header_of(bytes: &[u8], store_id: u32) -> bool {
    let header = bytes.first_chunk().and_then(|bytes| Header::decode(bytes, u64::MAX));
    header.is_some_and(|header| header.store_id == store_id)
}

/// Frees `name`, of a segment or a table copy: removes a file of this store and renames any other.
pub fn free_log_name(disk: &dyn Disk, name: &str, store_id: u32) -> Result<()> {
    put_aside_other(disk, name, store_id)?;
    let is_there = disk.list()?.iter().any(|(file, _)| file == name);
    if is_there { disk.remove(name) } else { Ok(()) }
}

/// Renames a file called `name` unless it is empty or a segment or a table copy of this store.
pub fn put_aside_other(disk: &dyn Disk, name: &str, store_id: u32) -> Result<()> {
    let Some((_, len)) = disk.list()?.into_iter().find(|(file, _)| file == name) else { return Ok(()) };
    let bytes = beginning(disk, name, len)?;
    let is_own = bytes.iter().all(|byte| *byte == 0) || begins_with_header_of(&bytes, store_id);
    if is_own { Ok(()) } else { put_aside(disk, name) }
}

/// Frees `name`, of a superblock: removes one of this store, damaged or not, and renames any other file.
fn free_superblock_name(disk: &dyn Disk, name: &str, store_id: u32) -> Result<()> {
    let Some((_, len)) = disk.list()?.into_iter().find(|(file, _)| file == name) else { return Ok(()) };
    let is_of_another = read(disk, name, len).is_ok_and(|(block, _)| block.store_id != store_id);
    if begins_like_superblock(&beginning(disk, name, len)?) && !is_of_another {
        return disk.remove(name);
    }
    put_aside(disk, name)
}

/// Gives a file a name that no store reads.
fn put_aside(disk: &dyn Disk, name: &str) -> Result<()> {
    let files = disk.list()?;
    let mut free = (0..=files.len()).map(|number| format!("{name}.aside-{number}"));
    let free = free.find(|aside| files.iter().all(|(file, _)| file != aside));
    // There is one more name than files, so one of them is free.
    free.map_or(Ok(()), |aside| disk.rename(name, &aside))
}
