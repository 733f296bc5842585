//! Decode steps of an engine on the card that are captured and repeated: they draw what the processor draws, and are repeated where
//! they should be.

use std::env;
use std::process::Command;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_cuda::Card;
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, Engine, EngineOptions, Generated, LoraConfig, Optimizer, Request,
    SamplingParams, TokenBatch, WeightChange,
};
use fulmar_objective::{DrawMethod, DrawOptions};

use super::decoder::CONFIGS;
use super::engine::Found;
use crate::report::Report;

/// Numbers of sequences, each with pages of [`PAGES`]: whole buckets, and those with padding.
const BATCHES: [(usize, usize); 7] = [(1, 0), (2, 1), (3, 2), (5, 0), (9, 1), (17, 1), (33, 2)];

/// Tokens of a page, and pages besides those of the longest sequence.
const PAGES: [(usize, usize); 3] = [(16, 200), (1, 60), (7, 9)];

/// The option of the emulated GPU that lets every launch of a number fail.
const FAIL_EACH_LAUNCH: &str = "FULMAR_EMULATED_FAIL_EACH_LAUNCH";

/// That number: a prime, so that over as many engines each launch of one fails.
const FAILING_LAUNCH: u64 = 97;

/// Compares engines whose decode steps are captured.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    let decoder = Decoder::new(DecoderConfig::from_json(CONFIGS[0].1)?, 11)?;
    let of_one_layer = CONFIGS[0].1.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    let small = Decoder::new(DecoderConfig::from_json(&of_one_layer)?, 11)?;
    if env::var_os(FAIL_EACH_LAUNCH).is_some() {
        return survived(card, report, &small, FAILING_LAUNCH);
    }
    counts(card, report, &decoder)?;
    rounded(card, report, &decoder)?;
    moved(card, report, &decoder)?;
    for (count, pages) in BATCHES {
        batch(card, report, (CONFIGS[0].0, &decoder), count, PAGES[pages])?;
    }
    for ((name, text), pages) in CONFIGS[1..].iter().zip(PAGES) {
        batch(card, report, (name, &Decoder::new(DecoderConfig::from_json(text)?, 11)?), 9, pages)?;
    }
    for change in [WeightChange::Recompute, WeightChange::Keep] {
        trained(card, report, &decoder, change)?;
        trained(card, report, &with_adapter(&decoder)?, change)?;
    }
    if card.is_emulated() { failing(card, report, &small) } else { Ok(()) }
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

/// Adds request number `index`: every third one has the prompt of another, and lengths differ.
fn add(engine: &mut Engine, vocab: usize, index: usize) -> Result<u64> {
    let of = if index.is_multiple_of(3) { index / 2 } else { index };
    let prompt: Vec<u32> = (0..1 + of % 6).map(|at| ((of * 31 + at * 7 + 1) % vocab) as u32).collect();
    let draw = match index % 4 {
        0 => DrawOptions { temperature: 0.0, ..DrawOptions::default() },
        1 => DrawOptions { top_p: 0.9, ..DrawOptions::default() },
        2 => DrawOptions { draw_method: DrawMethod::GumbelMax, ..DrawOptions::default() },
        _ => DrawOptions::default(),
    };
    let params = SamplingParams { max_tokens: 3 + index * 5 % 17, draw, ..SamplingParams::default() };
    engine.add(&Request { prompt_ids: &prompt, seed: 5 + index as u64 }, &params)
}

/// Draws all requests, of which every fourth one joins later than those before it.
fn drawn(decoder: &Decoder, options: EngineOptions, count: usize) -> Result<(Found, Vec<u64>, u64)> {
    let mut engine = Engine::new(decoder.config(), options)?;
    let mut ids = Vec::new();
    for index in 0..count {
        ids.push(add(&mut engine, decoder.config().vocab_size, index)?);
        if index % 4 == 3 {
            engine.steps(decoder, 2)?;
        }
    }
    while engine.steps(decoder, 1)? > 0 {}
    let (mut found, outputs) = (Found::default(), engine.take_outputs());
    let num_preemptions = outputs.num_preemptions;
    found.take(outputs);
    Ok((found, ids, num_preemptions))
}

/// Returns what the requests got, in order.
fn of_requests(mut found: Found, ids: &[u64]) -> Vec<Generated> {
    ids.iter().map(|id| found.0.remove(id).unwrap_or_default()).collect()
}

/// Draws that many sequences on both devices.
fn batch(
    card: &Card,
    report: &mut Report,
    (name, decoder): (&str, &Decoder),
    count: usize,
    pages: (usize, usize),
) -> Result<()> {
    let (wanted, ids, _) = drawn(decoder, options(count, PAGES[0]), count)?;
    let wanted = of_requests(wanted, &ids);
    let before = card.num_graphs();
    let (found, ids, num_preemptions) = drawn(&on(card, decoder)?, options(count, pages), count)?;
    let shape = format!("{name}, {count} sequences, pages of {}, {num_preemptions} preempted", pages.0);
    found.compare(report, &shape, &ids, &wanted);
    report.same("graphs of an engine", &shape, &[u32::from(card.num_graphs() > before || count == 1)], &[1]);
    if count == 33 {
        report.same("preemptions of captured steps", &shape, &[u32::from(num_preemptions > 0)], &[1]);
    }
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

/// Steps that round operands to bfloat16 into new memory are not captured.
fn rounded(card: &Card, report: &mut Report, decoder: &Decoder) -> Result<()> {
    let halves = on(card, decoder)?.with_dtype(Dtype::Bf16)?;
    let before = Done::by(card);
    drawn(&halves, options(2, PAGES[0]), 2)?;
    let done = Done::by(card).since(before);
    report.same("captures in bfloat16", "2 sequences", &done[..2], &[0, 0]);
    Ok(())
}

/// A decoder leaves the card and comes back: the graphs of the pages that it left are not used again.
fn moved(card: &Card, report: &mut Report, decoder: &Decoder) -> Result<()> {
    let run = |decoders: [&Decoder; 3]| -> Result<(Found, Vec<u64>)> {
        let mut engine = Engine::new(decoder.config(), options(3, PAGES[0]))?;
        let ids = (5..8)
            .map(|index| add(&mut engine, decoder.config().vocab_size, index))
            .collect::<Result<Vec<_>>>()?;
        engine.steps(decoders[0], 5)?;
        engine.steps(decoders[1], 1)?;
        while engine.steps(decoders[2], 1)? > 0 {}
        let mut found = Found::default();
        found.take(engine.take_outputs());
        Ok((found, ids))
    };
    let on_card = on(card, decoder)?;
    let (wanted, ids) = run([decoder; 3])?;
    let before = Done::by(card);
    let (found, ids_on_card) = run([&on_card, decoder, &on_card])?;
    let [captures, ..] = Done::by(card).since(before);
    found.compare(report, "leaves the card and comes back", &ids_on_card, &of_requests(wanted, &ids));
    report.same("captures of both stays", &captures.to_string(), &[u32::from(captures > 1)], &[1]);
    Ok(())
}

fn with_adapter(decoder: &Decoder) -> Result<Decoder> {
    let mut adapted = decoder.clone();
    adapted.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1)?;
    Ok(adapted)
}

/// Weights are stepped between steps of the engine. Where they stay in their place, no step is captured again for that.
fn trained(card: &Card, report: &mut Report, decoder: &Decoder, change: WeightChange) -> Result<()> {
    let run = |mut decoder: Decoder| -> Result<(Vec<Generated>, Vec<u64>)> {
        let mut optimizer =
            Optimizer::new(&decoder, AdamWOptions { learning_rate: 0.05, ..AdamWOptions::default() })?;
        let mut engine =
            Engine::new(decoder.config(), EngineOptions { on_weight_change: change, ..options(3, (4, 60)) })?;
        let params = SamplingParams { max_tokens: 20, ..SamplingParams::default() };
        let prompts: [&[u32]; 3] = [&[1, 2, 3], &[4], &[5, 6]];
        let ids: Vec<u64> = prompts
            .iter()
            .map(|prompt_ids| engine.add(&Request { prompt_ids, seed: 9 }, &params))
            .collect::<Result<_>>()?;
        let mut captures = Vec::new();
        for _ in 0..3 {
            let before = card.num_captures();
            engine.steps(&decoder, 5)?;
            captures.push(card.num_captures() - before);
            decoder.forward(&TokenBatch {
                ids: &[1, 2, 3],
                offsets: &[0, 3],
                mask: &[0, 1, 1],
                ..TokenBatch::default()
            })?;
            decoder.backward(&[0.0, -1.0, -1.0], None)?;
            optimizer.step(&mut decoder, None, None)?;
        }
        while engine.steps(&decoder, 1)? > 0 {}
        let mut found = Found::default();
        found.take(engine.take_outputs());
        Ok((of_requests(found, &ids), captures))
    };
    let has_adapter = decoder.num_trainable() < decoder.num_parameters();
    let (wanted, _) = run(decoder.clone())?;
    let (got, captures) = run(on(card, decoder)?)?;
    let shape = format!("{change:?}, adapter {has_adapter}");
    let bits = |all: &[Generated]| -> Vec<u32> {
        let of = |one: &Generated| -> Vec<u32> {
            one.ids.iter().copied().chain(one.log_prob.iter().map(|number| number.to_bits())).collect()
        };
        all.iter().flat_map(of).collect()
    };
    report.same("draws between steps of an optimizer", &shape, &bits(&got), &bits(&wanted));
    let has_versions = wanted.iter().all(|one| one.versions.first() < one.versions.last());
    report.same("versions that draw", &shape, &[u32::from(has_versions)], &[1]);
    // The sums of an adapter are computed anew, so a graph of them is.
    let wanted = if has_adapter { captures[1..].to_vec() } else { vec![0; 2] };
    report.same("captures after a step of an optimizer", &shape, &captures[1..], &wanted);
    Ok(())
}

/// Draws from that many engines in which a launch may fail, of a kernel or of a graph; they run again after an error.
fn survived(card: &Card, report: &mut Report, decoder: &Decoder, num_engines: u64) -> Result<()> {
    let of = |decoder: &Decoder| -> Result<(Found, [u64; 2], Vec<Error>)> {
        let mut engine = Engine::new(decoder.config(), options(2, (4, 40)))?;
        let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
        let mut add = |seed| engine.add(&Request { prompt_ids: &[3, 1], seed }, &params);
        let (ids, mut errors) = ([add(1)?, add(2)?], Vec::new());
        loop {
            match engine.steps(decoder, 1) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        let mut found = Found::default();
        found.take(engine.take_outputs());
        Ok((found, ids, errors))
    };
    let (wanted, ids, _) = of(decoder)?;
    let (wanted, on_card) = (of_requests(wanted, &ids), on(card, decoder)?);
    for _ in 0..num_engines {
        let (found, ids, errors) = of(&on_card)?;
        found.compare(report, &format!("after {errors:?}"), &ids, &wanted);
        let is_named = errors.iter().all(|error| error.kind() == ErrorKind::Unavailable) && errors.len() <= 3;
        report.same("a failed launch", &format!("{errors:?}"), &[u32::from(is_named)], &[1]);
    }
    Ok(())
}

/// Lets each launch of an engine fail, in a process of its own.
fn failing(card: &Card, report: &mut Report, decoder: &Decoder) -> Result<()> {
    let before = Done::by(card);
    survived(card, report, decoder, 1)?;
    let after = Done::by(card);
    let num_launches = after.kernels + after.graphs - before.kernels - before.graphs;
    let is_all = after.since(before)[1] > 2 && num_launches < FAILING_LAUNCH;
    report.same("launches of an engine", &format!("{num_launches} launches"), &[u32::from(is_all)], &[1]);
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
