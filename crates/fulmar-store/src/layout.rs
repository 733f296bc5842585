//! The bytes of the files: superblocks and the headers of groups. All integers are little-endian.

use fulmar_core::limits::{
    STORE_GROUP_RECORDS_MAX, STORE_ROWS_MAX, STORE_SCHEMA_BYTES_MAX, STORE_SEGMENT_BYTES_MAX,
};
use fulmar_core::{Error, ErrorKind, Result};

/// The part of a superblock file that is rewritten; the schema follows it and never changes.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Size of a group before its table; groups start at multiples of it.
pub const HEADER_BYTES: u32 = 64;
/// Size of an entry of a group's table.
pub const ENTRY_BYTES: u32 = 16;
/// The segment number of rows that wait in memory, which no segment has.
pub const PENDING: u32 = u32::MAX;
/// Smallest segment: in smaller ones, headers would take most of the space.
pub const SEGMENT_BYTES_MIN: u32 = 4096;

const MAGIC: [u8; 8] = *b"FULMARST";
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"FGRP");
const FORMAT: u32 = 2;
/// Row numbers are below this, so that sums with counts never overflow.
pub const SEQ_MAX: u64 = 1 << 62;

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub segment: u32,
    pub offset: u32,
}

/// The names of the two superblock files.
pub const SUPERBLOCK_NAMES: [&str; 2] = ["super.0", "super.1"];
/// The first superblock of a store or of a checkpoint, until it is complete.
pub const UNFINISHED_SUPERBLOCK: &str = "super.0.tmp";
/// The file that holds the lock of a folder.
pub const LOCK_NAME: &str = "lock";

/// Returns the name of segment `number`.
pub fn segment_name(number: u32) -> String {
    format!("seg-{number:06}")
}

/// Returns the file name of the table copy of segment `number`.
pub fn table_name(number: u32) -> String {
    format!("table-{number:06}")
}

/// Returns the file name of an incomplete table copy.
pub fn unfinished_table_name(number: u32) -> String {
    format!("{}.tmp", table_name(number))
}

/// Returns the number of the segment file `name`, if it is one.
pub fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("seg-")?.parse().ok()?;
    (segment_name(number) == name && number != PENDING).then_some(number)
}

/// Returns the segment number of the table copy `name`, complete or not, if it is one.
pub fn table_number(name: &str) -> Option<u32> {
    let finished = name.strip_suffix(".tmp").unwrap_or(name);
    let number = finished.strip_prefix("table-")?.parse().ok()?;
    (table_name(number) == finished && number != PENDING).then_some(number)
}

/// Returns whether a store uses this name for one of its files.
pub fn is_store_name(name: &str) -> bool {
    SUPERBLOCK_NAMES.contains(&name)
        || [UNFINISHED_SUPERBLOCK, LOCK_NAME].contains(&name)
        || segment_number(name).is_some()
        || table_number(name).is_some()
}

/// Returns whether a file that begins with `bytes` is empty, or begins like a superblock.
pub fn begins_like_superblock(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0) || bytes.starts_with(&MAGIC)
}

/// The state of a store; see the table in the crate's documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    pub write_index: u64,
    pub epoch: u32,
    pub capacity: u64,
    pub segment_bytes: u32,
    pub first_segment: u32,
    pub committed: Position,
    pub base_seq: u64,
    pub end_seq: u64,
    pub revision: u64,
    pub schema_len: u32,
    pub schema_crc: u32,
    /// A random number that identifies this store.
    pub store_id: u32,
}

impl Superblock {
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        put32(&mut bytes, 8, FORMAT);
        put32(&mut bytes, 12, self.epoch);
        put64(&mut bytes, 16, self.write_index);
        put64(&mut bytes, 24, self.capacity);
        put32(&mut bytes, 32, self.segment_bytes);
        put32(&mut bytes, 36, self.first_segment);
        put32(&mut bytes, 40, self.committed.segment);
        put32(&mut bytes, 44, self.committed.offset);
        put64(&mut bytes, 48, self.base_seq);
        put64(&mut bytes, 56, self.end_seq);
        put64(&mut bytes, 64, self.revision);
        put32(&mut bytes, 72, self.schema_len);
        put32(&mut bytes, 76, self.schema_crc);
        put32(&mut bytes, 80, self.store_id);
        let crc = crc32fast::hash(&bytes[..SUPERBLOCK_BYTES - 4]);
        put32(&mut bytes, SUPERBLOCK_BYTES - 4, crc);
        bytes
    }

    /// Decodes an untrusted superblock.
    ///
    /// # Errors
    /// `Corrupt` if it is invalid or damaged; `Incompatible` for another format; `LimitExceeded` for sizes
    /// past a limit.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Self> {
        if bytes[..8] != MAGIC {
            return Err(corrupt("a superblock must begin with the bytes FULMARST"));
        }
        let (stored, crc) =
            (get32(bytes, SUPERBLOCK_BYTES - 4), crc32fast::hash(&bytes[..SUPERBLOCK_BYTES - 4]));
        if stored != crc {
            return Err(corrupt(format!("a superblock must have the checksum {crc:08x}: got {stored:08x}")));
        }
        if get32(bytes, 8) != FORMAT {
            let detail = format!("the format of a store must be {FORMAT}: got {}", get32(bytes, 8));
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let block = Self {
            write_index: get64(bytes, 16),
            epoch: get32(bytes, 12),
            capacity: get64(bytes, 24),
            segment_bytes: get32(bytes, 32),
            first_segment: get32(bytes, 36),
            committed: Position { segment: get32(bytes, 40), offset: get32(bytes, 44) },
            base_seq: get64(bytes, 48),
            end_seq: get64(bytes, 56),
            revision: get64(bytes, 64),
            schema_len: get32(bytes, 72),
            schema_crc: get32(bytes, 76),
            store_id: get32(bytes, 80),
        };
        check_sizes(block.capacity, block.segment_bytes, block.schema_len as usize)?;
        let in_order = block.base_seq <= block.end_seq
            && block.end_seq < SEQ_MAX
            && block.revision < SEQ_MAX
            && block.write_index < SEQ_MAX
            && block.committed.segment != PENDING;
        if !in_order
            || block.committed.segment < block.first_segment
            || block.committed.offset > block.segment_bytes
        {
            return Err(corrupt(format!("the numbers of a superblock must be in order: got {block:?}")));
        }
        Ok(block)
    }
}

/// Checks the sizes of a store, from its options or its file.
pub fn check_sizes(capacity: u64, segment_bytes: u32, schema_len: usize) -> Result<()> {
    if capacity == 0 || segment_bytes < SEGMENT_BYTES_MIN || !segment_bytes.is_multiple_of(HEADER_BYTES) {
        let detail = format!(
            "capacity must be >= 1 and segment_bytes a multiple of {HEADER_BYTES} from {SEGMENT_BYTES_MIN} on: got {capacity} and {segment_bytes}"
        );
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let limits = [
        ("capacity", capacity, STORE_ROWS_MAX),
        ("segment_bytes", u64::from(segment_bytes), STORE_SEGMENT_BYTES_MAX),
        ("schema", schema_len as u64, STORE_SCHEMA_BYTES_MAX as u64),
    ];
    for (name, value, max) in limits {
        if value > max {
            let detail = format!("{name} must be at most {max}: got {value}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
    }
    Ok(())
}

/// The kind of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Begins a segment, and an epoch: later groups with an older epoch were never acknowledged.
    Start,
    /// Rows in order, the last one before `end_seq`.
    Append,
    /// Rows that replace those of the same numbers.
    Put,
    /// 64-bit values of rows.
    Mark,
    /// Removes all rows before `end_seq`.
    Clear,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Start, Self::Append, Self::Put, Self::Mark, Self::Clear];

    /// Returns whether groups of this kind have a payload after their table.
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Append | Self::Put)
    }

    /// Returns whether a group of this kind counts in `revision`: losing it would leave older values in
    /// effect.
    pub const fn revises(self) -> bool {
        matches!(self, Self::Put | Self::Mark | Self::Clear)
    }
}

/// The fixed-size header of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub position: Position,
    pub epoch: u32,
    pub count: u32,
    pub payload_len: u32,
    pub table_crc: u32,
    pub end_seq: u64,
    pub revision: u64,
    /// Everything before this position was durable when the group was written.
    pub durable: Position,
    /// The store that wrote the group.
    pub store_id: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        put32(&mut bytes, 0, GROUP_MAGIC);
        put32(&mut bytes, 4, self.kind as u32);
        put32(&mut bytes, 8, self.position.segment);
        put32(&mut bytes, 12, self.position.offset);
        put32(&mut bytes, 16, self.epoch);
        put32(&mut bytes, 20, self.count);
        put32(&mut bytes, 24, self.payload_len);
        put32(&mut bytes, 28, self.table_crc);
        put64(&mut bytes, 32, self.end_seq);
        put64(&mut bytes, 40, self.revision);
        put32(&mut bytes, 48, self.durable.segment);
        put32(&mut bytes, 52, self.durable.offset);
        put32(&mut bytes, 56, self.store_id);
        let crc = crc32fast::hash(&bytes[..60]);
        put32(&mut bytes, 60, crc);
        bytes
    }

    /// Decodes a header; `None` if the bytes are not a header, are damaged, or have a position past
    /// `segment_len`.
    pub fn decode(bytes: &[u8; HEADER_BYTES as usize], segment_len: u64) -> Option<Self> {
        if get32(bytes, 0) != GROUP_MAGIC || get32(bytes, 60) != crc32fast::hash(&bytes[..60]) {
            return None;
        }
        let header = Self {
            kind: *Kind::ALL.get(get32(bytes, 4) as usize)?,
            position: Position { segment: get32(bytes, 8), offset: get32(bytes, 12) },
            epoch: get32(bytes, 16),
            count: get32(bytes, 20),
            payload_len: get32(bytes, 24),
            table_crc: get32(bytes, 28),
            end_seq: get64(bytes, 32),
            revision: get64(bytes, 40),
            durable: Position { segment: get32(bytes, 48), offset: get32(bytes, 52) },
            store_id: get32(bytes, 56),
        };
        let fits = u64::from(header.position.offset) + header.size_bytes() <= segment_len
            && header.position.offset.is_multiple_of(HEADER_BYTES);
        let counted = header.end_seq < SEQ_MAX
            && (u64::from(header.kind.revises())..SEQ_MAX).contains(&header.revision)
            && header.count <= STORE_GROUP_RECORDS_MAX
            && (header.kind != Kind::Append || u64::from(header.count) <= header.end_seq);
        (fits && counted).then_some(header)
    }

    /// Returns the position at which the next group may begin.
    pub fn end(&self) -> Position {
        Position { offset: self.position.offset + self.size_bytes() as u32, ..self.position }
    }

    /// Returns the size of the whole group, padded to a multiple of [`HEADER_BYTES`].
    pub fn size_bytes(&self) -> u64 {
        group_bytes(self.count, self.payload_len)
    }

    pub fn table_bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(ENTRY_BYTES)
    }

    /// Returns the size of header and table, padded to a multiple of [`HEADER_BYTES`].
    pub fn copy_bytes(&self) -> u64 {
        group_bytes(self.count, 0)
    }

    /// Returns the offset of the payload in its segment.
    pub fn payload_offset(&self) -> u64 {
        u64::from(self.position.offset) + u64::from(HEADER_BYTES) + self.table_bytes()
    }

    /// Returns the row number and the revision that the log must have before this group.
    pub fn before(&self) -> (u64, u64) {
        let rows = if self.kind == Kind::Append { u64::from(self.count) } else { 0 };
        (self.end_seq - rows, self.revision - u64::from(self.kind.revises()))
    }
}

/// Returns the size of a group of `count` entries and `payload_len` bytes.
pub fn group_bytes(count: u32, payload_len: u32) -> u64 {
    let len = u64::from(HEADER_BYTES) + u64::from(count) * u64::from(ENTRY_BYTES) + u64::from(payload_len);
    len.next_multiple_of(u64::from(HEADER_BYTES))
}

/// An entry of a group's table: a row's number with the length and checksum of its bytes, or with its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub word: u64,
}

impl Entry {
    pub fn of_record(seq: u64, len: u32, crc: u32) -> Self {
        Self { seq, word: u64::from(len) | u64::from(crc) << 32 }
    }

    pub const fn len(self) -> u32 {
        self.word as u32
    }

    pub const fn crc(self) -> u32 {
        (self.word >> 32) as u32
    }

    pub fn encode(self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.seq.to_le_bytes());
        into.extend_from_slice(&self.word.to_le_bytes());
    }

    pub fn decode_all(table: &[u8]) -> impl Iterator<Item = Self> + '_ {
        table
            .chunks_exact(ENTRY_BYTES as usize)
            .map(|entry| Self { seq: get64(entry, 0), word: get64(entry, 8) })
    }
}

/// Returns a `Corrupt` error with `detail`.
pub fn corrupt(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, detail)
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get32(bytes: &[u8], at: usize) -> u32 {
    (0..4).fold(0, |value, i| value | u32::from(bytes[at + i]) << (8 * i))
}

fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get32(bytes, at)) | u64::from(get32(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Superblock {
        Superblock {
            write_index: 3,
            epoch: 2,
            capacity: 10,
            segment_bytes: 4096,
            first_segment: 1,
            committed: Position { segment: 1, offset: 64 },
            base_seq: 4,
            end_seq: 9,
            revision: 5,
            schema_len: 0,
            schema_crc: 0,
            store_id: 77,
        }
    }

    fn header(count: u32) -> Header {
        Header {
            kind: Kind::Append,
            position: Position { segment: 1, offset: 128 },
            epoch: 1,
            count,
            payload_len: 10,
            table_crc: 0,
            end_seq: 1 << 40,
            revision: 0,
            durable: Position::default(),
            store_id: 77,
        }
    }

    #[test]
    fn superblocks_read_back_and_every_flipped_bit_is_noticed() {
        let bytes = block().encode();
        assert_eq!(Superblock::decode(&bytes), Ok(block()));
        for bit in 0..8 * SUPERBLOCK_BYTES {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn superblocks_of_other_formats_and_with_numbers_out_of_order_are_refused() {
        let mut bytes = block().encode();
        bytes[8] = 1;
        let crc = crc32fast::hash(&bytes[..SUPERBLOCK_BYTES - 4]);
        put32(&mut bytes, SUPERBLOCK_BYTES - 4, crc);
        assert_eq!(Superblock::decode(&bytes).unwrap_err().kind(), ErrorKind::Incompatible);
        for absurd in [
            Superblock { base_seq: 10, ..block() },
            Superblock { end_seq: SEQ_MAX, ..block() },
            Superblock { committed: Position { segment: 0, offset: 0 }, ..block() },
            Superblock { committed: Position { segment: 1, offset: 4097 }, ..block() },
        ] {
            assert_eq!(Superblock::decode(&absurd.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn sizes_stop_at_their_limits() {
        let segment_max = STORE_SEGMENT_BYTES_MAX as u32;
        assert_eq!(check_sizes(STORE_ROWS_MAX, segment_max, STORE_SCHEMA_BYTES_MAX), Ok(()));
        let kind = |capacity, segment, schema| check_sizes(capacity, segment, schema).unwrap_err().kind();
        assert_eq!(kind(STORE_ROWS_MAX + 1, segment_max, 0), ErrorKind::LimitExceeded);
        assert_eq!(kind(1, segment_max + HEADER_BYTES, 0), ErrorKind::LimitExceeded);
        assert_eq!(kind(1, segment_max, STORE_SCHEMA_BYTES_MAX + 1), ErrorKind::LimitExceeded);
        assert_eq!(kind(0, segment_max, 0), ErrorKind::OutOfRange);
        assert_eq!(kind(1, SEGMENT_BYTES_MIN - HEADER_BYTES, 0), ErrorKind::OutOfRange);
        assert_eq!(kind(1, SEGMENT_BYTES_MIN + 1, 0), ErrorKind::OutOfRange);
    }

    #[test]
    fn headers_read_back_where_they_fit_and_every_flipped_bit_is_noticed() {
        let header = header(3);
        let bytes = header.encode();
        let size = 128 + header.size_bytes();
        assert_eq!(Header::decode(&bytes, size), Some(header));
        assert_eq!(Header::decode(&bytes, size - 1), None);
        let between = Header { position: Position { segment: 1, offset: 100 }, ..header };
        assert_eq!(Header::decode(&between.encode(), size), None);
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged, size), None);
        }
    }

    #[test]
    fn a_group_stops_at_its_most_records() {
        let decoded = |header: Header| Header::decode(&header.encode(), u64::MAX);
        assert!(decoded(header(STORE_GROUP_RECORDS_MAX)).is_some());
        assert!(decoded(header(STORE_GROUP_RECORDS_MAX + 1)).is_none());
    }
}
