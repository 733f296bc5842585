//! What a rendering does with long texts. The engine counts steps, and one step may go over a text of any length.

use std::sync::atomic::{AtomicU64, Ordering};

use fulmar_core::ErrorKind;
use fulmar_core::limits::{TEMPLATE_LONG_TEXT_BYTES_MIN, TEMPLATE_PRINT_BYTES_MAX, TEMPLATE_WORK_BYTES_MAX};
use minijinja::value::Value;
use minijinja::{Error, State};

use crate::environment::{SETTINGS, Settings};
use crate::failure::fail;
use crate::method::check_length;

/// Methods read a text more slowly than `~` copies it.
const READ_WEIGHT: u64 = 16;

/// Bytes of long texts so far.
#[derive(Debug, Default)]
pub struct Work {
    printed: AtomicU64,
    read: AtomicU64,
}

/// Counts a text that is printed, into the result or into what a block keeps.
///
/// # Errors
/// `LimitExceeded` past `TEMPLATE_PRINT_BYTES_MAX`.
pub fn print(state: &State, text: &str) -> Result<(), Error> {
    count(state, text.len(), 1, |work| (&work.printed, TEMPLATE_PRINT_BYTES_MAX))
}

/// Counts an operand of `~`.
///
/// # Errors
/// `LimitExceeded` past `TEMPLATE_WORK_BYTES_MAX`, or for a text that is longer than a rendering may give.
pub fn join(state: &State, text: &str) -> Result<(), Error> {
    check_length(Some(text.len()))?;
    count(state, text.len(), 1, |work| (&work.read, TEMPLATE_WORK_BYTES_MAX))
}

/// Counts a text whose method is called.
///
/// # Errors
/// `LimitExceeded` past `TEMPLATE_WORK_BYTES_MAX`.
pub fn read(state: &State, text: &str) -> Result<(), Error> {
    count(state, text.len(), READ_WEIGHT, |work| (&work.read, TEMPLATE_WORK_BYTES_MAX))
}

/// Counts a list that is sliced or whose method is called, as if it were a text.
///
/// # Errors
/// `LimitExceeded` past `TEMPLATE_WORK_BYTES_MAX`.
pub fn read_items(state: &State, num_items: usize) -> Result<(), Error> {
    count(state, num_items.saturating_mul(size_of::<Value>()), READ_WEIGHT, |work| {
        (&work.read, TEMPLATE_WORK_BYTES_MAX)
    })
}

fn count(
    state: &State,
    num_bytes: usize,
    weight: u64,
    counter: impl FnOnce(&Work) -> (&AtomicU64, u64),
) -> Result<(), Error> {
    if num_bytes < TEMPLATE_LONG_TEXT_BYTES_MIN {
        return Ok(());
    }
    let settings = state.lookup(SETTINGS).and_then(|settings| settings.downcast_object::<Settings>());
    let Some(settings) = settings else { return Ok(()) };
    let (counter, most) = counter(&settings.work);
    let bytes = num_bytes as u64 * weight;
    if counter.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= most {
        return Ok(());
    }
    Err(fail(
        ErrorKind::LimitExceeded,
        format!("long texts must have at most {most} bytes together: got more"),
    ))
}
