//! Generation of many sequences at once, in steps that the caller paces.
//!
//! ```text
//! prefill: one pass over the distinct prompts fills the key/value cache; siblings share a prompt's rows
//! each step: one row for every live sequence -> layers over the cache -> logits -> one draw each
//! ```
//! A sequence's tokens depend on its prompt, its seed, the options and the weights alone, never on what else is
//! in the batch; token `n` takes word `n` of the request's stream.

use std::collections::HashMap;

use fulmar_core::limits::{BATCH_TOKENS_MAX, SEQUENCE_TOKENS_MAX};
use fulmar_core::{Error, ErrorKind, Result, Rng, integer_from_f64};
use fulmar_kernel::{RopeTable, Spans, attention, embed};
use fulmar_objective::{Draw, DrawOptions, draw, draw_rng};
use serde::Deserialize;

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::layer::LayerTrace;
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
/// let mut generation = Generation::new(&decoder, &[request], options)?;
/// while generation.step(&decoder)? > 0 {}
/// assert_eq!(generation.sequences()[0].ids.len(), 5);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Generation {
    options: GenerationOptions,
    draw_options: DrawOptions,
    prompt_ids: Vec<u32>,
    prompts: Vec<(u32, u32)>,
    slots: Vec<Slot>,
    sequences: Vec<Generated>,
    /// Keys and values of each layer, `[rows, K * E]`.
    cache: Vec<(Vec<f32>, Vec<f32>)>,
    rope: RopeTable,
    trace: LayerTrace,
    prefilled: bool,
}

/// Where one sequence stands in the cache.
#[derive(Debug)]
struct Slot {
    prompt: usize,
    first_row: u32,
    rng: Rng,
}

/// Rows to push through the layers.
#[derive(Default)]
struct Rows {
    ids: Vec<u32>,
    positions: Vec<u32>,
    cache_rows: Vec<u32>,
    spans: Spans,
}

impl Rows {
    fn push(&mut self, id: u32, position: u32, cache_row: u32, ranges: &[(u32, u32)]) {
        self.ids.push(id);
        self.positions.push(position);
        self.cache_rows.push(cache_row);
        self.spans.push_row(ranges);
    }
}

impl Generation {
    /// Checks the requests and takes the cache's memory; computes nothing yet.
    ///
    /// # Errors
    /// `Empty` without a request or for an empty prompt, `OutOfRange` for an id or option, `LimitExceeded` if a prompt
    /// with `max_tokens` is longer than the model's positions or all together need too large a cache.
    pub fn new(decoder: &Decoder, requests: &[Request<'_>], options: GenerationOptions) -> Result<Self> {
        let config = decoder.config();
        let draw_options =
            DrawOptions { temperature: options.temperature, top_k: options.top_k, top_p: options.top_p };
        draw_options.check()?;
        check_requests(config, requests, &options)?;
        let (mut prompt_ids, mut prompts, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<&[u32], usize> = HashMap::new();
        for request in requests {
            let prompt = *known.entry(request.prompt_ids).or_insert_with(|| {
                let first = prompt_ids.len() as u32;
                prompt_ids.extend_from_slice(request.prompt_ids);
                prompts.push((first, prompt_ids.len() as u32));
                prompts.len() - 1
            });
            slots.push(Slot { prompt, first_row: 0, rng: draw_rng(request.seed, 0) });
        }
        let num_rows = prompt_ids.len() + requests.len() * options.max_tokens;
        check_limit("the key/value cache", num_rows, BATCH_TOKENS_MAX)?;
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.first_row = (prompt_ids.len() + index * options.max_tokens) as u32;
        }
        let layer = || (vec![0.0; num_rows * config.kv_width()], vec![0.0; num_rows * config.kv_width()]);
        Ok(Self {
            options,
            draw_options,
            prompt_ids,
            prompts,
            sequences: vec![Generated::default(); slots.len()],
            slots,
            cache: (0..config.num_hidden_layers).map(|_| layer()).collect(),
            rope: RopeTable::new(config.head_dim(), config.theta()),
            trace: LayerTrace::default(),
            prefilled: false,
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
        let config = decoder.config();
        if self.cache.len() != config.num_hidden_layers
            || self.cache.iter().any(|(keys, _)| !keys.len().is_multiple_of(config.kv_width()))
        {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                "decoder must be the one that generation began with",
            ));
        }
        let live: Vec<usize> = (0..self.slots.len()).filter(|&s| self.is_live(s)).collect();
        if live.is_empty() {
            return Ok(0);
        }
        if self.prefilled {
            self.decode(decoder, &live)?;
        } else {
            self.prefill(decoder)?;
        }
        Ok(live.iter().filter(|&&sequence| self.is_live(sequence)).count())
    }

    /// Up to `count` calls of [`Generation::step`]; how many sequences are still live.
    ///
    /// # Errors
    /// Those of [`Generation::step`].
    pub fn steps(&mut self, decoder: &Decoder, count: usize) -> Result<usize> {
        let mut live = self.sequences.iter().filter(|sequence| sequence.finish_reason.is_none()).count();
        for _ in 0..count {
            if live == 0 {
                break;
            }
            live = self.step(decoder)?;
        }
        Ok(live)
    }

    /// All sequences, in the order of the requests.
    #[must_use]
    pub fn sequences(&self) -> &[Generated] {
        &self.sequences
    }

    /// All sequences, copied into flat arrays.
    #[must_use]
    pub fn flat(&self) -> FlatGenerated {
        let mut flat = FlatGenerated { offsets: vec![0], ..FlatGenerated::default() };
        for sequence in &self.sequences {
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

    fn is_live(&self, sequence: usize) -> bool {
        self.sequences[sequence].finish_reason.is_none()
    }

    fn prefill(&mut self, decoder: &Decoder) -> Result<()> {
        let mut rows = Rows::default();
        for &(first, end) in &self.prompts {
            for row in first..end {
                rows.push(self.prompt_ids[row as usize], row - first, row, &[(first, row + 1)]);
            }
        }
        let x = self.run_layers(decoder, &rows);
        let hidden = decoder.config().hidden_size;
        let last_rows: Vec<f32> = self
            .prompts
            .iter()
            .flat_map(|&(_, end)| &x[(end as usize - 1) * hidden..][..hidden])
            .copied()
            .collect();
        let mut draws = vec![None; self.slots.len()];
        let (slots, options) = (&mut self.slots, &self.draw_options);
        decoder.head().for_logits(&last_rows, |prompt, logits| {
            for (slot, draw_of) in slots.iter_mut().zip(&mut draws).filter(|(slot, _)| slot.prompt == prompt)
            {
                *draw_of = Some(draw(logits, options, &mut slot.rng)?);
            }
            Ok(())
        })?;
        self.prefilled = true;
        for (sequence, draw) in draws.into_iter().enumerate() {
            self.record(sequence, draw);
        }
        Ok(())
    }

    fn decode(&mut self, decoder: &Decoder, live: &[usize]) -> Result<()> {
        let mut rows = Rows::default();
        for &sequence in live {
            let (slot, generated) = (&self.slots[sequence], &self.sequences[sequence]);
            let prompt = self.prompts[slot.prompt];
            let done = generated.ids.len() as u32;
            let row = slot.first_row + done - 1;
            let last = generated.ids[done as usize - 1];
            rows.push(last, prompt.1 - prompt.0 + done - 1, row, &[prompt, (slot.first_row, row + 1)]);
        }
        let x = self.run_layers(decoder, &rows);
        let mut draws = vec![None; live.len()];
        let (slots, options) = (&mut self.slots, &self.draw_options);
        decoder.head().for_logits(&x, |row, logits| {
            draws[row] = Some(draw(logits, options, &mut slots[live[row]].rng)?);
            Ok(())
        })?;
        for (&sequence, draw) in live.iter().zip(draws) {
            self.record(sequence, draw);
        }
        Ok(())
    }

    /// The residual stream behind the last layer; fills the rows' places in the cache.
    fn run_layers(&mut self, decoder: &Decoder, rows: &Rows) -> Vec<f32> {
        let config = decoder.config();
        let (hidden, kv_width) = (config.hidden_size, config.kv_width());
        self.rope.extend_to(rows.positions.iter().max().map_or(0, |last| *last as usize + 1));
        let mut x = vec![0.0; rows.ids.len() * hidden];
        embed(&decoder.weights()[decoder.layout().embed.clone()], hidden, &rows.ids, &mut x);
        let trace = &mut self.trace;
        trace.resize(config, rows.ids.len());
        for (index, (keys, values)) in self.cache.iter_mut().enumerate() {
            trace.x.copy_from_slice(&x);
            let layer = decoder.layer(index);
            layer.project_heads(trace, &self.rope, &rows.positions);
            let new_rows = trace.k.chunks_exact(kv_width).zip(trace.v.chunks_exact(kv_width));
            for (&row, (key, value)) in rows.cache_rows.iter().zip(new_rows) {
                keys[row as usize * kv_width..][..kv_width].copy_from_slice(key);
                values[row as usize * kv_width..][..kv_width].copy_from_slice(value);
            }
            let LayerTrace { q, attention: out, log_sum, .. } = trace;
            attention(config.attention(), q, keys, values, &rows.spans, out, log_sum);
            layer.finish(trace, &mut x);
        }
        x
    }

    fn record(&mut self, sequence: usize, draw: Option<Draw>) {
        let (Some(draw), generated) = (draw, &mut self.sequences[sequence]) else { return };
        generated.ids.push(draw.id);
        generated.log_prob.push(draw.log_prob);
        generated.sampled_log_prob.push(draw.sampled_log_prob);
        if self.options.stop_ids.contains(&draw.id) {
            generated.finish_reason = Some(FinishReason::Stop);
        } else if generated.ids.len() == self.options.max_tokens {
            generated.finish_reason = Some(FinishReason::Length);
        }
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
