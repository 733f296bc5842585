//! Lists and dictionaries of templates, and their construction from JSON.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use fulmar_core::limits::TEMPLATE_DATA_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result, kept_integer};
use minijinja::State;
use minijinja::value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr, Value, ValueKind};
use serde_json::{Map, Number, Value as Json};

use crate::compare;
use crate::failure::{fail, to_error, type_error};
use crate::filter::Group;
use crate::global::{Cycler, Joiner};
use crate::integer;
use crate::method::{self, Bound, DICT_METHODS};

/// Below this many keys a linear search is faster than hashing.
const INDEXED_LENGTH_MIN: usize = 16;

/// A Python dictionary: keys in order; with Jinja's dot, methods take precedence over keys.
#[derive(Debug)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<String, usize>,
    depth: usize,
}

impl Dict {
    /// Returns a dictionary of `entries` with distinct keys.
    ///
    /// # Errors
    /// `LimitExceeded` if it is nested deeper than `TEMPLATE_DATA_DEPTH_MAX`.
    pub fn new(entries: Vec<(Value, Value)>) -> Result<Self> {
        let depth = 1 + entries.iter().map(|(_, value)| depth_of(value)).max().unwrap_or(0);
        check_depth(depth)?;
        let mut index = HashMap::new();
        if entries.len() >= INDEXED_LENGTH_MIN {
            for (at, (key, _)) in entries.iter().enumerate() {
                index.extend(key.as_str().map(|key| (key.to_owned(), at)));
            }
        }
        Ok(Self { entries, index, depth })
    }

    /// Returns keys with their values, in order.
    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    /// Returns the value of any key.
    ///
    /// # Errors
    /// `LimitExceeded` past the limit of steps.
    pub fn find(&self, key: &Value) -> std::result::Result<Option<&Value>, minijinja::Error> {
        if let Some(text) = key.as_str() {
            return Ok(self.get(text));
        }
        for (known, value) in &self.entries {
            if known.as_str().is_none() && compare::equal(known, key)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Returns the value of a text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        if !self.index.is_empty() {
            return self.index.get(key).map(|at| &self.entries[*at].1);
        }
        self.entries.iter().find(|(known, _)| known.as_str() == Some(key)).map(|(_, value)| value)
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.find(key).ok().flatten().cloned()
    }

    /// Returns `dict.name`: jinja2 looks for a method first.
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        if DICT_METHODS.contains(&name) {
            return Some(method::bound(Value::from_dyn_object(Arc::clone(self)), name));
        }
        self.get(name).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_enumerator(|dict| Box::new(dict.entries.iter().map(|(key, _)| key.clone())))
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let equality =
            compare::equal(&Value::from_dyn_object(Arc::clone(self)), &Value::from_dyn_object(other.clone()));
        compare::answer(equality)
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        name: &str,
        arguments: &[Value],
    ) -> std::result::Result<Value, minijinja::Error> {
        method::call(state, &Value::from_dyn_object(Arc::clone(self)), name, arguments)
    }
}

/// A Python list or tuple.
#[derive(Debug)]
pub struct List {
    items: Vec<Value>,
    depth: usize,
    is_tuple: bool,
}

impl List {
    /// Returns a list of `items`.
    ///
    /// # Errors
    /// `LimitExceeded` if it is nested deeper than `TEMPLATE_DATA_DEPTH_MAX`.
    pub fn new(items: Vec<Value>) -> Result<Self> {
        let depth = 1 + items.iter().map(depth_of).max().unwrap_or(0);
        check_depth(depth)?;
        Ok(Self { items, depth, is_tuple: false })
    }

    /// Returns a tuple of `items`.
    ///
    /// # Errors
    /// The errors of [`List::new`].
    pub fn tuple(items: Vec<Value>) -> Result<Self> {
        Ok(Self { is_tuple: true, ..Self::new(items)? })
    }

    /// Returns its items.
    pub fn items(&self) -> &[Value] {
        &self.items
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn get_value_by_str(self: &Arc<Self>, _name: &str) -> Option<Value> {
        None
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let equality =
            compare::equal(&Value::from_dyn_object(Arc::clone(self)), &Value::from_dyn_object(other.clone()));
        compare::answer(equality)
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        name: &str,
        arguments: &[Value],
    ) -> std::result::Result<Value, minijinja::Error> {
        method::call(state, &Value::from_dyn_object(Arc::clone(self)), name, arguments)
    }
}

/// Returns whether a value is a tuple.
pub fn is_tuple(value: &Value) -> bool {
    match value.downcast_object_ref::<List>() {
        Some(list) => list.is_tuple,
        None => value.is_tuple() || value.downcast_object_ref::<Group>().is_some(),
    }
}

/// Returns the number of containers around the innermost value: 0 for other values than containers.
pub fn depth_of(value: &Value) -> usize {
    let Some(object) = value.as_object() else { return 0 };
    if let Some(list) = object.downcast_ref::<List>() {
        return list.depth;
    }
    if let Some(dict) = object.downcast_ref::<Dict>() {
        return dict.depth;
    }
    if let Some(group) = object.downcast_ref::<Group>() {
        return group.depth();
    }
    if let Some(bound) = object.downcast_ref::<Bound>() {
        return 1 + depth_of(bound.receiver());
    }
    if let Some(cycler) = object.downcast_ref::<Cycler>() {
        return cycler.depth();
    }
    if let Some(joiner) = object.downcast_ref::<Joiner>() {
        return 1 + depth_of(joiner.separator());
    }
    // A constant of the template is flat; the rendering owns namespaces.
    usize::from(matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map))
}

/// Refuses values that no container may hold: the engine's loop, which contains the list that it iterates and
/// has an unknown depth; and values that are nested too deep.
///
/// # Errors
/// A type error for a loop and for named arguments, `LimitExceeded` past `TEMPLATE_DATA_DEPTH_MAX`.
pub fn check_holdable(value: &Value) -> std::result::Result<(), minijinja::Error> {
    if value.kind() == ValueKind::Map && value.downcast_object_ref::<Dict>().is_none() {
        let is_loop = value.as_object().is_some_and(|object| object.type_name().ends_with("::Loop"));
        if is_loop || value.is_kwargs() {
            let what = if is_loop { "loop" } else { "named arguments" };
            return Err(type_error(format!("a list, a dictionary or a namespace cannot hold {what}")));
        }
    }
    check_depth(depth_of(value)).map_err(|error| fail(error.kind(), error.detail()))
}

fn check_depth(depth: usize) -> Result<()> {
    if depth <= TEMPLATE_DATA_DEPTH_MAX {
        return Ok(());
    }
    let detail = format!("values must nest at most {TEMPLATE_DATA_DEPTH_MAX} deep: got {depth}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

/// Converts JSON. Integers stay integers, floats stay floats, keys keep their order.
///
/// # Errors
/// `LimitExceeded` if it is nested deeper than `TEMPLATE_DATA_DEPTH_MAX`.
pub fn from_json(json: &Json) -> Result<Value> {
    from_json_at(json, 0)
}

fn from_json_at(json: &Json, depth: usize) -> Result<Value> {
    check_depth(depth)?;
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => from_number(number),
        json @ Json::Object(_) if kept_integer(json).is_some() => {
            integer::from_digits(kept_integer(json).unwrap_or_default()).map_err(|error| to_error(&error))?
        }
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json_at(item, depth + 1)).collect::<Result<_>>()?;
            Value::from_object(List::new(items)?)
        }
        Json::Object(map) => Value::from_object(Dict::new(entries_at(map, depth + 1)?)?),
    })
}

/// Returns the entries of a JSON object.
///
/// # Errors
/// `LimitExceeded` if a value is nested too deep.
pub fn entries(map: &Map<String, Json>) -> Result<Vec<(Value, Value)>> {
    entries_at(map, 1)
}

fn entries_at(map: &Map<String, Json>, depth: usize) -> Result<Vec<(Value, Value)>> {
    map.iter().map(|(key, value)| Ok((Value::from(key.as_str()), from_json_at(value, depth)?))).collect()
}

fn from_number(number: &Number) -> Value {
    if let Some(integer) = number.as_i64() {
        return Value::from(integer);
    }
    match number.as_u64() {
        Some(integer) => Value::from(integer),
        None => Value::from(number.as_f64().unwrap_or(f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> Json {
        (0..depth).fold(Json::Null, |inner, _| Json::Array(vec![inner]))
    }

    #[test]
    fn json_may_nest_up_to_its_limit() {
        assert!(from_json(&nested(TEMPLATE_DATA_DEPTH_MAX)).is_ok());
        let error = from_json(&nested(TEMPLATE_DATA_DEPTH_MAX + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn numbers_keep_what_they_are() {
        let json: Json =
            serde_json::from_str("[1.0, 1, -0.0, 18446744073709551615, -9223372036854775808, 1e2]").unwrap();
        let text = crate::print::to_str(&from_json(&json).unwrap()).unwrap();
        assert_eq!(text, "[1.0, 1, -0.0, 18446744073709551615, -9223372036854775808, 100.0]");
    }

    #[test]
    fn large_dictionaries_find_their_keys() {
        let json: Json = (0..40).map(|at| (format!("k{at}"), Json::from(at))).collect::<Map<_, _>>().into();
        let value = from_json(&json).unwrap();
        assert_eq!(value.get_attr("k39").unwrap().as_i64(), Some(39));
        assert!(value.get_attr("k40").unwrap().is_undefined());
    }
}
