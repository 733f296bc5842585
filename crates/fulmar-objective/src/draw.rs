//! Drawing the next token from logits.
//!
//! The order is that of `transformers`: divide by the temperature, keep the `top_k` largest (all that tie with the
//! last one), then keep the largest whose probabilities before them sum to less than `top_p`. Equal logits go by
//! lower id. The draw itself inverts the cumulative distribution in id order with one 32-bit word of the generator,
//! so that draw number `n` of a stream can be replayed without the draws before it.
//!
//! Costs O(V) on average whatever the options: top-k and top-p find their last token by partition, without a sort.

use fulmar_core::{Error, ErrorKind, Result, Rng};
use serde::Deserialize;

use crate::batch::finite;
use crate::clip::out_of_range;

/// How to draw a token; every value is checked by [`draw`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DrawOptions {
    /// Divides the logits; finite and >= 0. At 0 the likeliest token is taken. 1.
    pub temperature: f64,
    /// How many of the likeliest tokens stay; all if absent, at least 1.
    pub top_k: Option<usize>,
    /// The probability mass that stays, in `(0, 1]`; 1.
    pub top_p: f64,
}

impl Default for DrawOptions {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0 }
    }
}

impl DrawOptions {
    /// Refuses values outside their range. [`draw`] does the same at each call.
    ///
    /// # Errors
    /// `OutOfRange`, naming the option.
    pub fn check(&self) -> Result<()> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(out_of_range("temperature must be a finite number >= 0", self.temperature));
        }
        if self.top_k == Some(0) {
            return Err(out_of_range("topK must be >= 1", 0.0));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(out_of_range("topP must be in (0, 1]", self.top_p));
        }
        Ok(())
    }

    fn is_neutral(&self) -> bool {
        self.temperature == 1.0 && self.top_k.is_none() && self.top_p == 1.0
    }
}

/// One drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the model itself (temperature 1, nothing cut): what a loss needs. The same function
    /// computes it as in training, so the two agree to the bit.
    pub log_prob: f32,
    /// Its log-probability under the distribution that it was drawn from; 0 at temperature 0.
    pub sampled_log_prob: f32,
}

/// The generator for draw number `draw_index` of the request seeded with `seed`: a pure function of both.
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

/// Draws a token from `logits` `[V]`, taking exactly one 32-bit word from `rng`, also at temperature 0.
///
/// # Errors
/// `Empty` without logits; `NonFinite` if one is NaN or infinite; `OutOfRange` for an option outside its range. No word
/// is taken then.
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
    options.check()?;
    check_logits(logits)?;
    let uniform = (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0;
    if options.temperature == 0.0 {
        let id = likeliest(logits);
        return Ok(Draw { id: id as u32, log_prob: raw_log_prob(logits, id), sampled_log_prob: 0.0 });
    }
    let kept = Kept::of(logits, options);
    let (id, sampled_log_prob) = kept.pick(uniform);
    let log_prob = raw_log_prob(logits, id);
    let sampled_log_prob = if options.is_neutral() { log_prob } else { sampled_log_prob };
    Ok(Draw { id: id as u32, log_prob, sampled_log_prob })
}

/// The distribution that [`draw`] draws from: `[V]` probabilities that sum to 1, 0 for tokens that were cut.
///
/// # Errors
/// As [`draw`].
///
/// # Examples
/// ```
/// use fulmar_objective::{DrawOptions, draw_probabilities};
/// let options = DrawOptions { top_k: Some(2), ..DrawOptions::default() };
/// assert_eq!(draw_probabilities(&[1.0, 3.0, 3.0, 0.0], &options)?, [0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn draw_probabilities(logits: &[f32], options: &DrawOptions) -> Result<Vec<f64>> {
    options.check()?;
    check_logits(logits)?;
    if options.temperature == 0.0 {
        let greedy = likeliest(logits);
        return Ok((0..logits.len()).map(|id| f64::from(u8::from(id == greedy))).collect());
    }
    let kept = Kept::of(logits, options);
    Ok(kept.weight_v.iter().map(|weight| f64::from(*weight) / kept.total).collect())
}

fn raw_log_prob(logits: &[f32], id: usize) -> f32 {
    fulmar_kernel::log_prob_row(logits, id).log_prob
}

fn check_logits(logits: &[f32]) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "logits must hold at least one token: got []"));
    }
    match logits.iter().position(|logit| !logit.is_finite()) {
        Some(id) => finite("logits", id, logits[id].into()).map(|_| ()),
        None => Ok(()),
    }
}

/// The id of the largest logit, the lowest among equals.
fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    best
}

/// Unnormalised probabilities `e^(z - max z)`, 0 where cut, and their sum over the kept tokens in id order.
struct Kept {
    score_v: Vec<f32>,
    weight_v: Vec<f32>,
    peak: f32,
    total: f64,
}

/// A token in the order of likelihood: greater is likelier, and of equals the lower id.
#[derive(PartialEq)]
struct Ranked {
    score: f32,
    id: usize,
}

impl Eq for Ranked {}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Kept {
    fn of(logits: &[f32], options: &DrawOptions) -> Self {
        let temperature = (options.temperature as f32).max(f32::MIN_POSITIVE); // 0 / 0 would be NaN
        // Adding 0 turns -0 into 0: the two are equal logits.
        let score_v: Vec<f32> = logits.iter().map(|logit| scaled(*logit, temperature) + 0.0).collect();
        let peak = score_v.iter().copied().fold(f32::MIN, f32::max);
        let weight_v = score_v.iter().map(|score| fulmar_kernel::exp(score - peak)).collect();
        let mut kept = Self { score_v, weight_v, peak, total: 0.0 };
        if let Some(top_k) = options.top_k.filter(|&top_k| top_k < logits.len()) {
            kept.cut_to_largest(top_k);
        }
        if options.top_p < 1.0 {
            kept.cut_to_mass(options.top_p);
        }
        kept.total = kept.weight_v.iter().copied().map(f64::from).sum();
        kept
    }

    /// Keeps the `top_k` largest scores and all that equal the smallest of them.
    fn cut_to_largest(&mut self, top_k: usize) {
        let mut order_v = self.score_v.clone();
        let (_, threshold, _) = order_v.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
        for (weight, score) in self.weight_v.iter_mut().zip(&self.score_v) {
            if score < threshold {
                *weight = 0.0;
            }
        }
    }

    /// Keeps the likeliest tokens until the mass before the next one reaches `top_p`.
    fn cut_to_mass(&mut self, top_p: f64) {
        let total: f64 = self.weight_v.iter().copied().map(f64::from).sum();
        // Tokens this unlikely weigh at most (1 - p) of the total even all together: they are cut for certain.
        let negligible = (1.0 - top_p) * total / self.weight_v.len() as f64;
        let mut ranked: Vec<Ranked> = (0..self.weight_v.len())
            .filter(|&id| f64::from(self.weight_v[id]) > negligible || self.score_v[id] == self.peak)
            .map(|id| Ranked { score: self.score_v[id], id })
            .collect();
        // The last kept token is in `open`; all likelier ones outside of it weigh `mass`.
        let (mut open, mut mass) = (ranked.as_mut_slice(), 0.0);
        while open.len() > 1 {
            let middle = open.len() / 2;
            open.select_nth_unstable_by(middle, |a, b| b.cmp(a));
            let (likelier, rest) = open.split_at_mut(middle);
            let likelier_mass: f64 = likelier.iter().map(|token| f64::from(self.weight_v[token.id])).sum();
            if mass + likelier_mass < top_p * total {
                mass += likelier_mass;
                open = rest;
            } else {
                open = likelier;
            }
        }
        let Some(last) = open.first() else { return };
        for (id, weight) in self.weight_v.iter_mut().enumerate() {
            if (Ranked { score: self.score_v[id], id }) < *last {
                *weight = 0.0;
            }
        }
    }

    /// The token at `uniform` of the way through the kept mass, and its log-probability.
    fn pick(&self, uniform: f64) -> (usize, f32) {
        let target = uniform * self.total;
        let (mut mass, mut last) = (0.0, 0);
        for (id, &weight) in self.weight_v.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            mass += f64::from(weight);
            last = id;
            if mass > target {
                break;
            }
        }
        let log_prob = f64::from(self.score_v[last]) - f64::from(self.peak) - libm::log(self.total);
        (last, log_prob.min(0.0) as f32)
    }
}

/// The logit at a temperature; a tiny temperature must not overflow.
fn scaled(logit: f32, temperature: f32) -> f32 {
    (logit / temperature).clamp(f32::MIN, f32::MAX)
}
