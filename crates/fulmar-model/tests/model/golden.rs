//! The decoder against PyTorch and transformers: log-probs, gradients and optimiser steps of tiny models.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::path::PathBuf;

use fulmar_model::{
    AdamWOptions, Decay, Decoder, DecoderConfig, LoraConfig, Optimizer, PaddedTokenBatch, Request,
    SamplingParams, TokenBatch, UnpaddedTokenBatch, generate,
};
use fulmar_objective::{Advantage, DrawOptions, GrpoLoss, LossBatch};
use fulmar_tensor::safetensors::{File, load_file};
use serde_json::Value;

const MODELS: [&str; 5] = ["qwen2_untied", "llama_tied", "llama_untied", "llama_rope_llama3", "qwen3_tied"];

struct Case {
    folder: PathBuf,
    json: Value,
    expected: File,
}

impl Case {
    fn load(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/model").join(name);
        let json = serde_json::from_str(&std::fs::read_to_string(folder.join("case.json")).unwrap()).unwrap();
        Self { expected: load_file(folder.join("expected.safetensors")).unwrap(), json, folder }
    }

    fn decoder(&self, config: &str) -> Decoder {
        let config =
            DecoderConfig::from_json(&std::fs::read_to_string(self.folder.join(config)).unwrap()).unwrap();
        let weights = std::fs::read(self.folder.join("model.safetensors")).unwrap();
        crate::placed(Decoder::from_safetensors(config, &weights).unwrap())
    }

    fn array(&self, key: &str) -> Vec<f32> {
        self.expected.tensor(key).unwrap().as_f32().unwrap().to_vec()
    }

    fn rows(&self, part: &str, key: &str) -> Vec<Vec<u32>> {
        serde_json::from_value(self.json[part][key].clone()).unwrap()
    }
}

/// A ragged batch; `source[t]` is the place of token t in the padded `[B, T]` arrays.
#[derive(Default)]
struct Ragged {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    source: Vec<(usize, usize)>,
}

impl Ragged {
    /// Returns the tokens of padded rows for which `keep(row, column)` holds; `score` selects the tokens
    /// whose log-prob is wanted.
    fn new(
        ids: &[Vec<u32>],
        keep: impl Fn(usize, usize) -> bool,
        score: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let mut ragged = Self { offsets: vec![0], ..Self::default() };
        for (row, tokens) in ids.iter().enumerate() {
            let mut first = true;
            for (column, &id) in tokens.iter().enumerate().filter(|(column, _)| keep(row, *column)) {
                ragged.ids.push(id);
                ragged.mask.push(u8::from(!first && score(row, column)));
                ragged.source.push((row, column));
                first = false;
            }
            ragged.offsets.push(ragged.ids.len() as u32);
        }
        ragged
    }

    fn batch(&self) -> TokenBatch<'_> {
        TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions: None }
    }

    /// Returns the values of a padded `[B, T-1]` array of log-probs, one a token, 0 off the mask.
    fn gather(&self, padded: &[f32], columns: usize) -> Vec<f32> {
        let place = |&(row, column): &(usize, usize)| padded[row * (columns - 1) + column - 1];
        self.source
            .iter()
            .zip(&self.mask)
            .map(|(at, scored)| if *scored == 1 { place(at) } else { 0.0 })
            .collect()
    }
}

fn assert_close(name: &str, ours: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(ours.len(), expected.len(), "{name}");
    let worst = ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{name}: largest difference {worst}");
}

#[test]
fn log_probs_equal_those_of_transformers_plain_padded_and_packed() {
    for name in MODELS {
        let case = Case::load(name);
        for config in ["config.json", "config_v4.json"] {
            let decoder = case.decoder(config);
            let ids = case.rows("plain", "ids");
            let plain = Ragged::new(&ids, |_, _| true, |_, _| true);
            let expected = plain.gather(&case.array("plain.token_logprobs"), ids[0].len());
            assert_close(name, &decoder.score(&plain.batch()).unwrap().log_prob, &expected, 1e-4);

            let (ids, attention) =
                (case.rows("left_padded", "ids"), case.rows("left_padded", "attention_mask"));
            let padded = Ragged::new(&ids, |row, column| attention[row][column] == 1, |_, _| true);
            let expected = padded.gather(&case.array("left_padded.token_logprobs"), ids[0].len());
            assert_close(name, &decoder.score(&padded.batch()).unwrap().log_prob, &expected, 1e-4);
        }
    }
}

#[test]
fn padded_rows_at_the_callers_positions_give_the_log_probs_of_transformers() {
    for name in MODELS {
        let case = Case::load(name);
        let rows = |key| case.rows("left_padded", key);
        let (ids, attention, positions) = (rows("ids"), rows("attention_mask"), rows("position_ids"));
        let width = ids[0].len();
        let attention_mask: Vec<u8> = attention.concat().iter().map(|kept| *kept as u8).collect();
        let is_wanted = |place: usize| {
            !place.is_multiple_of(width) && attention_mask[place] == 1 && attention_mask[place - 1] == 1
        };
        let mask: Vec<u8> = (0..attention_mask.len()).map(|place| u8::from(is_wanted(place))).collect();
        let (ids, positions) = (ids.concat(), positions.concat());
        let padded = PaddedTokenBatch {
            ids: &ids,
            attention_mask: &attention_mask,
            mask: &mask,
            positions: Some(&positions),
            width,
        };
        let unpadded = UnpaddedTokenBatch::new(&padded).unwrap();
        let log_prob = case.decoder("config.json").score(&unpadded.batch()).unwrap().log_prob;
        let ours = unpadded.pad(&log_prob).unwrap();
        let expected = case.array("left_padded.token_logprobs");
        for place in (0..ours.len()).filter(|&place| is_wanted(place)) {
            let expected = expected[place / width * (width - 1) + place % width - 1];
            assert!((ours[place] - expected).abs() < 1e-4, "{name} {place}: {} and {expected}", ours[place]);
        }
        let without = PaddedTokenBatch { positions: None, ..padded };
        let counted = UnpaddedTokenBatch::new(&without).unwrap();
        let same = case.decoder("config.json").score(&counted.batch()).unwrap().log_prob;
        assert_eq!(same, log_prob, "{name}: these positions count from 0");
    }
}

/// Compares every id's log-prob after every prefix of eight tokens at positions up to 8000.
#[test]
fn far_positions_give_the_logits_of_transformers() {
    for name in MODELS {
        let case = Case::load(name);
        let (ids, places) = (case.rows("far_positions", "ids"), case.rows("far_positions", "position_ids"));
        let (ids, places) = (&ids[0], &places[0]);
        let logits = case.array("far_positions.logits");
        let vocab = logits.len() / ids.len();
        let mut batch = Ragged { offsets: vec![0], ..Ragged::default() };
        let mut positions = Vec::new();
        for end in 1..=ids.len() {
            for id in 0..vocab as u32 {
                batch.ids.extend_from_slice(&ids[..end]);
                batch.ids.push(id);
                batch.mask.resize(batch.ids.len() - 1, 0);
                batch.mask.push(1);
                positions.extend_from_slice(&places[..end]);
                positions.push(places[end - 1] + 1);
                batch.offsets.push(batch.ids.len() as u32);
            }
        }
        let at_places = TokenBatch { positions: Some(&positions), ..batch.batch() };
        let log_prob = case.decoder("config.json").score(&at_places).unwrap().log_prob;
        for (row, logits) in logits.chunks_exact(vocab).enumerate() {
            let log_sum = logits.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln();
            for (id, logit) in logits.iter().enumerate() {
                let token = batch.offsets[row * vocab + id + 1] as usize - 1;
                let (ours, expected) = (f64::from(log_prob[token]), f64::from(*logit) - log_sum);
                assert!((ours - expected).abs() < 2e-3, "{name} {row} {id}: {ours} and {expected}");
            }
        }
    }
}

#[test]
fn greedy_generation_equals_that_of_transformers() {
    for name in MODELS {
        let case = Case::load(name);
        let decoder = case.decoder("config.json");
        let prompt = &case.rows("decode", "prompt_ids")[0];
        let greedy: Vec<u32> = serde_json::from_value(case.json["decode"]["greedy_ids"].clone()).unwrap();
        let draw = DrawOptions { temperature: 0.0, ..Default::default() };
        let params = SamplingParams { max_tokens: greedy.len(), draw, ..Default::default() };
        let request = Request { prompt_ids: prompt, seed: 0 };
        assert_eq!(generate(&decoder, &[request], &params).unwrap()[0].ids, greedy, "{name}");
    }
}

/// The training batch of a case, with the inputs of its losses.
struct Training {
    ragged: Ragged,
    old: Vec<f32>,
    reference: Vec<f32>,
    advantages: Vec<f32>,
}

fn training(case: &Case) -> Training {
    let part = |key| case.rows("train", key);
    let (ids, attention, completion) = (part("ids"), part("attention_mask"), part("completion_mask"));
    let ragged = Ragged::new(
        &ids,
        |row, column| attention[row][column] == 1,
        |row, column| completion[row][column] == 1,
    );
    let columns = ids[0].len();
    let old = ragged.gather(&case.array("train.old_logps"), columns);
    let reference = ragged.gather(&case.array("train.ref_logps"), columns);
    let advantages = serde_json::from_value(case.json["train"]["advantages"].clone()).unwrap();
    Training { ragged, old, reference, advantages }
}

/// Loss and derivative of the mean negative log-prob.
fn cross_entropy(training: &Training, log_prob: &[f32]) -> (f64, Vec<f32>) {
    let mask = &training.ragged.mask;
    let count = mask.iter().filter(|scored| **scored == 1).count() as f32;
    let loss = -log_prob.iter().map(|x| f64::from(*x)).sum::<f64>() / f64::from(count);
    (loss, mask.iter().map(|scored| if *scored == 1 { -1.0 / count } else { 0.0 }).collect())
}

fn grpo(training: &Training, log_prob: &[f32]) -> (f64, Vec<f32>) {
    let options = r#"{"clipEpsilon": [0.2, 0.28], "klToRef": {"estimator": "k3", "coefficient": 0.04}}"#;
    let loss = GrpoLoss::new(serde_json::from_str(options).unwrap()).unwrap();
    let batch = LossBatch {
        log_prob,
        old_log_prob: &training.old,
        ref_log_prob: Some(&training.reference),
        sampler_log_prob: None,
        mask: &training.ragged.mask,
        advantage: Advantage::PerSequence(&training.advantages),
        offsets: &training.ragged.offsets,
        entropy: None,
    };
    let output = loss.forward(&batch).unwrap();
    (output.loss, output.grad_log_prob)
}

type Objective = fn(&Training, &[f32]) -> (f64, Vec<f32>);
const OBJECTIVES: [(&str, &str, Objective); 2] =
    [("ce", "grads_ce.safetensors", cross_entropy), ("token_mean", "grads_grpo.safetensors", grpo)];

#[test]
fn losses_and_gradients_of_every_tensor_equal_those_of_pytorch() {
    for name in MODELS {
        let case = Case::load(name);
        for (loss_name, file, objective) in OBJECTIVES {
            let (mut decoder, training) = (case.decoder("config.json"), training(&case));
            let scores = decoder.forward(&training.ragged.batch()).unwrap();
            let (loss, gradient) = objective(&training, &scores.log_prob);
            let expected = case.json["losses"][loss_name]["loss_f64"].as_f64().unwrap();
            assert!((loss - expected).abs() < 1e-4, "{name} {loss_name}: {loss} and {expected}");
            decoder.backward(&gradient, None).unwrap();
            let gradients = load_file(case.folder.join(file)).unwrap();
            for parameter in decoder.parameters() {
                let expected = gradients.tensor(&parameter.name).unwrap().as_f32().unwrap();
                let scale = expected.iter().fold(1e-6_f32, |max, x| max.max(x.abs()));
                let ours = decoder.gradients()[parameter.range.clone()].to_vec();
                assert_close(
                    &format!("{name} {loss_name} {}", parameter.name),
                    &ours,
                    expected,
                    1e-3 * scale,
                );
            }
        }
    }
}

#[test]
fn three_adamw_steps_equal_those_of_pytorch_with_and_without_clipping() {
    let runs = [
        ("params_adamw3_ce.safetensors", "adamw3_ce", 0),
        ("params_adamw3_grpo_clip.safetensors", "adamw3_grpo_clip", 1),
    ];
    for name in MODELS {
        let case = Case::load(name);
        for (file, run, objective) in runs {
            let (mut decoder, training) = (case.decoder("config.json"), training(&case));
            let hyper = |key: &str| case.json["adamw"][key].as_f64().unwrap();
            let betas: [f64; 2] = serde_json::from_value(case.json["adamw"]["betas"].clone()).unwrap();
            let options = AdamWOptions {
                learning_rate: hyper("lr"),
                beta1: betas[0],
                beta2: betas[1],
                eps: hyper("eps"),
                weight_decay: hyper("weight_decay"),
                decay: Decay::All,
            };
            let mut optimizer = Optimizer::new(&decoder, options.clone()).unwrap();
            let max_norm = case.json["adamw"]["runs"][run]["max_norm"].as_f64();
            for _ in 0..3 {
                let scores = decoder.forward(&training.ragged.batch()).unwrap();
                let (_, gradient) = OBJECTIVES[objective].2(&training, &scores.log_prob);
                decoder.backward(&gradient, None).unwrap();
                optimizer.step(&mut decoder, None, max_norm).unwrap();
            }
            let weights = load_file(case.folder.join(file)).unwrap();
            for parameter in decoder.parameters() {
                let expected = weights.tensor(&parameter.name).unwrap().as_f32().unwrap();
                let ours = &decoder.weights()[parameter.range.clone()];
                assert_close(&format!("{name} {run} {}", parameter.name), ours, expected, 5e-5);
            }
        }
    }
}

/// Returns the models with an adapter, with its shape and training options.
fn adapted(name: &str) -> (Case, Decoder, AdamWOptions) {
    let case = Case::load(name);
    let mut decoder = case.decoder("config.json");
    let config = std::fs::read_to_string(case.folder.join("lora/adapter_config.json")).unwrap();
    let bytes = std::fs::read(case.folder.join("lora/adapter_model.safetensors")).unwrap();
    decoder.load_lora(LoraConfig::from_json(&config).unwrap(), &bytes).unwrap();
    let adamw = &case.json["lora"]["adamw"];
    let number = |key: &str| adamw[key].as_f64().unwrap();
    let options = AdamWOptions {
        learning_rate: number("lr"),
        beta1: adamw["betas"][0].as_f64().unwrap(),
        beta2: adamw["betas"][1].as_f64().unwrap(),
        eps: number("eps"),
        weight_decay: number("weight_decay"),
        decay: Decay::All,
    };
    (case, decoder, options)
}

const ADAPTED: [&str; 2] = ["llama_untied", "qwen2_untied"];

#[test]
fn an_adapter_gives_the_log_probs_loss_and_gradients_of_peft() {
    for name in ADAPTED {
        let (case, mut decoder, _) = adapted(name);
        let training = training(&case);
        let scores = decoder.forward(&training.ragged.batch()).unwrap();
        let logits = load_file(case.folder.join("lora/expected.safetensors")).unwrap();
        let logits = logits.tensor("train_logits").unwrap();
        let [_, columns, vocab] = logits.shape() else { panic!("logits have three dimensions") };
        for (token, &(row, column)) in training.ragged.source.iter().enumerate() {
            if training.ragged.mask[token] == 1 {
                let logits = &logits.as_f32().unwrap()[(row * columns + column - 1) * vocab..][..*vocab];
                let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
                let expected = f64::from(logits[training.ragged.ids[token] as usize]) - sum.ln();
                assert!((f64::from(scores.log_prob[token]) - expected).abs() < 2e-4, "{name} {token}");
            }
        }
        let (loss, gradient) = cross_entropy(&training, &scores.log_prob);
        assert!((loss - case.json["lora"]["loss_ce"].as_f64().unwrap()).abs() < 1e-4, "{name}");
        decoder.backward(&gradient, None).unwrap();
        let gradients = load_file(case.folder.join("lora/grads_ce.safetensors")).unwrap();
        assert_eq!(decoder.trainable().len(), gradients.tensors.len());
        for parameter in decoder.trainable() {
            let expected = gradients.tensor(&parameter.name).unwrap().as_f32().unwrap();
            let scale = expected.iter().fold(1e-6_f32, |max, x| max.max(x.abs()));
            let ours = decoder.gradients()[parameter.range.clone()].to_vec();
            assert_close(&format!("{name} {}", parameter.name), &ours, expected, 1e-3 * scale);
        }
    }
}

#[test]
fn an_adapter_is_trained_written_and_merged_as_by_peft() {
    for name in ADAPTED {
        let (case, mut decoder, options) = adapted(name);
        let (base, training) = (decoder.weights().to_vec(), training(&case));
        let merged_file = load_file(case.folder.join("lora/merged_qkvo.safetensors")).unwrap();
        let mut merged = decoder.clone();
        merged.merge_lora().unwrap();
        for (tensor_name, expected) in &merged_file.tensors {
            let parameter = merged.parameters().iter().find(|known| known.name == *tensor_name).unwrap();
            let ours = &merged.weights()[parameter.range.clone()];
            assert_close(tensor_name, ours, expected.as_f32().unwrap(), 1e-6);
        }
        let batch = training.ragged.batch();
        let [beside, within] = [&decoder, &merged].map(|decoder| decoder.score(&batch).unwrap().log_prob);
        assert_close(name, &within, &beside, 5e-4);

        let mut optimizer = Optimizer::new(&decoder, options.clone()).unwrap();
        for _ in 0..3 {
            let scores = decoder.forward(&training.ragged.batch()).unwrap();
            decoder.backward(&cross_entropy(&training, &scores.log_prob).1, None).unwrap();
            optimizer.step(&mut decoder, None, None).unwrap();
        }
        assert_eq!(decoder.weights(), base, "the model itself is frozen");
        let ours = fulmar_tensor::safetensors::read(&decoder.lora_to_safetensors().unwrap()).unwrap();
        let expected = load_file(case.folder.join("lora/adapter_after_adamw3_ce.safetensors")).unwrap();
        assert_eq!(ours.tensors.len(), expected.tensors.len());
        for (tensor_name, expected) in &expected.tensors {
            let ours = ours.tensor(tensor_name).unwrap();
            assert_close(tensor_name, ours.as_f32().unwrap(), expected.as_f32().unwrap(), 5e-5);
        }
        let moments = optimizer.to_safetensors(&decoder).unwrap();
        Optimizer::from_safetensors(&decoder, options, &moments).unwrap();
    }
}
