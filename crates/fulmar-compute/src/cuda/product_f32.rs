//! Products of f32 rows by weights, in the order of the processor's.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, SliceMut, arguments};

use crate::{MatRef, kept};

/// Rows and outputs of a block of threads, and inputs that it holds at once.
const TILE: usize = 64;
const DEPTH: usize = 16;

/// `left` is a matrix of rows, `right` a transposed weight: other products have no kernel yet.
pub(crate) fn matmul(
    card: Card,
    out: SliceMut<'_, f32>,
    left: MatRef<'_>,
    right: MatRef<'_>,
    accumulate: bool,
) -> Result<()> {
    let (Some((x, rows, inner)), Some((w, outs, inputs))) = (left.f32(false), right.f32(true)) else {
        return Err(kept::lacking(card, "matmul of anything but f32 rows by a transposed f32 weight"));
    };
    assert!(inner == inputs && out.len() == rows * outs, "matrices that fit");
    if rows == 0 || outs == 0 {
        return Ok(());
    }
    let grid = Grid {
        blocks: (outs.div_ceil(TILE) as u32, rows.div_ceil(TILE) as u32),
        threads: 256,
        shared_bytes: (2 * DEPTH * (TILE + 4) * 4) as u32,
    };
    let (x, w) = (x.cuda(card)?, w.cuda(card)?);
    card.queue("product_f32", grid, arguments![x, w, out, rows, outs, inner, u32::from(accumulate)])
}
