//! Decode steps of an engine on the card that are captured and repeated: they draw what the processor draws, in bfloat16 what the
//! card draws without graphs, and are repeated where they should be.
//!
//! An engine whose steps are by copies of a decoder in turn captures none of them, as their weights are at other addresses.

use std::env;
use std::process::Command;

use fulmar_compute::MatmulPrecision;
use fulmar_core::{Device, Dtype, Error, ErrorKind, Result};
use fulmar_cuda::{Buffer, Card};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, Engine, EngineOptions, Generated, LoraConfig, Optimizer, Request,
    SamplingParams, TokenBatch, WeightChange,
};
use fulmar_objective::{DrawMethod, DrawOptions};

use super::decoder::{CONFIGS, WIDE_CONFIGS};
use super::engine::Found;
use super::shortage::{MEMORY_MAX, lacking};
use crate::report::Report;

/// A small decoder whose heads have attention in bfloat16.
const WIDE: &str = r#"{"model_type": "llama", "vocab_size": 37, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "initializer_range": 0.3}"#;

/// Numbers of sequences, each with pages of [`PAGES`]: whole buckets, and those with padding.
const BATCHES: [(usize, usize); 7] = [(1, 0), (2, 1), (3, 2), (5, 0), (9, 1), (17, 1), (33, 2)];

/// The same in bfloat16.
const BATCHES_IN_HALVES: [(usize, usize); 4] = [(2, 0), (3, 2), (9, 1), (33, 2)];

/// Tokens of a page, and pages besides those of the longest sequence.
const PAGES: [(usize, usize); 3] = [(16, 200), (1, 60), (7, 9)];

/// The option of the emulated GPU that lets every launch of a number fail.
const FAIL_EACH_LAUNCH: &str = "FULMAR_EMULATED_FAIL_EACH_LAUNCH";

/// That number: a prime, so that over as many engines each launch of one fails.
const FAILING_LAUNCH: u64 = 97;

/// A prompt with more rows than a step of decoding.
const LATER: [u32; 12] = [2; 12];

/// Bytes that an engine with too little memory for its graphs gets more than the one before.
const LEFT_EACH: usize = 512;

/// Compares engines whose decode steps are captured.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    let of = |text: &str| Decoder::new(DecoderConfig::from_json(text)?, 11);
    let decoder = of(CONFIGS[0].1)?;
    let small = of(&CONFIGS[0].1.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"))?;
    let wide = of(WIDE)?.with_dtype(Dtype::Bf16)?;
    let [in_f32, in_halves] = [Tried::in_f32(card, &small)?, Tried::on_card(card, &wide)?];
    if env::var_os(FAIL_EACH_LAUNCH).is_some() {
        survived(card, report, &in_f32, FAILING_LAUNCH)?;
        // Half as many, as they take longer.
        return survived(card, report, &in_halves, FAILING_LAUNCH / 2);
    }
    if card.free_bytes()? <= MEMORY_MAX {
        return out_of_memory(card, report, &in_halves);
    }
    counts(card, report, &decoder)?;
    counts(card, report, &of(WIDE_CONFIGS[2].1)?.with_dtype(Dtype::Bf16)?)?;
    let two_layers = Tried::in_f32(card, &decoder)?;
    moved(card, report, &two_layers)?;
    moved(card, report, &in_halves)?;
    for (count, pages) in BATCHES {
        batch(card, report, CONFIGS[0].0, &two_layers, count, PAGES[pages])?;
    }
    for ((name, text), pages) in CONFIGS[1..].iter().zip(PAGES) {
        batch(card, report, name, &Tried::in_f32(card, &of(text)?)?, 9, pages)?;
    }
    for (count, pages) in BATCHES_IN_HALVES {
        batch(card, report, "heads of 64", &in_halves, count, PAGES[pages])?;
    }
    let mut rounding = small.clone();
    rounding.multiply_in(MatmulPrecision::Bf16);
    let halves = small.clone().with_dtype(Dtype::Bf16)?;
    for (name, decoder) in [
        ("products in bfloat16", rounding),
        ("weights in bfloat16", halves),
        ("an adapter of weights in bfloat16", with_adapter(&wide)?),
        (WIDE_CONFIGS[1].0, of(WIDE_CONFIGS[1].1)?.with_dtype(Dtype::Bf16)?),
        (WIDE_CONFIGS[2].0, of(WIDE_CONFIGS[2].1)?.with_dtype(Dtype::Bf16)?),
    ] {
        batch(card, report, name, &Tried::on_card(card, &decoder)?, 3, PAGES[0])?;
    }
    lengthened(card, report, &in_halves)?;
    let [adapted, adapted_in_halves] =
        [Tried::in_f32(card, &with_adapter(&small)?)?, Tried::on_card(card, &with_adapter(&wide)?)?];
    for (tried, change) in [
        (&in_f32, WeightChange::Recompute),
        (&in_f32, WeightChange::Keep),
        (&adapted, WeightChange::Recompute),
        (&adapted, WeightChange::Keep),
        (&in_halves, WeightChange::Recompute),
        (&adapted_in_halves, WeightChange::Keep),
    ] {
        trained(card, report, tried, change)?;
    }
    rounded(card, report, &Tried::on_card(card, &small)?)?;
    if card.is_emulated() { failing(card, report, [&in_f32, &in_halves]) } else { Ok(()) }
}

/// A decoder on the card, and others that draw the same without graphs: one on the processor, or three copies on the card in turn.
/// Of two, one would have the step before and the step after one that is not captured.
struct Tried {
    decoder: Decoder,
    others: Vec<Decoder>,
}

impl Tried {
    fn in_f32(card: &Card, decoder: &Decoder) -> Result<Self> {
        Ok(Self { decoder: on(card, decoder)?, others: vec![decoder.clone()] })
    }

    fn on_card(card: &Card, decoder: &Decoder) -> Result<Self> {
        let decoder = on(card, decoder)?;
        Ok(Self { others: vec![decoder.clone(); 3], decoder })
    }

    /// Returns the decoders of each of both engines.
    fn decoders(&self) -> [&[Decoder]; 2] {
        [&self.others, std::slice::from_ref(&self.decoder)]
    }
}

/// An engine that takes steps by decoders in turn.
struct InTurn {
    engine: Engine,
    num_steps: usize,
}

impl InTurn {
    fn new(decoders: &[Decoder], options: EngineOptions) -> Result<Self> {
        Ok(Self { engine: Engine::new(decoders[0].config(), options)?, num_steps: 0 })
    }

    /// Runs up to `count` steps; returns the number of unfinished requests.
    fn steps(&mut self, decoders: &[Decoder], count: usize) -> Result<usize> {
        let mut left = usize::MAX;
        for _ in 0..count {
            left = self.engine.steps(&decoders[self.num_steps % decoders.len()], 1)?;
            self.num_steps += 1;
            if left == 0 {
                break;
            }
        }
        Ok(left)
    }

    /// Returns what all requests drew, with the number of preemptions.
    fn end(mut self, decoders: &[Decoder]) -> Result<(Found, u64)> {
        while self.steps(decoders, usize::MAX)? > 0 {}
        let (mut found, outputs) = (Found::default(), self.engine.take_outputs());
        let num_preemptions = outputs.num_preemptions;
        found.take(outputs);
        Ok((found, num_preemptions))
    }
}

fn on(card: &Card, decoder: &Decoder) -> Result<Decoder> {
    let mut decoder = decoder.clone();
    decoder.move_to(card.device())?;
    Ok(decoder)
}

fn options(num_seqs: usize, (page_size, more): (usize, usize)) -> EngineOptions {
    EngineOptions {
        page_size,
        num_pages: Some(32_usize.div_ceil(page_size) + 1 + more),
        max_num_seqs: num_seqs.max(8),
        max_num_batched_tokens: num_seqs.max(8) + 12,
        ..EngineOptions::default()
    }
}

/// Returns the prompt of request number `index`: every third one has that of another.
fn prompt_of(vocab: usize, index: usize) -> Vec<u32> {
    let of = if index.is_multiple_of(3) { index / 2 } else { index };
    (0..1 + of % 6).map(|at| ((of * 31 + at * 7 + 1) % vocab) as u32).collect()
}

/// Adds request number `index`; lengths differ.
fn add(engine: &mut Engine, vocab: usize, index: usize) -> Result<u64> {
    let draw = match index % 4 {
        0 => DrawOptions { temperature: 0.0, ..DrawOptions::default() },
        1 => DrawOptions { top_p: 0.9, ..DrawOptions::default() },
        2 => DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() },
        _ => DrawOptions::default(),
    };
    let params = SamplingParams { max_tokens: 3 + index * 5 % 17, draw, ..SamplingParams::default() };
    engine.add(&Request { prompt_ids: &prompt_of(vocab, index), seed: 5 + index as u64 }, &params)
}

/// Draws all requests, of which every fourth one joins later than those before it.
fn drawn(decoders: &[Decoder], options: EngineOptions, count: usize) -> Result<(Found, Vec<u64>, u64)> {
    let (mut in_turn, mut ids) = (InTurn::new(decoders, options)?, Vec::new());
    for index in 0..count {
        ids.push(add(&mut in_turn.engine, decoders[0].config().vocab_size, index)?);
        if index % 4 == 3 {
            in_turn.steps(decoders, 2)?;
        }
    }
    let (found, num_preemptions) = in_turn.end(decoders)?;
    Ok((found, ids, num_preemptions))
}

/// Returns what the requests got, in order.
fn of_requests(mut found: Found, ids: &[u64]) -> Vec<Generated> {
    ids.iter().map(|id| found.0.remove(id).unwrap_or_default()).collect()
}

/// Draws that many sequences by both engines, and compares with scores of the whole sequences.
fn batch(
    card: &Card,
    report: &mut Report,
    name: &str,
    tried: &Tried,
    count: usize,
    pages: (usize, usize),
) -> Result<()> {
    let [others, decoders] = tried.decoders();
    let before = card.num_captures();
    let (wanted, ids, _) = drawn(others, options(count, PAGES[0]), count)?;
    let wanted = of_requests(wanted, &ids);
    report.same("captures of others", name, &[card.num_captures() - before], &[0]);
    let before = card.num_graphs();
    let (found, ids, num_preemptions) = drawn(decoders, options(count, pages), count)?;
    let shape = format!("{name}, {count} sequences, pages of {}, {num_preemptions} preempted", pages.0);
    found.compare(report, &shape, &ids, &wanted);
    report.same("graphs of an engine", &shape, &[u32::from(card.num_graphs() > before || count == 1)], &[1]);
    if count == 33 {
        report.same("preemptions of captured steps", &shape, &[u32::from(num_preemptions > 0)], &[1]);
    }
    let vocab = tried.decoder.config().vocab_size;
    let prompts: Vec<Vec<u32>> = (0..count).map(|index| prompt_of(vocab, index)).collect();
    scored(report, &shape, &tried.decoder, (&prompts, &wanted))
}

/// Compares the log-probs of drawn tokens with the scores of whole sequences.
fn scored(
    report: &mut Report,
    shape: &str,
    decoder: &Decoder,
    (prompts, drawn): (&[Vec<u32>], &[Generated]),
) -> Result<()> {
    let (mut ids, mut offsets, mut mask) = (Vec::new(), vec![0], Vec::new());
    for (prompt, drawn) in prompts.iter().zip(drawn) {
        ids.extend(prompt.iter().chain(&drawn.ids));
        mask.extend(prompt.iter().map(|_| 0_u8).chain(drawn.ids.iter().map(|_| 1)));
        offsets.push(ids.len() as u32);
    }
    let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, ..TokenBatch::default() };
    let scores = decoder.score(&batch)?.log_prob;
    let of_drawn: Vec<f32> =
        scores.iter().zip(&mask).filter(|(_, mask)| **mask == 1).map(|(score, _)| *score).collect();
    let log_probs: Vec<f32> = drawn.iter().flat_map(|drawn| drawn.log_prob.iter().copied()).collect();
    report.same("scores of what graphs drew", shape, &of_drawn, &log_probs);
    Ok(())
}

/// Counts of the work of a card.
#[derive(Clone, Copy)]
struct Done {
    kernels: u64,
    captures: u64,
    graphs: u64,
    waits: u64,
}

impl Done {
    fn by(card: &Card) -> Self {
        Self {
            kernels: card.num_kernels(),
            captures: card.num_captures(),
            graphs: card.num_graphs(),
            waits: card.num_waits(),
        }
    }

    fn since(self, before: Self) -> [u64; 3] {
        [self.captures - before.captures, self.graphs - before.graphs, self.waits - before.waits]
    }
}

/// The second step of a bucket is captured, and each later one is a graph, also in later requests; a step waits once.
fn counts(card: &Card, report: &mut Report, decoder: &Decoder) -> Result<()> {
    let decoder = on(card, decoder)?;
    let mut engine = Engine::new(decoder.config(), options(2, (4, 40)))?;
    let params = SamplingParams { max_tokens: 12, ..SamplingParams::default() };
    let mut per_step = Vec::new();
    for request in 0..2 {
        engine.add(&Request { prompt_ids: &[1, 2, 3], seed: request }, &params)?;
        for step in 0..12 {
            let before = Done::by(card);
            engine.steps(&decoder, 1)?;
            let after = Done::by(card);
            per_step.push(after.kernels - before.kernels);
            let wanted = match (request, step) {
                (0, 0 | 1) | (1, 0) => [0, 0, 1],
                (0, 2) => [1, 0, 1],
                _ => [0, 1, 1],
            };
            let shape = format!("request {request}, step {step}");
            report.same("captures, graphs and waits", &shape, &after.since(before), &wanted);
        }
    }
    // What is left are draws.
    let is_less = per_step[3..12].iter().all(|kernels| kernels * 8 < per_step[1]);
    report.same("kernels of a graph's step", &format!("{per_step:?}"), &[u32::from(is_less)], &[1]);
    Ok(())
}

/// A sequence passes the last key of a segment, for which the launches of a graph have room: its bucket is captured once more.
fn lengthened(card: &Card, report: &mut Report, tried: &Tried) -> Result<()> {
    let vocab = tried.decoder.config().vocab_size;
    let prompt =
        |len: usize| -> Vec<u32> { (0..len).map(|at| ((at * at * 13 + 5) % vocab) as u32).collect() };
    let run = |decoders: &[Decoder]| -> Result<(Vec<Generated>, [u64; 3])> {
        let mut in_turn = InTurn::new(decoders, options(1, (16, 40)))?;
        let mut ids = Vec::new();
        let mut before = Done::by(card);
        // The first one is longer than a segment and takes no step of decoding: the table of positions does not grow later.
        for (len, max_tokens) in [(257, 1), (250, 12)] {
            before = Done::by(card);
            let params = SamplingParams { max_tokens, ..SamplingParams::default() };
            ids.push(in_turn.engine.add(&Request { prompt_ids: &prompt(len), seed: 3 }, &params)?);
            in_turn.steps(decoders, usize::MAX)?;
        }
        let done = Done::by(card).since(before);
        Ok((of_requests(in_turn.end(decoders)?.0, &ids), done))
    };
    let [others, decoders] = tried.decoders();
    let ((wanted, _), (got, done)) = (run(others)?, run(decoders)?);
    let shape = "a sequence of 262 tokens";
    report.same("draws past a segment", shape, &bits(&got), &bits(&wanted));
    // Steps of 251 keys as any, of 252 and of 257 captured, the others of graphs.
    report.same("captures and graphs past a segment", shape, &done[..2], &[2, 8]);
    scored(report, shape, &tried.decoder, (&[prompt(257), prompt(250)], &got))
}

/// A decoder leaves the card and comes back: the graphs of the pages that it left are not used again.
fn moved(card: &Card, report: &mut Report, tried: &Tried) -> Result<()> {
    let mut on_processor = tried.decoder.clone();
    on_processor.move_to(Device::Cpu)?;
    let run = |decoders: &[Decoder]| -> Result<(Found, Vec<u64>)> {
        let mut in_turn = InTurn::new(decoders, options(3, PAGES[0]))?;
        let ids = (5..8)
            .map(|index| add(&mut in_turn.engine, on_processor.config().vocab_size, index))
            .collect::<Result<Vec<_>>>()?;
        in_turn.steps(decoders, 5)?;
        in_turn.engine.steps(&on_processor, 1)?;
        Ok((in_turn.end(decoders)?.0, ids))
    };
    let [others, decoders] = tried.decoders();
    let (wanted, ids) = run(others)?;
    let before = Done::by(card);
    let (found, ids_on_card) = run(decoders)?;
    let [captures, ..] = Done::by(card).since(before);
    let shape = format!("{:?} leaves the card and comes back", tried.decoder.dtype());
    found.compare(report, &shape, &ids_on_card, &of_requests(wanted, &ids));
    report.same("captures of both stays", &captures.to_string(), &[u32::from(captures > 1)], &[1]);
    Ok(())
}

fn with_adapter(decoder: &Decoder) -> Result<Decoder> {
    let mut adapted = decoder.clone();
    adapted.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1)?;
    Ok(adapted)
}

/// Returns ids and log-probs.
fn bits(all: &[Generated]) -> Vec<u32> {
    let of = |one: &Generated| -> Vec<u32> {
        one.ids.iter().copied().chain(one.log_prob.iter().map(|number| number.to_bits())).collect()
    };
    all.iter().flat_map(of).collect()
}

/// Draws three sequences; `change` changes each decoder after each five steps, three times. Returns the captures before each change.
fn changed(
    card: &Card,
    decoders: &mut [Decoder],
    on_weight_change: WeightChange,
    change: &mut dyn FnMut(usize, &mut Decoder) -> Result<()>,
) -> Result<(Vec<Generated>, Vec<u64>)> {
    let options = EngineOptions { on_weight_change, ..options(3, (4, 60)) };
    let mut in_turn = InTurn::new(decoders, options)?;
    let params = SamplingParams { max_tokens: 20, ..SamplingParams::default() };
    let prompts: [&[u32]; 3] = [&[1, 2, 3], &[4], &[5, 6]];
    let ids: Vec<u64> = prompts
        .iter()
        .map(|prompt_ids| in_turn.engine.add(&Request { prompt_ids, seed: 9 }, &params))
        .collect::<Result<_>>()?;
    let mut captures = Vec::new();
    for _ in 0..3 {
        let before = card.num_captures();
        in_turn.steps(decoders, 5)?;
        captures.push(card.num_captures() - before);
        for (index, decoder) in decoders.iter_mut().enumerate() {
            change(index, decoder)?;
        }
    }
    Ok((of_requests(in_turn.end(decoders)?.0, &ids), captures))
}

/// Weights are stepped between steps of the engine. Where they stay in their place, no step is captured again for that.
fn trained(card: &Card, report: &mut Report, tried: &Tried, change: WeightChange) -> Result<()> {
    let run = |decoders: &[Decoder]| -> Result<(Vec<Generated>, Vec<u64>)> {
        let mut decoders = decoders.to_vec();
        let options = AdamWOptions { learning_rate: 0.05, ..AdamWOptions::default() };
        let mut optimizers = decoders
            .iter()
            .map(|decoder| Optimizer::new(decoder, options.clone()))
            .collect::<Result<Vec<_>>>()?;
        changed(card, &mut decoders, change, &mut |index, decoder| {
            decoder.forward(&TokenBatch {
                ids: &[1, 2, 3],
                offsets: &[0, 3],
                mask: &[0, 1, 1],
                ..TokenBatch::default()
            })?;
            decoder.backward(&[0.0, -1.0, -1.0], None)?;
            optimizers[index].step(decoder, None, None).map(drop)
        })
    };
    let [others, decoders] = tried.decoders();
    let ((wanted, _), (got, captures)) = (run(others)?, run(decoders)?);
    let has_adapter = tried.decoder.num_trainable() < tried.decoder.num_parameters();
    let shape = format!("{change:?}, {:?}, adapter {has_adapter}", tried.decoder.dtype());
    report.same("draws between steps of an optimizer", &shape, &bits(&got), &bits(&wanted));
    let has_versions = wanted.iter().all(|one| one.versions.first() < one.versions.last());
    report.same("versions that draw", &shape, &[u32::from(has_versions)], &[1]);
    // The sums of an adapter are computed anew, so a graph of them is.
    report.same(
        "captures after a step of an optimizer",
        &shape,
        &captures[1..],
        &[u64::from(has_adapter); 2],
    );
    Ok(())
}

/// Products are in bfloat16 from some step on: the graphs of those in f32 are not used again.
fn rounded(card: &Card, report: &mut Report, tried: &Tried) -> Result<()> {
    let run = |decoders: &[Decoder]| -> Result<(Vec<Generated>, Vec<u64>)> {
        changed(card, &mut decoders.to_vec(), WeightChange::Keep, &mut |_, decoder| {
            decoder.multiply_in(MatmulPrecision::Bf16);
            Ok(())
        })
    };
    let [others, decoders] = tried.decoders();
    let ((wanted, _), (got, captures)) = (run(others)?, run(decoders)?);
    let shape = "products are rounded from the sixth step on";
    report.same("draws of two precisions", shape, &bits(&got), &bits(&wanted));
    report.same("captures of two precisions", shape, &captures, &[1, 1, 0]);
    Ok(())
}

/// Returns what two sequences draw, and one with the prompt `later` that joins after four steps, and the errors of steps, after which
/// `recover` is called and the next ones run.
fn pair_of(
    decoders: &[Decoder],
    later: &[u32],
    mut recover: impl FnMut(),
) -> Result<(Vec<Generated>, Vec<Error>)> {
    let mut in_turn = InTurn::new(decoders, options(2, (4, 4)))?;
    let add = |engine: &mut Engine, prompt_ids, max_tokens| {
        let params = SamplingParams { max_tokens, ..SamplingParams::default() };
        engine.add(&Request { prompt_ids, seed: 1 }, &params)
    };
    let max_tokens = if later.is_empty() { 6 } else { 10 };
    let mut ids =
        vec![add(&mut in_turn.engine, &[3, 1], max_tokens)?, add(&mut in_turn.engine, &[1], max_tokens)?];
    let mut errors = Vec::new();
    loop {
        if in_turn.num_steps == 4 && ids.len() == 2 && !later.is_empty() {
            // Graphs of two rows run again after its three tokens.
            ids.push(add(&mut in_turn.engine, later, 3)?);
        }
        match in_turn.steps(decoders, 1) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                errors.push(error);
                recover();
            }
        }
    }
    Ok((of_requests(in_turn.end(decoders)?.0, &ids), errors))
}

/// Engines have too little memory at each of their allocations in turn. Where one without graphs has enough, one with them drops its
/// graphs and has enough, too. All draw the same.
fn out_of_memory(card: &Card, report: &mut Report, tried: &Tried) -> Result<()> {
    let [others, decoders] = tried.decoders();
    let (wanted, _) = pair_of(others, &LATER, || {})?;
    let before = card.num_graphs();
    pair_of(decoders, &LATER, || {})?;
    let num_graphs = card.num_graphs() - before;
    let drawn = |decoders: &[Decoder], left: usize| -> Result<(Vec<Generated>, Vec<Error>)> {
        let mut taken: Option<Buffer<u8>> = Some(card.zeros(card.free_bytes()? - left)?);
        pair_of(decoders, &LATER, || taken = None)
    };
    let (mut left, mut failures, mut without_graphs) = (0, 0, 0);
    loop {
        let (_, errors_of_others) = drawn(others, left)?;
        let before = card.num_graphs();
        let (got, errors) = drawn(decoders, left)?;
        let has_graphs = card.num_graphs() - before == num_graphs;
        let shape = format!("{:?}, {left} bytes left: {errors:?}", tried.decoder.dtype());
        report.same("draws with little memory", &shape, &bits(&got), &bits(&wanted));
        let is_named = errors.iter().all(|error| error.kind() == ErrorKind::OutOfMemory);
        report.same("kinds of failures with little memory", &shape, &[u32::from(is_named)], &[1]);
        let has_failed = [!errors.is_empty(), !errors_of_others.is_empty()].map(u32::from);
        report.same("failures with little memory", &shape, &has_failed[..1], &has_failed[1..]);
        match errors_of_others.first().and_then(|error| lacking(error.detail())) {
            Some(lacking) => (left, failures) = (left + lacking, failures + 1),
            None if has_graphs => break,
            None => (left, without_graphs) = (left + LEFT_EACH, without_graphs + 1),
        }
    }
    let shape = format!("{failures} failures, {without_graphs} without graphs, of {num_graphs}");
    let is_all = failures > 10 && without_graphs > 5 && num_graphs > 2;
    report.same("engines with little memory", &shape, &[u32::from(is_all)], &[1]);
    Ok(())
}

/// Draws by that many engines in which a launch may fail, of a kernel or of a graph; they run again after an error.
fn survived(card: &Card, report: &mut Report, tried: &Tried, num_engines: u64) -> Result<()> {
    let [others, decoders] = tried.decoders();
    let (wanted, _) = pair_of(others, &[], || {})?;
    let before = Done::by(card);
    for _ in 0..num_engines {
        let (got, errors) = pair_of(decoders, &[], || {})?;
        report.same("draws after a failed launch", &format!("{errors:?}"), &bits(&got), &bits(&wanted));
        let is_named = errors.iter().all(|error| error.kind() == ErrorKind::Unavailable) && errors.len() <= 3;
        report.same("a failed launch", &format!("{errors:?}"), &[u32::from(is_named)], &[1]);
    }
    if num_engines == 1 {
        let after = Done::by(card);
        let num_launches = after.kernels + after.graphs - before.kernels - before.graphs;
        let is_all = after.since(before)[1] > 2 && num_launches < 2 * FAILING_LAUNCH;
        report.same("launches of an engine", &format!("{num_launches} launches"), &[u32::from(is_all)], &[1]);
    }
    Ok(())
}

/// Lets each launch of engines fail, in a process of its own.
fn failing(card: &Card, report: &mut Report, all: [&Tried; 2]) -> Result<()> {
    for tried in all {
        survived(card, report, tried, 1)?;
    }
    let run = env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(["check", "--only", "graphs"]).env(FAIL_EACH_LAUNCH, FAILING_LAUNCH.to_string()).output()
    });
    let text =
        run.as_ref().map_or_else(ToString::to_string, |run| String::from_utf8_lossy(&run.stdout).into());
    let is_sound = run.is_ok_and(|run| run.status.success());
    report.same("engines with failed launches", &text, &[u32::from(is_sound)], &[1]);
    Ok(())
}
