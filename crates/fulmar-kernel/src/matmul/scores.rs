//! Products of queries with keys in their stored layout, for attention's scores: four keys at a time with AVX2, eight with AVX-512.
//!
//! Queries and keys both run along the inputs, so nothing is packed. A product is the sum of its 8 lanes, in an
//! order that depends only on the number of inputs.

use std::arch::x86_64::{
    __m128, __m256, __m256i, __m512, _mm_add_ps, _mm_cvtss_f32, _mm_setzero_ps, _mm_storeu_ps, _mm256_add_ps,
    _mm256_castps256_ps128, _mm256_cmpgt_epi32, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_hadd_ps,
    _mm256_loadu_ps, _mm256_maskload_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
    _mm256_storeu_ps, _mm512_add_ps, _mm512_broadcast_f32x8, _mm512_castps256_ps512, _mm512_castps512_ps256,
    _mm512_fmadd_ps, _mm512_insertf32x8, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_shuffle_ps,
};

use super::Rows;

/// Keys that are multiplied at once.
const KEYS: usize = 4;
/// Queries that are multiplied at once, if there are as many.
const QUERIES: usize = 3;
const LANES: usize = 8;

/// Returns whether this processor has the instructions.
pub(super) fn suits() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

/// Returns whether it has those that hold two keys in a register.
fn has_wide() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512dq")
}

/// Writes the products of each of `queries`, `inputs` floats, with each of `keys`; those of a query begin `apart` floats apart
/// in `out`.
///
/// # Panics
/// If there is no room for them, or the processor does not [suit](suits).
pub(super) fn products(out: (&mut [f32], usize), queries: (&[f32], usize), keys: Rows<'_>) {
    assert!(suits(), "the processor must have AVX2 and FMA");
    products_on(has_wide(), out, queries, keys);
}

fn products_on(
    is_wide: bool,
    (out, apart): (&mut [f32], usize),
    (queries, inputs): (&[f32], usize),
    keys: Rows<'_>,
) {
    if keys.count == 0 {
        return;
    }
    let floats = (keys.count - 1) * keys.stride + inputs;
    assert!(keys.floats.len() >= floats, "keys must hold {floats} floats");
    let num_queries = queries.len() / inputs;
    let mut first = 0;
    while first < num_queries {
        // Four are two pairs: one alone would load all keys for itself.
        let count = match num_queries - first {
            1 => 1,
            2 | 4 => 2,
            _ => QUERIES,
        };
        let (out, queries) = (&mut out[first * apart..], &queries[first * inputs..]);
        assert!(out.len() >= (count - 1) * apart + keys.count, "out must hold the products");
        // SAFETY: `products` saw the instructions, and every row and place was just seen to be there.
        unsafe {
            match count {
                1 => some::<1>(is_wide, (out, apart), (queries, inputs), keys),
                2 => some::<2>(is_wide, (out, apart), (queries, inputs), keys),
                _ => some::<QUERIES>(is_wide, (out, apart), (queries, inputs), keys),
            }
        }
        first += count;
    }
}

/// Writes the products of `R` queries with all keys.
///
/// # Safety
/// There must be as many rows and places.
#[target_feature(enable = "avx2,fma")]
unsafe fn some<const R: usize>(
    is_wide: bool,
    (out, apart): (&mut [f32], usize),
    (queries, inputs): (&[f32], usize),
    keys: Rows<'_>,
) {
    let row_of = |key: usize| keys.floats.as_ptr().wrapping_add(key * keys.stride);
    let mut key = 0;
    while is_wide && key + 2 * KEYS <= keys.count {
        // SAFETY: eight keys are left, and as many places in each row of `out`.
        unsafe {
            let sums = wide_sums::<R>(queries.as_ptr(), row_of(key), keys.stride, inputs);
            for (row, sums) in sums.into_iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(row * apart + key), sums);
            }
        }
        key += 2 * KEYS;
    }
    while key + KEYS <= keys.count {
        // SAFETY: four keys are left, and as many places in each row of `out`.
        unsafe {
            let sums = sums::<R, KEYS>(queries.as_ptr(), row_of(key), keys.stride, inputs);
            for (row, sums) in sums.into_iter().enumerate() {
                _mm_storeu_ps(out.as_mut_ptr().add(row * apart + key), sums);
            }
        }
        key += KEYS;
    }
    for key in key..keys.count {
        // SAFETY: what the caller promised.
        let sums = unsafe { sums::<R, 1>(queries.as_ptr(), row_of(key), keys.stride, inputs) };
        for (row, sums) in sums.into_iter().enumerate() {
            out[row * apart + key] = _mm_cvtss_f32(sums);
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

/// Returns the products of `R` queries with eight keys, grouped by query, with the bits of [`sums`].
///
/// # Safety
/// There must be as many rows, and a processor with these instructions.
#[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
unsafe fn wide_sums<const R: usize>(
    queries: *const f32,
    keys: *const f32,
    stride: usize,
    inputs: usize,
) -> [__m256; R] {
    // The lanes of key c, and behind them those of key c + 4.
    let mut lanes = [[_mm512_setzero_ps(); R]; KEYS];
    for input in (0..inputs).step_by(LANES) {
        let load = |row: *const f32| {
            if input + LANES <= inputs {
                // SAFETY: every row has `inputs` floats.
                return unsafe { _mm256_loadu_ps(row.add(input)) };
            }
            // SAFETY: only the lanes below `inputs` are read.
            unsafe { _mm256_maskload_ps(row.add(input), first_lanes(inputs - input)) }
        };
        let mut rows = [_mm512_setzero_ps(); R];
        for (row, values) in rows.iter_mut().enumerate() {
            *values = _mm512_broadcast_f32x8(load(queries.wrapping_add(row * inputs)));
        }
        for (col, lanes) in lanes.iter_mut().enumerate() {
            let low = _mm512_castps256_ps512(load(keys.wrapping_add(col * stride)));
            let both = _mm512_insertf32x8::<1>(low, load(keys.wrapping_add((col + KEYS) * stride)));
            for (lanes, values) in lanes.iter_mut().zip(rows) {
                *lanes = _mm512_fmadd_ps(values, both, *lanes);
            }
        }
    }
    let mut sums = [_mm256_setzero_ps(); R];
    for (row, sums) in sums.iter_mut().enumerate() {
        let [a, b, c, d] = [lanes[0][row], lanes[1][row], lanes[2][row], lanes[3][row]];
        let quarters = add_pairs(add_pairs(a, b), add_pairs(c, d));
        let first = _mm512_shuffle_f32x4::<0b10_00_10_00>(quarters, quarters);
        let second = _mm512_shuffle_f32x4::<0b11_01_11_01>(quarters, quarters);
        *sums = _mm256_add_ps(_mm512_castps512_ps256(first), _mm512_castps512_ps256(second));
    }
    sums
}

/// Adds neighbours, as `_mm256_hadd_ps` does: each quarter is `[a0 + a1, a2 + a3, b0 + b1, b2 + b3]`.
#[inline]
#[target_feature(enable = "avx512f")]
fn add_pairs(a: __m512, b: __m512) -> __m512 {
    let (even, odd) = (_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b));
    _mm512_add_ps(even, odd)
}

/// Returns a mask of the first `count` lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first_lanes(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_in_a_register_have_the_bits_of_one() {
        if !suits() || !has_wide() {
            return;
        }
        let random = |seed: usize, len: usize| -> Vec<f32> {
            (0..len).map(|i| ((i * 37 + seed) as f32 * 0.71).sin() * 3.0).collect()
        };
        for (inputs, stride, count, num_queries) in
            [(64, 64, 21, 3), (64, 192, 40, 7), (12, 40, 15, 4), (3, 3, 8, 1)]
        {
            let (queries, floats) = (random(1, num_queries * inputs), random(2, stride * count));
            let keys = Rows { floats: &floats, stride, count };
            let [mut wide, mut narrow] = [true, false].map(|_| vec![0.0_f32; num_queries * count]);
            products_on(true, (&mut wide, count), (&queries, inputs), keys);
            products_on(false, (&mut narrow, count), (&queries, inputs), keys);
            assert!(wide.iter().zip(&narrow).all(|(a, b)| a.to_bits() == b.to_bits()), "{inputs} inputs");
        }
    }
}
