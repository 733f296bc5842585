//! Sixteen leaves in one cache line, and their masses.

use bytemuck::{Pod, Zeroable};

/// Leaves of one cache line.
pub(super) const LINE: usize = 16;
/// A line is a square of this side.
pub(super) const SIDE: usize = 4;

/// The keys of leaves: their bits plus one, 0 for unset leaves. The order of keys is the order of leaves.
///
/// Stored in columns, `0 4 8 12, 1 5 9 13, ..`, so vector lanes sum four parts of the line at once.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u32; LINE]);

impl Line {
    /// Returns a line of one key.
    pub(super) fn of(key: u32) -> Self {
        Self([key; LINE])
    }

    pub(super) fn key(&self, lane: usize) -> u32 {
        self.0[place(lane)]
    }

    /// Sets a key and returns the old one.
    pub(super) fn replace(&mut self, lane: usize, key: u32) -> u32 {
        std::mem::replace(&mut self.0[place(lane)], key)
    }

    /// Returns all keys, in no order.
    pub(super) fn keys(&self) -> &[u32; LINE] {
        &self.0
    }

    /// Returns the sum of the masses of the first `len` leaves.
    pub(super) fn mass_before(&self, len: usize, scale: f64) -> u64 {
        (0..len).map(|lane| mass_of(self.key(lane), scale)).sum()
    }

    /// Returns the sum of all masses.
    #[inline(always)]
    pub(super) fn mass(&self, scale: f64) -> u64 {
        self.0.iter().map(|&key| mass_of(key, scale)).sum()
    }
}

/// The cumulative masses of each lane within its part, in the layout of the keys.
pub(super) type PartSums = [[i64; SIDE]; SIDE];

#[inline(always)]
pub(super) fn part_sums(line: &Line, scale: f64) -> PartSums {
    let mut sums = [[0; SIDE]; SIDE];
    let mut sum = [0; SIDE];
    for (at, column) in sums.iter_mut().enumerate() {
        for (sum, &key) in sum.iter_mut().zip(&line.0[at * SIDE..][..SIDE]) {
            *sum += mass_of(key, scale) as i64;
        }
        *column = sum;
    }
    sums
}

/// Returns the rest of `mass`, counted from the beginning of the line, after the parts before each.
#[inline(always)]
pub(super) fn left_in_parts(sums: &PartSums, mass: u64) -> [i64; SIDE] {
    let [first, second, third, _] = sums[SIDE - 1];
    let mass = mass as i64;
    [mass, mass - first, mass - first - second, mass - first - second - third]
}

/// Returns the lane of a mass: the number of lanes whose cumulative mass is not above it. 0 for a mass beyond
/// all.
#[inline(always)]
pub(super) fn lane_at(sums: &PartSums, left: &[i64; SIDE]) -> usize {
    let mut num_above = [0; SIDE];
    for column in sums {
        for part in 0..SIDE {
            num_above[part] += left[part].wrapping_sub(column[part]) as u64 >> 63;
        }
    }
    (LINE - num_above.iter().sum::<u64>() as usize) % LINE
}

/// Returns the position of a lane's key.
const fn place(lane: usize) -> usize {
    lane % SIDE * SIDE + lane / SIDE % SIDE
}

/// Returns the mass of a key, without a branch or a conversion that vector units lack.
#[inline(always)]
pub(super) fn mass_of(key: u32, scale: f64) -> u64 {
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2^52: between it and 2^53 doubles are integers
    // NaN, which is not above 0, for an unset leaf.
    let leaf = f64::from(f32::from_bits(key.wrapping_sub(1)));
    // Multiplying by a power of two is exact, and so is the rounding of the sum: the same integer on every
    // target.
    let scaled = leaf * scale;
    let scaled = if scaled < 1.0 { 1.0 } else { scaled };
    let scaled = if leaf > 0.0 { scaled } else { 0.0 };
    (scaled + INTEGERS).to_bits() - INTEGERS.to_bits()
}
