//! The gated activation and its gradient.

use fulmar_core::Result;
use fulmar_cuda::{Card, Slice, SliceMut, arguments};

use super::queue_over;
use crate::FloatsMut;

pub(crate) fn swiglu(card: Card, gate: Slice<'_, f32>, up: Slice<'_, f32>, out: FloatsMut<'_>) -> Result<()> {
    let len = out.len();
    assert!(gate.len() == len && up.len() == len, "gate, up and out have one length");
    let (kernel, out) = out.written_by(card, ["swiglu", "swiglu_bf16"])?;
    queue_over(card, kernel, len, arguments![gate, up, out, len])
}

pub(crate) fn swiglu_backward(
    card: Card,
    gate: SliceMut<'_, f32>,
    up: SliceMut<'_, f32>,
    d_out: Slice<'_, f32>,
) -> Result<()> {
    let len = d_out.len();
    assert!(gate.len() == len && up.len() == len, "gate, up and d_out have one length");
    queue_over(card, "swiglu_backward", len, arguments![gate, up, d_out, len])
}
