//! Errors, limits, dtypes, shapes and the counter-based generator that every other crate uses.

mod device;
mod dtype;
mod error;
mod held;
mod integer;
mod json;
pub mod limits;
mod names;
mod number;
mod regular_file;
mod rng;
mod shape;
mod utf16;

pub use device::Device;
pub use dtype::Dtype;
pub use error::{Error, ErrorKind, Result};
pub use held::Held;
pub use integer::{exact_options_from_json, keep_integers, kept_integer, restore_integers};
pub use json::{json_error, options_from_json};
pub use names::nearest_name;
pub use number::{id_from_f64, index_from_f64, indices_from_f64, integer_from_f64};
pub use regular_file::{open_regular, read_exact_at};
pub use rng::{Rng, RngState};
pub use shape::num_elements;
pub use utf16::num_utf16_units;
