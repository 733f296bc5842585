//! Group relative policy optimisation and its family: a policy gradient over tokens, composed of a ratio
//! ([`RatioLevel`]), its bound ([`Surrogate`]), corrections for another sampler ([`Correction`]) and a
//! denominator ([`Normalization`]).
//!
//! | loss | ratio | surrogate | normalization |
//! |---|---|---|---|
//! | GRPO, <https://arxiv.org/abs/2402.03300> | token | clip | `SequenceMean` |
//! | BNPO (TRL's name) | token | clip | `TokenMean` |
//! | DAPO, <https://arxiv.org/abs/2503.14476> | token | clip, 0.2 and 0.28 | `GlobalTokens` |
//! | Dr. GRPO, <https://arxiv.org/abs/2503.20783> | token | clip | `FixedLength` |
//! | GSPO, <https://arxiv.org/abs/2507.18071> | sequence, or sequence-token | clip, 3e-4 and 4e-4 | `SequenceMean` |
//! | LUSPO, <https://arxiv.org/abs/2602.05261> | sequence | clip, 2e-3 and 2.5e-3 | `FixedLength(1)`: a sequence is weighted by its length |
//! | GMPO | token, inside the surrogate | GMPO, 0.4 and 0.4 | `SequenceMean` |
//! | RLOO, <https://arxiv.org/abs/2402.14740> | sequence product | clip | `SequenceMean` |
//! | CISPO, VESPO | token; sequence as in TRL | their own | `GlobalTokens` |
//! | SAPO | token; sequence as in TRL | SAPO | `SequenceMean` |
//!
//! Per trained token, with `w = log p - log p_old`, `r = e^w`, advantage `A`:
//!
//! ```text
//! L     = -min(r A, clip(r, 1 - low, 1 + high) A)        and at least  delta A  where A < 0 (dual clip)
//! dL/dl = -r A, or 0 where the clipped branch is the smaller one
//! loss  = sum_t weight_t (L + kl_coefficient k(t) - entropy_coefficient H(t))
//! ```
//!
//! 1. List the trained tokens; drop those whose old log-probability is not finite, whose `|w|` exceeds
//!    `log_ratio_max` (unless `clamp_log_ratio`), or whose `w^2 / 2` exceeds `kl_mask_threshold`. The
//!    denominator excludes dropped tokens, and tokens that a correction or `off_policy_threshold` rejects,
//!    unless `keep_rejected`. A token that `top_entropy_quantile` excludes loses its policy term and its
//!    entropy bonus, but is still counted.
//! 2. Turn the normalization into one weight for each token. Every term uses it.
//! 3. Add the surrogate, the KL penalties and the entropy bonus, value and gradient together.
//! 4. Report means over the tokens that were kept.
//!
//! Z. Shao et al., "DeepSeekMath", 2024, <https://arxiv.org/abs/2402.03300>. Separate sides of the clip and the token
//! mean: Q. Yu et al., "DAPO", 2025, <https://arxiv.org/abs/2503.14476>. Dual clip: D. Ye et al., 2019,
//! <https://arxiv.org/abs/1912.09729>.
//!
//! Unlike TorchRL 0.14, KL terms and metrics are means over trained tokens; there most are means over all `B
//! * T` positions of a padded batch, so that padding weakens them.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Error, ErrorKind, Result};

use crate::Real;
use crate::batch::{LossBatch, Token, finite};
use crate::clip::out_of_range;
use crate::correction::{Correction, CorrectionLevel};
use crate::kl::KlPenalty;
use crate::output::{LossOutput, Metric};
use crate::surrogate::{RatioLevel, Surrogate};

mod metrics;
mod options;
mod policy_term;

use metrics::{count_metrics, quantile_of};
pub use options::GrpoOptions;

/// The largest `log_ratio_max`: `e^700` is still a finite double.
pub const LOG_RATIO_LIMIT: f64 = 700.0;

/// Bound on a sampler's log-ratio in metrics, which nothing else limits: sums of `e^80` are finite doubles.
const SAMPLER_LOG_RATIO_SHOWN: f64 = 80.0;

/// The GRPO loss, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{Advantage, GrpoLoss, GrpoOptions, LossBatch};
/// let log_prob = [-1.0_f32, -0.5, -2.0];
/// let output = GrpoLoss::new(GrpoOptions::default())?.forward(&LossBatch {
///     log_prob: &log_prob,
///     old_log_prob: &log_prob, // on-policy: every ratio is 1
///     ref_log_prob: None,
///     sampler_log_prob: None,
///     entropy: None,
///     advantage: Advantage::PerSequence(&[1.0, -1.0]),
///     mask: &[0, 1, 1],
///     offsets: &[0, 2, 3],
/// })?;
/// assert_eq!((output.loss, output.grad_log_prob.as_slice()), (0.0, [0.0, -0.5, 0.5].as_slice()));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GrpoLoss {
    options: GrpoOptions,
    clip_log: [f64; 2],
    compute: Compute,
}

/// A trained token with the inputs of the formulas.
#[derive(Debug, Clone, Copy)]
struct Scored {
    token: Token,
    log_prob: f64,
    old_log_prob: f64,
    log_ratio: f64,
    ratio: f64,
    /// `true` if its log-ratio was clamped, so the ratio has no gradient.
    is_clamped: bool,
    /// `true` if its entropy is among the highest, so it has a policy term and an entropy bonus.
    is_chosen: bool,
    /// The log-ratio in its policy term: its own, or that of its sequence.
    push: f64,
    advantage: f64,
    weight: f64,
    /// `log p_old - log q`; 0 if the sampler's log-probability is unknown.
    sampler_log_ratio: f64,
    /// `log q - log p`, or `log p_old - log p` without a sampler; 0 if the sampler's log-probability is
    /// unknown.
    drift: f64,
    /// `true` if there is a sampler, but its log-probability is unknown.
    lacks_sampler: bool,
    /// Factor of its policy term from corrections, 0 if rejected.
    factor: f64,
    /// `true` if a correction truncated its ratio.
    is_truncated: bool,
}

/// Trained tokens that were dropped, by reason.
#[derive(Debug, Default)]
struct Dropped {
    non_finite: usize,
    extreme: usize,
    kl_masked: usize,
    rejected: usize,
}

/// One term of the loss: its weighted sum and its plain mean over the kept tokens.
#[derive(Debug, Clone, Copy)]
struct Term {
    loss: f64,
    mean: f64,
}

impl GrpoLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfRange` if an option is outside its
    /// documented range.
    pub fn new(options: GrpoOptions) -> Result<Self> {
        let clip = options.clip_epsilon.checked()?;
        options.normalization.checked()?;
        options.surrogate.checked()?;
        options.corrections.iter().try_for_each(Correction::checked)?;
        if let Some(threshold) =
            options.off_policy_threshold.filter(|threshold| !(threshold.is_finite() && *threshold >= 0.0))
        {
            return Err(out_of_range("offPolicyThreshold must be a finite number >= 0", threshold));
        }
        if options.ratio != RatioLevel::Token
            && matches!(options.surrogate, Surrogate::Gmpo | Surrogate::Dppo { .. })
        {
            let detail = format!(
                "ratio must be `token` with the surrogates gmpo and dppo, whose bounds are those of single tokens; got `{}`",
                options.ratio.name()
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let weighs_sequences = |correction: &Correction| correction.level == CorrectionLevel::Sequence;
        if matches!(options.surrogate, Surrogate::Vespo { .. })
            && options.corrections.iter().any(weighs_sequences)
        {
            let detail = "corrections must have the level `token` or `geometric` with vespo, whose weight is that of the sequence; got `sequence`";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        options.kl_to_ref.checked("klToRef")?;
        options.kl_to_inference.checked("klToInference")?;
        if let Some(delta) =
            options.dual_clip.filter(|delta| !(delta.is_finite() && *delta > 1.0 + clip.high))
        {
            return Err(out_of_range("dualClip must be finite and above 1 + clipEpsilon high", delta));
        }
        if let Some(threshold) =
            options.kl_mask_threshold.filter(|threshold| threshold.is_nan() || *threshold <= 0.0)
        {
            return Err(out_of_range("klMaskThreshold must be > 0", threshold));
        }
        if !(options.log_ratio_max > 0.0 && options.log_ratio_max <= LOG_RATIO_LIMIT) {
            return Err(out_of_range("logRatioMax must be in (0, 700]", options.log_ratio_max));
        }
        if !(options.entropy_coefficient.is_finite() && options.entropy_coefficient >= 0.0) {
            return Err(out_of_range(
                "entropyCoefficient must be a finite number >= 0",
                options.entropy_coefficient,
            ));
        }
        if !(options.top_entropy_quantile > 0.0 && options.top_entropy_quantile <= 1.0) {
            return Err(out_of_range("topEntropyQuantile must be in (0, 1]", options.top_entropy_quantile));
        }
        let clip_log = options.surrogate.clip_log(clip);
        Ok(Self { compute: Compute::on(options.device)?, options, clip_log })
    }

    /// Returns the options of this loss.
    #[must_use]
    pub const fn options(&self) -> &GrpoOptions {
        &self.options
    }

    /// Returns value, metrics and gradient over `batch`. Costs O(T); sums run in f64 in token order, so equal
    /// inputs give equal bits on every machine.
    ///
    /// Metrics: `policyLoss`, `klToRefLoss`, `klToInferenceLoss`, `entropyLoss` (terms that are present);
    /// `clipFraction` (ratio outside the range), `clipFractionLow` and `clipFractionHigh` (and so without gradient),
    /// `dualClipFraction`, `kl` (k3, from the old policy to the current one), `klApprox` (k1 of the same), `klToRef`,
    /// `klToInference`, `entropy`, `ratioMean`, `ratioMax`, `ess` (effective sample size, 1 on-policy), `numTokens`,
    /// `numSequences`, `numNonFinite`, `numExtremeRatio` (dropped or clamped), `numKlMasked`, `numHighEntropy` (with
    /// `top_entropy_quantile`); with a sampler `samplerRatioMean` and `samplerRatioMax` (which count a ratio as at most e^80),
    /// `samplerLogRatioAbs`, `samplerKl` (k3, from the sampler to the old policy), `correctionMean`, `correctionMax`,
    /// `correctionFraction` (tokens whose ratio was truncated), `numSamplerUnknown`. Means are over the `numTokens` kept tokens; if every trained
    /// token was dropped, the loss, the gradient and the means are 0.
    ///
    /// A NaN in `sampler_log_prob` marks an unknown log-probability: its ratio is 1, as in TRL, and the token
    /// is trained.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree; `OutOfRange` for decreasing offsets or a mask that is not 0
    /// or 1; `Empty` if a term lacks its input or the mask trains nothing (under `GlobalTokens` and
    /// `GlobalSequences` the loss and the gradient are 0 then); `NonFinite` if a trained position holds a
    /// log-probability, advantage, reference or entropy that is not finite, or a sampler's log-probability
    /// that is infinite (an old log-probability that is not finite drops its token, which is counted), or if
    /// the result overflows.
    pub fn forward<T: Real>(&self, batch: &LossBatch<'_, T>) -> Result<LossOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(batch))
    }

    fn forward_on_cpu<T: Real>(&self, batch: &LossBatch<'_, T>) -> Result<LossOutput<T>> {
        self.check_given(batch)?;
        let num_sequences = batch.offsets.len().saturating_sub(1);
        let (mut tokens, mut dropped) = self.scored(batch)?;
        self.choose(batch, &mut tokens)?;
        self.correct(&mut tokens, &mut dropped);
        self.level(&mut tokens);
        self.weigh(&mut tokens, num_sequences);
        let mut grad_t = vec![0.0; batch.log_prob.len()];

        let policy = self.add_policy(&mut tokens, &mut grad_t);
        let to_ref = match batch.ref_log_prob {
            Some(reference) => Some(self.add_kl(
                &self.options.kl_to_ref,
                "ref_log_prob",
                reference,
                batch,
                &tokens,
                &mut grad_t,
            )?),
            None => None,
        };
        let to_inference = match self.options.kl_to_inference {
            penalty if penalty.coefficient > 0.0 => Some(self.add_kl(
                &penalty,
                "old_log_prob",
                batch.old_log_prob,
                batch,
                &tokens,
                &mut grad_t,
            )?),
            _ => None,
        };
        let (entropy, grad_entropy) = self.entropy_term(batch, &tokens)?;

        let terms = [Some(policy), to_ref, to_inference, entropy];
        let loss = terms.iter().flatten().map(|term| term.loss).sum();
        let mut metrics = self.term_metrics(terms, tokens.len());
        self.ratio_metrics(&tokens, &mut metrics);
        self.correction_metrics(batch.sampler_log_prob.is_some(), &tokens, &dropped, &mut metrics);
        count_metrics(tokens.len(), num_sequences, &dropped, &mut metrics);
        if self.options.top_entropy_quantile < 1.0 {
            let value = tokens.iter().filter(|t| t.is_chosen).count() as f64;
            metrics.push(Metric { name: "numHighEntropy", value, denominator: 1.0 });
        }
        LossOutput::checked(loss, metrics, &grad_t, grad_entropy.as_deref())
    }

    fn check_given<T>(&self, batch: &LossBatch<'_, T>) -> Result<()> {
        let missing = |name: &str, option: &str| {
            Err(Error::new(ErrorKind::Empty, format!("{name} must be given when {option}")))
        };
        if self.options.kl_to_ref.coefficient > 0.0 && batch.ref_log_prob.is_none() {
            return missing("ref_log_prob", "klToRef.coefficient is above 0");
        }
        if !self.options.corrections.is_empty() && batch.sampler_log_prob.is_none() {
            return missing("sampler_log_prob", "there are corrections");
        }
        if self.options.entropy_coefficient > 0.0 && batch.entropy.is_none() {
            return missing("entropy", "entropyCoefficient is above 0");
        }
        if self.options.top_entropy_quantile < 1.0 && batch.entropy.is_none() {
            return missing("entropy", "topEntropyQuantile is below 1");
        }
        Ok(())
    }

    /// Step 1: returns the kept tokens with their ratios, and the number of dropped tokens by reason.
    fn scored<T: Real>(&self, batch: &LossBatch<'_, T>) -> Result<(Vec<Scored>, Dropped)> {
        let trained = batch.trained(self.options.normalization.is_global())?;
        let (mut scored, mut dropped) = (Vec::with_capacity(trained.len()), Dropped::default());
        for token in trained {
            let log_prob = finite("log_prob", token.index, batch.log_prob[token.index].into())?;
            let advantage = batch.advantage.at(token)?;
            let old = batch.old_log_prob[token.index].into();
            let sampler = batch.sampler_log_prob.map(|sampler| sampler[token.index].into());
            let lacks_sampler = sampler.is_some_and(f64::is_nan);
            if let Some(sampler) = sampler.filter(|_| !lacks_sampler) {
                finite("sampler_log_prob", token.index, sampler)?;
            }
            let whole = log_prob - old;
            let is_extreme = whole.abs() > self.options.log_ratio_max;
            if !whole.is_finite() {
                dropped.non_finite += 1;
                continue;
            }
            dropped.extreme += usize::from(is_extreme);
            if is_extreme && !self.options.clamp_log_ratio {
                continue;
            }
            if self.options.kl_mask_threshold.is_some_and(|limit| 0.5 * whole * whole > limit) {
                dropped.kl_masked += 1;
                continue;
            }
            let log_ratio = whole.clamp(-self.options.log_ratio_max, self.options.log_ratio_max);
            scored.push(Scored {
                token,
                log_prob,
                old_log_prob: old,
                log_ratio,
                ratio: libm::exp(log_ratio),
                is_clamped: is_extreme,
                is_chosen: true,
                push: log_ratio,
                advantage,
                weight: 0.0,
                sampler_log_ratio: sampler.filter(|_| !lacks_sampler).map_or(0.0, |sampler| old - sampler),
                drift: if lacks_sampler { 0.0 } else { sampler.unwrap_or(old) - log_prob },
                lacks_sampler,
                factor: 1.0,
                is_truncated: false,
            });
        }
        Ok((scored, dropped))
    }

    /// Marks the tokens with the highest entropy.
    fn choose<T: Real>(&self, batch: &LossBatch<'_, T>, tokens: &mut [Scored]) -> Result<()> {
        let quantile = self.options.top_entropy_quantile;
        let Some(entropy) = batch.entropy.filter(|_| quantile < 1.0) else { return Ok(()) };
        let at = |t: &Scored| finite("entropy", t.token.index, entropy[t.token.index].into());
        let entropies: Vec<f64> = tokens.iter().map(at).collect::<Result<_>>()?;
        let threshold = quantile_of(&entropies, 1.0 - quantile);
        for (t, entropy) in tokens.iter_mut().zip(entropies) {
            t.is_chosen = entropy >= threshold;
        }
        Ok(())
    }

    /// Sets the correction factor of each token and removes rejected tokens.
    fn correct(&self, tokens: &mut Vec<Scored>, dropped: &mut Dropped) {
        for sequence in sequences(tokens) {
            let sampler_t: Vec<_> = sequence.iter().map(|t| t.sampler_log_ratio).collect();
            for correction in &self.options.corrections {
                let factors = correction.factors(&sampler_t).into_iter().enumerate();
                for (t, (index, factor)) in sequence.iter_mut().zip(factors) {
                    t.factor *= factor.unwrap_or(0.0);
                    t.is_truncated |= correction.truncates(&sampler_t, index);
                }
            }
            if let Some(threshold) = self.options.off_policy_threshold {
                let mean = sequence.iter().map(|t| t.drift).sum::<f64>() / sequence.len() as f64;
                let stale = sequence.iter_mut().filter(|t| t.advantage < 0.0 && mean > threshold);
                stale.for_each(|t| t.factor = 0.0);
            }
        }
        let rejects = !self.options.corrections.is_empty() || self.options.off_policy_threshold.is_some();
        if rejects {
            dropped.rejected = tokens.iter().filter(|t| t.factor == 0.0).count();
            if !self.options.keep_rejected {
                tokens.retain(|t| t.factor != 0.0);
            }
        }
    }

    /// Sets the log-ratio in each token's policy term.
    fn level(&self, tokens: &mut [Scored]) {
        if self.options.ratio == RatioLevel::Token {
            return;
        }
        for sequence in sequences(tokens) {
            let sum = sequence.iter().map(|t| t.log_ratio).sum::<f64>();
            let push = sum / self.shared_among(sequence);
            sequence.iter_mut().for_each(|t| t.push = push);
        }
    }

    /// Step 2: sets the weight of each token.
    fn weigh(&self, tokens: &mut [Scored], num_sequences: usize) {
        let mut num_trained_s = vec![0; num_sequences];
        for scored in tokens.iter() {
            num_trained_s[scored.token.sequence] += 1;
        }
        let weight_s = self.options.normalization.weight_s(&num_trained_s);
        for scored in tokens {
            scored.weight = weight_s[scored.token.sequence];
        }
    }

    /// Adds one KL penalty to the gradient; a coefficient of 0 only measures it. An importance weight is the
    /// ratio in the token's policy term, that of its sequence if the loss has one.
    fn add_kl<T: Real>(
        &self,
        penalty: &KlPenalty,
        name: &str,
        reference: &[T],
        batch: &LossBatch<'_, T>,
        tokens: &[Scored],
        grad_t: &mut [f64],
    ) -> Result<Term> {
        let (mut loss, mut sum) = (0.0, 0.0);
        for sequence in tokens.chunk_by(|left, right| left.token.sequence == right.token.sequence) {
            let mut shared = 0.0;
            for t in sequence {
                let index = t.token.index;
                let d = finite(name, index, reference[index].into())? - batch.log_prob[index].into();
                let ratio = libm::exp(t.push);
                let (value, mut gradient) = penalty.at(d, ratio);
                let share = penalty.coefficient * t.weight;
                if penalty.importance_weighted && (self.shares_ratio() || t.is_clamped) {
                    // The gradient of the ratio goes to the whole sequence, or is dropped.
                    gradient = ratio * penalty.estimator.at(d).1;
                    shared += share * value;
                }
                loss += share * value;
                sum += value;
                grad_t[index] += share * gradient;
            }
            if self.shares_ratio() && penalty.importance_weighted {
                let shared = shared / self.shared_among(sequence);
                for t in sequence.iter().filter(|t| !t.is_clamped) {
                    grad_t[t.token.index] += shared;
                }
            }
        }
        Ok(Term { loss, mean: sum / tokens.len().max(1) as f64 })
    }

    /// Returns the entropy bonus and its gradient with respect to the entropies, if the batch holds any.
    fn entropy_term<T: Real>(
        &self,
        batch: &LossBatch<'_, T>,
        tokens: &[Scored],
    ) -> Result<(Option<Term>, Option<Vec<f64>>)> {
        let Some(entropy) = batch.entropy else { return Ok((None, None)) };
        let coefficient = self.options.entropy_coefficient;
        let (mut loss, mut sum, mut grad_t) = (0.0, 0.0, vec![0.0; entropy.len()]);
        for scored in tokens {
            let value = finite("entropy", scored.token.index, entropy[scored.token.index].into())?;
            sum += value;
            if scored.is_chosen {
                loss -= coefficient * scored.weight * value;
                grad_t[scored.token.index] = -coefficient * scored.weight;
            }
        }
        let term = Term { loss, mean: sum / tokens.len().max(1) as f64 };
        Ok((Some(term), (coefficient > 0.0).then_some(grad_t)))
    }
}

impl Default for GrpoLoss {
    fn default() -> Self {
        let options = GrpoOptions::default();
        let clip_log = options.surrogate.clip_log(options.clip_epsilon);
        Self { options, clip_log, compute: Compute::Cpu }
    }
}

/// Returns the non-empty sequences of tokens.
fn sequences(tokens: &mut [Scored]) -> impl Iterator<Item = &mut [Scored]> {
    tokens.chunk_by_mut(|left, right| left.token.sequence == right.token.sequence)
}
