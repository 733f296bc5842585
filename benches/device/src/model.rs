//! Random Qwen2 models that are made within seconds, and what their log-probs are on a GPU, for `rivals.py` to compare with.

use std::fs;
use std::path::Path;

use fulmar_core::{Dtype, Result, Rng};
use fulmar_cuda::Card;
use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
use half::bf16;
use serde_json::{Map, Value, json};

use crate::numbers::random;
use crate::unusable;

/// The shape of a Qwen2 model.
#[derive(Clone, Copy)]
pub struct Shape {
    pub vocab: usize,
    pub hidden: usize,
    pub inner: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
}

/// Qwen2-0.5B.
pub const HALF_B: Shape =
    Shape { vocab: 151_936, hidden: 896, inner: 4_864, layers: 24, heads: 14, kv_heads: 2 };

/// Four layers of Qwen2.5-3B, with a vocabulary that takes no time.
pub const LAYERS_OF_3_B: Shape =
    Shape { vocab: 4_096, hidden: 2_048, inner: 11_008, layers: 4, heads: 16, kv_heads: 2 };

/// A model for the emulated GPU, with the head width of 0.5 B.
pub const TINY: Shape = Shape { vocab: 150, hidden: 128, inner: 96, layers: 2, heads: 2, kv_heads: 1 };

/// Numbers that are drawn; tensors are parts of them, one after the other and again from the first on. The count is no multiple of
/// a line of a weight.
const DRAWN: usize = (1 << 22) - 3;

/// Largest weight: the standard deviation is the 0.02 of new models.
const WEIGHT_MAX: f32 = 0.034_64;

/// Longest sequence.
const POSITIONS: usize = 4_096;

/// Sequences of [`write`], and tokens of each.
const SEQUENCES: [usize; 2] = [8, 256];
const EMULATED_SEQUENCES: [usize; 2] = [3, 40];

impl Shape {
    /// Returns the number of weights of products, with the tied head once.
    pub const fn num_multiplied(&self) -> usize {
        let heads = self.hidden * (self.hidden + 2 * self.kv_width()) + self.hidden * self.hidden;
        self.vocab * self.hidden + self.layers * (heads + 3 * self.hidden * self.inner)
    }

    const fn kv_width(&self) -> usize {
        self.hidden / self.heads * self.kv_heads
    }

    /// Returns the shape as Hugging Face's `config.json` has it.
    fn config(&self) -> Value {
        json!({
            "architectures": ["Qwen2ForCausalLM"],
            "model_type": "qwen2",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": POSITIONS,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1e6,
            "tie_word_embeddings": true,
        })
    }

    /// Returns the names and shapes of the tensors.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let Self { vocab, hidden, inner, layers, .. } = *self;
        let kv = self.kv_width();
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![vocab, hidden])];
        for layer in 0..layers {
            let of_layer = [
                ("input_layernorm.weight", vec![hidden]),
                ("self_attn.q_proj.weight", vec![hidden, hidden]),
                ("self_attn.q_proj.bias", vec![hidden]),
                ("self_attn.k_proj.weight", vec![kv, hidden]),
                ("self_attn.k_proj.bias", vec![kv]),
                ("self_attn.v_proj.weight", vec![kv, hidden]),
                ("self_attn.v_proj.bias", vec![kv]),
                ("self_attn.o_proj.weight", vec![hidden, hidden]),
                ("post_attention_layernorm.weight", vec![hidden]),
                ("mlp.gate_proj.weight", vec![inner, hidden]),
                ("mlp.up_proj.weight", vec![inner, hidden]),
                ("mlp.down_proj.weight", vec![hidden, inner]),
            ];
            let named = |(name, shape)| (format!("model.layers.{layer}.{name}"), shape);
            tensors.extend(of_layer.into_iter().map(named));
        }
        tensors.push(("model.norm.weight".to_owned(), vec![hidden]));
        tensors
    }

    /// Returns random weights in bfloat16 as a safetensors file; norms are 1.
    fn safetensors(&self) -> Vec<u8> {
        let drawn = random("model", DRAWN.min(self.num_multiplied()), WEIGHT_MAX);
        let drawn: Vec<u8> =
            drawn.into_iter().flat_map(|weight| bf16::from_f32(weight).to_le_bytes()).collect();
        let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
        let mut data = Vec::with_capacity(2 * (self.num_multiplied() + (1 << 20)));
        let mut at = 0;
        for (name, shape) in self.tensors() {
            let (first, bytes) = (data.len(), 2 * shape.iter().product::<usize>());
            if name.ends_with("norm.weight") {
                data.extend(bf16::ONE.to_le_bytes().into_iter().cycle().take(bytes));
            }
            while data.len() < first + bytes {
                let count = (drawn.len() - at).min(first + bytes - data.len());
                data.extend_from_slice(&drawn[at..at + count]);
                at = (at + count) % drawn.len();
            }
            header.insert(
                name,
                json!({ "dtype": "BF16", "shape": shape, "data_offsets": [first, data.len()] }),
            );
        }
        let mut header = Value::Object(header).to_string();
        header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }

    /// Returns the model with weights of that dtype on a GPU.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn decoder(&self, card: &Card, dtype: Dtype) -> Result<Decoder> {
        let config = DecoderConfig::from_json(&self.config().to_string())?;
        let mut decoder = Decoder::from_safetensors(config, &self.safetensors())?.with_dtype(dtype)?;
        decoder.move_to(card.device())?;
        Ok(decoder)
    }

    /// Returns `count` ids.
    pub fn ids(&self, stream: u64, count: usize) -> Vec<u32> {
        let mut rng = Rng::new(22).stream("ids of a model").fork(stream);
        (0..count).map(|_| rng.next_u32() % self.vocab as u32).collect()
    }
}

/// Writes a model into a folder that transformers can load, with ids and the log-probs that it gives them on the GPU with weights in
/// bfloat16 and in f32, which are the same numbers.
///
/// # Errors
/// Errors of the GPU's driver; `Io` if a file cannot be written.
pub fn write(card: &Card, folder: &Path) -> Result<()> {
    let (shape, [sequences, len]) =
        if card.is_emulated() { (TINY, EMULATED_SEQUENCES) } else { (HALF_B, SEQUENCES) };
    let ids = shape.ids(0, sequences * len);
    let offsets: Vec<u32> = (0..=sequences).map(|at| (at * len) as u32).collect();
    let mask: Vec<u8> = (0..ids.len()).map(|at| u8::from(at % len > 0)).collect();
    let log_probs = |dtype| -> Result<Vec<f32>> {
        let batch = TokenBatch { ids: &ids, offsets: &offsets, mask: &mask, positions: None };
        Ok(shape.decoder(card, dtype)?.score(&batch)?.log_prob)
    };
    let found = json!({
        "ids": ids.chunks(len).collect::<Vec<_>>(),
        "bf16": log_probs(Dtype::Bf16)?.chunks(len).collect::<Vec<_>>(),
        "f32": log_probs(Dtype::F32)?.chunks(len).collect::<Vec<_>>(),
    });
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| unusable(&path, &error))
    };
    fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
    file("config.json", shape.config().to_string().as_bytes())?;
    file("model.safetensors", &shape.safetensors())?;
    file("log_probs.json", found.to_string().as_bytes())
}
