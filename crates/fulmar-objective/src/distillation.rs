//! Distillation: the student's log-probability `l` of each token should approach the teacher's, `t`.
//!
//! | direction | value a token | gradient with respect to `l` |
//! |---|---|---|
//! | reverse: tokens sampled by the student | `e^(t - l) - 1 - (t - l)` | `1 - e^(t - l)` |
//! | forward: tokens written by the teacher | `e^(l - t) - 1 - (l - t)` | `e^(l - t) - 1` |
//!
//! Both are never negative and 0 where they agree; beyond [`KL_LOG_RATIO_MAX`](crate::KL_LOG_RATIO_MAX) they
//! continue as straight lines. As TorchRL's `DistillationLoss`. R. Agarwal and others, "On-Policy
//! Distillation", 2023, <https://arxiv.org/abs/2306.13649>.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Real;
use crate::batch::{SftBatch, Token, finite};
use crate::kl::KlEstimator;
use crate::output::{LossOutput, Metric};
use crate::sft::{SftOutput, SftReduction, num_trained_s};

/// The source of the tokens, which determines the direction of the KL divergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KlDirection {
    /// The student.
    #[default]
    Reverse,
    /// The teacher.
    Forward,
}

/// Options of [`DistillationLoss`]; [`DistillationLoss::new`] checks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DistillationOptions {
    /// The source of the tokens. Defaults to the student.
    pub direction: KlDirection,
    /// The reduction over sequences. Defaults to the mean of those with a trained token.
    pub reduction: SftReduction,
    /// If true, a sequence's loss is its mean over trained tokens, else their sum.
    pub normalize_by_seq_length: bool,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for DistillationOptions {
    fn default() -> Self {
        let (direction, reduction) = (KlDirection::default(), SftReduction::default());
        Self { direction, reduction, normalize_by_seq_length: true, device: Device::Cpu }
    }
}

/// The distillation loss, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{DistillationLoss, SftBatch};
/// let log_prob = [-1.0_f32, -2.0];
/// let batch = SftBatch { log_prob: &log_prob, ref_log_prob: Some(&log_prob), mask: &[1, 1], offsets: &[0, 2] };
/// let result = DistillationLoss::default().forward(&batch)?;
/// assert_eq!((result.output.loss, result.output.grad_log_prob), (0.0, vec![0.0, 0.0]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DistillationLoss {
    options: DistillationOptions,
    compute: Compute,
}

impl DistillationLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `OutOfRange` if a count of tokens is below 1; `Unavailable`, with the reason, if there is no such
    /// device.
    pub fn new(options: DistillationOptions) -> Result<Self> {
        options.reduction.checked()?;
        Ok(Self { compute: Compute::on(options.device)?, options })
    }

    /// Returns value, metrics and gradient over `batch`, whose reference is the teacher. Costs O(T); sums run
    /// in f64 in token order.
    ///
    /// Metrics: `distillLoss`, `klToTeacher` (mean over trained tokens), `numTokens`, `numSequences`.
    ///
    /// # Errors
    /// `ShapeMismatch` if two lengths disagree; `OutOfRange` for decreasing offsets, a mask that is not 0 or
    /// 1, or a teacher whose log-probabilities are exactly 0 at every trained token, as in an uninitialised
    /// column; `Empty` if the teacher is missing or the mask trains nothing (under `GlobalTokens` and
    /// `GlobalSequences` the loss and the gradient are 0 then); `NonFinite` for a trained log-probability
    /// that is not finite, or if the result overflows.
    pub fn forward<T: Real>(&self, batch: &SftBatch<'_, T>) -> Result<SftOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(batch))
    }

    fn forward_on_cpu<T: Real>(&self, batch: &SftBatch<'_, T>) -> Result<SftOutput<T>> {
        let Some(teacher) = batch.ref_log_prob else {
            let detail = "ref_log_prob must be given: it holds the log-probabilities of the teacher";
            return Err(Error::new(ErrorKind::Empty, detail));
        };
        let tokens = batch.trained(self.options.reduction.is_global())?;
        check_teacher(teacher, &tokens)?;
        let num_trained_s = num_trained_s(&tokens, batch.offsets.len() - 1);
        let reduction = match self.options.reduction {
            SftReduction::Mean => {
                // A sequence without trained tokens has no divergence, so the mean excludes it.
                let num_counted = num_trained_s.iter().filter(|&&count| count > 0).count();
                SftReduction::GlobalSequences(num_counted as f64)
            }
            other => other,
        };
        let weight_s = reduction.weight_s(self.options.normalize_by_seq_length, &num_trained_s);
        let (mut loss, mut sum) = (0.0, 0.0);
        let (mut grad_t, mut loss_s) = (vec![0.0; batch.log_prob.len()], vec![0.0; num_trained_s.len()]);
        for &Token { index, sequence } in &tokens {
            let log_prob = finite("log_prob", index, batch.log_prob[index].into())?;
            let target = finite("ref_log_prob", index, teacher[index].into())?;
            let (value, gradient) = match self.options.direction {
                KlDirection::Reverse => KlEstimator::K3.at(target - log_prob),
                KlDirection::Forward => {
                    let (value, gradient) = KlEstimator::K3.at(log_prob - target);
                    (value, -gradient)
                }
            };
            loss += weight_s[sequence] * value;
            sum += value;
            loss_s[sequence] += value;
            grad_t[index] = weight_s[sequence] * gradient;
        }
        if self.options.normalize_by_seq_length {
            loss_s.iter_mut().zip(&num_trained_s).for_each(|(loss, &count)| *loss /= count.max(1) as f64);
        }
        let count = tokens.len() as f64;
        let term = |name, value| Metric { name, value, denominator: 1.0 };
        let metrics = vec![
            term("distillLoss", loss),
            Metric { name: "klToTeacher", value: sum / count.max(1.0), denominator: count },
            term("numTokens", count),
            term("numSequences", loss_s.len() as f64),
        ];
        let output = LossOutput::checked(loss, metrics, &grad_t, None)?;
        Ok(SftOutput { output, sequence_loss: loss_s })
    }
}

/// Refuses a teacher that is certain of every trained token, as an uninitialised column looks like that.
fn check_teacher<T: Real>(teacher: &[T], tokens: &[Token]) -> Result<()> {
    if tokens.is_empty() || tokens.iter().any(|token| teacher[token.index].into() != 0.0) {
        return Ok(());
    }
    let detail = format!(
        "ref_log_prob must hold the log-probabilities of the teacher: got exactly 0 at all {} trained tokens, as in an array \
         that was never filled",
        tokens.len()
    );
    Err(Error::new(ErrorKind::OutOfRange, detail))
}
