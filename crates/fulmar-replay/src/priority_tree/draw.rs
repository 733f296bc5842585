//! Draws: rows by their mass.

use fulmar_core::{Error, ErrorKind, Result, Rng};

use super::PriorityTree;
use super::walk::{self, CHUNK, Parts};
use crate::row::checked_draw;

impl PriorityTree {
    /// Draws `count` rows with replacement, with probabilities proportional to their masses. Shape `[count]`.
    ///
    /// # Errors
    /// `Empty` if no leaf was set, `OutOfRange` if all are 0 or `count` is not in `1..=`[`REPLAY_SAMPLE_ROWS_MAX`].
    ///
    /// [`REPLAY_SAMPLE_ROWS_MAX`]: fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX
    pub fn sample(&self, rng: &mut Rng, count: usize) -> Result<Vec<usize>> {
        let (mut rows, mut leaves) = (Vec::new(), Vec::new());
        self.sample_into(rng, count, &mut rows, &mut leaves)?;
        Ok(rows)
    }

    /// Runs [`PriorityTree::sample`] and writes the rows and the leaf of each, reusing the memory of both.
    pub(crate) fn sample_into(
        &self,
        rng: &mut Rng,
        count: usize,
        rows: &mut Vec<usize>,
        leaves: &mut Vec<f32>,
    ) -> Result<()> {
        checked_draw(self.end, count)?;
        let total = self.total();
        if total == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "the sum of priorities must be > 0: got 0"));
        }
        rows.resize(count, 0);
        leaves.resize(count, 0.0);
        let even = self.even.map(|key| (self.mass_of(key), key));
        let (mut masses, mut keys, mut parts) = ([0; CHUNK], [0; CHUNK], Parts::default());
        for (rows, leaves) in rows.chunks_mut(CHUNK).zip(leaves.chunks_mut(CHUNK)) {
            let (masses, keys) = (&mut masses[..rows.len()], &mut keys[..rows.len()]);
            walk::draw(rng, total, masses)?;
            if let Some((mass_of_row, key)) = even {
                rows.iter_mut().zip(&*masses).for_each(|(row, mass)| *row = (mass / mass_of_row) as usize);
                keys.fill(key);
            } else {
                walk::descend(&self.sums(), masses, rows, keys, &mut parts);
            }
            // A row with a mass has a key.
            leaves.iter_mut().zip(keys).for_each(|(leaf, key)| *leaf = f32::from_bits(key.wrapping_sub(1)));
        }
        Ok(())
    }

    /// Returns the row of each mass: the first whose cumulative mass is above it. All masses must be below
    /// [`PriorityTree::total`]; others give the capacity.
    #[must_use]
    pub fn rows_at(&self, masses: &[u64]) -> Vec<usize> {
        if let Some(key) = self.even {
            let (mass_of_row, total) = (self.mass_of(key).max(1), self.total());
            let row_at =
                |mass: &u64| if *mass < total { (mass / mass_of_row) as usize } else { self.capacity };
            return masses.iter().map(row_at).collect();
        }
        let (mut rows, mut keys, mut parts) = (vec![0; masses.len()], [0; CHUNK], Parts::default());
        for (masses, rows) in masses.chunks(CHUNK).zip(rows.chunks_mut(CHUNK)) {
            let mut left = [0; CHUNK];
            let is_beyond = |mass: u64| mass >= self.total();
            for (left, &mass) in left.iter_mut().zip(masses) {
                *left = if is_beyond(mass) { 0 } else { mass };
            }
            let keys = &mut keys[..masses.len()];
            walk::descend(&self.sums(), &mut left[..masses.len()], rows, keys, &mut parts);
            let beyond = masses.iter().zip(rows).filter(|(mass, _)| is_beyond(**mass));
            beyond.for_each(|(_, row)| *row = self.capacity);
        }
        rows
    }

    /// Returns the first row whose cumulative leaf sum is at least `sum`: 0 for `sum` <= 0, the capacity if
    /// the total is smaller or `sum` is NaN.
    #[must_use]
    pub fn lower_bound(&self, sum: f64) -> usize {
        if sum <= 0.0 {
            return 0;
        }
        let mass = libm::ceil(sum / self.unit());
        if mass <= self.total() as f64 { self.rows_at(&[mass as u64 - 1])[0] } else { self.capacity }
    }
}
