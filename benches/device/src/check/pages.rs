//! Pages of an engine on the card: how many there are before and after the first step, and what is refused for them.

use fulmar_core::{ErrorKind, Result};
use fulmar_cuda::{Buffer, Card};
use fulmar_model::{Decoder, DecoderConfig, Engine, EngineOptions, Request, SamplingParams};

use super::decoder::CONFIGS;
use super::shortage::MEMORY_MAX;
use crate::report::Report;

const PAGE_SIZE: usize = 4;

/// Compares numbers of pages with the rule of `EngineOptions::num_pages`.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    let text = CONFIGS[0].1.replace("\"vocab_size\"", "\"max_position_embeddings\": 30, \"vocab_size\"");
    let on_processor = Decoder::new(DecoderConfig::from_json(&text)?, 7)?;
    let mut on_card = on_processor.clone();
    on_card.move_to(card.device())?;
    given(report, &on_card)?;
    for max_num_seqs in [1, 3, 65_536] {
        by_memory(card, report, (&on_processor, &on_card), max_num_seqs)?;
    }
    if card.free_bytes()? <= MEMORY_MAX { scarce(card, report, &on_card) } else { Ok(()) }
}

fn options(num_pages: Option<usize>, max_num_seqs: usize) -> EngineOptions {
    let sizes = EngineOptions { page_size: PAGE_SIZE, num_pages, max_num_seqs, ..EngineOptions::default() };
    EngineOptions { max_num_batched_tokens: max_num_seqs.max(64), ..sizes }
}

/// Returns an engine with a request of that many tokens in all.
fn engine(decoder: &Decoder, options: EngineOptions, tokens: usize) -> Result<Engine> {
    let mut engine = Engine::new(decoder.config(), options)?;
    let params = SamplingParams { max_tokens: tokens - 2, ..SamplingParams::default() };
    engine.add(&Request { prompt_ids: &[1, 2], seed: 3 }, &params)?;
    Ok(engine)
}

fn drawn(engine: &mut Engine, decoder: &Decoder) -> Result<Vec<u32>> {
    while engine.steps(decoder, 1)? > 0 {}
    Ok(engine.take_outputs().tokens.iter().map(|token| token.id).collect())
}

/// Returns the pages of a request that the engine refuses, as too many.
fn refused_pages(engine: &mut Engine, most: usize) -> Option<usize> {
    let prompt = [1];
    (0..most).find(|pages| {
        let params = SamplingParams { max_tokens: pages * PAGE_SIZE + 1, ..SamplingParams::default() };
        let added = engine.add(&Request { prompt_ids: &prompt, seed: 0 }, &params);
        !added.is_ok_and(|request| engine.abort(request))
    })
}

/// A number that is given holds before and after the first step, which allocates all of them.
fn given(report: &mut Report, on_card: &Decoder) -> Result<()> {
    let mut engine = engine(on_card, options(Some(5), 2), 6)?;
    let before = (engine.num_free_pages(), refused_pages(&mut engine, 7));
    engine.steps(on_card, 1)?;
    let during = engine.num_free_pages();
    drawn(&mut engine, on_card)?;
    let after = (engine.num_free_pages(), refused_pages(&mut engine, 7));
    let numbers =
        |(free, refused): (usize, Option<usize>)| [free as u32, refused.map_or(99, |pages| pages as u32)];
    report.same("pages before the first step", "5 given", &numbers(before), &[5, 4]);
    report.same("pages with a sequence", "5 given", &[during as u32], &[4]);
    report.same("pages after the last step", "5 given", &numbers(after), &[5, 4]);
    Ok(())
}

/// Without a number, half of the memory is taken, at least for one sequence and at most for those that run at once.
fn by_memory(
    card: &Card,
    report: &mut Report,
    (on_processor, on_card): (&Decoder, &Decoder),
    max_num_seqs: usize,
) -> Result<()> {
    let mut engine = engine(on_card, options(None, max_num_seqs), 8)?;
    let before = engine.num_free_pages();
    report.same("pages before the first step", "as on the CPU", &[u32::from(before >= 9)], &[1]);
    // Two layers of keys and values, in one head of 8 floats.
    let page_bytes = 4 * 2 * 2 * 8 * PAGE_SIZE;
    let (free, used, longest) = (card.free_bytes()?, card.used_bytes()?, 30_usize.div_ceil(PAGE_SIZE) + 1);
    let wanted = (free / 2 / page_bytes).min(max_num_seqs * longest).max(longest);
    let ids = drawn(&mut engine, on_card)?;
    let shape = format!("{max_num_seqs} sequences, {free} bytes free");
    report.same("pages after the last step", &shape, &[engine.num_free_pages() as u32], &[wanted as u32]);
    let is_allocated = card.used_bytes()? >= used + wanted * page_bytes;
    report.same("memory of all pages", &shape, &[u32::from(is_allocated)], &[1]);
    let ids_of_processor = drawn(&mut self::engine(on_processor, options(None, 1), 8)?, on_processor)?;
    report.same("ids with these pages", &shape, &ids, &ids_of_processor);
    // Back on the processor it has the pages of before.
    engine.add(
        &Request { prompt_ids: &[1], seed: 0 },
        &SamplingParams { max_tokens: 2, ..Default::default() },
    )?;
    drawn(&mut engine, on_processor)?;
    // Threads have an equal number each.
    let is_as_before = engine.num_free_pages().abs_diff(before) < 64;
    report.same("pages on the CPU", &shape, &[u32::from(is_as_before)], &[1]);
    drop(engine);
    report.same("bytes after an engine", &shape, &[u32::from(card.used_bytes()? <= used)], &[1]);
    Ok(())
}

/// A request that the memory has no pages for waits; it ends with its tokens once there are. Later ones are refused by the number
/// of pages that there are.
fn scarce(card: &Card, report: &mut Report, on_card: &Decoder) -> Result<()> {
    let wanted = drawn(&mut engine(on_card, options(None, 2), 26)?, on_card)?;
    let mut waiting = engine(on_card, options(None, 2), 26)?;
    // Three quarters are six pages of 512 bytes, and seven are needed.
    let taken: Buffer<u8> = card.zeros(card.free_bytes()? - 6 * 512 / 3 * 4)?;
    for _ in 0..2 {
        let refused = waiting.steps(on_card, 1).err();
        let is_named = refused.as_ref().is_some_and(|error| {
            error.kind() == ErrorKind::OutOfMemory && error.detail().contains("for the 7 pages of a request")
        });
        report.same("a request without pages", &format!("{refused:?}"), &[u32::from(is_named)], &[1]);
    }
    drop(taken);
    report.same("ids once there are pages", "scarce", &drawn(&mut waiting, on_card)?, &wanted);
    drop(waiting);
    let mut few = engine(on_card, options(None, 2), 4)?;
    // The pages are there, and their activations are not.
    let taken: Buffer<u8> = card.zeros(card.free_bytes()? - 6 * 512 / 3 * 4)?;
    let is_short = few.steps(on_card, 1).is_err_and(|error| error.kind() == ErrorKind::OutOfMemory);
    report.same("a step without memory", "scarce", &[u32::from(is_short)], &[1]);
    report.same("pages that there are", "scarce", &[few.num_free_pages() as u32], &[6]);
    drop(taken);
    drawn(&mut few, on_card)?;
    let refused = refused_pages(&mut few, 9).unwrap_or(99) as u32;
    report.same("pages that are refused", "scarce", &[few.num_free_pages() as u32, refused], &[6, 5]);
    Ok(())
}
