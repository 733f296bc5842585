//! Python's operators, as filters by which `prepare` replaces the engine's own.

use fulmar_core::ErrorKind;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};

use crate::compare::{self, type_name};
use crate::failure::{fail, type_error, undefined};
use crate::filter::string;
use crate::integer::{Integer, small_integer};
use crate::meter;
use crate::method::{check_length, list, tuple};
use crate::print::as_float;
use crate::printf;
use crate::value::is_tuple;

/// `-value`.
pub const NEGATIVE: &str = "__neg__";
/// `+value`.
pub const POSITIVE: &str = "__pos__";
/// `a ~ b ~ c`.
pub const CONCAT: &str = "__concat__";
/// `a < b <= c`.
pub const CHAIN: &str = "__chain__";

const FILTERS: [(&str, &str); 15] = [
    ("+", "__add__"),
    ("-", "__sub__"),
    ("*", "__mul__"),
    ("/", "__truediv__"),
    ("//", "__floordiv__"),
    ("%", "__mod__"),
    ("**", "__pow__"),
    ("==", "__eq__"),
    ("!=", "__ne__"),
    ("<", "__lt__"),
    ("<=", "__le__"),
    (">", "__gt__"),
    (">=", "__ge__"),
    ("in", "__in__"),
    ("not in", "__not_in__"),
];

/// Returns the filter of an operator.
pub fn filter_of(operator: &str) -> &'static str {
    FILTERS.iter().find(|(name, _)| *name == operator).map_or("", |(_, filter)| filter)
}

/// Puts every operator in `environment`.
pub fn add_to(environment: &mut Environment) {
    environment.add_filter("__add__", add);
    environment.add_filter("__sub__", |a: &Value, b: &Value| calculate("-", a, b));
    environment.add_filter("__mul__", multiply);
    environment.add_filter("__truediv__", |a: &Value, b: &Value| calculate("/", a, b));
    environment.add_filter("__floordiv__", |a: &Value, b: &Value| calculate("//", a, b));
    environment.add_filter("__mod__", remainder);
    environment.add_filter("__pow__", |a: &Value, b: &Value| calculate("**", a, b));
    for (name, filter) in &FILTERS[7..] {
        environment.add_filter(*filter, |a: &Value, b: &Value| relation(name, a, b));
    }
    environment.add_filter(CHAIN, chain);
    environment.add_filter(CONCAT, concat);
    environment.add_filter(NEGATIVE, |value: &Value| match value.downcast_object_ref::<Integer>() {
        Some(large) => negated(large),
        None => signed("-", value),
    });
    environment.add_filter(POSITIVE, |value: &Value| match value.downcast_object_ref::<Integer>() {
        Some(_) => Ok(value.clone()),
        None => signed("+", value),
    });
}

/// Returns whether `a operator b` holds.
///
/// # Errors
/// The errors of [`compare::order`] and [`compare::contains`].
pub fn relation(operator: &str, a: &Value, b: &Value) -> Result<bool, Error> {
    match operator {
        "==" => compare::equal(a, b),
        "!=" => Ok(!compare::equal(a, b)?),
        "in" => compare::contains(b, a),
        "not in" => Ok(!compare::contains(b, a)?),
        _ => compare::holds(operator, a, b),
    }
}

/// Evaluates a chain of alternating operators and right operands.
fn chain(first: &Value, others: Rest<Value>) -> Result<bool, Error> {
    let mut left = first;
    for pair in others.chunks_exact(2) {
        if !relation(pair[0].as_str().unwrap_or_default(), left, &pair[1])? {
            return Ok(false);
        }
        left = &pair[1];
    }
    Ok(true)
}

fn concat(_state: &State, first: &Value, others: Rest<Value>) -> Result<String, Error> {
    let mut text = String::new();
    for operand in std::iter::once(first).chain(others.iter()) {
        let printed;
        let more = match operand.as_str() {
            Some(more) => more,
            None => {
                printed = string(operand)?;
                &printed
            }
        };
        check_length(text.len().checked_add(more.len()))?;
        meter::make(more.len())?;
        text.push_str(more);
    }
    Ok(text)
}

/// Returns `a + b`.
///
/// # Errors
/// A type error for operands that Python cannot add; `LimitExceeded` past a limit.
pub fn add(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        check_length(a.len().checked_add(b.len()))?;
        meter::make(a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    if is_list(a) && is_list(b) && is_tuple(a) == is_tuple(b) {
        let num_items = a.len().unwrap_or(0) + b.len().unwrap_or(0);
        meter::touch(num_items)?;
        check_items(num_items)?;
        let items: Vec<Value> = a.try_iter()?.chain(b.try_iter()?).collect();
        return if is_tuple(a) { tuple(items) } else { list(items) };
    }
    calculate("+", a, b)
}

fn multiply(a: &Value, b: &Value) -> Result<Value, Error> {
    let is_sequence = |value: &Value| value.kind() == ValueKind::String || is_list(value);
    let (sequence, times) = if is_sequence(a) { (a, b) } else { (b, a) };
    if !is_sequence(sequence) || number(times).is_none() || as_float(times).is_some() {
        return calculate("*", a, b);
    }
    let times = match number(times) {
        Some(Number::Int(times)) => usize::try_from(times.max(0)).unwrap_or(usize::MAX),
        _ => 0,
    };
    if let Some(text) = sequence.as_str() {
        let num_bytes = text.len().checked_mul(times);
        check_length(num_bytes)?;
        meter::make(num_bytes.unwrap_or(usize::MAX))?;
        return Ok(Value::from(if text.is_empty() { String::new() } else { text.repeat(times) }));
    }
    let items: Vec<Value> = sequence.try_iter()?.collect();
    let num_items = items.len().saturating_mul(times);
    check_items(num_items)?;
    meter::touch(num_items)?;
    // An empty list stays empty, however often it is repeated.
    let times = if items.is_empty() { 0 } else { times };
    let repeated = std::iter::repeat_n(items, times).flatten().collect();
    if is_tuple(sequence) { tuple(repeated) } else { list(repeated) }
}

fn check_items(num_items: usize) -> Result<(), Error> {
    use fulmar_core::limits::TEMPLATE_LIST_ITEMS_MAX;
    if num_items <= TEMPLATE_LIST_ITEMS_MAX {
        return Ok(());
    }
    let detail =
        format!("a list must have at most {TEMPLATE_LIST_ITEMS_MAX} items, this one has {num_items}");
    Err(fail(ErrorKind::LimitExceeded, detail))
}

#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn as_f64(self) -> f64 {
        match self {
            Self::Int(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

fn number(value: &Value) -> Option<Number> {
    match value.kind() {
        ValueKind::Bool => Some(Number::Int(i128::from(value.is_true()))),
        ValueKind::Number => match as_float(value) {
            Some(number) => Some(Number::Float(number)),
            None => i128::try_from(value.clone()).ok().map(Number::Int),
        },
        _ => None,
    }
}

/// Returns [`number`], or the float of a large integer if the other operand is a float.
fn number_near(value: &Value, other: &Value) -> Option<Number> {
    let large = || {
        as_float(other)?;
        value.downcast_object_ref::<Integer>()?.as_float().map(Number::Float)
    };
    number(value).or_else(large)
}

/// Returns `a % b`.
///
/// # Errors
/// A type error for operands that Python cannot divide; `OutOfRange` for a division by zero.
pub fn remainder(a: &Value, b: &Value) -> Result<Value, Error> {
    match a.as_str() {
        Some(format) => printf::percent(format, b).map(Value::from),
        None => calculate("%", a, b),
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Returns the result of an operator on two numbers.
fn calculate(operator: &str, a: &Value, b: &Value) -> Result<Value, Error> {
    let (Some(left), Some(right)) = (number_near(a, b), number_near(b, a)) else {
        return Err(misfit(operator, a, b));
    };
    let answer = match (left, right) {
        (Number::Int(left), Number::Int(right)) => match operator {
            "/" if right == 0 => return Err(division_by_zero(a, operator)),
            "/" => return Ok(Value::from(left as f64 / right as f64)),
            "**" if right < 0 => return power(left as f64, right as f64),
            _ => integers(operator, left, right).ok_or_else(|| division_or_size(operator, a, right))?,
        },
        (left, right) => return floats(operator, a, left.as_f64(), right.as_f64()),
    };
    Ok(small_integer(answer))
}

fn integers(operator: &str, a: i128, b: i128) -> Option<i128> {
    match operator {
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        // Python rounds down, and a remainder has the sign of the divisor.
        "//" => Some(a.checked_div(b)? - i128::from(a % b != 0 && (a < 0) != (b < 0))),
        "%" => {
            let remainder = a.checked_rem(b)?;
            Some(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
        }
        _ => match a {
            0 | 1 => Some(if b == 0 { 1 } else { a }),
            -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            _ => a.checked_pow(u32::try_from(b).ok()?),
        },
    }
}

fn floats(operator: &str, shown: &Value, a: f64, b: f64) -> Result<Value, Error> {
    if b == 0.0 && matches!(operator, "/" | "//" | "%") {
        return Err(division_by_zero(shown, operator));
    }
    Ok(Value::from(match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => floor_division(a, b).0,
        "%" => floor_division(a, b).1,
        _ => return power(a, b),
    }))
}

/// Returns quotient and remainder as CPython computes them.
fn floor_division(a: f64, b: f64) -> (f64, f64) {
    let mut remainder = a % b;
    let mut quotient = (a - remainder) / b;
    if remainder == 0.0 {
        remainder = 0.0_f64.copysign(b);
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder += b;
        quotient -= 1.0;
    }
    let floor = quotient.floor();
    let quotient = match quotient {
        0.0 => 0.0_f64.copysign(a / b),
        quotient if quotient - floor > 0.5 => floor + 1.0,
        _ => floor,
    };
    (quotient, remainder)
}

fn power(a: f64, b: f64) -> Result<Value, Error> {
    let refuse = |rule: &str| Err(fail(ErrorKind::OutOfRange, format!("{a} ** {b} must {rule}")));
    if a == 0.0 && b < 0.0 {
        return refuse("not raise 0 to a negative power");
    }
    if a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0 {
        return refuse("have a real result");
    }
    let result = a.powf(b);
    if result.is_infinite() && a.is_finite() && b.is_finite() {
        return refuse("fit into a float");
    }
    Ok(Value::from(result))
}

fn signed(operator: &str, value: &Value) -> Result<Value, Error> {
    match number(value) {
        Some(Number::Float(number)) => Ok(Value::from(if operator == "-" { -number } else { number })),
        Some(Number::Int(number)) => {
            let negated = if operator == "-" { number.checked_neg() } else { Some(number) };
            negated.map(small_integer).ok_or_else(|| too_large(operator))
        }
        None if value.is_undefined() => Err(undefined_operand(operator)),
        None => Err(type_error(format!("bad operand type for unary {operator}: '{}'", type_name(value)))),
    }
}

fn negated(large: &Integer) -> Result<Value, Error> {
    match large.digits().strip_prefix('-') {
        Some(digits) => crate::integer::from_digits(digits),
        None => crate::integer::from_digits(&format!("-{}", large.digits())),
    }
}

fn misfit(operator: &str, a: &Value, b: &Value) -> Error {
    if a.is_undefined() || b.is_undefined() {
        return undefined_operand(operator);
    }
    let is_integer = |value: &Value| value.downcast_object_ref::<Integer>().is_some();
    if (is_integer(a) || number(a).is_some()) && (is_integer(b) || number(b).is_some()) {
        return too_large(operator);
    }
    let (left, right) = (type_name(a), type_name(b));
    if operator == "+" && matches!(left, "str" | "list" | "tuple") {
        return type_error(format!("can only concatenate {left} (not \"{right}\") to {left}"));
    }
    if operator == "*"
        && (matches!(left, "str" | "list" | "tuple") || matches!(right, "str" | "list" | "tuple"))
    {
        let other = if matches!(left, "str" | "list" | "tuple") { right } else { left };
        return type_error(format!("can't multiply sequence by non-int of type '{other}'"));
    }
    let shown = if operator == "**" { "** or pow()" } else { operator };
    type_error(format!("unsupported operand type(s) for {shown}: '{left}' and '{right}'"))
}

fn undefined_operand(operator: &str) -> Error {
    undefined(format!("an operand of '{operator}' must be defined, this one is undefined"))
}

fn division_or_size(operator: &str, a: &Value, divisor: i128) -> Error {
    if divisor == 0 { division_by_zero(a, operator) } else { too_large(operator) }
}

fn division_by_zero(a: &Value, operator: &str) -> Error {
    fail(ErrorKind::OutOfRange, format!("unable to calculate {a} {operator} 0: division by zero"))
}

fn too_large(operator: &str) -> Error {
    let detail =
        format!("'{operator}' calculates with integers of at most 128 bits, this result or operand has more");
    fail(ErrorKind::OutOfRange, detail)
}
