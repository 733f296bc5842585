//! The WebAssembly face: each function converts, calls the crate of its name, and converts back.
//!
//! A panic ends in a trap that JavaScript sees as a `RuntimeError`; its text waits in [`error::last_panic`].
//!
//! Without the feature `whole` this is the edge module: random numbers, tokenizers, templates, renderers, ledgers, masks, losses over typed arrays and draws.

mod chat;
mod core;
#[cfg(feature = "whole")]
mod dataset;
mod error;
mod face;
#[cfg(feature = "whole")]
mod model;
mod objective;
#[cfg(feature = "whole")]
mod replay;
#[cfg(feature = "whole")]
mod spec;
#[cfg(feature = "whole")]
mod ted;
mod template;
#[cfg(feature = "whole")]
mod tensor;
mod tokenizer;
#[cfg(feature = "whole")]
mod transform;
#[cfg(feature = "whole")]
mod tree;
