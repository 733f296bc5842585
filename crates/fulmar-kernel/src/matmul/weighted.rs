//! Sums of rows by weights, for attention's values and its gradients. Rows are read where they are stored.
//!
//! A sum is `weight[k] * row[k] + sum` for k = 0, 1, ... in this order, from what is there on, fused as in `tile.rs`. So it
//! has the same bits however the rows are cut, and whatever other sums are computed.

use half::bf16;

use super::Rows;
use super::tile::{self, Vector};
use crate::lanes::prefetch;

/// Most sums that are computed at once.
pub(crate) const SUMS: usize = 12;
/// Rows ahead that are asked for.
const AHEAD: usize = 8;
/// Lanes of the widest register.
const LANES_MAX: usize = 16;

/// Weights of rows in sums: that of row `k` in sum `s` is `floats[s * of_sum + k * of_row]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub floats: &'a [f32],
    pub of_sum: usize,
    pub of_row: usize,
}

/// A number of a row. Sums are in single precision, which represents each exactly.
pub(crate) trait Item: Copy + Sync {
    fn widen(self) -> f32;

    /// Loads a register.
    ///
    /// # Safety
    /// As many numbers must be readable, and the processor must have the instructions of `V`.
    unsafe fn load<V: Vector>(from: *const Self) -> V;
}

impl Item for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        // SAFETY: what the caller promised.
        unsafe { V::load(from) }
    }
}

impl Item for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        // SAFETY: what the caller promised.
        unsafe { V::load_halves(from) }
    }
}

/// Adds `rows`, each times its weight, to each of the `sums`, of `width` floats.
///
/// # Panics
/// If `sums` are not whole, or `weights` or `rows` are too short.
pub(crate) fn add_weighted_rows<T: Item>(
    sums: &mut [f32],
    width: usize,
    weights: Weights<'_>,
    rows: Rows<'_, T>,
) {
    let count = sums.len() / width;
    assert_eq!(sums.len(), count * width, "sums must be whole");
    if rows.count == 0 || sums.is_empty() {
        return;
    }
    let last = (count - 1) * weights.of_sum + (rows.count - 1) * weights.of_row;
    assert!(weights.floats.len() > last, "weights must be those of {} rows in {count} sums", rows.count);
    let end = (rows.count - 1) * rows.stride + rows.place(width - 1) + 1;
    assert!(rows.items.len() >= end, "rows must hold {width} numbers");
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") {
            // SAFETY: the checks above saw the operands, and this one the instructions; here and below.
            return unsafe { avx512(sums, width, weights, rows) };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: as above.
            return unsafe { avx2(sums, width, weights, rows) };
        }
    }
    // SAFETY: as above; it needs no instructions beyond those of the target.
    unsafe { portable(sums, width, weights, rows) }
}

/// Defines the version for a kind of instructions: for each number of sums, up to `most`, how many registers of a row are held
/// at once. A compiler finds registers for them all if there are two more for the row and one for a weight.
macro_rules! version {
    ($(#[$attribute:meta])* $name:ident: $vector:ty, most $most:literal; $($sums:pat => $count:literal x $registers:literal;)*) => {
        $(#[$attribute])*
        unsafe fn $name<T: Item>(sums: &mut [f32], width: usize, weights: Weights<'_>, rows: Rows<'_, T>) {
            for (index, sums) in sums.chunks_mut($most * width).enumerate() {
                let floats = &weights.floats[index * $most * weights.of_sum..];
                let operands = Operands { sums, width, weights: Weights { floats, ..weights }, rows };
                // SAFETY: what the caller promised.
                unsafe {
                    match operands.sums.len() / width {
                        $($sums => operands.add::<$vector, $count, $registers>(),)*
                    }
                }
            }
        }
    };
}

version! {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    avx512: tile::avx512::Of, most 12;
    1 => 1 x 4; 2 => 2 x 4; 3 => 3 x 4; 4 => 4 x 4; 5 => 5 x 4; 6 => 6 x 2;
    7 => 7 x 2; 8 => 8 x 2; 9 => 9 x 2; 10 => 10 x 2; 11 => 11 x 2; _ => 12 x 2;
}
version! {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    avx2: tile::avx2::Of, most 6;
    1 => 1 x 4; 2 => 2 x 4; 3 => 3 x 2; 4 => 4 x 2; 5 => 5 x 2; _ => 6 x 2;
}
version! {
    portable: tile::portable::Of, most 6;
    1 => 1 x 4; 2 => 2 x 4; 3 => 3 x 4; 4 => 4 x 2; 5 => 5 x 2; _ => 6 x 2;
}

/// Some sums, and what is added to them.
struct Operands<'a, T> {
    sums: &'a mut [f32],
    width: usize,
    weights: Weights<'a>,
    rows: Rows<'a, T>,
}

impl<T: Item> Operands<'_, T> {
    /// Adds the rows to `S` sums, `R` registers of a row at a time.
    ///
    /// # Safety
    /// All operands must be in memory, and the processor must have the instructions of `V`.
    #[inline(always)]
    unsafe fn add<V: Vector, const S: usize, const R: usize>(mut self) {
        let mut col = 0;
        // SAFETY: what the caller promised: the columns are below the width.
        unsafe {
            while col + R * V::LANES <= self.width {
                self.add_columns::<V, S, R>(col);
                col += R * V::LANES;
            }
            while col + V::LANES <= self.width {
                self.add_columns::<V, S, 1>(col);
                col += V::LANES;
            }
            if col < self.width {
                self.add_last::<V, S>(col);
            }
        }
    }

    /// Adds `R` registers of each row, from a column on.
    ///
    /// # Safety
    /// As [`Operands::add`].
    #[inline(always)]
    unsafe fn add_columns<V: Vector, const S: usize, const R: usize>(&mut self, col: usize) {
        let Self { width, weights, rows, .. } = *self;
        let to = self.sums.as_mut_ptr().wrapping_add(col);
        let mut places = [0; R];
        for (r, place) in places.iter_mut().enumerate() {
            *place = rows.place(col + r * V::LANES);
        }
        // SAFETY: what the caller promised.
        unsafe {
            let mut sums = [[V::splat(0.0); R]; S];
            for (s, sums) in sums.iter_mut().enumerate() {
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = V::load(to.add(s * width + r * V::LANES));
                }
            }
            for k in 0..rows.count {
                let first = k * rows.stride;
                let mut values = [V::splat(0.0); R];
                for (value, place) in values.iter_mut().zip(places) {
                    prefetch(rows.items, first + AHEAD * rows.stride + place);
                    *value = T::load(rows.items.as_ptr().add(first + place));
                }
                for (s, sums) in sums.iter_mut().enumerate() {
                    let weight =
                        V::splat(*weights.floats.as_ptr().add(s * weights.of_sum + k * weights.of_row));
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum = weight.multiply_add(value, *sum);
                    }
                }
            }
            for (s, sums) in sums.into_iter().enumerate() {
                for (r, sum) in sums.into_iter().enumerate() {
                    sum.store(to.add(s * width + r * V::LANES));
                }
            }
        }
    }

    /// Adds the columns from `col` on, which are less than a register of each row.
    ///
    /// # Safety
    /// As [`Operands::add`].
    #[inline(always)]
    unsafe fn add_last<V: Vector, const S: usize>(&mut self, col: usize) {
        const { assert!(V::LANES <= LANES_MAX, "a row must have room for every register") };
        let Self { width, weights, rows, .. } = *self;
        let (mut row, columns) = ([0.0_f32; LANES_MAX], width - col);
        // SAFETY: what the caller promised; `row` has room for a register.
        unsafe {
            let mut sums = [V::splat(0.0); S];
            for (s, sum) in sums.iter_mut().enumerate() {
                row[..columns].copy_from_slice(&self.sums[s * width + col..][..columns]);
                *sum = V::load(row.as_ptr());
            }
            for k in 0..rows.count {
                let items = &rows.items[k * rows.stride + rows.place(col)..][..columns];
                row.iter_mut().zip(items).for_each(|(value, item)| *value = item.widen());
                let value = V::load(row.as_ptr());
                for (s, sum) in sums.iter_mut().enumerate() {
                    let weight =
                        V::splat(*weights.floats.as_ptr().add(s * weights.of_sum + k * weights.of_row));
                    *sum = weight.multiply_add(value, *sum);
                }
            }
            for (s, sum) in sums.into_iter().enumerate() {
                sum.store(row.as_mut_ptr());
                self.sums[s * width + col..][..columns].copy_from_slice(&row[..columns]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::multiply_add;
    use crate::f32_to_bf16;
    use crate::finite_difference::random;

    /// Returns `sums` after one multiply-add after the other.
    fn in_turn<T: Item>(sums: &[f32], width: usize, weights: Weights<'_>, rows: Rows<'_, T>) -> Vec<f32> {
        let one = |(at, sum): (usize, &f32)| {
            let (s, col) = (at / width, at % width);
            let term = |k: usize| {
                (
                    weights.floats[s * weights.of_sum + k * weights.of_row],
                    rows.items[k * rows.stride + rows.place(col)].widen(),
                )
            };
            (0..rows.count).map(term).fold(*sum, |sum, (weight, value)| multiply_add(weight, value, sum))
        };
        sums.iter().enumerate().map(one).collect()
    }

    /// A version for a kind of instructions.
    type Version<T> = unsafe fn(&mut [f32], usize, Weights<'_>, Rows<'_, T>);

    fn versions<T: Item>() -> Vec<(&'static str, Version<T>)> {
        let mut versions: Vec<(&str, Version<T>)> = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx512f") {
                versions.push(("avx512", avx512::<T>));
            }
            if has!("avx2") && has!("fma") {
                versions.push(("avx2", avx2::<T>));
            }
        }
        if versions.is_empty() {
            versions.push(("portable", portable::<T>));
        }
        versions
    }

    fn check_one_chain<T: Item>(num_sums: usize, width: usize, rows: Rows<'_, T>) {
        let count = rows.count;
        let (floats, before) = (random(1, num_sums * count), random(3, num_sums * width));
        let by_sum = Weights { floats: &floats, of_sum: count, of_row: 1 };
        let by_row = Weights { floats: &floats, of_sum: 1, of_row: num_sums };
        for weights in [by_sum, by_row] {
            let expected = in_turn(&before, width, weights, rows);
            let mut sums = before.clone();
            add_weighted_rows(&mut sums, width, weights, rows);
            let same = |sums: &[f32]| sums.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same(&sums), "{num_sums} sums of {width} floats");
            for (name, version) in versions() {
                let mut sums = before.clone();
                // SAFETY: this processor has the instructions, and `add_weighted_rows` took the same operands.
                unsafe { version(&mut sums, width, weights, rows) };
                assert!(same(&sums), "{num_sums} sums of {width} floats by {name}");
            }
            // Cut anywhere, the sums continue from what is there.
            let mut cut = before.clone();
            let first = count / 2;
            add_weighted_rows(&mut cut, width, weights, Rows { count: first, ..rows });
            let later = Weights { floats: &floats[first * weights.of_row..], ..weights };
            let items = &rows.items[first * rows.stride..];
            add_weighted_rows(&mut cut, width, later, Rows { items, count: count - first, ..rows });
            assert!(same(&cut), "{num_sums} sums of {width} floats, cut");
        }
    }

    #[test]
    fn a_sum_is_one_chain_of_multiply_adds_by_all_instructions() {
        for (num_sums, width, stride, count, block) in [
            (1, 64, 64, 5, 16),
            (3, 64, 192, 40, 16),
            (6, 80, 80, 33, 16),
            (7, 128, 130, 9, 16),
            (4, 6, 12, 3, 16),
            (13, 21, 21, 70, 16),
            (6, 64, 16, 33, 600),
            (3, 48, 20, 9, 180),
            (2, 25, 16, 4, 64),
        ] {
            let values = random(2, (count - 1) * stride + (width - 1) / 16 * block + (width - 1) % 16 + 1);
            let mut halves = vec![bf16::ZERO; values.len()];
            f32_to_bf16(&values, &mut halves);
            check_one_chain(num_sums, width, Rows { items: &values, stride, block, count });
            check_one_chain(num_sums, width, Rows { items: &halves, stride, block, count });
        }
    }

    #[test]
    fn without_rows_or_sums_nothing_is_read() {
        let mut sums = [1.0; 4];
        let none = Weights { floats: &[], of_sum: 0, of_row: 1 };
        add_weighted_rows(&mut sums, 4, none, Rows::<f32>::new(&[], 4, 0));
        add_weighted_rows(&mut [], 4, none, Rows::<f32>::new(&[], 4, 2));
        assert_eq!(sums, [1.0; 4]);
    }
}
