//! Products of matrices: in f32 in the order of the processor, or by tensor cores where the weight is in bfloat16.

use fulmar_core::Result;
use fulmar_cuda::{Card, Grid, Slice, SliceMut, arguments};
use half::bf16;

use super::{cast, product_f32};
use crate::MatRef;

const THREADS: u32 = 256;

/// Inputs of a line of shared memory, with what keeps lines in different banks.
const STRIDE: usize = 64 + 8;

/// A kernel of `product.cu`, with the outputs and the rows of its blocks, and the most rows that it is launched for. All of them
/// give a row the same bits.
struct Kernel {
    name: &'static str,
    outs: usize,
    rows: usize,
    rows_max: usize,
    shared_bytes: usize,
}

const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "product_8",
        outs: 16,
        rows: 8,
        rows_max: 32,
        shared_bytes: 8 * 4 * (16 + 8) * STRIDE * 2 + 8 * 16 * 8 * 4,
    },
    Kernel {
        name: "product_64",
        outs: 128,
        rows: 64,
        rows_max: 64,
        shared_bytes: 3 * (128 + 64) * STRIDE * 2,
    },
    Kernel {
        name: "product_128",
        outs: 128,
        rows: 128,
        rows_max: usize::MAX,
        shared_bytes: 3 * (128 + 128) * STRIDE * 2,
    },
];

pub(crate) fn matmul(
    card: Card,
    out: SliceMut<'_, f32>,
    left: MatRef<'_>,
    right: MatRef<'_>,
    accumulate: bool,
) -> Result<()> {
    let (Some((x, rows, inner)), Some((w, outs, inputs))) = (left.rows_f32(), right.weight_bf16()) else {
        return product_f32::matmul(card, out, left, right, accumulate);
    };
    assert!(inner == inputs && out.len() == rows * outs, "matrices that fit");
    if rows == 0 || outs == 0 {
        return Ok(());
    }
    let (x, w) = (x.cuda(card)?, w.cuda(card)?);
    let mut halves = card.room::<bf16>(x.len())?;
    cast::f32_to_bf16(card, x, halves.view_mut())?;
    queue(card, halves.view(), w, out, [rows, outs, inner], accumulate)
}

fn queue(
    card: Card,
    x: Slice<'_, bf16>,
    w: Slice<'_, bf16>,
    out: SliceMut<'_, f32>,
    [rows, outs, inner]: [usize; 3],
    accumulate: bool,
) -> Result<()> {
    let [few, some, many] = &KERNELS;
    let kernel = [few, some].into_iter().find(|kernel| rows <= kernel.rows_max).unwrap_or(many);
    let grid = Grid {
        blocks: (outs.div_ceil(kernel.outs) as u32, rows.div_ceil(kernel.rows) as u32),
        threads: THREADS,
        shared_bytes: kernel.shared_bytes as u32,
    };
    card.queue(kernel.name, grid, arguments![x, w, out, rows, outs, inner, u32::from(accumulate)])
}
