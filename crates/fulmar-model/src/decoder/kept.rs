//! Activations that an engine keeps for the forward pass of the trainer.
//!
//! ```text
//! trie:  (row of the token before, id) -> row      equal beginnings are one path: a shared prompt is kept once
//! rows:  the activations of each layer, and the residual stream after the last, of rows that an engine computed
//! ```
//! A row of an engine has the bits of the same row in a forward pass. So a forward pass of which every row is
//! kept copies them, and computes the head alone. Kept rows belong to one version of the weights.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_compute::cpu::for_each_part;
use fulmar_compute::{Compute, Memory, View};

use super::{Activations, CheckpointPolicy, Decoder};
use crate::config::DecoderConfig;
use crate::layer::LayerActivations;
use crate::packing::{NO_ROW, Packed};

/// The kept activations of a decoder.
#[derive(Debug, Default)]
pub(crate) struct KeptActivations {
    store: Mutex<Kept>,
    /// Number of rows that the last forward pass copied.
    num_copied: AtomicUsize,
}

impl KeptActivations {
    /// Locks the store. No thread may share work while it holds the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kept> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops all rows. Later ones use their memory again.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }
}

/// A copy of a decoder keeps nothing.
impl Clone for KeptActivations {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Rows of one version of the weights.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Identifies this store, so that no row is taken for one of another store; `None` for one without rows.
    store: Option<Arc<()>>,
    version: u64,
    row_of: HashMap<(u32, u32), u32>,
    /// The floats of a row in each buffer of a layer.
    widths: [usize; 15],
    layers: Vec<LayerActivations>,
    /// The residual stream after the last layer.
    x: Memory<f32>,
}

impl Kept {
    /// Begins a step under weights of `version`: drops rows of other weights. Returns the identity of the store.
    pub(crate) fn begin(&mut self, version: u64, num_layers: usize) -> Arc<()> {
        if self.version != version {
            self.clear();
        }
        self.version = version;
        self.layers.resize_with(num_layers, LayerActivations::default);
        Arc::clone(self.store.get_or_insert_default())
    }

    fn clear(&mut self) {
        self.store = None;
        self.row_of.clear();
    }

    /// Returns the row of the token `id` after the token of row `before`, or `None` if `rows_max` are kept.
    pub(crate) fn row(&mut self, before: u32, id: u32, rows_max: usize) -> Option<u32> {
        if let Some(row) = self.row_of.get(&(before, id)) {
            return Some(*row);
        }
        let row = self.row_of.len();
        if row >= rows_max.min(NO_ROW as usize) {
            return None;
        }
        self.row_of.insert((before, id), row as u32);
        Some(row as u32)
    }

    /// Copies rows of one layer: each pair is a row of `activations`, which has `num_rows`, and a kept row.
    pub(crate) fn write_layer(
        &mut self,
        compute: Compute,
        layer: usize,
        (activations, num_rows): (&LayerActivations, usize),
        pairs: &[(usize, u32)],
    ) {
        let rows = self.row_of.len();
        self.widths = activations.buffers().map(|buffer| buffer.len() / num_rows);
        let buffers = activations.buffers().into_iter().zip(self.layers[layer].buffers_mut());
        for ((from, to), width) in buffers.zip(self.widths) {
            write(compute, (from.view(), width), (to, rows), pairs);
        }
    }

    /// Copies rows of the residual stream after the last layer.
    pub(crate) fn write_x(&mut self, compute: Compute, x: (View<'_, f32>, usize), pairs: &[(usize, u32)]) {
        write(compute, x, (&mut self.x, self.row_of.len()), pairs);
    }

    /// Returns the kept row of each row of a forward pass, or `None` if one of them is not kept.
    fn rows_of(&self, version: u64, packed: &Packed) -> Option<Vec<usize>> {
        if self.store.is_none() || self.version != version {
            return None;
        }
        let mut rows: Vec<usize> = Vec::with_capacity(packed.ids.len());
        for ((id, before), position) in packed.ids.iter().zip(&packed.before).zip(packed.positions.iter()) {
            let (before, expected) = match *before {
                NO_ROW => (NO_ROW, 0),
                before => (rows[before as usize] as u32, packed.positions[before as usize] + 1),
            };
            if *position != expected {
                return None;
            }
            rows.push(*self.row_of.get(&(before, *id))? as usize);
        }
        Some(rows)
    }
}

/// Copies rows of `width` floats; `to` grows to `rows`.
fn write(
    compute: Compute,
    (from, width): (View<'_, f32>, usize),
    (to, rows): (&mut Memory<f32>, usize),
    pairs: &[(usize, u32)],
) {
    if to.len() < rows * width {
        compute.resize(to, rows * width);
    }
    for &(row, kept) in pairs {
        let to = to.view_mut().slice(kept as usize * width..(kept as usize + 1) * width);
        compute.copy(from.slice(row * width..(row + 1) * width), to);
    }
}

impl DecoderConfig {
    /// Returns the bytes of the kept activations of one row.
    pub(crate) fn kept_row_bytes(&self) -> usize {
        let heads = self.num_attention_heads + self.num_kv_heads();
        let wide =
            2 * self.hidden_size + 3 * self.q_width() + 3 * self.kv_width() + 2 * self.intermediate_size;
        let narrow = 2 + heads + 2 * self.num_attention_heads;
        size_of::<f32>() * (self.hidden_size + self.num_hidden_layers * (wide + narrow))
    }
}

impl Decoder {
    /// Returns the number of rows of the last forward pass that an engine had kept: all, or 0.
    #[must_use]
    pub fn num_kept_rows(&self) -> usize {
        self.kept.num_copied.load(Ordering::Relaxed)
    }

    /// Fills the activations of all layers from kept rows; returns `false`, and does nothing, if one is missing.
    pub(super) fn copy_kept(&self, activations: &mut Activations, policy: CheckpointPolicy) -> bool {
        match policy {
            CheckpointPolicy::All => {}
            CheckpointPolicy::Nothing => return false,
            CheckpointPolicy::Inputs => {
                self.kept.num_copied.store(0, Ordering::Relaxed);
                return false;
            }
        }
        // Threads share the work, so no lock is held. No engine can run, as a pass of this policy has the decoder.
        let kept = std::mem::take(&mut *self.kept.lock());
        let rows = kept.rows_of(self.version, &activations.packed);
        self.kept.num_copied.store(rows.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
        if let Some(rows) = &rows {
            activations.resize(policy, kept.layers.len());
            let Activations { packed, layers, x, rope, workspace, .. } = activations;
            workspace.resize(&self.config, rows.len(), self.compute, self.activation_dtype());
            let rope = rope.get_or_insert_with(|| self.config.rope());
            rope.extend_to(packed.positions.iter().max().map_or(0, |last| *last as usize + 1));
            let mut parts: Vec<_> = kept.layers.iter().zip(layers).collect();
            for_each_part(&mut parts, |(from, to)| {
                for ((from, to), width) in from.buffers().into_iter().zip(to.buffers_mut()).zip(kept.widths) {
                    self.read((from.view(), width), rows, to);
                }
            });
            self.read((kept.x.view(), self.config.hidden_size), rows, x);
        }
        *self.kept.lock() = kept;
        rows.is_some()
    }

    fn read(&self, (from, width): (View<'_, f32>, usize), rows: &[usize], to: &mut Memory<f32>) {
        self.compute.resize(to, rows.len() * width);
        self.compute.gather(from, width, rows, to);
    }
}
