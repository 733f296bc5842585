//! Jinja's stateful global functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Object, ObjectRepr, Rest, Value};
use minijinja::{Error, ErrorKind, State};

use crate::arguments::as_integer;
use crate::compare::type_name;
use crate::failure::{fail, type_error, undefined};
use crate::integer::small_integer;
use crate::meter;
use crate::method::list;
use crate::value::{check_holdable, depth_of};

/// Maximum length of a range, as in jinja2's sandbox.
const RANGE_ITEMS_MAX: i128 = 100_000;

/// Returns `cycler(a, b, ...)`: `next()` cycles, `current` shows, `reset()` restarts.
///
/// # Errors
/// A type error without items.
pub fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    if items.is_empty() {
        return Err(type_error("cycler needs at least one item: got 0"));
    }
    items.iter().try_for_each(check_holdable)?;
    meter::make(items.len() * size_of::<Value>())?;
    let depth = 1 + items.iter().map(depth_of).max().unwrap_or(0);
    Ok(Value::from_object(Cycler { items: items.0, depth, at: AtomicUsize::new(0) }))
}

/// Returns `joiner(separator)`: a function that returns an empty text at its first call, and then the
/// separator.
///
/// # Errors
/// A type error for a separator that cannot be held.
pub fn joiner(separator: Option<Value>) -> Result<Value, Error> {
    let separator = separator.unwrap_or_else(|| Value::from(", "));
    check_holdable(&separator)?;
    Ok(Value::from_object(Joiner { separator, calls: AtomicUsize::new(0) }))
}

/// Returns `range(stop)`, `range(start, stop)` or `range(start, stop, step)`.
///
/// # Errors
/// `LimitExceeded` for more than [`RANGE_ITEMS_MAX`] numbers; `OutOfRange` for a step of 0; a type error for
/// other types than integers.
pub fn range(bounds: Rest<Value>) -> Result<Value, Error> {
    let integer = |value: &Value| {
        let name = type_name(value);
        as_integer(value).map(i128::from).ok_or_else(|| match value.is_undefined() {
            true => undefined("a bound of range must be defined, this one is undefined"),
            false => type_error(format!("'{name}' object cannot be interpreted as an integer")),
        })
    };
    let bounds = bounds.iter().map(integer).collect::<Result<Vec<_>, _>>()?;
    let (start, stop, step) = match bounds.as_slice() {
        [stop] => (0, *stop, 1),
        [start, stop] => (*start, *stop, 1),
        [start, stop, step] => (*start, *stop, *step),
        other => return Err(type_error(format!("range expected 1 to 3 arguments, got {}", other.len()))),
    };
    if step == 0 {
        return Err(fail(fulmar_core::ErrorKind::OutOfRange, "range() arg 3 must not be zero"));
    }
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.abs() + 1 };
    if count > RANGE_ITEMS_MAX {
        let detail = format!("a range must have at most {RANGE_ITEMS_MAX} numbers, this one has {count}");
        return Err(fail(fulmar_core::ErrorKind::LimitExceeded, detail));
    }
    list((0..count).map(|nth| small_integer(start + nth * step)).collect())
}

/// The object of `cycler`.
#[derive(Debug)]
pub struct Cycler {
    items: Vec<Value>,
    depth: usize,
    at: AtomicUsize,
}

impl Cycler {
    /// Returns the number of containers around its innermost item, itself included.
    pub fn depth(&self) -> usize {
        self.depth
    }

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

/// The object of `joiner`.
#[derive(Debug)]
pub struct Joiner {
    separator: Value,
    calls: AtomicUsize,
}

impl Joiner {
    /// Returns its result from the second call on.
    pub fn separator(&self) -> &Value {
        &self.separator
    }
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
