//! AdamW over the weights of a decoder that are trained, with the gradient clipped to a norm.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_kernel::{AdamwStep, adamw_step};
use fulmar_tensor::safetensors;
use serde::Deserialize;

use crate::decoder::Decoder;
use crate::parameters;

/// Options of [`AdamW`]; the defaults are PyTorch's but for the decay, which is 0.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdamWOptions {
    /// Size of a step, >= 0, unless the step says another.
    pub learning_rate: f64,
    /// Decay of the first moment, in `[0, 1)`.
    pub beta1: f64,
    /// Decay of the second moment, in `[0, 1)`.
    pub beta2: f64,
    /// Added to the root of the second moment, > 0.
    pub eps: f64,
    /// Decoupled weight decay on every parameter that is trained, >= 0.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamWOptions {
    fn checked(self) -> Result<Self> {
        let Self { learning_rate, beta1, beta2, eps, weight_decay } = self;
        let rules = [
            ("learning_rate", learning_rate, ">= 0", learning_rate >= 0.0 && learning_rate.is_finite()),
            ("beta1", beta1, "in [0, 1)", (0.0..1.0).contains(&beta1)),
            ("beta2", beta2, "in [0, 1)", (0.0..1.0).contains(&beta2)),
            ("eps", eps, "> 0", eps > 0.0 && eps.is_finite()),
            ("weight_decay", weight_decay, ">= 0", weight_decay >= 0.0 && weight_decay.is_finite()),
        ];
        match rules.into_iter().find(|(.., holds)| !holds) {
            None => Ok(self),
            Some((name, value, rule, _)) => {
                Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")))
            }
        }
    }
}

/// What one optimiser step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Number of this step, from 1.
    pub step: u64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Factor that clipping applied, <= 1.
    pub clip_coefficient: f64,
}

/// AdamW: two moments a weight.
///
/// # Examples
/// ```
/// use fulmar_model::{AdamW, AdamWOptions, Decoder, DecoderConfig, TokenBatch};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "llama", "vocab_size": 5, "hidden_size": 4, "intermediate_size": 8,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let mut decoder = Decoder::new(config, 1)?;
/// let mut optimizer = AdamW::new(&decoder, AdamWOptions::default())?;
/// let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1] };
/// let before = decoder.forward(&batch)?.log_prob[1];
/// decoder.backward(&[0.0, -1.0], None)?;
/// optimizer.step(&mut decoder, Some(1e-2), Some(1.0))?;
/// assert!(decoder.score(&batch)?.log_prob[1] > before);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AdamW {
    options: AdamWOptions,
    num_steps: u64,
    moment1: Vec<f32>,
    moment2: Vec<f32>,
}

impl AdamW {
    /// Zero moments for the weights of `decoder` that are trained: all, or its adapter's.
    ///
    /// # Errors
    /// `OutOfRange` naming the option.
    pub fn new(decoder: &Decoder, options: AdamWOptions) -> Result<Self> {
        let zeros = vec![0.0; decoder.num_trainable()];
        Ok(Self { options: options.checked()?, num_steps: 0, moment1: zeros.clone(), moment2: zeros })
    }

    /// Steps taken.
    #[must_use]
    pub const fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Updates the weights of `decoder` from its gradients, scaled down to norm `max_norm` where they are longer, and
    /// sets the gradients to 0. `learning_rate` stands for that of the options, as a schedule needs.
    ///
    /// # Errors
    /// `NonFinite` if the gradient is not finite: weights and moments are then unchanged and the gradients 0.
    /// `OutOfRange` for a bad rate or norm, `Closed` without gradients, `ShapeMismatch` for another decoder.
    pub fn step(
        &mut self,
        decoder: &mut Decoder,
        learning_rate: Option<f64>,
        max_norm: Option<f64>,
    ) -> Result<StepReport> {
        let learning_rate = learning_rate.unwrap_or(self.options.learning_rate);
        let out_of_range = |name: &str, value: f64, rule: &str| {
            Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")))
        };
        if !(learning_rate.is_finite() && learning_rate >= 0.0) {
            return out_of_range("learning_rate", learning_rate, ">= 0");
        }
        if let Some(max_norm) = max_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return out_of_range("max_norm", max_norm, "> 0");
        }
        if decoder.num_trainable() != self.moment1.len() {
            let (ours, theirs) = (self.moment1.len(), decoder.num_trainable());
            let detail = format!("decoder must have this optimizer's {ours} parameters: got {theirs}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if decoder.gradients().is_empty() {
            return Err(Error::new(ErrorKind::Closed, "step must follow a backward pass: got none"));
        }
        let gradient_norm = decoder.gradient_norm();
        if !gradient_norm.is_finite() {
            decoder.zero_gradients();
            let detail = format!("gradient norm must be finite: got {gradient_norm}");
            return Err(Error::new(ErrorKind::NonFinite, detail));
        }
        let clip_coefficient = max_norm.map_or(1.0, |max| (max / (gradient_norm + 1e-6)).min(1.0));
        self.num_steps += 1;
        let AdamWOptions { beta1, beta2, eps, weight_decay, .. } = self.options;
        let betas = (beta1, beta2);
        let step = AdamwStep::at(self.num_steps, learning_rate, betas, eps, weight_decay, clip_coefficient);
        let (weights, gradients) = decoder.trainable_and_gradients();
        adamw_step(step, weights, gradients, &mut self.moment1, &mut self.moment2);
        decoder.zero_gradients();
        Ok(StepReport { step: self.num_steps, gradient_norm, clip_coefficient })
    }

    /// The moments and the step count as a safetensors file: `moment1.<name>`, `moment2.<name>`.
    ///
    /// # Errors
    /// Those of [`safetensors::write`]; `ShapeMismatch` for another decoder.
    pub fn to_safetensors(&self, decoder: &Decoder) -> Result<Vec<u8>> {
        let mut tensors = Vec::new();
        for (prefix, moments) in [("moment1", &self.moment1), ("moment2", &self.moment2)] {
            for parameter in decoder.trainable() {
                let values = moments.get(parameter.range.clone()).unwrap_or_default().to_vec();
                let tensor = fulmar_tensor::Tensor::from_vec_f32(&parameter.shape, values)?;
                tensors.push((format!("{prefix}.{}", parameter.name), tensor));
            }
        }
        let num_steps = self.num_steps.to_string();
        let named = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor));
        safetensors::write(named, &[("num_steps", num_steps.as_str())])
    }

    /// The optimiser that [`AdamW::to_safetensors`] wrote.
    ///
    /// # Errors
    /// Those of [`safetensors::read`]; `Incompatible` if the moments are those of another architecture or the step
    /// count is missing; `OutOfRange` naming a bad option.
    pub fn from_safetensors(decoder: &Decoder, options: AdamWOptions, bytes: &[u8]) -> Result<Self> {
        let mut file = safetensors::read(bytes)?;
        let num_steps =
            file.metadata.get("num_steps").and_then(|text| text.parse().ok()).ok_or_else(|| {
                Error::new(
                    ErrorKind::Incompatible,
                    "optimizer file must hold num_steps: got none that is a number",
                )
            })?;
        let mut moment = |prefix: &str| {
            let mut part = safetensors::File::default();
            for parameter in decoder.trainable() {
                if let Some(tensor) = file.tensors.remove(&format!("{prefix}.{}", parameter.name)) {
                    part.tensors.insert(parameter.name.clone(), tensor);
                }
            }
            parameters::read(decoder.trainable(), &part)
        };
        let (moment1, moment2) = (moment("moment1")?, moment("moment2")?);
        if let Some(name) = file.tensors.keys().next() {
            let detail = format!("optimizer file must hold only this architecture's moments: got {name:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Ok(Self { options: options.checked()?, num_steps, moment1, moment2 })
    }
}
