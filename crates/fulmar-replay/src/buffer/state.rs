//! The state of a buffer: its parts as JSON, for checkpoints.

use fulmar_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::{ReplayBuffer, ReplayBufferState, is_of_items};
use crate::read::count_of;

impl ReplayBuffer {
    /// Returns the state for a checkpoint.
    ///
    /// # Errors
    /// If a part has no state.
    pub fn state(&self) -> Result<ReplayBufferState> {
        let parts = json!({
            "sampler": self.sampler.state()?,
            "writer": self.writer.state()?,
            "unit": self.unit.state()?,
            "len": self.storage.len(),
        });
        let items = match self.read_all_in_order(None) {
            Ok(all) => vec![all],
            // Items of lists may differ, so they may not form one batch.
            Err(error) if is_of_items(error.kind()) => {
                (0..self.storage.len()).map(|row| self.storage.get(&[row])).collect::<Result<_>>()?
            }
            Err(error) => return Err(error),
        };
        Ok(ReplayBufferState { parts, items, ahead: Vec::new() })
    }

    /// Restores `state`, taken from a buffer with the same parts.
    ///
    /// # Errors
    /// `Corrupt`, `Malformed` or `Incompatible` if the state is not of such a buffer, or has prefetched
    /// batches, which need a [`SharedReplayBuffer`](crate::SharedReplayBuffer); the errors of
    /// [`Storage::set`](crate::Storage::set).
    pub fn restore(&mut self, state: &ReplayBufferState) -> Result<()> {
        if !state.ahead.is_empty() {
            let detail = format!("state must hold no batch drawn ahead: got {}", state.ahead.len());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.restore_rest(state)
    }

    /// Restores all but the prefetched batches.
    pub(crate) fn restore_rest(&mut self, state: &ReplayBufferState) -> Result<()> {
        let count: usize = state.items.iter().map(count_of).sum();
        if state.parts["len"] != count {
            let detail =
                format!("the number of items must be {}, as in the state: got {count}", state.parts["len"]);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        let before = [self.sampler.state()?, self.writer.state()?, self.unit.state()?];
        let restored =
            self.restore_parts(&state.parts["sampler"], &state.parts["writer"], &state.parts["unit"]);
        if let Err(error) = restored {
            self.restore_parts(&before[0], &before[1], &before[2])?;
            return Err(error);
        }
        self.storage.clear();
        let mut start = 0;
        for items in state.items.iter().filter(|items| count_of(items) > 0) {
            let rows: Vec<usize> = (start..start + count_of(items)).collect();
            self.storage.set(&rows, items)?;
            start += rows.len();
        }
        self.note_seen();
        Ok(())
    }

    pub(super) fn restore_parts(&mut self, sampler: &Value, writer: &Value, unit: &Value) -> Result<()> {
        self.sampler.restore(sampler)?;
        self.writer.restore(writer)?;
        self.unit.restore(unit)
    }
}
