//! Random numbers that are a pure function of (seed, stream, position).
//!
//! Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
//! <https://doi.org/10.1145/2063384.2063405>): a block of four words is `philox(key, counter)`. The key is the
//! seed, the upper half of the counter is the stream, the lower half is the block index. So any position can be
//! reached at once, two streams never overlap, and the numbers are the same natively, in WebAssembly and on a GPU.

use crate::limits::PERMUTATION_COUNT_MAX;
use crate::{Error, ErrorKind, Result};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
/// Blocks that are computed at once: with fewer, shuffles between vector lanes cost more than they save.
const WIDE: usize = 16;

/// A position in a stream of random words: the whole state that a checkpoint must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RngState {
    /// The seed.
    pub key: u64,
    /// The stream, see [`Rng::stream`].
    pub stream: u64,
    /// The number of 32-bit words drawn so far.
    pub word_index: u64,
}

impl RngState {
    /// Returns the three fields in order, for storage.
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        [self.key, self.stream, self.word_index]
    }

    /// Restores the state that [`RngState::words`] stored.
    ///
    /// # Errors
    /// `ShapeMismatch` if there are not three words.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::{Rng, RngState};
    /// let state = Rng::new(7).stream("draws").state();
    /// assert_eq!(RngState::from_words(&state.words())?, state);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn from_words(words: &[u64]) -> Result<Self> {
        let &[key, stream, word_index] = words else {
            let detail = format!("state must hold 3 words: got {}", words.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        Ok(Self { key, stream, word_index })
    }
}

/// A seeded generator of independent, named streams.
///
/// # Examples
/// ```
/// use fulmar_core::Rng;
/// let mut draws = Rng::new(7).stream("draws");
/// let first = draws.next_u32();
/// assert_eq!(Rng::new(7).stream("draws").next_u32(), first);
/// assert_ne!(Rng::new(7).stream("weights").next_u32(), first);
/// ```
#[derive(Debug, Clone)]
pub struct Rng {
    state: RngState,
    block: [u32; 4],
}

impl Rng {
    /// Returns stream 0 of `seed`, at its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::from_state(RngState { key: seed, stream: 0, word_index: 0 })
    }

    /// Returns a generator that continues from `state`.
    #[must_use]
    pub fn from_state(state: RngState) -> Self {
        let mut rng = Self { state, block: [0; 4] };
        if !state.word_index.is_multiple_of(4) {
            rng.fill_block();
        }
        rng
    }

    /// Returns the position of this generator.
    #[must_use]
    pub const fn state(&self) -> RngState {
        self.state
    }

    /// Returns the beginning of the stream called `name` below this one. Does not advance `self`.
    #[must_use]
    pub fn stream(&self, name: &str) -> Self {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64; // FNV-1a over the name's bytes
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.fork(hash)
    }

    /// Returns the beginning of the stream number `index` below this one. Does not advance `self`.
    #[must_use]
    pub fn fork(&self, index: u64) -> Self {
        let stream = mix(self.state.stream.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ mix(index));
        Self::from_state(RngState { key: self.state.key, stream, word_index: 0 })
    }

    /// Returns the beginning of the stream that [`Rng::fork`] of each index of `path` in turn leads to. Does
    /// not advance `self`.
    ///
    /// # Examples
    /// ```
    /// let rng = fulmar_core::Rng::new(7);
    /// assert_eq!(rng.at(&[2, 5]).next_u32(), rng.fork(2).fork(5).next_u32());
    /// ```
    #[must_use]
    pub fn at(&self, path: &[u64]) -> Self {
        path.iter().fold(self.clone(), |rng, &index| rng.fork(index))
    }

    /// Draws 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        let lane = (self.state.word_index % 4) as usize;
        if lane == 0 {
            self.fill_block();
        }
        self.state.word_index = self.state.word_index.wrapping_add(1);
        self.block[lane]
    }

    /// Draws 64 uniform bits: two words, the low half first.
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// Returns a uniform float in `[0, 1)` on a grid of 2^-24.
    pub fn uniform_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Returns a uniform double in `[0, 1)` on a grid of 2^-53.
    pub fn uniform_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Returns a uniform integer in `[0, bound)`, without bias (Lemire, <https://doi.org/10.1145/3230636>).
    ///
    /// # Errors
    /// `OutOfRange` if `bound` is 0.
    ///
    /// # Examples
    /// ```
    /// assert!(fulmar_core::Rng::new(1).below(6)? < 6);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn below(&mut self, bound: u64) -> Result<u64> {
        if bound == 0 {
            return Err(zero_bound());
        }
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            // The remainder is below the bound, so nearly every draw avoids the division.
            if product as u64 >= bound || product as u64 >= bound.wrapping_neg() % bound {
                return Ok((product >> 64) as u64);
            }
        }
    }

    /// Fills `out` with the numbers that the same number of calls of [`Rng::below`] gives, faster.
    ///
    /// # Errors
    /// `OutOfRange` if `bound` is 0.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Rng;
    /// let (mut many, mut one) = ([0; 3], Rng::new(1));
    /// Rng::new(1).fill_below(6, &mut many)?;
    /// assert_eq!(many, [one.below(6)?, one.below(6)?, one.below(6)?]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[inline(always)] // so that vector lanes of callers compute the blocks
    pub fn fill_below(&mut self, bound: u64, out: &mut [u64]) -> Result<()> {
        if bound == 0 {
            return Err(zero_bound());
        }
        let start = self.state.word_index;
        if out.len() < WIDE || !start.is_multiple_of(2) {
            return out.iter_mut().try_for_each(|number| self.below(bound).map(|drawn| *number = drawn));
        }
        let least = bound.wrapping_neg() % bound;
        let mut block = start / 4;
        let mut words = self.wide_block(block);
        // The first block may be half used.
        let (mut next, mut num_drawn, mut count) = ((start % 4 / 2) as usize, 0, 0);
        while count < out.len() {
            if next == words.len() {
                block = block.wrapping_add(WIDE as u64);
                (words, next) = (self.wide_block(block), 0);
            }
            let some = (words.len() - next).min(out.len() - count);
            for word in &words[next..next + some] {
                let product = u128::from(*word) * u128::from(bound);
                out[count] = (product >> 64) as u64;
                count += usize::from(product as u64 >= least);
            }
            next += some;
            num_drawn += some as u64;
        }
        *self = Self::from_state(RngState { word_index: start.wrapping_add(2 * num_drawn), ..self.state });
        Ok(())
    }

    /// Fills `out` with the words that the same number of calls of [`Rng::next_u32`] gives, faster.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Rng;
    /// let (mut many, mut one) = ([0; 3], Rng::new(1));
    /// Rng::new(1).fill_u32(&mut many);
    /// assert_eq!(many, [one.next_u32(), one.next_u32(), one.next_u32()]);
    /// ```
    #[inline(always)] // so that vector lanes of callers compute the blocks
    pub fn fill_u32(&mut self, out: &mut [u32]) {
        let start = self.state.word_index;
        // Words up to the first whole block, then groups of blocks, then the rest.
        let head = out.len().min((start.wrapping_neg() % 4) as usize);
        let (head, behind) = out.split_at_mut(head);
        head.iter_mut().for_each(|word| *word = self.next_u32());
        let (groups, rest) = behind.as_chunks_mut::<{ 4 * WIDE }>();
        let first = self.state.word_index / 4;
        for (at, group) in groups.iter_mut().enumerate() {
            let words = self.wide_block(first.wrapping_add((at * WIDE) as u64));
            for (pair, word) in group.chunks_exact_mut(2).zip(words) {
                (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
            }
        }
        if !groups.is_empty() {
            let word_index = self.state.word_index.wrapping_add((groups.len() * 4 * WIDE) as u64);
            *self = Self::from_state(RngState { word_index, ..self.state });
        }
        rest.iter_mut().for_each(|word| *word = self.next_u32());
    }

    /// Returns the words of [`WIDE`] blocks from `block` on, in pairs.
    #[inline(always)]
    fn wide_block(&self, block: u64) -> [u64; 2 * WIDE] {
        let index = |at: usize| block.wrapping_add(at as u64);
        let counter = [
            std::array::from_fn(|at| index(at) as u32),
            std::array::from_fn(|at| (index(at) >> 32) as u32),
            [self.state.stream as u32; WIDE],
            [(self.state.stream >> 32) as u32; WIDE],
        ];
        let [a, b, c, d] = philox4x32(counter, [self.state.key as u32, (self.state.key >> 32) as u32]);
        let mut words = [0; 2 * WIDE];
        for (at, pair) in words.chunks_exact_mut(2).enumerate() {
            pair[0] = u64::from(a[at]) | u64::from(b[at]) << 32;
            pair[1] = u64::from(c[at]) | u64::from(d[at]) << 32;
        }
        words
    }

    /// Returns a standard normal number (Box-Muller, one of the pair; two doubles are used for each).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - self.uniform_f64()));
        radius * libm::cos(std::f64::consts::TAU * self.uniform_f64())
    }

    /// Puts `items` in a uniformly random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            if let Ok(other) = self.below(last as u64 + 1) {
                items.swap(last, other as usize);
            }
        }
    }

    /// Returns the integers `0..count` in a uniformly random order.
    ///
    /// # Errors
    /// `LimitExceeded` if `count` is above [`PERMUTATION_COUNT_MAX`].
    ///
    /// # Examples
    /// ```
    /// let mut order = fulmar_core::Rng::new(3).permutation(4)?;
    /// order.sort_unstable();
    /// assert_eq!(order, [0, 1, 2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn permutation(&mut self, count: u64) -> Result<Vec<u32>> {
        if count > PERMUTATION_COUNT_MAX as u64 {
            let detail = format!("count must be <= {PERMUTATION_COUNT_MAX}: got {count}");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        self.shuffle(&mut order);
        Ok(order)
    }

    fn fill_block(&mut self) {
        let index = self.state.word_index / 4;
        let counter =
            [index as u32, (index >> 32) as u32, self.state.stream as u32, (self.state.stream >> 32) as u32];
        let key = [self.state.key as u32, (self.state.key >> 32) as u32];
        self.block = philox4x32(counter.map(|word| [word]), key).map(|[word]| word);
    }
}

/// Runs ten rounds of Philox4x32 on `N` counters at once.
#[inline(always)]
fn philox4x32<const N: usize>(mut counter: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        for at in 0..N {
            let product0 = u64::from(MULTIPLIERS[0]) * u64::from(a[at]);
            let product1 = u64::from(MULTIPLIERS[1]) * u64::from(c[at]);
            counter[0][at] = (product1 >> 32) as u32 ^ b[at] ^ key[0];
            counter[1][at] = product1 as u32;
            counter[2][at] = (product0 >> 32) as u32 ^ d[at] ^ key[1];
            counter[3][at] = product0 as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn zero_bound() -> Error {
    Error::new(ErrorKind::OutOfRange, "bound must be >= 1: got 0")
}

/// Applies the finaliser of SplitMix64, which spreads nearby stream numbers over all 64 bits.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn blocks_equal_the_published_known_answers() {
        let one = |counter: [u32; 4], key| philox4x32(counter.map(|word| [word]), key).map(|[word]| word);
        assert_eq!(one([0; 4], [0; 2]), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(one([!0; 4], [!0; 2]), [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]);
        assert_eq!(
            one([0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344], [0xA409_3822, 0x299F_31D0]),
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1]
        );
    }

    #[test]
    fn a_state_continues_at_every_position() {
        let mut whole = Rng::new(3).stream("x");
        for _ in 0..17 {
            let mut resumed = Rng::from_state(whole.state());
            assert_eq!(resumed.next_u32(), whole.next_u32());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn bounded_integers_are_uniform() {
        let mut rng = Rng::new(11);
        let mut counts = [0_f64; 7];
        for _ in 0..70_000 {
            counts[rng.below(7).unwrap() as usize] += 1.0;
        }
        let chi_square: f64 = counts.iter().map(|count| (count - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi_square < 22.46, "6 degrees of freedom, p = 0.001: got {chi_square}");
        assert_eq!(rng.below(0).unwrap_err().kind(), ErrorKind::OutOfRange);
    }

    #[test]
    fn many_bounded_integers_are_those_of_single_draws() {
        // The largest of these bounds rejects half of all words.
        for bound in [1, 6, (1 << 62) + 1, (1 << 63) + 1] {
            for start in 0..5 {
                let mut many = Rng::new(2).stream("many");
                for _ in 0..start {
                    many.next_u32();
                }
                let mut one = many.clone();
                for count in [1, 2, 3, 64, 7, 15, 16, 17, 200] {
                    let mut drawn = vec![0; count];
                    many.fill_below(bound, &mut drawn).unwrap();
                    let single: Vec<u64> = (0..count).map(|_| one.below(bound).unwrap()).collect();
                    assert_eq!((drawn, many.state()), (single, one.state()), "{bound} from {start}");
                }
            }
        }
        assert_eq!(Rng::new(0).fill_below(0, &mut []).unwrap_err().kind(), ErrorKind::OutOfRange);
    }

    #[test]
    fn many_words_are_those_of_single_draws() {
        for start in 0..5 {
            let mut many = Rng::new(4).stream("words");
            for _ in 0..start {
                many.next_u32();
            }
            let mut one = many.clone();
            for count in [0, 1, 2, 3, 64, 7, 130, 15, 67, 200] {
                let mut drawn = vec![0; count];
                many.fill_u32(&mut drawn);
                let single: Vec<u32> = (0..count).map(|_| one.next_u32()).collect();
                assert_eq!((drawn, many.state()), (single, one.state()), "{count} from {start}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn normals_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(5);
        let draws: Vec<f64> = (0..50_000).map(|_| rng.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "mean {mean}, variance {variance}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn a_permutation_stops_at_its_limit() {
        let mut rng = Rng::new(1);
        assert_eq!(rng.permutation(PERMUTATION_COUNT_MAX as u64).unwrap().len(), PERMUTATION_COUNT_MAX);
        let error = rng.permutation(PERMUTATION_COUNT_MAX as u64 + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn a_state_of_other_than_three_words_is_refused() {
        assert_eq!(RngState::from_words(&[1, 2]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes in an interpreter")]
    fn a_shuffle_reaches_every_order_equally_often() {
        let mut counts = std::collections::HashMap::new();
        let mut rng = Rng::new(9);
        for _ in 0..24_000 {
            let mut order = [0, 1, 2, 3];
            rng.shuffle(&mut order);
            *counts.entry(order).or_insert(0_f64) += 1.0;
        }
        assert_eq!(counts.len(), 24);
        let chi_square: f64 = counts.values().map(|count| (count - 1_000.0).powi(2) / 1_000.0).sum();
        assert!(chi_square < 49.73, "23 degrees of freedom, p = 0.001: got {chi_square}");
    }
}
