//! Weights and adapters of another model are refused, with the name of the invalid part.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use fulmar_core::{Error, ErrorKind};
use fulmar_model::{Decoder, DecoderConfig, LoraConfig, TokenBatch};
use fulmar_tensor::{Tensor, safetensors};

fn config(hidden: usize) -> DecoderConfig {
    DecoderConfig::from_json(&format!(
        r#"{{"model_type": "llama", "vocab_size": 7, "hidden_size": {hidden}, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 2}}"#
    ))
    .unwrap()
}

/// Returns the error of a decoder whose file was changed.
fn refused(change: impl FnOnce(&mut BTreeMap<String, Tensor>)) -> Error {
    let bytes = Decoder::new(config(8), 1).unwrap().to_safetensors().unwrap();
    let mut file = safetensors::read(&bytes).unwrap();
    change(&mut file.tensors);
    Decoder::from_safetensors(config(8), &file.to_bytes().unwrap()).unwrap_err()
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::from_vec_f32(shape, vec![0.0; shape.iter().product()]).unwrap()
}

#[test]
fn weights_that_miss_a_tensor_or_carry_one_too_many_are_refused_by_its_name() {
    let name = "model.layers.1.mlp.up_proj.weight";
    let error = refused(|tensors| drop(tensors.remove(name)));
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains(name), "{error}");
    let more = "model.layers.2.mlp.up_proj.weight";
    let error = refused(|tensors| drop(tensors.insert(more.to_owned(), zeros(&[16, 8]))));
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains(more), "{error}");
    let error = refused(|tensors| drop(tensors.insert(name.to_owned(), zeros(&[8, 16]))));
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains(name) && error.detail().contains("[8, 16]"), "{error}");
}

#[test]
fn adapters_of_another_model_are_refused_by_name_and_nothing_changes() {
    let lora = LoraConfig { r: 2, ..LoraConfig::default() };
    let mut other = Decoder::new(config(16), 1).unwrap();
    other.add_lora(lora.clone(), 3).unwrap();
    let bytes = other.lora_to_safetensors().unwrap();
    let mut decoder = Decoder::new(config(8), 1).unwrap();
    let error = decoder.load_lora(lora.clone(), &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains("q_proj.lora_A.weight") && error.detail().contains("[2, 16]"), "{error}");
    let narrow = LoraConfig { target_modules: vec!["v_proj".to_owned()], ..lora.clone() };
    let mut own = Decoder::new(config(8), 1).unwrap();
    own.add_lora(lora.clone(), 3).unwrap();
    let error = decoder.load_lora(narrow, &own.lora_to_safetensors().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains("q_proj"), "{error}");
    decoder.add_lora(lora, 1).unwrap();
}

#[test]
fn ids_over_the_vocabulary_are_refused_by_their_place() {
    let decoder = Decoder::new(config(8), 1).unwrap();
    let batch = |ids| TokenBatch { ids, offsets: &[0, 3], mask: &[0, 1, 1], ..Default::default() };
    assert!(decoder.score(&batch(&[0, 1, 6])).is_ok());
    for ids in [&[0, 1, 7], &[0, 1, u32::MAX]] {
        let error = decoder.score(&batch(ids)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{error}");
        assert_eq!(error.detail(), format!("ids must be below vocab_size (7): got {} at 2", ids[2]));
    }
}
