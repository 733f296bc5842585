//! Runs a loss from logits, or from the hidden states before them, and back in one pass, without a second
//! copy of `[N, V]`.
//!
//! ```text
//! log p_n, H_n  from  x_n = (W h_n + b) / temperature       rows in chunks: at most LOGITS_CHUNK floats of logits are held
//! loss(log p, H)  gives  g_n = d loss / d log p_n,  e_n = d loss / d H_n
//! d x_n[v] = g_n (1[v = id_n] - p_n[v]) - e_n p_n[v] (ln p_n[v] + H_n)      logits of a chunk are computed again, and written over
//! d h_n = W^T d x_n / temperature,   d W = sum_n d x_n h_n^T / temperature
//! ```
//! If logits are given, the gradient overwrites them. Like Liger's fused linear losses
//! (<https://arxiv.org/abs/2410.10989>), memory is O(N + chunk) plus the gradients.

mod squares;

use std::ops::Range;

use fulmar_compute::{Compute, Floats, LogProb, MatRef, MatmulPrecision, Memory, PanelsView, View, ViewMut};
use fulmar_core::{Error, ErrorKind, Result};

use crate::batch::{check_len, finite};
use crate::clip::out_of_range;
use crate::real::are_finite;

pub use squares::token_log_probs_and_squares;

/// Floats of logits that are held at once; a single row may be longer.
pub const LOGITS_CHUNK: usize = 1 << 20;

/// Log-probabilities and entropies of the ids of `N` rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogProbs {
    /// `[N]` in nats, <= 0.
    pub log_prob: Vec<f32>,
    /// `[N]` entropy of each row's distribution in nats, in `[0, ln V]`.
    pub entropy: Vec<f32>,
}

impl TokenLogProbs {
    fn of(found: &[LogProb]) -> Self {
        Self {
            log_prob: found.iter().map(|row| row.log_prob).collect(),
            entropy: found.iter().map(|row| row.entropy).collect(),
        }
    }
}

/// The gradients of a loss with respect to each token's statistics.
#[derive(Debug, Clone, Copy)]
pub struct TokenGradients<'a> {
    /// `[N]` with respect to its log-probability.
    pub log_prob: &'a [f32],
    /// `[N]` with respect to its entropy; `None` if the loss has no entropy term.
    pub entropy: Option<&'a [f32]>,
}

/// Largest factor from an entropy's gradient to a logit's: `log p + H`, where `p` is not 0.
const ENTROPY_FACTOR: f64 = 128.0;

impl TokenGradients<'_> {
    fn check(&self, num_rows: usize, temperature: f64) -> Result<()> {
        check_len("gradients of log_prob", self.log_prob.len(), "number of ids", num_rows)?;
        let entropy = self.entropy.unwrap_or_default();
        if self.entropy.is_some() {
            check_len("gradients of entropy", entropy.len(), "number of ids", num_rows)?;
        }
        for (index, value) in self.log_prob.iter().chain(entropy).enumerate() {
            finite("gradients", index, f64::from(*value))?;
        }
        let largest = |row: usize| {
            let by_entropy = entropy.get(row).map_or(0.0, |value| f64::from(value.abs()));
            (f64::from(self.log_prob[row].abs()) + ENTROPY_FACTOR * by_entropy) / temperature.min(1.0)
        };
        match (0..num_rows).find(|&row| largest(row) > 0.5 * f64::from(f32::MAX)) {
            None => Ok(()),
            Some(row) => {
                let detail = format!(
                    "gradients of row {row} must be small enough for the gradient of a logit to fit in single precision: got {:e}",
                    self.log_prob[row]
                );
                Err(Error::new(ErrorKind::NonFinite, detail))
            }
        }
    }

    fn rows(&self, rows: Range<usize>) -> TokenGradients<'_> {
        TokenGradients {
            log_prob: &self.log_prob[rows.clone()],
            entropy: self.entropy.map(|entropy| &entropy[rows]),
        }
    }
}

/// Returns the log-probabilities of `ids` `[N]` under rows of `logits` `[N, V]` at `temperature`.
///
/// # Errors
/// `Empty` without ids; `ShapeMismatch` if the logits do not have as many rows; `OutOfRange` for an id that
/// is not below V or a temperature that is not finite and above 0; `NonFinite` if a row has a NaN or `+inf`,
/// or only `-inf`.
///
/// # Examples
/// ```
/// use fulmar_objective::token_log_probs;
/// let found = token_log_probs(&[0.0, 0.0, 0.0, f32::NEG_INFINITY], &[1, 0], 1.0, Default::default())?;
/// assert_eq!(found.log_prob, [-std::f32::consts::LN_2, 0.0]);
/// assert_eq!(found.entropy, [std::f32::consts::LN_2, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn token_log_probs(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    compute: Compute,
) -> Result<TokenLogProbs> {
    check_temperature(temperature)?;
    let vocab = vocabulary_of(logits, ids)?;
    let mut found = compute.log_probs(ids.len())?;
    for_scaled(logits, vocab, temperature, compute, |rows, logits| {
        found.find(rows.start, logits, &ids[rows]);
    })?;
    let found = found.read()?;
    check_found(&found, 0)?;
    Ok(TokenLogProbs::of(&found))
}

/// Runs a loss over rows of logits and overwrites the logits with the loss's gradient. `loss` gets the
/// log-probabilities and entropies of the ids and returns its derivatives with respect to them, as each loss
/// of this crate does. Allocates no second `[N, V]`.
///
/// # Errors
/// The errors of [`token_log_probs`] and of `loss`; `ShapeMismatch` or `NonFinite` for gradients that are not
/// `[N]` finite numbers. After an error the logits may be divided by the temperature.
///
/// # Examples
/// ```
/// use fulmar_objective::{SftBatch, SftLoss, SftOptions, TokenGradients, logits_loss};
/// let loss = SftLoss::new(SftOptions::default())?;
/// let mut logits = [0.0, 0.0]; // one token of a vocabulary of two
/// let output = logits_loss(&mut logits, &[1], 1.0, Default::default(), |found| {
///     let log_prob = &found.log_prob;
///     let batch = SftBatch { log_prob, ref_log_prob: None, mask: &[1], offsets: &[0, 1] };
///     let output = loss.forward(&batch)?.output;
///     Ok((output.grad_log_prob.clone(), None, output))
/// })?;
/// assert!((output.loss - 2_f64.ln()).abs() < 1e-6);
/// assert_eq!(logits, [0.5, -0.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn logits_loss<R>(
    logits: &mut [f32],
    ids: &[u32],
    temperature: f64,
    compute: Compute,
    loss: impl FnOnce(&TokenLogProbs) -> Result<(Vec<f32>, Option<Vec<f32>>, R)>,
) -> Result<R> {
    check_temperature(temperature)?;
    vocabulary_of(logits, ids)?;
    if compute == Compute::Cpu {
        return loss_in_place(logits.into(), ids, temperature, compute, loss);
    }
    let mut held = compute.hold(logits.to_vec())?;
    let output = loss_in_place((&mut held).into(), ids, temperature, compute, loss)?;
    logits.copy_from_slice(&held.view().read()?);
    Ok(output)
}

fn loss_in_place<R>(
    mut logits: ViewMut<'_, f32>,
    ids: &[u32],
    temperature: f64,
    compute: Compute,
    loss: impl FnOnce(&TokenLogProbs) -> Result<(Vec<f32>, Option<Vec<f32>>, R)>,
) -> Result<R> {
    divide(&mut logits, temperature, compute);
    let found = compute.log_prob_rows(&logits, ids);
    compute.check()?;
    check_found(&found, 0)?;
    let (log_prob, entropy, output) = loss(&TokenLogProbs::of(&found))?;
    let gradients = TokenGradients { log_prob: &log_prob, entropy: entropy.as_deref() };
    gradients.check(ids.len(), temperature)?;
    compute.log_prob_backward_rows(&mut logits, ids, &found, gradients.log_prob, gradients.entropy);
    divide(&mut logits, temperature, compute);
    compute.check()?;
    Ok(output)
}

/// A linear head over hidden states: `logits = (W h + b) / temperature`.
///
/// # Examples
/// ```
/// use fulmar_objective::{LinearHead, TokenGradients};
/// let weight = [1.0, 0.0, 0.0, 1.0].as_slice().into();
/// let head = LinearHead { weight, panels: None, bias: None, width: 2, temperature: 1.0, precision: Default::default(), compute: Default::default() };
/// let hidden = [0.0, 0.0]; // one token
/// let found = head.log_probs(&hidden, &[0])?;
/// assert_eq!(found.log_prob, [-std::f32::consts::LN_2]);
/// let gradients = TokenGradients { log_prob: &[-1.0], entropy: None }; // loss = -log p
/// assert_eq!(head.backward(&hidden, &[0], gradients)?.hidden, [-0.5, 0.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LinearHead<'a> {
    /// `[V, width]`
    pub weight: Floats<'a>,
    /// The weight in panels of its shape and dtype, which makes passes over few rows faster; `None` packs it in
    /// each pass. Other weights than `weight` would give their own logits.
    pub panels: Option<PanelsView<'a>>,
    /// `[V]`
    pub bias: Option<Floats<'a>>,
    /// Width of a hidden state in floats.
    pub width: usize,
    /// Divides the logits; finite and above 0.
    pub temperature: f64,
    /// The precision of the products, forward and backward. Panels keep the precision that they were packed for.
    pub precision: MatmulPrecision,
    /// The device. [`LinearHead::log_probs`], [`LinearHead::log_probs_and_squares`] and [`LinearHead::backward`] copy hidden states,
    /// weights and bias to it; the other methods need them there.
    pub compute: Compute,
}

/// Gradients with respect to the inputs of a [`LinearHead`].
#[derive(Debug, Clone, PartialEq)]
pub struct HeadGradients {
    /// `[N, width]`
    pub hidden: Vec<f32>,
    /// `[V, width]`
    pub weight: Vec<f32>,
    /// `[V]`, if the head has a bias.
    pub bias: Option<Vec<f32>>,
}

/// The buffers into which [`LinearHead::walk_back`] writes gradients.
#[derive(Debug)]
pub struct HeadGradientsMut<'a> {
    /// `[N, width]`, overwritten.
    pub hidden: ViewMut<'a, f32>,
    /// `[V, width]`, added to; `None` if the weights are frozen.
    pub weight: Option<ViewMut<'a, f32>>,
    /// `[V]`, added to.
    pub bias: Option<ViewMut<'a, f32>>,
}

impl LinearHead<'_> {
    /// Returns the log-probabilities of `ids` `[N]` from `hidden` `[N, width]`, in chunks of rows.
    ///
    /// # Errors
    /// The errors of [`token_log_probs`], and `ShapeMismatch` for hidden states, weights or a bias of another length.
    pub fn log_probs(&self, hidden: &[f32], ids: &[u32]) -> Result<TokenLogProbs> {
        self.check_rows(hidden, ids)?;
        self.placed(hidden, |head, hidden| {
            let mut found = self.compute.log_probs(ids.len())?;
            head.walk(hidden, LOGITS_CHUNK, |rows, logits| {
                found.find(rows.start, &*logits, &ids[rows]);
                self.compute.check()
            })?;
            let found = found.read()?;
            check_found(&found, 0)?;
            Ok(TokenLogProbs::of(&found))
        })
    }

    /// Returns the gradients of a loss with respect to hidden states, weights and bias, from the gradients
    /// with respect to log-probabilities and entropies. Computes logits again, a chunk at a time. Three times
    /// the work of [`LinearHead::log_probs`].
    ///
    /// # Errors
    /// The errors of [`LinearHead::log_probs`]; `ShapeMismatch` or `NonFinite` for gradients that are not
    /// `[N]` finite numbers.
    pub fn backward(
        &self,
        hidden: &[f32],
        ids: &[u32],
        gradients: TokenGradients<'_>,
    ) -> Result<HeadGradients> {
        self.check_rows(hidden, ids)?;
        gradients.check(ids.len(), self.temperature)?;
        let d = self.placed(hidden, |head, hidden| head.gradients(hidden, ids, gradients))?;
        for (name, values) in
            [("hidden", Some(&d.hidden)), ("weight", Some(&d.weight)), ("bias", d.bias.as_ref())]
        {
            let values = values.map_or(&[][..], Vec::as_slice);
            if are_finite(values) {
                continue;
            }
            for (index, value) in values.iter().enumerate() {
                finite(&format!("gradient of {name}"), index, f64::from(*value))?;
            }
        }
        Ok(d)
    }

    fn gradients(
        &self,
        hidden: View<'_, f32>,
        ids: &[u32],
        gradients: TokenGradients<'_>,
    ) -> Result<HeadGradients> {
        let compute = self.compute;
        let (mut d_hidden, mut d_weight) = (compute.zeros(hidden.len())?, compute.zeros(self.weight.len())?);
        let mut d_bias = self.bias.map(|bias| compute.zeros(bias.len())).transpose()?;
        let into = HeadGradientsMut {
            hidden: (&mut d_hidden).into(),
            weight: Some((&mut d_weight).into()),
            bias: d_bias.as_mut().map(ViewMut::from),
        };
        self.walk_back(hidden, LOGITS_CHUNK, into, |rows, logits| {
            let ids = &ids[rows.clone()];
            let found = compute.log_prob_rows(&*logits, ids);
            compute.check()?;
            check_found(&found, rows.start)?;
            let of_rows = gradients.rows(rows);
            compute.log_prob_backward_rows(logits, ids, &found, of_rows.log_prob, of_rows.entropy);
            Ok(())
        })?;
        compute.check()?;
        let bias = d_bias.map(Memory::into_vec).transpose()?;
        Ok(HeadGradients { hidden: d_hidden.into_vec()?, weight: d_weight.into_vec()?, bias })
    }

    /// Runs `pass` with this head and hidden states on the head's device, where what is elsewhere is copied.
    fn placed<R>(
        &self,
        hidden: &[f32],
        pass: impl FnOnce(&LinearHead<'_>, View<'_, f32>) -> Result<R>,
    ) -> Result<R> {
        let compute = self.compute;
        let hidden = compute.place(hidden)?;
        let (singles, halves) = match self.weight {
            Floats::F32(weight) => (Some(compute.place(weight)?), None),
            Floats::Bf16(weight) => (None, Some(compute.place(weight)?)),
        };
        let halves = halves.as_ref().map(|weight| Floats::Bf16(weight.view()));
        let weight = singles.as_ref().map(|weight| Floats::F32(weight.view())).or(halves);
        let bias = self.bias.map(Floats::to_f32);
        let bias = bias.as_ref().map(|bias| compute.place(bias)).transpose()?;
        let bias = bias.as_ref().map(|bias| Floats::F32(bias.view()));
        // Packed weights are those of the processor.
        let panels = self.panels.filter(|_| compute == Compute::Cpu);
        let head = LinearHead { weight: weight.unwrap_or(self.weight), panels, bias, ..*self };
        pass(&head, hidden.view())
    }

    /// Calls `visit(rows, logits)` for consecutive rows of `hidden` `[N, width]`, with at most `floats_max`
    /// logits at once, but at least one row.
    ///
    /// # Errors
    /// The errors of `visit`; `ShapeMismatch` for hidden states, weights, panels or a bias of another
    /// length; `OutOfRange` for a temperature that is not finite and above 0; `Empty` without weights.
    ///
    /// # Examples
    /// ```
    /// use fulmar_objective::LinearHead;
    /// let weight = [1.0, 2.0].as_slice().into();
    /// let head = LinearHead { weight, panels: None, bias: None, width: 1, temperature: 1.0, precision: Default::default(), compute: Default::default() };
    /// let mut seen = Vec::new();
    /// head.walk(&[1.0, 10.0, 100.0], 4, |rows, logits| Ok(seen.push((rows, logits.view().read()?.into_owned()))))?;
    /// assert_eq!(seen, [(0..2, vec![1.0, 2.0, 10.0, 20.0]), (2..3, vec![100.0, 200.0])]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn walk<'v>(
        &self,
        hidden: impl Into<View<'v, f32>>,
        floats_max: usize,
        mut visit: impl FnMut(Range<usize>, &mut ViewMut<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        let hidden = hidden.into();
        let vocab = self.check(hidden.len())?;
        let (chunk, num_rows) = ((floats_max / vocab).max(1), hidden.len() / self.width);
        let mut logits = self.compute.zeros(chunk.min(num_rows) * vocab)?;
        for start in (0..num_rows).step_by(chunk) {
            let rows = start..num_rows.min(start + chunk);
            let mut logits = logits.view_mut().slice(..rows.len() * vocab);
            self.logits(hidden.slice(rows.start * self.width..rows.end * self.width), &mut logits)?;
            visit(rows, &mut logits)?;
        }
        Ok(())
    }

    /// Writes the logits `[N, V]` of `hidden` `[N, width]`.
    ///
    /// # Errors
    /// The errors of [`LinearHead::walk`]; `ShapeMismatch` for logits of another length.
    ///
    /// # Examples
    /// ```
    /// use fulmar_objective::LinearHead;
    /// let weight = [1.0, 2.0].as_slice().into();
    /// let head = LinearHead { weight, panels: None, bias: None, width: 1, temperature: 1.0, precision: Default::default(), compute: Default::default() };
    /// let mut logits = [0.0; 4];
    /// head.logits(&[1.0, 10.0], &mut logits)?;
    /// assert_eq!(logits, [1.0, 2.0, 10.0, 20.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn logits<'v>(
        &self,
        hidden: impl Into<View<'v, f32>>,
        logits: impl Into<ViewMut<'v, f32>>,
    ) -> Result<()> {
        let (hidden, mut logits) = (hidden.into(), logits.into());
        let (vocab, rows) = (self.check(hidden.len())?, hidden.len() / self.width);
        check_len("logits", logits.len(), "rows times V", rows * vocab)?;
        let unpacked = self.weight(vocab).transposed();
        let weight = self.panels.map_or(unpacked, MatRef::of_panels);
        self.compute.matmul(&mut logits, MatRef::new(hidden, rows, self.width), weight, false);
        if let Some(bias) = self.bias {
            self.compute.add_bias(&mut logits, &bias.to_f32());
        }
        divide(&mut logits, self.temperature, self.compute);
        Ok(())
    }

    /// Runs the backward pass of [`LinearHead::walk`]: `turn(rows, logits)` replaces each chunk of logits by
    /// their gradients, and the gradients with respect to hidden states, weights and bias go to `into`.
    ///
    /// # Errors
    /// The errors of `turn` and of [`LinearHead::walk`]; `ShapeMismatch` for a part of `into` with another
    /// length than its input.
    pub fn walk_back<'v>(
        &self,
        hidden: impl Into<View<'v, f32>>,
        floats_max: usize,
        mut into: HeadGradientsMut<'_>,
        mut turn: impl FnMut(Range<usize>, &mut ViewMut<'_, f32>) -> Result<()>,
    ) -> Result<()> {
        let (hidden, width) = (hidden.into(), self.width);
        self.check_gradients(hidden.len(), &into)?;
        self.walk(hidden, floats_max, |rows, logits| {
            turn(rows.clone(), logits)?;
            let place = rows.start * width..rows.end * width;
            let of_rows = HeadGradientsMut {
                hidden: into.hidden.reborrow().slice(place.clone()),
                weight: into.weight.as_mut().map(ViewMut::reborrow),
                bias: into.bias.as_mut().map(ViewMut::reborrow),
            };
            self.logits_backward(hidden.slice(place), logits, of_rows)
        })
    }

    /// Runs the backward pass of [`LinearHead::logits`]: `d_logits` `[N, V]`, which it divides by the temperature, are
    /// the gradients with respect to the logits, and those with respect to hidden states, weights and bias go to `into`.
    ///
    /// # Errors
    /// The errors of [`LinearHead::logits`]; `ShapeMismatch` for a part of `into` with another length than
    /// its input.
    pub fn logits_backward<'v>(
        &self,
        hidden: impl Into<View<'v, f32>>,
        d_logits: impl Into<ViewMut<'v, f32>>,
        into: HeadGradientsMut<'_>,
    ) -> Result<()> {
        let (hidden, mut d_logits) = (hidden.into(), d_logits.into());
        let (vocab, rows) = (self.check_gradients(hidden.len(), &into)?, hidden.len() / self.width);
        check_len("d_logits", d_logits.len(), "rows times V", rows * vocab)?;
        divide(&mut d_logits, self.temperature, self.compute);
        let d_rows = MatRef::new(&d_logits, rows, vocab);
        self.compute.matmul(into.hidden, d_rows, self.weight(vocab), false);
        if let Some(d_weight) = into.weight {
            let hidden = MatRef::new(hidden, rows, self.width).in_precision(self.precision);
            self.compute.matmul(d_weight, d_rows.transposed(), hidden, true);
        }
        if let Some(d_bias) = into.bias {
            self.compute.bias_backward(&d_logits, d_bias);
        }
        Ok(())
    }

    fn weight(&self, vocab: usize) -> MatRef<'_> {
        MatRef::of(self.weight, vocab, self.width).in_precision(self.precision)
    }

    /// Checks the parts of the head and of the buffers of its gradients, and returns the size of the vocabulary.
    fn check_gradients(&self, hidden_len: usize, into: &HeadGradientsMut<'_>) -> Result<usize> {
        let vocab = self.check(hidden_len)?;
        check_len("gradients of hidden", into.hidden.len(), "hidden", hidden_len)?;
        let weight_len = into.weight.as_ref().map_or(self.weight.len(), ViewMut::len);
        check_len("gradients of weight", weight_len, "weight", self.weight.len())?;
        check_len("gradients of bias", into.bias.as_ref().map_or(vocab, ViewMut::len), "V", vocab)?;
        Ok(vocab)
    }

    /// Checks that there is one row of hidden states for each id, and that ids are in the vocabulary.
    fn check_rows(&self, hidden: &[f32], ids: &[u32]) -> Result<()> {
        let vocab = self.check(hidden.len())?;
        check_len("hidden", hidden.len(), "ids times width", ids.len().saturating_mul(self.width))?;
        check_ids(ids, vocab)
    }

    /// Checks the parts of the head and returns the size of the vocabulary.
    fn check(&self, hidden_len: usize) -> Result<usize> {
        check_temperature(self.temperature)?;
        if self.width == 0 || self.weight.is_empty() {
            return Err(Error::new(
                ErrorKind::Empty,
                "weight must hold at least one row of at least one float: got []",
            ));
        }
        let vocab = self.weight.len() / self.width;
        check_len("weight", self.weight.len(), "V times width", vocab * self.width)?;
        let num_rows = hidden_len / self.width;
        check_len("hidden", hidden_len, "a multiple of the width, the nearest", num_rows * self.width)?;
        if let Some(bias) = self.bias {
            check_len("bias", bias.len(), "V", vocab)?;
        }
        if let Some(panels) = self.panels.filter(|panels| panels.shape() != [vocab, self.width]) {
            let [rows, width] = panels.shape();
            let detail = format!(
                "panels must have the shape of weight, [{vocab}, {}]: got [{rows}, {width}]",
                self.width
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Ok(vocab)
    }
}

/// Calls `visit(rows, logits)` for logits `[N, V]` at a temperature, on a device: all at once if they are there already, else for copies
/// of some rows.
fn for_scaled(
    logits: &[f32],
    vocab: usize,
    temperature: f64,
    compute: Compute,
    mut visit: impl FnMut(Range<usize>, View<'_, f32>),
) -> Result<()> {
    let num_rows = logits.len() / vocab;
    if temperature == 1.0 && compute == Compute::Cpu {
        visit(0..num_rows, logits.into());
        return compute.check();
    }
    let chunk = (LOGITS_CHUNK / vocab).max(1);
    for start in (0..num_rows).step_by(chunk) {
        let rows = start..num_rows.min(start + chunk);
        let mut scaled = compute.hold(logits[rows.start * vocab..rows.end * vocab].to_vec())?;
        divide(&mut scaled, temperature, compute);
        visit(rows, scaled.view());
    }
    compute.check()
}

fn divide<'v>(values: impl Into<ViewMut<'v, f32>>, temperature: f64, compute: Compute) {
    if temperature != 1.0 {
        compute.scale(values, (1.0 / temperature) as f32);
    }
}

fn check_temperature(temperature: f64) -> Result<()> {
    if temperature.is_finite() && temperature > 0.0 {
        return Ok(());
    }
    Err(out_of_range("temperature must be a finite number > 0", temperature))
}

/// Returns the length of a row of logits.
fn vocabulary_of(logits: &[f32], ids: &[u32]) -> Result<usize> {
    let vocab = logits.len() / ids.len().max(1);
    check_ids(ids, vocab)?;
    check_len("logits", logits.len(), "ids times V", ids.len() * vocab)?;
    Ok(vocab)
}

fn check_ids(ids: &[u32], vocab: usize) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "ids must hold at least one: got []"));
    }
    match ids.iter().position(|&id| id as usize >= vocab) {
        Some(index) => {
            let detail =
                format!("ids[{index}] must be below the vocabulary's size {vocab}: got {}", ids[index]);
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
        None => Ok(()),
    }
}

fn check_found(found: &[LogProb], first_row: usize) -> Result<()> {
    match found.iter().position(|row| !row.is_distribution() || row.log_prob.is_nan()) {
        Some(index) => {
            let detail =
                format!("logits of row {} must be numbers with a finite largest one", first_row + index);
            Err(Error::new(ErrorKind::NonFinite, detail))
        }
        None => Ok(()),
    }
}
