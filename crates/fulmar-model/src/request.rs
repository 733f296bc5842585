//! Requests of sequences, and the parameters of their sampling.

use fulmar_core::limits::{SEQUENCE_TOKENS_MAX, TOP_LOG_PROBS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_objective::{DrawOptions, draw, draw_rng};
use serde::Deserialize;

use crate::config::DecoderConfig;
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
