//! The face of `fulmar-objective`: losses, advantages, KL estimates, token drawing.

mod groups;
mod losses;
mod steps;

use fulmar::core::{Error, Result as CoreResult, index_from_f64, integer_from_f64, options_from_json};
use fulmar::objective::{self, DrawContext, DrawOptions, Groups};
use napi::bindgen_prelude::{Uint8Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::memory::{Float32Array, Float64Array};

/// Advantages within groups.
#[napi(object, object_from_js = false)]
pub struct GroupAdvantage {
    /// `[R]`
    pub advantage: Float32Array,
    /// `[N]`
    pub mean: Float64Array,
    /// `[N]`
    pub std: Float64Array,
    /// `[N]` 0 or 1.
    pub degenerate: Uint8Array,
}

impl TryFrom<objective::GroupAdvantage> for GroupAdvantage {
    type Error = Error;

    fn try_from(result: objective::GroupAdvantage) -> CoreResult<Self> {
        Ok(Self {
            advantage: result.advantage_f32()?.into(),
            mean: result.mean.into(),
            std: result.std.into(),
            degenerate: result.degenerate.iter().map(|&flag| u8::from(flag)).collect::<Vec<_>>().into(),
        })
    }
}

/// Compares each reward with those of its group.
#[napi]
pub fn group_advantage(
    options_json: String,
    reward: &[f64],
    scored: Option<&[u8]>,
    group_size: Option<f64>,
    group_offsets: Option<&[u32]>,
) -> Result<GroupAdvantage> {
    guard(|| {
        let options = options_from_json("groupAdvantage", &options_json)?;
        let size = group_size.map(|size| index_from_f64("groupSize", size)).transpose()?;
        let groups = Groups::either(size, group_offsets)?;
        let result = objective::group_advantage(reward, scored, groups, &options)?;
        result.try_into()
    })
}

/// A KL divergence over masked tokens.
#[napi(object, object_from_js = false)]
pub struct KlEstimate {
    /// The mean over the masked tokens.
    pub mean: f64,
    /// The number of masked tokens.
    pub num_tokens: f64,
    /// `[T]`
    pub kl: Float32Array,
    /// `[T]`
    pub grad_log_prob: Float32Array,
}

/// Estimates a KL divergence.
#[napi]
pub fn kl_estimate(
    estimator_json: Option<String>,
    log_prob: &[f32],
    ref_log_prob: &[f32],
    mask: &[u8],
    device: String,
) -> Result<KlEstimate> {
    guard(|| {
        let estimator = estimator_json.map(|json| options_from_json("estimator", &json)).transpose()?;
        let result = objective::kl_estimate(
            log_prob,
            ref_log_prob,
            mask,
            estimator.unwrap_or_default(),
            groups::compute_of(&device)?,
        )?;
        Ok(KlEstimate {
            mean: result.mean,
            num_tokens: result.num_tokens as f64,
            kl: result.kl.into(),
            grad_log_prob: result.grad_log_prob.into(),
        })
    })
}

/// One drawn token.
#[napi(object)]
pub struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability under the model.
    pub log_prob: f64,
    /// Its log-probability under the distribution that it was drawn from.
    pub sampled_log_prob: f64,
}

/// Draws token number `drawIndex` of the request with `seed`.
#[napi]
pub fn draw_token(
    options_json: String,
    logits: &[f32],
    prompt_ids: Option<&[u32]>,
    output_ids: Option<&[u32]>,
    allowed: Option<&[u32]>,
    seed: f64,
    draw_index: f64,
) -> Result<Draw> {
    guard(|| {
        let options: DrawOptions = options_from_json("drawToken", &options_json)?;
        let context = context_of(prompt_ids, output_ids, allowed);
        let (seed, index) = (integer_from_f64("seed", seed)?, integer_from_f64("drawIndex", draw_index)?);
        let token = objective::draw_in(logits, &options, &context, &mut objective::draw_rng(seed, index))?;
        let (log_prob, sampled_log_prob) = (token.log_prob.into(), token.sampled_log_prob.into());
        Ok(Draw { id: token.id, log_prob, sampled_log_prob })
    })
}

/// Returns the distribution that `drawToken` draws from.
#[napi]
pub fn draw_probabilities(
    options_json: String,
    logits: &[f32],
    prompt_ids: Option<&[u32]>,
    output_ids: Option<&[u32]>,
    allowed: Option<&[u32]>,
) -> Result<Float64Array> {
    guard(|| {
        let options = options_from_json("drawToken", &options_json)?;
        let context = context_of(prompt_ids, output_ids, allowed);
        Ok(objective::draw_probabilities(logits, &options, &context)?.into())
    })
}

fn context_of<'a>(
    prompt_ids: Option<&'a [u32]>,
    output_ids: Option<&'a [u32]>,
    allowed: Option<&'a [u32]>,
) -> DrawContext<'a> {
    DrawContext {
        prompt_ids: prompt_ids.unwrap_or_default(),
        output_ids: output_ids.unwrap_or_default(),
        allowed,
    }
}

/// Returns the mask that allows some of `vocabSize` tokens.
#[napi]
pub fn token_mask(vocab_size: f64, ids: &[u32]) -> Result<Uint32Array> {
    guard(|| Ok(objective::token_mask(index_from_f64("vocabSize", vocab_size)?, ids)?.into()))
}
