//! A decoder language model: weights, a forward pass that gives log-probs, and its backward pass.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_kernel::{AttentionSaved, RopeTable, attention, attention_backward, embed, embed_backward};
use fulmar_tensor::safetensors;

use crate::config::DecoderConfig;
use crate::head::{Head, HeadTrace};
use crate::layer::{Gradients, Layer, LayerTrace, Scratch};
use crate::lora::{Lora, LoraConfig};
use crate::packing::{Packed, TokenBatch};
use crate::parameters::{self, Layout, Parameter};

/// Log-probs and entropies of a [`TokenBatch`], flat like its ids; 0 where the mask is 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// `[T]`: natural log-prob of each masked token after the tokens before it.
    pub log_prob: Vec<f32>,
    /// `[T]`: entropy in nats of the distribution that token was drawn from.
    pub entropy: Vec<f32>,
}

/// A decoder with its weights and, while training, its gradients and the trace of the last forward pass.
///
/// The shapes are those of Llama, Qwen2 and Qwen3: RMSNorm, rotary embedding, grouped-query attention, SwiGLU. Results do not
/// depend on the number of threads, nor on what else is in a batch.
///
/// # Examples
/// ```
/// use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
/// let config = DecoderConfig::from_json(r#"{
///     "model_type": "qwen2", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2
/// }"#)?;
/// let mut decoder = Decoder::new(config, 42)?;
/// let batch = TokenBatch { ids: &[1, 2, 3], offsets: &[0, 3], mask: &[0, 1, 1], ..Default::default() };
/// let scores = decoder.forward(&batch)?;
/// assert_eq!(scores.log_prob[0], 0.0);
/// decoder.backward(&[0.0, -0.5, -0.5], None)?; // the gradient of the mean negative log-prob
/// assert!(decoder.gradient_norm() > 0.0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Decoder {
    config: DecoderConfig,
    layout: Layout,
    weights: Vec<f32>,
    lora: Option<Lora>,
    gradients: Vec<f32>,
    trace: Trace,
    version: u64,
}

/// What the last forward pass keeps for the backward pass. Its memory is reused.
#[derive(Debug, Clone, Default)]
struct Trace {
    packed: Packed,
    num_tokens: usize,
    layers: Vec<LayerTrace>,
    x: Vec<f32>,
    head: HeadTrace,
    rope: Option<RopeTable>,
    scratch: Scratch,
    ready: bool,
}

impl Decoder {
    /// Fresh weights from `seed`.
    ///
    /// # Errors
    /// Those of [`DecoderConfig::checked`].
    pub fn new(config: DecoderConfig, seed: u64) -> Result<Self> {
        Self::with_weights(config, |config, layout| Ok(layout.init(config, seed)))
    }

    /// The weights of a safetensors file in memory, with Hugging Face's tensor names.
    ///
    /// # Errors
    /// Those of [`DecoderConfig::checked`] and [`safetensors::read`]; `Incompatible` if the tensors are those of
    /// another architecture; `NonFinite` for a weight that is no number.
    pub fn from_safetensors(config: DecoderConfig, bytes: &[u8]) -> Result<Self> {
        Self::with_weights(config, |_, layout| {
            parameters::read(&layout.parameters, &safetensors::read(bytes)?)
        })
    }

    /// The weights that `weights` gives for a shape.
    pub(crate) fn with_weights(
        config: DecoderConfig,
        weights: impl FnOnce(&DecoderConfig, &Layout) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let config = config.checked()?;
        let layout = Layout::new(&config);
        let weights = weights(&config, &layout)?;
        Ok(Self {
            config,
            layout,
            weights,
            lora: None,
            gradients: Vec::new(),
            trace: Trace::default(),
            version: 0,
        })
    }

    /// The weights as a safetensors file, the same bytes for the same weights.
    ///
    /// # Errors
    /// Those of [`safetensors::write`].
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        parameters::write(&self.layout.parameters, &self.weights, &[("format", "pt")])
    }

    /// The shape.
    #[must_use]
    pub const fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Number of weights.
    #[must_use]
    pub const fn num_parameters(&self) -> usize {
        self.layout.len
    }

    /// Names, shapes and places of the tensors in [`Decoder::weights`].
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.layout.parameters
    }

    /// All weights.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// How often the weights were changed since they were made: by an optimiser's step, or an adapter that was loaded or merged.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Names, shapes and places of what is trained: all tensors, or the adapter's.
    #[must_use]
    pub fn trainable(&self) -> &[Parameter] {
        self.lora.as_ref().map_or(&self.layout.parameters, |lora| &lora.parameters)
    }

    /// Number of weights that are trained.
    #[must_use]
    pub fn num_trainable(&self) -> usize {
        self.lora.as_ref().map_or(self.layout.len, |lora| lora.weights.len())
    }

    /// Freezes all weights and trains an adapter beside them, which changes nothing before its first step.
    ///
    /// # Errors
    /// `Incompatible` if there is an adapter already; `OutOfRange`, `UnknownName` or `Empty` naming what is wrong with `config`.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, LoraConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0)?;
    /// assert_eq!(decoder.num_trainable(), 2 * 2 * (8 + 8)); // beside q and v
    /// let bytes = decoder.lora_to_safetensors()?; // PEFT's adapter_model.safetensors
    /// decoder.merge_lora()?;
    /// decoder.load_lora(LoraConfig { r: 2, ..LoraConfig::default() }, &bytes)?;
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn add_lora(&mut self, config: LoraConfig, seed: u64) -> Result<()> {
        self.set_lora(|layout| Lora::new(config, layout, seed))
    }

    /// As [`Decoder::add_lora`], with the weights of PEFT's `adapter_model.safetensors`.
    ///
    /// # Errors
    /// Those of [`Decoder::add_lora`]; those of [`safetensors::read`]; `Incompatible` for other tensors.
    pub fn load_lora(&mut self, config: LoraConfig, bytes: &[u8]) -> Result<()> {
        self.set_lora(|layout| Lora::read(config, layout, bytes))?;
        self.version += 1;
        Ok(())
    }

    fn set_lora(&mut self, make: impl FnOnce(&Layout) -> Result<Lora>) -> Result<()> {
        if self.lora.is_some() {
            let detail = "a decoder must have one adapter at most: got another";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.lora = Some(make(&self.layout)?);
        self.forget_training();
        Ok(())
    }

    /// The adapter's shape as PEFT's `adapter_config.json`.
    ///
    /// # Errors
    /// `Empty` without an adapter.
    pub fn lora_config_json(&self) -> Result<String> {
        Ok(self.lora.as_ref().ok_or_else(no_adapter)?.config.to_json())
    }

    /// The adapter as PEFT's `adapter_model.safetensors`.
    ///
    /// # Errors
    /// `Empty` without an adapter.
    pub fn lora_to_safetensors(&self) -> Result<Vec<u8>> {
        self.lora.as_ref().ok_or_else(no_adapter)?.write()
    }

    /// Adds the adapter to the weights, which are trained again, and drops it.
    ///
    /// # Errors
    /// `Empty` without an adapter.
    pub fn merge_lora(&mut self) -> Result<()> {
        let lora = self.lora.take().ok_or_else(no_adapter)?;
        lora.merge(&self.layout, &mut self.weights);
        self.version += 1;
        self.forget_training();
        Ok(())
    }

    /// Gradients and trace are those of what was trained before.
    fn forget_training(&mut self) {
        self.gradients = Vec::new();
        self.trace.ready = false;
    }

    /// The gradients of what is trained, added up since [`Decoder::zero_gradients`]; empty before the first backward pass.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        &self.gradients
    }

    /// What an optimiser's step changes, and by which gradients.
    pub(crate) fn trainable_and_gradients(&mut self) -> (&mut [f32], &[f32]) {
        self.version += 1;
        let weights = self.lora.as_mut().map_or(&mut self.weights, |lora| &mut lora.weights);
        (weights, &self.gradients)
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Euclidean norm of all gradients.
    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        fulmar_kernel::sum_of_squares(&self.gradients).sqrt()
    }

    /// Sets all gradients to 0.
    pub fn zero_gradients(&mut self) {
        self.gradients.fill(0.0);
    }

    /// Log-probs and entropies of the masked tokens. Remembers nothing, and allocates what it needs.
    ///
    /// # Errors
    /// Those of [`TokenBatch::check`].
    pub fn score(&self, batch: &TokenBatch<'_>) -> Result<Scores> {
        self.run(batch, &mut Trace::default())
    }

    /// As [`Decoder::score`], and keeps what [`Decoder::backward`] needs.
    ///
    /// # Errors
    /// Those of [`TokenBatch::check`]; an earlier trace is then gone.
    pub fn forward(&mut self, batch: &TokenBatch<'_>) -> Result<Scores> {
        let mut trace = std::mem::take(&mut self.trace);
        trace.ready = false;
        let scores = self.run(batch, &mut trace);
        trace.ready = scores.is_ok();
        self.trace = trace;
        scores
    }

    fn run(&self, batch: &TokenBatch<'_>, trace: &mut Trace) -> Result<Scores> {
        batch.check(&self.config)?;
        trace.packed = Packed::new(batch);
        trace.num_tokens = batch.ids.len();
        self.run_layers(trace);
        let head = Head { config: &self.config, layout: &self.layout, weights: &self.weights };
        head.forward(&trace.x, &trace.packed.targets, &mut trace.head);
        let (mut log_prob, mut entropy) = (vec![0.0; batch.ids.len()], vec![0.0; batch.ids.len()]);
        for (target, found) in trace.packed.targets.iter().zip(&trace.head.found) {
            log_prob[target.token as usize] = found.log_prob;
            entropy[target.token as usize] = found.entropy;
        }
        Ok(Scores { log_prob, entropy })
    }

    fn run_layers(&self, trace: &mut Trace) {
        let Trace { packed, layers, x, rope, .. } = trace;
        let rope = rope.get_or_insert_with(|| self.config.rope());
        rope.extend_to(packed.positions.iter().max().map_or(0, |last| *last as usize + 1));
        x.resize(packed.ids.len() * self.config.hidden_size, 0.0);
        embed(&self.weights[self.layout.embed.clone()], self.config.hidden_size, &packed.ids, x);
        layers.resize_with(self.layout.layers.len(), LayerTrace::default);
        for (index, trace) in layers.iter_mut().enumerate() {
            trace.resize(&self.config, packed.ids.len());
            trace.x.copy_from_slice(x);
            let layer = self.layer(index);
            layer.project_heads(trace, rope, &packed.positions);
            let shape = self.config.attention();
            let LayerTrace { q, k, v, attention: out, log_sum, .. } = trace;
            attention(shape, q, k, v, &packed.spans, out, log_sum);
            layer.finish(trace, x);
        }
    }

    pub(crate) fn layer(&self, index: usize) -> Layer<'_> {
        Layer {
            config: &self.config,
            ranges: &self.layout.layers[index],
            weights: &self.weights,
            lora: self.lora.as_ref().map(|lora| lora.layer(index)),
        }
    }

    pub(crate) fn head(&self) -> Head<'_> {
        Head { config: &self.config, layout: &self.layout, weights: &self.weights }
    }

    /// Adds to the gradients those of a loss with the given derivatives, both `[T]`, with respect to the log-probs
    /// (and entropies) of the last [`Decoder::forward`]. Values where the mask was 0 are ignored. Uses up the trace.
    ///
    /// # Errors
    /// `Closed` without a forward pass before; `ShapeMismatch` for another length; `NonFinite` for a derivative that
    /// is no number (the gradients are then unchanged).
    pub fn backward(&mut self, d_log_prob: &[f32], d_entropy: Option<&[f32]>) -> Result<()> {
        if !self.trace.ready {
            return Err(Error::new(ErrorKind::Closed, "backward must follow a forward pass: got none"));
        }
        for (name, values) in [("d_log_prob", Some(d_log_prob)), ("d_entropy", d_entropy)] {
            self.check_derivatives(name, values.unwrap_or_default(), values.is_some())?;
        }
        let mut trace = std::mem::take(&mut self.trace);
        let mut gradients = std::mem::take(&mut self.gradients);
        gradients.resize(self.num_trainable(), 0.0);
        let mut sink = match self.lora {
            None => Gradients::Weights(&mut gradients),
            Some(_) => Gradients::Adapter(&mut gradients),
        };
        self.run_backward(&mut trace, d_log_prob, d_entropy, &mut sink);
        trace.ready = false;
        (self.trace, self.gradients) = (trace, gradients);
        Ok(())
    }

    fn check_derivatives(&self, name: &str, values: &[f32], given: bool) -> Result<()> {
        if given && values.len() != self.trace.num_tokens {
            let detail = format!(
                "{name} must have one value a token ({}): got {}",
                self.trace.num_tokens,
                values.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let Some(index) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        let detail = format!("{name} must be finite: got {} at {index}", values[index]);
        Err(Error::new(ErrorKind::NonFinite, detail))
    }

    fn run_backward(
        &self,
        trace: &mut Trace,
        d_log_prob: &[f32],
        d_entropy: Option<&[f32]>,
        gradients: &mut Gradients<'_>,
    ) {
        let Trace { packed, layers, x: d_x, head, rope, scratch, .. } = trace;
        let Some(rope) = rope else { return };
        let d_found = |target: &crate::packing::Target| {
            let token = target.token as usize;
            (d_log_prob[token], d_entropy.map_or(0.0, |d| d[token]))
        };
        self.head().backward(head, &packed.targets, d_found, gradients, d_x);
        scratch.resize(&self.config, packed.ids.len());
        for (index, trace) in layers.iter_mut().enumerate().rev() {
            let layer = self.layer(index);
            layer.finish_backward(trace, gradients, d_x, scratch);
            let LayerTrace { q, k: keys, v: values, attention: out, log_sum, .. } = &*trace;
            let saved = AttentionSaved { q, keys, values, out, log_sum };
            let Scratch { wide: d_out, d_q, d_k, d_v, .. } = scratch;
            attention_backward(
                self.config.attention(),
                saved,
                &packed.spans,
                &packed.blocks,
                d_out,
                d_q,
                d_k,
                d_v,
            );
            layer.project_heads_backward(trace, gradients, d_x, scratch, (rope, &packed.positions));
        }
        if let Some(d_embed) = gradients.of(&self.layout.embed) {
            embed_backward(d_x, self.config.hidden_size, &packed.ids, d_embed);
        }
    }
}

fn no_adapter() -> Error {
    Error::new(ErrorKind::Empty, "a decoder must have an adapter: got none")
}
