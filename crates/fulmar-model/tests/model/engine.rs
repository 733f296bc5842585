//! The engine: a request's tokens and log-probs are the same bits whatever the other requests, and no request
//! is lost.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::collections::HashMap;
use std::num::NonZeroUsize;

use fulmar_compute::cpu::with_num_threads;
use fulmar_core::limits::{BATCH_TOKENS_MAX, ENGINE_REQUESTS_MAX, TOP_LOG_PROBS_MAX};
use fulmar_core::{Device, Dtype, ErrorKind, Result, Rng};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, Engine, EngineOptions, EngineWeights, FinishReason, Generated,
    KvCacheDtype, LoraConfig, Optimizer, Request, SamplingParams, TokenBatch, WeightChange, generate,
};
use fulmar_objective::DrawOptions;

pub(crate) fn decoder() -> Decoder {
    let config = r#"{"model_type": "qwen2", "vocab_size": 61, "hidden_size": 48, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
        "max_position_embeddings": 64}"#;
    crate::placed(Decoder::new(DecoderConfig::from_json(config).unwrap(), 5).unwrap())
}

pub(crate) struct Asked {
    pub(crate) prompt: Vec<u32>,
    pub(crate) seed: u64,
    pub(crate) params: SamplingParams,
}

impl Asked {
    pub(crate) fn request(&self) -> Request<'_> {
        Request { prompt_ids: &self.prompt, seed: self.seed }
    }
}

/// Returns `count` requests in groups that share a prompt of 1 to 20 tokens, each with its own parameters.
fn asked(count: usize, rng: &mut Rng) -> Vec<Asked> {
    let mut below = |bound: u64| rng.below(bound).unwrap();
    let mut prompt = Vec::new();
    (0..count)
        .map(|index| {
            if index == 0 || below(3) == 0 {
                prompt = (0..=below(20)).map(|_| below(61) as u32).collect();
            }
            let (temperature, repetition_penalty) = (0.5 + below(2) as f64, 1.0 + 0.2 * below(2) as f64);
            let draw = DrawOptions { temperature, repetition_penalty, ..DrawOptions::default() };
            let stop_ids = if below(2) == 0 { vec![3, 7, 11] } else { Vec::new() };
            let top_log_probs = below(3) as usize;
            let params = SamplingParams { max_tokens: 1 + below(24) as usize, stop_ids, top_log_probs, draw };
            Asked { prompt: prompt.clone(), seed: below(1 << 40), params }
        })
        .collect()
}

pub(crate) fn alone(decoder: &Decoder, asked: &Asked) -> Generated {
    generate(decoder, &[asked.request()], &asked.params).unwrap().remove(0)
}

/// Returns what an engine of these options draws for one request.
pub(crate) fn alone_by(options: EngineOptions, decoder: &Decoder, asked: &Asked) -> Generated {
    let mut engine = Engine::new(decoder.config(), options).unwrap();
    let request = engine.add(&asked.request(), &asked.params).unwrap();
    while engine.steps(decoder, 1).unwrap() > 0 {}
    let mut found = HashMap::new();
    collect(&mut engine, &mut found);
    found.remove(&request).unwrap()
}

/// Runs an engine until it is done and appends its outputs to those of each request.
pub(crate) fn collect(engine: &mut Engine, found: &mut HashMap<u64, Generated>) {
    let outputs = engine.take_outputs();
    for token in outputs.tokens {
        let of_request = found.entry(token.request).or_default();
        assert_eq!(of_request.finish_reason, None, "no token follows the end");
        of_request.push(token);
    }
    for (request, reason) in outputs.finished {
        assert_eq!(found.entry(request).or_default().finish_reason.replace(reason), None);
    }
}

#[test]
fn a_request_has_the_same_bits_in_any_mix_order_page_size_and_preemption() {
    let decoder = decoder();
    let mut preemptions = 0;
    let rounds = if crate::is_short() { 6 } else { 60 };
    for round in 0..rounds {
        let mut rng = Rng::new(round).stream("engine");
        let asked = asked(1 + rng.below(24).unwrap() as usize, &mut rng);
        let page_size = 1 + rng.below(9).unwrap() as usize;
        let longest = asked
            .iter()
            .map(|a| a.prompt.len().div_ceil(page_size) + a.params.max_tokens.div_ceil(page_size));
        let max_num_seqs = 1 + rng.below(12).unwrap() as usize;
        let (weights, kv_cache_dtype) = match round % 4 {
            0 if crate::device() == Device::Cpu => (EngineWeights::Q8, KvCacheDtype::Same),
            1 if crate::device() == Device::Cpu => (EngineWeights::Same, KvCacheDtype::Bf16),
            _ => (EngineWeights::Same, KvCacheDtype::Same),
        };
        let policy = EngineOptions { weights, kv_cache_dtype, ..EngineOptions::default() };
        let options = EngineOptions {
            page_size,
            num_pages: Some(longest.max().unwrap() + rng.below(12).unwrap() as usize),
            max_num_seqs,
            max_num_batched_tokens: max_num_seqs + rng.below(20).unwrap() as usize,
            ..policy.clone()
        };
        let num_pages = options.num_pages.unwrap();
        let mut engine = Engine::new(decoder.config(), options).unwrap();
        let (mut order, mut found) = ((0..asked.len()).collect::<Vec<_>>(), HashMap::new());
        rng.shuffle(&mut order);
        let mut ids = HashMap::new();
        let mut waiting = order.as_slice();
        while !waiting.is_empty() || engine.num_unfinished() > 0 {
            let (now, later) = waiting.split_at(waiting.len().min(rng.below(5).unwrap() as usize));
            for &index in now {
                ids.insert(index, engine.add(&asked[index].request(), &asked[index].params).unwrap());
            }
            waiting = later;
            engine.steps(&decoder, 1 + rng.below(3).unwrap() as usize).unwrap();
            collect(&mut engine, &mut found);
        }
        for (index, asked) in asked.iter().enumerate() {
            let alone =
                match policy.weights == EngineWeights::Same && policy.kv_cache_dtype == KvCacheDtype::Same {
                    true => alone(&decoder, asked),
                    false => alone_by(policy.clone(), &decoder, asked),
                };
            assert_eq!(found[&ids[&index]], alone, "round {round}, request {index}");
        }
        assert_eq!(engine.num_free_pages(), num_pages, "round {round}");
        preemptions += engine.take_outputs().num_preemptions;
    }
    assert!(preemptions > 100 * rounds / 60, "the rounds must preempt: got {preemptions}");
}

#[test]
fn a_cache_in_bfloat16_holds_twice_the_tokens_and_changes_log_probs_a_little() {
    let (decoder, mut rng) = (decoder(), Rng::new(5).stream("bfloat16"));
    let halves = EngineOptions { kv_cache_dtype: KvCacheDtype::Bf16, ..EngineOptions::default() };
    let text = r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 1024, "intermediate_size": 4,
        "num_hidden_layers": 64, "num_attention_heads": 2, "max_position_embeddings": 100}"#;
    let large = DecoderConfig::from_json(text).unwrap();
    let free = |options: &EngineOptions| Engine::new(&large, options.clone()).unwrap().num_free_pages();
    assert_eq!(free(&halves), 2 * free(&EngineOptions::default()), "in one GiB");
    if crate::device() != Device::Cpu {
        return; // An engine there caches what its activations are.
    }
    let (mut worst, mut num_other) = (0.0_f32, 0);
    for asked in asked(12, &mut rng) {
        let drawn = alone_by(halves.clone(), &decoder, &asked);
        let ids = [&asked.prompt[..], &drawn.ids].concat();
        let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at >= asked.prompt.len())).collect();
        let batch =
            TokenBatch { ids: &ids, offsets: &[0, ids.len() as u32], mask: &mask, ..Default::default() };
        let exact = decoder.score(&batch).unwrap().log_prob;
        for (ours, exact) in drawn.log_prob.iter().zip(&exact[asked.prompt.len()..]) {
            worst = worst.max((ours - exact).abs());
            num_other += usize::from(ours != exact);
        }
    }
    assert!(num_other > 10 && worst < 0.05, "{num_other} others, by up to {worst} nats");
}

#[test]
fn siblings_hold_the_pages_of_their_prompt_once() {
    let decoder = decoder();
    let options = EngineOptions { page_size: 4, num_pages: Some(20), ..EngineOptions::default() };
    let mut engine = Engine::new(decoder.config(), options).unwrap();
    let params = SamplingParams { max_tokens: 4, ..SamplingParams::default() };
    let prompt: Vec<u32> = (0..40).collect();
    for seed in 0..8 {
        engine.add(&Request { prompt_ids: &prompt, seed }, &params).unwrap();
    }
    engine.steps(&decoder, 1).unwrap();
    assert_eq!(engine.take_outputs().tokens.len(), 8, "a prompt's logits serve all siblings");
    engine.steps(&decoder, 1).unwrap();
    assert_eq!(engine.num_free_pages(), 20 - 10 - 8, "ten pages of the prompt, one of each");
    while engine.steps(&decoder, 1).unwrap() > 0 {}
    let outputs = engine.take_outputs();
    assert_eq!((outputs.finished.len(), outputs.num_preemptions, engine.num_free_pages()), (8, 0, 20));
}

#[test]
fn an_aborted_request_frees_its_pages_and_changes_no_other() {
    let decoder = decoder();
    let mut rng = Rng::new(3).stream("abort");
    let asked = asked(9, &mut rng);
    let options =
        EngineOptions { page_size: 4, num_pages: Some(33), max_num_seqs: 6, ..EngineOptions::default() };
    let mut engine = Engine::new(decoder.config(), options).unwrap();
    let ids: Vec<u64> = asked.iter().map(|a| engine.add(&a.request(), &a.params).unwrap()).collect();
    engine.steps(&decoder, 1).unwrap();
    let free = engine.num_free_pages();
    assert!(engine.abort(ids[8]) && !engine.abort(ids[8]), "one that waits");
    assert_eq!(engine.num_free_pages(), free);
    let mut found = HashMap::new();
    collect(&mut engine, &mut found);
    let live = (0..6).find(|index| found[&ids[*index]].finish_reason.is_none()).unwrap();
    assert!(engine.abort(ids[live]), "one that runs");
    while engine.steps(&decoder, 1).unwrap() > 0 {}
    collect(&mut engine, &mut found);
    assert_eq!(engine.num_free_pages(), 33);
    for (index, asked) in asked.iter().enumerate() {
        let (found, whole) = (&found[&ids[index]], alone(&decoder, asked));
        if [live, 8].contains(&index) {
            assert_eq!(found.finish_reason, Some(FinishReason::Abort));
            assert_eq!(found.ids, whole.ids[..found.ids.len()]);
        } else {
            assert_eq!(*found, whole);
        }
    }
}

/// Changes the weights by a step of training.
pub(crate) fn train(decoder: &mut Decoder) {
    let batch =
        TokenBatch { ids: &[1, 2, 3, 4], offsets: &[0, 4], mask: &[0, 1, 1, 1], ..Default::default() };
    let mut optimizer = Optimizer::new(decoder, AdamWOptions::default()).unwrap();
    decoder.forward(&batch).unwrap();
    decoder.backward(&[0.0, -0.3, -0.3, -0.3], None).unwrap();
    optimizer.step(decoder, Some(1e-2), None).unwrap();
}

/// Returns log-probs of one sequence's drawn tokens under the trainer's forward pass.
pub(crate) fn scored(decoder: &Decoder, prompt: &[u32], drawn: &[u32]) -> Vec<f32> {
    let ids = [prompt, drawn].concat();
    let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at >= prompt.len())).collect();
    let offsets = [0, ids.len() as u32];
    let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, ..Default::default() };
    decoder.score(&batch).unwrap().log_prob[prompt.len()..].to_vec()
}

#[test]
fn new_weights_are_taken_between_steps_and_each_token_names_its_own() {
    let before = decoder();
    let mut after = before.clone();
    train(&mut after);
    assert_eq!((before.version(), after.version()), (0, 1));
    let params = SamplingParams { max_tokens: 12, ..SamplingParams::default() };
    let prompts: [&[u32]; 3] = [&[5, 6, 7, 8, 9], &[5, 6, 7, 8, 9], &[1, 2]];
    let run = |on_weight_change| {
        let options = EngineOptions { page_size: 4, on_weight_change, ..EngineOptions::default() };
        let mut engine = Engine::new(before.config(), options).unwrap();
        let mut found = HashMap::new();
        for (prompt_ids, seed) in prompts.iter().zip(0..) {
            engine.add(&Request { prompt_ids, seed }, &params).unwrap();
        }
        engine.steps(&before, 5).unwrap();
        while engine.steps(&after, 1).unwrap() > 0 {}
        collect(&mut engine, &mut found);
        found
    };
    let (recomputed, kept) = (run(WeightChange::Recompute), run(WeightChange::Keep));
    for (prompt, request) in prompts.iter().zip(0..) {
        let found = &recomputed[&request];
        assert_eq!(found.versions, [[0; 5].as_slice(), &[1; 7]].concat());
        let [old, new] = [&before, &after].map(|decoder| scored(decoder, prompt, &found.ids));
        assert_eq!(found.log_prob, [&old[..5], &new[5..]].concat(), "the trainer's bits under each version");
        assert_eq!(kept[&request].versions, found.versions);
        assert_eq!(kept[&request].log_prob[..5], old[..5]);
        assert_ne!(kept[&request].log_prob[5], found.log_prob[5], "its cache is of older weights");
    }
}

#[test]
fn the_likeliest_ids_of_a_token_are_those_that_scoring_gives() {
    let decoder = decoder();
    let params = SamplingParams { max_tokens: 9, top_log_probs: 4, ..SamplingParams::default() };
    let prompt = [4, 8, 15];
    let found = &generate(&decoder, &[Request { prompt_ids: &prompt, seed: 1 }], &params).unwrap()[0];
    let ids = [prompt.as_slice(), &found.ids].concat();
    let offsets = [0, ids.len() as u32];
    let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at >= 3)).collect();
    let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, ..Default::default() };
    let (scores, likeliest) = decoder.score_top_k(&batch, 4).unwrap();
    let top: Vec<(u32, f32)> = found.top_log_probs.iter().flatten().copied().collect();
    assert_eq!(top.iter().map(|top| top.0).collect::<Vec<_>>(), likeliest.ids[12..]);
    assert_eq!(top.iter().map(|top| top.1).collect::<Vec<_>>(), likeliest.log_prob[12..]);
    assert_eq!(decoder.score(&batch).unwrap(), scores);
    let (_, whole) = decoder.score_top_k(&batch, 61).unwrap();
    let first = &whole.log_prob[3 * 61..4 * 61];
    let sum: f64 = first.iter().map(|log_prob| f64::from(*log_prob).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-5 && first.is_sorted_by(|a, b| a >= b), "{sum}");
    assert_eq!(decoder.score_top_k(&batch, 62).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn threads_change_no_output() {
    let run = |threads: usize| {
        with_num_threads(NonZeroUsize::new(threads).unwrap(), || {
            let asked = asked(30, &mut Rng::new(9).stream("threads"));
            let decoder = decoder();
            let mut engine = Engine::new(decoder.config(), EngineOptions::default()).unwrap();
            for asked in &asked {
                engine.add(&asked.request(), &asked.params).unwrap();
            }
            while engine.turn(&decoder).unwrap() > 0 {}
            let mut found = HashMap::new();
            collect(&mut engine, &mut found);
            found
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3));
}

#[test]
fn requests_and_sizes_that_cannot_be_served_are_refused() {
    let decoder = decoder();
    let kind = |result: Result<u64>| result.unwrap_err().kind();
    let options =
        EngineOptions { page_size: 4, num_pages: Some(4), max_num_waiting: 2, ..EngineOptions::default() };
    let mut engine = Engine::new(decoder.config(), options).unwrap();
    let mut add =
        |prompt_ids: &[u32], params: SamplingParams| engine.add(&Request { prompt_ids, seed: 0 }, &params);
    let params = |max_tokens: usize| SamplingParams { max_tokens, ..SamplingParams::default() };
    assert_eq!(kind(add(&[], params(1))), ErrorKind::Empty);
    assert_eq!(kind(add(&[61], params(1))), ErrorKind::OutOfRange);
    assert_eq!(kind(add(&[1], params(0))), ErrorKind::OutOfRange);
    assert_eq!(kind(add(&[1], params(64))), ErrorKind::LimitExceeded);
    assert_eq!(kind(add(&[1], params(13))), ErrorKind::LimitExceeded, "five pages");
    let bad = DrawOptions { top_p: 0.0, ..DrawOptions::default() };
    assert_eq!(kind(add(&[1], SamplingParams { draw: bad, ..params(1) })), ErrorKind::OutOfRange);
    assert_eq!(kind(add(&[1], SamplingParams { top_log_probs: 62, ..params(1) })), ErrorKind::OutOfRange);
    let draw = DrawOptions { banned_ids: vec![61], ..DrawOptions::default() };
    assert_eq!(kind(add(&[1], SamplingParams { draw, ..params(1) })), ErrorKind::OutOfRange);
    let draw = DrawOptions { banned_ids: (0..61).collect(), ..DrawOptions::default() };
    assert_eq!(kind(add(&[1], SamplingParams { draw, ..params(1) })), ErrorKind::Empty);
    assert_eq!(add(&[1], params(12)), Ok(0));
    assert_eq!(add(&[1], params(12)), Ok(1));
    assert_eq!(kind(add(&[1], params(12))), ErrorKind::LimitExceeded, "two wait");
    let config = DecoderConfig { num_hidden_layers: 1, ..decoder.config().clone() };
    let other = Decoder::new(config, 0).unwrap();
    assert_eq!(engine.steps(&other, 1).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    let refused = |options: EngineOptions| Engine::new(decoder.config(), options).unwrap_err().kind();
    let default = EngineOptions::default;
    assert_eq!(refused(EngineOptions { page_size: 0, ..default() }), ErrorKind::OutOfRange);
    assert_eq!(refused(EngineOptions { num_pages: Some(0), ..default() }), ErrorKind::OutOfRange);
    assert_eq!(refused(EngineOptions { max_num_seqs: 0, ..default() }), ErrorKind::OutOfRange);
    assert_eq!(refused(EngineOptions { max_num_waiting: 0, ..default() }), ErrorKind::OutOfRange);
    assert_eq!(refused(EngineOptions { max_num_batched_tokens: 255, ..default() }), ErrorKind::OutOfRange);
}

#[test]
fn limits_hold_at_the_bound_and_one_past_it() {
    let decoder = decoder();
    let make =
        |options: EngineOptions| Engine::new(decoder.config(), options).map(drop).map_err(|e| e.kind());
    let waiting = |max_num_waiting| make(EngineOptions { max_num_waiting, ..EngineOptions::default() });
    assert_eq!(waiting(ENGINE_REQUESTS_MAX), Ok(()));
    assert_eq!(waiting(ENGINE_REQUESTS_MAX + 1), Err(ErrorKind::LimitExceeded));
    let pages =
        |pages| make(EngineOptions { page_size: 1, num_pages: Some(pages), ..EngineOptions::default() });
    assert_eq!(pages(BATCH_TOKENS_MAX), Ok(()));
    assert_eq!(pages(BATCH_TOKENS_MAX + 1), Err(ErrorKind::LimitExceeded));
    let tokens = |tokens| make(EngineOptions { max_num_batched_tokens: tokens, ..EngineOptions::default() });
    assert_eq!(tokens(BATCH_TOKENS_MAX), Ok(()));
    assert_eq!(tokens(BATCH_TOKENS_MAX + 1), Err(ErrorKind::LimitExceeded));
    let config = r#"{"model_type": "llama", "vocab_size": 131072, "hidden_size": 4, "intermediate_size": 4,
        "num_hidden_layers": 1, "num_attention_heads": 1}"#;
    let config = DecoderConfig::from_json(config).unwrap();
    let mut engine = Engine::new(&config, EngineOptions::default()).unwrap();
    let mut ask = |top_log_probs: usize| {
        let params = SamplingParams { max_tokens: 1024, top_log_probs, ..SamplingParams::default() };
        engine.add(&Request { prompt_ids: &[1], seed: 0 }, &params).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(ask(TOP_LOG_PROBS_MAX / 1024), Ok(()));
    assert_eq!(ask(TOP_LOG_PROBS_MAX / 1024 + 1), Err(ErrorKind::LimitExceeded));
}

/// Returns the log-probs that an engine of 8 bits gives the tokens that it draws after two prompts, with their ids.
fn drawn_in_8_bits(decoder: &Decoder) -> Vec<(Vec<u32>, Vec<f32>)> {
    let params = SamplingParams { max_tokens: 24, ..SamplingParams::default() };
    let ask = |prompt: &[u32], seed| Asked { prompt: prompt.to_vec(), seed, params: params.clone() };
    let options = EngineOptions { weights: EngineWeights::Q8, ..EngineOptions::default() };
    let found = [ask(&[5, 6, 7], 1), ask(&[9], 2)].map(|asked| alone_by(options.clone(), decoder, &asked));
    found.map(|found| (found.ids, found.log_prob)).into()
}

#[test]
fn log_probs_of_8_bits_are_near_those_of_the_decoder() {
    let decoder = decoder();
    let (mut sum, mut count) = (0.0, 0);
    for ((ids, log_prob), prompt) in drawn_in_8_bits(&decoder).iter().zip([&[5_u32, 6, 7][..], &[9]]) {
        let exact = scored(&decoder, prompt, ids);
        assert_ne!(*log_prob, exact, "8 bits are not the decoder's");
        sum += log_prob.iter().zip(&exact).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>();
        count += ids.len();
    }
    let mean = sum / count as f64;
    assert!(mean < 0.08, "mean difference of {count} log-probs: {mean}");
}

#[test]
fn weights_of_8_bits_are_those_of_the_present_version() {
    let mut decoder = decoder();
    let before = drawn_in_8_bits(&decoder);
    train(&mut decoder);
    let after = drawn_in_8_bits(&decoder);
    assert_ne!(after, before);
    assert_eq!(after, drawn_in_8_bits(&decoder.snapshot().unwrap()), "a copy rounds them anew");
}

#[test]
fn an_adapter_is_rounded_to_8_bits_together_with_its_weights() {
    let mut decoder = decoder();
    let plain = drawn_in_8_bits(&decoder);
    decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0).unwrap();
    assert_eq!(drawn_in_8_bits(&decoder), plain, "a new adapter adds nothing");
    train(&mut decoder);
    let adapted = drawn_in_8_bits(&decoder);
    assert_ne!(adapted, plain);
    decoder.merge_lora().unwrap();
    assert_eq!(drawn_in_8_bits(&decoder), adapted);
}

#[test]
fn halves_and_their_widened_weights_have_the_same_8_bits() {
    let halves = decoder().with_dtype(Dtype::Bf16).unwrap();
    let wide = halves.clone().with_dtype(Dtype::F32).unwrap();
    assert_eq!(drawn_in_8_bits(&halves), drawn_in_8_bits(&wide));
}
