//! The operations on GPUs: one file for each of `fulmar-cuda/kernels`. Each queues kernels on a card, and waits only if it returns
//! a value.

mod attention;
mod attention_backward;
mod attention_f32;
mod cast;
mod draw;
mod embedding;
mod heads;
mod log_prob;
mod optimizer;
mod product;
mod product_f32;
mod rms_norm;
mod rows;
mod swiglu;

pub(crate) use attention::{HEAD_WIDTHS, RowTiles, attention, segment_keys_max};
pub(crate) use attention_backward::{KeyTiles, attention_backward};
pub(crate) use attention_f32::{AttentionPlan, GradientPlan};
pub(crate) use cast::{bf16_to_f32, f32_to_bf16, take_other_bf16};
pub(crate) use draw::{DrawPlaces, draw_rows};
pub(crate) use embedding::{embed, embed_backward};
pub(crate) use heads::{add_bias, bias_backward, rotate, rotate_back, rotate_rounded};
pub(crate) use log_prob::{
    Columns, TOP_MAX, cross_entropy, entropy_row, log_prob_backward_row, log_prob_backward_rows,
    log_prob_row, log_prob_rows, log_sum_sq_prob_row, log_sum_sq_prob_rows, softmax_row, top_k_log_probs,
};
pub(crate) use optimizer::{adamw_step, mix, muon_direction, newton_schulz, sgd_step, sum_of_squares};
pub(crate) use product::{matmul, matmul_each, matmul_gated};
pub(crate) use rms_norm::{mask_overflow, rms_norm, rms_norm_backward};
pub(crate) use rows::{copy, fill, gather, put_rows, scale, scatter, scatter_add};
pub(crate) use swiglu::{swiglu, swiglu_backward};

use fulmar_core::Result;
use fulmar_cuda::{Argument, Card, Grid, Slice, SliceMut, arguments};

/// Threads of a block of kernels that go over elements.
const THREADS: u32 = 256;

/// Most blocks of such a launch: a few for each multiprocessor. Each block takes several rounds of longer inputs.
const BLOCKS_MAX: usize = 1024;

/// Returns the grid of a launch over `len` elements.
fn over(len: usize) -> Grid {
    let blocks = len.div_ceil(THREADS as usize).clamp(1, BLOCKS_MAX) as u32;
    Grid { blocks: (blocks, 1), threads: THREADS, shared_bytes: 0 }
}

/// Queues a kernel over `len` elements, if there is one.
fn queue_over<const N: usize>(card: Card, kernel: &str, len: usize, arguments: [Argument; N]) -> Result<()> {
    if len == 0 { Ok(()) } else { card.queue(kernel, over(len), arguments) }
}

/// Rows of a chunk of sums over rows, as `fulmar-kernel` divides them into tasks.
fn rows_each(width: usize) -> usize {
    (8_192 / width).max(1)
}

/// Adds the sums of chunks `[C, D]` to `total`, in order.
fn add_chunks(
    card: Card,
    sums_cd: Slice<'_, f32>,
    chunks: usize,
    width: usize,
    total_d: SliceMut<'_, f32>,
) -> Result<()> {
    let grid = Grid { threads: 128, ..over(width) };
    card.queue("add_chunks", grid, arguments![sums_cd, chunks, width, total_d])
}
