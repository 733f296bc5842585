//! The loss of reward models: of two answers to one prompt, the chosen one should get the higher reward.
//!
//! ```text
//! P(chosen) = sigmoid(r_chosen - r_rejected - margin)
//! loss      = mean over pairs of  -log P + center_coefficient (r_chosen + r_rejected)^2
//! ```
//!
//! R. Bradley and M. Terry, 1952; P. Christiano and others, 2017, <https://arxiv.org/abs/1706.03741>. The second term keeps rewards
//! around 0: J. Eisenstein and others, 2023, <https://arxiv.org/abs/2312.09244>.
//!
//! With `offsets` each pair has a reward for each token, and its loss is the mean over the compared tokens
//! (TorchRL's `GPT2RewardModel`: from the first token at which the answers differ to the end of the longer
//! one).

use std::iter;

use fulmar_compute::{Compute, dispatch};
use fulmar_core::{Device, Result};
use serde::Deserialize;

use crate::Real;
use crate::batch::{check_len, check_offsets, finite};
use crate::clip::out_of_range;
use crate::output::{Metric, finite_loss, finite_metrics, narrow};
use crate::surrogate::sigmoid;

/// Pairs of answers. All slices have one entry for each pair, or one for each compared token.
#[derive(Debug, Clone, Copy)]
pub struct RewardPairs<'a, T = f32> {
    /// The reward of the better answer.
    pub chosen: &'a [T],
    /// The reward of the rejected answer.
    pub rejected: &'a [T],
    /// The margin by which the chosen answer should lead; 0 if absent.
    pub margin: Option<&'a [T]>,
    /// `[P + 1]` bounds of the pairs if entries are tokens; a pair without tokens, of equal answers, is not
    /// counted.
    pub offsets: Option<&'a [u32]>,
}

/// Options of [`BradleyTerryLoss`]; [`BradleyTerryLoss::new`] checks them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BradleyTerryOptions {
    /// Weight of the squared sum of a pair, at least 0. Defaults to 0.
    pub center_coefficient: f64,
    /// The denominator of sums over pairs, for the whole optimizer step. Defaults to the pairs of this batch.
    pub num_pairs: Option<f64>,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

/// Value, metrics and gradients over a batch of pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct BradleyTerryOutput<T = f32> {
    /// The sum of both terms.
    pub loss: f64,
    /// Numbers to log, in a fixed order.
    pub metrics: Vec<Metric>,
    /// Derivative of the loss with respect to each reward of `chosen`.
    pub grad_chosen: Vec<T>,
    /// Derivative of the loss with respect to each reward of `rejected`.
    pub grad_rejected: Vec<T>,
}

/// The loss of reward models, see the module for its formula.
///
/// # Examples
/// ```
/// use fulmar_objective::{BradleyTerryLoss, RewardPairs};
/// let pairs = RewardPairs { chosen: &[1.0_f32], rejected: &[1.0], margin: None, offsets: None };
/// let output = BradleyTerryLoss::default().forward(&pairs)?;
/// assert_eq!((output.loss, output.grad_chosen, output.grad_rejected), (2.0_f64.ln(), vec![-0.5], vec![0.5]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BradleyTerryLoss {
    options: BradleyTerryOptions,
    compute: Compute,
}

impl BradleyTerryLoss {
    /// Checks `options`.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfRange` if an option is outside its
    /// documented range.
    pub fn new(options: BradleyTerryOptions) -> Result<Self> {
        let coefficient = options.center_coefficient;
        if !(coefficient.is_finite() && coefficient >= 0.0) {
            return Err(out_of_range("centerCoefficient must be a finite number >= 0", coefficient));
        }
        if let Some(count) = options.num_pairs.filter(|count| !(count.is_finite() && *count >= 1.0)) {
            return Err(out_of_range("numPairs must be a finite number >= 1", count));
        }
        Ok(Self { compute: Compute::on(options.device)?, options })
    }

    /// Returns value, metrics and gradients over `pairs`. Sums run in f64 in order; without pairs everything
    /// is 0.
    ///
    /// Metrics: `accuracy` (share of entries in which the chosen answer has the higher reward), `margin`,
    /// `meanReward`, `numPairs`.
    ///
    /// # Errors
    /// `ShapeMismatch` if lengths differ; `OutOfRange` for decreasing offsets; `NonFinite` if a reward, a
    /// margin or the result is not finite.
    pub fn forward<T: Real>(&self, pairs: &RewardPairs<'_, T>) -> Result<BradleyTerryOutput<T>> {
        dispatch!(self.compute, cpu => self.forward_on_cpu(pairs))
    }

    fn forward_on_cpu<T: Real>(&self, pairs: &RewardPairs<'_, T>) -> Result<BradleyTerryOutput<T>> {
        let count = pairs.chosen.len();
        check_len("rejected", pairs.rejected.len(), "chosen", count)?;
        pairs.margin.map_or(Ok(()), |margin| check_len("margin", margin.len(), "chosen", count))?;
        let center = self.options.center_coefficient;
        let length_p = match pairs.offsets {
            None => vec![1; count],
            Some(offsets) => {
                check_offsets(offsets, count)?;
                offsets
                    .windows(2)
                    .map(|pair| (pair[1] - pair[0]) as usize)
                    .filter(|length| *length > 0)
                    .collect()
            }
        };
        let num_pairs = length_p.len() as f64;
        let weight_p = 1.0 / self.options.num_pairs.unwrap_or(num_pairs).max(1.0);
        let weights = length_p.iter().flat_map(|&length| iter::repeat_n(weight_p / length as f64, length));
        let (mut loss, mut right, mut ahead, mut rewards) = (0.0, 0.0, 0.0, 0.0);
        let (mut grad_chosen, mut grad_rejected) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, weight) in weights.enumerate() {
            let chosen = finite("chosen", index, pairs.chosen[index].into())?;
            let rejected = finite("rejected", index, pairs.rejected[index].into())?;
            let margin =
                pairs.margin.map_or(Ok(0.0), |margin| finite("margin", index, margin[index].into()))?;
            let (difference, sum) = (chosen - rejected, chosen + rejected);
            loss += weight * (softplus(margin - difference) + center * sum * sum);
            let slope = sigmoid(margin - difference);
            grad_chosen.push(weight * (2.0 * center * sum - slope));
            grad_rejected.push(weight * (2.0 * center * sum + slope));
            right += f64::from(u8::from(chosen > rejected));
            ahead += difference;
            rewards += sum;
        }
        let denominator = count as f64;
        let mean = |name, sum: f64| Metric { name, value: sum / denominator.max(1.0), denominator };
        let metrics = vec![
            mean("accuracy", right),
            mean("margin", ahead),
            mean("meanReward", rewards / 2.0),
            Metric { name: "numPairs", value: num_pairs, denominator: 1.0 },
        ];
        Ok(BradleyTerryOutput {
            loss: finite_loss(loss)?,
            metrics: finite_metrics(metrics)?,
            grad_chosen: narrow(&grad_chosen)?,
            grad_rejected: narrow(&grad_rejected)?,
        })
    }
}

/// Returns `log(1 + e^x)`, which is `-log sigmoid(-x)`, without overflow.
pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}
