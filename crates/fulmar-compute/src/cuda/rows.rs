//! Rows moved by their numbers or added, scaling, copying and filling.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::{Buffer, Card, Grid, Slice, SliceMut, arguments};

use super::{THREADS, queue_over};
use crate::Numbers;

/// Kernels for elements of 1, 2, 4 and 8 bytes.
const SCATTER: [&str; 4] = ["scatter_rows_1", "scatter_rows_2", "scatter_rows_4", "scatter_rows_8"];

pub(crate) fn gather<T: Copy>(
    card: Card,
    from: Slice<'_, T>,
    inner: usize,
    indices: &[usize],
    to: SliceMut<'_, T>,
) -> Result<()> {
    assert_eq!(to.len(), indices.len() * inner, "a row for each index");
    let Some(rows) = uploaded(card, indices, inner, from.len())? else { return Ok(()) };
    let kernel = of_size::<T>(["gather_rows_1", "gather_rows_2", "gather_rows_4", "gather_rows_8"])?;
    card.queue(kernel, Grid::of_rows(indices.len(), THREADS, 0), arguments![from, &rows, to, inner])
}

/// Of rows with one index the last wins: kernels write in no order, so the others are left out.
pub(crate) fn scatter<T: Copy>(
    card: Card,
    from: Slice<'_, T>,
    inner: usize,
    indices: &[usize],
    to: SliceMut<'_, T>,
) -> Result<()> {
    assert_eq!(from.len(), indices.len() * inner, "a row for each index");
    let mut last: Vec<usize> = (0..indices.len()).collect();
    last.sort_by_key(|row| (indices[*row], *row));
    last.dedup_by(|later, row| {
        let is_same = indices[*later] == indices[*row];
        *row = if is_same { *later } else { *row };
        is_same
    });
    if last.len() < indices.len() {
        let mut own = card.duplicate(from.slice(0..last.len() * inner))?;
        gather(card, from, inner, &last, own.view_mut())?;
        let indices: Vec<usize> = last.iter().map(|row| indices[*row]).collect();
        return scatter(card, own.view(), inner, &indices, to);
    }
    let Some(rows) = uploaded(card, indices, inner, to.len())? else { return Ok(()) };
    let kernel = of_size::<T>(SCATTER)?;
    card.queue(kernel, Grid::of_rows(indices.len(), THREADS, 0), arguments![from, &rows, to, inner])
}

/// Rows of one number are equal, so it is the same which of them is written last.
pub(crate) fn put_rows<T: Copy>(
    card: Card,
    from: Slice<'_, T>,
    inner: usize,
    rows_n: Numbers<'_>,
    to: SliceMut<'_, T>,
) -> Result<()> {
    let rows = rows_n.cpu();
    assert_eq!(from.len(), rows.len() * inner, "a row for each number");
    assert!(rows.iter().all(|row| (*row as usize + 1) * inner <= to.len()), "numbers are below the rows");
    if from.is_empty() {
        return Ok(());
    }
    let kernel = of_size::<T>(SCATTER)?;
    let on_card = rows_n.on(card)?;
    card.queue(kernel, Grid::of_rows(rows.len(), THREADS, 0), arguments![from, on_card.argument(), to, inner])
}

pub(crate) fn scatter_add(
    card: Card,
    from: Slice<'_, f32>,
    inner: usize,
    indices: &[usize],
    to: SliceMut<'_, f32>,
) -> Result<()> {
    add_rows(card, from, inner, &words(indices)?, to)
}

/// Adds rows to those of their indices, by a plan that keeps the order of the rows of each index.
pub(super) fn add_rows(
    card: Card,
    from: Slice<'_, f32>,
    inner: usize,
    index_n: &[u32],
    to: SliceMut<'_, f32>,
) -> Result<()> {
    assert_eq!(from.len(), index_n.len() * inner, "a row for each index");
    assert!(
        index_n.iter().all(|index| (*index as usize + 1) * inner <= to.len()),
        "indices are below the rows"
    );
    if from.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<u32> = (0..index_n.len() as u32).collect();
    rows.sort_by_key(|row| index_n[*row as usize]);
    let (mut index, mut ends) = (Vec::new(), Vec::new());
    for (row, end) in rows.iter().zip(1_u32..) {
        let of_row = index_n[*row as usize];
        if index.last() == Some(&of_row) {
            ends.pop();
        } else {
            index.push(of_row);
        }
        ends.push(end);
    }
    let grid = Grid::of_rows(index.len(), THREADS, 0);
    let (index, ends, rows) = (card.upload(&index)?, card.upload(&ends)?, card.upload(&rows)?);
    card.queue("scatter_add_rows", grid, arguments![from, &index, &ends, &rows, inner, to])
}

pub(crate) fn scale(card: Card, values: SliceMut<'_, f32>, factor: f32) -> Result<()> {
    let len = values.len();
    queue_over(card, "scale", len, arguments![values, factor, len])
}

pub(crate) fn copy<T: Copy>(card: Card, from: Slice<'_, T>, to: SliceMut<'_, T>) -> Result<()> {
    card.copy(from, to)
}

pub(crate) fn fill<T: Copy>(card: Card, to: SliceMut<'_, T>, value: T) -> Result<()> {
    card.fill(to, value)
}

/// Returns indices of rows on the card, or `None` if there is nothing to move.
fn uploaded(card: Card, indices: &[usize], inner: usize, len: usize) -> Result<Option<Buffer<u32>>> {
    assert!(indices.iter().all(|index| (index + 1) * inner <= len), "indices are below the rows");
    if indices.is_empty() || inner == 0 {
        return Ok(None);
    }
    card.upload(&words(indices)?).map(Some)
}

fn words(indices: &[usize]) -> Result<Vec<u32>> {
    let word = |index: &usize| {
        u32::try_from(*index).map_err(|_| {
            let detail = format!("index of a row must be below 2^32 on a GPU: got {index}");
            Error::new(ErrorKind::LimitExceeded, detail)
        })
    };
    indices.iter().map(word).collect()
}

/// Returns the kernel for elements of 1, 2, 4 or 8 bytes.
fn of_size<T>(kernels: [&'static str; 4]) -> Result<&'static str> {
    let place = [1, 2, 4, 8].iter().position(|size| *size == size_of::<T>());
    place.map(|place| kernels[place]).ok_or_else(|| {
        let detail = format!("elements must have 1, 2, 4 or 8 bytes on a GPU: got {}", size_of::<T>());
        Error::new(ErrorKind::Incompatible, detail)
    })
}
