//! Gather, scatter and other operations without arithmetic on whole rows of elements. An index past the rows
//! is a bug of the caller and panics.

use fulmar_kernel::prefetch;
use half::bf16;

/// Number of rows between the copied row and the prefetched one.
const AHEAD: usize = 2;
/// As many for rows of few bytes, whose copy takes less time than a read from memory.
const AHEAD_SHORT: usize = 16;
/// Bytes copied at once, while the same number of bytes of a later row is prefetched. From 2 KB on, C
/// libraries copy by one instruction that is slow for badly aligned sources and targets.
const BLOCK: usize = 512;
/// Most bytes of a row that are prefetched: the processor's own prefetcher handles the rest.
const FETCHED_MAX: usize = 8192;

/// Copies rows `indices` of `from` to `to` in order.
pub(crate) fn gather<T: Copy>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) {
    match inner {
        0 => {}
        1 => to.iter_mut().zip(indices).for_each(|(to, index)| *to = from[*index]),
        2..=4 => gather_short::<T, 2>(from, inner, indices, to),
        5..=8 => gather_short::<T, 4>(from, inner, indices, to),
        9..=16 => gather_short::<T, 8>(from, inner, indices, to),
        17..=32 => gather_short::<T, 16>(from, inner, indices, to),
        _ => gather_long(from, inner, indices, to),
    }
}

/// Copies rows of `N` to `2 * N` elements, each by its first and its last `N`, without a call a row.
fn gather_short<T: Copy, const N: usize>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) {
    for (place, (row, index)) in to.chunks_exact_mut(inner).zip(indices).enumerate() {
        if let Some(next) = indices.get(place + AHEAD_SHORT) {
            prefetch(from, next * inner);
            prefetch(from, next * inner + inner - 1);
        }
        let from = &from[index * inner..][..inner];
        if let (Some(head), Some(tail), Some(to)) =
            (from.first_chunk::<N>(), from.last_chunk(), row.first_chunk_mut())
        {
            let (head, tail): ([T; N], [T; N]) = (*head, *tail);
            *to = head;
            row[inner - N..].copy_from_slice(&tail);
        }
    }
}

fn gather_long<T: Copy>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) {
    let (line, block) = ((64 / size_of::<T>()).max(1), (BLOCK / size_of::<T>()).max(1));
    let fetched = FETCHED_MAX / size_of::<T>();
    for (place, (row, index)) in to.chunks_exact_mut(inner).zip(indices).enumerate() {
        let next = indices.get(place + AHEAD).map(|next| next * inner);
        let blocks = row.chunks_mut(block).zip(from[index * inner..][..inner].chunks(block));
        for (start, (to, from_block)) in (0..).step_by(block).zip(blocks) {
            if let Some(next) = next.filter(|_| start < fetched) {
                for at in (0..from_block.len()).step_by(line) {
                    prefetch(from, next + start + at);
                }
            }
            to.copy_from_slice(from_block);
        }
    }
}

/// Writes the rows of `from` in order over rows `indices` of `to`; if an index comes twice, the last row
/// wins.
pub(crate) fn scatter<T: Copy>(from: &[T], inner: usize, indices: &[usize], to: &mut [T]) {
    // Consecutive rows, as in a ring, are one copy.
    let mut place = 0;
    while let Some(&first) = indices.get(place) {
        let run = indices[place..].iter().zip(first..).take_while(|(index, next)| *index == next).count();
        to[first * inner..(first + run) * inner].copy_from_slice(&from[place * inner..(place + run) * inner]);
        place += run;
    }
}

/// Writes the rows of `from` over the rows of `to` with these numbers. Rows of one number must be equal.
pub(crate) fn put_rows<T: Copy>(from: &[T], inner: usize, rows_n: &[u32], to: &mut [T]) {
    for (row, number) in from.chunks_exact(inner.max(1)).zip(rows_n) {
        to[*number as usize * inner..][..inner].copy_from_slice(row);
    }
}

/// Runs [`put_rows`] and rounds each number to the nearest bfloat16.
pub(crate) fn put_rounded_rows(from: &[f32], inner: usize, rows_n: &[u32], to: &mut [bf16]) {
    for (row, number) in from.chunks_exact(inner.max(1)).zip(rows_n) {
        fulmar_kernel::f32_to_bf16(row, &mut to[*number as usize * inner..][..inner]);
    }
}

/// Adds the rows of `from` in order to rows `indices` of `to`.
pub(crate) fn scatter_add(from: &[f32], inner: usize, indices: &[usize], to: &mut [f32]) {
    for (row, index) in from.chunks_exact(inner.max(1)).zip(indices) {
        to[index * inner..][..inner].iter_mut().zip(row).for_each(|(to, value)| *to += value);
    }
}

/// Copies all elements of `from` to `to`, which has the same length.
pub(crate) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.copy_from_slice(from);
}

/// Sets every element to `value`.
pub(crate) fn fill<T: Copy>(to: &mut [T], value: T) {
    to.fill(value);
}

/// Multiplies each value by `factor`.
pub(crate) fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}

/// Sets every `y` to `a x + b y`.
pub(crate) fn mix(x: &[f32], y: &mut [f32], a: f32, b: f32) {
    assert_eq!(x.len(), y.len(), "both have one length");
    y.iter_mut().zip(x).for_each(|(y, x)| *y = a * x + b * *y);
}

/// Writes NaN over each row of a normalised matrix whose scale is not finite and above 0: its squares overflow.
pub(crate) fn mask_overflow(out_nd: &mut [f32], inv_rms_n: &[f32]) {
    let width = out_nd.len() / inv_rms_n.len().max(1);
    for (row, inv_rms) in out_nd.chunks_exact_mut(width.max(1)).zip(inv_rms_n) {
        if *inv_rms <= 0.0 || !inv_rms.is_finite() {
            row.fill(f32::NAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_whose_squares_overflow_become_nan_and_others_stay() {
        let mut rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        mask_overflow(&mut rows, &[0.5, 0.0, f32::NAN, f32::INFINITY]);
        assert_eq!(rows[..2], [1.0, 2.0]);
        assert!(rows[2..].iter().all(|value| value.is_nan()));
        mask_overflow(&mut [], &[]);
        let mut mixed = [1.0, 2.0];
        mix(&[10.0, 20.0], &mut mixed, 0.5, 2.0);
        assert_eq!(mixed, [7.0, 14.0]);
    }

    #[test]
    fn rows_are_gathered_and_scattered_as_one_by_one() {
        let from: Vec<i32> = (0..3000).collect(); // rows of up to 300
        for inner in [0, 1, 2, 3, 4, 5, 8, 9, 11, 16, 17, 31, 32, 33, 300] {
            let indices = [4, 5, 6, 0, 4];
            let mut to = vec![-1; indices.len() * inner];
            gather(&from, inner, &indices, &mut to);
            let naive: Vec<i32> =
                indices.iter().flat_map(|at| from[at * inner..(at + 1) * inner].to_vec()).collect();
            assert_eq!(to, naive);
            let mut back = vec![-1; 7 * inner];
            scatter(&to, inner, &indices, &mut back);
            for (at, row) in back.chunks(inner.max(1)).enumerate() {
                let kept = if indices.contains(&at) {
                    from[at * inner..(at + 1) * inner].to_vec()
                } else {
                    vec![-1; inner]
                };
                assert_eq!(row, kept);
            }
        }
    }

    #[test]
    fn rows_are_put_where_their_numbers_are() {
        let mut to = [0; 6];
        put_rows(&[1, 2, 3, 4, 3, 4], 2, &[2, 0, 0], &mut to);
        assert_eq!(to, [3, 4, 0, 0, 1, 2]);
        put_rows(&[], 2, &[], &mut to);
        put_rows(&[], 0, &[5], &mut to);
        assert_eq!(to, [3, 4, 0, 0, 1, 2]);
    }

    #[test]
    fn rows_are_added_where_they_belong_each_time_that_they_come() {
        let mut to = [1.0; 6];
        scatter_add(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, &[2, 0, 2], &mut to);
        assert_eq!(to, [4.0, 5.0, 1.0, 1.0, 7.0, 9.0]);
        fill(&mut to[..3], 0.0);
        copy(&[9.0], &mut to[5..]);
        scale(&mut to, 2.0);
        assert_eq!(to, [0.0, 0.0, 0.0, 2.0, 14.0, 18.0]);
    }
}
