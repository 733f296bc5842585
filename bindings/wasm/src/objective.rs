//! The face of `fulmar-objective`: losses, advantages, KL estimates, token drawing.

mod groups;
mod losses;
#[cfg(feature = "whole")]
mod steps;

use fulmar::core::{Error, Result as CoreResult, index_from_f64, integer_from_f64, options_from_json};
use fulmar::objective::{self, DrawContext, DrawOptions, Groups};
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Advantages within groups.
#[wasm_bindgen(getter_with_clone)]
pub struct GroupAdvantage {
    /// `[R]`
    pub advantage: Vec<f32>,
    /// `[N]`
    pub mean: Vec<f64>,
    /// `[N]`
    pub std: Vec<f64>,
    /// `[N]` 0 or 1.
    pub degenerate: Vec<u8>,
}

impl TryFrom<objective::GroupAdvantage> for GroupAdvantage {
    type Error = Error;

    fn try_from(result: objective::GroupAdvantage) -> CoreResult<Self> {
        let degenerate = result.degenerate.iter().map(|&flag| u8::from(flag)).collect();
        Ok(Self { advantage: result.advantage_f32()?, mean: result.mean, std: result.std, degenerate })
    }
}

/// Compares each reward with those of its group.
#[wasm_bindgen(js_name = groupAdvantage)]
pub fn group_advantage(
    options_json: &str,
    reward: &[f64],
    scored: Option<Vec<u8>>,
    group_size: Option<f64>,
    group_offsets: Option<Vec<u32>>,
) -> Result<GroupAdvantage> {
    guard(move || {
        let options = options_from_json("groupAdvantage", options_json)?;
        let size = group_size.map(|size| index_from_f64("groupSize", size)).transpose()?;
        let groups = Groups::either(size, group_offsets.as_deref())?;
        let result = objective::group_advantage(reward, scored.as_deref(), groups, &options)?;
        result.try_into()
    })
}

/// A KL divergence over masked tokens.
#[wasm_bindgen(getter_with_clone)]
pub struct KlEstimate {
    /// The mean over the masked tokens.
    pub mean: f64,
    /// The number of masked tokens.
    #[wasm_bindgen(js_name = numTokens)]
    pub num_tokens: f64,
    /// `[T]`
    pub kl: Vec<f32>,
    /// `[T]`
    #[wasm_bindgen(js_name = gradLogProb)]
    pub grad_log_prob: Vec<f32>,
}

/// Estimates a KL divergence.
#[wasm_bindgen(js_name = klEstimate)]
pub fn kl_estimate(
    estimator_json: Option<String>,
    log_prob: &[f32],
    ref_log_prob: &[f32],
    mask: &[u8],
    device: &str,
) -> Result<KlEstimate> {
    guard(|| {
        let estimator = estimator_json.map(|json| options_from_json("estimator", &json)).transpose()?;
        let result = objective::kl_estimate(
            log_prob,
            ref_log_prob,
            mask,
            estimator.unwrap_or_default(),
            groups::compute_of(device)?,
        )?;
        let objective::KlEstimate { mean, num_tokens, kl, grad_log_prob } = result;
        Ok(KlEstimate { mean, num_tokens: num_tokens as f64, kl, grad_log_prob })
    })
}

/// One drawn token.
#[wasm_bindgen]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the model.
    #[wasm_bindgen(js_name = logProb)]
    pub log_prob: f64,
    /// Its log-probability under the distribution that it was drawn from.
    #[wasm_bindgen(js_name = sampledLogProb)]
    pub sampled_log_prob: f64,
}

/// Draws token number `drawIndex` of the request with `seed`.
#[wasm_bindgen(js_name = drawToken)]
pub fn draw_token(
    options_json: &str,
    logits: &[f32],
    prompt_ids: Option<Vec<u32>>,
    output_ids: Option<Vec<u32>>,
    allowed: Option<Vec<u32>>,
    seed: f64,
    draw_index: f64,
) -> Result<Draw> {
    guard(move || {
        let options: DrawOptions = options_from_json("drawToken", options_json)?;
        let context = context_of(&prompt_ids, &output_ids, &allowed);
        let (seed, index) = (integer_from_f64("seed", seed)?, integer_from_f64("drawIndex", draw_index)?);
        let token = objective::draw_in(logits, &options, &context, &mut objective::draw_rng(seed, index))?;
        let (log_prob, sampled_log_prob) = (token.log_prob.into(), token.sampled_log_prob.into());
        Ok(Draw { id: token.id, log_prob, sampled_log_prob })
    })
}

/// Returns the distribution that `drawToken` draws from.
#[wasm_bindgen(js_name = drawProbabilities)]
pub fn draw_probabilities(
    options_json: &str,
    logits: &[f32],
    prompt_ids: Option<Vec<u32>>,
    output_ids: Option<Vec<u32>>,
    allowed: Option<Vec<u32>>,
) -> Result<Vec<f64>> {
    guard(move || {
        let options = options_from_json("drawToken", options_json)?;
        objective::draw_probabilities(logits, &options, &context_of(&prompt_ids, &output_ids, &allowed))
    })
}

fn context_of<'a>(
    prompt_ids: &'a Option<Vec<u32>>,
    output_ids: &'a Option<Vec<u32>>,
    allowed: &'a Option<Vec<u32>>,
) -> DrawContext<'a> {
    DrawContext {
        prompt_ids: prompt_ids.as_deref().unwrap_or_default(),
        output_ids: output_ids.as_deref().unwrap_or_default(),
        allowed: allowed.as_deref(),
    }
}

/// Returns the mask that allows some of `vocabSize` tokens.
#[wasm_bindgen(js_name = tokenMask)]
pub fn token_mask(vocab_size: f64, ids: &[u32]) -> Result<Vec<u32>> {
    guard(|| objective::token_mask(index_from_f64("vocabSize", vocab_size)?, ids))
}
