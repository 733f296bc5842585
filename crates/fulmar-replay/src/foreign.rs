//! Parts written in another language: calls go out through one function, data through a mailbox.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde_json::Value;

pub(crate) mod sampler;
pub(crate) mod storage;
pub(crate) mod writer;

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

/// The other language, which answers every call with the same numbers.
#[cfg(test)]
pub(crate) struct Answers(pub Mailbox, pub Vec<f64>);

#[cfg(test)]
impl Callee for Answers {
    fn call(&self, _: &str, _: &[f64]) -> Result<()> {
        self.0.put_numbers(self.1.clone());
        Ok(())
    }
}
