//! The shape of a decoder, in the form of Hugging Face's `config.json`.

use fulmar_compute::{AttentionShape, RopeTable, rope_frequencies};
use fulmar_core::limits::{MODEL_LAYERS_MAX, MODEL_WIDTH_MAX, VOCAB_SIZE_MAX};
use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rope_parameters::{RopeParameters, RopeScaling};

/// The family of a decoder: which parts its layers have.
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

/// A head that reads one number from the residual stream, for values of tokens and rewards of sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarHead {
    /// `score.weight` in the place of the head over the vocabulary, as transformers' models for sequence classification with one label.
    Score,
    /// `v_head.summary.weight` and `v_head.summary.bias` beside it, as TRL's models with a value head.
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
    /// Family.
    pub model_type: ModelType,
    /// Ids in the vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads; divides the query heads. Default: as many as query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_key_value_heads: Option<usize>,
    /// Width of a head, even. Default: hidden size / query heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Longest sequence.
    #[serde(default = "default_positions")]
    pub max_position_embeddings: usize,
    /// Added to the mean square of a normalisation.
    #[serde(default = "default_eps")]
    pub rms_norm_eps: f64,
    /// Base of the rotary angles, as checkpoints before transformers 5 write it. Default 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// The same in the form of transformers 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    /// Scaling of long contexts, as checkpoints before transformers 5 write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// Whether the output head is the embedding table.
    #[serde(default)]
    pub tie_word_embeddings: bool,
    /// The gate's activation, of which only `silu` is built.
    #[serde(default = "default_activation")]
    pub hidden_act: String,
    /// Whether attention has biases of its own, which is not built.
    #[serde(default, skip_serializing_if = "is_false")]
    pub attention_bias: bool,
    /// Whether the feed-forward layer has biases, which is not built.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mlp_bias: bool,
    /// Whether some layers see only the last tokens, which is not built.
    #[serde(default, skip_serializing_if = "is_false")]
    pub use_sliding_window: bool,
    /// Standard deviation of fresh weights.
    #[serde(default = "default_range")]
    pub initializer_range: f64,
    /// Transformers' class of the model: one for sequence classification means [`ScalarHead::Score`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<String>,
    /// The head that reads one number. TRL writes no key that says so: put `"scalar_head": "v_head"` into its `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalar_head: Option<ScalarHead>,
    /// Everything else that the file holds, such as `eos_token_id`: kept for the folder that the model is saved to. Without the dtype,
    /// which is that of the weights.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// How transformers says that there is one label.
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
    /// `Malformed` if the text is not JSON of that form, `UnknownName` for a family that is not built, `OutOfRange` or `LimitExceeded` for an impossible shape,
    /// `Incompatible` for a rotary scaling that is not built.
    pub fn from_json(text: &str) -> Result<Self> {
        let mut config: Self = options_from_json("config", text)?;
        for dtype in ["torch_dtype", "dtype"] {
            config.others.shift_remove(dtype);
        }
        if config.scalar_head.is_none() && config.is_classifier() {
            config.scalar_head = Some(ScalarHead::Score);
        }
        if config.scalar_head == Some(ScalarHead::Score) {
            // What `to_json` writes of itself.
            for (key, plain) in one_label() {
                if config.others.get(key) == Some(&plain) {
                    config.others.shift_remove(key);
                }
            }
        }
        config.checked()
    }

    /// The JSON form, which [`DecoderConfig::from_json`] and transformers read.
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

    /// The same shape with a head that reads one number.
    pub(crate) fn with_scalar_head(&self, head: ScalarHead) -> Self {
        let config = Self { scalar_head: Some(head), ..self.clone() };
        Self { architectures: vec![config.architecture()], ..config }
    }

    /// Transformers' class of a model of this family and head.
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

    /// Whether transformers' class reads labels of sequences.
    fn is_classifier(&self) -> bool {
        self.architectures.iter().any(|class| class.ends_with("ForSequenceClassification"))
    }

    /// The same config if its shape is possible.
    ///
    /// # Errors
    /// As [`DecoderConfig::from_json`], naming the field.
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
            // transformers takes 128 where a file of this family does not say it.
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

    /// Refuses parts that are not built, which would give other numbers in silence.
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

    /// Key/value heads.
    #[must_use]
    pub fn num_kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Width of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Base of the rotary angles.
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

    /// An empty table of this model's angles.
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

    /// Width of all query heads.
    pub(crate) fn q_width(&self) -> usize {
        self.num_attention_heads * self.head_dim()
    }

    /// Width of all key (or value) heads.
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
