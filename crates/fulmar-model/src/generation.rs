//! Requests, sampling parameters and drawn sequences.

use std::collections::HashMap;

use fulmar_core::limits::{SEQUENCE_TOKENS_MAX, TOP_LOG_PROBS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_objective::{DrawOptions, draw, draw_rng};
use serde::Deserialize;

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::engine::{Engine, EngineOptions};
use crate::packing::{check_ids, check_limit};

/// Parameters of generating a sequence.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SamplingParams {
    /// Maximum number of tokens to draw, the stop token included; at least 1.
    pub max_tokens: usize,
    /// Ids that end the sequence once drawn.
    pub stop_ids: Vec<u32>,
    /// Number of likeliest ids to return with each token, with their log-probs; at most the vocabulary.
    pub top_log_probs: usize,
    /// The options of each draw.
    pub draw: DrawOptions,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self { max_tokens: 16, stop_ids: Vec::new(), top_log_probs: 0, draw: DrawOptions::default() }
    }
}

/// One sequence to generate.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The tokens before the completion, at least one.
    pub prompt_ids: &'a [u32],
    /// Seed of the random stream of this sequence; token `n` uses its word `n`.
    pub seed: u64,
}

impl Request<'_> {
    /// Refuses a request that a model of this shape cannot run.
    pub(crate) fn check(&self, params: &SamplingParams, config: &DecoderConfig) -> Result<()> {
        params.draw.check()?;
        if params.max_tokens == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "maxTokens must be >= 1: got 0"));
        }
        if self.prompt_ids.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "prompt must have at least one token: got 0"));
        }
        check_ids(self.prompt_ids, config)?;
        let longest = self.prompt_ids.len().saturating_add(params.max_tokens);
        let max = config.max_position_embeddings.min(SEQUENCE_TOKENS_MAX);
        check_limit("prompt and maxTokens together", longest, max)?;
        let DrawOptions { logit_bias, banned_ids, sequence_bias, bad_words_ids, .. } = &params.draw;
        let names_ids = !(logit_bias.is_empty()
            && banned_ids.is_empty()
            && sequence_bias.is_empty()
            && bad_words_ids.is_empty());
        if names_ids {
            draw(&vec![0.0; config.vocab_size], &params.draw, &mut draw_rng(self.seed, 0))?;
        }
        check_top_log_probs(params.top_log_probs, params.max_tokens, config)
    }
}

/// Refuses more likeliest ids than the vocabulary has, or than fit in memory.
pub(crate) fn check_top_log_probs(count: usize, tokens: usize, config: &DecoderConfig) -> Result<()> {
    if count > config.vocab_size {
        let detail = format!("top log-probs must be at most vocab_size ({}): got {count}", config.vocab_size);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if count.saturating_mul(tokens) > TOP_LOG_PROBS_MAX {
        let detail = format!(
            "top log-probs must be at most {TOP_LOG_PROBS_MAX} in all: got {count} a token of {tokens}"
        );
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

/// The reason why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop id was drawn; it is the last of the ids.
    Stop,
    /// `max_tokens` were drawn.
    Length,
    /// The request was aborted.
    Abort,
    /// The model's logits for it were not finite.
    NonFinite,
    /// Its options allowed no token.
    NoToken,
}

/// The drawn part of one sequence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// Drawn ids, the stop id included.
    pub ids: Vec<u32>,
    /// The model's own log-prob (temperature 1) of each id, with the bits of [`Decoder::forward`].
    pub log_prob: Vec<f32>,
    /// Log-prob of each id under the distribution it was drawn from.
    pub sampled_log_prob: Vec<f32>,
    /// [`Decoder::version`] of the weights that each id was drawn under.
    pub versions: Vec<u64>,
    /// For each id, the likeliest ids at its position with their log-probs, the likeliest first.
    pub top_log_probs: Vec<Vec<(u32, f32)>>,
    /// The reason why it ended, or `None` while it runs.
    pub finish_reason: Option<FinishReason>,
}

/// Draws a sequence for each request, all in one new [`Engine`].
///
/// # Errors
/// `Empty` without a request, or if options allow no token; the errors of [`Engine::add`], with the request's
/// number; the errors of [`Engine::steps`]; `NonFinite`, with the request's number, if the model's logits for
/// it are not finite.
///
/// # Examples
/// ```
/// use fulmar_model::{Decoder, DecoderConfig, Request, SamplingParams, generate};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let decoder = Decoder::new(config, 42)?;
/// let params = SamplingParams { max_tokens: 5, ..Default::default() };
/// let found = generate(&decoder, &[Request { prompt_ids: &[1, 2, 3], seed: 7 }], &params)?;
/// assert_eq!(found[0].ids.len(), 5);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn generate(
    decoder: &Decoder,
    requests: &[Request<'_>],
    params: &SamplingParams,
) -> Result<Vec<Generated>> {
    if requests.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "requests must hold at least one request: got 0"));
    }
    let mut engine = Engine::new(decoder.config(), EngineOptions::default())?;
    let mut index_of = HashMap::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        let id = engine.add(request, params).map_err(|error| error.at(format!("request {index}")))?;
        index_of.insert(id, index);
    }
    while engine.steps(decoder, 1)? > 0 {}
    let mut generated = vec![Generated::default(); requests.len()];
    let outputs = engine.take_outputs();
    for token in outputs.tokens {
        generated[index_of[&token.request]].push(token);
    }
    for (request, reason) in outputs.finished {
        let index = index_of[&request];
        if reason == FinishReason::NonFinite {
            let drawn = generated[index].ids.len();
            let detail = format!("logits must be finite: one is not, after {drawn} drawn tokens");
            return Err(Error::new(ErrorKind::NonFinite, detail).at(format!("request {index}")));
        }
        if reason == FinishReason::NoToken {
            let drawn = generated[index].ids.len();
            let detail = format!(
                "the options must leave at least one token to draw: 0 are left after {drawn} drawn tokens"
            );
            return Err(Error::new(ErrorKind::Empty, detail).at(format!("request {index}")));
        }
        generated[index].finish_reason = Some(reason);
    }
    Ok(generated)
}
