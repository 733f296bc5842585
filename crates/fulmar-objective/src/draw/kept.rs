//! The tokens that the cuts keep.
//!
//! Few candidate tokens are stored as a list. With many candidates, each token stays at its position, with
//! its weight or 0: that takes one comparison a token in vector lanes, where a list takes a branch.

use std::borrow::Cow;

use fulmar_compute::cpu::{SoftmaxRow, at_least, lanes, top_k};

use super::DrawOptions;
use super::cut::{end_of, last_within};
use super::gumbel::Noise;

/// Numbers that are processed at once.
const WIDTH: usize = 16;

/// Weights that are skipped by their sum.
const BLOCK: usize = 4096;

/// A list is used for at most one in this many tokens.
const SPARSE: usize = 16;

/// Most tokens that top-h considers.
const ENTROPY_TOKENS_MAX: usize = 100;

/// The distribution to draw from.
pub(super) enum Kept<'a> {
    /// The distribution over all tokens.
    All(SoftmaxRow),
    /// The distribution over some tokens.
    Some(List<'a>),
}

/// Tokens in order of their ids; those with a weight are kept.
pub(super) struct List<'a> {
    /// `None` if each token is at the position of its id.
    ids: Option<Vec<u32>>,
    score: Cow<'a, [f32]>,
    /// `e^((score - max) / temperature)`, or 0.
    weight: Vec<f32>,
    max: f32,
    temperature: f64,
    /// The sum of the weights of each block, once all cuts are made.
    sums: Vec<f64>,
    /// The sum of all weights.
    total: f64,
    /// The softmax of all tokens, if it was computed.
    whole: Option<SoftmaxRow>,
}

impl<'a> Kept<'a> {
    /// Cuts `scores`, which hold a finite number and no NaN; the temperature is above 0.
    pub(super) fn of(scores: &'a [f32], options: &DrawOptions) -> Self {
        let top_k = options.top_k.filter(|&top_k| top_k < scores.len());
        let is_cut_later =
            options.epsilon_cutoff > 0.0 || options.eta_cutoff > 0.0 || options.top_h.is_some();
        let has_cut =
            top_k.is_some() || options.top_p < 1.0 || options.min_p > 0.0 || options.typical_p < 1.0;
        if !has_cut && !is_cut_later {
            return Self::All(SoftmaxRow::of(scores, options.temperature));
        }
        let mut list = match (options.top_h, top_k) {
            (Some(top_h), _) => List::of_entropy(scores, top_h, top_k, options.temperature),
            (None, Some(top_k)) => List::of_largest(scores, top_k, options.temperature),
            (None, None) => List::of_likely(scores, options),
        };
        if options.top_p < 1.0 {
            list.keep_likeliest(options.top_p);
        }
        if options.min_p > 0.0 {
            keep_weights(&mut list.weight, options.min_p);
        }
        if options.typical_p < 1.0 {
            list.keep_typical(options.typical_p);
        }
        list.add_up();
        if options.epsilon_cutoff > 0.0 {
            list.keep_probable(options.epsilon_cutoff);
        }
        if options.eta_cutoff > 0.0 {
            let eta = options.eta_cutoff;
            list.keep_probable(eta.min(eta.sqrt() * libm::exp(-list.entropy())));
        }
        Self::Some(list)
    }

    /// Returns the softmax of all scores, if it was computed.
    pub(super) fn whole(&self) -> Option<&SoftmaxRow> {
        match self {
            Self::All(softmax) => Some(softmax),
            Self::Some(list) => list.whole.as_ref(),
        }
    }

    /// Returns the token at `uniform` of the cumulative kept mass, and its log-probability.
    pub(super) fn find(&self, scores: &[f32], uniform: f64) -> (usize, f32) {
        match self {
            Self::All(softmax) => {
                let id = softmax.find(scores, uniform);
                (id, softmax.log_prob(scores[id]))
            }
            Self::Some(list) => list.find(uniform),
        }
    }

    /// Returns the token with the largest score over the temperature plus noise, and its log-probability.
    pub(super) fn find_largest(&self, scores: &[f32], temperature: f64, noise: &Noise) -> (usize, f32) {
        match self {
            Self::All(softmax) => {
                let id = noise.largest(scores, softmax.max(), temperature);
                (id, softmax.log_prob(scores[id]))
            }
            Self::Some(list) => list.find_largest(noise),
        }
    }

    /// Returns the `[V]` probabilities.
    pub(super) fn probabilities(&self, scores: &[f32]) -> Vec<f64> {
        match self {
            Self::All(softmax) => {
                let mut weight_v = scores.to_vec();
                softmax.weigh(&mut weight_v);
                weight_v.iter().map(|weight| f64::from(*weight) / softmax.total()).collect()
            }
            Self::Some(list) => {
                let mut probability_v = vec![0.0; scores.len()];
                for (place, weight) in list.weight.iter().enumerate() {
                    probability_v[list.id(place)] = f64::from(*weight) / list.total;
                }
                probability_v
            }
        }
    }
}

impl<'a> List<'a> {
    /// Keeps the `top_k` largest, and all that equal the smallest of them.
    fn of_largest(scores: &[f32], count: usize, temperature: f64) -> Self {
        let bar = top_k(scores, count).last().map_or(f32::MIN, |&id| scores[id as usize]);
        Self::of_ids(scores, at_least(scores, bar.max(f32::MIN)), temperature)
    }

    /// Keeps the likeliest token, and the next ones until their terms of the entropy exceed the share `top_h`
    /// of it. Of these it keeps the `count` largest, and all that equal the smallest of them.
    fn of_entropy(scores: &[f32], top_h: f64, count: Option<usize>, temperature: f64) -> Self {
        let mut ids = top_k(scores, ENTROPY_TOKENS_MAX);
        ids.retain(|&id| scores[id as usize] > f32::NEG_INFINITY);
        let all = Self::of_ids(scores, ids.clone(), temperature);
        let log_prob = all.log_probs();
        let term = |(score, weight): (&f32, &f32)| match *weight {
            0.0 => 0.0,
            weight => -f64::from(weight) * log_prob(*score),
        };
        let terms: Vec<f64> = all.score.iter().zip(&all.weight).map(term).collect();
        // The factor keeps a share of 1 from being missed by rounding.
        let share = top_h * terms.iter().sum::<f64>() * (1.0 + 1e-12);
        let mut sum = 0.0;
        let kept = terms.iter().take_while(|term| {
            sum += **term;
            sum <= share
        });
        ids.truncate(kept.count().max(1));
        let bar = count
            .filter(|&count| count < ids.len())
            .map_or(f32::MIN, |count| scores[ids[count - 1] as usize]);
        ids.retain(|&id| scores[id as usize] >= bar);
        ids.sort_unstable();
        Self::of_ids(scores, ids, temperature)
    }

    /// Returns tokens in the order of `ids`.
    fn of_ids(scores: &[f32], ids: Vec<u32>, temperature: f64) -> Self {
        let score: Vec<f32> = ids.iter().map(|&id| scores[id as usize]).collect();
        let softmax = SoftmaxRow::of(&score, temperature);
        let list = Self::weighed(Cow::Owned(score), &softmax, temperature);
        Self { ids: Some(ids), ..list }
    }

    /// Returns all tokens, or all except those that every cut would drop.
    fn of_likely(scores: &'a [f32], options: &DrawOptions) -> Self {
        let temperature = options.temperature;
        let softmax = SoftmaxRow::of(scores, temperature);
        let least = if options.top_p < 1.0 {
            // Tokens less likely than this have at most the mass (1 - p) together.
            (1.0 - options.top_p) * softmax.total() / scores.len() as f64
        } else if options.typical_p < 1.0 {
            0.0
        } else {
            // 0 keeps all: cuts by probability need the sum of all weights.
            options.min_p
        };
        // A little lower, as logarithms are rounded.
        let bar = f64::from(softmax.max()) + temperature * (libm::log(least) - 1e-3);
        let bar = (bar as f32).clamp(f32::MIN, softmax.max());
        let list = if count_from(scores, bar) as usize > scores.len() / SPARSE {
            Self::weighed(Cow::Borrowed(scores), &softmax, temperature)
        } else {
            let ids = at_least(scores, bar);
            let score = ids.iter().map(|&id| scores[id as usize]).collect();
            Self { ids: Some(ids), ..Self::weighed(Cow::Owned(score), &softmax, temperature) }
        };
        Self { whole: Some(softmax), ..list }
    }

    fn weighed(score: Cow<'a, [f32]>, softmax: &SoftmaxRow, temperature: f64) -> Self {
        let mut weight = score.to_vec();
        softmax.weigh(&mut weight);
        let (max, total) = (softmax.max(), softmax.total());
        Self { ids: None, score, weight, max, temperature, sums: Vec::new(), total, whole: None }
    }

    /// Keeps the likeliest tokens until the mass before the next one reaches `top_p`.
    fn keep_likeliest(&mut self, top_p: f64) {
        let target = top_p * self.total;
        let (bar, last) = end_of(&self.score, &self.weight, self.total, target);
        keep_keys(&mut self.weight, &self.score, bar, last);
    }

    /// Keeps the tokens whose information is closest to the entropy, until the mass before the next one
    /// reaches `typical_p`, and all that tie with the last.
    fn keep_typical(&mut self, typical_p: f64) {
        self.add_up();
        let (entropy, log_prob) = (self.entropy(), self.log_probs());
        let distance = |score: &f32| ((entropy + log_prob(*score)).abs() as f32).min(f32::MAX);
        let nearness: Vec<f32> = self.score.iter().map(|score| -distance(score)).collect();
        let (bar, _) = last_within(&nearness, &self.weight, typical_p * self.total);
        keep_keys(&mut self.weight, &nearness, bar, u32::MAX);
    }

    /// Keeps the tokens with at least this probability, and the likeliest.
    fn keep_probable(&mut self, least: f64) {
        let least = least * self.total;
        let kept = self.score.iter().zip(&self.weight).filter(|(_, weight)| **weight > 0.0);
        let largest = kept.map(|(score, _)| *score).fold(f32::MIN, f32::max);
        for (weight, score) in self.weight.iter_mut().zip(&*self.score) {
            if f64::from(*weight) < least && *score < largest {
                *weight = 0.0;
            }
        }
        self.add_up();
    }

    /// Returns the entropy of the kept tokens in nats, once weights are summed. Each block is summed in lanes.
    fn entropy(&self) -> f64 {
        let log_prob = self.log_probs();
        let of_block = |(score, weight): (&[f32], &[f32])| {
            let mut sums = [0.0; WIDTH];
            for (at, (score, weight)) in score.iter().zip(weight).enumerate() {
                let is_kept = *weight > 0.0;
                sums[at % WIDTH] += if is_kept { f64::from(*weight) * log_prob(*score) } else { 0.0 };
            }
            sums.iter().sum::<f64>()
        };
        let blocks = self.score.chunks(BLOCK).zip(self.weight.chunks(BLOCK));
        -blocks.map(of_block).sum::<f64>() / self.total
    }

    /// Returns the log-probability of a token with this score, once weights are summed.
    fn log_probs(&self) -> impl Fn(f32) -> f64 + use<> {
        let (max, temperature, log_total) = (f64::from(self.max), self.temperature, libm::log(self.total));
        move |score| (f64::from(score) - max) / temperature - log_total
    }

    fn add_up(&mut self) {
        self.sums = self.weight.chunks(BLOCK).map(sum_of).collect();
        self.total = self.sums.iter().sum();
    }

    fn id(&self, place: usize) -> usize {
        self.ids.as_ref().map_or(place, |ids| ids[place] as usize)
    }

    fn find(&self, uniform: f64) -> (usize, f32) {
        let target = uniform * self.total;
        let (mut mass, mut last) = (0.0, 0);
        // If rounding moved the target past the end, take the last token that can be drawn.
        let end = self.sums.iter().rposition(|sum| *sum > 0.0).unwrap_or(0);
        let block = self.sums[..end].iter().position(|sum| {
            let is_end = mass + sum > target;
            mass += if is_end { 0.0 } else { *sum };
            is_end
        });
        let first = block.unwrap_or(end) * BLOCK;
        for (place, &weight) in (first..).zip(self.weight[first..].iter().take(BLOCK)) {
            if weight > 0.0 {
                mass += f64::from(weight);
                last = place;
                if mass > target {
                    break;
                }
            }
        }
        (self.id(last), self.log_prob_at(last))
    }

    fn find_largest(&self, noise: &Noise) -> (usize, f32) {
        let kept = self.score.iter().zip(&self.weight);
        let score: Vec<f32> =
            kept.map(|(score, weight)| if *weight > 0.0 { *score } else { f32::NEG_INFINITY }).collect();
        let place = match &self.ids {
            None => noise.largest(&score, self.max, self.temperature),
            Some(ids) => noise.largest_of(ids, &score, self.max, self.temperature),
        };
        (self.id(place), self.log_prob_at(place))
    }

    fn log_prob_at(&self, place: usize) -> f32 {
        let shifted = (f64::from(self.score[place]) - f64::from(self.max)) / self.temperature;
        (shifted - libm::log(self.total)).min(0.0) as f32
    }
}

lanes! {
    fn sum_of(weight: &[f32]) -> f64 {
        // Several sums, as each addition would wait for the one before.
        let (whole, rest) = weight.as_chunks::<WIDTH>();
        let mut sums = [0.0; WIDTH];
        for weights in whole {
            for lane in 0..WIDTH {
                sums[lane] += f64::from(weights[lane]);
            }
        }
        sums.into_iter().chain(rest.iter().copied().map(f64::from)).sum()
    }
}

lanes! {
    fn count_from(scores: &[f32], least: f32) -> u32 {
        scores.iter().map(|score| u32::from(*score >= least)).sum()
    }
}

lanes! {
    /// Sets the weight to 0 except for keys above `bar`, and for keys equal to `bar` up to the position
    /// `last`.
    fn keep_keys(weight: &mut [f32], key: &[f32], bar: f32, last: u32) {
        for ((weight, key), place) in weight.iter_mut().zip(key).zip(0_u32..) {
            let stays = (*key > bar) | ((*key == bar) & (place <= last));
            *weight = if stays { *weight } else { 0.0 };
        }
    }
}

lanes! {
    /// Sets weights below `least` to 0.
    fn keep_weights(weight: &mut [f32], least: f64) {
        for weight in weight {
            *weight = if f64::from(*weight) >= least { *weight } else { 0.0 };
        }
    }
}
