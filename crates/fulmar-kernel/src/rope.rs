//! Rotary position embedding (Su et al., <https://arxiv.org/abs/2104.09864>) in the rotate-half layout of
//! Llama and Qwen: within a head of width E, element `i < E/2` is rotated with element `i + E/2` by the angle
//! `position * theta^(-2i/E)`. The backward pass is the rotation by the opposite angle.

use crate::lanes::lanes;
use crate::parallel::for_rows;

/// Cosines and sines of every position below a bound.
#[derive(Debug, Clone)]
pub struct RopeTable {
    half: usize,
    /// `[position][cos of E/2 angles, then sin]`
    table: Vec<f32>,
    frequencies: Vec<f64>,
}

impl RopeTable {
    /// Returns an empty table for heads of twice as many elements as `frequencies`, in radians a position.
    /// [`RopeTable::extend_to`] fills it.
    ///
    /// # Examples
    /// ```
    /// let mut rope = fulmar_kernel::RopeTable::new(fulmar_kernel::rope_frequencies(4, 10_000.0));
    /// rope.extend_to(2);
    /// let mut x = [1.0, 1.0, 0.0, 0.0];
    /// rope.rotate(&mut x, 1, &[1]);
    /// assert!((x[0] - 1_f32.cos()).abs() < 1e-6 && (x[2] - 1_f32.sin()).abs() < 1e-6);
    /// rope.rotate_back(&mut x, 1, &[1]);
    /// assert!((x[0] - 1.0).abs() < 1e-6);
    /// ```
    #[must_use]
    pub const fn new(frequencies: Vec<f64>) -> Self {
        Self { half: frequencies.len(), table: Vec::new(), frequencies }
    }

    /// Computes the missing angles of positions below `num_positions`.
    pub fn extend_to(&mut self, num_positions: usize) {
        let have = self.table.len() / (2 * self.half).max(1);
        for position in have..num_positions {
            // Angles are rounded to single precision, as the models were trained.
            let angles = self.frequencies.iter().map(|f| f64::from(position as f32 * *f as f32));
            let (cos, sin): (Vec<_>, Vec<_>) =
                angles.map(|a| (libm::cos(a) as f32, libm::sin(a) as f32)).unzip();
            self.table.extend(cos);
            self.table.extend(sin);
        }
    }

    /// Returns E / 2 cosines, then as many sines, for each position.
    #[must_use]
    pub fn angles(&self) -> &[f32] {
        &self.table
    }

    /// Rotates every head of every row of `x` (rows of `num_heads * E`) by the position of the row.
    ///
    /// # Panics
    /// If a position was not reached by [`RopeTable::extend_to`].
    pub fn rotate(&self, x_nhe: &mut [f32], num_heads: usize, positions_n: &[u32]) {
        self.turn(x_nhe, num_heads, positions_n, 1.0);
    }

    /// Rotates back: the backward pass of [`RopeTable::rotate`] over gradients.
    ///
    /// # Panics
    /// If a position was not reached by [`RopeTable::extend_to`].
    pub fn rotate_back(&self, d_nhe: &mut [f32], num_heads: usize, positions_n: &[u32]) {
        self.turn(d_nhe, num_heads, positions_n, -1.0);
    }

    fn turn(&self, x: &mut [f32], num_heads: usize, positions: &[u32], sign: f32) {
        let (head_dim, width) = (2 * self.half, 2 * self.half * num_heads);
        assert_eq!(x.len(), positions.len() * width, "one position a row");
        for_rows(x, width, |first, rows| {
            for (row, position) in rows.chunks_exact_mut(width).zip(&positions[first..]) {
                let (cos, sin) = self.table[*position as usize * head_dim..][..head_dim].split_at(self.half);
                for head in row.chunks_exact_mut(head_dim) {
                    turn_head(head, cos, sin, sign);
                }
            }
        });
    }
}

/// Returns the frequencies of heads of width `head_dim` (even) and base `theta`, highest first: `theta^(-2i/E)`.
///
/// # Examples
/// ```
/// assert_eq!(fulmar_kernel::rope_frequencies(4, 10_000.0), [1.0, 0.01]);
/// ```
#[must_use]
pub fn rope_frequencies(head_dim: usize, theta: f64) -> Vec<f64> {
    (0..head_dim / 2).map(|i| libm::pow(theta, -2.0 * i as f64 / head_dim as f64)).collect()
}

lanes! {
    fn turn_head(head: &mut [f32], cos: &[f32], sin: &[f32], sign: f32) {
        let (low, high) = head.split_at_mut(cos.len());
        for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
            let (a, b, sin) = (*low, *high, sin * sign);
            *low = a * cos - b * sin;
            *high = b * cos + a * sin;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finite_difference::{check_gradient, random, widen};

    #[test]
    fn rotating_back_is_the_gradient() {
        let mut rope = RopeTable::new(rope_frequencies(6, 100.0));
        rope.extend_to(9);
        let (positions, x, d_out) = ([8, 3], random(1, 24), random(2, 24));
        let mut d_x = d_out.clone();
        rope.rotate_back(&mut d_x, 2, &positions);
        let d64 = widen(&d_out);
        check_gradient("x", &x, &d_x, |x| {
            let mut total = 0.0;
            for (head, (x, d)) in x.chunks(6).zip(d64.chunks(6)).enumerate() {
                for i in 0..3 {
                    let angle = f64::from(positions[head / 2]) * 100_f64.powf(-2.0 * i as f64 / 6.0);
                    total += (x[i] * angle.cos() - x[i + 3] * angle.sin()) * d[i];
                    total += (x[i + 3] * angle.cos() + x[i] * angle.sin()) * d[i + 3];
                }
            }
            total
        });
    }
}
