//! Steps of optimisers, and the sum of squares that clipping needs.

use fulmar_core::Result;
use fulmar_cuda::{Argument, Buffer, Card, Grid, Slice, SliceMut, arguments};
use fulmar_kernel::{AdamwStep, SgdStep};
use half::bf16;

use super::{THREADS, over, queue_over};

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
