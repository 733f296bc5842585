//! Products in bfloat16: sampler and trainer still agree to the bit, and gradients follow the loss.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::num::NonZeroUsize;

use fulmar_compute::MatmulPrecision;
use fulmar_compute::cpu::with_num_threads;
use fulmar_core::{Dtype, Rng};
use fulmar_model::{
    AdamWOptions, Decoder, DecoderConfig, LoraConfig, Optimizer, Request, SamplingParams, TokenBatch,
    generate,
};

fn decoder() -> Decoder {
    let config = r#"{"model_type": "qwen3", "vocab_size": 61, "hidden_size": 48, "intermediate_size": 51,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}"#;
    Decoder::new(DecoderConfig::from_json(config).unwrap(), 5).unwrap()
}

fn rounded(mut decoder: Decoder) -> Decoder {
    decoder.multiply_in(MatmulPrecision::Bf16);
    decoder
}

/// Forty sequences of 20 tokens; all but the first are scored.
struct Sequences {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
}

impl Sequences {
    fn draw() -> Self {
        let mut rng = Rng::new(3).stream("sequences");
        let ids = (0..40 * 20).map(|_| rng.below(61).unwrap() as u32).collect();
        let mask = (0..40 * 20).map(|at| u8::from(at % 20 > 0)).collect();
        Self { ids, offsets: (0..=40).map(|at| at * 20).collect(), mask }
    }

    fn batch(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions: None }
    }

    /// Returns the mean negative log-prob of the scored tokens.
    fn loss(&self, decoder: &Decoder) -> f64 {
        let scores = decoder.score(&self.batch()).unwrap();
        -scores.log_prob.iter().map(|value| f64::from(*value)).sum::<f64>() / (40.0 * 19.0)
    }

    /// Returns the gradients of the loss, accumulated in the decoder.
    fn gradients(&self, decoder: &mut Decoder) -> Vec<f32> {
        decoder.forward(&self.batch()).unwrap();
        let d: Vec<f32> = self.mask.iter().map(|scored| -f32::from(*scored) / (40.0 * 19.0)).collect();
        decoder.backward(&d, None).unwrap();
        decoder.gradients().to_vec()
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

/// Checks that sampled tokens have the bits of the trainer's forward pass.
fn check_sampler(decoder: &mut Decoder) {
    let prompts: Vec<Vec<u32>> = (1..12).map(|len| (0..len).map(|at| at * 7 % 61).collect()).collect();
    let requests: Vec<Request<'_>> =
        prompts.iter().zip(0..).map(|(prompt_ids, seed)| Request { prompt_ids, seed }).collect();
    let params = SamplingParams { max_tokens: 30, ..Default::default() };
    for (prompt, sampled) in prompts.iter().zip(generate(decoder, &requests, &params).unwrap()) {
        let ids = [&prompt[..], &sampled.ids].concat();
        let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at >= prompt.len())).collect();
        let offsets = [0, ids.len() as u32];
        let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, positions: None };
        let (scored, trained) = (decoder.score(&batch).unwrap(), decoder.forward(&batch).unwrap());
        assert_eq!(bits(&scored.log_prob), bits(&trained.log_prob));
        assert_eq!(bits(&trained.log_prob[prompt.len()..]), bits(&sampled.log_prob));
    }
}

#[test]
fn sampler_and_trainer_agree_with_adapters_stored_halves_and_after_every_change() {
    let sequences = Sequences::draw();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let mut decoder = decoder().with_dtype(dtype).unwrap();
        check_sampler(&mut decoder);
        decoder = rounded(decoder);
        check_sampler(&mut decoder);
        let text = r#"{"r": 2, "target_modules": ["q_proj", "o_proj", "down_proj"]}"#;
        decoder.add_lora(LoraConfig::from_json(text).unwrap(), 1).unwrap();
        let options = AdamWOptions { learning_rate: 0.01, ..Default::default() };
        let mut optimizer = Optimizer::new(&decoder, options).unwrap();
        for _ in 0..2 {
            sequences.gradients(&mut decoder);
            optimizer.step(&mut decoder, None, None).unwrap();
            check_sampler(&mut decoder);
        }
        let snapshot = decoder.snapshot().unwrap();
        assert_eq!(snapshot.matmul_precision(), MatmulPrecision::Bf16);
        assert_eq!(sequences.loss(&snapshot), sequences.loss(&decoder));
        decoder.merge_lora().unwrap();
        check_sampler(&mut decoder);
        decoder.multiply_in(MatmulPrecision::F32);
        assert_ne!(sequences.loss(&snapshot), sequences.loss(&decoder));
        check_sampler(&mut decoder);
    }
}

#[test]
fn a_step_does_not_depend_on_threads_or_on_stored_activations() {
    let sequences = Sequences::draw();
    let run = |threads: usize, recomputes: bool| {
        with_num_threads(NonZeroUsize::new(threads).unwrap(), || {
            let mut decoder = rounded(decoder());
            decoder.recompute_activations(recomputes);
            bits(&sequences.gradients(&mut decoder))
        })
    };
    let one = run(1, false);
    assert!(one == run(2, false) && one == run(3, true));
}

#[test]
fn gradients_are_those_of_single_precision_within_a_few_percent() {
    let sequences = Sequences::draw();
    let (exact, near) = (sequences.gradients(&mut decoder()), sequences.gradients(&mut rounded(decoder())));
    let difference = norm(exact.iter().zip(&near).map(|(a, b)| f64::from(a - b)));
    let relative = difference / norm(exact.iter().map(|value| f64::from(*value)));
    assert!((1e-4..0.03).contains(&relative), "{relative}");
    for parameter in decoder().parameters() {
        let of = |all: &[f32]| {
            all[parameter.range.clone()].iter().map(|value| f64::from(*value)).collect::<Vec<_>>()
        };
        let (exact, near) = (of(&exact), of(&near));
        let dot: f64 = exact.iter().zip(&near).map(|(a, b)| a * b).sum();
        let cosine = dot / norm(exact.into_iter()) / norm(near.into_iter());
        assert!(cosine > 0.999, "{}: {cosine}", parameter.name);
    }
}

#[test]
fn the_loss_falls_along_the_gradient_as_finite_differences_predict() {
    let sequences = Sequences::draw();
    let mut decoder = rounded(decoder());
    let gradient = sequences.gradients(&mut decoder);
    let length = norm(gradient.iter().map(|value| f64::from(*value)));
    let moved = |by: f64| {
        let config = decoder.config().clone();
        let mut other = Decoder::from_safetensors(config, &decoder.to_safetensors().unwrap()).unwrap();
        other.multiply_in(MatmulPrecision::Bf16);
        // A step of plain gradient descent moves against the gradient by its length times the rate.
        let options = fulmar_model::SgdOptions { learning_rate: 1.0, ..Default::default() };
        let mut optimizer = Optimizer::new(&other, options).unwrap();
        sequences.gradients(&mut other);
        optimizer.step(&mut other, Some(by / length), None).unwrap();
        sequences.loss(&other)
    };
    // Far enough that the roundings of weights average out.
    let step = 0.02;
    let slope = (sequences.loss(&decoder) - moved(step)) / step;
    let half = (sequences.loss(&decoder) - moved(step / 2.0)) / (step / 2.0);
    // Twice the slope of half the step less that of the step: the error of second order cancels.
    let found = 2.0 * half - slope;
    assert!((found / length - 1.0).abs() < 0.05, "slope {found}, gradient {length}");
}
