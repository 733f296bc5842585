//! The pass of the rows of a step through the layers.

use fulmar_compute::{Compute, Memory, RopeTable};

use super::{Rows, Scheduler};
use crate::decoder::PackedDecoder;
use crate::layer::{LayerActivations, Workspace};
use crate::paged::PagePool;

/// Positions whose angles a GPU has at least: it gets a copy of all of them as often as their number doubles.
const GPU_POSITIONS_MIN: usize = 256;

/// The buffers of a pass.
#[derive(Debug, Default)]
pub(super) struct StepBuffers {
    activations: LayerActivations,
    workspace: Workspace,
    /// The residual stream.
    pub x: Memory<f32>,
}

impl StepBuffers {
    /// Resizes the buffers of all families to `num_rows` rows.
    pub(super) fn resize(&mut self, packed: PackedDecoder<'_>, num_rows: usize) {
        let (compute, config) = (packed.decoder.compute(), packed.decoder.config());
        compute.resize(&mut self.x, num_rows * config.hidden_size);
        let dtype = packed.decoder.activation_dtype();
        self.activations.resize(config, num_rows, compute, dtype);
        self.workspace.resize(config, num_rows, compute, dtype);
    }

    /// Writes the residual stream after the last layer to `x`; fills the rows' places in the cache.
    pub(super) fn run(
        &mut self,
        packed: PackedDecoder<'_>,
        rows: &Rows,
        rope: &RopeTable,
        pool: &mut PagePool,
    ) {
        self.resize(packed, rows.step.len());
        let Self { activations, workspace, x } = self;
        let (decoder, step) = (packed.decoder, &rows.step);
        let (compute, config) = (decoder.compute(), decoder.config());
        decoder.embed(step.ids().into(), x);
        for index in 0..config.num_hidden_layers {
            compute.copy(&*x, &mut activations.x);
            let layer = packed.layer(index);
            layer.project_heads(activations, workspace, (rope, step.positions()));
            pool.write(index, step.cache_rows(), [&activations.k, &activations.v]);
            let (keys, values) = pool.layer(index);
            let LayerActivations { q, attention: out, log_sum, .. } = activations;
            compute.attention(config.attention(), &*q, keys, values, step.spans(), out, log_sum);
            layer.finish(activations, workspace, x);
            if !rows.kept.is_empty() {
                let all = (&*activations, step.len());
                decoder.kept.lock().write_layer(compute, index, all, &rows.kept);
            }
        }
        if !rows.kept.is_empty() {
            decoder.kept.lock().write_x(compute, (x.view(), config.hidden_size), &rows.kept);
        }
    }
}

impl Scheduler {
    /// Runs [`StepBuffers::run`] in the buffers of steps of any size.
    pub(super) fn run_layers(&mut self, packed: PackedDecoder<'_>, rows: &Rows) {
        self.extend_rope(packed, rows);
        rows.step.upload(packed.decoder.compute());
        self.buffers.run(packed, rows, &self.rope, &mut self.pool);
    }

    /// Computes the angles of the positions of the rows.
    pub(super) fn extend_rope(&mut self, packed: PackedDecoder<'_>, rows: &Rows) {
        let num_positions = rows.step.positions().iter().max().map_or(0, |last| *last as usize + 1);
        let ahead = match packed.decoder.compute() {
            Compute::Cpu => 0,
            Compute::Cuda(_) => num_positions.next_power_of_two().max(GPU_POSITIONS_MIN),
        };
        let max = packed.decoder.config().max_position_embeddings;
        self.rope.extend_to(ahead.min(max).max(num_positions));
    }
}
