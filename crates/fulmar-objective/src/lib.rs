//! Losses with their gradients, advantages of groups and of steps, KL estimators and token drawing.
//!
//! Losses are functions of log-probabilities. [`GrpoLoss::forward`] returns the value, numbers to log, and
//! the derivative with respect to each log-probability, with which a model's backward pass continues. There
//! is no autograd tape.
//! Inputs are ragged (flat arrays with `offsets`), sums run in f64 in a fixed order, and `exp` and `log` are those of
//! `libm`, so equal inputs give equal bits natively and in WebAssembly.

mod advantage;
mod batch;
mod bradley_terry;
mod clip;
mod correction;
mod distillation;
mod dpo;
mod draw;
mod fused;
mod grpo;
mod grpo_preset;
mod kl;
mod kto;
mod mc_advantage;
mod normalization;
mod output;
mod preference;
mod real;
mod selector;
mod sft;
mod surrogate;
mod value;

pub use advantage::{
    AdvantageOptions, AdvantageScale, Baseline, GROUP_SIZE_MIN, GroupAdvantage, Groups, RewardAggregation,
    RewardTable, StdKind, group_advantage, multi_reward_advantage,
};
pub use batch::{Advantage, LossBatch, SftBatch};
pub use bradley_terry::{BradleyTerryLoss, BradleyTerryOptions, BradleyTerryOutput, RewardPairs};
pub use clip::Clip;
pub use correction::{Correction, CorrectionLevel, CorrectionRule, importance_weights};
pub use distillation::{DistillationLoss, DistillationOptions, KlDirection};
pub use dpo::{DpoLoss, DpoOptions, PreferenceBatch};
pub use draw::{
    Draw, DrawContext, DrawMethod, DrawOptions, DrawRow, RowDraw, RowDraws, draw, draw_in, draw_on,
    draw_probabilities, draw_rng, token_mask,
};
pub use fused::{
    HeadGradients, HeadGradientsMut, LOGITS_CHUNK, LinearHead, TokenGradients, TokenLogProbs, logits_loss,
    token_log_probs, token_log_probs_and_squares,
};
pub use grpo::{GrpoLoss, GrpoOptions, LOG_RATIO_LIMIT};
pub use grpo_preset::GrpoPreset;
pub use kl::{
    AdaptiveKlController, KL_LOG_RATIO_MAX, KlEstimate, KlEstimator, KlPenalty, KlReward, KlRewardOptions,
    RewardPlace, kl_estimate, kl_reward,
};
pub use kto::{KtoBatch, KtoLoss, KtoLossType, KtoOptions};
pub use mc_advantage::{McAdvantage, McAdvantageOptions, McAdvantageStats, McGroup, TrajectoryReturn};
pub use normalization::Normalization;
pub use output::{LossOutput, Metric, metrics_json};
pub use preference::{DpoLossType, FDivergence};
pub use real::Real;
pub use selector::{Compared, McAdvantageSelector, SelectionStrategy, TopKRewardOptions, TopKRewardSelector};
pub use sft::{SftLoss, SftOptions, SftOutput, SftReduction};
pub use surrogate::{Envelope, RatioLevel, Surrogate};
pub use value::{
    PerStep, StepBatch, TimeAxis, ValueEstimate, VtraceOptions, generalized_advantage_estimate, reward2go,
    standardized, td_lambda_advantage_estimate, td_lambda_return_estimate, td0_advantage_estimate,
    td0_return_estimate, td1_advantage_estimate, td1_return_estimate, vtrace_advantage_estimate,
};
