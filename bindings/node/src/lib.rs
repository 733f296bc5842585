//! The Node face: each function converts, calls the crate of its name, and converts back.
//!
//! Every exported body runs inside [`error::guard`] or [`task::task`], so a Rust panic becomes a JavaScript error.

mod core;
mod error;
mod model;
mod slot;
mod task;
mod tensor;
