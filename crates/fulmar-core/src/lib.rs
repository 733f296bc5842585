//! Errors, limits, dtypes, shapes and the counter-based generator that every other crate stands on.

mod dtype;
mod error;
pub mod limits;
mod number;
mod rng;
mod shape;

pub use dtype::Dtype;
pub use error::{Error, ErrorKind, Result};
pub use number::integer_from_f64;
pub use rng::{Rng, RngState};
pub use shape::num_elements;
