//! Recovers the state of a store from any files.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use fulmar_core::Result;

use crate::disk::Disk;
use crate::index::{Index, Place};
use crate::layout::{Entry, HEADER_BYTES, Header, Kind, Position, Superblock, segment_number, table_number};
use crate::log::{Copies, Segment, copies};

/// The content of the log.
pub struct Recovered {
    pub index: Index,
    pub revision: u64,
    /// The newest epoch that wrote.
    pub epoch: u32,
    /// The end of the log; bytes past it were never acknowledged.
    pub head: Position,
    /// Damaged segments, which are never written again.
    pub damaged: BTreeSet<u32>,
    /// Headers and tables of the segment of `head`, the content of its copy.
    pub head_tables: Vec<u8>,
    /// Number of damaged ranges in the acknowledged log.
    pub num_gaps: u64,
}

/// Size of the newest segments whose records are read when a store is opened; records of older ones are
/// checked when they are read.
const CHECKED_BYTES: u64 = 64 << 20;

/// Reads the log of `block`: every header and table, and the records of the newest segments.
pub fn recover(disk: &dyn Disk, block: &Superblock) -> Result<Recovered> {
    let log = Log::new(disk, block)?;
    let committed = log.proven()?;
    let mut scan = Scan::new(block, committed);
    for &number in log.files.keys() {
        // Past the certain end a segment counts if it follows without a gap, like a group.
        if number > committed.segment && !scan.is_followed(&log, number - 1)? {
            break;
        }
        scan.walk(&log, number)?;
    }
    if scan.head.segment < committed.segment {
        scan.head = Position { segment: committed.segment, offset: 0 };
        if committed.offset > 0 {
            scan.damaged.insert(committed.segment);
        }
    }
    let num_begun = u64::from(committed.segment - block.first_segment) + u64::from(committed.offset > 0);
    if (log.files.range(..=committed.segment).count() as u64) < num_begun {
        scan.num_gaps = scan.num_gaps.max(1);
    }
    Ok(scan.finish(block))
}

/// The files of a log.
struct Log<'a> {
    disk: &'a dyn Disk,
    block: &'a Superblock,
    files: BTreeMap<u32, Lengths>,
}

/// Lengths of the files of one segment, 0 for missing ones.
#[derive(Default, Clone, Copy)]
struct Lengths {
    segment: u64,
    table: u64,
}

impl<'a> Log<'a> {
    fn new(disk: &'a dyn Disk, block: &'a Superblock) -> Result<Self> {
        let mut files = BTreeMap::<u32, Lengths>::new();
        for (name, len) in disk.list()? {
            if let Some(number) = segment_number(&name) {
                files.entry(number).or_default().segment = len.min(u64::from(block.segment_bytes));
            } else if let Some(number) = table_number(&name).filter(|_| !name.ends_with(".tmp")) {
                files.entry(number).or_default().table = len;
            }
        }
        files.retain(|number, _| *number >= block.first_segment);
        Ok(Self { disk, block, files })
    }

    fn segment(&self, number: u32) -> Segment<'a> {
        let len = self.files.get(&number).map_or(0, |lengths| lengths.segment);
        Segment::new(self.disk, number, self.block.store_id, len)
    }

    fn copies(&self, number: u32) -> Result<Copies> {
        let len = self.files.get(&number).map_or(0, |lengths| lengths.table);
        copies(self.disk, number, self.block.store_id, len, u64::from(self.block.segment_bytes))
    }

    /// Returns the certain durable end of the log: from the superblock, any complete header after that
    /// position, or any copy.
    fn proven(&self) -> Result<Position> {
        let mut committed = self.block.committed;
        for (&number, lengths) in self.files.range(committed.segment..) {
            let segment = self.segment(number);
            let mut offset = if number == self.block.committed.segment {
                u64::from(self.block.committed.offset)
            } else {
                0
            };
            while let Some(header) = segment.next_header(offset, lengths.segment)? {
                // A group cannot prove what follows it.
                committed = committed.max(header.durable.min(header.position));
                offset = u64::from(header.position.offset) + u64::from(HEADER_BYTES);
            }
            let copies = self.copies(number)?;
            committed = copies.values().map(|(header, _)| header.end()).fold(committed, Position::max);
        }
        Ok(committed)
    }
}

struct Scan {
    index: Index,
    /// The start of the log.
    start: Position,
    committed: Position,
    checked_from: Position,
    /// The first segment whose records are checked.
    records_from: u32,
    /// Row number and revision after the last group.
    reached: Option<(u64, u64)>,
    epoch: u32,
    head: Position,
    tables: Vec<u8>,
    damaged: BTreeSet<u32>,
    num_gaps: u64,
    /// `true` if the last group was damaged, or came after damage.
    is_in_gap: bool,
}

/// The source of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Segment,
    /// Only the copy of its header and table.
    Copy,
}

impl Scan {
    fn new(block: &Superblock, committed: Position) -> Self {
        let num_checked = (CHECKED_BYTES / u64::from(block.segment_bytes)).max(1) as u32;
        let start = Position { segment: block.first_segment, offset: 0 };
        Self {
            index: Index::new(block.capacity, block.base_seq, block.base_seq),
            start,
            committed,
            checked_from: block.committed,
            records_from: (committed.segment + 1).saturating_sub(num_checked),
            reached: None,
            epoch: 0,
            head: start,
            tables: Vec::new(),
            damaged: BTreeSet::new(),
            num_gaps: 0,
            is_in_gap: false,
        }
    }

    /// Reads every group of a segment up to the first that is incomplete and not certainly acknowledged.
    fn walk(&mut self, log: &Log<'_>, number: u32) -> Result<()> {
        let segment = log.segment(number);
        let is_last = number >= self.committed.segment;
        let certain = match number.cmp(&self.committed.segment) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => u64::from(self.committed.offset),
            Ordering::Greater => 0,
        };
        let mut copies = None;
        let mut offset = 0;
        self.tables.clear();
        loop {
            self.head = Position { segment: number, offset: offset as u32 };
            let header = segment.header(offset)?.filter(|header| header.epoch >= self.epoch);
            let entries = match &header {
                Some(header) => self.whole_table(&segment, header)?,
                None => None,
            };
            if let (Some(header), Some(entries)) = (&header, entries) {
                self.take(&segment, header, &entries, Source::Segment)?;
                offset += header.size_bytes();
                continue;
            }
            if offset >= certain || (!is_last && self.is_followed(log, number)?) {
                return Ok(());
            }
            // Everything before `certain` was acknowledged: incomplete groups are damaged, later ones are
            // not.
            if copies.is_none() {
                copies = Some(log.copies(number)?);
            }
            let next_copy = copies.iter().find_map(|copies: &Copies| copies.range(offset as u32..).next());
            if let Some((_, (copy, entries))) = next_copy.filter(|(at, _)| u64::from(**at) == offset) {
                self.note_gap(number);
                self.take(&segment, copy, entries, Source::Copy)?;
                offset += copy.size_bytes();
                continue;
            }
            let skipped = header.map_or(u64::from(HEADER_BYTES), |header| header.size_bytes());
            let next = segment.next_header(offset + skipped, certain)?;
            let next = next.map(|header| u64::from(header.position.offset));
            let next_copy = next_copy.map(|(at, _)| u64::from(*at));
            // A segment has at least one group.
            if next.or(next_copy).is_some() || is_last || offset == 0 {
                self.note_gap(number);
            }
            match (next, next_copy) {
                (Some(next), Some(copy)) => offset = next.min(copy),
                (Some(next), None) | (None, Some(next)) => offset = next,
                (None, None) if !is_last => return Ok(()),
                (None, None) => offset = certain,
            }
        }
    }

    /// Returns whether the next segment continues this one: then its last bytes hold nothing.
    fn is_followed(&self, log: &Log<'_>, number: u32) -> Result<bool> {
        let next = log.segment(number + 1).header(0)?;
        Ok(next.is_some_and(|next| {
            next.kind == Kind::Start && next.epoch >= self.epoch && Some(next.before()) == self.reached
        }))
    }

    fn note_gap(&mut self, number: u32) {
        self.damaged.insert(number);
        self.num_gaps += u64::from(!self.is_in_gap);
        self.is_in_gap = true;
    }

    /// Returns the table of a group whose records are complete, checked as far as that is not certain.
    fn whole_table(&self, segment: &Segment<'_>, header: &Header) -> Result<Option<Vec<Entry>>> {
        let Some(entries) = segment.table(header)? else { return Ok(None) };
        let unchecked = header.position >= self.checked_from && header.position >= self.committed;
        let whole = !unchecked || segment.payload_is_whole(header, &entries)?;
        Ok(whole.then_some(entries))
    }

    fn take(
        &mut self,
        segment: &Segment<'_>,
        header: &Header,
        entries: &[Entry],
        source: Source,
    ) -> Result<()> {
        let (first_seq, revision) = header.before();
        match self.reached {
            None if header.kind == Kind::Start && header.position == self.start => {}
            Some((end_seq, reached)) if first_seq == end_seq && revision == reached => {}
            Some((end_seq, reached)) if first_seq > end_seq && revision == reached => {
                self.num_gaps += u64::from(!self.is_in_gap);
            }
            // A group that replaced rows is lost, so any older row may be outdated: none of them may be
            // returned.
            _ => {
                self.index.forget(first_seq);
                self.num_gaps += u64::from(!self.is_in_gap);
            }
        }
        self.is_in_gap = source == Source::Copy;
        self.reached = Some((header.end_seq, header.revision));
        self.epoch = self.epoch.max(header.epoch);
        self.index.end_seq = header.end_seq.max(self.index.base_seq);
        self.keep_table(header, entries);
        match header.kind {
            Kind::Start => {}
            Kind::Append | Kind::Put => self.place(segment, header, entries, source)?,
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
        Ok(())
    }

    fn keep_table(&mut self, header: &Header, entries: &[Entry]) {
        self.tables.extend_from_slice(&header.encode());
        entries.iter().for_each(|entry| entry.encode(&mut self.tables));
        self.tables.resize(self.tables.len().next_multiple_of(HEADER_BYTES as usize), 0);
    }

    /// Points the index at the records of a group. If some of them may be damaged, checks each.
    fn place(
        &mut self,
        segment: &Segment<'_>,
        header: &Header,
        entries: &[Entry],
        source: Source,
    ) -> Result<()> {
        let is_checked = source == Source::Copy || segment.number >= self.records_from;
        let mut offset = header.payload_offset();
        for entry in entries {
            if self.index.is_live(entry.seq) {
                if is_checked && !segment.record_is_whole(offset, *entry)? {
                    self.note_gap(segment.number);
                    self.index.remove_place(entry.seq);
                } else {
                    let position = Position { segment: header.position.segment, offset: offset as u32 };
                    self.index.set_place(entry.seq, Place { position, len: entry.len(), crc: entry.crc() });
                }
            }
            offset += u64::from(entry.len());
        }
        Ok(())
    }

    fn finish(mut self, block: &Superblock) -> Recovered {
        let (end_seq, revision) = self.reached.unwrap_or((0, 0));
        if revision < block.revision {
            self.index.forget(block.end_seq);
        }
        let lost = revision < block.revision || end_seq < block.end_seq;
        self.index.end_seq = self.index.end_seq.max(block.end_seq);
        Recovered {
            index: self.index,
            revision: revision.max(block.revision),
            epoch: self.epoch.max(block.epoch),
            head: self.head,
            damaged: self.damaged,
            head_tables: self.tables,
            num_gaps: self.num_gaps + u64::from(lost && !self.is_in_gap),
        }
    }
}
