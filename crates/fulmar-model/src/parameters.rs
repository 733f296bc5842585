//! All weights of a decoder in one buffer, under Hugging Face's names.
//!
//! With one buffer the optimizer, the gradient norm and a checkpoint are one loop each. Matrices are `[out,
//! in]`.

use std::collections::BTreeMap;
use std::ops::Range;

use fulmar_compute::{Compute, Floats};
use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Tensor, safetensors};

use crate::config::{DecoderConfig, ModelType, ScalarHead};

/// The output head, if it is not the embedding table.
const HEAD: &str = "lm_head.weight";

const ATTENTION: &str = "self_attn";
const FEED_FORWARD: &str = "mlp";

/// A named tensor and its place in the buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Hugging Face's name.
    pub name: String,
    /// Shape, row-major.
    pub shape: Vec<usize>,
    /// Its range in the buffer.
    pub range: Range<usize>,
}

/// A projection `x W^T` with a weight `[outputs, inputs]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Linear {
    /// Hugging Face's names of the block and of the projection in it.
    pub block: &'static str,
    pub name: &'static str,
    pub weight: Range<usize>,
    pub inputs: usize,
    pub outputs: usize,
}

impl Linear {
    /// Returns Hugging Face's name of the module in layer `layer`.
    pub(crate) fn module_name(&self, layer: usize) -> String {
        format!("model.layers.{layer}.{}.{}", self.block, self.name)
    }
}

/// The ranges of one layer's tensors.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerRanges {
    pub input_norm: Range<usize>,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    /// Query, key and value biases, if the family has them.
    pub qkv_bias: Option<[Range<usize>; 3]>,
    /// Norms of query and key heads, if the family has them.
    pub qk_norm: Option<[Range<usize>; 2]>,
    pub o: Linear,
    pub post_norm: Range<usize>,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

impl LayerRanges {
    /// Returns the projections, which can have adapters.
    pub(crate) const fn linears(&self) -> [&Linear; 7] {
        [&self.q, &self.k, &self.v, &self.o, &self.gate, &self.up, &self.down]
    }

    /// Returns their names in layer `layer`.
    pub(crate) fn module_names(&self, layer: usize) -> [String; 7] {
        self.linears().map(|linear| linear.module_name(layer))
    }
}

/// The ranges of a scalar head.
#[derive(Debug, Clone)]
pub(crate) struct ScalarRanges {
    pub weight: Range<usize>,
    pub bias: Option<Range<usize>>,
}

/// Names, shapes and ranges of all tensors of one [`DecoderConfig`].
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub parameters: Vec<Parameter>,
    pub embed: Range<usize>,
    pub layers: Vec<LayerRanges>,
    pub final_norm: Range<usize>,
    /// The vocabulary head, which [`ScalarHead::Score`] replaces.
    pub head: Option<Range<usize>>,
    pub scalar: Option<ScalarRanges>,
    pub len: usize,
}

impl Layout {
    pub(crate) fn new(config: &DecoderConfig) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (q_width, kv_width) = (config.q_width(), config.kv_width());
        let mut list = Listing::default();
        let embed = list.add("model.embed_tokens.weight".to_owned(), &[config.vocab_size, hidden]);
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for index in 0..config.num_hidden_layers {
            let mut add =
                |name: &str, shape: &[usize]| list.add(format!("model.layers.{index}.{name}"), shape);
            let mut layer = LayerRanges {
                input_norm: add("input_layernorm.weight", &[hidden]),
                q: linear(&mut add, ATTENTION, "q_proj", [q_width, hidden]),
                k: linear(&mut add, ATTENTION, "k_proj", [kv_width, hidden]),
                v: linear(&mut add, ATTENTION, "v_proj", [kv_width, hidden]),
                o: linear(&mut add, ATTENTION, "o_proj", [hidden, q_width]),
                post_norm: add("post_attention_layernorm.weight", &[hidden]),
                gate: linear(&mut add, FEED_FORWARD, "gate_proj", [inner, hidden]),
                up: linear(&mut add, FEED_FORWARD, "up_proj", [inner, hidden]),
                down: linear(&mut add, FEED_FORWARD, "down_proj", [hidden, inner]),
                ..LayerRanges::default()
            };
            match config.model_type {
                ModelType::Llama => {}
                ModelType::Qwen2 => {
                    layer.qkv_bias = Some([
                        add("self_attn.q_proj.bias", &[q_width]),
                        add("self_attn.k_proj.bias", &[kv_width]),
                        add("self_attn.v_proj.bias", &[kv_width]),
                    ]);
                }
                ModelType::Qwen3 => {
                    let width = [config.head_dim()];
                    layer.qk_norm = Some([
                        add("self_attn.q_norm.weight", &width),
                        add("self_attn.k_norm.weight", &width),
                    ]);
                }
            }
            layers.push(layer);
        }
        let final_norm = list.add("model.norm.weight".to_owned(), &[hidden]);
        let head = match (config.scalar_head, config.tie_word_embeddings) {
            (Some(ScalarHead::Score), _) => None,
            (_, true) => Some(embed.clone()),
            (_, false) => Some(list.add(HEAD.to_owned(), &[config.vocab_size, hidden])),
        };
        let scalar = config.scalar_head.map(|kind| match kind {
            ScalarHead::Score => {
                ScalarRanges { weight: list.add("score.weight".to_owned(), &[1, hidden]), bias: None }
            }
            ScalarHead::VHead => ScalarRanges {
                weight: list.add("v_head.summary.weight".to_owned(), &[1, hidden]),
                bias: Some(list.add("v_head.summary.bias".to_owned(), &[1])),
            },
        });
        Self { parameters: list.parameters, embed, layers, final_norm, head, scalar, len: list.len }
    }

    /// Returns new weights: matrices normal with `initializer_range`, the two projections into the residual
    /// stream narrower by `sqrt(2 * layers)` (as in GPT-2), norms 1, biases 0. Each tensor has its own random
    /// stream, seeded by its name.
    pub(crate) fn init(&self, config: &DecoderConfig, seed: u64) -> Vec<f32> {
        let rng = Rng::new(seed).stream("weights");
        let narrow = config.initializer_range / libm::sqrt(2.0 * config.num_hidden_layers as f64);
        let mut weights = vec![0.0; self.len];
        for parameter in &self.parameters {
            let values = &mut weights[parameter.range.clone()];
            if parameter.name.ends_with("norm.weight") {
                values.fill(1.0);
            } else if parameter.shape.len() == 2 {
                let into_residual =
                    ["o_proj.weight", "down_proj.weight"].iter().any(|end| parameter.name.ends_with(end));
                let scale = if into_residual { narrow } else { config.initializer_range };
                let mut rng = rng.stream(&parameter.name);
                values.fill_with(|| (rng.normal() * scale) as f32);
            }
        }
        weights
    }
}

/// Returns the weights of `parameters` as a safetensors file of their dtype.
///
/// # Errors
/// `NonFinite` for a weight that is not finite: [`read`] would refuse the file.
pub(crate) fn write(
    parameters: &[Parameter],
    weights: Floats<'_>,
    inputs_of_panels: impl Fn(&Range<usize>) -> Option<usize>,
) -> Result<Vec<u8>> {
    let mut tensors = Vec::with_capacity(parameters.len());
    for Parameter { name, shape, range } in parameters {
        if let Some(value) = weights.slice(range.clone()).read()?.iter().find(|value| !value.is_finite()) {
            let detail = format!("weights must be finite to be saved: got {value} in {name:?}");
            return Err(Error::new(ErrorKind::NonFinite, detail));
        }
        let tensor = match weights.slice(range.clone()) {
            Floats::F32(values) => {
                let mut values = values.read()?.into_owned();
                if let Some(inputs) = inputs_of_panels(range) {
                    Compute::Cpu.unpack_in_place(&mut values, inputs);
                }
                Tensor::from_vec(shape, values)?
            }
            Floats::Bf16(values) => Tensor::from_vec(shape, values.read()?.into_owned())?,
        };
        tensors.push((name.as_str(), tensor));
    }
    safetensors::write(tensors.iter().map(|(name, tensor)| (*name, tensor)), &[("format", "pt")])
}

/// Refuses a file with a tensor of an unsupported dtype: it would be lost.
pub(crate) fn check_whole(file: &safetensors::File) -> Result<()> {
    file.unread.keys().try_for_each(|name| file.tensor(name).map(drop))
}

/// Inverts [`write`], in single precision.
pub(crate) fn read(parameters: &[Parameter], file: &safetensors::File) -> Result<Vec<f32>> {
    check_whole(file)?;
    let mut filling = Filling::new(parameters);
    for (name, tensor) in &file.tensors {
        filling.put(name, tensor)?;
    }
    filling.finish()
}

/// A buffer that is filled with tensors by name, from one file or several.
pub(crate) struct Filling<'a> {
    missing: BTreeMap<&'a str, &'a Parameter>,
    /// `true` if the head is its own tensor, not the embedding table.
    has_head: bool,
    buffer: Vec<f32>,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(parameters: &'a [Parameter]) -> Self {
        let missing: BTreeMap<_, _> =
            parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
        let len = parameters.iter().map(|parameter| parameter.range.end).max().unwrap_or(0);
        Self { has_head: missing.contains_key(HEAD), missing, buffer: vec![0.0; len] }
    }

    /// Copies a tensor of any float dtype into its place.
    ///
    /// # Errors
    /// `Incompatible` for a name or shape of another architecture, or a duplicate name; `NonFinite` for a
    /// weight that is not finite.
    pub(crate) fn put(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        // Old checkpoints repeat the angles, and the tied table as the head.
        if name.ends_with("rotary_emb.inv_freq") || (!self.has_head && name == HEAD) {
            return Ok(());
        }
        let Some(Parameter { shape, range, .. }) = self.missing.remove(name) else {
            let detail =
                format!("checkpoint must hold only this architecture's tensors, once each: got {name:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        };
        if tensor.shape() != shape {
            let detail = format!("checkpoint's {name:?} must have shape {shape:?}: got {:?}", tensor.shape());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let values = match tensor.dtype() {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => tensor.to(Dtype::F32)?,
            dtype => {
                let detail = format!(
                    "checkpoint's {name:?} must be float32, float16 or bfloat16: got {}",
                    dtype.name()
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        let values = values.as_f32()?;
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            let detail = format!("checkpoint's {name:?} must be finite: got {} at {index}", values[index]);
            return Err(Error::new(ErrorKind::NonFinite, detail));
        }
        self.buffer[range.clone()].copy_from_slice(values);
        Ok(())
    }

    /// Returns the buffer, after checking that every tensor was read.
    ///
    /// # Errors
    /// `Incompatible`, naming a missing tensor.
    pub(crate) fn finish(self) -> Result<Vec<f32>> {
        match self.missing.first_key_value() {
            None => Ok(self.buffer),
            Some((name, Parameter { shape, .. })) => {
                let detail = format!("checkpoint must hold {name:?} of shape {shape:?}: got no such tensor");
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }
}

/// Adds the weight of a projection to the list.
fn linear(
    add: &mut impl FnMut(&str, &[usize]) -> Range<usize>,
    block: &'static str,
    name: &'static str,
    [outputs, inputs]: [usize; 2],
) -> Linear {
    let weight = add(&format!("{block}.{name}.weight"), &[outputs, inputs]);
    Linear { block, name, weight, inputs, outputs }
}

#[derive(Default)]
struct Listing {
    parameters: Vec<Parameter>,
    len: usize,
}

impl Listing {
    fn add(&mut self, name: String, shape: &[usize]) -> Range<usize> {
        let range = self.len..self.len + shape.iter().product::<usize>();
        self.len = range.end;
        self.parameters.push(Parameter { name, shape: shape.to_vec(), range: range.clone() });
        range
    }
}
