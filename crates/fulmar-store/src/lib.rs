//! A ring of records on disk: what was acknowledged is there after a crash.
//!
//! # The promise
//! A [`Store`] keeps the last `capacity` records that were appended. [`Store::commit`] answers up to which row everything is
//! acknowledged. After the process is killed, or with [`Durability::Sync`] and [`Durability::Async`] after the power fails, all
//! that was acknowledged is there; of what came later a beginning may be there, in order, no record in part. After damage to
//! the files, a row is given whole or answered with `Corrupt`; never with other bytes than those that were written.
//!
//! # How it is kept
//! The ring is a log. Rows, replaced rows, marks (64 bits beside a row: a priority) and clears are groups at the end of the
//! last segment, each written once; nothing that was acknowledged is ever written over. Where each row stands now is kept in
//! memory, 24 bytes a row, and found again by reading the headers and tables of all groups when the store is opened. A segment
//! in which no newest version of a row is left is removed; where replaced rows leave the log longer than twice its rows, what
//! is still needed of the oldest segments is written again at the end.
//!
//! A group commit is one write and one sync of the last segment. Two superblocks, written in turn when a segment is full,
//! say where the log begins and how far it was durable: damage before that place is told apart from a write that the crash cut
//! short, as it is by any later group, since a group says how far the log was durable when it was written. What no
//! superblock and no later group knows, the last commits before a crash, can lose rows silently only to damage that comes on
//! top of the crash. If a damaged group might have replaced rows or marks, older rows are answered with `Corrupt` too.
//!
//! Each opening begins a new epoch with a group of its own, so that nothing a crash left behind the end of the log can become
//! part of it later. After a failed sync the store writes nothing until it is opened anew; then the part that no superblock
//! knows is written again, since the system may take it for clean.
//!
//! # The files
//! | file | bytes | holds (integers are little-endian, checksums CRC-32) |
//! |---|---|---|
//! | `super.0`, `super.1` | 0..8 | `FULMARST` |
//! | | 8, 12 | format (1), epoch: `u32` |
//! | | 16, 24 | how often superblocks were written, capacity: `u64` |
//! | | 32, 36 | bytes of a segment, number of the first segment: `u32` |
//! | | 40, 44 | segment and offset up to which the log is durable: `u32` |
//! | | 48, 56, 64 | row in slot 0 first, row after the last, revision: `u64` |
//! | | 72, 76 | length and checksum of the schema: `u32` |
//! | | 4092 | checksum of the bytes before: `u32` |
//! | | 4096.. | the schema, UTF-8, never changed |
//! | `seg-000000`, ... | | groups without gaps, each at a multiple of 64, then zeros or what a crash left |
//! | a group | 0, 4 | `FGRP`, kind (0 start, 1 append, 2 put, 3 mark, 4 clear): `u32` |
//! | | 8, 12, 16 | its segment, its offset, epoch: `u32` |
//! | | 20, 24, 28 | number of entries, bytes of the payload, checksum of the table: `u32` |
//! | | 32, 40 | row after the last, number of puts, marks and clears up to here: `u64` |
//! | | 48, 52 | segment and offset up to which the log was durable: `u32` |
//! | | 60 | checksum of the bytes before: `u32` |
//! | | 64.. | the table: for each entry the row (`u64`), then length and checksum of its record (`u32` each) or its mark (`u64`) |
//! | | | the payload: the records one after the other |
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
