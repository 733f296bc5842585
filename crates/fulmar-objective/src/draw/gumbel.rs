//! Draws by the largest score with Gumbel noise.
//!
//! ```text
//! key[v] = (x[v] - max) / T - ln(-ln(1 - u[v]))     u[v] in (0, 1): word v of a stream named by seed and draw
//! P(argmax key = v) = softmax(x / T)[v]
//! ```
//! Almost no id can be the largest. A bound of each key takes a few operations in vector lanes, and only ids
//! whose bound exceeds the largest key so far take the two logarithms of their own, in double precision.

use fulmar_compute::cpu::lanes;
use fulmar_core::{Rng, RngState};

use super::uniform;

/// Ids whose words are computed at once.
const CHUNK: usize = 64;

/// More than the rounding of a bound in single precision: keys that matter are above -30.
const SLACK: f32 = 1e-3;

/// The noise of one draw: a number for each id.
pub(super) struct Noise(RngState);

impl Noise {
    /// Returns the noise of the next draw of `rng`.
    pub(super) fn of(rng: &Rng) -> Self {
        let draw_index = rng.state().word_index;
        Self(rng.stream("gumbel").fork(draw_index).state())
    }

    /// Returns the key and the stream of its words.
    pub(super) fn stream(&self) -> [u64; 2] {
        [self.0.key, self.0.stream]
    }

    /// Returns the id with the largest key among `scores`, the lowest of equals. `max` is their maximum, which is finite.
    pub(super) fn largest(&self, scores: &[f32], max: f32, temperature: f64) -> usize {
        largest(scores, Rng::from_state(self.0), max, temperature)
    }

    /// Returns the place of the largest key, where the id of `scores[place]` is `ids[place]`.
    pub(super) fn largest_of(&self, ids: &[u32], scores: &[f32], max: f32, temperature: f64) -> usize {
        let scale = scale_of(temperature);
        let mut best = (f64::NEG_INFINITY, 0);
        for (place, (&id, &score)) in ids.iter().zip(scores).enumerate() {
            let word = Rng::from_state(RngState { word_index: u64::from(id), ..self.0 }).next_u32();
            if f64::from(bound(score, max, scale, word)) > best.0 {
                keep_larger(&mut best, key(score, max, temperature, word), place);
            }
        }
        best.1
    }
}

lanes! {
    fn largest(scores: &[f32], noise: Rng, max: f32, temperature: f64) -> usize {
        let (mut noise, scale) = (noise, scale_of(temperature));
        let (mut words, mut bounds) = ([0_u32; CHUNK], [0.0_f32; CHUNK]);
        let mut best = (f64::NEG_INFINITY, 0);
        for (index, chunk) in scores.chunks(CHUNK).enumerate() {
            noise.fill_u32(&mut words);
            for ((out, score), word) in bounds.iter_mut().zip(chunk).zip(&words) {
                *out = bound(*score, max, scale, *word);
            }
            // Rounded up, as a bound that is a little below the best key must stay.
            let least = (best.0 as f32).next_down();
            if bounds[..chunk.len()].iter().fold(0_u32, |any, bound| any | u32::from(*bound > least)) == 0 {
                continue;
            }
            for (at, &score) in chunk.iter().enumerate() {
                if f64::from(bounds[at]) > best.0 {
                    keep_larger(&mut best, key(score, max, temperature, words[at]), index * CHUNK + at);
                }
            }
        }
        best.1
    }
}

fn keep_larger(best: &mut (f64, usize), key: f64, place: usize) {
    if key > best.0 {
        *best = (key, place);
    }
}

fn key(score: f32, max: f32, temperature: f64, word: u32) -> f64 {
    // ln(1 - u) has full precision for the small u that large keys have.
    let exponential = -libm::log1p(-uniform(word));
    (f64::from(score) - f64::from(max)) / temperature - libm::log(exponential)
}

/// Returns what multiplies half a difference of scores: the difference of two finite numbers may overflow.
fn scale_of(temperature: f64) -> f32 {
    ((2.0 / temperature) as f32).min(f32::MAX)
}

/// Returns a number above the key and within 0.1 of it, or -100 for a key below that.
#[inline(always)]
fn bound(score: f32, max: f32, scale: f32, word: u32) -> f32 {
    // -ln(1 - u) > u, and the bits of a float are its logarithm to base 2, at most 0.09 too small.
    let scaled = (word >> 1) as i32 as f32 + 0.25; // 2^31 u or less
    let log2 = scaled.to_bits() as i32 as f32 * (1.0 / 8_388_608.0) - 127.0;
    let noise = (31.0 - log2) * std::f32::consts::LN_2 + SLACK;
    ((0.5 * score - 0.5 * max) * scale).max(-200.0) + noise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_above_its_key_and_near_it_where_it_matters() {
        let words = [0, 1, 2, 255, 256, 257, 1 << 16, (1 << 24) - 1, 1 << 31, u32::MAX - 1, u32::MAX];
        let mut rng = Rng::new(1);
        let random: Vec<u32> = (0..10_000).map(|_| rng.next_u32()).collect();
        for &word in words.iter().chain(&random) {
            for (score, temperature) in [(0.0, 1.0), (-3.0, 0.7), (-25.0, 1.0), (-0.01, 1e-3), (-1e30, 1e30)]
            {
                let (key, bound) = (
                    key(score, 0.0, temperature, word),
                    f64::from(bound(score, 0.0, scale_of(temperature), word)),
                );
                assert!(bound >= key, "{word} {score}: {bound} {key}");
                // -ln(1 - u) is far above u only where u is near 1 and the key is small.
                let excess = libm::log(-libm::log1p(-uniform(word)) / uniform(word));
                assert!(bound - key < 0.1 + excess || word < 64, "{word} {score}: {bound} {key}");
            }
        }
    }

    #[test]
    fn the_largest_key_is_found_whatever_the_chunks() {
        let mut rng = Rng::new(2);
        for length in [1, 2, 63, 64, 65, 1000, 5003] {
            for temperature in [1e-3, 0.7, 1.0, 1e9] {
                let mut scores: Vec<f32> = (0..length).map(|_| rng.normal() as f32 * 4.0).collect();
                scores[length / 3] = f32::NEG_INFINITY;
                let max = scores.iter().copied().fold(f32::MIN, f32::max);
                if length == 1 {
                    scores[0] = max;
                }
                let noise = Noise::of(&rng);
                let mut best = (f64::NEG_INFINITY, 0);
                for (id, &score) in scores.iter().enumerate() {
                    let word = Rng::from_state(RngState { word_index: id as u64, ..noise.0 }).next_u32();
                    keep_larger(&mut best, key(score, max, temperature, word), id);
                }
                assert_eq!(noise.largest(&scores, max, temperature), best.1, "{length} at {temperature}");
                let ids: Vec<u32> = (0..length as u32).collect();
                assert_eq!(noise.largest_of(&ids, &scores, max, temperature), best.1);
            }
        }
    }
}
