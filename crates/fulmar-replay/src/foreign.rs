//! Parts that a program in another language keeps: calls go out through one function, data through a mailbox.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_core::{Error, ErrorKind, Result, index_from_f64};
use fulmar_tensor::TensorDict;
use serde_json::Value;

use crate::row::{checked_capacity, checked_draw};
use crate::storage::{Storage, check_count, check_written, grown_len};
use crate::{Sampled, Sampler};

/// The other side: does an operation whose data lies in a [`Mailbox`], and leaves its answer there.
pub trait Callee: Send + Sync {
    /// Does `operation` with `numbers`.
    ///
    /// # Errors
    /// `UserCode` if it fails.
    fn call(&self, operation: &str, numbers: &[f64]) -> Result<()>;
}

/// Where both sides of a call leave data for each other. Clones are the same mailbox.
#[derive(Debug, Clone, Default)]
pub struct Mailbox(Arc<Mutex<Letter>>);

#[derive(Debug, Default)]
struct Letter {
    items: Option<TensorDict>,
    numbers: Vec<f64>,
    text: Option<String>,
}

impl Mailbox {
    /// Leaves items.
    pub fn put_items(&self, items: TensorDict) {
        self.letter().items = Some(items);
    }

    /// Takes the items that were left.
    #[must_use]
    pub fn take_items(&self) -> Option<TensorDict> {
        self.letter().items.take()
    }

    /// Leaves numbers.
    pub fn put_numbers(&self, numbers: Vec<f64>) {
        self.letter().numbers = numbers;
    }

    fn take_numbers(&self) -> Vec<f64> {
        std::mem::take(&mut self.letter().numbers)
    }

    /// Leaves text.
    pub fn put_text(&self, text: String) {
        self.letter().text = Some(text);
    }

    /// Takes the text that was left.
    #[must_use]
    pub fn take_text(&self) -> Option<String> {
        self.letter().text.take()
    }

    fn letter(&self) -> MutexGuard<'_, Letter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A storage on the other side: `set` (rows; items in the mailbox), `get` (rows; leaves items there) and `clear`. Rows are checked
/// here, so the other side sees only those it can have.
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
/// assert_eq!((storage.capacity(), storage.len()), (4, 0));
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
    /// An empty storage with room for `capacity` rows.
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
    fn capacity(&self) -> usize {
        self.capacity[0]
    }

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
            return Err(Error::new(ErrorKind::UserCode, "what get gives must be items: got none"));
        };
        match check_count(rows, &items) {
            Ok(()) => Ok(items),
            Err(error) => Err(Error::new(ErrorKind::UserCode, error.detail()).at("what get gives")),
        }
    }

    fn clear(&mut self) {
        // What fails to forget is never read again: the rows are empty.
        let _ = self.callee.call("clear", &[]);
        self.len = 0;
        self.revision += 1;
    }

    fn revision(&self) -> u64 {
        self.revision
    }
}

/// A sampler on the other side: `extend` (rows; items in the mailbox), `sample` (number of rows, count; leaves rows there, and info
/// as items), `updatePriority` (rows, then priorities), `clear`, `state` and `restore` (JSON as text).
///
/// # Examples
/// ```
/// use fulmar_core::Result;
/// use fulmar_replay::{Callee, ForeignSampler, Mailbox, Sampler};
/// struct First(Mailbox);
/// impl Callee for First {
///     fn call(&self, operation: &str, numbers: &[f64]) -> Result<()> {
///         if operation == "sample" {
///             self.0.put_numbers(vec![0.0; numbers[1] as usize]);
///         }
///         Ok(())
///     }
/// }
/// let mailbox = Mailbox::default();
/// let mut sampler = ForeignSampler::new(mailbox.clone(), Box::new(First(mailbox)));
/// assert_eq!(sampler.sample(3, 2)?.rows, [0, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct ForeignSampler {
    mailbox: Mailbox,
    callee: Box<dyn Callee>,
}

impl ForeignSampler {
    /// A sampler behind `callee`.
    #[must_use]
    pub fn new(mailbox: Mailbox, callee: Box<dyn Callee>) -> Self {
        Self { mailbox, callee }
    }
}

impl std::fmt::Debug for ForeignSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignSampler").finish_non_exhaustive()
    }
}

impl Sampler for ForeignSampler {
    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.mailbox.put_items(items.clone());
        self.callee.call("extend", &numbers(rows))
    }

    fn sample(&mut self, len: usize, count: usize) -> Result<Sampled> {
        checked_draw(len, count)?;
        let _ = (self.mailbox.take_items(), self.mailbox.take_numbers());
        self.callee.call("sample", &numbers(&[len, count]))?;
        let drawn = self.mailbox.take_numbers();
        let row = |row: &f64| index_from_f64("row", *row).and_then(|row| crate::row::checked_row(row, len));
        let rows = drawn.iter().map(row).collect::<Result<Vec<_>>>();
        let rows =
            rows.map_err(|error| Error::new(ErrorKind::UserCode, error.detail()).at("what sample gives"))?;
        if rows.is_empty() {
            let detail = "what sample gives must be a row at least: got none";
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        let Some(info) = self.mailbox.take_items() else { return Sampled::plain(rows) };
        match check_count(&rows, &info) {
            Ok(()) => Ok(Sampled { rows, info, slice_lens: Vec::new() }),
            Err(error) => Err(Error::new(ErrorKind::UserCode, error.detail()).at("info that sample gives")),
        }
    }

    fn update_priority(&mut self, rows: &[usize], priorities: &[f32]) -> Result<()> {
        let mut all = numbers(rows);
        all.extend(priorities.iter().map(|priority| f64::from(*priority)));
        self.callee.call("updatePriority", &all)
    }

    fn clear(&mut self) {
        // As with a storage: its rows are empty whatever it says.
        let _ = self.callee.call("clear", &[]);
    }

    fn state(&self) -> Result<Value> {
        self.callee.call("state", &[])?;
        let text = self.mailbox.take_text().unwrap_or_else(|| "null".to_owned());
        serde_json::from_str(&text)
            .map_err(|error| Error::new(ErrorKind::UserCode, format!("state must be JSON: got {error}")))
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        self.mailbox.put_text(state.to_string());
        self.callee.call("restore", &[])
    }
}

fn numbers(rows: &[usize]) -> Vec<f64> {
    rows.iter().map(|row| *row as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListStorage, check_storage};

    /// The other side, in Rust: a list behind a mailbox.
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

    struct Answers(Mailbox, Vec<f64>);

    impl Callee for Answers {
        fn call(&self, _: &str, _: &[f64]) -> Result<()> {
            self.0.put_numbers(self.1.clone());
            Ok(())
        }
    }

    #[test]
    fn wrong_answers_are_refused() {
        for answer in [vec![], vec![3.0], vec![-1.0], vec![0.5], vec![f64::NAN]] {
            let mailbox = Mailbox::default();
            let callee = Box::new(Answers(mailbox.clone(), answer.clone()));
            let error = ForeignSampler::new(mailbox, callee).sample(3, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserCode, "{answer:?}");
        }
        let mailbox = Mailbox::default();
        let mut storage =
            ForeignStorage::new(2, mailbox.clone(), Box::new(Answers(mailbox, vec![]))).unwrap();
        storage.set(&[0], &TensorDict::new(&[1]).unwrap()).unwrap();
        let _ = storage.mailbox.take_items();
        assert_eq!(storage.get(&[0]).unwrap_err().kind(), ErrorKind::UserCode);
    }
}
