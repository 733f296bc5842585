//! The WebAssembly face: each function converts, calls the crate of its name, and converts back.
//!
//! A panic ends in a trap that JavaScript sees as a `RuntimeError`; its text waits in [`error::last_panic`].

mod chat;
mod core;
mod error;
mod model;
mod objective;
mod replay;
mod spec;
mod ted;
mod template;
mod tensor;
mod tokenizer;
mod transform;
