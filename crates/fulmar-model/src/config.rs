//! The shape of a decoder, in the form of Hugging Face's `config.json`.

use fulmar_compute::{AttentionShape, RopeTable, rope_frequencies};
use fulmar_core::limits::{MODEL_LAYERS_MAX, MODEL_WIDTH_MAX, VOCAB_SIZE_MAX};
use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rope_parameters::{RopeParameters, RopeScaling};

/// The family of a decoder, which determines the parts of its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelType {
    /// Llama: no biases.
    Llama,
    /// Qwen2: biases on the query, key and value projections.
    Qwen2,
    /// Qwen3: no biases; each query and key head is normalised before it is rotated.
    Qwen3,
}

/// A head with one output from the residual stream, for values of tokens and rewards of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarHead {
    /// `score.weight` in place of the vocabulary head, as in transformers' models for sequence classification
    /// with one label.
    Score,
    /// `v_head.summary.weight` and `v_head.summary.bias` in addition to it, as in TRL's models with a value
    /// head.
    VHead,
}

/// The shape of a decoder. Field names are those of `config.json`; keys that do not concern the shape are ignored.
///
/// # Examples
/// ```
/// use fulmar_model::DecoderConfig;
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 97, "hidden_size": 64, "intermediate_size": 128,
///     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128
/// }"#)?;
/// assert_eq!(config.head_dim(), 16);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecoderConfig {
    /// The family.
    pub model_type: ModelType,
    /// Number of ids in the vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads.
    pub num_attention_heads: usize,
    /// Number of key/value heads; divides the query heads. Defaults to the number of query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_key_value_heads: Option<usize>,
    /// Width of a head, even. Defaults to hidden size / query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Length of the longest sequence.
    #[serde(default = "default_positions")]
    pub max_position_embeddings: usize,
    /// Added to the mean square of a normalisation.
    #[serde(default = "default_eps")]
    pub rms_norm_eps: f64,
    /// Base of the rotary angles, in the format before transformers 5. Defaults to 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// The same in the format of transformers 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    /// Scaling of long contexts, in the format before transformers 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// If true, the output head is the embedding table.
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// The activation of the gate; only `silu` is supported.
    #[serde(default = "default_activation")]
    pub hidden_act: String,
    /// If true, attention has biases; not supported.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attention_bias: bool,
    /// If true, the feed-forward layer has biases; not supported.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mlp_bias: bool,
    /// If true, some layers attend to the last tokens only; not supported.
    #[serde(default, skip_serializing_if = "is_false")]
    pub use_sliding_window: bool,
    /// Standard deviation of new weights.
    #[serde(default = "default_range")]
    pub initializer_range: f64,
    /// Transformers' class of the model: one for sequence classification means [`ScalarHead::Score`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// The scalar head. TRL writes no key for it: put `"scalar_head": "v_head"` into its `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalar_head: Option<ScalarHead>,
    /// All other keys of the file, such as `eos_token_id`, which saved folders keep. The dtype is excluded,
    /// as the weights determine it.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The keys by which transformers marks a model with one label.
fn one_label() -> [(&'static str, Value); 2] {
    [("id2label", serde_json::json!({ "0": "LABEL_0" })), ("label2id", serde_json::json!({ "LABEL_0": 0 }))]
}

const fn default_positions() -> usize {
    2048
}

fn default_activation() -> String {
    "silu".to_owned()
}

const fn is_false(value: &bool) -> bool {
    !*value
}

const fn default_eps() -> f64 {
    1e-6
}

const fn default_range() -> f64 {
    0.02
}

impl DecoderConfig {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// `Malformed` if the text is not JSON of that form; `UnknownName` for an unsupported family;
    /// `OutOfRange` or `LimitExceeded` for an impossible shape; `Incompatible` for an unsupported rotary
    /// scaling.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut config: Self = options_from_json("config", text)?;
        for dtype in ["torch_dtype", "dtype"] {
            config.others.shift_remove(dtype);
        }
        if config.scalar_head.is_none() && config.is_classifier() {
            config.scalar_head = Some(ScalarHead::Score);
        }
        if config.scalar_head == Some(ScalarHead::Score) {
            // Keys that `to_json` adds.
            for (key, plain) in one_label() {
                if config.others.get(key) == Some(&plain) {
                    config.others.shift_remove(key);
                }
            }
        }
        config.checked()
    }

    /// Returns the JSON form, which [`DecoderConfig::from_json`] and transformers read.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let (Some(ScalarHead::Score), Some(fields)) = (self.scalar_head, value.as_object_mut()) {
            for (key, plain) in one_label() {
                fields.entry(key).or_insert(plain);
            }
        }
        format!("{value:#}")
    }

    /// Returns the same shape with a scalar head.
    pub(crate) fn with_scalar_head(&self, head: ScalarHead) -> Self {
        let config = Self { scalar_head: Some(head), ..self.clone() };
        Self { architectures: vec![config.architecture()], ..config }
    }

    /// Returns transformers' class of a model of this family and head.
    pub(crate) fn architecture(&self) -> String {
        let family = match self.model_type {
            ModelType::Llama => "Llama",
            ModelType::Qwen2 => "Qwen2",
            ModelType::Qwen3 => "Qwen3",
        };
        let class = match self.scalar_head {
            Some(ScalarHead::Score) => "ForSequenceClassification",
            Some(ScalarHead::VHead) | None => "ForCausalLM",
        };
        format!("{family}{class}")
    }

    /// Returns whether transformers' class is one for sequence classification.
    fn is_classifier(&self) -> bool {
        self.architectures.iter().any(|class| class.ends_with("ForSequenceClassification"))
    }

    /// Returns the same config after checking its shape.
    ///
    /// # Errors
    /// The errors of [`DecoderConfig::from_json`], naming the field.
    pub fn checked(mut self) -> Result<Self> {
        let sizes = [
            ("vocab_size", self.vocab_size, VOCAB_SIZE_MAX),
            ("hidden_size", self.hidden_size, MODEL_WIDTH_MAX),
            ("intermediate_size", self.intermediate_size, MODEL_WIDTH_MAX),
            ("num_hidden_layers", self.num_hidden_layers, MODEL_LAYERS_MAX),
            ("num_attention_heads", self.num_attention_heads, MODEL_WIDTH_MAX),
            ("num_key_value_heads", self.num_kv_heads(), MODEL_WIDTH_MAX),
            ("head_dim", self.head_dim(), MODEL_WIDTH_MAX),
            ("max_position_embeddings", self.max_position_embeddings, u32::MAX as usize),
        ];
        for (name, value, max) in sizes {
            if value == 0 {
                return Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be >= 1: got 0")));
            }
            if value > max {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("{name} must be <= {max}: got {value}"),
                ));
            }
        }
        self.check_relations()?;
        if self.model_type == ModelType::Qwen3 {
            // transformers defaults to 128 if a file of this family does not set it.
            self.head_dim = Some(self.head_dim());
        }
        Ok(self)
    }

    fn check_relations(&self) -> Result<()> {
        let out_of_range = |detail: String| Err(Error::new(ErrorKind::OutOfRange, detail));
        let (heads, kv_heads, head_dim) = (self.num_attention_heads, self.num_kv_heads(), self.head_dim());
        if !heads.is_multiple_of(kv_heads) {
            return out_of_range(format!(
                "num_attention_heads must be a multiple of num_key_value_heads ({kv_heads}): got {heads}"
            ));
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(heads) {
            let hidden = self.hidden_size;
            return out_of_range(format!(
                "hidden_size must be a multiple of num_attention_heads ({heads}): got {hidden}"
            ));
        }
        if !head_dim.is_multiple_of(2) {
            return out_of_range(format!("head_dim must be even: got {head_dim}"));
        }
        let positive = [("rms_norm_eps", self.rms_norm_eps), ("rope_theta", self.theta())];
        if let Some((name, value)) =
            positive.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0))
        {
            return out_of_range(format!("{name} must be a positive number: got {value}"));
        }
        self.check_parts()?;
        self.rope_scaling().map(|_| ())
    }

    /// Refuses unsupported parts, which would silently change the results.
    fn check_parts(&self) -> Result<()> {
        let missing = [
            ("attention_bias", self.attention_bias),
            ("mlp_bias", self.mlp_bias),
            ("use_sliding_window", self.use_sliding_window),
        ];
        if let Some((name, _)) = missing.into_iter().find(|(_, asked)| *asked) {
            return Err(Error::new(ErrorKind::Incompatible, format!("{name} must be false: got true")));
        }
        if self.others.get("quantization_config").is_some_and(|config| !config.is_null()) {
            let detail = "quantization_config must be absent: weights of quantized checkpoints are not read";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if self.hidden_act != "silu" {
            let detail = format!("hidden_act must be \"silu\": got {:?}", self.hidden_act);
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(())
    }

    /// Returns the number of key/value heads.
    #[must_use]
    pub fn num_kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Returns the width of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Returns the base of the rotary angles.
    #[must_use]
    pub fn theta(&self) -> f64 {
        let nested = self.rope_parameters.as_ref().and_then(|rope| rope.rope_theta);
        self.rope_theta.or(nested).unwrap_or(10_000.0)
    }

    fn rope_scaling(&self) -> Result<RopeScaling> {
        match self.rope_parameters.as_ref().or(self.rope_scaling.as_ref()) {
            None => Ok(RopeScaling::None),
            Some(rope) => rope.scaling(),
        }
    }

    /// Returns an empty table of this model's angles.
    pub(crate) fn rope(&self) -> RopeTable {
        let scaling = self.rope_scaling().unwrap_or(RopeScaling::None);
        let frequencies = rope_frequencies(self.head_dim(), self.theta());
        RopeTable::new(frequencies.into_iter().map(|frequency| scaling.scale(frequency)).collect())
    }

    pub(crate) fn attention(&self) -> AttentionShape {
        AttentionShape {
            num_heads: self.num_attention_heads,
            num_kv_heads: self.num_kv_heads(),
            head_dim: self.head_dim(),
        }
    }

    /// Returns the width of all query heads.
    pub(crate) fn q_width(&self) -> usize {
        self.num_attention_heads * self.head_dim()
    }

    /// Returns the width of all key (or value) heads.
    pub(crate) fn kv_width(&self) -> usize {
        self.num_kv_heads() * self.head_dim()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn json(change: &[(&str, serde_json::Value)]) -> String {
        let mut config = serde_json::json!({
            "model_type": "qwen2", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "architectures": ["Qwen2ForCausalLM"]
        });
        for (key, value) in change {
            config[*key] = value.clone();
        }
        config.to_string()
    }

    #[test]
    fn impossible_shapes_are_refused_by_name() {
        let cases = [
            ("hidden_size", serde_json::json!(0), ErrorKind::OutOfRange),
            ("hidden_size", serde_json::json!(10), ErrorKind::OutOfRange),
            ("num_key_value_heads", serde_json::json!(3), ErrorKind::OutOfRange),
            ("head_dim", serde_json::json!(3), ErrorKind::OutOfRange),
            ("rms_norm_eps", serde_json::json!(-1.0), ErrorKind::OutOfRange),
            ("vocab_size", serde_json::json!(VOCAB_SIZE_MAX + 1), ErrorKind::LimitExceeded),
            ("hidden_size", serde_json::json!(MODEL_WIDTH_MAX + 4), ErrorKind::LimitExceeded),
            ("num_hidden_layers", serde_json::json!(MODEL_LAYERS_MAX + 1), ErrorKind::LimitExceeded),
            ("rope_scaling", serde_json::json!({"type": "yarn"}), ErrorKind::Incompatible),
            ("hidden_act", serde_json::json!("gelu"), ErrorKind::Incompatible),
            ("attention_bias", serde_json::json!(true), ErrorKind::Incompatible),
            ("mlp_bias", serde_json::json!(true), ErrorKind::Incompatible),
            ("use_sliding_window", serde_json::json!(true), ErrorKind::Incompatible),
            ("model_type", serde_json::json!("gpt2"), ErrorKind::UnknownName),
        ];
        for (key, value, kind) in cases {
            let error = DecoderConfig::from_json(&json(&[(key, value)])).unwrap_err();
            assert_eq!(error.kind(), kind, "{key}: {error}");
        }
        let widest = [("vocab_size", VOCAB_SIZE_MAX), ("num_hidden_layers", MODEL_LAYERS_MAX)];
        for (key, value) in widest.into_iter().chain([("hidden_size", MODEL_WIDTH_MAX)]) {
            assert!(DecoderConfig::from_json(&json(&[(key, serde_json::json!(value))])).is_ok(), "{key}");
        }
    }

    #[test]
    fn both_forms_of_the_rotary_base_are_read_and_the_json_form_reads_back() {
        let old = DecoderConfig::from_json(&json(&[("rope_theta", serde_json::json!(5.0))])).unwrap();
        let new =
            DecoderConfig::from_json(&json(&[("rope_parameters", serde_json::json!({"rope_theta": 5.0}))]));
        assert_eq!((old.theta(), new.unwrap().theta()), (5.0, 5.0));
        assert!(!old.to_json().contains("null"), "transformers refuses a null head_dim");
        let qwen3 = DecoderConfig { model_type: ModelType::Qwen3, head_dim: None, ..old.clone() };
        let width = qwen3.head_dim();
        assert_eq!(qwen3.checked().unwrap().head_dim, Some(width), "or transformers takes its own");
        assert_eq!(DecoderConfig::from_json(&old.to_json()), Ok(old));
    }
}
