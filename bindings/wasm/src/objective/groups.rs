//! Queues of groups, and numbers of tokens and rollouts.
//!
//! The table is `bindings/faces/objective_groups.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use super::GroupAdvantage;
use crate::error::{Result, guard};
use crate::face::face;

/// Returns the indices of the chosen candidates as JSON, or null.
#[wasm_bindgen(js_name = selectRollouts)]
pub fn select_rollouts(
    options_json: &str,
    returns: &[f64],
    group_size: f64,
    bounds_json: &str,
) -> Result<String> {
    guard(|| chosen_of(options_json, returns, group_size, bounds_json))
}

/// Returns the advantages of rollouts with several rewards.
#[wasm_bindgen(js_name = multiRewardAdvantage)]
pub fn multi_reward_advantage(
    options_json: &str,
    aggregation_json: &str,
    reward: &[f64],
    scored: Option<Vec<u8>>,
    weights: &[f64],
    group_size: Option<f64>,
    group_offsets: Option<Vec<u32>>,
) -> Result<GroupAdvantage> {
    guard(move || {
        let table = RewardTable { reward, scored: scored.as_deref(), weights };
        advantages_of([options_json, aggregation_json], table, group_size, group_offsets.as_deref())?
            .try_into()
    })
}

/// Returns `[2 T]`: KL estimates, then rewards minus these.
#[wasm_bindgen(js_name = klReward)]
pub fn kl_reward(
    options_json: &str,
    log_prob: &[f32],
    ref_log_prob: &[f32],
    mask: &[u8],
    offsets: &[u32],
    reward: &[f32],
) -> Result<Vec<f32>> {
    guard(|| {
        let options = options_from_json("klReward", options_json)?;
        Ok(kl_and_reward(objective::kl_reward(log_prob, ref_log_prob, mask, offsets, reward, &options)?))
    })
}

/// Returns `[T]`, the factor of each token under one importance correction.
#[wasm_bindgen(js_name = importanceWeights)]
pub fn importance_weights(
    options_json: &str,
    old_log_prob: &[f32],
    sampler_log_prob: &[f32],
    mask: &[u8],
    offsets: &[u32],
    device: &str,
) -> Result<Vec<f64>> {
    guard(|| {
        let correction = options_from_json("importanceWeights", options_json)?;
        objective::importance_weights(
            old_log_prob,
            sampler_log_prob,
            mask,
            offsets,
            &correction,
            compute_of(device)?,
        )
    })
}

/// Returns `[2 N]` or `[3 N]`: log-probabilities of ids under rows of logits, entropies, and logarithms of sums of squared probabilities.
#[wasm_bindgen(js_name = tokenLogProbs)]
pub fn token_log_probs(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    device: &str,
    with_squares: bool,
) -> Result<Vec<f32>> {
    guard(|| token_log_probs_of((logits, ids), temperature, device, with_squares))
}

/// Returns `[N, V]`, the gradient by logits, given those by log-probabilities and, after them, by entropies.
#[wasm_bindgen(js_name = tokenLogProbsBackward)]
pub fn token_log_probs_backward(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    gradients: &[f32],
    device: &str,
) -> Result<Vec<f32>> {
    guard(|| logits_gradient(logits, ids, temperature, gradients, device))
}

/// Returns `[2 N]` or `[3 N]`: the same for hidden states and a linear head.
#[wasm_bindgen(js_name = headLogProbs)]
pub fn head_log_probs(
    hidden: &[f32],
    weight: &[f32],
    bias: Option<Vec<f32>>,
    width: f64,
    ids: &[u32],
    temperature: f64,
    device: &str,
    with_squares: bool,
) -> Result<Vec<f32>> {
    guard(move || {
        let head = head_of(weight, bias.as_deref(), [width, temperature], device)?;
        head_log_probs_of(head, hidden, ids, with_squares)
    })
}

/// Returns the gradients by hidden states, then weights, then bias.
#[wasm_bindgen(js_name = headBackward)]
pub fn head_backward(
    hidden: &[f32],
    weight: &[f32],
    bias: Option<Vec<f32>>,
    width: f64,
    ids: &[u32],
    temperature: f64,
    gradients: &[f32],
    device: &str,
) -> Result<Vec<f32>> {
    guard(move || {
        let head = head_of(weight, bias.as_deref(), [width, temperature], device)?;
        Ok(all_of(head.backward(hidden, ids, split(gradients, ids.len()))?))
    })
}

include!("../../../faces/objective_groups.rs");
