//! Products of rows with weights of 8 bits.
//!
//! ```text
//! a block: 32 inputs of a weight's output, or of a row, as `scale * q`, with q from -127 to 127
//! rows are quantized, then on all cores:
//!     for each panel and tile of rows:
//!         for each block:  sum = sum + f32(sum of q[k] q'[k]) * (scale * scale')      in this order
//! ```
//! The sum of a block is an integer, and nothing is fused, so an output has the same bits whatever the other rows
//! are, on any number of threads, and on every processor, WebAssembly too.

mod lanes;

use std::cell::Cell;
use std::ops::Range;

use super::MatRef;
use super::packed::Factor;
use super::tile::PANEL;
use crate::parallel::{for_chunks, for_tasks, rows_per_task};
use lanes::Lanes;

/// Inputs of a block.
pub(super) const BLOCK: usize = 32;
/// Bytes of a block of a panel: the weights, as `[4 inputs together][output][input]` plus [`OFFSET`], then a scale
/// for each output.
pub(super) const BLOCK_BYTES: usize = BLOCK * PANEL + SCALE_BYTES;
const SCALE_BYTES: usize = PANEL * size_of::<f32>();
/// The number that is added to a stored weight, so that it is unsigned.
const OFFSET: i32 = 128;
/// The largest quantized number.
const LARGEST: f32 = 127.0;
/// A block whose numbers are all smaller is zeros: the inverse of its scale could overflow.
const SMALLEST: f32 = 1e-30;
/// Inputs that are multiplied by one instruction for an output.
const TOGETHER: usize = 4;
/// Most rows in a task.
const ROWS: usize = 48;
/// Tasks into which a product is cut, if they have enough work.
const TASKS: usize = 8;
/// Most panels in a task.
const PANELS: usize = 64;
/// Fewest multiply-adds for a thread of their own.
const TASK_WORK: usize = 1 << 19;

/// Computes the product of `left` with each factor, whose weights are quantized, or adds it to what is there.
pub(super) fn product(left: MatRef<'_>, factors: &[Factor<'_>], accumulate: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512bw") && has!("avx512vnni") {
            // SAFETY: the check above saw the instructions, here and below.
            return unsafe { product_by::<lanes::vnni::Of>(left, factors, accumulate) };
        }
        if has!("avx2") {
            // SAFETY: as above.
            return unsafe { product_by::<lanes::avx2::Of>(left, factors, accumulate) };
        }
    }
    // SAFETY: it needs no instructions beyond those of the target.
    unsafe { product_by::<lanes::portable::Of>(left, factors, accumulate) };
}

/// Runs [`product`] by some instructions.
///
/// # Safety
/// The processor must have the instructions of `L`.
pub(super) unsafe fn product_by<L: Lanes>(left: MatRef<'_>, factors: &[Factor<'_>], accumulate: bool) {
    let panels: usize = factors.iter().map(Factor::num_panels).sum();
    if left.rows == 0 || panels == 0 {
        return;
    }
    let mut rows = QUANTIZED.take();
    // SAFETY: what the caller promised.
    unsafe { rows.fill::<L>(left) };
    let row_blocks = left.rows.div_ceil(ROWS);
    let at_once = panels.div_ceil(TASKS.div_ceil(row_blocks)).min(PANELS);
    let groups: Vec<_> = factors
        .iter()
        .flat_map(|factor| {
            let panels = factor.num_panels();
            (0..panels).step_by(at_once).map(move |first| (factor, first..panels.min(first + at_once)))
        })
        .collect();
    let work = left.rows.min(ROWS) * at_once * PANEL * left.cols.max(1);
    for_tasks(row_blocks * groups.len(), TASK_WORK / work, |task| {
        let (factor, panels) = &groups[task % groups.len()];
        let first = task / groups.len() * ROWS;
        let task = Task { rows: &rows, factor, accumulate };
        // SAFETY: what the caller promised, and the outputs of a task are its own.
        unsafe { task.run::<L>(first..left.rows.min(first + ROWS), panels.clone()) };
    });
    QUANTIZED.set(rows);
}

thread_local! {
    /// The rows of the last product of this thread.
    static QUANTIZED: Cell<QuantizedRows> = const { Cell::new(QuantizedRows::new()) };
}

/// Rows of a product, quantized.
#[derive(Default)]
struct QuantizedRows {
    /// `[row][block]`.
    blocks: Vec<Block>,
    row_blocks: usize,
}

/// A block of a row.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Block {
    values: [i8; BLOCK],
    scale: f32,
    /// The part of the sums of products that is due to [`OFFSET`], with the other sign.
    start: i32,
}

impl QuantizedRows {
    const fn new() -> Self {
        Self { blocks: Vec::new(), row_blocks: 0 }
    }

    /// Quantizes the rows of `left`.
    ///
    /// # Safety
    /// The processor must have the instructions of `L`.
    unsafe fn fill<L: Lanes>(&mut self, left: MatRef<'_>) {
        let row_blocks = left.cols.div_ceil(BLOCK);
        self.row_blocks = row_blocks;
        self.blocks.resize(left.rows * row_blocks, Block::default());
        if row_blocks == 0 {
            return;
        }
        let wide = left.data.to_f32();
        for_chunks(&mut self.blocks, row_blocks, rows_per_task(left.cols), |first, blocks| {
            for (row, blocks) in (first..).zip(blocks.chunks_exact_mut(row_blocks)) {
                let from = &wide[row * left.row_stride..];
                // SAFETY: what the caller promised.
                unsafe { L::quantize(from, (left.cols, left.col_stride), blocks) };
            }
        });
    }
}

/// Quantizes a row of `cols` numbers that begin `stride` apart. The last block is filled up with zeros.
#[inline(always)]
fn quantize_row(from: &[f32], (cols, stride): (usize, usize), blocks: &mut [Block]) {
    for (index, block) in blocks.iter_mut().enumerate() {
        let inputs = index * BLOCK..cols.min((index + 1) * BLOCK);
        let mut wide = [0.0; BLOCK];
        if stride == 1 {
            wide[..inputs.len()].copy_from_slice(&from[inputs]);
        } else {
            wide.iter_mut().zip(inputs).for_each(|(wide, input)| *wide = from[input * stride]);
        }
        *block = quantize_block(&wide);
    }
}

/// Quantizes a block of a row.
#[inline(always)]
fn quantize_block(wide: &[f32; BLOCK]) -> Block {
    let (scale, inverse) = scales_of(wide.iter().fold(0, |most, value| magnitude(*value).max(most)));
    let mut block = Block { scale, ..Block::default() };
    if inverse == 0.0 {
        return block;
    }
    let mut rounded = [0; BLOCK];
    for (rounded, wide) in rounded.iter_mut().zip(wide) {
        *rounded = round(wide * inverse);
    }
    block.start = -OFFSET * rounded.iter().sum::<i32>();
    for (value, rounded) in block.values.iter_mut().zip(rounded) {
        *value = rounded as i8;
    }
    block
}

/// Returns the bits of the absolute value, whose order is that of the values: a NaN is above all numbers.
#[inline(always)]
const fn magnitude(value: f32) -> u32 {
    value.to_bits() & (u32::MAX >> 1)
}

/// Returns the scale of a block and its inverse, from the largest [`magnitude`]. A block with a number that is not
/// finite has zeros and the scale NaN, so that the outputs are NaN.
#[inline(always)]
fn scales_of(most: u32) -> (f32, f32) {
    let most = f32::from_bits(most);
    if !most.is_finite() {
        return (f32::NAN, 0.0);
    }
    if most < SMALLEST { (0.0, 0.0) } else { (most / LARGEST, LARGEST / most) }
}

/// Rounds a number between -128 and 128 to the nearest integer, ties to even.
#[inline(always)]
const fn round(value: f32) -> i32 {
    /// Sums of it and small numbers have no room for a fraction.
    const INTEGERS: f32 = 12_582_912.0;
    (value + INTEGERS).to_bits() as i32 - INTEGERS.to_bits() as i32
}

/// Some rows of a product and a factor.
struct Task<'a> {
    rows: &'a QuantizedRows,
    factor: &'a Factor<'a>,
    accumulate: bool,
}

impl Task<'_> {
    /// Computes the outputs of some rows and panels.
    ///
    /// # Safety
    /// The processor must have the instructions of `L`, and no other thread may write to these outputs.
    unsafe fn run<L: Lanes>(&self, rows: Range<usize>, panels: Range<usize>) {
        let tiles = rows.len().div_ceil(L::ROWS);
        for panel in panels {
            for tile in 0..tiles {
                let first = rows.start + rows.len() * tile / tiles;
                let end = rows.start + rows.len() * (tile + 1) / tiles;
                // SAFETY: what the caller promised.
                unsafe { self.tile::<L>(first..end, panel) };
            }
        }
    }

    /// Computes the outputs of a tile and writes those that exist.
    ///
    /// # Safety
    /// As [`Task::run`].
    unsafe fn tile<L: Lanes>(&self, rows: Range<usize>, panel: usize) {
        let Some(packed) = self.factor.right.panels else { unreachable!("quantized weights are packed") };
        let row_blocks = self.rows.row_blocks;
        let operands = Operands {
            rows: self.rows.blocks[rows.start * row_blocks..].as_ptr(),
            panel: packed.panel(panel),
            row_blocks,
        };
        let mut sums = [[0.0; PANEL]; ROWS_MAX];
        // SAFETY: what the caller promised; the operands hold all blocks of the rows and of the panel.
        unsafe { L::tile(rows.len(), &operands, &mut sums) };
        let cols = panel * PANEL..packed.outputs.min((panel + 1) * PANEL);
        for (row, sums) in rows.zip(&sums) {
            // SAFETY: the row and the columns are inside the product, and this task's own.
            let out = unsafe {
                let place = self.factor.out.at(row, cols.start);
                std::slice::from_raw_parts_mut(place.first.as_ptr(), cols.len())
            };
            if self.accumulate {
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
            } else {
                out.copy_from_slice(&sums[..cols.len()]);
            }
        }
    }
}

/// Most rows of a tile.
const ROWS_MAX: usize = 6;

/// The operands of a tile.
pub(super) struct Operands {
    /// The first block of the first row.
    rows: *const Block,
    /// The first block of the panel.
    panel: *const u8,
    /// Blocks of a row and of a panel.
    row_blocks: usize,
}

/// Writes a panel of weights `[input][PANEL]` as blocks.
pub(super) fn quantize_panel(weights: &[f32], to: &mut [f32]) {
    for (weights, to) in
        weights.chunks(BLOCK * PANEL).zip(to.chunks_exact_mut(BLOCK_BYTES / size_of::<f32>()))
    {
        let (weights, _) = weights.as_chunks::<PANEL>();
        let (values, scales) = to.split_at_mut(BLOCK * PANEL / size_of::<f32>());
        let values = bytes_of(values);
        let mut most = [0; PANEL];
        for weights in weights {
            most.iter_mut().zip(weights).for_each(|(most, weight)| *most = magnitude(*weight).max(*most));
        }
        let of = most.map(scales_of);
        scales.iter_mut().zip(&of).for_each(|(scale, (of, _))| *scale = *of);
        values.fill(OFFSET as u8);
        for (input, weights) in weights.iter().enumerate() {
            let first = input / TOGETHER * TOGETHER * PANEL + input % TOGETHER;
            for (output, (weight, (_, inverse))) in weights.iter().zip(&of).enumerate() {
                // The weights of a block without a scale count as 0, also those that are not finite.
                let scaled = if *inverse == 0.0 { 0.0 } else { weight * inverse };
                values[first + output * TOGETHER] = (round(scaled) + OFFSET) as u8;
            }
        }
    }
}

/// Returns the bytes of floats.
const fn bytes_of(floats: &mut [f32]) -> &mut [u8] {
    // SAFETY: every byte is a value of `u8`, and all bytes together are a value of `f32`.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::{Panels, matmul, matmul_each};
    use super::*;
    use crate::f32_to_bf16;
    use crate::finite_difference::random;
    use crate::floats::Floats;

    fn quantized(weight: &[f32], outputs: usize, inputs: usize) -> Panels {
        let mut panels = Panels::default();
        panels.quantize(MatRef::new(weight, outputs, inputs).transposed()).unwrap();
        panels
    }

    /// Quantizes a block by the definition.
    fn block(values: &[f32]) -> (f32, Vec<i64>) {
        let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        if most < SMALLEST {
            return (0.0, vec![0; values.len()]);
        }
        let inverse = 127.0 / most;
        (most / 127.0, values.iter().map(|value| (value * inverse).round_ties_even() as i64).collect())
    }

    fn naive(row: &[f32], weight: &[f32]) -> f32 {
        let mut sum = 0.0_f32;
        for (row, weight) in row.chunks(BLOCK).zip(weight.chunks(BLOCK)) {
            let ((scale, row), (scale_w, weight)) = (block(row), block(weight));
            let product: i64 = row.iter().zip(&weight).map(|(a, b)| a * b).sum();
            sum += product as f32 * (scale * scale_w);
        }
        sum
    }

    /// Runs a product by the instructions of one kind, if this processor has them.
    fn by(lanes: &str, out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) -> bool {
        let factors = [Factor::new(out, left, right)];
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        // SAFETY: each version runs only after a check that this processor has its instructions.
        unsafe {
            match lanes {
                #[cfg(target_arch = "x86_64")]
                "vnni" if has!("avx512bw") && has!("avx512vnni") => {
                    product_by::<lanes::vnni::Of>(left, &factors, accumulate);
                }
                #[cfg(target_arch = "x86_64")]
                "avx2" if has!("avx2") => product_by::<lanes::avx2::Of>(left, &factors, accumulate),
                "portable" => product_by::<lanes::portable::Of>(left, &factors, accumulate),
                _ => return false,
            }
        }
        true
    }

    /// Miri runs this test: an interpreter follows every pointer of a product.
    #[test]
    fn small_quantized_products_have_the_bits_of_the_definition_by_all_instructions() {
        for (rows, inner, cols) in [
            (1, 1, 1),
            (1, 70, 129),
            (2, 33, 65),
            (3, 64, 32),
            (5, 31, 33),
            (6, 97, 40),
            (13, 32, 7),
            (9, 0, 5),
        ] {
            let (mut a, mut b) = (random(1, rows * inner), random(2, inner * cols));
            a.iter_mut().step_by(7).for_each(|value| *value = 0.0);
            b.iter_mut().step_by(5).for_each(|value| *value *= 1e-3);
            let before = random(3, rows * cols);
            let panels = quantized(&b, cols, inner);
            for (lanes, accumulate) in
                ["vnni", "avx2", "portable"].into_iter().flat_map(|lanes| [(lanes, false), (lanes, true)])
            {
                let mut out = before.clone();
                if !by(lanes, &mut out, MatRef::new(&a, rows, inner), panels.transposed(), accumulate) {
                    continue;
                }
                for (index, out) in out.iter().enumerate() {
                    let (row, col) = (index / cols, index % cols);
                    let sum = naive(&a[row * inner..][..inner], &b[col * inner..][..inner]);
                    let expected = if accumulate { before[index] + sum } else { sum };
                    let place = format!("{lanes}, {rows} x {inner} x {cols}, output {index}");
                    assert_eq!(out.to_bits(), expected.to_bits(), "{place}: {out} and {expected}");
                }
            }
        }
    }

    #[test]
    fn the_largest_numbers_of_all_signs_do_not_overflow() {
        let (inner, cols) = (64, 32);
        for (a, b) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)] {
            let (row, weight) = (vec![a; inner], vec![b; inner * cols]);
            let panels = quantized(&weight, cols, inner);
            for lanes in ["vnni", "avx2", "portable"] {
                let mut out = vec![0.0; cols];
                if by(lanes, &mut out, MatRef::new(&row, 1, inner), panels.transposed(), false) {
                    assert!(out.iter().all(|out| (out - a * b * 64.0).abs() < 1e-4), "{lanes}: {out:?}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_the_other_rows_and_the_threads_are() {
        for (inner, cols) in [(576, 1536), (1536, 576), (70, 33), (64, 200)] {
            let (a, b) = (random(3, 150 * inner), random(4, inner * cols));
            let panels = quantized(&b, cols, inner);
            let mut whole = vec![0.0; 150 * cols];
            matmul(&mut whole, MatRef::new(&a, 150, inner), panels.transposed(), false);
            for (first, rows) in [(0, 1), (5, 2), (7, 3), (8, 4), (100, 5), (9, 8), (31, 48), (17, 64)] {
                let left = MatRef::new(&a[first * inner..(first + rows) * inner], rows, inner);
                let (mut part, mut alone) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
                matmul(&mut part, left, panels.transposed(), false);
                crate::parallel::alone(|| matmul(&mut alone, left, panels.transposed(), false));
                let expected = &whole[first * cols..(first + rows) * cols];
                assert!(part == expected && alone == expected, "{rows} rows from {first}, inner {inner}");
            }
        }
    }

    #[test]
    fn all_stored_forms_of_a_weight_quantize_alike() {
        let (outputs, inputs) = (70, 45);
        let mut halves = vec![bf16::ZERO; outputs * inputs];
        f32_to_bf16(&random(1, outputs * inputs), &mut halves);
        let stored = Floats::from(&halves[..]);
        let wide = stored.to_f32();
        let packed_halves = Panels::of(stored, outputs, inputs).unwrap();
        let packed = Panels::of(Floats::F32(&wide), outputs, inputs).unwrap();
        let expected = quantized(&wide, outputs, inputs);
        let mut again = quantized(&random(2, 900), 30, 30);
        for right in [
            MatRef::of(stored, outputs, inputs).transposed(),
            packed.transposed(),
            packed_halves.transposed(),
        ] {
            again.quantize(right).unwrap();
            assert_eq!(again.shape(), [outputs, inputs]);
            let row = random(5, inputs);
            let (mut ours, mut theirs) = (vec![0.0; outputs], vec![0.0; outputs]);
            matmul(&mut ours, MatRef::new(&row, 1, inputs), again.transposed(), false);
            matmul(&mut theirs, MatRef::new(&row, 1, inputs), expected.transposed(), false);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn one_call_multiplies_quantized_weights_and_others() {
        let (inner, row) = (40, random(1, 2 * 40));
        let (a, b) = (random(2, 33 * inner), random(3, 5 * inner));
        let panels = quantized(&a, 33, inner);
        let left = MatRef::new(&row, 2, inner);
        let rights = [panels.transposed(), MatRef::new(&b, 5, inner).transposed()];
        let (mut one, mut two) = (vec![1.0; 66], vec![1.0; 10]);
        matmul_each(left, &mut [(&mut one, rights[0]), (&mut two, rights[1])]);
        let (mut one_alone, mut two_alone) = (vec![2.0; 66], vec![2.0; 10]);
        matmul(&mut one_alone, left, rights[0], false);
        matmul(&mut two_alone, left, rights[1], false);
        assert_eq!((one, two), (one_alone, two_alone));
    }

    #[test]
    fn the_error_is_about_a_percent_of_the_outputs() {
        let (rows, inner, cols) = (16, 576, 256);
        let (a, b) = (random(1, rows * inner), random(2, inner * cols));
        let right = MatRef::new(&b, cols, inner).transposed();
        let panels = quantized(&b, cols, inner);
        let (mut exact, mut ours) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
        matmul(&mut exact, MatRef::new(&a, rows, inner), right, false);
        matmul(&mut ours, MatRef::new(&a, rows, inner), panels.transposed(), false);
        let norm = |values: &mut dyn Iterator<Item = f32>| {
            values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
        };
        let error = norm(&mut ours.iter().zip(&exact).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
        assert!((0.001..0.01).contains(&error), "{error}");
    }

    #[test]
    fn numbers_that_are_not_finite_make_their_own_outputs_nan() {
        let (inner, cols) = (64, 40);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut weight = random(1, inner * cols);
            weight[3 * inner + 40] = wrong;
            let panels = quantized(&weight, cols, inner);
            let mut rows = random(2, 2 * inner);
            let mut out = vec![0.0; 2 * cols];
            matmul(&mut out, MatRef::new(&rows, 2, inner), panels.transposed(), false);
            for (index, out) in out.iter().enumerate() {
                assert_eq!(out.is_nan(), index % cols == 3, "{wrong} in a weight, output {index}");
            }
            rows[inner + 5] = wrong;
            matmul(&mut out, MatRef::new(&rows, 2, inner), panels.transposed(), false);
            for (index, out) in out.iter().enumerate() {
                assert_eq!(out.is_nan(), index >= cols || index == 3, "{wrong} in a row, output {index}");
            }
        }
    }

    #[test]
    fn numbers_near_zero_and_near_the_largest_stay_finite() {
        let inner = 32;
        for size in [0.0, f32::MIN_POSITIVE / 4.0, 1e-37, 1e-31, 1e30, f32::MAX] {
            let (row, weight) = (vec![size; inner], vec![1.0; inner]);
            for (a, b) in [(&row, &weight), (&weight, &row)] {
                let panels = quantized(b, 1, inner);
                let mut out = [f32::NAN];
                matmul(&mut out, MatRef::new(a, 1, inner), panels.transposed(), false);
                let expected = if size < SMALLEST { 0.0 } else { size * 32.0 };
                let is_close = out[0] == expected || (out[0] / expected - 1.0).abs() < 1e-5;
                assert!(is_close, "{size}: {} and {expected}", out[0]);
            }
        }
    }
}
