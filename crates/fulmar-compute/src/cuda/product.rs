//! Products of matrices: in f32 in the order of the processor, or by tensor cores where an operand is in bfloat16 or the precision
//! of the product is.

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};
use half::bf16;

use super::{cast, product_f32};
use crate::floats::Stored;
use crate::{Floats, MatRef, MatmulPrecision, View, kept};

const THREADS: u32 = 256;

/// Inputs of a line of shared memory, with what keeps lines in different banks.
const STRIDE: usize = 64 + 8;

/// A kernel of `product.cu`, with the outputs and the rows of its blocks, and the most rows that it is launched for.
#[derive(Clone, Copy)]
struct Kernel {
    name: &'static str,
    outs: usize,
    rows: usize,
    rows_max: usize,
    shared_bytes: usize,
}

/// Kernels of rows by a transposed weight. All of them give a row the same bits.
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

/// The gradient of rows: gradients of outputs by a weight as it is stored.
const OF_ROWS: Kernel = Kernel { name: "product_d_w", ..KERNELS[2] };

/// The gradient of a weight: gradients of outputs, transposed, by rows.
const OF_WEIGHTS: Kernel = Kernel { name: "product_dt_x", ..KERNELS[2] };

pub(crate) fn matmul(
    card: Card,
    out: SliceMut<'_, f32>,
    left: MatRef<'_>,
    right: MatRef<'_>,
    accumulate: bool,
) -> Result<()> {
    let (Some(left), Some(right)) = (left.stored(), right.stored()) else {
        return Err(kept::lacking(card, "a product of packed weights"));
    };
    let ((rows, inner), (inputs, outs)) = (left.shape(), right.shape());
    assert!(inner == inputs && out.len() == rows * outs, "matrices that fit");
    if rows == 0 || outs == 0 {
        return Ok(());
    }
    let shape = [rows, outs, inner];
    match (left.data, right.data, right.precision) {
        (Floats::F32(x), Floats::F32(w), MatmulPrecision::F32) => {
            let (x, w) = ((x.cuda(card)?, left.is_transposed), (w.cuda(card)?, right.is_transposed));
            product_f32::queue(card, out, x, w, shape, accumulate)
        }
        _ => in_halves(card, out, left, right, shape, accumulate),
    }
}

/// Queues products of the same rows. These are rounded once, if all products are by tensor cores.
pub(crate) fn matmul_each(
    card: Card,
    left: MatRef<'_>,
    products: Vec<(SliceMut<'_, f32>, MatRef<'_>)>,
) -> Result<()> {
    let mut room = None;
    let mut rows = left;
    if let Some(stored) = left.stored()
        && products.iter().all(|(_, right)| right.is_in_halves())
    {
        rows = left.of_halves(View::Cuda(halves(card, stored.data, &mut room)?));
    }
    products.into_iter().try_for_each(|(out, right)| matmul(card, out, rows, right, false))
}

/// Queues a product of operands that are rounded to bfloat16, unless they are stored so.
fn in_halves(
    card: Card,
    out: SliceMut<'_, f32>,
    left: Stored<'_>,
    right: Stored<'_>,
    [rows, outs, inner]: [usize; 3],
    accumulate: bool,
) -> Result<()> {
    let kernel = match (left.is_transposed, right.is_transposed) {
        (false, true) => KERNELS.into_iter().find(|kernel| rows <= kernel.rows_max).unwrap_or(KERNELS[2]),
        (false, false) => OF_ROWS,
        (true, false) => OF_WEIGHTS,
        (true, true) => return Err(kept::lacking(card, "a product of two transposed matrices in bfloat16")),
    };
    let (mut of_left, mut of_right) = (None, None);
    let x = halves(card, left.data, &mut of_left)?;
    let w = halves(card, right.data, &mut of_right)?;
    let grid = Grid {
        blocks: (outs.div_ceil(kernel.outs) as u32, rows.div_ceil(kernel.rows) as u32),
        threads: THREADS,
        shared_bytes: kernel.shared_bytes as u32,
    };
    card.queue(kernel.name, grid, arguments![x, w, out, rows, outs, inner, u32::from(accumulate)])
}

/// Returns numbers in bfloat16; `room` holds those that are rounded.
fn halves<'a>(
    card: Card,
    numbers: Floats<'a>,
    room: &'a mut Option<Buffer<bf16>>,
) -> Result<Slice<'a, bf16>> {
    match numbers {
        Floats::Bf16(halves) => halves.cuda(card),
        Floats::F32(numbers) => {
            let numbers = numbers.cuda(card)?;
            let halves = room.insert(card.room::<bf16>(numbers.len())?);
            cast::f32_to_bf16(card, numbers, halves.view_mut())?;
            Ok(halves.view())
        }
    }
}
