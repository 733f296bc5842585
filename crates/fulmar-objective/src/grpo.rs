//! Group relative policy optimisation: a clipped policy gradient over tokens.
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
//!    `log_ratio_max`, or whose `w^2 / 2` exceeds `kl_mask_threshold`. A dropped token leaves the denominator too.
//! 2. Turn the normalisation into one weight a token. Every term uses it.
//! 3. Add the surrogate, the KL penalties and the entropy bonus, value and gradient side by side.
//! 4. Report means over the tokens that were kept.
//!
//! Z. Shao et al., "DeepSeekMath", 2024, <https://arxiv.org/abs/2402.03300>. Separate sides of the clip and the token
//! mean: Q. Yu et al., "DAPO", 2025, <https://arxiv.org/abs/2503.14476>. Dual clip: D. Ye et al., 2019,
//! <https://arxiv.org/abs/1912.09729>.
//!
//! What differs from TorchRL 0.14, on purpose: there the KL terms and most metrics are means over all `B * T` positions
//! of a padded batch, so that padding weakens them; here they are means over trained tokens.

use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::batch::{LossBatch, Token, finite};
use crate::clip::{Clip, out_of_range};
use crate::kl::{KlEstimator, KlPenalty};
use crate::output::{LossOutput, Metric, finite_loss, narrow};
use crate::{Normalization, Real};

/// The largest `log_ratio_max`: `e^700` is still a finite double.
pub const LOG_RATIO_LIMIT: f64 = 700.0;

/// Options of [`GrpoLoss`]; [`GrpoLoss::new`] checks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrpoOptions {
    /// The clip range of the ratio; 0.2 on both sides.
    pub clip_epsilon: Clip,
    /// The largest ratio that still pushes down a token with a negative advantage; above `1 + high`. Off by default.
    pub dual_clip: Option<f64>,
    /// What sums over tokens are divided by; the number of trained tokens.
    pub normalization: Normalization,
    /// The penalty for leaving the reference; needs `ref_log_prob` when its coefficient is above 0.
    pub kl_to_ref: KlPenalty,
    /// The penalty for leaving the policy that drew the tokens.
    pub kl_to_inference: KlPenalty,
    /// Drops tokens whose `(log p - log p_old)^2 / 2` exceeds it; above 0. Off by default.
    pub kl_mask_threshold: Option<f64>,
    /// Drops tokens whose `|log p - log p_old|` exceeds it, in nats, in `(0, 700]`; 20.
    pub log_ratio_max: f64,
    /// Weight of the entropy bonus; needs `entropy` in the batch when above 0.
    pub entropy_coefficient: f64,
}

impl Default for GrpoOptions {
    fn default() -> Self {
        Self {
            clip_epsilon: Clip::default(),
            dual_clip: None,
            normalization: Normalization::default(),
            kl_to_ref: KlPenalty::default(),
            kl_to_inference: KlPenalty::default(),
            kl_mask_threshold: None,
            log_ratio_max: 20.0,
            entropy_coefficient: 0.0,
        }
    }
}

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
}

/// A trained token with what the formulas need.
#[derive(Debug, Clone, Copy)]
struct Scored {
    token: Token,
    log_ratio: f64,
    ratio: f64,
    advantage: f64,
    weight: f64,
}

/// Trained tokens that were left out, by reason.
#[derive(Debug, Default)]
struct Dropped {
    non_finite: usize,
    extreme: usize,
    kl_masked: usize,
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
    /// `OutOfRange` if an option is outside the range that its field states.
    pub fn new(options: GrpoOptions) -> Result<Self> {
        let clip = options.clip_epsilon.checked()?;
        options.normalization.checked()?;
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
        let clip_log = [libm::log1p(-clip.low), libm::log1p(clip.high)];
        Ok(Self { options, clip_log })
    }

    /// The options that this loss was made with.
    #[must_use]
    pub const fn options(&self) -> &GrpoOptions {
        &self.options
    }

    /// Value, metrics and gradient over `batch`. Costs O(T); sums run in f64 in token order, so that equal inputs give
    /// equal bits on every machine.
    ///
    /// Metrics: `policyLoss`, `klToRefLoss`, `klToInferenceLoss`, `entropyLoss` (terms that are present);
    /// `clipFraction` (ratio outside the range), `clipFractionLow` and `clipFractionHigh` (and so without gradient),
    /// `dualClipFraction`, `kl` (k3, from the old policy to the current one), `klApprox` (k1 of the same), `klToRef`,
    /// `klToInference`, `entropy`, `ratioMean`, `ratioMax`, `ess` (effective sample size, 1 on-policy), `numTokens`,
    /// `numSequences`, `numNonFinite`, `numExtremeRatio`, `numKlMasked`. Means are over the `numTokens` kept tokens; if
    /// every trained token was dropped, the loss, the gradient and the means are 0.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree; `OutOfRange` for offsets that fall or a mask that is not 0 or 1; `Empty`
    /// if the mask trains nothing, or a term lacks its input; `NonFinite` if a trained position holds a log-probability,
    /// advantage, reference or entropy that is not finite (the old log-probability alone is dropped and counted), or if
    /// the result overflows.
    pub fn forward<T: Real>(&self, batch: &LossBatch<'_, T>) -> Result<LossOutput<T>> {
        self.check_given(batch)?;
        let num_sequences = batch.offsets.len().saturating_sub(1);
        let (mut tokens, dropped) = self.scored(batch)?;
        self.weigh(&mut tokens, num_sequences);
        let mut grad_t = vec![0.0; batch.log_prob.len()];

        let policy = self.add_policy(&tokens, &mut grad_t);
        let to_ref = match batch.ref_log_prob {
            Some(reference) => {
                Some(add_kl(&self.options.kl_to_ref, "ref_log_prob", reference, batch, &tokens, &mut grad_t)?)
            }
            None => None,
        };
        let to_inference = match self.options.kl_to_inference {
            penalty if penalty.coefficient > 0.0 => {
                Some(add_kl(&penalty, "old_log_prob", batch.old_log_prob, batch, &tokens, &mut grad_t)?)
            }
            _ => None,
        };
        let (entropy, grad_entropy) = self.entropy_term(batch, &tokens)?;

        let terms = [Some(policy), to_ref, to_inference, entropy];
        let loss = finite_loss(terms.iter().flatten().map(|term| term.loss).sum())?;
        let mut metrics = self.term_metrics(terms, tokens.len());
        self.ratio_metrics(&tokens, &mut metrics);
        count_metrics(tokens.len(), num_sequences, &dropped, &mut metrics);
        Ok(LossOutput { loss, metrics, grad_log_prob: narrow(&grad_t)?, grad_entropy })
    }

    fn check_given<T>(&self, batch: &LossBatch<'_, T>) -> Result<()> {
        let missing = |name: &str, option: &str| {
            let detail = format!("{name} must be given when {option} is above 0: got none");
            Err(Error::new(ErrorKind::Empty, detail))
        };
        if self.options.kl_to_ref.coefficient > 0.0 && batch.ref_log_prob.is_none() {
            return missing("ref_log_prob", "klToRef.coefficient");
        }
        if self.options.entropy_coefficient > 0.0 && batch.entropy.is_none() {
            return missing("entropy", "entropyCoefficient");
        }
        Ok(())
    }

    /// Step 1: the kept tokens with their ratios, and how many were dropped for which reason.
    fn scored<T: Real>(&self, batch: &LossBatch<'_, T>) -> Result<(Vec<Scored>, Dropped)> {
        let trained = batch.trained()?;
        let (mut scored, mut dropped) = (Vec::with_capacity(trained.len()), Dropped::default());
        for token in trained {
            let log_prob = finite("log_prob", token.index, batch.log_prob[token.index].into())?;
            let advantage = batch.advantage.at(token)?;
            let log_ratio = log_prob - batch.old_log_prob[token.index].into();
            if !log_ratio.is_finite() {
                dropped.non_finite += 1;
            } else if log_ratio.abs() > self.options.log_ratio_max {
                dropped.extreme += 1;
            } else if self.options.kl_mask_threshold.is_some_and(|limit| 0.5 * log_ratio * log_ratio > limit)
            {
                dropped.kl_masked += 1;
            } else {
                scored.push(Scored { token, log_ratio, ratio: libm::exp(log_ratio), advantage, weight: 0.0 });
            }
        }
        Ok((scored, dropped))
    }

    /// Step 2.
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

    fn add_policy(&self, tokens: &[Scored], grad_t: &mut [f64]) -> Term {
        let (mut loss, mut sum) = (0.0, 0.0);
        for scored in tokens {
            let (value, gradient) = self.surrogate(scored);
            loss += scored.weight * value;
            sum += value;
            grad_t[scored.token.index] += scored.weight * gradient;
        }
        Term { loss, mean: sum / tokens.len().max(1) as f64 }
    }

    /// `L` and `dL/dl` of one token. Branches instead of products, so that no `inf * 0` can arise.
    fn surrogate(&self, scored: &Scored) -> (f64, f64) {
        let (clip, [low_log, high_log]) = (self.options.clip_epsilon, self.clip_log);
        let bound = if scored.advantage >= 0.0 {
            (scored.log_ratio > high_log).then_some(1.0 + clip.high)
        } else if scored.log_ratio < low_log {
            Some(1.0 - clip.low)
        } else {
            self.options.dual_clip.filter(|&delta| scored.ratio > delta)
        };
        match bound {
            Some(bound) => (-bound * scored.advantage, 0.0),
            None => (-scored.ratio * scored.advantage, -scored.ratio * scored.advantage),
        }
    }

    /// The entropy bonus and its gradient by the entropies, if the batch holds any.
    fn entropy_term<T: Real>(
        &self,
        batch: &LossBatch<'_, T>,
        tokens: &[Scored],
    ) -> Result<(Option<Term>, Option<Vec<T>>)> {
        let Some(entropy) = batch.entropy else { return Ok((None, None)) };
        let coefficient = self.options.entropy_coefficient;
        let (mut loss, mut sum, mut grad_t) = (0.0, 0.0, vec![0.0; entropy.len()]);
        for scored in tokens {
            let value = finite("entropy", scored.token.index, entropy[scored.token.index].into())?;
            loss -= coefficient * scored.weight * value;
            sum += value;
            grad_t[scored.token.index] = -coefficient * scored.weight;
        }
        let term = Term { loss, mean: sum / tokens.len().max(1) as f64 };
        let gradient = if coefficient > 0.0 { Some(narrow(&grad_t)?) } else { None };
        Ok((Some(term), gradient))
    }

    /// The terms `[policy, to_ref, to_inference, entropy]` of the loss, then their means over tokens.
    fn term_metrics(&self, terms: [Option<Term>; 4], num_tokens: usize) -> Vec<Metric> {
        let options = &self.options;
        let in_loss = [
            true,
            options.kl_to_ref.coefficient > 0.0,
            options.kl_to_inference.coefficient > 0.0,
            options.entropy_coefficient > 0.0,
        ];
        let names = ["policyLoss", "klToRefLoss", "klToInferenceLoss", "entropyLoss"];
        let losses = (0..4).filter(|&index| in_loss[index]).filter_map(|index| {
            terms[index].map(|term| Metric { name: names[index], value: term.loss, denominator: 1.0 })
        });
        let means = ["klToRef", "klToInference", "entropy"].into_iter().zip(&terms[1..]).filter_map(
            |(name, term)| term.map(|term| Metric { name, value: term.mean, denominator: num_tokens as f64 }),
        );
        losses.chain(means).collect()
    }

    fn ratio_metrics(&self, tokens: &[Scored], metrics: &mut Vec<Metric>) {
        let [low_log, high_log] = self.clip_log;
        let (mut low, mut high, mut clipped, mut dual) = (0.0, 0.0, 0.0, 0.0);
        let (mut kl, mut kl_approx, mut ratio, mut ratio_max) = (0.0, 0.0, 0.0, 0.0_f64);
        let share = |hit: bool| f64::from(u8::from(hit));
        for t in tokens {
            let (below, above) = (t.log_ratio < low_log, t.log_ratio > high_log);
            clipped += share(below || above);
            low += share(below && t.advantage < 0.0);
            high += share(above && t.advantage > 0.0);
            dual += share(t.advantage < 0.0 && self.options.dual_clip.is_some_and(|delta| t.ratio > delta));
            kl += KlEstimator::K3.at(t.log_ratio).0;
            kl_approx -= t.log_ratio;
            ratio += t.ratio;
            ratio_max = ratio_max.max(t.ratio);
        }
        let denominator = tokens.len() as f64;
        let mean = |name, sum: f64| Metric { name, value: sum / denominator.max(1.0), denominator };
        metrics.extend([
            mean("clipFraction", clipped),
            mean("clipFractionLow", low),
            mean("clipFractionHigh", high),
        ]);
        metrics.extend(self.options.dual_clip.map(|_| mean("dualClipFraction", dual)));
        metrics.extend([mean("kl", kl), mean("klApprox", kl_approx), mean("ratioMean", ratio)]);
        metrics.push(Metric { name: "ess", value: effective_share(tokens, ratio_max), denominator });
        metrics.push(Metric { name: "ratioMax", value: ratio_max, denominator: 1.0 });
    }
}

impl Default for GrpoLoss {
    fn default() -> Self {
        let options = GrpoOptions::default();
        let clip_log = [libm::log1p(-options.clip_epsilon.low), libm::log1p(options.clip_epsilon.high)];
        Self { options, clip_log }
    }
}

/// Adds one KL penalty to the gradient; with a coefficient of 0 it only measures.
fn add_kl<T: Real>(
    penalty: &KlPenalty,
    name: &str,
    reference: &[T],
    batch: &LossBatch<'_, T>,
    tokens: &[Scored],
    grad_t: &mut [f64],
) -> Result<Term> {
    let (mut loss, mut sum) = (0.0, 0.0);
    for scored in tokens {
        let index = scored.token.index;
        let log_ratio = finite(name, index, reference[index].into())? - batch.log_prob[index].into();
        let (value, gradient) = penalty.at(log_ratio, scored.ratio);
        loss += penalty.coefficient * scored.weight * value;
        sum += value;
        grad_t[index] += penalty.coefficient * scored.weight * gradient;
    }
    Ok(Term { loss, mean: sum / tokens.len().max(1) as f64 })
}

/// `(sum r)^2 / (N sum r^2)`, with ratios relative to the largest so that squares cannot overflow; 0 without tokens.
fn effective_share(tokens: &[Scored], ratio_max: f64) -> f64 {
    let (mut sum, mut square_sum) = (0.0, 0.0);
    for scored in tokens {
        let scaled = scored.ratio / ratio_max;
        sum += scaled;
        square_sum += scaled * scaled;
    }
    if tokens.is_empty() { 0.0 } else { sum * sum / (square_sum * tokens.len() as f64) }
}

fn count_metrics(num_tokens: usize, num_sequences: usize, dropped: &Dropped, metrics: &mut Vec<Metric>) {
    let counts = [
        ("numTokens", num_tokens),
        ("numSequences", num_sequences),
        ("numNonFinite", dropped.non_finite),
        ("numExtremeRatio", dropped.extreme),
        ("numKlMasked", dropped.kl_masked),
    ];
    metrics.extend(counts.map(|(name, count)| Metric { name, value: count as f64, denominator: 1.0 }));
}
