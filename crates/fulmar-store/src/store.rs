//! A ring of records on a disk.

use std::ops::Range;

use fulmar_core::{Error, ErrorKind, Result};

use crate::disk::{Disk, DiskLock};
use crate::index::{Index, Place};
use crate::layout::{
    ENTRY_BYTES, HEADER_BYTES, Header, Kind, PENDING, Position, Superblock, check_sizes, corrupt,
    segment_name, table_name,
};
use crate::options::{Durability, StoreOptions, StoreStats};
use crate::recovery::{Recovered, recover};
use crate::superblock::Superblocks;
use crate::tables::Tables;

mod opening;
mod pending;

use pending::Pending;

/// Rows wait in memory up to this many bytes, then are written as one group; a longer record is a group by
/// itself.
const GROUP_BYTES: u64 = 1 << 20;

/// A ring of records whose acknowledged rows survive a crash. See the crate's documentation for the guarantee
/// and the files.
///
/// Rows are numbered from 0 (`seq`); row `seq` is in slot `(seq - base) mod capacity`, where `base` is the
/// first row after the last [`Store::clear`]. Dropping a store without [`Store::close`] is like a crash:
/// nothing is written.
///
/// # Examples
/// ```
/// use fulmar_store::{MemoryDisk, Store, StoreOptions};
/// let disk = MemoryDisk::default();
/// let mut store = Store::open(disk.clone(), &StoreOptions::new(2))?;
/// store.append(&[b"a", b"b"])?;
/// store.append(&[b"c"])?;
/// assert_eq!(store.commit()?, 3);
/// drop(store);
/// let store = Store::open(disk, &StoreOptions::new(2))?;
/// assert_eq!((store.read(0)?, store.read(1)?), (b"c".to_vec(), b"b".to_vec()));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct Store {
    pub(crate) disk: Box<dyn Disk>,
    _lock: DiskLock,
    pub(crate) superblocks: Superblocks,
    durability: Durability,
    pub(crate) index: Index,
    pending: Pending,
    epoch: u32,
    pub(crate) revision: u64,
    pub(crate) head: Position,
    pub(crate) durable: Position,
    pub(crate) tables: Tables,
    written_seq: u64,
    pub(crate) durable_seq: u64,
    /// Old segments of a damaged store are kept for inspection until this row exists.
    pub(crate) keep_until_seq: u64,
    failed: bool,
    dirty_since_ms: Option<u64>,
    pub(crate) is_moving: bool,
    pub(crate) stats: StoreStats,
}

impl Store {
    /// Opens the store on `disk`, or makes one if it is missing. Acknowledged rows are restored; others may
    /// be.
    ///
    /// # Errors
    /// `Incompatible` if the store is open elsewhere, or has another capacity, schema or format; `Corrupt` if
    /// both superblocks are damaged or missing; `OutOfRange` or `LimitExceeded` for invalid sizes;
    /// `LimitExceeded` after 2^32 - 1 openings; `Io` if the system refuses.
    pub fn open(disk: impl Disk + 'static, options: &StoreOptions) -> Result<Self> {
        check_sizes(options.capacity, options.segment_bytes, options.schema.len())?;
        let disk: Box<dyn Disk> = Box::new(disk);
        let lock = disk.lock()?;
        let superblocks = Superblocks::open(&*disk, options)?;
        let found = recover(&*disk, &superblocks.newest)?;
        let Some(epoch) = found.epoch.checked_add(1) else {
            let detail = "a store must be opened at most 2^32 - 1 times";
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        };
        let Recovered { index, revision, head, damaged, head_tables, num_gaps, .. } = found;
        let num_damaged_rows = index.len() - index.num_placed();
        let mut store = Self {
            disk,
            _lock: lock,
            durability: options.durability,
            written_seq: index.end_seq,
            durable_seq: index.end_seq,
            keep_until_seq: if num_damaged_rows == 0 { 0 } else { index.end_seq + index.capacity },
            durable: superblocks.newest.committed,
            superblocks,
            index,
            pending: Pending::default(),
            epoch,
            revision,
            head,
            tables: Tables::new(head.segment),
            failed: false,
            dirty_since_ms: None,
            is_moving: false,
            stats: StoreStats { num_damaged_rows, num_gaps, ..StoreStats::default() },
        };
        store.settle(&damaged, &head_tables)?;
        Ok(store)
    }

    /// Returns the capacity and the schema of the store on `disk`; `None` if there is no store.
    ///
    /// # Errors
    /// `Corrupt`, `Incompatible`, `LimitExceeded` and `Io` as for [`Store::open`].
    pub fn describe(disk: &dyn Disk) -> Result<Option<StoreOptions>> {
        let Some(found) = Superblocks::find(disk)? else { return Ok(None) };
        let (capacity, segment_bytes) = (found.newest.capacity, found.newest.segment_bytes);
        Ok(Some(StoreOptions { schema: found.schema, segment_bytes, ..StoreOptions::new(capacity) }))
    }

    /// Returns the maximum number of rows.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.index.capacity
    }

    /// Returns the number of rows, acknowledged or not.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the schema given when the store was made.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.superblocks.schema
    }

    /// Returns the number of openings of the store, including this one.
    #[must_use]
    pub fn num_openings(&self) -> u32 {
        self.epoch
    }

    /// Returns the number of the next row.
    #[must_use]
    pub fn end_seq(&self) -> u64 {
        self.index.end_seq
    }

    /// Returns the row number before which all rows and changes are acknowledged: they survive as
    /// [`Durability`] specifies.
    #[must_use]
    pub fn acknowledged_seq(&self) -> u64 {
        if self.durability == Durability::None { self.written_seq } else { self.durable_seq }
    }

    /// Returns the slot of the next row.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        (self.index.end_seq - self.index.base_seq) % self.index.capacity
    }

    /// Returns the length of the longest record in bytes: it shares its segment with no other.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        (self.segment_bytes() - u64::from(2 * HEADER_BYTES + ENTRY_BYTES)) as usize
    }

    /// Adds rows and returns their numbers. They are acknowledged later, see [`Store::commit`]; a crash may
    /// keep only the first of them.
    ///
    /// # Errors
    /// `OutOfRange` for more rows than the capacity and `LimitExceeded` for a record above
    /// [`Store::record_bytes_max`]: no row was added. `Io` if the disk refuses, for example because it is
    /// full: the rows before [`Store::end_seq`] were added and none is lost, so the call may be repeated with
    /// the rest. `Closed` after a failed sync.
    pub fn append(&mut self, records: &[&[u8]]) -> Result<Range<u64>> {
        self.begin_write()?;
        if records.len() as u64 > self.index.capacity {
            let detail =
                format!("rows must be at most the capacity {}: got {}", self.index.capacity, records.len());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        records.iter().try_for_each(|record| self.check_record(record))?;
        let start = self.index.end_seq;
        for record in records {
            self.make_room(Kind::Append, record.len())?;
            let seq = self.index.end_seq;
            self.index.end_seq += 1;
            self.push_record(seq, record);
        }
        Ok(start..self.index.end_seq)
    }

    /// Replaces the record in `slot`.
    ///
    /// # Errors
    /// `OutOfRange` if the slot holds no row; `LimitExceeded`, `Io` and `Closed` as for [`Store::append`].
    pub fn update(&mut self, slot: u64, record: &[u8]) -> Result<()> {
        self.begin_write()?;
        self.check_record(record)?;
        let seq = self.seq_in(slot)?;
        self.put(seq, record)
    }

    /// Sets the marks of rows: 64 bits for each row that are cheap to change, such as a priority. A new row
    /// has the mark 0.
    ///
    /// # Errors
    /// `ShapeMismatch` if the numbers of marks and slots differ; `OutOfRange` if a slot holds no row: nothing
    /// was set. `Io` and `Closed` as for [`Store::append`].
    pub fn set_marks(&mut self, slots: &[u64], marks: &[u64]) -> Result<()> {
        self.begin_write()?;
        if slots.len() != marks.len() {
            let detail = format!("marks must be as many as slots, {}: got {}", slots.len(), marks.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let seqs = slots.iter().map(|slot| self.seq_in(*slot)).collect::<Result<Vec<_>>>()?;
        seqs.into_iter().zip(marks).try_for_each(|(seq, mark)| self.put_mark(seq, *mark))
    }

    /// Returns the mark of the row in `slot`.
    ///
    /// # Errors
    /// `OutOfRange` if the slot holds no row; `Corrupt` if the mark is lost.
    pub fn mark(&self, slot: u64) -> Result<u64> {
        let seq = self.seq_in(slot)?;
        if self.index.mark_is_unknown(seq) {
            return Err(corrupt(format!("the mark of slot {slot}, row {seq}, is lost to damaged files")));
        }
        Ok(self.index.mark(seq).map_or(0, |(mark, _)| mark))
    }

    /// Removes all rows; the next one is in slot 0. Row numbers continue.
    ///
    /// # Errors
    /// `Io` and `Closed` as for [`Store::append`].
    pub fn clear(&mut self) -> Result<()> {
        self.begin_write()?;
        self.flush()?;
        self.pending.kind = Some(Kind::Clear);
        self.flush()
    }

    /// Returns the record in `slot`.
    ///
    /// # Errors
    /// The errors of [`Store::read_into`].
    pub fn read(&self, slot: u64) -> Result<Vec<u8>> {
        let mut record = Vec::new();
        self.read_into(slot, &mut record)?;
        Ok(record)
    }

    /// Replaces `record` by the record in `slot`, without an allocation if it has the capacity.
    ///
    /// # Errors
    /// `OutOfRange` if the slot holds no row; `Corrupt`, with the place, if the row is damaged; `Io` if the disk refuses.
    pub fn read_into(&self, slot: u64, record: &mut Vec<u8>) -> Result<()> {
        let seq = self.seq_in(slot)?;
        let place = self.place_of(seq)?;
        self.read_place(place, record).map_err(|error| error.at(format!("slot {slot}, row {seq}")))
    }

    /// Returns the slots whose records are lost to damaged files, in order. Reads all rows.
    ///
    /// # Errors
    /// `Io` if the disk refuses.
    ///
    /// # Examples
    /// ```
    /// use fulmar_store::{MemoryDisk, Store, StoreOptions};
    /// let disk = MemoryDisk::default();
    /// let mut store = Store::open(disk.clone(), &StoreOptions::new(4))?;
    /// store.append(&[b"one", b"two"])?;
    /// store.close()?;
    /// // Past the group that began the log: a header and two entries, then the records.
    /// disk.damage("seg-000000", 64 + 64 + 2 * 16, 1)?;
    /// let store = Store::open(disk, &StoreOptions::new(4))?;
    /// assert_eq!((store.damaged_slots()?, store.read(1)?), (vec![0], b"two".to_vec()));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn damaged_slots(&self) -> Result<Vec<u64>> {
        let (mut slots, mut record) = (Vec::new(), Vec::new());
        for slot in 0..self.len() {
            match self.read_into(slot, &mut record) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => slots.push(slot),
                Err(error) => return Err(error),
            }
        }
        Ok(slots)
    }

    /// Writes the rows that wait in memory and, with [`Durability::Sync`], makes them durable: one group
    /// commit. Returns [`Store::acknowledged_seq`].
    ///
    /// # Errors
    /// `Io` if the disk refuses. After a failed write nothing is lost and commit may be repeated. After a
    /// failed sync the content of the disk is unknown, so all writes return `Closed` until the store is
    /// reopened.
    pub fn commit(&mut self) -> Result<u64> {
        self.begin_write()?;
        self.flush()?;
        if self.durability == Durability::Sync {
            self.make_durable()?;
        }
        Ok(self.acknowledged_seq())
    }

    /// Passes the time, in milliseconds of any monotonic clock: with [`Durability::Async`], makes rows
    /// durable that have waited long enough. Returns [`Store::acknowledged_seq`].
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub fn tick(&mut self, now_ms: u64) -> Result<u64> {
        self.begin_write()?;
        let Durability::Async { interval_ms } = self.durability else { return Ok(self.acknowledged_seq()) };
        if self.durable == self.head && self.pending.kind.is_none() && self.tables.is_written() {
            self.dirty_since_ms = None;
            return Ok(self.acknowledged_seq());
        }
        let since_ms = *self.dirty_since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) >= interval_ms {
            self.flush()?;
            self.make_durable()?;
        }
        Ok(self.acknowledged_seq())
    }

    /// Runs [`Store::sync`] and closes the store.
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub fn close(mut self) -> Result<()> {
        self.sync()
    }

    /// Makes everything durable, whatever the mode, and records the end of the log, so that any damage is
    /// noticed even after a loss of power.
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub fn sync(&mut self) -> Result<()> {
        self.begin_write()?;
        self.flush()?;
        self.make_durable()?;
        self.sync_tables()?;
        self.write_superblock()
    }

    /// Returns contents and statistics of the store.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let num_segments = u64::from(self.head.segment - self.superblocks.newest.first_segment) + 1;
        StoreStats {
            num_rows: self.len(),
            row_bytes: self.index.live_bytes(),
            log_bytes: num_segments * self.segment_bytes(),
            num_pending: self.pending.entries.len() as u64,
            ..self.stats
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.superblocks.newest.segment_bytes)
    }

    fn seq_in(&self, slot: u64) -> Result<u64> {
        self.index.seq_of(slot).ok_or_else(|| {
            let detail = format!("slot must be below the number of rows {}: got {slot}", self.len());
            Error::new(ErrorKind::OutOfRange, detail)
        })
    }

    fn place_of(&self, seq: u64) -> Result<Place> {
        self.index
            .place(seq)
            .ok_or_else(|| corrupt(format!("row {seq} must be in the files: got damage in its place")))
    }

    pub(crate) fn read_place(&self, place: Place, record: &mut Vec<u8>) -> Result<()> {
        record.clear();
        let start = place.position.offset as usize;
        if place.position.segment == PENDING {
            record.extend_from_slice(&self.pending.payload[start..start + place.len as usize]);
            return Ok(());
        }
        record.resize(place.len as usize, 0);
        let name = segment_name(place.position.segment);
        self.disk.read_at(&name, start as u64, record)?;
        let crc = crc32fast::hash(record);
        if crc != place.crc {
            let detail = format!(
                "{name} at {start} must hold a record with the checksum {:08x}: got {crc:08x}",
                place.crc
            );
            return Err(corrupt(detail));
        }
        Ok(())
    }

    /// Makes a segment after the last one, which must be durable, and moves the head there.
    fn begin_segment(&mut self) -> Result<()> {
        let segment = self.head.segment.checked_add(1).filter(|segment| *segment < PENDING);
        let Some(segment) = segment else {
            return Err(corrupt("a store must have fewer than 2^32 segments"));
        };
        self.sync_tables()?;
        let name = segment_name(segment);
        self.free_log_name(&name)?;
        self.free_log_name(&table_name(segment))?;
        self.disk.allocate(&name, self.segment_bytes())?;
        let tables = std::mem::replace(&mut self.tables, Tables::new(segment));
        let begun = self.write_start(Position { segment, offset: 0 });
        if begun.is_err() {
            self.tables = tables;
        }
        begun?;
        self.head = Position { segment, offset: HEADER_BYTES };
        Ok(())
    }

    /// Writes the group at `position` that begins a segment or an epoch.
    fn write_start(&mut self, position: Position) -> Result<()> {
        let header = Header {
            kind: Kind::Start,
            position,
            epoch: self.epoch,
            count: 0,
            payload_len: 0,
            table_crc: crc32fast::hash(&[]),
            end_seq: self.written_seq,
            revision: self.revision,
            durable: self.durable,
            store_id: self.superblocks.newest.store_id,
        };
        let bytes = header.encode();
        self.disk.write_at(&segment_name(position.segment), u64::from(position.offset), &bytes)?;
        self.tables.push(&bytes);
        Ok(())
    }

    /// Makes writes durable, and removes segments without live data.
    pub(crate) fn make_durable(&mut self) -> Result<()> {
        self.make_log_durable()?;
        self.reclaim()
    }

    pub(crate) fn make_log_durable(&mut self) -> Result<()> {
        if self.durable != self.head {
            self.stats.num_syncs += 1;
            self.disk.sync(&segment_name(self.head.segment)).inspect_err(|_| self.failed = true)?;
            self.durable = self.head;
            self.durable_seq = self.written_seq;
            self.dirty_since_ms = None;
        }
        self.tables.write(&*self.disk)
    }

    /// Makes the copies of tables durable.
    fn sync_tables(&mut self) -> Result<()> {
        let synced = self.tables.sync(&*self.disk).inspect_err(|_| self.failed = true)?;
        self.stats.num_syncs += u64::from(synced);
        Ok(())
    }

    /// Returns the superblock for what is durable now.
    pub(crate) fn superblock(&self) -> Superblock {
        Superblock {
            epoch: self.epoch,
            committed: self.durable,
            base_seq: self.index.base_seq,
            end_seq: self.durable_seq,
            revision: self.revision,
            ..self.superblocks.newest
        }
    }

    /// Records the durable state in the older of the two superblocks. All writes must be durable.
    pub(crate) fn write_superblock(&mut self) -> Result<()> {
        let block = self.superblock();
        self.stats.num_syncs += 1;
        self.superblocks.write(&*self.disk, &block).inspect_err(|_| self.failed = true)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("head", &self.head)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
