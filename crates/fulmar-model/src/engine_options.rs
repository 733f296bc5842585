//! The sizes of an engine.

use fulmar_core::limits::{BATCH_TOKENS_MAX, ENGINE_REQUESTS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::config::DecoderConfig;

/// The treatment of cached keys and values when the weights change between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WeightChange {
    /// Recompute them: each token's log-prob is that of the trainer's forward pass under the weights of its
    /// version.
    #[default]
    Recompute,
    /// Keep them: this costs no time, but tokens are drawn after keys and values of older weights.
    Keep,
}

/// The weights that an engine computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EngineWeights {
    /// The decoder's own: each token's log-prob is that of the trainer's forward pass, bit for bit.
    #[default]
    Same,
    /// The decoder's, rounded to 8 bits in blocks of 32 with a scale, as are the inputs of each product. Tokens are
    /// drawn several times as fast, from a policy whose log-probs differ a little from the decoder's: a loss must
    /// correct for it.
    Q8,
}

/// Most speculative tokens of a sequence in a step.
pub const SPECULATIVE_TOKENS_MAX: usize = 8;

/// The sizes of an engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineOptions {
    /// Number of tokens in a page, at least 1.
    pub page_size: usize,
    /// Maximum number of pages of keys and values. Defaults to the number that one GiB holds, but enough for
    /// one sequence of the model's maximum length. Memory is allocated as pages are used.
    pub num_pages: Option<usize>,
    /// Maximum number of sequences that run at once, per thread if threads decode on their own; at least 1.
    pub max_num_seqs: usize,
    /// Maximum number of tokens in one step, at least `max_num_seqs`. A longer prompt takes several steps.
    pub max_num_batched_tokens: usize,
    /// Maximum number of waiting requests.
    pub max_num_waiting: usize,
    /// The treatment of the cache when the weights change.
    pub on_weight_change: WeightChange,
    /// The weights to compute with.
    pub weights: EngineWeights,
    /// Maximum number of tokens that the weights in 8 bits draft for a sequence in a step, at most
    /// [`SPECULATIVE_TOKENS_MAX`]. One pass of the exact weights then verifies them. Tokens and log-probs are those
    /// without drafts, bit for bit. The engine drafts fewer as more sequences run, up to 16 rows a pass, or as fewer
    /// drafts are accepted; [`DrawMethod::GumbelMax`](fulmar_objective::DrawMethod::GumbelMax) has most accepted. 0,
    /// the default, drafts none.
    pub speculative_tokens: usize,
    /// Maximum number of bytes of activations that the decoder keeps of the rows that the engine computes with its
    /// own weights. [`Decoder::forward`](crate::Decoder::forward) of these sequences under the same version then
    /// computes the head alone, with the same bits; a change of the weights drops them, and later rows use their
    /// memory again. Rows beyond the limit are
    /// not kept, and a forward pass with such a row computes all. 0, the default, keeps none.
    pub activation_bytes_max: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            page_size: 16,
            num_pages: None,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            max_num_waiting: ENGINE_REQUESTS_MAX,
            on_weight_change: WeightChange::Recompute,
            weights: EngineWeights::Same,
            speculative_tokens: 0,
            activation_bytes_max: 0,
        }
    }
}

impl EngineOptions {
    /// Refuses sizes outside their range.
    ///
    /// # Errors
    /// `OutOfRange` or `LimitExceeded`, naming the option.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [
            ("pageSize", self.page_size),
            ("numPages", self.num_pages.unwrap_or(1)),
            ("maxNumSeqs", self.max_num_seqs),
            ("maxNumWaiting", self.max_num_waiting),
        ] {
            if value == 0 {
                return Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be >= 1: got 0")));
            }
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            let (tokens, seqs) = (self.max_num_batched_tokens, self.max_num_seqs);
            let detail = format!("maxNumBatchedTokens must be at least maxNumSeqs ({seqs}): got {tokens}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let tokens = self.page_size.saturating_mul(self.num_pages.unwrap_or(1));
        for (name, value, max) in [
            ("maxNumSeqs", self.max_num_seqs, ENGINE_REQUESTS_MAX),
            ("maxNumWaiting", self.max_num_waiting, ENGINE_REQUESTS_MAX),
            ("maxNumBatchedTokens", self.max_num_batched_tokens, BATCH_TOKENS_MAX),
            ("pageSize times numPages", tokens, BATCH_TOKENS_MAX),
            ("speculativeTokens", self.speculative_tokens, SPECULATIVE_TOKENS_MAX),
        ] {
            if value > max {
                let detail = format!("{name} must be at most {max}: got {value}");
                return Err(Error::new(ErrorKind::LimitExceeded, detail));
            }
        }
        if self.speculative_tokens > 0 && self.weights != EngineWeights::Same {
            let tokens = self.speculative_tokens;
            let detail = format!("speculativeTokens must be 0 with weights of 8 bits: got {tokens}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(())
    }

    /// Returns what engines on GPUs do not have yet and these options ask for.
    pub(crate) fn lacking_on_gpus(&self) -> Option<&'static str> {
        let lacking = [
            ("an engine of weights in 8 bits", self.weights == EngineWeights::Q8),
            ("an engine with speculativeTokens", self.speculative_tokens > 0),
            ("an engine with activationBytesMax", self.activation_bytes_max > 0),
        ];
        lacking.into_iter().find(|(_, is_asked)| *is_asked).map(|(name, _)| name)
    }

    /// Returns the maximum number of pages for a decoder of this shape.
    pub(crate) fn pages(&self, config: &DecoderConfig) -> usize {
        let page_floats = 2 * config.num_hidden_layers * config.kv_width() * self.page_size;
        let in_memory = CACHE_BYTES / (4 * page_floats).max(1);
        self.num_pages.unwrap_or(in_memory.min(BATCH_TOKENS_MAX / self.page_size).max(self.longest(config)))
    }

    /// Returns the pages of a sequence of maximum length, with a shared last page that is not full.
    pub(crate) fn longest(&self, config: &DecoderConfig) -> usize {
        config.max_position_embeddings.div_ceil(self.page_size) + 1
    }
}

/// Default size of the cache of keys and values.
const CACHE_BYTES: usize = 1 << 30;
