//! A ring of records on disk whose acknowledged records survive a crash.
//!
//! # Guarantee
//! A [`Store`] keeps the last `capacity` records that were appended. [`Store::commit`] returns the row up to
//! which everything is acknowledged. All acknowledged records survive if the process is killed or, with
//! [`Durability::Sync`] and [`Durability::Async`], if power fails. Of later records a prefix may survive, in
//! order, none of them partly. After damage to the files, a row is returned whole as it was last written, or
//! refused with `Corrupt`. Lost rows are counted ([`StoreStats::num_damaged_rows`]) and listed
//! ([`Store::damaged_slots`]); all others are readable. `docs/durability.md` has the whole guarantee in one
//! table.
//!
//! # Implementation
//! The ring is a log. Rows, replaced rows, marks (64 bits for each row, such as a priority) and clears are
//! groups at the end of the last segment, each written once; acknowledged data is never overwritten. The
//! place of each row is kept in memory, 24 bytes a row, and restored from the headers and tables of all
//! groups when the store is opened. A segment without a live row is removed. If replaced rows make the log
//! longer than twice its rows, the live rows of the oldest segments are rewritten at the end.
//!
//! A group commit is one write and one sync of the last segment, then one write, without a sync, of the
//! group's header and table to a second file, the table copy. Since a copy is written only after the sync, it
//! proves that its group is durable. The copy is synced when its segment is full, by [`Store::close`] and by
//! [`Store::sync`]. Two superblocks, written alternately when a segment is full and at those two calls,
//! record the start of the log, its durable end, the number of the last row and the number of changes.
//!
//! # Damage and torn ends
//! Everything before the furthest position that a superblock, a copy, or the header of a later group proves
//! durable was acknowledged. An incomplete group before that position is damaged; one after it was cut short
//! by a crash, and the log ends there.
//!
//! - A damaged header or table is taken from the copy, so nothing is lost. The records of such a group, and
//!   those of the newest 64 MiB of segments, are checked when the store is opened; others are checked when
//!   they are read.
//! - A damaged or missing record keeps its row's place: the row is refused with `Corrupt` instead of
//!   returning an older version. So a reopened ring is correct even if its newest group, or a whole segment,
//!   is lost: the copy lists its rows.
//! - If a segment and its copy are both lost, the number of rows and changes in the next header or the
//!   superblock shows the loss. Lost appends are known by their row numbers. If replaced rows, marks or a
//!   clear may be among the losses, every older row and mark is refused, since any of them may be superseded.
//! - Data without a proof can be lost unnoticed if damage follows a crash: with [`Durability::None`] the
//!   writes after the last full segment, and after a loss of power the last commit.
//!
//! A damaged segment is never written again: the store continues in a new one. The store writes only to its
//! own files. Superblocks and groups contain the number of their store, drawn when it is made, and files with
//! other contents under a store's names are renamed to `NAME.aside-0`. [`FsDisk`] follows no link and opens
//! regular files only.
//!
//! Each opening begins a new epoch with its own group, so that leftovers of a crash after the end of the log
//! can never become part of it. After a failed sync the store writes nothing until it is reopened; then the
//! part that no superblock covers is rewritten, since the system may consider it clean.
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
//! | `seg-000000`, ... | | groups without gaps, each at a multiple of 64, then zeros or leftovers of a crash |
//! | a group | 0, 4 | `FGRP`, kind (0 start, 1 append, 2 put, 3 mark, 4 clear): `u32` |
//! | | 8, 12, 16 | its segment, its offset, epoch: `u32` |
//! | | 20, 24, 28 | number of entries, bytes of the payload, checksum of the table: `u32` |
//! | | 32, 40 | row after the last, number of puts, marks and clears up to here: `u64` |
//! | | 48, 52 | segment and offset up to which the log was durable: `u32` |
//! | | 56 | number of the store: `u32` |
//! | | 60 | checksum of the bytes before: `u32` |
//! | | 64.. | the table: for each entry the row (`u64`), then length and checksum of its record (`u32` each) or its mark (`u64`) |
//! | | | the payload: the records in sequence |
//! | `table-000000`, ... | | the header and table of each durable group of the segment, each at a multiple of 64, then zeros |
//! | `lock` | | the process that has the store open; the lock itself is the system's |
//!
//! [`RowSchema`] converts the rows of a [`fulmar_tensor::TensorDict`] to records and back; its text is the
//! store's schema.

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
