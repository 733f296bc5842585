//! Attention of f32 rows: every bit of `fulmar-kernel`'s `attention` and its gradients.

use fulmar_compute::{Compute, Spans};
use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, arguments};
use fulmar_kernel::{
    AttentionSaved, AttentionShape, attention, attention_backward, fill_key_blocks, key_block_floats,
};

use super::spans::Layout;
use crate::numbers::{is_small, random};
use crate::report::Report;

/// Keys that a block holds at once, as in `attention_f32.cu`.
const TILE: usize = 64;

/// Largest relative error of a gradient, in the L2 norm.
const ERROR_MAX: f64 = 1e-5;

/// Queries, keys and values of a layout.
struct Case {
    shape: AttentionShape,
    text: String,
    layout: Layout,
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Compares attention at every shape.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for (layout, heads) in trained() {
        let case = Case::of(layout, heads, 3.0);
        forward(card, report, &case)?;
        backward(card, report, &case)?;
    }
    if !is_small(card) {
        let case = Case::of(Layout::sequences(&[1_024; 4]), [14, 2, 64], 3.0);
        forward(card, report, &case)?;
        backward(card, report, &case)?;
    }
    for (layout, heads) in cached() {
        forward(card, report, &Case::of(layout, heads, 3.0))?;
    }
    large(card, report)?;
    special(card, report)
}

/// Layouts of training, in which a query row is the key/value row of the same number, with heads, key/value heads and their width:
/// widths below, at and above a warp and a block of the processor's keys, keys below, at and above a tile and its 16 accumulators, and rows and keys
/// below, at and above the tiles of the processor's gradients.
fn trained() -> Vec<(Layout, [usize; 3])> {
    vec![
        (Layout::sequences(&[1]), [1, 1, 1]),
        (Layout::sequences(&[2, 1, 5]), [2, 2, 7]),
        (Layout::sequences(&[17]), [3, 1, 8]),
        (Layout::sequences(&[16, 15]), [4, 2, 9]),
        (Layout::tree(3, &[2, 3]), [4, 2, 31]),
        (Layout::tree(20, &[1, 30, 2]), [2, 1, 32]),
        (Layout::sequences(&[66]), [2, 1, 33]),
        (Layout::tree(5, &[40, 20]), [2, 1, 40]),
        (Layout::tree(13, &[4, 4]).with_empty_ranges(), [7, 1, 64]),
        (Layout::sequences(&[5, 9]), [6, 3, 80]),
        (Layout::sequences(&[12]), [2, 2, 96]),
        (Layout::tree(7, &[3, 6]), [4, 1, 128]),
        (Layout::sequences(&[9]), [2, 1, 129]),
        (Layout::sequences(&[4, 3]), [2, 1, 256]),
        (Layout::sequences(&[31, 32]), [2, 1, 4]),
        (Layout::tree(30, &[70, 65, 1]), [3, 1, 6]),
        (Layout::sequences(&[150]), [2, 1, 5]),
    ]
}

/// Layouts of decoding: few rows with many keys.
fn cached() -> Vec<(Layout, [usize; 3])> {
    vec![
        (Layout::paged(&[63, 64, 65, 127], 1), [2, 1, 16]),
        (Layout::paged(&[1, 128, 129, 300], 7), [3, 3, 20]),
        (Layout::paged(&[17, 200, 31], 16), [4, 2, 64]),
        (Layout::paged(&[5, 90], 16).with_empty_ranges(), [1, 1, 255]),
    ]
}

impl Case {
    fn of(layout: Layout, [num_heads, num_kv_heads, head_dim]: [usize; 3], scale: f32) -> Self {
        let shape = AttentionShape { num_heads, num_kv_heads, head_dim };
        let (rows, kv_len) = (layout.rows.len(), layout.num_keys * num_kv_heads * head_dim);
        Self {
            shape,
            text: format!("{num_heads} heads of {num_kv_heads} x {head_dim}, {}", layout.name),
            q: random("q", rows * num_heads * head_dim, scale),
            keys: random("keys", kv_len, scale),
            values: random("values", kv_len, 1.0),
            layout,
        }
    }

    /// Returns the number of query rows.
    fn rows(&self) -> usize {
        self.layout.rows.len()
    }

    /// Returns the outputs of the processor, and `m` and `L`.
    fn on_processor(&self) -> (Vec<f32>, Vec<f32>) {
        let mut out = vec![0.0; self.q.len()];
        let mut log_sum = vec![0.0; 2 * self.rows() * self.shape.num_heads];
        let (spans, width) = (self.layout.spans(), self.shape.num_kv_heads * self.shape.head_dim);
        let mut keys = vec![f32::NAN; key_block_floats(self.layout.num_keys, width)];
        fill_key_blocks(&self.keys, width, width, &mut keys);
        let (keys, values) = (keys[..].into(), self.values[..].into());
        attention(self.shape, &self.q, keys, values, &spans, &mut out, &mut log_sum);
        (out, log_sum)
    }

    /// Returns the gradients of the processor of queries, keys and values.
    fn gradients_on_processor(&self, out: &[f32], log_sum: &[f32], d_out: &[f32]) -> [Vec<f32>; 3] {
        let (mut d_q, mut d_keys) = (vec![0.0; self.q.len()], vec![0.0; self.keys.len()]);
        let mut d_values = d_keys.clone();
        let saved = AttentionSaved { q: &self.q, keys: &self.keys, values: &self.values, out, log_sum };
        let (spans, blocks) = (self.layout.spans(), &self.layout.blocks);
        attention_backward(self.shape, saved, &spans, blocks, d_out, &mut d_q, &mut d_keys, &mut d_values);
        [d_q, d_keys, d_values]
    }
}

/// Returns the gradients of queries, keys and values by the formulas, with no sum in single precision. `out` are outputs that the
/// forward pass saved, if they are not to be computed.
pub fn gradients_in_f64(
    shape: AttentionShape,
    layout: &Layout,
    [q, keys, values, d_out]: [&[f32]; 4],
    out: Option<&[f32]>,
) -> [Vec<f64>; 3] {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = shape;
    let mut found = [vec![0.0; q.len()], vec![0.0; keys.len()], vec![0.0; keys.len()]];
    let scale = 1.0 / (head_dim as f64).sqrt();
    let head = |of: &[f32], at: usize| -> Vec<f64> {
        of[at * head_dim..][..head_dim].iter().map(|x| f64::from(*x)).collect()
    };
    let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    for nh in 0..layout.rows.len() * num_heads {
        let kv_head = nh % num_heads / (num_heads / num_kv_heads);
        let seen: Vec<usize> = layout.keys(nh / num_heads).map(|row| row * num_kv_heads + kv_head).collect();
        let (q, d_out) = (head(q, nh), head(d_out, nh));
        let mut weights: Vec<f64> = seen.iter().map(|at| dot(&q, &head(keys, *at)) * scale).collect();
        let max = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|weight| *weight = (*weight - max).exp());
        let total: f64 = weights.iter().sum();
        let d_weights: Vec<f64> = seen.iter().map(|at| dot(&d_out, &head(values, *at))).collect();
        let along = out.map_or_else(|| dot(&weights, &d_weights) / total, |out| dot(&d_out, &head(out, nh)));
        for ((at, weight), d_weight) in seen.iter().zip(&weights).zip(&d_weights) {
            let (p, key) = (weight / total, head(keys, *at));
            let d_score = p * (d_weight - along) * scale;
            for e in 0..head_dim {
                found[0][nh * head_dim + e] += d_score * key[e];
                found[1][at * head_dim + e] += d_score * q[e];
                found[2][at * head_dim + e] += p * d_out[e];
            }
        }
    }
    found
}

/// Returns the shape of a launch with one block for each row and head.
pub fn grid(rows: usize, heads: usize, width: usize) -> Grid {
    Grid {
        blocks: (rows as u32, heads as u32),
        threads: width.next_multiple_of(32) as u32,
        shared_bytes: ((width + 2 * TILE + 9) * 4) as u32,
    }
}

fn forward(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let AttentionShape { num_heads, num_kv_heads, head_dim } = case.shape;
    let plan = case.layout.plan(card)?;
    let (q, keys, values) = (card.upload(&case.q)?, card.upload(&case.keys)?, card.upload(&case.values)?);
    let (out, log_sum) =
        (card.poisoned::<f32>(case.q.len())?, card.poisoned::<f32>(2 * case.rows() * num_heads)?);
    card.launch(
        "attention_f32",
        grid(case.rows(), num_heads, head_dim),
        arguments![
            &q,
            &keys,
            &values,
            &plan.rows,
            &plan.ranges,
            num_heads,
            num_kv_heads,
            head_dim,
            &out,
            &log_sum
        ],
    )?;
    let (wanted_out, wanted_log_sum) = case.on_processor();
    report.same("attention_f32, m and L", &case.text, &log_sum.read()?, &wanted_log_sum);
    report.same("attention_f32", &case.text, &out.read()?, &wanted_out);
    Ok(())
}

/// Gradients: every bit of the processor's, which are near those of f64.
fn backward(card: &Card, report: &mut Report, case: &Case) -> Result<()> {
    let on = Compute::Cuda(*card);
    let (out, log_sum) = case.on_processor();
    let d_out = random("d_out", case.q.len(), 1.0);
    let hold = |of: &Vec<f32>| on.hold(of.clone());
    let (q, keys, values) = (hold(&case.q)?, hold(&case.keys)?, hold(&case.values)?);
    let (out_at, log_sum_at, d_out_at) = (hold(&out)?, hold(&log_sum)?, hold(&d_out)?);
    let saved = fulmar_compute::AttentionSaved {
        q: (&q).into(),
        keys: (&keys).into(),
        values: (&values).into(),
        out: (&out_at).into(),
        log_sum: log_sum_at.view(),
    };
    let poisoned = |of: &[f32]| on.hold(vec![f32::NAN; of.len()]);
    let (mut d_q, mut d_keys, mut d_values) =
        (poisoned(&case.q)?, poisoned(&case.keys)?, poisoned(&case.values)?);
    let mut spans = Spans::default();
    case.layout.rows.iter().for_each(|row| spans.push_row(row));
    let (shape, blocks) = (case.shape, &case.layout.blocks);
    on.attention_backward(shape, saved, &spans, blocks, &d_out_at, &mut d_q, &mut d_keys, &mut d_values);
    let processor = case.gradients_on_processor(&out, &log_sum, &d_out);
    let exact = gradients_in_f64(case.shape, &case.layout, [&case.q, &case.keys, &case.values, &d_out], None);
    let names = ["queries", "keys", "values"];
    for ((name, got), wanted) in names.iter().zip([d_q, d_keys, d_values]).zip(&processor) {
        report.same(&format!("attention_f32_backward, {name}"), &case.text, &got.view().read()?, wanted);
    }
    for ((name, found), exact) in names.iter().zip(&processor).zip(&exact) {
        report.near(&format!("the processor's gradient of {name}"), &case.text, found, exact, ERROR_MAX);
    }
    Ok(())
}

/// Scores so far apart that most weights are 0, or at the end of where they are not.
fn large(card: &Card, report: &mut Report) -> Result<()> {
    for scale in [8.0, 12.0, 100.0] {
        let mut case = Case::of(Layout::sequences(&[70]), [2, 1, 24], scale);
        case.text += &format!(", numbers up to {scale}");
        forward(card, report, &case)?;
    }
    Ok(())
}

/// Numbers that a padded or reordered sum would change: a NaN, infinities, zeros with a sign.
fn special(card: &Card, report: &mut Report) -> Result<()> {
    let mut case = Case::of(Layout::sequences(&[40]), [2, 2, 12], 2.0);
    let width = 24;
    case.keys[3 * width] = f32::NAN;
    case.keys[20 * width + 13] = f32::NEG_INFINITY;
    case.values[30 * width + 1] = f32::INFINITY;
    case.q[10 * width..11 * width].fill(0.0);
    case.q[2 * width..3 * width].fill(-0.0);
    case.values[..width].fill(-0.0);
    case.text += ", special numbers";
    forward(card, report, &case)
}
