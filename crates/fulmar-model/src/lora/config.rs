//! The options of an adapter: the file `adapter_config.json`.

use std::fmt::Display;

use fulmar_core::{Error, ErrorKind, Result, nearest_name, options_from_json};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::config::ScalarHead;
use crate::parameters::{Layout, Linear};

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

    pub(super) fn scaling(&self) -> f32 {
        let rank = self.r as f64;
        (self.lora_alpha / if self.use_rslora { libm::sqrt(rank) } else { rank }) as f32
    }

    /// Refuses options that training a new adapter would ignore.
    pub(super) fn check_fresh(&self) -> Result<()> {
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
    pub(super) fn check_file(&self) -> Result<()> {
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

    pub(super) fn check(&self, layout: &Layout) -> Result<()> {
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
    pub(super) fn check_rank(&self, linear: &Linear) -> Result<()> {
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
