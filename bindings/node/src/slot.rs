//! The value that a JavaScript object owns until it is freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fulmar::core::{Error, ErrorKind, Held, Result};

/// A value that a JavaScript object and its tasks own together. After [`Slot::free`] its use is an error of kind `Closed`.
///
/// A clone is another owner of the same value: move one into a task.
pub struct Slot<T> {
    name: &'static str,
    freed: Arc<AtomicBool>,
    value: Arc<Mutex<Option<T>>>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { name: self.name, freed: Arc::clone(&self.freed), value: Arc::clone(&self.value) }
    }
}

impl<T> Slot<T> {
    /// Holds `value`; `name` is the class name for messages.
    pub fn new(name: &'static str, value: T) -> Self {
        Self { name, freed: Arc::default(), value: Arc::new(Mutex::new(Some(value))) }
    }

    /// Calls `body` with the value. Waits while a task uses it, so the event loop may only make quick calls.
    ///
    /// # Errors
    /// `Closed` after [`Slot::free`], and after a panic that left the value half changed; `Forbidden` in a function of JavaScript that
    /// the value is calling; else the error of `body`.
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _held = Held::mark(&*self.value, self.name)?;
        let Ok(mut value) = self.value.lock() else { return Err(self.closed("one that panicked before")) };
        let result = match value.as_mut() {
            Some(value) if !self.freed.load(Ordering::Acquire) => body(value),
            _ => Err(self.closed("a freed one")),
        };
        if self.freed.load(Ordering::Acquire) {
            *value = None;
        }
        result
    }

    /// Drops the value: now, or when the task that uses it ends. A second call does nothing.
    ///
    /// # Errors
    /// Never; the type lets an exported `free` be one call.
    pub fn free(&self) -> Result<()> {
        self.freed.store(true, Ordering::Release);
        if let Ok(mut value) = self.value.try_lock() {
            *value = None;
        }
        Ok(())
    }

    /// Returns true after [`Slot::free`].
    pub fn was_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    fn closed(&self, got: &str) -> Error {
        Error::new(ErrorKind::Closed, format!("{} must be open: got {got}", self.name))
    }
}
