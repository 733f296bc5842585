//! Sampler and trainer agree to the bit, whatever the batch and the number of threads.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::num::NonZeroUsize;

use fulmar_compute::MatmulPrecision;
use fulmar_compute::cpu::with_num_threads;
use fulmar_core::{Dtype, ErrorKind, Rng};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, Generated, Optimizer, Request, SamplingParams, TokenBatch,
};

fn decoder(hidden: usize, inner: usize) -> Decoder {
    let config = format!(
        r#"{{"model_type": "qwen2", "vocab_size": 61, "hidden_size": {hidden}, "intermediate_size": {inner},
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}}"#
    );
    crate::placed(Decoder::new(DecoderConfig::from_json(&config).unwrap(), 5).unwrap())
}

/// Returns `count` prompts of 1 to 12 tokens.
fn prompts(count: usize) -> Vec<Vec<u32>> {
    let mut rng = Rng::new(17).stream("prompts");
    let mut below = |bound: u64| rng.below(bound).unwrap() as u32;
    (0..count).map(|_| (0..=below(12)).map(|_| below(61)).collect()).collect()
}

fn generate(decoder: &Decoder, requests: &[Request<'_>], max_tokens: usize) -> Vec<Generated> {
    let params = SamplingParams { max_tokens, stop_ids: vec![3], ..Default::default() };
    fulmar_model::generate(decoder, requests, &params).unwrap()
}

/// Returns log-probs of generated sequences under the trainer's forward pass, all in one batch.
fn trained(decoder: &mut Decoder, prompts: &[&[u32]], generated: &[Generated]) -> Vec<Vec<f32>> {
    let (mut ids, mut offsets, mut mask) = (Vec::new(), vec![0], Vec::new());
    for (prompt, completion) in prompts.iter().zip(generated) {
        ids.extend_from_slice(prompt);
        ids.extend_from_slice(&completion.ids);
        mask.resize(mask.len() + prompt.len(), 0);
        mask.resize(ids.len(), 1);
        offsets.push(ids.len() as u32);
    }
    let scores =
        decoder.forward(&TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, positions: None }).unwrap();
    let rows = offsets.windows(2).zip(prompts);
    rows.map(|(w, prompt)| scores.log_prob[w[0] as usize + prompt.len()..w[1] as usize].to_vec()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_thousand_sampled_tokens_have_the_bits_of_the_trainers_forward_pass() {
    let (exact, rounded) = (MatmulPrecision::F32, MatmulPrecision::Bf16);
    let all = [(64, 96, exact), (48, 97, rounded), (128, 352, exact), (48, 40, exact), (64, 96, rounded)];
    for &(hidden, inner, precision) in if crate::is_short() { &all[..2] } else { &all } {
        let mut decoder = decoder(hidden, inner);
        decoder.multiply_in(precision);
        let prompts = prompts(10);
        let siblings: Vec<&[u32]> = (0..40).map(|i| prompts[i / 4].as_slice()).collect();
        let requests: Vec<Request<'_>> = siblings
            .iter()
            .enumerate()
            .map(|(i, prompt_ids)| Request { prompt_ids, seed: i as u64 })
            .collect();
        let generated = generate(&decoder, &requests, 64);
        assert!(generated.iter().map(|g| g.ids.len()).sum::<usize>() >= 1000);
        for (trained, sampled) in trained(&mut decoder, &siblings, &generated).iter().zip(&generated) {
            assert_eq!(bits(trained), bits(&sampled.log_prob));
        }
        for few in [1, 2, 3, 7] {
            let part = trained(&mut decoder, &siblings[..few], &generated[..few]);
            assert!(
                part.iter().zip(&generated).all(|(a, b)| bits(a) == bits(&b.log_prob)),
                "{few} sequences"
            );
            let again = generate(&decoder, &requests[20..20 + few], 64);
            assert_eq!(again, generated[20..20 + few], "{few} requests alone");
        }
    }
}

#[test]
fn weights_in_bfloat16_give_the_bits_that_they_give_widened() {
    let shapes: &[_] = if crate::is_short() { &[(48, 40)] } else { &[(64, 96), (48, 40)] };
    for &(hidden, inner) in shapes {
        let mut halves = decoder(hidden, inner).with_dtype(Dtype::Bf16).unwrap();
        let mut wide = halves.clone().with_dtype(Dtype::F32).unwrap();
        assert_ne!(wide.weights(), decoder(hidden, inner).weights(), "or nothing was rounded");
        let prompts = prompts(30);
        let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let requests: Vec<Request<'_>> =
            prompts.iter().map(|prompt_ids| Request { prompt_ids, seed: 1 }).collect();
        let generated = generate(&halves, &requests, 40);
        assert_eq!(generated, generate(&wide, &requests, 40));
        let scored = trained(&mut halves, &prompts, &generated);
        assert_eq!(scored, trained(&mut wide, &prompts, &generated));
        for (trained, sampled) in scored.iter().zip(&generated) {
            assert_eq!(bits(trained), bits(&sampled.log_prob), "sampler and trainer");
        }
        let tokens = prompts.iter().map(|prompt| prompt.len()).sum::<usize>()
            + generated.iter().map(|sampled| sampled.ids.len()).sum::<usize>();
        for decoder in [&mut halves, &mut wide] {
            decoder.backward(&vec![-1e-3; tokens], Some(&vec![1e-4; tokens])).unwrap();
        }
        assert_eq!(bits(&halves.gradients()), bits(&wide.gradients()));
    }
}

#[test]
fn a_training_step_does_not_depend_on_the_number_of_threads() {
    let run = |threads: usize| {
        with_num_threads(NonZeroUsize::new(threads).unwrap(), || {
            let mut decoder = decoder(128, 352);
            let prompts = prompts(if crate::is_short() { 8 } else { 40 });
            let requests: Vec<Request<'_>> =
                prompts.iter().zip(0..).map(|(prompt_ids, seed)| Request { prompt_ids, seed }).collect();
            let generated = generate(&decoder, &requests, 24);
            let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
            let rows = trained(&mut decoder, &prompts, &generated);
            let tokens: usize =
                prompts.iter().map(|p| p.len()).sum::<usize>() + rows.iter().map(Vec::len).sum::<usize>();
            decoder.backward(&vec![-0.01; tokens], Some(&vec![0.001; tokens])).unwrap();
            let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default()).unwrap();
            optimizer.step(&mut decoder, None, Some(1.0)).unwrap();
            (generated, bits(&decoder.weights()))
        })
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3));
}

#[test]
fn a_checkpoint_continues_training_with_the_same_bits() {
    let batch = TokenBatch { ids: &[1, 2, 3, 4], offsets: &[0, 4], mask: &[0, 1, 1, 1], positions: None };
    let train = |decoder: &mut Decoder, optimizer: &mut Optimizer| {
        decoder.forward(&batch).unwrap();
        decoder.backward(&[0.0, -0.3, -0.3, -0.3], None).unwrap();
        optimizer.step(decoder, Some(1e-2), Some(0.5)).unwrap();
    };
    let mut whole = decoder(48, 40);
    let mut optimizer = Optimizer::new(&whole, AdamWOptions::default()).unwrap();
    train(&mut whole, &mut optimizer);
    let (weights, moments) = (whole.to_safetensors().unwrap(), optimizer.to_safetensors(&whole).unwrap());
    let mut resumed = Decoder::from_safetensors(whole.config().clone(), &weights).unwrap();
    let mut resumed_optimizer =
        Optimizer::from_safetensors(&resumed, AdamWOptions::default(), &moments).unwrap();
    for _ in 0..3 {
        train(&mut whole, &mut optimizer);
        train(&mut resumed, &mut resumed_optimizer);
    }
    assert_eq!(bits(&whole.weights()), bits(&resumed.weights()));
    assert_eq!(resumed_optimizer.num_steps(), 4);
}

#[test]
fn misuse_is_a_typed_error_and_changes_nothing() {
    let mut decoder = decoder(48, 40);
    let weights = decoder.weights().to_vec();
    let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default()).unwrap();
    let kind = |result: fulmar_core::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(decoder.backward(&[], None)), ErrorKind::Closed);
    assert_eq!(kind(optimizer.step(&mut decoder, Some(0.1), None).map(drop)), ErrorKind::Closed);
    let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1], positions: None };
    decoder.forward(&batch).unwrap();
    assert_eq!(kind(decoder.backward(&[0.0], None)), ErrorKind::ShapeMismatch);
    assert_eq!(kind(decoder.backward(&[0.0, f32::NAN], None)), ErrorKind::NonFinite);
    decoder.backward(&[0.0, 1.0], None).unwrap();
    assert_eq!(kind(decoder.backward(&[0.0, 1.0], None)), ErrorKind::Closed);
    assert_eq!(kind(optimizer.step(&mut decoder, Some(f64::NAN), None).map(drop)), ErrorKind::OutOfRange);
    assert_eq!(kind(optimizer.step(&mut decoder, Some(0.1), Some(0.0)).map(drop)), ErrorKind::OutOfRange);
    assert_eq!(weights, *decoder.weights());
}

#[test]
fn a_checkpoint_of_another_architecture_is_refused_by_name() {
    let (small, large) = (decoder(48, 40), decoder(64, 96));
    let bytes = large.to_safetensors().unwrap();
    let error = Decoder::from_safetensors(small.config().clone(), &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().contains("lm_head.weight") && error.detail().contains("[61, 48]"), "{error}");
    let error = Decoder::from_safetensors(large.config().clone(), &bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let moments = Optimizer::new(&large, AdamWOptions::default()).unwrap().to_safetensors(&large).unwrap();
    let config = DecoderConfig { num_hidden_layers: 2, ..large.config().clone() };
    let shallow = Decoder::new(config, 0).unwrap(); // every moment it needs is in the file, and more
    let error = Optimizer::from_safetensors(&shallow, AdamWOptions::default(), &moments).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
}
