//! Continuous batching over a paged key/value cache, for requests that arrive at any time.
//!
//! Requests wait in a queue, run together one token a step, and finish one by one. A sequence's tokens and
//! log-probs depend only on its prompt, its seed, its parameters and the weights: not on the other sequences,
//! the order of arrival, the size of pages, preemption or the number of threads. See `scheduler.rs` for one
//! step.
//!
//! For small models every thread decodes a part of the sequences; for large ones all threads decode together.

use std::sync::Arc;

use fulmar_compute::cpu::{for_each_part, num_threads, together};
use fulmar_core::limits::{BATCH_TOKENS_MAX, ENGINE_REQUESTS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_objective::Draw;
use serde::Deserialize;

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::generation::{FinishReason, Generated, Request, SamplingParams};
use crate::parameters::Layout;
use crate::scheduler::Scheduler;

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
        ] {
            if value > max {
                let detail = format!("{name} must be at most {max}: got {value}");
                return Err(Error::new(ErrorKind::LimitExceeded, detail));
            }
        }
        Ok(())
    }

    fn pages(&self, config: &DecoderConfig) -> usize {
        let page_floats = 2 * config.num_hidden_layers * config.kv_width() * self.page_size;
        let in_memory = CACHE_BYTES / (4 * page_floats).max(1);
        self.num_pages.unwrap_or(in_memory.min(BATCH_TOKENS_MAX / self.page_size).max(self.longest(config)))
    }

    /// Returns the pages of a sequence of maximum length, with a shared last page that is not full.
    fn longest(&self, config: &DecoderConfig) -> usize {
        config.max_position_embeddings.div_ceil(self.page_size) + 1
    }
}

/// Default size of the cache of keys and values.
const CACHE_BYTES: usize = 1 << 30;

/// A drawn token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// The id of its request.
    pub request: u64,
    /// The token.
    pub id: u32,
    /// Its log-prob under the model itself (temperature 1).
    pub log_prob: f32,
    /// Its log-prob under the distribution it was drawn from.
    pub sampled_log_prob: f32,
    /// [`Decoder::version`] of the weights that it was drawn under.
    pub version: u64,
    /// The likeliest ids at its position with their log-probs, as many as the request asked for.
    pub top_log_probs: Vec<(u32, f32)>,
}

impl SampledToken {
    pub(crate) fn new(request: u64, draw: Draw, version: u64, top_log_probs: Vec<(u32, f32)>) -> Self {
        let Draw { id, log_prob, sampled_log_prob, .. } = draw;
        Self { request, id, log_prob, sampled_log_prob, version, top_log_probs }
    }
}

impl Generated {
    /// Adds a token to the sequence.
    pub fn push(&mut self, token: SampledToken) {
        self.ids.push(token.id);
        self.log_prob.push(token.log_prob);
        self.sampled_log_prob.push(token.sampled_log_prob);
        self.versions.push(token.version);
        self.top_log_probs.push(token.top_log_probs);
    }
}

/// The results of an engine since the last call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outputs {
    /// Drawn tokens; the tokens of one request are in order.
    pub tokens: Vec<SampledToken>,
    /// The finished requests, with the reason.
    pub finished: Vec<(u64, FinishReason)>,
    /// Number of preemptions for want of pages since the engine was made.
    pub num_preemptions: u64,
}

/// [`Outputs`] in flat arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatOutputs {
    /// `[T]`: the request of each token.
    pub requests: Vec<f64>,
    /// `[T]`: the ids.
    pub ids: Vec<u32>,
    /// `[T]`: log-probs under the model.
    pub log_prob: Vec<f32>,
    /// `[T]`: log-probs under the distribution drawn from.
    pub sampled_log_prob: Vec<f32>,
    /// `[T]`: versions of the weights.
    pub versions: Vec<f64>,
    /// `[T + 1]`: bounds of each token's likeliest ids.
    pub top_offsets: Vec<u32>,
    /// The likeliest ids of all tokens.
    pub top_ids: Vec<u32>,
    /// Their log-probs.
    pub top_log_prob: Vec<f32>,
    /// `[F]`: the finished requests.
    pub finished: Vec<f64>,
    /// `[F]`: 1 for [`FinishReason::Stop`], 2 for [`FinishReason::Length`], 0 for [`FinishReason::Abort`], 3 for
    /// [`FinishReason::NonFinite`], 4 for [`FinishReason::NoToken`].
    pub finish: Vec<u8>,
}

impl From<Outputs> for FlatOutputs {
    fn from(outputs: Outputs) -> Self {
        let mut flat = Self { top_offsets: vec![0], ..Self::default() };
        for token in outputs.tokens {
            flat.requests.push(token.request as f64);
            flat.ids.push(token.id);
            flat.log_prob.push(token.log_prob);
            flat.sampled_log_prob.push(token.sampled_log_prob);
            flat.versions.push(token.version as f64);
            let (ids, log_probs): (Vec<u32>, Vec<f32>) = token.top_log_probs.into_iter().unzip();
            flat.top_ids.extend(ids);
            flat.top_log_prob.extend(log_probs);
            flat.top_offsets.push(flat.top_ids.len() as u32);
        }
        for (request, reason) in outputs.finished {
            flat.finished.push(request as f64);
            flat.finish.push(match reason {
                FinishReason::Abort => 0,
                FinishReason::Stop => 1,
                FinishReason::Length => 2,
                FinishReason::NonFinite => 3,
                FinishReason::NoToken => 4,
            });
        }
        flat
    }
}

/// Sequences being generated, with their key/value cache.
///
/// Weights may change between two steps: each token has the version it was drawn under, and
/// [`EngineOptions::on_weight_change`] determines the treatment of the cache.
///
/// # Examples
/// ```
/// use fulmar_model::{Decoder, DecoderConfig, Engine, EngineOptions, FinishReason, Request, SamplingParams};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let decoder = Decoder::new(config, 42)?;
/// let mut engine = Engine::new(decoder.config(), EngineOptions::default())?;
/// let params = SamplingParams { max_tokens: 4, ..Default::default() };
/// let long = engine.add(&Request { prompt_ids: &[1, 2, 3], seed: 7 }, &params)?;
/// engine.steps(&decoder, 2)?;
/// let late = engine.add(&Request { prompt_ids: &[5], seed: 8 }, &params)?; // joins those that run
/// engine.steps(&decoder, 1)?;
/// engine.abort(late);
/// engine.steps(&decoder, 1)?;
/// let outputs = engine.take_outputs();
/// assert_eq!(outputs.tokens.iter().filter(|token| token.request == long).count(), 4);
/// assert!(outputs.finished.contains(&(late, FinishReason::Abort)));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    /// The scheduler of each thread.
    parts: Vec<Scheduler>,
    options: EngineOptions,
    config: DecoderConfig,
    num_pages: usize,
    is_cached: bool,
    num_added: u64,
}

/// Up to this many weights stay in a core's cache, so every thread can run whole layers over some of the
/// sequences. A larger model is read from memory once a step, by all threads together.
const CACHED_PARAMETERS_MAX: usize = 4 << 20;

/// A part may have this many more sequences than another to hold all sequences of one prompt.
const PART_SEQUENCES_MIN: usize = 4;

/// Steps of a small model in one call, between two turns of the event loop.
const CACHED_STEPS: usize = 8;

impl Engine {
    /// Returns an engine for decoders of this shape. Allocates no keys and values yet.
    ///
    /// # Errors
    /// The errors of [`EngineOptions::check`] and [`DecoderConfig::checked`].
    pub fn new(config: &DecoderConfig, options: EngineOptions) -> Result<Self> {
        options.check()?;
        let config = config.clone().checked()?;
        let num_pages = options.pages(&config);
        let is_cached = Layout::new(&config).len <= CACHED_PARAMETERS_MAX;
        let threads = if is_cached { num_threads() } else { 1 };
        // A part must have room for every sequence for which the whole engine has room.
        let num_parts = threads.min(num_pages / options.longest(&config)).max(1);
        let part = || Scheduler::new(&config, &options, num_pages / num_parts);
        Ok(Self {
            parts: (0..num_parts).map(|_| part()).collect(),
            options,
            config,
            num_pages,
            is_cached,
            num_added: 0,
        })
    }

    /// Queues a request and returns its id, which is unique in this engine.
    ///
    /// # Errors
    /// `Empty` for an empty prompt; `OutOfRange` for an id or a parameter; `LimitExceeded` if the prompt with
    /// `max_tokens` is longer than the model's maximum or needs more pages than there are, or too many
    /// requests wait.
    pub fn add(&mut self, request: &Request<'_>, params: &SamplingParams) -> Result<u64> {
        request.check(params, &self.config)?;
        let size = self.options.page_size;
        let pages = request.prompt_ids.len().div_ceil(size) + params.max_tokens.div_ceil(size);
        if pages > self.num_pages {
            let detail =
                format!("a request must need at most {} pages of {size}: got {pages}", self.num_pages);
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let waiting: usize = self.parts.iter().map(Scheduler::num_waiting).sum();
        if waiting >= self.options.max_num_waiting {
            let max = self.options.max_num_waiting;
            let detail = format!("waiting requests must be at most {max}: got one more");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let id = self.num_added;
        self.num_added += 1;
        if let Some(part) = self.part_for(request.prompt_ids) {
            part.add(id, request, Arc::new(params.clone()));
        }
        Ok(id)
    }

    /// Returns the part with the fewest sequences, or a slightly fuller one that already has this prompt.
    fn part_for(&mut self, prompt: &[u32]) -> Option<&mut Scheduler> {
        let fewest = self.parts.iter().map(Scheduler::num_unfinished).min()?;
        let cost = |part: &&mut Scheduler| match part.num_unfinished() - fewest {
            over if over < PART_SEQUENCES_MIN && part.has_prompt(prompt) => 0,
            over => over + 1,
        };
        self.parts.iter_mut().min_by_key(cost)
    }

    /// Aborts a request and frees its pages; returns `false` if it had finished.
    pub fn abort(&mut self, request: u64) -> bool {
        self.parts.iter_mut().any(|part| part.abort(request))
    }

    /// Runs up to `count` steps, each one token for every running sequence, and returns the number of
    /// unfinished requests. Packs the decoder's weights if they changed, which takes their memory once more.
    ///
    /// # Errors
    /// `ShapeMismatch` if the shape of `decoder` differs from the engine's; `Incompatible` if it has no
    /// output head; `Unavailable` for a missing device. Non-finite logits end only their own request.
    pub fn steps(&mut self, decoder: &Decoder, count: usize) -> Result<usize> {
        if *decoder.config() != self.config {
            let detail = "decoder must have the shape of the decoder that the engine was made for";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        decoder.head().check()?;
        decoder.pack();
        let parts = &mut self.parts;
        together(|| for_each_part(parts, |part| part.steps(decoder, count)))
            .into_iter()
            .collect::<Result<()>>()?;
        Ok(self.num_unfinished())
    }

    /// Runs as many [`Engine::steps`] as are worth a call: one for a large model, several for a small one.
    ///
    /// # Errors
    /// The errors of [`Engine::steps`].
    pub fn turn(&mut self, decoder: &Decoder) -> Result<usize> {
        self.steps(decoder, if self.is_cached { CACHED_STEPS } else { 1 })
    }

    /// Returns the tokens drawn and the requests finished since the last call.
    pub fn take_outputs(&mut self) -> Outputs {
        let mut outputs = Outputs::default();
        for part in &mut self.parts {
            let (tokens, finished) = part.take_outputs();
            outputs.tokens.extend(tokens);
            outputs.finished.extend(finished);
            outputs.num_preemptions += part.num_preemptions();
        }
        outputs
    }

    /// Returns the number of unfinished requests.
    #[must_use]
    pub fn num_unfinished(&self) -> usize {
        self.parts.iter().map(Scheduler::num_unfinished).sum()
    }

    /// Returns the number of free pages.
    #[must_use]
    pub fn num_free_pages(&self) -> usize {
        self.parts.iter().map(Scheduler::num_free_pages).sum()
    }
}
