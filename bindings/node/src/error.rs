//! Errors and panics of Rust as JavaScript errors with a `code`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fulmar::core::{Error, ErrorKind};
use napi::{Env, JsError};

/// The result of an exported synchronous function; napi's macro requires this name. The status string becomes `err.code`.
pub type Result<T> = std::result::Result<T, napi::Error<&'static str>>;

thread_local! {
    static PANIC_PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs the body of an exported function; its error or panic becomes a JavaScript error with a code.
pub fn guard<T>(body: impl FnOnce() -> fulmar::core::Result<T>) -> Result<T> {
    let answer = catch(body).map_err(|error| napi::Error::new(error.kind().code(), error.detail()));
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

/// Returns the same error where napi accepts only its own status: the coded JavaScript error travels inside.
pub fn coded(env: &Env, error: &Error) -> napi::Error {
    let coded = JsError::from(napi::Error::new(error.kind().code(), error.detail()));
    napi::Error::from(coded.into_unknown(*env))
}

/// Keeps the place of a panic for [`catch`] instead of writing to the host program's standard error.
#[napi_derive::module_init]
fn record_panics() {
    std::panic::set_hook(Box::new(|info| PANIC_PLACE.set(info.location().map(ToString::to_string))));
}
