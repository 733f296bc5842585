//! Checks of rows that all modules share.

use fulmar_core::limits::{REPLAY_ROWS_MAX, REPLAY_SAMPLE_ROWS_MAX};
use fulmar_core::{Error, ErrorKind, Result};

/// Returns a valid number of rows for a buffer.
pub(crate) fn checked_capacity(capacity: usize) -> Result<usize> {
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
pub(crate) fn checked_row(row: usize, end: usize) -> Result<usize> {
    if row < end {
        return Ok(row);
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("row must be < {end}: got {row}")))
}

/// Checks a number of rows to draw from a buffer of `num_rows`.
pub(crate) fn checked_draw(num_rows: usize, count: usize) -> Result<()> {
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
