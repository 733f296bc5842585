//! Log-probabilities of chosen ids from rows of logits, with entropy and gradient.
//!
//! ```text
//! log p(id) = x[id] - m - ln S        m = max_v x[v],  S = sum_v e^(x[v] - m)
//! H         = ln S - sum_v e^(x[v] - m) (x[v] - m) / S
//! d log p(id) / d x[v] = 1[v = id] - p[v]
//! d H         / d x[v] = -p[v] (ln p[v] + H)
//! ```
//! The sampler and the trainer both call [`log_prob_row`], so their log-probs agree to the bit.

use crate::lanes::{SOFTMAX_FLOOR, WIDTH, lanes, max_of, padded, softmax_exp, sum_lanes};
use crate::parallel::{for_rows, map_tasks, rows_per_task};
use crate::top_k::top_k;

/// Logits that are summed in single precision before their sum is added in double precision; a block stays in
/// the first cache for both loops.
pub(crate) const BLOCK: usize = 4096;

/// Log-probability of one id in a row of logits, with the row's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LogProb {
    /// Natural logarithm of the id's probability, <= 0.
    pub log_prob: f32,
    /// Entropy of the row's distribution in nats, in `[0, ln V]`.
    pub entropy: f32,
    /// The largest logit of the row.
    pub max: f32,
    /// `ln sum_v e^(x[v] - max)`, in `[0, ln V]`: `p[v] = e^(x[v] - max - log_sum)`. Stored apart from the
    /// maximum, as their sum in single precision would lose the differences of large logits.
    pub log_sum: f64,
}

impl LogProb {
    /// Returns whether the row is a distribution: no NaN, no `+inf`, and not `-inf` alone.
    #[must_use]
    pub fn is_distribution(&self) -> bool {
        self.max.is_finite() && self.log_sum.is_finite()
    }
}

/// Returns the log-probability of `id` under the softmax of `logits_v`. A logit of `-inf` has probability 0;
/// a row with a NaN or with nothing but `-inf` is not a distribution, see [`LogProb::is_distribution`].
///
/// # Panics
/// If `id` is not below the number of logits.
///
/// # Examples
/// ```
/// let row = fulmar_kernel::log_prob_row(&[0.0, 0.0, 0.0, 0.0], 2);
/// assert!((row.log_prob + 4_f32.ln()).abs() < 1e-6);
/// assert!((row.entropy - 4_f32.ln()).abs() < 1e-6);
/// ```
#[must_use]
pub fn log_prob_row(logits_v: &[f32], id: usize) -> LogProb {
    let row = Softmax::of(logits_v);
    LogProb { log_prob: row.log_prob(logits_v[id]), entropy: row.entropy, max: row.max, log_sum: row.log_sum }
}

/// Returns the entropy of the softmax of `logits_v` in nats, in `[0, ln V]`: the same bits as [`LogProb::entropy`].
///
/// # Examples
/// ```
/// assert!((fulmar_kernel::entropy_row(&[0.0, 0.0]) - 2_f32.ln()).abs() < 1e-6);
/// assert_eq!(fulmar_kernel::entropy_row(&[0.0, f32::NEG_INFINITY]), 0.0);
/// ```
#[must_use]
pub fn entropy_row(logits_v: &[f32]) -> f32 {
    Softmax::of(logits_v).entropy
}

/// Returns the `k` likeliest ids and their log-probabilities, the likeliest first and of equals the lower id
/// first; all if there are no more than `k`. The same bits as [`log_prob_row`] gives for each. O(V + k log
/// k).
///
/// # Examples
/// ```
/// let top = fulmar_kernel::top_k_log_probs(&[f32::NEG_INFINITY, 1.0, 1.0], 2);
/// assert_eq!(top, [(1, -std::f32::consts::LN_2), (2, -std::f32::consts::LN_2)]);
/// ```
#[must_use]
pub fn top_k_log_probs(logits_v: &[f32], k: usize) -> Vec<(u32, f32)> {
    if k == 0 {
        return Vec::new();
    }
    let row = Softmax::of(logits_v);
    top_k(logits_v, k).into_iter().map(|id| (id, row.log_prob(logits_v[id as usize]))).collect()
}

/// Returns the mean cross-entropy of `ids_n` under rows of `logits_nv`, and its gradient written over the logits.
///
/// `-mean_n log p(ids[n])`, in nats; 0 for no rows.
///
/// # Panics
/// If `logits_nv` is not `ids_n.len()` rows of equal length or an id is not below that length.
///
/// # Examples
/// ```
/// let mut logits = [0.0, 0.0];
/// assert!((fulmar_kernel::cross_entropy(&mut logits, &[1]) - 2_f64.ln()).abs() < 1e-6);
/// assert_eq!(logits, [0.5, -0.5]);
/// ```
pub fn cross_entropy(logits_nv: &mut [f32], ids_n: &[u32]) -> f64 {
    if ids_n.is_empty() {
        return 0.0;
    }
    let vocab = logits_nv.len() / ids_n.len();
    assert_eq!(vocab * ids_n.len(), logits_nv.len(), "logits must hold one row an id");
    let scale = -1.0 / ids_n.len() as f32;
    let mut total = 0.0;
    for (row, &id) in logits_nv.chunks_exact_mut(vocab).zip(ids_n) {
        let found = log_prob_row(row, id as usize);
        total -= f64::from(found.log_prob);
        log_prob_backward_row(row, id as usize, found, scale, 0.0);
    }
    total / ids_n.len() as f64
}

/// Overwrites `logits_v` with the gradient of `d_log_prob * log p(id) + d_entropy * H`.
///
/// `found` is the result of [`log_prob_row`] for the same row.
pub fn log_prob_backward_row(
    logits_v: &mut [f32],
    id: usize,
    found: LogProb,
    d_log_prob: f32,
    d_entropy: f32,
) {
    let of_row =
        RowSums { max: found.max, log_sum: found.log_sum as f32, inverse: libm::exp(-found.log_sum) as f32 };
    backward_row(logits_v, of_row, found.entropy, d_log_prob, d_entropy);
    logits_v[id] += d_log_prob;
}

/// Runs [`log_prob_row`] for each row of `logits_nv`, on all cores.
///
/// # Panics
/// If `logits_nv` is not `ids_n.len()` rows of equal length or an id is not below that length.
///
/// # Examples
/// ```
/// let rows = fulmar_kernel::log_prob_rows(&[0.0, 0.0, 1.0, 0.0], &[1, 0]);
/// assert!(rows[1].log_prob > rows[0].log_prob);
/// ```
#[must_use]
pub fn log_prob_rows(logits_nv: &[f32], ids_n: &[u32]) -> Vec<LogProb> {
    let vocab = logits_nv.len() / ids_n.len().max(1);
    assert_eq!(vocab * ids_n.len(), logits_nv.len(), "logits must hold one row an id");
    let per_task = rows_per_task(vocab);
    let tasks = map_tasks(ids_n.len().div_ceil(per_task), |task| {
        let rows = task * per_task..((task + 1) * per_task).min(ids_n.len());
        rows.map(|row| log_prob_row(&logits_nv[row * vocab..][..vocab], ids_n[row] as usize))
            .collect::<Vec<_>>()
    });
    tasks.concat()
}

/// Runs [`log_prob_backward_row`] for each row of `logits_nv`, on all cores.
///
/// # Panics
/// If the slices do not hold one entry, or one row, an id.
pub fn log_prob_backward_rows(
    logits_nv: &mut [f32],
    ids_n: &[u32],
    found_n: &[LogProb],
    d_log_prob_n: &[f32],
    d_entropy_n: Option<&[f32]>,
) {
    let vocab = logits_nv.len() / ids_n.len().max(1);
    assert_eq!(vocab * ids_n.len(), logits_nv.len(), "logits must hold one row an id");
    for_rows(logits_nv, vocab, |first, rows| {
        for (row, logits_v) in (first..).zip(rows.chunks_exact_mut(vocab)) {
            let d_entropy = d_entropy_n.map_or(0.0, |d_entropy_n| d_entropy_n[row]);
            log_prob_backward_row(logits_v, ids_n[row] as usize, found_n[row], d_log_prob_n[row], d_entropy);
        }
    });
}

/// Overwrites `logits_v` with its softmax.
///
/// # Examples
/// ```
/// let mut row = [1.0, 1.0];
/// fulmar_kernel::softmax_row(&mut row);
/// assert_eq!(row, [0.5, 0.5]);
/// ```
pub fn softmax_row(logits_v: &mut [f32]) {
    let (max, sum, _) = exp_sums(logits_v);
    scale_exp(logits_v, max, (1.0 / sum) as f32);
}

/// The statistics of a row of logits.
struct Softmax {
    max: f32,
    /// `ln sum_v e^(x[v] - max)`.
    log_sum: f64,
    entropy: f32,
}

impl Softmax {
    fn of(logits_v: &[f32]) -> Self {
        let (max, sum, weighted) = exp_sums(logits_v);
        let log_sum = libm::log(sum);
        Self { max, log_sum, entropy: (log_sum - weighted / sum).max(0.0) as f32 }
    }

    fn log_prob(&self, logit: f32) -> f32 {
        ((f64::from(logit) - f64::from(self.max)) - self.log_sum) as f32
    }
}

lanes! {
    /// Returns `(max, sum e^(x - max), sum e^(x - max) (x - max))` in one pass: sums against a lower maximum
    /// are rescaled.
    fn exp_sums(x: &[f32]) -> (f32, f64, f64) {
        let (mut max, mut total, mut weighted_total) = (f32::NEG_INFINITY, 0.0_f64, 0.0_f64);
        for block in x.chunks(BLOCK) {
            let block_max = max_of(block);
            if block_max > max {
                if total > 0.0 {
                    let down = f64::from(max) - f64::from(block_max);
                    let scale = libm::exp(down);
                    weighted_total = scale * (weighted_total + total * down);
                    total *= scale;
                }
                max = block_max;
            }
            let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
            let (mut sums, mut weighted) = ([0.0_f32; WIDTH], [0.0_f32; WIDTH]);
            let mut add = |xs: &[f32; WIDTH]| {
                for lane in 0..WIDTH {
                    let shifted = xs[lane] - base;
                    // Keeps 0 * -inf out of the entropy, but passes a NaN on.
                    let shifted = if shifted < SOFTMAX_FLOOR { SOFTMAX_FLOOR } else { shifted };
                    let e = softmax_exp(shifted);
                    sums[lane] += e;
                    weighted[lane] += e * shifted;
                }
            };
            let (whole, rest) = block.as_chunks::<WIDTH>();
            whole.iter().for_each(&mut add);
            if !rest.is_empty() {
                add(&padded(rest));
            }
            total += f64::from(sum_lanes(sums));
            weighted_total += f64::from(sum_lanes(weighted));
        }
        (max, total, weighted_total)
    }
}

lanes! {
    fn scale_exp(x: &mut [f32], max: f32, scale: f32) {
        for x in x {
            *x = softmax_exp((*x - max).max(SOFTMAX_FLOOR)) * scale;
        }
    }
}

/// The sums of a row that its gradient needs: `p[v] = e^(x[v] - max) * inverse`, with the exponentials of the
/// forward pass, so that probabilities sum to 1 however large the logits are.
#[derive(Clone, Copy)]
struct RowSums {
    max: f32,
    log_sum: f32,
    inverse: f32,
}

lanes! {
    fn backward_row(x: &mut [f32], row: RowSums, entropy: f32, d_log_prob: f32, d_entropy: f32) {
        for x in x {
            let shifted = (*x - row.max).max(SOFTMAX_FLOOR);
            let log_p = shifted - row.log_sum;
            *x = -(softmax_exp(shifted) * row.inverse) * (d_log_prob + d_entropy * (log_p + entropy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    fn exact(x: &[f64], id: usize) -> (f64, f64) {
        let log_sum = x.iter().map(|x| x.exp()).sum::<f64>().ln();
        let entropy = -x.iter().map(|x| (x - log_sum).exp() * (x - log_sum)).sum::<f64>();
        (x[id] - log_sum, entropy)
    }

    #[test]
    fn log_prob_and_entropy_equal_double_precision() {
        for (seed, len) in [(1, 1), (2, 17), (3, 97), (4, 10_000)] {
            let logits: Vec<f32> = random(seed, len).iter().map(|x| x * 4.0).collect();
            let (log_prob, entropy) = exact(&widen(&logits), len / 2);
            let found = log_prob_row(&logits, len / 2);
            assert!((f64::from(found.log_prob) - log_prob).abs() < 2e-6 * log_prob.abs().max(1.0));
            assert!((f64::from(found.entropy) - entropy).abs() < 1e-5);
        }
    }

    #[test]
    fn a_maximum_behind_the_first_block_changes_neither_sum() {
        let mut logits = random(8, 3 * BLOCK + 5);
        for (place, logit) in [(BLOCK + 3, 30.0), (3 * BLOCK + 1, 31.5)] {
            logits[place] = logit;
            let (log_prob, entropy) = exact(&widen(&logits), place);
            let found = log_prob_row(&logits, place);
            assert!((f64::from(found.log_prob) - log_prob).abs() < 1e-6, "{} {log_prob}", found.log_prob);
            assert!((f64::from(found.entropy) - entropy).abs() < 1e-5, "{} {entropy}", found.entropy);
        }
    }

    #[test]
    fn the_likeliest_have_the_log_probs_and_the_entropy_of_single_ids() {
        let logits: Vec<f32> = random(9, 9000).iter().map(|x| x * 3.0).collect();
        let top = top_k_log_probs(&logits, 40);
        assert!(top.windows(2).all(|pair| pair[0].1 >= pair[1].1) && top.len() == 40);
        for (id, log_prob) in top {
            let found = log_prob_row(&logits, id as usize);
            assert_eq!((found.log_prob, found.entropy), (log_prob, entropy_row(&logits)));
        }
        assert_eq!(top_k_log_probs(&logits, 9001).len(), 9000);
        assert_eq!(top_k_log_probs(&logits, 0), []);
        assert_eq!(top_k_log_probs(&[0.0, f32::NEG_INFINITY], 2)[1], (1, f32::NEG_INFINITY));
    }

    #[test]
    fn a_banned_logit_has_no_probability_and_breaks_nothing() {
        let found = log_prob_row(&[0.0, f32::NEG_INFINITY, 0.0], 0);
        assert!((found.log_prob + 2_f32.ln()).abs() < 1e-6 && (found.entropy - 2_f32.ln()).abs() < 1e-6);
        assert_eq!(log_prob_row(&[0.0, f32::NEG_INFINITY], 1).log_prob, f32::NEG_INFINITY);
    }

    #[test]
    fn a_row_that_is_no_distribution_says_so() {
        let mut logits = random(10, 2 * BLOCK + 21);
        logits[..BLOCK].fill(f32::NEG_INFINITY);
        assert!(log_prob_row(&logits, BLOCK).log_prob.is_finite(), "a banned block is no harm");
        for place in [3, BLOCK + 7, 2 * BLOCK + 20] {
            let before = std::mem::replace(&mut logits[place], f32::NAN);
            let found = log_prob_row(&logits, BLOCK);
            assert!(found.log_prob.is_nan() && !found.is_distribution(), "{place}");
            logits[place] = before;
        }
        for bad in [[f32::NEG_INFINITY; 3], [0.0, f32::INFINITY, 0.0]] {
            assert!(!log_prob_row(&bad, 0).is_distribution(), "{bad:?}");
        }
        assert!(log_prob_row(&[0.0, f32::NEG_INFINITY], 0).is_distribution());
    }

    #[test]
    fn the_gradient_equals_finite_differences() {
        let logits = random(5, 33);
        let mut gradient = logits.clone();
        log_prob_backward_row(&mut gradient, 7, log_prob_row(&logits, 7), 1.3, -0.4);
        check_gradient("logits", &logits, &gradient, |x| {
            let (log_prob, entropy) = exact(x, 7);
            1.3 * log_prob - 0.4 * entropy
        });
    }

    #[test]
    fn the_gradient_is_as_exact_for_large_logits_and_its_rows_sum_to_zero() {
        let small = random(11, 257);
        for offset in [0.0, 100.0, -10_000.0, 10_000.0, 1e6] {
            let logits: Vec<f32> = small.iter().map(|x| x + offset).collect();
            // In double precision, without the offset, from the same logits as the kernel.
            let exact_logits: Vec<f64> = widen(&logits).iter().map(|x| x - f64::from(offset)).collect();
            let sum: f64 = exact_logits.iter().map(|x| x.exp()).sum();
            let (_, entropy) = exact(&exact_logits, 7);
            let mut gradient = logits.clone();
            log_prob_backward_row(&mut gradient, 7, log_prob_row(&logits, 7), 1.3, -0.4);
            for (v, got) in gradient.iter().enumerate() {
                let p = exact_logits[v].exp() / sum;
                let picked = if v == 7 { 1.3 } else { 0.0 };
                let wanted = picked - p * (1.3 - 0.4 * (p.ln() + entropy));
                assert!((f64::from(*got) - wanted).abs() < 2e-7, "{offset} {v}: {got} against {wanted}");
            }
            let row_sum: f64 = widen(&gradient).iter().sum();
            assert!(row_sum.abs() < 1e-6, "{offset}: {row_sum}");
        }
    }

    #[test]
    fn cross_entropy_is_the_mean_negative_log_prob_with_its_gradient() {
        let logits = random(6, 3 * 11);
        let mut gradient = logits.clone();
        let loss = cross_entropy(&mut gradient, &[4, 0, 10]);
        let exact_loss = |x: &[f64]| {
            -[4, 0, 10].iter().zip(x.chunks(11)).map(|(id, row)| exact(row, *id).0).sum::<f64>() / 3.0
        };
        assert!((loss - exact_loss(&widen(&logits))).abs() < 1e-6);
        check_gradient("logits", &logits, &gradient, exact_loss);
        assert_eq!(cross_entropy(&mut [], &[]), 0.0);
    }

    #[test]
    fn softmax_sums_to_one() {
        let mut row = random(7, 50);
        softmax_row(&mut row);
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }
}
