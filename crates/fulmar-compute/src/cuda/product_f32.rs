//! Products of f32 matrices, in the order of the processor's.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, Slice, SliceMut, arguments};

/// Rows and outputs of a block of threads, and inputs that it holds at once.
const TILE: usize = 64;
const DEPTH: usize = 16;

/// A matrix as it is stored, and whether it is read transposed.
pub(crate) type Matrix<'a> = (Slice<'a, f32>, bool);

/// Queues `out = left right` for `[rows, outs]` sums over `inner`, or adds that to `out`.
pub(crate) fn queue(
    card: Card,
    out: SliceMut<'_, f32>,
    (x, is_x_transposed): Matrix<'_>,
    (w, is_w_transposed): Matrix<'_>,
    [rows, outs, inner]: [usize; 3],
    accumulate: bool,
) -> Result<()> {
    let grid = Grid {
        blocks: (outs.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32),
        threads: 256,
        shared_bytes: (2 * DEPTH * (TILE + 4) * 4) as u32,
    };
    // The kernel reads rows of weights: a matrix of inputs by outputs is turned.
    let is_turned = [is_x_transposed, !is_w_transposed].map(u32::from);
    let arguments =
        arguments![x, w, out, rows, outs, inner, is_turned[0], is_turned[1], u32::from(accumulate)];
    card.queue("product_f32", grid, arguments)
}
