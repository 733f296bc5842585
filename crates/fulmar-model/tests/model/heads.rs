//! Scalar heads: values of tokens and rewards of sequences, trained, saved, and against transformers.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_model::{AdamWOptions, Decoder, DecoderConfig, LoraConfig, Optimizer, ScalarHead, TokenBatch};
use fulmar_tensor::safetensors;
use serde_json::Value;

fn decoder(tied: bool) -> Decoder {
    let config = format!(
        r#"{{"model_type": "qwen2", "vocab_size": 31, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3, "tie_word_embeddings": {tied}}}"#
    );
    Decoder::new(DecoderConfig::from_json(&config).unwrap(), 5).unwrap()
}

fn batch<'a>(ids: &'a [u32], offsets: &'a [u32], mask: &'a [u8]) -> TokenBatch<'a> {
    TokenBatch { ids, offsets, mask, positions: None }
}

#[test]
fn an_adapter_trains_the_scalar_head_beside_frozen_weights() {
    let (ids, offsets, mask) = ([3, 8, 1, 4, 9, 2], [0, 3, 6], [0, 1, 1, 0, 0, 1]);
    let targets = [0.0, 1.0, -1.0, 0.0, 0.0, 2.0];
    for head in [ScalarHead::Score, ScalarHead::VHead] {
        let base = decoder(false).with_scalar_head(head, 1).unwrap();
        let mut trained = base.clone();
        let config = LoraConfig { r: 2, ..LoraConfig::default() };
        trained.add_lora(config.clone(), 3).unwrap();
        let tokens = batch(&ids, &offsets, &mask);
        assert_eq!(trained.values(&tokens), base.values(&tokens), "a fresh adapter changes nothing");
        let mut optimizer =
            Optimizer::new(&trained, AdamWOptions { learning_rate: 0.05, ..AdamWOptions::default() })
                .unwrap();
        let mut errors = Vec::new();
        for _ in 0..40 {
            let values = trained.forward_values(&tokens).unwrap();
            let d_value: Vec<f32> =
                values.iter().zip(targets).map(|(value, target)| value - target).collect();
            errors.push((0..6).filter(|t| mask[*t] == 1).map(|t| d_value[t] * d_value[t]).sum::<f32>());
            trained.backward_values(&d_value).unwrap();
            optimizer.step(&mut trained, None, None).unwrap();
        }
        assert!(errors[39] < 0.1 * errors[0], "{errors:?}");
        assert_eq!(trained.weights(), base.weights(), "the model itself is frozen");

        let json = trained.lora_config_json().unwrap();
        let name = if head == ScalarHead::Score { "score" } else { "v_head" };
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap()["modules_to_save"],
            serde_json::json!([name])
        );
        let mut loaded = base.clone();
        loaded
            .load_lora(LoraConfig::from_json(&json).unwrap(), &trained.lora_to_safetensors().unwrap())
            .unwrap();
        assert_eq!(loaded.values(&tokens), trained.values(&tokens));
        let refused = decoder(false).load_lora(config, &trained.lora_to_safetensors().unwrap());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incompatible, "a model without that head");

        let before = trained.values(&tokens).unwrap();
        trained.merge_lora().unwrap();
        let after = trained.values(&tokens).unwrap();
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-4), "{before:?} and {after:?}");
    }
}

#[test]
fn a_folder_of_transformers_gives_its_scores_and_gradients() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/model/reward_head");
    let mut decoder = Decoder::from_folder(&folder).unwrap();
    assert_eq!(decoder.config().scalar_head, Some(ScalarHead::Score));
    let case: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("case.json")).unwrap()).unwrap();
    let sequences: Vec<Vec<u32>> = serde_json::from_value(case["sequences"].clone()).unwrap();
    let mut offsets = vec![0];
    offsets.extend(sequences.iter().scan(0, |end, ids| {
        *end += ids.len() as u32;
        Some(*end)
    }));
    let ids = sequences.concat();
    let mut last = vec![0; ids.len()];
    offsets[1..].iter().for_each(|end| last[*end as usize - 1] = 1);
    let everywhere = vec![1; ids.len()];

    let values = decoder.values(&batch(&ids, &offsets, &everywhere)).unwrap();
    let expected: Vec<Vec<f32>> = serde_json::from_value(case["token_values"].clone()).unwrap();
    for (ours, expected) in values.iter().zip(expected.concat()) {
        assert!((ours - expected).abs() < 2e-4, "{ours} and {expected}");
    }
    let rewards = decoder.forward_values(&batch(&ids, &offsets, &last)).unwrap();
    let mut d_value = vec![0.0; ids.len()];
    let expected: Vec<f32> = serde_json::from_value(case["rewards"].clone()).unwrap();
    let grad: Vec<f32> = serde_json::from_value(case["grad_rewards"].clone()).unwrap();
    for (sequence, end) in offsets[1..].iter().enumerate() {
        let token = *end as usize - 1;
        assert_eq!(rewards[token].to_bits(), values[token].to_bits(), "whatever else is asked");
        assert!((rewards[token] - expected[sequence]).abs() < 2e-4, "{sequence}");
        d_value[token] = grad[sequence];
    }
    decoder.backward_values(&d_value).unwrap();
    let gradients = safetensors::load_file(folder.join("grads.safetensors")).unwrap();
    assert_eq!(gradients.tensors.len(), decoder.parameters().len());
    for parameter in decoder.parameters() {
        let expected = gradients.tensor(&parameter.name).unwrap().as_f32().unwrap();
        let scale = expected.iter().fold(1e-6_f32, |max, x| max.max(x.abs()));
        for (ours, expected) in decoder.gradients()[parameter.range.clone()].iter().zip(expected) {
            assert!((ours - expected).abs() < 1e-3 * scale, "{}: {ours} and {expected}", parameter.name);
        }
    }
}

#[test]
fn gradients_of_values_equal_finite_differences() {
    let mut decoder = decoder(true).with_scalar_head(ScalarHead::VHead, 3).unwrap();
    let batch = batch(&[1, 2, 3, 4, 9, 8], &[0, 4, 6], &[1, 0, 1, 1, 0, 1]);
    let d_value = [0.7, 0.0, -1.1, 0.4, 0.0, 0.9];
    let loss = |decoder: &Decoder| -> f64 {
        let values = decoder.values(&batch).unwrap();
        values.iter().zip(d_value).map(|(value, d)| f64::from(*value) * f64::from(d)).sum()
    };
    decoder.forward_values(&batch).unwrap();
    decoder.backward_values(&d_value).unwrap();
    let gradients = decoder.gradients().to_vec();
    let config = decoder.config().clone();
    let moved = |at: usize, by: f32| {
        let mut tensors = safetensors::File::default();
        for parameter in decoder.parameters() {
            let mut values = decoder.weights()[parameter.range.clone()].to_vec();
            if parameter.range.contains(&at) {
                values[at - parameter.range.start] += by;
            }
            let tensor = fulmar_tensor::Tensor::from_vec_f32(&parameter.shape, values).unwrap();
            tensors.tensors.insert(parameter.name.clone(), tensor);
        }
        let named = tensors.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let bytes = safetensors::write(named, &[]).unwrap();
        Decoder::from_safetensors(config.clone(), &bytes).unwrap()
    };
    for parameter in decoder.parameters() {
        let at = parameter.range.start + parameter.range.len() / 2;
        let expected = (loss(&moved(at, 2e-3)) - loss(&moved(at, -2e-3))) / 4e-3;
        let ours = f64::from(gradients[at]);
        assert!(
            (ours - expected).abs() < 2e-3 * expected.abs().max(1.0),
            "{}: {ours} and {expected}",
            parameter.name
        );
    }
}

#[test]
fn a_reward_head_learns_to_prefer_and_is_saved_as_transformers_has_it() {
    let model = decoder(false);
    let mut decoder = model.with_scalar_head(ScalarHead::Score, 7).unwrap();
    assert_eq!(decoder.num_parameters(), model.num_parameters() - 31 * 16 + 16);
    let pair = batch(&[1, 2, 3, 4, 1, 2, 9, 8], &[0, 4, 8], &[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut optimizer =
        Optimizer::new(&decoder, AdamWOptions { learning_rate: 1e-2, ..Default::default() }).unwrap();
    let margin = |values: &[f32]| values[3] - values[7];
    let before = margin(&decoder.values(&pair).unwrap());
    for _ in 0..10 {
        let values = decoder.forward_values(&pair).unwrap();
        let share = 1.0 / (1.0 + margin(&values).exp());
        decoder.backward_values(&[0.0, 0.0, 0.0, -share, 0.0, 0.0, 0.0, share]).unwrap();
        optimizer.step(&mut decoder, None, Some(1.0)).unwrap();
    }
    let after = decoder.values(&pair).unwrap();
    assert!(margin(&after) > before + 1.0, "{before} and {}", margin(&after));

    let folder = std::env::temp_dir().join(format!("fulmar-score-{}", std::process::id()));
    decoder.save_folder(&folder).unwrap();
    let again = Decoder::from_folder(&folder).unwrap();
    let config: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(again.config(), decoder.config());
    assert_eq!(again.values(&pair).unwrap(), after);
    assert_eq!(config["architectures"][0], "Qwen2ForSequenceClassification");
    assert_eq!(config["id2label"].as_object().unwrap().len(), 1, "transformers counts its labels by these");
    let file = safetensors::read(&again.to_safetensors().unwrap()).unwrap();
    assert_eq!(file.tensor("score.weight").unwrap().shape(), [1, 16]);
    assert!(file.tensor("lm_head.weight").is_err());
}

#[test]
fn a_value_head_leaves_log_probs_as_they_were_and_trains_beside_them() {
    let decoder = decoder(false);
    let tokens = batch(&[1, 2, 3, 4], &[0, 4], &[0, 1, 1, 1]);
    let before = decoder.score(&tokens).unwrap();
    let mut decoder = decoder.with_scalar_head(ScalarHead::VHead, 7).unwrap();
    assert_eq!(decoder.score(&tokens).unwrap(), before);
    let names: Vec<&str> =
        decoder.parameters().iter().rev().take(2).map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["v_head.summary.bias", "v_head.summary.weight"]);

    decoder.forward(&tokens).unwrap();
    decoder.backward(&[0.0, -1.0, -1.0, -1.0], None).unwrap();
    let of_tokens = decoder.gradients().to_vec();
    decoder.zero_gradients();
    decoder.forward_values(&tokens).unwrap();
    decoder.backward_values(&[0.0, 1.0, 1.0, 1.0]).unwrap();
    let bias = decoder.gradients().last().copied();
    assert_eq!(bias, Some(3.0));
    decoder.forward(&tokens).unwrap();
    decoder.backward(&[0.0, -1.0, -1.0, -1.0], None).unwrap();
    assert_ne!(decoder.gradients(), of_tokens, "both losses are in the sum");
    let copy =
        Decoder::from_safetensors(decoder.config().clone(), &decoder.to_safetensors().unwrap()).unwrap();
    assert_eq!(copy.values(&tokens).unwrap(), decoder.values(&tokens).unwrap());
}

#[test]
fn what_a_head_cannot_do_is_refused() {
    let tokens = batch(&[1, 2], &[0, 2], &[0, 1]);
    let mut plain = decoder(false);
    assert_eq!(plain.values(&tokens).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(plain.forward_values(&tokens).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(plain.backward_values(&[0.0; 2]).unwrap_err().kind(), ErrorKind::Closed);
    let mut scored = plain.with_scalar_head(ScalarHead::Score, 1).unwrap();
    assert_eq!(scored.score(&tokens).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(scored.with_scalar_head(ScalarHead::VHead, 1).unwrap_err().kind(), ErrorKind::Incompatible);
    scored.forward_values(&tokens).unwrap();
    assert_eq!(scored.backward(&[0.0; 2], None).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(scored.backward_values(&[0.0]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(scored.backward_values(&[0.0, f32::NAN]).unwrap_err().kind(), ErrorKind::NonFinite);
    scored.backward_values(&[0.0, 1.0]).unwrap();
    assert_eq!(scored.backward_values(&[0.0, 1.0]).unwrap_err().kind(), ErrorKind::Closed);
    plain.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 1).unwrap();
    assert_eq!(plain.with_scalar_head(ScalarHead::Score, 1).unwrap_err().kind(), ErrorKind::Incompatible);
}
