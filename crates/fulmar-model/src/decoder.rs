//! A decoder language model: weights, a forward pass that gives log-probs, and its backward pass.

mod adapter;
mod squares;

use std::borrow::Cow;

use fulmar_compute::cpu::together;
use fulmar_compute::{AttentionSaved, Compute, Floats, Memory, RopeTable};
use fulmar_core::{Device, Dtype, Error, ErrorKind, Result};
use fulmar_tensor::safetensors;

use crate::config::DecoderConfig;
use crate::folder::ExtraFiles;
use crate::head::{Head, HeadTrace};
use crate::layer::{Gradients, Layer, LayerTrace, Passing, Scratch};
use crate::lora::Lora;
use crate::packing::{Packed, Read, Target, TokenBatch};
use crate::parameters::{self, Layout, Parameter, ScalarRanges};
use crate::weights::{Weights, WeightsMut};

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
    compute: Compute,
    weights: Weights,
    pub(crate) lora: Option<Lora>,
    pub(crate) extra_files: ExtraFiles,
    gradients: Memory<f32>,
    trace: Trace,
    recomputes: bool,
    version: u64,
}

/// What a forward pass leaves behind. Its memory is reused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    packed: Packed,
    num_tokens: usize,
    /// What each layer computed, or one that all layers share.
    layers: Vec<LayerTrace>,
    /// What came into each layer, where that is all that is kept.
    inputs: Vec<Memory<f32>>,
    x: Memory<f32>,
    head: HeadTrace,
    rope: Option<RopeTable>,
    passing: Passing,
    scratch: Scratch,
    /// What the backward pass that may follow takes derivatives of.
    ready: Option<Read>,
    /// Whether layers run without their adapters; no backward pass follows then.
    without_adapter: bool,
}

/// What a forward pass keeps of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Everything,
    /// What comes in: the backward pass computes the rest again.
    Inputs,
    Nothing,
}

impl Trace {
    /// Makes room for `layers` layers; forgets what another way to keep them took.
    fn resize(&mut self, keep: Keep, layers: usize) {
        let (traces, inputs) = match keep {
            Keep::Everything => (layers, 0),
            Keep::Inputs => (1, layers),
            Keep::Nothing => (1, 0),
        };
        if self.layers.len() != traces {
            self.layers = vec![LayerTrace::default(); traces];
        }
        if self.inputs.len() != inputs {
            self.inputs = vec![Memory::default(); inputs];
        }
    }

    fn num_floats(&self) -> usize {
        let layers = self.layers.iter().map(LayerTrace::num_floats).sum::<usize>();
        let inputs = self.inputs.iter().map(Memory::capacity).sum::<usize>();
        let shared = self.passing.num_floats() + self.scratch.num_floats();
        layers + inputs + self.x.capacity() + self.head.num_floats() + shared
    }
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
        let weights = weights(&config, &layout)?.into();
        Ok(Self {
            config,
            layout,
            compute: Compute::Cpu,
            weights,
            lora: None,
            extra_files: ExtraFiles::default(),
            gradients: Memory::default(),
            trace: Trace::default(),
            recomputes: false,
            version: 0,
        })
    }

    /// Moves the decoder to `device`: its weights lie there, with those of an adapter, and it runs there. Gradients do not go with it.
    ///
    /// # Errors
    /// `Unavailable` if there is no such device, with what is lacking; `LimitExceeded` if the weights do not fit in its memory. The
    /// decoder is then where it was.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::{Device, ErrorKind};
    /// use fulmar_model::{Decoder, DecoderConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// assert_eq!(decoder.move_to(Device::Cuda { ordinal: 0 }).unwrap_err().kind(), ErrorKind::Unavailable);
    /// assert_eq!(decoder.device(), Device::Cpu);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn move_to(&mut self, device: Device) -> Result<()> {
        let compute = Compute::on(device)?;
        if compute == self.compute {
            return Ok(());
        }
        let weights = self.weights.copy_on(compute)?;
        if let Some(lora) = &mut self.lora {
            lora.weights = compute.hold(lora.weights.to_vec())?;
        }
        (self.weights, self.compute) = (weights, compute);
        self.forget_training();
        Ok(())
    }

    /// The same decoder with its weights in `dtype`, each rounded to the nearest. In [`Dtype::Bf16`] they take half the memory, and are
    /// read in half the time where few rows are computed, as in decoding; sums and activations stay in single precision, so every result
    /// has the bits of that of the rounded weights in single precision. An [`Optimizer`](crate::Optimizer) keeps master copies that are
    /// not rounded. An adapter stays in single precision; gradients are dropped.
    ///
    /// # Errors
    /// `OutOfRange` for another dtype than `f32` and `bf16`; `NonFinite` for a weight above the largest bfloat16.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_model::{Decoder, DecoderConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let whole = Decoder::new(config.clone(), 1)?;
    /// let halves = whole.clone().with_dtype(Dtype::Bf16)?;
    /// let bytes = halves.to_safetensors()?; // tensors of BF16
    /// assert!(bytes.len() < whole.to_safetensors()?.len());
    /// assert_eq!(Decoder::from_safetensors(config, &bytes)?.weights(), halves.weights());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn with_dtype(mut self, dtype: Dtype) -> Result<Self> {
        self.weights = self.weights.cast(dtype, self.compute)?;
        self.forget_training();
        Ok(self)
    }

    /// What the weights are stored as.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.weights.dtype()
    }

    /// Where it runs.
    #[must_use]
    pub fn device(&self) -> Device {
        self.compute.device()
    }

    /// What computes there.
    #[must_use]
    pub const fn compute(&self) -> Compute {
        self.compute
    }

    /// The weights as a safetensors file of their dtype, the same bytes for the same weights.
    ///
    /// # Errors
    /// Those of [`safetensors::write`].
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        parameters::write(&self.layout.parameters, self.stored())
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

    /// All weights in single precision: where they lie, or a copy of halves.
    #[must_use]
    pub fn weights(&self) -> Cow<'_, [f32]> {
        self.weights.view().to_f32()
    }

    /// All weights as they lie in memory.
    pub(crate) fn stored(&self) -> Floats<'_> {
        self.weights.view()
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

    /// Gradients and trace are those of what was trained before.
    fn forget_training(&mut self) {
        self.gradients = Memory::default();
        self.trace.ready = None;
    }

    /// The gradients of what is trained, added up since [`Decoder::zero_gradients`]; empty before the first backward pass.
    #[must_use]
    pub fn gradients(&self) -> &[f32] {
        &self.gradients
    }

    /// Another change of the weights.
    pub(crate) const fn count_change(&mut self) {
        self.version += 1;
    }

    /// What an optimiser's step changes, and by which gradients.
    pub(crate) fn trainable_and_gradients(&mut self) -> (WeightsMut<'_>, &[f32]) {
        self.version += 1;
        let trained = match &mut self.lora {
            Some(lora) => WeightsMut::F32(&mut lora.weights),
            None => self.weights.view_mut(),
        };
        (trained, &self.gradients)
    }

    /// What an optimiser's step changes, as it lies in memory.
    pub(crate) fn trained(&self) -> Floats<'_> {
        self.lora.as_ref().map_or_else(|| self.stored(), |lora| Floats::F32(&lora.weights))
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Euclidean norm of all gradients.
    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        self.compute.sum_of_squares(&self.gradients).sqrt()
    }

    /// Sets all gradients to 0.
    pub fn zero_gradients(&mut self) {
        self.compute.fill(&mut self.gradients, 0.0);
    }

    /// Whether forward passes from now on keep only what comes into each layer, and backward passes compute the rest again: the same
    /// bits for about a third more time, with the memory of one layer where there was that of all.
    pub fn recompute_activations(&mut self, recomputes: bool) {
        self.recomputes = recomputes;
        self.trace = Trace { rope: self.trace.rope.take(), ..Trace::default() };
    }

    /// Bytes that the activations of the last [`Decoder::forward`] and the scratch of its backward pass hold.
    #[must_use]
    pub fn trace_bytes(&self) -> usize {
        self.trace.num_floats() * size_of::<f32>()
    }

    /// Log-probs and entropies of the masked tokens. Remembers nothing, and allocates what it needs.
    ///
    /// # Errors
    /// Those of [`TokenBatch::check`]; `Incompatible` for a model without a head over its vocabulary; `NonFinite` if weights or
    /// activations are too large or not numbers.
    pub fn score(&self, batch: &TokenBatch<'_>) -> Result<Scores> {
        self.run(batch, &mut Trace::default(), Keep::Nothing)
    }

    /// As [`Decoder::score`], of the weights without their adapter: the reference of a policy that is trained by an adapter, for which no
    /// second copy of the weights is needed.
    ///
    /// # Errors
    /// Those of [`Decoder::score`]; `Empty` without an adapter.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, LoraConfig, TokenBatch};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1], ..Default::default() };
    /// let before = decoder.score(&batch)?;
    /// decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0)?;
    /// // ... steps of an optimizer ...
    /// assert_eq!(decoder.score_base(&batch)?, before);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn score_base(&self, batch: &TokenBatch<'_>) -> Result<Scores> {
        if self.lora.is_none() {
            let detail = "a decoder must have an adapter to be scored without it: got one with weights alone";
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let mut trace = Trace { without_adapter: true, ..Trace::default() };
        self.run(batch, &mut trace, Keep::Nothing)
    }

    /// As [`Decoder::score`], and keeps what [`Decoder::backward`] needs.
    ///
    /// # Errors
    /// Those of [`Decoder::score`]; an earlier trace is then gone.
    pub fn forward(&mut self, batch: &TokenBatch<'_>) -> Result<Scores> {
        self.keeping(Read::Before, |decoder, trace, keep| decoder.run(batch, trace, keep))
    }

    /// Runs a forward pass that leaves a trace for the backward pass of `read`.
    fn keeping<T>(
        &mut self,
        read: Read,
        run: impl FnOnce(&Self, &mut Trace, Keep) -> Result<T>,
    ) -> Result<T> {
        let mut trace = std::mem::take(&mut self.trace);
        trace.ready = None;
        let keep = if self.recomputes { Keep::Inputs } else { Keep::Everything };
        let found = run(self, &mut trace, keep);
        trace.ready = found.is_ok().then_some(read);
        self.trace = trace;
        found
    }

    /// Numbers that the scalar head reads at the masked tokens: `value[t]` is that of all up to token `t`, and 0 where the mask is 0.
    /// A sequence's first token may be masked too; for the reward of a sequence mask its last token. Remembers nothing.
    ///
    /// # Errors
    /// Those of [`TokenBatch::check`], but for first tokens; `Incompatible` for a model without such a head.
    pub fn values(&self, batch: &TokenBatch<'_>) -> Result<Vec<f32>> {
        self.run_values(batch, &mut Trace::default(), Keep::Nothing)
    }

    /// As [`Decoder::values`], and keeps what [`Decoder::backward_values`] needs.
    ///
    /// # Errors
    /// Those of [`Decoder::values`]; an earlier trace is then gone.
    pub fn forward_values(&mut self, batch: &TokenBatch<'_>) -> Result<Vec<f32>> {
        self.keeping(Read::Own, |decoder, trace, keep| decoder.run_values(batch, trace, keep))
    }

    fn run_values(&self, batch: &TokenBatch<'_>, trace: &mut Trace, keep: Keep) -> Result<Vec<f32>> {
        let scalar = self.scalar_head().ok_or_else(no_scalar_head)?;
        batch.check_rows(&self.config)?;
        trace.packed = Packed::new(batch, Read::Own);
        trace.num_tokens = batch.ids.len();
        let found = together(|| {
            self.run_layers(trace, keep);
            self.head().forward_scalar(scalar, &trace.x, &trace.packed.targets, &mut trace.head)
        })?;
        let mut values = vec![0.0; batch.ids.len()];
        for (target, value) in trace.packed.targets.iter().zip(found) {
            if !value.is_finite() {
                return Err(non_finite("value", target, value));
            }
            values[target.token as usize] = value;
        }
        Ok(values)
    }

    fn run(&self, batch: &TokenBatch<'_>, trace: &mut Trace, keep: Keep) -> Result<Scores> {
        self.run_with(batch, trace, keep, |_, _| {})
    }

    /// As [`Decoder::run`]; calls `visit(target, logits)` for each masked token.
    pub(crate) fn run_with(
        &self,
        batch: &TokenBatch<'_>,
        trace: &mut Trace,
        keep: Keep,
        visit: impl FnMut(&Target, &[f32]) + Send,
    ) -> Result<Scores> {
        self.head().check()?;
        batch.check(&self.config)?;
        trace.packed = Packed::new(batch, Read::Before);
        trace.num_tokens = batch.ids.len();
        together(|| {
            self.run_layers(trace, keep);
            self.head().forward(&trace.x, &trace.packed.targets, &mut trace.head, visit)
        })?;
        let (mut log_prob, mut entropy) = (vec![0.0; batch.ids.len()], vec![0.0; batch.ids.len()]);
        for (target, found) in trace.packed.targets.iter().zip(&trace.head.found) {
            if let Some(value) = [found.log_prob, found.entropy].into_iter().find(|value| !value.is_finite())
            {
                return Err(non_finite("log-prob", target, value));
            }
            log_prob[target.token as usize] = found.log_prob;
            entropy[target.token as usize] = found.entropy;
        }
        Ok(Scores { log_prob, entropy })
    }

    fn run_layers(&self, trace: &mut Trace, keep: Keep) {
        trace.resize(keep, self.layout.layers.len());
        let Trace { packed, layers, inputs, x, rope, passing, without_adapter, .. } = trace;
        passing.resize(&self.config, packed.ids.len(), self.compute);
        let rope = rope.get_or_insert_with(|| self.config.rope());
        rope.extend_to(packed.positions.iter().max().map_or(0, |last| *last as usize + 1));
        self.compute.resize(x, packed.ids.len() * self.config.hidden_size);
        let table = self.stored().slice(self.layout.embed.clone());
        self.compute.embed(table, self.config.hidden_size, &packed.ids, x);
        for index in 0..self.layout.layers.len() {
            if let Some(input) = inputs.get_mut(index) {
                self.compute.resize(input, x.len());
                self.compute.copy(x, input);
            }
            let trace = &mut layers[if keep == Keep::Everything { index } else { 0 }];
            let mut layer = self.layer(index);
            layer.lora = layer.lora.filter(|_| !*without_adapter);
            self.attend(layer, (trace, passing), x, packed, rope);
            layer.finish(trace, passing, x);
        }
    }

    /// The first half of a layer, up to what attention gives.
    fn attend(
        &self,
        layer: Layer<'_>,
        (trace, passing): (&mut LayerTrace, &mut Passing),
        x: &[f32],
        packed: &Packed,
        rope: &RopeTable,
    ) {
        trace.resize(&self.config, packed.ids.len(), self.compute);
        self.compute.copy(x, &mut trace.x);
        layer.project_heads(trace, passing, (rope, &packed.positions));
        let LayerTrace { q, k, v, attention: out, log_sum, .. } = trace;
        self.compute.attention(self.config.attention(), q, k, v, &packed.spans, out, log_sum);
    }

    pub(crate) fn layer(&self, index: usize) -> Layer<'_> {
        Layer {
            config: &self.config,
            ranges: &self.layout.layers[index],
            weights: self.stored(),
            lora: self.lora.as_ref().map(|lora| lora.layer(index)),
            compute: self.compute,
        }
    }

    pub(crate) fn head(&self) -> Head<'_> {
        Head { config: &self.config, layout: &self.layout, weights: self.stored(), compute: self.compute }
    }

    /// The scalar head and the trained weights that hold it: the adapter's, if there is one.
    fn scalar_head(&self) -> Option<(&ScalarRanges, Floats<'_>)> {
        let of_lora = self.lora.as_ref().map(|lora| lora.scalar.as_ref());
        Some((of_lora.unwrap_or(self.layout.scalar.as_ref())?, self.trained()))
    }

    /// Adds to the gradients those of a loss with the given derivatives, both `[T]`, with respect to the log-probs
    /// (and entropies) of the last [`Decoder::forward`]. Values where the mask was 0 are ignored. Uses up the trace.
    ///
    /// # Errors
    /// `Closed` without a forward pass before; `ShapeMismatch` for another length; `NonFinite` for a derivative that
    /// is no number (the gradients are then unchanged).
    pub fn backward(&mut self, d_log_prob: &[f32], d_entropy: Option<&[f32]>) -> Result<()> {
        self.check_trace(Read::Before)?;
        for (name, values) in [("d_log_prob", Some(d_log_prob)), ("d_entropy", d_entropy)] {
            self.check_derivatives(name, values.unwrap_or_default(), values.is_some())?;
        }
        self.adding_gradients(|decoder, trace, gradients| {
            let d_found = |target: &Target| {
                let token = target.token as usize;
                (d_log_prob[token], d_entropy.map_or(0.0, |d| d[token]))
            };
            let Trace { packed, head, x: d_x, .. } = trace;
            decoder.head().backward(head, &packed.targets, d_found, gradients, d_x)
        })
    }

    /// Adds to the gradients those of a loss with the given derivatives `[T]` with respect to the values of the last
    /// [`Decoder::forward_values`]. Numbers where the mask was 0 are ignored. Uses up the trace.
    ///
    /// # Errors
    /// Those of [`Decoder::backward`].
    pub fn backward_values(&mut self, d_value: &[f32]) -> Result<()> {
        self.check_trace(Read::Own)?;
        self.check_derivatives("d_value", d_value, true)?;
        self.adding_gradients(|decoder, trace, gradients| {
            let scalar = decoder.scalar_head().ok_or_else(no_scalar_head)?;
            let Trace { packed, head, x: d_x, .. } = trace;
            let d_values: Vec<f32> =
                packed.targets.iter().map(|target| d_value[target.token as usize]).collect();
            decoder.head().backward_scalar(scalar, head, &packed.targets, &d_values, gradients, d_x)
        })
    }

    fn check_trace(&self, read: Read) -> Result<()> {
        if self.trace.ready == Some(read) {
            return Ok(());
        }
        let detail = match read {
            Read::Before => "backward must follow a forward pass: got none",
            Read::Own => "backward_values must follow a forward pass of values: got none",
        };
        Err(Error::new(ErrorKind::Closed, detail))
    }

    /// Runs a backward pass, which begins with that of a head.
    fn adding_gradients(
        &mut self,
        head: impl FnOnce(&Self, &mut Trace, &mut Gradients<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        if self.gradients.is_empty() {
            self.gradients = self.compute.zeros(self.num_trainable())?;
        }
        let mut trace = std::mem::take(&mut self.trace);
        let mut gradients = std::mem::take(&mut self.gradients);
        let mut sink = match self.lora {
            None => Gradients::Weights(&mut gradients),
            Some(_) => Gradients::Adapter(&mut gradients),
        };
        let went = together(|| {
            head(self, &mut trace, &mut sink)?;
            self.run_backward(&mut trace, &mut sink);
            self.compute.check()
        });
        trace.ready = None;
        (self.trace, self.gradients) = (trace, gradients);
        went
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

    /// From the gradient of the residual stream in `trace.x` down to the embedding.
    fn run_backward(&self, trace: &mut Trace, gradients: &mut Gradients<'_>) {
        let Trace { packed, layers, inputs, x: d_x, rope, passing, scratch, .. } = trace;
        let Some(rope) = rope else { return };
        scratch.resize(&self.config, packed.ids.len(), self.compute);
        for index in (0..self.layout.layers.len()).rev() {
            let layer = self.layer(index);
            let trace = match inputs.get(index) {
                None => &mut layers[index],
                Some(input) => {
                    let trace = &mut layers[0];
                    self.attend(layer, (trace, passing), input, packed, rope);
                    layer.gate(trace, passing);
                    trace
                }
            };
            layer.finish_backward(trace, passing, gradients, d_x, scratch);
            let LayerTrace { q, k: keys, v: values, attention: out, log_sum, .. } = &*trace;
            let saved = AttentionSaved { q, keys, values, out, log_sum };
            let Scratch { wide: d_out, d_q, d_k, d_v, .. } = scratch;
            self.compute.attention_backward(
                self.config.attention(),
                saved,
                &packed.spans,
                &packed.blocks,
                d_out,
                d_q,
                d_k,
                d_v,
            );
            let rope = (&*rope, packed.positions.as_slice());
            layer.project_heads_backward(trace, passing, gradients, d_x, scratch, rope);
        }
        if let Some(d_embed) = gradients.of(&self.layout.embed) {
            self.compute.embed_backward(d_x, self.config.hidden_size, &packed.ids, d_embed);
        }
    }
}

/// What weights or activations that are too large, or no numbers, come to.
fn non_finite(what: &str, target: &Target, value: f32) -> Error {
    let detail = format!(
        "{what} of token {} must be finite: got {value}; the weights or the activations of the decoder are too large or not numbers",
        target.token
    );
    Error::new(ErrorKind::NonFinite, detail)
}

fn no_scalar_head() -> Error {
    Error::new(ErrorKind::Incompatible, "a decoder must have a head that reads one number: got none")
}
