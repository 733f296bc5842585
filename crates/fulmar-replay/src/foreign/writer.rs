//! A writer in another language.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar_core::{Error, ErrorKind, Result, index_from_f64};
use fulmar_tensor::TensorDict;
use serde_json::{Value, json};

use super::{Callee, Mailbox, asked_state, numbers};
use crate::read::count_of;
use crate::row::{checked_capacity, checked_row};
use crate::stateful::{check_capacity, from_state};
use crate::{Stateful, WritePlan, Writer};

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
        let row = index_from_f64("row", row).and_then(|row| checked_row(row, self.capacity));
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
        checked_row(cursor, self.capacity)?;
        self.mailbox.put_text(state["own"].to_string());
        self.callee.call("writer.restore", &[])?;
        (self.cursor, self.write_count) = (cursor, write_count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Answers;

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
        assert_eq!(writer.position(), (0, 1));
        assert_eq!(writer.commit(&items, &[]).unwrap_err().kind(), ErrorKind::Empty);
    }
}
