//! Checks of rows that storages, samplers and writers share.

use fulmar_core::limits::{REPLAY_ROWS_MAX, REPLAY_SAMPLE_ROWS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;

/// Returns a valid number of rows for a buffer.
///
/// # Errors
/// `OutOfRange` for 0, `LimitExceeded` above [`REPLAY_ROWS_MAX`].
pub fn checked_capacity(capacity: usize) -> Result<usize> {
    if capacity == 0 {
        return Err(Error::new(ErrorKind::OutOfRange, "capacity must be >= 1: got 0"));
    }
    if capacity > REPLAY_ROWS_MAX {
        let detail = format!("capacity must be <= {REPLAY_ROWS_MAX}: got {capacity}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(capacity)
}

/// Returns a row below `end`.
///
/// # Errors
/// `OutOfRange` for other rows.
pub fn checked_row(row: usize, end: usize) -> Result<usize> {
    if row < end {
        return Ok(row);
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("row must be < {end}: got {row}")))
}

/// Checks a number of rows to draw from a buffer of `num_rows`.
///
/// # Errors
/// `Empty` if there are no rows; `OutOfRange` for 0 and above [`REPLAY_SAMPLE_ROWS_MAX`].
pub fn checked_draw(num_rows: usize, count: usize) -> Result<()> {
    if num_rows == 0 {
        return Err(Error::new(
            ErrorKind::Empty,
            "the buffer must hold at least one row to sample from: got 0",
        ));
    }
    if count == 0 || count > REPLAY_SAMPLE_ROWS_MAX {
        let detail = format!("count must be in 1..={REPLAY_SAMPLE_ROWS_MAX}: got {count}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    Ok(())
}

/// Returns the number of rows with items after a write of `rows` to a storage with `len`.
///
/// # Errors
/// `Empty` without rows; `OutOfRange` for a row beyond the capacity, or one that would leave earlier rows
/// empty.
pub fn grown_len(len: usize, capacity: usize, rows: &[usize]) -> Result<usize> {
    let Some(end) = rows.iter().max().map(|row| row + 1) else {
        return Err(Error::new(ErrorKind::Empty, "a write must hold at least one item: got 0"));
    };
    if end > capacity {
        let detail = format!("row must be < {capacity}, the capacity: got {}", end - 1);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if end <= len {
        return Ok(len);
    }
    let mut written = vec![false; end - len];
    for row in rows.iter().filter_map(|row| row.checked_sub(len)) {
        written[row] = true;
    }
    match written.iter().position(|written| !written) {
        None => Ok(end),
        Some(gap) => {
            let detail =
                format!("rows must leave none before them empty: got {} without {}", end - 1, len + gap);
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}

/// Refuses rows that hold no item, of a storage with `len`.
///
/// # Errors
/// `OutOfRange` with the first such row.
pub fn check_written(rows: &[usize], len: usize) -> Result<()> {
    match rows.iter().find(|row| **row >= len) {
        None => Ok(()),
        Some(row) => {
            let detail = format!("row must be < {len}, the number of rows that hold an item: got {row}");
            Err(Error::new(ErrorKind::OutOfRange, detail))
        }
    }
}

/// Refuses different numbers of items and rows.
///
/// # Errors
/// `ShapeMismatch` if they differ.
pub fn check_count(rows: &[usize], items: &TensorDict) -> Result<()> {
    if items.batch_size().first() == Some(&rows.len()) {
        return Ok(());
    }
    let detail = format!("items must have the batch size [{}]: got {:?}", rows.len(), items.batch_size());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
