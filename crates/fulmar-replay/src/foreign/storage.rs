//! A storage in another language.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;

use super::{Callee, Mailbox, numbers};
use crate::Storage;
use crate::row::{check_count, check_written, checked_capacity, grown_len};

/// A storage in another language: `set` (rows; items in the mailbox), `get` (rows; puts items there) and
/// `clear`. Rows are checked here, so the other side sees only valid ones.
///
/// # Examples
/// ```
/// use fulmar_core::Result;
/// use fulmar_replay::{Callee, ForeignStorage, Mailbox, Storage};
/// struct Nothing;
/// impl Callee for Nothing {
///     fn call(&self, _operation: &str, _numbers: &[f64]) -> Result<()> { Ok(()) }
/// }
/// let storage = ForeignStorage::new(4, Mailbox::default(), Box::new(Nothing))?;
/// assert_eq!((storage.shape(), storage.len()), (&[4][..], 0));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct ForeignStorage {
    capacity: [usize; 1],
    len: usize,
    revision: u64,
    mailbox: Mailbox,
    callee: Box<dyn Callee>,
}

impl ForeignStorage {
    /// Returns an empty storage with room for `capacity` rows.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize, mailbox: Mailbox, callee: Box<dyn Callee>) -> Result<Self> {
        Ok(Self { capacity: [checked_capacity(capacity)?], len: 0, revision: 0, mailbox, callee })
    }
}

impl std::fmt::Debug for ForeignStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignStorage").field("capacity", &self.capacity[0]).finish_non_exhaustive()
    }
}

impl Storage for ForeignStorage {
    fn shape(&self) -> &[usize] {
        &self.capacity
    }

    fn len(&self) -> usize {
        self.len
    }

    fn set(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        check_count(rows, items)?;
        let len = grown_len(self.len, self.capacity[0], rows)?;
        self.mailbox.put_items(items.clone());
        self.callee.call("set", &numbers(rows))?;
        self.len = len;
        self.revision += 1;
        Ok(())
    }

    fn get(&self, rows: &[usize]) -> Result<TensorDict> {
        check_written(rows, self.len)?;
        self.callee.call("get", &numbers(rows))?;
        let Some(items) = self.mailbox.take_items() else {
            return Err(Error::new(ErrorKind::UserCode, "get must return items: it returned nothing"));
        };
        match check_count(rows, &items) {
            Ok(()) => Ok(items),
            Err(error) => Err(Error::new(ErrorKind::UserCode, error.detail()).at("what get gives")),
        }
    }

    fn clear(&mut self) {
        // If clearing fails, the old rows are never read again: they count as empty.
        let _ = self.callee.call("clear", &[]);
        self.len = 0;
        self.revision += 1;
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::foreign::Answers;
    use crate::{ListStorage, check_storage};

    /// The other language, simulated in Rust: a list with a mailbox.
    struct Listed {
        list: Mutex<ListStorage>,
        mailbox: Mailbox,
    }

    impl Callee for Listed {
        fn call(&self, operation: &str, numbers: &[f64]) -> Result<()> {
            let rows: Vec<usize> = numbers.iter().map(|row| *row as usize).collect();
            let mut list = self.list.lock().unwrap();
            match operation {
                "set" => list.set(&rows, &self.mailbox.take_items().unwrap())?,
                "get" => self.mailbox.put_items(list.get(&rows)?),
                _ => list.clear(),
            }
            Ok(())
        }
    }

    #[test]
    fn a_foreign_storage_is_a_storage() {
        let mailbox = Mailbox::default();
        let listed = Listed { list: Mutex::new(ListStorage::new(8).unwrap()), mailbox: mailbox.clone() };
        check_storage(&mut ForeignStorage::new(8, mailbox, Box::new(listed)).unwrap()).unwrap();
    }

    #[test]
    fn a_storage_that_gives_nothing_is_refused() {
        let mailbox = Mailbox::default();
        let mut storage =
            ForeignStorage::new(2, mailbox.clone(), Box::new(Answers(mailbox, vec![]))).unwrap();
        storage.set(&[0], &TensorDict::new(&[1]).unwrap()).unwrap();
        let _ = storage.mailbox.take_items();
        assert_eq!(storage.get(&[0]).unwrap_err().kind(), ErrorKind::UserCode);
    }
}
