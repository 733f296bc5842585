//! Products `x w^T` with a weight `[out, in]` in its stored layout, for any number of rows: the core of every
//! forward pass.
//!
//! ```text
//! for each block of 96 rows, for each stripe of 32 outputs, on all cores:
//!     for each block of inputs, at most 640:
//!         for each tile of 3 rows by 4 outputs:  12 accumulators of 8 lanes += row * weight, 8 inputs at a time
//! ```
//! With AVX-512, a tile has 8 rows by 4 outputs if there are enough rows (`wide.rs`).
//!
//! Rows and weights both run along the inputs, so nothing is packed and a weight is read once, at full memory
//! speed for few rows; while a stripe is multiplied, the next one is prefetched. If many rows begin a power
//! of two apart, a task copies its operands first, as the caches would not hold them together. It also copies
//! when many rows meet bfloat16 weights, which are then widened once. An output is the sum of its 8 lanes,
//! block after block, in an order that depends only on the number of inputs. So a row has the same bits
//! whatever the other rows are, and bfloat16 weights give the bits of the same weights in single precision.

mod wide;

use std::arch::x86_64::{
    __m128, __m256, __m256i, _MM_HINT_T1, _mm_add_ps, _mm_cvtss_f32, _mm_loadu_ps, _mm_loadu_si128,
    _mm_prefetch, _mm_setzero_ps, _mm_storeu_ps, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_cmpgt_epi32, _mm256_cvtepu16_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps,
    _mm256_loadu_ps, _mm256_maskload_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
    _mm256_slli_epi32,
};

use std::cell::Cell;
use std::ops::Range;

use half::bf16;

use crate::floats::bf16_to_f32;
use crate::parallel::for_tasks;

/// Rows in a task: with 640 inputs they fit the second-level cache.
const ROWS: usize = 96;
/// Outputs that are multiplied with all rows of a task before the next ones.
const STRIPE: usize = 32;
/// Rows and outputs of a task that copies both first.
const COPIED: (usize, usize) = (192, 256);
/// Fewest rows for which copies pay off.
const COPIED_ROWS_MIN: usize = 48;
/// Rows that begin a multiple of this many floats apart map to few cache sets and evict each other.
const CLASHING: usize = 512;
/// Rows and outputs in a tile, whose accumulators fill the registers.
const TILE: (usize, usize) = (3, 4);
/// Most inputs in a block: a tile's rows and weights then fit the first-level cache.
const INPUTS_MAX: usize = 640;
const LANES: usize = 8;
/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Floats in a cache line. Copied rows are padded by one line, so that they do not evict each other.
const APART: usize = LINE / size_of::<f32>();
/// Fewest multiply-adds for a thread of their own.
const TASK_WORK: usize = 1 << 18;

/// The stored type of weights.
pub(super) trait Stored: Copy + Sync {
    /// `true` if products of many rows copy their operands, with weights in single precision, whatever the
    /// strides.
    const IS_COPIED: bool;

    /// Loads eight numbers.
    ///
    /// # Safety
    /// Eight numbers must be readable, and the processor must [suit](suits).
    unsafe fn load(first: *const Self) -> __m256;

    /// Loads `count` numbers, at most eight, and fills the rest with 0.
    ///
    /// # Safety
    /// As [`Stored::load`].
    unsafe fn load_some(first: *const Self, count: usize) -> __m256;

    /// Writes the numbers to `to`, which has the same length.
    fn widen(from: &[Self], to: &mut [f32]);
}

impl Stored for f32 {
    const IS_COPIED: bool = false;

    /// # Safety
    /// As in the trait.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load(first: *const Self) -> __m256 {
        // SAFETY: what the caller promised.
        unsafe { _mm256_loadu_ps(first) }
    }

    /// # Safety
    /// As in the trait.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load_some(first: *const Self, count: usize) -> __m256 {
        // SAFETY: only the lanes below `count` are read.
        unsafe { _mm256_maskload_ps(first, first_lanes(count)) }
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

impl Stored for bf16 {
    const IS_COPIED: bool = true;

    /// # Safety
    /// As in the trait.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load(first: *const Self) -> __m256 {
        // SAFETY: what the caller promised.
        let halves = unsafe { _mm_loadu_si128(first.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
    }

    /// # Safety
    /// As in the trait.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load_some(first: *const Self, count: usize) -> __m256 {
        let mut eight = [Self::ZERO; LANES];
        // SAFETY: the caller promised `count` numbers, of which there is room for eight.
        unsafe {
            std::ptr::copy_nonoverlapping(first, eight.as_mut_ptr(), count);
            Self::load(eight.as_ptr())
        }
    }

    fn widen(from: &[Self], to: &mut [f32]) {
        bf16_to_f32(from, to);
    }
}

/// Returns whether this processor has the instructions.
pub(super) fn suits() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Computes `out = left weight^T`, or `out += left weight^T`; `left` is `[rows, inner]`, `weight` `[cols,
/// inner]`.
///
/// # Panics
/// If `out` is not `[rows, cols]` or the processor does not [suit](suits).
pub(super) fn product<W: Stored>(
    out: &mut [f32],
    left: &[f32],
    weight: &[W],
    inner: usize,
    accumulate: bool,
) {
    let (rows, cols) = (left.len() / inner, weight.len() / inner);
    assert!(suits() && out.len() == rows * cols, "out must hold {rows} x {cols} floats");
    let copies = rows >= COPIED_ROWS_MIN && (W::IS_COPIED || inner.is_multiple_of(CLASHING));
    let (height, width) = if copies { COPIED } else { (ROWS, STRIPE) };
    let (stripes, out) = (cols.div_ceil(width), Out { first: out.as_mut_ptr(), stride: cols });
    for_tasks(rows.div_ceil(height) * stripes, TASK_WORK / (rows.min(height) * width * inner), |task| {
        let (row, col) = (task / stripes * height, task % stripes * width);
        let left = &left[row * inner..rows.min(row + height) * inner];
        let weight = &weight[col * inner..cols.min(col + width) * inner];
        let multiply = if copies { multiply_copies::<W> } else { multiply::<W> };
        // SAFETY: `suits` saw the instructions; the task's outputs are inside `out`, and no other task writes
        // to them.
        unsafe { multiply(out.at(row, col), left, weight, inner, accumulate) };
    });
}

/// Writes the products of `row` with each of the `out.len()` rows that begin `stride` floats apart in `rows`.
///
/// # Panics
/// If `rows` is too short for them or the processor does not [suit](suits).
pub(super) fn row_products(out: &mut [f32], row: &[f32], rows: &[f32], stride: usize) {
    let floats = out.len().saturating_sub(1) * stride + row.len();
    assert!(suits() && (out.is_empty() || rows.len() >= floats), "rows must hold {floats} floats");
    // SAFETY: `suits` saw the instructions, and every row was just seen to be there.
    unsafe { multiply_row(out, row, rows, stride) };
}

/// # Safety
/// `rows` must hold a row for each place of `out`.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_row(out: &mut [f32], left: &[f32], rows: &[f32], stride: usize) {
    for (tile, out) in out.chunks_mut(TILE.1).enumerate() {
        let weight = &rows[tile * TILE.1 * stride..];
        let tile = Tile { left, weight, inner: stride, inputs: left.len() };
        let to = Out { first: out.as_mut_ptr(), stride: out.len() };
        // SAFETY: the caller promised the rows, and `out` has `out.len()` places.
        unsafe { tile.add::<1>(out.len(), to, false) };
    }
}

/// The output matrix of a task.
#[derive(Clone, Copy)]
struct Out {
    first: *mut f32,
    stride: usize,
}

// SAFETY: each task writes to places of its own.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Out {
    /// Returns the matrix from this row and column on.
    const fn at(self, row: usize, col: usize) -> Self {
        Self { first: self.first.wrapping_add(row * self.stride + col), stride: self.stride }
    }
}

/// Computes one stripe of outputs for some rows.
///
/// # Safety
/// `out` must have a place for each row of `left` and each of `weight`.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply<W: Stored>(out: Out, left: &[f32], weight: &[W], inner: usize, accumulate: bool) {
    let (rows, cols) = (left.len() / inner, weight.len() / inner);
    let tiles = inner.div_ceil(block_of(inner)) * tiles_of(rows) * cols.div_ceil(TILE.1);
    let mut ahead =
        Ahead { next: weight.as_ptr().wrapping_add(weight.len()), share: weight.len().div_ceil(tiles) };
    for first in (0..inner).step_by(block_of(inner)) {
        let inputs = block_of(inner).min(inner - first);
        let stripe = Tile { left: &left[first..], weight: &weight[first..], inner, inputs };
        // SAFETY: what the caller promised.
        unsafe { stripe.add_all((rows, cols), out, accumulate || first > 0, &mut ahead) };
    }
}

/// Computes any number of outputs as [`multiply`] does; copies its operands so that rows are adjacent.
///
/// # Safety
/// As [`multiply`].
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_copies<W: Stored>(out: Out, left: &[f32], weight: &[W], inner: usize, accumulate: bool) {
    let rows = left.len() / inner;
    let mut copies = COPIES.take();
    for first in (0..inner).step_by(block_of(inner)) {
        let inputs = block_of(inner).min(inner - first);
        for (stripe, weight) in weight.chunks(STRIPE * inner).enumerate() {
            let (of_left, of_weight) = &mut copies;
            if stripe == 0 {
                copy_block(of_left, left, inner, first..first + inputs);
            }
            copy_block(of_weight, weight, inner, first..first + inputs);
            let tile = Tile { left: of_left, weight: &of_weight[..], inner: inputs + APART, inputs };
            let (size, out) = ((rows, weight.len() / inner), out.at(0, stripe * STRIPE));
            let mut nothing = Ahead { next: of_weight.as_ptr(), share: 0 };
            // SAFETY: what the caller promised.
            unsafe { tile.add_all(size, out, accumulate || first > 0, &mut nothing) };
        }
    }
    COPIES.set(copies);
}

thread_local! {
    /// The buffers of this thread's copies.
    static COPIES: Cell<(Vec<f32>, Vec<f32>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Copies some inputs of every row, with [`APART`] floats of padding between rows.
fn copy_block<W: Stored>(copy: &mut Vec<f32>, rows: &[W], inner: usize, inputs: Range<usize>) {
    let stride = inputs.len() + APART;
    copy.resize(rows.len() / inner * stride, 0.0);
    for (copy, row) in copy.chunks_exact_mut(stride).zip(rows.chunks_exact(inner)) {
        W::widen(&row[inputs.clone()], &mut copy[..inputs.len()]);
    }
}

/// Returns the number of inputs in a block: blocks are as equal as lanes allow.
fn block_of(inner: usize) -> usize {
    inner.div_ceil(inner.div_ceil(INPUTS_MAX)).next_multiple_of(LANES)
}

/// Returns the number of rows in the next tile: four are better cut in two than in three and one.
fn tile_rows(left: usize) -> usize {
    match left {
        wide::ROWS.. if wide::suits() => wide::ROWS,
        4 => 2,
        _ => left.min(TILE.0),
    }
}

/// Returns the number of tiles for this many rows.
fn tiles_of(rows: usize) -> usize {
    let (mut first, mut tiles) = (0, 0);
    while first < rows {
        first += tile_rows(rows - first);
        tiles += 1;
    }
    tiles
}

/// Prefetches the weights after a stripe, a share with each tile.
struct Ahead<W> {
    next: *const W,
    share: usize,
}

impl<W> Ahead<W> {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn ask(&mut self) {
        for line in (0..self.share).step_by(LINE / size_of::<W>()) {
            _mm_prefetch::<_MM_HINT_T1>(self.next.wrapping_add(line).cast());
        }
        self.next = self.next.wrapping_add(self.share);
    }
}

/// Rows by outputs over a block of inputs. Consecutive rows and weights begin `inner` floats apart.
#[derive(Clone, Copy)]
struct Tile<'a, W> {
    left: &'a [f32],
    weight: &'a [W],
    inner: usize,
    inputs: usize,
}

impl<W: Stored> Tile<'_, W> {
    /// Writes or adds the products of all rows with all outputs to `out`, a few of both at a time.
    ///
    /// # Safety
    /// The tile must have as many rows and weights, and `out` as many places.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add_all(self, (rows, cols): (usize, usize), out: Out, adds: bool, ahead: &mut Ahead<W>) {
        let mut row = 0;
        while row < rows {
            let size = tile_rows(rows - row);
            for col in (0..cols).step_by(TILE.1) {
                ahead.ask();
                let (left, weight) = (&self.left[row * self.inner..], &self.weight[col * self.inner..]);
                let (tile, out, width) =
                    (Self { left, weight, ..self }, out.at(row, col), TILE.1.min(cols - col));
                // SAFETY: `size` rows and `width` outputs are left, each with `inputs` floats.
                unsafe {
                    match size {
                        1 => tile.add::<1>(width, out, adds),
                        2 => tile.add::<2>(width, out, adds),
                        3 => tile.add::<3>(width, out, adds),
                        _ => tile.add_wide(width, out, adds),
                    }
                }
            }
            row += size;
        }
    }

    /// Runs [`Tile::add`] for the rows of a wide tile.
    ///
    /// # Safety
    /// As [`Tile::add`], and the processor must [suit](wide::suits).
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add_wide(self, width: usize, out: Out, adds: bool) {
        // SAFETY: what the caller promised.
        unsafe {
            if width == TILE.1 {
                return put(wide::sums(self), out, adds);
            }
            for row in (0..wide::ROWS).step_by(2) {
                let tile = Self { left: &self.left[row * self.inner..], ..self };
                tile.add::<2>(width, out.at(row, 0), adds);
            }
        }
    }

    /// Writes or adds the products of `R` rows with `width` outputs to `out`.
    ///
    /// # Safety
    /// The tile must have as many rows and weights, and `out` as many places.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn add<const R: usize>(self, width: usize, out: Out, adds: bool) {
        // SAFETY: what the caller promised.
        unsafe {
            if width == TILE.1 {
                return put(self.sums::<R, { TILE.1 }>(), out, adds);
            }
            for col in 0..width {
                let tile = Self { weight: &self.weight[col * self.inner..], ..self };
                for (row, sums) in tile.sums::<R, 1>().into_iter().enumerate() {
                    let (place, sum) = (out.at(row, col).first, _mm_cvtss_f32(sums));
                    *place = if adds { *place + sum } else { sum };
                }
            }
        }
    }

    /// Returns the products of `R` rows with `C` outputs, grouped by row.
    ///
    /// # Safety
    /// The tile must have as many rows and weights.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn sums<const R: usize, const C: usize>(self) -> [__m128; R] {
        let Self { left, weight, inner, inputs } = self;
        let (left, weight) = (left.as_ptr(), weight.as_ptr());
        let mut lanes = [[_mm256_setzero_ps(); R]; C];
        let whole = inputs / LANES * LANES;
        for input in (0..whole).step_by(LANES) {
            let mut rows = [_mm256_setzero_ps(); R];
            for (row, values) in rows.iter_mut().enumerate() {
                // SAFETY: every row has `inputs` floats.
                *values = unsafe { _mm256_loadu_ps(left.add(row * inner + input)) };
            }
            for (col, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: every weight has `inputs` floats.
                let weight = unsafe { W::load(weight.add(col * inner + input)) };
                for (lanes, values) in lanes.iter_mut().zip(rows) {
                    *lanes = _mm256_fmadd_ps(values, weight, *lanes);
                }
            }
        }
        if whole < inputs {
            let mask = first_lanes(inputs - whole);
            for (col, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: only the lanes below `inputs` are read.
                let weight = unsafe { W::load_some(weight.add(col * inner + whole), inputs - whole) };
                for (row, lanes) in lanes.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let values = unsafe { _mm256_maskload_ps(left.add(row * inner + whole), mask) };
                    *lanes = _mm256_fmadd_ps(values, weight, *lanes);
                }
            }
        }
        let mut sums = [_mm_setzero_ps(); R];
        for (row, sums) in sums.iter_mut().enumerate() {
            let mut of_row = [_mm256_setzero_ps(); TILE.1];
            for (of_row, lanes) in of_row.iter_mut().zip(&lanes) {
                *of_row = lanes[row];
            }
            *sums = sum_of_lanes(of_row);
        }
        sums
    }
}

/// Writes or adds sums of four outputs to `out`, row by row.
///
/// # Safety
/// `out` must have a place for each.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn put<const R: usize>(sums: [__m128; R], out: Out, adds: bool) {
    for (row, sums) in sums.into_iter().enumerate() {
        let place = out.at(row, 0).first;
        // SAFETY: what the caller promised.
        unsafe { _mm_storeu_ps(place, if adds { _mm_add_ps(_mm_loadu_ps(place), sums) } else { sums }) };
    }
}

/// Returns `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))` of the lanes of four outputs.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_of_lanes([a, b, c, d]: [__m256; TILE.1]) -> __m128 {
    let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves))
}

/// Returns a mask of the first `count` lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first_lanes(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}
