//! Supervised fine-tuning: minus the log-probability of examples.
//!
//! ```text
//! nll_s = -sum_t mask l       per sequence, divided by its trained tokens if `normalize_by_seq_length`
//! loss  = reduce_s nll_s + coefficient * (KL to the reference, token by token, under the same weights)
//! ```
//!
//! With `minor_beta` the weight of a sequence falls as it gets ahead of the reference: with `ahead_s` the sum
//! of `mask (l - l_ref)`, divided like `nll_s`, its loss is `-log sigmoid(beta ahead_s)` (S. Xie and others,
//! "Minor SFT", 2024, <https://arxiv.org/abs/2408.10642>).
//!
//! With `dft` a token is weighted by its own probability, without gradient: `-sum_t mask e^l l`, which
//! removes the factor `1 / p` from its gradient (Y. Wu and others, "Dynamic Fine-Tuning", 2025,
//! <https://arxiv.org/abs/2508.05629>).
//!
//! As TorchRL's `SFTLoss`, except for the KL term: there it is a mean over all tokens of the batch, here it
//! is weighted and masked like the first term.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::batch::{SftBatch, Token, finite};
use crate::bradley_terry::softplus;
use crate::clip::out_of_range;
use crate::kl::KlPenalty;
use crate::output::{LossOutput, Metric};
use crate::surrogate::sigmoid;
use crate::{Normalization, Real};

/// The reduction of a batch of sequences to one number.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SftReduction {
    /// The mean over sequences. A sequence without trained tokens adds 0 and is counted, as in TorchRL;
    /// [`DistillationLoss`](crate::DistillationLoss) does not count it.
    #[default]
    Mean,
    /// The sum over sequences. (TorchRL's `none` has this gradient; its values are [`SftOutput::sequence_loss`].)
    Sum,
    /// The mean over trained tokens, whatever their sequence.
    TokenMean,
    /// The sum over trained tokens divided by a given number, counted over the whole optimizer step:
    /// micro-batches then sum to the result of one big batch.
    GlobalTokens(f64),
    /// [`SftReduction::Mean`] with a given number of sequences, counted over the whole optimizer step.
    GlobalSequences(f64),
}

/// Options of [`SftLoss`]; [`SftLoss::new`] checks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SftOptions {
    /// The reduction over sequences. Defaults to their mean.
    pub reduction: SftReduction,
    /// If true, a sequence's loss is its mean over trained tokens, else their sum. Ignored by the two
    /// token-wise reductions.
    pub normalize_by_seq_length: bool,
    /// Strength of the fade-out of sequences that are ahead of the reference, above 0; needs `ref_log_prob`,
    /// a reduction by sequences, and no penalty. Off by default.
    pub minor_beta: Option<f64>,
    /// If true, a token is weighted by its own probability; not with `minor_beta`. Defaults to false.
    pub dft: bool,
    /// The KL penalty against the reference; needs `ref_log_prob` if its coefficient is above 0.
    pub kl_to_ref: KlPenalty,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for SftOptions {
    fn default() -> Self {
        Self {
            reduction: SftReduction::default(),
            normalize_by_seq_length: true,
            minor_beta: None,
            dft: false,
            kl_to_ref: KlPenalty::default(),
            device: Device::Cpu,
        }
    }
}

/// The supervised loss, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{SftBatch, SftLoss};
/// let output = SftLoss::default().forward(&SftBatch {
///     log_prob: &[-9.0_f32, -1.0, -3.0, -0.5],
///     ref_log_prob: None,
///     mask: &[0, 1, 1, 1],
///     offsets: &[0, 3, 4],
/// })?;
/// assert_eq!(output.sequence_loss, [2.0, 0.5]);
/// assert_eq!((output.output.loss, output.output.grad_log_prob), (1.25, vec![0.0, -0.25, -0.25, -0.5]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SftLoss {
    options: SftOptions,
    compute: Compute,
}

/// The result of [`SftLoss::forward`].
#[derive(Debug, Clone, PartialEq)]
pub struct SftOutput<T = f32> {
    /// Value, metrics and gradient.
    pub output: LossOutput<T>,
    /// `[S]` the likelihood term of each sequence before the reduction; 0 where nothing is trained.
    pub sequence_loss: Vec<f64>,
}

impl SftLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfRange` if an option is outside its
    /// documented range, or asks for importance weights, which need an old policy.
    pub fn new(options: SftOptions) -> Result<Self> {
        options.reduction.checked()?;
        if let Some(beta) = options.minor_beta {
            if !(beta.is_finite() && beta > 0.0) {
                return Err(out_of_range("minorBeta must be a finite number > 0", beta));
            }
            if options.dft {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    "dft must be false with minorBeta: each replaces the weight of a token",
                ));
            }
            let by_sequences = matches!(
                options.reduction,
                SftReduction::Mean | SftReduction::Sum | SftReduction::GlobalSequences(_)
            );
            if !by_sequences || options.kl_to_ref.coefficient > 0.0 {
                let detail = format!(
                    "minorBeta needs the reduction `mean`, `sum` or `globalSequences` and no klToRef; got {:?} and a coefficient of {}",
                    options.reduction, options.kl_to_ref.coefficient
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        if options.kl_to_ref.checked("klToRef")?.importance_weighted {
            let detail = "klToRef.importanceWeighted must be false in a supervised loss, which has no ratio of policies";
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self { compute: Compute::on(options.device)?, options })
    }

    /// Returns value, metrics and gradient over `batch`. Costs O(T); sums run in f64 in token order.
    ///
    /// Metrics: `nllLoss`, `minorLoss` (replaces it in the loss, with `minor_beta`), `klToRefLoss` (if in the
    /// loss), `klToRef` (if `ref_log_prob` is given), `logProb` (mean over trained tokens), `numTokens`,
    /// `numSequences`.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree; `OutOfRange` for decreasing offsets or a mask that is not 0
    /// or 1; `Empty` if the reference is missing or the mask trains nothing (under `GlobalTokens` and
    /// `GlobalSequences` the loss and the gradient are 0 then); `NonFinite` for a trained log-probability
    /// that is not finite, or if the result overflows.
    pub fn forward<T: Real>(&self, batch: &SftBatch<'_, T>) -> Result<SftOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(batch))
    }

    fn forward_on_cpu<T: Real>(&self, batch: &SftBatch<'_, T>) -> Result<SftOutput<T>> {
        let penalty = self.options.kl_to_ref;
        let needs_reference = penalty.coefficient > 0.0 || self.options.minor_beta.is_some();
        if needs_reference && batch.ref_log_prob.is_none() {
            let detail =
                "ref_log_prob must be given when klToRef.coefficient is above 0 or minorBeta is given";
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let tokens = batch.trained(self.options.reduction.is_global())?;
        let num_trained_s = num_trained_s(&tokens, batch.offsets.len() - 1);
        let weight_s = self.options.reduction.weight_s(self.options.normalize_by_seq_length, &num_trained_s);
        let (mut nll, mut kl, mut log_prob_sum, mut kl_sum) = (0.0, 0.0, 0.0, 0.0);
        let (mut grad_t, mut nll_s) = (vec![0.0; batch.log_prob.len()], vec![0.0; num_trained_s.len()]);
        let mut ahead_s = vec![0.0; num_trained_s.len()];
        for &Token { index, sequence } in &tokens {
            let log_prob = finite("log_prob", index, batch.log_prob[index].into())?;
            let weight = weight_s[sequence];
            let likelihood = if self.options.dft { libm::exp(log_prob) } else { 1.0 };
            nll -= weight * likelihood * log_prob;
            log_prob_sum += log_prob;
            nll_s[sequence] -= likelihood * log_prob;
            grad_t[index] = -weight * likelihood;
            if let Some(reference) = batch.ref_log_prob {
                let log_ratio = finite("ref_log_prob", index, reference[index].into())? - log_prob;
                ahead_s[sequence] -= log_ratio;
                let (value, gradient) = penalty.at(log_ratio, 1.0);
                kl += penalty.coefficient * weight * value;
                kl_sum += value;
                grad_t[index] += penalty.coefficient * weight * gradient;
            }
        }
        let count = tokens.len() as f64;
        let term = |name, value| Metric { name, value, denominator: 1.0 };
        let mean = |name, sum: f64| Metric { name, value: sum / count.max(1.0), denominator: count };
        let mut metrics = vec![term("nllLoss", nll), mean("logProb", log_prob_sum)];
        metrics.extend((penalty.coefficient > 0.0).then(|| term("klToRefLoss", kl)));
        metrics.extend(batch.ref_log_prob.map(|_| mean("klToRef", kl_sum)));
        metrics.extend([term("numTokens", count), term("numSequences", nll_s.len() as f64)]);
        if self.options.normalize_by_seq_length {
            nll_s.iter_mut().zip(&num_trained_s).for_each(|(nll, &count)| *nll /= count.max(1) as f64);
            ahead_s.iter_mut().zip(&num_trained_s).for_each(|(ahead, &count)| *ahead /= count.max(1) as f64);
        }
        if let Some(beta) = self.options.minor_beta {
            nll = 0.0;
            for (sequence, &count) in num_trained_s.iter().enumerate().filter(|(_, count)| **count > 0) {
                let length = if self.options.normalize_by_seq_length { count as f64 } else { 1.0 };
                nll_s[sequence] = softplus(-beta * ahead_s[sequence]);
                nll += weight_s[sequence] * length * nll_s[sequence];
            }
            for token in &tokens {
                grad_t[token.index] *= beta * sigmoid(-beta * ahead_s[token.sequence]);
            }
            metrics.insert(1, term("minorLoss", nll));
        }
        let output = LossOutput::checked(nll + kl, metrics, &grad_t, None)?;
        Ok(SftOutput { output, sequence_loss: nll_s })
    }
}

impl SftReduction {
    pub(crate) fn checked(self) -> Result<()> {
        if let Self::GlobalTokens(count) | Self::GlobalSequences(count) = self {
            Normalization::GlobalTokens(count).checked()?;
        }
        Ok(())
    }

    /// Returns whether the denominator is that of a whole optimizer step, so that a micro-batch without
    /// trained tokens adds 0.
    pub(crate) fn is_global(self) -> bool {
        matches!(self, Self::GlobalTokens(_) | Self::GlobalSequences(_))
    }

    /// Returns the weight of one trained token of each sequence, for the mean over its tokens or their sum.
    pub(crate) fn weight_s(self, is_mean: bool, num_trained_s: &[usize]) -> Vec<f64> {
        let num_sequences = num_trained_s.len() as f64;
        let length = |count: usize| if is_mean { count.max(1) as f64 } else { 1.0 };
        match self {
            Self::Mean => Self::GlobalSequences(num_sequences).weight_s(is_mean, num_trained_s),
            Self::GlobalSequences(sequences) => {
                num_trained_s.iter().map(|&count| 1.0 / (sequences * length(count))).collect()
            }
            Self::Sum => num_trained_s.iter().map(|&count| 1.0 / length(count)).collect(),
            Self::TokenMean => Normalization::TokenMean.weight_s(num_trained_s),
            Self::GlobalTokens(count) => Normalization::GlobalTokens(count).weight_s(num_trained_s),
        }
    }
}

/// Returns the number of `tokens` in each sequence.
pub(crate) fn num_trained_s(tokens: &[Token], num_sequences: usize) -> Vec<usize> {
    let mut num_trained_s = vec![0; num_sequences];
    for token in tokens {
        num_trained_s[token.sequence] += 1;
    }
    num_trained_s
}
