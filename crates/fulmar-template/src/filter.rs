//! Filters and tests that differ from the engine's own: they take and give what Python's do.

use fulmar_core::ErrorKind;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error};

use crate::arguments::{Arguments, as_integer};
use crate::failure::{fail, type_error, undefined};
use crate::json;
use crate::method::{self, text};
use crate::print;

mod shape;

/// Puts every filter and test of this file in `environment`.
pub fn add_to(environment: &mut Environment) {
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", |value: &Value| string(value));
    environment.add_filter("join", join);
    environment.add_filter("trim", trim);
    environment.add_filter("replace", replace);
    environment.add_filter("upper", |value: &Value| Ok::<_, Error>(string(value)?.to_uppercase()));
    environment.add_filter("lower", |value: &Value| Ok::<_, Error>(string(value)?.to_lowercase()));
    environment.add_filter("title", |value: &Value| Ok::<_, Error>(title(&string(value)?)));
    environment.add_filter("capitalize", |value: &Value| Ok::<_, Error>(text::capitalized(&string(value)?)));
    environment.add_filter("length", |value: &Value| length(value));
    environment.add_filter("count", |value: &Value| length(value));
    environment.add_filter("list", list);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("int", int);
    shape::add_to(environment);
    environment.add_filter("float", float);
    environment.add_test("callable", is_callable);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
}

/// `str(value)`.
///
/// # Errors
/// `LimitExceeded` for values that nest too deep or are too long.
pub fn string(value: &Value) -> Result<String, Error> {
    print::to_str(value).map_err(|_| {
        fail(ErrorKind::LimitExceeded, "values must nest no deeper, and be no longer, than can be printed")
    })
}

/// What a `for` loop goes over.
///
/// # Errors
/// A type error for what Python cannot iterate.
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
        if at > 0 {
            joined.push_str(&separator);
        }
        let item = match &attribute {
            Some(path) => attribute_of(&item, path)?,
            None => item,
        };
        joined.push_str(&string(&item)?);
        method::check_length(Some(joined.len()))?;
    }
    Ok(joined)
}

/// The attribute of a value at a dotted path.
fn attribute_of(value: &Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return value.get_item(path) };
    let mut found = value.clone();
    for name in path.split('.') {
        found = match name.parse::<i64>() {
            Ok(index) => found.get_item(&Value::from(index))?,
            Err(_) => found.get_item(&Value::from(name))?,
        };
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
        ValueKind::String => int_of_text(value.as_str().unwrap_or_default(), base),
        _ if print::as_float(value).is_some() => print::as_float(value).and_then(truncated),
        _ => as_integer(value).map(Value::from),
    };
    Ok(found.or_else(|| options.get("default")).unwrap_or(Value::from(0)))
}

fn int_of_text(text: &str, base: u32) -> Option<Value> {
    let trimmed = text::strip(text, None, true, true);
    let lower = trimmed.to_ascii_lowercase();
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let digits = lower.strip_prefix(prefix).unwrap_or(&lower).replace('_', "");
    let integer = i128::from_str_radix(&digits, base).ok().map(Value::from);
    integer.or_else(|| float_of_text(trimmed).and_then(truncated))
}

fn truncated(number: f64) -> Option<Value> {
    let whole = number.trunc();
    (whole.abs() < 1e38).then(|| Value::from(whole as i128))
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

/// Functions, macros and methods: what is an object of no other kind.
fn is_callable(value: &Value) -> bool {
    let is_macro = value.get_attr("arguments").is_ok_and(|arguments| !arguments.is_undefined());
    value.kind() == ValueKind::Plain
        || (value.kind() == ValueKind::Map && is_macro && value.to_string().starts_with("<macro"))
}

fn is_iterable(value: &Value) -> bool {
    iterate(value).is_ok()
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}
