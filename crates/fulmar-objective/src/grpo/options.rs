//! The options of the loss.

use fulmar_core::Device;
use serde::Deserialize;

use crate::Normalization;
use crate::clip::Clip;
use crate::correction::Correction;
use crate::kl::KlPenalty;
use crate::surrogate::{RatioLevel, Surrogate};

/// Options of [`GrpoLoss`](crate::GrpoLoss); [`GrpoLoss::new`](crate::GrpoLoss::new) checks them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GrpoOptions {
    /// The level of the ratio. Defaults to the token.
    pub ratio: RatioLevel,
    /// The rule that bounds the ratio. Defaults to clipping.
    pub surrogate: Surrogate,
    /// Corrections for another sampler, in order; they need `sampler_log_prob`. None by default.
    pub corrections: Vec<Correction>,
    /// Rejects tokens of negative advantage in sequences whose mean of `log q - log p` exceeds it, with `q`
    /// the sampler's probability or else the old one (DeepSeek-V3.2, <https://arxiv.org/abs/2512.02556>); at
    /// least 0. Off by default.
    pub off_policy_threshold: Option<f64>,
    /// If true, rejected tokens still count in denominators and in other terms, as in TRL. Defaults to false.
    pub keep_rejected: bool,
    /// The clip range of the ratio. Defaults to 0.2 on both sides.
    pub clip_epsilon: Clip,
    /// The largest ratio that still pushes down a token with a negative advantage; above `1 + high`. Off by
    /// default.
    pub dual_clip: Option<f64>,
    /// The denominator of sums over tokens. Defaults to the number of trained tokens.
    pub normalization: Normalization,
    /// The KL penalty against the reference; needs `ref_log_prob` if its coefficient is above 0.
    pub kl_to_ref: KlPenalty,
    /// The KL penalty against the policy that sampled the tokens.
    pub kl_to_inference: KlPenalty,
    /// Drops tokens whose `(log p - log p_old)^2 / 2` exceeds it; above 0. Off by default.
    pub kl_mask_threshold: Option<f64>,
    /// Drops tokens whose `|log p - log p_old|` exceeds it, in nats, in `(0, 700]`. Defaults to 20.
    pub log_ratio_max: f64,
    /// If true, keeps these tokens with the ratio at the bound, which has no gradient, as torchtitan does.
    /// Defaults to false.
    pub clamp_log_ratio: bool,
    /// Weight of the entropy bonus; needs `entropy` in the batch if above 0.
    pub entropy_coefficient: f64,
    /// The share of trained tokens, those with the highest entropy, that keep their policy term and their
    /// entropy bonus (<https://arxiv.org/abs/2506.01939>); in `(0, 1]`, below 1 it needs `entropy`.
    /// Denominators and KL terms include all tokens. Defaults to 1.
    pub top_entropy_quantile: f64,
    /// The device. Defaults to the CPU.
    pub device: Device,
}

impl Default for GrpoOptions {
    fn default() -> Self {
        Self {
            ratio: RatioLevel::default(),
            surrogate: Surrogate::default(),
            corrections: Vec::new(),
            off_policy_threshold: None,
            keep_rejected: false,
            clip_epsilon: Clip::default(),
            dual_clip: None,
            normalization: Normalization::default(),
            kl_to_ref: KlPenalty::default(),
            kl_to_inference: KlPenalty::default(),
            kl_mask_threshold: None,
            log_ratio_max: 20.0,
            clamp_log_ratio: false,
            entropy_coefficient: 0.0,
            top_entropy_quantile: 1.0,
            device: Device::Cpu,
        }
    }
}
