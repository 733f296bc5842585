//! Transposes rows of a matrix, for packing.

#[cfg(target_arch = "x86_64")]
use super::panels::LINE;
#[cfg(target_arch = "x86_64")]
use crate::lanes::prefetch;

/// Numbers along a side of a square that is transposed in registers.
#[cfg(target_arch = "x86_64")]
const SIDE: usize = 8;
#[cfg(target_arch = "x86_64")]
const HALF: usize = SIDE / 2;
/// Columns of all rows that are transposed in turn.
#[cfg(any(test, target_arch = "x86_64"))]
const COLUMNS: usize = 64;

/// Writes rows of `width` floats, which begin `stride` apart in `from`, as columns: float `k` of row `r` to `to[k *
/// to_stride + r]`. The last row may be shorter than `stride`.
///
/// # Panics
/// If `from` or `to` is too short.
pub(crate) fn transpose(from: &[f32], stride: usize, width: usize, to: &mut [f32], to_stride: usize) {
    if width == 0 || from.is_empty() {
        return;
    }
    let rows = (from.len() - width) / stride + 1;
    let floats = (width - 1) * to_stride + rows;
    assert!(rows <= to_stride && to.len() >= floats, "to must hold {floats} floats");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the check above saw that this processor has the instructions.
        return unsafe { by_squares(from, stride, (rows, width), to, to_stride) };
    }
    one_by_one(from, stride, (0..rows, 0..width), to, to_stride);
}

/// Transposes the part of some rows and columns.
#[inline]
fn one_by_one(
    from: &[f32],
    stride: usize,
    (rows, cols): (std::ops::Range<usize>, std::ops::Range<usize>),
    to: &mut [f32],
    to_stride: usize,
) {
    for row in rows {
        for (col, value) in cols.clone().zip(&from[row * stride + cols.start..]) {
            to[col * to_stride + row] = *value;
        }
    }
}

/// Transposes squares of eight rows and columns in registers, and the rest one by one. Some columns of all rows are done
/// before the next ones, so that what is written stays in the first-level cache until its lines are whole.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn by_squares(from: &[f32], stride: usize, (rows, width): (usize, usize), to: &mut [f32], to_stride: usize) {
    let whole = (rows / SIDE * SIDE, width / SIDE * SIDE);
    for first in (0..whole.1).step_by(COLUMNS) {
        let cols = first..whole.1.min(first + COLUMNS);
        for row in (0..whole.0).step_by(SIDE) {
            for row in row..row + SIDE {
                let next = row * stride + cols.end;
                (next..next + COLUMNS).step_by(LINE).for_each(|at| prefetch(from, at));
            }
            for col in cols.clone().step_by(SIDE) {
                let (from, to) = (&from[row * stride + col..], &mut to[col * to_stride + row..]);
                assert!(
                    from.len() >= (SIDE - 1) * stride + SIDE && to.len() >= (SIDE - 1) * to_stride + SIDE
                );
                // SAFETY: the check above saw the eight rows of eight floats of both.
                unsafe { square(from.as_ptr(), stride, to.as_mut_ptr(), to_stride) };
            }
        }
    }
    one_by_one(from, stride, (0..whole.0, whole.1..width), to, to_stride);
    let mut row = whole.0;
    if rows - row >= HALF {
        for col in (0..whole.1).step_by(SIDE) {
            let (from, to) = (&from[row * stride + col..], &mut to[col * to_stride + row..]);
            assert!(from.len() >= (HALF - 1) * stride + SIDE && to.len() >= (SIDE - 1) * to_stride + HALF);
            // SAFETY: the check above saw the four rows of eight floats, and the eight of four.
            unsafe { half_square(from.as_ptr(), stride, to.as_mut_ptr(), to_stride) };
        }
        one_by_one(from, stride, (row..row + HALF, whole.1..width), to, to_stride);
        row += HALF;
    }
    one_by_one(from, stride, (row..rows, 0..width), to, to_stride);
}

/// Transposes a square of eight rows.
///
/// # Safety
/// Eight floats must be at each of the eight rows of both.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn square(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    let mut rows = [_mm256_setzero_ps(); SIDE];
    for (row, values) in rows.iter_mut().enumerate() {
        // Columns 0..4 of rows 0..4 and 4..8 in one register each, then columns 4..8.
        let at = from.wrapping_add(row % HALF * stride + row / HALF * HALF);
        // SAFETY: what the caller promised.
        *values = unsafe {
            let lower = _mm256_castps128_ps256(_mm_loadu_ps(at));
            _mm256_insertf128_ps::<1>(lower, _mm_loadu_ps(at.add(HALF * stride)))
        };
    }
    for (half, rows) in rows.as_chunks::<HALF>().0.iter().enumerate() {
        for (col, values) in columns(*rows).into_iter().enumerate() {
            // SAFETY: what the caller promised.
            unsafe { _mm256_storeu_ps(to.add((half * HALF + col) * to_stride), values) };
        }
    }
}

/// Transposes four rows of eight floats.
///
/// # Safety
/// Eight floats must be at each of the four rows of `from`, and four at each of the eight of `to`.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half_square(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: what the caller promised.
    let rows = unsafe { [0, 1, 2, 3].map(|row| _mm256_loadu_ps(from.add(row * stride))) };
    for (col, values) in columns(rows).into_iter().enumerate() {
        // SAFETY: as above.
        unsafe {
            _mm_storeu_ps(to.add(col * to_stride), _mm256_castps256_ps128(values));
            _mm_storeu_ps(to.add((HALF + col) * to_stride), _mm256_extractf128_ps::<1>(values));
        }
    }
}

/// Returns the columns of four rows, of both halves at once.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn columns(rows: [std::arch::x86_64::__m256; HALF]) -> [std::arch::x86_64::__m256; HALF] {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
    let (c, d) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
    [
        _mm256_shuffle_ps::<0x44>(a, c),
        _mm256_shuffle_ps::<0xee>(a, c),
        _mm256_shuffle_ps::<0x44>(b, d),
        _mm256_shuffle_ps::<0xee>(b, d),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    #[test]
    fn rows_become_columns_whatever_their_number() {
        for (rows, width, stride, to_stride) in [
            (1, 1, 1, 1),
            (8, 8, 8, 8),
            (12, 19, 30, 12),
            (32, 40, 40, 32),
            (7, 9, 9, 8),
            (3, 0, 5, 3),
            (16, COLUMNS, 70, 16),
            (29, 2 * COLUMNS + 11, 150, 32),
        ] {
            let from = random(1, (rows - 1) * stride + width.max(1));
            let mut to = vec![9.0; width * to_stride];
            transpose(&from, stride, width, &mut to, to_stride);
            for col in 0..width {
                for row in 0..to_stride {
                    let expected = if row < rows { from[row * stride + col] } else { 9.0 };
                    assert_eq!(to[col * to_stride + row], expected, "{row}, {col} of {rows} x {width}");
                }
            }
        }
    }
}
