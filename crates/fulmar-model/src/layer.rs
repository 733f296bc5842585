//! One decoder layer over rows: the three steps shared by the trainer and the sampler.
//!
//! ```text
//! n1 = norm(x)      q, k, v = n1 Wq + bq, n1 Wk + bk, n1 Wv + bv      q, k normalised by head (Qwen3), rotated by position
//! x += attention(q, k, v) Wo
//! n2 = norm(x)      x += (silu(n2 Wg) * (n2 Wu)) Wd
//! ```
//! Because both call these functions, the log-probs of sampled tokens equal the trainer's to the bit.

use std::ops::Range;

use fulmar_compute::{
    Compute, FloatMemory, Floats, FloatsMut, MatRef, MatmulPrecision, Memory, Numbers, Panels, Placed,
    RopeTable, RowNumbers, ViewMut,
};
use fulmar_core::Dtype;
use fulmar_tensor::bf16;

use crate::config::DecoderConfig;
use crate::lora::LayerLora;
use crate::panels::{PanelsByStart, in_panels};
use crate::parameters::{LayerRanges, Linear, ScalarRanges};

/// The activations of one layer for N rows that its backward pass needs. Inputs of products have the dtype of
/// [`Decoder::activation_dtype`](crate::Decoder), all else is in single precision.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerActivations {
    /// The input residual stream `[N, D]`.
    pub x: Memory<f32>,
    pub inv_rms1: Memory<f32>,
    pub q: FloatMemory,
    pub k: FloatMemory,
    pub v: FloatMemory,
    /// Queries and keys before normalisation, and the scale of each head; empty if the family does not
    /// normalise heads.
    pub raw_q: Memory<f32>,
    pub raw_k: Memory<f32>,
    pub inv_rms_q: Memory<f32>,
    pub inv_rms_k: Memory<f32>,
    pub attention: FloatMemory,
    pub log_sum: Memory<f32>,
    /// The residual stream between attention and feed-forward.
    pub x_mid: Memory<f32>,
    pub inv_rms2: Memory<f32>,
    pub gate: Memory<f32>,
    pub up: Memory<f32>,
}

/// Buffers that every layer computes anew, forward and backward: cheap to compute compared to the memory that
/// storing them takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workspace {
    /// The residual stream, normalised `[N, D]`.
    norm: FloatMemory,
    /// The input of the feed-forward's last projection.
    act: FloatMemory,
    /// Keys as attention reads them.
    pub keys: Memory<f32>,
    /// Queries, keys and values before they are rounded; empty if they are not.
    wide: [Memory<f32>; 3],
}

impl Workspace {
    /// Returns the number of allocated bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        let Self { norm, act, keys, wide } = self;
        norm.num_bytes()
            + act.num_bytes()
            + keys.num_bytes()
            + wide.iter().map(Memory::num_bytes).sum::<usize>()
    }

    pub(crate) fn resize(&mut self, config: &DecoderConfig, rows: usize, compute: Compute, dtype: Dtype) {
        compute.resize_as(&mut self.norm, dtype, rows * config.hidden_size);
        compute.resize_as(&mut self.act, dtype, rows * config.intermediate_size);
        let wide_rows = if dtype == Dtype::Bf16 { rows } else { 0 };
        for (buffer, width) in
            self.wide.iter_mut().zip([config.q_width(), config.kv_width(), config.kv_width()])
        {
            compute.resize(buffer, wide_rows * width);
        }
    }
}

impl LayerActivations {
    /// Resizes to `rows` rows and keeps the memory of larger batches.
    pub(crate) fn resize(&mut self, config: &DecoderConfig, rows: usize, compute: Compute, dtype: Dtype) {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        for buffer in [&mut self.x, &mut self.x_mid] {
            compute.resize(buffer, rows * hidden);
        }
        for buffer in [&mut self.q, &mut self.attention] {
            compute.resize_as(buffer, dtype, rows * config.q_width());
        }
        for buffer in [&mut self.k, &mut self.v] {
            compute.resize_as(buffer, dtype, rows * config.kv_width());
        }
        for buffer in [&mut self.gate, &mut self.up] {
            compute.resize(buffer, rows * inner);
        }
        for buffer in [&mut self.inv_rms1, &mut self.inv_rms2] {
            compute.resize(buffer, rows);
        }
        compute.resize(&mut self.log_sum, 2 * rows * config.num_attention_heads);
    }

    /// Returns the number of allocated bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        let Self { x, inv_rms1, q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, .. } = self;
        let Self { attention, log_sum, x_mid, inv_rms2, gate, up, .. } = self;
        let wide = [x, inv_rms1, raw_q, raw_k, inv_rms_q, inv_rms_k, log_sum, x_mid, inv_rms2, gate, up];
        let inputs = [q, k, v, attention].into_iter().map(FloatMemory::num_bytes);
        inputs.chain(wide.into_iter().map(Memory::num_bytes)).sum()
    }

    /// Returns all buffers, each `[N, width]`; the width is 0 where the family has no such activations. All are in single
    /// precision, as those of the CPU are.
    pub(crate) fn buffers(&self) -> [&Memory<f32>; 15] {
        let Self { x, inv_rms1, q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, .. } = self;
        let Self { attention, log_sum, x_mid, inv_rms2, gate, up, .. } = self;
        let [q, k, v, attention] = [q, k, v, attention].map(FloatMemory::f32);
        [
            x, inv_rms1, q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, attention, log_sum, x_mid, inv_rms2,
            gate, up,
        ]
    }

    /// Returns [`LayerActivations::buffers`] to write to.
    pub(crate) fn buffers_mut(&mut self) -> [&mut Memory<f32>; 15] {
        let Self { x, inv_rms1, q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, .. } = self;
        let Self { attention, log_sum, x_mid, inv_rms2, gate, up, .. } = self;
        let [q, k, v, attention] = [q, k, v, attention].map(FloatMemory::f32_mut);
        [
            x, inv_rms1, q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, attention, log_sum, x_mid, inv_rms2,
            gate, up,
        ]
    }
}

/// The weights of one layer, a view of the buffer of all weights.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub config: &'a DecoderConfig,
    pub ranges: &'a LayerRanges,
    pub weights: Floats<'a>,
    /// `true` if weights of whole panels are packed in their place.
    pub are_packed: bool,
    pub panels: Option<&'a PanelsByStart>,
    pub lora: Option<LayerLora<'a>>,
    pub precision: MatmulPrecision,
    pub compute: Compute,
}

impl Layer<'_> {
    /// Returns a norm's or a bias's weights.
    fn of(&self, range: &Range<usize>) -> Placed<'_, f32> {
        self.weights.slice(range.clone()).to_f32()
    }

    /// Returns the frozen or trained weight of a projection, `[outputs, inputs]`, without its adapter. It is not packed.
    fn weight(&self, linear: &Linear) -> MatRef<'_> {
        let weights = self.weights.slice(linear.weight.clone());
        MatRef::of(weights, linear.outputs, linear.inputs).in_precision(self.precision)
    }

    /// Returns the transposed weight of a projection, merged with its adapter if it has one.
    pub(crate) fn projection(&self, linear: &Linear) -> MatRef<'_> {
        let start = &linear.weight.start;
        let merged = self.lora.and_then(|lora| lora.merged(linear));
        let copied = || self.panels.and_then(|panels| panels.get(start)).map(Panels::view);
        let in_place =
            || self.are_packed.then(|| in_panels(self.weights, &linear.weight, linear.inputs)).flatten();
        let packed = || copied().or_else(in_place).map(MatRef::of_panels);
        merged.or_else(packed).unwrap_or_else(|| self.weight(linear).transposed())
    }

    /// Adds `input * weight^T` to `out`.
    fn add_projection(&self, linear: &Linear, input: Floats<'_>, out: &mut Memory<f32>) {
        let rows = input.len() / linear.inputs;
        self.compute.matmul(out, MatRef::of(input, rows, linear.inputs), self.projection(linear), true);
    }

    /// Computes `out = input * weight^T + bias` for projections of the same input, of which all or none have a bias.
    fn project<const N: usize>(
        &self,
        input: Floats<'_>,
        biases: Option<&[Range<usize>; N]>,
        outs: [(&Linear, &mut Memory<f32>); N],
    ) {
        let biases = biases.map(|biases| biases.each_ref().map(|bias| self.of(bias)));
        let mut biases = biases.iter().flatten().map(Placed::view);
        let products = outs.map(|(linear, out)| (out.view_mut(), self.projection(linear), biases.next()));
        self.compute.matmul_each(self.rows(input), products);
    }

    /// Returns rows of the residual stream's width.
    fn rows<'x>(&self, input: Floats<'x>) -> MatRef<'x> {
        let width = self.config.hidden_size;
        MatRef::of(input, input.len() / width, width)
    }

    /// Fills `q`, `k` and `v` (rotated) from `x`.
    pub(crate) fn project_heads<'p>(
        &self,
        activations: &mut LayerActivations,
        workspace: &mut Workspace,
        (rope, positions): (&RopeTable, impl Into<Numbers<'p>>),
    ) {
        let (config, ranges, positions) = (self.config, self.ranges, positions.into());
        let Workspace { norm, wide: [q_room, k_room, v_room], .. } = workspace;
        self.normalise(&ranges.input_norm, &activations.x, norm.view_mut(), &mut activations.inv_rms1);
        let LayerActivations { q, k, v, raw_q, raw_k, inv_rms_q, inv_rms_k, .. } = activations;
        let (q_wide, k_wide, v_wide) = (wide(q, q_room), wide(k, k_room), wide(v, v_room));
        let outs = [(&ranges.q, &mut *q_wide), (&ranges.k, &mut *k_wide), (&ranges.v, &mut *v_wide)];
        self.project(norm.view(), ranges.qkv_bias.as_ref(), outs);
        if let Some([q_norm, k_norm]) = &ranges.qk_norm {
            self.normalise_heads(q_norm, q_wide, raw_q, inv_rms_q);
            self.normalise_heads(k_norm, k_wide, raw_k, inv_rms_k);
        }
        self.rotate(rope, (q, q_room), config.num_attention_heads, positions);
        self.rotate(rope, (k, k_room), config.num_kv_heads(), positions);
        if let FloatMemory::Bf16(v) = v {
            self.compute.f32_to_bf16(&*v_room, v);
        }
    }

    /// Rotates heads in their place, or rounds those in `room` to it.
    fn rotate(
        &self,
        rope: &RopeTable,
        (heads, room): (&mut FloatMemory, &Memory<f32>),
        num_heads: usize,
        positions: Numbers<'_>,
    ) {
        match heads {
            FloatMemory::F32(heads) => self.compute.rotate(rope, heads, num_heads, positions),
            FloatMemory::Bf16(heads) => {
                self.compute.rotate_rounded(rope, room, num_heads, positions, heads);
            }
        }
    }

    fn normalise(
        &self,
        weight: &Range<usize>,
        x: &Memory<f32>,
        out: FloatsMut<'_>,
        inv_rms: &mut Memory<f32>,
    ) {
        self.compute.rms_norm(x, &self.of(weight), self.config.rms_norm_eps as f32, out, inv_rms);
    }

    /// Normalises every head of `heads`, and stores its input in `raw`.
    fn normalise_heads(
        &self,
        weight: &Range<usize>,
        heads: &mut Memory<f32>,
        raw: &mut Memory<f32>,
        inv_rms: &mut Memory<f32>,
    ) {
        self.compute.resize(raw, heads.len());
        self.compute.copy(&*heads, &mut *raw);
        self.compute.resize(inv_rms, heads.len() / weight.len());
        self.normalise(weight, raw, heads.into(), inv_rms);
    }

    /// Computes the activations after `attention`, and writes the residual stream after the layer to `out`.
    pub(crate) fn finish(
        &self,
        activations: &mut LayerActivations,
        workspace: &mut Workspace,
        out: &mut Memory<f32>,
    ) {
        self.enter_feed_forward(activations, workspace);
        let (LayerActivations { gate, up, x_mid, .. }, Workspace { norm, act, .. }) =
            (activations, workspace);
        let gate = (gate.view_mut(), self.projection(&self.ranges.gate));
        let up = (up.view_mut(), self.projection(&self.ranges.up));
        self.compute.matmul_gated(self.rows(norm.view()), gate, up, act.view_mut());
        self.compute.copy(&*x_mid, &mut *out);
        self.add_projection(&self.ranges.down, act.view(), out);
    }

    /// Computes the activations after `attention` that [`Layer::finish_backward`] needs.
    pub(crate) fn gate(&self, activations: &mut LayerActivations, workspace: &mut Workspace) {
        self.enter_feed_forward(activations, workspace);
        let (ranges, LayerActivations { gate, up, .. }) = (self.ranges, activations);
        self.project(workspace.norm.view(), None, [(&ranges.gate, gate), (&ranges.up, up)]);
    }

    /// Adds the output of attention to the residual stream, and normalises it.
    fn enter_feed_forward(&self, activations: &mut LayerActivations, workspace: &mut Workspace) {
        let (ranges, norm) = (self.ranges, &mut workspace.norm);
        self.compute.copy(&activations.x, &mut activations.x_mid);
        self.add_projection(&ranges.o, activations.attention.view(), &mut activations.x_mid);
        self.normalise(&ranges.post_norm, &activations.x_mid, norm.view_mut(), &mut activations.inv_rms2);
    }

    /// Runs the backward pass of [`Layer::finish`]: replaces `d_x`, the gradient of the layer's output, by
    /// the gradient of `x_mid` through the residual branch of attention, and fills `scratch.wide` with the
    /// gradient of `attention`.
    pub(crate) fn finish_backward(
        &self,
        activations: &mut LayerActivations,
        workspace: &mut Workspace,
        gradients: &mut Gradients<'_>,
        d_x: &mut Memory<f32>,
        scratch: &mut Scratch,
    ) {
        let (ranges, Workspace { norm, act, .. }) = (self.ranges, workspace);
        self.compute.swiglu(&activations.gate, &activations.up, &mut *act);
        self.project_backward(
            &ranges.down,
            d_x,
            act.view(),
            (&mut scratch.inner, false),
            gradients,
            &mut scratch.rounded,
        );
        self.compute.swiglu_backward(&mut activations.gate, &mut activations.up, &scratch.inner);
        self.normalise(&ranges.post_norm, &activations.x_mid, norm.view_mut(), &mut activations.inv_rms2);
        self.project_backward(
            &ranges.gate,
            &activations.gate,
            norm.view(),
            (&mut scratch.hidden, false),
            gradients,
            &mut scratch.rounded,
        );
        self.project_backward(
            &ranges.up,
            &activations.up,
            norm.view(),
            (&mut scratch.hidden, true),
            gradients,
            &mut scratch.rounded,
        );
        let d_norm = gradients.of(&ranges.post_norm);
        self.compute.rms_norm_backward(
            &activations.x_mid,
            &self.of(&ranges.post_norm),
            &activations.inv_rms2,
            &scratch.hidden,
            &mut *d_x,
            d_norm,
        );
        self.project_backward(
            &ranges.o,
            d_x,
            activations.attention.view(),
            (&mut scratch.wide, false),
            gradients,
            &mut scratch.rounded,
        );
    }

    /// Runs the backward pass of [`Layer::project_heads`], given the gradients of `q`, `k` and `v` in
    /// `scratch`: adds to `d_x`, the gradient of the residual stream.
    pub(crate) fn project_heads_backward(
        &self,
        activations: &mut LayerActivations,
        workspace: &mut Workspace,
        gradients: &mut Gradients<'_>,
        d_x: &mut Memory<f32>,
        scratch: &mut Scratch,
        (rope, positions): (&RopeTable, &RowNumbers),
    ) {
        let (config, ranges) = (self.config, self.ranges);
        self.compute.rotate_back(rope, &mut scratch.d_q, config.num_attention_heads, positions);
        self.compute.rotate_back(rope, &mut scratch.d_k, config.num_kv_heads(), positions);
        if let Some([q_norm, k_norm]) = &ranges.qk_norm {
            let Scratch { d_q, d_k, d_heads, .. } = scratch;
            self.normalise_heads_backward(
                q_norm,
                (&activations.raw_q, &activations.inv_rms_q),
                d_q,
                d_heads,
                gradients,
            );
            self.normalise_heads_backward(
                k_norm,
                (&activations.raw_k, &activations.inv_rms_k),
                d_k,
                d_heads,
                gradients,
            );
        }
        if let Some(biases) = &ranges.qkv_bias {
            for (bias, d_out) in biases.iter().zip([&scratch.d_q, &scratch.d_k, &scratch.d_v]) {
                if let Some(d_bias) = gradients.of(bias) {
                    self.compute.bias_backward(d_out, d_bias);
                }
            }
        }
        let (Scratch { hidden, d_q, d_k, d_v, rounded, .. }, norm) = (scratch, &mut workspace.norm);
        self.normalise(&ranges.input_norm, &activations.x, norm.view_mut(), &mut activations.inv_rms1);
        self.project_backward(&ranges.q, d_q, norm.view(), (hidden, false), gradients, rounded);
        self.project_backward(&ranges.k, d_k, norm.view(), (hidden, true), gradients, rounded);
        self.project_backward(&ranges.v, d_v, norm.view(), (hidden, true), gradients, rounded);
        let d_norm = gradients.of(&ranges.input_norm);
        self.compute.rms_norm_backward(
            &activations.x,
            &self.of(&ranges.input_norm),
            &activations.inv_rms1,
            &*hidden,
            &mut *d_x,
            d_norm,
        );
    }

    /// Runs the backward pass of [`Layer::normalise_heads`]: replaces `d_heads` by the gradient of the raw
    /// heads.
    fn normalise_heads_backward(
        &self,
        weight: &Range<usize>,
        (raw, inv_rms): (&Memory<f32>, &Memory<f32>),
        d_heads: &mut Memory<f32>,
        spare: &mut Memory<f32>,
        gradients: &mut Gradients<'_>,
    ) {
        self.compute.resize(spare, d_heads.len());
        self.compute.copy(&*d_heads, &mut *spare);
        self.compute.fill(&mut *d_heads, 0.0);
        self.compute.rms_norm_backward(
            raw,
            &self.of(weight),
            inv_rms,
            &*spare,
            d_heads,
            gradients.of(weight),
        );
    }

    /// Runs the backward pass of [`Layer::project`]: writes to `d_in`, or adds to it, and adds to the
    /// gradients. `rounded` holds [`Scratch::rounded`].
    fn project_backward(
        &self,
        linear: &Linear,
        d_out: &Memory<f32>,
        input: Floats<'_>,
        (d_in, add): (&mut Memory<f32>, bool),
        gradients: &mut Gradients<'_>,
        rounded: &mut Memory<bf16>,
    ) {
        let rows = d_out.len() / linear.outputs;
        let d_rows = match input {
            Floats::F32(_) => Floats::from(d_out),
            Floats::Bf16(_) => {
                self.compute.f32_to_bf16(d_out, rounded.view_mut().slice(..d_out.len()));
                rounded.view().slice(..d_out.len()).into()
            }
        };
        let d_rows = MatRef::of(d_rows, rows, linear.outputs);
        self.compute.matmul(&mut *d_in, d_rows, self.weight(linear), add);
        match (gradients, self.lora) {
            (Gradients::Weights(all), _) => {
                let d_weight = all.reborrow().slice(linear.weight.clone());
                let input = MatRef::of(input, rows, linear.inputs).in_precision(self.precision);
                self.compute.matmul(d_weight, d_rows.transposed(), input, true);
            }
            (Gradients::Adapter(adapter), Some(lora)) => {
                lora.backward(linear, d_out.view(), input, d_in.view_mut(), adapter.reborrow());
            }
            (Gradients::Adapter(_), None) => {}
        }
    }
}

/// Returns where heads are computed in single precision: in their own place, or in `room` if they are rounded after it.
fn wide<'m>(heads: &'m mut FloatMemory, room: &'m mut Memory<f32>) -> &'m mut Memory<f32> {
    match heads {
        FloatMemory::F32(own) => own,
        FloatMemory::Bf16(_) => room,
    }
}

/// The gradients that a backward pass accumulates: of all weights, or of an adapter with frozen ones.
pub(crate) enum Gradients<'a> {
    Weights(ViewMut<'a, f32>),
    Adapter(ViewMut<'a, f32>),
}

impl Gradients<'_> {
    /// Returns the gradients of a tensor of the model itself, unless it is frozen.
    pub(crate) fn of(&mut self, range: &Range<usize>) -> Option<ViewMut<'_, f32>> {
        match self {
            Self::Weights(all) => Some(all.reborrow().slice(range.clone())),
            Self::Adapter(_) => None,
        }
    }

    /// Returns the gradients of the weight and the bias of a scalar head, which are adjacent in the trained
    /// weights.
    pub(crate) fn of_scalar(
        &mut self,
        ranges: &ScalarRanges,
    ) -> (ViewMut<'_, f32>, Option<ViewMut<'_, f32>>) {
        let (Self::Weights(all) | Self::Adapter(all)) = self;
        let (before, others) = all.reborrow().split_at(ranges.weight.end);
        let first = ranges.weight.end;
        let bias = ranges.bias.as_ref().map(|bias| others.slice(bias.start - first..bias.end - first));
        (before.slice(ranges.weight.clone()), bias)
    }
}

/// Gradients of activations, reused by every layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    pub hidden: Memory<f32>,
    pub wide: Memory<f32>,
    pub inner: Memory<f32>,
    pub d_q: Memory<f32>,
    pub d_k: Memory<f32>,
    pub d_v: Memory<f32>,
    /// A copy of `d_q` or `d_k`; empty if heads are not normalised.
    pub d_heads: Memory<f32>,
    /// The gradient of a projection's outputs, rounded; empty if activations are in single precision.
    rounded: Memory<bf16>,
}

impl Scratch {
    /// Returns the number of allocated bytes.
    pub(crate) fn num_bytes(&self) -> usize {
        let Self { hidden, wide, inner, d_q, d_k, d_v, d_heads, rounded } = self;
        let wide = [hidden, wide, inner, d_q, d_k, d_v, d_heads].into_iter().map(Memory::num_bytes);
        wide.sum::<usize>() + rounded.num_bytes()
    }

    pub(crate) fn resize(&mut self, config: &DecoderConfig, rows: usize, compute: Compute, dtype: Dtype) {
        let widest = config.hidden_size.max(config.intermediate_size).max(config.q_width());
        compute.resize(&mut self.rounded, if dtype == Dtype::Bf16 { rows * widest } else { 0 });
        compute.resize(&mut self.hidden, rows * config.hidden_size);
        compute.resize(&mut self.inner, rows * config.intermediate_size);
        for buffer in [&mut self.wide, &mut self.d_q] {
            compute.resize(buffer, rows * config.q_width());
        }
        for buffer in [&mut self.d_k, &mut self.d_v] {
            compute.resize(buffer, rows * config.kv_width());
        }
    }
}
