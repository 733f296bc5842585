//! Computes `x_t = b_t + a_t x_{t+1}` from the last step to the first, many sequences at once.

use std::ops::Range;

use fulmar_compute::cpu::for_each_part;
use fulmar_core::Result;

use super::{TimeAxis, finite};
use crate::Real;
use crate::real::are_finite;

/// Sequences that are computed at once: a single one would wait for its own last sum.
const LANES: usize = 8;
/// Steps of a row that are prepared at once, so that all of them stay in the first-level cache.
const STEPS: usize = 128;
/// Padded length of a row. With 1024 bytes, the writes of one row would delay the reads of another, 4096
/// bytes away.
const ROOM: usize = STEPS + 8;
/// Elements after the time dimension that are prepared at once.
const COLUMNS: usize = 1024;
/// Fewest elements for a thread of their own.
const PART: usize = 1 << 14;

/// Some elements on their way to `N` results for each. Elements are adjacent, and each comes once.
pub(super) struct Stretch<'a, T, const N: usize> {
    /// The range of the elements.
    pub range: Range<usize>,
    /// The number of last steps, at the end of the range.
    pub num_last: usize,
    /// Their results: values written with the terms, and overwritten or kept once `x` is known.
    pub out: [&'a mut [T]; N],
}

/// Runs the recursion and returns the results of all elements. `fill(elements, b, a)` writes the terms of
/// some elements, `start(i)` returns `x` after the last step `i`, and `finish(elements, x, x_behind)` gets
/// the result of each element and of the step after it.
///
/// # Errors
/// `NonFinite`, with its name, if a result is not finite.
pub(super) fn recur<T: Real, const N: usize>(
    axis: TimeAxis,
    names: [&str; N],
    start: impl Fn(usize) -> f64 + Sync,
    fill: impl Fn(Stretch<'_, T, N>, &mut [f64], &mut [f64]) + Sync,
    finish: impl Fn(Stretch<'_, T, N>, &[f64], &mut [f64]) + Sync,
) -> Result<[Vec<T>; N]> {
    let TimeAxis { outer, time, inner } = axis;
    let mut all = [(); N].map(|()| vec![T::narrow(0.0); outer * time * inner]);
    if outer * time * inner == 0 {
        return Ok(all);
    }
    let num_rows = PART.div_ceil(time * inner).next_multiple_of(LANES);
    let mut chunks = all.each_mut().map(|all| all.chunks_mut(num_rows * time * inner));
    let mut parts: Vec<Part<'_, T, N>> = (0..outer)
        .step_by(num_rows)
        .map(|first| Part {
            axis,
            first,
            out: chunks.each_mut().map(|chunks| chunks.next().unwrap_or_default()),
        })
        .collect();
    let are_good = for_each_part(&mut parts, |part| {
        // Check the values while they are in the cache.
        let finish = |mut of: Stretch<'_, T, N>, x: &[f64], x_behind: &mut [f64]| {
            finish(of.again(), x, x_behind);
            of.out.iter().all(|out| are_finite(out))
        };
        if inner == 1 { rows(part, &start, &fill, finish) } else { columns(part, &start, &fill, finish) }
    });
    if !are_good.into_iter().all(|is_good| is_good) {
        for (name, values) in names.iter().zip(&all) {
            finite(name, values)?;
        }
    }
    Ok(all)
}

/// Calls `then(i)` for each flag `i` that is set. Few are, and searching for them is cheaper than a branch at
/// every step.
#[inline(always)]
pub(super) fn each_set(flags: &[u8], mut then: impl FnMut(usize)) {
    let chunks = flags.chunks_exact(16);
    let (rest, behind) = (chunks.remainder(), flags.len() - chunks.remainder().len());
    for (block, flags) in chunks.enumerate() {
        if *flags != [0; 16] {
            (0..16).filter(|at| flags[*at] != 0).for_each(|at| then(block * 16 + at));
        }
    }
    (0..rest.len()).filter(|at| rest[*at] != 0).for_each(|at| then(behind + at));
}

/// Whole sequences: the results from `first` on, which no other part writes.
struct Part<'a, T, const N: usize> {
    axis: TimeAxis,
    first: usize,
    out: [&'a mut [T]; N],
}

impl<T, const N: usize> Part<'_, T, N> {
    fn outer(&self) -> Range<usize> {
        self.first..self.first + self.out[0].len() / (self.axis.time * self.axis.inner)
    }

    fn stretch(&mut self, range: Range<usize>, num_last: usize) -> Stretch<'_, T, N> {
        let before = self.first * self.axis.time * self.axis.inner;
        let out = self.out.each_mut().map(|out| &mut out[range.start - before..range.end - before]);
        Stretch { range, num_last, out }
    }
}

impl<T, const N: usize> Stretch<'_, T, N> {
    fn again(&mut self) -> Stretch<'_, T, N> {
        let out = self.out.each_mut().map(|out| &mut **out);
        Stretch { range: self.range.clone(), num_last: self.num_last, out }
    }
}

/// Runs arrays with time as the last dimension: [`LANES`] rows at once, chunk by chunk. Returns whether all
/// results are finite.
fn rows<T, const N: usize>(
    part: &mut Part<'_, T, N>,
    start: impl Fn(usize) -> f64,
    fill: impl Fn(Stretch<'_, T, N>, &mut [f64], &mut [f64]),
    finish: impl Fn(Stretch<'_, T, N>, &[f64], &mut [f64]) -> bool,
) -> bool {
    let (mut b, mut a) = ([[0.0; ROOM]; LANES], [[0.0; ROOM]; LANES]);
    let (outer, time, mut are_good) = (part.outer(), part.axis.time, true);
    for first in outer.clone().step_by(LANES) {
        let num_rows = LANES.min(outer.end - first);
        let mut carry = [0.0; LANES];
        for (lane, carry) in carry[..num_rows].iter_mut().enumerate() {
            *carry = start((first + lane + 1) * time - 1);
        }
        let mut end = time;
        while end > 0 {
            let begin = end.saturating_sub(STEPS);
            let (len, num_last) = (end - begin, usize::from(end == time));
            let range = |lane: usize| (first + lane) * time + begin..(first + lane) * time + end;
            for lane in 0..num_rows {
                fill(part.stretch(range(lane), num_last), &mut b[lane][..len], &mut a[lane][..len]);
                b[lane][len] = carry[lane];
            }
            for step in (0..len).rev() {
                for lane in 0..LANES {
                    carry[lane] = b[lane][step] + a[lane][step] * carry[lane];
                    b[lane][step] = carry[lane];
                }
            }
            for lane in 0..num_rows {
                let (x, x_behind) = (&b[lane], &mut a[lane][..len]);
                x_behind.copy_from_slice(&x[1..=len]);
                are_good &= finish(part.stretch(range(lane), num_last), &x[..len], x_behind);
            }
            end = begin;
        }
    }
    are_good
}

/// Runs arrays with elements after the time dimension: a chunk of elements at once, step by step. Returns
/// whether all results are finite.
fn columns<T, const N: usize>(
    part: &mut Part<'_, T, N>,
    start: impl Fn(usize) -> f64,
    fill: impl Fn(Stretch<'_, T, N>, &mut [f64], &mut [f64]),
    finish: impl Fn(Stretch<'_, T, N>, &[f64], &mut [f64]) -> bool,
) -> bool {
    let (mut one, mut other, mut a) = ([0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]);
    let (mut x, mut x_behind, mut are_good) = (&mut one, &mut other, true);
    let TimeAxis { time, inner, .. } = part.axis;
    for block in part.outer() {
        for first in (0..inner).step_by(COLUMNS) {
            let len = COLUMNS.min(inner - first);
            let range = |step: usize| {
                let begin = (block * time + step) * inner + first;
                begin..begin + len
            };
            for (x, index) in x.iter_mut().zip(range(time - 1)) {
                *x = start(index);
            }
            for step in (0..time).rev() {
                std::mem::swap(&mut x, &mut x_behind);
                let num_last = if step == time - 1 { len } else { 0 };
                fill(part.stretch(range(step), num_last), &mut x[..len], &mut a[..len]);
                for ((x, a), behind) in x[..len].iter_mut().zip(&a).zip(&*x_behind) {
                    *x += a * behind;
                }
                are_good &= finish(part.stretch(range(step), num_last), &x[..len], &mut x_behind[..len]);
            }
        }
    }
    are_good
}
