//! Parts written in another language: calls go out through one function, data through a mailbox.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_core::{Error, ErrorKind, Result, index_from_f64};
use fulmar_tensor::TensorDict;
use serde_json::{Value, json};

use crate::read::count_of;
use crate::row::{check_count, check_written, checked_capacity, checked_draw, grown_len};
use crate::stateful::{check_capacity, from_state};
use crate::storage::Storage;
use crate::{Follower, Sampled, Sampler, Stateful, WritePlan, Writer};

/// The other language: runs an operation with data from a [`Mailbox`], and puts its result there.
pub trait Callee: Send + Sync {
    /// Runs `operation` with `numbers`.
    ///
    /// # Errors
    /// `UserCode` if it fails.
    fn call(&self, operation: &str, numbers: &[f64]) -> Result<()>;
}

/// Data exchange of both sides of a call. Clones are the same mailbox.
#[derive(Debug, Clone, Default)]
pub struct Mailbox(Arc<Mutex<Letter>>);

#[derive(Debug, Default)]
struct Letter {
    items: Option<TensorDict>,
    numbers: Vec<f64>,
    text: Option<String>,
}

impl Mailbox {
    /// Puts items.
    pub fn put_items(&self, items: TensorDict) {
        self.letter().items = Some(items);
    }

    /// Takes the items, if there are any.
    #[must_use]
    pub fn take_items(&self) -> Option<TensorDict> {
        self.letter().items.take()
    }

    /// Puts numbers.
    pub fn put_numbers(&self, numbers: Vec<f64>) {
        self.letter().numbers = numbers;
    }

    fn take_numbers(&self) -> Vec<f64> {
        std::mem::take(&mut self.letter().numbers)
    }

    /// Puts text.
    pub fn put_text(&self, text: String) {
        self.letter().text = Some(text);
    }

    /// Takes the text, if there is any.
    #[must_use]
    pub fn take_text(&self) -> Option<String> {
        self.letter().text.take()
    }

    fn letter(&self) -> MutexGuard<'_, Letter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

/// A sampler in another language: `check` and `extend` (rows; items in the mailbox), `ranOut` (puts 1 or 0
/// there), `sample` (number of rows, count; puts rows there, and info as items), `updatePriority` (rows, then
/// priorities), `clear`, `state` and `restore` (JSON as text).
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
    /// Returns a sampler that calls `callee`.
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
    fn ran_out(&self) -> bool {
        // If the call fails, the answer is no.
        self.callee.call("ranOut", &[]).is_ok() && self.mailbox.take_numbers() == [1.0]
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
            let detail = "sample must return at least one row: it returned 0";
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
}

impl Stateful for ForeignSampler {
    fn state(&self) -> Result<Value> {
        asked_state(&self.mailbox, &*self.callee, "state")
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        self.mailbox.put_text(state.to_string());
        self.callee.call("restore", &[])
    }
}

impl Follower for ForeignSampler {
    fn check(&self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.mailbox.put_items(items.clone());
        self.callee.call("check", &numbers(rows))
    }

    fn extend(&mut self, rows: &[usize], items: &TensorDict) -> Result<()> {
        self.mailbox.put_items(items.clone());
        self.callee.call("extend", &numbers(rows))
    }

    fn clear(&mut self) {
        // As with a storage, its rows count as empty even if this fails.
        let _ = self.callee.call("clear", &[]);
    }
}

/// A writer in another language: `plan` (capacity, then rows to reuse; items in the mailbox; puts the row of
/// each item there, -1 for one that is not kept), `commit` (the planned rows), `clear`, `state` and `restore`
/// (JSON as text), each prefixed as in `writer.plan`, as a sampler may use the same function. The write count
/// is kept here.
///
/// # Examples
/// ```
/// use fulmar_core::Result;
/// use fulmar_replay::{Callee, ForeignWriter, Mailbox, Writer};
/// use fulmar_tensor::TensorDict;
/// struct First(Mailbox);
/// impl Callee for First {
///     fn call(&self, operation: &str, _numbers: &[f64]) -> Result<()> {
///         if operation == "writer.plan" {
///             self.0.put_numbers(vec![0.0, -1.0]);
///         }
///         Ok(())
///     }
/// }
/// let mailbox = Mailbox::default();
/// let writer = ForeignWriter::new(4, mailbox.clone(), Box::new(First(mailbox)))?;
/// assert_eq!(writer.plan(&TensorDict::new(&[2])?, &[])?.rows, [Some(0), None]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct ForeignWriter {
    capacity: usize,
    cursor: usize,
    write_count: u64,
    /// The last plan, for its commit: planning again might give another result.
    planned: Mutex<Option<WritePlan>>,
    mailbox: Mailbox,
    callee: Box<dyn Callee>,
}

impl ForeignWriter {
    /// Returns a writer that calls `callee`, for a storage of `capacity` rows.
    ///
    /// # Errors
    /// `OutOfRange` if `capacity` is 0, `LimitExceeded` if it is above the limit of a buffer.
    pub fn new(capacity: usize, mailbox: Mailbox, callee: Box<dyn Callee>) -> Result<Self> {
        let capacity = checked_capacity(capacity)?;
        Ok(Self { capacity, cursor: 0, write_count: 0, planned: Mutex::default(), mailbox, callee })
    }

    fn planned(&self) -> MutexGuard<'_, Option<WritePlan>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Converts a number to a row; `None` for -1.
    fn row(&self, row: f64) -> Result<Option<usize>> {
        if row == -1.0 {
            return Ok(None);
        }
        let row = index_from_f64("row", row).and_then(|row| crate::row::checked_row(row, self.capacity));
        row.map(Some).map_err(|error| Error::new(ErrorKind::UserCode, error.detail()).at("what plan gives"))
    }
}

impl std::fmt::Debug for ForeignWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignWriter").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Writer for ForeignWriter {
    fn plan(&self, items: &TensorDict, freed: &[usize]) -> Result<WritePlan> {
        let count = count_of(items);
        if count == 0 {
            return Err(Error::new(ErrorKind::Empty, "a write must hold at least one item: got 0"));
        }
        let _ = self.mailbox.take_numbers();
        self.mailbox.put_items(items.clone());
        let about = [&[self.capacity], freed].concat();
        self.callee.call("writer.plan", &numbers(&about))?;
        let given = self.mailbox.take_numbers();
        if given.len() != count {
            let detail = format!("what plan gives must be one row an item, {count}: got {}", given.len());
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        let rows = given.into_iter().map(|row| self.row(row)).collect::<Result<Vec<_>>>()?;
        let kept = rows.iter().flatten().count() as u64;
        let cursor = rows.iter().flatten().next_back().map_or(self.cursor, |row| (row + 1) % self.capacity);
        let plan = WritePlan { rows, cursor, write_count: self.write_count + kept };
        *self.planned() = Some(plan.clone());
        Ok(plan)
    }

    fn commit(&mut self, _: &TensorDict, _: &[usize]) -> Result<()> {
        let Some(plan) = self.planned().take() else {
            return Err(Error::new(ErrorKind::Empty, "a write must be planned before it is done"));
        };
        (self.cursor, self.write_count) = (plan.cursor, plan.write_count);
        let rows: Vec<f64> = plan.rows.iter().map(|row| row.map_or(-1.0, |row| row as f64)).collect();
        self.callee.call("writer.commit", &rows)
    }

    fn write_at(&mut self, _: &[usize], _: bool) -> Result<()> {
        Ok(())
    }

    fn position(&self) -> (usize, u64) {
        (self.cursor, self.write_count)
    }

    fn resume(
        &mut self,
        _: usize,
        (cursor, write_count): (usize, u64),
        _: &dyn Fn() -> Result<TensorDict>,
    ) -> Result<()> {
        (self.cursor, self.write_count) = (cursor % self.capacity, write_count);
        Ok(())
    }

    fn clear(&mut self, keeps_count: bool) {
        // As with a storage, its rows count as empty even if this fails.
        let _ = self.callee.call("writer.clear", &[]);
        self.cursor = 0;
        if !keeps_count {
            self.write_count = 0;
        }
    }
}

impl Stateful for ForeignWriter {
    fn state(&self) -> Result<Value> {
        let own = asked_state(&self.mailbox, &*self.callee, "writer.state")?;
        Ok(
            json!({ "capacity": self.capacity, "cursor": self.cursor, "writeCount": self.write_count, "own": own }),
        )
    }

    fn restore(&mut self, state: &Value) -> Result<()> {
        check_capacity(self.capacity, from_state("capacity", &state["capacity"])?)?;
        let cursor: usize = from_state("cursor", &state["cursor"])?;
        let write_count = from_state("writeCount", &state["writeCount"])?;
        crate::row::checked_row(cursor, self.capacity)?;
        self.mailbox.put_text(state["own"].to_string());
        self.callee.call("writer.restore", &[])?;
        (self.cursor, self.write_count) = (cursor, write_count);
        Ok(())
    }
}

/// Returns the state from the other side.
fn asked_state(mailbox: &Mailbox, callee: &dyn Callee, operation: &str) -> Result<Value> {
    callee.call(operation, &[])?;
    let text = mailbox.take_text().unwrap_or_else(|| "null".to_owned());
    serde_json::from_str(&text).map_err(|error| {
        Error::new(ErrorKind::UserCode, format!("state must be JSON: got {error}")).because(error)
    })
}

fn numbers(rows: &[usize]) -> Vec<f64> {
    rows.iter().map(|row| *row as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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

    struct Answers(Mailbox, Vec<f64>);

    impl Callee for Answers {
        fn call(&self, _: &str, _: &[f64]) -> Result<()> {
            self.0.put_numbers(self.1.clone());
            Ok(())
        }
    }

    #[test]
    fn wrong_plans_are_refused_and_planned_rows_are_committed() {
        let items = TensorDict::new(&[2]).unwrap();
        let writer = |answer: Vec<f64>| {
            let mailbox = Mailbox::default();
            ForeignWriter::new(3, mailbox.clone(), Box::new(Answers(mailbox, answer))).unwrap()
        };
        for answer in
            [vec![], vec![0.0], vec![0.0, 3.0], vec![0.0, -2.0], vec![0.0, f64::NAN], vec![0.5, 1.0]]
        {
            let error = writer(answer.clone()).plan(&items, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserCode, "{answer:?}");
        }
        let mut writer = writer(vec![2.0, -1.0]);
        assert_eq!(writer.plan(&TensorDict::new(&[0]).unwrap(), &[]).unwrap_err().kind(), ErrorKind::Empty);
        assert_eq!(writer.plan(&items, &[]).unwrap().rows, [Some(2), None]);
        writer.commit(&items, &[]).unwrap();
        assert_eq!((writer.cursor(), writer.write_count()), (0, 1));
        assert_eq!(writer.commit(&items, &[]).unwrap_err().kind(), ErrorKind::Empty);
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
