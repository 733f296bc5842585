//! Low-rank adapters (Hu et al., <https://arxiv.org/abs/2106.09685>): beside a frozen projection `x W^T`, a trained
//! `s (x A^T) B^T` with A `[r, in]`, B `[out, r]` and `s = alpha / r`, or `alpha / sqrt(r)` for rank-stabilised ones
//! (<https://arxiv.org/abs/2312.03732>). Files are PEFT's.

use std::collections::BTreeMap;
use std::ops::Range;

use fulmar_compute::{Compute, Floats, MatRef, Memory};
use fulmar_core::{Error, ErrorKind, Result, Rng, options_from_json};
use fulmar_tensor::safetensors;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::ScalarHead;
use crate::parameters::{self, Layout, Linear, Parameter, ScalarRanges};
use crate::weights::Weights;

/// What is adapted, and how strongly. The names are those of PEFT's `adapter_config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoraConfig {
    /// Rank, from 1 to the narrower side of each projection.
    pub r: usize,
    /// Strength, > 0: the product counts `lora_alpha / r` times.
    pub lora_alpha: f64,
    /// Whether it counts `lora_alpha / sqrt(r)` times instead.
    pub use_rslora: bool,
    /// Projections that have one: of `q_proj`, `k_proj`, `v_proj`, `o_proj`, `gate_proj`, `up_proj`, `down_proj`.
    pub target_modules: Vec<String>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        let target_modules = vec!["q_proj".to_owned(), "v_proj".to_owned()];
        Self { r: 8, lora_alpha: 8.0, use_rslora: false, target_modules }
    }
}

impl LoraConfig {
    /// Reads an `adapter_config.json`; keys that concern training alone are ignored.
    ///
    /// # Errors
    /// `Malformed` if the text is not of that form; `Incompatible`, naming the key, for a variant that is not built.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = options_from_json("adapter config", text)?;
        for (key, plain) in PLAIN {
            if value.get(key).is_some_and(|value| !plain.contains(&value.to_string().as_str())) {
                let detail = format!("{key} must be {}: got {}", plain[0], value[key]);
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        options_from_json("adapter config", text)
    }

    /// The same in the form that PEFT reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.to_json_beside(None)
    }

    /// As [`LoraConfig::to_json`], for an adapter with which a scalar head is trained.
    pub(crate) fn to_json_beside(&self, head: Option<ScalarHead>) -> String {
        let (task, saved) = match head {
            None => ("CAUSAL_LM", Value::Null),
            Some(ScalarHead::Score) => ("SEQ_CLS", serde_json::json!(["score"])),
            Some(ScalarHead::VHead) => ("CAUSAL_LM", serde_json::json!(["v_head"])),
        };
        let mut value = serde_json::json!({
            "peft_type": "LORA", "task_type": task, "modules_to_save": saved, "base_model_name_or_path": null, "bias": "none",
            "fan_in_fan_out": false, "lora_dropout": 0.0, "inference_mode": true
        });
        if let (Value::Object(all), Ok(Value::Object(ours))) = (&mut value, serde_json::to_value(self)) {
            all.extend(ours);
        }
        format!("{value:#}")
    }

    fn scaling(&self) -> f32 {
        let rank = self.r as f64;
        (self.lora_alpha / if self.use_rslora { libm::sqrt(rank) } else { rank }) as f32
    }

    fn check(&self, layout: &Layout) -> Result<()> {
        let out_of_range = |detail: String| Err(Error::new(ErrorKind::OutOfRange, detail));
        if !(self.lora_alpha.is_finite() && self.lora_alpha > 0.0) {
            return out_of_range(format!("lora_alpha must be > 0: got {}", self.lora_alpha));
        }
        let known: Vec<&Linear> =
            layout.layers.first().map(|layer| layer.linears().to_vec()).unwrap_or_default();
        for target in &self.target_modules {
            let Some(linear) = known.iter().find(|linear| linear.name == target) else {
                let names: Vec<&str> = known.iter().map(|linear| linear.name).collect();
                let detail = format!("target_modules must be of {}: got {target:?}", names.join(", "));
                return Err(Error::new(ErrorKind::UnknownName, detail));
            };
            let most = linear.inputs.min(linear.outputs);
            if self.r == 0 || self.r > most {
                return out_of_range(format!(
                    "r must be from 1 to {most}, the narrower side of {target}: got {}",
                    self.r
                ));
            }
        }
        if self.target_modules.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "target_modules must name a projection: got none"));
        }
        Ok(())
    }
}

/// Keys of a file whose other values change the sums, with the JSON of those that do not.
const PLAIN: [(&str, &[&str]); 9] = [
    ("peft_type", &["\"LORA\""]),
    ("bias", &["\"none\""]),
    ("use_dora", &["false", "null"]),
    ("fan_in_fan_out", &["false", "null"]),
    ("lora_bias", &["false", "null"]),
    ("rank_pattern", &["{}", "null"]),
    ("alpha_pattern", &["{}", "null"]),
    // A head that reads one number; whether the model has it shows when the tensors are read.
    ("modules_to_save", &["null", "[]", "[\"score\"]", "[\"v_head\"]"]),
    ("layers_to_transform", &["null"]),
];

/// The two matrices beside one projection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    a: Range<usize>,
    b: Range<usize>,
}

/// An adapter of a decoder: its weights in one buffer.
#[derive(Debug, Clone)]
pub(crate) struct Lora {
    pub config: LoraConfig,
    pub parameters: Vec<Parameter>,
    pub weights: Memory<f32>,
    /// By layer, then by projection.
    pairs: Vec<BTreeMap<&'static str, Pair>>,
    /// The scalar head that is trained with the adapter, in `weights`; the model's own stays as it was.
    pub scalar: Option<ScalarRanges>,
}

impl Lora {
    /// An adapter beside `weights` that changes nothing yet: A is uniform within `1 / sqrt(in)` as in PEFT, B is 0.
    pub(crate) fn new(config: LoraConfig, layout: &Layout, weights: Floats<'_>, seed: u64) -> Result<Self> {
        let mut lora = Self::blank(config, layout)?;
        for (ours, theirs) in lora.scalar_tensors(layout) {
            lora.weights[ours].copy_from_slice(&weights.slice(theirs).to_f32());
        }
        let rng = Rng::new(seed).stream("lora");
        for parameter in lora.parameters.iter().filter(|parameter| parameter.name.ends_with(LORA_A)) {
            let mut rng = rng.stream(&parameter.name);
            let bound = 1.0 / libm::sqrt(parameter.shape[1] as f64);
            lora.weights[parameter.range.clone()]
                .fill_with(|| ((2.0 * rng.uniform_f64() - 1.0) * bound) as f32);
        }
        Ok(lora)
    }

    fn blank(config: LoraConfig, layout: &Layout) -> Result<Self> {
        config.check(layout)?;
        let (mut parameters, mut pairs, mut len) = (Vec::new(), Vec::new(), 0);
        for (index, layer) in layout.layers.iter().enumerate() {
            let mut of_layer = BTreeMap::new();
            for linear in layer.linears() {
                if !config.target_modules.iter().any(|target| target == linear.name) {
                    continue;
                }
                let mut add = |end: &str, shape: [usize; 2]| {
                    let range = len..len + shape[0] * shape[1];
                    len = range.end;
                    let name = format!("{PREFIX}model.layers.{index}.{}.{}{end}", linear.block, linear.name);
                    parameters.push(Parameter { name, shape: shape.to_vec(), range: range.clone() });
                    range
                };
                let a = add(LORA_A, [config.r, linear.inputs]);
                let b = add(LORA_B, [linear.outputs, config.r]);
                of_layer.insert(linear.name, Pair { a, b });
            }
            pairs.push(of_layer);
        }
        let mut copy = |range: &Range<usize>| {
            let parameter = layout.parameters.iter().find(|parameter| parameter.range == *range)?;
            let range = len..len + range.len();
            len = range.end;
            let name = format!("{PREFIX}{}", parameter.name);
            parameters.push(Parameter { name, shape: parameter.shape.clone(), range: range.clone() });
            Some(range)
        };
        let scalar = layout.scalar.as_ref().and_then(|ScalarRanges { weight, bias }| {
            Some(ScalarRanges { weight: copy(weight)?, bias: bias.as_ref().and_then(&mut copy) })
        });
        Ok(Self { config, parameters, weights: vec![0.0; len].into(), pairs, scalar })
    }

    /// The tensors of the scalar head, here and in the model.
    fn scalar_tensors(&self, layout: &Layout) -> Vec<(Range<usize>, Range<usize>)> {
        let (Some(ours), Some(theirs)) = (&self.scalar, &layout.scalar) else { return Vec::new() };
        let biases = ours.bias.clone().zip(theirs.bias.clone());
        std::iter::once((ours.weight.clone(), theirs.weight.clone())).chain(biases).collect()
    }

    /// The adapter of PEFT's two files.
    pub(crate) fn read(config: LoraConfig, layout: &Layout, bytes: &[u8]) -> Result<Self> {
        let mut lora = Self::blank(config, layout)?;
        lora.weights = parameters::read(&lora.parameters, &safetensors::read(bytes)?)?.into();
        Ok(lora)
    }

    /// The weights as PEFT's `adapter_model.safetensors`.
    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        parameters::write(&self.parameters, Floats::F32(&self.weights))
    }

    /// The projections of one layer.
    pub(crate) fn layer(&self, index: usize) -> LayerLora<'_> {
        LayerLora {
            pairs: &self.pairs[index],
            weights: &self.weights,
            scaling: self.config.scaling(),
            rank: self.config.r,
            compute: self.weights.compute(),
        }
    }

    /// Adds `s B A` to each adapted projection of `weights`, and puts the scalar head into its place.
    pub(crate) fn merge(&self, layout: &Layout, weights: &mut Weights) {
        for (ours, theirs) in self.scalar_tensors(layout) {
            weights
                .change(theirs, self.weights.compute(), |theirs| theirs.copy_from_slice(&self.weights[ours]));
        }
        for (index, layer) in layout.layers.iter().enumerate() {
            let lora = self.layer(index);
            for linear in layer.linears() {
                let Some(Pair { a, b }) = lora.pairs.get(linear.name) else { continue };
                let scaled = lora.scaled(&self.weights[b.clone()]);
                let a = MatRef::new(&self.weights[a.clone()], lora.rank, linear.inputs);
                let b = MatRef::new(&scaled, linear.outputs, lora.rank);
                weights.change(linear.weight.clone(), lora.compute, |weight| {
                    lora.compute.matmul(weight, b, a, true);
                });
            }
        }
    }
}

const PREFIX: &str = "base_model.model.";
const LORA_A: &str = ".lora_A.weight";
const LORA_B: &str = ".lora_B.weight";

/// The adapter of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerLora<'a> {
    pairs: &'a BTreeMap<&'static str, Pair>,
    weights: &'a [f32],
    scaling: f32,
    rank: usize,
    compute: Compute,
}

impl LayerLora<'_> {
    /// `out += s (input A^T) B^T`, where `linear` has an adapter.
    pub(crate) fn forward(&self, linear: &Linear, input: &[f32], out: &mut [f32]) {
        let Some(Pair { b, .. }) = self.pairs.get(linear.name) else { return };
        let inner = self.inner(linear, input);
        let b = MatRef::new(&self.weights[b.clone()], linear.outputs, self.rank).transposed();
        self.compute.matmul(out, MatRef::new(&inner, inner.len() / self.rank, self.rank), b, true);
    }

    /// Adds to `d_in` what flows back through the adapter of `linear`, and to `gradients` those of its matrices.
    pub(crate) fn backward(
        &self,
        linear: &Linear,
        d_out: &[f32],
        input: &[f32],
        d_in: &mut [f32],
        gradients: &mut [f32],
    ) {
        let Some(Pair { a, b }) = self.pairs.get(linear.name) else { return };
        let rows = d_out.len() / linear.outputs;
        let inner = self.inner(linear, input);
        let d_out = MatRef::new(d_out, rows, linear.outputs);
        self.compute.matmul(
            &mut gradients[b.clone()],
            d_out.transposed(),
            MatRef::new(&inner, rows, self.rank),
            true,
        );
        let mut d_inner = vec![0.0; inner.len()];
        let scaled = self.scaled(&self.weights[b.clone()]);
        self.compute.matmul(&mut d_inner, d_out, MatRef::new(&scaled, linear.outputs, self.rank), false);
        let d_inner = MatRef::new(&d_inner, rows, self.rank);
        let input = MatRef::new(input, rows, linear.inputs);
        self.compute.matmul(&mut gradients[a.clone()], d_inner.transposed(), input, true);
        self.compute.matmul(
            d_in,
            d_inner,
            MatRef::new(&self.weights[a.clone()], self.rank, linear.inputs),
            true,
        );
    }

    /// `s input A^T`, `[rows, r]`.
    fn inner(&self, linear: &Linear, input: &[f32]) -> Vec<f32> {
        let Some(Pair { a, .. }) = self.pairs.get(linear.name) else { return Vec::new() };
        let rows = input.len() / linear.inputs;
        let mut inner = vec![0.0; rows * self.rank];
        let a = MatRef::new(&self.weights[a.clone()], self.rank, linear.inputs).transposed();
        self.compute.matmul(&mut inner, MatRef::new(input, rows, linear.inputs), a, false);
        self.scaled(&inner)
    }

    fn scaled(&self, values: &[f32]) -> Vec<f32> {
        let mut scaled = values.to_vec();
        self.compute.scale(&mut scaled, self.scaling);
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DecoderConfig;

    fn layout() -> Layout {
        let config = r#"{"model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1}"#;
        Layout::new(&DecoderConfig::from_json(config).unwrap())
    }

    #[test]
    fn what_an_adapter_cannot_be_is_refused_by_name() {
        let of = |r, lora_alpha, targets: &[&str]| {
            let target_modules = targets.iter().map(|name| (*name).to_owned()).collect();
            let config = LoraConfig { r, lora_alpha, target_modules, ..LoraConfig::default() };
            Lora::new(config, &layout(), Floats::F32(&[]), 0)
        };
        assert!(of(8, 1.0, &["q_proj", "gate_proj"]).is_ok());
        let cases = [
            (of(0, 1.0, &["q_proj"]), "r must be from 1 to 8, the narrower side of q_proj: got 0"),
            (of(3, 1.0, &["k_proj"]), "r must be from 1 to 2, the narrower side of k_proj: got 3"),
            (of(1, 0.0, &["q_proj"]), "lora_alpha must be > 0: got 0"),
            (of(1, 1.0, &[]), "target_modules must name a projection: got none"),
            (
                of(1, 1.0, &["lm_head"]),
                "target_modules must be of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj: got \"lm_head\"",
            ),
        ];
        for (refused, detail) in cases {
            assert_eq!(refused.unwrap_err().detail(), detail);
        }
    }

    #[test]
    fn variants_that_are_not_built_are_refused_and_ours_reads_back() {
        let config = LoraConfig { r: 4, use_rslora: true, ..LoraConfig::default() };
        assert_eq!(LoraConfig::from_json(&config.to_json()), Ok(config.clone()));
        assert_eq!(config.scaling(), 4.0);
        for (key, value) in [("use_dora", "true"), ("bias", "\"all\""), ("rank_pattern", "{\"q_proj\": 2}")] {
            let text = format!("{{\"r\": 4, \"{key}\": {value}}}");
            let error = LoraConfig::from_json(&text).unwrap_err();
            assert!(error.kind() == ErrorKind::Incompatible && error.detail().starts_with(key), "{error}");
        }
    }

    #[test]
    fn a_fresh_adapter_adds_nothing() {
        let lora =
            Lora::new(LoraConfig { r: 2, ..LoraConfig::default() }, &layout(), Floats::F32(&[]), 7).unwrap();
        let (input, mut out) = ([1.0; 8], [0.5; 8]);
        lora.layer(1).forward(&layout().layers[1].q, &input, &mut out);
        assert_eq!(out, [0.5; 8]);
        assert!(lora.weights.iter().any(|weight| *weight != 0.0), "or B could not learn");
    }
}
