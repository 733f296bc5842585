//! Errors of Rust as JavaScript errors with a `code`.

use std::cell::Cell;

use fulmar::core::Error;
use js_sys::Reflect;
use wasm_bindgen::prelude::*;

/// The result of an exported function.
pub type Result<T> = std::result::Result<T, JsValue>;

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

fn coded(error: &Error) -> JsValue {
    let object = js_sys::Error::new(error.detail());
    // Fails only for a frozen object, and this one is new.
    let _ = Reflect::set(&object, &"code".into(), &error.kind().code().into());
    object.into()
}
