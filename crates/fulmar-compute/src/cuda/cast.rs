//! Single precision to bfloat16 and back.

use fulmar_core::Result;
use fulmar_cuda::{Card, Slice, SliceMut, arguments};
use half::bf16;

use super::queue_over;

pub(crate) fn bf16_to_f32(card: Card, from: Slice<'_, bf16>, to: SliceMut<'_, f32>) -> Result<()> {
    cast(card, "bf16_to_f32", from, to)
}

pub(crate) fn f32_to_bf16(card: Card, from: Slice<'_, f32>, to: SliceMut<'_, bf16>) -> Result<()> {
    cast(card, "f32_to_bf16", from, to)
}

pub(crate) fn take_other_bf16(card: Card, from: Slice<'_, bf16>, to: SliceMut<'_, f32>) -> Result<()> {
    cast(card, "take_other_bf16", from, to)
}

fn cast<T, U>(card: Card, kernel: &str, from: Slice<'_, T>, to: SliceMut<'_, U>) -> Result<()> {
    let len = to.len();
    assert_eq!(from.len(), len, "both have one length");
    queue_over(card, kernel, len, arguments![from, to, len])
}
