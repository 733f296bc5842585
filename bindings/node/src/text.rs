//! Transfer of long texts from and to JavaScript.

use napi::bindgen_prelude::{Either, Utf16String};

/// Most bytes that UTF-8 needs for one unit of UTF-16.
const UNIT_BYTES_MAX: usize = 3;

/// A text in the form that is fastest to transfer.
pub type JsText = Either<String, Utf16String>;

/// Returns `text` for JavaScript: transcoded here with vector instructions, unless it is ASCII.
pub fn js_text(text: String) -> JsText {
    if text.is_ascii() {
        return Either::A(text);
    }
    // No text has more units than bytes, and the function asks for one unit more.
    let mut units = vec![0; text.len() + 1];
    let num_units = encoding_rs::mem::convert_str_to_utf16(&text, &mut units);
    units.truncate(num_units);
    Either::B(units.into())
}

/// Returns a text of JavaScript, transcoded with vector instructions. Half a surrogate pair becomes U+FFFD.
pub fn rust_text(text: &Utf16String) -> String {
    let mut utf8 = "\0".repeat(text.len() * UNIT_BYTES_MAX);
    let num_bytes = encoding_rs::mem::convert_utf16_to_str(text, &mut utf8);
    utf8.truncate(num_bytes);
    utf8
}
