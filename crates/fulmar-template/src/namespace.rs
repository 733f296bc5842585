//! The object of `namespace(...)`: the one value whose attributes a template may set.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{DynObject, Object, ObjectRepr, Value};
use minijinja::{Error, State};

use crate::failure::{forbidden, type_error};
use crate::meter;
use crate::value::check_holdable;

/// Approximate size of an attribute in bytes.
const ATTRIBUTE_BYTES: usize = 96;

/// Values by name, each with its position in the order of first assignments.
type Attributes = BTreeMap<Arc<str>, (usize, Value)>;

/// Attributes by name. Opaque like Python's: equal only to itself, without an order, and not iterable.
#[derive(Debug, Default)]
pub struct Namespace {
    attributes: Mutex<Attributes>,
}

impl Namespace {
    /// Returns a namespace that lives until the rendering ends.
    ///
    /// # Errors
    /// The errors of [`Namespace::set`].
    pub fn create(attributes: impl IntoIterator<Item = (String, Value)>) -> Result<Value, Error> {
        let namespace = Arc::new(Self::default());
        meter::make(ATTRIBUTE_BYTES)?;
        meter::keep(&namespace);
        for (name, value) in attributes {
            namespace.set(&name, value)?;
        }
        Ok(Value::from_dyn_object(namespace))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `Forbidden` for a private name, a type error for a value that cannot be held, `LimitExceeded` past a limit.
    pub fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        if name.starts_with('_') {
            let detail = format!("names of a namespace must not start with an underscore: got {name}");
            return Err(forbidden(detail));
        }
        check_holdable(&value)?;
        meter::make(ATTRIBUTE_BYTES + name.len())?;
        let mut attributes = self.lock();
        let place = attributes.len();
        match attributes.get_mut(name) {
            // The old value is dropped after the lock is released.
            Some(slot) => {
                let old = std::mem::replace(&mut slot.1, value);
                drop(attributes);
                drop(old);
            }
            None => {
                attributes.insert(name.into(), (place, value));
            }
        }
        Ok(())
    }

    /// Returns its attributes in the order in which they were first set.
    pub fn attributes(&self) -> Vec<(Arc<str>, Value)> {
        let mut attributes: Vec<_> = self
            .lock()
            .iter()
            .map(|(name, (place, value))| (*place, Arc::clone(name), value.clone()))
            .collect();
        attributes.sort_by_key(|(place, ..)| *place);
        attributes.into_iter().map(|(_, name, value)| (name, value)).collect()
    }

    /// Removes all attributes.
    pub fn clear(&self) {
        // Dropped after the lock is released.
        let attributes = std::mem::take(&mut *self.lock());
        drop(attributes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Attributes> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `{% set namespace.name = value %}`.
///
/// # Errors
/// A type error for other values than namespaces; the errors of [`Namespace::set`].
pub fn assign(target: &Value, name: &str, value: Value) -> Result<Value, Error> {
    let Some(namespace) = target.downcast_object_ref::<Namespace>() else {
        return Err(type_error(format!("cannot assign attribute {name} on non-namespace object")));
    };
    namespace.set(name, value)?;
    Ok(Value::UNDEFINED)
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.lock().get(key.as_str()?).map(|(_, value)| value.clone())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        name: &str,
        arguments: &[Value],
    ) -> Result<Value, Error> {
        let method = self.lock().get(name).map(|(_, method)| method.clone());
        match method {
            Some(method) => method.call(state, arguments),
            None => Err(Error::from(minijinja::ErrorKind::UnknownMethod)),
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<std::cmp::Ordering> {
        let other = other.downcast_ref::<Self>()?;
        Some(std::ptr::from_ref::<Self>(&**self).cmp(&std::ptr::from_ref(other)))
    }
}
