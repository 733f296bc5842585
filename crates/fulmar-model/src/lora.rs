//! Low-rank adapters (Hu et al., <https://arxiv.org/abs/2106.09685>). A frozen projection `x W^T` gets the
//! trained term `s (x A^T) B^T` with A `[r, in]`, B `[out, r]` and `s = alpha / r`, or `alpha / sqrt(r)` for
//! rank-stabilised ones (<https://arxiv.org/abs/2312.03732>). Files are in PEFT's format.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

use fulmar_compute::{Compute, Floats, MatRef, Memory};
use fulmar_core::{Error, ErrorKind, Result, Rng, nearest_name, options_from_json};
use fulmar_tensor::safetensors;
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::config::ScalarHead;
use crate::parameters::{self, Layout, Linear, Parameter, ScalarRanges};
use crate::weights::Weights;

/// The options of an adapter. The names are those of PEFT's `adapter_config.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoraConfig {
    /// Rank, from 1 to the narrower side of each projection.
    pub r: usize,
    /// Strength, > 0: the factor of the product is `lora_alpha / r`.
    pub lora_alpha: f64,
    /// If true, the factor is `lora_alpha / sqrt(r)` instead.
    pub use_rslora: bool,
    /// Projections with an adapter: names such as `q_proj`, `mlp.up_proj` or
    /// `model.layers.0.self_attn.q_proj`. In JSON it may be a text instead: [`LoraConfig::target_pattern`].
    pub target_modules: Vec<String>,
    /// A regular expression for whole names of projections, in place of `target_modules`; `all-linear` means
    /// all projections.
    #[serde(skip)]
    pub target_pattern: Option<String>,
    /// Projections without an adapter although they are targets, named as in `target_modules`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list_or_null")]
    pub exclude_modules: Vec<String>,
    /// The same as a regular expression.
    #[serde(skip)]
    pub exclude_pattern: Option<String>,
    /// The adapted layers. Defaults to all.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "one_or_several")]
    pub layers_to_transform: Option<Vec<usize>>,
    /// Share of inputs that PEFT drops in training; not supported, so it must be 0 for an adapter that is
    /// trained from scratch.
    pub lora_dropout: f64,
    /// Initialisation of the matrices: `true` is as in PEFT (A uniform, B 0). For a trained file, a value
    /// that leaves the base unchanged.
    pub init_lora_weights: Value,
    /// The base model of the adapter: its name on the hub, or its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_model_name_or_path: Option<String>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            r: 8,
            lora_alpha: 8.0,
            use_rslora: false,
            target_modules: vec!["q_proj".to_owned(), "v_proj".to_owned()],
            target_pattern: None,
            exclude_modules: Vec::new(),
            exclude_pattern: None,
            layers_to_transform: None,
            lora_dropout: 0.0,
            init_lora_weights: Value::Bool(true),
            base_model_name_or_path: None,
        }
    }
}

fn list_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// PEFT writes a single layer as a number.
fn one_or_several<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Vec<usize>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "an index of a layer or a list of them")]
    enum Layers {
        One(usize),
        Several(Vec<usize>),
    }
    Ok(Option::deserialize(deserializer)?.map(|layers| match layers {
        Layers::One(layer) => vec![layer],
        Layers::Several(layers) => layers,
    }))
}

impl LoraConfig {
    /// Reads an `adapter_config.json`. Ignores keys that change neither sums nor training, such as
    /// `task_type`, and disabled keys of other versions of PEFT.
    ///
    /// # Errors
    /// `Malformed` if the text is not of that form; `Incompatible`, naming the key, for an unsupported
    /// variant; `UnknownName` for a key that PEFT does not have.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut value: Map<String, Value> = options_from_json("adapter config", text)?;
        for (key, value) in &value {
            check_key(key, value)?;
        }
        let mut pattern = |key: &str| match value.get(key) {
            Some(Value::String(_)) => value.remove(key).and_then(|text| Some(text.as_str()?.to_owned())),
            _ => None,
        };
        let (target_pattern, exclude_pattern) = (pattern("target_modules"), pattern("exclude_modules"));
        let mut config: Self = options_from_json("adapter config", &Value::Object(value).to_string())?;
        if target_pattern.is_some() {
            config.target_modules.clear();
        }
        (config.target_pattern, config.exclude_pattern) = (target_pattern, exclude_pattern);
        Ok(config)
    }

    /// Returns the config in PEFT's format.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.to_json_beside(None)
    }

    /// Returns [`LoraConfig::to_json`] for an adapter that is trained with a scalar head.
    pub(crate) fn to_json_beside(&self, head: Option<ScalarHead>) -> String {
        let (task, saved) = match head {
            None => ("CAUSAL_LM", Value::Null),
            Some(ScalarHead::Score) => ("SEQ_CLS", serde_json::json!(["score"])),
            Some(ScalarHead::VHead) => ("CAUSAL_LM", serde_json::json!(["v_head"])),
        };
        let mut value = serde_json::json!({
            "peft_type": "LORA", "task_type": task, "modules_to_save": saved, "base_model_name_or_path": null, "bias": "none",
            "fan_in_fan_out": false, "inference_mode": true
        });
        if let (Value::Object(all), Ok(Value::Object(ours))) = (&mut value, serde_json::to_value(self)) {
            all.extend(ours);
            let patterns =
                [("target_modules", &self.target_pattern), ("exclude_modules", &self.exclude_pattern)];
            for (key, pattern) in patterns {
                if let Some(pattern) = pattern {
                    all.insert(key.to_owned(), pattern.clone().into());
                }
            }
        }
        format!("{value:#}")
    }

    fn scaling(&self) -> f32 {
        let rank = self.r as f64;
        (self.lora_alpha / if self.use_rslora { libm::sqrt(rank) } else { rank }) as f32
    }

    /// Refuses options that training a new adapter would ignore.
    fn check_fresh(&self) -> Result<()> {
        let refused = |key: &str, rule: &str, value: &dyn Display| {
            Err(Error::new(ErrorKind::Incompatible, format!("{key} must be {rule}: got {value}")))
        };
        if self.lora_dropout != 0.0 {
            return refused("lora_dropout", "0, as dropout is not built", &self.lora_dropout);
        }
        if self.init_lora_weights != Value::Bool(true) {
            return refused("init_lora_weights", "true", &self.init_lora_weights);
        }
        Ok(())
    }

    /// Refuses a file with a modified base model.
    fn check_file(&self) -> Result<()> {
        let leave_the_base = ["true", "false", "\"gaussian\"", "\"eva\"", "\"orthogonal\""];
        if leave_the_base.contains(&self.init_lora_weights.to_string().as_str()) {
            return Ok(());
        }
        let detail = format!(
            "init_lora_weights must be one of {}, which leave the weights of the base as they are: got {}",
            leave_the_base.join(", "),
            self.init_lora_weights
        );
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    fn check(&self, layout: &Layout) -> Result<()> {
        let out_of_range = |detail: String| Err(Error::new(ErrorKind::OutOfRange, detail));
        if !(self.lora_alpha.is_finite() && self.lora_alpha > 0.0) {
            return out_of_range(format!("lora_alpha must be > 0: got {}", self.lora_alpha));
        }
        let num_layers = layout.layers.len();
        let layers = self.layers_to_transform.iter().flatten();
        if let Some(layer) = layers.copied().find(|layer| *layer >= num_layers) {
            return out_of_range(format!("layers_to_transform must be below {num_layers}: got {layer}"));
        }
        if self.layers_to_transform.is_some() && self.target_pattern.is_some() {
            let detail = "layers_to_transform must not be given where target_modules is a text: name the layers in its pattern";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(())
    }
}

impl LoraConfig {
    fn check_rank(&self, linear: &Linear) -> Result<()> {
        let most = linear.inputs.min(linear.outputs);
        if (1..=most).contains(&self.r) {
            return Ok(());
        }
        let detail =
            format!("r must be from 1 to {most}, the narrower side of {}: got {}", linear.name, self.r);
        Err(Error::new(ErrorKind::OutOfRange, detail))
    }
}

/// Keys of a file that change sums or training, with the JSON of the values that do not.
const PLAIN: [(&str, &[&str]); 19] = [
    ("peft_type", &["\"LORA\""]),
    ("bias", &["\"none\""]),
    ("use_dora", &["false", "null"]),
    ("use_qalora", &["false", "null"]),
    ("use_bdlora", &["false", "null"]),
    ("fan_in_fan_out", &["false", "null"]),
    ("lora_bias", &["false", "null"]),
    ("ensure_weight_tying", &["false", "null"]),
    ("rank_pattern", &["{}", "null"]),
    ("alpha_pattern", &["{}", "null"]),
    ("loftq_config", &["{}", "null"]),
    // A scalar head; reading the tensors shows whether the model has it.
    ("modules_to_save", &["null", "[]", "[\"score\"]", "[\"v_head\"]"]),
    ("target_parameters", &["null", "[]"]),
    ("trainable_token_indices", &["null", "[]", "{}"]),
    ("layer_replication", &["null", "[]"]),
    ("layers_pattern", &["null", "[]", "\"layers\"", "[\"layers\"]"]),
    ("alora_invocation_tokens", &["null", "[]"]),
    ("exclude_modules", &[]),
    ("layers_to_transform", &[]),
];

/// Keys of a file that describe its origin: they change nothing here.
const NOTES: [&str; 11] = [
    "task_type",
    "inference_mode",
    "base_model_name_or_path",
    "revision",
    "peft_version",
    "auto_mapping",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
    "base_model_class",
    "parent_library",
];

/// Keys that [`LoraConfig`] has.
const OURS: [&str; 6] =
    ["r", "lora_alpha", "use_rslora", "target_modules", "lora_dropout", "init_lora_weights"];

/// Refuses a key that would be ignored though it changes sums or training.
fn check_key(key: &str, value: &Value) -> Result<()> {
    if let Some((_, plain)) = PLAIN.iter().find(|(known, _)| *known == key) {
        let text = value.to_string();
        if plain.is_empty() || plain.contains(&text.as_str()) {
            return Ok(());
        }
        let detail = format!("{key} must be {}: got {text}", plain[0]);
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    let is_off = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if is_off || OURS.contains(&key) || NOTES.contains(&key) {
        return Ok(());
    }
    let known: Vec<&str> = OURS.into_iter().chain(PLAIN.iter().map(|(known, _)| *known)).collect();
    let hint = nearest_name(key, &known).map(|nearest| format!(": did you mean '{nearest}'?"));
    let detail = format!("adapter config.{key} must be a known key{}", hint.unwrap_or_default());
    Err(Error::new(ErrorKind::UnknownName, detail))
}

/// Selects the projections with an adapter, by the rules of PEFT.
struct Targets<'a> {
    config: &'a LoraConfig,
    pattern: Option<Regex>,
    excluded: Option<Regex>,
}

impl<'a> Targets<'a> {
    fn new(config: &'a LoraConfig) -> Result<Self> {
        let pattern = match config.target_pattern.as_deref() {
            Some("all-linear") => Some(r".*\.layers\.\d+\..*"),
            pattern => pattern,
        };
        Ok(Self {
            config,
            pattern: pattern.map(|pattern| whole_match("target_modules", pattern)).transpose()?,
            excluded: config
                .exclude_pattern
                .as_deref()
                .map(|pattern| whole_match("exclude_modules", pattern))
                .transpose()?,
        })
    }

    /// Returns whether the module called `name` has an adapter; `layer` is its layer, if it is in one.
    fn holds(&self, name: &str, layer: Option<usize>) -> bool {
        let is_listed = |names: &[String]| names.iter().any(|listed| names_module(listed, name));
        let is_excluded = is_listed(&self.config.exclude_modules)
            || self.excluded.as_ref().is_some_and(|pattern| pattern.is_match(name));
        let is_target = match &self.pattern {
            Some(pattern) => pattern.is_match(name),
            None => is_listed(&self.config.target_modules),
        };
        let layers = self.config.layers_to_transform.as_ref();
        is_target
            && !is_excluded
            && layers.is_none_or(|layers| layer.is_some_and(|layer| layers.contains(&layer)))
    }

    /// Refuses targets that are not projections of layers, and a list or a pattern that selects none.
    fn check(&self, layout: &Layout) -> Result<()> {
        let unknown = |detail: String| Err(Error::new(ErrorKind::UnknownName, detail));
        let known: Vec<&str> = layout
            .layers
            .first()
            .map_or_else(Vec::new, |layer| layer.linears().iter().map(|linear| linear.name).collect());
        let modules: Vec<String> =
            layout.layers.iter().enumerate().flat_map(|(index, layer)| layer.module_names(index)).collect();
        if let Some(target) = self
            .config
            .target_modules
            .iter()
            .find(|target| !modules.iter().any(|name| names_module(target, name)))
        {
            let nearest = nearest_name(target, &known).map(|nearest| format!("; did you mean '{nearest}'?"));
            let names = known.join(", ");
            return unknown(format!(
                "target_modules must be of {names}: got {target:?}{}",
                nearest.unwrap_or_default()
            ));
        }
        let others = layout.parameters.iter().filter_map(|parameter| parameter.name.strip_suffix(".weight"));
        let pattern =
            self.pattern.as_ref().filter(|_| self.config.target_pattern.as_deref() != Some("all-linear"));
        let is_other = |name: &&str| !modules.iter().any(|module| module == name) && self.holds(name, None);
        if let (Some(pattern), Some(name)) = (pattern, others.clone().find(is_other)) {
            return unknown(format!(
                "target_modules must match projections of layers only: {:?} matches {name:?}",
                pattern.as_str()
            ));
        }
        if self.config.target_modules.is_empty() && self.pattern.is_none() {
            return Err(Error::new(
                ErrorKind::Empty,
                "target_modules must name at least one projection: got 0",
            ));
        }
        let is_any =
            layout.layers.iter().enumerate().any(|(index, layer)| {
                layer.module_names(index).iter().any(|name| self.holds(name, Some(index)))
            });
        if !is_any {
            return Err(Error::new(
                ErrorKind::Empty,
                "target_modules, less exclude_modules and other layers, must leave a projection",
            ));
        }
        Ok(())
    }
}

/// Returns whether PEFT applies `listed` to the module called `name`: its whole name, or the end of it.
fn names_module(listed: &str, name: &str) -> bool {
    name.strip_suffix(listed).is_some_and(|start| start.is_empty() || start.ends_with('.'))
}

/// Returns a pattern that must match a whole name, like Python's `re.fullmatch`.
fn whole_match(key: &str, pattern: &str) -> Result<Regex> {
    RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(PATTERN_BYTES_MAX).build().map_err(|_| {
        let detail = format!(
            "{key} must be a regular expression without look-around and back-references: got {pattern:?}"
        );
        Error::new(ErrorKind::Malformed, detail)
    })
}

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The two matrices of one projection.
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
    /// The scalar head that is trained with the adapter, in `weights`; the model's own is unchanged.
    pub scalar: Option<ScalarRanges>,
}

impl Lora {
    /// Returns an adapter of `weights` that changes nothing yet: A is uniform within `1 / sqrt(in)` as in
    /// PEFT, B is 0.
    pub(crate) fn new(config: LoraConfig, layout: &Layout, weights: Floats<'_>, seed: u64) -> Result<Self> {
        config.check_fresh()?;
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
        let targets = Targets::new(&config)?;
        targets.check(layout)?;
        let (mut parameters, mut pairs, mut len) = (Vec::new(), Vec::new(), 0);
        for (index, layer) in layout.layers.iter().enumerate() {
            let mut of_layer = BTreeMap::new();
            for linear in layer.linears() {
                if !targets.holds(&linear.module_name(index), Some(index)) {
                    continue;
                }
                config.check_rank(linear)?;
                let mut add = |end: &str, shape: [usize; 2]| {
                    let range = len..len + shape[0] * shape[1];
                    len = range.end;
                    let name = format!("{PREFIX}{}{end}", linear.module_name(index));
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

    /// Returns the ranges of the tensors of the scalar head, here and in the model.
    fn scalar_tensors(&self, layout: &Layout) -> Vec<(Range<usize>, Range<usize>)> {
        let (Some(ours), Some(theirs)) = (&self.scalar, &layout.scalar) else { return Vec::new() };
        let biases = ours.bias.clone().zip(theirs.bias.clone());
        std::iter::once((ours.weight.clone(), theirs.weight.clone())).chain(biases).collect()
    }

    /// Returns the adapter from the bytes of PEFT's two files.
    pub(crate) fn read(config: LoraConfig, layout: &Layout, bytes: &[u8]) -> Result<Self> {
        Self::of_file(config, layout, &safetensors::read(bytes)?)
    }

    /// Returns the adapter from PEFT's two files, one already parsed.
    pub(crate) fn of_file(config: LoraConfig, layout: &Layout, file: &safetensors::File) -> Result<Self> {
        config.check_file()?;
        let mut lora = Self::blank(config, layout)?;
        lora.weights = parameters::read(&lora.parameters, file)?.into();
        Ok(lora)
    }

    /// Returns the weights as PEFT's `adapter_model.safetensors`.
    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        parameters::write(&self.parameters, Floats::F32(&self.weights))
    }

    /// Returns the projections of one layer.
    pub(crate) fn layer(&self, index: usize) -> LayerLora<'_> {
        LayerLora {
            pairs: &self.pairs[index],
            weights: &self.weights,
            scaling: self.config.scaling(),
            rank: self.config.r,
            compute: self.weights.compute(),
        }
    }

    /// Adds `s B A` to each adapted projection of `weights`, and copies the scalar head into its place.
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
    /// Computes `out += s (input A^T) B^T` if `linear` has an adapter.
    pub(crate) fn forward(&self, linear: &Linear, input: &[f32], out: &mut [f32]) {
        let Some(Pair { b, .. }) = self.pairs.get(linear.name) else { return };
        let inner = self.inner(linear, input);
        let b = MatRef::new(&self.weights[b.clone()], linear.outputs, self.rank).transposed();
        self.compute.matmul(out, MatRef::new(&inner, inner.len() / self.rank, self.rank), b, true);
    }

    /// Adds the gradient through the adapter of `linear` to `d_in`, and the gradients of its matrices to
    /// `gradients`.
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

    /// Returns `s input A^T`, `[rows, r]`.
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
            (of(1, 1.0, &[]), "target_modules must name at least one projection: got 0"),
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
        for (key, value) in [
            ("use_dora", "true"),
            ("bias", "\"all\""),
            ("rank_pattern", "{\"q_proj\": 2}"),
            ("target_parameters", "[\"mlp.experts\"]"),
            ("layers_pattern", "\"h\""),
            ("modules_to_save", "[\"lm_head\"]"),
        ] {
            let text = format!("{{\"r\": 4, \"{key}\": {value}}}");
            let error = LoraConfig::from_json(&text).unwrap_err();
            assert!(error.kind() == ErrorKind::Incompatible && error.detail().starts_with(key), "{error}");
        }
    }

    fn names(text: &str) -> std::result::Result<Vec<String>, (ErrorKind, String)> {
        let lora =
            LoraConfig::from_json(text).and_then(|config| Lora::new(config, &layout(), Floats::F32(&[]), 0));
        let lora = lora.map_err(|error| (error.kind(), error.detail().to_owned()))?;
        let a = lora.parameters.iter().filter_map(|parameter| parameter.name.strip_suffix(LORA_A));
        Ok(a.map(|name| name.trim_start_matches(PREFIX).trim_start_matches("model.layers.").to_owned())
            .collect())
    }

    #[test]
    fn projections_are_chosen_by_the_rules_of_peft() {
        for (text, expected) in [
            (r#"{"r": 1, "target_modules": ["o_proj"]}"#, &["0.self_attn.o_proj", "1.self_attn.o_proj"][..]),
            (
                r#"{"r": 1, "target_modules": "model\\.layers\\.1\\.mlp\\.(up|gate)_proj"}"#,
                &["1.mlp.gate_proj", "1.mlp.up_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj", "o_proj"], "layers_to_transform": [1]}"#,
                &["1.self_attn.q_proj", "1.self_attn.o_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "layers_to_transform": 0, "layers_pattern": "layers"}"#,
                &["0.self_attn.q_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["model.layers.1.self_attn.q_proj", "mlp.up_proj"], "exclude_modules": ["layers.0.mlp.up_proj"]}"#,
                &["1.self_attn.q_proj", "1.mlp.up_proj"],
            ),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "exclude_modules": ".*\\.1\\..*"}"#,
                &["0.self_attn.q_proj"],
            ),
        ] {
            let found = names(text).unwrap();
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{text}");
            let config = LoraConfig::from_json(text).unwrap();
            assert_eq!(LoraConfig::from_json(&config.to_json()), Ok(config), "{text}");
        }
        assert_eq!(names(r#"{"r": 1, "target_modules": "all-linear"}"#).unwrap().len(), 14);
    }

    #[test]
    fn what_peft_would_do_and_we_do_not_is_refused_by_its_key() {
        for (text, kind, word) in [
            (r#"{"lora_dropout": 0.1}"#, ErrorKind::Incompatible, "lora_dropout"),
            (r#"{"init_lora_weights": "pissa"}"#, ErrorKind::Incompatible, "init_lora_weights"),
            (r#"{"target_modules": ".*"}"#, ErrorKind::UnknownName, "embed_tokens"),
            (r#"{"target_modules": "(?=q_proj).*"}"#, ErrorKind::Malformed, "regular expression"),
            (
                r#"{"r": 1, "target_modules": ".*q_proj", "layers_to_transform": [0]}"#,
                ErrorKind::Incompatible,
                "layers_to_transform",
            ),
            (r#"{"r": 1, "layers_to_transform": [2]}"#, ErrorKind::OutOfRange, "layers_to_transform"),
            (
                r#"{"r": 1, "target_modules": ["q_proj"], "exclude_modules": ["q_proj"]}"#,
                ErrorKind::Empty,
                "exclude_modules",
            ),
            (r#"{"r": 1, "target_modules": "nothing"}"#, ErrorKind::Empty, "target_modules"),
            (r#"{"r": 1, "target_modules": ["query_proj"]}"#, ErrorKind::UnknownName, "target_modules"),
            (r#"{"lora_aplha": 3}"#, ErrorKind::UnknownName, "did you mean 'lora_alpha'"),
            (r#"{"brand_new_trick": 3}"#, ErrorKind::UnknownName, "brand_new_trick"),
            (r#"{"r": "four"}"#, ErrorKind::Malformed, "adapter config.r must be an integer >= 0"),
        ] {
            let (found, detail) = names(text).unwrap_err();
            assert!(found == kind && detail.contains(word), "{text}: {found:?} {detail}");
        }
        let newer = r#"{"r": 1, "task_type": "CAUSAL_LM", "brand_new_trick": false, "another": null}"#;
        assert_eq!(names(newer).unwrap().len(), 4, "keys of newer versions that are off change nothing");
    }

    #[test]
    fn a_trained_file_may_have_dropout_but_no_other_base() {
        let trained =
            Lora::new(LoraConfig { r: 1, ..LoraConfig::default() }, &layout(), Floats::F32(&[]), 0).unwrap();
        let bytes = trained.write().unwrap();
        let read = |text: &str| Lora::read(LoraConfig::from_json(text).unwrap(), &layout(), &bytes);
        assert!(read(r#"{"r": 1, "lora_dropout": 0.05, "init_lora_weights": "gaussian"}"#).is_ok());
        for init in ["pissa", "pissa_niter_4", "olora", "corda", "loftq"] {
            let error = read(&format!(r#"{{"r": 1, "init_lora_weights": "{init}"}}"#)).unwrap_err();
            assert!(
                error.detail().starts_with("init_lora_weights") && error.detail().contains(init),
                "{error}"
            );
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
