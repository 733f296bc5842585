//! Powers of floats, the same bits on every target and fast in vector lanes.

use crate::lanes::lanes;

lanes! {
    /// Replaces each value by its [`power`].
    pub fn power_each(values: &mut [f32], exponent: f32) {
        for value in values {
            *value = power(*value, exponent);
        }
    }
}

/// Returns `base^exponent` for a finite exponent, within 0.5001 units in the last place; NaN for a base below
/// 0, unless the exponent is 0.
///
/// In doubles: `base = 2^k m` with `m` in `[sqrt 1/2, sqrt 2)`, `log2 m` by its series in `s = (m - 1) / (m +
/// 1)`, then `2^t` for `t = exponent (k + log2 m)` as a power of two times the Taylor series of `2^r`, `|r|
/// <= 1/2`. Both series end where the remainder is below 1e-13. No branch depends on the base, so loops over
/// it vectorise.
#[must_use]
#[inline(always)]
pub fn power(base: f32, exponent: f32) -> f32 {
    const ONE: u64 = 1.0_f64.to_bits();
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2^52: from here on to 2^53, doubles are the integers
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52: adding it rounds to an integer, of either sign
    let bits = f64::from(base).to_bits();
    let biased = bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()).wrapping_add(ONE) >> 52;
    let k = f64::from_bits(INTEGERS.to_bits() | biased) - (INTEGERS + 1023.0);
    let m = f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(ONE));
    let s = (m - 1.0) / (m + 1.0);
    let log2 = k + s * series(&LOG2, s * s);

    let t = (f64::from(exponent) * log2).clamp(-200.0, 200.0); // beyond both ends of f32
    let shifted = t + ROUND;
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    let value = (series(&EXP2, t - (shifted - ROUND)) * scale) as f32;

    let outside = if base >= 0.0 {
        if (base == 0.0) == (exponent > 0.0) { 0.0 } else { f32::INFINITY }
    } else {
        f32::NAN
    };
    let value = if base > 0.0 && base < f32::INFINITY { value } else { outside };
    if exponent == 0.0 { 1.0 } else { value }
}

/// `log2 m / s` by powers of `s^2`: `2 / ln 2 / (2 i + 1)`.
const LOG2: [f64; 8] = {
    let mut terms = [0.0; 8];
    let mut i = 0;
    while i < terms.len() {
        terms[i] = 2.0 * std::f64::consts::LOG2_E / (2 * i + 1) as f64;
        i += 1;
    }
    terms
};

/// `2^r` by powers of `r`: `(ln 2)^i / i!`.
const EXP2: [f64; 12] = {
    let mut terms = [1.0; 12];
    let mut i = 1;
    while i < terms.len() {
        terms[i] = terms[i - 1] * std::f64::consts::LN_2 / i as f64;
        i += 1;
    }
    terms
};

#[inline(always)]
fn series<const N: usize>(terms: &[f64; N], x: f64) -> f64 {
    let mut sum = terms[N - 1];
    for term in terms[..N - 1].iter().rev() {
        sum = sum * x + term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the distance from the exact value in units of its last place.
    fn distance(got: f32, exact: f64) -> f64 {
        let unit = f64::from(f32::from_bits(got.to_bits() + 1)) - f64::from(got);
        ((f64::from(got) - exact) / unit).abs()
    }

    #[test]
    fn powers_are_within_their_bound_of_the_exact_ones() {
        let mut worst = 0.0_f64;
        let mut bits = 0x1234_5678_u32;
        for step in 0..2_000_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let base = f32::from_bits(bits >> 1);
            let exponent = [0.6, -0.4, -0.9, 0.7, 0.5, 1.0, 2.0, -1.0, 0.01, 33.0][step % 10];
            let exact = libm::pow(f64::from(base), f64::from(exponent));
            if base.is_finite() && (f64::from(f32::MIN_POSITIVE)..f64::from(f32::MAX)).contains(&exact) {
                worst = worst.max(distance(power(base, exponent), exact));
            }
        }
        assert!(worst < 0.5001, "largest distance {worst}");
    }

    #[test]
    fn powers_near_one_and_at_both_ends_of_the_floats_are_exact() {
        for exponent in [0.3_f32, 1.0, -0.7, 2.0] {
            for base in [
                1.0_f32,
                1.0 + f32::EPSILON,
                1.0 - f32::EPSILON / 2.0,
                f32::MIN_POSITIVE,
                f32::from_bits(1),
                f32::MAX,
            ] {
                let exact = libm::pow(f64::from(base), f64::from(exponent)) as f32;
                assert_eq!(power(base, exponent), exact, "{base}^{exponent}");
            }
        }
    }

    #[test]
    fn edges_are_those_of_the_standard() {
        for base in [0.0, 0.5, 1.0, 7.0, f32::INFINITY, f32::NAN, -2.0] {
            assert_eq!(power(base, 0.0), 1.0);
        }
        assert_eq!((power(0.0, 0.5), power(-0.0, 2.0), power(f32::INFINITY, -0.1)), (0.0, 0.0, 0.0));
        assert_eq!((power(0.0, -0.5), power(f32::INFINITY, 3.0)), (f32::INFINITY, f32::INFINITY));
        assert_eq!(
            (power(1e30, 2.0), power(1e30, -2.0), power(1e-30, -2.0)),
            (f32::INFINITY, 0.0, f32::INFINITY)
        );
        assert!(power(-1.0, 0.5).is_nan() && power(f32::NAN, 1.0).is_nan());
    }

    #[test]
    fn the_vector_version_equals_the_portable_one_to_the_bit() {
        let bases: Vec<f32> = (0..1003_u32).map(|i| f32::from_bits(i.wrapping_mul(4_278_190))).collect();
        for exponent in [0.6, -0.4, 0.0, 1.0] {
            let mut powers = bases.clone();
            power_each(&mut powers, exponent);
            assert!(
                bases
                    .iter()
                    .zip(&powers)
                    .all(|(base, got)| power(*base, exponent).to_bits() == got.to_bits())
            );
        }
    }
}
