//! A ring of records on disk: what was acknowledged is there after a crash.
//!
//! # The promise
//! A [`Store`] keeps the last `capacity` records that were appended. [`Store::commit`] returns up to which row everything is
//! acknowledged. After the process is killed, or with [`Durability::Sync`] and [`Durability::Async`] after the power fails, all
//! that was acknowledged is there; of what came later a beginning may be there, in order, no record in part. After damage to
//! the files, a row is given whole and as it was last written, or answered with `Corrupt`. Rows that are lost are counted
//! ([`StoreStats::num_damaged_rows`]) and named ([`Store::damaged_slots`]); all others are readable. `docs/durability.md` has the
//! whole guarantee in one table.
//!
//! # How it is kept
//! The ring is a log. Rows, replaced rows, marks (64 bits beside a row: a priority) and clears are groups at the end of the
//! last segment, each written once; nothing that was acknowledged is ever written over. The place of each row is kept in
//! memory, 24 bytes a row, and found again by reading the headers and tables of all groups when the store is opened. A segment
//! that holds no newest version of a row is removed; where replaced rows leave the log longer than twice its rows, what
//! is still needed of the oldest segments is written again at the end.
//!
//! A group commit is one write and one sync of the last segment, then one write, without a sync, of the group's header and table
//! to a second file, the copy of tables. Since a copy is written after the sync alone, it proves that its group is durable. The
//! copy is synced when its segment is full, by [`Store::close`] and by [`Store::sync`]. Two superblocks, written in turn when a
//! segment is full and at those two calls, record where the log begins, how far it is durable, the number of the last row and the
//! number of changes.
//!
//! # How damage is told from a torn end
//! Everything before the furthest place that a superblock, a copy, or the header of a later group proves durable was acknowledged.
//! What is not whole before that place is damaged; what is not whole behind it was cut short by a crash, and the log ends there.
//!
//! - A header or a table that is damaged is taken from the copy, so nothing is lost. The records of such a group, and those of
//!   the newest 64 MiB of segments, are checked when the store is opened; others are checked when they are read.
//! - A record that is damaged or missing takes its row's place with it: the row is answered with `Corrupt`, and so is never
//!   answered with the version before it. This is how a reopened ring knows what is current although its newest group, or a whole
//!   segment, is lost: the copy names the rows that were in it.
//! - Where a segment and its copy are both lost, the number of rows and changes in the next header or the superblock shows that
//!   something is missing. Lost appends are known by their row numbers. If replaced rows, marks or a clear may be among what is lost,
//!   every older row and mark is refused, since any of them may be superseded.
//! - What no proof covers can be lost unnoticed to damage that comes on top of a crash: with [`Durability::None`] the writes after
//!   the last full segment, and after a failure of power the last commit.
//!
//! A segment in which something is damaged is never written again: the store goes on in a new one. Nothing is written to a file
//! that is not the store's own. Superblocks and groups have the number of their store, drawn when it is made, and files with other
//! contents under a store's names are renamed to `NAME.aside-0`. [`FsDisk`] follows no link and opens regular files only.
//!
//! Each opening begins a new epoch with a group of its own, so that nothing a crash left behind the end of the log can become
//! part of it later. After a failed sync the store writes nothing until it is opened anew; then the part that no superblock
//! covers is written again, since the system may take it for clean.
//!
//! # The files
//! | file | bytes | holds (integers are little-endian, checksums CRC-32) |
//! |---|---|---|
//! | `super.0`, `super.1` | 0..8 | `FULMARST` |
//! | | 8, 12 | format (2), epoch: `u32` |
//! | | 16, 24 | how often superblocks were written, capacity: `u64` |
//! | | 32, 36 | bytes of a segment, number of the first segment: `u32` |
//! | | 40, 44 | segment and offset up to which the log is durable: `u32` |
//! | | 48, 56, 64 | row in slot 0 first, row after the last, revision: `u64` |
//! | | 72, 76 | length and checksum of the schema: `u32` |
//! | | 80 | number of the store: `u32` |
//! | | 4092 | checksum of the bytes before: `u32` |
//! | | 4096.. | the schema, UTF-8, never changed |
//! | `seg-000000`, ... | | groups without gaps, each at a multiple of 64, then zeros or what a crash left |
//! | a group | 0, 4 | `FGRP`, kind (0 start, 1 append, 2 put, 3 mark, 4 clear): `u32` |
//! | | 8, 12, 16 | its segment, its offset, epoch: `u32` |
//! | | 20, 24, 28 | number of entries, bytes of the payload, checksum of the table: `u32` |
//! | | 32, 40 | row after the last, number of puts, marks and clears up to here: `u64` |
//! | | 48, 52 | segment and offset up to which the log was durable: `u32` |
//! | | 56 | number of the store: `u32` |
//! | | 60 | checksum of the bytes before: `u32` |
//! | | 64.. | the table: for each entry the row (`u64`), then length and checksum of its record (`u32` each) or its mark (`u64`) |
//! | | | the payload: the records one after the other |
//! | `table-000000`, ... | | the header and table of each durable group of the segment, each at a multiple of 64, then zeros |
//! | `lock` | | who has the store open; the lock itself is the system's |
//!
//! [`RowSchema`] says how the rows of a [`fulmar_tensor::TensorDict`] become records and back; its text is the store's schema.

mod checkpoint;
mod disk;
mod faulty_disk;
#[cfg(any(unix, windows))]
mod fs_disk;
mod index;
mod layout;
mod log;
mod memory_disk;
mod options;
mod reclaim;
mod recovery;
mod rows;
mod store;
mod superblock;
mod tables;

pub use checkpoint::CheckpointStats;
pub use disk::{Disk, DiskLock};
pub use faulty_disk::{Fault, FaultyDisk};
#[cfg(any(unix, windows))]
pub use fs_disk::FsDisk;
pub use fulmar_core::Result;
pub use memory_disk::MemoryDisk;
pub use options::{Durability, StoreOptions, StoreStats};
pub use rows::RowSchema;
pub use store::Store;
