//! The engine, configured like jinja2 in transformers.

use std::collections::HashMap;
use std::sync::OnceLock;

use fulmar_core::ErrorKind;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Output, State};

use crate::clock::CivilTime;
use crate::compare;
use crate::failure::{fail, type_error};
use crate::filter;
use crate::global;
use crate::integer;
use crate::meter;
use crate::method;
use crate::namespace::{self, Namespace};
use crate::prepare::{
    ASSIGN, ITERATE, MAKE_DICT, MAKE_INTEGER, MAKE_LIST, MAKE_TUPLE, NO_LOADER, PAY, SPAN_CLOSE, SPAN_OPEN,
};
use crate::span::Marks;
use crate::test;

/// The name of the [`Settings`] of a rendering in the context. No template can write it.
pub const SETTINGS: &str = " settings";

/// The settings of a rendering besides its variables.
#[derive(Debug, Default)]
pub struct Settings {
    /// The time for `strftime_now`.
    pub now: Option<CivilTime>,
    /// The marks of spans; `None` if spans are not needed.
    pub marks: Option<Marks>,
}

impl Object for Settings {}

/// Returns the engine without a template. A clone is cheap.
pub fn environment() -> Environment<'static> {
    static PROTOTYPE: OnceLock<Environment<'static>> = OnceLock::new();
    PROTOTYPE.get_or_init(prototype).clone()
}

fn prototype() -> Environment<'static> {
    let mut environment = Environment::new();
    // The builder fails only for delimiters that are empty or equal, and these are the defaults.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(method::call);
    environment.set_formatter(write);
    filter::add_to(&mut environment);
    test::add_to(&mut environment);
    environment.remove_global("debug");
    environment.add_function("raise_exception", raise);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("dict", dict);
    environment.add_function("namespace", namespace);
    environment.add_function("cycler", global::cycler);
    environment.add_function("joiner", global::joiner);
    environment.add_function(ITERATE, iterate);
    environment.add_function("range", global::range);
    environment.add_function(MAKE_LIST, |value: &Value| method::list(value.try_iter()?.collect()));
    environment.add_function(MAKE_TUPLE, |value: &Value| method::tuple(value.try_iter()?.collect()));
    environment.add_function(MAKE_DICT, |value: &Value| dict_of(value));
    environment.add_function(MAKE_INTEGER, |digits: &str| integer::from_digits(digits));
    environment.add_function(ASSIGN, |target: &Value, name: &str, value: Value| {
        namespace::assign(target, name, value)
    });
    environment.add_function(PAY, |num_bytes: usize| meter::make(num_bytes).map(|()| false));
    environment.add_function(NO_LOADER, || {
        Err::<bool, _>(type_error(
            "no loader for this environment specified: a chat template cannot load others",
        ))
    });
    environment.add_global(SPAN_OPEN, Value::from_object(SpanEdge::Open));
    environment.add_global(SPAN_CLOSE, Value::from_object(SpanEdge::Close));
    environment
}

/// The output of a `generation` tag.
#[derive(Debug)]
enum SpanEdge {
    Open,
    Close,
}

impl Object for SpanEdge {}

/// Prints a value as Python's `str`, and an edge of a span as its mark.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        meter::make(text.len())?;
        return Ok(out.write_str(text)?);
    }
    let Some(edge) = value.downcast_object_ref::<SpanEdge>() else {
        return Ok(out.write_str(&filter::string(value)?)?);
    };
    let settings = state.lookup(SETTINGS).and_then(|settings| settings.downcast_object::<Settings>());
    let Some(marks) = settings.and_then(|settings| settings.marks) else { return Ok(()) };
    let mark = if matches!(edge, SpanEdge::Open) { marks.open } else { marks.close };
    Ok(out.write_str(mark.encode_utf8(&mut [0; 4]))?)
}

fn raise(message: &Value) -> Result<Value, Error> {
    Err(fail(ErrorKind::TemplateRaised, filter::string(message)?))
}

fn strftime_now(state: &State, format: &Value) -> Result<String, Error> {
    let Some(format) = format.as_str() else {
        return Err(type_error(format!("strftime_now needs a format: got {}", format.kind())));
    };
    let settings = state.lookup(SETTINGS).and_then(|settings| settings.downcast_object::<Settings>());
    match settings.and_then(|settings| settings.now) {
        Some(now) => Ok(now.strftime(format)),
        None => {
            Err(fail(ErrorKind::Incompatible, "now must be given for a template that calls strftime_now"))
        }
    }
}

/// Returns the values of `for x in a, b` as a list.
fn iterate(values: Rest<Value>) -> Result<Value, Error> {
    let value = match values.as_slice() {
        [value] => filter::iterate(value)?,
        _ => method::list(values.0)?,
    };
    if let Some(text) = value.as_str() {
        // The engine copies a text that it iterates.
        meter::make(text.len())?;
    }
    Ok(value)
}

/// Returns a namespace of the entries of a dictionary and of named values.
fn namespace(values: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let entries = entries_of(values.first(), named)?;
    let named = entries.into_iter().map(|(name, value)| match name.as_str() {
        Some(name) => Ok((name.to_owned(), value)),
        None => Err(type_error("names of a namespace must be text")),
    });
    Namespace::create(named.collect::<Result<Vec<_>, _>>()?)
}

fn dict(source: Option<&Value>, named: Kwargs) -> Result<Value, Error> {
    method::dict(entries_of(source, named)?)
}

fn entries_of(source: Option<&Value>, named: Kwargs) -> Result<Vec<(Value, Value)>, Error> {
    let mut entries = Entries::default();
    if let Some(source) = source {
        method::pay_for(source)?;
        for item in filter::iterate(source)?.try_iter()? {
            if source.kind() == ValueKind::Map {
                let value = source.get_item(&item)?;
                entries.insert(item, value)?;
                continue;
            }
            let pair: Vec<Value> = item.try_iter()?.take(3).collect();
            let [key, value] = pair.as_slice() else { return Err(type_error("dict needs pairs")) };
            entries.insert(key.clone(), value.clone())?;
        }
    }
    for name in named.args() {
        entries.insert(Value::from(name), named.get(name)?)?;
    }
    Ok(entries.entries)
}

/// Entries of a dictionary under construction: a repeated key replaces the first.
#[derive(Default)]
struct Entries {
    entries: Vec<(Value, Value)>,
    known: HashMap<u64, Vec<usize>>,
}

impl Entries {
    fn insert(&mut self, key: Value, value: Value) -> Result<(), Error> {
        let same = self.known.entry(compare::hash(&key)?).or_default();
        for at in same.iter() {
            let entry = &mut self.entries[*at];
            if compare::equal(&entry.0, &key)? {
                entry.1 = value;
                return Ok(());
            }
        }
        meter::make(4 * size_of::<Value>())?;
        same.push(self.entries.len());
        self.entries.push((key, value));
        Ok(())
    }
}

/// Makes a dictionary of alternating keys and values.
fn dict_of(parts: &Value) -> Result<Value, Error> {
    let mut entries = Entries::default();
    let mut parts = parts.try_iter()?;
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        entries.insert(key, value)?;
    }
    method::dict(entries.entries)
}
