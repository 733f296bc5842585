//! Removes old segments, and moves live data out of sparse ones.

use fulmar_core::{ErrorKind, Result};

use crate::index::Place;
use crate::layout::{ENTRY_BYTES, Entry, Header, Kind, segment_name};
use crate::log::Segment;
use crate::store::Store;

/// Maximum number of segments emptied at a time, so that no commit waits for all of them. While the log is
/// more than twice as long as its rows, each frees half of itself on average: more than one new segment
/// takes.
const SEGMENTS_MOVED_MAX: usize = 4;
/// Number of segments that a log may have beyond twice its rows.
const SPARE_SEGMENTS: u64 = 4;

impl Store {
    /// Removes segments at the front of the log while they hold no live data. Everything written must be
    /// durable.
    pub(crate) fn reclaim(&mut self) -> Result<()> {
        if self.is_moving || self.index.end_seq < self.keep_until_seq {
            return Ok(());
        }
        self.remove_dead()?;
        for _ in 0..SEGMENTS_MOVED_MAX {
            if !self.is_sparse() {
                break;
            }
            self.is_moving = true;
            let moved = self.move_first();
            self.is_moving = false;
            moved?;
            self.remove_dead()?;
        }
        Ok(())
    }

    /// Returns whether rows take less than half of the log.
    fn is_sparse(&self) -> bool {
        let stats = self.stats();
        let needed = stats.row_bytes + self.index.num_held() * u64::from(ENTRY_BYTES);
        stats.log_bytes > 2 * needed + SPARE_SEGMENTS * self.segment_bytes()
    }

    fn remove_dead(&mut self) -> Result<()> {
        let old_first = self.superblocks.newest.first_segment;
        let first = self.index.first_held().unwrap_or(self.head.segment).clamp(old_first, self.head.segment);
        if first == old_first {
            return Ok(());
        }
        // Update both superblocks before a file is removed: either may be read next.
        self.superblocks.newest.first_segment = first;
        self.write_superblock()?;
        self.write_superblock()?;
        // Files that cannot be removed now are removed when the store is opened.
        let _ = self.superblocks.remove_leftovers(&*self.disk, self.head.segment);
        Ok(())
    }

    /// Rewrites the live data of the first segment at the end of the log.
    fn move_first(&mut self) -> Result<()> {
        let number = self.superblocks.newest.first_segment;
        let name = segment_name(number);
        let file = self.disk.list()?.into_iter().find(|(file, _)| *file == name);
        let len = file.map_or(0, |(_, len)| len.min(self.segment_bytes()));
        let mut start = 0;
        while let Some(header) =
            self.segment(number, len).next_header(start, len)?.filter(|_| self.index.live_in(number) > 0)
        {
            start = u64::from(header.position.offset) + header.size_bytes();
            let table = self.segment(number, len).table(&header)?;
            self.move_group(&header, &table.unwrap_or_default())?;
        }
        if self.index.live_in(number) > 0 {
            self.move_rows(number)?;
        }
        self.flush()?;
        self.make_log_durable()
    }

    fn segment(&self, number: u32, len: u64) -> Segment<'_> {
        Segment::new(&*self.disk, number, self.superblocks.newest.store_id, len)
    }

    /// Moves the rows and marks of a segment with damaged headers or tables, found by their copy only.
    /// O(rows).
    fn move_rows(&mut self, number: u32) -> Result<()> {
        let mut record = Vec::new();
        for seq in self.index.end_seq - self.index.len()..self.index.end_seq {
            if let Some(place) = self.index.place(seq).filter(|place| place.position.segment == number) {
                self.move_row(seq, place, &mut record)?;
            }
            if let Some((mark, _)) = self.index.mark(seq).filter(|(_, segment)| *segment == number) {
                self.put_mark(seq, mark)?;
                self.stats.num_moved += 1;
            }
        }
        Ok(())
    }

    fn move_row(&mut self, seq: u64, place: Place, record: &mut Vec<u8>) -> Result<()> {
        self.stats.num_moved += 1;
        match self.read_place(place, record) {
            Ok(()) => self.put(seq, record),
            // A damaged row stays unreadable; its bytes are useless.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.index.remove_place(seq);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn move_group(&mut self, header: &Header, entries: &[Entry]) -> Result<()> {
        let mut offset = header.payload_offset();
        let mut record = Vec::new();
        for entry in entries.iter().filter(|_| header.kind.has_payload()) {
            let place = if self.index.is_live(entry.seq) { self.index.place(entry.seq) } else { None };
            if let Some(place) = place.filter(|place| {
                (place.position.segment, u64::from(place.position.offset))
                    == (header.position.segment, offset)
            }) {
                self.move_row(entry.seq, place, &mut record)?;
            }
            offset += u64::from(entry.len());
        }
        for entry in entries.iter().filter(|_| header.kind == Kind::Mark) {
            let mark = if self.index.is_live(entry.seq) { self.index.mark(entry.seq) } else { None };
            if mark == Some((entry.word, header.position.segment)) {
                self.put_mark(entry.seq, entry.word)?;
                self.stats.num_moved += 1;
            }
        }
        Ok(())
    }
}
