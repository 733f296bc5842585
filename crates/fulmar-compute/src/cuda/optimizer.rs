//! Steps of optimisers, and the sum of squares that clipping needs.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::{AdamwStep, SgdStep};
use half::bf16;

use super::{THREADS, matmul, over, queue_over};
use crate::{MatRef, View};

/// Elements of a partial sum of squares, as in `optimizer.cu`.
const BLOCK: usize = 4096;

pub(crate) fn sum_of_squares(card: Card, x: Slice<'_, f32>) -> Result<f64> {
    let blocks = x.len().div_ceil(BLOCK);
    let (sums, sum) = (card.zeros::<f32>(blocks)?, card.zeros::<f64>(1)?);
    queue_over(card, "square_sums", x.len(), arguments![x, x.len(), &sums])?;
    let one = Grid { blocks: (1, 1), threads: THREADS, shared_bytes: 4 * THREADS };
    card.queue("sum_of_squares", one, arguments![&sums, blocks, &sum])?;
    Ok(sum.read()?[0])
}

pub(crate) fn adamw_step(
    card: Card,
    step: AdamwStep,
    weights: SliceMut<'_, f32>,
    gradients: Slice<'_, f32>,
    moment1: SliceMut<'_, f32>,
    moment2: SliceMut<'_, f32>,
) -> Result<()> {
    let len = weights.len();
    assert!([gradients.len(), moment1.len(), moment2.len()] == [len; 3], "all have one length");
    let AdamwStep {
        learning_rate,
        decay,
        beta1,
        beta2,
        eps,
        step_size,
        inv_sqrt_correction2,
        gradient_scale,
    } = step;
    let arguments = arguments![
        weights,
        None::<&Buffer<bf16>>,
        gradients,
        moment1,
        moment2,
        learning_rate,
        decay,
        beta1,
        beta2,
        eps,
        step_size,
        inv_sqrt_correction2,
        gradient_scale,
        len
    ];
    queue_over(card, "adamw_step", len, arguments)
}

pub(crate) fn sgd_step(
    card: Card,
    step: SgdStep,
    weights: SliceMut<'_, f32>,
    gradients: Slice<'_, f32>,
    buffer: SliceMut<'_, f32>,
) -> Result<()> {
    let len = weights.len();
    assert_eq!(gradients.len(), len, "all have one length");
    assert!(step.momentum == 0.0 || buffer.len() == len, "all have one length");
    let buffer = if step.momentum > 0.0 { buffer.into() } else { Argument::from(None::<&Buffer<f32>>) };
    if len == 0 {
        return Ok(());
    }
    let arguments = arguments![
        weights,
        None::<&Buffer<bf16>>,
        gradients,
        buffer,
        step.learning_rate,
        step.momentum,
        step.dampening,
        step.decay,
        step.gradient_scale,
        u32::from(step.nesterov),
        u32::from(step.first),
        len
    ];
    card.queue("sgd_step", over(len), arguments)
}

pub(crate) fn muon_direction(
    card: Card,
    gradients: Slice<'_, f32>,
    momentum: SliceMut<'_, f32>,
    direction: SliceMut<'_, f32>,
    gradient_scale: f32,
    keep: f32,
    nesterov: bool,
) -> Result<()> {
    let len = momentum.len();
    assert!([gradients.len(), direction.len()] == [len; 2], "all have one length");
    let arguments =
        arguments![gradients, momentum, direction, gradient_scale, keep, u32::from(nesterov), len];
    queue_over(card, "muon_direction", len, arguments)
}

/// `y = a x + b y`.
pub(crate) fn mix(card: Card, x: Slice<'_, f32>, y: SliceMut<'_, f32>, a: f32, b: f32) -> Result<()> {
    let len = y.len();
    assert_eq!(x.len(), len, "both have one length");
    queue_over(card, "mix", len, arguments![x, y, a, b, len])
}

/// In the order of `fulmar-kernel`, and without memory of its own: a step of an optimizer that has begun does not run out of it.
pub(crate) fn newton_schulz(
    card: Card,
    mut matrix: SliceMut<'_, f32>,
    (rows, cols): (usize, usize),
    (a, b, c): (f32, f32, f32),
    steps: usize,
    eps: f32,
    workspace: SliceMut<'_, f32>,
) -> Result<()> {
    let (len, short) = (rows * cols, rows.min(cols));
    assert_eq!(matrix.len(), len, "matrix must hold rows x cols floats");
    assert_eq!(workspace.len(), len + 2 * short * short, "workspace must have the floats of the shape");
    if len == 0 {
        return Ok(());
    }
    let (mut next, squares) = workspace.split_at(len);
    let (mut gram, mut square) = squares.split_at(short * short);
    queue_over(card, "square_sums", len, arguments![matrix.view(), len, next.reborrow()])?;
    let grid = Grid { shared_bytes: 4 * THREADS, ..over(len) };
    let blocks = len.div_ceil(BLOCK);
    card.queue("divide_by_norm", grid, arguments![matrix.reborrow(), next.view(), blocks, eps, len])?;
    for _ in 0..steps {
        let x = MatRef::new(View::Cuda(matrix.view()), rows, cols);
        let (left, right) = if rows > cols { (x.transposed(), x) } else { (x, x.transposed()) };
        matmul(card, gram.reborrow(), left, right, false)?;
        let of_gram = MatRef::new(View::Cuda(gram.view()), short, short);
        matmul(card, square.reborrow(), of_gram, of_gram, false)?;
        mix(card, gram.view(), square.reborrow(), b, c)?;
        let factor = MatRef::new(View::Cuda(square.view()), short, short);
        let (left, right) = if rows > cols { (x, factor) } else { (factor, x) };
        matmul(card, next.reborrow(), left, right, false)?;
        mix(card, next.view(), matrix.reborrow(), 1.0, a)?;
    }
    Ok(())
}
