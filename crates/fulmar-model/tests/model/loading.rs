//! Weights from folders and GGUF files, and errors of invalid ones.

#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulmar_core::limits::MODEL_JSON_BYTES_MAX;
use fulmar_core::{Dtype, ErrorKind};
use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
use fulmar_tensor::{Tensor, gguf, safetensors};
use serde_json::{Value, json};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/model").join(path)
}

/// Returns an empty folder for this test.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-loading-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn tiny(name: &str) -> Decoder {
    let config = std::fs::read_to_string(golden(name).join("config.json")).unwrap();
    let bytes = std::fs::read(golden(name).join("model.safetensors")).unwrap();
    Decoder::from_safetensors(DecoderConfig::from_json(&config).unwrap(), &bytes).unwrap()
}

#[test]
fn a_gguf_file_gives_the_weights_and_log_probs_that_transformers_reads_from_it() {
    let decoder = Decoder::from_gguf(&std::fs::read(golden("gguf_llama/tiny.gguf")).unwrap()).unwrap();
    let expected = safetensors::load_file(golden("gguf_llama/expected.safetensors")).unwrap();
    for (name, tensor) in &expected.tensors {
        if let Some(name) = name.strip_prefix("weight/") {
            let range = decoder.parameters().iter().find(|known| known.name == name).unwrap().range.clone();
            assert_eq!(&decoder.weights()[range], tensor.as_f32().unwrap(), "{name}");
        }
    }
    let case: Value =
        serde_json::from_str(&std::fs::read_to_string(golden("gguf_llama/case.json")).unwrap()).unwrap();
    let ids: Vec<Vec<u32>> = serde_json::from_value(case["ids"].clone()).unwrap();
    let logits = expected.tensor("logits").unwrap();
    let vocab = logits.shape()[2];
    for (row, ids) in ids.iter().enumerate() {
        let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at > 0)).collect();
        let scores = decoder
            .score(&TokenBatch { ids, offsets: &[0, ids.len() as u32], mask: &mask, positions: None })
            .unwrap();
        for at in 1..ids.len() {
            let logits = &logits.as_f32().unwrap()[(row * ids.len() + at - 1) * vocab..][..vocab];
            let sum: f64 = logits.iter().map(|x| f64::from(*x).exp()).sum();
            let log_prob = f64::from(logits[ids[at] as usize]) - sum.ln();
            assert!((f64::from(scores.log_prob[at]) - log_prob).abs() < 2e-4, "row {row}, token {at}");
        }
    }
}

#[test]
fn a_gguf_file_of_another_family_or_with_other_tensors_is_refused() {
    let bytes = std::fs::read(golden("gguf_llama/tiny.gguf")).unwrap();
    let renamed = |from: &str, to: &str| {
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        Decoder::from_gguf(&bytes).unwrap_err()
    };
    let error = renamed("blk.1.ffn_up.weight", "blk.1.ffn_xx.weight");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let error = renamed("blk.1.ffn_up.weight", "blk.7.ffn_up.weight");
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let error = renamed("general.architecture", "general.architecturx");
    assert_eq!(error.detail(), "a GGUF file must have the key general.architecture");
    assert!(gguf::File::read(&bytes[..bytes.len() - 1]).is_err());
}

/// Returns the tensors of a model spread over two files, with their index.
fn sharded(name: &str, decoder: &Decoder) -> (PathBuf, Value) {
    let folder = scratch(name);
    std::fs::write(folder.join("config.json"), decoder.config().to_json()).unwrap();
    let mut files = [BTreeMap::new(), BTreeMap::new()];
    let mut map = serde_json::Map::new();
    for (at, parameter) in decoder.parameters().iter().enumerate() {
        let values = decoder.weights()[parameter.range.clone()].to_vec();
        let tensor = Tensor::from_vec_f32(&parameter.shape, values).unwrap();
        files[at % 2].insert(parameter.name.clone(), tensor);
        map.insert(parameter.name.clone(), json!(format!("part-{}.safetensors", at % 2)));
    }
    for (at, file) in files.iter().enumerate() {
        let tensors = file.iter().map(|(name, tensor)| (name.as_str(), tensor));
        safetensors::save_file(folder.join(format!("part-{at}.safetensors")), tensors, &[]).unwrap();
    }
    (folder, json!({"metadata": {"total_size": 1}, "weight_map": map}))
}

fn write_index(folder: &Path, index: &Value) {
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn folders_in_one_file_or_several_give_the_same_weights() {
    for name in ["llama_tied", "qwen3_tied"] {
        let decoder = tiny(name);
        assert_eq!(Decoder::from_folder(golden(name)).unwrap().weights(), decoder.weights());

        let (folder, index) = sharded(name, &decoder);
        write_index(&folder, &index);
        assert_eq!(Decoder::from_folder(&folder).unwrap().weights(), decoder.weights());
        std::fs::remove_dir_all(&folder).unwrap();

        let saved = scratch("saved").join("deeper");
        decoder.save_folder(&saved).unwrap();
        let again = Decoder::from_folder(&saved).unwrap();
        assert_eq!((again.weights(), again.config()), (decoder.weights(), decoder.config()));
        std::fs::remove_dir_all(saved).unwrap();
    }
}

#[test]
fn a_decoder_in_bfloat16_is_saved_as_such_and_read_back_whole() {
    for name in ["llama_tied", "qwen2_untied"] {
        let halves = tiny(name).with_dtype(Dtype::Bf16).unwrap();
        let folder = scratch("halves");
        halves.save_folder(&folder).unwrap();
        let config: Value =
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        assert_eq!(config["torch_dtype"], "bfloat16");
        let file = safetensors::load_file(folder.join("model.safetensors")).unwrap();
        assert!(file.tensors.values().all(|tensor| tensor.dtype() == Dtype::Bf16));
        let read = Decoder::from_folder(&folder).unwrap().with_dtype(Dtype::Bf16).unwrap();
        assert_eq!(read.weights(), halves.weights());
        assert_eq!(read.to_safetensors().unwrap(), halves.to_safetensors().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn weights_of_16_bits_are_widened_and_a_tied_head_or_angles_are_passed_over() {
    let decoder = tiny("llama_tied");
    let folder = scratch("narrow");
    std::fs::write(folder.join("config.json"), decoder.config().to_json()).unwrap();
    let mut tensors = BTreeMap::new();
    for parameter in decoder.parameters() {
        let values = decoder.weights()[parameter.range.clone()].to_vec();
        let tensor = Tensor::from_vec_f32(&parameter.shape, values).unwrap();
        tensors.insert(parameter.name.clone(), tensor.to(Dtype::Bf16).unwrap());
    }
    tensors.insert("lm_head.weight".to_owned(), tensors["model.embed_tokens.weight"].clone());
    let angles = Tensor::from_vec_f32(&[4], vec![1.0; 4]).unwrap();
    tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), angles);
    let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
    safetensors::save_file(folder.join("model.safetensors"), named, &[]).unwrap();
    let read = Decoder::from_folder(&folder).unwrap();
    for parameter in decoder.parameters() {
        let expected = tensors[&parameter.name].to(Dtype::F32).unwrap();
        assert_eq!(
            &read.weights()[parameter.range.clone()],
            expected.as_f32().unwrap(),
            "{}",
            parameter.name
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn folders_that_lie_are_refused_by_name() {
    let (folder, index) = sharded("lies", &tiny("llama_tied"));
    let cases: [(&str, Value, ErrorKind, &str); 4] = [
        (
            "model.norm.weight",
            json!("../x.safetensors"),
            ErrorKind::Corrupt,
            "must be in a file of the folder",
        ),
        ("model.norm.weight", json!("/etc/passwd"), ErrorKind::Corrupt, "must be in a file of the folder"),
        (
            "model.norm.weight",
            json!("part-9.safetensors"),
            ErrorKind::Corrupt,
            "a file must hold exactly the",
        ),
        (
            "model.extra.weight",
            json!("part-0.safetensors"),
            ErrorKind::Corrupt,
            "a file must hold exactly the",
        ),
    ];
    for (name, file, kind, detail) in cases {
        let mut index = index.clone();
        index["weight_map"][name] = file;
        write_index(&folder, &index);
        let error = Decoder::from_folder(&folder).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.detail().contains(detail), "{error}");
    }
    std::fs::remove_file(folder.join("model.safetensors.index.json")).unwrap();
    let error = Decoder::from_folder(&folder).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.detail().contains("model.safetensors"), "{error}");

    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let padded = |len: usize| format!("{}{}", " ".repeat(len - config.len()), config);
    std::fs::write(folder.join("config.json"), padded(MODEL_JSON_BYTES_MAX)).unwrap();
    assert_eq!(Decoder::from_folder(&folder).unwrap_err().kind(), ErrorKind::Io, "the config is read");
    std::fs::write(folder.join("config.json"), padded(MODEL_JSON_BYTES_MAX + 1)).unwrap();
    assert_eq!(Decoder::from_folder(&folder).unwrap_err().kind(), ErrorKind::LimitExceeded);
    std::fs::remove_dir_all(folder).unwrap();
}
