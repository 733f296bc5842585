//! Renders one untrusted chat template in a separate WebAssembly instance.
//!
//! The host gives the instance a memory with a cap, writes source and input there, calls [`render`] and reads the answer.
//! After any outcome, a trap included, the host discards the instance. So there is no
//! generated glue, only six exports that pass addresses and lengths.

use std::cell::RefCell;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_template::{Limits, RenderedText, Template};

/// The memory that the host writes and reads.
#[derive(Default)]
struct Exchange {
    input: Vec<u8>,
    text: Vec<u8>,
    spans: Vec<u32>,
}

thread_local! {
    static EXCHANGE: RefCell<Exchange> = RefCell::default();
}

/// Reserves `length` bytes for the source and the input after it, and returns their address.
// SAFETY: the host looks these exports up by name; no other crate of the module has functions of these names.
#[unsafe(no_mangle)]
pub extern "C" fn reserve(length: usize) -> usize {
    EXCHANGE.with_borrow_mut(|exchange| {
        exchange.input = vec![0; length];
        exchange.input.as_ptr() as usize
    })
}

/// Renders. 0: the text is UTF-8 and the spans are set; 2: the template has no spans. 1: the text is an error code, a line end and a
/// message.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn render(source_length: usize, steps: f64, output_bytes: usize) -> u32 {
    let input = EXCHANGE.with_borrow_mut(|exchange| std::mem::take(&mut exchange.input));
    let answer =
        run(&input, source_length, Limits { steps: steps as u64, output_bytes, ..Limits::default() });
    EXCHANGE.with_borrow_mut(|exchange| match answer {
        Ok(rendered) => {
            exchange.spans = rendered.utf16_spans().unwrap_or_default();
            exchange.text = rendered.text.into_bytes();
            u32::from(rendered.assistant_spans.is_none()) * 2
        }
        Err(error) => {
            exchange.text = format!("{}\n{}", error.kind().code(), error.detail()).into_bytes();
            1
        }
    })
}

/// Returns the address of the text.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn text_address() -> usize {
    EXCHANGE.with_borrow(|exchange| exchange.text.as_ptr() as usize)
}

/// Returns the length of the text in bytes.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn text_length() -> usize {
    EXCHANGE.with_borrow(|exchange| exchange.text.len())
}

/// Returns the address of the spans: pairs of 32-bit numbers.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn spans_address() -> usize {
    EXCHANGE.with_borrow(|exchange| exchange.spans.as_ptr() as usize)
}

/// Returns the number of numbers in the spans.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn spans_length() -> usize {
    EXCHANGE.with_borrow(|exchange| exchange.spans.len())
}

fn run(input: &[u8], source_length: usize, limits: Limits) -> Result<RenderedText> {
    let not_text = || Error::new(ErrorKind::Malformed, "source and input must be UTF-8");
    let (source, input) = input.split_at_checked(source_length).ok_or_else(not_text)?;
    let source = str::from_utf8(source).map_err(|_| not_text())?;
    let input = str::from_utf8(input).map_err(|_| not_text())?;
    Template::with_limits(source, limits)?.render_json(input)
}
