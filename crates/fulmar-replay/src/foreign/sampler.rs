//! A sampler in another language.

use fulmar_core::{Error, ErrorKind, Result, index_from_f64};
use fulmar_tensor::TensorDict;
use serde_json::Value;

use super::{Callee, Mailbox, asked_state, numbers};
use crate::row::{check_count, checked_draw, checked_row};
use crate::{Follower, Sampled, Sampler, Stateful};

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
        let row = |row: &f64| index_from_f64("row", *row).and_then(|row| checked_row(row, len));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foreign::Answers;

    #[test]
    fn wrong_answers_are_refused() {
        for answer in [vec![], vec![3.0], vec![-1.0], vec![0.5], vec![f64::NAN]] {
            let mailbox = Mailbox::default();
            let callee = Box::new(Answers(mailbox.clone(), answer.clone()));
            let error = ForeignSampler::new(mailbox, callee).sample(3, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UserCode, "{answer:?}");
        }
    }
}
