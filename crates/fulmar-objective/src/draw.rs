//! Sampling the next token from logits.
//!
//! ```text
//! x = logits + bias                              of ids, and of the last ids of sequences whose others are the last tokens
//! x = x < 0 ? x r : x / r                        r repetition penalty, of each token that was seen
//! x = x - frequency * count - presence           of each token that was drawn before
//! x = -inf                                       for tokens that would repeat an n-gram or end a bad word, banned and disallowed ones
//! z = x / temperature
//! top_h: of the 100 likeliest, until their share of the entropy exceeds h
//! top_k: the k largest, and all that tie with the last of them
//! top_p: the likeliest, until the probability before the next one reaches p
//! min_p: those at least p times as likely as the likeliest
//! typical_p: those whose -ln p(v) is nearest to the entropy, until their probability reaches p, with ties
//! epsilon: those at least this likely, and the likeliest
//! eta: those at least min(eta, sqrt(eta) e^-entropy) likely, and the likeliest
//! ```
//! Each cut uses the probabilities among the tokens that the cut before it kept. The order is that of
//! `transformers`; the penalties are those of vLLM. A token with a logit of `-inf` is never drawn. Ties go to
//! the lower id. The draw inverts the cumulative distribution in id order with one 32-bit word of the
//! generator, or takes the largest of `z + noise`, see [`DrawMethod`]. Either way draw number `n` of a stream
//! can be replayed without the draws before it.
//!
//! Costs O(V) whatever the options: no cut sorts the vocabulary. A. Holtzman and others, "The Curious Case of Neural Text
//! Degeneration", <https://arxiv.org/abs/1904.09751> (top-p); N. N. Minh and others, <https://arxiv.org/abs/2407.01082> (min-p);
//! C. Meister and others, <https://arxiv.org/abs/2202.00666> (typical); N. S. Keskar and others,
//! <https://arxiv.org/abs/1909.05858> (repetition); J. Hewitt and others, <https://arxiv.org/abs/2210.15191> (epsilon, eta);
//! E. Baghaei Potraghloo and others, <https://arxiv.org/abs/2509.02510> (top-h).

mod cut;
mod gumbel;
mod kept;
mod rows;
mod scores;

use fulmar_compute::cpu::{self, SoftmaxRow};
use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result, Rng};
use serde::Deserialize;

use crate::batch::finite;
use crate::clip::out_of_range;
use crate::real::are_finite;
use gumbel::Noise;
use kept::Kept;
use scores::Changes;

pub use rows::{DrawRow, RowDraw, RowDraws};
pub use scores::token_mask;

/// The way from a distribution and random words to a token. Both draw from the same distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrawMethod {
    /// Inverts the cumulative distribution with one word.
    #[default]
    Inverse,
    /// Takes the largest of `z + noise`, where each id has Gumbel noise of its own, a hash of (seed, number of
    /// the draw, id). Two models that are nearly equal then nearly always draw the same token, so an engine
    /// accepts most of its speculative tokens. C. J. Maddison and others, "A* Sampling",
    /// <https://arxiv.org/abs/1411.0030>.
    GumbelMax,
}

/// Options of a draw; [`draw`] checks every value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DrawOptions {
    /// Divides the logits; finite and >= 0. At 0 the likeliest token is taken. Defaults to 1.
    pub temperature: f64,
    /// Number of likeliest tokens to keep, at least 1; all if absent.
    pub top_k: Option<usize>,
    /// The probability mass to keep, in `(0, 1]`. Defaults to 1.
    pub top_p: f64,
    /// The least probability to keep, as a share of the likeliest token's, in `[0, 1]`. Defaults to 0.
    pub min_p: f64,
    /// The probability mass of the most typical tokens to keep, in `(0, 1]`. Defaults to 1.
    pub typical_p: f64,
    /// The least probability to keep, in `[0, 1)`; the likeliest token is always kept. Defaults to 0.
    pub epsilon_cutoff: f64,
    /// The least probability, falling with the entropy `H`: `min(eta, sqrt(eta) e^-H)`, in `[0, 1)`. Defaults
    /// to 0.
    pub eta_cutoff: f64,
    /// The share of the entropy that the likeliest tokens may have together, in `(0, 1]`; keeps at most 100
    /// tokens and always the likeliest. Off by default.
    pub top_h: Option<f64>,
    /// Divides positive logits, and multiplies negative ones, of tokens in the prompt and the output; above
    /// 0. Defaults to 1.
    pub repetition_penalty: f64,
    /// Subtracted from the logit of each token in the output. Defaults to 0.
    pub presence_penalty: f64,
    /// Subtracted from the logit of each token in the output, once for each occurrence. Defaults to 0.
    pub frequency_penalty: f64,
    /// Added to the logits of single ids.
    pub logit_bias: Vec<(u32, f64)>,
    /// Added to the logit of the last id of a sequence if prompt and output end with its other ids; finite.
    pub sequence_bias: Vec<(Vec<u32>, f64)>,
    /// Length of the n-grams in prompt and output that are not drawn a second time; 0 allows all.
    pub no_repeat_ngram_size: usize,
    /// Sequences of ids that are not drawn: the last id is excluded if prompt and output end with the others.
    pub bad_words_ids: Vec<Vec<u32>>,
    /// Ids that are not drawn, such as stop ids before an output has its minimum length.
    pub banned_ids: Vec<u32>,
    /// The way from the distribution to a token. Defaults to the inverse of its cumulative sum.
    pub draw_method: DrawMethod,
    /// The device of a draw. Defaults to the CPU. An engine draws on the device of its model.
    pub device: Device,
}

impl Default for DrawOptions {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            top_h: None,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            sequence_bias: Vec::new(),
            no_repeat_ngram_size: 0,
            bad_words_ids: Vec::new(),
            banned_ids: Vec::new(),
            draw_method: DrawMethod::Inverse,
            device: Device::Cpu,
        }
    }
}

impl DrawOptions {
    /// Refuses values outside their range. [`draw`] runs the same check at each call.
    ///
    /// # Errors
    /// `OutOfRange`, naming the option; `Empty` for a sequence without ids; `Unavailable` for a missing
    /// device.
    pub fn check(&self) -> Result<()> {
        Compute::open(self.device)?;
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(out_of_range("temperature must be a finite number >= 0", self.temperature));
        }
        if self.top_k == Some(0) {
            return Err(out_of_range("topK must be >= 1", 0.0));
        }
        for (name, mass) in [("topP", self.top_p), ("typicalP", self.typical_p)] {
            if !(mass > 0.0 && mass <= 1.0) {
                return Err(out_of_range(&format!("{name} must be in (0, 1]"), mass));
            }
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(out_of_range("minP must be in [0, 1]", self.min_p));
        }
        for (name, least) in [("epsilonCutoff", self.epsilon_cutoff), ("etaCutoff", self.eta_cutoff)] {
            if !(0.0..1.0).contains(&least) {
                return Err(out_of_range(&format!("{name} must be in [0, 1)"), least));
            }
        }
        if let Some(share) = self.top_h.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(out_of_range("topH must be in (0, 1]", share));
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            let rule = "repetitionPenalty must be a finite number > 0";
            return Err(out_of_range(rule, self.repetition_penalty));
        }
        let penalties =
            [("presencePenalty", self.presence_penalty), ("frequencyPenalty", self.frequency_penalty)];
        for (name, penalty) in penalties {
            if !penalty.is_finite() {
                return Err(out_of_range(&format!("{name} must be a finite number"), penalty));
            }
        }
        if let Some((id, bias)) = self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            return Err(out_of_range(&format!("logitBias of {id} must be a finite number"), *bias));
        }
        if let Some(at) = self.sequence_bias.iter().position(|(_, bias)| !bias.is_finite()) {
            let bias = self.sequence_bias[at].1;
            return Err(out_of_range(
                &format!("the bias of sequenceBias[{at}] must be a finite number"),
                bias,
            ));
        }
        let biased = self.sequence_bias.iter().position(|(ids, _)| ids.is_empty());
        let bad = self.bad_words_ids.iter().position(Vec::is_empty);
        match (biased.map(|at| ("sequenceBias", at))).or(bad.map(|at| ("badWordsIds", at))) {
            Some((name, at)) => {
                Err(Error::new(ErrorKind::Empty, format!("{name}[{at}] must hold at least one id: got []")))
            }
            None => Ok(()),
        }
    }
}

/// Inputs of a draw besides logits and options; empty by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct DrawContext<'a> {
    /// The prompt: for the repetition penalty, n-grams, and sequences with a bias or that are banned.
    pub prompt_ids: &'a [u32],
    /// The tokens drawn so far: for the same, and for the other penalties.
    pub output_ids: &'a [u32],
    /// The tokens that a grammar or a set allows: `[ceil(V / 32)]` words, token `v` is bit `v % 32` of word
    /// `v / 32`, 1 for allowed. [`token_mask`] makes a mask from ids.
    pub allowed: Option<&'a [u32]>,
}

/// One drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the unmodified model (temperature 1, no penalties or cuts), as a loss needs
    /// it. The same bits as in training.
    pub log_prob: f32,
    /// Its log-probability under the distribution it was drawn from; 0 at temperature 0.
    pub sampled_log_prob: f32,
}

/// Returns the generator for draw number `draw_index` of the request seeded with `seed`: a pure function of both.
///
/// # Examples
/// ```
/// use fulmar_objective::draw_rng;
/// let mut stream = draw_rng(7, 0);
/// stream.next_u32();
/// assert_eq!(stream.next_u32(), draw_rng(7, 1).next_u32());
/// ```
#[must_use]
pub fn draw_rng(seed: u64, draw_index: u64) -> Rng {
    let mut state = Rng::new(seed).stream("draw").state();
    state.word_index = draw_index;
    Rng::from_state(state)
}

/// Draws a token from `logits` `[V]`. Takes exactly one 32-bit word from `rng`, also at temperature 0.
///
/// # Errors
/// `Empty` without logits; `NonFinite` if a logit is NaN or `+inf`, or if all are `-inf`; `OutOfRange` for an
/// option outside its range; `Unavailable` for a missing device. An error takes no word.
///
/// # Examples
/// ```
/// use fulmar_objective::{DrawOptions, draw, draw_rng};
/// let options = DrawOptions { top_k: Some(1), ..DrawOptions::default() };
/// let token = draw(&[0.5, 2.0, -1.0], &options, &mut draw_rng(7, 0))?;
/// assert_eq!((token.id, token.sampled_log_prob), (1, 0.0));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn draw(logits: &[f32], options: &DrawOptions, rng: &mut Rng) -> Result<Draw> {
    draw_in(logits, options, &DrawContext::default(), rng)
}

/// Runs [`draw`] with a context: previous tokens, or a set of allowed tokens.
///
/// # Errors
/// The errors of [`draw`]; `OutOfRange` for an id of the context or the options that is not below V;
/// `ShapeMismatch` for a mask of another length; `Empty` if no token may be drawn.
///
/// # Examples
/// ```
/// use fulmar_objective::{DrawContext, DrawOptions, draw_in, draw_rng, token_mask};
/// let allowed = token_mask(3, &[0, 2])?;
/// let context = DrawContext { allowed: Some(&allowed), ..DrawContext::default() };
/// let greedy = DrawOptions { temperature: 0.0, ..DrawOptions::default() };
/// assert_eq!(draw_in(&[0.5, 2.0, -1.0], &greedy, &context, &mut draw_rng(7, 0))?.id, 0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn draw_in(
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
    rng: &mut Rng,
) -> Result<Draw> {
    draw_on(Compute::open(options.device)?, logits, options, context, rng)
}

/// Runs [`draw_in`] on the device of the logits, whatever device the options name; an engine draws on the
/// device of its model.
///
/// # Errors
/// The errors of [`draw_in`].
pub fn draw_on(
    compute: Compute,
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
    rng: &mut Rng,
) -> Result<Draw> {
    match compute {
        Compute::Cpu => draw_on_cpu(logits, options, context, rng),
        Compute::Cuda(_) => draw_on_gpu(compute, logits, options, context, rng),
    }
}

fn draw_on_gpu(
    compute: Compute,
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
    rng: &mut Rng,
) -> Result<Draw> {
    options.check()?;
    check_logits(logits)?;
    let logits = compute.hold(logits.to_vec())?;
    let mut draws = RowDraws::new(compute, 1, 0)?;
    draws.draw(logits.view(), &[DrawRow { options, context: *context, rng: rng.state() }])?;
    let drawn = draws.read()?.swap_remove(0)?;
    rng.next_u32();
    Ok(drawn.draw)
}

fn draw_on_cpu(
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
    rng: &mut Rng,
) -> Result<Draw> {
    options.check()?;
    check_logits(logits)?;
    let scores = Changes::of(options, context, logits.len())?.scores(logits)?;
    let noise = Noise::of(rng);
    let uniform = uniform(rng.next_u32());
    if options.temperature == 0.0 {
        let id = likeliest(&scores);
        let log_prob = Compute::Cpu.log_prob_row(logits, id).log_prob;
        return Ok(Draw { id: id as u32, log_prob, sampled_log_prob: 0.0 });
    }
    let kept = Kept::of(&scores, options);
    let (id, sampled_log_prob) = match options.draw_method {
        DrawMethod::Inverse => kept.find(&scores, uniform),
        DrawMethod::GumbelMax => kept.find_largest(&scores, options.temperature, &noise),
    };
    // At a temperature near 0 a logarithm may be below every single.
    let sampled_log_prob = sampled_log_prob.max(f32::MIN);
    let unchanged = std::ptr::eq(logits, &*scores) && options.temperature == 1.0;
    let log_prob = match kept.whole().filter(|_| unchanged) {
        Some(model) => model.log_prob(logits[id]),
        None => SoftmaxRow::of(logits, 1.0).log_prob(logits[id]),
    };
    Ok(Draw { id: id as u32, log_prob, sampled_log_prob })
}

/// Returns the distribution that [`draw_in`] draws from: `[V]` probabilities that sum to 1, 0 for tokens that
/// cannot be drawn.
///
/// # Errors
/// The errors of [`draw_in`].
///
/// # Examples
/// ```
/// use fulmar_objective::{DrawContext, DrawOptions, draw_probabilities};
/// let options = DrawOptions { top_k: Some(2), ..DrawOptions::default() };
/// let probabilities = draw_probabilities(&[1.0, 3.0, 3.0, 0.0], &options, &DrawContext::default())?;
/// assert_eq!(probabilities, [0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn draw_probabilities(
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
) -> Result<Vec<f64>> {
    dispatch!(Compute::on(options.device)?, cpu => probabilities_on_cpu(logits, options, context))
}

fn probabilities_on_cpu(
    logits: &[f32],
    options: &DrawOptions,
    context: &DrawContext<'_>,
) -> Result<Vec<f64>> {
    options.check()?;
    check_logits(logits)?;
    let scores = Changes::of(options, context, logits.len())?.scores(logits)?;
    if options.temperature == 0.0 {
        let greedy = likeliest(&scores);
        return Ok((0..logits.len()).map(|id| f64::from(u8::from(id == greedy))).collect());
    }
    Ok(Kept::of(&scores, options).probabilities(&scores))
}

/// Returns the uniform number in (0, 1) of a word.
fn uniform(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

fn check_logits(logits: &[f32]) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "logits must hold at least one token: got []"));
    }
    if are_finite(logits) {
        return Ok(());
    }
    if let Some(id) = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        finite("logits", id, logits[id].into())?;
    }
    if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) {
        let detail = "logits must hold a finite number: got -inf for every token";
        return Err(Error::new(ErrorKind::NonFinite, detail));
    }
    Ok(())
}

/// Returns the id of the largest logit, the lowest among equals.
fn likeliest(scores: &[f32]) -> usize {
    cpu::top_k(scores, 1).first().map_or(0, |&id| id as usize)
}
