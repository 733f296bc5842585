//! Reading one segment of the log, which may hold anything.

use fulmar_core::Result;

use crate::disk::Disk;
use crate::layout::{Entry, HEADER_BYTES, Header, Position, segment_name};

/// Bytes read at once where everything is looked at.
const CHUNK_BYTES: usize = 1 << 16;

/// One segment, as long as its file is.
pub struct Segment<'a> {
    disk: &'a dyn Disk,
    number: u32,
    name: String,
    len: u64,
}

impl<'a> Segment<'a> {
    pub fn new(disk: &'a dyn Disk, number: u32, len: u64) -> Self {
        Self { disk, number, name: segment_name(number), len }
    }

    /// The header at `offset`, if there is a whole one.
    pub fn header(&self, offset: u64) -> Result<Option<Header>> {
        if offset + u64::from(HEADER_BYTES) > self.len {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES as usize];
        self.disk.read_at(&self.name, offset, &mut bytes)?;
        Ok(Header::decode(&bytes, self.position(offset), self.len))
    }

    /// The first whole header from `start` on, before `end`. O(end - start).
    pub fn next_header(&self, start: u64, end: u64) -> Result<Option<Header>> {
        let mut offset = start.next_multiple_of(u64::from(HEADER_BYTES));
        let end = end.min(self.len);
        let mut chunk = vec![0; CHUNK_BYTES];
        while offset + u64::from(HEADER_BYTES) <= end {
            let len =
                (end - offset).min(CHUNK_BYTES as u64) / u64::from(HEADER_BYTES) * u64::from(HEADER_BYTES);
            let chunk = &mut chunk[..len as usize];
            self.disk.read_at(&self.name, offset, chunk)?;
            let (headers, _) = chunk.as_chunks::<{ HEADER_BYTES as usize }>();
            for (i, bytes) in headers.iter().enumerate() {
                let place = self.position(offset + i as u64 * u64::from(HEADER_BYTES));
                if let Some(header) = Header::decode(bytes, place, self.len) {
                    return Ok(Some(header));
                }
            }
            offset += len;
        }
        Ok(None)
    }

    /// The entries of a group, or nothing if its table is damaged or does not match its payload.
    pub fn table(&self, header: &Header) -> Result<Option<Vec<Entry>>> {
        let mut table = vec![0; header.table_bytes() as usize];
        let offset = u64::from(header.position.offset + HEADER_BYTES);
        self.disk.read_at(&self.name, offset, &mut table)?;
        if crc32fast::hash(&table) != header.table_crc {
            return Ok(None);
        }
        let entries: Vec<_> = Entry::decode_all(&table).collect();
        let payload_len: u64 = if header.kind.has_payload() {
            entries.iter().map(|entry| u64::from(entry.len())).sum()
        } else {
            0
        };
        Ok((payload_len == u64::from(header.payload_len)).then_some(entries))
    }

    /// Whether the bytes of every record of a group are those that were written.
    pub fn payload_is_whole(&self, header: &Header, entries: &[Entry]) -> Result<bool> {
        let mut offset = header.payload_offset();
        let mut chunk = vec![0; CHUNK_BYTES];
        for entry in entries.iter().filter(|_| header.kind.has_payload()) {
            let mut hasher = crc32fast::Hasher::new();
            let mut left = entry.len() as usize;
            while left > 0 {
                let chunk = &mut chunk[..left.min(CHUNK_BYTES)];
                self.disk.read_at(&self.name, offset, chunk)?;
                hasher.update(chunk);
                offset += chunk.len() as u64;
                left -= chunk.len();
            }
            if hasher.finalize() != entry.crc() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn position(&self, offset: u64) -> Position {
        Position { segment: self.number, offset: offset as u32 }
    }
}
