//! The output head: from the residual stream of chosen rows to log-probs of chosen ids, and back.
//!
//! Logits exist for a chunk of rows at a time and are computed again in the backward pass, so `[T, V]` is never held.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_kernel::{
    LogProb, MatRef, add_bias, bias_backward, log_prob_backward_rows, log_prob_rows, matmul, rms_norm,
    rms_norm_backward,
};

use crate::config::DecoderConfig;
use crate::layer::Gradients;
use crate::packing::Target;
use crate::parameters::{Layout, ScalarRanges};

/// Floats of logits held at once: few enough to be little beside the weights, and of so many rows that a large head is read seldom.
const LOGITS_CHUNK: usize = 1 << 24;

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

impl HeadTrace {
    /// Floats that are held.
    pub(crate) fn num_floats(&self) -> usize {
        self.x.capacity() + self.inv_rms.capacity() + self.normed.capacity()
    }
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
    ///
    /// # Errors
    /// What `visit` says; those of [`Head::check`].
    pub(crate) fn for_logits(
        &self,
        x_md: &[f32],
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (hidden, vocab, chunk) = (self.config.hidden_size, self.config.vocab_size, self.chunk());
        self.check()?;
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

    /// Refuses a model that has no head over the vocabulary.
    pub(crate) fn check(&self) -> Result<()> {
        if self.layout.head.is_some() {
            return Ok(());
        }
        let detail =
            "a decoder must have a head over its vocabulary for log-probs: got one with a score alone";
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    /// Log-probs of all `targets` from the residual stream `x_nd`. Calls `visit(target, logits)` for each.
    pub(crate) fn forward(
        &self,
        x_nd: &[f32],
        targets: &[Target],
        trace: &mut HeadTrace,
        mut visit: impl FnMut(&Target, &[f32]),
    ) {
        let hidden = self.config.hidden_size;
        self.gather(x_nd, targets, trace);
        trace.found.clear();
        let mut logits = Vec::new();
        for (normed, targets) in trace.normed.chunks(self.chunk() * hidden).zip(targets.chunks(self.chunk()))
        {
            logits.resize(targets.len() * self.config.vocab_size, 0.0);
            self.project(normed, &mut logits);
            let ids: Vec<u32> = targets.iter().map(|target| target.id).collect();
            trace.found.extend(log_prob_rows(&logits, &ids));
            for (row, target) in logits.chunks_exact(self.config.vocab_size).zip(targets) {
                visit(target, row);
            }
        }
    }

    /// The numbers that the scalar head at `ranges` of `trained` reads at all `targets`, from the residual stream `x_nd`.
    pub(crate) fn forward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, &[f32]),
        x_nd: &[f32],
        targets: &[Target],
        trace: &mut HeadTrace,
    ) -> Vec<f32> {
        let hidden = self.config.hidden_size;
        self.gather(x_nd, targets, trace);
        let mut values = vec![0.0; targets.len()];
        let weight = MatRef::new(&trained[ranges.weight.clone()], 1, hidden).transposed();
        matmul(&mut values, MatRef::new(&trace.normed, targets.len(), hidden), weight, false);
        if let Some(bias) = &ranges.bias {
            add_bias(&mut values, &trained[bias.clone()]);
        }
        values
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, given that of the numbers of [`Head::forward_scalar`].
    pub(crate) fn backward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, &[f32]),
        trace: &HeadTrace,
        targets: &[Target],
        d_values: &[f32],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) {
        let hidden = self.config.hidden_size;
        let d_column = MatRef::new(d_values, targets.len(), 1);
        let mut d_normed = vec![0.0; trace.normed.len()];
        let weight = MatRef::new(&trained[ranges.weight.clone()], 1, hidden);
        matmul(&mut d_normed, d_column, weight, false);
        let normed = MatRef::new(&trace.normed, targets.len(), hidden);
        matmul(gradients.of_trained(&ranges.weight), d_column.transposed(), normed, true);
        if let Some(bias) = &ranges.bias {
            bias_backward(d_values, gradients.of_trained(bias));
        }
        self.norm_backward(trace, targets, &d_normed, gradients, d_x_nd);
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
            let ids: Vec<u32> = targets.iter().map(|target| target.id).collect();
            let (d_log_prob, d_entropy): (Vec<f32>, Vec<f32>) = targets.iter().map(&d_found).unzip();
            let found = &trace.found[rows.clone()];
            log_prob_backward_rows(&mut logits, &ids, found, &d_log_prob, Some(&d_entropy));
            let d_logits = MatRef::new(&logits, targets.len(), vocab);
            let head = MatRef::new(self.weights_of_vocabulary(), vocab, hidden);
            matmul(&mut d_normed[rows.start * hidden..rows.end * hidden], d_logits, head, false);
            if let Some(d_head) = self.layout.head.as_ref().and_then(|head| gradients.of(head)) {
                matmul(d_head, d_logits.transposed(), MatRef::new(normed, targets.len(), hidden), true);
            }
        }
        self.norm_backward(trace, targets, &d_normed, gradients, d_x_nd);
    }

    /// Copies the rows of all `targets` and normalises them.
    fn gather(&self, x_nd: &[f32], targets: &[Target], trace: &mut HeadTrace) {
        let hidden = self.config.hidden_size;
        trace.x.clear();
        for target in targets {
            trace.x.extend_from_slice(&x_nd[target.row as usize * hidden..][..hidden]);
        }
        trace.inv_rms.resize(targets.len(), 0.0);
        trace.normed.resize(targets.len() * hidden, 0.0);
        self.norm(&trace.x, &mut trace.normed, &mut trace.inv_rms);
    }

    /// The backward pass of [`Head::gather`].
    fn norm_backward(
        &self,
        trace: &HeadTrace,
        targets: &[Target],
        d_normed: &[f32],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) {
        let hidden = self.config.hidden_size;
        let norm = &self.weights[self.layout.final_norm.clone()];
        let mut d_x = vec![0.0; d_normed.len()];
        let d_norm = gradients.of(&self.layout.final_norm);
        rms_norm_backward(&trace.x, norm, &trace.inv_rms, d_normed, &mut d_x, d_norm);
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
        let head = MatRef::new(self.weights_of_vocabulary(), vocab, hidden).transposed();
        matmul(logits, MatRef::new(normed, normed.len() / hidden, hidden), head, false);
    }

    /// The head over the vocabulary. A reward model has none, and its passes over log-probs are refused before.
    fn weights_of_vocabulary(&self) -> &[f32] {
        self.layout.head.as_ref().map_or(&[], |head| &self.weights[head.clone()])
    }

    fn chunk(&self) -> usize {
        (LOGITS_CHUNK / self.config.vocab_size).max(1)
    }
}
