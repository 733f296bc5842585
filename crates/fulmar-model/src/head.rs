//! The output head: from the residual stream of selected rows to log-probs of selected ids, and back.
//!
//! Logits exist for a chunk of rows at a time and are recomputed in the backward pass, so `[T, V]` is never
//! held.

use std::borrow::Cow;

use fulmar_compute::{Compute, Floats, LogProb, Memory};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_objective::{HeadGradientsMut, LinearHead};

use crate::config::DecoderConfig;
use crate::layer::Gradients;
use crate::packing::Target;
use crate::panels::PanelsByStart;
use crate::parameters::{Layout, ScalarRanges};

/// Floats of logits held at once: little memory compared to the weights, but enough rows that a large head is
/// read rarely.
const LOGITS_CHUNK: usize = 1 << 24;

/// The activations of the head for M targets.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadActivations {
    /// The residual stream at each target's row `[M, D]`.
    x: Memory<f32>,
    inv_rms: Memory<f32>,
    normed: Memory<f32>,
    /// One result a target.
    pub log_probs: Vec<LogProb>,
}

impl HeadActivations {
    /// Returns the number of allocated floats.
    pub(crate) fn num_floats(&self) -> usize {
        self.x.capacity() + self.inv_rms.capacity() + self.normed.capacity()
    }
}

/// The head's weights.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub config: &'a DecoderConfig,
    pub layout: &'a Layout,
    pub weights: Floats<'a>,
    pub panels: Option<&'a PanelsByStart>,
    pub compute: Compute,
}

impl Head<'_> {
    /// Calls `visit(row, logits)` for each residual row of `x_md`.
    ///
    /// # Errors
    /// The errors of `visit` and of [`Head::check`].
    pub(crate) fn for_logits(
        &self,
        x_md: &[f32],
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        let mut normed = self.zeros(x_md.len());
        self.norm(x_md, &mut normed, &mut self.zeros(x_md.len() / self.config.hidden_size));
        self.vocabulary().walk(&normed, LOGITS_CHUNK, |rows, logits| {
            let logits = logits.chunks_exact(self.config.vocab_size);
            rows.zip(logits).try_for_each(|(row, logits)| visit(row, logits))
        })
    }

    /// Refuses a model without a vocabulary head.
    pub(crate) fn check(&self) -> Result<()> {
        if self.layout.head.is_some() {
            return Ok(());
        }
        let detail =
            "a decoder must have a head over its vocabulary for log-probs: got one with a score alone";
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    /// Computes log-probs of all `targets` from the residual stream `x_nd`. Calls `visit(target, logits)` for
    /// each.
    ///
    /// # Errors
    /// The errors of [`LinearHead::walk`].
    pub(crate) fn forward(
        &self,
        x_nd: &[f32],
        targets: &[Target],
        activations: &mut HeadActivations,
        mut visit: impl FnMut(&Target, &[f32]),
    ) -> Result<()> {
        self.gather(x_nd, targets, activations);
        activations.log_probs.clear();
        self.vocabulary().walk(&activations.normed, LOGITS_CHUNK, |rows, logits| {
            let ids: Vec<u32> = targets[rows.clone()].iter().map(|target| target.id).collect();
            activations.log_probs.extend(self.compute.log_prob_rows(logits, &ids));
            for (row, target) in logits.chunks_exact(self.config.vocab_size).zip(&targets[rows]) {
                visit(target, row);
            }
            Ok(())
        })
    }

    /// Returns the outputs of the scalar head at `ranges` of `trained` for all `targets`, from the residual
    /// stream `x_nd`.
    pub(crate) fn forward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, Floats<'_>),
        x_nd: &[f32],
        targets: &[Target],
        activations: &mut HeadActivations,
    ) -> Result<Vec<f32>> {
        self.gather(x_nd, targets, activations);
        let mut values = Vec::with_capacity(targets.len());
        self.scalar(ranges, trained).walk(&activations.normed, LOGITS_CHUNK, |_, of_rows| {
            values.extend_from_slice(of_rows);
            Ok(())
        })?;
        Ok(values)
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, from the gradient of the outputs of
    /// [`Head::forward_scalar`].
    pub(crate) fn backward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, Floats<'_>),
        activations: &HeadActivations,
        targets: &[Target],
        d_values: &[f32],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) -> Result<()> {
        let mut d_normed = self.zeros(activations.normed.len());
        let (weight, bias) = gradients.of_scalar(ranges);
        let into = HeadGradientsMut { hidden: &mut d_normed, weight: Some(weight), bias };
        self.scalar(ranges, trained).walk_back(&activations.normed, LOGITS_CHUNK, into, |rows, values| {
            values.copy_from_slice(&d_values[rows]);
            Ok(())
        })?;
        self.norm_backward(activations, targets, &d_normed, gradients, d_x_nd);
        Ok(())
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, from the gradients of log-probs and entropies.
    pub(crate) fn backward(
        &self,
        activations: &HeadActivations,
        targets: &[Target],
        gradients_of: impl Fn(&Target) -> (f32, f32),
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) -> Result<()> {
        let mut d_normed = self.zeros(activations.normed.len());
        let weight = self.layout.head.as_ref().and_then(|head| gradients.of(head));
        let into = HeadGradientsMut { hidden: &mut d_normed, weight, bias: None };
        self.vocabulary().walk_back(&activations.normed, LOGITS_CHUNK, into, |rows, logits| {
            let targets = &targets[rows.clone()];
            let ids: Vec<u32> = targets.iter().map(|target| target.id).collect();
            let (d_log_prob, d_entropy): (Vec<f32>, Vec<f32>) = targets.iter().map(&gradients_of).unzip();
            let log_probs = &activations.log_probs[rows];
            self.compute.log_prob_backward_rows(logits, &ids, log_probs, &d_log_prob, Some(&d_entropy));
            Ok(())
        })?;
        self.norm_backward(activations, targets, &d_normed, gradients, d_x_nd);
        Ok(())
    }

    /// Copies the rows of all `targets` and normalises them.
    fn gather(&self, x_nd: &[f32], targets: &[Target], activations: &mut HeadActivations) {
        let (hidden, rows) = (self.config.hidden_size, rows_of(targets));
        self.compute.resize(&mut activations.x, targets.len() * hidden);
        self.compute.gather(x_nd, hidden, &rows, &mut activations.x);
        self.compute.resize(&mut activations.inv_rms, targets.len());
        self.compute.resize(&mut activations.normed, targets.len() * hidden);
        self.norm(&activations.x, &mut activations.normed, &mut activations.inv_rms);
    }

    /// Runs the backward pass of [`Head::gather`].
    fn norm_backward(
        &self,
        activations: &HeadActivations,
        targets: &[Target],
        d_normed: &[f32],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut [f32],
    ) {
        let hidden = self.config.hidden_size;
        let norm = self.norm_weight();
        let mut d_x = self.zeros(d_normed.len());
        let d_norm = gradients.of(&self.layout.final_norm);
        self.compute.rms_norm_backward(
            &activations.x,
            &norm,
            &activations.inv_rms,
            d_normed,
            &mut d_x,
            d_norm,
        );
        self.compute.fill(d_x_nd, 0.0);
        self.compute.scatter_add(&d_x, hidden, &rows_of(targets), d_x_nd);
    }

    /// Runs the last normalisation. A row whose squares overflow would become zeros, and its logits a uniform
    /// distribution. It becomes NaN instead, which callers that read log-probs, values or draws refuse.
    fn norm(&self, x: &[f32], out: &mut [f32], inv_rms: &mut [f32]) {
        self.compute.rms_norm(x, &self.norm_weight(), self.config.rms_norm_eps as f32, out, inv_rms);
        for (row, inv_rms) in out.chunks_exact_mut(self.config.hidden_size).zip(inv_rms) {
            if *inv_rms <= 0.0 || !inv_rms.is_finite() {
                row.fill(f32::NAN);
            }
        }
    }

    fn norm_weight(&self) -> Cow<'_, [f32]> {
        self.weights.slice(self.layout.final_norm.clone()).to_f32()
    }

    /// Returns the vocabulary head. A reward model has none, and its passes over log-probs are refused
    /// earlier.
    fn vocabulary(&self) -> LinearHead<'_> {
        let range = self.layout.head.clone().unwrap_or(0..0);
        let panels = self.panels.and_then(|panels| panels.get(&range.start));
        LinearHead { panels, ..self.linear(self.weights.slice(range), None) }
    }

    /// Returns the scalar head at `ranges` of `trained`.
    fn scalar<'a>(&self, ranges: &ScalarRanges, trained: Floats<'a>) -> LinearHead<'a> {
        let bias = ranges.bias.as_ref().map(|bias| trained.slice(bias.clone()));
        self.linear(trained.slice(ranges.weight.clone()), bias)
    }

    fn zeros(&self, len: usize) -> Memory<f32> {
        let mut zeros = Memory::default();
        self.compute.resize(&mut zeros, len);
        zeros
    }

    fn linear<'a>(&self, weight: Floats<'a>, bias: Option<Floats<'a>>) -> LinearHead<'a> {
        LinearHead {
            weight,
            panels: None,
            bias,
            width: self.config.hidden_size,
            temperature: 1.0,
            compute: self.compute,
        }
    }
}

/// Returns the rows of the residual stream that the targets read.
fn rows_of(targets: &[Target]) -> Vec<usize> {
    targets.iter().map(|target| target.row as usize).collect()
}
