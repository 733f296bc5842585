//! The two superblock files, written in turn.

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::Disk;
use crate::layout::{Position, SUPERBLOCK_BYTES, Superblock, corrupt, segment_name, segment_number};
use crate::options::StoreOptions;

const NAMES: [&str; 2] = ["super.0", "super.1"];
/// The first superblock of a store or of a checkpoint, until it is whole.
const UNFINISHED: &str = "super.0.tmp";

/// What the two files say.
pub struct Superblocks {
    pub newest: Superblock,
    pub schema: String,
    /// Which of the files can be written over: the others are absent or damaged and are made anew.
    is_whole: [bool; 2],
}

impl Superblocks {
    /// The superblocks of the store on `disk`; makes them if it holds none.
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

    /// The superblocks of the store on `disk`, or nothing if there is no store.
    pub fn find(disk: &dyn Disk) -> Result<Option<Self>> {
        let files = disk.list()?;
        let mut blocks = Vec::new();
        let mut is_whole = [false; 2];
        let mut first_error = None;
        for (i, name) in NAMES.iter().enumerate() {
            let Some((_, len)) = files.iter().find(|(file, _)| file == name) else { continue };
            match read(disk, name, *len) {
                Ok(found) => {
                    is_whole[i] = true;
                    blocks.push(found);
                }
                Err(error) => first_error = first_error.or(Some(error.at(name))),
            }
        }
        let newest = blocks.into_iter().max_by_key(|(block, _)| block.write_index);
        match (newest, first_error) {
            (Some((newest, schema)), _) => Ok(Some(Self { newest, schema, is_whole })),
            (None, Some(error)) => Err(error),
            (None, None) if files.iter().any(|(name, _)| segment_number(name).is_some()) => {
                Err(corrupt("a folder with segments must have a superblock: got neither super.0 nor super.1"))
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
        };
        let created = Self { newest, schema: options.schema.clone(), is_whole: [true, false] };
        created.publish(disk, &created.newest)?;
        Ok(created)
    }

    /// Makes `block` the only superblock of a folder that has none, at once: before, the folder holds no store; after, it does.
    pub fn publish(&self, disk: &dyn Disk, block: &Superblock) -> Result<()> {
        if disk.list()?.iter().any(|(name, _)| name == UNFINISHED) {
            disk.remove(UNFINISHED)?;
        }
        self.write_whole(disk, UNFINISHED, block)?;
        disk.rename(UNFINISHED, NAMES[0])
    }

    /// Replaces the older of the two by `block`, durably.
    pub fn write(&mut self, disk: &dyn Disk, block: &Superblock) -> Result<()> {
        let block = Superblock { write_index: self.newest.write_index + 1, ..block.clone() };
        let turn = (block.write_index % 2) as usize;
        if self.is_whole[turn] {
            disk.write_at(NAMES[turn], 0, &block.encode())?;
            disk.sync(NAMES[turn])?;
        } else {
            self.write_whole(disk, NAMES[turn], &block)?;
            self.is_whole[turn] = true;
        }
        self.newest = block;
        Ok(())
    }

    /// Removes the segments that the log does not use: those before it, and those behind `last`.
    pub fn remove_leftovers(&self, disk: &dyn Disk, last: u32) -> Result<()> {
        let used = self.newest.first_segment..=last;
        let files = disk.list()?;
        let numbers = files.iter().filter_map(|(name, _)| segment_number(name));
        numbers
            .filter(|number| !used.contains(number))
            .try_for_each(|number| disk.remove(&segment_name(number)))
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
        return Err(corrupt("a schema must have the checksum that its superblock names: got another"));
    }
    let schema = String::from_utf8(schema).map_err(|_| corrupt("a schema must be UTF-8: got other bytes"))?;
    Ok((block, schema))
}
