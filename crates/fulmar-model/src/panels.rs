//! Packed weights `[outputs, inputs]`.
//!
//! On the CPU, weights in single precision are packed in their place, between one step of training and the next: a
//! pass over many rows packs nothing, and one over few rows reads at the speed of memory. Weights that cannot be
//! (in bfloat16, below an adapter, of a part of a panel, or in a step of training) have packed copies, made by an
//! engine once for each version of them. Projections with an adapter exist only as panels: of the sum of both.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use fulmar_compute::cpu::fills_panels;
use fulmar_compute::{Floats, Panels, PanelsView};
use fulmar_core::Result;

use crate::parameters::{LayerRanges, Layout};

/// The panels of weights, by where these begin in the buffer of all weights.
pub(crate) type PanelsByStart = BTreeMap<usize, Panels>;

/// Returns the weight at `range` of weights that are packed in their place, if it holds whole panels.
pub(crate) fn in_panels<'a>(
    weights: Floats<'a>,
    range: &Range<usize>,
    inputs: usize,
) -> Option<PanelsView<'a>> {
    let outputs = range.len() / inputs;
    fills_panels(outputs)
        .then(|| PanelsView::of_packed(weights.slice(range.clone()).f32().cpu(), outputs, inputs))
}

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
    /// Returns the range and the inputs of each weight that can be packed in its place.
    pub(crate) fn whole_panels(&self) -> impl Iterator<Item = (&Range<usize>, usize)> {
        self.matrices().filter(|(range, inputs)| fills_panels(range.len() / inputs))
    }

    /// Returns the inputs of the weight of a range, if it can be packed in its place.
    pub(crate) fn inputs_of_panels(&self, range: &Range<usize>) -> Option<usize> {
        self.whole_panels().find(|(packed, _)| *packed == range).map(|(_, inputs)| inputs)
    }

    /// Returns the range and the inputs of each weight that is multiplied.
    pub(crate) fn matrices(&self) -> impl Iterator<Item = (&Range<usize>, usize)> {
        let linears = self.layers.iter().flat_map(LayerRanges::linears);
        let head = self.head.iter().map(|head| (head, self.final_norm.len()));
        linears.map(|linear| (&linear.weight, linear.inputs)).chain(head)
    }
}
