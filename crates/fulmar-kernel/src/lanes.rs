//! Vector lanes: one body of plain Rust, compiled for the baseline, for AVX2 and for AVX-512, chosen at run time.
//!
//! All versions do the same operations in the same order (sums run over [`WIDTH`] accumulators, and Rust never
//! fuses a multiply with an add), so their results are equal to the bit. On wasm32 the baseline is SIMD128.

/// Accumulators of every reduction: one AVX-512 register, two of AVX2, four of SSE2 or SIMD128.
pub(crate) const WIDTH: usize = 16;

/// Defines a function whose body is compiled for the baseline, for AVX2 and for AVX-512, and which calls the
/// widest version that the processor supports. It may have one type parameter.
///
/// # Examples
/// ```
/// fulmar_kernel::lanes! {
///     fn double(values: &mut [f32]) {
///         for value in values {
///             *value *= 2.0;
///         }
///     }
/// }
/// let mut values = [1.0, 2.0];
/// double(&mut values);
/// assert_eq!(values, [2.0, 4.0]);
/// ```
#[macro_export]
macro_rules! lanes {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$generic:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$generic: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable $(<$generic: $bound>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected as has;
                #[target_feature(enable = "avx512bw,avx512dq,avx512vl,popcnt")]
                fn avx512 $(<$generic: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                #[target_feature(enable = "avx2,popcnt")]
                fn avx2 $(<$generic: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                // Every processor with AVX2 also has popcnt.
                if has!("popcnt") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    // SAFETY: the check above saw that this processor has the instructions.
                    return unsafe { avx512($($arg),*) };
                }
                if has!("popcnt") && has!("avx2") {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    };
}
pub(crate) use lanes;

/// Prefetches the memory of `items[index]`, so that it arrives while other work runs. Does nothing if there
/// is no such item or no such instruction.
#[inline(always)]
pub fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program sees, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(items.as_ptr().wrapping_add(index).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}

/// Returns the vector instructions in use on this machine: `avx512`, `avx2`, `sse2`, `neon`, `simd128` or `scalar`.
#[must_use]
pub fn active_lanes() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    use std::arch::is_x86_feature_detected as has;
    #[cfg(target_arch = "x86_64")]
    return match has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
        true => "avx512",
        false if has!("avx2") => "avx2",
        false => "sse2",
    };
    #[cfg(target_arch = "aarch64")]
    return "neon";
    #[cfg(all(target_family = "wasm", target_feature = "simd128"))]
    return "simd128";
    #[cfg(not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        all(target_family = "wasm", target_feature = "simd128")
    )))]
    return "scalar";
}

/// `e^x` within 2 units in the last place; exactly 0 below -87.3 (so for `-inf`), finite up to 88.3, `inf` above.
///
/// The range is reduced by `x = n ln 2 + r` with a two-part ln 2, then a polynomial of degree 6 on `|r| <= ln 2 / 2`
/// (the Cephes library's coefficients). No branch depends on the value, so loops over it vectorise.
#[must_use]
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    let clamped = x.clamp(-87.3, 88.37);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND; // its lowest bits are the integer
    let n = shifted - ROUND;
    let r = (clamped - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut poly = 1.987_569_1e-4_f32;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        poly = poly * r + coefficient;
    }
    let mantissa = poly * (r * r) + r + 1.0;
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1; // 2^n in two factors, because 2^128 is not a float
    let value = mantissa * power_of_two(half) * power_of_two(n - half);
    let value = if x < -87.3 { 0.0 } else { value };
    if x > 88.37 { f32::INFINITY } else { value }
}

/// Numbers below it are raised to it before [`softmax_exp`], where it gives 0.
pub(crate) const SOFTMAX_FLOOR: f32 = -88.0;

/// [`exp`] for `x` from [`SOFTMAX_FLOOR`] to 0, in two thirds of its steps, for softmax. The same bits down
/// to -87.3, exactly 0 from -87.7 on.
#[must_use]
#[inline(always)]
pub(crate) fn softmax_exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND; // its lowest bits are the integer
    let n = shifted - ROUND;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut poly = 1.987_569_1e-4_f32;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        poly = poly * r + coefficient;
    }
    let mantissa = poly * (r * r) + r + 1.0;
    mantissa * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n as u32).wrapping_add(127) << 23)
}

/// Returns the sum of `a[i] * b[i]`.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; WIDTH];
    let (a_chunks, b_chunks) = (a.chunks_exact(WIDTH), b.chunks_exact(WIDTH));
    for (lane, (x, y)) in a_chunks.remainder().iter().zip(b_chunks.remainder()).enumerate() {
        sums[lane] = x * y;
    }
    for (xs, ys) in a_chunks.zip(b_chunks) {
        for lane in 0..WIDTH {
            sums[lane] += xs[lane] * ys[lane];
        }
    }
    sum_lanes(sums)
}

/// Returns the sum over the lanes of an accumulator, halves added to halves.
#[inline(always)]
pub(crate) fn sum_lanes(mut sums: [f32; WIDTH]) -> f32 {
    let mut width = WIDTH / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// Returns the largest number; `-inf` for an empty slice.
#[inline(always)]
pub(crate) fn max_of(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<WIDTH>();
    let mut max = padded(rest);
    for xs in whole {
        for lane in 0..WIDTH {
            max[lane] = if xs[lane] > max[lane] { xs[lane] } else { max[lane] };
        }
    }
    max.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Pads the remaining numbers to full lanes with values of weight 0.
#[inline(always)]
pub(crate) fn padded(rest: &[f32]) -> [f32; WIDTH] {
    let mut padded = [f32::NEG_INFINITY; WIDTH];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_the_exact_value() {
        let mut worst = 0.0_f64;
        for step in 0..2_000_000 {
            let x = -87.0 + step as f32 * (175.0 / 2_000_000.0);
            let exact = f64::from(x).exp();
            worst = worst.max(((f64::from(exp(x)) - exact) / exact).abs());
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "largest relative error {worst}");
        assert_eq!((exp(f32::NEG_INFINITY), exp(-1000.0), exp(0.0)), (0.0, 0.0, 1.0));
        assert_eq!((exp(100.0), exp(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_exponential_of_a_softmax_has_the_bits_of_the_other_one() {
        for step in 0..2_000_000 {
            let x = step as f32 * -4.3e-5;
            assert_eq!(softmax_exp(x).to_bits(), exp(x).to_bits(), "{x}");
        }
        assert_eq!([softmax_exp(SOFTMAX_FLOOR), softmax_exp(-87.7), softmax_exp(-0.0)], [0.0, 0.0, 1.0]);
    }

    /// The AVX2 version, which a machine with AVX-512 does not run otherwise.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn avx2_exp_and_dot(x: &[f32], out: &mut [f32]) -> f32 {
        for (out, x) in out.iter_mut().zip(x) {
            *out = exp(*x);
        }
        dot(x, out)
    }

    lanes! {
        fn dispatched_exp_and_dot(x: &[f32], out: &mut [f32]) -> f32 {
            for (out, x) in out.iter_mut().zip(x) {
                *out = exp(*x);
            }
            dot(x, out)
        }
    }

    #[test]
    fn every_vector_version_equals_the_portable_one_to_the_bit() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32 * 0.37).sin() * 60.0).collect();
        let exact: Vec<f32> = x.iter().map(|x| exp(*x)).collect();
        let check = |lanes: &str, version: &dyn Fn(&[f32], &mut [f32]) -> f32| {
            let mut out = vec![0.0; x.len()];
            let sum = version(&x, &mut out);
            assert!(exact.iter().zip(&out).all(|(exact, out)| exact.to_bits() == out.to_bits()), "{lanes}");
            assert_eq!(sum.to_bits(), dot(&x, &exact).to_bits(), "{lanes}");
        };
        check(active_lanes(), &dispatched_exp_and_dot);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt") {
            // SAFETY: the check above saw that this processor has both.
            check("avx2", &|x, out| unsafe { avx2_exp_and_dot(x, out) });
        }
    }

    #[test]
    fn dot_equals_the_sum_in_double_precision() {
        for len in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..len).map(|i| (i as f32).cos()).collect();
            let b: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin()).collect();
            let exact: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(dot(&a, &b)) - exact).abs() < 1e-5);
        }
    }
}
