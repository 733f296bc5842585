//! Products of a few rows with a weight `[out, in]`, as a decoder has them for each token that it draws.
//!
//! ```text
//! for each panel of 16 outputs, on all cores:
//!     for each block of 64 inputs:  turn the panel's 16 x 64 weights over into the first cache, once for all rows
//!         for each 6 rows:          12 accumulators of 8 outputs += weight * input, an input at a time
//! ```
//! `gemm` packs its operands for large products, which costs more than the product itself when there are few rows; here a
//! weight is read once, from memory, and asked for a panel ahead. Each output is summed as `gemm` sums it: input after input, a fused multiply-add each,
//! anew after as many inputs as `gemm` takes at once. So the bits are the same.

use std::arch::x86_64::{
    __m256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};

use crate::lanes::prefetch;
use crate::parallel::{map_tasks, num_threads};

/// Rows from which on `gemm` is as fast.
pub(super) const ROWS_MAX: usize = 48;

/// Outputs of a panel.
const PANEL: usize = 16;
/// Inputs of a block.
const BLOCK: usize = 64;
/// Floats that come from memory at once.
const LINE: usize = 16;
/// Rows whose accumulators fit the registers.
const GROUP: usize = 6;
/// Multiply-adds that are worth a second thread.
const TASK_WORK: usize = 1 << 18;

/// The tile of `gemm`'s kernel for this processor, which decides how many inputs it takes at once.
const GEMM_TILE: (usize, usize) = (16, 6);

/// Whether this processor and these sizes are ones that [`product`] is for.
pub(super) fn suits(rows: usize, inner: usize, cols: usize) -> bool {
    let large = inner >= PANEL && cols >= PANEL && rows <= ROWS_MAX;
    large && std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// `out = left weight^T`, or `out += left weight^T`; `left` is `[rows, inner]`, `weight` `[cols, inner]`.
pub(super) fn product(out: &mut [f32], left: &[f32], weight: &[f32], inner: usize, accumulate: bool) {
    let (rows, cols) = (left.len() / inner, weight.len() / inner);
    let depth = gemm_common::cache::kernel_params(rows, cols, inner, GEMM_TILE.0, GEMM_TILE.1, 4).kc;
    let per_task = panels_per_task(rows, inner, cols) * PANEL;
    let before = if accumulate { Some(&*out) } else { None };
    let stripes = map_tasks(cols.div_ceil(per_task), |task| {
        let columns = task * per_task..cols.min((task + 1) * per_task);
        let weight = &weight[columns.start * inner..columns.end * inner];
        let width = columns.len();
        let mut stripe = vec![0.0; rows * width];
        if let Some(before) = before {
            for (stripe, before) in stripe.chunks_exact_mut(width).zip(before.chunks_exact(cols)) {
                stripe.copy_from_slice(&before[columns.clone()]);
            }
        }
        // SAFETY: `suits` saw that this processor has both.
        unsafe { panels(&mut stripe, left, weight, inner, depth, accumulate) };
        stripe
    });
    for (stripe, first) in stripes.iter().zip((0..).step_by(per_task)) {
        let width = stripe.len() / rows;
        for (out, stripe) in out.chunks_exact_mut(cols).zip(stripe.chunks_exact(width)) {
            out[first..first + width].copy_from_slice(stripe);
        }
    }
}

/// Panels for one task: all of them if there is little to do, or if this thread is one of many that have work of their own.
fn panels_per_task(rows: usize, inner: usize, cols: usize) -> usize {
    let panels = cols.div_ceil(PANEL);
    let tasks = match rayon::current_thread_index() {
        None => (rows * inner * cols / TASK_WORK).clamp(1, num_threads() * 4),
        Some(_) => 1,
    };
    panels.div_ceil(tasks)
}

#[target_feature(enable = "avx2,fma")]
fn panels(stripe: &mut [f32], left: &[f32], weight: &[f32], inner: usize, depth: usize, accumulate: bool) {
    let (rows, width) = (left.len() / inner, weight.len() / inner);
    let mut turned = [[0.0_f32; PANEL]; BLOCK];
    let mut sums = vec![[0.0_f32; PANEL]; rows];
    for (panel, of_panel) in weight.chunks(PANEL * inner).enumerate() {
        let outputs = panel * PANEL..width.min((panel + 1) * PANEL);
        for first in (0..inner).step_by(depth) {
            sums.fill([0.0; PANEL]);
            let end = inner.min(first + depth);
            for block in (first..end).step_by(BLOCK) {
                let inputs = BLOCK.min(end - block);
                let next = (panel + 1) * PANEL * inner + block * PANEL;
                (next..next + inputs * PANEL).step_by(LINE).for_each(|ahead| prefetch(weight, ahead));
                turn_over(of_panel, inner, block, inputs, &mut turned);
                add_products(&mut sums, left, inner, block, &turned[..inputs]);
            }
            for (stripe, sums) in stripe.chunks_exact_mut(width).zip(&sums) {
                let out = &mut stripe[outputs.clone()];
                if first == 0 && !accumulate {
                    out.copy_from_slice(&sums[..out.len()]);
                } else {
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
                }
            }
        }
    }
}

/// Adds the products of a block of inputs to the sums of all rows, a few rows at a time.
#[target_feature(enable = "avx2,fma")]
fn add_products(
    sums: &mut [[f32; PANEL]],
    left: &[f32],
    inner: usize,
    block: usize,
    turned: &[[f32; PANEL]],
) {
    let size = sums.len().div_ceil(sums.len().div_ceil(GROUP));
    for (group, sums) in sums.chunks_mut(size).enumerate() {
        let left = &left[group * size * inner..];
        match sums.len() {
            1 => add_group::<1>(sums, left, inner, block, turned),
            2 => add_group::<2>(sums, left, inner, block, turned),
            3 => add_group::<3>(sums, left, inner, block, turned),
            4 => add_group::<4>(sums, left, inner, block, turned),
            5 => add_group::<5>(sums, left, inner, block, turned),
            _ => add_group::<GROUP>(sums, left, inner, block, turned),
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn add_group<const ROWS: usize>(
    sums: &mut [[f32; PANEL]],
    left: &[f32],
    inner: usize,
    block: usize,
    turned: &[[f32; PANEL]],
) {
    let inputs: [&[f32]; ROWS] = std::array::from_fn(|row| &left[row * inner + block..][..turned.len()]);
    let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
    for (totals, sums) in totals.iter_mut().zip(&*sums) {
        *totals = [load(&sums[..8]), load(&sums[8..])];
    }
    for (input, weights) in turned.iter().enumerate() {
        let weights = [load(&weights[..8]), load(&weights[8..])];
        for row in 0..ROWS {
            let value = _mm256_set1_ps(inputs[row][input]);
            totals[row][0] = _mm256_fmadd_ps(weights[0], value, totals[row][0]);
            totals[row][1] = _mm256_fmadd_ps(weights[1], value, totals[row][1]);
        }
    }
    for (totals, sums) in totals.iter().zip(sums) {
        store(totals[0], &mut sums[..8]);
        store(totals[1], &mut sums[8..]);
    }
}

/// `turned[i][o] = weight[o][block + i]` for the panel's outputs `o`; 0 for those that it has not.
#[target_feature(enable = "avx2,fma")]
fn turn_over(weight: &[f32], inner: usize, block: usize, inputs: usize, turned: &mut [[f32; PANEL]; BLOCK]) {
    let outputs = weight.len() / inner;
    let whole = if outputs == PANEL { inputs / 8 * 8 } else { 0 };
    for half in [0, 8] {
        for input in (0..whole).step_by(8) {
            let first = half * inner + block + input;
            let mut rows = [_mm256_setzero_ps(); 8];
            for (index, row) in rows.iter_mut().enumerate() {
                *row = load(&weight[first + index * inner..]);
            }
            for (turned, row) in turned[input..].iter_mut().zip(transpose(rows)) {
                store(row, &mut turned[half..]);
            }
        }
    }
    for (input, turned) in turned.iter_mut().enumerate().take(inputs).skip(whole) {
        for (output, turned) in turned.iter_mut().enumerate() {
            *turned = if output < outputs { weight[output * inner + block + input] } else { 0.0 };
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn load(values: &[f32]) -> __m256 {
    let values = &values[..8];
    // SAFETY: eight floats are there.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn store(row: __m256, values: &mut [f32]) {
    let values = &mut values[..8];
    // SAFETY: there is room for eight floats.
    unsafe { _mm256_storeu_ps(values.as_mut_ptr(), row) };
}

/// Rows and columns of an 8 x 8 matrix exchanged.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let (ab, cd, ef, gh) = (
        _mm256_unpacklo_ps(a, b),
        _mm256_unpacklo_ps(c, d),
        _mm256_unpacklo_ps(e, f),
        _mm256_unpacklo_ps(g, h),
    );
    let (zero, zero_below) = (_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0x44>(ef, gh));
    let (one, one_below) = (_mm256_shuffle_ps::<0xEE>(ab, cd), _mm256_shuffle_ps::<0xEE>(ef, gh));
    let (ab, cd, ef, gh) = (
        _mm256_unpackhi_ps(a, b),
        _mm256_unpackhi_ps(c, d),
        _mm256_unpackhi_ps(e, f),
        _mm256_unpackhi_ps(g, h),
    );
    let (two, two_below) = (_mm256_shuffle_ps::<0x44>(ab, cd), _mm256_shuffle_ps::<0x44>(ef, gh));
    let (three, three_below) = (_mm256_shuffle_ps::<0xEE>(ab, cd), _mm256_shuffle_ps::<0xEE>(ef, gh));
    [
        _mm256_permute2f128_ps::<0x20>(zero, zero_below),
        _mm256_permute2f128_ps::<0x20>(one, one_below),
        _mm256_permute2f128_ps::<0x20>(two, two_below),
        _mm256_permute2f128_ps::<0x20>(three, three_below),
        _mm256_permute2f128_ps::<0x31>(zero, zero_below),
        _mm256_permute2f128_ps::<0x31>(one, one_below),
        _mm256_permute2f128_ps::<0x31>(two, two_below),
        _mm256_permute2f128_ps::<0x31>(three, three_below),
    ]
}
