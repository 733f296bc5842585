//! Reads the untrusted files of one segment.

use std::collections::BTreeMap;

use fulmar_core::Result;

use crate::disk::Disk;
use crate::layout::{Entry, HEADER_BYTES, Header, Position, segment_name, table_name};

/// Bytes read at once in a full scan.
const CHUNK_BYTES: usize = 1 << 16;

/// Groups by their offset in the segment.
pub type Copies = BTreeMap<u32, (Header, Vec<Entry>)>;

/// One segment with the length of its file; a missing file has no bytes.
pub struct Segment<'a> {
    disk: &'a dyn Disk,
    pub number: u32,
    store_id: u32,
    name: String,
    len: u64,
}

impl<'a> Segment<'a> {
    pub fn new(disk: &'a dyn Disk, number: u32, store_id: u32, len: u64) -> Self {
        Self { disk, number, store_id, name: segment_name(number), len }
    }

    /// Returns the header at `offset`, if there is a complete one that this store wrote there.
    pub fn header(&self, offset: u64) -> Result<Option<Header>> {
        if offset + u64::from(HEADER_BYTES) > self.len {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES as usize];
        self.disk.read_at(&self.name, offset, &mut bytes)?;
        Ok(self.decode(&bytes, offset))
    }

    /// Returns the first complete header from `start`, before `end`. O(end - start).
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
                let place = offset + i as u64 * u64::from(HEADER_BYTES);
                if let Some(header) = self.decode(bytes, place) {
                    return Ok(Some(header));
                }
            }
            offset += len;
        }
        Ok(None)
    }

    /// Returns the entries of a group; `None` if its table is damaged or does not match its payload.
    pub fn table(&self, header: &Header) -> Result<Option<Vec<Entry>>> {
        let mut table = vec![0; header.table_bytes() as usize];
        let offset = u64::from(header.position.offset + HEADER_BYTES);
        self.disk.read_at(&self.name, offset, &mut table)?;
        Ok(entries(header, &table))
    }

    /// Returns whether every record of a group has its original bytes.
    pub fn payload_is_whole(&self, header: &Header, entries: &[Entry]) -> Result<bool> {
        let mut offset = header.payload_offset();
        for entry in entries.iter().filter(|_| header.kind.has_payload()) {
            if !self.record_is_whole(offset, *entry)? {
                return Ok(false);
            }
            offset += u64::from(entry.len());
        }
        Ok(true)
    }

    /// Returns whether the record of `entry` at `offset` has its original bytes.
    pub fn record_is_whole(&self, offset: u64, entry: Entry) -> Result<bool> {
        let end = offset + u64::from(entry.len());
        if end > self.len {
            return Ok(false);
        }
        let (mut offset, mut hasher) = (offset, crc32fast::Hasher::new());
        let mut chunk = vec![0; CHUNK_BYTES.min(entry.len() as usize)];
        while offset < end {
            let chunk = &mut chunk[..(end - offset).min(CHUNK_BYTES as u64) as usize];
            self.disk.read_at(&self.name, offset, chunk)?;
            hasher.update(chunk);
            offset += chunk.len() as u64;
        }
        Ok(hasher.finalize() == entry.crc())
    }

    fn decode(&self, bytes: &[u8; HEADER_BYTES as usize], offset: u64) -> Option<Header> {
        let position = Position { segment: self.number, offset: offset as u32 };
        let header = Header::decode(bytes, self.len)?;
        (header.position == position && header.store_id == self.store_id).then_some(header)
    }
}

/// Returns the complete groups in the table copy of segment `number`, up to the end of the file.
pub fn copies(
    disk: &dyn Disk,
    number: u32,
    store_id: u32,
    file_len: u64,
    segment_bytes: u64,
) -> Result<Copies> {
    let name = table_name(number);
    // Copies are never longer than their originals.
    let end = file_len.min(segment_bytes) / u64::from(HEADER_BYTES) * u64::from(HEADER_BYTES);
    let mut copies = Copies::new();
    let (mut chunk, mut chunk_start) = (Vec::new(), 0);
    let mut offset = 0;
    while offset < end {
        if offset >= chunk_start + chunk.len() as u64 {
            chunk.resize((end - offset).min(CHUNK_BYTES as u64) as usize, 0);
            chunk_start = offset;
            disk.read_at(&name, offset, &mut chunk)?;
        }
        let at = (offset - chunk_start) as usize;
        let header = chunk[at..].first_chunk().and_then(|bytes| Header::decode(bytes, segment_bytes));
        let ours = header.filter(|header| {
            header.position.segment == number
                && header.store_id == store_id
                && offset + header.copy_bytes() <= end
        });
        offset += u64::from(HEADER_BYTES);
        let Some(header) = ours else { continue };
        let mut table = vec![0; header.table_bytes() as usize];
        disk.read_at(&name, offset, &mut table)?;
        if let Some(entries) = entries(&header, &table) {
            offset += header.copy_bytes() - u64::from(HEADER_BYTES);
            copies.insert(header.position.offset, (header, entries));
        }
    }
    Ok(copies)
}

/// Returns the entries in `table`; `None` if it is damaged or does not match the payload.
fn entries(header: &Header, table: &[u8]) -> Option<Vec<Entry>> {
    if crc32fast::hash(table) != header.table_crc {
        return None;
    }
    let entries: Vec<_> = Entry::decode_all(table).collect();
    let payload_len: u64 =
        if header.kind.has_payload() { entries.iter().map(|entry| u64::from(entry.len())).sum() } else { 0 };
    (payload_len == u64::from(header.payload_len)).then_some(entries)
}
