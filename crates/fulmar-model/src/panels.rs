//! Packed copies of weights `[outputs, inputs]`, made once for each version of the weights.
//!
//! A pass over many rows packs what it multiplies as it goes. A step of decoding has few rows, so an engine
//! packs all weights before: the same bits, at the speed of memory. Projections with an adapter exist only as
//! panels: of the sum of both.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use fulmar_compute::Panels;
use fulmar_core::Result;

use crate::parameters::{LayerRanges, Layout};

/// The panels of weights, by where these begin in the buffer of all weights.
pub(crate) type PanelsByStart = BTreeMap<usize, Panels>;

/// Panels of the present weights, once they were asked for.
#[derive(Debug, Default)]
pub(crate) struct PanelCache {
    ready: OnceLock<PanelsByStart>,
    /// Panels of earlier weights, whose memory is used again.
    stale: Mutex<PanelsByStart>,
}

impl PanelCache {
    /// Returns the panels, if they are packed.
    pub(crate) fn get(&self) -> Option<&PanelsByStart> {
        self.ready.get()
    }

    /// Returns the panels. If nothing is packed, calls `pack` with panels of earlier weights to pack anew.
    ///
    /// # Errors
    /// The errors of `pack`.
    pub(crate) fn packed_by(
        &self,
        pack: impl FnOnce(&mut PanelsByStart) -> Result<()>,
    ) -> Result<&PanelsByStart> {
        if let Some(packed) = self.ready.get() {
            return Ok(packed);
        }
        // No lock is held while threads share the work: one of them may come here too.
        let mut packed = std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner));
        pack(&mut packed)?;
        // If another call was faster, its panels are the same.
        Ok(self.ready.get_or_init(|| packed))
    }

    /// Drops the panels when the weights change.
    pub(crate) fn forget(&mut self) {
        if let Some(packed) = self.ready.take() {
            *self.stale.get_mut().unwrap_or_else(PoisonError::into_inner) = packed;
        }
    }
}

/// Nothing is packed: a copy may never decode.
impl Clone for PanelCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Layout {
    /// Returns the range and the inputs of each weight that is multiplied.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = (&Range<usize>, usize)> {
        let linears = self.layers.iter().flat_map(LayerRanges::linears);
        let head = self.head.iter().map(|head| (head, self.final_norm.len()));
        linears.map(|linear| (&linear.weight, linear.inputs)).chain(head)
    }
}
