//! Tiles for AVX-512: two outputs share a register of 16 lanes, so eight rows by four outputs are sums at once. Each output is added up
//! in the order of [`Tile::sums`], over 8 lanes of its own: the same bits with half the instructions.

use std::arch::x86_64::{
    __m128, __m256, __m512, _mm_setzero_ps, _mm256_loadu_ps, _mm256_maskload_ps, _mm256_setzero_ps,
    _mm512_broadcast_f32x8, _mm512_castps256_ps512, _mm512_castps512_ps256, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_insertf32x8, _mm512_setzero_ps,
};

use super::{LANES, Stored, TILE, Tile, first_lanes, sum_of_lanes};

/// Rows of a tile: with four outputs they fit the first cache.
pub(super) const ROWS: usize = 8;
/// Outputs that share a register.
const PAIR: usize = 2;

/// Whether this processor has the instructions.
pub(super) fn suits() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq")
}

/// Lanes of the sums of `R` rows by four outputs, two outputs a register.
type Lanes<const R: usize> = [[__m512; R]; TILE.1 / PAIR];

/// As [`Tile::sums`], of four outputs.
///
/// # Safety
/// The tile must have as many rows and weights, and the processor must [suit](suits).
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
pub(super) unsafe fn sums<W: Stored, const R: usize>(tile: Tile<'_, W>) -> [__m128; R] {
    let Tile { left, weight, inner, inputs } = tile;
    let whole = inputs / LANES * LANES;
    // SAFETY: what the caller promised.
    let mut lanes = unsafe { whole_lanes::<W, R>(tile) };
    if whole < inputs {
        let (left, weight) = (left.as_ptr(), weight.as_ptr());
        let (count, mask) = (inputs - whole, first_lanes(inputs - whole));
        for (pair, lanes) in lanes.iter_mut().enumerate() {
            // SAFETY: only the lanes below `inputs` are read.
            let weights = unsafe {
                let first = weight.add(pair * PAIR * inner + whole);
                both(W::load_some(first, count), W::load_some(first.add(inner), count))
            };
            for (row, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: as above.
                let values = unsafe { _mm256_maskload_ps(left.add(row * inner + whole), mask) };
                *lanes = _mm512_fmadd_ps(_mm512_broadcast_f32x8(values), weights, *lanes);
            }
        }
    }
    let mut sums = [_mm_setzero_ps(); R];
    for (row, sums) in sums.iter_mut().enumerate() {
        let mut of_row = [_mm256_setzero_ps(); TILE.1];
        for (of_pair, lanes) in of_row.chunks_exact_mut(PAIR).zip(&lanes) {
            of_pair[0] = _mm512_castps512_ps256(lanes[row]);
            of_pair[1] = _mm512_extractf32x8_ps::<1>(lanes[row]);
        }
        *sums = sum_of_lanes(of_row);
    }
    sums
}

/// The sums over all inputs but the last few. A function of its own, so that it has all 32 registers: the instructions that add lanes
/// up know only 16.
///
/// # Safety
/// As [`sums`].
#[inline(never)]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
unsafe fn whole_lanes<W: Stored, const R: usize>(tile: Tile<'_, W>) -> Lanes<R> {
    let Tile { left, weight, inner, inputs } = tile;
    let (left, weight) = (left.as_ptr(), weight.as_ptr());
    let mut lanes = [[_mm512_setzero_ps(); R]; TILE.1 / PAIR];
    for input in (0..inputs / LANES * LANES).step_by(LANES) {
        let mut weights = [_mm512_setzero_ps(); TILE.1 / PAIR];
        for (pair, values) in weights.iter_mut().enumerate() {
            // SAFETY: every weight has `inputs` floats.
            *values = unsafe {
                let first = weight.add(pair * PAIR * inner + input);
                both(W::load(first), W::load(first.add(inner)))
            };
        }
        for row in 0..R {
            // SAFETY: every row has `inputs` floats.
            let values = _mm512_broadcast_f32x8(unsafe { _mm256_loadu_ps(left.add(row * inner + input)) });
            for (lanes, weights) in lanes.iter_mut().zip(weights) {
                lanes[row] = _mm512_fmadd_ps(values, weights, lanes[row]);
            }
        }
    }
    lanes
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
fn both(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
