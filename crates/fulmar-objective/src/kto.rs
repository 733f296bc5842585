//! Losses of answers that are good or bad individually, not in pairs.
//!
//! ```text
//! c_s   = sum_t (l_t - l_ref_t)                              the log-ratio of answer s
//! z     = max(0, mean of the log-ratios of answers that belong to other prompts), held fixed
//! loss  = 1 / S sum_s  w_s sigmoid(-beta (c_s - z))          for a desirable answer
//!                      w_s sigmoid( beta (c_s - z))          for another
//! ```
//!
//! KTO: K. Ethayarajh and others, 2024, <https://arxiv.org/abs/2402.01306>. Without `z` it is the unpaired APO-zero,
//! <https://arxiv.org/abs/2408.06266>.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Real;
use crate::batch::{SftBatch, check_len, finite};
use crate::clip::out_of_range;
use crate::dpo::{Answer, answer, positive, whole_sequences};
use crate::output::{LossOutput, Metric};
use crate::preference::gate;

/// The log-ratio at which an answer counts as equal to the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KtoLossType {
    /// The divergence of the policy from the reference, `z`.
    #[default]
    Kto,
    /// 0.
    ApoZeroUnpaired,
}

/// Answers, each desirable or not.
#[derive(Debug, Clone, Copy)]
pub struct KtoBatch<'a, T = f32> {
    /// `[T]` log-probabilities of the tokens under the policy in training.
    pub log_prob: &'a [T],
    /// `[T]` log-probabilities under a frozen reference.
    pub ref_log_prob: &'a [T],
    /// `[S]` 1 where the answer is desirable, else 0.
    pub desirable: &'a [u8],
    /// Log-ratios of whole answers after mismatched prompts, for the whole optimizer step; for `kto`.
    pub kl_log_ratio: Option<&'a [T]>,
    /// `[T]` 1 for tokens of answers, else 0.
    pub mask: &'a [u8],
    /// `[S + 1]` bounds of the sequences, from 0 to `T`.
    pub offsets: &'a [u32],
}

/// Options of [`KtoLoss`]; [`KtoLoss::new`] checks them.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KtoOptions {
    /// The log-ratio at which an answer counts as equal to the reference. Defaults to the divergence of the
    /// policy.
    pub loss_type: KtoLossType,
    /// Strength of the pull to the reference, above 0. Defaults to 0.1.
    pub beta: f64,
    /// Weight of a desirable answer, at least 0. Defaults to 1.
    pub desirable_weight: f64,
    /// Weight of an undesirable answer, at least 0. Defaults to 1.
    pub undesirable_weight: f64,
    /// The denominator of sums over answers, for the whole optimizer step. Defaults to the answers of this
    /// batch.
    pub num_sequences: Option<f64>,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for KtoOptions {
    fn default() -> Self {
        Self {
            loss_type: KtoLossType::default(),
            beta: 0.1,
            desirable_weight: 1.0,
            undesirable_weight: 1.0,
            num_sequences: None,
            device: Device::Cpu,
        }
    }
}

/// The loss of single answers, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{KtoBatch, KtoLoss};
/// let output = KtoLoss::default().forward(&KtoBatch {
///     log_prob: &[-1.0_f32, -2.0],
///     ref_log_prob: &[-1.0, -2.0],
///     desirable: &[1, 0],
///     kl_log_ratio: Some(&[-0.3, 0.1]), // on average below 0, which counts as 0
///     mask: &[1, 1],
///     offsets: &[0, 1, 2],
/// })?;
/// assert_eq!((output.loss, output.grad_log_prob), (0.5, vec![-0.0125, 0.0125]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KtoLoss {
    options: KtoOptions,
    compute: Compute,
}

impl KtoLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfRange` if an option is outside its
    /// documented range.
    pub fn new(options: KtoOptions) -> Result<Self> {
        positive("beta", options.beta)?;
        let weights = [
            ("desirableWeight", options.desirable_weight),
            ("undesirableWeight", options.undesirable_weight),
        ];
        for (name, weight) in weights {
            if !(weight.is_finite() && weight >= 0.0) {
                return Err(out_of_range(&format!("{name} must be a finite number >= 0"), weight));
            }
        }
        if let Some(count) = options.num_sequences.filter(|count| !(count.is_finite() && *count >= 1.0)) {
            return Err(out_of_range("numSequences must be a finite number >= 1", count));
        }
        Ok(Self { compute: Compute::on(options.device)?, options })
    }

    /// Returns value, metrics and gradient over `batch`. Costs O(T); sums run in f64 in token order.
    ///
    /// Metrics: `kl` (the `z` of the formula), `rewardChosen` and `rewardRejected` (means of `beta` times the
    /// log-ratio over desirable and other answers), `logProbChosen`, `logProbRejected` (means of sums over
    /// tokens), `numSequences`, `numTokens`.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree; `OutOfRange` for decreasing offsets, or a mask or a label
    /// that is not 0 or 1; `Empty` if a sequence has no trained token, `kl_log_ratio` is missing, or there
    /// are no answers (with `num_sequences` the loss and the gradient are 0 then); `NonFinite` for a trained
    /// log-probability or a log-ratio that is not finite, or if the result overflows.
    pub fn forward<T: Real>(&self, batch: &KtoBatch<'_, T>) -> Result<LossOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(batch))
    }

    fn forward_on_cpu<T: Real>(&self, batch: &KtoBatch<'_, T>) -> Result<LossOutput<T>> {
        let KtoBatch { log_prob, ref_log_prob, mask, offsets, desirable, .. } = *batch;
        let tokens = SftBatch { log_prob, ref_log_prob: Some(ref_log_prob), mask, offsets }
            .trained(self.options.num_sequences.is_some())?;
        let sequences = whole_sequences(&tokens, offsets.len() - 1)?;
        check_len("desirable", desirable.len(), "number of sequences", sequences.len())?;
        if let Some(at) = desirable.iter().position(|&label| label > 1) {
            return Err(out_of_range(&format!("desirable[{at}] must be 0 or 1"), f64::from(desirable[at])));
        }
        let baseline = self.baseline(batch)?;
        let KtoOptions { beta, desirable_weight, undesirable_weight, num_sequences, .. } = self.options;
        let count = num_sequences.unwrap_or(sequences.len() as f64);
        let (mut loss, mut grad_t, mut sides) = (0.0, vec![0.0; log_prob.len()], [Side::default(); 2]);
        for (tokens, &label) in sequences.into_iter().zip(desirable) {
            let sums = answer(tokens, log_prob, ref_log_prob, |_| 1.0)?;
            let (weight, sign) =
                if label == 1 { (desirable_weight, -1.0) } else { (undesirable_weight, 1.0) };
            let (value, slope) = gate(sign * beta * (sums.log_ratio() - baseline));
            loss += weight / count * value;
            tokens.iter().for_each(|token| grad_t[token.index] = weight / count * sign * beta * slope);
            sides[usize::from(label)].add(&sums);
        }
        let [undesirable, desirable] = sides;
        let metrics = vec![
            Metric { name: "kl", value: baseline, denominator: 1.0 },
            desirable.mean("rewardChosen", beta * desirable.log_ratio),
            undesirable.mean("rewardRejected", beta * undesirable.log_ratio),
            desirable.mean("logProbChosen", desirable.log_prob),
            undesirable.mean("logProbRejected", undesirable.log_prob),
            Metric { name: "numSequences", value: desirable.count + undesirable.count, denominator: 1.0 },
            Metric { name: "numTokens", value: tokens.len() as f64, denominator: 1.0 },
        ];
        LossOutput::checked(loss, metrics, &grad_t, None)
    }

    /// Returns `z`.
    fn baseline<T: Real>(&self, batch: &KtoBatch<'_, T>) -> Result<f64> {
        if self.options.loss_type == KtoLossType::ApoZeroUnpaired {
            return Ok(0.0);
        }
        let Some(log_ratios) = batch.kl_log_ratio.filter(|log_ratios| !log_ratios.is_empty()) else {
            return Err(Error::new(
                ErrorKind::Empty,
                "kl_log_ratio must hold at least one log-ratio when lossType is `kto`",
            ));
        };
        let mut sum = 0.0;
        for (index, &log_ratio) in log_ratios.iter().enumerate() {
            sum += finite("kl_log_ratio", index, log_ratio.into())?;
        }
        Ok((sum / log_ratios.len() as f64).max(0.0))
    }
}

/// Sums over the answers of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    count: f64,
    log_ratio: f64,
    log_prob: f64,
}

impl Side {
    fn add(&mut self, sums: &Answer<'_>) {
        self.count += 1.0;
        self.log_ratio += sums.log_ratio();
        self.log_prob += sums.log_prob;
    }

    fn mean(&self, name: &'static str, sum: f64) -> Metric {
        Metric { name, value: sum / self.count.max(1.0), denominator: self.count }
    }
}
