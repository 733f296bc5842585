//! Weights packed for products: panels of 32 outputs, in which the 32 weights of an input are adjacent.

use std::collections::TryReserveError;

use half::bf16;

use super::MatRef;
use super::tile::{PANEL, Pair, Stored};
use super::transpose::transpose;
use crate::floats::{Floats, bf16_to_f32};
use crate::pages::prefer_huge_pages;
use crate::parallel::for_tasks;

/// A cache line, to which panels are aligned.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; LINE]);

/// Floats in a cache line.
pub(super) const LINE: usize = 16;

/// Resizes lines to hold `floats`.
pub(super) fn resize(lines: &mut Vec<Line>, floats: usize) {
    lines.resize(floats.div_ceil(LINE), ZEROS);
}

const ZEROS: Line = Line([0.0; LINE]);

/// A weight `[outputs, inputs]` in panels of 32 outputs, `[panel][input][32]`, for products `x w^T`. The last panel
/// is filled up with zeros. bfloat16 stays bfloat16: a word holds outputs j and j + 16 of its panel.
///
/// Takes as much memory as the weight, and one pass over it to pack.
///
/// # Examples
/// ```
/// use fulmar_kernel::{MatRef, Panels, matmul};
/// let weight = [1.0, 2.0, 3.0, 4.0]; // two outputs of two inputs
/// let panels = Panels::of(weight.as_slice().into(), 2, 2)?;
/// let mut out = [0.0; 2];
/// matmul(&mut out, MatRef::new(&[1.0, 10.0], 1, 2), panels.transposed(), false);
/// assert_eq!((out, panels.shape()), ([21.0, 43.0], [2, 2]));
/// # Ok::<(), std::collections::TryReserveError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Panels {
    lines: Vec<Line>,
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) is_bf16: bool,
}

impl Panels {
    /// Packs a weight `[outputs, inputs]`.
    ///
    /// # Errors
    /// If there is no memory for it.
    ///
    /// # Panics
    /// If `weight` does not hold `outputs * inputs` numbers.
    pub fn of(weight: Floats<'_>, outputs: usize, inputs: usize) -> Result<Self, TryReserveError> {
        let mut panels = Self::default();
        panels.pack(weight, outputs, inputs)?;
        Ok(panels)
    }

    /// Returns the number of outputs and of inputs.
    #[must_use]
    pub const fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// Returns the weight transposed, `[inputs, outputs]`: the right operand of a product `x w^T`.
    #[must_use]
    pub const fn transposed(&self) -> MatRef<'_> {
        MatRef::of_panels(self)
    }

    /// Packs another weight in the same memory.
    ///
    /// # Errors
    /// If there is no memory for it; the panels are then empty.
    ///
    /// # Panics
    /// If `weight` does not hold `outputs * inputs` numbers.
    pub fn pack(&mut self, weight: Floats<'_>, outputs: usize, inputs: usize) -> Result<(), TryReserveError> {
        assert_eq!(weight.len(), outputs * inputs, "weight must hold {outputs} x {inputs} numbers");
        let mut lines = std::mem::take(self).lines;
        (self.outputs, self.inputs) = (outputs, inputs);
        self.is_bf16 = matches!(weight, Floats::Bf16(_));
        let count = outputs.div_ceil(PANEL);
        let floats = self.panel_floats();
        let missing = (count * floats).div_ceil(LINE).saturating_sub(lines.len());
        lines.try_reserve_exact(missing).inspect_err(|_| *self = Self::default())?;
        if missing > 0 {
            prefer_huge_pages(lines.spare_capacity_mut());
        }
        resize(&mut lines, count * floats);
        self.lines = lines;
        let first = Address(self.lines.as_mut_ptr().cast());
        for_tasks(count, 1, |panel| {
            let rows = panel * PANEL..outputs.min((panel + 1) * PANEL);
            // SAFETY: each task writes its own panel, which is inside the lines.
            let to = unsafe { std::slice::from_raw_parts_mut(first.get().add(panel * floats), floats) };
            match weight.slice(rows.start * inputs..rows.end * inputs) {
                Floats::F32(weight) => pack_panel(weight, inputs, to),
                Floats::Bf16(weight) => pack_pairs(weight, inputs, to),
            }
        });
        Ok(())
    }

    /// Returns the first input of a panel.
    pub(super) fn panel<W: Stored>(&self, panel: usize) -> *const W {
        debug_assert_eq!(W::ITEMS == Pair::ITEMS, self.is_bf16, "the type of the weights");
        self.lines[panel * self.panel_floats() / LINE..].as_ptr().cast()
    }

    /// Returns the size of a panel, a whole number of lines.
    const fn panel_floats(&self) -> usize {
        self.inputs * if self.is_bf16 { Pair::ITEMS } else { PANEL }
    }
}

/// An address that several threads share.
#[derive(Clone, Copy)]
struct Address(*mut f32);

// SAFETY: each thread writes to places of its own.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    const fn get(self) -> *mut f32 {
        self.0
    }
}

/// Writes rows of `inputs` weights, at most [`PANEL`], as `[input][PANEL]`.
fn pack_panel(rows: &[f32], inputs: usize, to: &mut [f32]) {
    if rows.len() < PANEL * inputs {
        to.fill(0.0);
    }
    transpose(rows, inputs, inputs, to, PANEL);
}

/// Writes rows as [`pack_panel`] does, in pairs of bfloat16.
fn pack_pairs(rows: &[bf16], inputs: usize, to: &mut [f32]) {
    let mut wide = vec![0.0; rows.len()];
    bf16_to_f32(rows, &mut wide);
    let mut panel = vec![0.0; inputs * PANEL];
    pack_panel(&wide, inputs, &mut panel);
    for (to, panel) in to.chunks_exact_mut(Pair::ITEMS).zip(panel.chunks_exact(PANEL)) {
        let (lower, upper) = panel.split_at(Pair::ITEMS);
        for ((to, lower), upper) in to.iter_mut().zip(lower).zip(upper) {
            *to = f32::from_bits(lower.to_bits() >> 16 | upper.to_bits());
        }
    }
}
