//! Products of operands that are rounded to bfloat16, with sums in single precision.
//!
//! ```text
//! each number of both operands is rounded to the nearest bfloat16, ties to even; one below 2^-126 to 0
//! for p = 0, 1, ...:   sum = x[2p + 1] w[2p + 1] + sum,   then   sum = x[2p] w[2p] + sum
//! ```
//! Both are fused multiply-adds, rounded to nearest, and a sum below 2^-126 becomes 0, with its sign. An odd number of
//! inputs is filled up with a 0. This is the arithmetic of `vdpbf16ps` of AVX512-BF16, which multiplies two inputs at
//! once; [`add_pair`] defines it for processors without the instruction. So an output has the same bits on every
//! processor, WebAssembly too, whatever the other rows are, on any number of threads.
//!
//! Two inputs make a word, the first one in its lower half. The tiles of `packed.rs` multiply words as they multiply
//! floats, so that rows, panels and blocks of inputs are cut as there.

pub(super) mod lanes;

use std::cell::Cell;
use std::ops::Range;

use super::packed::{Factor, Product};
use super::{MatRef, MatmulPrecision};
use crate::floats::Floats;
use crate::parallel::for_chunks;

/// Inputs in a word.
pub(super) const TOGETHER: usize = 2;
/// Bits of half a word.
const HALF_BITS: u32 = 16;
/// Fewest words of rows in a task that rounds them.
const TASK_WORDS: usize = 1 << 14;

/// Computes the product of `left` with each factor, or adds it to what is there, with the widest instructions of
/// this processor.
pub(super) fn product(left: MatRef<'_>, factors: &[Factor<'_>], accumulate: bool) {
    if factors.is_empty() {
        return;
    }
    let (mut words, wide) = (WORDS.take(), left.data.to_f32());
    words.resize(left.rows * num_words(left.cols), 0.0);
    let left = words_of(MatRef { data: Floats::F32(&wide), ..left }, &mut words);
    let product = Product { left, factors, accumulate };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        // SAFETY: each version runs only after a check that this processor has its instructions.
        unsafe {
            if has!("avx512f") && has!("avx512bf16") {
                product.run::<lanes::avx512::Of>();
            } else if has!("avx2") && has!("fma") {
                product.run::<lanes::avx2::Of>();
            } else {
                product.run::<lanes::portable::Of>();
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: it needs no instructions beyond those of the target.
    unsafe {
        product.run::<lanes::portable::Of>();
    }
    WORDS.set(words);
}

thread_local! {
    /// The rounded rows of the last product of this thread.
    static WORDS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Returns the number of words that hold so many inputs.
pub(super) const fn num_words(inputs: usize) -> usize {
    inputs.div_ceil(TOGETHER)
}

/// Rounds rows in single precision, and returns them as a matrix of words.
pub(super) fn words_of<'a>(left: MatRef<'_>, words: &'a mut [f32]) -> MatRef<'a> {
    let Floats::F32(data) = left.data else { unreachable!("rows are in single precision") };
    let (rows, cols) = (left.rows, num_words(left.cols));
    let by_row = left.col_stride == 1;
    let (row_stride, col_stride) = if by_row { (cols, 1) } else { (1, rows) };
    if words.is_empty() {
        // Nothing is to be rounded.
    } else if by_row {
        for_chunks(words, cols, (TASK_WORDS / cols).max(1), |first, words| {
            for (row, words) in (first..).zip(words.chunks_exact_mut(cols)) {
                adjacent(&data[row * left.row_stride..][..left.cols], words);
            }
        });
    } else {
        for_chunks(words, rows, (TASK_WORDS / rows).max(1), |first, words| {
            for (word, words) in (first..).zip(words.chunks_exact_mut(rows)) {
                let input = |input: usize| &data[input * left.col_stride..][..rows];
                let first = word * TOGETHER;
                interleaved(input(first), (first + 1 < left.cols).then(|| input(first + 1)), words);
            }
        });
    }
    MatRef {
        data: Floats::F32(words),
        rows,
        cols,
        row_stride,
        col_stride,
        panels: None,
        precision: MatmulPrecision::Bf16,
    }
}

/// Writes the words of a weight's rows `outputs`, whose inputs are adjacent, `[output][word]`.
pub(super) fn round_outputs(
    right: MatRef<'_>,
    outputs: Range<usize>,
    words: Range<usize>,
    to: &mut Vec<f32>,
) {
    to.resize(outputs.len() * words.len(), 0.0);
    let inputs = words.start * TOGETHER..right.rows.min(words.end * TOGETHER);
    for (output, to) in outputs.zip(to.chunks_exact_mut(words.len())) {
        let first = output * right.col_stride;
        match right.data.slice(first + inputs.start..first + inputs.end) {
            Floats::F32(from) => adjacent(from, to),
            halves @ Floats::Bf16(_) => adjacent(&halves.to_f32(), to),
        }
    }
}

/// Writes the words of outputs `cols`, whose inputs are rows of a weight, for inputs `2 * word` and the next one: each
/// `width` words to the beginning of a part of `to`.
pub(super) fn round_inputs<'a>(
    right: MatRef<'_>,
    cols: Range<usize>,
    word: usize,
    width: usize,
    to: impl Iterator<Item = &'a mut [f32]>,
) {
    let of = |input: usize| {
        let first = input * right.row_stride;
        right.data.slice(first + cols.start..first + cols.end).to_f32()
    };
    let first = word * TOGETHER;
    let (lower, upper) = (of(first), (first + 1 < right.rows).then(|| of(first + 1)));
    for (at, to) in (0..cols.len()).step_by(width).zip(to) {
        let part = at..cols.len().min(at + width);
        let upper = upper.as_ref().map(|upper| &upper[part.clone()]);
        interleaved(&lower[part.clone()], upper, &mut to[..part.len()]);
    }
}

/// Rounds adjacent inputs to words.
fn adjacent(from: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if lanes::avx512::suits() {
        // SAFETY: the check above saw the instructions.
        return unsafe { lanes::avx512::adjacent(from, to) };
    }
    adjacent_one_by_one(from, to);
}

/// Rounds one input of each output, and the next one, to words; without a next one, to words with 0.
fn interleaved(lower: &[f32], upper: Option<&[f32]>, to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if lanes::avx512::suits() {
        // SAFETY: the check above saw the instructions.
        return unsafe { lanes::avx512::interleaved(lower, upper, to) };
    }
    interleaved_one_by_one(lower, upper, to);
}

fn adjacent_one_by_one(from: &[f32], to: &mut [f32]) {
    let (pairs, last) = from.as_chunks::<TOGETHER>();
    for (to, [lower, upper]) in to.iter_mut().zip(pairs) {
        *to = word(*lower, *upper);
    }
    if let [last] = last {
        to[pairs.len()] = word(*last, 0.0);
    }
}

fn interleaved_one_by_one(lower: &[f32], upper: Option<&[f32]>, to: &mut [f32]) {
    match upper {
        Some(upper) => {
            to.iter_mut()
                .zip(lower.iter().zip(upper))
                .for_each(|(to, (lower, upper))| *to = word(*lower, *upper));
        }
        None => to.iter_mut().zip(lower).for_each(|(to, lower)| *to = word(*lower, 0.0)),
    }
}

/// Returns the word of two inputs.
#[inline(always)]
fn word(lower: f32, upper: f32) -> f32 {
    f32::from_bits(round(lower) | round(upper) << HALF_BITS)
}

/// Returns the bits of the nearest bfloat16, ties to even; of 0 if the number is below the smallest normal one. A NaN
/// stays one.
#[inline(always)]
const fn round(value: f32) -> u32 {
    /// The bit of a NaN that is quiet.
    const QUIET: u32 = 1 << 6;
    let bits = value.to_bits();
    let (size, upper) = (bits & !(1 << 31), bits >> HALF_BITS);
    if size > f32::INFINITY.to_bits() {
        upper | QUIET
    } else if size < f32::MIN_POSITIVE.to_bits() {
        upper & 1 << (HALF_BITS - 1)
    } else {
        (bits + (0x7fff + (upper & 1))) >> HALF_BITS
    }
}

/// Returns `x[1] w[1] + sum`, then plus `x[0] w[0]`, for words of two inputs: the definition of this arithmetic.
#[inline(always)]
pub(super) fn add_pair(x: f32, w: f32, sum: f32) -> f32 {
    let lower = |word: f32| f32::from_bits(word.to_bits() << HALF_BITS);
    let upper = |word: f32| f32::from_bits(word.to_bits() & u32::MAX << HALF_BITS);
    add_product(lower(x), lower(w), add_product(upper(x), upper(w), sum))
}

/// Returns `x w + sum` for bfloat16 numbers `x` and `w` in single precision, rounded once, or 0 below the smallest
/// normal number.
#[inline(always)]
fn add_product(x: f32, w: f32, sum: f32) -> f32 {
    let product = x * w;
    // The product of numbers of 8 bits has 16, so it is exact, unless it is too small or too large.
    let is_exact = product.is_normal() || x == 0.0 || w == 0.0;
    let total = if is_exact { product + sum } else { x.mul_add(w, sum) };
    if total.abs() <= f32::MIN_POSITIVE && total != 0.0 { small_sum(x, w, sum, total) } else { total }
}

/// Returns the sum `x w + sum` whose nearest number in single precision is `total`, the smallest normal number or
/// below. It becomes 0 if it rounded to less with as many bits as normal numbers have.
#[cold]
fn small_sum(x: f32, w: f32, sum: f32, total: f32) -> f32 {
    let zero = 0.0_f32.copysign(total);
    if total.abs() < f32::MIN_POSITIVE {
        return zero;
    }
    // Halfway between the smallest normal number and the one below it with as many bits.
    let least = f64::from(f32::MIN_POSITIVE) * (1.0 - f64::from(f32::EPSILON) / 4.0);
    let (product, sum) = (f64::from(x) * f64::from(w), f64::from(sum));
    // The sum of both is `whole + rest` without an error.
    let whole = product + sum;
    let of_sum = whole - product;
    let rest = (product - (whole - of_sum)) + (sum - of_sum);
    let (whole, rest) = (whole.abs(), rest * whole.signum());
    if whole < least || whole == least && rest < 0.0 { zero } else { total }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::super::{Panels, matmul, matmul_each};
    use super::*;
    use crate::f32_to_bf16;
    use crate::finite_difference::random;

    /// Rounds a number by the definition.
    fn rounded(value: f32) -> f32 {
        if value.is_subnormal() { 0.0_f32.copysign(value) } else { bf16::from_f32(value).to_f32() }
    }

    /// Returns the product of a row and an output by the definition, for numbers whose sums are not near 0.
    fn naive(row: &[f32], weight: &[f32]) -> f32 {
        let at = |of: &[f32], input: usize| of.get(input).copied().map_or(0.0, rounded);
        (0..row.len()).step_by(2).fold(0.0, |sum, first| {
            let sum = at(row, first + 1).mul_add(at(weight, first + 1), sum);
            at(row, first).mul_add(at(weight, first), sum)
        })
    }

    /// Runs a product by the instructions of one kind, if this processor has them.
    fn by(lanes: &str, out: &mut [f32], left: MatRef<'_>, right: MatRef<'_>, accumulate: bool) -> bool {
        let mut words = vec![0.0; left.rows * num_words(left.cols)];
        let factors = [Factor::new(out, left, right)];
        assert!(factors[0].is_rounded());
        let product = Product { left: words_of(left, &mut words), factors: &factors, accumulate };
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        // SAFETY: each version runs only after a check that this processor has its instructions.
        unsafe {
            match lanes {
                #[cfg(target_arch = "x86_64")]
                "avx512" if has!("avx512f") && has!("avx512bf16") => product.run::<lanes::avx512::Of>(),
                #[cfg(target_arch = "x86_64")]
                "avx2" if has!("avx2") && has!("fma") => product.run::<lanes::avx2::Of>(),
                "portable" => product.run::<lanes::portable::Of>(),
                _ => return false,
            }
        }
        true
    }

    const LANES: [&str; 3] = ["avx512", "avx2", "portable"];

    /// Miri runs this test: an interpreter follows every pointer of a product.
    #[test]
    fn small_rounded_products_have_the_bits_of_the_definition_by_all_instructions() {
        for (rows, inner, cols) in [(1, 1, 1), (2, 3, 129), (5, 4, 33), (7, 5, 40), (13, 2, 32), (9, 0, 5)] {
            check_product(rows, inner, cols);
        }
    }

    #[test]
    fn large_rounded_products_have_the_bits_of_the_definition_by_all_instructions() {
        for (rows, inner, cols) in [
            (1, 64, 160),
            (2, 1290, 96),
            (3, 641, 33),
            (12, 1300, 65),
            (97, 41, 130),
            (200, 650, 40),
            (400, 651, 70),
        ] {
            check_product(rows, inner, cols);
        }
    }

    /// Checks a product of each layout, packed or not, as a product and as a sum.
    fn check_product(rows: usize, inner: usize, cols: usize) {
        let (a, b, before) = (random(1, rows * inner), random(2, inner * cols), random(3, rows * cols));
        let expected: Vec<f32> = (0..rows * cols)
            .map(|at| naive(&a[at / cols * inner..][..inner], &b[at % cols * inner..][..inner]))
            .collect();
        let (mut a_t, mut b_t, mut halves) = (a.clone(), b.clone(), vec![bf16::ZERO; b.len()]);
        (0..a.len()).for_each(|at| a_t[at % inner * rows + at / inner] = a[at]);
        (0..b.len()).for_each(|at| b_t[at % inner * cols + at / inner] = b[at]);
        f32_to_bf16(&b, &mut halves);
        let lefts = [MatRef::new(&a, rows, inner), MatRef::new(&a_t, inner, rows).transposed()];
        let weight = MatRef::new(&b, cols, inner).transposed();
        let mut panels = Panels::of(random(3, 7 * 900)[..].into(), 7, 900).unwrap();
        panels.pack_for(MatmulPrecision::Bf16, b[..].into(), cols, inner).unwrap();
        let rights = [
            weight,
            MatRef::new(&b_t, inner, cols),
            MatRef::of(halves[..].into(), cols, inner).transposed(),
            panels.transposed(),
        ];
        for (lanes, accumulate) in LANES.into_iter().flat_map(|lanes| [(lanes, false), (lanes, true)]) {
            for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
                let (right, mut out) = (right.in_precision(MatmulPrecision::Bf16), before.clone());
                if !by(lanes, &mut out, left, right, accumulate) {
                    continue;
                }
                for (index, out) in out.iter().enumerate() {
                    let expected = expected[index] + if accumulate { before[index] } else { 0.0 };
                    let place = format!("{lanes}, {rows} x {inner} x {cols}, output {index}");
                    assert_eq!(out.to_bits(), expected.to_bits(), "{place}: {out} and {expected}");
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_whatever_the_other_rows_and_the_threads_are() {
        for (inner, cols) in [(576, 1536), (1536, 576), (71, 33), (64, 200)] {
            let (a, b) = (random(3, 300 * inner), random(4, inner * cols));
            let weight = MatRef::new(&b, cols, inner).transposed().in_precision(MatmulPrecision::Bf16);
            let mut panels = Panels::default();
            panels.pack_for(MatmulPrecision::Bf16, b[..].into(), cols, inner).unwrap();
            let mut whole = vec![0.0; 300 * cols];
            matmul(&mut whole, MatRef::new(&a, 300, inner), weight, false);
            for (first, rows) in [
                (0, 1),
                (5, 2),
                (7, 3),
                (8, 4),
                (100, 5),
                (9, 6),
                (31, 48),
                (31, 64),
                (17, 66),
                (17, 200),
                (0, 300),
            ] {
                let left = MatRef::new(&a[first * inner..(first + rows) * inner], rows, inner);
                let (mut part, mut alone) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
                matmul(&mut part, left, panels.transposed(), false);
                crate::parallel::alone(|| matmul(&mut alone, left, weight, false));
                let expected = &whole[first * cols..(first + rows) * cols];
                assert!(part == expected && alone == expected, "{rows} rows from {first}, inner {inner}");
            }
        }
    }

    #[test]
    fn one_call_multiplies_in_all_precisions() {
        let (inner, rows) = (40, random(1, 2 * 40));
        let weights = [33, 5, 64].map(|cols| (cols, random(cols as u64, cols * inner)));
        let mut quantized = Panels::default();
        quantized.quantize(MatRef::new(&weights[2].1, 64, inner).transposed()).unwrap();
        let of = |at: usize| MatRef::new(&weights[at].1, weights[at].0, inner).transposed();
        let rights = [of(0).in_precision(MatmulPrecision::Bf16), of(1), quantized.transposed()];
        let left = MatRef::new(&rows, 2, inner);
        let mut together = [33, 5, 64].map(|cols| vec![1.0; 2 * cols]);
        let mut alone = together.clone();
        let mut products: Vec<_> = together.iter_mut().map(Vec::as_mut_slice).zip(rights).collect();
        matmul_each(left, &mut products);
        alone.iter_mut().zip(rights).for_each(|(out, right)| matmul(out, left, right, false));
        assert_eq!(together, alone);
        let mut whole = vec![0.0; 66];
        matmul(&mut whole, left, of(0), false);
        assert_ne!(whole, alone[0]);
    }

    #[test]
    fn rounded_weights_quantize_as_their_numbers() {
        let (outputs, inputs) = (40, 45);
        let weight: Vec<f32> = random(1, outputs * inputs).into_iter().map(rounded).collect();
        let (mut panels, mut ours, mut theirs) = (Panels::default(), Panels::default(), Panels::default());
        let right = MatRef::new(&weight, outputs, inputs).transposed();
        panels.pack_for(MatmulPrecision::Bf16, weight[..].into(), outputs, inputs).unwrap();
        ours.quantize(panels.transposed()).unwrap();
        theirs.quantize(right.in_precision(MatmulPrecision::Bf16)).unwrap();
        let row = random(5, inputs);
        let product = |panels: &Panels| {
            let mut out = vec![0.0; outputs];
            matmul(&mut out, MatRef::new(&row, 1, inputs), panels.transposed(), false);
            out
        };
        assert_eq!(product(&ours), product(&theirs));
    }

    #[test]
    fn the_error_is_below_a_percent_of_the_outputs() {
        let (rows, inner, cols) = (16, 576, 256);
        let (a, b) = (random(1, rows * inner), random(2, inner * cols));
        let (left, right) = (MatRef::new(&a, rows, inner), MatRef::new(&b, cols, inner).transposed());
        let (mut exact, mut ours) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
        matmul(&mut exact, left, right, false);
        matmul(&mut ours, left, right.in_precision(MatmulPrecision::Bf16), false);
        let norm = |values: &mut dyn Iterator<Item = f32>| {
            values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
        };
        let error = norm(&mut ours.iter().zip(&exact).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
        assert!((0.0003..0.005).contains(&error), "{error}");
    }

    #[test]
    fn numbers_that_are_not_finite_reach_their_own_outputs_only() {
        let (inner, cols) = (64, 40);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut weight = random(1, inner * cols);
            weight[3 * inner + 40] = wrong;
            let right = MatRef::new(&weight, cols, inner).transposed().in_precision(MatmulPrecision::Bf16);
            let mut rows = random(2, 2 * inner);
            rows[inner + 5] = wrong;
            for lanes in LANES {
                let mut out = vec![0.0; 2 * cols];
                if by(lanes, &mut out, MatRef::new(&rows, 2, inner), right, false) {
                    for (index, out) in out.iter().enumerate() {
                        let is_reached = index >= cols || index == 3;
                        assert_eq!(!out.is_finite(), is_reached, "{lanes}, {wrong}, output {index}: {out}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_round_to_the_nearest_bfloat16_and_small_ones_to_zero() {
        let mut from: Vec<f32> = random_words(1, 1 << 16).into_iter().map(f32::from_bits).collect();
        from.extend([0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-40, -1.1754942e-38, f32::NAN, f32::INFINITY]);
        let mut words = vec![0.0; num_words(from.len())];
        adjacent(&from, &mut words);
        for (index, value) in from.iter().enumerate() {
            let half = words[index / 2].to_bits() >> (index % 2 * 16) & 0xffff;
            let (found, expected) = (f32::from_bits(half << 16), rounded(*value));
            let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(is_same, "{value:e}: {found:e} and {expected:e}");
        }
        let (lower, upper) = from.split_at(from.len() / 2);
        let mut apart = vec![0.0; lower.len()];
        interleaved(lower, Some(upper), &mut apart);
        for (index, word) in apart.iter().enumerate() {
            assert_eq!(word.to_bits(), super::word(lower[index], upper[index]).to_bits(), "word {index}");
        }
    }

    fn random_words(seed: u64, len: usize) -> Vec<u32> {
        let mut rng = fulmar_core::Rng::new(seed);
        (0..len).map(|_| rng.next_u64() as u32).collect()
    }

    /// Sums and two words each: numbers of which products and sums are normal, near the smallest normal number, or near
    /// the largest; and any bits. None is between 0 and the smallest normal number, as none is in a product.
    fn extremes() -> Vec<[f32; 3]> {
        let exponents =
            [(120, 14, 120, 14), (0, 30, 40, 40), (0, 3, 0, 130), (250, 5, 185, 10), (1, 1, 40, 25)];
        let mut cases = Vec::new();
        for (kind, (first, span, of_halves, span_of_halves)) in (0..).zip(exponents) {
            for bits in random_words(kind, 5 * 4096).as_chunks::<5>().0 {
                let half = |bits: u32| bits & 0x807f | (of_halves + (bits >> 20) % span_of_halves) << 7;
                let mantissa = bits[0] & if span == 1 { 0x8000_0003 } else { 0x807f_ffff };
                let sum = mantissa | (first + bits[0] % span) << 23;
                cases.push([sum, half(bits[1]) | half(bits[2]) << 16, half(bits[3]) | half(bits[4]) << 16]);
            }
        }
        cases.extend(random_words(9, 3 * 4096).as_chunks::<3>().0);
        let half = |bits: u32| if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits };
        let word = |bits: u32| half(bits & 0xffff) | half(bits >> 16) << 16;
        let sum = |bits: u32| if bits & 0x7f80_0000 == 0 { bits & 1 << 31 } else { bits };
        cases.into_iter().map(|[bits, x, w]| [sum(bits), word(x), word(w)].map(f32::from_bits)).collect()
    }

    #[test]
    fn all_instructions_add_pairs_by_the_definition_near_zero_and_near_the_largest_numbers() {
        let mut small = 0;
        let cases = extremes();
        for cases in cases.chunks_exact(16) {
            let [sums, xs, ws] =
                [0, 1, 2].map(|at| std::array::from_fn::<f32, 16, _>(|lane| cases[lane][at]));
            let expected: [f32; 16] = std::array::from_fn(|lane| add_pair(xs[lane], ws[lane], sums[lane]));
            small += expected.iter().filter(|sum| sum.abs() == f32::MIN_POSITIVE).count();
            for lanes in LANES {
                let Some(found) = add_pairs_by(lanes, xs, ws, sums) else { continue };
                for lane in 0..16 {
                    let (found, expected, of) = (found[lane], expected[lane], cases[lane].map(f32::to_bits));
                    let is_same =
                        found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                    assert!(is_same, "{lanes}, {of:08x?}: {found:e} and {expected:e}");
                }
            }
        }
        assert!(small > 100, "sums of the smallest normal number are among the cases: {small}");
    }

    /// Adds pairs by the instructions of one kind, if this processor has them.
    fn add_pairs_by(lanes: &str, x: [f32; 16], w: [f32; 16], sum: [f32; 16]) -> Option<[f32; 16]> {
        fn run<V: super::super::tile::Vector>(x: [f32; 16], w: [f32; 16], mut sum: [f32; 16]) -> [f32; 16] {
            for at in (0..16).step_by(V::LANES) {
                // SAFETY: the caller checked the instructions, and 16 is a multiple of the lanes.
                unsafe {
                    let sums = V::load(sum[at..].as_ptr());
                    V::load(x[at..].as_ptr())
                        .multiply_add(V::load(w[at..].as_ptr()), sums)
                        .store(sum[at..].as_mut_ptr());
                }
            }
            sum
        }
        #[cfg(target_arch = "x86_64")]
        use std::arch::is_x86_feature_detected as has;
        match lanes {
            #[cfg(target_arch = "x86_64")]
            "avx512" if has!("avx512f") && has!("avx512bf16") => Some(run::<lanes::avx512::Of>(x, w, sum)),
            #[cfg(target_arch = "x86_64")]
            "avx2" if has!("avx2") && has!("fma") => Some(run::<lanes::avx2::Of>(x, w, sum)),
            "portable" => Some(run::<lanes::portable::Of>(x, w, sum)),
            _ => None,
        }
    }
}
