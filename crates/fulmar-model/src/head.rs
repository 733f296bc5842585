//! The output head: from the residual stream of chosen rows to log-probs of chosen ids, and back.
//!
//! Logits exist for a chunk of rows at a time and are computed again in the backward pass, so `[T, V]` is never held.

use fulmar_core::Result;
use fulmar_kernel::{
    LogProb, MatRef, log_prob_backward_row, log_prob_row, matmul, rms_norm, rms_norm_backward,
};

use crate::config::DecoderConfig;
use crate::layer::Gradients;
use crate::packing::Target;
use crate::parameters::Layout;

/// Floats of logits held at once.
const LOGITS_CHUNK: usize = 1 << 20;

/// What the head computed for M targets.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadTrace {
    /// The residual stream at each target's row `[M, D]`.
    x: Vec<f32>,
    inv_rms: Vec<f32>,
    normed: Vec<f32>,
    /// One result a target.
    pub found: Vec<LogProb>,
}

/// The head's weights.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub config: &'a DecoderConfig,
    pub layout: &'a Layout,
    pub weights: &'a [f32],
}

impl Head<'_> {
    /// Calls `visit(row, logits)` for each residual row of `x_md`.
    pub(crate) fn for_logits(
        &self,
        x_md: &[f32],
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (hidden, vocab, chunk) = (self.config.hidden_size, self.config.vocab_size, self.chunk());
        for (index, x) in x_md.chunks(chunk * hidden).enumerate() {
            let rows = x.len() / hidden;
            let (mut normed, mut logits) = (vec![0.0; x.len()], vec![0.0; rows * vocab]);
            self.norm(x, &mut normed, &mut vec![0.0; rows]);
            self.project(&normed, &mut logits);
            for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                visit(index * chunk + row, logits)?;
            }
        }
        Ok(())
    }

    /// Log-probs of all `targets` from the residual stream `x_nd`.
    pub(crate) fn forward(&self, x_nd: &[f32], targets: &[Target], trace: &mut HeadTrace) {
        let hidden = self.config.hidden_size;
        trace.x.clear();
        for target in targets {
            trace.x.extend_from_slice(&x_nd[target.row as usize * hidden..][..hidden]);
        }
        trace.inv_rms.resize(targets.len(), 0.0);
        trace.normed.resize(targets.len() * hidden, 0.0);
        self.norm(&trace.x, &mut trace.normed, &mut trace.inv_rms);
        trace.found.clear();
        let mut logits = Vec::new();
        for (normed, targets) in trace.normed.chunks(self.chunk() * hidden).zip(targets.chunks(self.chunk()))
        {
            logits.resize(targets.len() * self.config.vocab_size, 0.0);
            self.project(normed, &mut logits);
            let rows = logits.chunks_exact(self.config.vocab_size).zip(targets);
            trace.found.extend(rows.map(|(row, target)| log_prob_row(row, target.id as usize)));
        }
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, given those of the log-probs and entropies.
    pub(crate) fn backward(
        &self,
        trace: &HeadTrace,
        targets: &[Target],
        d_found: impl Fn(&Target) -> (f32, f32),
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) {
        let (hidden, vocab, chunk) = (self.config.hidden_size, self.config.vocab_size, self.chunk());
        let mut d_normed = vec![0.0; trace.normed.len()];
        let mut logits = Vec::new();
        for (index, targets) in targets.chunks(chunk).enumerate() {
            let rows = index * chunk..index * chunk + targets.len();
            let normed = &trace.normed[rows.start * hidden..rows.end * hidden];
            logits.resize(targets.len() * vocab, 0.0);
            self.project(normed, &mut logits);
            for ((row, target), found) in
                logits.chunks_exact_mut(vocab).zip(targets).zip(&trace.found[rows.clone()])
            {
                let (d_log_prob, d_entropy) = d_found(target);
                log_prob_backward_row(row, target.id as usize, *found, d_log_prob, d_entropy);
            }
            let d_logits = MatRef::new(&logits, targets.len(), vocab);
            let head = MatRef::new(&self.weights[self.layout.head.clone()], vocab, hidden);
            matmul(&mut d_normed[rows.start * hidden..rows.end * hidden], d_logits, head, false);
            if let Some(d_head) = gradients.of(&self.layout.head) {
                matmul(d_head, d_logits.transposed(), MatRef::new(normed, targets.len(), hidden), true);
            }
        }
        let norm = &self.weights[self.layout.final_norm.clone()];
        let mut d_x = vec![0.0; d_normed.len()];
        let d_norm = gradients.of(&self.layout.final_norm);
        rms_norm_backward(&trace.x, norm, &trace.inv_rms, &d_normed, &mut d_x, d_norm);
        d_x_nd.fill(0.0);
        for (d_row, target) in d_x.chunks_exact(hidden).zip(targets) {
            let d_x = &mut d_x_nd[target.row as usize * hidden..][..hidden];
            for (d_x, d) in d_x.iter_mut().zip(d_row) {
                *d_x += d;
            }
        }
    }

    fn norm(&self, x: &[f32], out: &mut [f32], inv_rms: &mut [f32]) {
        let weight = &self.weights[self.layout.final_norm.clone()];
        rms_norm(x, weight, self.config.rms_norm_eps as f32, out, inv_rms);
    }

    fn project(&self, normed: &[f32], logits: &mut [f32]) {
        let (hidden, vocab) = (self.config.hidden_size, self.config.vocab_size);
        let head = MatRef::new(&self.weights[self.layout.head.clone()], vocab, hidden).transposed();
        matmul(logits, MatRef::new(normed, normed.len() / hidden, hidden), head, false);
    }

    fn chunk(&self) -> usize {
        (LOGITS_CHUNK / self.config.vocab_size).max(1)
    }
}
