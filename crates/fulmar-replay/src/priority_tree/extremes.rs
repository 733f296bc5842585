//! The smallest and the largest key below every node: an 8-ary tree over lines of leaves.

use bytemuck::{Pod, Zeroable};
use fulmar_core::Result;

use super::pages::Pages;
use super::{FANOUT, LINE, leaf_of};

/// Smallest and largest of some keys. Keys of 0 stand for leaves that were not set, and count for neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Extreme {
    /// The bits of the smallest key less one, inverted: the largest of them is the smallest key, and 0 is none.
    min_inverted: u32,
    pub(super) max: u32,
}

impl Extreme {
    pub(super) fn min_leaf(self) -> Option<f32> {
        leaf_of((!self.min_inverted).wrapping_add(1))
    }

    fn of_key(key: u32) -> Self {
        Self { min_inverted: !key.wrapping_sub(1), max: key }
    }

    fn with(self, other: Self) -> Self {
        Self { min_inverted: self.min_inverted.max(other.min_inverted), max: self.max.max(other.max) }
    }

    fn of_keys(keys: &[u32]) -> Self {
        keys.iter().fold(Self::default(), |all, &key| all.with(Self::of_key(key)))
    }
}

/// `levels[0]` has one entry a line of leaves, every further level one for 8 entries, the last has one.
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

    /// Takes note of the keys that line `line` has now.
    pub(super) fn update(&mut self, line: usize, keys: &[u32]) {
        let mut place = line;
        let mut now = Extreme::of_keys(keys);
        for level in 0..self.levels.len() {
            if self.levels[level][place] == now {
                return;
            }
            self.levels[level][place] = now;
            place /= FANOUT;
            let nodes = &self.levels[level];
            let siblings = &nodes[place * FANOUT..nodes.len().min((place + 1) * FANOUT)];
            now = siblings.iter().fold(Extreme::default(), |all, &one| all.with(one));
        }
    }

    /// The first line that holds the largest key, and that key.
    pub(super) fn first_max(&self) -> Option<(usize, u32)> {
        let max = self.root().max;
        let mut place = 0;
        for level in self.levels.iter().rev().skip(1) {
            let children = &level[place * FANOUT..level.len().min((place + 1) * FANOUT)];
            place = place * FANOUT + children.iter().position(|child| child.max == max)?;
        }
        if max > 0 { Some((place, max)) } else { None }
    }

    /// The extremes of rows `start..end`, whose keys `key_at` knows.
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
