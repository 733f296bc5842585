//! Products of queries with keys in their stored layout, for attention's scores: AVX2, four keys at a time.
//!
//! Queries and keys both run along the inputs, so nothing is packed. A product is the sum of its 8 lanes, in an
//! order that depends only on the number of inputs.

use std::arch::x86_64::{
    __m128, __m256, __m256i, _mm_add_ps, _mm_cvtss_f32, _mm_setzero_ps, _mm_storeu_ps,
    _mm256_castps256_ps128, _mm256_cmpgt_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps,
    _mm256_loadu_ps, _mm256_maskload_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
};

/// Keys that are multiplied at once.
const KEYS: usize = 4;
/// Queries that are multiplied at once, if there are as many.
const QUERIES: usize = 3;
const LANES: usize = 8;

/// Returns whether this processor has the instructions.
pub(super) fn suits() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Writes the products of each row of `queries`, `inputs` floats, with the `keys` rows that begin `stride` floats
/// apart in `rows`, as `[queries, keys]`.
///
/// # Panics
/// If `rows` is too short for them, or the processor does not [suit](suits).
pub(super) fn products(out: &mut [f32], queries: &[f32], inputs: usize, rows: &[f32], stride: usize) {
    if out.is_empty() {
        return;
    }
    let num_queries = queries.len() / inputs;
    let keys = out.len() / num_queries;
    let floats = (keys - 1) * stride + inputs;
    assert!(suits() && rows.len() >= floats, "rows must hold {floats} floats");
    let mut query = 0;
    while query < num_queries {
        let count = if num_queries - query >= QUERIES { QUERIES } else { 1 };
        let (out, queries) = (&mut out[query * keys..][..count * keys], &queries[query * inputs..]);
        let (first, stride) = ((queries, inputs), (rows, stride));
        // SAFETY: `suits` saw the instructions, and every row was just seen to be there.
        unsafe {
            if count == QUERIES { some::<QUERIES>(out, first, stride) } else { some::<1>(out, first, stride) }
        }
        query += count;
    }
}

/// Writes the products of `R` queries with all keys.
///
/// # Safety
/// There must be as many rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn some<const R: usize>(
    out: &mut [f32],
    (queries, inputs): (&[f32], usize),
    (rows, stride): (&[f32], usize),
) {
    let keys = out.len() / R;
    for key in (0..keys).step_by(KEYS) {
        let first = rows.as_ptr().wrapping_add(key * stride);
        if key + KEYS <= keys {
            // SAFETY: four keys are left, and as many places in each row of `out`.
            unsafe {
                let sums = sums::<R, KEYS>(queries.as_ptr(), first, stride, inputs);
                for (row, sums) in sums.into_iter().enumerate() {
                    _mm_storeu_ps(out.as_mut_ptr().add(row * keys + key), sums);
                }
            }
            continue;
        }
        for key in key..keys {
            // SAFETY: what the caller promised.
            let sums =
                unsafe { sums::<R, 1>(queries.as_ptr(), rows.as_ptr().add(key * stride), stride, inputs) };
            for (row, sums) in sums.into_iter().enumerate() {
                out[row * keys + key] = _mm_cvtss_f32(sums);
            }
        }
    }
}

/// Returns the products of `R` queries with `C` keys, grouped by query.
///
/// # Safety
/// There must be as many rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn sums<const R: usize, const C: usize>(
    queries: *const f32,
    keys: *const f32,
    stride: usize,
    inputs: usize,
) -> [__m128; R] {
    let mut lanes = [[_mm256_setzero_ps(); R]; C];
    let whole = inputs / LANES * LANES;
    for input in (0..whole).step_by(LANES) {
        let mut rows = [_mm256_setzero_ps(); R];
        for (row, values) in rows.iter_mut().enumerate() {
            // SAFETY: every query has `inputs` floats.
            *values = unsafe { _mm256_loadu_ps(queries.add(row * inputs + input)) };
        }
        for (col, lanes) in lanes.iter_mut().enumerate() {
            // SAFETY: every key has `inputs` floats.
            let key = unsafe { _mm256_loadu_ps(keys.add(col * stride + input)) };
            for (lanes, values) in lanes.iter_mut().zip(rows) {
                *lanes = _mm256_fmadd_ps(values, key, *lanes);
            }
        }
    }
    if whole < inputs {
        let mask = first_lanes(inputs - whole);
        for (col, lanes) in lanes.iter_mut().enumerate() {
            // SAFETY: only the lanes below `inputs` are read.
            let key = unsafe { _mm256_maskload_ps(keys.add(col * stride + whole), mask) };
            for (row, lanes) in lanes.iter_mut().enumerate() {
                // SAFETY: as above.
                let values = unsafe { _mm256_maskload_ps(queries.add(row * inputs + whole), mask) };
                *lanes = _mm256_fmadd_ps(values, key, *lanes);
            }
        }
    }
    let mut sums = [_mm_setzero_ps(); R];
    for (row, sums) in sums.iter_mut().enumerate() {
        let mut of_row = [_mm256_setzero_ps(); KEYS];
        for (of_row, lanes) in of_row.iter_mut().zip(&lanes) {
            *of_row = lanes[row];
        }
        *sums = sum_of_lanes(of_row);
    }
    sums
}

/// Returns `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))` of the lanes of four keys.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_of_lanes([a, b, c, d]: [__m256; KEYS]) -> __m128 {
    let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves))
}

/// Returns a mask of the first `count` lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first_lanes(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}
