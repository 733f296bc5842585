//! Weights packed for products: panels of 32 outputs, in which the 32 weights of an input are adjacent, or those of
//! four inputs if they are quantized.

use std::borrow::Cow;
use std::collections::TryReserveError;

use half::bf16;

use super::packed::pack;
use super::quantized::{BLOCK, BLOCK_BYTES, quantize_panel};
use super::rounded::num_words;
use super::tile::{PANEL, Pair, Stored};
use super::transpose::transpose;
use super::{MatRef, MatmulPrecision};
use crate::floats::{Floats, bf16_to_f32};
use crate::pages::prefer_huge_pages;
use crate::parallel::{for_rows, for_tasks};

/// A cache line, to which panels are aligned.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([f32; LINE]);

/// Floats in a cache line.
pub(super) const LINE: usize = 16;

/// Resizes lines to hold `floats`.
fn resize(lines: &mut Vec<Line>, floats: usize) {
    lines.resize(floats.div_ceil(LINE), ZEROS);
}

/// Makes room for `floats` in lines that are written before they are read.
pub(super) fn grow(lines: &mut Vec<Line>, floats: usize) {
    if lines.len() * LINE < floats {
        resize(lines, floats);
    }
}

const ZEROS: Line = Line([0.0; LINE]);

/// A weight `[outputs, inputs]` in panels of 32 outputs, `[panel][input][32]`, for products `x w^T`. The last panel
/// is filled up with zeros. bfloat16 stays bfloat16: a word holds outputs j and j + 16 of its panel, or two inputs of an
/// output if products round their operands.
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
    pub(super) format: Format,
}

/// The stored type of the weights of panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Format {
    #[default]
    F32,
    Bf16,
    /// Words of two inputs in bfloat16, whose products round the rows likewise.
    Rounded,
    /// Blocks of 8 bits with scales.
    Q8,
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
        self.view().transposed()
    }

    /// Returns the borrowed panels.
    #[must_use]
    pub const fn view(&self) -> PanelsView<'_> {
        let lines: *const Line = self.lines.as_ptr();
        // SAFETY: a line is `LINE` floats without padding.
        let floats = unsafe { std::slice::from_raw_parts(lines.cast(), self.lines.len() * LINE) };
        PanelsView { floats, outputs: self.outputs, inputs: self.inputs, format: self.format }
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
        let format = if matches!(weight, Floats::Bf16(_)) { Format::Bf16 } else { Format::F32 };
        self.fill([outputs, inputs], format, |panel, to| {
            let rows = panel * PANEL..outputs.min((panel + 1) * PANEL);
            match weight.slice(rows.start * inputs..rows.end * inputs) {
                Floats::F32(weight) => pack_panel(weight, inputs, to),
                Floats::Bf16(weight) => pack_pairs(weight, inputs, to),
            }
        })
    }

    /// Packs another weight `[outputs, inputs]` for products in a precision, with the bits of the weight that is not
    /// packed. [`MatmulPrecision::Bf16`] takes half the memory of single precision.
    ///
    /// # Errors
    /// If there is no memory for it; the panels are then empty.
    ///
    /// # Panics
    /// If `weight` does not hold `outputs * inputs` numbers.
    ///
    /// # Examples
    /// ```
    /// use fulmar_kernel::{MatRef, MatmulPrecision, Panels, matmul};
    /// let weight = [1.0 + 1e-4, 2.0]; // an output of two inputs
    /// let mut panels = Panels::default();
    /// panels.pack_for(MatmulPrecision::Bf16, weight.as_slice().into(), 1, 2)?;
    /// let mut out = [0.0];
    /// matmul(&mut out, MatRef::new(&[1.0, 1.0 + 1e-4], 1, 2), panels.transposed(), false);
    /// assert_eq!(out, [3.0]);
    /// # Ok::<(), std::collections::TryReserveError>(())
    /// ```
    pub fn pack_for(
        &mut self,
        precision: MatmulPrecision,
        weight: Floats<'_>,
        outputs: usize,
        inputs: usize,
    ) -> Result<(), TryReserveError> {
        if precision == MatmulPrecision::F32 {
            return self.pack(weight, outputs, inputs);
        }
        let right = MatRef::of(weight, outputs, inputs).transposed().in_precision(precision);
        self.fill([outputs, inputs], Format::Rounded, |panel, to| {
            to.fill(0.0);
            pack(right, panel..panel + 1, 0..num_words(inputs), to, &mut Vec::new());
        })
    }

    /// Packs another weight, the right operand `[inputs, outputs]` of a product `x w^T`, with 8 bits a number:
    /// blocks of 32 inputs of an output with a scale, the largest absolute value of the block / 127, in single
    /// precision. A product with it quantizes the rows likewise. Its outputs have the same bits on every processor,
    /// and a relative error of about 1 % of the norm of the outputs.
    ///
    /// Takes 1.125 bytes a number, and one pass over the weight. A block with a number that is not finite gives
    /// outputs that are NaN.
    ///
    /// # Errors
    /// If there is no memory for it; the panels are then empty.
    ///
    /// # Panics
    /// If `right` is quantized.
    ///
    /// # Examples
    /// ```
    /// use fulmar_kernel::{MatRef, Panels, matmul};
    /// let weight = MatRef::new(&[1.0, -2.0, 0.5, 0.25], 2, 2); // two outputs of two inputs
    /// let mut panels = Panels::default();
    /// panels.quantize(weight.transposed())?;
    /// let mut out = [0.0; 2];
    /// matmul(&mut out, MatRef::new(&[1.0, 0.5], 1, 2), panels.transposed(), false);
    /// assert!(out[0].abs() < 0.02 && (out[1] - 0.625).abs() < 0.01, "{out:?}");
    /// # Ok::<(), std::collections::TryReserveError>(())
    /// ```
    pub fn quantize(&mut self, right: MatRef<'_>) -> Result<(), TryReserveError> {
        let (right, inputs) = (right.in_precision(MatmulPrecision::F32), right.rows);
        self.fill([right.cols, inputs], Format::Q8, |panel, to| {
            if let Some(packed) = right.panels {
                return quantize_panel(&packed.widen(panel), to);
            }
            let mut floats = vec![0.0; inputs * PANEL];
            pack(right, panel..panel + 1, 0..inputs, &mut floats, &mut Vec::new());
            quantize_panel(&floats, to);
        })
    }

    /// Fills the panels of a weight `[outputs, inputs]` on all threads, each by `write(panel, floats)`.
    fn fill(
        &mut self,
        [outputs, inputs]: [usize; 2],
        format: Format,
        write: impl Fn(usize, &mut [f32]) + Sync + Send,
    ) -> Result<(), TryReserveError> {
        let mut lines = std::mem::take(self).lines;
        (self.outputs, self.inputs, self.format) = (outputs, inputs, format);
        let count = outputs.div_ceil(PANEL);
        let floats = panel_floats(format, inputs);
        let missing = (count * floats).div_ceil(LINE).saturating_sub(lines.len());
        lines.try_reserve_exact(missing).inspect_err(|_| *self = Self::default())?;
        if missing > 0 {
            prefer_huge_pages(lines.spare_capacity_mut());
        }
        resize(&mut lines, count * floats);
        self.lines = lines;
        let first = Address(self.lines.as_mut_ptr().cast());
        for_tasks(count, 1, |panel| {
            // SAFETY: each task writes its own panel, which is inside the lines.
            write(panel, unsafe { std::slice::from_raw_parts_mut(first.get().add(panel * floats), floats) });
        });
        Ok(())
    }
}

/// Borrowed panels of a weight: those of [`Panels`], or a weight that was [packed in its place](pack_in_place).
#[derive(Debug, Clone, Copy)]
pub struct PanelsView<'a> {
    floats: &'a [f32],
    pub(super) outputs: usize,
    inputs: usize,
    pub(super) format: Format,
}

impl<'a> PanelsView<'a> {
    /// Returns a weight `[outputs, inputs]` that [`pack_in_place`] packed.
    ///
    /// # Panics
    /// If `weight` does not hold as many numbers, or whole panels.
    #[must_use]
    pub fn of_packed(weight: &'a [f32], outputs: usize, inputs: usize) -> Self {
        assert!(fills_panels(outputs), "{outputs} outputs must be whole panels");
        assert_eq!(weight.len(), outputs * inputs, "weight must hold {outputs} x {inputs} numbers");
        Self { floats: weight, outputs, inputs, format: Format::F32 }
    }

    /// Returns the number of outputs and of inputs.
    #[must_use]
    pub const fn shape(self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// Returns the weight transposed, `[inputs, outputs]`: the right operand of a product `x w^T`.
    #[must_use]
    pub const fn transposed(self) -> MatRef<'a> {
        MatRef::of_panels(self)
    }

    /// Returns the precision of products with the weight.
    pub(super) const fn precision(self) -> MatmulPrecision {
        if matches!(self.format, Format::Rounded) { MatmulPrecision::Bf16 } else { MatmulPrecision::F32 }
    }

    /// Returns the first input of a panel.
    pub(super) fn panel<T>(self, panel: usize) -> *const T {
        self.floats(panel).as_ptr().cast()
    }

    /// Returns a panel.
    fn floats(self, panel: usize) -> &'a [f32] {
        let size = panel_floats(self.format, self.inputs);
        &self.floats[panel * size..][..size]
    }

    /// Returns a panel as `[input][PANEL]` in single precision.
    ///
    /// # Panics
    /// If the weights are quantized.
    pub(super) fn widen(self, panel: usize) -> Cow<'a, [f32]> {
        assert!(self.format != Format::Q8, "quantized weights are not quantized again");
        let floats = self.floats(panel);
        if self.format == Format::F32 {
            return Cow::Borrowed(floats);
        }
        // A word has two outputs of an input, or two inputs of an output: in either case, the lower halves of some
        // words come before their upper halves.
        let lower = |word: &f32| f32::from_bits(word.to_bits() << 16);
        let upper = |word: &f32| f32::from_bits(word.to_bits() & 0xffff_0000);
        let words = if self.format == Format::Bf16 { Pair::ITEMS } else { PANEL };
        let halves =
            |words: &[f32]| words.iter().map(lower).chain(words.iter().map(upper)).collect::<Vec<_>>();
        let mut wide: Vec<f32> = floats.chunks_exact(words).flat_map(halves).collect();
        wide.truncate(self.inputs * PANEL);
        Cow::Owned(wide)
    }
}

/// Returns the size of a panel, a whole number of lines.
const fn panel_floats(format: Format, inputs: usize) -> usize {
    match format {
        Format::F32 => inputs * PANEL,
        Format::Bf16 => inputs * Pair::ITEMS,
        Format::Rounded => num_words(inputs) * PANEL,
        Format::Q8 => inputs.div_ceil(BLOCK) * BLOCK_BYTES / size_of::<f32>(),
    }
}

/// Returns whether so many outputs are whole panels, so that a weight can be packed in its place.
#[must_use]
pub const fn fills_panels(outputs: usize) -> bool {
    outputs.is_multiple_of(PANEL)
}

/// Packs a weight `[outputs, inputs]` in its own memory, for [`PanelsView::of_packed`]. Takes a pass over it.
///
/// # Panics
/// If `weight` does not hold whole panels of `inputs` numbers an output.
///
/// # Examples
/// ```
/// use fulmar_kernel::{MatRef, PanelsView, matmul, pack_in_place, unpack_in_place};
/// let rows: Vec<f32> = (0..32 * 2).map(|at| at as f32).collect();
/// let mut weight = rows.clone();
/// pack_in_place(&mut weight, 2);
/// let mut out = [0.0; 32];
/// let packed = PanelsView::of_packed(&weight, 32, 2).transposed();
/// matmul(&mut out, MatRef::new(&[1.0, 100.0], 1, 2), packed, false);
/// assert_eq!(out[..2], [100.0, 302.0]);
/// unpack_in_place(&mut weight, 2);
/// assert_eq!(weight, rows);
/// ```
pub fn pack_in_place(weight: &mut [f32], inputs: usize) {
    in_place(weight, inputs, |rows, panel| transpose(rows, inputs, inputs, panel, PANEL));
}

/// Inverts [`pack_in_place`].
///
/// # Panics
/// As [`pack_in_place`].
pub fn unpack_in_place(weight: &mut [f32], inputs: usize) {
    in_place(weight, inputs, |panel, rows| transpose(panel, PANEL, PANEL, rows, inputs));
}

/// Replaces each panel by what `write(before, panel)` makes of a copy.
fn in_place(weight: &mut [f32], inputs: usize, write: impl Fn(&[f32], &mut [f32]) + Sync) {
    let panel = PANEL * inputs;
    assert!(
        panel > 0 && weight.len().is_multiple_of(panel),
        "weight must hold whole panels of {inputs} inputs"
    );
    for_rows(weight, panel, |_, panels| {
        let mut before = vec![0.0; panel];
        for panel in panels.chunks_exact_mut(panel) {
            before.copy_from_slice(panel);
            write(&before, panel);
        }
    });
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
