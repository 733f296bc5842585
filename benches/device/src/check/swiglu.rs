//! The gated activation and its gradient.

use fulmar_core::Result;
use fulmar_cuda::{Card, arguments};
use half::bf16;

use super::{elements, lengths};
use crate::numbers::random;
use crate::report::Report;

/// Gates at the ends of the exponential's range, infinities and NaN.
const SPECIAL: [f32; 10] =
    [0.0, -0.0, 87.3, 87.4, -88.37, -88.4, 200.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];

/// Compares both passes at every length.
///
/// # Errors
/// Errors of the GPU's driver.
pub fn check(card: &Card, report: &mut Report) -> Result<()> {
    for len in lengths(card) {
        for spread in [4.0, 100.0] {
            let mut gate = random("gate", len, spread);
            for (gate, special) in gate.iter_mut().skip(1).zip(SPECIAL) {
                *gate = special;
            }
            let (mut up, d_out) = (random("up", len, 2.0), random("d_out", len, 1.0));
            let (gate_at, up_at, d_out_at) = (card.upload(&gate)?, card.upload(&up)?, card.upload(&d_out)?);
            let out_at = card.poisoned(len)?;
            card.launch("swiglu", elements(), arguments![&gate_at, &up_at, &out_at, len])?;
            let mut out = vec![0.0; len];
            fulmar_kernel::swiglu(&gate, &up, &mut out);
            let shape = format!("{len}, gates to {spread}");
            report.same("swiglu", &shape, &out_at.read()?, &out);
            let halves_at = card.poisoned(len)?;
            card.launch("swiglu_bf16", elements(), arguments![&gate_at, &up_at, &halves_at, len])?;
            let mut halves = vec![bf16::ZERO; len];
            fulmar_kernel::f32_to_bf16(&out, &mut halves);
            report.same("swiglu_bf16", &shape, &halves_at.read()?, &halves);
            card.launch("swiglu_backward", elements(), arguments![&gate_at, &up_at, &d_out_at, len])?;
            fulmar_kernel::swiglu_backward(&mut gate, &mut up, &d_out);
            report.same("swiglu_backward, gate", &shape, &gate_at.read()?, &gate);
            report.same("swiglu_backward, up", &shape, &up_at.read()?, &up);
        }
    }
    Ok(())
}
