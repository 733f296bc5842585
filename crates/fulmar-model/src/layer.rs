//! One decoder layer over rows: the three steps that the trainer and the sampler share.
//!
//! ```text
//! n1 = norm(x)      q, k, v = n1 Wq + bq, n1 Wk + bk, n1 Wv + bv      q, k normalised by head (Qwen3), rotated by position
//! x += attention(q, k, v) Wo
//! n2 = norm(x)      x += (silu(n2 Wg) * (n2 Wu)) Wd
//! ```
//! Because both call these functions, a sampled token's log-prob and the trainer's are the same bits.

use std::ops::Range;

use fulmar_kernel::{
    MatRef, RopeTable, add_bias, bias_backward, matmul, rms_norm, rms_norm_backward, swiglu, swiglu_backward,
};

use crate::config::DecoderConfig;
use crate::parameters::LayerRanges;

/// What one layer computed for N rows: all that its backward pass needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerTrace {
    /// The residual stream that came in `[N, D]`.
    pub x: Vec<f32>,
    pub inv_rms1: Vec<f32>,
    pub n1: Vec<f32>,
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
    /// Queries and keys before they were normalised, and the scale of each head; empty where the family does not.
    pub raw_q: Vec<f32>,
    pub raw_k: Vec<f32>,
    pub inv_rms_q: Vec<f32>,
    pub inv_rms_k: Vec<f32>,
    pub attention: Vec<f32>,
    pub log_sum: Vec<f32>,
    /// The residual stream between attention and feed-forward.
    pub x_mid: Vec<f32>,
    pub inv_rms2: Vec<f32>,
    pub n2: Vec<f32>,
    pub gate: Vec<f32>,
    pub up: Vec<f32>,
    pub act: Vec<f32>,
}

impl LayerTrace {
    /// Makes room for `rows` rows and keeps the memory of larger batches.
    pub(crate) fn resize(&mut self, config: &DecoderConfig, rows: usize) {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        for buffer in [&mut self.x, &mut self.n1, &mut self.x_mid, &mut self.n2] {
            buffer.resize(rows * hidden, 0.0);
        }
        for buffer in [&mut self.q, &mut self.attention] {
            buffer.resize(rows * config.q_width(), 0.0);
        }
        for buffer in [&mut self.k, &mut self.v] {
            buffer.resize(rows * config.kv_width(), 0.0);
        }
        for buffer in [&mut self.gate, &mut self.up, &mut self.act] {
            buffer.resize(rows * inner, 0.0);
        }
        for buffer in [&mut self.inv_rms1, &mut self.inv_rms2] {
            buffer.resize(rows, 0.0);
        }
        self.log_sum.resize(rows * config.num_attention_heads, 0.0);
    }
}

/// The weights of one layer, read from the buffer of all weights.
#[derive(Clone, Copy)]
pub(crate) struct Layer<'a> {
    pub config: &'a DecoderConfig,
    pub ranges: &'a LayerRanges,
    pub weights: &'a [f32],
}

impl Layer<'_> {
    fn of(&self, range: &Range<usize>) -> &[f32] {
        &self.weights[range.clone()]
    }

    /// `out = input * weight^T` for a weight `[out, in]`.
    fn project(
        &self,
        input: &[f32],
        weight: &Range<usize>,
        width: (usize, usize),
        out: &mut [f32],
        add: bool,
    ) {
        let rows = input.len() / width.0;
        let weight = MatRef::new(self.of(weight), width.1, width.0).transposed();
        matmul(out, MatRef::new(input, rows, width.0), weight, add);
    }

    /// Fills `q`, `k` and `v` (rotated) from `x`.
    pub(crate) fn project_heads(&self, trace: &mut LayerTrace, rope: &RopeTable, positions: &[u32]) {
        let (config, ranges) = (self.config, self.ranges);
        let (hidden, q_width, kv_width) = (config.hidden_size, config.q_width(), config.kv_width());
        let eps = config.rms_norm_eps as f32;
        rms_norm(&trace.x, self.of(&ranges.input_norm), eps, &mut trace.n1, &mut trace.inv_rms1);
        self.project(&trace.n1, &ranges.q, (hidden, q_width), &mut trace.q, false);
        self.project(&trace.n1, &ranges.k, (hidden, kv_width), &mut trace.k, false);
        self.project(&trace.n1, &ranges.v, (hidden, kv_width), &mut trace.v, false);
        if let Some([q_bias, k_bias, v_bias]) = &ranges.qkv_bias {
            add_bias(&mut trace.q, self.of(q_bias));
            add_bias(&mut trace.k, self.of(k_bias));
            add_bias(&mut trace.v, self.of(v_bias));
        }
        if let Some([q_norm, k_norm]) = &ranges.qk_norm {
            self.normalise_heads(q_norm, &mut trace.q, &mut trace.raw_q, &mut trace.inv_rms_q);
            self.normalise_heads(k_norm, &mut trace.k, &mut trace.raw_k, &mut trace.inv_rms_k);
        }
        rope.rotate(&mut trace.q, config.num_attention_heads, positions);
        rope.rotate(&mut trace.k, config.num_kv_heads(), positions);
    }

    /// Normalises every head of `heads`, and keeps what it was in `raw`.
    fn normalise_heads(
        &self,
        weight: &Range<usize>,
        heads: &mut [f32],
        raw: &mut Vec<f32>,
        inv_rms: &mut Vec<f32>,
    ) {
        raw.clear();
        raw.extend_from_slice(heads);
        inv_rms.resize(heads.len() / weight.len(), 0.0);
        rms_norm(raw, self.of(weight), self.config.rms_norm_eps as f32, heads, inv_rms);
    }

    /// Fills everything behind `attention`, and `out` with the residual stream that leaves the layer.
    pub(crate) fn finish(&self, trace: &mut LayerTrace, out: &mut [f32]) {
        let (config, ranges) = (self.config, self.ranges);
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        trace.x_mid.copy_from_slice(&trace.x);
        self.project(&trace.attention, &ranges.o, (config.q_width(), hidden), &mut trace.x_mid, true);
        let eps = config.rms_norm_eps as f32;
        rms_norm(&trace.x_mid, self.of(&ranges.post_norm), eps, &mut trace.n2, &mut trace.inv_rms2);
        self.project(&trace.n2, &ranges.gate, (hidden, inner), &mut trace.gate, false);
        self.project(&trace.n2, &ranges.up, (hidden, inner), &mut trace.up, false);
        swiglu(&trace.gate, &trace.up, &mut trace.act);
        out.copy_from_slice(&trace.x_mid);
        self.project(&trace.act, &ranges.down, (inner, hidden), out, true);
    }

    /// The backward pass of [`Layer::finish`]: turns `d_x`, the gradient of the layer's output, into that of `x_mid`
    /// with what flows through attention's residual branch, and fills `scratch.wide` with that of `attention`.
    pub(crate) fn finish_backward(
        &self,
        trace: &mut LayerTrace,
        gradients: &mut [f32],
        d_x: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let (config, ranges) = (self.config, self.ranges);
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        self.input_gradient(d_x, &ranges.down, (inner, hidden), &mut scratch.inner, false);
        weight_gradient(d_x, &trace.act, (inner, hidden), &mut gradients[ranges.down.clone()]);
        swiglu_backward(&mut trace.gate, &mut trace.up, &scratch.inner);
        self.input_gradient(&trace.gate, &ranges.gate, (hidden, inner), &mut scratch.hidden, false);
        self.input_gradient(&trace.up, &ranges.up, (hidden, inner), &mut scratch.hidden, true);
        weight_gradient(&trace.gate, &trace.n2, (hidden, inner), &mut gradients[ranges.gate.clone()]);
        weight_gradient(&trace.up, &trace.n2, (hidden, inner), &mut gradients[ranges.up.clone()]);
        let (norm, d_norm) = (self.of(&ranges.post_norm), &mut gradients[ranges.post_norm.clone()]);
        rms_norm_backward(&trace.x_mid, norm, &trace.inv_rms2, &scratch.hidden, d_x, d_norm);
        self.input_gradient(d_x, &ranges.o, (config.q_width(), hidden), &mut scratch.wide, false);
        weight_gradient(d_x, &trace.attention, (config.q_width(), hidden), &mut gradients[ranges.o.clone()]);
    }

    /// The backward pass of [`Layer::project_heads`], given the gradients of `q`, `k` and `v` in `scratch`: adds to
    /// `d_x`, the gradient of the residual stream.
    pub(crate) fn project_heads_backward(
        &self,
        trace: &LayerTrace,
        gradients: &mut [f32],
        d_x: &mut [f32],
        scratch: &mut Scratch,
        rope: (&RopeTable, &[u32]),
    ) {
        let (config, ranges) = (self.config, self.ranges);
        let (hidden, q_width, kv_width) = (config.hidden_size, config.q_width(), config.kv_width());
        rope.0.rotate_back(&mut scratch.d_q, config.num_attention_heads, rope.1);
        rope.0.rotate_back(&mut scratch.d_k, config.num_kv_heads(), rope.1);
        if let Some([q_norm, k_norm]) = &ranges.qk_norm {
            let Scratch { d_q, d_k, d_heads, .. } = scratch;
            self.normalise_heads_backward(q_norm, (&trace.raw_q, &trace.inv_rms_q), d_q, d_heads, gradients);
            self.normalise_heads_backward(k_norm, (&trace.raw_k, &trace.inv_rms_k), d_k, d_heads, gradients);
        }
        if let Some([q_bias, k_bias, v_bias]) = &ranges.qkv_bias {
            bias_backward(&scratch.d_q, &mut gradients[q_bias.clone()]);
            bias_backward(&scratch.d_k, &mut gradients[k_bias.clone()]);
            bias_backward(&scratch.d_v, &mut gradients[v_bias.clone()]);
        }
        weight_gradient(&scratch.d_q, &trace.n1, (hidden, q_width), &mut gradients[ranges.q.clone()]);
        weight_gradient(&scratch.d_k, &trace.n1, (hidden, kv_width), &mut gradients[ranges.k.clone()]);
        weight_gradient(&scratch.d_v, &trace.n1, (hidden, kv_width), &mut gradients[ranges.v.clone()]);
        self.input_gradient(&scratch.d_q, &ranges.q, (hidden, q_width), &mut scratch.hidden, false);
        self.input_gradient(&scratch.d_k, &ranges.k, (hidden, kv_width), &mut scratch.hidden, true);
        self.input_gradient(&scratch.d_v, &ranges.v, (hidden, kv_width), &mut scratch.hidden, true);
        let (norm, d_norm) = (self.of(&ranges.input_norm), &mut gradients[ranges.input_norm.clone()]);
        rms_norm_backward(&trace.x, norm, &trace.inv_rms1, &scratch.hidden, d_x, d_norm);
    }

    /// The backward pass of [`Layer::normalise_heads`]: turns `d_heads` into the gradient of the raw heads.
    fn normalise_heads_backward(
        &self,
        weight: &Range<usize>,
        (raw, inv_rms): (&[f32], &[f32]),
        d_heads: &mut [f32],
        spare: &mut Vec<f32>,
        gradients: &mut [f32],
    ) {
        spare.clear();
        spare.extend_from_slice(d_heads);
        d_heads.fill(0.0);
        let d_weight = &mut gradients[weight.clone()];
        rms_norm_backward(raw, self.of(weight), inv_rms, spare, d_heads, d_weight);
    }

    /// `d_in = d_out * weight` for a weight `[out, in]`; `width` is `(in, out)`.
    fn input_gradient(
        &self,
        d_out: &[f32],
        weight: &Range<usize>,
        width: (usize, usize),
        d_in: &mut [f32],
        add: bool,
    ) {
        let rows = d_out.len() / width.1;
        let weight = MatRef::new(self.of(weight), width.1, width.0);
        matmul(d_in, MatRef::new(d_out, rows, width.1), weight, add);
    }
}

/// `d_weight += d_out^T * input` for a weight `[out, in]`; `width` is `(in, out)`.
pub(crate) fn weight_gradient(d_out: &[f32], input: &[f32], width: (usize, usize), d_weight: &mut [f32]) {
    let rows = d_out.len() / width.1;
    let d_out = MatRef::new(d_out, rows, width.1).transposed();
    matmul(d_weight, d_out, MatRef::new(input, rows, width.0), true);
}

/// Gradients of activations, reused by every layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    pub hidden: Vec<f32>,
    pub wide: Vec<f32>,
    pub inner: Vec<f32>,
    pub d_q: Vec<f32>,
    pub d_k: Vec<f32>,
    pub d_v: Vec<f32>,
    /// A copy of `d_q` or `d_k`; empty where heads are not normalised.
    pub d_heads: Vec<f32>,
}

impl Scratch {
    pub(crate) fn resize(&mut self, config: &DecoderConfig, rows: usize) {
        self.hidden.resize(rows * config.hidden_size, 0.0);
        self.inner.resize(rows * config.intermediate_size, 0.0);
        for buffer in [&mut self.wide, &mut self.d_q] {
            buffer.resize(rows * config.q_width(), 0.0);
        }
        for buffer in [&mut self.d_k, &mut self.d_v] {
            buffer.resize(rows * config.kv_width(), 0.0);
        }
    }
}
