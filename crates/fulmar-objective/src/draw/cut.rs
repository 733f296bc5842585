//! The end of a cut by mass, without sorting all of it.
//!
//! ```text
//! keys that weights follow: halve the span of weights that holds the end, until few are in it:
//!                           the sum of all weights above its middle says in which half
//! any keys:                 cut their span into buckets, until few are in the one that holds the end:
//!                           the sums of the buckets before it say in which. Sort those few
//! ```

use std::borrow::Cow;
use std::cmp::Ordering;

use fulmar_compute::cpu::lanes;

/// Numbers that are processed at once.
const WIDTH: usize = 16;

/// Weights that are skipped if none of them is wanted; few enough for sums in single precision.
const RUN: usize = 64;

/// Buckets that one pass over a list sums.
const BUCKETS: usize = 1024;

/// A list this short is sorted.
const SORTED_MAX: usize = 64;

/// Below this many weights, the end of a cut is no longer bisected.
const FEW: f64 = 512.0;

/// Returns score and position of the last element that is kept until the mass before the next one reaches
/// `target`. Elements are ordered by larger score, then by earlier position. Weights are at most 1, never
/// larger for a lower score, and sum to `total`.
pub(super) fn end_of(score: &[f32], weight: &[f32], total: f64, target: f64) -> (f32, u32) {
    let Span { low, high, mass } = Span::of_end(weight, total, target);
    let places = within(weight, low, high);
    if places.is_empty() {
        // Rounding of the mass reached the end: keep all.
        return (f32::NEG_INFINITY, u32::MAX);
    }
    let of_places = |all: &[f32]| -> Vec<f32> { places.iter().map(|place| all[*place as usize]).collect() };
    let (bar, last) = last_within(&of_places(score), &of_places(weight), target - mass);
    (bar, places[last])
}

/// The weights among which a cut by mass ends.
struct Span {
    low: f32,
    /// All these weights are below it.
    high: f32,
    /// The mass of all weights from `high` on.
    mass: f64,
}

impl Span {
    /// Finds the weights at which the mass of the largest weights reaches `target`: few weights, or equal
    /// ones. Weights are at most 1 and sum to `total`.
    fn of_end(weight: &[f32], total: f64, target: f64) -> Self {
        // The bits of positive numbers are in their order. A weight of 0 is never the end. All weights below
        // this bound together have at most half the mass that may be cut, so the end is above it, except for
        // rounding.
        let least = ((0.5 * (total - target) / weight.len() as f64) as f32).to_bits().max(1);
        let (mut low, mut high) = (least, 1.0_f32.to_bits() + 1);
        let (mut mass_from_low, mut mass) = (total, 0.0);
        // Each weight is at least the least of them.
        let are_few = |low: u32, mass: f64| mass <= FEW * f64::from(f32::from_bits(low));
        while weight.len() > SORTED_MAX && high - low > 1 && !are_few(low, mass_from_low - mass) {
            let middle = low + (high - low) / 2;
            let mass_from_middle = mass_from(weight, f32::from_bits(middle));
            if mass_from_middle < target {
                (high, mass) = (middle, mass_from_middle);
            } else {
                (low, mass_from_low) = (middle, mass_from_middle);
            }
        }
        let low = if low == least { 1 } else { low };
        Self { low: f32::from_bits(low), high: f32::from_bits(high), mass }
    }
}

/// Returns the positions of the weights from `low` to below `high`.
fn within(weight: &[f32], low: f32, high: f32) -> Vec<u32> {
    let mut places = Vec::new();
    for (run, weights) in weight.chunks(RUN).enumerate() {
        if any_within(weights, low, high) {
            let numbered = weights.iter().zip((run * RUN) as u32..);
            places
                .extend(numbered.filter(|(weight, _)| **weight >= low && **weight < high).map(|(_, at)| at));
        }
    }
    places
}

/// Returns key and position of the last element that is kept until the mass before the next one reaches
/// `target`. Elements are ordered by larger key, then by earlier position. O(n) for keys in random order.
/// Weights are summed as whole numbers, whose sum is the same in any order.
pub(super) fn last_within(key: &[f32], weight: &[f32], target: f64) -> (f32, usize) {
    let units = Units::of(weight);
    let (mut mass, target) = (0, (target * units.scale).ceil() as u64);
    let unit: Vec<u64> = weight.iter().map(|weight| units.count(*weight)).collect();
    let mut open = Open { key: Cow::Borrowed(key), unit: Cow::Owned(unit), place: None };
    while let Some((bucket, end)) = split(&open.key, &open.unit, &mut mass, target) {
        let inside = open.of_bucket(&bucket, end);
        if inside.key.len() == open.key.len() {
            break;
        }
        open = inside;
    }
    open.last_within(mass, target)
}

/// Whole numbers for weights.
struct Units {
    /// A power of two.
    scale: f64,
}

impl Units {
    /// Gives the weights as many bits as their sum can have.
    fn of(weight: &[f32]) -> Self {
        let largest = weight.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
        let exponent = (largest.to_bits() >> 23) as i32 - 127;
        let bits_of_len = (usize::BITS - weight.len().leading_zeros()) as i32;
        Self { scale: 2.0_f64.powi(62 - bits_of_len - exponent) }
    }

    fn count(&self, weight: f32) -> u64 {
        (f64::from(weight) * self.scale) as u64
    }
}

/// Returns the bucket of each key, and the bucket with the last element; adds the units of the buckets before
/// it to `mass`. `None` for few keys, or if all are equal.
fn split(key: &[f32], unit: &[u64], mass: &mut u64, target: u64) -> Option<(Vec<u16>, u16)> {
    let (low, high) = range(key);
    if low == high || key.len() <= SORTED_MAX {
        return None;
    }
    let scale = 2.0 * BUCKETS as f64 / (f64::from(high) - f64::from(low));
    let mut bucket = vec![0; key.len()];
    buckets(key, high, scale as f32, &mut bucket);
    let mut mass_of = [0; BUCKETS];
    for (bucket, unit) in bucket.iter().zip(unit) {
        mass_of[usize::from(*bucket) % BUCKETS] += unit;
    }
    let end = (0..BUCKETS - 1).find(|&bucket| {
        let is_end = *mass + mass_of[bucket] >= target;
        *mass += if is_end { 0 } else { mass_of[bucket] };
        is_end
    });
    // The last bucket is not empty: it holds the lowest key.
    Some((bucket, end.unwrap_or(BUCKETS - 1) as u16))
}

/// The elements that may still be the last one.
struct Open<'a> {
    key: Cow<'a, [f32]>,
    unit: Cow<'a, [u64]>,
    /// Their original positions; `None` if they have not moved.
    place: Option<Vec<u32>>,
}

impl Open<'_> {
    fn of_bucket(&self, bucket: &[u16], kept: u16) -> Open<'static> {
        let (mut key, mut unit, mut place) = (Vec::new(), Vec::new(), Vec::new());
        for (at, _) in bucket.iter().enumerate().filter(|(_, bucket)| **bucket == kept) {
            key.push(self.key[at]);
            unit.push(self.unit[at]);
            place.push(self.place.as_ref().map_or(at as u32, |place| place[at]));
        }
        Open { key: Cow::Owned(key), unit: Cow::Owned(unit), place: Some(place) }
    }

    /// Finds the last element by sorting; `mass` is the mass before these elements.
    fn last_within(&self, mut mass: u64, target: u64) -> (f32, usize) {
        let mut order: Vec<usize> = (0..self.key.len()).collect();
        order.sort_by(|&a, &b| self.key[b].partial_cmp(&self.key[a]).unwrap_or(Ordering::Equal));
        let mut last = 0;
        for at in order {
            last = at;
            mass += self.unit[at];
            if mass >= target {
                break;
            }
        }
        (self.key[last], self.place.as_ref().map_or(last, |place| place[last] as usize))
    }
}

lanes! {
    /// Returns the sum of all weights that are at least `least`; it does not decrease for a smaller `least`.
    fn mass_from(weight: &[f32], least: f32) -> f64 {
        let counted = |weight: f32| if weight >= least { weight } else { 0.0 };
        let mut sums = [0.0_f64; WIDTH];
        let (whole, rest) = weight.as_chunks::<RUN>();
        for run in whole {
            let mut of_run = [0.0_f32; WIDTH];
            for weights in run.as_chunks::<WIDTH>().0 {
                for lane in 0..WIDTH {
                    of_run[lane] += counted(weights[lane]);
                }
            }
            for lane in 0..WIDTH {
                sums[lane] += f64::from(of_run[lane]);
            }
        }
        sums.into_iter().chain(rest.iter().map(|weight| f64::from(counted(*weight)))).sum()
    }
}

lanes! {
    fn any_within(weight: &[f32], low: f32, high: f32) -> bool {
        weight.iter().fold(0, |any, weight| any | (u32::from(*weight >= low) & u32::from(*weight < high))) != 0
    }
}

lanes! {
    /// Returns the least and the largest of finite numbers.
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
    /// Writes the bucket of each key: 0 for those near `high`. `scale` is two over the width of a bucket,
    /// applied to half a difference of keys: the difference of two finite numbers may overflow.
    fn buckets(key: &[f32], high: f32, scale: f32, bucket: &mut [u16]) {
        for (key, bucket) in key.iter().zip(bucket) {
            let place = (0.5 * high - 0.5 * key) * scale;
            *bucket = if place < (BUCKETS - 1) as f32 { place as i32 as u16 } else { (BUCKETS - 1) as u16 };
        }
    }
}
