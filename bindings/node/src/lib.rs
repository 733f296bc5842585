//! The Node face: each function converts, calls the crate of its name, and converts back.
//!
//! Every exported body runs inside `error::guard` or `task::task`, so a Rust panic becomes a JavaScript error.

#![expect(clippy::needless_pass_by_value, reason = "napi hands over owned strings and lists")]

mod chat;
mod core;
mod dataset;
mod error;
mod face;
mod memory;
mod model;
mod objective;
mod replay;
mod slot;
mod spec;
mod task;
mod ted;
mod template;
mod tensor;
mod text;
mod tokenizer;
mod transform;
mod tree;
