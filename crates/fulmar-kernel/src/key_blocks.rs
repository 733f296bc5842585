//! Keys as attention reads them: blocks of 16 rows, in which the numbers of a column are adjacent, `[R / 16, K * E, 16]`.
//!
//! So the products of a query with 16 keys are a sum of rows by weights, as those of values are: a chain of fused
//! multiply-adds each, in the order of the columns, with the same bits for any number of queries and keys.

use std::ops::Range;

use half::bf16;

use crate::matmul::{COLUMNS, Item, Rows, SUMS, Weights, add_weighted_rows, transpose};
use crate::parallel::{for_each_of, for_rows};

/// Rows of a block.
const ROWS: usize = COLUMNS;
/// Keys that all queries are multiplied by before the next ones, from the cache next to the processor.
const KEYS_IN_TURN: usize = 4 * ROWS;

/// Returns the numbers in blocks that hold `rows` rows of `width` numbers.
#[must_use]
pub const fn key_block_floats(rows: usize, width: usize) -> usize {
    rows.next_multiple_of(ROWS) * width
}

/// Writes rows of `width` floats to the rows of `blocks` with these numbers.
///
/// # Panics
/// If `from_nw` has not as many rows, `width` is 0, or `blocks` has no block of a row.
///
/// # Examples
/// ```
/// use fulmar_kernel::{key_block_floats, put_key_rows};
/// let mut blocks = vec![0.0; key_block_floats(17, 2)];
/// put_key_rows(&[1.0, 2.0, 3.0, 4.0], 2, &[16, 3], &mut blocks);
/// assert_eq!(blocks.len(), 2 * 2 * 16);
/// assert_eq!((blocks[32], blocks[48]), (1.0, 2.0)); // the first row of the second block
/// assert_eq!((blocks[3], blocks[19]), (3.0, 4.0));
/// ```
pub fn put_key_rows(from_nw: &[f32], width: usize, rows_n: &[u32], blocks: &mut [f32]) {
    assert!(width > 0 && from_nw.len() == rows_n.len() * width, "one row a number");
    for_parts(rows_n, width, blocks, |part, block| {
        let rows = &from_nw[part.place * width..][..part.count * width];
        transpose(rows, width, width, &mut block[part.row % ROWS..], ROWS);
    });
}

/// Runs [`put_key_rows`] and rounds each number to the nearest bfloat16.
///
/// # Panics
/// As [`put_key_rows`].
///
/// # Examples
/// ```
/// use fulmar_kernel::put_rounded_key_rows;
/// use half::bf16;
/// let mut blocks = [bf16::ZERO; 16];
/// put_rounded_key_rows(&[1.001], 1, &[3], &mut blocks);
/// assert_eq!(blocks[3], bf16::ONE);
/// ```
pub fn put_rounded_key_rows(from_nw: &[f32], width: usize, rows_n: &[u32], blocks: &mut [bf16]) {
    assert!(width > 0 && from_nw.len() == rows_n.len() * width, "one row a number");
    for_parts(rows_n, width, blocks, |part, block| {
        let rows = &from_nw[part.place * width..][..part.count * width];
        for (column, to) in block.chunks_exact_mut(ROWS).enumerate() {
            let from = rows[column..].iter().step_by(width);
            to[part.row % ROWS..].iter_mut().zip(from).for_each(|(to, from)| *to = bf16::from_f32(*from));
        }
    });
}

/// Adjacent rows of one block: `count` from `row` on, which are those from `place` on among what is written.
struct Part {
    place: usize,
    count: usize,
    row: usize,
}

/// Calls `work(part, block)` for all parts of `rows_n`, on all cores: those of one block in sequence.
fn for_parts<T: Send>(rows_n: &[u32], width: usize, blocks: &mut [T], work: impl Fn(&Part, &mut [T]) + Sync) {
    let mut parts: Vec<Part> = adjacent(rows_n).collect();
    parts.sort_by_key(|part| part.row / ROWS);
    let (mut rest, mut next) = (blocks, 0);
    let of_blocks = parts.chunk_by(|a, b| a.row / ROWS == b.row / ROWS).map(|parts| {
        let block = parts[0].row / ROWS;
        let from_block = std::mem::take(&mut rest).split_at_mut((block - next) * ROWS * width).1;
        let (own, after) = from_block.split_at_mut(ROWS * width);
        (rest, next) = (after, block + 1);
        (parts, own)
    });
    let mut tasks: Vec<(&[Part], &mut [T])> = of_blocks.collect();
    for_each_of(&mut tasks, |_, (parts, block)| parts.iter().for_each(|part| work(part, block)));
}

/// Returns the parts of `rows_n`, in order.
fn adjacent(rows_n: &[u32]) -> impl Iterator<Item = Part> + use<'_> {
    let mut place = 0;
    std::iter::from_fn(move || {
        let row = *rows_n.get(place)? as usize;
        let same = rows_n[place..].iter().zip(row..).take_while(|(row, next)| **row as usize == *next);
        let count = same.count().min(ROWS - row % ROWS);
        place += count;
        Some(Part { place: place - count, count, row })
    })
}

/// Writes `width` floats of each row, which begin `stride` apart in `from`, to the rows of `blocks` from 0 on.
///
/// # Panics
/// If `width` is 0.
pub fn fill_key_blocks(from: &[f32], stride: usize, width: usize, blocks: &mut [f32]) {
    for_rows(blocks, ROWS * width, |first, blocks| {
        let from = from.get(first * ROWS * stride..).unwrap_or_default();
        for (rows, block) in from.chunks(ROWS * stride).zip(blocks.chunks_exact_mut(ROWS * width)) {
            transpose(rows, stride, width, block, ROWS);
        }
    });
}

/// Borrowed blocks of rows of `width` numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyBlocks<'a, T> {
    pub items: &'a [T],
    pub width: usize,
}

impl<T: Item> KeyBlocks<'_, T> {
    /// Writes the products of each of `queries`, of `e` floats, with the columns from `at` on of some adjacent rows; those of a
    /// query begin `apart` floats apart in `out`.
    ///
    /// # Panics
    /// If there is no block of a row, or no room for a product.
    pub(crate) fn products(
        self,
        (out, apart): (&mut [f32], usize),
        (queries, e): (&[f32], usize),
        at: usize,
        rows: Range<usize>,
    ) {
        let mut sums = [0.0; SUMS * KEYS_IN_TURN];
        for first in (rows.start / ROWS * ROWS..rows.end).step_by(KEYS_IN_TURN) {
            let width = (rows.end - first).min(KEYS_IN_TURN).next_multiple_of(ROWS);
            let (start, end) = (rows.start.max(first), rows.end.min(first + width));
            let items = &self.items[first * self.width + at * ROWS..];
            let columns = Rows { items, stride: ROWS, count: e, block: ROWS * self.width };
            for (index, queries) in queries.chunks(SUMS * e).enumerate() {
                let sums = &mut sums[..queries.len() / e * width];
                sums.fill(0.0);
                add_weighted_rows(sums, width, Weights { floats: queries, of_sum: e, of_row: 1 }, columns);
                for (query, sums) in sums.chunks_exact(width).enumerate() {
                    let place = (index * SUMS + query) * apart + start - rows.start;
                    out[place..place + end - start].copy_from_slice(&sums[start - first..end - first]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::multiply_add;
    use crate::finite_difference::random;

    #[test]
    fn rows_are_put_and_filled_into_the_same_places() {
        for (width, count) in [(1, 1), (6, 15), (24, 16), (8, 33), (70, 50)] {
            let rows = random(1, count * width);
            let mut blocks = vec![9.0; key_block_floats(count, width)];
            fill_key_blocks(&rows, width, width, &mut blocks);
            let expected: Vec<f32> = (0..blocks.len())
                .map(|place| {
                    let (row, column) = (place / (ROWS * width) * ROWS + place % ROWS, place / ROWS % width);
                    if row < count { rows[row * width + column] } else { 9.0 }
                })
                .collect();
            assert_eq!(blocks, expected, "{count} rows of {width}");
            // In any order, some adjacent.
            let numbers: Vec<u32> = (0..count as u32).rev().collect();
            let (early, late) = numbers.split_at(count / 2);
            for numbers in [late.iter().rev().copied().collect::<Vec<_>>(), early.to_vec()] {
                let of_rows: Vec<f32> =
                    numbers.iter().flat_map(|row| rows[*row as usize * width..][..width].to_vec()).collect();
                blocks.iter_mut().for_each(|value| *value += 1.0);
                put_key_rows(&of_rows, width, &numbers, &mut blocks);
                blocks.iter_mut().zip(&expected).for_each(|(value, expected)| {
                    *value = if *value == expected + 1.0 { *expected } else { *value };
                });
            }
            assert_eq!(blocks, expected, "{count} rows of {width}");
            let mut halves = vec![bf16::from_f32(9.0); blocks.len()];
            put_rounded_key_rows(&rows, width, &(0..count as u32).collect::<Vec<_>>(), &mut halves);
            assert!(halves.iter().zip(&expected).all(|(half, wide)| *half == bf16::from_f32(*wide)));
        }
    }

    #[test]
    fn a_product_is_one_chain_of_multiply_adds_whatever_others_are_computed() {
        for (e, width, at, rows) in [
            (64, 192, 64, 3..90),
            (6, 12, 6, 0..1),
            (32, 32, 0, 15..17),
            (70, 140, 0, 16..32),
            (1, 1, 0, 5..5),
        ] {
            let keys = random(2, 96 * width);
            let mut blocks = vec![f32::NAN; key_block_floats(96, width)];
            fill_key_blocks(&keys, width, width, &mut blocks);
            let blocks = KeyBlocks { items: &blocks, width };
            for num_queries in [1, 2, 5, 6, 7, 24] {
                let (queries, apart) = (random(1, num_queries * e), rows.len() + 3);
                let mut found = vec![9.0; num_queries * apart];
                blocks.products((&mut found, apart), (&queries, e), at, rows.clone());
                for (found, query) in found.chunks_exact(apart).zip(queries.chunks_exact(e)) {
                    assert_eq!(found[rows.len()..], [9.0; 3], "behind a query of {num_queries}");
                    for (row, found) in rows.clone().zip(found) {
                        let key = &keys[row * width + at..][..e];
                        let chain = query.iter().zip(key).fold(0.0, |sum, (q, k)| multiply_add(*q, *k, sum));
                        assert_eq!(found.to_bits(), chain.to_bits(), "row {row} of {num_queries} queries");
                    }
                }
            }
        }
    }
}
