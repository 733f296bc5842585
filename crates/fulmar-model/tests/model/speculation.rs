//! Speculative decoding: tokens and log-probs are those of decoding one by one, bit for bit.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::collections::HashMap;
use std::num::NonZeroUsize;

use fulmar_compute::cpu::with_num_threads;
use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_model::{
    Decoder, Engine, EngineOptions, EngineWeights, Generated, KvCacheDtype, LoraConfig, Outputs,
    SPECULATIVE_TOKENS_MAX, SamplingParams, WeightChange,
};
use fulmar_objective::{DrawMethod, DrawOptions};

use crate::engine::{Asked, alone_by, collect, decoder, scored, train};

/// Returns `count` requests, some with equal prompts, with every kind of option that changes a draw.
fn asked(count: usize, rng: &mut Rng) -> Vec<Asked> {
    let mut below = |bound: u64| rng.below(bound).unwrap();
    let mut prompt = Vec::new();
    (0..count)
        .map(|index| {
            if index == 0 || below(3) == 0 {
                prompt = (0..=below(20)).map(|_| below(61) as u32).collect();
            }
            let draw_method = if below(4) == 0 { DrawMethod::Inverse } else { DrawMethod::GumbelMax };
            let temperature = [0.0, 0.5, 1.0, 1.3][below(4) as usize];
            let mut draw = DrawOptions { draw_method, temperature, ..DrawOptions::default() };
            match below(6) {
                0 => draw.top_k = Some(1 + below(20) as usize),
                1 => draw.top_p = 0.8,
                2 => (draw.repetition_penalty, draw.presence_penalty) = (1.2, 0.3),
                3 => (draw.frequency_penalty, draw.no_repeat_ngram_size) = (0.5, 2),
                4 => (draw.min_p, draw.bad_words_ids) = (0.05, vec![vec![4, 5], vec![6]]),
                _ => {}
            }
            let stop_ids = if below(2) == 0 { vec![3, 7, 11] } else { Vec::new() };
            let top_log_probs = below(3) as usize;
            let params = SamplingParams { max_tokens: 1 + below(24) as usize, stop_ids, top_log_probs, draw };
            Asked { prompt: prompt.clone(), seed: below(1 << 40), params }
        })
        .collect()
}

/// Runs an engine until it is done; returns what each request drew and the counts of the engine.
fn run(
    decoder: &Decoder,
    options: EngineOptions,
    asked: &[Asked],
    rng: &mut Rng,
) -> (Vec<Generated>, Outputs) {
    let mut engine = Engine::new(decoder.config(), options).unwrap();
    let num_pages = engine.num_free_pages();
    let (mut waiting, mut found, mut ids) = (asked, HashMap::new(), Vec::new());
    while !waiting.is_empty() || engine.num_unfinished() > 0 {
        let (now, later) = waiting.split_at(waiting.len().min(rng.below(5).unwrap() as usize));
        ids.extend(now.iter().map(|asked| engine.add(&asked.request(), &asked.params).unwrap()));
        waiting = later;
        engine.steps(decoder, 1 + rng.below(3).unwrap() as usize).unwrap();
        collect(&mut engine, &mut found);
    }
    assert_eq!(engine.num_free_pages(), num_pages, "every page comes back");
    (ids.iter().map(|id| found.remove(id).unwrap()).collect(), engine.take_outputs())
}

#[test]
fn speculation_changes_no_bit_in_any_mix_page_size_and_preemption() {
    let plain = decoder();
    let mut adapted = decoder();
    adapted.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0).unwrap();
    train(&mut adapted);
    let halves = decoder().with_dtype(Dtype::Bf16).unwrap();
    let mut counts = Outputs::default();
    let rounds = if crate::is_short() { 8 } else { 96 };
    for round in 0..rounds {
        let mut rng = Rng::new(round).stream("speculation");
        let decoder = [&plain, &plain, &adapted, &halves][round as usize % 4];
        let asked = asked(1 + rng.below(7).unwrap() as usize, &mut rng);
        let page_size = [1, 7, 16][round as usize % 3];
        let longest = asked
            .iter()
            .map(|a| a.prompt.len().div_ceil(page_size) + a.params.max_tokens.div_ceil(page_size));
        let max_num_seqs = 1 + rng.below(8).unwrap() as usize;
        let kv_cache_dtype = [KvCacheDtype::Same, KvCacheDtype::Bf16][usize::from(round % 5 == 4)];
        let policy = EngineOptions { kv_cache_dtype, ..EngineOptions::default() };
        let options = EngineOptions {
            page_size,
            num_pages: Some(longest.max().unwrap() + rng.below(16).unwrap() as usize),
            max_num_seqs,
            max_num_batched_tokens: max_num_seqs + rng.below(30).unwrap() as usize,
            speculative_tokens: 1 + round as usize % SPECULATIVE_TOKENS_MAX,
            ..policy.clone()
        };
        let (found, outputs) = run(decoder, options, &asked, &mut rng);
        for (index, (found, asked)) in found.iter().zip(&asked).enumerate() {
            assert_eq!(*found, alone_by(policy.clone(), decoder, asked), "round {round}, request {index}");
        }
        counts.num_preemptions += outputs.num_preemptions;
        counts.num_draft_tokens += outputs.num_draft_tokens;
        counts.num_accepted_tokens += outputs.num_accepted_tokens;
    }
    let (drafted, accepted) = (counts.num_draft_tokens, counts.num_accepted_tokens);
    let least = 100 * rounds / 96;
    assert!(2 * counts.num_preemptions > least, "the rounds must preempt: {counts:?}");
    assert!(accepted > 10 * least && drafted - accepted > least, "drafts of both kinds: {counts:?}");
}

#[test]
fn speculation_changes_no_bit_when_the_weights_change_between_steps() {
    let before = decoder();
    let mut after = before.clone();
    train(&mut after);
    let mut num_accepted = 0;
    for round in 0..24 {
        let mut rng = Rng::new(round).stream("change");
        let mut asked = asked(1, &mut rng).remove(0);
        asked.params = SamplingParams { max_tokens: 24, stop_ids: Vec::new(), ..asked.params };
        let on_weight_change = if round % 2 == 0 { WeightChange::Recompute } else { WeightChange::Keep };
        let draw = |speculative_tokens, steps: usize| {
            let options = EngineOptions {
                page_size: [1, 7, 16][round as usize % 3],
                on_weight_change,
                speculative_tokens,
                ..EngineOptions::default()
            };
            let mut engine = Engine::new(before.config(), options).unwrap();
            let request = engine.add(&asked.request(), &asked.params).unwrap();
            engine.steps(&before, steps).unwrap();
            let mut found = HashMap::new();
            collect(&mut engine, &mut found);
            let drawn = found[&request].ids.len();
            while engine.steps(&after, 1).unwrap() > 0 {}
            collect(&mut engine, &mut found);
            (found.remove(&request).unwrap(), drawn, engine.take_outputs().num_accepted_tokens)
        };
        let (found, drawn, accepted) = draw(1 + round as usize % 8, 2 + round as usize % 3);
        assert_eq!(found, draw(0, drawn).0, "round {round}");
        assert_eq!(found.versions, [vec![0; drawn], vec![1; 24 - drawn]].concat());
        if on_weight_change == WeightChange::Recompute {
            let [old, new] = [&before, &after].map(|decoder| scored(decoder, &asked.prompt, &found.ids));
            assert_eq!(found.log_prob, [&old[..drawn], &new[drawn..]].concat(), "the trainer's bits");
        }
        num_accepted += accepted;
    }
    assert!(num_accepted > 100, "{num_accepted}");
}

#[test]
fn most_drafts_are_accepted_where_draws_use_gumbel_noise() {
    let decoder = decoder();
    let options = EngineOptions { speculative_tokens: 4, ..EngineOptions::default() };
    let rate = |draw_method| {
        let draw = DrawOptions { draw_method, ..DrawOptions::default() };
        let params = SamplingParams { max_tokens: 40, draw, ..SamplingParams::default() };
        let asked: Vec<Asked> = (0..12)
            .map(|seed| Asked { prompt: vec![seed as u32 + 1, 5], seed, params: params.clone() })
            .collect();
        let counts = run(&decoder, options.clone(), &asked, &mut Rng::new(1)).1;
        counts.num_accepted_tokens as f64 / counts.num_draft_tokens as f64
    };
    let (gumbel, inverse) = (rate(DrawMethod::GumbelMax), rate(DrawMethod::Inverse));
    assert!(gumbel > 0.7 && gumbel > inverse, "{gumbel} against {inverse}");
}

#[test]
fn many_sequences_and_a_single_token_draft_nothing() {
    let decoder = decoder();
    let options = EngineOptions { speculative_tokens: 8, ..EngineOptions::default() };
    let drafted = |num_sequences: usize, max_tokens: usize| {
        // One thread has one part, which runs all sequences.
        with_num_threads(NonZeroUsize::MIN, || {
            let params = SamplingParams { max_tokens, ..SamplingParams::default() };
            let mut engine = Engine::new(decoder.config(), options.clone()).unwrap();
            for seed in 0..num_sequences as u64 {
                let asked = Asked { prompt: vec![1, 2], seed, params: params.clone() };
                engine.add(&asked.request(), &asked.params).unwrap();
            }
            while engine.steps(&decoder, 1).unwrap() > 0 {}
            engine.take_outputs().num_draft_tokens
        })
    };
    assert_eq!((drafted(9, 12), drafted(17, 12), drafted(1, 1), drafted(1, 2)), (0, 0, 0, 0));
    assert!(drafted(8, 12) > 0 && drafted(1, 3) == 1);
}

#[test]
fn options_of_speculation_outside_their_range_are_refused() {
    let decoder = decoder();
    let make = |options: EngineOptions| {
        Engine::new(decoder.config(), options)
            .map(drop)
            .map_err(|error| (error.kind(), error.detail().to_owned()))
    };
    let of = |speculative_tokens| EngineOptions { speculative_tokens, ..EngineOptions::default() };
    assert_eq!(make(of(SPECULATIVE_TOKENS_MAX)), Ok(()));
    let (kind, detail) = make(of(SPECULATIVE_TOKENS_MAX + 1)).unwrap_err();
    assert_eq!(
        (kind, detail.as_str()),
        (ErrorKind::LimitExceeded, "speculativeTokens must be at most 8: got 9")
    );
    let (kind, detail) = make(EngineOptions { weights: EngineWeights::Q8, ..of(2) }).unwrap_err();
    assert_eq!(kind, ErrorKind::OutOfRange);
    assert_eq!(detail, "speculativeTokens must be 0 with weights of 8 bits: got 2");
}
