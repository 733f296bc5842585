//! The engine, set up as transformers sets up jinja2.

use std::sync::OnceLock;

use fulmar_core::ErrorKind;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Object, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, Output, State};

use crate::clock::CivilTime;
use crate::failure::{fail, forbidden, type_error};
use crate::filter;
use crate::global;
use crate::method;
use crate::prepare::{ITERATE, KEEP, MAKE_DICT, MAKE_LIST, SPAN_CLOSE, SPAN_OPEN, TO_TEXT};
use crate::print;
use crate::span::Marks;
use crate::work::{self, Work};

/// Under this name the context holds the [`Settings`] of a rendering. No template can write it.
pub const SETTINGS: &str = " settings";

/// Under this name the engine's own function `namespace` waits behind ours.
const ENGINE_NAMESPACE: &str = " namespace";

/// What a rendering is told beside its variables.
#[derive(Debug, Default)]
pub struct Settings {
    /// What `strftime_now` sees.
    pub now: Option<CivilTime>,
    /// What spans are marked with; none where nobody wants spans.
    pub marks: Option<Marks>,
    /// What it did so far.
    pub work: Work,
}

impl Object for Settings {}

/// The engine without a template. A clone is cheap.
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
    let engine_namespace = environment.globals().find(|(name, _)| *name == "namespace").map(|(_, make)| make);
    environment.add_global(ENGINE_NAMESPACE, engine_namespace.unwrap_or_default());
    environment.remove_global("debug");
    environment.add_function("raise_exception", raise);
    environment.add_function("strftime_now", strftime_now);
    environment.add_function("dict", dict);
    environment.add_function("namespace", namespace);
    environment.add_function("cycler", global::cycler);
    environment.add_function("joiner", global::joiner);
    environment.add_function(ITERATE, iterate);
    environment.add_function(TO_TEXT, to_text);
    environment.add_function(KEEP, method::keep);
    environment.add_function(MAKE_LIST, |value: &Value| method::list(value.try_iter()?.collect()));
    environment.add_function(MAKE_DICT, |value: &Value| dict_of(value));
    environment.add_global(SPAN_OPEN, Value::from_object(SpanEdge::Open));
    environment.add_global(SPAN_CLOSE, Value::from_object(SpanEdge::Close));
    environment
}

/// An operand of `~`.
fn to_text(state: &State, value: &Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return filter::string(value).map(Value::from) };
    work::join(state, text)?;
    Ok(value.clone())
}

/// What a `generation` tag prints.
#[derive(Debug)]
enum SpanEdge {
    Open,
    Close,
}

impl Object for SpanEdge {}

/// Prints a value as Python's `str`, and an edge of a span as its mark.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        work::print(state, text)?;
        return Ok(out.write_str(text)?);
    }
    let Some(edge) = value.downcast_object_ref::<SpanEdge>() else {
        return Ok(print::write_str(out, value)?);
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
        None => Err(fail(
            ErrorKind::Incompatible,
            "now must be given to a template that calls strftime_now: got none",
        )),
    }
}

/// A list of several values is what `for x in a, b` goes over.
fn iterate(values: Rest<Value>) -> Result<Value, Error> {
    match values.as_slice() {
        [value] => filter::iterate(value),
        _ => method::list(values.0),
    }
}

/// The engine's own namespace, which may hold no private names.
fn namespace(state: &mut State, values: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let values = dict(values.first(), named)?;
    let is_private = |name: &Value| name.as_str().is_some_and(|name| name.starts_with('_'));
    if let Some(name) = values.try_iter()?.find(is_private) {
        return Err(forbidden(format!("names of a namespace must not start with an underscore: got {name}")));
    }
    let make = state.env().globals().find(|(name, _)| *name == ENGINE_NAMESPACE).map(|(_, make)| make);
    make.unwrap_or_default().call(state, &[values])
}

fn dict(source: Option<&Value>, named: Kwargs) -> Result<Value, Error> {
    let mut entries: Vec<(Value, Value)> = Vec::new();
    if let Some(source) = source {
        for item in filter::iterate(source)?.try_iter()? {
            let (key, value) = if source.kind() == ValueKind::Map {
                (item.clone(), source.get_item(&item)?)
            } else {
                let pair: Vec<Value> = item.try_iter()?.take(3).collect();
                let [key, value] = pair.as_slice() else { return Err(type_error("dict needs pairs")) };
                (key.clone(), value.clone())
            };
            insert(&mut entries, key, value);
        }
    }
    for name in named.args() {
        insert(&mut entries, Value::from(name), named.get(name)?);
    }
    method::dict(entries)
}

fn insert(entries: &mut Vec<(Value, Value)>, key: Value, value: Value) {
    match entries.iter_mut().find(|(known, _)| *known == key) {
        Some(entry) => entry.1 = value,
        None => entries.push((key, value)),
    }
}

fn dict_of(map: &Value) -> Result<Value, Error> {
    let entries: Result<Vec<_>, Error> =
        map.try_iter()?.map(|key| Ok((key.clone(), map.get_item(&key)?))).collect();
    method::dict(entries?)
}
