//! Filters and tests that differ from the engine's own, with Python's arguments and results.

use fulmar_core::ErrorKind;
use minijinja::functions::Function;
use minijinja::value::{FunctionArgs, FunctionResult, Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};

use crate::arguments::{Arguments, as_integer};
use crate::compare::type_name;
use crate::failure::{fail, type_error, undefined};
use crate::integer::{self, Integer};
use crate::json;
use crate::meter;
use crate::method::{self, item, pay_for, text};
use crate::operator;
use crate::prepare::SPLAT;
use crate::print;

mod sequence;
mod shape;

pub use sequence::Group;

/// Puts every filter in `environment`.
pub fn add_to(environment: &mut Environment) {
    for name in ["bool", "chain", "lines", "split", "zip"] {
        // jinja2 does not have these.
        environment.remove_filter(name);
    }
    add(environment, "tojson", json::tojson);
    add(environment, "string", |value: &Value| string(value));
    add(environment, "join", join);
    add(environment, "trim", trim);
    add(environment, "replace", replace);
    add(environment, "upper", |value: &Value| Ok::<_, Error>(string(value)?.to_uppercase()));
    add(environment, "lower", |value: &Value| Ok::<_, Error>(string(value)?.to_lowercase()));
    add(environment, "title", |value: &Value| Ok::<_, Error>(title(&string(value)?)));
    add(environment, "capitalize", |value: &Value| Ok::<_, Error>(text::capitalized(&string(value)?)));
    add(environment, "length", |value: &Value| length(value));
    add(environment, "count", |value: &Value| length(value));
    add(environment, "list", list);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    add(environment, "int", int);
    add(environment, "float", float);
    environment.add_filter(SPLAT, splat);
    sequence::add_to(environment);
    shape::add_to(environment);
    operator::add_to(environment);
}

/// Adds a filter that is charged for its arguments and for its output.
fn add<F, Rv, Args>(environment: &mut Environment, name: &'static str, filter: F)
where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let filter = Value::from_function(filter);
    environment.add_filter(name, move |state: &mut State, arguments: Rest<Value>, named: Kwargs| {
        let is_size = matches!(name, "length" | "count");
        let mut arguments = arguments.0;
        for argument in arguments.iter().filter(|argument| !is_size || argument.as_str().is_some()) {
            meter::touch(1)?;
            pay_for(argument)?;
        }
        if named.args().next().is_some() {
            for name in named.args() {
                pay_for(&named.get::<Value>(name)?)?;
            }
            arguments.push(Value::from(named));
        }
        let result = filter.call(state, &arguments)?;
        if let Some(text) = result.as_str() {
            method::check_length(Some(text.len()))?;
            meter::make(text.len())?;
        }
        Ok::<_, Error>(result)
    });
}

/// Returns arguments after `*` and `**`, charged.
fn splat(value: &Value) -> Result<Value, Error> {
    pay_for(value)?;
    meter::make(value.len().unwrap_or(0).saturating_mul(size_of::<Value>()))?;
    Ok(value.clone())
}

/// Returns `str(value)`.
///
/// # Errors
/// `LimitExceeded` for values that are nested too deep or are too long.
pub fn string(value: &Value) -> Result<String, Error> {
    print::to_str(value).map_err(|_| {
        fail(ErrorKind::LimitExceeded, "values must nest no deeper, and be no longer, than can be printed")
    })
}

/// Returns the values that a `for` loop iterates.
///
/// # Errors
/// A type error for values that Python cannot iterate.
pub fn iterate(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            Ok(value.clone())
        }
        kind => Err(type_error(format!("a loop must go over something iterable: got {kind}"))),
    }
}

fn default(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("default", &options, named, &["default_value", "boolean"])?;
    if !value.is_undefined() && (value.is_true() || !options.flag("boolean", false)) {
        return Ok(value.clone());
    }
    Ok(options.get("default_value").unwrap_or_else(|| Value::from("")))
}

fn join(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named("join", &options, named, &["d", "attribute"])?;
    let separator = options.get("d").map_or(Ok(String::new()), |separator| string(&separator))?;
    let attribute = options.get("attribute").filter(|attribute| !attribute.is_none());
    let mut joined = String::new();
    for (at, item) in iterate(value)?.try_iter()?.enumerate() {
        let separator = if at > 0 { separator.as_str() } else { "" };
        let item = match &attribute {
            Some(path) => attribute_of(&item, path)?,
            None => item,
        };
        let item = string(&item)?;
        method::check_length(Some(joined.len() + separator.len() + item.len()))?;
        meter::make(separator.len() + item.len())?;
        joined.push_str(separator);
        joined.push_str(&item);
    }
    Ok(joined)
}

/// Returns the attribute of a value at a dotted path.
fn attribute_of(value: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return item(value, path) };
    let mut found = value.clone();
    for name in path.split('.') {
        meter::touch(1)?;
        let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let index = name.parse::<i64>().ok().filter(|_| is_index);
        found = item(&found, &index.map_or_else(|| Value::from(name), Value::from))?;
    }
    Ok(found)
}

fn trim(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named("trim", &options, named, &["chars"])?;
    let chars = options.get("chars").filter(|chars| !chars.is_none());
    let text = string(value)?;
    Ok(text::strip(&text, chars.as_ref().and_then(Value::as_str), true, true).to_owned())
}

fn replace(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let options = Arguments::with_named("replace", &options, named, &["old", "new", "count"])?;
    let (old, new) = (string(&options.need("old")?)?, string(&options.need("new")?)?);
    let limit = usize::try_from(options.integer("count", -1)?).ok();
    text::replace(&string(value)?, &old, &new, limit)
}

/// Jinja's own title case: a word starts after a space, a hyphen or an opening bracket.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut starts_word = true;
    for c in text.chars() {
        if starts_word {
            titled.extend(c.to_uppercase());
        } else {
            titled.extend(c.to_lowercase());
        }
        starts_word = text::is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    }
    titled
}

fn length(value: &Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        ValueKind::Plain => Err(type_error(format!("object of type '{}' has no len()", type_name(value)))),
        _ => value
            .len()
            .ok_or_else(|| type_error(format!("length needs something with a length: got {}", value.kind()))),
    }
}

fn list(value: &Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => method::list(text.chars().map(Value::from).collect()),
        None => method::list(iterate(value)?.try_iter()?.collect()),
    }
}

fn int(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("int", &options, named, &["default", "base"])?;
    let base = u32::try_from(options.integer("base", 10)?).unwrap_or(0);
    if base != 10 && !(2..=36).contains(&base) {
        return Err(fail(ErrorKind::OutOfRange, format!("int: base must be from 2 to 36: got {base}")));
    }
    let found = match value.kind() {
        ValueKind::Undefined => return Err(undefined("int needs a value: got undefined")),
        ValueKind::String => int_of_text(value.as_str().unwrap_or_default(), base)?,
        ValueKind::Number if print::as_float(value).is_none() => Some(value.clone()),
        _ if value.downcast_object_ref::<Integer>().is_some() => Some(value.clone()),
        _ if print::as_float(value).is_some() => print::as_float(value).map_or(Ok(None), truncated)?,
        _ => as_integer(value).map(Value::from),
    };
    Ok(found.or_else(|| options.get("default")).unwrap_or(Value::from(0)))
}

fn int_of_text(text: &str, base: u32) -> Result<Option<Value>, Error> {
    let trimmed = text::strip(text, None, true, true);
    let lower = trimmed.to_ascii_lowercase();
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let (sign, unsigned) = match lower.strip_prefix(['-', '+']) {
        Some(unsigned) => lower.split_at(lower.len() - unsigned.len()),
        None => ("", lower.as_str()),
    };
    let unsigned = unsigned.strip_prefix(prefix).unwrap_or(unsigned);
    // Python allows underscores only between digits.
    let is_grouped = !unsigned.starts_with('_') && !unsigned.ends_with('_') && !unsigned.contains("__");
    let digits = format!("{sign}{}", unsigned.replace('_', ""));
    if is_grouped {
        if let Ok(integer) = i128::from_str_radix(&digits, base) {
            return Ok(Some(integer::small_integer(integer)));
        }
        let is_decimal = base == 10 && digits.len() > sign.len();
        if is_decimal && digits[sign.len()..].bytes().all(|byte| byte.is_ascii_digit()) {
            return integer::from_digits(&digits).map(Some);
        }
        let is_of_base = |c: char| c.is_digit(base);
        if digits.len() > sign.len() && digits[sign.len()..].chars().all(is_of_base) {
            let detail = format!("int: an integer of base {base} must have at most 128 bits");
            return Err(fail(ErrorKind::OutOfRange, detail));
        }
    }
    float_of_text(trimmed).filter(|number| number.is_finite()).map_or(Ok(None), truncated)
}

/// Returns the whole part of a float; `None` for NaN and infinities.
fn truncated(number: f64) -> Result<Option<Value>, Error> {
    if number.is_infinite() {
        return Err(fail(ErrorKind::OutOfRange, "cannot convert float infinity to integer"));
    }
    if number.is_nan() {
        return Ok(None);
    }
    // A float of this size has no fraction, and prints all its digits.
    let digits = format!("{:.0}", number.trunc());
    integer::from_digits(&digits).map(Some)
}

fn float(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("float", &options, named, &["default"])?;
    let found = match value.kind() {
        ValueKind::Undefined => return Err(undefined("float needs a value: got undefined")),
        ValueKind::String => float_of_text(value.as_str().unwrap_or_default()),
        _ => print::as_float(value).or_else(|| as_integer(value).map(|number| number as f64)),
    };
    Ok(found.map(Value::from).or_else(|| options.get("default")).unwrap_or(Value::from(0.0)))
}

fn float_of_text(text: &str) -> Option<f64> {
    let text = text::strip(text, None, true, true).replace('_', "");
    text.parse().ok()
}
