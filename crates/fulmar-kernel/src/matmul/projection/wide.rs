//! Tiles for AVX-512: two outputs share a register of 16 lanes, so eight rows by four outputs are summed at
//! once. Each output is summed in the order of [`Tile::sums`], over its own 8 lanes: the same bits with half
//! the instructions.

use std::arch::x86_64::{
    __m128, __m256, __m512, _mm_setzero_ps, _mm256_loadu_ps, _mm256_maskload_ps, _mm512_add_ps,
    _mm512_broadcast_f32x8, _mm512_castps256_ps512, _mm512_extractf32x4_ps, _mm512_fmadd_ps,
    _mm512_insertf32x8, _mm512_permutexvar_ps, _mm512_setr_epi32, _mm512_setzero_ps, _mm512_shuffle_f32x4,
    _mm512_shuffle_ps,
};

use super::{LANES, Stored, TILE, Tile, first_lanes};

/// Rows in a tile: with four outputs they fit the first-level cache.
pub(super) const ROWS: usize = 8;
/// Outputs that share a register.
const PAIR: usize = 2;

/// Returns whether this processor has the instructions.
pub(super) fn suits() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq")
}

/// Returns [`Tile::sums`] of [`ROWS`] rows and four outputs.
///
/// # Safety
/// The tile must have as many rows and weights, and the processor must [suit](suits).
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
pub(super) unsafe fn sums<W: Stored>(tile: Tile<'_, W>) -> [__m128; ROWS] {
    let Tile { left, weight, inner, inputs } = tile;
    let (left, weight) = (left.as_ptr(), weight.as_ptr());
    let mut lanes = [[_mm512_setzero_ps(); ROWS]; TILE.1 / PAIR];
    let whole = inputs / LANES * LANES;
    for input in (0..whole).step_by(LANES) {
        let mut weights = [_mm512_setzero_ps(); TILE.1 / PAIR];
        for (pair, values) in weights.iter_mut().enumerate() {
            // SAFETY: every weight has `inputs` floats.
            *values = unsafe {
                let first = weight.add(pair * PAIR * inner + input);
                both(W::load(first), W::load(first.add(inner)))
            };
        }
        for row in 0..ROWS {
            // SAFETY: every row has `inputs` floats.
            let values = _mm512_broadcast_f32x8(unsafe { _mm256_loadu_ps(left.add(row * inner + input)) });
            for (lanes, weights) in lanes.iter_mut().zip(weights) {
                lanes[row] = _mm512_fmadd_ps(values, weights, lanes[row]);
            }
        }
    }
    if whole < inputs {
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
    let mut sums = [_mm_setzero_ps(); ROWS];
    for (first, sums) in sums.chunks_exact_mut(4).enumerate() {
        let of_row = |row| pairs(lanes[0][first * 4 + row], lanes[1][first * 4 + row]);
        let of_four = sum_of_lanes([of_row(0), of_row(1), of_row(2), of_row(3)]);
        sums[0] = _mm512_extractf32x4_ps::<0>(of_four);
        sums[1] = _mm512_extractf32x4_ps::<1>(of_four);
        sums[2] = _mm512_extractf32x4_ps::<2>(of_four);
        sums[3] = _mm512_extractf32x4_ps::<3>(of_four);
    }
    sums
}

/// Sums the pairs of lanes of four rows, from [`pairs`], in the order of the narrow tile; each row's four
/// outputs are adjacent.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
fn sum_of_lanes([a, b, c, d]: [__m512; 4]) -> __m512 {
    let (ab, cd) = (pairs(a, b), pairs(c, d));
    let halves = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xDD>(ab, cd));
    let order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    _mm512_permutexvar_ps(order, halves)
}

/// Returns the sums of neighbours in four lanes of `a`, then in those of `b`, four after four.
#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
fn pairs(a: __m512, b: __m512) -> __m512 {
    _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xDD>(a, b))
}

#[inline]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
fn both(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
