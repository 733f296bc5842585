//! Records that wait to be written, and how they reach the log.

use fulmar_core::limits::{STORE_GROUP_RECORDS_MAX, STORE_ROWS_MAX};
use fulmar_core::{Error, ErrorKind, Result};

use super::{GROUP_BYTES, Store};
use crate::index::Place;
use crate::layout::{
    Entry, HEADER_BYTES, Header, Kind, PENDING, Position, SEQ_MAX, corrupt, group_bytes, segment_name,
};

#[derive(Default)]
pub(super) struct Pending {
    pub(super) kind: Option<Kind>,
    pub(super) entries: Vec<Entry>,
    pub(super) payload: Vec<u8>,
    /// A write of this group failed: it must be repeated unchanged, since a part of it may be on disk.
    pub(super) is_fixed: bool,
}

impl Store {
    /// Refuses all writes after a failed sync; otherwise first completes a failed write.
    pub(crate) fn begin_write(&mut self) -> Result<()> {
        if self.failed {
            let detail = "a store must be opened anew after a failed sync: got a write";
            return Err(Error::new(ErrorKind::Closed, detail));
        }
        // Only forged files have such numbers.
        if self.index.end_seq.max(self.revision) >= SEQ_MAX - STORE_ROWS_MAX {
            return Err(corrupt("a store must have fewer than 2^62 changes"));
        }
        if self.pending.is_fixed || self.pending.kind == Some(Kind::Clear) { self.flush() } else { Ok(()) }
    }

    pub(super) fn check_record(&self, record: &[u8]) -> Result<()> {
        let max = self.record_bytes_max();
        if record.len() > max {
            let detail = format!("record must have at most {max} bytes: got {}", record.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(())
    }

    pub(crate) fn put(&mut self, seq: u64, record: &[u8]) -> Result<()> {
        self.make_room(Kind::Put, record.len())?;
        self.push_record(seq, record);
        Ok(())
    }

    pub(crate) fn put_mark(&mut self, seq: u64, mark: u64) -> Result<()> {
        self.make_room(Kind::Mark, 0)?;
        self.pending.entries.push(Entry { seq, word: mark });
        self.index.set_mark(seq, mark, PENDING);
        Ok(())
    }

    /// Writes the waiting rows unless one more entry of `kind` may join them.
    pub(super) fn make_room(&mut self, kind: Kind, len: usize) -> Result<()> {
        let count = self.pending.entries.len() as u32 + 1;
        let fits = group_bytes(count, (self.pending.payload.len() + len) as u32)
            <= GROUP_BYTES.min(self.segment_bytes() / 2);
        let joins = self.pending.kind == Some(kind) && !self.pending.is_fixed;
        if self.pending.kind.is_some() && !(joins && fits && count <= STORE_GROUP_RECORDS_MAX) {
            self.flush()?;
        }
        self.pending.kind = Some(kind);
        Ok(())
    }

    pub(super) fn push_record(&mut self, seq: u64, record: &[u8]) {
        let entry = Entry::of_record(seq, record.len() as u32, crc32fast::hash(record));
        let position = Position { segment: PENDING, offset: self.pending.payload.len() as u32 };
        self.pending.entries.push(entry);
        self.pending.payload.extend_from_slice(record);
        self.index.set_place(seq, Place { position, len: entry.len(), crc: entry.crc() });
    }

    /// Writes the waiting rows as one group. After an error they still wait.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let Some(kind) = self.pending.kind else { return Ok(()) };
        let size = group_bytes(self.pending.entries.len() as u32, self.pending.payload.len() as u32);
        let needs_segment = u64::from(self.head.offset) + size > self.segment_bytes();
        if needs_segment {
            self.make_log_durable()?;
            self.begin_segment()?;
        }
        let header = self.pending_header(kind);
        match self.write_pending(&header) {
            Ok(table) => self.tables.push(&table),
            Err(error) => {
                self.pending.is_fixed = true;
                return Err(error);
            }
        }
        self.stats.num_groups += 1;
        self.head.offset += size as u32;
        self.revision = header.revision;
        self.written_seq = header.end_seq;
        self.settle_pending(&header);
        if needs_segment {
            let write_index = self.superblocks.newest.write_index;
            self.make_durable()?;
            if self.superblocks.newest.write_index == write_index {
                self.write_superblock()?;
            }
        }
        Ok(())
    }

    fn pending_header(&self, kind: Kind) -> Header {
        Header {
            kind,
            position: self.head,
            epoch: self.epoch,
            count: self.pending.entries.len() as u32,
            payload_len: self.pending.payload.len() as u32,
            table_crc: 0,
            end_seq: self.index.end_seq,
            revision: self.revision + u64::from(kind.revises()),
            durable: self.durable,
            store_id: self.superblocks.newest.store_id,
        }
    }

    /// Writes the payload, which is long, from its place, and then header and table, which it returns.
    fn write_pending(&self, header: &Header) -> Result<Vec<u8>> {
        let name = segment_name(header.position.segment);
        if !self.pending.payload.is_empty() {
            self.disk.write_at(&name, header.payload_offset(), &self.pending.payload)?;
        }
        let mut bytes = vec![0; HEADER_BYTES as usize];
        self.pending.entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let table_crc = crc32fast::hash(&bytes[HEADER_BYTES as usize..]);
        bytes[..HEADER_BYTES as usize].copy_from_slice(&Header { table_crc, ..*header }.encode());
        self.disk.write_at(&name, u64::from(header.position.offset), &bytes)?;
        Ok(bytes)
    }

    /// Points the index at the group just written.
    fn settle_pending(&mut self, header: &Header) {
        let Position { segment, .. } = header.position;
        let mut offset = header.payload_offset() as u32;
        for entry in std::mem::take(&mut self.pending.entries) {
            let is_live = self.index.is_live(entry.seq);
            match header.kind {
                Kind::Append | Kind::Put => {
                    if is_live {
                        let position = Position { segment, offset };
                        self.index
                            .set_place(entry.seq, Place { position, len: entry.len(), crc: entry.crc() });
                    }
                    offset += entry.len();
                }
                Kind::Mark if is_live => self.index.set_mark(entry.seq, entry.word, segment),
                Kind::Mark | Kind::Start | Kind::Clear => {}
            }
        }
        if header.kind == Kind::Clear {
            self.index.clear(header.end_seq);
        }
        self.pending = Pending { payload: std::mem::take(&mut self.pending.payload), ..Pending::default() };
        self.pending.payload.clear();
        self.pending.payload.shrink_to(GROUP_BYTES as usize);
    }
}
