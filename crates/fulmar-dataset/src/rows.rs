//! Rows of columns: what several data sets do to them.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
#[cfg(not(target_family = "wasm"))]
use rayon::prelude::*;
use serde_json::Value;

/// Reads each item, on all threads but in WebAssembly. Of several errors returns that of the first item.
pub(crate) fn on_all_threads<T: Sync, R: Send>(
    items: &[T],
    read: impl Fn(&T) -> Result<R> + Send + Sync,
) -> Result<Vec<R>> {
    #[cfg(not(target_family = "wasm"))]
    let found = items.par_iter().map(read).collect::<Vec<_>>();
    #[cfg(target_family = "wasm")]
    let found = items.iter().map(read).collect::<Vec<_>>();
    found.into_iter().collect()
}

/// Runs `work` with each item, in their order, on [`num_at_once`] threads of their own: no more items are at work at once, although `work` waits
/// for all threads. After an error no further item begins. Of several errors returns that of the first item.
pub(crate) fn in_turn<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Send + Sync,
) -> Result<Vec<R>> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = work(item);
            if result.is_err() {
                next.store(items.len(), Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    thread::scope(|scope| -> Result<()> {
        for _ in 1..num_at_once().min(items.len()) {
            thread::Builder::new().spawn_scoped(scope, take)?;
        }
        take();
        Ok(())
    })?;
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Number of items that [`on_all_threads`] keeps busy, and that are in memory at once where results are used up as they come.
pub(crate) fn num_at_once() -> usize {
    #[cfg(not(target_family = "wasm"))]
    return rayon::current_num_threads();
    #[cfg(target_family = "wasm")]
    1
}

/// Returns the rows `range` of a column. Shares the storage of a tensor.
pub(crate) fn slice(column: &Entry, range: Range<usize>) -> Result<Entry> {
    Ok(match column {
        Entry::Tensor(tensor) => tensor.slice(0, range)?.into(),
        Entry::Dict(columns) => {
            let len = range.len();
            let mut rows = TensorDict::new(&[len])?;
            for (name, column) in columns.entries() {
                rows.set(name, slice(column, range.clone()).map_err(|error| named(error, name))?)?;
            }
            rows.into()
        }
        Entry::NonTensor(_) => {
            let values = texts(column).get(range.clone()).unwrap_or_default().to_vec();
            NonTensor::each(&[range.len()], values)?.into()
        }
        other => return Err(unfit(other)),
    })
}

/// Returns the number of rows of a column of tensors or texts; `None` for a single value.
pub(crate) fn num_rows(column: &Entry) -> Option<usize> {
    match column {
        Entry::Tensor(tensor) => tensor.shape().first().copied(),
        Entry::NonTensor(values) => values.to_json().as_array().map(Vec::len),
        _ => None,
    }
}

/// Returns a column with a row of zeros, or of empty texts, before the first.
pub(crate) fn zero_first(column: &Entry) -> Result<Entry> {
    Ok(match column {
        Entry::Tensor(tensor) => {
            let mut shape = tensor.shape().to_vec();
            shape[0] = 1;
            Tensor::cat(&[Tensor::zeros(tensor.dtype(), &shape)?, tensor.clone()], 0)?.into()
        }
        Entry::NonTensor(_) => {
            let first = Value::String(String::new());
            NonTensor::shared(std::iter::once(first).chain(texts(column)).collect()).into()
        }
        other => return Err(unfit(other)),
    })
}

/// Returns the rows behind the first, and a row of zeros, or of empty texts, at the end.
pub(crate) fn shifted(column: &Entry) -> Result<Entry> {
    Ok(match column {
        Entry::Tensor(tensor) => {
            let num_rows = tensor.shape().first().copied().unwrap_or(0);
            let mut shape = tensor.shape().to_vec();
            shape[0] = 1;
            let rest = tensor.slice(0, 1..num_rows)?;
            Tensor::cat(&[rest, Tensor::zeros(tensor.dtype(), &shape)?], 0)?.into()
        }
        Entry::Dict(columns) => {
            let mut rows = TensorDict::new(&[])?;
            for (name, column) in columns.entries() {
                rows.set(name, shifted(column).map_err(|error| named(error, name))?)?;
            }
            rows.into()
        }
        Entry::NonTensor(_) => {
            let last = Value::String(String::new());
            NonTensor::shared(texts(column).into_iter().skip(1).chain([last]).collect()).into()
        }
        other => return Err(unfit(other)),
    })
}

/// Returns the values of a column of texts.
pub(crate) fn texts(column: &Entry) -> Vec<Value> {
    match column {
        Entry::NonTensor(values) => match values.to_json() {
            Value::Array(values) => values,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Returns a column of flags, `[rows, 1]`, from numbers that are 0 or 1, `[rows]` or `[rows, 1]`.
///
/// # Errors
/// `OutOfRange` with the first other value; those of [`one_number`].
pub(crate) fn flags(column: &Entry) -> Result<Tensor> {
    let column = one_number(column)?;
    if column.dtype() == Dtype::Bool {
        return Ok(column);
    }
    let values = column.to(Dtype::F64)?.to_vec::<f64>()?;
    if let Some(value) = values.iter().find(|value| **value != 0.0 && **value != 1.0) {
        return Err(Error::new(ErrorKind::OutOfRange, format!("flags must be 0 or 1: got {value}")));
    }
    Tensor::from_vec(column.shape(), values.iter().map(|value| *value == 1.0).collect::<Vec<_>>())
}

/// Returns where either of two columns of flags is true.
pub(crate) fn either(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let flags = left.to_vec::<bool>()?.into_iter().zip(right.to_vec::<bool>()?);
    Tensor::from_vec(left.shape(), flags.map(|(left, right)| left || right).collect::<Vec<_>>())
}

/// Returns a column of one number a row as `[rows, 1]`, from `[rows]` or `[rows, 1]`.
///
/// # Errors
/// `ShapeMismatch` for another shape; `Incompatible` for texts and groups.
pub(crate) fn one_number(column: &Entry) -> Result<Tensor> {
    let Entry::Tensor(tensor) = column else { return Err(unfit(column)) };
    match *tensor.shape() {
        [_] => tensor.unsqueeze(1),
        [_, 1] => Ok(tensor.clone()),
        ref shape => {
            let detail = format!("shape must be [rows] or [rows, 1]: got {shape:?}");
            Err(Error::new(ErrorKind::ShapeMismatch, detail))
        }
    }
}

pub(crate) fn unfit(entry: &Entry) -> Error {
    let detail = format!("must be a data set of numbers: got one of kind {}", entry.kind());
    Error::new(ErrorKind::Incompatible, detail)
}

pub(crate) fn named(error: Error, key: &str) -> Error {
    error.at(format!("{key:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_in_turn_give_results_in_order_and_are_few_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items: Vec<usize> = (0..100).collect();
        let results = in_turn(&items, |item| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let inner = on_all_threads(&[1, 2, 3], |part| Ok(part * item))?;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(inner.iter().sum::<usize>())
        });
        assert_eq!(results, Ok(items.iter().map(|item| 6 * item).collect()));
        assert!((1..=num_at_once()).contains(&most.into_inner()));
    }

    #[test]
    fn the_first_error_of_items_in_turn_is_returned_and_no_item_begins_after_it() {
        let begun = AtomicUsize::new(0);
        let failed = in_turn(&(0..1000).collect::<Vec<usize>>(), |item| {
            begun.fetch_add(1, Ordering::SeqCst);
            match item {
                3.. => Err(Error::new(ErrorKind::Empty, item.to_string())),
                _ => Ok(()),
            }
        });
        assert_eq!(failed.unwrap_err().detail(), "3");
        assert!(begun.into_inner() <= 4 + num_at_once());
        assert_eq!(in_turn(&[], |_: &usize| Ok(0)), Ok(Vec::new()));
    }
}
