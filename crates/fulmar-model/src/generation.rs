//! Generation of many sequences at once, in steps that the caller paces.
//!
//! ```text
//! prefill: one pass over the distinct prompts fills the key/value cache; siblings share a prompt's rows
//! each step: one row for every live sequence -> layers over the cache -> logits -> one draw each
//! ```
//! Small models are decoded by every thread on its own, over a part of the sequences; large ones by all together.
//! A sequence's tokens depend on its prompt, its seed, the options and the weights alone, never on what else is
//! in the batch; token `n` takes word `n` of the request's stream.

use fulmar_core::limits::{BATCH_TOKENS_MAX, SEQUENCE_TOKENS_MAX};
use fulmar_core::{Error, ErrorKind, Result, integer_from_f64};
use fulmar_kernel::{for_each_part, num_threads};
use fulmar_objective::DrawOptions;
use serde::Deserialize;

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::decoding::Decoding;
use crate::packing::{check_ids, check_limit};

/// How to generate; the same for all requests of a batch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GenerationOptions {
    /// Most tokens to draw for a sequence, the stop token included; >= 1.
    pub max_tokens: usize,
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f64,
    /// How many of the likeliest tokens stay; all if absent.
    pub top_k: Option<usize>,
    /// The probability mass that stays, in `(0, 1]`.
    pub top_p: f64,
    /// Ids that end a sequence once drawn.
    pub stop_ids: Vec<u32>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self { max_tokens: 16, temperature: 1.0, top_k: None, top_p: 1.0, stop_ids: Vec::new() }
    }
}

impl GenerationOptions {
    pub(crate) fn draw(&self) -> DrawOptions {
        let (temperature, top_k, top_p) = (self.temperature, self.top_k, self.top_p);
        DrawOptions { temperature, top_k, top_p, ..DrawOptions::default() }
    }
}

/// One sequence to generate.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The tokens that come before, at least one.
    pub prompt_ids: &'a [u32],
    /// Names the random stream of this sequence.
    pub seed: u64,
}

impl<'a> Request<'a> {
    /// Requests from flat arrays: prompt `s` is `ids[offsets[s]..offsets[s + 1]]`, its seed `seeds[s]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if the offsets do not bound the ids or are not one more than the seeds; `OutOfRange` for a seed
    /// that is not an integer from 0 to 2^53 - 1.
    pub fn from_flat(ids: &'a [u32], offsets: &[u32], seeds: &[f64]) -> Result<Vec<Self>> {
        if offsets.len() != seeds.len() + 1 {
            let detail =
                format!("offsets must be one longer than seeds ({}): got {}", seeds.len(), offsets.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut requests = Vec::with_capacity(seeds.len());
        for (bound, &seed) in offsets.windows(2).zip(seeds) {
            let prompt_ids = ids.get(bound[0] as usize..bound[1] as usize).ok_or_else(|| {
                let detail = format!("offsets must rise to the number of ids ({}): got {bound:?}", ids.len());
                Error::new(ErrorKind::ShapeMismatch, detail)
            })?;
            requests.push(Self { prompt_ids, seed: integer_from_f64("seed", seed)? });
        }
        Ok(requests)
    }
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop id was drawn; it is the last of the ids.
    Stop,
    /// `max_tokens` were drawn.
    Length,
}

/// The drawn part of one sequence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// Drawn ids, the stop id included.
    pub ids: Vec<u32>,
    /// The model's own log-prob (temperature 1) of each id: the bits that [`Decoder::forward`] gives for it.
    pub log_prob: Vec<f32>,
    /// Log-prob of each id under the distribution it was drawn from.
    pub sampled_log_prob: Vec<f32>,
    /// Why it ended, or `None` while it is live.
    pub finish_reason: Option<FinishReason>,
}

/// All sequences of a batch in flat arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlatGenerated {
    /// Drawn ids `[T]`.
    pub ids: Vec<u32>,
    /// Bounds of the sequences `[S + 1]`.
    pub offsets: Vec<u32>,
    /// As [`Generated::log_prob`], `[T]`.
    pub log_prob: Vec<f32>,
    /// As [`Generated::sampled_log_prob`], `[T]`.
    pub sampled_log_prob: Vec<f32>,
    /// `[S]`: 0 while live, 1 for [`FinishReason::Stop`], 2 for [`FinishReason::Length`].
    pub finish: Vec<u8>,
}

/// A batch of sequences being generated. Owns the key/value cache.
///
/// # Examples
/// ```
/// use fulmar_model::{Decoder, DecoderConfig, Generation, GenerationOptions, Request};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let decoder = Decoder::new(config, 42)?;
/// let options = GenerationOptions { max_tokens: 5, ..Default::default() };
/// let request = Request { prompt_ids: &[1, 2, 3], seed: 7 };
/// let mut generation = Generation::new(&decoder, &[request], &options)?;
/// while generation.step(&decoder)? > 0 {}
/// assert_eq!(generation.sequences()[0].ids.len(), 5);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Generation {
    /// What each thread decodes, in the order of the requests.
    parts: Vec<Decoding>,
    config: DecoderConfig,
}

/// Weights up to this many stay in a core's cache, so every thread can run whole layers over some of the sequences; a
/// larger model is read from memory once a step, by all threads together.
const CACHED_PARAMETERS_MAX: usize = 4 << 20;

/// Fewest sequences that are worth a thread.
const PART_SEQUENCES_MIN: usize = 4;

impl Generation {
    /// Checks the requests and takes the cache's memory; computes nothing yet.
    ///
    /// # Errors
    /// `Empty` without a request or for an empty prompt, `OutOfRange` for an id or option, `LimitExceeded` if a prompt
    /// with `max_tokens` is longer than the model's positions or all together need too large a cache.
    pub fn new(decoder: &Decoder, requests: &[Request<'_>], options: &GenerationOptions) -> Result<Self> {
        options.draw().check()?;
        check_requests(decoder.config(), requests, options)?;
        let threads = if decoder.num_parameters() <= CACHED_PARAMETERS_MAX { num_threads() } else { 1 };
        let num_parts = threads.min(requests.len() / PART_SEQUENCES_MIN).max(1);
        let parts = requests.chunks(requests.len().div_ceil(num_parts));
        Ok(Self {
            parts: parts.map(|part| Decoding::new(decoder, part, options)).collect(),
            config: decoder.config().clone(),
        })
    }

    /// Draws one token for every live sequence and returns how many are still live.
    ///
    /// The first step also computes the prompts.
    ///
    /// # Errors
    /// `NonFinite` if the model's logits are no numbers; `ShapeMismatch` if `decoder` has another shape than the one
    /// the generation began with.
    pub fn step(&mut self, decoder: &Decoder) -> Result<usize> {
        self.steps(decoder, 1)
    }

    /// Up to `count` calls of [`Generation::step`]; how many sequences are still live.
    ///
    /// # Errors
    /// Those of [`Generation::step`].
    pub fn steps(&mut self, decoder: &Decoder, count: usize) -> Result<usize> {
        if *decoder.config() != self.config {
            let detail = "decoder must have the shape of the one that generation began with: got another";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        for_each_part(&mut self.parts, |part| part.steps(decoder, count)).into_iter().sum()
    }

    /// All sequences, in the order of the requests.
    #[must_use]
    pub fn sequences(&self) -> Vec<&Generated> {
        self.parts.iter().flat_map(Decoding::sequences).collect()
    }

    /// All sequences, copied into flat arrays.
    #[must_use]
    pub fn flat(&self) -> FlatGenerated {
        let mut flat = FlatGenerated { offsets: vec![0], ..FlatGenerated::default() };
        for sequence in self.sequences() {
            flat.ids.extend_from_slice(&sequence.ids);
            flat.offsets.push(flat.ids.len() as u32);
            flat.log_prob.extend_from_slice(&sequence.log_prob);
            flat.sampled_log_prob.extend_from_slice(&sequence.sampled_log_prob);
            flat.finish.push(match sequence.finish_reason {
                None => 0,
                Some(FinishReason::Stop) => 1,
                Some(FinishReason::Length) => 2,
            });
        }
        flat
    }
}

fn check_requests(
    config: &DecoderConfig,
    requests: &[Request<'_>],
    options: &GenerationOptions,
) -> Result<()> {
    if requests.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "requests must hold at least one: got none"));
    }
    if options.max_tokens == 0 {
        return Err(Error::new(ErrorKind::OutOfRange, "maxTokens must be >= 1: got 0"));
    }
    let num_rows = requests.iter().fold(0_usize, |rows, request| {
        rows.saturating_add(request.prompt_ids.len()).saturating_add(options.max_tokens)
    });
    check_limit("the key/value cache", num_rows, BATCH_TOKENS_MAX)?;
    for (index, request) in requests.iter().enumerate() {
        let place = |error: Error| error.at(format!("request {index}"));
        if request.prompt_ids.is_empty() {
            return Err(place(Error::new(ErrorKind::Empty, "prompt must have at least one token: got none")));
        }
        check_ids(request.prompt_ids, config).map_err(place)?;
        let longest = request.prompt_ids.len().saturating_add(options.max_tokens);
        let max = config.max_position_embeddings.min(SEQUENCE_TOKENS_MAX);
        check_limit("prompt and maxTokens together", longest, max).map_err(place)?;
    }
    Ok(())
}
