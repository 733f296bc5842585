//! The smallest and the largest key below every node: an 8-ary tree over lines of leaves.

use bytemuck::{Pod, Zeroable};
use fulmar_compute::cpu::{lanes, prefetch};
use fulmar_core::Result;

use super::FANOUT;
use super::key::leaf_of;
use super::line::{LINE, Line, SIDE};
use super::pages::Pages;
use super::walk::CHUNK;

/// Smallest and largest of some keys. Keys of 0 are unset leaves and are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Extreme {
    /// The negative of the smallest key, modulo 2^32: the maximum of these gives the smallest key, and 0
    /// means none.
    min_inverted: u32,
    pub(super) max: u32,
}

impl Extreme {
    pub(super) fn min_leaf(self) -> Option<f32> {
        leaf_of(self.min_inverted.wrapping_neg())
    }

    #[inline(always)]
    fn of_key(key: u32) -> Self {
        Self { min_inverted: key.wrapping_neg(), max: key }
    }

    #[inline(always)]
    fn with(self, other: Self) -> Self {
        Self { min_inverted: self.min_inverted.max(other.min_inverted), max: self.max.max(other.max) }
    }
}

lanes! {
    /// Sets the entries of the lines of `rows`. Moves those that changed to the front of `changed` and
    /// returns their number.
    fn take_lines(entries: &mut [Extreme], lines: &[Line], rows: &[usize], changed: &mut [usize; CHUNK]) -> usize {
        // Two loops, because each vectorises separately.
        let (mut lows, mut highs) = ([[0; SIDE]; CHUNK], [[0; SIDE]; CHUNK]);
        for ((low, high), row) in lows.iter_mut().zip(&mut highs).zip(rows) {
            let (mut least, mut most) = ([0; SIDE], [0; SIDE]);
            for keys in lines[row / LINE].keys().chunks_exact(SIDE) {
                for part in 0..SIDE {
                    least[part] = keys[part].wrapping_neg().max(least[part]);
                    most[part] = keys[part].max(most[part]);
                }
            }
            (*low, *high) = (least, most);
        }
        let mut count = 0;
        for ((low, high), row) in lows.iter().zip(&highs).zip(rows) {
            let largest = |of: &[u32; SIDE]| of[0].max(of[1]).max(of[2].max(of[3]));
            let (line, now) = (row / LINE, Extreme { min_inverted: largest(low), max: largest(high) });
            changed[count] = line;
            count += usize::from(entries[line] != now);
            entries[line] = now;
        }
        count
    }
}

lanes! {
    /// Sets the entries above those that changed. Moves those that changed to the front and returns their
    /// number.
    fn take_nodes(entries: &mut [Extreme], below: &[Extreme], changed: &mut [usize]) -> usize {
        let mut count = 0;
        for at in 0..changed.len() {
            let place = changed[at] / FANOUT;
            let now = above(below, place);
            changed[count] = place;
            count += usize::from(entries[place] != now);
            entries[place] = now;
        }
        count
    }
}

lanes! {
    fn take_all(entries: &mut [Extreme], below: &[Extreme]) {
        for (place, entry) in entries.iter_mut().enumerate() {
            *entry = above(below, place);
        }
    }
}

/// Returns the extremes of all children of a node.
#[inline(always)]
fn above(below: &[Extreme], place: usize) -> Extreme {
    let children = &below[place * FANOUT..];
    match children.first_chunk::<FANOUT>() {
        Some(children) => children.iter().fold(Extreme::default(), |all, &one| all.with(one)),
        None => children.iter().fold(Extreme::default(), |all, &one| all.with(one)),
    }
}

/// `levels[0]` has one entry for each line of leaves, every further level one for 8 entries, the last has
/// one.
#[derive(Debug, Clone)]
pub(super) struct Extremes {
    levels: Vec<Pages<Extreme>>,
}

impl Extremes {
    pub(super) fn new(num_lines: usize) -> Result<Self> {
        let mut levels = vec![Pages::zeroed(num_lines)?];
        let mut count = num_lines;
        while count > 1 {
            count = count.div_ceil(FANOUT);
            levels.push(Pages::zeroed(count)?);
        }
        Ok(Self { levels })
    }

    pub(super) fn root(&self) -> Extreme {
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        for level in &mut self.levels {
            level.fill(Extreme::default());
        }
    }

    /// Prefetches the memory that [`Extremes::update`] of a line touches first.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: usize) {
        prefetch(&self.levels[0], line);
    }

    /// Records the keys of the lines of `rows`, at most [`CHUNK`], up to the level before `end`.
    pub(super) fn update(&mut self, lines: &[Line], rows: &[usize], end: usize) {
        let mut changed = [0; CHUNK];
        let mut count = take_lines(&mut self.levels[0], lines, rows, &mut changed);
        for depth in 1..end.min(self.levels.len()) {
            let (below, above) = self.levels.split_at_mut(depth);
            count = take_nodes(&mut above[0], &below[depth - 1], &mut changed[..count]);
        }
    }

    /// Sets the first lines to one key; no other line may have keys.
    pub(super) fn fill(&mut self, num_lines: usize, key: u32) {
        self.levels[0][..num_lines].fill(Extreme::of_key(key));
        self.rebuild(1);
    }

    /// Recomputes the levels from `start` on.
    pub(super) fn rebuild(&mut self, start: usize) {
        for depth in start.max(1)..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(depth);
            take_all(&mut above[0], &below[depth - 1]);
        }
    }

    /// Returns the first line with the largest key, and that key.
    pub(super) fn first_max(&self) -> Option<(usize, u32)> {
        let max = self.root().max;
        let mut place = 0;
        for level in self.levels.iter().rev().skip(1) {
            let children = &level[place * FANOUT..level.len().min((place + 1) * FANOUT)];
            place = place * FANOUT + children.iter().position(|child| child.max == max)?;
        }
        if max > 0 { Some((place, max)) } else { None }
    }

    /// Returns the extremes of rows `start..end`, with keys from `key_at`.
    pub(super) fn over(&self, start: usize, end: usize, key_at: impl Fn(usize) -> u32) -> Extreme {
        let mut all = Extreme::default();
        let mut row = start;
        while row < end {
            if !row.is_multiple_of(LINE) || row + LINE > end {
                all = all.with(Extreme::of_key(key_at(row)));
                row += 1;
                continue;
            }
            let (mut span, mut level) = (LINE, 0);
            while level + 1 < self.levels.len()
                && row.is_multiple_of(span * FANOUT)
                && row + span * FANOUT <= end
            {
                span *= FANOUT;
                level += 1;
            }
            all = all.with(self.levels[level][row / span]);
            row += span;
        }
        all
    }
}
