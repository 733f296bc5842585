//! Causal attention with grouped key/value heads, where each query row lists the rows it attends to.
//!
//! Each query row lists ranges of key/value rows, its [`Spans`]: one range for a plain sequence, two for a
//! completion after a shared prompt, one a page for a paged cache. The sampler and the trainer use the same
//! function, in which a row has the same bits alone and with others, so their results agree to the bit. Nothing of size T x T is ever stored.
//!
//! ```text
//! s[j] = q . k[j] / sqrt(E)      m = max_j s[j]      L = ln sum_j e^(s[j] - m)      p[j] = e^((s[j] - m) - L)      o = sum_j p[j] v[j]
//! ds[j] = p[j] (do . v[j] - do . o)      dq = sum_j ds[j] k[j] / sqrt(E)
//! dk[j] += ds[j] q / sqrt(E)             dv[j] += p[j] do
//! ```
//! Every sum but `L` and `do . o` is one chain of multiply-adds, fused where products are: of a score in the order of the
//! columns, of values and gradients in the order of keys and queries.
//! The backward pass recomputes `p` from the stored `m` and `L`, a tile of queries by keys at a time
//! (Dao et al., <https://arxiv.org/abs/2205.14135>). The two are stored separately: their sum would lose the
//! digits of `p` where scores are large.
//! Legend: N query rows, R key/value rows, H heads, K key/value heads, E width of a head.

use std::ops::Range;

use crate::floats::Floats;
use crate::key_blocks::{KeyBlocks, fill_key_blocks, key_block_floats};
use crate::lanes::{SOFTMAX_FLOOR, WIDTH, dot, lanes, max_of, softmax_exp, sum_lanes};
use crate::matmul::{Item, Rows, SUMS, Weights, add_weighted_rows};
use crate::parallel::{alone, for_rows2, map_tasks};

/// The key/value rows that each query row attends to, as half-open ranges in the order they are summed.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    ends: Vec<u32>,
    ranges: Vec<(u32, u32)>,
}

impl Spans {
    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.ranges.clear();
    }

    /// Adds a row that attends to `ranges`. At least one of them must hold a row.
    pub fn push_row(&mut self, ranges: &[(u32, u32)]) {
        self.ranges.extend_from_slice(ranges);
        self.ends.push(self.ranges.len() as u32);
    }

    /// Returns the number of query rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.ends.len()
    }

    /// Returns the ranges that each row attends to.
    pub fn rows(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        (0..self.num_rows()).map(|index| self.row(index))
    }

    /// Returns the end of the rows from `first` on, up to `end`, that each attend to the first keys of the next one, as those of a sequence do.
    fn end_of_run(&self, first: usize, end: usize) -> usize {
        let goes_on = |row: &usize| begins_with(self.row(*row), self.row(row - 1));
        (first + 1..end.min(first + RUN_ROWS)).take_while(goes_on).last().unwrap_or(first) + 1
    }

    fn row(&self, index: usize) -> &[(u32, u32)] {
        let first = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.ranges[first..self.ends[index] as usize]
    }
}

/// Returns whether the first rows of `ranges` are those of `before`.
fn begins_with(ranges: &[(u32, u32)], before: &[(u32, u32)]) -> bool {
    let Some(((first, end), whole)) = before.split_last() else { return true };
    ranges.starts_with(whole)
        && ranges.get(whole.len()).is_some_and(|longer| longer.0 == *first && longer.1 >= *end)
}

/// Numbers of heads and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Query heads H.
    pub num_heads: usize,
    /// Key/value heads K; divides H.
    pub num_kv_heads: usize,
    /// Width E of a head.
    pub head_dim: usize,
}

impl AttentionShape {
    const fn q_width(self) -> usize {
        self.num_heads * self.head_dim
    }

    const fn kv_width(self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    const fn group(self) -> usize {
        self.num_heads / self.num_kv_heads
    }

    fn scale(self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }
}

/// Writes the attention output of each row to `out_nhe`, and `m` and `L` of each row and head to `log_sum_nh2`.
///
/// `q_nhe` and `out_nhe` are `[N, H * E]`, `values_rke` is `[R, K * E]`, and `key_blocks` are such rows as
/// [`put_key_rows`](crate::put_key_rows) writes them. Keys and values in bfloat16 give the bits of these numbers in single
/// precision. The cost is N times the length of the spans times `2 H E` multiply-adds.
///
/// # Panics
/// If the lengths disagree, a span leaves the key/value rows, or keys and values differ in type.
///
/// # Examples
/// ```
/// use fulmar_kernel::{AttentionShape, Spans, attention, key_block_floats, put_key_rows};
/// let mut spans = Spans::default();
/// spans.push_row(&[(0, 2)]);
/// let shape = AttentionShape { num_heads: 1, num_kv_heads: 1, head_dim: 1 };
/// let (mut out, mut log_sum) = ([0.0], [0.0; 2]);
/// let mut key_blocks = vec![0.0; key_block_floats(2, 1)];
/// put_key_rows(&[1.0, 2.0], 1, &[0, 1], &mut key_blocks);
/// let values = [4.0, 8.0];
/// attention(shape, &[0.0], key_blocks[..].into(), values[..].into(), &spans, &mut out, &mut log_sum);
/// assert_eq!(out, [6.0]); // a zero query weighs both values equally
/// ```
pub fn attention(
    shape: AttentionShape,
    q_nhe: &[f32],
    key_blocks: Floats<'_>,
    values_rke: Floats<'_>,
    spans: &Spans,
    out_nhe: &mut [f32],
    log_sum_nh2: &mut [f32],
) {
    let out = (out_nhe, log_sum_nh2);
    match (key_blocks, values_rke) {
        (Floats::F32(keys), Floats::F32(values)) => attend(shape, q_nhe, keys, values, spans, out),
        (Floats::Bf16(keys), Floats::Bf16(values)) => attend(shape, q_nhe, keys, values, spans, out),
        _ => unreachable!("keys and values are of one type"),
    }
}

fn attend<T: Item>(
    shape: AttentionShape,
    q_nhe: &[f32],
    key_blocks: &[T],
    values: &[T],
    spans: &Spans,
    (out_nhe, log_sum_nh2): (&mut [f32], &mut [f32]),
) {
    let width = shape.q_width();
    assert!(q_nhe.len() == spans.num_rows() * width && out_nhe.len() == q_nhe.len(), "one span list a row");
    assert_eq!(log_sum_nh2.len(), 2 * spans.num_rows() * shape.num_heads, "two numbers a row and head");
    let kv = KeysAndValues { keys: KeyBlocks { items: key_blocks, width: shape.kv_width() }, values };
    for_rows2(out_nhe, log_sum_nh2, (width, 2 * shape.num_heads), |first, out, log_sums| {
        let mut scratch = Scratch::default();
        let end = first + out.len() / width;
        let mut row = first;
        while row < end {
            let run = Run { shape, spans, rows: row..spans.end_of_run(row, end) };
            let (at, len) = (row - first, run.rows.len());
            let out = &mut out[at * width..][..len * width];
            let log_sums = &mut log_sums.as_chunks_mut().0[at * shape.num_heads..][..len * shape.num_heads];
            for kv_head in 0..shape.num_kv_heads {
                run.attend(kv_head, &q_nhe[row * width..][..len * width], kv, &mut scratch, out, log_sums);
            }
            row = run.rows.end;
        }
    });
}

/// Most adjacent query rows that are computed together.
const RUN_ROWS: usize = 8;

/// Memory of a thread for one run after the other.
#[derive(Default)]
struct Scratch {
    q: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
}

#[derive(Clone, Copy)]
struct KeysAndValues<'a, T> {
    keys: KeyBlocks<'a, T>,
    values: &'a [T],
}

/// Adjacent query rows, each of which attends to the first keys of the last one.
struct Run<'a> {
    shape: AttentionShape,
    spans: &'a Spans,
    rows: Range<usize>,
}

impl Run<'_> {
    /// Writes the output and `m` and `L` of the query heads of one key/value head.
    fn attend<T: Item>(
        &self,
        kv_head: usize,
        q_nhe: &[f32],
        kv: KeysAndValues<'_, T>,
        scratch: &mut Scratch,
        out_nhe: &mut [f32],
        log_sums_nh: &mut [[f32; 2]],
    ) {
        let (shape, e) = (self.shape, self.shape.head_dim);
        let (group, stride, at) = (shape.group(), shape.kv_width(), kv_head * e);
        let num_queries = self.rows.len() * group;
        let last = self.spans.row(self.rows.end - 1);
        let num_keys = |row: usize| num_keys(self.spans.row(self.rows.start + row));
        let most = num_keys(self.rows.len() - 1);
        let Scratch { q, weights, sums } = scratch;
        q.clear();
        for row in q_nhe.chunks_exact(shape.q_width()) {
            q.extend_from_slice(&row[at * group..][..group * e]);
        }
        weights.resize(num_queries * most, 0.0);
        for (key, row, count) in keys_in(last, 0..most) {
            kv.keys.products((&mut weights[key..], most), (q, e), at, row..row + count);
        }
        sums.clear();
        sums.resize(num_queries * e, 0.0);
        let at_once = (SUMS / group).max(1);
        for first in (0..self.rows.len()).step_by(at_once) {
            let end = self.rows.len().min(first + at_once);
            for row in first..end {
                for head in 0..group {
                    let weights = &mut weights[(row * group + head) * most..][..num_keys(row)];
                    log_sums_nh[row * shape.num_heads + kv_head * group + head] =
                        weigh(weights, shape.scale());
                }
            }
            let mut add = |rows: Range<usize>, keys: Range<usize>| {
                let sums = &mut sums[rows.start * group * e..rows.end * group * e];
                for (key, row, count) in keys_in(last, keys) {
                    let floats = &weights[rows.start * group * most + key..];
                    let values = Rows::new(&kv.values[row * stride + at..], stride, count);
                    add_weighted_rows(sums, e, Weights { floats, of_sum: most, of_row: 1 }, values);
                }
            };
            let shared = num_keys(first);
            add(first..end, 0..shared);
            (first + 1..end).for_each(|row| add(row..row + 1, shared..num_keys(row)));
        }
        for (row, sums) in sums.chunks_exact(group * e).enumerate() {
            let log_sums = &mut log_sums_nh[row * shape.num_heads + kv_head * group..][..group];
            let out = &mut out_nhe[row * shape.q_width() + at * group..][..group * e];
            for ((out, sums), [_, sum]) in out.chunks_exact_mut(e).zip(sums.chunks_exact(e)).zip(log_sums) {
                let inverse = 1.0 / *sum;
                out.iter_mut().zip(sums).for_each(|(out, value)| *out = value * inverse);
                *sum = libm::logf(*sum);
            }
        }
    }
}

/// Returns the number of rows in ranges.
fn num_keys(ranges: &[(u32, u32)]) -> usize {
    ranges.iter().map(|(first, end)| end.saturating_sub(*first) as usize).sum()
}

/// Returns `(key, row, count)` for each part of `ranges` that has some of `keys`, counted from the first row of all.
fn keys_in(
    ranges: &[(u32, u32)],
    keys: Range<usize>,
) -> impl Iterator<Item = (usize, usize, usize)> + use<'_> {
    let mut before = 0;
    ranges.iter().filter_map(move |range| {
        let (first, count) = (before, num_keys(&[*range]));
        before += count;
        let (key, end) = (keys.start.max(first), keys.end.min(before));
        (key < end).then(|| (key, range.0 as usize + key - first, end - key))
    })
}

/// Inputs and outputs of [`attention`] that its backward pass needs.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSaved<'a> {
    /// Queries `[N, H * E]`.
    pub q: &'a [f32],
    /// Keys `[N, K * E]`.
    pub keys: &'a [f32],
    /// Values `[N, K * E]`.
    pub values: &'a [f32],
    /// Outputs `[N, H * E]`.
    pub out: &'a [f32],
    /// `m` and `L` `[N, H, 2]`.
    pub log_sum: &'a [f32],
}

/// Writes the gradients with respect to queries, keys and values from the gradient of the output.
///
/// `blocks` are ranges of rows that attend only to one another (a prompt with all its completions), in order
/// and covering every row. Query row and key/value row have the same number, and the ranges of a row ascend.
/// Blocks and key/value heads run in parallel, each on one thread and in the order of its rows.
///
/// # Panics
/// If the lengths disagree or a span leaves its block.
pub fn attention_backward(
    shape: AttentionShape,
    saved: AttentionSaved<'_>,
    spans: &Spans,
    blocks: &[(u32, u32)],
    d_out_nhe: &[f32],
    d_q_nhe: &mut [f32],
    d_keys_nke: &mut [f32],
    d_values_nke: &mut [f32],
) {
    assert!(saved.q.len() == d_out_nhe.len() && d_q_nhe.len() == d_out_nhe.len(), "lengths must agree");
    let (num_kv, head_dim, group) = (shape.num_kv_heads, shape.head_dim, shape.group());
    let gradients = map_tasks(blocks.len() * num_kv, |task| {
        alone(|| block_backward(shape, saved, spans, blocks[task / num_kv], task % num_kv, d_out_nhe))
    });
    for (task, found) in gradients.iter().enumerate() {
        let ((first, end), kv_head) = (blocks[task / num_kv], task % num_kv);
        for (local, row) in (first as usize..end as usize).enumerate() {
            let kv = row * shape.kv_width() + kv_head * head_dim;
            d_keys_nke[kv..][..head_dim].copy_from_slice(&found.keys[local * head_dim..][..head_dim]);
            d_values_nke[kv..][..head_dim].copy_from_slice(&found.values[local * head_dim..][..head_dim]);
            let (width, q) = (group * head_dim, row * shape.q_width() + kv_head * group * head_dim);
            d_q_nhe[q..][..width].copy_from_slice(&found.q[local * width..][..width]);
        }
    }
}

/// Query rows in a tile.
const TILE_ROWS: usize = 32;
/// Most key/value rows in a tile.
const TILE_KEYS: usize = 128;

/// Gradients of one block for one key/value head and its group of query heads.
struct BlockGradients {
    q: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
}

fn block_backward(
    shape: AttentionShape,
    saved: AttentionSaved<'_>,
    spans: &Spans,
    (first, end): (u32, u32),
    kv_head: usize,
    d_out_nhe: &[f32],
) -> BlockGradients {
    let (head_dim, width, rows) = (shape.head_dim, shape.group() * shape.head_dim, (end - first) as usize);
    let mut found = BlockGradients {
        q: vec![0.0; rows * width],
        keys: vec![0.0; rows * head_dim],
        values: vec![0.0; rows * head_dim],
    };
    let columns = |rows_of_all: &[f32]| {
        let mut blocks = vec![0.0; key_block_floats(rows, head_dim)];
        let rows = &rows_of_all[first as usize * shape.kv_width()..end as usize * shape.kv_width()];
        fill_key_blocks(&rows[kv_head * head_dim..], shape.kv_width(), head_dim, &mut blocks);
        blocks
    };
    let blocks = [saved.keys, saved.values].map(columns);
    let [keys, values] = blocks.each_ref().map(|items| KeyBlocks { items, width: head_dim });
    let (mut weights, mut d_scores) = (Vec::new(), Vec::new());
    for row in (first as usize..end as usize).step_by(TILE_ROWS) {
        let queries =
            Queries::gather(shape, saved, d_out_nhe, kv_head, row..(row + TILE_ROWS).min(end as usize));
        let d_q = &mut found.q[(row - first as usize) * width..][..queries.q.len()];
        for rows in seen_by(spans, queries.rows.clone()).chunks(TILE_KEYS) {
            let tile = Tile { shape, keys, values, first, rows };
            tile.weights_and_d_scores(spans, &queries, &mut weights, &mut d_scores);
            let keys = &saved.keys[kv_head * head_dim..];
            tile.add_gradients(
                keys,
                &weights,
                &d_scores,
                &queries,
                (d_q, &mut found.keys, &mut found.values),
            );
        }
    }
    found
}

/// Returns the rows that any of these query rows attends to, in order, each once.
fn seen_by(spans: &Spans, rows: Range<usize>) -> Vec<u32> {
    let mut ranges: Vec<(u32, u32)> = rows.flat_map(|row| spans.row(row).iter().copied()).collect();
    ranges.sort_unstable();
    let mut seen = Vec::new();
    for (first, end) in ranges {
        let next = seen.last().map_or(0, |last| last + 1);
        seen.extend(first.max(next)..end);
    }
    seen
}

/// The query heads of one key/value head in some rows: `[R * G, E]`.
struct Queries {
    rows: Range<usize>,
    q: Vec<f32>,
    d_out: Vec<f32>,
    /// `m` and `L` of each, `[R * G, 2]`, and `do . o`.
    log_sum: Vec<f32>,
    along: Vec<f32>,
}

impl Queries {
    fn gather(
        shape: AttentionShape,
        saved: AttentionSaved<'_>,
        d_out_nhe: &[f32],
        kv_head: usize,
        rows: Range<usize>,
    ) -> Self {
        let (group, width) = (shape.group(), shape.group() * shape.head_dim);
        let of = |all: &[f32], width: usize, stride: usize| -> Vec<f32> {
            let mut gathered = Vec::with_capacity(rows.len() * width);
            for row in rows.clone() {
                gathered.extend_from_slice(&all[row * stride + kv_head * width..][..width]);
            }
            gathered
        };
        let (d_out, out) = (of(d_out_nhe, width, shape.q_width()), of(saved.out, width, shape.q_width()));
        let heads = d_out.chunks_exact(shape.head_dim).zip(out.chunks_exact(shape.head_dim));
        Self {
            q: of(saved.q, width, shape.q_width()),
            along: heads.map(|(d_out, out)| product(d_out, out)).collect(),
            log_sum: of(saved.log_sum, 2 * group, 2 * shape.num_heads),
            d_out,
            rows,
        }
    }
}

/// Key/value rows J of a block that some queries attend to.
struct Tile<'a> {
    shape: AttentionShape,
    /// The keys and the values of the whole block.
    keys: KeyBlocks<'a, f32>,
    values: KeyBlocks<'a, f32>,
    /// The first row of the block.
    first: u32,
    rows: &'a [u32],
}

impl Tile<'_> {
    /// Returns the adjacent rows: the number of those before, and where they are in the block.
    fn runs(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut before = 0;
        self.rows.chunk_by(|row, next| row + 1 == *next).map(move |run| {
            before += run.len();
            let first = (run[0] - self.first) as usize;
            (before - run.len(), first..first + run.len())
        })
    }

    /// Computes `p` and `ds`, both `[R * G, J]` and 0 where a query does not attend to a key.
    fn weights_and_d_scores(
        &self,
        spans: &Spans,
        queries: &Queries,
        weights: &mut Vec<f32>,
        d_scores: &mut Vec<f32>,
    ) {
        let (num_keys, num_queries, e) = (self.rows.len(), queries.along.len(), self.shape.head_dim);
        weights.resize(num_queries * num_keys, 0.0);
        d_scores.resize(num_queries * num_keys, 0.0);
        for (key, rows) in self.runs() {
            // The scores equal those of the forward pass to the bit: its `m` and `L` only match these where
            // scores are large.
            self.keys.products((&mut weights[key..], num_keys), (&queries.q, e), 0, rows.clone());
            self.values.products((&mut d_scores[key..], num_keys), (&queries.d_out, e), 0, rows);
        }
        let rows = weights.chunks_exact_mut(num_keys).zip(d_scores.chunks_exact_mut(num_keys));
        for (query, (weights, d_scores)) in rows.enumerate() {
            let mut unseen = 0;
            for &(first, end) in spans.row(queries.rows.start + query / self.shape.group()) {
                let first = self.rows.partition_point(|row| *row < first);
                let end = self.rows.partition_point(|row| *row < end);
                weights[unseen..first].fill(0.0);
                d_scores[unseen..first].fill(0.0);
                unseen = end;
                softmax_backward(
                    &mut weights[first..end],
                    &mut d_scores[first..end],
                    queries.log_sum[2 * query],
                    queries.log_sum[2 * query + 1],
                    queries.along[query],
                    self.shape.scale(),
                );
            }
            weights[unseen..].fill(0.0);
            d_scores[unseen..].fill(0.0);
        }
    }

    /// Adds `ds k` to the gradient of the queries, and `ds^T q` and `p^T do` to those of the keys and values of the block. `keys`
    /// are those of all rows, from this head on.
    fn add_gradients(
        &self,
        keys: &[f32],
        weights: &[f32],
        d_scores: &[f32],
        queries: &Queries,
        (d_q, d_keys, d_values): (&mut [f32], &mut [f32], &mut [f32]),
    ) {
        let (num_keys, num_queries, e) = (self.rows.len(), queries.along.len(), self.shape.head_dim);
        for (key, rows) in self.runs() {
            let of_queries = Weights { floats: &d_scores[key..], of_sum: num_keys, of_row: 1 };
            let stride = self.shape.kv_width();
            let keys = Rows::new(&keys[(self.first as usize + rows.start) * stride..], stride, rows.len());
            add_weighted_rows(d_q, e, of_queries, keys);
            for (by_key, by_query, sums) in
                [(d_scores, &queries.q, &mut *d_keys), (weights, &queries.d_out, &mut *d_values)]
            {
                let of_keys = Weights { floats: &by_key[key..], of_sum: 1, of_row: num_keys };
                let sums = &mut sums[rows.start * e..rows.end * e];
                add_weighted_rows(sums, e, of_keys, Rows::new(by_query, e, num_queries));
            }
        }
    }
}

lanes! {
    fn product(a: &[f32], b: &[f32]) -> f32 {
        dot(a, b)
    }
}

lanes! {
    /// Turns `q . k` into `p`, and `do . v` into `ds`.
    fn softmax_backward(scores: &mut [f32], d_weights: &mut [f32], max: f32, log_sum: f32, along: f32, scale: f32) {
        for (score, d_weight) in scores.iter_mut().zip(d_weights) {
            *score = weight_of((*score * scale - max) - log_sum);
            *d_weight = *score * (*d_weight - along) * scale;
        }
    }
}

/// Returns `e^x` for `x` up to 0; 0 far below, NaN for NaN.
#[inline(always)]
fn weight_of(x: f32) -> f32 {
    softmax_exp(if x < SOFTMAX_FLOOR { SOFTMAX_FLOOR } else { x })
}

lanes! {
    /// Turns `q . k` into `e^(s - m)`, and returns `m` and the sum.
    fn weigh(scores: &mut [f32], scale: f32) -> [f32; 2] {
        for score in &mut *scores {
            *score *= scale;
        }
        let max = max_of(scores);
        [max, exponentiate(scores, max)]
    }
}

/// Replaces `x` by `e^(x - max)` and returns the sum.
#[inline(always)]
fn exponentiate(x: &mut [f32], max: f32) -> f32 {
    let mut sums = [0.0_f32; WIDTH];
    let (whole, rest) = x.as_chunks_mut::<WIDTH>();
    for x in whole {
        for lane in 0..WIDTH {
            x[lane] = weight_of(x[lane] - max);
            sums[lane] += x[lane];
        }
    }
    for (x, sum) in rest.iter_mut().zip(&mut sums) {
        *x = weight_of(*x - max);
        *sum += *x;
    }
    sum_lanes(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    const SHAPE: AttentionShape = AttentionShape { num_heads: 4, num_kv_heads: 2, head_dim: 6 };

    /// Returns a prompt of 3 rows with two completions of 2 and 3 rows, then a sequence of 4 rows.
    fn tree() -> (Spans, Vec<(u32, u32)>) {
        let mut spans = Spans::default();
        for row in 0..3 {
            spans.push_row(&[(0, row + 1)]);
        }
        for row in 3..5 {
            spans.push_row(&[(0, 3), (3, row + 1)]);
        }
        for row in 5..8 {
            spans.push_row(&[(0, 3), (5, row + 1)]);
        }
        for row in 8..12 {
            spans.push_row(&[(8, row + 1)]);
        }
        (spans, vec![(0, 8), (8, 12)])
    }

    fn naive(spans: &Spans, q: &[f64], keys: &[f64], values: &[f64]) -> Vec<f64> {
        let (width, kv_width, e) = (SHAPE.q_width(), SHAPE.kv_width(), SHAPE.head_dim);
        let mut out = vec![0.0; q.len()];
        for row in 0..spans.num_rows() {
            for head in 0..SHAPE.num_heads {
                let seen: Vec<usize> =
                    spans.row(row).iter().flat_map(|r| r.0 as usize..r.1 as usize).collect();
                let kv_at = |j: usize| j * kv_width + head / 2 * e;
                let score = |j: usize| -> f64 {
                    (0..e).map(|i| q[row * width + head * e + i] * keys[kv_at(j) + i]).sum::<f64>()
                        / (e as f64).sqrt()
                };
                let total: f64 = seen.iter().map(|&j| score(j).exp()).sum();
                for &j in &seen {
                    for i in 0..e {
                        out[row * width + head * e + i] += score(j).exp() / total * values[kv_at(j) + i];
                    }
                }
            }
        }
        out
    }

    fn in_blocks(shape: AttentionShape, keys: &[f32]) -> Vec<f32> {
        let width = shape.kv_width();
        let mut blocks = vec![f32::NAN; key_block_floats(keys.len() / width, width)];
        fill_key_blocks(keys, width, width, &mut blocks);
        blocks
    }

    fn forward(spans: &Spans, q: &[f32], keys: &[f32], values: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut out, mut log_sum) = (vec![0.0; q.len()], vec![0.0; 2 * spans.num_rows() * SHAPE.num_heads]);
        let keys = in_blocks(SHAPE, keys);
        attention(SHAPE, q, keys[..].into(), values.into(), spans, &mut out, &mut log_sum);
        (out, log_sum)
    }

    #[test]
    fn three_gradients_equal_finite_differences_over_a_tree_of_sequences() {
        let (spans, blocks) = tree();
        let (q, keys, values) = (random(1, 12 * 24), random(2, 12 * 12), random(3, 12 * 12));
        let d_out = random(4, 12 * 24);
        let (out, log_sum) = forward(&spans, &q, &keys, &values);
        let (mut d_q, mut d_keys, mut d_values) = (vec![9.0; 288], vec![9.0; 144], vec![9.0; 144]);
        let saved = AttentionSaved { q: &q, keys: &keys, values: &values, out: &out, log_sum: &log_sum };
        attention_backward(SHAPE, saved, &spans, &blocks, &d_out, &mut d_q, &mut d_keys, &mut d_values);
        let (q64, k64, v64, d64) = (widen(&q), widen(&keys), widen(&values), widen(&d_out));
        let loss = |q: &[f64], k: &[f64], v: &[f64]| -> f64 {
            naive(&spans, q, k, v).iter().zip(&d64).map(|(o, d)| o * d).sum()
        };
        let exact = naive(&spans, &q64, &k64, &v64);
        assert!(out.iter().zip(&exact).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5));
        check_gradient("q", &q, &d_q, |q| loss(q, &k64, &v64));
        check_gradient("keys", &keys, &d_keys, |k| loss(&q64, k, &v64));
        check_gradient("values", &values, &d_values, |v| loss(&q64, &k64, v));
    }

    #[test]
    fn the_weights_of_large_scores_are_as_exact_in_the_backward_pass_as_in_the_forward_pass() {
        // A query that is the same for all keys: scores of about 20,000 that differ little.
        let (spans, blocks) = tree();
        let q = vec![100.0; 12 * 24];
        let keys: Vec<f32> = random(2, 12 * 12).iter().map(|k| 81.65 + k * 1e-3).collect();
        let values = vec![1.0; 12 * 12];
        let (out, log_sum) = forward(&spans, &q, &keys, &values);
        assert!(log_sum.iter().step_by(2).all(|max| *max > 19_000.0), "{log_sum:?}");
        let (mut d_q, mut d_keys, mut d_values) = (vec![0.0; 288], vec![0.0; 144], vec![0.0; 144]);
        let saved = AttentionSaved { q: &q, keys: &keys, values: &values, out: &out, log_sum: &log_sum };
        attention_backward(SHAPE, saved, &spans, &blocks, &[1.0; 288], &mut d_q, &mut d_keys, &mut d_values);
        // Each query's weights sum to 1, so the gradients of a block's values sum to its number of queries: 8
        // and 4 rows, two heads a value.
        for (rows, expected) in [(0..8, 16.0), (8..12, 8.0)] {
            for column in 0..12 {
                let sum: f64 = rows.clone().map(|row| f64::from(d_values[row * 12 + column])).sum();
                assert!((sum - expected).abs() < 1e-5, "{sum} and {expected}");
            }
        }
    }

    #[test]
    fn a_shared_prompt_gives_the_same_bits_as_a_copied_one() {
        let (spans, _) = tree();
        let (q, keys, values) = (random(1, 12 * 24), random(2, 12 * 12), random(3, 12 * 12));
        let (out, _) = forward(&spans, &q, &keys, &values);
        let rows = [0, 1, 2, 5, 6, 7];
        let pick = |x: &[f32], width: usize| -> Vec<f32> {
            rows.iter().flat_map(|r| x[r * width..][..width].to_vec()).collect()
        };
        let mut plain = Spans::default();
        for row in 0..6 {
            plain.push_row(&[(0, row + 1)]);
        }
        let (copied, _) = forward(&plain, &pick(&q, 24), &pick(&keys, 12), &pick(&values, 12));
        assert!(copied.iter().zip(pick(&out, 24)).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn rows_that_are_computed_together_have_the_bits_of_each_alone() {
        // A sequence, two completions of a prompt, pages in no order, rows of different sequences, and an empty range.
        let mut lists: Vec<Vec<(u32, u32)>> = (0..21).map(|row| vec![(0, row + 1)]).collect();
        lists.extend((0..5).map(|row| vec![(0, 9), (21, row + 22)]));
        lists.extend((0..4).map(|row| vec![(0, 9), (26, row + 27)]));
        lists.extend((0..3).map(|row| vec![(40, 56), (8, 24), (24, row + 25)]));
        lists.extend([vec![(3, 4)], vec![(50, 90)], vec![(50, 90), (7, 7)], vec![(50, 90), (7, 9), (1, 2)]]);
        lists.extend([vec![(7, 9), (1, 2)], vec![(0, 90)]]);
        for (num_heads, num_kv_heads, head_dim) in [(9, 3, 64), (2, 2, 6), (8, 1, 80), (4, 2, 17)] {
            let shape = AttentionShape { num_heads, num_kv_heads, head_dim };
            let (width, kv_width) = (num_heads * head_dim, num_kv_heads * head_dim);
            let q = random(1, lists.len() * width);
            let keys = in_blocks(shape, &random(2, 90 * kv_width));
            let values = random(3, 90 * kv_width);
            let (keys, values) = (Floats::F32(&keys), Floats::F32(&values));
            let run = |lists: &[Vec<(u32, u32)>], q: &[f32]| {
                let mut spans = Spans::default();
                lists.iter().for_each(|ranges| spans.push_row(ranges));
                let (mut out, mut log_sum) = (vec![9.0; q.len()], vec![9.0; 2 * lists.len() * num_heads]);
                attention(shape, q, keys, values, &spans, &mut out, &mut log_sum);
                let bits = |all: Vec<f32>| all.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                (bits(out), bits(log_sum))
            };
            let (out, log_sum) = run(&lists, &q);
            for row in 0..lists.len() {
                let alone = run(&lists[row..=row], &q[row * width..][..width]);
                assert_eq!(
                    alone.0,
                    out[row * width..][..width],
                    "row {row}, {num_heads} heads of {head_dim}"
                );
                assert_eq!(alone.1, log_sum[2 * row * num_heads..][..2 * num_heads], "row {row}");
            }
        }
    }

    #[test]
    fn keys_and_values_in_bfloat16_give_the_bits_of_these_numbers() {
        let (spans, _) = tree();
        let (q, numbers) = (random(1, 12 * 24), (0..12).collect::<Vec<_>>());
        let mut halves = [(); 2].map(|()| vec![half::bf16::ZERO; 12 * 12]);
        crate::f32_to_bf16(&random(2, 12 * 12), &mut halves[0]);
        crate::f32_to_bf16(&random(3, 12 * 12), &mut halves[1]);
        let [keys, values] = halves.each_ref().map(|of| Floats::Bf16(of).to_f32().into_owned());
        let (expected, expected_sums) = forward(&spans, &q, &keys, &values);
        let mut blocks = vec![half::bf16::NAN; key_block_floats(12, 12)];
        crate::put_rounded_key_rows(&keys, 12, &numbers, &mut blocks);
        let (mut out, mut log_sum) = (vec![9.0; q.len()], vec![9.0; expected_sums.len()]);
        let (blocks, values) = (Floats::Bf16(&blocks), Floats::Bf16(&halves[1]));
        attention(SHAPE, &q, blocks, values, &spans, &mut out, &mut log_sum);
        assert_eq!((out, log_sum), (expected, expected_sums));
    }

    #[test]
    fn a_run_ends_where_a_row_does_not_see_the_keys_of_the_one_before() {
        let lists: [&[(u32, u32)]; 8] = [
            &[(0, 1)],
            &[(0, 2)],
            &[(0, 2), (5, 6)],
            &[(0, 2), (5, 9), (3, 4)],
            &[(0, 2), (6, 9)],
            &[(0, 3), (6, 9)],
            &[(0, 3)],
            &[(1, 3)],
        ];
        let mut spans = Spans::default();
        lists.iter().for_each(|ranges| spans.push_row(ranges));
        let ends: Vec<usize> = (0..lists.len()).map(|row| spans.end_of_run(row, lists.len())).collect();
        assert_eq!(ends, [4, 4, 4, 4, 5, 6, 7, 8]);
        assert_eq!(spans.end_of_run(0, 3), 3);
        let parts = |keys| keys_in(&[(0, 2), (5, 9), (3, 4)], keys).collect::<Vec<_>>();
        assert_eq!(parts(0..7), [(0, 0, 2), (2, 5, 4), (6, 3, 1)]);
        assert_eq!(parts(1..4), [(1, 1, 1), (2, 5, 2)]);
        assert_eq!(parts(3..3), []);
    }
}
