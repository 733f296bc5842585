//! Batched queries and updates, level by level, so that their cache misses overlap; vectorised where
//! possible.

use fulmar_compute::cpu::{lanes, prefetch};
use fulmar_core::{Result, Rng};

use super::extremes::Extremes;
use super::line::{LINE, Line, PartSums, SIDE, lane_at, left_in_parts, mass_of, part_sums};
use super::pages::Pages;
use super::{FANOUT, Node};

/// Queries or changes that advance together.
pub(super) const CHUNK: usize = 64;

/// Levels of nodes that do not fit the nearest caches.
const FETCHED_LEVELS: usize = 2;
/// All bits for every child but the first, which has no predecessor. A comparison would become a branch.
const HAS_BEFORE: [u64; FANOUT] = [0, !0, !0, !0, !0, !0, !0, !0];

/// The sums and leaves of a tree.
pub(super) struct Sums<'a> {
    pub(super) levels: &'a [Pages<Node>],
    pub(super) lines: &'a [Line],
    /// Factor from leaves to masses.
    pub(super) scale: f64,
}

/// Memory of [`descend`]: the sums of each query's line, and the rest of its mass. Its 10 KB are cleared once a
/// draw, not for each chunk.
pub(super) struct Parts {
    parts: [PartSums; CHUNK],
    left: [[i64; SIDE]; CHUNK],
}

impl Default for Parts {
    fn default() -> Self {
        Self { parts: [PartSums::default(); CHUNK], left: [[0; SIDE]; CHUNK] }
    }
}

lanes! {
    /// Fills `masses` with uniform numbers below `total`, see [`Rng::fill_below`].
    pub(super) fn draw(rng: &mut Rng, total: u64, masses: &mut [u64]) -> Result<()> {
        rng.fill_below(total, masses)
    }
}

lanes! {
    /// Writes the row of each of `masses`, all below the total, and its key. Overwrites `masses` and `parts`.
    pub(super) fn descend(
        sums: &Sums<'_>,
        masses: &mut [u64],
        rows: &mut [usize],
        keys: &mut [u32],
        parts: &mut Parts,
    ) {
        rows.fill(0);
        for (depth, level) in sums.levels.iter().enumerate().rev() {
            let nodes: &[Node] = level;
            let below: &[Node] = if depth > 0 { &sums.levels[depth - 1] } else { &[] };
            for (mass, place) in masses.iter_mut().zip(rows.iter_mut()) {
                // No branch depends on the mass. Signs of differences are added up, because compilers take the
                // masks of AVX-512's comparisons apart bit by bit.
                let Node(sums_of) = &nodes[*place];
                let num_above = sums_of.iter().map(|sum| mass.wrapping_sub(*sum) >> 63).sum::<u64>();
                let child = (FANOUT - num_above as usize) % FANOUT;
                let before = sums_of[(child + FANOUT - 1) % FANOUT];
                *mass -= before & HAS_BEFORE[child];
                *place = *place * FANOUT + child;
                if depth > 0 { prefetch(below, *place) } else { prefetch(sums.lines, *place) }
            }
        }
        // Three loops, because each vectorises separately.
        let Parts { parts, left } = parts;
        for (parts, row) in parts.iter_mut().zip(rows.iter()) {
            *parts = part_sums(&sums.lines[*row], sums.scale);
        }
        for ((left, parts), mass) in left.iter_mut().zip(parts.iter()).zip(masses) {
            *left = left_in_parts(parts, *mass);
        }
        for (((left, parts), row), key) in left.iter().zip(parts.iter()).zip(rows).zip(keys) {
            let lane = lane_at(parts, left);
            *key = sums.lines[*row].key(lane);
            *row = *row * LINE + lane;
        }
    }
}

lanes! {
    /// Sets the keys of rows, and writes the growth of their masses.
    pub(super) fn write_keys(lines: &mut [Line], rows: &[usize], keys: &[u32], scale: f64, growth: &mut [u64]) {
        let mut before = [0; CHUNK];
        for ((&row, &key), before) in rows.iter().zip(keys).zip(&mut before) {
            *before = lines[row / LINE].replace(row % LINE, key);
        }
        for ((growth, &key), &before) in growth.iter_mut().zip(keys).zip(&before) {
            *growth = mass_of(key, scale).wrapping_sub(mass_of(before, scale));
        }
    }
}

lanes! {
    /// Adds the growth of rows to the sums of a level whose children have `span` rows.
    pub(super) fn grow(nodes: &mut [Node], span: usize, rows: &[usize], growth: &[u64]) {
        let shift = span.trailing_zeros();
        for (&row, &growth) in rows.iter().zip(growth) {
            let child = ((row >> shift) % FANOUT) as i64;
            let Node(sums) = &mut nodes[(row >> shift) / FANOUT];
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(if index as i64 >= child { growth } else { 0 });
            }
        }
    }
}

lanes! {
    /// Computes the sums of a level from `num_children` nodes below.
    pub(super) fn add_up(nodes: &mut [Node], below: &[Node]) {
        for (Node(sums), children) in nodes.iter_mut().zip(below.chunks(FANOUT)) {
            let mut sum = 0;
            for (at, slot) in sums.iter_mut().enumerate() {
                sum += children.get(at).map_or(0, |child| child.0[FANOUT - 1]);
                *slot = sum;
            }
        }
    }
}

lanes! {
    /// Computes the sums of the lowest level.
    pub(super) fn add_up_lines(nodes: &mut [Node], lines: &[Line], scale: f64) {
        for (Node(sums), lines) in nodes.iter_mut().zip(lines.chunks(FANOUT)) {
            let mut sum = 0;
            for (at, slot) in sums.iter_mut().enumerate() {
                sum += lines.get(at).map_or(0, |line| line.mass(scale));
                *slot = sum;
            }
        }
    }
}

/// Prefetches all memory that a chunk of changes touches at random.
pub(super) fn fetch(lines: &[Line], levels: &[Pages<Node>], extremes: &Extremes, rows: &[usize]) {
    for &row in rows {
        prefetch(lines, row / LINE);
        extremes.prefetch(row / LINE);
        let mut node = row / LINE;
        for level in levels.iter().take(FETCHED_LEVELS) {
            node /= FANOUT;
            prefetch(level, node);
        }
    }
}
