//! Estimators of `KL(policy || reference)` from one sampled token each, `d = log p_ref - log p`:
//!
//! | | value | gradient with respect to `log p` | |
//! |---|---|---|---|
//! | k1 | `-d` | `1` | unbiased value, high variance; its expected gradient is 0 |
//! | k2 | `d^2 / 2` | `-d` | biased value; its gradient is that of the KL divergence |
//! | k3 | `e^d - 1 - d` | `1 - e^d` | unbiased value, never negative, low variance |
//!
//! J. Schulman, "Approximating KL divergence", 2020, <http://joschu.net/blog/kl-approx.html>.
//! Beyond [`KL_LOG_RATIO_MAX`] k3 continues as the straight line with the same slope, as `e^d` would
//! overflow.
//!
//! TorchRL's `KLComputation` and `KLRewardTransform` are [`kl_reward`] over given log-probabilities (`r_t - c
//! k_t`). Its `RetrieveKL` and `RetrieveLogProb` compute them first, which here the caller does with a
//! decoder's `score`. Its constant controller is a number, its adaptive one [`AdaptiveKlController`] (D.
//! Ziegler and others, <https://arxiv.org/abs/1909.08593>).

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Error, ErrorKind, Result};
use serde::Deserialize;

use crate::Real;
use crate::batch::{Advantage, check_len, check_mask, check_offsets, finite, finite_value};
use crate::clip::out_of_range;
use crate::output::narrow;

/// The `|d|` beyond which k3 is a straight line, in nats.
pub const KL_LOG_RATIO_MAX: f64 = 20.0;

/// An estimator of the KL divergence, see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KlEstimator {
    /// `-d`.
    K1,
    /// `d^2 / 2`.
    K2,
    /// `e^d - 1 - d`.
    #[default]
    K3,
}

impl KlEstimator {
    /// Returns value and gradient with respect to `log p` at `d = log p_ref - log p`.
    ///
    /// # Examples
    /// ```
    /// let (value, gradient) = fulmar_objective::KlEstimator::K2.at(0.5);
    /// assert_eq!((value, gradient), (0.125, -0.5));
    /// ```
    #[must_use]
    pub fn at(self, d: f64) -> (f64, f64) {
        match self {
            Self::K1 => (-d, 1.0),
            Self::K2 => (0.5 * d * d, -d),
            Self::K3 => {
                let inside = d.min(KL_LOG_RATIO_MAX);
                let slope = libm::expm1(inside);
                (slope - inside + slope * (d - inside), -slope)
            }
        }
    }
}

/// A KL divergence over the masked tokens of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct KlEstimate<T = f32> {
    /// Mean over the masked tokens; 0 without masked tokens.
    pub mean: f64,
    /// The number of tokens in the mean.
    pub num_tokens: usize,
    /// `[T]` the estimate at each token, 0 off the mask.
    pub kl: Vec<T>,
    /// `[T]` derivative of `mean` with respect to `log_prob`, 0 off the mask.
    pub grad_log_prob: Vec<T>,
}

/// Estimates `KL(policy || reference)` from tokens drawn from the policy. All slices are `[T]`.
///
/// # Errors
/// `ShapeMismatch` for unequal lengths; `OutOfRange` for a mask that is not 0 or 1; `NonFinite` for a NaN or
/// an infinity where the mask is 1 (other positions may hold anything).
///
/// # Examples
/// ```
/// use fulmar_compute::Compute;
/// use fulmar_objective::{KlEstimator, kl_estimate};
/// let (log_prob, reference) = ([-1.0_f32, -2.0, f32::NAN], [-1.5, -1.0, 0.0]);
/// let estimate = kl_estimate(&log_prob, &reference, &[1, 1, 0], KlEstimator::K1, Compute::Cpu)?;
/// assert_eq!((estimate.mean, estimate.num_tokens), (-0.25, 2));
/// assert_eq!(estimate.kl, [0.5, -1.0, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn kl_estimate<T: Real>(
    log_prob: &[T],
    ref_log_prob: &[T],
    mask: &[u8],
    estimator: KlEstimator,
    compute: Compute,
) -> Result<KlEstimate<T>> {
    dispatch!(compute, cpu => estimate_on_cpu(log_prob, ref_log_prob, mask, estimator))
}

fn estimate_on_cpu<T: Real>(
    log_prob: &[T],
    ref_log_prob: &[T],
    mask: &[u8],
    estimator: KlEstimator,
) -> Result<KlEstimate<T>> {
    check_len("ref_log_prob", ref_log_prob.len(), "log_prob", log_prob.len())?;
    check_len("mask", mask.len(), "log_prob", log_prob.len())?;
    check_mask(mask)?;
    let num_tokens = mask.iter().filter(|&&bit| bit == 1).count();
    let (mut sum, mut kl_t, mut grad_t) = (0.0, vec![0.0; log_prob.len()], vec![0.0; log_prob.len()]);
    for index in (0..log_prob.len()).filter(|&index| mask[index] == 1) {
        let reference = finite("ref_log_prob", index, ref_log_prob[index].into())?;
        let (value, gradient) = estimator.at(reference - finite("log_prob", index, log_prob[index].into())?);
        sum += value;
        kl_t[index] = value;
        grad_t[index] = gradient / num_tokens as f64;
    }
    let mean = finite_value("the mean of kl", sum / num_tokens.max(1) as f64)?;
    Ok(KlEstimate { mean, num_tokens, kl: narrow(&kl_t)?, grad_log_prob: narrow(&grad_t)? })
}

/// The tokens that get the reward of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RewardPlace {
    /// The last masked token: the rewards of its tokens sum to `reward - coefficient * sum_t kl_t`.
    #[default]
    LastToken,
    /// Every token, as in TorchRL: their sum grows with the length.
    EveryToken,
}

/// Options of [`kl_reward`].
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KlRewardOptions {
    /// The factor of the KL estimate, at least 0. Defaults to 1.
    pub coefficient: f64,
    /// The estimator. Defaults to k1, whose expectation is the divergence; it may be negative at a token.
    pub estimator: KlEstimator,
    /// The tokens that get the reward. Defaults to the last token.
    pub place: RewardPlace,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for KlRewardOptions {
    fn default() -> Self {
        Self {
            coefficient: 1.0,
            estimator: KlEstimator::K1,
            place: RewardPlace::default(),
            device: Device::Cpu,
        }
    }
}

/// Rewards of tokens with a KL penalty.
#[derive(Debug, Clone, PartialEq)]
pub struct KlReward<T = f32> {
    /// `[T]` the estimate at each token, 0 off the mask.
    pub kl: Vec<T>,
    /// `[T]` the reward of each token.
    pub reward: Vec<T>,
}

/// Subtracts the KL estimate of each masked token from the reward: `reward_t = placed reward - coefficient *
/// kl_t`. `log_prob`, `ref_log_prob` and `mask` are `[T]`, `offsets` `[S + 1]`. `reward` is `[S]`, or `[T]`
/// for rewards of tokens, which keep their positions. TorchRL `KLComputation` and `KLRewardTransform` are
/// [`RewardPlace::EveryToken`]. A sequence without masked tokens keeps its reward at its last token; an empty
/// one drops it.
///
/// # Errors
/// `ShapeMismatch` for unequal lengths, or for rewards that may be of sequences or of tokens (see
/// [`Advantage::infer`]); `OutOfRange` for a mask that is not 0 or 1 or a coefficient below 0; `NonFinite`
/// for a NaN or an infinity in a reward, or in a log-probability where the mask is 1; `Unavailable` if there
/// is no such device.
///
/// # Examples
/// ```
/// use fulmar_objective::{KlRewardOptions, RewardPlace, kl_reward};
/// let (log_prob, reference) = ([-1.0_f32, -2.0], [-1.5, -1.0]);
/// let mut options = KlRewardOptions { coefficient: 0.5, ..KlRewardOptions::default() };
/// let last = kl_reward(&log_prob, &reference, &[1, 1], &[0, 2], &[1.0], &options)?;
/// assert_eq!((last.kl, last.reward), (vec![0.5, -1.0], vec![-0.25, 1.5]));
/// options.place = RewardPlace::EveryToken;
/// assert_eq!(kl_reward(&log_prob, &reference, &[1, 1], &[0, 2], &[1.0], &options)?.reward, [0.75, 1.5]);
/// assert_eq!(kl_reward(&log_prob, &reference, &[1, 1], &[0, 2], &[1.0, 2.0], &options)?.reward, [0.75, 2.5]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn kl_reward<T: Real>(
    log_prob: &[T],
    ref_log_prob: &[T],
    mask: &[u8],
    offsets: &[u32],
    reward: &[T],
    options: &KlRewardOptions,
) -> Result<KlReward<T>> {
    dispatch!(
        Compute::on(options.device)?,
        cpu => reward_on_cpu([log_prob, ref_log_prob], mask, offsets, reward, options)
    )
}

fn reward_on_cpu<T: Real>(
    [log_prob, ref_log_prob]: [&[T]; 2],
    mask: &[u8],
    offsets: &[u32],
    reward: &[T],
    options: &KlRewardOptions,
) -> Result<KlReward<T>> {
    KlPenalty { coefficient: options.coefficient, ..KlPenalty::default() }.checked("klReward")?;
    check_offsets(offsets, log_prob.len())?;
    let reward = match Advantage::infer_as("reward", reward, offsets)? {
        Advantage::PerSequence(reward_s) => reward_s,
        Advantage::PerToken(reward_t) => {
            return token_rewards([log_prob, ref_log_prob], mask, reward_t, options);
        }
    };
    let kl = estimate_on_cpu(log_prob, ref_log_prob, mask, options.estimator)?.kl;
    let mut reward_t: Vec<f64> = kl.iter().map(|&kl| 0.0 - options.coefficient * kl.into()).collect();
    for (sequence, pair) in offsets.windows(2).enumerate() {
        let (start, end) = (pair[0] as usize, pair[1] as usize);
        let reward = finite("reward", sequence, reward[sequence].into())?;
        let last = mask[start..end].iter().rposition(|&bit| bit == 1).map_or(end, |at| start + at + 1);
        let place = match options.place {
            RewardPlace::EveryToken => start..end,
            RewardPlace::LastToken => last.saturating_sub(1).max(start)..last,
        };
        reward_t[place].iter_mut().for_each(|value| *value += reward);
    }
    Ok(KlReward { kl, reward: narrow(&reward_t)? })
}

/// Returns the reward of each token minus its KL estimate.
fn token_rewards<T: Real>(
    [log_prob, ref_log_prob]: [&[T]; 2],
    mask: &[u8],
    reward: &[T],
    options: &KlRewardOptions,
) -> Result<KlReward<T>> {
    let kl = estimate_on_cpu(log_prob, ref_log_prob, mask, options.estimator)?.kl;
    let mut reward_t = Vec::with_capacity(kl.len());
    for (index, (reward, &kl)) in reward.iter().zip(&kl).enumerate() {
        reward_t.push(finite("reward", index, (*reward).into())? - options.coefficient * kl.into());
    }
    Ok(KlReward { kl, reward: narrow(&reward_t)? })
}

/// A coefficient that steers a KL divergence to a target:
///
/// ```text
/// e = clamp(mean kl / target - 1, -0.2, 0.2);   coefficient = coefficient (1 + e n / horizon)      for n values
/// ```
/// D. Ziegler and others, "Fine-Tuning Language Models from Human Preferences", <https://arxiv.org/abs/1909.08593>. The values are
/// divergences in nats; TorchRL's class of this name wants them multiplied by `-coefficient`.
///
/// # Examples
/// ```
/// use fulmar_objective::AdaptiveKlController;
/// let mut controller = AdaptiveKlController::new(0.1, 6.0, 10_000.0)?;
/// assert!((controller.update(&[1.0; 10])? - 0.09998).abs() < 1e-12, "below the target: a smaller penalty");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptiveKlController {
    coefficient: f64,
    target: f64,
    horizon: f64,
}

impl AdaptiveKlController {
    /// Returns a controller that starts at `coefficient`; `horizon` is the number of values over which a
    /// change adds up.
    ///
    /// # Errors
    /// `OutOfRange` for a number that is not finite and above 0.
    pub fn new(coefficient: f64, target: f64, horizon: f64) -> Result<Self> {
        for (name, value) in [("coefficient", coefficient), ("target", target), ("horizon", horizon)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(out_of_range(&format!("{name} must be a finite number > 0"), value));
            }
        }
        Ok(Self { coefficient, target, horizon })
    }

    /// Returns the coefficient in use.
    #[must_use]
    pub fn coefficient(&self) -> f64 {
        self.coefficient
    }

    /// Updates the coefficient from divergences and returns it.
    ///
    /// # Errors
    /// `Empty` without values; `NonFinite` for a value that is not finite; `OutOfRange` if there are so many
    /// values that the coefficient would not stay above 0. After an error the coefficient is unchanged.
    pub fn update(&mut self, kl: &[f64]) -> Result<f64> {
        if kl.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "kl must hold at least one value: got []"));
        }
        for (index, value) in kl.iter().enumerate() {
            finite("kl", index, *value)?;
        }
        let mean = finite_value("the mean of kl", kl.iter().sum::<f64>() / kl.len() as f64)?;
        let error = (mean / self.target - 1.0).clamp(-0.2, 0.2);
        let coefficient = self.coefficient * (1.0 + error * kl.len() as f64 / self.horizon);
        if !(coefficient.is_finite() && coefficient > 0.0) {
            return Err(out_of_range(
                "horizon must be more than a fifth of the number of values",
                self.horizon,
            ));
        }
        self.coefficient = coefficient;
        Ok(coefficient)
    }
}

/// A KL term of a loss: `coefficient` times the estimate, over the tokens and with the denominator of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KlPenalty {
    /// The estimator. Defaults to k3.
    pub estimator: KlEstimator,
    /// The factor; 0 excludes the term from the loss.
    pub coefficient: f64,
    /// Multiplies the estimate by the ratio of the token's policy term, gradient included. With the token's
    /// ratio `p / p_old` it is unbiased for tokens sampled by an older policy (DeepSeek-V3.2,
    /// <https://arxiv.org/abs/2512.02556>). If the loss has the ratio of a sequence, that one is used, as in
    /// TRL.
    pub importance_weighted: bool,
}

impl KlPenalty {
    pub(crate) fn checked(self, name: &str) -> Result<Self> {
        if self.coefficient.is_finite() && self.coefficient >= 0.0 {
            return Ok(self);
        }
        let detail = format!("{name}.coefficient must be a finite number >= 0: got {}", self.coefficient);
        Err(Error::new(ErrorKind::OutOfRange, detail))
    }

    /// Returns value and gradient with respect to `log p` of one token with the ratio `ratio`, which depends
    /// on `log p` too.
    pub(crate) fn at(&self, d: f64, ratio: f64) -> (f64, f64) {
        let (value, gradient) = self.estimator.at(d);
        if self.importance_weighted {
            return (ratio * value, ratio * (value + gradient));
        }
        (value, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_estimator_has_the_gradient_of_its_value() {
        for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
            for log_ratio in [-3.0, -0.2, 0.0, 0.7, 4.0, 19.999, 20.001, 31.0] {
                let step = 1e-6;
                // d falls as log p rises, so the difference is reversed.
                let slope =
                    (estimator.at(log_ratio - step).0 - estimator.at(log_ratio + step).0) / (2.0 * step);
                let gradient = estimator.at(log_ratio).1;
                assert!(
                    (slope - gradient).abs() <= 1e-5 * gradient.abs().max(1.0),
                    "{estimator:?} at {log_ratio}"
                );
            }
        }
    }

    #[test]
    fn k3_stays_finite_and_k1_can_be_negative() {
        assert!(KlEstimator::K3.at(1e6).0.is_finite());
        assert_eq!(KlEstimator::K3.at(0.0), (0.0, 0.0));
        assert_eq!(KlEstimator::K1.at(0.5).0, -0.5);
    }

    #[test]
    fn an_importance_weight_enters_the_gradient_too() {
        let penalty = KlPenalty { coefficient: 1.0, importance_weighted: true, ..KlPenalty::default() };
        let (reference, old, step) = (-1.3, -0.9, 1e-6);
        let value = |log_prob: f64| penalty.at(reference - log_prob, libm::exp(log_prob - old)).0;
        let gradient = penalty.at(reference + 0.6, libm::exp(-0.6 - old)).1;
        assert!((gradient - (value(-0.6 + step) - value(-0.6 - step)) / (2.0 * step)).abs() < 1e-9);
    }

    #[test]
    fn a_trained_nan_is_refused_by_name_and_a_masked_one_is_not_read() {
        let estimate =
            |mask: &[u8]| kl_estimate(&[-1.0, f64::NAN], &[-1.0, -1.0], mask, KlEstimator::K3, Compute::Cpu);
        assert_eq!(estimate(&[1, 0]).unwrap().grad_log_prob, [0.0, 0.0]);
        assert_eq!(estimate(&[1, 1]).unwrap_err().to_string(), "log_prob[1] must be finite: got NaN");
        assert_eq!(estimate(&[1]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
        assert_eq!(estimate(&[0, 0]).unwrap().mean, 0.0);
    }
}
