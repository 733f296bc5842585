//! The tokens that the cuts keep.
//!
//! Every cut but the typical one keeps what is above some logit, so what cannot pass is left out by one comparison a token, and the
//! rest is a list. The place where a cut by mass ends is found by sums of buckets: those before the bucket with the end are whole.

use std::borrow::Cow;
use std::cmp::Ordering;

use fulmar_compute::cpu::{SoftmaxRow, at_least, lanes, top_k};

use super::DrawOptions;

/// Numbers that are looked at together.
const WIDTH: usize = 16;

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
            let (id, score, weight) = (self.ids[place], self.score[place], self.weight[place]);
            // Written in any case: a branch that nobody can predict costs more.
            (self.ids[end], self.score[end], self.weight[end]) = (id, score, weight);
            end += usize::from(stays(score, weight, place));
        }
        self.ids.truncate(end);
        self.score.truncate(end);
        self.weight.truncate(end);
    }

    fn sum(&self) -> f64 {
        // More than one sum: each addition would wait for the one before.
        let (whole, rest) = self.weight.as_chunks::<WIDTH>();
        let mut sums = [0.0; WIDTH];
        for weights in whole {
            for lane in 0..WIDTH {
                sums[lane] += f64::from(weights[lane]);
            }
        }
        sums.into_iter().chain(rest.iter().copied().map(f64::from)).sum()
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
    let mut mass = 0.0;
    let mut open = Open { key: Cow::Borrowed(key), weight: Cow::Borrowed(weight), place: None };
    while let Some((bucket, end)) = split(&open.key, &open.weight, &mut mass, target) {
        let inside = open.of_bucket(&bucket, end);
        if inside.key.len() == open.key.len() {
            break;
        }
        open = inside;
    }
    open.last_within(mass, target)
}

/// The bucket of each key, and which one holds the last; `mass` grows by that of the buckets before it. Nothing for keys that are few, or
/// all equal.
fn split(key: &[f32], weight: &[f32], mass: &mut f64, target: f64) -> Option<(Vec<u16>, u16)> {
    let (low, high) = range(key);
    if low == high || key.len() <= SORTED_MAX {
        return None;
    }
    let scale = 2.0 * BUCKETS as f64 / (f64::from(high) - f64::from(low));
    let mut bucket = vec![0; key.len()];
    buckets(key, high, scale as f32, &mut bucket);
    let mut mass_of = [0.0; BUCKETS];
    for (bucket, weight) in bucket.iter().zip(weight) {
        mass_of[usize::from(*bucket) % BUCKETS] += f64::from(*weight);
    }
    let end = (0..BUCKETS - 1).find(|&bucket| {
        let is_end = *mass + mass_of[bucket] >= target;
        *mass += if is_end { 0.0 } else { mass_of[bucket] };
        is_end
    });
    // The last bucket is not empty: the lowest key is there.
    Some((bucket, end.unwrap_or(BUCKETS - 1) as u16))
}

/// Those among which the last one is.
struct Open<'a> {
    key: Cow<'a, [f32]>,
    weight: Cow<'a, [f32]>,
    /// Where they stood at first; nothing where that is where they stand.
    place: Option<Vec<u32>>,
}

impl Open<'_> {
    fn of_bucket(&self, bucket: &[u16], kept: u16) -> Open<'static> {
        let (mut key, mut weight, mut place) = (Vec::new(), Vec::new(), Vec::new());
        for (at, _) in bucket.iter().enumerate().filter(|(_, bucket)| **bucket == kept) {
            key.push(self.key[at]);
            weight.push(self.weight[at]);
            place.push(self.place.as_ref().map_or(at as u32, |place| place[at]));
        }
        Open { key: Cow::Owned(key), weight: Cow::Owned(weight), place: Some(place) }
    }

    /// By sorting; `mass` is what lies before all of these.
    fn last_within(&self, mut mass: f64, target: f64) -> (f32, usize) {
        let mut order: Vec<usize> = (0..self.key.len()).collect();
        order.sort_by(|&a, &b| self.key[b].partial_cmp(&self.key[a]).unwrap_or(Ordering::Equal));
        let mut last = 0;
        for at in order {
            last = at;
            mass += f64::from(self.weight[at]);
            if mass >= target {
                break;
            }
        }
        (self.key[last], self.place.as_ref().map_or(last, |place| place[last] as usize))
    }
}

lanes! {
    /// The least and the largest of finite numbers.
    fn range(values: &[f32]) -> (f32, f32) {
        let (mut low, mut high) = ([f32::MAX; WIDTH], [f32::MIN; WIDTH]);
        let (whole, rest) = values.as_chunks::<WIDTH>();
        for values in whole {
            for lane in 0..WIDTH {
                low[lane] = if values[lane] < low[lane] { values[lane] } else { low[lane] };
                high[lane] = if values[lane] > high[lane] { values[lane] } else { high[lane] };
            }
        }
        let all = |start: [f32; WIDTH]| start.into_iter().chain(rest.iter().copied());
        (all(low).fold(f32::MAX, f32::min), all(high).fold(f32::MIN, f32::max))
    }
}

lanes! {
    /// The bucket of each key: 0 for those near `high`. `scale` is two over the width of a bucket, for halves of keys: the difference of
    /// two finite numbers may not be one.
    fn buckets(key: &[f32], high: f32, scale: f32, bucket: &mut [u16]) {
        for (key, bucket) in key.iter().zip(bucket) {
            let place = (0.5 * high - 0.5 * key) * scale;
            *bucket = if place < (BUCKETS - 1) as f32 { place as i32 as u16 } else { (BUCKETS - 1) as u16 };
        }
    }
}
