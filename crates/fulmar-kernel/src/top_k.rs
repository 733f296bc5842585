//! The largest of many numbers, without sorting them.
//!
//! ```text
//! keep a short list, at most 2 k long, and its k-th largest number as a bar
//! for each run of numbers: if one is above the bar, put those above it on the list
//! when the list is full: partition it, drop all but k, raise the bar
//! ```
//! Most runs of a long row hold nothing above the bar, so the cost is about one comparison a number.

use std::cmp::Ordering;

use crate::lanes::lanes;

/// Numbers that are compared with the bar at once.
const RUN: usize = 64;

/// Returns the indices of the `k` largest of `values`, the largest first, ties by the lower index; all of
/// them, in that order, if there are at most `k`. A NaN is less than everything. O(n + k log k) for numbers
/// in random order.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_kernel::top_k(&[0.5, 2.0, -1.0, 2.0], 3), [1, 3, 0]);
/// ```
#[must_use]
pub fn top_k(values: &[f32], k: usize) -> Vec<u32> {
    if k == 0 {
        return Vec::new();
    }
    let mut list = ShortList { values, k, ids: Vec::with_capacity(k.min(values.len()).saturating_mul(2)) };
    list.scan();
    list.cut();
    list.ids.sort_unstable_by(|a, b| order(values, a, b));
    list.ids
}

/// Returns the indices of all `values` that are at least `bar`, in order.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_kernel::at_least(&[0.5, 2.0, f32::NAN, 1.0], 1.0), [1, 3]);
/// ```
#[must_use]
pub fn at_least(values: &[f32], bar: f32) -> Vec<u32> {
    let num_ids = values.chunks(RUN).map(|values| count_at_least(values, bar) as usize).sum();
    // One more slot, as each id is written before its comparison: a mispredicted branch costs more.
    let (mut ids, mut end) = (vec![0; num_ids + 1], 0);
    for (run, values) in values.chunks(RUN).enumerate() {
        if end < num_ids && any_at_least(values, bar) {
            for (value, id) in values.iter().zip((run * RUN) as u32..) {
                ids[end] = id;
                end += usize::from(*value >= bar);
            }
        }
    }
    ids.truncate(num_ids);
    ids
}

struct ShortList<'a> {
    values: &'a [f32],
    k: usize,
    ids: Vec<u32>,
}

impl ShortList<'_> {
    fn scan(&mut self) {
        let first = self.k.min(self.values.len());
        self.ids.extend(0..first as u32);
        let mut bar = self.bar();
        for (run, values) in self.values[first..].chunks(RUN).enumerate() {
            if !any_above(values, bar) {
                continue;
            }
            let start = (first + run * RUN) as u32;
            for (value, id) in values.iter().zip(start..) {
                if is_above(*value, bar) {
                    self.ids.push(id);
                }
            }
            if self.ids.len() >= self.k.saturating_mul(2) {
                self.cut();
                bar = self.bar();
            }
        }
    }

    /// Returns the last of the list after a cut: only values above it may enter, as later equal values lose.
    fn bar(&self) -> f32 {
        self.ids
            .iter()
            .max_by(|a, b| order(self.values, a, b))
            .map_or(f32::NAN, |&id| self.values[id as usize])
    }

    /// Drops all but the `k` first.
    fn cut(&mut self) {
        if self.ids.len() > self.k {
            let values = self.values;
            self.ids.select_nth_unstable_by(self.k - 1, |a, b| order(values, a, b));
            self.ids.truncate(self.k);
        }
    }
}

/// Larger numbers first, then NaNs; ties, with 0 equal to -0, by the lower index.
fn order(values: &[f32], a: &u32, b: &u32) -> Ordering {
    let (x, y) = (values[*a as usize], values[*b as usize]);
    let by_value = y.partial_cmp(&x).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
    by_value.then(a.cmp(b))
}

/// Returns whether `value` is larger than `bar`; every number is larger than a NaN.
#[inline(always)]
fn is_above(value: f32, bar: f32) -> bool {
    value > bar || (bar.is_nan() && !value.is_nan())
}

lanes! {
    fn any_above(values: &[f32], bar: f32) -> bool {
        values.iter().fold(0_u32, |above, value| above | u32::from(is_above(*value, bar))) != 0
    }
}

lanes! {
    fn any_at_least(values: &[f32], bar: f32) -> bool {
        values.iter().fold(0_u32, |any, value| any | u32::from(*value >= bar)) != 0
    }
}

lanes! {
    fn count_at_least(values: &[f32], bar: f32) -> u32 {
        values.iter().map(|value| u32::from(*value >= bar)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::random;

    fn sorted(values: &[f32], k: usize) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..values.len() as u32).collect();
        ids.sort_by(|a, b| order(values, a, b));
        ids.truncate(k);
        ids
    }

    #[test]
    fn the_largest_equal_those_of_a_full_sort() {
        for (seed, len) in [(1, 0), (2, 1), (3, 63), (4, 64), (5, 65), (6, 1000), (7, 20_000)] {
            let mut values = random(seed, len);
            for k in [0, 1, 2, 17, 64, 500, len, len + 1, usize::MAX] {
                assert_eq!(top_k(&values, k), sorted(&values, k), "{k} of {len}");
            }
            // Rising numbers are the worst case: each is above the bar.
            values.sort_by(f32::total_cmp);
            assert_eq!(top_k(&values, 5), sorted(&values, 5));
        }
    }

    #[test]
    fn all_above_a_bar_equal_a_plain_search() {
        let values = random(9, 5000);
        for bar in [f32::NEG_INFINITY, -1.0, 0.0, values[7], 3.0, f32::INFINITY, f32::NAN] {
            let plain: Vec<u32> = (0..5000).filter(|&id| values[id as usize] >= bar).collect();
            assert_eq!(at_least(&values, bar), plain, "{bar}");
        }
    }

    #[test]
    fn equals_go_by_the_lower_index_and_what_is_no_number_comes_last() {
        let coarse: Vec<f32> = random(8, 3000).iter().map(|x| (x * 3.0).round()).collect();
        for k in [1, 10, 100, 2999] {
            assert_eq!(top_k(&coarse, k), sorted(&coarse, k));
        }
        assert_eq!(top_k(&[-0.0, 0.0, f32::NEG_INFINITY], 3), [0, 1, 2]);
        assert_eq!(top_k(&[f32::NAN, f32::NEG_INFINITY, f32::NAN, 1.0, 2.0], 4), [4, 3, 1, 0]);
        assert_eq!(top_k(&[f32::NAN; 200], 3), [0, 1, 2]);
    }
}
