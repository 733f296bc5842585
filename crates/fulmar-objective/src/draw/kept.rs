//! The tokens that the cuts keep.
//!
//! Every cut but the typical one keeps what is above some logit, so what cannot pass is left out by one comparison a token, and the
//! rest is a list. The place where a cut by mass ends is found by sums of buckets: those before the bucket with the end are whole.

use std::cmp::Ordering;

use fulmar_kernel::{SoftmaxRow, at_least, top_k};

use super::DrawOptions;

/// Buckets that one pass over a list sums.
const BUCKETS: usize = 1024;

/// A list this short is sorted.
const SORTED_MAX: usize = 64;

/// The distribution to draw from.
pub(super) enum Kept {
    /// That of all tokens.
    All(SoftmaxRow),
    /// Some tokens.
    Some(List),
}

/// Kept tokens, in order of their ids.
pub(super) struct List {
    ids: Vec<u32>,
    score: Vec<f32>,
    /// `e^((score - max) / temperature)`.
    weight: Vec<f32>,
    max: f32,
    temperature: f64,
    /// What the weights sum to, those that are too small for the list included.
    total: f64,
    /// Of all tokens, if they were all summed.
    whole: Option<SoftmaxRow>,
}

impl Kept {
    /// Cuts `scores`, which hold a finite number and no NaN; the temperature is above 0.
    pub(super) fn of(scores: &[f32], options: &DrawOptions) -> Self {
        let top_k = options.top_k.filter(|&top_k| top_k < scores.len());
        let has_cut =
            top_k.is_some() || options.top_p < 1.0 || options.min_p > 0.0 || options.typical_p < 1.0;
        if !has_cut {
            return Self::All(SoftmaxRow::of(scores, options.temperature));
        }
        let mut list = match top_k {
            Some(top_k) => List::of_largest(scores, top_k, options.temperature),
            None => List::of_likely(scores, options),
        };
        if options.top_p < 1.0 {
            list.keep_likeliest(options.top_p);
        }
        if options.min_p > 0.0 {
            list.keep(|_, weight, _| f64::from(weight) >= options.min_p);
        }
        if options.typical_p < 1.0 {
            list.keep_typical(options.typical_p);
        }
        list.total = list.sum();
        Self::Some(list)
    }

    /// The softmax of all scores, if it was summed.
    pub(super) fn whole(&self) -> Option<&SoftmaxRow> {
        match self {
            Self::All(softmax) => Some(softmax),
            Self::Some(list) => list.whole.as_ref(),
        }
    }

    /// The token at `uniform` of the way through the kept mass, and its log-probability.
    pub(super) fn find(&self, scores: &[f32], uniform: f64) -> (usize, f32) {
        match self {
            Self::All(softmax) => {
                let id = softmax.find(scores, uniform);
                (id, softmax.log_prob(scores[id]))
            }
            Self::Some(list) => list.find(uniform),
        }
    }

    /// `[V]`
    pub(super) fn probabilities(&self, scores: &[f32]) -> Vec<f64> {
        match self {
            Self::All(softmax) => {
                let mut weight_v = scores.to_vec();
                softmax.weigh(&mut weight_v);
                weight_v.iter().map(|weight| f64::from(*weight) / softmax.total()).collect()
            }
            Self::Some(list) => {
                let mut probability_v = vec![0.0; scores.len()];
                for (&id, weight) in list.ids.iter().zip(&list.weight) {
                    probability_v[id as usize] = f64::from(*weight) / list.total;
                }
                probability_v
            }
        }
    }
}

impl List {
    /// The `top_k` largest, and all that equal the smallest of them.
    fn of_largest(scores: &[f32], count: usize, temperature: f64) -> Self {
        let bar = top_k(scores, count).last().map_or(f32::MIN, |&id| scores[id as usize]);
        let ids = at_least(scores, bar.max(f32::MIN));
        let score: Vec<f32> = ids.iter().map(|&id| scores[id as usize]).collect();
        let softmax = SoftmaxRow::of(&score, temperature);
        Self::weighed(ids, score, &softmax, temperature)
    }

    /// All but those that no cut would keep.
    fn of_likely(scores: &[f32], options: &DrawOptions) -> Self {
        let softmax = SoftmaxRow::of(scores, options.temperature);
        let least = if options.top_p < 1.0 {
            // Tokens less likely than this have at most the mass (1 - p), even all together.
            (1.0 - options.top_p) * softmax.total() / scores.len() as f64
        } else if options.typical_p < 1.0 {
            0.0
        } else {
            options.min_p
        };
        // A little lower, as logarithms are rounded.
        let bar = f64::from(softmax.max()) + options.temperature * (libm::log(least) - 1e-3);
        let ids = at_least(scores, (bar as f32).clamp(f32::MIN, softmax.max()));
        let score = ids.iter().map(|&id| scores[id as usize]).collect();
        let list = Self::weighed(ids, score, &softmax, options.temperature);
        Self { whole: Some(softmax), ..list }
    }

    fn weighed(ids: Vec<u32>, score: Vec<f32>, softmax: &SoftmaxRow, temperature: f64) -> Self {
        let mut weight = score.clone();
        softmax.weigh(&mut weight);
        let (max, total) = (softmax.max(), softmax.total());
        Self { ids, score, weight, max, temperature, total, whole: None }
    }

    /// Keeps the likeliest tokens until the mass before the next one reaches `top_p`.
    fn keep_likeliest(&mut self, top_p: f64) {
        let (bar, last) = last_within(&self.score, &self.weight, top_p * self.total);
        self.keep(|score, _, place| score > bar || (score == bar && place <= last));
    }

    /// Keeps the tokens that say about as much as the average, until the mass before the next one reaches `typical_p`, and all that
    /// tie with the last.
    fn keep_typical(&mut self, typical_p: f64) {
        let total = self.sum();
        let log_total = libm::log(total);
        let log_prob = |score: f32| (f64::from(score) - f64::from(self.max)) / self.temperature - log_total;
        let terms = self.score.iter().zip(&self.weight).filter(|(_, weight)| **weight > 0.0);
        let entropy =
            -terms.map(|(score, weight)| f64::from(*weight) * log_prob(*score)).sum::<f64>() / total;
        let distance = |score: &f32| ((entropy + log_prob(*score)).abs() as f32).min(f32::MAX);
        let nearness: Vec<f32> = self.score.iter().map(|score| -distance(score)).collect();
        let (bar, _) = last_within(&nearness, &self.weight, typical_p * total);
        self.keep(|_, _, place| nearness[place] >= bar);
    }

    /// Drops those of which `stays(score, weight, place)` is false.
    fn keep(&mut self, stays: impl Fn(f32, f32, usize) -> bool) {
        let mut end = 0;
        for place in 0..self.ids.len() {
            if stays(self.score[place], self.weight[place], place) {
                self.ids[end] = self.ids[place];
                self.score[end] = self.score[place];
                self.weight[end] = self.weight[place];
                end += 1;
            }
        }
        self.ids.truncate(end);
        self.score.truncate(end);
        self.weight.truncate(end);
    }

    fn sum(&self) -> f64 {
        self.weight.iter().copied().map(f64::from).sum()
    }

    fn find(&self, uniform: f64) -> (usize, f32) {
        let target = uniform * self.total;
        let (mut mass, mut last) = (0.0, 0);
        for (place, &weight) in self.weight.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            mass += f64::from(weight);
            last = place;
            if mass > target {
                break;
            }
        }
        let shifted = (f64::from(self.score[last]) - f64::from(self.max)) / self.temperature;
        (self.ids[last] as usize, (shifted - libm::log(self.total)).min(0.0) as f32)
    }
}

/// The last of those that are kept until the mass before the next one reaches `target`: larger keys first, and of equals the earlier
/// place. Its key, and its place. O(n) for keys in no particular order.
fn last_within(key: &[f32], weight: &[f32], target: f64) -> (f32, usize) {
    let mut open: Vec<u32> = (0..key.len() as u32).collect();
    let key_of = |place: &u32| key[*place as usize];
    let mut mass = 0.0;
    loop {
        let (low, high) = open
            .iter()
            .map(key_of)
            .fold((f32::MAX, f32::MIN), |(low, high), key| (low.min(key), high.max(key)));
        if low == high || open.len() <= SORTED_MAX {
            open.sort_by(|a, b| key_of(b).partial_cmp(&key_of(a)).unwrap_or(Ordering::Equal));
            let mut last = 0;
            for place in open {
                last = place as usize;
                mass += f64::from(weight[last]);
                if mass >= target {
                    break;
                }
            }
            return (key[last], last);
        }
        let scale = BUCKETS as f64 / (f64::from(high) - f64::from(low));
        let bucket_of =
            |place: &u32| (((f64::from(high) - f64::from(key_of(place))) * scale) as usize).min(BUCKETS - 1);
        let mut mass_of = [0.0; BUCKETS];
        for place in &open {
            mass_of[bucket_of(place)] += f64::from(weight[*place as usize]);
        }
        let end = (0..BUCKETS - 1).find(|&bucket| {
            let is_end = mass + mass_of[bucket] >= target;
            mass += if is_end { 0.0 } else { mass_of[bucket] };
            is_end
        });
        // The last bucket is not empty: the lowest key is there.
        open.retain(|place| bucket_of(place) == end.unwrap_or(BUCKETS - 1));
    }
}
