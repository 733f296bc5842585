//! Direct preference optimisation and its family: of two answers to one prompt, the chosen one should gain
//! probability against the reference and the rejected one lose it. [`DpoLossType`] has the formulas and the
//! papers; the common part is:
//!
//! ```text
//! log p_s   = sum_t weight_t l_t                       over the trained tokens of answer s
//! score_s   = f'(p_s / ref_s)                          the log-ratio, under the reverse KL
//! loss      = 1 / P sum_p w_p sum_k weight_k loss_k(score of the chosen answer, score of the rejected one)
//! ```
//!
//! `weight_t` is 1, or `ld_alpha` for tokens beyond the length of the shorter answer (LD-DPO,
//! <https://arxiv.org/abs/2409.06411>). `w_p` is 1, or with `use_weighting` the likelihood of both answers
//! under the policy, `exp(mean_t (l_t - log sum_v p_v^2))` of each, without gradient (WPO,
//! <https://arxiv.org/abs/2406.11827>).
//!
//! As TRL's `DPOTrainer`, except that an answer without trained tokens is refused, and that `sft` weighs
//! pairs under `use_weighting`.

use std::collections::BTreeMap;

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Real;
use crate::batch::{SftBatch, Token, check_optional, finite};
use crate::clip::out_of_range;
use crate::output::{LossOutput, Metric};
use crate::preference::{DpoLossType, FDivergence, PairShape};

/// Pairs of answers to one prompt each: sequence `2 p` is the chosen one of pair `p`, sequence `2 p + 1` the rejected one.
#[derive(Debug, Clone, Copy)]
pub struct PreferenceBatch<'a, T = f32> {
    /// `[T]` log-probabilities of the tokens under the policy in training.
    pub log_prob: &'a [T],
    /// `[T]` log-probabilities under a frozen reference.
    pub ref_log_prob: &'a [T],
    /// `[T]` the logarithm of the sum of the squares of all probabilities at each token, for `use_weighting`.
    pub log_sum_sq_prob: Option<&'a [T]>,
    /// `[T]` 1 for tokens of answers, else 0.
    pub mask: &'a [u8],
    /// `[2 P + 1]` bounds of the sequences, from 0 to `T`.
    pub offsets: &'a [u32],
}

/// Options of [`DpoLoss`]; [`DpoLoss::new`] checks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DpoOptions {
    /// The losses with their weights, above 0. Defaults to the sigmoid alone.
    pub loss_weights: BTreeMap<DpoLossType, f64>,
    /// Strength of the pull to the reference, above 0. Defaults to 0.1.
    pub beta: f64,
    /// The share of labels that may be wrong, in `[0, 0.5)`; for `exoPair`, which needs it, `robust`, `aot`
    /// and `aotUnpaired`. Defaults to 0.
    pub label_smoothing: f64,
    /// The divergence from the reference, for losses of differences. Defaults to the reverse KL divergence.
    pub f_divergence: FDivergence,
    /// Weight of tokens beyond the length of the shorter answer, in `[0, 1]`. Off by default.
    pub ld_alpha: Option<f64>,
    /// If true, pairs are weighted by their likelihood under the policy; needs `log_sum_sq_prob`. Defaults to
    /// false.
    pub use_weighting: bool,
    /// Temperature of the blend between the two losses of `discopop`, above 0. Defaults to 0.05.
    pub discopop_tau: f64,
    /// The denominator of sums over pairs, for the whole optimizer step. Defaults to the pairs of this batch.
    pub num_pairs: Option<f64>,
    /// The same for the chosen tokens of `sft`; required with `num_pairs` and `sft`.
    pub num_chosen_tokens: Option<f64>,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for DpoOptions {
    fn default() -> Self {
        Self {
            loss_weights: BTreeMap::from([(DpoLossType::default(), 1.0)]),
            beta: 0.1,
            label_smoothing: 0.0,
            f_divergence: FDivergence::default(),
            ld_alpha: None,
            use_weighting: false,
            discopop_tau: 0.05,
            num_pairs: None,
            num_chosen_tokens: None,
            device: Device::Cpu,
        }
    }
}

/// The loss of preferences, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{DpoLoss, PreferenceBatch};
/// let output = DpoLoss::default().forward(&PreferenceBatch {
///     log_prob: &[-1.0_f32, -2.0],
///     ref_log_prob: &[-1.0, -2.0], // the policy is still the reference
///     log_sum_sq_prob: None,
///     mask: &[1, 1],
///     offsets: &[0, 1, 2],
/// })?;
/// assert_eq!((output.loss, output.grad_log_prob), (2.0_f64.ln(), vec![-0.05, 0.05]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DpoLoss {
    options: DpoOptions,
    compute: Compute,
}

/// One answer: its trained tokens and their sums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub tokens: &'a [Token],
    pub log_prob: f64,
    pub reference: f64,
    /// Number of tokens with full weight.
    full: usize,
}

impl Answer<'_> {
    pub(crate) fn log_ratio(&self) -> f64 {
        self.log_prob - self.reference
    }

    fn len(&self) -> f64 {
        self.tokens.len() as f64
    }
}

/// Answers that a loss compares, by sequence, with their scores.
#[derive(Debug, Clone, Copy)]
struct Meeting {
    sequences: [usize; 2],
    scores: [f64; 2],
    /// The derivatives of `scores` with respect to the log-probabilities of the sequences.
    slopes: [f64; 2],
}

impl DpoLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfRange` if an option is outside its
    /// documented range; `Empty` without a loss; `Incompatible` for options that none of the losses uses:
    /// smoothing, another divergence or weights with losses that do not support them, and `num_pairs` without
    /// `num_chosen_tokens` if `sft` is among the losses.
    pub fn new(options: DpoOptions) -> Result<Self> {
        for weight in options.loss_weights.values() {
            positive("lossWeights", *weight)?;
        }
        positive("beta", options.beta)?;
        positive("discopopTau", options.discopop_tau)?;
        if !(0.0..0.5).contains(&options.label_smoothing) {
            return Err(out_of_range("labelSmoothing must be in [0, 0.5)", options.label_smoothing));
        }
        if let Some(alpha) = options.ld_alpha.filter(|alpha| !(0.0..=1.0).contains(alpha)) {
            return Err(out_of_range("ldAlpha must be in [0, 1]", alpha));
        }
        if let FDivergence::AlphaDivergence(alpha) = options.f_divergence
            && !alpha.is_finite()
        {
            return Err(out_of_range("fDivergence.alphaDivergence must be a finite number", alpha));
        }
        for (name, count) in [("numPairs", options.num_pairs), ("numChosenTokens", options.num_chosen_tokens)]
        {
            if let Some(count) = count.filter(|count| !(count.is_finite() && *count >= 1.0)) {
                return Err(out_of_range(&format!("{name} must be a finite number >= 1"), count));
            }
        }
        options.check_together()?;
        Ok(Self { compute: Compute::on(options.device)?, options })
    }

    /// Returns value, metrics and gradient over `batch`. Costs O(T), and O(P log P) for the losses that sort;
    /// sums run in f64 in order.
    ///
    /// Metrics: a term for each loss, such as `sigmoidLoss`, before its weight; `rewardChosen` and
    /// `rewardRejected` (means of `beta` times the log-ratio), `accuracy` (share of pairs in which the first
    /// is larger), `margin` (mean of their difference), `logProbChosen`, `logProbRejected` (means of sums
    /// over tokens), `numPairs`, `numTokens`.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree or a sequence has no partner; `OutOfRange` for decreasing
    /// offsets or a mask that is not 0 or 1; `Empty` if a sequence has no trained token, `log_sum_sq_prob` is
    /// missing, or there are no pairs (with `num_pairs` the loss and the gradient are 0 then); `NonFinite`
    /// for a trained log-probability that is not finite, or if the result overflows.
    pub fn forward<T: Real>(&self, batch: &PreferenceBatch<'_, T>) -> Result<LossOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(batch))
    }

    fn forward_on_cpu<T: Real>(&self, batch: &PreferenceBatch<'_, T>) -> Result<LossOutput<T>> {
        let tokens = batch.as_answers().trained(self.options.num_pairs.is_some())?;
        check_optional("log_sum_sq_prob", batch.log_sum_sq_prob, batch.log_prob.len())?;
        let answers = self.answers(batch, &tokens)?;
        let weight_p = self.pair_weights(batch, &answers)?;
        let num_pairs = self.options.num_pairs.unwrap_or(weight_p.len() as f64);
        let shape = self.options.shape();
        let (mut loss, mut grad_s) = (0.0, vec![0.0; answers.len()]);
        let mut grad_t = vec![0.0; batch.log_prob.len()];
        let mut metrics = Vec::new();
        for (&kind, &weight) in &self.options.loss_weights {
            let mut term = 0.0;
            if kind == DpoLossType::Sft {
                term = self.add_likelihood(batch, &answers, &weight_p, weight, &mut grad_t);
            }
            for meeting in self.meetings(kind, &answers) {
                let [chosen, rejected] = meeting.sequences;
                let share = weight_p[chosen / 2] / num_pairs;
                let (value, slopes) = kind.at(meeting.scores, &shape);
                term += share * value;
                grad_s[chosen] += weight * share * slopes[0] * meeting.slopes[0];
                grad_s[rejected] += weight * share * slopes[1] * meeting.slopes[1];
            }
            loss += weight * term;
            metrics.push(Metric { name: kind.metric(), value: term, denominator: 1.0 });
        }
        for (answer, gradient) in answers.iter().zip(grad_s) {
            for (place, token) in answer.tokens.iter().enumerate() {
                grad_t[token.index] += gradient * self.options.token_weight(place < answer.full);
            }
        }
        self.reward_metrics(&answers, tokens.len(), &mut metrics);
        LossOutput::checked(loss, metrics, &grad_t, None)
    }

    fn answers<'a, T: Real>(
        &self,
        batch: &PreferenceBatch<'_, T>,
        tokens: &'a [Token],
    ) -> Result<Vec<Answer<'a>>> {
        let sequences = whole_sequences(tokens, batch.offsets.len() - 1)?;
        if sequences.len() % 2 == 1 {
            let detail = format!("offsets must bound pairs of sequences: got {} sequences", sequences.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let pairs = sequences.chunks(2).flat_map(|pair| {
            let shared = pair.iter().map(|tokens| tokens.len()).min().unwrap_or(0);
            pair.iter().map(move |tokens| (*tokens, shared))
        });
        pairs
            .map(|(tokens, shared)| {
                let weight = |place| self.options.token_weight(place < shared);
                answer(tokens, batch.log_prob, batch.ref_log_prob, weight)
                    .map(|sums| Answer { full: shared, ..sums })
            })
            .collect()
    }

    /// Returns the `[P]` weights of the pairs.
    fn pair_weights<T: Real>(
        &self,
        batch: &PreferenceBatch<'_, T>,
        answers: &[Answer<'_>],
    ) -> Result<Vec<f64>> {
        let Some(log_sum_sq_prob) = batch.log_sum_sq_prob.filter(|_| self.options.use_weighting) else {
            if self.options.use_weighting {
                let detail = "log_sum_sq_prob must be given when useWeighting is true";
                return Err(Error::new(ErrorKind::Empty, detail));
            }
            return Ok(vec![1.0; answers.len() / 2]);
        };
        let aligned = |answer: &Answer<'_>| -> Result<f64> {
            let mut sum = 0.0;
            for token in answer.tokens {
                let log_prob: f64 = batch.log_prob[token.index].into();
                sum +=
                    log_prob - finite("log_sum_sq_prob", token.index, log_sum_sq_prob[token.index].into())?;
            }
            Ok(sum / answer.len())
        };
        answers.chunks(2).map(|pair| Ok(libm::exp(aligned(&pair[0])? + aligned(&pair[1])?))).collect()
    }

    /// Returns the comparisons of `kind`; empty for the likelihood.
    fn meetings(&self, kind: DpoLossType, answers: &[Answer<'_>]) -> Vec<Meeting> {
        let in_pairs = answers.len() / 2;
        let scored = |sequence: usize, scale: f64| {
            let (score, slope) = self.options.f_divergence.score(answers[sequence].log_ratio());
            (score / scale, slope / scale)
        };
        let meet = |sequences: [usize; 2]| {
            let scale = |sequence: usize| if kind.averages() { answers[sequence].len() } else { 1.0 };
            let [chosen, rejected] = sequences.map(|sequence| scored(sequence, scale(sequence)));
            Meeting { sequences, scores: [chosen.0, rejected.0], slopes: [chosen.1, rejected.1] }
        };
        let sorted = |key: &dyn Fn(usize) -> f64| {
            let mut pairs: Vec<usize> = (0..in_pairs).collect();
            pairs.sort_by(|&left, &right| key(left).total_cmp(&key(right)));
            pairs
        };
        match kind {
            DpoLossType::Sft => Vec::new(),
            DpoLossType::Aot => {
                let ahead = |p: usize| answers[2 * p].log_prob - answers[2 * p + 1].log_prob;
                let ref_ahead = |p: usize| answers[2 * p].reference - answers[2 * p + 1].reference;
                let same_rank = sorted(&ahead).into_iter().zip(sorted(&ref_ahead));
                same_rank
                    .map(|(p, reference)| Meeting {
                        sequences: [2 * p, 2 * p + 1],
                        scores: [ahead(p), ref_ahead(reference)],
                        slopes: [1.0, 1.0],
                    })
                    .collect()
            }
            DpoLossType::AotUnpaired => {
                let chosen = sorted(&|p| answers[2 * p].log_ratio());
                let rejected = sorted(&|p| answers[2 * p + 1].log_ratio());
                chosen.into_iter().zip(rejected).map(|(c, r)| meet([2 * c, 2 * r + 1])).collect()
            }
            _ => (0..in_pairs).map(|p| meet([2 * p, 2 * p + 1])).collect(),
        }
    }

    /// Computes minus the mean log-probability of chosen tokens, and adds its gradient to the tokens
    /// directly.
    fn add_likelihood<T: Real>(
        &self,
        batch: &PreferenceBatch<'_, T>,
        answers: &[Answer<'_>],
        weight_p: &[f64],
        weight: f64,
        grad_t: &mut [f64],
    ) -> f64 {
        let chosen = || answers.iter().step_by(2);
        let count = chosen().map(|answer| answer.tokens.len()).sum::<usize>() as f64;
        let count = self.options.num_chosen_tokens.unwrap_or(count);
        let mut term = 0.0;
        for (answer, pair_weight) in chosen().zip(weight_p) {
            for token in answer.tokens {
                term -= pair_weight / count * batch.log_prob[token.index].into();
                grad_t[token.index] -= weight * pair_weight / count;
            }
        }
        term
    }

    fn reward_metrics(&self, answers: &[Answer<'_>], num_tokens: usize, metrics: &mut Vec<Metric>) {
        let denominator = (answers.len() / 2) as f64;
        let mean = |name, of: &dyn Fn(&[Answer<'_>]) -> f64| {
            let sum = answers.chunks(2).map(of).fold(0.0, |sum, value| sum + value);
            Metric { name, value: sum / denominator.max(1.0), denominator }
        };
        let reward = |answer: &Answer<'_>| self.options.beta * answer.log_ratio();
        metrics.extend([
            mean("rewardChosen", &|pair| reward(&pair[0])),
            mean("rewardRejected", &|pair| reward(&pair[1])),
            mean("accuracy", &|pair| f64::from(u8::from(reward(&pair[0]) > reward(&pair[1])))),
            mean("margin", &|pair| reward(&pair[0]) - reward(&pair[1])),
            mean("logProbChosen", &|pair| pair[0].log_prob),
            mean("logProbRejected", &|pair| pair[1].log_prob),
            Metric { name: "numPairs", value: denominator, denominator: 1.0 },
            Metric { name: "numTokens", value: num_tokens as f64, denominator: 1.0 },
        ]);
    }
}

impl DpoOptions {
    fn check_together(&self) -> Result<()> {
        let refused = |detail: &str| Err(Error::new(ErrorKind::Incompatible, detail));
        let any = |holds: fn(DpoLossType) -> bool| self.loss_weights.keys().any(|&kind| holds(kind));
        if self.loss_weights.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "lossWeights must name at least one loss: got {}"));
        }
        if self.label_smoothing > 0.0 && !any(DpoLossType::smooths) {
            let detail = format!(
                "labelSmoothing is read by exoPair, robust, aot and aotUnpaired alone; got {} with {}",
                self.label_smoothing,
                self.loss_names()
            );
            return refused(&detail);
        }
        if self.label_smoothing == 0.0 && any(|kind| kind == DpoLossType::ExoPair) {
            return refused("labelSmoothing must be above 0 with exoPair: got 0");
        }
        if self.f_divergence != FDivergence::ReverseKl && any(|kind| !kind.takes_scores()) {
            let detail = format!(
                "fDivergence must be `reverseKl` with a loss that does not compare differences of scores; got {:?} with {}",
                self.f_divergence,
                self.loss_names()
            );
            return refused(&detail);
        }
        if self.use_weighting && any(DpoLossType::sorts) {
            return refused(
                "useWeighting must be false with aot and aotUnpaired, which sort answers and have no pairs to weigh",
            );
        }
        if self.num_pairs.is_some() && any(DpoLossType::sorts) {
            return refused(
                "numPairs must be left out with aot and aotUnpaired, which sort the answers of a whole step",
            );
        }
        if self.num_pairs.is_some()
            && self.num_chosen_tokens.is_none()
            && any(|kind| kind == DpoLossType::Sft)
        {
            return refused("numChosenTokens must be given with numPairs when sft is among the losses");
        }
        Ok(())
    }

    /// Returns the names of the losses, for messages.
    fn loss_names(&self) -> String {
        let names: Vec<&str> =
            self.loss_weights.keys().map(|kind| kind.metric().trim_end_matches("Loss")).collect();
        names.join(", ")
    }

    const fn shape(&self) -> PairShape {
        let Self { beta, label_smoothing, discopop_tau, .. } = *self;
        PairShape { beta, label_smoothing, discopop_tau }
    }

    fn token_weight(&self, is_shared: bool) -> f64 {
        if is_shared { 1.0 } else { self.ld_alpha.unwrap_or(1.0) }
    }
}

impl<'a, T: Real> PreferenceBatch<'a, T> {
    fn as_answers(&self) -> SftBatch<'a, T> {
        let Self { log_prob, ref_log_prob, mask, offsets, .. } = *self;
        SftBatch { log_prob, ref_log_prob: Some(ref_log_prob), mask, offsets }
    }
}

/// Returns the trained tokens of each sequence. Each sequence must have some, as an answer without tokens
/// carries no information.
pub(crate) fn whole_sequences(tokens: &[Token], num_sequences: usize) -> Result<Vec<&[Token]>> {
    let sequences: Vec<&[Token]> = tokens.chunk_by(|left, right| left.sequence == right.sequence).collect();
    if sequences.len() == num_sequences {
        return Ok(sequences);
    }
    let is_there = |(at, tokens): &(usize, &[Token])| tokens[0].sequence == *at;
    let missing = sequences.iter().copied().enumerate().take_while(is_there).count();
    let detail =
        format!("mask must train at least one token of every sequence: it trains 0 of sequence {missing}");
    Err(Error::new(ErrorKind::Empty, detail))
}

/// Returns the sums of an answer; `weight` gives the weight of the token at each position.
pub(crate) fn answer<'a, T: Real>(
    tokens: &'a [Token],
    log_prob: &[T],
    ref_log_prob: &[T],
    weight: impl Fn(usize) -> f64,
) -> Result<Answer<'a>> {
    let mut answer = Answer { tokens, log_prob: 0.0, reference: 0.0, full: tokens.len() };
    for (place, token) in tokens.iter().enumerate() {
        let own = finite("log_prob", token.index, log_prob[token.index].into())?;
        let reference = finite("ref_log_prob", token.index, ref_log_prob[token.index].into())?;
        answer.log_prob += weight(place) * own;
        answer.reference += weight(place) * reference;
    }
    Ok(answer)
}

pub(crate) fn positive(name: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(out_of_range(&format!("{name} must be a finite number > 0"), value))
}
