//! Sixteen leaves, one cache line of them, and the masses that they stand for.

use bytemuck::{Pod, Zeroable};

/// Leaves of one cache line.
pub(super) const LINE: usize = 16;
/// A line is a square of this side.
pub(super) const SIDE: usize = 4;

/// The keys of leaves: their bits plus one, 0 where no leaf was set. Order of keys is order of leaves.
///
/// They lie in columns, `0 4 8 12, 1 5 9 13, ..`: vector lanes then add up four parts of the line at once.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u32; LINE]);

impl Line {
    /// A line of one key.
    pub(super) fn of(key: u32) -> Self {
        Self([key; LINE])
    }

    pub(super) fn key(&self, lane: usize) -> u32 {
        self.0[place(lane)]
    }

    /// Sets a key; the one that was there.
    pub(super) fn replace(&mut self, lane: usize, key: u32) -> u32 {
        std::mem::replace(&mut self.0[place(lane)], key)
    }

    /// All keys, in no order.
    pub(super) fn keys(&self) -> &[u32; LINE] {
        &self.0
    }

    /// The sum of the masses of the first `len` leaves.
    pub(super) fn mass_before(&self, len: usize, scale: f64) -> u64 {
        (0..len).map(|lane| mass_of(self.key(lane), scale)).sum()
    }

    /// The sum of all masses.
    #[inline(always)]
    pub(super) fn mass(&self, scale: f64) -> u64 {
        self.0.iter().map(|&key| mass_of(key, scale)).sum()
    }
}

/// The sums of masses up to and including each lane of the part it is in; they lie as the keys do.
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

/// What of `mass`, counted from the beginning of the line, is left behind the parts before each.
#[inline(always)]
pub(super) fn left_in_parts(sums: &PartSums, mass: u64) -> [i64; SIDE] {
    let [first, second, third, _] = sums[SIDE - 1];
    let mass = mass as i64;
    [mass, mass - first, mass - first - second, mass - first - second - third]
}

/// The lane on which a mass falls: as many as have a sum of masses, up to and including theirs, that is not above it. 0 for a mass
/// beyond all.
#[inline(always)]
pub(super) fn lane_at(sums: &PartSums, left: &[i64; SIDE]) -> usize {
    let mut lanes = [0; SIDE];
    for column in sums {
        for part in 0..SIDE {
            lanes[part] += i64::from(column[part] <= left[part]);
        }
    }
    lanes.iter().sum::<i64>() as usize % LINE
}

/// Where the key of a lane lies.
const fn place(lane: usize) -> usize {
    lane % SIDE * SIDE + lane / SIDE % SIDE
}

/// The mass of a key, without a branch or a conversion that lanes of a vector unit do not have.
#[inline(always)]
pub(super) fn mass_of(key: u32, scale: f64) -> u64 {
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2^52: from here on to 2^53, doubles are the integers
    let leaf = f64::from(f32::from_bits(key - u32::from(key != 0)));
    // A product with a power of two is exact and so is the rounding of the sum: the same integer on every target.
    let scaled = leaf * scale;
    let scaled = if scaled < 1.0 { 1.0 } else { scaled };
    let scaled = if leaf > 0.0 { scaled } else { 0.0 };
    (scaled + INTEGERS).to_bits() - INTEGERS.to_bits()
}
