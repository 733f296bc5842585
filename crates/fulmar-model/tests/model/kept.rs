//! Activations that an engine keeps: a forward pass that copies them gives the bits of one that computes all.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::collections::HashMap;

use fulmar_core::{Dtype, Rng};
use fulmar_model::{
    Decoder, DecoderConfig, Engine, EngineOptions, EngineWeights, Generated, KvCacheDtype, LoraConfig,
    SamplingParams, Scores, TokenBatch, WeightChange,
};

use crate::engine::{Asked, collect, decoder, train};

/// Sequences as a batch whose drawn tokens are scored.
#[derive(Default)]
struct Drawn {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    log_prob: Vec<f32>,
}

impl Drawn {
    fn of(asked: &[Asked], found: &[Generated]) -> Self {
        let mut drawn = Self { offsets: vec![0], ..Self::default() };
        for (asked, found) in asked.iter().zip(found) {
            drawn.ids.extend(asked.prompt.iter().chain(&found.ids));
            drawn.mask.extend(asked.prompt.iter().map(|_| 0).chain(found.ids.iter().map(|_| 1)));
            drawn.log_prob.extend(asked.prompt.iter().map(|_| 0.0).chain(found.log_prob.iter().copied()));
            drawn.offsets.push(drawn.ids.len() as u32);
        }
        drawn
    }

    fn batch(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions: None }
    }
}

/// Returns requests in groups of equal prompts.
fn asked(count: usize, rng: &mut Rng) -> Vec<Asked> {
    let mut prompt = Vec::new();
    (0..count)
        .map(|index| {
            if index % 3 == 0 {
                prompt = (0..=rng.below(12).unwrap()).map(|_| rng.below(61).unwrap() as u32).collect();
            }
            let max_tokens = 1 + rng.below(20).unwrap() as usize;
            let params = SamplingParams { max_tokens, stop_ids: vec![3, 7], ..SamplingParams::default() };
            Asked { prompt: prompt.clone(), seed: rng.below(1 << 40).unwrap(), params }
        })
        .collect()
}

fn draw(decoder: &Decoder, options: &EngineOptions, asked: &[Asked]) -> Vec<Generated> {
    let mut engine = Engine::new(decoder.config(), options.clone()).unwrap();
    let ids: Vec<u64> =
        asked.iter().map(|asked| engine.add(&asked.request(), &asked.params).unwrap()).collect();
    while engine.steps(decoder, 1).unwrap() > 0 {}
    let mut found = HashMap::new();
    collect(&mut engine, &mut found);
    ids.iter().map(|id| found.remove(id).unwrap()).collect()
}

/// Returns the scores and the gradients of a pass over a batch.
fn pass(decoder: &mut Decoder, batch: &TokenBatch<'_>) -> (Scores, Vec<f32>) {
    decoder.zero_gradients();
    let scores = decoder.forward(batch).unwrap();
    let d_log_prob: Vec<f32> = (0..batch.ids.len()).map(|token| 0.3 - (token % 7) as f32 * 0.1).collect();
    let d_entropy: Vec<f32> = (0..batch.ids.len()).map(|token| (token % 3) as f32 * 0.05).collect();
    decoder.backward(&d_log_prob, Some(&d_entropy)).unwrap();
    (scores, decoder.gradients().to_vec())
}

fn keeping() -> EngineOptions {
    EngineOptions { activation_bytes_max: 1 << 26, ..EngineOptions::default() }
}

/// Compares a pass over kept activations with one of a decoder that keeps none, by bits.
fn check(decoder: &mut Decoder, options: &EngineOptions, asked: &[Asked]) {
    let mut other = decoder.clone();
    let drawn = Drawn::of(asked, &draw(decoder, options, asked));
    let (scores, gradients) = pass(decoder, &drawn.batch());
    assert!(decoder.num_kept_rows() > 0, "every row is kept");
    let expected = pass(&mut other, &drawn.batch());
    assert_eq!(other.num_kept_rows(), 0);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&scores.log_prob), bits(&expected.0.log_prob));
    assert_eq!(bits(&scores.log_prob), bits(&drawn.log_prob));
    assert_eq!(bits(&scores.entropy), bits(&expected.0.entropy));
    assert!(gradients.iter().any(|gradient| *gradient != 0.0));
    assert_eq!(bits(&gradients), bits(&expected.1));
}

#[test]
fn gradients_after_kept_activations_are_those_after_a_forward_pass() {
    let qwen3 = r#"{"model_type": "qwen3", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "initializer_range": 0.2, "max_position_embeddings": 64}"#;
    let mut adapted = decoder();
    adapted.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0).unwrap();
    train(&mut adapted);
    let decoders = [
        decoder(),
        adapted,
        decoder().with_dtype(Dtype::Bf16).unwrap(),
        Decoder::new(DecoderConfig::from_json(qwen3).unwrap(), 2).unwrap(),
    ];
    for (round, mut decoder) in decoders.into_iter().cycle().take(16).enumerate() {
        let mut rng = Rng::new(round as u64).stream("kept");
        let asked = asked(1 + rng.below(12).unwrap() as usize, &mut rng);
        let options = EngineOptions {
            page_size: [1, 7, 16][round % 3],
            // Few pages preempt sequences, whose rows are then computed twice.
            num_pages: (round % 2 == 0).then(|| 40 / [1, 7, 16][round % 3] + 3),
            max_num_seqs: 6,
            max_num_batched_tokens: 6 + rng.below(20).unwrap() as usize,
            speculative_tokens: round % 4,
            ..keeping()
        };
        check(&mut decoder, &options, &asked);
    }
}

#[test]
fn kept_activations_last_until_the_weights_change() {
    let (mut decoder, mut rng) = (decoder(), Rng::new(1));
    let asked = asked(6, &mut rng);
    let found = draw(&decoder, &keeping(), &asked);
    let drawn = Drawn::of(&asked, &found);
    // A part of the sequences, then the others, then all.
    let half = Drawn::of(&asked[..3], &found[..3]);
    for (drawn, is_kept) in [(&half, true), (&drawn, true)] {
        pass(&mut decoder, &drawn.batch());
        assert_eq!(decoder.num_kept_rows() > 0, is_kept);
    }
    let mut longer = Drawn::of(&asked, &found);
    longer.ids.extend([5, 6]);
    longer.mask.extend([0, 1]);
    longer.offsets.push(longer.ids.len() as u32);
    pass(&mut decoder, &longer.batch());
    assert_eq!(decoder.num_kept_rows(), 0, "a sequence that no engine computed");
    let positions: Vec<u32> = (0..drawn.ids.len() as u32).map(|at| at % 60).collect();
    pass(&mut decoder, &TokenBatch { positions: Some(&positions), ..drawn.batch() });
    assert_eq!(decoder.num_kept_rows(), 0, "other positions");
    let mut copy = decoder.snapshot().unwrap();
    pass(&mut copy, &drawn.batch());
    assert_eq!(copy.num_kept_rows(), 0, "a copy keeps nothing");
    decoder.recompute_activations(true);
    pass(&mut decoder, &drawn.batch());
    decoder.recompute_activations(false);
    pass(&mut decoder, &drawn.batch());
    assert!(decoder.num_kept_rows() > 0);
    train(&mut decoder);
    pass(&mut decoder, &drawn.batch());
    assert_eq!(decoder.num_kept_rows(), 0, "weights of another version");
    check(&mut decoder, &keeping(), &asked);
}

#[test]
fn rows_of_two_versions_of_the_weights_are_not_mixed() {
    for on_weight_change in [WeightChange::Recompute, WeightChange::Keep] {
        let (mut decoder, mut rng) = (decoder(), Rng::new(4));
        let asked: Vec<Asked> = asked(4, &mut rng)
            .into_iter()
            .map(|asked| Asked {
                params: SamplingParams { max_tokens: 12, ..SamplingParams::default() },
                ..asked
            })
            .collect();
        let options = EngineOptions { on_weight_change, page_size: 4, ..keeping() };
        let mut engine = Engine::new(decoder.config(), options).unwrap();
        let ids: Vec<u64> =
            asked.iter().map(|asked| engine.add(&asked.request(), &asked.params).unwrap()).collect();
        engine.steps(&decoder, 5).unwrap();
        train(&mut decoder);
        while engine.steps(&decoder, 1).unwrap() > 0 {}
        let mut found = HashMap::new();
        collect(&mut engine, &mut found);
        let found: Vec<Generated> = ids.iter().map(|id| found.remove(id).unwrap()).collect();
        let drawn = Drawn::of(&asked, &found);
        let expected = pass(&mut decoder.snapshot().unwrap(), &drawn.batch());
        assert!(pass(&mut decoder, &drawn.batch()) == expected);
        assert_eq!(decoder.num_kept_rows() > 0, on_weight_change == WeightChange::Recompute);
    }
}

#[test]
fn limits_and_rounded_weights_or_caches_keep_what_they_allow() {
    let (decoder, mut rng) = (decoder(), Rng::new(2));
    let asked = asked(3, &mut rng);
    let kept = |options: EngineOptions| {
        let mut decoder = decoder.clone();
        let found = draw(&decoder, &options, &asked);
        pass(&mut decoder, &Drawn::of(&asked, &found).batch());
        decoder.num_kept_rows()
    };
    let rows = kept(keeping());
    assert!(rows > 0);
    assert_eq!(kept(EngineOptions::default()), 0);
    assert_eq!(kept(EngineOptions { weights: EngineWeights::Q8, ..keeping() }), 0);
    assert_eq!(kept(EngineOptions { kv_cache_dtype: KvCacheDtype::Bf16, ..keeping() }), 0);
    // The bytes of one row: of two layers of width 48 with 40 inner units, and of the last residual stream.
    let row = 4 * (48 + 2 * (2 * 48 + 3 * 48 + 3 * 24 + 2 * 40 + 2 + 6 + 8));
    let most =
        |activation_bytes_max| kept(EngineOptions { activation_bytes_max, ..EngineOptions::default() });
    assert_eq!((most(rows * row), most(rows * row - 1), most(1)), (rows, 0, 0));
}
