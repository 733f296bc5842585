//! Products of matrices: in f32 in the order of the processor, or by tensor cores where an operand is in bfloat16 or the precision
//! of the product is.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use half::bf16;

use super::{cast, heads, product_f32, swiglu};
use crate::floats::Stored;
use crate::{Floats, FloatsMut, MatRef, MatmulPrecision, kept};

const THREADS: u32 = 256;

/// Inputs of a line of shared memory, with what keeps lines in different banks.
const STRIDE: usize = 64 + 8;

/// A kernel of `product.cu`, with the outputs and the rows of its blocks, and the most rows that it is launched for.
#[derive(Clone, Copy)]
struct Kernel {
    name: &'static str,
    /// The kernel of several products at once with the same blocks, if there is one.
    each: &'static str,
    /// The kernel of two products and their gated activation with the same blocks, if there is one.
    gated: &'static str,
    outs: usize,
    rows: usize,
    rows_max: usize,
    shared_bytes: usize,
}

/// Kernels of rows by a transposed weight. All of them give a row the same bits.
const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "product_8",
        each: "product_each_8",
        gated: "product_swiglu_8",
        outs: 16,
        rows: 8,
        rows_max: 32,
        shared_bytes: 8 * 4 * (16 + 8) * STRIDE * 2 + 8 * 16 * 8 * 4,
    },
    Kernel {
        name: "product_64",
        each: "product_each_64",
        gated: "product_swiglu_64",
        outs: 128,
        rows: 64,
        rows_max: 64,
        shared_bytes: 3 * (128 + 64) * STRIDE * 2,
    },
    Kernel {
        name: "product_128",
        each: "product_each_128",
        gated: "product_swiglu_128",
        outs: 128,
        rows: 128,
        rows_max: usize::MAX,
        shared_bytes: 3 * (128 + 128) * STRIDE * 2,
    },
];

/// The gradient of rows: gradients of outputs by a weight as it is stored.
const OF_ROWS: Kernel = Kernel { name: "product_d_w", each: "", gated: "", ..KERNELS[2] };

/// The gradient of a weight: gradients of outputs, transposed, by rows.
const OF_WEIGHTS: Kernel = Kernel { name: "product_dt_x", each: "", gated: "", ..KERNELS[2] };

/// Most products of one launch.
const EACH_MAX: usize = 3;

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

/// A product of rows by a weight, its place and its bias.
type Each<'a, W> = (SliceMut<'a, f32>, W, Option<Slice<'a, f32>>);

/// Queues products of the same rows. If all are by tensor cores and by transposed weights, the rows are rounded once, and one launch
/// computes up to [`EACH_MAX`] of them with their biases.
pub(crate) fn matmul_each(card: Card, left: MatRef<'_>, products: Vec<Each<'_, MatRef<'_>>>) -> Result<()> {
    let rows = plain_rows(left).filter(|_| products.iter().all(|(_, right, _)| weight_of(*right).is_some()));
    let Some(rows) = rows else {
        return products.into_iter().try_for_each(|(mut out, right, bias)| {
            matmul(card, out.reborrow(), left, right, false)?;
            bias.map_or(Ok(()), |bias| heads::add_bias(card, out, bias))
        });
    };
    let mut room = None;
    let x = halves(card, rows.data, &mut room)?;
    let mut products =
        products.into_iter().filter_map(|(out, right, bias)| Some((out, right.stored()?, bias))).peekable();
    while products.peek().is_some() {
        each_in_halves(card, x, rows.shape(), products.by_ref().take(EACH_MAX))?;
    }
    Ok(())
}

/// Queues two products of the same rows and their gated activation: one launch by tensor cores, if that is in bfloat16.
pub(crate) fn matmul_gated(
    card: Card,
    left: MatRef<'_>,
    (mut gate, of_gate): (SliceMut<'_, f32>, MatRef<'_>),
    (mut up, of_up): (SliceMut<'_, f32>, MatRef<'_>),
    act: FloatsMut<'_>,
) -> Result<()> {
    let operands = plain_rows(left).zip(weight_of(of_gate)).zip(weight_of(of_up));
    let (act, ((left, of_gate), of_up)) = match (act, operands) {
        (FloatsMut::Bf16(act), Some(operands)) => (act, operands),
        (act, _) => {
            let products = vec![(gate.reborrow(), of_gate, None), (up.reborrow(), of_up, None)];
            matmul_each(card, left, products)?;
            return swiglu::swiglu(card, gate.view(), up.view(), act);
        }
    };
    let ((rows, inner), (inputs, width), act) = (left.shape(), of_gate.shape(), act.cuda(card)?);
    assert!(inner == inputs && of_up.shape() == of_gate.shape(), "two weights of these rows");
    assert!([gate.len(), up.len(), act.len()] == [rows * width; 3], "a place for each output");
    if rows == 0 || width == 0 {
        return Ok(());
    }
    let [mut of_x, mut room, mut other] = [const { None }; 3];
    let x = halves(card, left.data, &mut of_x)?;
    let (gate_w, up_w) = (halves(card, of_gate.data, &mut room)?, halves(card, of_up.data, &mut other)?);
    let kernel = Kernel::of_rows(rows);
    let grid = kernel.grid(rows, (2 * width).div_ceil(kernel.outs));
    card.queue(kernel.gated, grid, arguments![x, gate_w, up_w, gate, up, act, rows, width, inner])
}

/// Returns rows that are read as they are stored.
fn plain_rows(left: MatRef<'_>) -> Option<Stored<'_>> {
    left.stored().filter(|rows| !rows.is_transposed)
}

/// Returns a transposed weight whose products are by tensor cores.
fn weight_of(right: MatRef<'_>) -> Option<Stored<'_>> {
    right.stored().filter(|weight| right.is_in_halves() && weight.is_transposed)
}

/// Queues one launch of up to [`EACH_MAX`] products of rows in bfloat16 by transposed weights.
fn each_in_halves<'a>(
    card: Card,
    x: Slice<'_, bf16>,
    (rows, inner): (usize, usize),
    products: impl Iterator<Item = Each<'a, Stored<'a>>>,
) -> Result<()> {
    let kernel = Kernel::of_rows(rows);
    let none = (Argument::Address(0), Argument::Address(0), Argument::Address(0), 0);
    let (mut each, mut rooms, mut blocks) = ([none; EACH_MAX], [const { None }; EACH_MAX], 0);
    for (((out, weight, bias), place), room) in products.zip(&mut each).zip(&mut rooms) {
        let (inputs, outs) = weight.shape();
        assert!(inner == inputs && out.len() == rows * outs, "matrices that fit");
        assert!(bias.is_none_or(|bias| bias.len() == outs), "a bias for each output");
        *place = (halves(card, weight.data, room)?.into(), bias.into(), out.into(), outs);
        blocks += outs.div_ceil(kernel.outs);
    }
    if rows == 0 || blocks == 0 {
        return Ok(());
    }
    let [(w1, b1, y1, outs1), (w2, b2, y2, outs2), (w3, b3, y3, outs3)] = each;
    let grid = kernel.grid(rows, blocks);
    let arguments = arguments![x, rows, inner, w1, b1, y1, outs1, w2, b2, y2, outs2, w3, b3, y3, outs3];
    card.queue(kernel.each, grid, arguments)
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
        (false, true) => Kernel::of_rows(rows),
        (false, false) => OF_ROWS,
        (true, false) => OF_WEIGHTS,
        (true, true) => return Err(kept::lacking(card, "a product of two transposed matrices in bfloat16")),
    };
    let (mut of_left, mut of_right) = (None, None);
    let x = halves(card, left.data, &mut of_left)?;
    let w = halves(card, right.data, &mut of_right)?;
    let grid = kernel.grid(rows, outs.div_ceil(kernel.outs));
    card.queue(kernel.name, grid, arguments![x, w, out, rows, outs, inner, u32::from(accumulate)])
}

impl Kernel {
    /// Returns the kernel for so many rows by a transposed weight.
    fn of_rows(rows: usize) -> Self {
        KERNELS.into_iter().find(|kernel| rows <= kernel.rows_max).unwrap_or(KERNELS[2])
    }

    /// Returns the grid of a launch for so many rows and blocks of outputs.
    fn grid(&self, rows: usize, blocks: usize) -> Grid {
        Grid {
            blocks: (blocks as u32, rows.div_ceil(self.rows) as u32),
            threads: THREADS,
            shared_bytes: self.shared_bytes as u32,
        }
    }
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
