//! Whole decoders: drawn tokens, steps of training, and a step of GRPO by its parts.
//!
//! Their times are those of a clock of the host, from one read of results to the next.

use std::time::{Duration, Instant};

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_cuda::Card;
use fulmar_model::{
    AdamWOptions, Decoder, Engine, EngineOptions, Optimizer, Request, SamplingParams, TokenBatch,
};
use fulmar_objective::{AdvantageOptions, Groups, group_advantage};
use serde_json::{Value, json};

use super::{Goal, sized};
use crate::model::{HALF_B, LAYERS_OF_3_B, Shape, TINY};

/// The longest time of a bench without that of making the model; one that takes longer ends with the rounds it has.
const LIMIT: Duration = Duration::from_secs(15);

/// Rounds of each bench, of which the slower one counts.
const ROUNDS: usize = 2;

/// Rows that an engine computes in a step: prompts in chunks.
const BATCHED_TOKENS: usize = 8_192;

/// Tokens of a page of keys and values.
const PAGE: usize = 16;

/// A bench of a decoder.
pub struct Bench {
    /// The name of the bench, which a rival of `rivals.py` shares.
    pub name: &'static str,
    measure: fn(&Card) -> Result<Value>,
    goal: Option<Goal>,
}

pub const BENCHES: [Bench; 4] = [
    Bench { name: "decode 0.5 B", measure: decode, goal: Some(Goal::TokensPerSecond(100_000.0)) },
    Bench { name: "training 0.5 B", measure: training, goal: Some(Goal::Peak(0.30)) },
    Bench { name: "training 3 B layers", measure: layers, goal: Some(Goal::Peak(0.32)) },
    Bench { name: "GRPO 0.5 B", measure: grpo, goal: None },
];

impl Bench {
    /// Measures the bench and returns its record.
    ///
    /// # Errors
    /// Errors of the GPU's driver; `LimitExceeded` if not one round ends in time.
    pub fn record(&self, card: &Card) -> Result<Value> {
        let mut record = json!({ "name": self.name });
        if let (Value::Object(record), Value::Object(found)) = (&mut record, (self.measure)(card)?) {
            record.extend(found);
        }
        if let Some(goal) = self.goal {
            goal.add(&mut record);
        }
        Ok(record)
    }
}

/// Returns the longest of some times.
fn slower(milliseconds: &[f64]) -> Result<f64> {
    let slower = milliseconds.iter().copied().fold(0.0, f64::max);
    if slower > 0.0 {
        return Ok(slower);
    }
    let detail = format!("a round must end within {} s: none did", LIMIT.as_secs());
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

/// Draws tokens for a full batch. Only steps that draw one token for each sequence are counted, after the prompts.
fn decode(card: &Card) -> Result<Value> {
    let (shape, [count, prompt, drawn]) = sized(card, (HALF_B, [256, 512, 128]), (TINY, [3, 5, 4]));
    let (decoder, clock) = (shape.decoder(card, Dtype::Bf16)?, Instant::now());
    let mut sampling = Sampling::of(&decoder, count, prompt, drawn)?;
    let (mut milliseconds, mut of_prompts) = (Vec::new(), Vec::new());
    while milliseconds.len() < ROUNDS && clock.elapsed() < LIMIT {
        let prompts: Vec<Vec<u32>> =
            (0..count).map(|at| shape.ids((milliseconds.len() * count + at) as u64, prompt)).collect();
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let Drawn { full, before, .. } = sampling.run(&decoder, &prompts, clock)?;
        milliseconds.push(1e3 * full.as_secs_f64());
        of_prompts.push(before.as_secs_f64());
    }
    let slower = slower(&milliseconds)?;
    Ok(json!({
        "shape": format!("{count} x ({prompt} + {drawn})"),
        "milliseconds": milliseconds,
        "prompt_seconds": of_prompts,
        "tokens_per_second": count as f64 / slower * 1e3,
    }))
}

/// An engine that draws for many sequences at once.
struct Sampling {
    engine: Engine,
    params: SamplingParams,
}

/// The draws of an engine, and their times.
struct Drawn {
    /// The ids of each sequence.
    ids: Vec<Vec<u32>>,
    /// The mean time of a step of all sequences, and the time before the first one.
    full: Duration,
    before: Duration,
}

impl Sampling {
    fn of(decoder: &Decoder, count: usize, prompt: usize, drawn: usize) -> Result<Self> {
        let options = EngineOptions {
            page_size: PAGE,
            num_pages: Some(count * (prompt.div_ceil(PAGE) + drawn.div_ceil(PAGE))),
            max_num_seqs: count,
            max_num_batched_tokens: BATCHED_TOKENS.max(count),
            ..EngineOptions::default()
        };
        let params = SamplingParams { max_tokens: drawn, ..SamplingParams::default() };
        Ok(Self { engine: Engine::new(decoder.config(), options)?, params })
    }

    /// Draws for each prompt, until all are drawn or the time is over.
    fn run(&mut self, decoder: &Decoder, prompts: &[&[u32]], clock: Instant) -> Result<Drawn> {
        let start = Instant::now();
        let mut requests = Vec::new();
        for (seed, prompt) in (0..).zip(prompts) {
            requests.push(self.engine.add(&Request { prompt_ids: prompt, seed }, &self.params)?);
        }
        let (mut before, mut full, mut steps) = (None, Duration::ZERO, 0);
        let mut ids = vec![Vec::new(); prompts.len()];
        loop {
            let step = Instant::now();
            let left = self.engine.steps(decoder, 1)?;
            let tokens = self.engine.take_outputs().tokens;
            // The first step that draws for all sequences ends the last prompt, too.
            if tokens.len() == prompts.len() {
                if before.is_some() {
                    full += step.elapsed();
                    steps += 1;
                }
                before.get_or_insert_with(|| start.elapsed());
            }
            for token in tokens {
                // Ids of requests rise from one request to the next.
                ids[(token.request - requests[0]) as usize].push(token.id);
            }
            if left == 0 || clock.elapsed() > LIMIT {
                break;
            }
        }
        requests.iter().for_each(|request| {
            self.engine.abort(*request);
        });
        Ok(Drawn { ids, full: full / steps.max(1), before: before.unwrap_or_default() })
    }
}

/// A step of AdamW on 32 sequences of 1,024 tokens.
fn training(card: &Card) -> Result<Value> {
    train(card, sized(card, HALF_B, TINY), sized(card, [32, 1_024], [2, 9]))
}

/// The same of a few layers of 3 B.
fn layers(card: &Card) -> Result<Value> {
    train(card, sized(card, LAYERS_OF_3_B, TINY), sized(card, [32, 1_024], [2, 9]))
}

fn train(card: &Card, shape: Shape, [sequences, len]: [usize; 2]) -> Result<Value> {
    let (mut decoder, clock) = (shape.decoder(card, Dtype::Bf16)?, Instant::now());
    let mut optimizer =
        Optimizer::new(&decoder, AdamWOptions { learning_rate: 1e-5, ..AdamWOptions::default() })?;
    let ids = shape.ids(0, sequences * len);
    let offsets: Vec<u32> = (0..=sequences).map(|at| (at * len) as u32).collect();
    let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at % len > 0)).collect();
    let trained = (sequences * (len - 1)) as f32;
    let d_log_prob: Vec<f32> = mask.iter().map(|mask| -f32::from(*mask) / trained).collect();
    let mut milliseconds = Vec::new();
    for round in 0..=ROUNDS {
        let start = Instant::now();
        decoder.forward(&TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, positions: None })?;
        decoder.backward(&d_log_prob, None)?;
        optimizer.step(&mut decoder, None, Some(1.0))?;
        card.finish()?;
        // The first step allocates memory, and counts only if there is no time for another.
        if round > 0 || clock.elapsed() > LIMIT {
            milliseconds.push(1e3 * start.elapsed().as_secs_f64());
        }
        if clock.elapsed() > LIMIT {
            break;
        }
    }
    let slower = slower(&milliseconds)?;
    // A token of a sequence attends to half of it; a backward pass counts as two forward ones.
    let pairs = sequences * len * (len + 1) / 2;
    let operations = 6 * shape.num_multiplied() * ids.len() + 12 * shape.layers * shape.hidden * pairs;
    Ok(json!({
        "shape": format!("{sequences} x {len}"),
        "milliseconds": milliseconds,
        "operations": operations,
        "teraflops": operations as f64 / slower / 1e9,
        "tokens_per_second": ids.len() as f64 / slower * 1e3,
    }))
}

/// A step of GRPO: 8 completions of each of 32 prompts are drawn and rewarded, then trained in micro-batches.
fn grpo(card: &Card) -> Result<Value> {
    let (shape, [prompts, group, prompt, drawn, in_batch]) =
        sized(card, (HALF_B, [32, 8, 256, 128, 8]), (TINY, [2, 2, 5, 4, 1]));
    let (mut decoder, clock) = (shape.decoder(card, Dtype::Bf16)?, Instant::now());
    let mut optimizer =
        Optimizer::new(&decoder, AdamWOptions { learning_rate: 1e-6, ..AdamWOptions::default() })?;
    let mut sampling = Sampling::of(&decoder, prompts * group, prompt, drawn)?;
    let mut rounds = Vec::new();
    while rounds.len() < ROUNDS && clock.elapsed() < LIMIT {
        let texts: Vec<Vec<u32>> =
            (0..prompts).map(|at| shape.ids((rounds.len() * prompts + at) as u64, prompt)).collect();
        let asked: Vec<&[u32]> = texts.iter().flat_map(|text| vec![text.as_slice(); group]).collect();
        let start = Instant::now();
        let Drawn { ids, .. } = sampling.run(&decoder, &asked, clock)?;
        let draw = start.elapsed();
        // The share of even ids, which any sequence has some of.
        let reward = |ids: &Vec<u32>| ids.iter().filter(|id| *id % 2 == 0).count() as f64 / drawn as f64;
        let rewards: Vec<f64> = ids.iter().map(reward).collect();
        let advantage =
            group_advantage(&rewards, None, Groups::Size(group), &AdvantageOptions::default())?.advantage;
        let (mut forward, mut backward) = (Duration::ZERO, Duration::ZERO);
        for first in (0..asked.len()).step_by(in_batch * group) {
            let of_batch = first..(first + in_batch * group).min(asked.len());
            let batch =
                Completions::of(&asked[of_batch.clone()], &ids[of_batch.clone()], &advantage[of_batch]);
            let start = Instant::now();
            decoder.forward(&batch.view())?;
            forward += start.elapsed();
            let start = Instant::now();
            decoder.backward(&batch.d_log_prob, None)?;
            card.finish()?;
            backward += start.elapsed();
        }
        let start = Instant::now();
        optimizer.step(&mut decoder, None, Some(1.0))?;
        card.finish()?;
        rounds.push([draw, forward, backward, start.elapsed()].map(|part| part.as_secs_f64()));
    }
    let milliseconds: Vec<f64> = rounds.iter().map(|round| 1e3 * sum(round)).collect();
    slower(&milliseconds)?;
    let of_slower = rounds.iter().copied().max_by(|a, b| sum(a).total_cmp(&sum(b)));
    let [draw, forward, backward, optimizer] = of_slower.unwrap_or_default();
    Ok(json!({
        "shape": format!("{prompts} x {group} x ({prompt} + {drawn})"),
        "milliseconds": milliseconds,
        "parts": { "draw": draw, "forward": forward, "backward": backward, "optimizer": optimizer },
    }))
}

fn sum(parts: &[f64; 4]) -> f64 {
    parts.iter().sum()
}

/// Completions with their prompts, and the gradients of a policy's first step: the ratio is 1, so they are the advantages.
struct Completions {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    d_log_prob: Vec<f32>,
}

impl Completions {
    fn of(prompts: &[&[u32]], drawn: &[Vec<u32>], advantage: &[f64]) -> Self {
        let mut batch = Self { ids: Vec::new(), offsets: vec![0], mask: Vec::new(), d_log_prob: Vec::new() };
        let trained = drawn.iter().map(Vec::len).sum::<usize>() as f64;
        for ((prompt, drawn), advantage) in prompts.iter().zip(drawn).zip(advantage) {
            batch.ids.extend(prompt.iter().chain(drawn));
            batch
                .mask
                .extend(std::iter::repeat_n(0, prompt.len()).chain(std::iter::repeat_n(1, drawn.len())));
            batch.d_log_prob.resize(batch.d_log_prob.len() + prompt.len(), 0.0);
            batch.d_log_prob.resize(batch.ids.len(), (-advantage / trained) as f32);
            batch.offsets.push(batch.ids.len() as u32);
        }
        batch
    }

    fn view(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions: None }
    }
}
