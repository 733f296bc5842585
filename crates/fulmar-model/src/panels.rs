//! Packed copies of a decoder's projections and vocabulary head, made once for each version of the weights.
//!
//! A pass over many rows packs what it multiplies as it goes. A step of decoding has few rows, so an engine
//! packs all weights before: the same bits, at the speed of memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use fulmar_compute::{Floats, Panels};

use crate::parameters::{LayerRanges, Layout};

/// The panels of weights `[outputs, inputs]`, by where these begin in the buffer of all weights.
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

    /// Packs `weights`, if they are not. Those for which there is no memory are packed in each pass.
    pub(crate) fn pack(&self, layout: &Layout, weights: Floats<'_>) {
        self.ready.get_or_init(|| {
            let mut packed = std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner));
            for (range, inputs) in layout.matrices() {
                let panels = packed.entry(range.start).or_default();
                if panels.pack(weights.slice(range.clone()), range.len() / inputs, inputs).is_err() {
                    packed.remove(&range.start);
                }
            }
            packed
        });
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
    fn matrices(&self) -> impl Iterator<Item = (&Range<usize>, usize)> {
        let linears = self.layers.iter().flat_map(LayerRanges::linears);
        let head = self.head.iter().map(|head| (head, self.final_norm.len()));
        linears.map(|linear| (&linear.weight, linear.inputs)).chain(head)
    }
}
