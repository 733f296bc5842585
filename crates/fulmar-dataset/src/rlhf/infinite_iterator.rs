//! Endless passes over a source.

use fulmar_core::{Error, ErrorKind, Result};

/// Returns the items of a source in passes without end.
///
/// # Errors
/// `Empty` if the source has no item.
///
/// # Examples
/// ```
/// use fulmar_dataset::create_infinite_iterator;
/// let numbers: Vec<_> = create_infinite_iterator([1, 2, 3])?.take(8).collect();
/// assert_eq!(numbers, [1, 2, 3, 1, 2, 3, 1, 2]);
/// assert!(create_infinite_iterator(Vec::<i32>::new()).is_err());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn create_infinite_iterator<S>(source: S) -> Result<impl Iterator<Item = S::Item>>
where
    S: IntoIterator<IntoIter: Clone>,
{
    let items = source.into_iter();
    if items.clone().next().is_none() {
        return Err(Error::new(ErrorKind::Empty, "source must have an item in each pass: it is empty"));
    }
    Ok(items.cycle())
}
