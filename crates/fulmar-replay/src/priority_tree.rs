//! A sum tree over the priorities of up to [`REPLAY_ROWS_MAX`](fulmar_core::limits::REPLAY_ROWS_MAX) rows, exact in integers.
//!
//! A row's **leaf** is the `f32` that was set. Its **mass**, what draws are proportional to, is a pure function of it:
//! `mass = max(1, round(leaf / unit))` for a leaf above 0 and 0 for a leaf of 0, where `unit` is a power of two chosen
//! from the largest leaf. Sums of masses are integers, so they never drift, do not depend on the order of updates, are
//! the same on every target, and every row with a leaf above 0 can be drawn, whatever the number of rows.
//!
//! ```text
//! level 1     [ 8 prefix sums ]                     one cache line a node: u64 sums of children 0..=k
//! level 0     [ 8 prefix sums ] ...
//! leaves      [ 16 leaves     ] x 8 ...             one cache line of f32, turned into masses when read
//!
//! draw:       mass ~ uniform over 0..total          descend: k = number of prefix sums <= mass; mass -= prefix[k - 1]
//! ```
//!
//! Memory: 4 bytes a leaf, 0.6 bytes of sums and 0.6 of extremes. Drawing and updating cost O(log rows); many at once
//! advance level by level, so that their cache misses overlap.

mod extremes;
mod pages;

use bytemuck::{Pod, Zeroable};
use fulmar_core::{Error, ErrorKind, Result, Rng};
use serde::{Deserialize, Serialize};

use crate::row::{checked_capacity, checked_draw, checked_row};
use extremes::Extremes;
use pages::Pages;

/// Children of an inner node.
const FANOUT: usize = 8;
/// Leaves of one cache line.
const LINE: usize = 16;
/// Queries that advance together.
const CHUNK: usize = 64;
/// Most bits of one mass: a leaf is rounded to a whole number in an `f64`, which holds no more.
const MASS_BITS_MAX: u32 = 51;
/// The unit shrinks when the largest leaf has fallen this many powers of two below what the unit was chosen for.
const SLACK_BITS: i32 = 8;

/// Inclusive prefix sums of the masses below the children.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
struct Node([u64; FANOUT]);

/// Bits of the leaves plus one; 0 where no leaf was set. Order of keys is order of leaves.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u32; LINE]);

/// See the module's text.
///
/// # Examples
/// ```
/// use fulmar_core::Rng;
/// use fulmar_replay::PriorityTree;
/// let mut tree = PriorityTree::new(100)?;
/// tree.update(&[0, 1, 2], &[1.0, 0.0, 3.0])?;
/// assert_eq!((tree.sum(), tree.min()), (4.0, Some(0.0)));
/// let rows = tree.sample(&mut Rng::new(7), 1_000)?;
/// assert!(rows.iter().all(|&row| row == 0 || row == 2));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PriorityTree {
    capacity: usize,
    /// All leaves are below two to this power.
    top: i32,
    /// Masses are below two to this power.
    mass_bits: u32,
    /// One more than the highest row that was ever set.
    end: usize,
    lines: Pages<Line>,
    /// From the leaves up; the last level is one node.
    levels: Vec<Pages<Node>>,
    extremes: Extremes,
}

/// All that a [`PriorityTree`] must keep to draw the same rows again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriorityTreeState {
    /// Number of rows there is room for.
    pub capacity: usize,
    /// All leaves are below two to this power; fixes the unit.
    pub top: i32,
    /// The leaf of each row, absent where none was set; rows behind the last set one are left out.
    pub leaves: Vec<Option<f32>>,
}

impl PriorityTree {
    /// A tree with room for `capacity` rows, none of them set.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above [`REPLAY_ROWS_MAX`](fulmar_core::limits::REPLAY_ROWS_MAX) or memory does not suffice.
    pub fn new(capacity: usize) -> Result<Self> {
        checked_capacity(capacity)?;
        let mut num_children = capacity.div_ceil(LINE);
        let lines = Pages::zeroed(num_children)?;
        let extremes = Extremes::new(num_children)?;
        let mut levels = Vec::new();
        while num_children > 1 || levels.is_empty() {
            num_children = num_children.div_ceil(FANOUT);
            levels.push(Pages::zeroed(num_children)?);
        }
        let mass_bits = (63 - ceil_log2(capacity)).min(MASS_BITS_MAX);
        Ok(Self { capacity, top: 1, mass_bits, end: 0, lines, levels, extremes })
    }

    /// The number of rows there is room for.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The sum of all masses: draws take an integer below it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.levels.last().and_then(|level| level.first()).map_or(0, |root| root.0[FANOUT - 1])
    }

    /// What one unit of mass is worth as a priority, a power of two.
    ///
    /// The largest leaf has at least 63 - 9 - log2(capacity) bits, at most 51: 27 for 100 million rows, 34 for a million.
    #[must_use]
    pub fn unit(&self) -> f64 {
        power_of_two(self.top - self.mass_bits as i32)
    }

    /// The sum of all leaves, each rounded to a multiple of [`PriorityTree::unit`].
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.total() as f64 * self.unit()
    }

    /// The sum of the leaves of rows `start..end`, each rounded to a multiple of [`PriorityTree::unit`].
    ///
    /// # Errors
    /// `OutOfRange` if the range is empty or reaches beyond the capacity.
    pub fn sum_in(&self, start: usize, end: usize) -> Result<f64> {
        self.check_range(start, end)?;
        Ok((self.mass_before(end) - self.mass_before(start)) as f64 * self.unit())
    }

    /// The smallest leaf that is set.
    #[must_use]
    pub fn min(&self) -> Option<f32> {
        self.extremes.root().min_leaf()
    }

    /// The smallest leaf that is set in rows `start..end`.
    ///
    /// # Errors
    /// `OutOfRange` if the range is empty or reaches beyond the capacity.
    pub fn min_in(&self, start: usize, end: usize) -> Result<Option<f32>> {
        self.check_range(start, end)?;
        Ok(self.extremes.over(start, end, |row| self.key(row)).min_leaf())
    }

    /// The first row among those with the largest leaf, and that leaf.
    #[must_use]
    pub fn max(&self) -> Option<(usize, f32)> {
        let (line, key) = self.extremes.first_max()?;
        let lane = self.lines[line].0.iter().position(|&other| other == key)?;
        Some((line * LINE + lane, leaf_of(key)?))
    }

    /// The leaf of `row`; `None` if none was set or the row is beyond the capacity.
    #[must_use]
    pub fn leaf(&self, row: usize) -> Option<f32> {
        if row < self.capacity { leaf_of(self.key(row)) } else { None }
    }

    /// Sets the leaf of each of `rows`. Where a row comes twice, the last leaf wins. Nothing changes on an error.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ, `NonFinite` if a leaf is NaN or infinite, `OutOfRange` if a leaf is
    /// negative or a row is beyond the capacity.
    pub fn update(&mut self, rows: &[usize], leaves: &[f32]) -> Result<()> {
        if rows.len() != leaves.len() {
            let detail = format!("leaves must have one item a row, {}: got {}", rows.len(), leaves.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut largest = 0;
        for (&row, &leaf) in rows.iter().zip(leaves) {
            checked_row(row, self.capacity)?;
            largest = largest.max(key_of(leaf).map_err(|error| error.at(format!("row {row}")))?);
        }
        if top_of(largest) > self.top {
            self.top = top_of(largest);
            self.write_leaves(rows, leaves);
            self.sum_up();
        } else {
            for (rows, leaves) in rows.chunks(CHUNK).zip(leaves.chunks(CHUNK)) {
                self.update_chunk(rows, leaves);
            }
        }
        self.tighten();
        Ok(())
    }

    /// Sets the leaf of every row that has one to `change(leaf)`. Nothing changes on an error.
    ///
    /// # Errors
    /// `NonFinite` or `OutOfRange` if a new leaf is not a finite number >= 0.
    pub fn map_leaves(&mut self, change: impl Fn(f32) -> f32) -> Result<()> {
        let (mut rows, mut leaves) = (Vec::new(), Vec::new());
        for row in 0..self.end {
            if let Some(leaf) = self.leaf(row) {
                rows.push(row);
                leaves.push(change(leaf));
            }
        }
        self.update(&rows, &leaves)
    }

    /// Draws `count` rows with replacement, each with the probability of its mass. Shape `[count]`.
    ///
    /// # Errors
    /// `Empty` if no leaf was set, `OutOfRange` if all are 0 or `count` is not in `1..=`[`REPLAY_SAMPLE_ROWS_MAX`].
    ///
    /// [`REPLAY_SAMPLE_ROWS_MAX`]: fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX
    pub fn sample(&self, rng: &mut Rng, count: usize) -> Result<Vec<usize>> {
        checked_draw(self.end, count)?;
        let total = self.total();
        if total == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "the sum of priorities must be > 0: got 0"));
        }
        let mut masses = Vec::with_capacity(count);
        for _ in 0..count {
            masses.push(rng.below(total)?);
        }
        Ok(self.rows_at(&masses))
    }

    /// The row that each mass falls on: the first whose sum of masses up to and including itself is above it. All masses
    /// must be below [`PriorityTree::total`]; the capacity stands for those that are not.
    #[must_use]
    pub fn rows_at(&self, masses: &[u64]) -> Vec<usize> {
        let mut rows = vec![self.capacity; masses.len()];
        for (masses, rows) in masses.chunks(CHUNK).zip(rows.chunks_mut(CHUNK)) {
            self.descend(masses, rows);
        }
        rows
    }

    /// The first row up to and including which the leaves sum to `sum` or more: 0 for `sum` <= 0, the capacity if all
    /// leaves together stay below it or it is NaN.
    #[must_use]
    pub fn lower_bound(&self, sum: f64) -> usize {
        if sum <= 0.0 {
            return 0;
        }
        let mass = libm::ceil(sum / self.unit());
        if mass <= self.total() as f64 { self.rows_at(&[mass as u64 - 1])[0] } else { self.capacity }
    }

    /// Forgets every leaf.
    pub fn clear(&mut self) {
        let used = self.end.div_ceil(LINE);
        self.lines[..used].fill(Line::default());
        self.end = 0;
        self.top = 1;
        for level in &mut self.levels {
            level.fill(Node::default());
        }
        self.extremes.clear();
    }

    /// All that must be kept to draw the same rows again. Costs O(rows).
    #[must_use]
    pub fn state(&self) -> PriorityTreeState {
        let leaves = (0..self.end).map(|row| self.leaf(row)).collect();
        PriorityTreeState { capacity: self.capacity, top: self.top, leaves }
    }

    /// The tree whose state was taken.
    ///
    /// # Errors
    /// As [`PriorityTree::new`] and [`PriorityTree::update`]; `Corrupt` if the state contradicts itself.
    pub fn from_state(state: &PriorityTreeState) -> Result<Self> {
        let mut tree = Self::new(state.capacity)?;
        let (rows, leaves): (Vec<_>, Vec<_>) =
            state.leaves.iter().enumerate().filter_map(|(row, leaf)| Some((row, (*leaf)?))).unzip();
        tree.update(&rows, &leaves)?;
        let top = top_of(tree.extremes.root().max);
        if !(top..=128).contains(&state.top) {
            let detail = format!("top must be in {top}..=128, as the leaves are: got {}", state.top);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        tree.top = state.top;
        tree.sum_up();
        Ok(tree)
    }

    fn check_range(&self, start: usize, end: usize) -> Result<()> {
        if start < end && end <= self.capacity {
            return Ok(());
        }
        let detail = format!("range must hold rows of 0..{}: got {start}..{end}", self.capacity);
        Err(Error::new(ErrorKind::OutOfRange, detail))
    }

    fn key(&self, row: usize) -> u32 {
        self.lines[row / LINE].0[row % LINE]
    }

    /// The sum of the masses of rows `0..row`.
    fn mass_before(&self, row: usize) -> u64 {
        if row >= self.end {
            return self.total();
        }
        let scale = 1.0 / self.unit();
        let mut place = row / LINE;
        let mut mass: u64 = self.lines[place].0[..row % LINE].iter().map(|&key| mass_of(key, scale)).sum();
        for level in &self.levels {
            let node = level[place / FANOUT];
            if !place.is_multiple_of(FANOUT) {
                mass += node.0[place % FANOUT - 1];
            }
            place /= FANOUT;
        }
        mass
    }

    fn descend(&self, masses: &[u64], rows: &mut [usize]) {
        let total = self.total();
        let scale = 1.0 / self.unit();
        let mut left = [0_u64; CHUNK];
        let mut place = [0_usize; CHUNK];
        left[..masses.len()].copy_from_slice(masses);
        for level in self.levels.iter().rev() {
            for (left, place) in left.iter_mut().zip(&mut place).take(masses.len()) {
                // A mass beyond the total stays on the first child; its row is set last. No branch depends on the mass.
                let Node(sums) = &level[*place];
                let child = sums.iter().map(|sum| usize::from(sum <= left)).sum::<usize>() % FANOUT;
                let before = sums[(child + FANOUT - 1) % FANOUT];
                *left -= if child == 0 { 0 } else { before };
                *place = *place * FANOUT + child;
            }
        }
        // All lines are fetched before the first is read, so that their cache misses overlap.
        let mut lines = [Line::default(); CHUNK];
        for (line, &place) in lines.iter_mut().zip(&place).take(masses.len()) {
            *line = self.lines[place];
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if masses[index] < total {
                *row = place[index] * LINE + lane_at(&lines[index], left[index], scale);
            }
        }
    }

    /// Sets leaves that need no larger unit.
    fn update_chunk(&mut self, rows: &[usize], leaves: &[f32]) {
        let scale = 1.0 / self.unit();
        let mut change = [0_u64; CHUNK];
        for ((&row, &leaf), change) in rows.iter().zip(leaves).zip(&mut change) {
            let key = &mut self.lines[row / LINE].0[row % LINE];
            let new = leaf.abs().to_bits() + 1; // -0 counts as 0
            *change = mass_of(new, scale).wrapping_sub(mass_of(*key, scale));
            *key = new;
            self.end = self.end.max(row + 1);
        }
        let mut span = LINE;
        for level in &mut self.levels {
            for (&row, &change) in rows.iter().zip(&change) {
                let child = row / span % FANOUT;
                let Node(sums) = &mut level[row / span / FANOUT];
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(if index >= child { change } else { 0 });
                }
            }
            span *= FANOUT;
        }
        for &row in rows {
            self.extremes.update(row / LINE, &self.lines[row / LINE].0);
        }
    }

    fn write_leaves(&mut self, rows: &[usize], leaves: &[f32]) {
        for (&row, &leaf) in rows.iter().zip(leaves) {
            self.lines[row / LINE].0[row % LINE] = leaf.abs().to_bits() + 1;
            self.end = self.end.max(row + 1);
        }
        for &row in rows {
            self.extremes.update(row / LINE, &self.lines[row / LINE].0);
        }
    }

    /// Chooses a smaller unit once the largest leaf has fallen far, so that resolution comes back.
    fn tighten(&mut self) {
        let largest = self.extremes.root().max;
        if largest > 1 && top_of(largest) <= self.top - SLACK_BITS {
            self.top = top_of(largest);
            self.sum_up();
        }
    }

    /// Computes every sum anew from the leaves. O(rows).
    fn sum_up(&mut self) {
        let scale = 1.0 / self.unit();
        let mut num_children = self.end.div_ceil(LINE);
        let mut below: Option<&[Node]> = None;
        let lines = &self.lines;
        for level in &mut self.levels {
            let mass_at = |child: usize| match below {
                None => lines[child].0.iter().map(|&key| mass_of(key, scale)).sum::<u64>(),
                Some(nodes) => nodes[child].0[FANOUT - 1],
            };
            for (index, Node(sums)) in level.iter_mut().enumerate().take(num_children.div_ceil(FANOUT)) {
                let mut sum = 0;
                for (offset, slot) in sums.iter_mut().enumerate() {
                    let child = index * FANOUT + offset;
                    sum += if child < num_children { mass_at(child) } else { 0 };
                    *slot = sum;
                }
            }
            num_children = num_children.div_ceil(FANOUT);
            below = Some(&*level);
        }
    }
}

/// The lane of `line` on which `mass`, counted from the line's beginning, falls.
fn lane_at(line: &Line, mass: u64, scale: f64) -> usize {
    let masses = line.0.map(|key| mass_of(key, scale));
    let (mut sum, mut lane) = (0, 0);
    for own in masses {
        sum += own;
        lane += usize::from(sum <= mass);
    }
    lane % LINE
}

/// The mass of a key, without a branch or a conversion that lanes of a vector unit do not have.
fn mass_of(key: u32, scale: f64) -> u64 {
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2^52: from here on to 2^53, doubles are the integers
    let leaf = f64::from(f32::from_bits(key - u32::from(key != 0)));
    // A product with a power of two is exact and so is the rounding of the sum: the same integer on every target.
    let scaled = if leaf > 0.0 { (leaf * scale).max(1.0) } else { 0.0 };
    (scaled + INTEGERS).to_bits() - INTEGERS.to_bits()
}

fn leaf_of(key: u32) -> Option<f32> {
    Some(f32::from_bits(key.checked_sub(1)?))
}

fn key_of(leaf: f32) -> Result<u32> {
    if !leaf.is_finite() {
        return Err(Error::new(
            ErrorKind::NonFinite,
            format!("priority must be a finite number: got {leaf}"),
        ));
    }
    if leaf.is_sign_negative() && leaf != 0.0 {
        return Err(Error::new(ErrorKind::OutOfRange, format!("priority must be >= 0: got {leaf}")));
    }
    Ok(leaf.abs().to_bits() + 1)
}

/// The smallest power of two that is above the leaf of `key`.
fn top_of(key: u32) -> i32 {
    // Leaves below the normal numbers count as the smallest of these.
    (key.saturating_sub(1) >> 23) as i32 - 126
}

fn power_of_two(exponent: i32) -> f64 {
    libm::ldexp(1.0, exponent)
}

fn ceil_log2(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros()
}
