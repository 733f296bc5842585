//! Errors and panics of Rust as JavaScript errors with a `code`, the parts of their sentence and a `cause`.

use std::cell::Cell;
use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulmar::core::{Error, ErrorKind};
use napi::bindgen_prelude::{JsObjectValue, Unknown};
use napi::{Env, JsError, JsValue};

/// The result of an exported synchronous function; napi's macro requires this name.
pub type Result<T> = napi::Result<T>;

/// Most errors of a chain of causes that JavaScript receives.
const CAUSES_MAX: usize = 8;

thread_local! {
    static PANIC_PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs the body of an exported function; its error or panic becomes a JavaScript error with a code.
pub fn guard<T>(body: impl FnOnce() -> fulmar::core::Result<T>) -> Result<T> {
    let answer = catch(body).map_err(|error| match crate::memory::env() {
        Some(env) => coded(&env, &error),
        None => napi::Error::from_reason(error.detail()),
    });
    crate::memory::report();
    answer
}

/// Runs `body`; a panic becomes an error of kind [`ErrorKind::Panic`] with the place of the panic.
pub fn catch<T>(body: impl FnOnce() -> fulmar::core::Result<T>) -> fulmar::core::Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without text");
        let place = PANIC_PLACE.take().map(|place| format!(" ({place})")).unwrap_or_default();
        Err(Error::new(ErrorKind::Panic, format!("{text}{place}")))
    })
}

/// Returns the JavaScript error of `error`, inside an error of napi. Its code, the parts of its sentence and its cause are properties.
pub fn coded(env: &Env, error: &Error) -> napi::Error {
    napi::Error::from_unknown_without_coercion(of_error(env, error, CAUSES_MAX))
}

fn of_error<'env>(env: &'env Env, error: &Error, causes: usize) -> Unknown<'env> {
    let made = JsError::from(napi::Error::new(error.kind().code(), error.detail())).into_unknown(*env);
    let describe = || {
        let mut object = made.coerce_to_object()?;
        let parts = [("argument", error.argument()), ("rule", error.rule()), ("value", error.value())];
        for (name, part) in parts.into_iter().filter_map(|(name, part)| Some((name, part?))) {
            object.set_named_property(name, part)?;
        }
        match error.source().filter(|_| causes > 0) {
            Some(source) => object.set_named_property("cause", of_source(env, source, causes - 1)?),
            None => Ok(()),
        }
    };
    // Fails only in an environment that is ending.
    let _: napi::Result<()> = describe();
    made
}

/// Returns what JavaScript threw as it is; another source as an error with its sentence.
fn of_source<'env>(
    env: &'env Env,
    source: &(dyn StdError + 'static),
    causes: usize,
) -> napi::Result<Unknown<'env>> {
    if let Some(thrown) = source.downcast_ref::<napi::Error>() {
        return Ok(JsError::from(thrown.try_clone()?).into_unknown(*env));
    }
    if let Some(error) = source.downcast_ref::<Error>() {
        return Ok(of_error(env, error, causes));
    }
    let made = JsError::from(napi::Error::from_reason(source.to_string())).into_unknown(*env);
    let mut object = made.coerce_to_object()?;
    object.delete_named_property("code")?;
    if let Some(source) = source.source().filter(|_| causes > 0) {
        object.set_named_property("cause", of_source(env, source, causes - 1)?)?;
    }
    Ok(made)
}

/// Keeps the place of a panic for [`catch`] instead of writing to the host program's standard error.
#[napi_derive::module_init]
fn record_panics() {
    std::panic::set_hook(Box::new(|info| PANIC_PLACE.set(info.location().map(ToString::to_string))));
}
