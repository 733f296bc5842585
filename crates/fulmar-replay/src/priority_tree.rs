//! A sum tree over the priorities of up to [`REPLAY_ROWS_MAX`](fulmar_core::limits::REPLAY_ROWS_MAX) rows, exact in integers.
//!
//! A row's **leaf** is its priority as `f32`. Its **mass**, to which draws are proportional, is a pure
//! function of it: `mass = max(1, round(leaf / unit))` for a leaf above 0 and 0 for a leaf of 0, where `unit`
//! is a power of two chosen from the largest leaf. Sums of masses are integers, so they never drift, do not
//! depend on the order of updates, are the same on every target, and every row with a leaf above 0 can be
//! drawn, whatever the number of rows.
//!
//! ```text
//! level 1     [ 8 prefix sums ]                     one cache line a node: u64 sums of children 0..=k
//! level 0     [ 8 prefix sums ] ...
//! leaves      [ 16 leaves     ] x 8 ...             one cache line of f32, turned into masses when read
//!
//! draw:       mass ~ uniform over 0..total          descend: k = number of prefix sums <= mass; mass -= prefix[k - 1]
//! ```
//!
//! While all rows from the first on have one leaf, as for a buffer over stored rows, no node is written: the
//! leaf and the number of rows suffice. The first different leaf writes the nodes.
//!
//! Memory: 4 bytes a leaf, 0.6 bytes of sums and 0.6 of extremes. Drawing and updating cost O(log rows); many
//! at once advance level by level, so that their cache misses overlap.

mod draw;
mod extremes;
mod key;
mod line;
mod pages;
pub(crate) mod state;
mod walk;

use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use fulmar_core::{Error, ErrorKind, Result};

use crate::row::{checked_capacity, checked_row};
use extremes::Extremes;
use key::{key_at, key_of, leaf_of, power_of_two, top_of};
use line::{LINE, Line};
use pages::Pages;
use walk::{CHUNK, Sums};

/// Children in an inner node.
const FANOUT: usize = 8;
/// Maximum number of bits of a mass: a leaf is rounded to a whole number in an `f64`, which holds no more.
const MASS_BITS_MAX: u32 = 51;
/// The unit shrinks when the largest leaf has fallen by this many powers of two.
const SLACK_BITS: i32 = 8;
/// Rows that are set at once to one leaf where other rows have other leaves.
const FILL_AT_ONCE: usize = 1 << 16;

/// Inclusive prefix sums of the masses below the children.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
struct Node([u64; FANOUT]);

/// A sum tree of priorities, see the module.
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
    /// One more than the highest row ever set.
    end: usize,
    /// The key of rows `0..end` if all are equal and no node is written yet.
    even: Option<u32>,
    lines: Pages<Line>,
    /// From the leaves up; the last level is one node.
    levels: Vec<Pages<Node>>,
    extremes: Extremes,
}

impl PriorityTree {
    /// Returns a tree of `capacity` rows, none of them set.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above [`REPLAY_ROWS_MAX`](fulmar_core::limits::REPLAY_ROWS_MAX),
    /// `OutOfMemory` if memory does not suffice.
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
        Ok(Self { capacity, top: 1, mass_bits, end: 0, even: None, lines, levels, extremes })
    }

    /// Returns the maximum number of rows.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the sum of all masses: draws take an integer below it.
    #[must_use]
    pub fn total(&self) -> u64 {
        if let Some(key) = self.even {
            return self.end as u64 * self.mass_of(key);
        }
        self.levels.last().and_then(|level| level.first()).map_or(0, |root| root.0[FANOUT - 1])
    }

    /// Returns the priority of one unit of mass, a power of two.
    ///
    /// The largest leaf has at least 63 - 9 - log2(capacity) bits, at most 51: 27 for 100 million rows, 34 for a million.
    #[must_use]
    pub fn unit(&self) -> f64 {
        power_of_two(self.top - self.mass_bits as i32)
    }

    /// Returns the sum of all leaves, each rounded to a multiple of [`PriorityTree::unit`].
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.total() as f64 * self.unit()
    }

    /// Returns the sum of the leaves of rows `start..end`, each rounded to a multiple of [`PriorityTree::unit`].
    ///
    /// # Errors
    /// `OutOfRange` if the range is empty or reaches beyond the capacity.
    pub fn sum_in(&self, start: usize, end: usize) -> Result<f64> {
        self.check_range(start, end)?;
        Ok((self.mass_before(end) - self.mass_before(start)) as f64 * self.unit())
    }

    /// Returns the smallest set leaf.
    #[must_use]
    pub fn min(&self) -> Option<f32> {
        self.even.map_or_else(|| self.extremes.root().min_leaf(), leaf_of)
    }

    /// Returns the smallest set leaf of rows `start..end`.
    ///
    /// # Errors
    /// `OutOfRange` if the range is empty or reaches beyond the capacity.
    pub fn min_in(&self, start: usize, end: usize) -> Result<Option<f32>> {
        self.check_range(start, end)?;
        if let Some(key) = self.even {
            return Ok(leaf_of(key).filter(|_| start < self.end));
        }
        Ok(self.extremes.over(start, end, |row| self.key(row)).min_leaf())
    }

    /// Returns the first row with the largest leaf, and that leaf.
    #[must_use]
    pub fn max(&self) -> Option<(usize, f32)> {
        if let Some(key) = self.even {
            return Some((0, leaf_of(key)?));
        }
        let (line, key) = self.extremes.first_max()?;
        let lane = (0..LINE).find(|&lane| self.lines[line].key(lane) == key)?;
        Some((line * LINE + lane, leaf_of(key)?))
    }

    /// Returns the leaf of `row`; `None` if none was set or the row is beyond the capacity.
    #[must_use]
    pub fn leaf(&self, row: usize) -> Option<f32> {
        if row < self.capacity { leaf_of(self.key(row)) } else { None }
    }

    /// Sets the leaf of each of `rows`. If a row comes twice, the last leaf wins. After an error nothing has
    /// changed.
    ///
    /// # Errors
    /// `ShapeMismatch` if the lengths differ, `NonFinite` if a leaf is NaN or infinite, `OutOfRange` if a leaf is
    /// negative or a row is beyond the capacity.
    pub fn update(&mut self, rows: &[usize], leaves: &[f32]) -> Result<()> {
        if rows.len() != leaves.len() {
            let detail = format!("leaves must have one item a row, {}: got {}", rows.len(), leaves.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let largest = self.checked(rows, leaves)?;
        if let Some(end) = self.even_end(rows, leaves) {
            self.set_even(end, largest);
            return Ok(());
        }
        if !rows.is_empty() {
            self.write_even();
        }
        if top_of(largest) > self.top {
            self.top = top_of(largest);
            self.write_leaves(rows, leaves);
            self.sum_up();
        } else {
            self.change_leaves(rows, leaves);
        }
        self.tighten();
        Ok(())
    }

    /// Sets the leaf of all of `rows`, as [`PriorityTree::update`] does; O(1) if all earlier rows have that
    /// leaf and these leave no gap.
    ///
    /// # Errors
    /// `NonFinite` or `OutOfRange` as [`PriorityTree::update`].
    pub fn fill(&mut self, rows: Range<usize>, leaf: f32) -> Result<()> {
        let key = key_of(leaf)?;
        if rows.end > rows.start {
            checked_row(rows.end - 1, self.capacity)?;
        }
        let is_even = self.even.map_or(self.end == 0, |even| even == key);
        if is_even && rows.start <= self.end && !rows.is_empty() {
            self.set_even(self.end.max(rows.end), key);
            return Ok(());
        }
        let mut later = rows;
        while !later.is_empty() {
            let some: Vec<usize> = later.by_ref().take(FILL_AT_ONCE).collect();
            self.update(&some, &vec![leaf; some.len()])?;
        }
        Ok(())
    }

    /// Replaces every set leaf by `change(leaf)`. After an error nothing has changed.
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

    /// Removes all leaves.
    pub fn clear(&mut self) {
        if self.even.take().is_some() {
            (self.end, self.top) = (0, 1);
            return;
        }
        let used = self.end.div_ceil(LINE);
        self.lines[..used].fill(Line::default());
        self.end = 0;
        self.top = 1;
        for level in &mut self.levels {
            level.fill(Node::default());
        }
        self.extremes.clear();
    }

    fn check_range(&self, start: usize, end: usize) -> Result<()> {
        if start < end && end <= self.capacity {
            return Ok(());
        }
        let detail = format!("range must hold rows of 0..{}: got {start}..{end}", self.capacity);
        Err(Error::new(ErrorKind::OutOfRange, detail))
    }

    fn key(&self, row: usize) -> u32 {
        if let Some(key) = self.even {
            return if row < self.end { key } else { 0 };
        }
        self.lines[row / LINE].key(row % LINE)
    }

    /// Returns the sum of the masses of rows `0..row`.
    fn mass_before(&self, row: usize) -> u64 {
        if row >= self.end {
            return self.total();
        }
        if let Some(key) = self.even {
            return row as u64 * self.mass_of(key);
        }
        let scale = 1.0 / self.unit();
        let mut place = row / LINE;
        let mut mass = self.lines[place].mass_before(row % LINE, scale);
        for level in &self.levels {
            let node = level[place / FANOUT];
            if !place.is_multiple_of(FANOUT) {
                mass += node.0[place % FANOUT - 1];
            }
            place /= FANOUT;
        }
        mass
    }

    fn mass_of(&self, key: u32) -> u64 {
        line::mass_of(key, 1.0 / self.unit())
    }

    /// Returns the largest key.
    fn largest(&self) -> u32 {
        self.even.unwrap_or_else(|| self.extremes.root().max)
    }

    /// Returns the number of rows after an update, if all of them then have one leaf and no node is written.
    fn even_end(&self, rows: &[usize], leaves: &[f32]) -> Option<usize> {
        let key = key_at(*leaves.first()?);
        let is_even = self.even.map_or(self.end == 0, |even| even == key);
        let follow = || rows.iter().enumerate().all(|(at, row)| *row == self.end + at);
        let all_have = || leaves.iter().all(|leaf| key_at(*leaf) == key);
        if !is_even || !all_have() {
            return None;
        }
        if rows[0] == self.end && follow() {
            return Some(self.end + rows.len());
        }
        rows.iter().all(|row| *row < self.end).then_some(self.end)
    }

    /// Sets rows `0..end` to `key` without writing nodes.
    fn set_even(&mut self, end: usize, key: u32) {
        (self.end, self.even) = (end, Some(key));
        self.top = self.top.max(top_of(key));
        if key > 1 && top_of(key) <= self.top - SLACK_BITS {
            self.top = top_of(key);
        }
    }

    /// Writes the nodes of rows that all have one leaf. O(rows).
    fn write_even(&mut self) {
        let Some(key) = self.even.take() else { return };
        let (num_whole, rest) = (self.end / LINE, self.end % LINE);
        self.lines[..num_whole].fill(Line::of(key));
        for lane in 0..rest {
            self.lines[num_whole].replace(lane, key);
        }
        self.extremes.fill(self.end.div_ceil(LINE), key);
        self.sum_up();
    }

    fn sums(&self) -> Sums<'_> {
        Sums { levels: &self.levels, lines: &self.lines, scale: 1.0 / self.unit() }
    }

    /// Checks an update and returns the largest key of `leaves`.
    fn checked(&self, rows: &[usize], leaves: &[f32]) -> Result<u32> {
        let end = rows.iter().fold(0, |end, &row| end.max(row));
        // The bits of infinities, NaN and negative numbers other than -0 are above all others.
        let largest = leaves.iter().fold(0, |largest, &leaf| largest.max((leaf + 0.0).to_bits()));
        if !rows.is_empty() && (end >= self.capacity || largest >= f32::INFINITY.to_bits()) {
            for (&row, &leaf) in rows.iter().zip(leaves) {
                checked_row(row, self.capacity)?;
                key_of(leaf).map_err(|error| error.at(format!("row {row}")))?;
            }
        }
        Ok(if rows.is_empty() { 0 } else { largest + 1 })
    }

    /// Sets leaves that do not need a larger unit.
    fn change_leaves(&mut self, rows: &[usize], leaves: &[f32]) {
        let scale = 1.0 / self.unit();
        // Above a level with fewer nodes than changes, summing all of them is cheaper than adding each
        // change.
        let is_few = |num_nodes: usize| num_nodes <= rows.len();
        let num_grown = 1 + self.levels.iter().take_while(|level| !is_few(level.len())).count();
        let num_grown = num_grown.min(self.levels.len());
        let (mut keys, mut growth) = ([0; CHUNK], [0; CHUNK]);
        let mut later = rows.chunks(CHUNK);
        walk::fetch(&self.lines, &self.levels, &self.extremes, later.next().unwrap_or_default());
        for (rows, leaves) in rows.chunks(CHUNK).zip(leaves.chunks(CHUNK)) {
            // Prefetch what the next chunk touches while this one is processed.
            walk::fetch(&self.lines, &self.levels, &self.extremes, later.next().unwrap_or_default());
            let (keys, growth) = (&mut keys[..rows.len()], &mut growth[..rows.len()]);
            keys.iter_mut().zip(leaves).for_each(|(key, &leaf)| *key = key_at(leaf));
            walk::write_keys(&mut self.lines, rows, keys, scale, growth);
            let mut span = LINE;
            for level in &mut self.levels[..num_grown] {
                walk::grow(level, span, rows, growth);
                span *= FANOUT;
            }
            self.extremes.update(&self.lines, rows, num_grown);
            self.end = rows.iter().fold(self.end, |end, &row| end.max(row + 1));
        }
        self.add_up_from(num_grown);
        self.extremes.rebuild(num_grown);
    }

    fn write_leaves(&mut self, rows: &[usize], leaves: &[f32]) {
        for (&row, &leaf) in rows.iter().zip(leaves) {
            self.lines[row / LINE].replace(row % LINE, key_at(leaf));
            self.end = self.end.max(row + 1);
        }
        for rows in rows.chunks(CHUNK) {
            self.extremes.update(&self.lines, rows, usize::MAX);
        }
    }

    /// Chooses a smaller unit once the largest leaf has fallen far, to restore the resolution.
    fn tighten(&mut self) {
        let largest = self.largest();
        if largest > 1 && top_of(largest) <= self.top - SLACK_BITS {
            self.top = top_of(largest);
            self.sum_up();
        }
    }

    /// Recomputes every sum from the leaves. O(rows).
    fn sum_up(&mut self) {
        let scale = 1.0 / self.unit();
        let num_lines = self.end.div_ceil(LINE);
        walk::add_up_lines(&mut self.levels[0], &self.lines[..num_lines], scale);
        self.add_up_from(1);
    }

    /// Recomputes the sums of the levels from `start` on.
    fn add_up_from(&mut self, start: usize) {
        for depth in start..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(depth);
            walk::add_up(&mut above[0], &below[depth - 1]);
        }
    }
}

fn ceil_log2(count: usize) -> u32 {
    count.next_power_of_two().trailing_zeros()
}
