//! Products of f32 matrices, in the order of the processor's.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, SliceMut, arguments};

use crate::{MatRef, kept};

/// Rows and outputs of a block of threads, and inputs that it holds at once.
const TILE: usize = 64;
const DEPTH: usize = 16;

pub(crate) fn matmul(
    card: Card,
    out: SliceMut<'_, f32>,
    left: MatRef<'_>,
    right: MatRef<'_>,
    accumulate: bool,
) -> Result<()> {
    let (Some(x), Some(w)) = (left.f32(), right.f32()) else {
        return Err(kept::lacking(card, "matmul of anything but f32 matrices"));
    };
    let (rows, outs, inner) = (x.rows, w.cols, x.cols);
    assert!(inner == w.rows && out.len() == rows * outs, "matrices that fit");
    if rows == 0 || outs == 0 {
        return Ok(());
    }
    let grid = Grid {
        blocks: (outs.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32),
        threads: 256,
        shared_bytes: (2 * DEPTH * (TILE + 4) * 4) as u32,
    };
    // The kernel reads rows of weights: a matrix of inputs by outputs is turned.
    let is_turned = [x.is_transposed, !w.is_transposed].map(u32::from);
    let (x, w) = (x.data.cuda(card)?, w.data.cuda(card)?);
    let arguments =
        arguments![x, w, out, rows, outs, inner, is_turned[0], is_turned[1], u32::from(accumulate)];
    card.queue("product_f32", grid, arguments)
}
