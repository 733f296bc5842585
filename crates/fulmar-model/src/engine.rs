//! Continuous batching over a paged key/value cache, for requests that arrive at any time.
//!
//! Requests wait in a queue, run together one token a step, and finish one by one. A sequence's tokens and
//! log-probs depend only on its prompt, its seed, its parameters and the weights: not on the other sequences,
//! the order of arrival, the size of pages, preemption or the number of threads. See `scheduler.rs` for one
//! step.
//!
//! For small models every thread decodes a part of the sequences; for large ones all threads decode together. A GPU decodes all
//! sequences in one step, and draws their tokens.

use std::sync::Arc;

use fulmar_compute::cpu::{for_each_part, num_threads};
use fulmar_compute::{Compute, Lacking};
use fulmar_core::{Error, ErrorKind, Result};

use crate::config::DecoderConfig;
use crate::decoder::Decoder;
use crate::engine_options::{EngineOptions, EngineWeights};
use crate::outputs::Outputs;
use crate::parameters::Layout;
use crate::request::{Request, SamplingParams};
use crate::scheduler::Scheduler;

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
    /// Number of pages on the CPU.
    num_cpu_pages: usize,
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
        let num_cpu_pages = options.pages(&config);
        let is_cached = Layout::new(&config).len <= CACHED_PARAMETERS_MAX;
        let threads = if is_cached { num_threads() } else { 1 };
        // A part must have room for every sequence for which the whole engine has room.
        let num_parts = threads.min(num_cpu_pages / options.longest(&config)).max(1);
        let part = || Scheduler::new(&config, &options, num_cpu_pages / num_parts);
        Ok(Self {
            parts: (0..num_parts).map(|_| part()).collect(),
            options,
            config,
            num_cpu_pages,
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
        let pages = self.options.pages_of(request.prompt_ids.len(), params.max_tokens);
        if pages > self.num_pages() {
            let (max, size) = (self.num_pages(), self.options.page_size);
            let detail = format!("a request must need at most {max} pages of {size}: got {pages}");
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

    /// Returns the number of pages that one request can have.
    fn num_pages(&self) -> usize {
        match self.parts.as_slice() {
            [whole] => whole.num_pages(),
            _ => self.num_cpu_pages,
        }
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

    /// Runs up to `count` steps, each one token for every running sequence, or several with
    /// [`EngineOptions::speculative_tokens`], and returns the number of
    /// unfinished requests. If the decoder's weights changed, packs those that are not packed in their place, which takes their
    /// memory once more, or rounds all to the 8 bits of [`EngineWeights::Q8`]. With speculative tokens it does both.
    ///
    /// # Errors
    /// `ShapeMismatch` if the shape of `decoder` differs from the engine's; `Incompatible` if it has no
    /// output head; `OutOfMemory` if there is no memory for an adapter merged into the weights, for weights of 8 bits, or on a GPU
    /// for the pages and a step;
    /// `Unavailable` on a GPU for weights in 8 bits, for a cache in bfloat16 of weights in single precision, and with
    /// [`EngineOptions::speculative_tokens`] or [`EngineOptions::activation_bytes_max`]. Non-finite logits end only their own request.
    pub fn steps(&mut self, decoder: &Decoder, count: usize) -> Result<usize> {
        if *decoder.config() != self.config {
            let detail = "decoder must have the shape of the decoder that the engine was made for";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        decoder.head().check()?;
        if let Compute::Cuda(card) = decoder.compute() {
            if let Some(name) = self.options.lacking_on_gpus(decoder.activation_dtype()) {
                return Lacking::lacking(card, name);
            }
            self.unite();
        }
        let packed = decoder.packed(self.options.weights)?;
        let speculates = self.options.speculative_tokens > 0;
        let draft = speculates.then(|| decoder.packed(EngineWeights::Q8)).transpose()?;
        let parts = &mut self.parts;
        for_each_part(parts, |part| part.steps(packed, draft, count)).into_iter().collect::<Result<()>>()?;
        Ok(self.num_unfinished())
    }

    /// Puts all sequences into one part.
    fn unite(&mut self) {
        if self.parts.len() == 1 {
            return;
        }
        let mut whole = Scheduler::new(&self.config, &self.options, self.num_cpu_pages);
        self.parts.drain(..).for_each(|part| whole.take_over(part));
        self.parts.push(whole);
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
            part.take_outputs(&mut outputs);
        }
        outputs
    }

    /// Returns the number of unfinished requests.
    #[must_use]
    pub fn num_unfinished(&self) -> usize {
        self.parts.iter().map(Scheduler::num_unfinished).sum()
    }

    /// Returns the number of free pages. Before the first step on a GPU, which determines their number there unless
    /// [`EngineOptions::num_pages`] is given, these are the pages of an engine on the CPU.
    #[must_use]
    pub fn num_free_pages(&self) -> usize {
        self.parts.iter().map(Scheduler::num_free_pages).sum()
    }
}
