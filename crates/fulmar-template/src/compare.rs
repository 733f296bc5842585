//! Comparison as in Python: equality, order and hashes of values, with a limit on depth and a cost for each
//! element.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use fulmar_core::ErrorKind;
use fulmar_core::limits::TEMPLATE_DATA_DEPTH_MAX;
use minijinja::Error;
use minijinja::value::{Value, ValueKind};

use crate::failure::{fail, type_error, undefined};
use crate::integer::Integer;
use crate::meter;
use crate::namespace::Namespace;
use crate::print::as_float;
use crate::value::{Dict, is_tuple};

/// A number by its representation.
enum Number<'a> {
    Int(i128),
    Large(&'a Integer),
    Float(f64),
}

/// Returns whether Python's `a == b` holds.
///
/// # Errors
/// `LimitExceeded` past the limit of depth or of steps.
pub fn equal(a: &Value, b: &Value) -> Result<bool, Error> {
    equal_within(a, b, 0)
}

fn equal_within(a: &Value, b: &Value, depth: usize) -> Result<bool, Error> {
    meter::touch(1)?;
    check_depth(depth)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        if a.len() == b.len() {
            meter::read(a.len())?;
        }
        return Ok(a == b);
    }
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return Ok(compare_numbers(&a, &b) == Some(Ordering::Equal));
    }
    match (a.kind(), b.kind()) {
        (ValueKind::Seq | ValueKind::Iterable, ValueKind::Seq | ValueKind::Iterable) => {
            if is_tuple(a) != is_tuple(b) || a.len() != b.len() {
                return Ok(false);
            }
            Ok(first_difference(a, b, depth)?.is_none())
        }
        (ValueKind::Map, ValueKind::Map) => equal_dicts(a, b, depth),
        (kind, other) if kind != other => Ok(false),
        // All other values are equal only to themselves.
        _ => Ok(a == b),
    }
}

fn equal_dicts(a: &Value, b: &Value, depth: usize) -> Result<bool, Error> {
    let (Some(a), Some(b)) = (a.downcast_object_ref::<Dict>(), b.downcast_object_ref::<Dict>()) else {
        // A constant of the template, or an object of the engine such as a macro: small and flat.
        return Ok(a == b);
    };
    if std::ptr::eq(a, b) {
        return Ok(true);
    }
    if a.entries().len() != b.entries().len() {
        return Ok(false);
    }
    for (key, value) in a.entries() {
        match b.find(key)? {
            Some(other) if equal_within(value, other, depth + 1)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The first differing pair of items, or the first item of the longer list.
type Difference = (Option<Value>, Option<Value>);

fn first_difference(a: &Value, b: &Value, depth: usize) -> Result<Option<Difference>, Error> {
    let (mut items, mut others) = (a.try_iter()?, b.try_iter()?);
    loop {
        match (items.next(), others.next()) {
            (None, None) => return Ok(None),
            (Some(item), Some(other)) if equal_within(&item, &other, depth + 1)? => {}
            difference => return Ok(Some(difference)),
        }
    }
}

/// Returns Python's order of two values for `operator`; `None` for a NaN.
///
/// # Errors
/// A type error for values without an order, an undefined error, `LimitExceeded` past the limit of depth or of steps.
pub fn order(operator: &str, a: &Value, b: &Value) -> Result<Option<Ordering>, Error> {
    order_within(operator, a, b, 0)
}

fn order_within(operator: &str, a: &Value, b: &Value, depth: usize) -> Result<Option<Ordering>, Error> {
    meter::touch(1)?;
    check_depth(depth)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        meter::read(a.len().min(b.len()))?;
        return Ok(Some(a.cmp(b)));
    }
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return Ok(compare_numbers(&a, &b));
    }
    if a.is_undefined() || b.is_undefined() {
        return Err(undefined(format!("a value must be defined for '{operator}', this one is undefined")));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(a) && is_list(b) && is_tuple(a) == is_tuple(b) {
        return match first_difference(a, b, depth)? {
            None => Ok(Some(Ordering::Equal)),
            Some((Some(a), Some(b))) => order_within(operator, &a, &b, depth + 1),
            Some((None, _)) => Ok(Some(Ordering::Less)),
            Some((_, None)) => Ok(Some(Ordering::Greater)),
        };
    }
    Err(type_error(format!(
        "'{operator}' not supported between instances of '{}' and '{}'",
        type_name(a),
        type_name(b)
    )))
}

/// Returns whether `a operator b` holds, for one of `<`, `<=`, `>` and `>=`.
///
/// # Errors
/// The errors of [`order`].
pub fn holds(operator: &str, a: &Value, b: &Value) -> Result<bool, Error> {
    let order = order(operator, a, b)?;
    Ok(match operator {
        "<" => order == Some(Ordering::Less),
        "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        ">" => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

/// Returns whether `item in container` holds.
///
/// # Errors
/// A type error for values that Python cannot search; `LimitExceeded` past a limit.
pub fn contains(container: &Value, item: &Value) -> Result<bool, Error> {
    if let Some(text) = container.as_str() {
        let Some(part) = item.as_str() else {
            let name = type_name(item);
            return Err(type_error(format!("'in <string>' requires string as left operand, not {name}")));
        };
        meter::read(text.len())?;
        return Ok(text.contains(part));
    }
    if let Some(dict) = container.downcast_object_ref::<Dict>() {
        hash(item)?;
        return Ok(dict.find(item)?.is_some());
    }
    match container.kind() {
        ValueKind::Undefined => Ok(false),
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            for candidate in container.try_iter()? {
                if equal(&candidate, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(type_error(format!("argument of type '{}' is not iterable", type_name(container)))),
    }
}

/// Sorts stably by `key`, like Python's `sorted`. `as_lists` compares as if each key were in a list, so that
/// equal keys need no order.
///
/// # Errors
/// The errors of [`order`].
pub fn sort<T>(
    mut items: Vec<T>,
    key: impl Fn(&T) -> &Value,
    reverse: bool,
    as_lists: bool,
) -> Result<Vec<T>, Error> {
    // Rust's own sort requires a total order that never fails.
    let precedes = |a: &T, b: &T| {
        let (low, high) = if reverse { (key(a), key(b)) } else { (key(b), key(a)) };
        Ok::<_, Error>(!(as_lists && equal(low, high)?) && holds("<", low, high)?)
    };
    let mut width = 1;
    while width < items.len() {
        let mut merged = Vec::with_capacity(items.len());
        let mut rest = items.into_iter();
        loop {
            let left: Vec<T> = rest.by_ref().take(width).collect();
            let right: Vec<T> = rest.by_ref().take(width).collect();
            if left.is_empty() {
                break;
            }
            let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                let next = if precedes(a, b)? { right.next() } else { left.next() };
                merged.extend(next);
            }
            merged.extend(left.chain(right));
        }
        items = merged;
        width *= 2;
    }
    Ok(items)
}

/// Returns a hash that equal values share.
///
/// # Errors
/// A type error for lists and dictionaries, `LimitExceeded` past a limit.
pub fn hash(value: &Value) -> Result<u64, Error> {
    thread_local!(static STATE: RandomState = RandomState::new());
    let mut hasher = STATE.with(BuildHasher::build_hasher);
    hash_within(value, &mut hasher, 0)?;
    Ok(hasher.finish())
}

fn hash_within(value: &Value, hasher: &mut impl Hasher, depth: usize) -> Result<(), Error> {
    meter::touch(1)?;
    check_depth(depth)?;
    if let Some(text) = value.as_str() {
        meter::read(text.len())?;
        text.hash(hasher);
        return Ok(());
    }
    match number(value) {
        Some(Number::Int(number)) => number.hash(hasher),
        Some(Number::Large(number)) => number.digits().hash(hasher),
        Some(Number::Float(number)) if number.fract() == 0.0 && number.abs() < 1e38 => {
            (number as i128).hash(hasher);
        }
        // Any other float may still equal an integer beyond 128 bits: the comparison decides.
        Some(Number::Float(number)) if number.fract() == 0.0 => format!("{number:.0}").hash(hasher),
        Some(Number::Float(number)) => number.to_bits().hash(hasher),
        None if is_tuple(value) => {
            for item in value.try_iter()? {
                hash_within(&item, hasher, depth + 1)?;
            }
        }
        None if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) => {
            return Err(type_error(format!("unhashable type: '{}'", type_name(value))));
        }
        None => type_name(value).hash(hasher),
    }
    Ok(())
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth <= TEMPLATE_DATA_DEPTH_MAX {
        return Ok(());
    }
    let detail = format!("values that are compared must nest at most {TEMPLATE_DATA_DEPTH_MAX} deep");
    Err(fail(ErrorKind::LimitExceeded, detail))
}

/// Returns the number of a value; truth values are numbers.
fn number(value: &Value) -> Option<Number<'_>> {
    match value.kind() {
        ValueKind::Bool => Some(Number::Int(i128::from(value.is_true()))),
        ValueKind::Number => match as_float(value) {
            Some(number) => Some(Number::Float(number)),
            None => {
                value.as_i64().map(i128::from).or_else(|| i128::try_from(value.clone()).ok()).map(Number::Int)
            }
        },
        ValueKind::Plain => value.downcast_object_ref::<Integer>().map(Number::Large),
        _ => None,
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(b)),
        (Number::Large(a), Number::Large(b)) => Some(a.cmp(b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(b),
        (Number::Large(a), Number::Int(_)) => {
            Some(if a.is_negative() { Ordering::Less } else { Ordering::Greater })
        }
        (Number::Large(a), Number::Float(b)) => a.compare_float(*b),
        (Number::Int(a), Number::Float(b)) => compare_int_with_float(*a, *b),
        (a, b) => compare_numbers(b, a).map(Ordering::reverse),
    }
}

/// Compares exactly: the nearest float of an integer may be another number.
fn compare_int_with_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let limit = 2_f64.powi(127);
    if float >= limit {
        return Some(Ordering::Less);
    }
    if float < -limit {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    Some(int.cmp(&(whole as i128)).then(0.0.partial_cmp(&(float - whole))?))
}

/// Returns Python's name of a value's type.
pub fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Seq | ValueKind::Iterable if is_tuple(value) => "tuple",
        ValueKind::Seq | ValueKind::Iterable => "list",
        ValueKind::Map => "dict",
        _ if value.downcast_object_ref::<Integer>().is_some() => "int",
        _ if value.downcast_object_ref::<Namespace>().is_some() => "Namespace",
        _ => "function",
    }
}

/// Answers the engine's own `==` for two objects of this crate, which cannot return an error.
pub fn answer(equality: Result<bool, Error>) -> Option<Ordering> {
    match equality {
        Ok(true) => Some(Ordering::Equal),
        Ok(false) => Some(Ordering::Less),
        Err(_) => {
            meter::end();
            Some(Ordering::Less)
        }
    }
}
