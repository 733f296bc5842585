//! Tests that differ from the engine's own: they compare as Python does, and are metered.

use std::sync::Arc;

use minijinja::value::{Object, Value, ValueKind};
use minijinja::{Environment, Error};

use crate::compare::equal;
use crate::filter::{iterate, string};
use crate::integer::Integer;
use crate::method::pay_for;
use crate::namespace::Namespace;
use crate::operator::{relation, remainder};
use crate::value::{Dict, List};

/// Names of the tests that are operators.
const RELATIONS: [(&str, &str); 16] = [
    ("eq", "=="),
    ("equalto", "=="),
    ("==", "=="),
    ("ne", "!="),
    ("!=", "!="),
    ("lt", "<"),
    ("lessthan", "<"),
    ("<", "<"),
    ("le", "<="),
    ("<=", "<="),
    ("gt", ">"),
    ("greaterthan", ">"),
    (">", ">"),
    ("ge", ">="),
    (">=", ">="),
    ("in", "in"),
];

/// Puts every test of this file in `environment`.
pub fn add_to(environment: &mut Environment) {
    for name in ["int", "safe", "startingwith", "endingwith"] {
        // jinja2 does not have these.
        environment.remove_test(name);
    }
    for (name, operator) in RELATIONS {
        environment.add_test(name, move |a: &Value, b: &Value| relation(operator, a, b));
    }
    environment.add_test("callable", is_callable);
    environment.add_test("even", |value: &Value| divides(value, &Value::from(2), 0));
    environment.add_test("odd", |value: &Value| divides(value, &Value::from(2), 1));
    environment.add_test("divisibleby", |value: &Value, divisor: &Value| divides(value, divisor, 0));
    environment.add_test("integer", |value: &Value| value.is_integer() || is_large(value));
    environment.add_test("iterable", |value: &Value| iterate(value).is_ok());
    environment.add_test("lower", |value: &Value| is_cased(value, char::is_lowercase, char::is_uppercase));
    environment.add_test("number", |value: &Value| {
        value.is_number() || value.kind() == ValueKind::Bool || is_large(value)
    });
    environment.add_test("sameas", is_same);
    environment.add_test("sequence", is_sequence);
    environment.add_test("upper", |value: &Value| is_cased(value, char::is_uppercase, char::is_lowercase));
}

/// Returns whether `value % divisor` is `rest`.
fn divides(value: &Value, divisor: &Value, rest: i64) -> Result<bool, Error> {
    equal(&remainder(value, divisor)?, &Value::from(rest))
}

fn is_large(value: &Value) -> bool {
    value.downcast_object_ref::<Integer>().is_some()
}

/// Returns whether a value is a function, macro or method: an object of no other kind.
fn is_callable(value: &Value) -> bool {
    let is_opaque = is_large(value) || value.downcast_object_ref::<Namespace>().is_some();
    if value.kind() != ValueKind::Map {
        return value.kind() == ValueKind::Plain && !is_opaque;
    }
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Macro"))
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

/// Returns whether a text has letters of one case and none of the other.
fn is_cased(value: &Value, has: fn(char) -> bool, lacks: fn(char) -> bool) -> Result<bool, Error> {
    pay_for(value)?;
    let text = string(value)?;
    Ok(text.chars().any(has) && !text.chars().any(lacks))
}

/// Returns whether two values are one object.
fn is_same(a: &Value, b: &Value) -> bool {
    fn shared<T: Object + 'static>(a: &Value, b: &Value) -> Option<bool> {
        let (a, b) = (a.downcast_object::<T>()?, b.downcast_object::<T>()?);
        Some(Arc::ptr_eq(&a, &b))
    }
    let is_shared =
        shared::<List>(a, b).or_else(|| shared::<Dict>(a, b)).or_else(|| shared::<Namespace>(a, b));
    is_shared.unwrap_or_else(|| a.kind() == b.kind() && a.is_integer() == b.is_integer() && a == b)
}
