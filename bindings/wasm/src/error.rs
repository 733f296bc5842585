//! Errors of Rust as JavaScript errors with a `code`, the parts of their sentence and a `cause`.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;

use fulmar::core::Error;
use js_sys::Reflect;
use send_wrapper::SendWrapper;
use wasm_bindgen::prelude::*;

/// The result of an exported function.
pub type Result<T> = std::result::Result<T, JsValue>;

/// Most errors of a chain of causes that JavaScript receives.
const CAUSES_MAX: usize = 8;

thread_local! {
    static PANIC_TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// Runs the body of an exported function; its error becomes a JavaScript error with a code.
pub fn guard<T>(body: impl FnOnce() -> fulmar::core::Result<T>) -> Result<T> {
    body().map_err(|error| coded(&error))
}

/// Text and place of the last panic; the module cannot unwind, so the error itself is only a trap.
#[wasm_bindgen(js_name = lastPanic)]
pub fn last_panic() -> String {
    PANIC_TEXT.take()
}

/// Keeps the text of a panic for [`last_panic`].
#[wasm_bindgen(start)]
fn record_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!(" ({place})")).unwrap_or_default();
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without text");
        PANIC_TEXT.set(format!("{text}{place}"));
    }));
}

/// A value that a function of JavaScript threw, as a source of [`Error`].
#[derive(Debug)]
pub struct Thrown(SendWrapper<JsValue>);

impl Thrown {
    pub fn new(value: JsValue) -> Self {
        Self(SendWrapper::new(value))
    }
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a function of JavaScript threw")
    }
}

impl StdError for Thrown {}

fn coded(error: &Error) -> JsValue {
    of_error(error, CAUSES_MAX)
}

fn of_error(error: &Error, causes: usize) -> JsValue {
    let object = js_sys::Error::new(error.detail());
    let parts = [
        ("code", Some(error.kind().code())),
        ("argument", error.argument()),
        ("rule", error.rule()),
        ("value", error.value()),
    ];
    for (name, part) in parts.into_iter().filter_map(|(name, part)| Some((name, part?))) {
        // Fails only for a frozen object, and this one is new.
        let _ = Reflect::set(&object, &name.into(), &part.into());
    }
    with_cause(object, error, causes)
}

/// Returns what JavaScript threw as it is; another source as an error with its sentence.
fn of_source(source: &(dyn StdError + 'static), causes: usize) -> JsValue {
    if let Some(Thrown(value)) = source.downcast_ref() {
        return JsValue::clone(value);
    }
    match source.downcast_ref::<Error>() {
        Some(error) => of_error(error, causes),
        None => with_cause(js_sys::Error::new(&source.to_string()), source, causes),
    }
}

fn with_cause(object: js_sys::Error, error: &dyn StdError, causes: usize) -> JsValue {
    if let Some(source) = error.source().filter(|_| causes > 0) {
        object.set_cause(&of_source(source, causes - 1));
    }
    object.into()
}
