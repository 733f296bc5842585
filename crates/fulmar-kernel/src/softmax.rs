//! The softmax of a row of logits as sums of blocks, enough to draw from it without a probability for each
//! id.

use crate::lanes::{SOFTMAX_FLOOR, WIDTH, lanes, max_of, padded, softmax_exp, sum_lanes};
use crate::log_prob::BLOCK;

/// `p[v] = e^((x[v] - max) / temperature) / total` over a row of logits `x`, which is read once.
///
/// At temperature 1 the sums have the bits of [`log_prob_row`](crate::log_prob_row). A logit of `-inf` has probability 0.
///
/// # Examples
/// ```
/// use fulmar_kernel::{SoftmaxRow, log_prob_row};
/// let logits = [0.5, -1.0, 2.0];
/// let softmax = SoftmaxRow::of(&logits, 1.0);
/// assert_eq!(softmax.find(&logits, 0.99), 2);
/// assert_eq!(softmax.log_prob(logits[2]), log_prob_row(&logits, 2).log_prob);
/// ```
#[derive(Debug, Clone)]
pub struct SoftmaxRow {
    scale: Scale,
    max: f32,
    total: f64,
    /// The maximum up to the end of each block, and the block's sum against it.
    blocks: Vec<(f32, f64)>,
}

/// The temperature that divides logits.
#[derive(Debug, Clone, Copy)]
struct Scale {
    temperature: f64,
    /// Two over the temperature, to multiply half a difference of logits: the difference of two finite
    /// numbers may overflow.
    twice_inverse: f32,
}

impl Scale {
    fn of(temperature: f64) -> Self {
        Self { temperature, twice_inverse: ((2.0 / temperature) as f32).min(f32::MAX) }
    }

    /// Returns `(x - max) / temperature`, at least [`SOFTMAX_FLOOR`], also for `x = -inf` at any temperature.
    #[inline(always)]
    fn shifted(self, x: f32, max: f32) -> f32 {
        ((0.5 * x - 0.5 * max) * self.twice_inverse).max(SOFTMAX_FLOOR)
    }

    fn shifted_f64(self, x: f32, max: f32) -> f64 {
        (f64::from(x) - f64::from(max)) / self.temperature
    }
}

impl SoftmaxRow {
    /// Sums over `logits_v`, which must hold a finite number and no NaN, at a temperature above 0.
    #[must_use]
    pub fn of(logits_v: &[f32], temperature: f64) -> Self {
        let scale = Scale::of(temperature);
        let (mut max, mut total) = (f32::NEG_INFINITY, 0.0);
        let mut blocks = Vec::with_capacity(logits_v.len().div_ceil(BLOCK));
        for block in logits_v.chunks(BLOCK) {
            let (block_max, sum) = block_sum(block, max, scale);
            if block_max > max && total > 0.0 {
                total *= libm::exp(scale.shifted_f64(max, block_max));
            }
            max = max.max(block_max);
            total += sum;
            blocks.push((max, sum));
        }
        Self { scale, max, total, blocks }
    }

    /// Returns the largest logit.
    #[must_use]
    pub fn max(&self) -> f32 {
        self.max
    }

    /// Returns the sum of [`SoftmaxRow::weigh`] over the row, in `[1, V]`.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Returns the log-probability of an id with this logit, <= 0.
    #[must_use]
    pub fn log_prob(&self, logit: f32) -> f32 {
        (self.scale.shifted_f64(logit, self.max) - libm::log(self.total)) as f32
    }

    /// Returns the id at `uniform` in `[0, 1)` of the cumulative probabilities in order of ids; never an id
    /// of probability 0. `logits_v` must be the summed logits. O(V / 4096).
    #[must_use]
    pub fn find(&self, logits_v: &[f32], uniform: f64) -> usize {
        let mut rest = uniform * self.total;
        let mut last = 0;
        for (index, (block, &(max, sum))) in logits_v.chunks(BLOCK).zip(&self.blocks).enumerate() {
            let down = libm::exp(self.scale.shifted_f64(max, self.max));
            let mass = sum * down;
            if mass > 0.0 {
                last = index;
            }
            if mass > rest {
                return index * BLOCK + self.find_in(block, rest);
            }
            rest -= mass;
        }
        // Rounding moved the target past the last block: take the last id that can be drawn.
        let block = &logits_v[last * BLOCK..];
        last * BLOCK + self.find_in(&block[..block.len().min(BLOCK)], f64::INFINITY)
    }

    fn find_in(&self, block: &[f32], target: f64) -> usize {
        let (mut mass, mut last) = (0.0, 0);
        for (id, &logit) in block.iter().enumerate() {
            let weight = softmax_exp(self.scale.shifted(logit, self.max));
            if weight > 0.0 {
                mass += f64::from(weight);
                last = id;
                if mass > target {
                    break;
                }
            }
        }
        last
    }

    /// Replaces each of `logits` by `e^((x - max) / temperature)`; 1 for the largest.
    pub fn weigh(&self, logits: &mut [f32]) {
        weigh(logits, self.max, self.scale);
    }
}

lanes! {
    /// Returns the maximum of the block and of `max`, and the sum of the block against it.
    fn block_sum(block: &[f32], max: f32, scale: Scale) -> (f32, f64) {
        let max = max_of(block).max(max);
        let mut sums = [0.0_f32; WIDTH];
        let mut add = |xs: &[f32; WIDTH]| {
            for lane in 0..WIDTH {
                sums[lane] += softmax_exp(scale.shifted(xs[lane], max));
            }
        };
        let (whole, rest) = block.as_chunks::<WIDTH>();
        whole.iter().for_each(&mut add);
        if !rest.is_empty() {
            add(&padded(rest));
        }
        (max, f64::from(sum_lanes(sums)))
    }
}

lanes! {
    fn weigh(logits: &mut [f32], max: f32, scale: Scale) {
        for x in logits {
            *x = softmax_exp(scale.shifted(*x, max));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;
    use crate::log_prob_row;

    fn row(seed: u64, len: usize, peak: usize) -> Vec<f32> {
        let mut logits: Vec<f32> = random(seed, len).iter().map(|x| x * 2.0).collect();
        logits[peak] = 20.0;
        logits
    }

    #[test]
    fn log_probs_at_temperature_one_have_the_bits_of_the_loss() {
        for (seed, len, peak) in [(1, 1, 0), (2, 50, 7), (3, BLOCK, 9), (4, 3 * BLOCK + 5, 2 * BLOCK + 1)] {
            let logits = row(seed, len, peak);
            let softmax = SoftmaxRow::of(&logits, 1.0);
            for id in [0, len / 3, len - 1, peak] {
                assert_eq!(softmax.log_prob(logits[id]), log_prob_row(&logits, id).log_prob);
            }
        }
    }

    #[test]
    fn ids_lie_where_the_cumulated_probabilities_say() {
        let logits = row(5, 2 * BLOCK + 77, BLOCK + 3);
        let softmax = SoftmaxRow::of(&logits, 3.0);
        let weights: Vec<f64> = logits.iter().map(|x| ((f64::from(*x) - 20.0) / 3.0).exp()).collect();
        let total: f64 = weights.iter().sum();
        assert!((softmax.total() / total - 1.0).abs() < 1e-6);
        let mut mass = 0.0;
        for (id, weight) in weights.iter().enumerate() {
            if *weight > 1e-3 * total {
                assert_eq!(softmax.find(&logits, (mass + 0.5 * weight) / total), id);
            }
            mass += weight;
        }
        let mut weighed = logits.clone();
        softmax.weigh(&mut weighed);
        assert!(weights.iter().zip(&weighed).all(|(exact, got)| (exact - f64::from(*got)).abs() < 1e-6));
    }

    #[test]
    fn what_has_no_probability_is_never_found() {
        let banned = f32::NEG_INFINITY;
        for logits in [vec![banned, 1.0, banned], [vec![0.0; 3], vec![banned; 2 * BLOCK]].concat()] {
            let softmax = SoftmaxRow::of(&logits, 1e9);
            for uniform in [0.0, 0.5, 1.0 - 1e-10, 1.0, 2.0] {
                assert!(logits[softmax.find(&logits, uniform)] > banned);
            }
        }
    }

    #[test]
    fn extreme_logits_and_temperatures_go_to_their_limits() {
        let logits = [f32::MAX, f32::MIN, f32::NEG_INFINITY];
        let weights = |temperature| {
            let mut weights = logits;
            SoftmaxRow::of(&logits, temperature).weigh(&mut weights);
            weights
        };
        assert_eq!([weights(1e-300), weights(1.0)], [[1.0, 0.0, 0.0]; 2]);
        assert_eq!(weights(1e300), [1.0, 1.0, 0.0]);
    }
}
