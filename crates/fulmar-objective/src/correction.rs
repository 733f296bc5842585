//! Corrections for tokens that another program sampled than the one that computed their old log-probability.
//! With the log-probability `q` under the sampler, a token has the ratio `e^(log p_old - log q)`, and a
//! sequence the product of the ratios of its tokens.
//!
//! If `old_log_prob` holds the sampler's own log-probabilities (TorchRL, torchtitan), one ratio covers both
//! staleness and mismatch, and there is nothing to correct. If it holds those of a proximal policy (decoupled
//! PPO, <https://arxiv.org/abs/2110.00641>), a truncated correction adds the second factor.

use fulmar_compute::{Compute, dispatch};
use fulmar_core::Result;
use serde::Deserialize;

use crate::Real;
use crate::batch::{check_len, check_mask, check_offsets, finite};
use crate::clip::out_of_range;

/// The level at which a ratio is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CorrectionLevel {
    /// The ratio of the token.
    #[default]
    Token,
    /// The product over the sequence.
    Sequence,
    /// The geometric mean over the sequence, which can reject but never weighs.
    Geometric,
}

/// The effect of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CorrectionRule {
    /// The loss is multiplied by the ratio, clamped to the bounds.
    #[default]
    Truncate,
    /// The loss is multiplied by the ratio, and tokens with a ratio outside the bounds are rejected.
    Mask,
    /// A sequence with a token outside the bounds is rejected; nothing is multiplied.
    Veto,
}

/// One correction; several are applied in turn.
///
/// # Examples
/// ```
/// use fulmar_objective::{Correction, CorrectionRule};
/// let truncated = Correction { max: 2.0, ..Correction::default() };
/// assert_eq!((truncated.rule, truncated.min), (CorrectionRule::Truncate, 0.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Correction {
    /// The level of the ratio. Defaults to the token.
    pub level: CorrectionLevel,
    /// The effect of the ratio. Defaults to truncation.
    pub rule: CorrectionRule,
    /// The lower bound, at least 0. Defaults to 0.
    pub min: f64,
    /// The upper bound, above the lower one. Defaults to 3.
    pub max: f64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { level: CorrectionLevel::default(), rule: CorrectionRule::default(), min: 0.0, max: 3.0 }
    }
}

impl Correction {
    pub(crate) fn checked(&self) -> Result<()> {
        if !(self.min.is_finite() && self.min >= 0.0) {
            return Err(out_of_range("corrections.min must be a finite number >= 0", self.min));
        }
        if self.max.is_nan() || self.max <= self.min {
            return Err(out_of_range("corrections.max must be above min", self.max));
        }
        Ok(())
    }

    /// Returns whether truncation changes a factor, given the log-ratios of a sequence and the position of its token.
    pub(crate) fn truncates(&self, log_ratio_t: &[f64], index: usize) -> bool {
        let log_ratio = match self.level {
            CorrectionLevel::Token => log_ratio_t[index],
            CorrectionLevel::Sequence => log_ratio_t.iter().sum(),
            CorrectionLevel::Geometric => return false,
        };
        let ratio = libm::exp(log_ratio);
        self.rule == CorrectionRule::Truncate && !(self.min..=self.max).contains(&ratio)
    }

    /// Returns the factor of each token of a sequence from their log-ratios; `None` if the token is rejected.
    pub(crate) fn factors(&self, log_ratio_t: &[f64]) -> Vec<Option<f64>> {
        let sum: f64 = log_ratio_t.iter().sum();
        let whole = match self.level {
            CorrectionLevel::Token => None,
            CorrectionLevel::Sequence => Some(sum),
            CorrectionLevel::Geometric => Some(sum / log_ratio_t.len().max(1) as f64),
        };
        let ratios = log_ratio_t.iter().map(|log_ratio| libm::exp(whole.unwrap_or(*log_ratio)));
        let inside = |ratio: f64| (self.min..=self.max).contains(&ratio);
        match (self.rule, self.level) {
            (CorrectionRule::Veto, _) => {
                let all = ratios.clone().all(inside);
                ratios.map(|_| all.then_some(1.0)).collect()
            }
            (_, CorrectionLevel::Geometric) => ratios.map(|ratio| inside(ratio).then_some(1.0)).collect(),
            (CorrectionRule::Mask, _) => ratios.map(|ratio| inside(ratio).then_some(ratio)).collect(),
            (CorrectionRule::Truncate, _) => {
                ratios.map(|ratio| Some(ratio.clamp(self.min, self.max))).collect()
            }
        }
    }
}

/// Returns the factor of each token under one correction: 1 off the mask, 0 for a rejected token. All slices
/// are `[T]` except `offsets` `[S + 1]`; only masked tokens count in a sequence's ratio. TRL's
/// train/inference importance ratios.
///
/// A NaN in `sampler_log_prob` marks an unknown log-probability: its ratio is 1, as in
/// [`GrpoLoss`](crate::GrpoLoss).
///
/// # Errors
/// `ShapeMismatch` for unequal lengths; `OutOfRange` for a mask that is not 0 or 1, or a bound outside its
/// range; `NonFinite` where the mask is 1 for an old log-probability that is not finite or a sampler's that
/// is infinite, or if a weight overflows.
///
/// # Examples
/// ```
/// use fulmar_compute::Compute;
/// use fulmar_objective::{Correction, importance_weights};
/// let truncated = Correction { max: 1.5, ..Correction::default() };
/// let (old, sampler) = ([-1.0_f32, -1.0, -1.0], [-1.0, -2.0, 0.0]);
/// let weights = importance_weights(&old, &sampler, &[1, 1, 0], &[0, 3], &truncated, Compute::Cpu)?;
/// assert_eq!(weights, [1.0, 1.5, 1.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn importance_weights<T: Real>(
    old_log_prob: &[T],
    sampler_log_prob: &[T],
    mask: &[u8],
    offsets: &[u32],
    correction: &Correction,
    compute: Compute,
) -> Result<Vec<f64>> {
    dispatch!(compute, cpu => weights_on_cpu([old_log_prob, sampler_log_prob], mask, offsets, correction))
}

fn weights_on_cpu<T: Real>(
    [old_log_prob, sampler_log_prob]: [&[T]; 2],
    mask: &[u8],
    offsets: &[u32],
    correction: &Correction,
) -> Result<Vec<f64>> {
    correction.checked()?;
    check_len("sampler_log_prob", sampler_log_prob.len(), "old_log_prob", old_log_prob.len())?;
    check_len("mask", mask.len(), "old_log_prob", old_log_prob.len())?;
    check_mask(mask)?;
    check_offsets(offsets, old_log_prob.len())?;
    let mut weights = vec![1.0; old_log_prob.len()];
    for pair in offsets.windows(2) {
        let tokens: Vec<usize> =
            (pair[0] as usize..pair[1] as usize).filter(|&index| mask[index] == 1).collect();
        let log_ratio = |&index: &usize| {
            let old = finite("old_log_prob", index, old_log_prob[index].into())?;
            let sampler = sampler_log_prob[index].into();
            Ok(if sampler.is_nan() { 0.0 } else { old - finite("sampler_log_prob", index, sampler)? })
        };
        let log_ratios: Vec<f64> = tokens.iter().map(log_ratio).collect::<Result<_>>()?;
        for (&index, factor) in tokens.iter().zip(correction.factors(&log_ratios)) {
            weights[index] = finite("importance weight", index, factor.unwrap_or(0.0))?;
        }
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_keep_and_truncate_what_the_books_say() {
        let log_ratio_t = [0.1, -1.5, 0.8, -10.0, 0.3];
        let factors =
            |rule, min, max| Correction { rule, min, max, ..Correction::default() }.factors(&log_ratio_t);
        let masked = factors(CorrectionRule::Mask, 0.5, 2.0);
        assert_eq!(masked.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, false, true]);
        let truncated: Vec<_> = factors(CorrectionRule::Truncate, 0.0, 2.0).into_iter().flatten().collect();
        for (got, want) in truncated.iter().zip([1.105, 0.223, 2.0, 4.5e-5, 1.350]) {
            assert!((got - want).abs() < 1e-3, "got {got}, expected {want}");
        }
        assert_eq!(factors(CorrectionRule::Veto, 1e-4, 100.0), [None; 5]);
        assert_eq!(factors(CorrectionRule::Veto, 1e-5, 100.0), [Some(1.0); 5]);
    }

    #[test]
    fn a_sequence_has_one_ratio() {
        let factors = |level, rule| Correction { level, rule, min: 0.9, max: 1.1 }.factors(&[0.3, -0.2]);
        let product = libm::exp(0.3 - 0.2);
        assert_eq!(factors(CorrectionLevel::Sequence, CorrectionRule::Truncate), [Some(1.1); 2]);
        assert_eq!(factors(CorrectionLevel::Sequence, CorrectionRule::Mask), [None; 2]);
        assert_eq!(factors(CorrectionLevel::Geometric, CorrectionRule::Mask), [Some(1.0); 2]);
        assert!(product > 1.1);
    }
}
