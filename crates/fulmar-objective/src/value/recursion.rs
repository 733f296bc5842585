//! `x_t = b_t + a_t x_{t+1}` from the last step to the first, many sequences at once.

use std::ops::Range;

use super::TimeAxis;

/// Sequences that run side by side: one alone would wait for its own last sum.
const LANES: usize = 8;
/// Steps of a row that are prepared at once, so that all of them stay in the first cache.
const STEPS: usize = 128;
/// Room of a row. Were it 1024 bytes, the writes of one would delay the reads of another, 4096 behind it.
const ROOM: usize = STEPS + 8;
/// Elements behind the time dimension that are prepared at once.
const COLUMNS: usize = 1024;

/// `fill(range, b, a)` writes the terms of the elements `range`, `start(i)` is `x` behind the last step `i`, and
/// `finish(range, x)` takes what came out. Ranges are contiguous, each element is in one.
pub(super) fn recur(
    axis: TimeAxis,
    start: impl Fn(usize) -> f64,
    fill: impl Fn(Range<usize>, &mut [f64], &mut [f64]),
    finish: impl FnMut(Range<usize>, &[f64]),
) {
    if axis.time == 0 {
        return;
    }
    if axis.inner == 1 {
        rows(axis, start, fill, finish);
    } else {
        columns(axis, start, fill, finish);
    }
}

/// `then(i)` for each flag `i` that is set. They are few, and looking for them is cheaper than asking at every step.
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

/// Time is the last dimension: [`LANES`] rows at once, a chunk of steps after the other.
fn rows(
    axis: TimeAxis,
    start: impl Fn(usize) -> f64,
    fill: impl Fn(Range<usize>, &mut [f64], &mut [f64]),
    mut finish: impl FnMut(Range<usize>, &[f64]),
) {
    let (mut b, mut a) = ([[0.0; ROOM]; LANES], [[0.0; ROOM]; LANES]);
    for first in (0..axis.outer).step_by(LANES) {
        let num_rows = LANES.min(axis.outer - first);
        let mut carry = [0.0; LANES];
        for (lane, carry) in carry[..num_rows].iter_mut().enumerate() {
            *carry = start((first + lane + 1) * axis.time - 1);
        }
        let mut end = axis.time;
        while end > 0 {
            let begin = end.saturating_sub(STEPS);
            let len = end - begin;
            let range = |lane: usize| (first + lane) * axis.time + begin..(first + lane) * axis.time + end;
            for (lane, (b, a)) in b.iter_mut().zip(&mut a).enumerate().take(num_rows) {
                fill(range(lane), &mut b[..len], &mut a[..len]);
            }
            for step in (0..len).rev() {
                for lane in 0..LANES {
                    carry[lane] = b[lane][step] + a[lane][step] * carry[lane];
                    b[lane][step] = carry[lane];
                }
            }
            for (lane, b) in b.iter().enumerate().take(num_rows) {
                finish(range(lane), &b[..len]);
            }
            end = begin;
        }
    }
}

/// Time has elements behind it: a chunk of those at once, step after step.
fn columns(
    axis: TimeAxis,
    start: impl Fn(usize) -> f64,
    fill: impl Fn(Range<usize>, &mut [f64], &mut [f64]),
    mut finish: impl FnMut(Range<usize>, &[f64]),
) {
    let (mut b, mut a, mut carry) = ([0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]);
    for block in 0..axis.outer {
        for first in (0..axis.inner).step_by(COLUMNS) {
            let len = COLUMNS.min(axis.inner - first);
            let range = |step: usize| {
                let begin = (block * axis.time + step) * axis.inner + first;
                begin..begin + len
            };
            for (carry, index) in carry.iter_mut().zip(range(axis.time - 1)) {
                *carry = start(index);
            }
            for step in (0..axis.time).rev() {
                fill(range(step), &mut b[..len], &mut a[..len]);
                for ((carry, b), a) in carry[..len].iter_mut().zip(&b).zip(&a) {
                    *carry = b + a * *carry;
                }
                finish(range(step), &carry[..len]);
            }
        }
    }
}
