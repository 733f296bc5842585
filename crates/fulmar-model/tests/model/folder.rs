//! Saved folders: their content, and that no damaged, missing or foreign file passes.
#![expect(clippy::unwrap_used, reason = "a test may end where its setting is wrong")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::limits::TOKENIZER_FILE_BYTES_MAX;
use fulmar_core::{Dtype, ErrorKind};
use fulmar_model::{AdamWOptions, Decoder, DecoderConfig, LoraConfig, Optimizer, TokenBatch};
use fulmar_tensor::safetensors;
use serde_json::{Value, json};

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-folder-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn config() -> Value {
    json!({
        "model_type": "qwen2", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "eos_token_id": [3, 4], "bos_token_id": 1, "attention_dropout": 0.0,
        "transformers_version": "4.51.0", "torch_dtype": "float16"
    })
}

fn decoder() -> Decoder {
    Decoder::new(DecoderConfig::from_json(&config().to_string()).unwrap(), 7).unwrap()
}

const BATCH: TokenBatch<'_> =
    TokenBatch { ids: &[1, 5, 2, 9], offsets: &[0, 4], mask: &[0, 1, 1, 1], positions: None };

/// Takes a step that makes the weights (or the adapter) smaller or larger, so that they differ from those of
/// a seed.
fn step(decoder: &mut Decoder, optimizer: &mut Optimizer) {
    decoder.forward(&BATCH).unwrap();
    decoder.backward(&[0.0, -1.0, 0.5, -0.25], None).unwrap();
    optimizer.step(decoder, Some(0.05), None).unwrap();
}

fn adapted() -> Decoder {
    let mut decoder = decoder();
    let target_modules = vec!["q_proj".to_owned(), "down_proj".to_owned()];
    decoder
        .add_lora(LoraConfig { r: 2, lora_alpha: 6.0, target_modules, ..LoraConfig::default() }, 3)
        .unwrap();
    let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default()).unwrap();
    step(&mut decoder, &mut optimizer);
    decoder
}

#[test]
fn an_adapter_is_saved_with_its_model_and_comes_back_bit_for_bit_with_its_moments() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let folder = scratch("adapter");
        let mut decoder = adapted().with_dtype(dtype).unwrap();
        let mut optimizer = Optimizer::new(&decoder, AdamWOptions::default()).unwrap();
        step(&mut decoder, &mut optimizer);
        decoder.save_folder(&folder).unwrap();
        let moments = optimizer.to_safetensors(&decoder).unwrap();

        let mut again = Decoder::from_folder(&folder).unwrap().with_dtype(dtype).unwrap();
        assert_eq!(again.version(), 0);
        assert_eq!(again.weights(), decoder.weights());
        assert_eq!(again.lora_to_safetensors(), decoder.lora_to_safetensors());
        assert_eq!(again.lora_config_json(), decoder.lora_config_json());
        assert_eq!(again.score(&BATCH), decoder.score(&BATCH));
        let mut resumed = Optimizer::from_safetensors(&again, AdamWOptions::default(), &moments).unwrap();
        step(&mut decoder, &mut optimizer);
        step(&mut again, &mut resumed);
        assert_eq!(again.lora_to_safetensors(), decoder.lora_to_safetensors());
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn moments_of_an_adapter_are_refused_without_it_and_by_one_of_another_shape() {
    let decoder_with = adapted();
    let optimizer = Optimizer::new(&decoder_with, AdamWOptions::default()).unwrap();
    let moments = optimizer.to_safetensors(&decoder_with).unwrap();
    let load = |decoder: &Decoder| Optimizer::from_safetensors(decoder, AdamWOptions::default(), &moments);
    let mut narrower = decoder();
    let target_modules = vec!["q_proj".to_owned(), "down_proj".to_owned()];
    narrower.add_lora(LoraConfig { r: 1, target_modules, ..LoraConfig::default() }, 3).unwrap();
    let mut elsewhere = decoder();
    elsewhere.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 3).unwrap();
    for other in [decoder(), narrower, elsewhere] {
        assert_eq!(load(&other).unwrap_err().kind(), ErrorKind::Incompatible);
    }
}

#[test]
fn a_folder_of_an_adapter_alone_is_put_beside_the_weights_it_belongs_to() {
    let folder = scratch("alone");
    let trained = adapted();
    trained.save_adapter(&folder).unwrap();
    assert_eq!(decoder().save_adapter(&folder).unwrap_err().kind(), ErrorKind::Empty);
    let mut again = decoder();
    again.load_adapter(&folder).unwrap();
    assert_eq!((again.version(), again.score(&BATCH)), (1, trained.score(&BATCH)));
    assert_eq!(
        again.load_adapter(&folder).unwrap_err().kind(),
        ErrorKind::Incompatible,
        "there is one already"
    );
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        let (path, whole) = (folder.join(name), fs::read(folder.join(name)).unwrap());
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        fs::write(&path, damaged).unwrap();
        let error = decoder().load_adapter(&folder).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.detail().contains(name), "{error}");
        fs::remove_file(&path).unwrap();
        let error = decoder().load_adapter(&folder).unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.detail().contains(name), "{error}");
        fs::write(&path, whole).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_a_folder_held_is_there_again_when_it_is_saved() {
    let (from, to) = (scratch("from"), scratch("to"));
    let decoder = decoder();
    fs::write(from.join("config.json"), config().to_string()).unwrap();
    fs::write(from.join("model.safetensors"), decoder.to_safetensors().unwrap()).unwrap();
    let texts = [
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", r#"{"eos_token": "</s>"}"#),
        ("chat_template.jinja", "{{ messages }}"),
        ("tokenizer.model", "\u{1}binary"),
    ];
    for (name, text) in texts {
        fs::write(from.join(name), text).unwrap();
    }
    fs::write(from.join("README.md"), "not of the model").unwrap();
    Decoder::from_folder(&from).unwrap().save_folder(&to).unwrap();
    for (name, text) in texts {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), text);
    }
    assert!(!to.join("README.md").exists());
    let json = |name: &str| -> Value { serde_json::from_slice(&fs::read(to.join(name)).unwrap()).unwrap() };
    let saved = json("config.json");
    for (key, value) in config().as_object().unwrap() {
        let expected = if key == "torch_dtype" { &json!("float32") } else { value };
        assert_eq!(&saved[key], expected, "{key}");
    }
    assert_eq!(saved["architectures"], json!(["Qwen2ForCausalLM"]));
    let generation = json("generation_config.json");
    assert_eq!((&generation["eos_token_id"], &generation["bos_token_id"]), (&json!([3, 4]), &json!(1)));
    // A file in the folder overrides its config.
    fs::write(from.join("generation_config.json"), r#"{"eos_token_id": 9}"#).unwrap();
    Decoder::from_folder(&from).unwrap().save_folder(&to).unwrap();
    assert_eq!(fs::read_to_string(to.join("generation_config.json")).unwrap(), r#"{"eos_token_id": 9}"#);
    for folder in [from, to] {
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Returns every file of a folder by name.
fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn each_file_of_a_saved_folder_that_is_missing_cut_or_flipped_is_refused_by_its_name() {
    let folder = scratch("damage");
    let mut decoder = adapted();
    decoder.set_extra_file("tokenizer.json", b"{\"model\": {}}".to_vec()).unwrap();
    decoder.save_folder(&folder).unwrap();
    let files = files_of(&folder);
    assert_eq!(files.len(), 8, "{:?}", files.keys());
    for (name, whole) in files.iter().filter(|(name, _)| *name != "manifest.json") {
        let path = folder.join(name);
        let refused = |what: &str| {
            let error = Decoder::from_folder(&folder).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{name} {what}: {error}");
            assert!(error.detail().contains(name.as_str()), "{name} {what}: {error}");
        };
        fs::remove_file(&path).unwrap();
        refused("removed");
        for at in [0, whole.len() / 3, whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            fs::write(&path, flipped).unwrap();
            refused("flipped");
            fs::write(&path, &whole[..at]).unwrap();
            refused("cut");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("replaced by a folder");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(Decoder::from_folder(&folder).unwrap().score(&BATCH), decoder.score(&BATCH));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_adapter_that_came_into_a_saved_folder_later_is_refused() {
    let (plain, other) = (scratch("plain"), scratch("other"));
    decoder().save_folder(&plain).unwrap();
    adapted().save_folder(&other).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(other.join(name), plain.join(name)).unwrap();
    }
    let error = Decoder::from_folder(&plain).unwrap_err();
    assert!(error.detail().contains("adapter_config.json"), "{error}");
    // As PEFT does: an adapter in the folder of a model without a manifest is loaded with it.
    fs::remove_file(plain.join("manifest.json")).unwrap();
    assert_eq!(Decoder::from_folder(&plain).unwrap().score(&BATCH), adapted().score(&BATCH));
    fs::remove_file(plain.join("adapter_model.safetensors")).unwrap();
    let error = Decoder::from_folder(&plain).unwrap_err();
    assert!(error.detail().contains("adapter_model.safetensors"), "{error}");
    for folder in [plain, other] {
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_model_saved_over_another_takes_its_adapter_and_its_list_of_files_away() {
    let folder = scratch("over");
    adapted().save_folder(&folder).unwrap();
    fs::write(folder.join("README.md"), "mine").unwrap();
    let mut merged = adapted();
    merged.merge_lora().unwrap();
    merged.save_folder(&folder).unwrap();
    let again = Decoder::from_folder(&folder).unwrap();
    assert_eq!((again.num_trainable(), again.score(&BATCH)), (again.num_parameters(), merged.score(&BATCH)));
    assert!(!folder.join("adapter_config.json").exists() && folder.join("README.md").exists());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_save_that_fails_leaves_the_older_model_and_nothing_beside_it() {
    let folder = scratch("fails");
    decoder().save_folder(&folder).unwrap();
    let before = files_of(&folder);
    let mut broken = decoder();
    let mut optimizer = Optimizer::new(&broken, AdamWOptions::default()).unwrap();
    for _ in 0..3 {
        broken.forward(&BATCH).unwrap();
        broken.backward(&[0.0, -1.0, 0.5, -0.25], None).unwrap();
        if optimizer.step(&mut broken, Some(1e38), None).is_err() || broken.score(&BATCH).is_err() {
            break;
        }
    }
    if broken.weights().iter().any(|weight| !weight.is_finite()) {
        assert_eq!(broken.save_folder(&folder).unwrap_err().kind(), ErrorKind::NonFinite);
        assert_eq!(files_of(&folder), before);
    }
    // A file cannot take the place of a folder.
    fs::remove_file(folder.join("manifest.json")).unwrap();
    fs::create_dir_all(folder.join("manifest.json/taken")).unwrap();
    assert!(decoder().save_folder(&folder).is_err());
    fs::remove_dir_all(folder.join("manifest.json")).unwrap();
    let mut after = files_of(&folder);
    after.insert("manifest.json".to_owned(), before["manifest.json"].clone());
    assert_eq!(after, before);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_in_the_place_of_files_are_refused_without_waiting() {
    let folder = scratch("pipes");
    decoder().save_folder(&folder).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "manifest.json"] {
        let path = folder.join(name);
        let whole = fs::read(&path).ok();
        let _ = fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = Decoder::from_folder(&folder).unwrap_err();
        assert!(error.detail().contains("regular file") && error.detail().contains(name), "{error}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = Decoder::from_folder(&folder).unwrap_err();
        assert!(error.detail().contains("regular file") && error.detail().contains(name), "{error}");
        fs::remove_file(&path).unwrap();
        if let Some(whole) = whole {
            fs::write(&path, whole).unwrap();
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn extra_files_have_known_names_and_a_limit() {
    let mut decoder = decoder();
    assert_eq!(decoder.set_extra_file("../x", Vec::new()).unwrap_err().kind(), ErrorKind::UnknownName);
    decoder.set_extra_file("tokenizer.json", vec![0; TOKENIZER_FILE_BYTES_MAX]).unwrap();
    let error = decoder.set_extra_file("tokenizer.json", vec![0; TOKENIZER_FILE_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn the_base_is_scored_under_an_adapter_without_a_second_copy_of_it() {
    let (plain, mut adapted) = (decoder(), adapted());
    assert_eq!(adapted.score_base(&BATCH), plain.score(&BATCH));
    assert_ne!(adapted.score(&BATCH), plain.score(&BATCH));
    assert_eq!(plain.score_base(&BATCH).unwrap_err().kind(), ErrorKind::Empty);
    // A forward pass that waits for its backward pass is unaffected.
    adapted.forward(&BATCH).unwrap();
    let _ = adapted.score_base(&BATCH).unwrap();
    adapted.backward(&[0.0, 1.0, 1.0, 1.0], None).unwrap();
    assert!(adapted.gradient_norm() > 0.0);
}

#[test]
fn weights_that_are_too_large_are_told_where_log_probs_or_values_would_be_no_numbers() {
    let tensors = safetensors::read(&decoder().to_safetensors().unwrap()).unwrap().tensors;
    let scaled: BTreeMap<_, _> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let values = tensor.as_f32().unwrap().iter().map(|weight| weight * 1e30).collect();
            let tensor = fulmar_tensor::Tensor::from_vec_f32(tensor.shape(), values).unwrap();
            (name, tensor)
        })
        .collect();
    let bytes = safetensors::File { tensors: scaled, metadata: BTreeMap::new(), unread: BTreeMap::new() }
        .to_bytes()
        .unwrap();
    let mut huge = Decoder::from_safetensors(decoder().config().clone(), &bytes).unwrap();
    let reward = huge.with_scalar_head(fulmar_model::ScalarHead::Score, 1).unwrap();
    for error in [
        huge.score(&BATCH).unwrap_err(),
        huge.score_top_k(&BATCH, 2).unwrap_err(),
        huge.forward(&BATCH).unwrap_err(),
        huge.forward_with_squares(&BATCH).unwrap_err(),
        reward.values(&BATCH).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NonFinite, "{error}");
    }
    assert_eq!(huge.backward(&[0.0; 4], None).unwrap_err().kind(), ErrorKind::Closed);
}
