//! Transfer of long texts to JavaScript.

use napi::bindgen_prelude::{Either, Utf16String};

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
