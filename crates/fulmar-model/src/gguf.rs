//! Decoders from GGUF files: converts names, order of dimensions and heads to Hugging Face's.

pub(crate) mod tokenizer;

use fulmar_core::limits::MODEL_LAYERS_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::Tensor;
use fulmar_tensor::gguf::File;
use serde_json::{Map, Value, json};

use crate::config::{DecoderConfig, ModelType};
use crate::decoder::Decoder;
use crate::parameters::{Filling, Layout};

impl Decoder {
    /// Returns the model of a GGUF file in memory, its blocks decoded to single precision. Supports the
    /// families llama, qwen2 and qwen3.
    ///
    /// # Errors
    /// The errors of [`File::read`] and [`DecoderConfig::checked`]; `Incompatible` for another family, a
    /// rotary scaling, or tensors that the family does not have.
    pub fn from_gguf(bytes: &[u8]) -> Result<Self> {
        let file = File::read(bytes)?;
        let mut decoder =
            Self::with_weights(config(&file)?, |config, layout| weights(&file, config, layout))?;
        // A tokenizer that cannot be read leaves a model without one; reading the tokenizer itself returns
        // the reason.
        if let Ok(read) = tokenizer::GgufTokenizer::read(&file) {
            decoder.set_extra_file("tokenizer.json", read.tokenizer_json.into_bytes())?;
            decoder.set_extra_file("tokenizer_config.json", read.config_json.into_bytes())?;
            if let Some(template) = read.chat_template {
                decoder.set_extra_file("chat_template.jinja", template.into_bytes())?;
            }
        }
        Ok(decoder)
    }
}

/// Returns the shape in the metadata.
fn config(file: &File<'_>) -> Result<DecoderConfig> {
    let family = text(&file.metadata, "general.architecture")?;
    let get = |key: &str| file.metadata.get(&format!("{family}.{key}"));
    if let Some(kind) = get("rope.scaling.type").filter(|kind| *kind != "none") {
        return Err(incompatible(format!("{family}.rope.scaling.type must be \"none\": got {kind}")));
    }
    let vocab_size = get("vocab_size").cloned().map_or_else(|| vocabulary(file), Ok)?;
    let mut fields = Map::new();
    fields.insert("model_type".to_owned(), family.into());
    fields.insert("vocab_size".to_owned(), vocab_size);
    fields.insert("tie_word_embeddings".to_owned(), (!file.names().any(|name| name == OUTPUT)).into());
    for (ours, theirs) in [
        ("hidden_size", "embedding_length"),
        ("intermediate_size", "feed_forward_length"),
        ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        ("num_key_value_heads", "attention.head_count_kv"),
        ("head_dim", "attention.key_length"),
        ("max_position_embeddings", "context_length"),
        ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
        ("rope_theta", "rope.freq_base"),
    ] {
        if let Some(value) = get(theirs) {
            fields.insert(ours.to_owned(), value.clone());
        }
    }
    for (ours, theirs) in [
        ("bos_token_id", "bos_token_id"),
        ("eos_token_id", "eos_token_id"),
        ("pad_token_id", "padding_token_id"),
    ] {
        if let Some(id) = file.metadata.get(&format!("tokenizer.ggml.{theirs}")) {
            fields.insert(ours.to_owned(), id.clone());
        }
    }
    DecoderConfig::from_json(&Value::Object(fields).to_string())
}

const OUTPUT: &str = "output.weight";

/// Returns the number of tokens in the list, if there is no key for it.
fn vocabulary(file: &File<'_>) -> Result<Value> {
    match file.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Ok(json!(tokens.len())),
        _ => Err(incompatible("a GGUF file must contain its vocabulary".to_owned())),
    }
}

fn weights(file: &File<'_>, config: &DecoderConfig, layout: &Layout) -> Result<Vec<f32>> {
    let mut filling = Filling::new(&layout.parameters);
    for name in file.names() {
        let tensor = file.tensor(name)?;
        let ours = our_name(name)?;
        let heads = match name.rsplit_once("attn_") {
            Some((_, "q.weight")) => Some(config.num_attention_heads),
            Some((_, "k.weight")) => Some(config.num_kv_heads()),
            _ => None,
        };
        match heads.filter(|_| config.model_type == ModelType::Llama) {
            Some(heads) => filling.put(&ours, &halves_together(&tensor, heads)?)?,
            None => filling.put(&ours, &tensor)?,
        }
    }
    filling.finish()
}

/// Returns Hugging Face's name of a tensor.
fn our_name(name: &str) -> Result<String> {
    let unknown =
        || incompatible(format!("a GGUF file must hold only this architecture's tensors: got {name:?}"));
    let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let Some((index, part)) = layer else {
        let known = match name {
            "token_embd.weight" => "model.embed_tokens.weight",
            "output_norm.weight" => "model.norm.weight",
            OUTPUT => "lm_head.weight",
            _ => return Err(unknown()),
        };
        return Ok(known.to_owned());
    };
    let (part, kind) = part.rsplit_once('.').ok_or_else(unknown)?;
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_norm" => "post_attention_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return Err(unknown()),
    };
    let index: usize = index.parse().ok().filter(|index| *index < MODEL_LAYERS_MAX).ok_or_else(unknown)?;
    Ok(format!("model.layers.{index}.{part}.{kind}"))
}

/// Undoes llama.cpp's row order of query and key heads, in which the two elements that are rotated together
/// are adjacent: row `2 i + j` of a head of E rows becomes row `j E/2 + i`.
fn halves_together(weight: &Tensor, heads: usize) -> Result<Tensor> {
    let values = weight.as_f32()?;
    let (&[rows, width], true) = (weight.shape(), heads > 0) else {
        return Err(incompatible(format!("a projection must be a matrix: got shape {:?}", weight.shape())));
    };
    let half = rows / heads / 2;
    if half * heads * 2 != rows {
        return Err(incompatible(format!(
            "a projection of {heads} heads must have an even number of rows for each: got {rows}"
        )));
    }
    let mut turned = Vec::with_capacity(values.len());
    for row in 0..rows {
        let (head, within) = (row / (2 * half), row % (2 * half));
        let (j, i) = (within / half, within % half);
        let source = head * 2 * half + 2 * i + j;
        turned.extend_from_slice(&values[source * width..][..width]);
    }
    Tensor::from_vec_f32(weight.shape(), turned)
}

fn text<'a>(metadata: &'a Map<String, Value>, key: &str) -> Result<&'a str> {
    metadata
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| incompatible(format!("a GGUF file must have the key {key}")))
}

fn incompatible(detail: String) -> Error {
    Error::new(ErrorKind::Incompatible, detail)
}
