//! Registers of integer sums, and the tiles made of them.

use super::super::tile::PANEL;
use super::{BLOCK, BLOCK_BYTES, Block, Operands, ROWS_MAX, TOGETHER, quantize_row};

/// A register of integer sums, each of one output.
pub(in super::super) trait Lanes: Copy {
    /// A register of as many floats.
    type Floats: Copy;
    /// Outputs in a register.
    const OUTPUTS: usize;
    /// Most rows in a tile.
    const ROWS: usize;

    /// Runs [`quantize_row`].
    ///
    /// # Safety
    /// The processor must have the instructions, here and below.
    unsafe fn quantize(from: &[f32], shape: (usize, usize), blocks: &mut [Block]);

    /// Writes the outputs of `rows` rows.
    ///
    /// # Safety
    /// All operands must be in memory.
    unsafe fn tile(rows: usize, operands: &Operands, sums: &mut [[f32; PANEL]; ROWS_MAX]);

    /// Returns what the sums of a block begin with.
    ///
    /// # Safety
    /// As [`Lanes::quantize`].
    unsafe fn begin(start: i32) -> Self;
    /// Adds the products of four inputs with the weights of each output, `[output][input]`.
    ///
    /// # Safety
    /// The weights must be in memory, here and below.
    unsafe fn add_products(self, weights: *const u8, inputs: i32) -> Self;
    /// # Safety
    /// As [`Lanes::quantize`].
    unsafe fn zeros() -> Self::Floats;
    /// Returns `total + self * (scale * scales)`.
    ///
    /// # Safety
    /// The scales must be in memory.
    unsafe fn add_scaled(self, scales: *const f32, scale: f32, total: Self::Floats) -> Self::Floats;
    /// # Safety
    /// The address must have room for [`Lanes::OUTPUTS`] floats.
    unsafe fn store(floats: Self::Floats, to: *mut f32);
}

/// Distance in bytes at which weights are prefetched.
const AHEAD: usize = 2048;

/// Computes `R` rows with the `C` registers of a panel.
///
/// # Safety
/// As [`Lanes::tile`].
#[inline(always)]
unsafe fn tile<L: Lanes, const R: usize, const C: usize>(of: &Operands, sums: &mut [[f32; PANEL]; ROWS_MAX]) {
    const { assert!(R <= ROWS_MAX && C * L::OUTPUTS == PANEL, "a tile has whole panels") };
    // SAFETY: what the caller promised: all blocks of the rows and of the panel are in memory.
    unsafe {
        let mut totals = [[L::zeros(); C]; R];
        for block in 0..of.row_blocks {
            let weights = of.panel.add(block * BLOCK_BYTES);
            let row = |r: usize| &*of.rows.add(r * of.row_blocks + block);
            let mut products = [[L::begin(0); C]; R];
            for (r, products) in products.iter_mut().enumerate() {
                *products = [L::begin(row(r).start); C];
            }
            for group in 0..BLOCK / TOGETHER {
                ask(weights.wrapping_add(AHEAD + group * PANEL * TOGETHER));
                for (r, products) in products.iter_mut().enumerate() {
                    let inputs = row(r).values.as_ptr().add(group * TOGETHER).cast::<i32>().read_unaligned();
                    for (c, products) in products.iter_mut().enumerate() {
                        let at = (group * PANEL + c * L::OUTPUTS) * TOGETHER;
                        *products = products.add_products(weights.add(at), inputs);
                    }
                }
            }
            let scales = weights.add(BLOCK * PANEL).cast::<f32>();
            for (r, (totals, products)) in totals.iter_mut().zip(products).enumerate() {
                for (c, (total, products)) in totals.iter_mut().zip(products).enumerate() {
                    *total = products.add_scaled(scales.add(c * L::OUTPUTS), row(r).scale, *total);
                }
            }
        }
        for (totals, sums) in totals.iter().zip(sums) {
            for (total, sums) in totals.iter().zip(sums.chunks_exact_mut(L::OUTPUTS)) {
                L::store(*total, sums.as_mut_ptr());
            }
        }
    }
}

/// Asks for two lines of weights. Addresses after the last panel are no error.
#[inline(always)]
fn ask(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and faults at no address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(64).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Implements [`Lanes::tile`] by a number of registers a panel and a list of rows, and [`Lanes::quantize`].
macro_rules! tiles {
    ($feature:meta; $registers:literal; $($rows:literal),*) => {
        unsafe fn tile(rows: usize, operands: &Operands, sums: &mut [[f32; PANEL]; ROWS_MAX]) {
            #[$feature]
            unsafe fn run<const R: usize>(of: &Operands, sums: &mut [[f32; PANEL]; ROWS_MAX]) {
                // SAFETY: what the caller promised.
                unsafe { tile::<Of, R, $registers>(of, sums) }
            }
            // SAFETY: what the caller promised.
            unsafe {
                match rows {
                    $($rows => run::<$rows>(operands, sums),)*
                    _ => unreachable!("no tile has {rows} rows"),
                }
            }
        }

        unsafe fn quantize(from: &[f32], shape: (usize, usize), blocks: &mut [Block]) {
            #[$feature]
            unsafe fn run(from: &[f32], shape: (usize, usize), blocks: &mut [Block]) {
                quantize_row(from, shape, blocks);
            }
            // SAFETY: what the caller promised.
            unsafe { run(from, shape, blocks) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(in super::super) mod vnni {
    use std::arch::x86_64::*;

    use super::*;

    /// A register of AVX-512, whose VNNI instructions multiply unsigned with signed bytes.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of(__m512i);

    impl Lanes for Of {
        type Floats = __m512;
        const OUTPUTS: usize = 16;
        const ROWS: usize = 6;

        tiles! { target_feature(enable = "avx512f,avx512bw,avx512vnni"); 2; 1, 2, 3, 4, 5, 6 }

        #[inline(always)]
        unsafe fn begin(start: i32) -> Self {
            // SAFETY: the caller promised the instructions and the places, here and below.
            Self(unsafe { _mm512_set1_epi32(start) })
        }
        #[inline(always)]
        unsafe fn add_products(self, weights: *const u8, inputs: i32) -> Self {
            // SAFETY: as above.
            unsafe {
                let weights = _mm512_loadu_si512(weights.cast());
                Self(_mm512_dpbusd_epi32(self.0, weights, _mm512_set1_epi32(inputs)))
            }
        }
        #[inline(always)]
        unsafe fn zeros() -> __m512 {
            // SAFETY: as above.
            unsafe { _mm512_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn add_scaled(self, scales: *const f32, scale: f32, total: __m512) -> __m512 {
            // SAFETY: as above.
            unsafe {
                let scales = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_loadu_ps(scales));
                _mm512_add_ps(total, _mm512_mul_ps(_mm512_cvtepi32_ps(self.0), scales))
            }
        }
        #[inline(always)]
        unsafe fn store(floats: __m512, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to, floats) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(in super::super) mod avx2 {
    use std::arch::x86_64::*;

    use super::*;

    /// A register of AVX2. Its sums of two products of bytes have room in 16 bits, because no byte is -128.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of(__m256i);

    impl Lanes for Of {
        type Floats = __m256;
        const OUTPUTS: usize = 8;
        const ROWS: usize = 2;

        tiles! { target_feature(enable = "avx2"); 4; 1, 2 }

        #[inline(always)]
        unsafe fn begin(_: i32) -> Self {
            // SAFETY: the caller promised the instructions and the places, here and below.
            Self(unsafe { _mm256_setzero_si256() })
        }
        #[inline(always)]
        unsafe fn add_products(self, weights: *const u8, inputs: i32) -> Self {
            // SAFETY: as above.
            unsafe {
                let sign = _mm256_set1_epi8(super::super::OFFSET as i8);
                let weights = _mm256_xor_si256(_mm256_loadu_si256(weights.cast()), sign);
                let inputs = _mm256_set1_epi32(inputs);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(inputs), _mm256_sign_epi8(weights, inputs));
                Self(_mm256_add_epi32(self.0, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))))
            }
        }
        #[inline(always)]
        unsafe fn zeros() -> __m256 {
            // SAFETY: as above.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn add_scaled(self, scales: *const f32, scale: f32, total: __m256) -> __m256 {
            // SAFETY: as above.
            unsafe {
                let scales = _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_loadu_ps(scales));
                _mm256_add_ps(total, _mm256_mul_ps(_mm256_cvtepi32_ps(self.0), scales))
            }
        }
        #[inline(always)]
        unsafe fn store(floats: __m256, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to, floats) }
        }
    }
}

pub(in super::super) mod portable {
    use super::*;

    /// Four integers, which compilers put in a register.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of([i32; 4]);

    impl Lanes for Of {
        type Floats = [f32; 4];
        const OUTPUTS: usize = 4;
        const ROWS: usize = 1;

        tiles! { inline; 8; 1 }

        #[inline(always)]
        unsafe fn begin(start: i32) -> Self {
            Self([start; 4])
        }
        #[inline(always)]
        unsafe fn add_products(self, weights: *const u8, inputs: i32) -> Self {
            // SAFETY: the caller promised the places, here and below.
            let weights = unsafe { weights.cast::<[[u8; TOGETHER]; 4]>().read() };
            let inputs = inputs.to_ne_bytes().map(|input| i32::from(input as i8));
            let mut sums = self.0;
            for (sum, weights) in sums.iter_mut().zip(weights) {
                for (weight, input) in weights.into_iter().zip(inputs) {
                    *sum += i32::from(weight) * input;
                }
            }
            Self(sums)
        }
        #[inline(always)]
        unsafe fn zeros() -> [f32; 4] {
            [0.0; 4]
        }
        #[inline(always)]
        unsafe fn add_scaled(self, scales: *const f32, scale: f32, total: [f32; 4]) -> [f32; 4] {
            // SAFETY: as above.
            let scales = unsafe { scales.cast::<[f32; 4]>().read() };
            std::array::from_fn(|lane| total[lane] + self.0[lane] as f32 * (scale * scales[lane]))
        }
        #[inline(always)]
        unsafe fn store(floats: [f32; 4], to: *mut f32) {
            // SAFETY: as above.
            unsafe { to.cast::<[f32; 4]>().write_unaligned(floats) }
        }
    }
}
