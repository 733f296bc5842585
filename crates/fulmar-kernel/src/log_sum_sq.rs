//! The logarithm of the sum of squared probabilities of a row of logits, a measure of its confidence.
//!
//! ```text
//! ln sum_v p[v]^2 = ln sum_v e^(2 (x[v] - m)) - 2 ln sum_v e^(x[v] - m)        m = max_v x[v]
//! ```
//! WPO (<https://arxiv.org/abs/2406.11827>) divides a sequence's likelihood by it.

use crate::lanes::{SOFTMAX_FLOOR, WIDTH, lanes, max_of, padded, softmax_exp, sum_lanes};
use crate::log_prob::BLOCK;
use crate::parallel::{map_tasks, rows_per_task};

/// Returns the logarithm of the sum of the squares of the probabilities of the softmax of `logits_v`, in
/// `[-ln V, 0]`. NaN if a logit is NaN or all are `-inf`.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_kernel::log_sum_sq_prob_row(&[0.0, 0.0]), -2_f32.ln());
/// assert_eq!(fulmar_kernel::log_sum_sq_prob_row(&[0.0, f32::NEG_INFINITY]), 0.0);
/// ```
#[must_use]
pub fn log_sum_sq_prob_row(logits_v: &[f32]) -> f32 {
    let max = max_of(logits_v);
    if max == f32::NEG_INFINITY {
        return f32::NAN;
    }
    let (sum, squares) = exp_and_square_sums(logits_v, max);
    let found = libm::log(squares) - 2.0 * libm::log(sum);
    if found > 0.0 { 0.0 } else { found as f32 }
}

/// Runs [`log_sum_sq_prob_row`] for each row of `logits_nv`, rows of `vocab`, on all cores.
///
/// # Panics
/// If the logits are not whole rows.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_kernel::log_sum_sq_prob_rows(&[7.0, 7.0, 0.0, f32::NEG_INFINITY], 2), [-2_f32.ln(), 0.0]);
/// ```
#[must_use]
pub fn log_sum_sq_prob_rows(logits_nv: &[f32], vocab: usize) -> Vec<f32> {
    let num_rows = logits_nv.len() / vocab.max(1);
    assert_eq!(num_rows * vocab, logits_nv.len(), "logits must hold whole rows");
    let per_task = rows_per_task(vocab);
    let tasks = map_tasks(num_rows.div_ceil(per_task), |task| {
        let rows = task * per_task..((task + 1) * per_task).min(num_rows);
        rows.map(|row| log_sum_sq_prob_row(&logits_nv[row * vocab..][..vocab])).collect::<Vec<_>>()
    });
    tasks.concat()
}

lanes! {
    /// Returns `(sum e^(x - max), sum e^(2 (x - max)))`.
    fn exp_and_square_sums(x: &[f32], max: f32) -> (f64, f64) {
        let (mut total, mut squares_total) = (0.0_f64, 0.0_f64);
        for block in x.chunks(BLOCK) {
            let (mut sums, mut squares) = ([0.0_f32; WIDTH], [0.0_f32; WIDTH]);
            let mut add = |xs: &[f32; WIDTH]| {
                for lane in 0..WIDTH {
                    let shifted = xs[lane] - max;
                    // `max` would hide a NaN.
                    let shifted = if shifted < SOFTMAX_FLOOR { SOFTMAX_FLOOR } else { shifted };
                    let e = softmax_exp(shifted);
                    sums[lane] += e;
                    squares[lane] += e * e;
                }
            };
            let (whole, rest) = block.as_chunks::<WIDTH>();
            whole.iter().for_each(&mut add);
            if !rest.is_empty() {
                add(&padded(rest));
            }
            total += f64::from(sum_lanes(sums));
            squares_total += f64::from(sum_lanes(squares));
        }
        (total, squares_total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    fn exact(x: &[f32]) -> f64 {
        let max = x.iter().fold(f64::NEG_INFINITY, |max, x| max.max(f64::from(*x)));
        let e: Vec<f64> = x.iter().map(|x| (f64::from(*x) - max).exp()).collect();
        let sum = e.iter().sum::<f64>();
        e.iter().map(|e| (e / sum).powi(2)).sum::<f64>().ln()
    }

    #[test]
    fn it_equals_double_precision() {
        for (seed, len, heat) in
            [(1, 1, 1.0), (2, 17, 4.0), (3, 97, 0.1), (4, 10_000, 3.0), (5, 3 * BLOCK + 5, 12.0)]
        {
            let logits: Vec<f32> = random(seed, len).iter().map(|x| x * heat).collect();
            let (found, wanted) = (f64::from(log_sum_sq_prob_row(&logits)), exact(&logits));
            assert!((found - wanted).abs() < 2e-6 * wanted.abs().max(1.0), "{len}: {found} {wanted}");
        }
    }

    #[test]
    fn rows_are_those_of_single_ones() {
        let logits = random(6, 37 * 1001);
        let rows: Vec<f32> = logits.chunks(1001).map(log_sum_sq_prob_row).collect();
        assert_eq!(log_sum_sq_prob_rows(&logits, 1001), rows);
        assert!(log_sum_sq_prob_rows(&[], 0).is_empty());
    }

    #[test]
    fn a_row_that_is_no_distribution_says_so() {
        let mut logits = random(7, BLOCK + 21);
        for place in [0, 5, BLOCK + 20] {
            let before = std::mem::replace(&mut logits[place], f32::NAN);
            assert!(log_sum_sq_prob_row(&logits).is_nan(), "{place}");
            logits[place] = before;
        }
        assert!(log_sum_sq_prob_row(&[f32::NEG_INFINITY; 3]).is_nan());
        assert!(log_sum_sq_prob_row(&[0.0, f32::INFINITY]).is_nan());
    }
}
