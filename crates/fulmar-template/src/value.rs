//! Lists and dictionaries as templates see them, and their making from JSON.

use std::collections::HashMap;
use std::sync::Arc;

use fulmar_core::limits::TEMPLATE_DATA_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use minijinja::State;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind};
use serde_json::{Map, Number, Value as Json};

use crate::method::{self, DICT_METHODS};

/// Below this many keys a search from front to back is faster than hashing.
const INDEXED_LENGTH_MIN: usize = 16;

/// A Python dictionary: keys in their order, methods before keys where Jinja writes a dot.
#[derive(Debug)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<String, usize>,
    depth: usize,
}

impl Dict {
    /// A dictionary of `entries`, whose keys differ.
    ///
    /// # Errors
    /// `LimitExceeded` if that nests deeper than `TEMPLATE_DATA_DEPTH_MAX`.
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

    /// The value of a text key.
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
        match key.as_str() {
            Some(key) => self.get(key).cloned(),
            None => self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone()),
        }
    }

    /// What `dict.name` is: jinja2 looks for a method first.
    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        if DICT_METHODS.contains(&name) {
            return Some(method::bound(Value::from_dyn_object(Arc::clone(self)), name));
        }
        self.get(name).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys: Vec<Value> = self.entries.iter().map(|(key, _)| key.clone()).collect();
        Enumerator::Values(keys)
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

/// A Python list.
#[derive(Debug)]
pub struct List {
    items: Vec<Value>,
    depth: usize,
}

impl List {
    /// A list of `items`.
    ///
    /// # Errors
    /// `LimitExceeded` if that nests deeper than `TEMPLATE_DATA_DEPTH_MAX`.
    pub fn new(items: Vec<Value>) -> Result<Self> {
        let depth = 1 + items.iter().map(depth_of).max().unwrap_or(0);
        check_depth(depth)?;
        Ok(Self { items, depth })
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

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        name: &str,
        arguments: &[Value],
    ) -> std::result::Result<Value, minijinja::Error> {
        method::call(state, &Value::from_dyn_object(Arc::clone(self)), name, arguments)
    }
}

/// How many containers lie around the innermost value: 0 for what is no container.
pub fn depth_of(value: &Value) -> usize {
    depth_within(value, 0)
}

/// [`depth_of`], which stops once it is past the limit.
fn depth_within(value: &Value, above: usize) -> usize {
    if let Some(list) = value.downcast_object_ref::<List>() {
        return list.depth;
    }
    if let Some(dict) = value.downcast_object_ref::<Dict>() {
        return dict.depth;
    }
    if above > TEMPLATE_DATA_DEPTH_MAX
        || !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map)
    {
        return 0;
    }
    let Ok(items) = value.try_iter() else { return 0 };
    let below = |item: Value| {
        let inner =
            if value.kind() == ValueKind::Map { value.get_item(&item).unwrap_or_default() } else { item };
        depth_within(&inner, above + 1)
    };
    1 + items.map(below).max().unwrap_or(0)
}

fn check_depth(depth: usize) -> Result<()> {
    if depth <= TEMPLATE_DATA_DEPTH_MAX {
        return Ok(());
    }
    let detail = format!("values must nest at most {TEMPLATE_DATA_DEPTH_MAX} deep: got {depth}");
    Err(Error::new(ErrorKind::LimitExceeded, detail))
}

/// The value of JSON. Integers stay integers, floats stay floats, keys keep their order.
///
/// # Errors
/// `LimitExceeded` if it nests deeper than `TEMPLATE_DATA_DEPTH_MAX`.
pub fn from_json(json: &Json) -> Result<Value> {
    from_json_at(json, 0)
}

fn from_json_at(json: &Json, depth: usize) -> Result<Value> {
    check_depth(depth)?;
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => from_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => {
            let items = items.iter().map(|item| from_json_at(item, depth + 1)).collect::<Result<_>>()?;
            Value::from_object(List::new(items)?)
        }
        Json::Object(map) => Value::from_object(Dict::new(entries_at(map, depth + 1)?)?),
    })
}

/// The entries of a JSON object.
///
/// # Errors
/// `LimitExceeded` if a value nests too deep.
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
