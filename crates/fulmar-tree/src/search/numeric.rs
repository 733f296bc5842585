//! Sums over actions, with the same bits on every processor and in WebAssembly: no sum is fused, and each has a fixed order.

use fulmar_core::Rng;

const LANES: usize = 8;

/// Adds numbers over eight accumulators.
pub(crate) fn sum(numbers: &[f32]) -> f32 {
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, number)| *lane += number);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    rest.iter().fold(((a + e) + (b + f)) + ((c + g) + (d + h)), |sum, number| sum + number)
}

pub(crate) fn max(numbers: &[f32]) -> f32 {
    numbers.iter().fold(f32::NEG_INFINITY, |max, number| if *number > max { *number } else { max })
}

pub(crate) fn min(numbers: &[f32]) -> f32 {
    numbers.iter().fold(f32::INFINITY, |min, number| if *number < min { *number } else { min })
}

/// Returns the position of the largest number, the first of equal ones.
pub(crate) fn argmax(numbers: &[f32]) -> usize {
    let mut best = 0;
    for (at, number) in numbers.iter().enumerate() {
        if *number > numbers[best] {
            best = at;
        }
    }
    best
}

/// Writes the softmax of `logits`; equal probabilities if no logit is finite.
pub(crate) fn softmax(logits: &[f32], out: &mut [f32]) {
    let largest = max(logits);
    if largest == f32::NEG_INFINITY {
        out.fill(1.0 / out.len() as f32);
        return;
    }
    out.iter_mut().zip(logits).for_each(|(out, logit)| *out = exp(*logit - largest));
    let factor = 1.0 / sum(out);
    out.iter_mut().for_each(|out| *out *= factor);
}

/// Returns e^x for x <= 0, to 2 units in the last place; 0 below -87.
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let exponent = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = exponent - ROUND;
    // ln 2 in two parts, the first of which is exact in a product with a small whole number.
    let rest = (clamped - whole * 0.693_359_4) - whole * -2.121_944_4e-4;
    let mut series = 1.987_569_1e-4 * rest + 1.398_199_9e-3;
    series = series * rest + 8.333_452e-3;
    series = series * rest + 4.166_579_6e-2;
    series = series * rest + 1.666_666_5e-1;
    series = series * rest + 0.5;
    let value = series * (rest * rest) + rest + 1.0;
    let scale = f32::from_bits((whole as i32 + 127).cast_unsigned() << 23);
    if x > -87.0 { value * scale } else { 0.0 }
}

/// Draws a standard Gumbel number.
pub(crate) fn gumbel(rng: &mut Rng) -> f32 {
    let uniform = rng.uniform_f64().max(f64::MIN_POSITIVE);
    -libm::log(-libm::log(uniform)) as f32
}

/// Draws from the Dirichlet distribution of equal concentrations.
pub(crate) fn dirichlet(rng: &mut Rng, alpha: f64, out: &mut [f32]) {
    // In logarithms: for a small concentration most Gamma draws are 0 as doubles.
    let logs: Vec<f64> = out.iter().map(|_| log_gamma_draw(rng, alpha)).collect();
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| libm::exp(log - largest)).collect();
    let total: f64 = weights.iter().sum();
    out.iter_mut().zip(weights).for_each(|(out, weight)| *out = (weight / total) as f32);
}

/// Draws the logarithm of a Gamma number (Marsaglia and Tsang, <https://doi.org/10.1145/358407.358414>; below 1 by a power of a uniform
/// number).
fn log_gamma_draw(rng: &mut Rng, alpha: f64) -> f64 {
    if alpha < 1.0 {
        let uniform = rng.uniform_f64().max(f64::MIN_POSITIVE);
        return log_gamma_draw(rng, alpha + 1.0) + libm::log(uniform) / alpha;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = rng.normal();
        let base = 1.0 + c * normal;
        if base <= 0.0 {
            continue;
        }
        let cube = base * base * base;
        let uniform = rng.uniform_f64().max(f64::MIN_POSITIVE);
        if libm::log(uniform) < 0.5 * normal * normal + d - d * cube + d * libm::log(cube) {
            return libm::log(d * cube);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_doubles() {
        for step in 0..200_000 {
            let x = -step as f32 * 4.3e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error}");
        }
        assert_eq!((exp(-88.0), exp(f32::NEG_INFINITY), exp(0.0)), (0.0, 0.0, 1.0));
    }

    #[test]
    fn a_softmax_without_finite_logits_is_uniform() {
        let mut out = [0.0; 2];
        softmax(&[f32::NEG_INFINITY; 2], &mut out);
        assert_eq!(out, [0.5; 2]);
    }

    #[test]
    fn dirichlet_draws_have_the_mean_and_the_variance_of_the_distribution() {
        for alpha in [0.03, 0.3, 1.0, 4.0] {
            let mut rng = Rng::new(4);
            let (mut mean, mut square) = (0.0, 0.0);
            let mut draw = [0.0; 3];
            for _ in 0..20_000 {
                dirichlet(&mut rng, alpha, &mut draw);
                assert!((sum(&draw) - 1.0).abs() < 1e-5);
                mean += f64::from(draw[0]) / 20_000.0;
                square += f64::from(draw[0]).powi(2) / 20_000.0;
            }
            let variance = (1.0 / 3.0) * (2.0 / 3.0) / (3.0 * alpha + 1.0);
            assert!((mean - 1.0 / 3.0).abs() < 0.012, "alpha {alpha}: mean {mean}");
            assert!((square - mean * mean - variance).abs() < 0.008, "alpha {alpha}: variance {variance}");
        }
    }
}
