//! Schedules the sequences of an engine over one pool of pages: selects the rows of each step and draws
//! tokens.
//!
//! ```text
//! a step: each running sequence, the oldest first, gets rows for its tokens that are not in the cache yet
//!         no page free -> the youngest gives its pages back and waits, to be computed again
//!         pages free   -> the first that waits begins to run; with the prompt of an older one it takes that one's pages
//!         all rows go through the layers together; a sequence whose last token was among them draws the next
//! ```
//! A sequence is its tokens and the number of them in the cache. So the first pass of a prompt, a part of a
//! long prompt, one token of decoding, drafts that are verified and the recovery of a preempted sequence are the
//! same work.

mod drawing;
mod graphs;
mod keeping;
mod pass;
mod speculation;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use fulmar_compute::{Compute, RopeTable, StepRows};
use fulmar_core::{Dtype, Result, Rng};
use fulmar_objective::draw_rng;

use crate::config::DecoderConfig;
use crate::decoder::{Decoder, PackedDecoder};
use crate::engine_options::{EngineOptions, WeightChange};
use crate::head::HeadActivations;
use crate::outputs::{FinishReason, Outputs};
use crate::paged::{PagePool, PageTable};
use crate::request::{Request, SamplingParams};
use graphs::DecodeGraphs;
use pass::StepBuffers;
use speculation::Speculation;

/// Prompts of finished requests that are kept before a cleanup.
const PROMPTS_SPARE: usize = 64;

/// Some of the sequences of an engine, with their own pool of pages.
#[derive(Debug)]
pub(crate) struct Scheduler {
    options: EngineOptions,
    prompts: HashSet<Arc<[u32]>>,
    /// In order of arrival, like `running`; all of them arrived later.
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    pool: PagePool,
    /// Number of pages on the CPU.
    num_cpu_pages: usize,
    rope: RopeTable,
    buffers: StepBuffers,
    head: HeadActivations,
    graphs: DecodeGraphs,
    version: u64,
    speculation: Speculation,
    /// The store of kept activations that rows of sequences belong to.
    store: Option<Arc<()>>,
    outputs: Outputs,
}

/// One sequence.
#[derive(Debug)]
struct Sequence {
    request: u64,
    params: Arc<SamplingParams>,
    prompt: Arc<[u32]>,
    /// The drawn tokens, followed by the drafts of the present step.
    drawn: Vec<u32>,
    num_drafted: usize,
    rng: Rng,
    table: PageTable,
    /// Number of its tokens that are in the cache.
    computed: usize,
    /// The version of the weights that computed the first of them; `None` without cached tokens.
    cache_version: Option<u64>,
    /// The kept rows of its first tokens, see [`Sequence::keep`].
    kept: Vec<u32>,
}

impl Sequence {
    fn len(&self) -> usize {
        self.prompt.len() + self.drawn.len()
    }

    fn token(&self, position: usize) -> u32 {
        match position.checked_sub(self.prompt.len()) {
            None => self.prompt[position],
            Some(drawn) => self.drawn[drawn],
        }
    }

    /// Adds a row for the token at `position`; returns `false` if there is no page for it.
    fn push_row(&mut self, position: usize, pool: &mut PagePool, rows: &mut Rows) -> bool {
        let Some(row) = self.table.push(pool) else { return false };
        rows.step.push(self.token(position), position as u32, row, self.table.ranges());
        true
    }

    /// Gives the rows of all but the first `num_tokens` tokens back.
    fn trim(&mut self, num_tokens: usize, pool: &mut PagePool) {
        self.computed = self.computed.min(num_tokens);
        self.kept.truncate(num_tokens);
        self.table.truncate(num_tokens, pool);
    }

    /// Returns why the sequence ends with its last drawn token, or `None` if it does not.
    fn finish_reason(&self) -> Option<FinishReason> {
        let last = self.num_drawn().checked_sub(1).map(|last| self.drawn[last]);
        if last.is_some_and(|id| self.params.stop_ids.contains(&id)) {
            return Some(FinishReason::Stop);
        }
        (self.num_drawn() == self.params.max_tokens).then_some(FinishReason::Length)
    }

    fn forget(&mut self, pool: &mut PagePool) {
        self.drop_drafts(self.num_drafted);
        self.table.release(pool);
        self.kept.clear();
        (self.computed, self.cache_version) = (0, None);
    }
}

/// The rows of one step.
#[derive(Default)]
struct Rows {
    step: StepRows,
    /// Index of a running sequence and the number of rows it got.
    counts: Vec<(usize, usize)>,
    /// Rows whose activations the decoder keeps, with the kept rows.
    kept: Vec<(usize, u32)>,
}

impl Scheduler {
    /// Makes an empty scheduler; allocates no keys and values yet.
    pub(crate) fn new(config: &DecoderConfig, options: &EngineOptions, num_cpu_pages: usize) -> Self {
        Self {
            options: options.clone(),
            prompts: HashSet::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            pool: PagePool::new(options.cache_dtype(Dtype::F32), config, options.page_size, num_cpu_pages),
            num_cpu_pages,
            rope: config.rope(),
            buffers: StepBuffers::default(),
            head: HeadActivations::default(),
            graphs: DecodeGraphs::default(),
            version: 0,
            speculation: Speculation::new(options.speculative_tokens),
            store: None,
            outputs: Outputs::default(),
        }
    }

    /// Queues a checked request.
    pub(crate) fn add(&mut self, request: u64, asked: &Request<'_>, params: Arc<SamplingParams>) {
        if self.prompts.len() > 2 * self.num_unfinished() + PROMPTS_SPARE {
            self.prompts.retain(|prompt| Arc::strong_count(prompt) > 1);
        }
        let prompt = self.prompt_of(asked.prompt_ids);
        self.waiting.push_back(Sequence {
            request,
            params,
            prompt,
            drawn: Vec::new(),
            num_drafted: 0,
            rng: draw_rng(asked.seed, 0),
            table: PageTable::default(),
            computed: 0,
            cache_version: None,
            kept: Vec::new(),
        });
    }

    /// Takes the requests and the outputs of another scheduler, which computed other sequences.
    pub(crate) fn take_over(&mut self, mut other: Self) {
        for mut sequence in other.running.drain(..).chain(other.waiting.drain(..)) {
            sequence.forget(&mut other.pool);
            sequence.prompt = self.prompt_of(&sequence.prompt);
            self.waiting.push_back(sequence);
        }
        self.waiting.make_contiguous().sort_by_key(|sequence| sequence.request);
        other.take_outputs(&mut self.outputs);
    }

    /// Returns the prompt that requests with these tokens share.
    fn prompt_of(&mut self, ids: &[u32]) -> Arc<[u32]> {
        if let Some(known) = self.prompts.get(ids) {
            return Arc::clone(known);
        }
        let prompt: Arc<[u32]> = Arc::from(ids);
        self.prompts.insert(Arc::clone(&prompt));
        prompt
    }

    /// Drops a request and frees its pages; returns whether it existed.
    pub(crate) fn abort(&mut self, request: u64) -> bool {
        if let Some(index) = self.running.iter().position(|sequence| sequence.request == request) {
            self.finish(index, FinishReason::Abort);
        } else if let Some(index) = self.waiting.iter().position(|sequence| sequence.request == request) {
            self.waiting.remove(index);
            self.outputs.finished.push((request, FinishReason::Abort));
        } else {
            return false;
        }
        true
    }

    /// Returns whether an unfinished request has this prompt.
    pub(crate) fn has_prompt(&self, prompt: &[u32]) -> bool {
        self.prompts.get(prompt).is_some_and(|prompt| Arc::strong_count(prompt) > 1)
    }

    pub(crate) fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn num_unfinished(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    pub(crate) const fn num_pages(&self) -> usize {
        self.pool.num_pages()
    }

    pub(crate) fn num_free_pages(&self) -> usize {
        self.pool.num_free()
    }

    /// Adds the tokens drawn and the requests finished since the last call, and the counts since the engine was
    /// made.
    pub(crate) fn take_outputs(&mut self, outputs: &mut Outputs) {
        outputs.tokens.append(&mut self.outputs.tokens);
        outputs.finished.append(&mut self.outputs.finished);
        outputs.num_preemptions += self.outputs.num_preemptions;
        outputs.num_draft_tokens += self.speculation.num_drafted;
        outputs.num_accepted_tokens += self.speculation.num_accepted;
    }

    /// Runs up to `count` steps, with drafts by `draft`.
    ///
    /// # Errors
    /// The errors of draws, except for non-finite logits and options that allow no token. After an error
    /// every sequence waits, with its drawn tokens.
    pub(crate) fn steps(
        &mut self,
        packed: PackedDecoder<'_>,
        draft: Option<PackedDecoder<'_>>,
        count: usize,
    ) -> Result<()> {
        for _ in 0..count {
            if self.num_unfinished() == 0 {
                break;
            }
            if let Err(error) = self.step(packed, draft) {
                // Rows that this step would have written are missing.
                packed.decoder.kept.forget();
                while self.preempt_youngest() {}
                self.pool.forget_pages();
                return Err(error);
            }
        }
        Ok(())
    }

    fn step(&mut self, packed: PackedDecoder<'_>, draft: Option<PackedDecoder<'_>>) -> Result<()> {
        let decoder = packed.decoder;
        self.see_weights(decoder.version());
        self.see_device(decoder)?;
        if let Some(draft) = draft {
            self.draft(draft)?;
        }
        let mut rows = self.schedule();
        self.keep(decoder, &mut rows);
        let bucket = self.run_bucket(packed, &mut rows)?;
        if bucket.is_none() {
            self.with_memory_of_graphs(|scheduler| {
                scheduler.run_layers(packed, &rows);
                decoder.compute().check()
            })?;
        }
        decoder.compute().check()?;
        for &(index, count) in &rows.counts {
            self.running[index].computed += count;
        }
        let drawers = self.drawers(&rows);
        let ended = match bucket {
            Some(bucket) => self.draw_from_bucket(packed, &drawers, bucket)?,
            None => self.with_memory_of_graphs(|scheduler| scheduler.draw(packed, &drawers))?,
        };
        for (index, reason) in ended.into_iter().rev() {
            self.finish(index, reason);
        }
        Ok(())
    }

    /// Drops keys and values of other weights, unless the engine keeps them.
    fn see_weights(&mut self, version: u64) {
        if version != self.version && self.options.on_weight_change == WeightChange::Recompute {
            for sequence in &mut self.running {
                sequence.forget(&mut self.pool);
            }
        }
        self.version = version;
    }

    /// Makes pages on the device of `decoder` and in the dtype of the cache, unless they are there: keys and values that are there are computed again.
    fn see_device(&mut self, decoder: &Decoder) -> Result<()> {
        let place = (decoder.compute(), self.options.cache_dtype(decoder.activation_dtype()));
        if self.pool.place() == place {
            return Ok(());
        }
        for sequence in &mut self.running {
            sequence.forget(&mut self.pool);
        }
        self.graphs = DecodeGraphs::default();
        let (config, size) = (decoder.config(), self.options.page_size);
        self.pool = match decoder.compute() {
            Compute::Cpu => PagePool::new(place.1, config, size, self.num_cpu_pages),
            Compute::Cuda(card) => {
                let memory = (card.free_bytes()?, place.1);
                let pages = self.options.pages_on_gpu(config, memory, self.pages_of_longest())?;
                PagePool::allocate(place, config, size, pages)?
            }
        };
        Ok(())
    }

    /// Returns the pages of the longest unfinished request.
    fn pages_of_longest(&self) -> usize {
        let unfinished = self.running.iter().chain(&self.waiting);
        let pages =
            |sequence: &Sequence| self.options.pages_of(sequence.prompt.len(), sequence.params.max_tokens);
        unfinished.map(pages).max().unwrap_or(0)
    }

    fn schedule(&mut self) -> Rows {
        let (mut rows, mut index, mut preempted) = (Rows::default(), 0, false);
        while index < self.running.len() {
            if self.schedule_one(index, &mut rows) {
                index += 1;
            } else {
                preempted = self.preempt_youngest();
            }
        }
        while !preempted && self.running.len() < self.options.max_num_seqs && self.room(&rows) > 0 {
            let Some(next) = self.waiting.front() else { break };
            let pages = (next.len() + 1).div_ceil(self.options.page_size);
            if self.prefix_owner(&next.prompt, self.running.len()).is_none() && pages > self.pool.num_free() {
                break;
            }
            self.running.extend(self.waiting.pop_front());
            let newest = self.running.len() - 1;
            if !self.schedule_one(newest, &mut rows) {
                preempted = self.preempt_youngest();
            }
        }
        rows
    }

    /// Schedules the rows that the sequence must compute, as many as the step's limit and the pages allow;
    /// returns `false` if there is no page for a single one.
    fn schedule_one(&mut self, index: usize, rows: &mut Rows) -> bool {
        let room = self.room(rows);
        if self.running[index].computed == 0 && !self.begin(index) {
            return true;
        }
        let (sequence, pool) = (&mut self.running[index], &mut self.pool);
        let pending = sequence.computed..sequence.len();
        let mut count = 0;
        for position in pending.clone().take(room) {
            if !sequence.push_row(position, pool, rows) {
                break;
            }
            count += 1;
        }
        if count > 0 || room == 0 {
            // A sequence that waits for a page keeps its drafts, as a younger one gives its pages back.
            sequence.drop_drafts(pending.len() - count);
        }
        if count > 0 {
            rows.counts.push((index, count));
        }
        count > 0 || room == 0
    }

    /// Returns the number of rows that the step can still have.
    fn room(&self, rows: &Rows) -> usize {
        self.options.max_num_batched_tokens - rows.step.len()
    }

    /// Shares the pages of an equal prompt of an older sequence, all but the row needed to continue; returns
    /// `false` while they are being computed. Without such a sequence, this one computes its own.
    fn begin(&mut self, index: usize) -> bool {
        let tokens = (self.running[index].len() - 1).min(self.running[index].prompt.len());
        if let Some(prefix_owner) = self.prefix_owner(&self.running[index].prompt, index) {
            if self.running[prefix_owner].computed < self.running[index].prompt.len() {
                return false;
            }
            self.attach(index, prefix_owner, tokens);
        }
        self.running[index].cache_version = Some(self.version);
        true
    }

    /// Returns the first of the `end` oldest running sequences that has, or computes, this prompt under these
    /// weights.
    fn prefix_owner(&self, prompt: &Arc<[u32]>, end: usize) -> Option<usize> {
        self.running[..end].iter().position(|sequence| {
            Arc::ptr_eq(&sequence.prompt, prompt) && sequence.cache_version == Some(self.version)
        })
    }

    fn attach(&mut self, index: usize, prefix_owner: usize, num_tokens: usize) {
        let table = self.running[prefix_owner].table.share(num_tokens, &mut self.pool);
        let kept = self.running[prefix_owner].kept.iter().copied().take(num_tokens).collect();
        let sequence = &mut self.running[index];
        (sequence.table, sequence.computed, sequence.kept) = (table, num_tokens, kept);
        sequence.cache_version = Some(self.version);
    }

    /// Moves the youngest running sequence back to the queue; returns `false` if none runs.
    fn preempt_youngest(&mut self) -> bool {
        let Some(mut sequence) = self.running.pop() else { return false };
        sequence.forget(&mut self.pool);
        self.waiting.push_front(sequence);
        self.outputs.num_preemptions += 1;
        true
    }

    fn finish(&mut self, index: usize, reason: FinishReason) {
        let mut sequence = self.running.remove(index);
        sequence.forget(&mut self.pool);
        self.outputs.finished.push((sequence.request, reason));
    }
}

#[cfg(test)]
mod tests {
    use fulmar_compute::FloatsMut;

    use super::*;
    use crate::engine_options::EngineWeights;
    use crate::outputs::SampledToken;

    #[test]
    fn logits_that_are_no_numbers_end_their_own_sequence_alone() {
        let text = r#"{"model_type": "llama", "vocab_size": 12, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2, "tie_word_embeddings": false}"#;
        let sound = Decoder::new(DecoderConfig::from_json(text).unwrap(), 1).unwrap();
        let mut broken = sound.clone();
        let row = sound.parameters()[0].range.start + 5 * 8;
        assert_eq!(sound.parameters()[0].name, "model.embed_tokens.weight");
        let FloatsMut::F32(weights) = broken.trainable_and_gradients().0 else { panic!("f32 as made") };
        weights.cpu()[row..row + 8].fill(f32::NAN);
        let mut params = SamplingParams { max_tokens: 3, ..SamplingParams::default() };
        params.draw.banned_ids = vec![5];
        let params = Arc::new(params);
        let draws = |decoder: &Decoder, prompts: &[[u32; 2]]| {
            let mut scheduler = Scheduler::new(decoder.config(), &EngineOptions::default(), 100);
            for (id, prompt_ids) in prompts.iter().enumerate() {
                let request = Request { prompt_ids, seed: 0 };
                scheduler.add(id as u64, &request, Arc::clone(&params));
            }
            scheduler.steps(decoder.packed(EngineWeights::Same).unwrap(), None, 3).unwrap();
            assert_eq!((scheduler.num_unfinished(), scheduler.num_free_pages()), (0, 100));
            let mut outputs = Outputs::default();
            scheduler.take_outputs(&mut outputs);
            (outputs.tokens, outputs.finished)
        };
        let (tokens, finished) = draws(&broken, &[[1, 2], [1, 5], [3, 4]]);
        assert!(finished.contains(&(1, FinishReason::NonFinite)) && finished.len() == 3, "{finished:?}");
        let (expected, _) = draws(&sound, &[[1, 2], [3, 4]]);
        let bits = |tokens: &[SampledToken]| -> Vec<(u32, u32)> {
            tokens.iter().map(|token| (token.id, token.log_prob.to_bits())).collect()
        };
        assert_eq!(bits(&tokens), bits(&expected), "those beside it draw what they draw alone");
    }

    #[test]
    fn sequences_that_another_scheduler_takes_over_draw_what_they_would_have_drawn() {
        let text = r#"{"model_type": "llama", "vocab_size": 12, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 1, "num_attention_heads": 2, "initializer_range": 0.3}"#;
        let decoder = Decoder::new(DecoderConfig::from_json(text).unwrap(), 1).unwrap();
        let scheduler = || Scheduler::new(decoder.config(), &EngineOptions::default(), 50);
        let params = Arc::new(SamplingParams { max_tokens: 6, ..SamplingParams::default() });
        let run = |parts: usize| {
            let mut parts: Vec<Scheduler> = (0..parts).map(|_| scheduler()).collect();
            let count = parts.len();
            for (id, prompt_ids) in [[1, 2], [3, 4], [1, 2], [5, 6], [3, 4]].iter().enumerate() {
                parts[id % count].add(
                    id as u64,
                    &Request { prompt_ids, seed: id as u64 },
                    Arc::clone(&params),
                );
            }
            let packed = decoder.packed(EngineWeights::Same).unwrap();
            parts.iter_mut().for_each(|part| part.steps(packed, None, 2).unwrap());
            let mut whole = scheduler();
            parts.into_iter().for_each(|part| whole.take_over(part));
            assert_eq!((whole.num_unfinished(), whole.num_free_pages(), whole.prompts.len()), (5, 50, 3));
            assert!(whole.waiting.iter().map(|sequence| sequence.request).eq(0..5), "in order of arrival");
            whole.steps(packed, None, 10).unwrap();
            let mut outputs = Outputs::default();
            whole.take_outputs(&mut outputs);
            outputs.tokens.sort_by_key(|token| token.request);
            (outputs.tokens, outputs.finished.len(), outputs.num_preemptions)
        };
        let one = run(1);
        assert_eq!((one.0.len(), one.1, one.2), (30, 5, 0));
        assert_eq!(run(3), one);
    }
}
