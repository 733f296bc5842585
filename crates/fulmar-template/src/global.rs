//! Jinja's small stateful helpers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Object, ObjectRepr, Rest, Value};
use minijinja::{Error, ErrorKind, State};

use crate::failure::type_error;

/// `cycler(a, b, ...)`: `next()` goes round, `current` shows, `reset()` starts again.
///
/// # Errors
/// A type error without items.
pub fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    if items.is_empty() {
        return Err(type_error("cycler needs an item: got none"));
    }
    Ok(Value::from_object(Cycler { items: items.0, at: AtomicUsize::new(0) }))
}

/// `joiner(separator)`: a function that gives nothing at its first call, and then the separator.
pub fn joiner(separator: Option<Value>) -> Value {
    let separator = separator.unwrap_or_else(|| Value::from(", "));
    Value::from_object(Joiner { separator, calls: AtomicUsize::new(0) })
}

#[derive(Debug)]
struct Cycler {
    items: Vec<Value>,
    at: AtomicUsize,
}

impl Cycler {
    fn item(&self, at: usize) -> Value {
        self.items[at % self.items.len()].clone()
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current")).then(|| self.item(self.at.load(Ordering::Relaxed)))
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        _: &[Value],
    ) -> Result<Value, Error> {
        match name {
            "next" => Ok(self.item(self.at.fetch_add(1, Ordering::Relaxed))),
            "reset" => {
                self.at.store(0, Ordering::Relaxed);
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

#[derive(Debug)]
struct Joiner {
    separator: Value,
    calls: AtomicUsize,
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _state: &mut State<'_, '_>, _: &[Value]) -> Result<Value, Error> {
        let is_first = self.calls.fetch_add(1, Ordering::Relaxed) == 0;
        Ok(if is_first { Value::from("") } else { self.separator.clone() })
    }
}
