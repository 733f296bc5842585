//! Training is independent of its partition: accumulated gradients equal those of one large batch, recomputed
//! activations the stored ones.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, LoraConfig, MuonOptions, Optimizer, OptimizerOptions, Request,
    SamplingParams, SgdOptions, TokenBatch, generate,
};

fn decoder() -> Decoder {
    let config = r#"{"model_type": "qwen3", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}"#;
    crate::placed(Decoder::new(DecoderConfig::from_json(config).unwrap(), 5).unwrap())
}

/// Eight sequences of 2 to 20 tokens; all but the first are scored.
struct Sequences {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
}

impl Sequences {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed).stream("sequences");
        let (mut ids, mut offsets, mut mask) = (Vec::new(), vec![0], Vec::new());
        for _ in 0..8 {
            for index in 0..2 + rng.below(19).unwrap() {
                ids.push(rng.below(61).unwrap() as u32);
                mask.push(u8::from(index > 0));
            }
            offsets.push(ids.len() as u32);
        }
        Self { ids, offsets, mask }
    }

    /// Adds the gradient of the mean negative log-prob over all eight sequences, from the sequences `first`
    /// to `end`.
    fn backward(&self, decoder: &mut Decoder, first: usize, end: usize) {
        let tokens = self.offsets[first] as usize..self.offsets[end] as usize;
        let offsets: Vec<u32> = self.offsets[first..=end].iter().map(|at| at - self.offsets[first]).collect();
        let mask = &self.mask[tokens.clone()];
        let batch = TokenBatch { ids: &self.ids[tokens], offsets: &offsets, mask, positions: None };
        decoder.forward(&batch).unwrap();
        let count = self.mask.iter().map(|scored| f32::from(*scored)).sum::<f32>();
        let gradient: Vec<f32> = mask.iter().map(|scored| -f32::from(*scored) / count).collect();
        decoder.backward(&gradient, None).unwrap();
    }
}

/// Returns the largest difference relative to the largest value.
fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    let scale = theirs.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / scale
}

#[test]
fn eight_times_one_sequence_accumulates_to_one_time_eight_within_rounding() {
    let sequences = Sequences::draw(1);
    let (mut whole, mut parts) = (decoder(), decoder());
    sequences.backward(&mut whole, 0, 8);
    for sequence in 0..8 {
        sequences.backward(&mut parts, sequence, sequence + 1);
    }
    let worst = difference(&parts.gradients(), &whole.gradients());
    assert!(worst < 2e-6, "gradients differ by {worst} of the largest");
    let norms = (parts.gradient_norm(), whole.gradient_norm());
    assert!((norms.0 / norms.1 - 1.0).abs() < 1e-6, "{norms:?}");
}

#[test]
fn recomputed_activations_give_the_same_bits_with_a_fraction_of_the_memory() {
    let sequences = Sequences::draw(2);
    let config = decoder().config().clone();
    let deep = DecoderConfig { num_hidden_layers: 12, ..config };
    let mut kept = crate::placed(Decoder::new(deep, 7).unwrap());
    let mut recomputed = kept.clone();
    recomputed.recompute_activations(true);
    for _ in 0..2 {
        sequences.backward(&mut kept, 0, 8);
        sequences.backward(&mut recomputed, 0, 8);
    }
    assert_eq!(bits(&recomputed.gradients()), bits(&kept.gradients()));
    let (all, inputs) = (kept.trace_bytes(), recomputed.trace_bytes());
    assert!(inputs * 3 < all, "{inputs} and {all} bytes");
    recomputed.recompute_activations(false);
    assert!(recomputed.trace_bytes() == 0, "what another way kept is given back");
    sequences.backward(&mut kept, 3, 5);
    sequences.backward(&mut recomputed, 3, 5);
    assert_eq!(bits(&recomputed.gradients()), bits(&kept.gradients()));
}

/// With recomputed activations the second chunk of logits is computed again, with stored ones it is kept.
#[test]
fn kept_logits_of_two_chunks_give_the_gradients_of_those_computed_again() {
    let config = r#"{"model_type": "llama", "vocab_size": 131072, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "initializer_range": 0.2}"#;
    let mut kept = crate::placed(Decoder::new(DecoderConfig::from_json(config).unwrap(), 3).unwrap());
    let mut recomputed = kept.clone();
    recomputed.recompute_activations(true);
    // A chunk of 2^24 logits has 128 rows.
    let tokens = if crate::is_short() { 3 } else { 150 };
    let sequence = Sequences {
        ids: (0..tokens).map(|token| token * 7919 % 131_072).collect(),
        offsets: vec![0, tokens],
        mask: (0..tokens).map(|token| u8::from(token > 0)).collect(),
    };
    for decoder in [&mut kept, &mut recomputed] {
        sequence.backward(decoder, 0, 1);
    }
    assert!(kept.gradient_norm() > 0.0);
    assert!(bits(&kept.gradients()) == bits(&recomputed.gradients()));
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn steps_from_accumulated_gradients_stay_with_those_of_whole_batches_under_clipping() {
    let rules: [OptimizerOptions; 3] = [
        AdamWOptions { eps: 1e-4, weight_decay: 0.1, ..Default::default() }.into(),
        SgdOptions { learning_rate: 0.1, momentum: 0.9, nesterov: true, ..Default::default() }.into(),
        MuonOptions {
            learning_rate: 0.01,
            adamw: AdamWOptions { eps: 1e-4, ..Default::default() },
            ..Default::default()
        }
        .into(),
    ];
    for options in rules {
        let (mut whole, mut parts) = (decoder(), decoder());
        let mut of_whole = Optimizer::new(&whole, options.clone()).unwrap();
        let mut of_parts = Optimizer::new(&parts, options.clone()).unwrap();
        for step in 0..5 {
            let sequences = Sequences::draw(10 + step);
            sequences.backward(&mut whole, 0, 8);
            for sequence in 0..8 {
                sequences.backward(&mut parts, sequence, sequence + 1);
            }
            let report = of_whole.step(&mut whole, None, Some(0.5)).unwrap();
            assert!(report.clip_coefficient < 1.0, "or nothing is clipped: {report:?}");
            of_parts.step(&mut parts, None, Some(0.5)).unwrap();
        }
        assert_ne!(whole.weights(), decoder().weights());
        let worst = difference(&parts.weights(), &whole.weights());
        assert!(worst < 1e-4, "{}: weights differ by {worst} of the largest", options.name());
    }
}

#[test]
fn an_optimizer_of_every_kind_goes_on_from_its_file_with_the_same_bits() {
    let rules: [OptimizerOptions; 4] = [
        AdamWOptions::default().into(),
        SgdOptions::default().into(),
        SgdOptions { momentum: 0.9, ..Default::default() }.into(),
        MuonOptions::default().into(),
    ];
    let all =
        rules.iter().flat_map(|options| [Dtype::F32, Dtype::Bf16].map(|dtype| (options.clone(), dtype)));
    let last = if crate::is_short() { 2 } else { 8 };
    for (options, dtype) in all {
        let mut straight = decoder().with_dtype(dtype).unwrap();
        let mut optimizer = Optimizer::new(&straight, options.clone()).unwrap();
        let sequences = Sequences::draw(3);
        sequences.backward(&mut straight, 0, last);
        optimizer.step(&mut straight, None, None).unwrap();
        let file = optimizer.to_safetensors(&straight).unwrap();
        let mut resumed = straight.clone();
        let mut resumed_optimizer = Optimizer::from_safetensors(&resumed, options.clone(), &file).unwrap();
        for _ in 0..2 {
            sequences.backward(&mut straight, 0, last);
            sequences.backward(&mut resumed, 0, last);
            optimizer.step(&mut straight, None, None).unwrap();
            resumed_optimizer.step(&mut resumed, None, None).unwrap();
        }
        assert_eq!(straight.weights(), resumed.weights(), "{} {dtype:?}", options.name());
        assert_eq!(resumed_optimizer.num_steps(), 3);
        let other: OptimizerOptions = match options {
            OptimizerOptions::AdamW(_) => SgdOptions { momentum: 0.5, ..Default::default() }.into(),
            _ => AdamWOptions::default().into(),
        };
        let error = Optimizer::from_safetensors(&resumed, other, &file).unwrap_err();
        assert!(error.detail().starts_with("optimizer file must be that of"), "{error}");
    }
}

#[test]
fn steps_too_small_for_bfloat16_add_up_in_master_copies() {
    let sequences = Sequences::draw(4);
    let train = |dtype: Dtype, steps: usize| {
        let mut decoder = decoder().with_dtype(dtype).unwrap();
        let options = AdamWOptions { learning_rate: 1e-5, ..Default::default() };
        let mut optimizer = Optimizer::new(&decoder, options).unwrap();
        for _ in 0..steps {
            sequences.backward(&mut decoder, 0, 8);
            optimizer.step(&mut decoder, None, None).unwrap();
        }
        (decoder, optimizer)
    };
    let changed = |decoder: &Decoder, from: &Decoder| {
        let (ours, theirs) = (decoder.weights(), from.weights());
        ours.iter().zip(&*theirs).filter(|(a, b)| a != b).count() as f64 / ours.len() as f64
    };
    let fresh = decoder().with_dtype(Dtype::Bf16).unwrap();
    let (one, _) = train(Dtype::Bf16, 1);
    assert!(changed(&one, &fresh) < 0.05, "a step is below what most weights can show");
    let (many, optimizer) = train(Dtype::Bf16, 100);
    assert!(changed(&many, &fresh) > 0.5, "{}", changed(&many, &fresh));
    let (whole, _) = train(Dtype::F32, 100);
    let moved: f32 = whole.weights().iter().zip(&*decoder().weights()).map(|(a, b)| (a - b).abs()).sum();
    let apart: f32 = whole
        .with_dtype(Dtype::Bf16)
        .unwrap()
        .weights()
        .iter()
        .zip(&*many.weights())
        .map(|(a, b)| (a - b).abs())
        .sum();
    assert!(apart < 0.2 * moved, "{apart} from where single precision comes, which moved by {moved}");
    assert_eq!(optimizer.num_floats(), 3 * many.num_parameters());
}

#[test]
fn an_optimizer_of_another_dtype_is_refused_and_nothing_is_lost() {
    let sequences = Sequences::draw(5);
    let mut halves = decoder().with_dtype(Dtype::Bf16).unwrap();
    let mut of_whole = Optimizer::new(&decoder(), AdamWOptions::default()).unwrap();
    let mut of_halves = Optimizer::new(&halves, AdamWOptions::default()).unwrap();
    sequences.backward(&mut halves, 0, 8);
    let refused = of_whole.step(&mut halves, None, None).unwrap_err();
    assert_eq!(
        refused.detail(),
        "decoder must have the dtype that it had when this optimizer was made: got bf16"
    );
    let mut whole = decoder();
    sequences.backward(&mut whole, 0, 8);
    assert_eq!(of_halves.step(&mut whole, None, None).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(whole.weights(), decoder().weights());
    assert_eq!(of_halves.step(&mut halves, None, None).unwrap().step, 1);
    let file = of_halves.to_safetensors(&halves).unwrap();
    let refused = Optimizer::from_safetensors(&whole, AdamWOptions::default(), &file).unwrap_err();
    assert!(refused.detail().contains("only this architecture's moments: got \"master."), "{refused}");
}

#[test]
fn an_adapter_trains_in_single_precision_beside_weights_in_bfloat16() {
    let sequences = Sequences::draw(6);
    let mut halves = decoder().with_dtype(Dtype::Bf16).unwrap();
    let frozen = halves.weights().to_vec();
    halves.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1).unwrap();
    let mut wide = halves.clone().with_dtype(Dtype::F32).unwrap();
    for decoder in [&mut halves, &mut wide] {
        let mut optimizer = Optimizer::new(decoder, AdamWOptions::default()).unwrap();
        for _ in 0..2 {
            sequences.backward(decoder, 0, 8);
            optimizer.step(decoder, None, None).unwrap();
        }
    }
    assert_eq!(halves.weights(), frozen);
    assert_eq!(halves.lora_to_safetensors().unwrap(), wide.lora_to_safetensors().unwrap());
    halves.merge_lora().unwrap();
    wide.merge_lora().unwrap();
    assert_ne!(halves.weights(), frozen);
    assert_eq!(halves.weights(), wide.with_dtype(Dtype::Bf16).unwrap().weights());
}

#[test]
fn a_merge_of_an_adapter_changes_no_bit_of_log_probs_and_draws() {
    let sequences = Sequences::draw(6);
    let Sequences { ids, offsets, mask } = &sequences;
    let batch = TokenBatch { ids, offsets, mask, positions: None };
    let requests = [Request { prompt_ids: &[1, 2, 3], seed: 7 }, Request { prompt_ids: &[4], seed: 8 }];
    let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
    let draw = |decoder: &Decoder| -> Vec<_> {
        let drawn = generate(decoder, &requests, &params).unwrap();
        drawn.into_iter().map(|drawn| (drawn.ids, drawn.log_prob)).collect()
    };
    for recomputes in [false, true] {
        let mut beside = decoder();
        let before = beside.score(&batch).unwrap();
        let target_modules = ["k_proj", "o_proj", "up_proj", "down_proj"].map(str::to_owned).to_vec();
        beside.add_lora(LoraConfig { r: 2, target_modules, ..LoraConfig::default() }, 1).unwrap();
        beside.recompute_activations(recomputes);
        let mut optimizer =
            Optimizer::new(&beside, AdamWOptions { learning_rate: 0.1, ..Default::default() }).unwrap();
        let mut last = before.clone();
        for _ in 0..3 {
            draw(&beside); // packs, so a step that forgets nothing would be seen
            sequences.backward(&mut beside, 0, 8);
            optimizer.step(&mut beside, None, None).unwrap();
            let mut within = beside.clone();
            within.merge_lora().unwrap();
            let scored = beside.score(&batch).unwrap();
            assert_ne!(scored, last, "or the step did nothing");
            assert_eq!(scored, within.score(&batch).unwrap());
            assert_eq!(scored, beside.forward(&batch).unwrap());
            assert_eq!(draw(&beside), draw(&within));
            assert_eq!(beside.score_base(&batch).unwrap(), before);
            last = scored;
        }
    }
}

#[test]
fn a_score_does_not_depend_on_the_scores_before_it() {
    let sequences = Sequences::draw(9);
    let Sequences { ids, offsets, mask } = &sequences;
    let long = TokenBatch { ids, offsets, mask, positions: None };
    let short = TokenBatch { ids: &[7, 8, 9], offsets: &[0, 3], mask: &[0, 1, 1], positions: None };
    let mut decoder = decoder();
    decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1).unwrap();
    let expected = [&long, &short].map(|batch| decoder.clone().score(batch).unwrap());
    for _ in 0..2 {
        assert_eq!(decoder.score(&long).unwrap(), expected[0]);
        assert_eq!(decoder.score(&short).unwrap(), expected[1]);
        assert_eq!(decoder.score_base(&short).unwrap(), expected[1], "the adapter adds nothing yet");
        let refused = TokenBatch { ids: &[99], offsets: &[0, 1], mask: &[0], positions: None };
        assert_eq!(decoder.score(&refused).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(decoder.score(&long).unwrap(), expected[0]));
        }
    });
}

#[test]
fn a_step_begins_from_weights_that_somebody_else_changed_before_it() {
    let sequences = Sequences::draw(8);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let mut decoder = decoder().with_dtype(dtype).unwrap();
        let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default()).unwrap();
        sequences.backward(&mut decoder, 0, 8);
        optimizer.step(&mut decoder, None, None).unwrap();
        let before = decoder.weights().to_vec();
        decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1).unwrap();
        let options = AdamWOptions { learning_rate: 0.1, ..Default::default() };
        let mut of_adapter = Optimizer::new(&decoder, options).unwrap();
        sequences.backward(&mut decoder, 0, 8);
        of_adapter.step(&mut decoder, None, None).unwrap();
        decoder.merge_lora().unwrap();
        let merged = decoder.weights().to_vec();
        assert_ne!(merged, before, "or the adapter did nothing");
        sequences.backward(&mut decoder, 0, 8);
        optimizer.step(&mut decoder, Some(0.0), None).unwrap();
        assert_eq!(*decoder.weights(), merged, "{dtype:?}");
    }
}

#[test]
fn an_engine_draws_from_the_new_weights_after_every_change() {
    let sequences = Sequences::draw(8);
    let request = Request { prompt_ids: &[1, 2, 3], seed: 7 };
    let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
    // A copy has packed nothing, so its score is that of the weights themselves.
    let check = |decoder: &Decoder, change: &str| {
        let drawn = generate(decoder, &[request], &params).unwrap().remove(0);
        let ids = [request.prompt_ids, &drawn.ids].concat();
        let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at >= request.prompt_ids.len())).collect();
        let batch =
            TokenBatch { ids: &ids, offsets: &[0, ids.len() as u32], mask: &mask, ..Default::default() };
        let scored = decoder.clone().score(&batch).unwrap();
        assert_eq!(drawn.log_prob, scored.log_prob[request.prompt_ids.len()..], "{change}");
        assert_eq!(decoder.score(&batch).unwrap(), scored, "{change}");
        drawn.log_prob
    };
    let mut decoder = decoder();
    let first = check(&decoder, "new");
    let options = AdamWOptions { learning_rate: 0.1, ..Default::default() };
    let mut optimizer = Optimizer::new(&decoder, options.clone()).unwrap();
    sequences.backward(&mut decoder, 0, 8);
    optimizer.step(&mut decoder, None, None).unwrap();
    assert_ne!(check(&decoder, "after a step"), first, "or the step did nothing");
    decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1).unwrap();
    let mut optimizer = Optimizer::new(&decoder, options).unwrap();
    sequences.backward(&mut decoder, 0, 8);
    optimizer.step(&mut decoder, None, None).unwrap();
    check(&decoder, "with an adapter");
    decoder.merge_lora().unwrap();
    check(&decoder, "after a merge");
    check(&decoder.with_dtype(Dtype::Bf16).unwrap(), "in bfloat16");
}
