//! Matrix products: `x w^T` by a kernel of our own where the processor has the instructions, all others through the `gemm` crate.
//!
//! A row of a product has the same bits whatever the other rows are. `gemm` takes other code paths for small
//! products, so those are computed with a few rows of zeros below. So a sampler that decodes a few rows at a
//! time agrees with a trainer that processes thousands.

#[cfg(target_arch = "x86_64")]
mod projection;

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;

use crate::floats::Floats;
use crate::lanes::dot;
#[cfg(not(target_family = "wasm"))]
use crate::parallel::shares_work;
use crate::parallel::{add_column_sums, for_rows};

/// Fewest rows for which `gemm` 0.19 adds in the same order as for thousands. It has separate code paths for
/// one to three rows and for up to 256 elements, and cuts the inner length at 512 where both sides are at
/// most 64.
fn rows_min(inner: usize, cols: usize) -> usize {
    let few_elements = 256 / cols + 1;
    let small_square = if inner > 512 && cols <= 64 { 65 } else { 0 };
    few_elements.max(small_square).max(4)
}

/// A borrowed row-major matrix, optionally read transposed.
#[derive(Debug, Clone, Copy)]
pub struct MatRef<'a> {
    data: Floats<'a>,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> MatRef<'a> {
    /// Returns the matrix whose row-major elements are `data`.
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` floats.
    #[must_use]
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::of(data.into(), rows, cols)
    }

    /// Returns the matrix of elements of either type, as [`MatRef::new`].
    ///
    /// # Panics
    /// If `data` does not hold `rows * cols` floats.
    #[must_use]
    pub fn of(data: Floats<'a>, rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "data must hold {rows} x {cols} floats");
        Self { data, rows, cols, row_stride: cols, col_stride: 1 }
    }

    /// Returns whether the elements of a row are adjacent, and the rows too.
    #[cfg(target_arch = "x86_64")]
    const fn is_row_major(self) -> bool {
        self.col_stride == 1 && self.row_stride == self.cols
    }

    /// Returns the same elements with rows and columns exchanged. Copies nothing.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

/// Computes `out = left * right`, or `out += left * right` with `accumulate`. `out` is row-major, `left.rows
/// x right.cols`.
///
/// Takes `2 * rows * inner * cols` operations, on all cores when that is worth it.
///
/// # Panics
/// If the inner lengths differ or `out` has another length.
///
/// # Examples
/// ```
/// use fulmar_kernel::{MatRef, matmul};
/// let mut out = [0.0; 2];
/// matmul(&mut out, MatRef::new(&[1.0, 2.0], 1, 2), MatRef::new(&[3.0, 4.0, 5.0, 6.0], 2, 2), false);
/// assert_eq!(out, [13.0, 16.0]);
/// ```
pub fn matmul(out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) {
    assert_eq!(left.cols, right.rows, "inner lengths must agree");
    assert_eq!(out.len(), left.rows * right.cols, "out must hold left.rows x right.cols floats");
    if out.is_empty() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if let (Floats::F32(rows), true) = (left.data, left.cols > 0 && projection::suits())
        && left.is_row_major()
        && right.transposed().is_row_major()
    {
        return match right.data {
            Floats::F32(weight) => projection::product(out, rows, weight, left.cols, accumulate),
            Floats::Bf16(weight) => projection::product(out, rows, weight, left.cols, accumulate),
        };
    }
    let rows_min = rows_min(left.cols, right.cols);
    if left.rows >= rows_min {
        return product(out, left, right, accumulate);
    }
    let (left_data, mut padded_left) = (left.data.to_f32(), vec![0.0; rows_min * left.cols]);
    for row in 0..left.rows {
        for col in 0..left.cols {
            padded_left[row * left.cols + col] = left_data[row * left.row_stride + col * left.col_stride];
        }
    }
    let mut padded_out = vec![0.0; rows_min * right.cols];
    padded_out[..out.len()].copy_from_slice(out);
    product(&mut padded_out, MatRef::new(&padded_left, rows_min, left.cols), right, accumulate);
    out.copy_from_slice(&padded_out[..out.len()]);
}

/// Computes the product by `gemm`, widening bfloat16.
fn product(out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) {
    let (left_data, right_data) = (left.data.to_f32(), right.data.to_f32());
    #[cfg(not(target_family = "wasm"))]
    let parallelism = if shares_work() { Parallelism::Rayon(0) } else { Parallelism::None };
    #[cfg(target_family = "wasm")]
    let parallelism = Parallelism::None;
    let x = (left_data.as_ptr(), left.row_stride as isize, left.col_stride as isize, left.rows);
    let y = (right_data.as_ptr(), right.row_stride as isize, right.col_stride as isize, right.cols);
    // The crate's kernels write columns, so a row-major product is computed as its transpose: `out^T =
    // right^T left^T`.
    let is_wide = right.cols > 1;
    let ((lhs, lhs_rs, lhs_cs, m), (rhs, rhs_rs, rhs_cs, n)) =
        if is_wide { ((y.0, y.2, y.1, y.3), (x.0, x.2, x.1, x.3)) } else { (x, y) };
    let (dst_cs, dst_rs) = if is_wide { (right.cols as isize, 1) } else { (1, 1) };
    // SAFETY: `matmul` checked that `out` is a whole rows x cols matrix with strides (cols, 1), and `MatRef::new`
    // that each operand's strides stay inside its slice; `out` is borrowed mutably, so nothing overlaps it.
    unsafe {
        get_gemm_fn()(
            m,
            n,
            left.cols,
            out.as_mut_ptr(),
            dst_cs,
            dst_rs,
            accumulate,
            lhs,
            lhs_cs,
            lhs_rs,
            rhs,
            rhs_cs,
            rhs_rs,
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// Writes the products of `row` with each of the `out.len()` rows that begin `stride` floats apart in `rows`.
/// Each has the same bits whatever the other rows are.
pub(crate) fn row_products(out: &mut [f32], row: &[f32], rows: &[f32], stride: usize) {
    #[cfg(target_arch = "x86_64")]
    if projection::suits() {
        return projection::row_products(out, row, rows, stride);
    }
    for (index, out) in out.iter_mut().enumerate() {
        *out = dot(row, &rows[index * stride..][..row.len()]);
    }
}

/// Writes the products of each row of `left` with each of `rows`, both of `width` floats, with the bits of
/// [`row_products`].
pub(crate) fn products_of_rows(out: &mut [f32], left: &[f32], rows: &[f32], width: usize) {
    #[cfg(target_arch = "x86_64")]
    if projection::suits() {
        return projection::product(out, left, rows, width, false);
    }
    for (out, row) in out.chunks_exact_mut(rows.len() / width).zip(left.chunks_exact(width)) {
        row_products(out, row, rows, width);
    }
}

/// Adds `bias_d` to every row of `x_nd`.
pub fn add_bias(x_nd: &mut [f32], bias_d: &[f32]) {
    for_rows(x_nd, bias_d.len(), |_, rows| {
        for row in rows.chunks_exact_mut(bias_d.len()) {
            for (x, bias) in row.iter_mut().zip(bias_d) {
                *x += bias;
            }
        }
    });
}

/// Adds the column sums of `d_out_nd` to `d_bias_d`: the backward pass of [`add_bias`].
pub fn bias_backward(d_out_nd: &[f32], d_bias_d: &mut [f32]) {
    let width = d_bias_d.len();
    add_column_sums(d_out_nd.len() / width, d_bias_d, |first, end, sums| {
        for row in d_out_nd[first * width..end * width].chunks_exact(width) {
            for (sum, d) in sums.iter_mut().zip(row) {
                *sum += d;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::f32_to_bf16;
    use crate::finite_difference::random;

    fn naive(left: MatRef<'_>, right: MatRef<'_>) -> Vec<f64> {
        let (of_left, of_right) = (left.data.to_f32(), right.data.to_f32());
        let at = |data: &[f32], m: MatRef<'_>, r: usize, c: usize| {
            f64::from(data[r * m.row_stride + c * m.col_stride])
        };
        let mut out = Vec::new();
        for row in 0..left.rows {
            for col in 0..right.cols {
                let term = |k| at(&of_left, left, row, k) * at(&of_right, right, k, col);
                out.push((0..left.cols).map(term).sum());
            }
        }
        out
    }

    #[test]
    fn every_layout_equals_the_triple_loop_in_double_precision() {
        for (rows, inner, cols) in
            [(1, 5, 3), (3, 64, 7), (33, 17, 65), (130, 128, 96), (4, 1300, 37), (7, 1, 4)]
        {
            let (a, b) = (random(1, rows * inner), random(2, inner * cols));
            let a_t = MatRef::new(&a, inner, rows).transposed();
            let b_t = MatRef::new(&b, cols, inner).transposed();
            let (a_rows, b_rows) = (MatRef::new(&a, rows, inner), MatRef::new(&b, inner, cols));
            for (left, right) in [(a_rows, b_rows), (a_t, b_t), (a_rows, b_t)] {
                let mut out = vec![1.0; rows * cols];
                matmul(&mut out, left, right, true);
                for (ours, exact) in out.iter().zip(naive(left, right)) {
                    assert!((f64::from(*ours) - 1.0 - exact).abs() < 1e-4, "{ours} and {exact}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_rows_stand_beside_it() {
        for (inner, cols) in [
            (128, 352),
            (128, 64),
            (128, 97),
            (64, 64),
            (576, 1536),
            (1536, 48),
            (1536, 576),
            (1100, 130),
            (700, 3),
            (512, 70),
            (1024, 300),
        ] {
            let (a, b) = (random(3, 300 * inner), random(4, inner * cols));
            let right = MatRef::new(&b, cols, inner).transposed();
            let mut whole = vec![0.0; 300 * cols];
            matmul(&mut whole, MatRef::new(&a, 300, inner), right, false);
            for (first, rows) in
                [(0, 1), (5, 2), (7, 3), (8, 4), (100, 5), (9, 6), (31, 48), (31, 64), (17, 66), (17, 200)]
            {
                let mut part = vec![0.0; rows * cols];
                let left = MatRef::new(&a[first * inner..(first + rows) * inner], rows, inner);
                matmul(&mut part, left, right, false);
                let expected = &whole[first * cols..(first + rows) * cols];
                assert!(
                    part.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{rows} rows from {first}, inner {inner}, cols {cols}"
                );
            }
        }
    }

    #[test]
    fn a_product_with_halves_has_the_bits_of_one_with_them_widened() {
        for (rows, inner, cols) in [
            (1, 5, 3),
            (2, 576, 192),
            (3, 64, 7),
            (23, 1300, 37),
            (24, 512, 66),
            (33, 17, 65),
            (130, 1024, 96),
            (7, 1, 4),
        ] {
            let (a, mut halves) = (random(1, rows * inner), vec![bf16::ZERO; inner * cols]);
            f32_to_bf16(&random(2, inner * cols), &mut halves);
            let stored = Floats::from(&halves[..]);
            let wide = stored.to_f32();
            let (left, before) = (MatRef::new(&a, rows, inner), random(3, rows * cols));
            for accumulate in [false, true] {
                for transposed in [false, true] {
                    let right = |data| match transposed {
                        false => MatRef::of(data, inner, cols),
                        true => MatRef::of(data, cols, inner).transposed(),
                    };
                    let (mut ours, mut expected) = (before.clone(), before.clone());
                    matmul(&mut ours, left, right(stored), accumulate);
                    matmul(&mut expected, left, right(Floats::F32(&wide)), accumulate);
                    let same = ours.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{rows} x {inner} x {cols}, transposed {transposed}");
                }
            }
        }
    }

    #[test]
    fn products_of_a_row_with_rows_apart_equal_double_precision_and_have_the_same_bits_alone() {
        for (width, stride, count) in [(64, 192, 11), (32, 32, 4), (6, 12, 3), (70, 100, 1), (8, 9, 0)] {
            let (row, rows) = (random(1, width), random(2, stride * count.max(1)));
            let mut found = vec![0.0; count];
            row_products(&mut found, &row, &rows, stride);
            for (index, found) in found.iter().enumerate() {
                let other = &rows[index * stride..][..width];
                let exact: f64 = row.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                assert!((f64::from(*found) - exact).abs() < 1e-4, "{found} and {exact}");
                let mut alone = [0.0];
                row_products(&mut alone, &row, other, stride);
                assert_eq!(alone[0].to_bits(), found.to_bits(), "row {index} of {count}");
                products_of_rows(&mut alone, &row, other, width);
                assert_eq!(alone[0].to_bits(), found.to_bits(), "row {index} of {count} among others");
            }
        }
    }

    #[test]
    fn few_rows_are_added_to_what_is_there_with_the_bits_of_many() {
        for (inner, cols) in [(64, 64), (576, 200), (1536, 576), (1100, 33)] {
            let (a, b) = (random(5, 100 * inner), random(6, inner * cols));
            let right = MatRef::new(&b, cols, inner).transposed();
            let mut whole = random(7, 100 * cols);
            let before = whole.clone();
            matmul(&mut whole, MatRef::new(&a, 100, inner), right, true);
            for rows in [1, 4, 7, 13, 32, 48, 49] {
                let mut part = before[..rows * cols].to_vec();
                matmul(&mut part, MatRef::new(&a[..rows * inner], rows, inner), right, true);
                let same = part.iter().zip(&whole).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{rows} rows, inner {inner}, cols {cols}");
            }
        }
    }

    #[test]
    fn bias_and_its_gradient_are_sums_over_rows() {
        let mut x = vec![1.0; 6];
        add_bias(&mut x, &[0.5, -0.5, 2.0]);
        assert_eq!(x, [1.5, 0.5, 3.0, 1.5, 0.5, 3.0]);
        let mut d_bias = [1.0; 3];
        bias_backward(&x, &mut d_bias);
        assert_eq!(d_bias, [4.0, 2.0, 7.0]);
    }
}
