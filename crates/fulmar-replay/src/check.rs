//! The suite that every implementation of [`Storage`] runs in its tests.

use fulmar_core::{ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};

use crate::Storage;

/// Checks the contract of [`Storage`]; `storage` must be empty with room for at least 4 rows.
///
/// # Errors
/// If the storage refuses a valid operation.
///
/// # Panics
/// If the storage breaks another rule of the trait; the message names it.
pub fn check_storage(storage: &mut dyn Storage) -> Result<()> {
    let capacity = storage.capacity();
    assert!(capacity >= 4, "the suite needs room for 4 rows: got {capacity}");
    assert_eq!(storage.shape().iter().product::<usize>(), capacity, "shape and capacity agree");
    assert!(storage.is_empty(), "a new storage holds nothing");
    assert_eq!(kind(storage.get(&[0])), Some(ErrorKind::OutOfRange), "unwritten rows are not shown");
    let before = storage.revision();
    storage.set(&[0, 1], &items(&[7, 8])?)?;
    assert!(storage.revision() > before, "a write raises the revision");
    assert_eq!(storage.get(&[1, 0, 1])?, items(&[8, 7, 8])?, "rows come in the order asked for");
    storage.set(&[1, 2, 1], &items(&[1, 2, 3])?)?;
    storage.set(&[3], &items(&[9])?)?;
    assert_eq!(
        (storage.len(), storage.get(&[0, 1, 2, 3])?),
        (4, items(&[7, 3, 2, 9])?),
        "the last of a row stays"
    );
    check_refusals(storage)?;
    let ids = storage.read_keys(&[3, 0], &["id".into()])?;
    assert_eq!(ids.tensor("id")?, items(&[9, 7])?.tensor("id")?, "read_keys gives the leaves of get");
    let mut out = items(&[0, 0])?;
    storage.read_into(&[3, 2], &mut out)?;
    assert_eq!(out, items(&[9, 2])?, "read_into gives what get gives");
    storage.read_into(&[2], &mut out)?;
    assert_eq!(out, items(&[2])?, "read_into gives what get gives, whatever out was");
    storage.clear();
    assert_eq!(
        (storage.len(), kind(storage.get(&[0]))),
        (0, Some(ErrorKind::OutOfRange)),
        "clearing empties"
    );
    storage.set(&[0], &items(&[5])?)?;
    assert_eq!(storage.get(&[0])?, items(&[5])?, "an emptied storage can be written");
    let seen = storage.revision();
    assert!(storage.set_if_unchanged(seen, &[0], &items(&[6])?, None)?, "nothing has changed");
    assert!(!storage.set_if_unchanged(seen, &[0], &items(&[4])?, None)?, "the first write changed it");
    assert_eq!(storage.get(&[0])?, items(&[6])?, "a refused write changes nothing");
    Ok(())
}

/// Checks the contract of [`Storage`] that a storage without writes keeps; `storage` must have at least 2 rows, which are `want`.
///
/// # Errors
/// If the storage refuses a valid operation.
///
/// # Panics
/// If the storage breaks another rule of the trait; the message names it.
pub fn check_storage_reads(storage: &mut dyn Storage, want: &TensorDict) -> Result<()> {
    let len = want.batch_size()[0];
    assert!(len >= 2, "the suite needs 2 rows: got {len}");
    assert_eq!(
        (storage.shape(), storage.len(), storage.capacity()),
        (&[len][..], len, len),
        "all rows are there"
    );
    let all: Vec<usize> = (0..len).collect();
    assert_eq!(&storage.get(&all)?, want, "rows are those that are wanted");
    let order = [1, 0, len - 1, 1];
    let picked = want.index_select(&order)?;
    assert_eq!(storage.get(&order)?, picked, "rows come in the order asked for");
    for key in want.leaf_keys() {
        let known = storage.read_keys(&order, std::slice::from_ref(&key))?;
        assert_eq!(known.entry(key.clone())?, picked.entry(key)?, "read_keys gives the leaves of get");
    }
    let mut out = storage.get(&[0, 0, 0, 0])?;
    storage.read_into(&order, &mut out)?;
    assert_eq!(out, picked, "read_into gives what get gives");
    storage.read_into(&[1], &mut out)?;
    assert_eq!(out, want.index_select(&[1])?, "read_into gives what get gives, whatever out was");
    assert_eq!(kind(storage.get(&[len])), Some(ErrorKind::OutOfRange), "rows that hold an item");
    assert_eq!(
        kind(storage.read_into(&[len], &mut out)),
        Some(ErrorKind::OutOfRange),
        "rows that hold an item"
    );
    assert_eq!(out, want.index_select(&[1])?, "an error changes nothing");
    let revision = storage.revision();
    assert_eq!(
        kind(storage.set(&[0], &picked.index_select(&[0])?)),
        Some(ErrorKind::Forbidden),
        "writes are refused"
    );
    assert_eq!(
        (storage.revision(), &storage.get(&all)?),
        (revision, want),
        "a refused write changes nothing"
    );
    Ok(())
}

fn check_refusals(storage: &mut dyn Storage) -> Result<()> {
    let (before, capacity) = (storage.get(&[0, 1, 2, 3])?, storage.capacity());
    let one = items(&[1])?;
    assert_eq!(kind(storage.set(&[0, 1], &one)), Some(ErrorKind::ShapeMismatch), "as many items as rows");
    assert_eq!(kind(storage.set(&[capacity], &one)), Some(ErrorKind::OutOfRange), "rows below the capacity");
    assert_eq!(kind(storage.get(&[4])), Some(ErrorKind::OutOfRange), "rows that hold an item");
    assert_eq!((storage.len(), storage.get(&[0, 1, 2, 3])?), (4, before), "an error changes nothing");
    Ok(())
}

/// Returns items that differ in every leaf.
fn items(ids: &[i64]) -> Result<TensorDict> {
    let count = ids.len();
    let mut items = TensorDict::new(&[count])?;
    items.set("id", Tensor::from_slice(&[count], ids)?)?;
    let pixels = ids.iter().flat_map(|id| [*id as u8, 1, 2]).collect();
    items.set(["next", "pixels"], Tensor::from_vec(&[count, 3], pixels)?)?;
    Ok(items)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}
