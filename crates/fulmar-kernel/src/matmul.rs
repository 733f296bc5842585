//! Matrix products by kernels of our own over packed operands.
//!
//! An output is `sum = x[k] * w[k] + sum` for k = 0, 1, ... from 0 on, fused on processors with AVX2 and FMA, AVX-512
//! or NEON. So a row has the same bits whatever the other rows are, on one thread or many and on all these
//! processors: a sampler that decodes a few rows at a time agrees with a trainer that processes thousands.
//! WebAssembly has no fused multiply-add and differs in the last bits.
//!
//! Products with weights of 8 bits and products in bfloat16 have rules of their own: see `quantized.rs` and
//! `rounded.rs`.

mod packed;
mod panels;
mod precision;
mod quantized;
mod rounded;
mod tile;
mod transpose;
mod weighted;

pub use panels::{Panels, PanelsView, fills_panels, pack_in_place, unpack_in_place};
pub use precision::MatmulPrecision;
pub(crate) use tile::PANEL;
pub(crate) use transpose::transpose;
pub(crate) use weighted::{Item, SUMS, Weights, add_weighted_rows};

use packed::Factor;

use crate::floats::Floats;
use crate::parallel::{add_column_sums, for_rows};

/// A borrowed row-major matrix, optionally read transposed.
#[derive(Debug, Clone, Copy)]
pub struct MatRef<'a> {
    data: Floats<'a>,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    panels: Option<PanelsView<'a>>,
    precision: MatmulPrecision,
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
        Self {
            data,
            rows,
            cols,
            row_stride: cols,
            col_stride: 1,
            panels: None,
            precision: MatmulPrecision::F32,
        }
    }

    /// Returns the packed weight `[outputs, inputs]` transposed, `[inputs, outputs]`, for products `x w^T`.
    #[must_use]
    pub(crate) const fn of_panels(panels: PanelsView<'a>) -> Self {
        let [cols, rows] = panels.shape();
        let data = Floats::F32(&[]);
        let precision = panels.precision();
        Self { data, rows, cols, row_stride: 1, col_stride: rows, panels: Some(panels), precision }
    }

    /// Returns the same elements as a right operand whose products have this precision. Packed weights keep the
    /// precision that they were packed for.
    ///
    /// # Examples
    /// ```
    /// use fulmar_kernel::{MatRef, MatmulPrecision, matmul};
    /// let (mut out, left, right) = ([0.0], [1.0 + 1e-4], [1.0 - 1e-4]);
    /// let right = MatRef::new(&right, 1, 1).in_precision(MatmulPrecision::Bf16);
    /// matmul(&mut out, MatRef::new(&left, 1, 1), right, false);
    /// assert_eq!(out, [1.0]);
    /// ```
    #[must_use]
    pub const fn in_precision(self, precision: MatmulPrecision) -> Self {
        if self.panels.is_some() { self } else { Self { precision, ..self } }
    }

    /// Returns the same elements with rows and columns exchanged. Copies nothing.
    ///
    /// # Panics
    /// If the elements are packed.
    #[must_use]
    pub const fn transposed(self) -> Self {
        assert!(self.panels.is_none(), "packed weights are read in one direction");
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            panels: None,
            precision: self.precision,
        }
    }
}

/// Computes `out = left * right`, or `out += left * right` with `accumulate`. `out` is row-major, `left.rows
/// x right.cols`.
///
/// Takes `2 * rows * inner * cols` operations, on all cores when that is worth it.
///
/// # Panics
/// If the inner lengths differ, `out` has another length, or `left` is packed.
///
/// # Examples
/// ```
/// use fulmar_kernel::{MatRef, matmul};
/// let mut out = [0.0; 2];
/// matmul(&mut out, MatRef::new(&[1.0, 2.0], 1, 2), MatRef::new(&[3.0, 4.0, 5.0, 6.0], 2, 2), false);
/// assert_eq!(out, [13.0, 16.0]);
/// ```
pub fn matmul(out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) {
    multiply(left, std::iter::once(Factor::new(out, left, right)), accumulate);
}

/// Computes `out = left * right` for each `(out, right)`, with the bits of [`matmul`], in one pass over `left`.
///
/// # Panics
/// As [`matmul`].
///
/// # Examples
/// ```
/// use fulmar_kernel::{MatRef, matmul_each};
/// let (mut one, mut two) = ([0.0; 1], [0.0; 2]);
/// let (first, second) = (MatRef::new(&[3.0, 4.0], 2, 1), MatRef::new(&[1.0, 0.0, 0.0, 1.0], 2, 2));
/// matmul_each(MatRef::new(&[1.0, 2.0], 1, 2), &mut [(&mut one, first), (&mut two, second)]);
/// assert_eq!((one, two), ([11.0], [1.0, 2.0]));
/// ```
pub fn matmul_each(left: MatRef<'_>, products: &mut [(&mut [f32], MatRef<'_>)]) {
    let factors = products.iter_mut().map(|(out, right)| Factor::new(out, left, *right));
    multiply(left, factors, false);
}

/// Computes the product of `left` with each factor, or adds it to what is there.
fn multiply<'a>(left: MatRef<'_>, factors: impl Iterator<Item = Factor<'a>>, accumulate: bool) {
    let (quantized, others): (Vec<_>, Vec<_>) = factors.partition(Factor::is_quantized);
    let (rounded, others): (Vec<_>, Vec<_>) = others.into_iter().partition(Factor::is_rounded);
    quantized::product(left, &quantized, accumulate);
    rounded::product(left, &rounded, accumulate);
    packed::product(left, &others, accumulate);
}

/// Rows of numbers, of which each [`COLUMNS`] are adjacent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a, T> {
    pub items: &'a [T],
    /// Items from a row to the next one.
    pub stride: usize,
    /// Items from some adjacent columns of a row to the next ones.
    pub block: usize,
    pub count: usize,
}

/// Columns of a row that are adjacent.
pub(crate) const COLUMNS: usize = 16;

impl<'a, T> Rows<'a, T> {
    /// Returns rows whose columns are all adjacent.
    pub(crate) const fn new(items: &'a [T], stride: usize, count: usize) -> Self {
        Self { items, stride, block: COLUMNS, count }
    }

    /// Returns where a column is in a row.
    #[inline(always)]
    const fn place(&self, col: usize) -> usize {
        col / COLUMNS * self.block + col % COLUMNS
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
            [(1, 5, 3), (3, 64, 7), (33, 17, 65), (130, 128, 96), (4, 1300, 37), (7, 1, 4), (450, 30, 170)]
        {
            let (a, b) = (random(1, rows * inner), random(2, inner * cols));
            let a_t = MatRef::new(&a, inner, rows).transposed();
            let b_t = MatRef::new(&b, cols, inner).transposed();
            let (a_rows, b_rows) = (MatRef::new(&a, rows, inner), MatRef::new(&b, inner, cols));
            for (left, right) in [(a_rows, b_rows), (a_t, b_t), (a_rows, b_t)] {
                let mut out = vec![1.0; rows * cols];
                matmul(&mut out, left, right, true);
                for (ours, exact) in out.iter().zip(naive(left, right)) {
                    let error = (f64::from(*ours) - 1.0 - exact).abs();
                    assert!(error < 1e-5 * (inner as f64).sqrt(), "{ours} and {exact}");
                }
            }
        }
    }

    /// Miri runs this test: an interpreter follows every pointer of a product.
    #[test]
    fn small_products_equal_double_precision_however_the_weight_is_stored() {
        for (rows, inner, cols) in [(1, 3, 1), (2, 1, 129), (6, 1, 32), (7, 2, 33), (13, 1, 34), (9, 0, 5)] {
            let (a, wide) = (random(1, rows * inner), random(2, inner * cols));
            let mut halves = vec![bf16::ZERO; wide.len()];
            f32_to_bf16(&wide, &mut halves);
            for data in [Floats::from(&wide[..]), Floats::from(&halves[..])] {
                let panels = Panels::of(data, cols, inner).unwrap();
                let (left, weight) = (MatRef::new(&a, rows, inner), MatRef::of(data, cols, inner));
                for (right, start) in [(weight.transposed(), 0.0), (panels.transposed(), 2.0)] {
                    let mut out = vec![start; rows * cols];
                    matmul(&mut out, left, right, true);
                    for (ours, exact) in out.iter().zip(naive(left, weight.transposed())) {
                        let error = (f64::from(*ours) - f64::from(start) - exact).abs();
                        assert!(error < 1e-5, "{rows} x {inner} x {cols}: {ours} and {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_weight_that_is_packed_in_its_place_gives_the_bits_of_its_rows() {
        for (rows, inputs, outputs) in [(1, 1, 32), (3, 7, 64), (6, 64, 96), (33, 130, 64), (300, 17, 1_024)]
        {
            let (x, stored) = (random(1, rows * inputs), random(2, outputs * inputs));
            let mut weight = stored.clone();
            pack_in_place(&mut weight, inputs);
            let right = PanelsView::of_packed(&weight, outputs, inputs).transposed();
            let product = |right| {
                let mut out = vec![0.0; rows * outputs];
                matmul(&mut out, MatRef::new(&x, rows, inputs), right, false);
                out
            };
            assert_eq!(product(right), product(MatRef::new(&stored, outputs, inputs).transposed()));
            let mut quantized = [Panels::default(), Panels::default()];
            quantized[0].quantize(right).unwrap();
            quantized[1].quantize(MatRef::new(&stored, outputs, inputs).transposed()).unwrap();
            assert_eq!(product(quantized[0].transposed()), product(quantized[1].transposed()));
            let ids = [0, outputs as u32 - 1, outputs as u32 / 2];
            let [mut found, mut expected] = [(); 2].map(|()| vec![0.0; ids.len() * inputs]);
            crate::embed_packed(&weight, inputs, &ids, &mut found);
            crate::embed(stored[..].into(), inputs, &ids, &mut expected);
            assert_eq!(found, expected);
            unpack_in_place(&mut weight, inputs);
            assert_eq!(weight, stored, "{outputs} x {inputs}");
        }
        assert!(fills_panels(64) && !fills_panels(33));
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

    /// Runs a product by the instructions of one kind, if this processor has them.
    fn by(lanes: &str, out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) -> bool {
        let product = packed::Product { left, factors: &[Factor::new(out, left, right)], accumulate };
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        // SAFETY: each version runs only after a check that this processor has its instructions.
        unsafe {
            match lanes {
                #[cfg(target_arch = "x86_64")]
                "avx512" if has!("avx512f") => product.run::<tile::avx512::Of>(),
                #[cfg(target_arch = "x86_64")]
                "avx2" if has!("avx2") && has!("fma") => product.run::<tile::avx2::Of>(),
                #[cfg(target_arch = "aarch64")]
                "neon" => product.run::<tile::portable::Of>(),
                _ => return false,
            }
        }
        true
    }

    #[test]
    fn every_output_is_one_chain_of_fused_multiply_adds_by_all_instructions() {
        for (rows, inner, cols) in [
            (1, 5, 3),
            (1, 64, 160),
            (2, 70, 96),
            (3, 640, 33),
            (5, 641, 64),
            (7, 1300, 65),
            (12, 33, 32),
            (13, 1290, 97),
            (97, 40, 130),
            (200, 650, 40),
            (400, 650, 70),
            (500, 0, 5),
            (4, 0, 5),
            (9, 0, 5),
        ] {
            let (a, b, before) = (random(1, rows * inner), random(2, inner * cols), random(3, rows * cols));
            let chain = |row: usize, col: usize| {
                (0..inner).fold(0.0_f32, |sum, k| a[row * inner + k].mul_add(b[col * inner + k], sum))
            };
            let (left, weight) = (MatRef::new(&a, rows, inner), MatRef::new(&b, cols, inner));
            let panels = Panels::of(b[..].into(), cols, inner).unwrap();
            for (lanes, accumulate) in
                ["avx512", "avx2", "neon"].into_iter().flat_map(|lanes| [(lanes, false), (lanes, true)])
            {
                for right in [weight.transposed(), panels.transposed()] {
                    let mut out = before.clone();
                    if !by(lanes, &mut out, left, right, accumulate) {
                        continue;
                    }
                    for (index, found) in out.iter().enumerate() {
                        let sum = chain(index / cols, index % cols);
                        let expected = if accumulate { before[index] + sum } else { sum };
                        assert_eq!(
                            found.to_bits(),
                            expected.to_bits(),
                            "{lanes}, {rows} x {inner} x {cols}, output {index}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn packed_weights_give_the_bits_of_unpacked_ones() {
        for (rows, inner, cols) in
            [(1, 576, 192), (2, 40, 200), (6, 700, 33), (40, 64, 96), (300, 130, 65), (600, 70, 100)]
        {
            let (a, wide) = (random(1, rows * inner), random(2, inner * cols));
            let mut halves = vec![bf16::ZERO; wide.len()];
            f32_to_bf16(&wide, &mut halves);
            for data in [Floats::from(&wide[..]), Floats::from(&halves[..])] {
                let mut panels = Panels::of(random(3, 7 * 900)[..].into(), 7, 900).unwrap();
                panels.pack(data, cols, inner).unwrap();
                let (left, weight) = (MatRef::new(&a, rows, inner), MatRef::of(data, cols, inner));
                let (mut packed, mut unpacked) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
                matmul(&mut packed, left, panels.transposed(), false);
                matmul(&mut unpacked, left, weight.transposed(), false);
                let same = packed.iter().zip(&unpacked).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{rows} x {inner} x {cols}");
            }
        }
    }

    #[test]
    fn products_of_the_same_rows_have_the_bits_of_each_alone() {
        for (rows, inner) in [(1, 70), (2, 640), (5, 64), (13, 700), (200, 96), (600, 33)] {
            let (a, widths) = (random(1, rows * inner), [576, 33, 64, 1]);
            let weights = widths.map(|cols| random(cols as u64, inner * cols));
            let mut halves = vec![bf16::ZERO; inner * widths[2]];
            f32_to_bf16(&weights[2], &mut halves);
            let packed = Panels::of(weights[1][..].into(), widths[1], inner).unwrap();
            let packed_halves = Panels::of(halves[..].into(), widths[2], inner).unwrap();
            let unpacked = |at: usize| MatRef::new(&weights[at], widths[at], inner).transposed();
            let left = MatRef::new(&a, rows, inner);
            for rights in [
                [unpacked(0), packed.transposed(), packed_halves.transposed(), unpacked(3)],
                [0, 1, 2, 3].map(unpacked),
            ] {
                let (mut together, mut alone) =
                    (widths.map(|cols| vec![1.0; rows * cols]), widths.map(|cols| vec![2.0; rows * cols]));
                let mut products: Vec<_> = together.iter_mut().map(Vec::as_mut_slice).zip(rights).collect();
                matmul_each(left, &mut products);
                alone.iter_mut().zip(rights).for_each(|(out, right)| matmul(out, left, right, false));
                assert_eq!(together, alone, "{rows} x {inner}");
            }
        }
        matmul_each(MatRef::new(&[], 0, 3), &mut [(&mut [], MatRef::new(&[0.0; 6], 3, 2))]);
        matmul_each(MatRef::new(&[1.0], 1, 1), &mut []);
    }

    #[test]
    fn a_product_has_the_same_bits_on_one_thread() {
        let (rows, inner, cols) = (210, 700, 600);
        let (a, b) = (random(1, rows * inner), random(2, inner * cols));
        let (left, right) = (MatRef::new(&a, rows, inner), MatRef::new(&b, inner, cols));
        let (mut shared, mut alone) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
        matmul(&mut shared, left, right, false);
        crate::parallel::alone(|| matmul(&mut alone, left, right, false));
        assert!(shared.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()));
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
