//! Activations that a decoder keeps of the rows of a step.

use std::sync::Arc;

use super::{Rows, Scheduler, Sequence};
use crate::decoder::Decoder;
use crate::packing::NO_ROW;

impl Scheduler {
    /// Selects the rows of a step whose activations the decoder keeps, up to the engine's limit.
    pub(super) fn keep(&mut self, decoder: &Decoder, rows: &mut Rows) {
        let config = decoder.config();
        let rows_max = self.options.activation_bytes_max / config.kept_row_bytes();
        if rows_max == 0 || !self.options.is_exact() {
            return;
        }
        let mut kept = decoder.kept.lock();
        let store = kept.begin(decoder.version(), config.num_hidden_layers);
        if self.store.as_ref().is_none_or(|own| !Arc::ptr_eq(own, &store)) {
            self.store = Some(store);
            self.running.iter_mut().for_each(|sequence| sequence.kept.clear());
        }
        let mut first = 0;
        for &(index, count) in &rows.counts {
            let sequence = &mut self.running[index];
            if sequence.cache_version == Some(self.version) {
                for row in first..first + count {
                    let Some(kept_row) =
                        sequence.keep(row - first, |before| kept.row(before, rows.step.ids()[row], rows_max))
                    else {
                        break;
                    };
                    rows.kept.push((row, kept_row));
                }
            }
            first += count;
        }
    }
}

impl Sequence {
    /// Keeps the row of the token `ahead` of the computed ones, if all rows before it are kept. `row_after`
    /// returns the kept row that follows another.
    fn keep(&mut self, ahead: usize, row_after: impl FnOnce(u32) -> Option<u32>) -> Option<u32> {
        if self.kept.len() != self.computed + ahead {
            return None;
        }
        let row = row_after(self.kept.last().copied().unwrap_or(NO_ROW))?;
        self.kept.push(row);
        Some(row)
    }
}
