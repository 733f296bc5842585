//! The output head: from the residual stream of selected rows to log-probs of selected ids, and back.
//!
//! Logits exist for a chunk of rows at a time. The forward pass begins with the last chunk, so that the logits of the
//! first ones are still there when the backward pass begins; it computes the others again. Training keeps so many that
//! most batches compute none again.

use std::ops::Range;

use fulmar_compute::{
    Compute, Floats, LogProb, MatRef, MatmulPrecision, Memory, Panels, PanelsView, Placed, View, ViewMut,
};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_objective::{HeadGradientsMut, LinearHead};

use crate::config::DecoderConfig;
use crate::layer::Gradients;
use crate::packing::Target;
use crate::panels::{PanelsByStart, in_panels};
use crate::parameters::{Layout, ScalarRanges};

/// Floats of logits held at once: little memory compared to the weights, but enough rows that a large head is
/// read rarely.
pub(crate) const LOGITS_CHUNK: usize = 1 << 24;

/// Floats of logits that a forward pass keeps which stores all activations: a third of what those of as many tokens take in
/// a model with 135 M weights.
pub(crate) const KEPT_LOGITS: usize = 1 << 27;

/// The activations of the head for M targets.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadActivations {
    /// The residual stream at each target's row `[M, D]`.
    x: Memory<f32>,
    inv_rms: Memory<f32>,
    normed: Memory<f32>,
    /// The logits of the first rows, or of one chunk.
    logits: Memory<f32>,
    /// The number of first rows whose `logits` of the last forward pass are still there.
    kept_rows: usize,
    /// Gradients with respect to `normed` and `x`.
    d_normed: Memory<f32>,
    d_x: Memory<f32>,
    /// One result a target.
    pub log_probs: Vec<LogProb>,
}

impl HeadActivations {
    /// Returns the number of allocated bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        let Self { x, inv_rms, normed, logits, d_normed, d_x, .. } = self;
        [x, inv_rms, normed, logits, d_normed, d_x].into_iter().map(Memory::num_bytes).sum()
    }

    /// Returns the address of the buffer of logits.
    pub(crate) fn logits_place(&self) -> u64 {
        self.logits.view().place()
    }
}

/// The head's weights.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub config: &'a DecoderConfig,
    pub layout: &'a Layout,
    pub weights: Floats<'a>,
    /// `true` if weights of whole panels are packed in their place.
    pub are_packed: bool,
    pub panels: Option<&'a PanelsByStart>,
    /// Floats of logits held at once; a single row may be longer.
    pub logits_max: usize,
    /// Floats of logits that a forward pass leaves to its backward pass, rounded down to chunks; at least those of one chunk.
    pub kept_max: usize,
    /// The precision of products with the vocabulary; those with a scalar head are few, and in single precision.
    pub precision: MatmulPrecision,
    pub compute: Compute,
}

impl Head<'_> {
    /// Calls `visit(row, logits)` for each residual row of `x_md`.
    ///
    /// # Errors
    /// The errors of `visit` and of [`Head::check`].
    pub(crate) fn for_logits(
        &self,
        x_md: View<'_, f32>,
        activations: &mut HeadActivations,
        mut visit: impl FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.for_chunks(x_md, activations, |rows, logits| {
            let logits = logits.read()?;
            let mut of_rows = rows.zip(logits.chunks_exact(self.config.vocab_size));
            of_rows.try_for_each(|(row, logits)| visit(row, logits))
        })
    }

    /// Calls `visit(rows, logits)` for chunks of the residual rows of `x_md`, with their logits where they are computed.
    ///
    /// # Errors
    /// The errors of `visit` and of [`Head::check`].
    pub(crate) fn for_chunks(
        &self,
        x_md: View<'_, f32>,
        activations: &mut HeadActivations,
        mut visit: impl FnMut(Range<usize>, View<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        let rows = x_md.len() / self.config.hidden_size;
        let mut normed = std::mem::take(&mut activations.normed);
        self.normalise(x_md, &mut normed, &mut activations.inv_rms);
        let visited = self.for_normed(&normed, rows, activations, false, &mut visit);
        activations.normed = normed;
        visited
    }

    /// Normalises the residual rows of `x_md` for their logits.
    pub(crate) fn normalise(&self, x_md: View<'_, f32>, normed: &mut Memory<f32>, inv_rms: &mut Memory<f32>) {
        self.compute.resize(normed, x_md.len());
        self.compute.resize(inv_rms, x_md.len() / self.config.hidden_size);
        self.norm(x_md, normed, inv_rms);
    }

    /// Runs [`Head::for_chunks`] for the first `num_rows` rows of `normed_md`. `has_logits` if these were computed before, by
    /// [`Head::logits_of`].
    ///
    /// # Errors
    /// The errors of `visit` and of [`Head::check`].
    pub(crate) fn for_normed(
        &self,
        normed_md: &Memory<f32>,
        num_rows: usize,
        activations: &mut HeadActivations,
        has_logits: bool,
        mut visit: impl FnMut(Range<usize>, View<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        self.compute.check()?;
        let logits = &mut activations.logits;
        if has_logits {
            visit(0..num_rows, logits.view().slice(..num_rows * self.config.vocab_size))?;
            return self.compute.check();
        }
        for rows in self.chunks(num_rows) {
            visit(rows.clone(), self.logits(normed_md, rows, (logits, 0))?.view())?;
        }
        self.compute.check()
    }

    /// Computes the logits of all rows of `normed_md`, which are of one chunk.
    ///
    /// # Errors
    /// The errors of [`LinearHead::logits`].
    pub(crate) fn logits_of(&self, normed_md: &Memory<f32>, activations: &mut HeadActivations) -> Result<()> {
        let rows = normed_md.len() / self.config.hidden_size;
        self.logits(normed_md, 0..rows, (&mut activations.logits, 0)).map(drop)
    }

    /// Returns whether the logits of that many rows are computed at once.
    pub(crate) fn is_one_chunk(&self, num_rows: usize) -> bool {
        num_rows <= self.rows_of_chunk()
    }

    /// Allocates the buffer of logits for a chunk of up to `num_rows` rows, which then stays in its place.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it; errors of the operations so far.
    pub(crate) fn reserve_logits(&self, num_rows: usize, activations: &mut HeadActivations) -> Result<()> {
        let floats = num_rows.min(self.rows_of_chunk()) * self.config.vocab_size;
        let logits = &mut activations.logits;
        if logits.len() < floats || logits.compute() != self.compute {
            self.compute.resize(logits, floats);
        }
        self.compute.check()
    }

    fn rows_of_chunk(&self) -> usize {
        (self.logits_max / self.config.vocab_size).max(1)
    }

    /// Returns the rows of each chunk of logits.
    fn chunks(&self, num_rows: usize) -> impl DoubleEndedIterator<Item = Range<usize>> + use<> {
        let size = self.rows_of_chunk();
        (0..num_rows.div_ceil(size)).map(move |chunk| chunk * size..num_rows.min((chunk + 1) * size))
    }

    /// Returns the number of first rows whose logits are kept.
    fn kept_rows(&self) -> usize {
        let rows = self.rows_of_chunk();
        (self.kept_max / (rows * self.config.vocab_size)).max(1) * rows
    }

    /// Computes the logits of some rows of `normed_md` in a buffer, which never shrinks, after those of `before` rows there.
    fn logits<'l>(
        &self,
        normed_md: &Memory<f32>,
        rows: Range<usize>,
        (buffer, before): (&'l mut Memory<f32>, usize),
    ) -> Result<ViewMut<'l, f32>> {
        let (hidden, vocab) = (self.config.hidden_size, self.config.vocab_size);
        let place = before * vocab..(before + rows.len()) * vocab;
        if buffer.len() < place.end || buffer.compute() != self.compute {
            self.compute.resize(buffer, place.end);
            self.compute.check()?;
        }
        let mut logits = buffer.view_mut().slice(place);
        let normed_md = normed_md.view().slice(rows.start * hidden..rows.end * hidden);
        self.vocabulary().logits(normed_md, &mut logits)?;
        Ok(logits)
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

    /// Computes log-probs of all `targets` from the residual stream `x_nd`, and waits for them once. Calls
    /// `visit(targets, logits)` for each chunk of them, in no particular order.
    ///
    /// # Errors
    /// The errors of [`LinearHead::logits`].
    pub(crate) fn forward(
        &self,
        x_nd: View<'_, f32>,
        targets: &[Target],
        activations: &mut HeadActivations,
        mut visit: impl FnMut(&[Target], View<'_, f32>),
    ) -> Result<()> {
        self.gather(x_nd, targets, activations)?;
        let HeadActivations { normed, logits, kept_rows, log_probs, .. } = activations;
        *kept_rows = 0;
        let mut found = self.compute.log_probs(targets.len())?;
        // The chunks come from the last to the first, and so do their rows.
        for rows in self.chunks(targets.len()).rev() {
            let before = if rows.start < self.kept_rows() { rows.start } else { 0 };
            let logits = self.logits(normed, rows.clone(), (&mut *logits, before))?;
            let of_rows = &targets[rows.clone()];
            let ids: Vec<u32> = of_rows.iter().map(|target| target.id).collect();
            found.find(rows.start, &logits, &ids);
            visit(of_rows, logits.view());
        }
        *log_probs = found.read()?;
        *kept_rows = self.kept_rows();
        Ok(())
    }

    /// Returns the outputs of the scalar head at `ranges` of `trained` for all `targets`, from the residual
    /// stream `x_nd`.
    pub(crate) fn forward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, Floats<'_>),
        x_nd: View<'_, f32>,
        targets: &[Target],
        activations: &mut HeadActivations,
    ) -> Result<Vec<f32>> {
        self.gather(x_nd, targets, activations)?;
        let mut values = self.compute.zeros(targets.len())?;
        self.scalar(ranges, trained).logits(activations.normed.view(), &mut values)?;
        Ok(values.view().read()?.into_owned())
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, from the gradient of the outputs of
    /// [`Head::forward_scalar`].
    pub(crate) fn backward_scalar(
        &self,
        (ranges, trained): (&ScalarRanges, Floats<'_>),
        activations: &mut HeadActivations,
        targets: &[Target],
        d_values: &[f32],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut Memory<f32>,
    ) -> Result<()> {
        self.compute.resize(&mut activations.d_normed, activations.normed.len());
        let mut d_values = self.compute.hold(d_values.to_vec())?;
        self.compute.check()?;
        let (weight, bias) = gradients.of_scalar(ranges);
        let into =
            HeadGradientsMut { hidden: (&mut activations.d_normed).into(), weight: Some(weight), bias };
        self.scalar(ranges, trained).logits_backward(activations.normed.view(), &mut d_values, into)?;
        self.norm_backward(activations, targets, gradients, d_x_nd);
        self.compute.check()
    }

    /// Writes the gradient of the residual stream to `d_x_nd`, from the gradients of log-probs and entropies.
    pub(crate) fn backward(
        &self,
        activations: &mut HeadActivations,
        targets: &[Target],
        gradients_of: impl Fn(&Target) -> (f32, f32),
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut Memory<f32>,
    ) -> Result<()> {
        let HeadActivations { normed, logits, kept_rows, d_normed, log_probs, .. } = &mut *activations;
        let kept_rows = std::mem::take(kept_rows);
        self.compute.resize(d_normed, normed.len());
        self.compute.check()?;
        let mut weight = self.layout.head.as_ref().and_then(|head| gradients.of(head));
        for rows in self.chunks(targets.len()) {
            let vocab = self.config.vocab_size;
            let mut logits = match rows.start < kept_rows {
                true => logits.view_mut().slice(rows.start * vocab..rows.end * vocab),
                false => self.logits(normed, rows.clone(), (&mut *logits, 0))?,
            };
            let of_rows = &targets[rows.clone()];
            let ids: Vec<u32> = of_rows.iter().map(|target| target.id).collect();
            let (d_log_prob, d_entropy): (Vec<f32>, Vec<f32>) = of_rows.iter().map(&gradients_of).unzip();
            let known = &log_probs[rows.clone()];
            self.compute.log_prob_backward_rows(&mut logits, &ids, known, &d_log_prob, Some(&d_entropy));
            let place = rows.start * self.config.hidden_size..rows.end * self.config.hidden_size;
            let hidden = d_normed.view_mut().slice(place.clone());
            let into =
                HeadGradientsMut { hidden, weight: weight.as_mut().map(ViewMut::reborrow), bias: None };
            self.vocabulary().logits_backward(normed.view().slice(place), logits, into)?;
        }
        self.norm_backward(activations, targets, gradients, d_x_nd);
        self.compute.check()
    }

    /// Copies the rows of all `targets` and normalises them.
    fn gather(
        &self,
        x_nd: View<'_, f32>,
        targets: &[Target],
        activations: &mut HeadActivations,
    ) -> Result<()> {
        let (hidden, rows) = (self.config.hidden_size, rows_of(targets));
        self.compute.resize(&mut activations.x, targets.len() * hidden);
        self.compute.gather(x_nd, hidden, &rows, &mut activations.x);
        self.compute.resize(&mut activations.inv_rms, targets.len());
        self.compute.resize(&mut activations.normed, targets.len() * hidden);
        self.norm(activations.x.view(), &mut activations.normed, &mut activations.inv_rms);
        self.compute.check()
    }

    /// Runs the backward pass of [`Head::gather`].
    fn norm_backward(
        &self,
        activations: &mut HeadActivations,
        targets: &[Target],
        gradients: &mut Gradients<'_>,
        d_x_nd: &mut Memory<f32>,
    ) {
        let hidden = self.config.hidden_size;
        let norm = self.norm_weight();
        let HeadActivations { x, inv_rms, d_normed, d_x, .. } = activations;
        self.compute.resize(d_x, d_normed.len());
        self.compute.fill(&mut *d_x, 0.0);
        let d_norm = gradients.of(&self.layout.final_norm);
        self.compute.rms_norm_backward(&*x, &norm, &*inv_rms, &*d_normed, &mut *d_x, d_norm);
        self.compute.fill(&mut *d_x_nd, 0.0);
        self.compute.scatter_add(&*d_x, hidden, &rows_of(targets), d_x_nd);
    }

    /// Runs the last normalisation. A row whose squares overflow would become zeros, and its logits a uniform
    /// distribution. It becomes NaN instead, which callers that read log-probs, values or draws refuse.
    fn norm(&self, x: View<'_, f32>, out: &mut Memory<f32>, inv_rms: &mut Memory<f32>) {
        let eps = self.config.rms_norm_eps as f32;
        self.compute.rms_norm(x, &self.norm_weight(), eps, &mut *out, &mut *inv_rms);
        self.compute.mask_overflow(out, &*inv_rms);
    }

    fn norm_weight(&self) -> Placed<'_, f32> {
        self.weights.slice(self.layout.final_norm.clone()).to_f32()
    }

    /// Returns the transposed weight at `range`, which has no packed copy.
    pub(crate) fn projection(&self, range: &Range<usize>) -> MatRef<'_> {
        if let Some(packed) = self.in_panels(range) {
            return MatRef::of_panels(packed);
        }
        let outputs = range.len() / self.config.hidden_size;
        MatRef::of(self.weights.slice(range.clone()), outputs, self.config.hidden_size).transposed()
    }

    fn in_panels(&self, range: &Range<usize>) -> Option<PanelsView<'_>> {
        self.are_packed.then(|| in_panels(self.weights, range, self.config.hidden_size)).flatten()
    }

    /// Returns the vocabulary head. A reward model has none, and its passes over log-probs are refused
    /// earlier.
    fn vocabulary(&self) -> LinearHead<'_> {
        let range = self.layout.head.clone().unwrap_or(0..0);
        let copied = self.panels.and_then(|panels| panels.get(&range.start)).map(Panels::view);
        let panels = copied.or_else(|| self.in_panels(&range));
        LinearHead { panels, precision: self.precision, ..self.linear(self.weights.slice(range), None) }
    }

    /// Returns the scalar head at `ranges` of `trained`.
    fn scalar<'a>(&self, ranges: &ScalarRanges, trained: Floats<'a>) -> LinearHead<'a> {
        let bias = ranges.bias.as_ref().map(|bias| trained.slice(bias.clone()));
        self.linear(trained.slice(ranges.weight.clone()), bias)
    }

    fn linear<'a>(&self, weight: Floats<'a>, bias: Option<Floats<'a>>) -> LinearHead<'a> {
        LinearHead {
            weight,
            panels: None,
            bias,
            width: self.config.hidden_size,
            temperature: 1.0,
            precision: MatmulPrecision::F32,
            compute: self.compute,
        }
    }
}

/// Returns the rows of the residual stream that the targets read.
fn rows_of(targets: &[Target]) -> Vec<usize> {
    targets.iter().map(|target| target.row as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Decoder;

    #[test]
    fn logits_that_are_still_there_give_the_gradients_of_those_computed_again() {
        let text = r#"{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 1, "num_attention_heads": 2, "initializer_range": 0.5}"#;
        let decoder = Decoder::new(DecoderConfig::from_json(text).unwrap(), 3).unwrap();
        let x = Memory::from((0..5 * 8).map(|at| (at * 7 % 13) as f32 - 6.0).collect::<Vec<_>>());
        let targets: Vec<Target> =
            (0..7).map(|token| Target { row: token * 3 % 5, id: token * 5 % 11, token }).collect();
        let pass = |logits_max: usize, kept_max: usize, is_kept: bool| {
            let head = Head { logits_max, kept_max, ..decoder.head() };
            let (mut activations, mut seen) = (HeadActivations::default(), Vec::new());
            head.forward(x.view(), &targets, &mut activations, |of_rows, logits| {
                let firsts = logits.cpu().chunks(11).map(|row| row[0].to_bits());
                seen.extend(of_rows.iter().map(|target| target.token).zip(firsts));
            })
            .unwrap();
            if !is_kept {
                activations.kept_rows = 0;
                activations.logits.cpu_mut().fill(f32::NAN);
            }
            let (mut all, mut d_x) = (vec![0.0; decoder.num_parameters()], Memory::from(vec![0.0; x.len()]));
            let gradients_of = |target: &Target| (target.id as f32 - 3.0, 0.1 * target.row as f32);
            let mut gradients = Gradients::Weights((&mut all).into());
            head.backward(&mut activations, &targets, gradients_of, &mut gradients, &mut d_x).unwrap();
            seen.sort_unstable();
            ((activations.log_probs, seen, d_x.cpu().to_vec()), all)
        };
        let whole = pass(1000, 0, true);
        assert!(whole.1.iter().any(|value| *value != 0.0) && whole.1.iter().all(|value| value.is_finite()));
        // Chunks of one row, of three, of all.
        for logits_max in [1, 33, 1000] {
            // Of one chunk, of three rows and a bit, of all.
            for kept_max in [0, 36, 1000] {
                let kept = pass(logits_max, kept_max, true);
                assert_eq!(
                    kept,
                    pass(logits_max, kept_max, false),
                    "chunks of {logits_max}, {kept_max} kept"
                );
                assert_eq!(kept, pass(logits_max, 0, false), "chunks of {logits_max}, {kept_max} kept");
                assert_eq!(kept.0, whole.0, "chunks of {logits_max}, {kept_max} kept");
            }
        }
    }
}
