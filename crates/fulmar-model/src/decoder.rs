//! A decoder language model: weights, a forward pass that gives log-probs, and its backward pass.

mod activations;
mod adapter;
mod backward;
mod copies;
mod kept;
mod packed;
mod squares;

use std::borrow::Cow;

use fulmar_compute::{Compute, Floats, FloatsMut, MatmulPrecision, Memory, Numbers, RopeTable, View};
use fulmar_core::{Device, Dtype, Error, ErrorKind, Result};
use fulmar_tensor::safetensors;

use crate::config::DecoderConfig;
use crate::folder::ExtraFiles;
use crate::head::{Head, KEPT_LOGITS, LOGITS_CHUNK};
use crate::layer::{Layer, LayerActivations, Workspace};
use crate::lora::{Lora, MergedLora};
use crate::packing::{Packed, Read, Target, TokenBatch};
use crate::panels::PanelCache;
use crate::parameters::{self, Layout, Parameter, ScalarRanges};
use crate::weights::Weights;

pub(crate) use activations::{Activations, CheckpointPolicy, Spare};
pub(crate) use kept::KeptActivations;
pub(crate) use packed::PackedDecoder;

/// Log-probs and entropies of a [`TokenBatch`], flat like its ids; 0 where the mask is 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// `[T]`: natural log-prob of each masked token after the tokens before it.
    pub log_prob: Vec<f32>,
    /// `[T]`: entropy in nats of the distribution of that token.
    pub entropy: Vec<f32>,
}

/// A decoder with its weights and, in training, its gradients and the activations of the last forward pass.
///
/// The shapes are those of Llama, Qwen2 and Qwen3: RMSNorm, rotary embedding, grouped-query attention,
/// SwiGLU. Results do not depend on the number of threads or on the other sequences in a batch.
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
    /// The weights of all products in 8 bits, with the adapter.
    quantized: PanelCache,
    pub(crate) lora: Option<Lora>,
    pub(crate) extra_files: ExtraFiles,
    gradients: Memory<f32>,
    activations: Activations,
    spare: Spare,
    /// Activations that an engine kept for the next forward pass.
    pub(crate) kept: KeptActivations,
    recomputes: bool,
    matmul_precision: MatmulPrecision,
    version: u64,
}

impl Decoder {
    /// Returns a decoder with new weights from `seed`.
    ///
    /// # Errors
    /// The errors of [`DecoderConfig::checked`].
    pub fn new(config: DecoderConfig, seed: u64) -> Result<Self> {
        Self::with_weights(config, |config, layout| Ok(layout.init(config, seed)))
    }

    /// Returns a decoder from a safetensors file in memory, with Hugging Face's tensor names.
    ///
    /// # Errors
    /// The errors of [`DecoderConfig::checked`] and [`safetensors::read`]; `Incompatible` if the tensors are
    /// those of another architecture; `NonFinite` for a weight that is not finite.
    pub fn from_safetensors(config: DecoderConfig, bytes: &[u8]) -> Result<Self> {
        Self::with_weights(config, |_, layout| {
            parameters::read(&layout.parameters, &safetensors::read(bytes)?)
        })
    }

    /// Returns a decoder with the weights that `weights` returns for a shape.
    pub(crate) fn with_weights(
        config: DecoderConfig,
        weights: impl FnOnce(&DecoderConfig, &Layout) -> Result<Vec<f32>>,
    ) -> Result<Self> {
        let config = config.checked()?;
        let layout = Layout::new(&config);
        let weights = weights(&config, &layout)?.into();
        let mut decoder = Self {
            config,
            layout,
            compute: Compute::Cpu,
            weights,
            quantized: PanelCache::default(),
            lora: None,
            extra_files: ExtraFiles::default(),
            gradients: Memory::default(),
            activations: Activations::default(),
            spare: Spare::default(),
            kept: KeptActivations::default(),
            recomputes: false,
            matmul_precision: MatmulPrecision::F32,
            version: 0,
        };
        decoder.store_for_passes();
        Ok(decoder)
    }

    /// Stores the weights as forward passes and engines read them best.
    pub(crate) fn store_for_passes(&mut self) {
        let is_f32 = self.dtype() == Dtype::F32 && self.matmul_precision == MatmulPrecision::F32;
        match is_f32 && self.compute == Compute::Cpu && self.lora.is_none() {
            true => self.weights.pack_in_place(&self.layout),
            false => self.weights.unpack_in_place(&self.layout),
        }
    }

    /// Returns the dtype of the weights.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.weights.dtype()
    }

    /// Returns the device of the decoder.
    #[must_use]
    pub fn device(&self) -> Device {
        self.compute.device()
    }

    /// Returns the handle of its device.
    #[must_use]
    pub const fn compute(&self) -> Compute {
        self.compute
    }

    /// Returns the weights as a safetensors file in their dtype; the same weights give the same bytes.
    ///
    /// # Errors
    /// The errors of [`safetensors::write`].
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        let inputs_of_panels =
            |range: &_| self.weights.are_packed().then(|| self.layout.inputs_of_panels(range)).flatten();
        parameters::write(&self.layout.parameters, self.stored(), inputs_of_panels)
    }

    /// Returns the shape.
    #[must_use]
    pub const fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Returns the number of weights.
    #[must_use]
    pub const fn num_parameters(&self) -> usize {
        self.layout.len
    }

    /// Returns names, shapes and ranges of the tensors in [`Decoder::weights`].
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.layout.parameters
    }

    /// Returns all weights in single precision: a copy, unless they are stored so in main memory. Empty if a GPU fails.
    #[must_use]
    pub fn weights(&self) -> Cow<'_, [f32]> {
        self.weights.rows(&self.layout).unwrap_or_default()
    }

    /// Returns all weights in their dtype, those of whole panels packed in their place or not.
    pub(crate) fn stored(&self) -> Floats<'_> {
        self.weights.view()
    }

    /// Returns the number of changes of the weights since they were made: steps of an optimizer, and adapters
    /// loaded or merged.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns names, shapes and ranges of the trained tensors: all, or the adapter's.
    #[must_use]
    pub fn trainable(&self) -> &[Parameter] {
        self.lora.as_ref().map_or(&self.layout.parameters, |lora| &lora.parameters)
    }

    /// Returns the number of trained weights.
    #[must_use]
    pub fn num_trainable(&self) -> usize {
        self.lora.as_ref().map_or(self.layout.len, |lora| lora.weights().len())
    }

    /// Drops gradients, activations and merged weights when the trained weights become others.
    fn forget_training(&mut self) {
        if let Some(lora) = &mut self.lora {
            lora.forget_merged();
        }
        self.quantized.forget();
        self.kept.forget();
        self.gradients = Memory::default();
        self.activations.ready = None;
    }

    /// Returns the gradients of the trained weights, accumulated since [`Decoder::zero_gradients`]: borrowed, or a copy of those on
    /// a GPU. Empty before the first backward pass, and if the GPU fails.
    #[must_use]
    pub fn gradients(&self) -> Cow<'_, [f32]> {
        self.gradients.view().read().unwrap_or_default()
    }

    /// Returns `true` after a backward pass.
    pub(crate) fn has_gradients(&self) -> bool {
        !self.gradients.is_empty()
    }

    /// Returns the adapter merged into the present weights, if there is one.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for the merged weights.
    pub(crate) fn merged_lora(&self) -> Result<Option<MergedLora<'_>>> {
        self.lora.as_ref().map(|lora| lora.merged(&self.layout, self.stored(), self.precision())).transpose()
    }

    /// Counts a change of the weights.
    pub(crate) const fn count_change(&mut self) {
        self.version += 1;
    }

    /// Returns the trained weights and their gradients, for a step of an optimizer.
    pub(crate) fn trainable_and_gradients(&mut self) -> (FloatsMut<'_>, View<'_, f32>) {
        self.version += 1;
        self.quantized.forget();
        self.kept.forget();
        self.weights.unpack_in_place(&self.layout);
        let trained = match &mut self.lora {
            Some(lora) => FloatsMut::F32(lora.weights_mut()),
            None => self.weights.view_mut(),
        };
        (trained, self.gradients.view())
    }

    /// Returns the trained weights in their dtype.
    pub(crate) fn trained(&self) -> Floats<'_> {
        self.lora.as_ref().map_or_else(|| self.stored(), |lora| Floats::F32(lora.weights()))
    }

    /// Returns the Euclidean norm of all gradients.
    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        self.gradients.compute().sum_of_squares(&self.gradients).sqrt()
    }

    /// Sets all gradients to 0.
    pub fn zero_gradients(&mut self) {
        self.gradients.compute().fill(&mut self.gradients, 0.0);
    }

    /// If `recomputes`, forward passes store only the input of each layer, and backward passes recompute the
    /// rest: the same bits for about a third more time, with the activations of one layer instead of all.
    pub fn recompute_activations(&mut self, recomputes: bool) {
        self.recomputes = recomputes;
        self.activations = Activations { rope: self.activations.rope.take(), ..Activations::default() };
    }

    /// Returns the number of bytes of the activations of the last [`Decoder::forward`] and of its backward
    /// pass.
    #[must_use]
    pub fn trace_bytes(&self) -> usize {
        self.activations.num_bytes()
    }

    /// Returns log-probs and entropies of the masked tokens. Stores no activations.
    ///
    /// # Errors
    /// The errors of [`TokenBatch::check`]; `Incompatible` for a model without a vocabulary head; `NonFinite`
    /// if weights or activations overflow or are NaN.
    pub fn score(&self, batch: &TokenBatch<'_>) -> Result<Scores> {
        self.score_with(batch, |_, _| {})
    }

    /// Runs [`Decoder::score`] and calls `visit(targets, logits)` for chunks of the masked tokens.
    pub(crate) fn score_with(
        &self,
        batch: &TokenBatch<'_>,
        visit: impl FnMut(&[Target], View<'_, f32>),
    ) -> Result<Scores> {
        self.spare.with(|activations| {
            activations.without_adapter = false;
            self.run_with(batch, activations, CheckpointPolicy::Nothing, visit)
        })
    }

    /// Returns [`Decoder::score`] of the weights without their adapter: the reference of a policy that is
    /// trained by an adapter, without a second copy of the weights.
    ///
    /// # Errors
    /// The errors of [`Decoder::score`]; `Empty` without an adapter.
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
        self.spare.with(|activations| {
            activations.without_adapter = true;
            self.run(batch, activations, CheckpointPolicy::Nothing)
        })
    }

    /// Runs [`Decoder::score`] and stores the activations for [`Decoder::backward`]. If an engine kept those of
    /// all rows, see [`EngineOptions::activation_bytes_max`](crate::EngineOptions::activation_bytes_max), copies
    /// them and computes the head alone: the same bits.
    ///
    /// # Errors
    /// The errors of [`Decoder::score`]; the stored activations are then gone.
    pub fn forward(&mut self, batch: &TokenBatch<'_>) -> Result<Scores> {
        self.keeping(Read::Before, |decoder, activations, policy| decoder.run(batch, activations, policy))
    }

    /// Runs a forward pass that stores the activations for the backward pass of `read`.
    fn keeping<T>(
        &mut self,
        read: Read,
        run: impl FnOnce(&Self, &mut Activations, CheckpointPolicy) -> Result<T>,
    ) -> Result<T> {
        let mut activations = std::mem::take(&mut self.activations);
        activations.ready = None;
        let policy = if self.recomputes { CheckpointPolicy::Inputs } else { CheckpointPolicy::All };
        let result = run(self, &mut activations, policy);
        activations.ready = result.is_ok().then_some(read);
        self.activations = activations;
        result
    }

    /// Returns the outputs of the scalar head at the masked tokens: `value[t]` is the value after token `t`,
    /// and 0 where the mask is 0. A sequence's first token may be masked too; for the reward of a sequence
    /// mask its last token. Stores no activations.
    ///
    /// # Errors
    /// The errors of [`TokenBatch::check`], except for first tokens; `Incompatible` for a model without a
    /// scalar head.
    pub fn values(&self, batch: &TokenBatch<'_>) -> Result<Vec<f32>> {
        self.spare.with(|activations| {
            activations.without_adapter = false;
            self.run_values(batch, activations, CheckpointPolicy::Nothing)
        })
    }

    /// Runs [`Decoder::values`] and stores the activations for [`Decoder::backward_values`].
    ///
    /// # Errors
    /// The errors of [`Decoder::values`]; the stored activations are then gone.
    pub fn forward_values(&mut self, batch: &TokenBatch<'_>) -> Result<Vec<f32>> {
        self.keeping(Read::Own, |decoder, activations, policy| decoder.run_values(batch, activations, policy))
    }

    fn run_values(
        &self,
        batch: &TokenBatch<'_>,
        activations: &mut Activations,
        policy: CheckpointPolicy,
    ) -> Result<Vec<f32>> {
        let scalar = self.scalar_head().ok_or_else(no_scalar_head)?;
        batch.check_rows(&self.config)?;
        activations.packed = Packed::new(batch, Read::Own);
        activations.num_tokens = batch.ids.len();
        self.run_layers(activations, policy)?;
        let outputs = self.head().forward_scalar(
            scalar,
            activations.x.view(),
            &activations.packed.targets,
            &mut activations.head,
        )?;
        let mut values = vec![0.0; batch.ids.len()];
        for (target, value) in activations.packed.targets.iter().zip(outputs) {
            if !value.is_finite() {
                return Err(non_finite("value", target, value));
            }
            values[target.token as usize] = value;
        }
        Ok(values)
    }

    fn run(
        &self,
        batch: &TokenBatch<'_>,
        activations: &mut Activations,
        policy: CheckpointPolicy,
    ) -> Result<Scores> {
        self.run_with(batch, activations, policy, |_, _| {})
    }

    /// Runs [`Decoder::run`] and calls `visit(targets, logits)` for chunks of the masked tokens.
    pub(crate) fn run_with(
        &self,
        batch: &TokenBatch<'_>,
        activations: &mut Activations,
        policy: CheckpointPolicy,
        visit: impl FnMut(&[Target], View<'_, f32>),
    ) -> Result<Scores> {
        self.head().check()?;
        batch.check(&self.config)?;
        activations.packed = Packed::new(batch, Read::Before);
        activations.num_tokens = batch.ids.len();
        if !self.copy_kept(activations, policy) {
            self.run_layers(activations, policy)?;
        }
        self.head_of(policy).forward(
            activations.x.view(),
            &activations.packed.targets,
            &mut activations.head,
            visit,
        )?;
        let (mut log_prob, mut entropy) = (vec![0.0; batch.ids.len()], vec![0.0; batch.ids.len()]);
        for (target, scored) in activations.packed.targets.iter().zip(&activations.head.log_probs) {
            if let Some(value) =
                [scored.log_prob, scored.entropy].into_iter().find(|value| !value.is_finite())
            {
                return Err(non_finite("log-prob", target, value));
            }
            log_prob[target.token as usize] = scored.log_prob;
            entropy[target.token as usize] = scored.entropy;
        }
        Ok(Scores { log_prob, entropy })
    }

    fn run_layers(&self, activations: &mut Activations, policy: CheckpointPolicy) -> Result<()> {
        let lora = if activations.without_adapter { None } else { self.merged_lora()? };
        activations.resize(policy, self.layout.layers.len());
        let Activations { packed, layers, inputs, x, rope, workspace, .. } = activations;
        workspace.resize(&self.config, packed.ids.len(), self.compute, self.activation_dtype());
        let rope = rope.get_or_insert_with(|| self.config.rope());
        rope.extend_to(packed.positions.iter().max().map_or(0, |last| *last as usize + 1));
        self.compute.resize(x, packed.ids.len() * self.config.hidden_size);
        self.embed((&packed.ids).into(), x);
        for index in 0..self.layout.layers.len() {
            if let Some(input) = inputs.get_mut(index) {
                self.compute.resize(input, x.len());
                self.compute.copy(&*x, input);
            }
            let activations = &mut layers[if policy == CheckpointPolicy::All { index } else { 0 }];
            let layer = self.layer(index, lora);
            self.attend(layer, (activations, workspace), x, packed, rope);
            layer.finish(activations, workspace, x);
        }
        self.compute.check()
    }

    /// Writes the embedding of each id to `x`.
    pub(crate) fn embed(&self, ids: Numbers<'_>, x: &mut Memory<f32>) {
        let (range, width) = (&self.layout.embed, self.config.hidden_size);
        let table = self.stored().slice(range.clone());
        match self.weights.are_packed() && self.layout.inputs_of_panels(range).is_some() {
            true => self.compute.embed_packed(table.f32(), width, ids, &mut *x),
            false => self.compute.embed(table, width, ids, &mut *x),
        }
    }

    /// Runs the first half of a layer, up to the output of attention.
    fn attend(
        &self,
        layer: Layer<'_>,
        (activations, workspace): (&mut LayerActivations, &mut Workspace),
        x: &Memory<f32>,
        packed: &Packed,
        rope: &RopeTable,
    ) {
        activations.resize(&self.config, packed.ids.len(), self.compute, self.activation_dtype());
        self.compute.copy(x, &mut activations.x);
        layer.project_heads(activations, workspace, (rope, &packed.positions));
        let LayerActivations { q, k, v, attention: out, log_sum, .. } = activations;
        let keys = self.compute.keys_in(&mut workspace.keys, k.view(), self.config.kv_width());
        self.compute.attention(self.config.attention(), &*q, keys, v.view(), &packed.spans, out, log_sum);
    }

    pub(crate) fn layer<'a>(&'a self, index: usize, lora: Option<MergedLora<'a>>) -> Layer<'a> {
        Layer {
            config: &self.config,
            ranges: &self.layout.layers[index],
            weights: self.stored(),
            are_packed: self.weights.are_packed(),
            panels: self.weights.panels(),
            lora: lora.map(|lora| lora.layer(index)),
            precision: self.precision(),
            compute: self.compute,
        }
    }

    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            config: &self.config,
            layout: &self.layout,
            weights: self.stored(),
            are_packed: self.weights.are_packed(),
            panels: self.weights.panels(),
            logits_max: LOGITS_CHUNK,
            kept_max: 0,
            precision: self.precision(),
            compute: self.compute,
        }
    }

    /// Returns the head of a forward pass that stores activations by `policy`.
    fn head_of(&self, policy: CheckpointPolicy) -> Head<'_> {
        let kept_max = if policy == CheckpointPolicy::All { KEPT_LOGITS } else { 0 };
        Head { kept_max, ..self.head() }
    }

    /// Returns the precision of the products of a pass. On a GPU those of weights in bfloat16 round all that they multiply.
    pub(crate) fn precision(&self) -> MatmulPrecision {
        match (self.compute, self.stored()) {
            (Compute::Cuda(_), Floats::Bf16(_)) => MatmulPrecision::Bf16,
            _ => self.matmul_precision,
        }
    }

    /// Returns the dtype of what enters products and attention: bfloat16 for weights in bfloat16 on a GPU, whose attention has
    /// kernels for some widths of heads. Otherwise it is single precision, and products round what they take.
    pub(crate) fn activation_dtype(&self) -> Dtype {
        let is_in_halves = self.compute.attends_in_bf16(self.config.head_dim());
        if is_in_halves { self.dtype() } else { Dtype::F32 }
    }

    /// Returns the scalar head and the trained weights that contain it: the adapter's, if there is one.
    fn scalar_head(&self) -> Option<(&ScalarRanges, Floats<'_>)> {
        let of_lora = self.lora.as_ref().map(|lora| lora.scalar.as_ref());
        Some((of_lora.unwrap_or(self.layout.scalar.as_ref())?, self.trained()))
    }
}

/// Returns the error for weights or activations that overflow or are NaN.
fn non_finite(what: &str, target: &Target, value: f32) -> Error {
    let detail = format!(
        "{what} of token {} must be finite: got {value}; the weights or the activations of the decoder are too large or not numbers",
        target.token
    );
    Error::new(ErrorKind::NonFinite, detail)
}

fn no_scalar_head() -> Error {
    Error::new(ErrorKind::Incompatible, "a decoder must have a scalar head for values")
}
