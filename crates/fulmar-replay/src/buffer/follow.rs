//! Keeps the sampler and the unit up to date with what is stored.

use std::ops::Range;

use fulmar_core::Result;
use fulmar_core::limits::REPLAY_WRITE_TRIES_MAX;
use fulmar_tensor::TensorDict;

use super::ReplayBuffer;
use crate::read::{Reads, tell_stored};
use crate::{Follower, Storage};

impl ReplayBuffer {
    /// Returns the rows with items, from the oldest. A ring begins with row 0, so the rows before the oldest
    /// come first too; their second occurrence overwrites the first.
    fn rows_by_age(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        self.runs_by_age().into_iter().flatten()
    }

    /// Returns [`ReplayBuffer::rows_by_age`] as two runs.
    pub(super) fn runs_by_age(&self) -> [Range<usize>; 2] {
        let len = self.storage.len();
        let first = if len == self.storage.capacity() { self.writer.cursor() * self.num_lanes() } else { 0 };
        [0..len, 0..first]
    }

    /// Returns the rows with items, from the oldest, each once.
    pub(crate) fn rows_from_oldest(&self) -> Vec<usize> {
        let rows: Vec<usize> = self.rows_by_age().collect();
        rows[rows.len() - self.storage.len()..].to_vec()
    }

    /// Passes all rows to sampler and unit again, from the oldest: to both, or only to those that depend on
    /// the order.
    pub(super) fn tell_all(&mut self, both: bool) -> Result<()> {
        if self.storage.is_empty() {
            return Ok(());
        }
        let runs = self.runs_by_age();
        let followers: [&mut dyn Follower; 2] = [&mut *self.sampler, &mut *self.unit];
        for follower in followers.into_iter().filter(|follower| both || follower.in_order()) {
            follower.clear();
            tell_runs(&*self.storage, runs.clone(), follower)?;
        }
        Ok(())
    }

    /// Reads the changes of other writers to the storage, as draws and writes do first.
    ///
    /// # Errors
    /// The errors of [`SharedWrites::refresh`](crate::SharedWrites::refresh); the errors of sampler and unit for the new rows.
    pub fn catch_up(&mut self) -> Result<()> {
        self.storage.refresh()?;
        let revision = self.storage.revision();
        if revision == self.seen {
            return Ok(());
        }
        let rows = self.storage.written_after(self.seen);
        let len = self.storage.len();
        if len < self.seen_len {
            // The storage was emptied in between: the known rows are gone.
            self.sampler.clear();
            self.unit.clear();
            self.writer.clear(true);
        }
        if !rows.is_empty() {
            // Read first, then record: an error leaves the rows for the next refresh.
            let of_sampler = self.sampler.reads().of(&*self.storage, &rows)?;
            let of_unit = self.unit.reads().of(&*self.storage, &rows)?;
            (self.seen, self.seen_len) = (revision, len);
            self.sampler.extend(&rows, &of_sampler)?;
            self.unit.extend(&rows, &of_unit)?;
            self.writer.write_at(&rows, true)?;
        }
        (self.seen, self.seen_len) = (revision, len);
        self.follow_writer()
    }

    /// Records the storage's revision after this buffer's own change.
    pub(super) fn note_seen(&mut self) {
        (self.seen, self.seen_len) = (self.storage.revision(), self.storage.len());
    }

    /// Puts the writer where the storage notes that writes ended.
    pub(super) fn follow_writer(&mut self) -> Result<()> {
        let mut len = self.storage.len();
        let Some(mut position) = self.storage.noted_writer() else { return Ok(()) };
        for _ in 0..REPLAY_WRITE_TRIES_MAX {
            // Others may write in between: the two must be of one moment.
            let now = self.storage.len();
            if now == len {
                break;
            }
            len = now;
            position = self.storage.noted_writer().unwrap_or(position);
        }
        let lanes = self.num_lanes().max(1);
        let storage = &self.storage;
        let items = || storage.get(&(0..len).collect::<Vec<_>>());
        self.writer.resume(len / lanes, position, &items)
    }
}

/// Tells `follower` of runs of stored rows.
pub(super) fn tell_runs(
    storage: &dyn Storage,
    runs: [Range<usize>; 2],
    follower: &mut dyn Follower,
) -> Result<()> {
    let reads = follower.reads();
    if reads == Reads::Rows {
        return runs.into_iter().try_for_each(|rows| follower.extend_run(rows));
    }
    let tell = |rows: &[usize], items: &TensorDict| follower.extend(rows, items);
    tell_stored(storage, &reads, runs.into_iter().flatten(), tell)
}
