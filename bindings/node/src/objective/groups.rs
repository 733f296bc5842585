//! Queues of groups, and numbers of tokens and rollouts.
//!
//! The table is `bindings/faces/objective_groups.rs`, the same for WebAssembly.

// A gradient by logits or by a head's weights is too large to be copied.
use napi::bindgen_prelude::Float32Array as GradientArray;
use napi_derive::napi;

use super::GroupAdvantage;
use crate::error::{Result, guard};
use crate::face::face;
use crate::memory::{Float32Array, Float64Array};
use crate::slot::Slot;

/// Returns the indices of the chosen candidates as JSON, or null.
#[napi]
pub fn select_rollouts(
    options_json: String,
    returns: &[f64],
    group_size: f64,
    bounds_json: String,
) -> Result<String> {
    guard(|| chosen_of(&options_json, returns, group_size, &bounds_json))
}

/// Returns the advantages of rollouts with several rewards.
#[napi]
pub fn multi_reward_advantage(
    options_json: String,
    aggregation_json: String,
    reward: &[f64],
    scored: Option<&[u8]>,
    weights: &[f64],
    group_size: Option<f64>,
    group_offsets: Option<&[u32]>,
) -> Result<GroupAdvantage> {
    guard(|| {
        let table = RewardTable { reward, scored, weights };
        advantages_of([&options_json, &aggregation_json], table, group_size, group_offsets)?.try_into()
    })
}

/// Returns `[2 T]`: KL estimates, then rewards minus these.
#[napi]
pub fn kl_reward(
    options_json: String,
    log_prob: &[f32],
    ref_log_prob: &[f32],
    mask: &[u8],
    offsets: &[u32],
    reward: &[f32],
) -> Result<Float32Array> {
    guard(|| {
        let options = options_from_json("klReward", &options_json)?;
        Ok(kl_and_reward(objective::kl_reward(log_prob, ref_log_prob, mask, offsets, reward, &options)?)
            .into())
    })
}

/// Returns `[T]`, the factor of each token under one importance correction.
#[napi]
pub fn importance_weights(
    options_json: String,
    old_log_prob: &[f32],
    sampler_log_prob: &[f32],
    mask: &[u8],
    offsets: &[u32],
    device: String,
) -> Result<Float64Array> {
    guard(|| {
        let correction = options_from_json("importanceWeights", &options_json)?;
        Ok(objective::importance_weights(
            old_log_prob,
            sampler_log_prob,
            mask,
            offsets,
            &correction,
            compute_of(&device)?,
        )?
        .into())
    })
}

/// Returns `[2 N]` or `[3 N]`: log-probabilities of ids under rows of logits, entropies, and logarithms of sums of squared probabilities.
#[napi]
pub fn token_log_probs(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    device: String,
    with_squares: bool,
) -> Result<Float32Array> {
    guard(|| Ok(token_log_probs_of((logits, ids), temperature, &device, with_squares)?.into()))
}

/// Returns `[N, V]`, the gradient by logits, given those by log-probabilities and, after them, by entropies.
#[napi(ts_return_type = "Float32Array")]
pub fn token_log_probs_backward(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    gradients: &[f32],
    device: String,
) -> Result<GradientArray> {
    guard(|| Ok(logits_gradient(logits, ids, temperature, gradients, &device)?.into()))
}

/// Returns `[2 N]` or `[3 N]`: the same for hidden states and a linear head.
#[napi]
pub fn head_log_probs(
    hidden: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    width: f64,
    ids: &[u32],
    temperature: f64,
    device: String,
    with_squares: bool,
) -> Result<Float32Array> {
    guard(|| {
        let head = head_of(weight, bias, [width, temperature], &device)?;
        Ok(head_log_probs_of(head, hidden, ids, with_squares)?.into())
    })
}

/// Returns the gradients by hidden states, then weights, then bias.
#[napi(ts_return_type = "Float32Array")]
pub fn head_backward(
    hidden: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    width: f64,
    ids: &[u32],
    temperature: f64,
    gradients: &[f32],
    device: String,
) -> Result<GradientArray> {
    guard(|| {
        let head = head_of(weight, bias, [width, temperature], &device)?;
        Ok(all_of(head.backward(hidden, ids, split(gradients, ids.len()))?).into())
    })
}

include!("../../../faces/objective_groups.rs");
