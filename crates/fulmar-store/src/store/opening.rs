//! The end of an opening, after recovery: damaged records, and a tail that is written anew.

use std::collections::BTreeSet;

use fulmar_core::Result;

use super::{GROUP_BYTES, Store};
use crate::layout::{HEADER_BYTES, segment_name, segment_number, table_name};
use crate::superblock::{free_log_name, put_aside_other};
use crate::tables::Tables;

impl Store {
    /// After recovery: makes the recovered data durable, begins an epoch after it, and removes leftovers.
    /// Damaged segments are unchanged.
    pub(super) fn settle(&mut self, damaged: &BTreeSet<u32>, head_tables: &[u8]) -> Result<()> {
        self.superblocks.remove_leftovers(&*self.disk, self.head.segment)?;
        self.rewrite_tail(damaged)?;
        let is_full = self.head.offset + HEADER_BYTES > self.superblocks.newest.segment_bytes;
        if is_full || damaged.contains(&self.head.segment) {
            self.begin_segment()?;
        } else {
            self.resume_segment(head_tables)?;
        }
        self.make_durable()?;
        self.write_superblock()?;
        self.superblocks.remove_leftovers(&*self.disk, self.head.segment)
    }

    /// Begins an epoch at the head, in an undamaged segment.
    fn resume_segment(&mut self, head_tables: &[u8]) -> Result<()> {
        let name = segment_name(self.head.segment);
        if self.head.offset == 0 {
            self.free_log_name(&name)?;
        }
        self.disk.allocate(&name, self.segment_bytes())?;
        let store_id = self.superblocks.newest.store_id;
        put_aside_other(&*self.disk, &table_name(self.head.segment), store_id)?;
        self.tables = Tables::restored(&*self.disk, self.head.segment, head_tables)?;
        self.write_start(self.head)?;
        self.head.offset += HEADER_BYTES;
        Ok(())
    }

    pub(super) fn free_log_name(&self, name: &str) -> Result<()> {
        free_log_name(&*self.disk, name, self.superblocks.newest.store_id)
    }

    /// Rewrites the part of the log that the superblock does not cover: after a failed sync the system may
    /// consider pages clean that never reached the disk.
    fn rewrite_tail(&self, damaged: &BTreeSet<u32>) -> Result<()> {
        let files = self.disk.list()?;
        let mut bytes = vec![0; GROUP_BYTES as usize];
        let tail = self.durable.segment..=self.head.segment;
        let is_of_tail = |number: &u32| tail.contains(number) && !damaged.contains(number);
        for (name, len) in files {
            let Some(number) = segment_number(&name).filter(is_of_tail) else { continue };
            let mut offset = if number == self.durable.segment { u64::from(self.durable.offset) } else { 0 };
            let end = if number == self.head.segment { u64::from(self.head.offset).min(len) } else { len };
            while offset < end {
                let chunk = &mut bytes[..(end - offset).min(GROUP_BYTES) as usize];
                self.disk.read_at(&name, offset, chunk)?;
                self.disk.write_at(&name, offset, chunk)?;
                offset += chunk.len() as u64;
            }
            self.disk.sync(&name)?;
        }
        Ok(())
    }
}
