//! The methods of Python's values that templates may call, and subscripts.

use std::sync::Arc;

use fulmar_core::ErrorKind;
use fulmar_core::limits::TEMPLATE_OUTPUT_BYTES_MAX;
use minijinja::value::{Object, ObjectRepr, Value, ValueKind};
use minijinja::{Error, State};

use crate::arguments::{Arguments, as_integer};
use crate::compare::{contains, equal, type_name};
use crate::failure::{fail, forbidden, type_error, undefined};
use crate::meter;
use crate::print::as_float;
use crate::value::{Dict, List, check_holdable, is_tuple};

pub mod text;

/// The names that `dict.name` resolves before keys.
pub const DICT_METHODS: [&str; 11] =
    ["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"];

/// Methods that would change a value, which the sandbox forbids.
const MUTATORS: [&str; 12] = [
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
    "discard",
];

/// The name of a subscript with a colon in the prepared source, see `prepare`.
pub const SLICE: &str = "__slice__";

/// The name of a subscript that may be a method in the prepared source, see `prepare`.
pub const ITEM: &str = "__item__";

/// The name of a used private attribute in the prepared source, see `prepare`.
pub const PRIVATE: &str = "__private__";

/// Calls `value.name(arguments)`.
///
/// # Errors
/// An undefined error if there is no such method; `Forbidden` if the sandbox forbids it; the errors of the
/// method.
pub fn call(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let _ = state;
    if name == ITEM {
        let [key] = arguments else { return Err(type_error("a subscript takes one key")) };
        return item(value, key);
    }
    meter::touch(1)?;
    pay_for(value)?;
    for text in arguments.iter().filter_map(Value::as_str) {
        meter::read(text.len())?;
    }
    if name == SLICE {
        return slice(value, arguments);
    }
    if name == PRIVATE {
        return Err(forbidden("attributes must be public: got one between double underscores"));
    }
    let found = match value.kind() {
        ValueKind::String => text::call(value.as_str().unwrap_or_default(), name, arguments)?,
        ValueKind::Map => dict_method(value, name, arguments)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, name, arguments)?,
        ValueKind::Number => number_method(value, name, arguments)?,
        ValueKind::Undefined => {
            return Err(undefined(format!("a value must be defined to have {name}: got undefined")));
        }
        _ => None,
    };
    match found {
        Some(answer) => Ok(answer),
        None if name.starts_with('_') => Err(forbidden(format!("{name} must be no private attribute"))),
        None if MUTATORS.contains(&name) && matches!(value.kind(), ValueKind::Map | ValueKind::Seq) => {
            Err(forbidden(format!("values must stay as they are: got a call of {name}")))
        }
        None => Err(Error::from(minijinja::ErrorKind::UnknownMethod)),
    }
}

/// Charges for a value that an operation visits once.
///
/// # Errors
/// `LimitExceeded` if no steps are left.
pub fn pay_for(value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => meter::read(text.len()),
        None => match value.kind() {
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => meter::touch(value.len().unwrap_or(0)),
            _ => Ok(()),
        },
    }
}

fn dict_method(dict: &Value, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    let pairs = || -> Result<Vec<(Value, Value)>, Error> {
        dict.try_iter()?.map(|key| Ok((key.clone(), dict.get_item(&key)?))).collect()
    };
    Ok(Some(match name {
        "get" => {
            let arguments = Arguments::new("get", arguments, &["key", "default"])?;
            let key = arguments.need("key")?;
            // Python hashes the key.
            contains(dict, &key)?;
            let found = own_item(dict, &key);
            found.or_else(|| arguments.get("default")).unwrap_or(Value::from(()))
        }
        "items" => {
            none_of(name, arguments)?;
            list(pairs()?.into_iter().map(|(key, value)| tuple(vec![key, value])).collect::<Result<_, _>>()?)?
        }
        "keys" => {
            none_of(name, arguments)?;
            list(dict.try_iter()?.collect())?
        }
        "values" => {
            none_of(name, arguments)?;
            list(pairs()?.into_iter().map(|(_, value)| value).collect())?
        }
        "copy" => {
            none_of(name, arguments)?;
            dict.clone()
        }
        _ => return Ok(None),
    }))
}

fn list_method(list: &Value, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "count" => {
            let arguments = Arguments::new("count", arguments, &["value"])?;
            let wanted = arguments.need("value")?;
            let mut count = 0;
            for item in list.try_iter()? {
                count += usize::from(equal(&item, &wanted)?);
            }
            Value::from(count)
        }
        "index" => {
            let arguments = Arguments::new("index", arguments, &["value"])?;
            let wanted = arguments.need("value")?;
            for (at, item) in list.try_iter()?.enumerate() {
                if equal(&item, &wanted)? {
                    return Ok(Some(Value::from(at)));
                }
            }
            return Err(fail(ErrorKind::OutOfRange, "index: the list must hold the value"));
        }
        "copy" => {
            none_of(name, arguments)?;
            list.clone()
        }
        _ => return Ok(None),
    }))
}

fn number_method(number: &Value, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if name != "is_integer" {
        return Ok(None);
    }
    none_of(name, arguments)?;
    Ok(Some(Value::from(f64::try_from(number.clone()).is_ok_and(|number| number.fract() == 0.0))))
}

fn none_of(name: &str, arguments: &[Value]) -> Result<(), Error> {
    Arguments::new(name, arguments, &[]).map(|_| ())
}

/// Size of a list item, and of a list itself, in bytes.
const ITEM_BYTES: usize = size_of::<Value>();
const CONTAINER_BYTES: usize = 64;

/// Returns a list value.
///
/// # Errors
/// `LimitExceeded` past a limit; a type error for values that a list cannot hold.
pub fn list(items: Vec<Value>) -> Result<Value, Error> {
    pay_for_items(items.len(), ITEM_BYTES)?;
    items.iter().try_for_each(check_holdable)?;
    Ok(Value::from_object(List::new(items).map_err(|error| fail(error.kind(), error.detail()))?))
}

/// Returns a tuple value.
///
/// # Errors
/// The errors of [`list`].
pub fn tuple(items: Vec<Value>) -> Result<Value, Error> {
    pay_for_items(items.len(), ITEM_BYTES)?;
    items.iter().try_for_each(check_holdable)?;
    Ok(Value::from_object(List::tuple(items).map_err(|error| fail(error.kind(), error.detail()))?))
}

fn pay_for_items(num_items: usize, item_bytes: usize) -> Result<(), Error> {
    meter::touch(num_items)?;
    meter::make(num_items.saturating_mul(item_bytes).saturating_add(CONTAINER_BYTES))
}

/// Returns a dictionary value.
///
/// # Errors
/// The errors of [`list`].
pub fn dict(entries: Vec<(Value, Value)>) -> Result<Value, Error> {
    pay_for_items(entries.len(), 4 * ITEM_BYTES)?;
    entries.iter().try_for_each(|(key, value)| check_holdable(key).and_then(|()| check_holdable(value)))?;
    Ok(Value::from_object(Dict::new(entries).map_err(|error| fail(error.kind(), error.detail()))?))
}

/// Returns the entry of a dictionary, ignoring methods.
fn own_item(dict: &Value, key: &Value) -> Option<Value> {
    dict.get_item(key).ok().filter(|value| !value.is_undefined())
}

/// Returns `value[key]`: the item, or else the attribute of that name.
///
/// # Errors
/// An undefined error for an undefined value; `LimitExceeded` past a limit.
pub fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    meter::touch(1)?;
    if value.is_undefined() {
        return Err(undefined("a value must be defined to have items: got undefined"));
    }
    if let (Some(text), Some(index)) = (value.as_str(), as_integer(key)) {
        return character(text, index);
    }
    if let Some(list) = value.downcast_object_ref::<List>() {
        let length = list.items().len() as i64;
        let index = as_integer(key).map(|index| if index < 0 { index + length } else { index });
        let index = index.and_then(|index| usize::try_from(index).ok());
        return Ok(index.and_then(|index| list.items().get(index)).cloned().unwrap_or_default());
    }
    let Some(dict) = value.downcast_object_ref::<Dict>() else {
        let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
        return if is_list && as_float(key).is_some() { Ok(Value::UNDEFINED) } else { value.get_item(key) };
    };
    let name = key.as_str().unwrap_or_default();
    let method = || DICT_METHODS.contains(&name).then(|| bound(value.clone(), name));
    Ok(dict.find(key)?.cloned().or_else(method).unwrap_or_default())
}

/// Returns `text[index]`.
fn character(text: &str, index: i64) -> Result<Value, Error> {
    let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
    meter::read(text.len().min(distance.saturating_mul(4)))?;
    let found = if index < 0 { text.chars().nth_back(distance - 1) } else { text.chars().nth(distance) };
    Ok(found.map(Value::from).unwrap_or_default())
}

/// Returns `value[start:stop:step]`.
fn slice(value: &Value, bounds: &[Value]) -> Result<Value, Error> {
    let [_, _, _] = bounds else { return Err(type_error("a slice takes three bounds")) };
    match value.kind() {
        ValueKind::Undefined => Err(undefined("a value must be defined to be sliced: got undefined")),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            meter::make(text.len())?;
            if let Some(part) = bytes_slice(text, bounds)? {
                return Ok(Value::from(part));
            }
            meter::make(text.len().saturating_mul(4))?;
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::from(positions(bounds, chars.len())?.map(|at| chars[at]).collect::<String>()))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let part: Vec<Value> = positions(bounds, items.len())?.map(|at| items[at].clone()).collect();
            if is_tuple(value) { tuple(part) } else { list(part) }
        }
        _ => Err(type_error(format!("'{}' object is not subscriptable", type_name(value)))),
    }
}

/// Returns a contiguous forward slice of ASCII text, which needs no list of characters.
fn bytes_slice(text: &str, bounds: &[Value]) -> Result<Option<String>, Error> {
    if !text.is_ascii() || bound_of(&bounds[2])?.is_some_and(|step| step != 1) {
        return Ok(None);
    }
    let range = positions(bounds, text.len())?;
    let (start, count) = (range.start, range.count);
    Ok(Some(if count == 0 { String::new() } else { text[start as usize..start as usize + count].to_owned() }))
}

/// Indices of a slice.
struct Positions {
    start: i64,
    step: i64,
    count: usize,
}

impl Positions {
    fn map<T>(self, mut at: impl FnMut(usize) -> T) -> impl Iterator<Item = T> {
        let Self { start, step, count } = self;
        (0..count as i64).map(move |nth| at((start + nth * step) as usize))
    }
}

/// Returns Python's `slice(start, stop, step).indices(length)`.
fn positions(bounds: &[Value], length: usize) -> Result<Positions, Error> {
    let length = length as i64;
    let step = bound_of(&bounds[2])?.unwrap_or(1);
    if step == 0 {
        return Err(fail(ErrorKind::OutOfRange, "a slice must have a step other than 0: got 0"));
    }
    let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp =
        |bound: i64| if bound < 0 { (bound.saturating_add(length)).max(low) } else { bound.min(high) };
    let start = bound_of(&bounds[0])?.map_or(if step > 0 { low } else { high }, clamp);
    let stop = bound_of(&bounds[1])?.map_or(if step > 0 { high } else { low }, clamp);
    let distance = if step > 0 { stop - start } else { start - stop };
    let stride = step.checked_abs().unwrap_or(i64::MAX);
    let count = if distance <= 0 { 0 } else { (distance - 1) / stride + 1 };
    Ok(Positions { start, step, count: count as usize })
}

fn bound_of(bound: &Value) -> Result<Option<i64>, Error> {
    if bound.is_none() {
        return Ok(None);
    }
    if bound.is_undefined() {
        return Err(undefined("bounds of a slice must be defined: got undefined"));
    }
    as_integer(bound)
        .map(Some)
        .ok_or_else(|| type_error(format!("bounds of a slice must be integers: got {}", bound.kind())))
}

/// Refuses text longer than a rendering may output.
pub fn check_length(bytes: Option<usize>) -> Result<(), Error> {
    match bytes {
        Some(bytes) if bytes <= TEMPLATE_OUTPUT_BYTES_MAX => Ok(()),
        _ => Err(fail(
            ErrorKind::LimitExceeded,
            format!("text must have at most {TEMPLATE_OUTPUT_BYTES_MAX} bytes"),
        )),
    }
}

/// Returns a method that is named but not called.
pub fn bound(receiver: Value, name: &str) -> Value {
    Value::from_object(Bound { receiver, name: name.to_owned() })
}

/// A method with its receiver.
#[derive(Debug)]
pub struct Bound {
    receiver: Value,
    name: String,
}

impl Bound {
    /// Returns the receiver of the method.
    pub fn receiver(&self) -> &Value {
        &self.receiver
    }
}

impl Object for Bound {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, arguments: &[Value]) -> Result<Value, Error> {
        call(state, &self.receiver, &self.name, arguments)
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {} of dict object>", self.name)
    }
}
