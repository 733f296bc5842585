//! Finding out, from whatever files there are, what a store held.

use std::collections::BTreeMap;

use fulmar_core::Result;

use crate::disk::Disk;
use crate::index::{Index, Place};
use crate::layout::{Entry, HEADER_BYTES, Header, Kind, Position, Superblock, segment_number};
use crate::log::Segment;

/// What the log says.
pub struct Recovered {
    pub index: Index,
    pub revision: u64,
    /// The newest epoch that wrote.
    pub epoch: u32,
    /// Where the log ends; what stands behind it was never acknowledged.
    pub head: Position,
    /// Stretches of the acknowledged log that are damaged.
    pub num_gaps: u64,
}

/// Reads the log of `block`. Reads every header and table, and the payload of what came after `block` was written.
pub fn recover(disk: &dyn Disk, block: &Superblock) -> Result<Recovered> {
    let segments = segments_of(disk, block)?;
    let committed = proven(disk, block, &segments)?;
    let mut scan = Scan::new(block, committed);
    for (&number, &len) in segments.range(..=committed.segment) {
        scan.walk(&Segment::new(disk, number, len), number)?;
    }
    if scan.head.segment < committed.segment {
        scan.head = Position { segment: committed.segment, offset: 0 };
    }
    Ok(scan.finish(block))
}

/// The segments that may hold something, with the lengths of their files.
fn segments_of(disk: &dyn Disk, block: &Superblock) -> Result<BTreeMap<u32, u64>> {
    let files = disk.list()?;
    let numbered = files.iter().filter_map(|(name, len)| Some((segment_number(name)?, *len)));
    let bounded = numbered.map(|(number, len)| (number, len.min(u64::from(block.segment_bytes))));
    Ok(bounded.filter(|(number, _)| *number >= block.first_segment).collect())
}

/// How far the log was durable for certain: as the superblock says, or any whole header behind that place.
fn proven(disk: &dyn Disk, block: &Superblock, segments: &BTreeMap<u32, u64>) -> Result<Position> {
    let mut committed = block.committed;
    for (&number, &len) in segments.range(block.committed.segment..) {
        let segment = Segment::new(disk, number, len);
        let mut offset =
            if number == block.committed.segment { u64::from(block.committed.offset) } else { 0 };
        while let Some(header) = segment.next_header(offset, len)? {
            // A group cannot prove what comes after it.
            committed = committed.max(header.durable.min(header.position));
            offset = u64::from(header.position.offset) + u64::from(HEADER_BYTES);
        }
    }
    Ok(committed)
}

struct Scan {
    index: Index,
    committed: Position,
    checked_from: Position,
    /// Row number and revision after the last group.
    reached: Option<(u64, u64)>,
    epoch: u32,
    head: Position,
    num_gaps: u64,
}

impl Scan {
    fn new(block: &Superblock, committed: Position) -> Self {
        Self {
            index: Index::new(block.capacity, block.base_seq, block.base_seq),
            committed,
            checked_from: block.committed,
            reached: None,
            epoch: 0,
            head: Position { segment: block.first_segment, offset: 0 },
            num_gaps: 0,
        }
    }

    /// Takes in every group of a segment up to the first that was not acknowledged for certain and is not whole.
    fn walk(&mut self, segment: &Segment<'_>, number: u32) -> Result<()> {
        let certain = match self.committed {
            Position { segment, offset } if segment == number => u64::from(offset),
            _ => u64::MAX,
        };
        let mut offset = 0;
        loop {
            self.head = Position { segment: number, offset: offset as u32 };
            let header = segment.header(offset)?.filter(|header| header.epoch >= self.epoch);
            let entries = match &header {
                Some(header) => self.whole_table(segment, header)?,
                None => None,
            };
            if let (Some(header), Some(entries)) = (&header, entries) {
                self.take(header, &entries);
                offset += header.size_bytes();
                continue;
            }
            if offset >= certain {
                return Ok(());
            }
            // Everything before `certain` was acknowledged: what is not whole is damaged, what follows it is not.
            let skipped = header.map_or(u64::from(HEADER_BYTES), |header| header.size_bytes());
            match segment.next_header(offset + skipped, certain)? {
                Some(next) => offset = u64::from(next.position.offset),
                None if certain == u64::MAX => return Ok(()),
                None => offset = certain,
            }
        }
    }

    /// The table of a group whose records are whole as far as nobody has found so before.
    fn whole_table(&self, segment: &Segment<'_>, header: &Header) -> Result<Option<Vec<Entry>>> {
        let Some(entries) = segment.table(header)? else { return Ok(None) };
        // Records of the certain part are checked when they are read, each by itself.
        let unchecked = header.position >= self.checked_from && header.position >= self.committed;
        let whole = !unchecked || segment.payload_is_whole(header, &entries)?;
        Ok(whole.then_some(entries))
    }

    fn take(&mut self, header: &Header, entries: &[Entry]) {
        let (first_seq, revision) = header.before();
        match self.reached {
            None if header.kind == Kind::Start => {}
            Some((end_seq, reached)) if first_seq >= end_seq && revision == reached => {
                self.num_gaps += u64::from(first_seq > end_seq);
            }
            // A group that replaced rows is lost, so any older row may be out of date: none of them may be answered.
            _ => {
                self.index.forget();
                self.num_gaps += 1;
            }
        }
        self.reached = Some((header.end_seq, header.revision));
        self.epoch = self.epoch.max(header.epoch);
        self.index.end_seq = header.end_seq.max(self.index.base_seq);
        match header.kind {
            Kind::Start => {}
            Kind::Append | Kind::Put => self.place(header, entries),
            Kind::Mark => {
                for entry in
                    entries.iter().filter(|entry| self.index.is_live(entry.seq)).copied().collect::<Vec<_>>()
                {
                    self.index.set_mark(entry.seq, entry.word, header.position.segment);
                }
            }
            Kind::Clear if header.end_seq >= self.index.base_seq => self.index.clear(header.end_seq),
            Kind::Clear => {}
        }
    }

    fn place(&mut self, header: &Header, entries: &[Entry]) {
        let mut offset = header.payload_offset();
        for entry in entries {
            if self.index.is_live(entry.seq) {
                let position = Position { segment: header.position.segment, offset: offset as u32 };
                self.index.set_place(entry.seq, Place { position, len: entry.len(), crc: entry.crc() });
            }
            offset += u64::from(entry.len());
        }
    }

    fn finish(mut self, block: &Superblock) -> Recovered {
        let (end_seq, revision) = self.reached.unwrap_or((0, 0));
        if revision < block.revision {
            self.index.forget();
        }
        let lost = revision < block.revision || end_seq < block.end_seq;
        self.index.end_seq = self.index.end_seq.max(block.end_seq);
        Recovered {
            index: self.index,
            revision: revision.max(block.revision),
            epoch: self.epoch.max(block.epoch),
            head: self.head,
            num_gaps: self.num_gaps + u64::from(lost),
        }
    }
}
