//! The sizes of an engine.

use fulmar_core::limits::{BATCH_TOKENS_MAX, ENGINE_REQUESTS_MAX};
use fulmar_core::{Dtype, Error, ErrorKind, Result};
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

/// The dtype of the keys and values that an engine caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KvCacheDtype {
    /// That of the trainer's: each token's log-prob is that of its forward pass, bit for bit.
    #[default]
    Same,
    /// bfloat16, to which keys and values are rounded: twice as many tokens in the same memory, and long sequences are drawn
    /// faster, from a policy whose log-probs differ a little from the decoder's: a loss must correct for it.
    Bf16,
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
    /// one sequence of the model's maximum length. Memory is allocated as pages are used. On a GPU all pages are allocated at the
    /// first step, and the default is what half of the free memory holds: at least one sequence of the model's maximum length, as
    /// far as there is memory, and at most as many pages as [`max_num_seqs`](Self::max_num_seqs) of these.
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
    /// The dtype of cached keys and values.
    pub kv_cache_dtype: KvCacheDtype,
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
            kv_cache_dtype: KvCacheDtype::Same,
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

    /// Returns whether log-probs are those of the trainer's forward pass.
    pub(crate) fn is_exact(&self) -> bool {
        self.weights == EngineWeights::Same && self.kv_cache_dtype == KvCacheDtype::Same
    }

    /// Returns what engines on GPUs do not have yet and these options ask for, with activations in `dtype`.
    pub(crate) fn lacking_on_gpus(&self, dtype: Dtype) -> Option<&'static str> {
        let lacking = [
            ("a cache in bfloat16 of other activations", self.cache_dtype(dtype) != dtype),
            ("an engine of weights in 8 bits", self.weights == EngineWeights::Q8),
            ("an engine with speculativeTokens", self.speculative_tokens > 0),
            ("an engine with activationBytesMax", self.activation_bytes_max > 0),
        ];
        lacking.into_iter().find(|(_, is_asked)| *is_asked).map(|(name, _)| name)
    }

    /// Returns the dtype of cached keys and values of a decoder with activations in `dtype`.
    pub(crate) fn cache_dtype(&self, dtype: Dtype) -> Dtype {
        if self.kv_cache_dtype == KvCacheDtype::Bf16 { Dtype::Bf16 } else { dtype }
    }

    /// Returns the maximum number of pages on the CPU for a decoder of this shape.
    pub(crate) fn pages(&self, config: &DecoderConfig) -> usize {
        let in_memory = CACHE_BYTES / self.page_bytes(config, self.cache_dtype(Dtype::F32));
        self.num_pages.unwrap_or(in_memory.min(BATCH_TOKENS_MAX / self.page_size).max(self.longest(config)))
    }

    /// Returns the number of pages of keys and values in `dtype` on a GPU with `free_bytes` of free memory, where a request waits that needs `pages_of_request`.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for the pages of that request.
    pub(crate) fn pages_on_gpu(
        &self,
        config: &DecoderConfig,
        (free_bytes, dtype): (usize, Dtype),
        pages_of_request: usize,
    ) -> Result<usize> {
        if let Some(num_pages) = self.num_pages {
            return Ok(num_pages);
        }
        // A quarter at least is for the activations of a step.
        let page_bytes = self.page_bytes(config, dtype);
        let [half, most] = [2, 4].map(|part| (free_bytes - free_bytes / part) / page_bytes);
        let longest = self.longest(config);
        let useful = self.max_num_seqs.saturating_mul(longest).min(BATCH_TOKENS_MAX / self.page_size);
        let num_pages = half.min(useful).max(longest.min(most));
        if num_pages < pages_of_request {
            let wanted = pages_of_request * page_bytes / 3 * 4 + 4;
            let detail = format!(
                "out of memory on the GPU: {wanted} bytes wanted for the {pages_of_request} pages of a request, {free_bytes} bytes free"
            );
            return Err(Error::new(ErrorKind::OutOfMemory, detail));
        }
        Ok(num_pages)
    }

    fn page_bytes(&self, config: &DecoderConfig, dtype: Dtype) -> usize {
        dtype.size_bytes() * (2 * config.num_hidden_layers * config.kv_width() * self.page_size).max(1)
    }

    /// Returns the pages that a request needs at most, with a shared last page of its prompt that is not full.
    pub(crate) fn pages_of(&self, prompt_len: usize, max_tokens: usize) -> usize {
        prompt_len.div_ceil(self.page_size) + max_tokens.div_ceil(self.page_size)
    }

    /// Returns the pages of a sequence of maximum length, with a shared last page that is not full.
    pub(crate) fn longest(&self, config: &DecoderConfig) -> usize {
        config.max_position_embeddings.div_ceil(self.page_size) + 1
    }
}

/// Default size of the cache of keys and values on the CPU.
const CACHE_BYTES: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_on_a_gpu_take_half_of_it_but_hold_a_sequence_and_no_more_than_are_of_use() {
        let text = r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 8, "intermediate_size": 4,
            "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 100}"#;
        let config = DecoderConfig::from_json(text).unwrap();
        let options = EngineOptions { max_num_seqs: 3, ..EngineOptions::default() };
        // A page has 2 layers of 16 keys and values of 8 floats: 2 KiB. A sequence needs 7 pages and one that it shares.
        let pages = |free_kib: usize, needed: usize| {
            options.pages_on_gpu(&config, (free_kib << 10, Dtype::F32), needed)
        };
        assert_eq!([48, 40, 1000].map(|free| pages(free, 8).unwrap()), [12, 10, 24]);
        let halves = options.pages_on_gpu(&config, (40 << 10, Dtype::Bf16), 8);
        assert_eq!(halves.unwrap(), 20, "half of the bytes");
        assert_eq!([32, 22, 21, 12, 0].map(|free| pages(free, 0).unwrap()), [8, 8, 7, 4, 0]);
        let refused = pages(12, 5).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        let got = (5 * 2048 / 3 * 4 + 4, 12 << 10);
        let detail = format!("{} bytes wanted for the 5 pages of a request, {} bytes free", got.0, got.1);
        assert_eq!(refused.detail(), format!("out of memory on the GPU: {detail}"));
        assert!(pages(14, 5).unwrap() >= 5, "what was wanted is enough");
        let given = EngineOptions { num_pages: Some(5), ..options.clone() };
        assert_eq!(given.pages_on_gpu(&config, (0, Dtype::F32), 5).unwrap(), 5);
        let wide = EngineOptions { page_size: 1 << 20, max_num_seqs: 100, ..options };
        assert_eq!(
            wide.pages_on_gpu(&config, (usize::MAX, Dtype::F32), 1).unwrap(),
            4,
            "the tokens of a batch"
        );
    }
}
