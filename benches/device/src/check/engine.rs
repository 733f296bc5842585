//! Engines whose decoder is on the card: every token and log-prob of the processor's, whatever the other sequences, pages and
//! preemptions, with one wait a step.

use std::collections::HashMap;

use fulmar_compute::{Compute, MatmulPrecision};
use fulmar_core::{Dtype, ErrorKind, Result, Rng};
use fulmar_cuda::{Buffer, Card};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, Engine, EngineOptions, EngineWeights, FinishReason, Generated,
    KvCacheDtype, LoraConfig, Optimizer, Outputs, Request, SamplingParams, TokenBatch,
};
use fulmar_objective::{DrawMethod, DrawOptions};

use super::decoder::{CONFIGS, WIDE_CONFIGS};
use super::shortage::{MEMORY_MAX, lacking};
use crate::report::Report;

/// Sizes of pages, number of pages in addition to those of the longest sequence, and sequences that run at once.
const SETTINGS: [(usize, usize, usize); 3] = [(16, 20, 9), (1, 12, 2), (7, 1, 4)];

/// Largest relative error of the log-probs of sequences that moved to the card and back, in the L2 norm: some of their keys and
/// values were rounded to bfloat16. As for scores in `decoder`; on the emulated GPU it is up to 1e-3.
const MOVED_ERROR_MAX: f64 = 5e-3;

/// Compares engines of each family.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    let mut num_preemptions = 0;
    for ((name, text), setting) in CONFIGS.iter().zip(0..) {
        let on_processor = Decoder::new(DecoderConfig::from_json(text)?, 7)?;
        let mut on_card = on_processor.clone();
        on_card.move_to(card.device())?;
        let asked = Asked::all(on_processor.config().vocab_size);
        let pair = Pair { card, on_processor: &on_processor, on_card: &on_card, name };
        let wanted = pair.alone(&on_processor, &asked)?;
        // The first family runs in all settings, the others in one each.
        let settings = if setting == 0 { &SETTINGS[..] } else { &SETTINGS[setting..=setting] };
        for setting in settings {
            num_preemptions += pair.together(report, &asked, &wanted, *setting)?;
        }
        pair.scored(report, &asked, &wanted)?;
        if setting == 0 {
            pair.moved(report, &asked, &wanted)?;
            refused(report, &on_card)?;
            ended(card, report, &on_processor)?;
            if card.free_bytes()? <= MEMORY_MAX {
                out_of_memory(card, report, "f32", &on_card, (&asked[..3], &wanted[..3]))?;
            }
            adapted(card, report, &on_processor, &asked)?;
            let mut rounding = on_card.clone();
            rounding.multiply_in(MatmulPrecision::Bf16);
            let halves = on_card.clone().with_dtype(Dtype::Bf16)?;
            let adapted = with_adapter(&halves)?;
            // In bfloat16 the card has bits of its own, the same ones for a sequence in any batch.
            for (name, on_card) in [
                ("products in bfloat16", &rounding),
                ("weights in bfloat16", &halves),
                ("an adapter of weights in bfloat16", &adapted),
            ] {
                let pair = Pair { on_card, name, ..pair };
                let (asked, setting) = (&asked[3..7], SETTINGS[2]);
                let wanted = pair.alone(on_card, asked)?;
                pair.together(report, asked, &wanted, setting)?;
                pair.scored(report, asked, &wanted)?;
            }
        }
    }
    for ((name, text), setting) in WIDE_CONFIGS.iter().zip(SETTINGS) {
        num_preemptions += in_halves(card, report, name, &DecoderConfig::from_json(text)?, setting)?;
    }
    report.same("preemptions of an engine", "all", &[u32::from(num_preemptions > 3)], &[1]);
    Ok(())
}

/// Attention in bfloat16: sequences of an engine have the bits of those alone and of the decoder's scores. The first family also has
/// more keys than a segment, and an adapter. A card with little memory runs out of it. Returns how many were preempted.
fn in_halves(
    card: &Card,
    report: &mut Report,
    name: &str,
    config: &DecoderConfig,
    setting: (usize, usize, usize),
) -> Result<u64> {
    let on_processor = Decoder::new(config.clone(), 7)?.with_dtype(Dtype::Bf16)?;
    let mut on_card = on_processor.clone();
    on_card.move_to(card.device())?;
    let asked = Asked::all(config.vocab_size);
    let pair = Pair { card, on_processor: &on_processor, on_card: &on_card, name };
    if card.free_bytes()? <= MEMORY_MAX {
        let wanted = pair.alone(&on_card, &asked[..3])?;
        out_of_memory(card, report, name, &on_card, (&asked[..3], &wanted))?;
        // The rest takes more memory.
        return Ok(0);
    }
    let wanted = pair.alone(&on_card, &asked[2..7])?;
    let num_preemptions = pair.together(report, &asked[2..7], &wanted, setting)?;
    pair.scored(report, &asked[2..7], &wanted)?;
    if setting == SETTINGS[0] {
        converted(report, name, &pair, &asked)?;
        let long = [Asked::long(254, config.vocab_size), Asked::long(40, config.vocab_size)];
        let wanted = pair.alone(&on_card, &long)?;
        pair.together(report, &long, &wanted, setting)?;
        pair.scored(report, &long, &wanted)?;
        let (adapted, name) = (with_adapter(&on_card)?, format!("{name}, an adapter"));
        let pair = Pair { on_card: &adapted, name: &name, ..pair };
        let wanted = pair.alone(&adapted, &asked[..3])?;
        pair.together(report, &asked[..3], &wanted, SETTINGS[1])?;
        pair.scored(report, &asked[..3], &wanted)?;
    }
    Ok(num_preemptions)
}

/// Keys and values are rounded when the decoder of running sequences moves to the card, and widened when it moves back: all
/// sequences end, and draw what is likely under the decoder.
fn converted(report: &mut Report, name: &str, pair: &Pair<'_>, asked: &[Asked]) -> Result<()> {
    let mut engine = Engine::new(
        pair.on_card.config(),
        EngineOptions { num_pages: Some(40), ..EngineOptions::default() },
    )?;
    let add = |asked: &Asked| engine.add(&asked.request(), &asked.params);
    let ids: Vec<u64> = asked.iter().map(add).collect::<Result<_>>()?;
    engine.steps(pair.on_processor, 2)?;
    engine.steps(pair.on_card, 2)?;
    while engine.steps(pair.on_processor, 1)? > 0 {}
    let mut found = Found::default();
    found.take(engine.take_outputs());
    let drawn: Vec<Generated> = ids.iter().filter_map(|id| found.0.remove(id)).collect();
    let (batch, of_engine) = Scored::of(asked, &drawn);
    let scores = pair.on_processor.score(&batch.view())?;
    let wanted: Vec<f64> = batch.of_drawn(&scores.log_prob).into_iter().map(f64::from).collect();
    report.near("engine, moved to the card and back", name, &of_engine, &wanted, MOVED_ERROR_MAX);
    Ok(())
}

/// A request and its parameters.
struct Asked {
    prompt: Vec<u32>,
    seed: u64,
    params: SamplingParams,
}

impl Asked {
    /// Returns requests of three prompts, each with options of its own.
    fn all(vocab: usize) -> Vec<Self> {
        let mut rng = Rng::new(22).stream("asked").fork(vocab as u64);
        let mut below = |end: usize| rng.next_u32() as usize % end;
        let prompts: Vec<Vec<u32>> =
            [9, 1, 4].map(|len| (0..len).map(|_| below(vocab) as u32).collect()).into();
        (0..9)
            .map(|index| {
                let draw = match index % 5 {
                    0 => DrawOptions::default(),
                    1 => DrawOptions { top_p: 0.8, temperature: 0.7, ..DrawOptions::default() },
                    2 => DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() },
                    3 => DrawOptions {
                        repetition_penalty: 1.4,
                        no_repeat_ngram_size: 1,
                        logit_bias: vec![(3, 2.0)],
                        ..DrawOptions::default()
                    },
                    _ => DrawOptions { temperature: 0.0, ..DrawOptions::default() },
                };
                let stop_ids = if index % 2 == 0 { (0..vocab as u32 / 8).collect() } else { Vec::new() };
                let params =
                    SamplingParams { max_tokens: 2 + index % 6, stop_ids, top_log_probs: index % 3, draw };
                Self {
                    prompt: prompts[[0, 0, 0, 1, 2, 2, 0, 1, 2][index]].clone(),
                    seed: 91 + index as u64,
                    params,
                }
            })
            .collect()
    }

    /// Returns a request with a prompt of `len` tokens.
    fn long(len: usize, vocab: usize) -> Self {
        let prompt = (0..len).map(|at| ((at * at * 13 + 5) % vocab) as u32).collect();
        Self { prompt, seed: 5, params: SamplingParams { max_tokens: 3, ..SamplingParams::default() } }
    }

    fn request(&self) -> Request<'_> {
        Request { prompt_ids: &self.prompt, seed: self.seed }
    }

    /// Returns the pages of this sequence with the tokens that it may get.
    fn pages(&self, page_size: usize) -> usize {
        self.prompt.len().div_ceil(page_size) + self.params.max_tokens.div_ceil(page_size)
    }
}

/// One decoder on both devices.
struct Pair<'a> {
    card: &'a Card,
    on_processor: &'a Decoder,
    on_card: &'a Decoder,
    name: &'a str,
}

/// The tokens that an engine drew for each request.
#[derive(Default)]
pub struct Found(pub HashMap<u64, Generated>);

impl Found {
    /// Adds what an engine drew.
    pub fn take(&mut self, outputs: Outputs) {
        for token in outputs.tokens {
            self.0.entry(token.request).or_default().push(token);
        }
        for (request, reason) in outputs.finished {
            self.0.entry(request).or_default().finish_reason = Some(reason);
        }
    }

    /// Compares with what the requests of these ids get.
    pub fn compare(&self, report: &mut Report, shape: &str, ids: &[u64], wanted: &[Generated]) {
        let empty = Generated::default();
        let got = |id: &u64| self.0.get(id).unwrap_or(&empty);
        let words = |of: fn(&Generated) -> Vec<u32>| -> [Vec<u32>; 2] {
            [ids.iter().flat_map(|id| of(got(id))).collect(), wanted.iter().flat_map(of).collect()]
        };
        let mut same = |name: &str, of: fn(&Generated) -> Vec<u32>| {
            let [got, wanted] = words(of);
            report.same(&format!("engine, {name}"), shape, &got, &wanted);
        };
        same("ids", |found| found.ids.clone());
        same("log_prob", |found| found.log_prob.iter().map(|number| number.to_bits()).collect());
        same("sampled", |found| found.sampled_log_prob.iter().map(|number| number.to_bits()).collect());
        same("likeliest ids", |found| {
            let all = found.top_log_probs.iter().flatten();
            all.flat_map(|(id, log_prob)| [*id, log_prob.to_bits()]).collect()
        });
        same("ends", |found| {
            vec![found.ids.len() as u32, found.finish_reason.map_or(9, |reason| reason as u32)]
        });
    }
}

impl Pair<'_> {
    /// Returns what one of the decoders draws for each request on its own.
    fn alone(&self, decoder: &Decoder, asked: &[Asked]) -> Result<Vec<Generated>> {
        let one = |asked: &Asked| {
            let mut engine = Engine::new(
                decoder.config(),
                EngineOptions { num_pages: Some(40), ..EngineOptions::default() },
            )?;
            let id = engine.add(&asked.request(), &asked.params)?;
            while engine.steps(decoder, 1)? > 0 {}
            let mut found = Found::default();
            found.take(engine.take_outputs());
            Ok(found.0.remove(&id).unwrap_or_default())
        };
        asked.iter().map(one).collect()
    }

    /// Runs all requests in an engine on the card, in an order of their own and some of them later; returns how many were preempted.
    fn together(
        &self,
        report: &mut Report,
        asked: &[Asked],
        wanted: &[Generated],
        (page_size, more, max_num_seqs): (usize, usize, usize),
    ) -> Result<u64> {
        let longest = asked.iter().map(|asked| asked.pages(page_size)).max().unwrap_or(0);
        let options = EngineOptions {
            page_size,
            num_pages: Some(longest + more),
            max_num_seqs,
            max_num_batched_tokens: max_num_seqs + 8,
            ..EngineOptions::default()
        };
        let mut engine = Engine::new(self.on_card.config(), options)?;
        let mut order: Vec<usize> = (0..asked.len()).collect();
        Rng::new(page_size as u64).shuffle(&mut order);
        let (mut ids, mut found, mut most) = (vec![0; asked.len()], Found::default(), 0);
        let (first, later) = order.split_at(asked.len() / 2);
        for part in [first, later] {
            for index in part {
                ids[*index] = engine.add(&asked[*index].request(), &asked[*index].params)?;
            }
            for _ in 0..if part == first { 2 } else { usize::MAX } {
                let before = self.card.num_waits();
                let left = engine.steps(self.on_card, 1)?;
                most = most.max(self.card.num_waits() - before);
                if left == 0 {
                    break;
                }
            }
        }
        let outputs = engine.take_outputs();
        let num_preemptions = outputs.num_preemptions;
        found.take(outputs);
        let shape = format!("{}, pages of {page_size}, {max_num_seqs} at once", self.name);
        found.compare(report, &shape, &ids, wanted);
        report.same("engine, waits of a step", &shape, &[most], &[1]);
        report.same(
            "engine, free pages",
            &shape,
            &[engine.num_free_pages() as u32],
            &[(longest + more) as u32],
        );
        Ok(num_preemptions)
    }

    /// Compares the log-probs of drawn tokens with those that the decoder on the card gives the whole sequences.
    fn scored(&self, report: &mut Report, asked: &[Asked], wanted: &[Generated]) -> Result<()> {
        let (batch, drawn) = Scored::of(asked, wanted);
        let scored = batch.of_drawn(&self.on_card.score(&batch.view())?.log_prob);
        report.same("engine, scores of what was drawn", self.name, &scored, &drawn);
        Ok(())
    }

    /// An engine's decoder moves to the card while sequences run, and back.
    fn moved(&self, report: &mut Report, asked: &[Asked], wanted: &[Generated]) -> Result<()> {
        let mut engine = Engine::new(
            self.on_card.config(),
            EngineOptions { num_pages: Some(40), ..EngineOptions::default() },
        )?;
        let add = |asked: &Asked| engine.add(&asked.request(), &asked.params);
        let ids: Vec<u64> = asked.iter().map(add).collect::<Result<_>>()?;
        engine.steps(self.on_processor, 2)?;
        engine.steps(self.on_card, 2)?;
        while engine.steps(self.on_processor, 1)? > 0 {}
        let mut found = Found::default();
        found.take(engine.take_outputs());
        found.compare(report, "moves to the card and back", &ids, wanted);
        Ok(())
    }
}

/// Prompts with the tokens that were drawn for them.
struct Scored {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
}

impl Scored {
    /// Returns the sequences, and the log-probs of their drawn tokens.
    fn of(asked: &[Asked], drawn: &[Generated]) -> (Self, Vec<f32>) {
        let mut batch = Self { ids: Vec::new(), offsets: vec![0], mask: Vec::new() };
        for (asked, drawn) in asked.iter().zip(drawn) {
            batch.ids.extend(asked.prompt.iter().chain(&drawn.ids));
            batch.mask.extend(asked.prompt.iter().map(|_| 0_u8).chain(drawn.ids.iter().map(|_| 1)));
            batch.offsets.push(batch.ids.len() as u32);
        }
        (batch, drawn.iter().flat_map(|drawn| drawn.log_prob.iter().copied()).collect())
    }

    fn view(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, ..TokenBatch::default() }
    }

    /// Returns the numbers of drawn tokens.
    fn of_drawn(&self, log_prob: &[f32]) -> Vec<f32> {
        log_prob.iter().zip(&self.mask).filter(|(_, mask)| **mask == 1).map(|(value, _)| *value).collect()
    }
}

/// An engine draws from an adapter that is trained, merged into the weights.
fn adapted(card: &Card, report: &mut Report, decoder: &Decoder, asked: &[Asked]) -> Result<()> {
    let on_processor = with_adapter(decoder)?;
    let mut on_card = on_processor.clone();
    on_card.move_to(card.device())?;
    let pair = Pair { card, on_processor: &on_processor, on_card: &on_card, name: "an adapter" };
    let wanted = pair.alone(&on_processor, asked)?;
    pair.together(report, asked, &wanted, SETTINGS[2])?;
    pair.scored(report, asked, &wanted)
}

/// Returns the decoder with an adapter that changes what it draws.
fn with_adapter(decoder: &Decoder) -> Result<Decoder> {
    let mut adapted = decoder.clone();
    adapted.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1)?;
    let mut optimizer =
        Optimizer::new(&adapted, AdamWOptions { learning_rate: 0.1, ..AdamWOptions::default() })?;
    for _ in 0..2 {
        adapted.forward(&TokenBatch {
            ids: &[1, 2, 3],
            offsets: &[0, 3],
            mask: &[0, 1, 1],
            ..TokenBatch::default()
        })?;
        adapted.backward(&[0.0, -1.0, -1.0], None)?;
        optimizer.step(&mut adapted, None, None)?;
    }
    Ok(adapted)
}

/// Engines that a card lacks are refused by name, and the requests are there for another.
fn refused(report: &mut Report, on_card: &Decoder) -> Result<()> {
    let options = |change: fn(&mut EngineOptions)| {
        let mut options = EngineOptions { num_pages: Some(8), ..EngineOptions::default() };
        change(&mut options);
        options
    };
    let cases = [
        ("weights in 8 bits", options(|options| options.weights = EngineWeights::Q8)),
        ("a cache in bfloat16", options(|options| options.kv_cache_dtype = KvCacheDtype::Bf16)),
        ("speculativeTokens", options(|options| options.speculative_tokens = 2)),
        ("activationBytesMax", options(|options| options.activation_bytes_max = 1 << 20)),
    ];
    for (name, options) in cases {
        let mut engine = Engine::new(on_card.config(), options)?;
        engine.add(&Request { prompt_ids: &[1], seed: 0 }, &SamplingParams::default())?;
        let refused = engine.steps(on_card, 1).err();
        let is_named = refused
            .is_some_and(|error| error.kind() == ErrorKind::Unavailable && error.detail().contains(name));
        report.same(
            "an engine is refused",
            name,
            &[u32::from(is_named), engine.num_unfinished() as u32],
            &[1, 1],
        );
    }
    Ok(())
}

/// A step fails at each of its allocations in turn, as a training step does in `training`. The sequences then wait, and end with the
/// tokens of an engine that never failed, on a card that has memory again.
fn out_of_memory(
    card: &Card,
    report: &mut Report,
    name: &str,
    on_card: &Decoder,
    (asked, wanted): (&[Asked], &[Generated]),
) -> Result<()> {
    let (mut failures, mut left) = (0, 0);
    loop {
        let mut engine = Engine::new(
            on_card.config(),
            EngineOptions { num_pages: Some(40), page_size: 2, ..EngineOptions::default() },
        )?;
        let add = |asked: &Asked| engine.add(&asked.request(), &asked.params);
        let ids: Vec<u64> = asked.iter().map(add).collect::<Result<_>>()?;
        let taken: Buffer<u8> = card.zeros(card.free_bytes()? - left)?;
        let error = loop {
            match engine.steps(on_card, 1) {
                Ok(0) => break None,
                Ok(_) => {}
                Err(error) => break Some(error),
            }
        };
        drop(taken);
        let Some(error) = error else { break };
        failures += 1;
        let shape = format!("{name}, {left} bytes left: {error}");
        report.same(
            "kind of an engine's failure",
            &shape,
            &[u32::from(error.kind() == ErrorKind::OutOfMemory)],
            &[1],
        );
        while engine.steps(on_card, 1)? > 0 {}
        let mut found = Found::default();
        found.take(engine.take_outputs());
        found.compare(report, &shape, &ids, wanted);
        let Some(lacking) = lacking(error.detail()) else { break };
        left += lacking;
    }
    report.same("failures of an engine", &format!("{name}: {failures}"), &[u32::from(failures > 20)], &[1]);
    Ok(())
}

/// Sequences whose residuals overflow, or that have no token to draw, end as on the processor, and others do not.
fn ended(card: &Card, report: &mut Report, on_processor: &Decoder) -> Result<()> {
    let text = CONFIGS[0].1.replace("0.3", "1e30");
    let wild = Decoder::new(DecoderConfig::from_json(&text)?, 7)?;
    let free = SamplingParams { max_tokens: 2, ..SamplingParams::default() };
    let mut bound = free.clone();
    // One unigram after the other is used up: two tokens are left to draw, then one, then none.
    bound.max_tokens = 4;
    bound.draw.no_repeat_ngram_size = 1;
    bound.draw.banned_ids = (2..on_processor.config().vocab_size as u32).collect();
    for (name, decoder) in [("overflow", &wild), ("no token", on_processor)] {
        let run = |compute: Compute| -> Result<Vec<(u64, u32)>> {
            let mut decoder = decoder.clone();
            decoder.move_to(compute.device())?;
            let mut engine = Engine::new(
                decoder.config(),
                EngineOptions { num_pages: Some(20), ..EngineOptions::default() },
            )?;
            engine.add(&Request { prompt_ids: &[5, 6], seed: 1 }, &bound)?;
            engine.add(&Request { prompt_ids: &[7], seed: 2 }, &free)?;
            while engine.steps(&decoder, 1)? > 0 {}
            let Outputs { tokens, finished, .. } = engine.take_outputs();
            let drawn = tokens.iter().map(|token| (token.request, token.id));
            let mut all: Vec<(u64, u32)> = drawn
                .chain(finished.iter().map(|(request, reason)| (*request, 1_000 + *reason as u32)))
                .collect();
            all.sort_by_key(|(request, _)| *request);
            Ok(all)
        };
        let (wanted, got) = (run(Compute::Cpu)?, run(Compute::Cuda(*card))?);
        let reason = if name == "overflow" { FinishReason::NonFinite } else { FinishReason::NoToken };
        let is_met = wanted.contains(&(0, 1_000 + reason as u32)) && got == wanted;
        report.same("an engine's ends", name, &[u32::from(is_met)], &[1]);
    }
    Ok(())
}
