//! Losses of batches.
//!
//! The tables are `bindings/faces/objective_losses.rs`, the same for WebAssembly.
#![expect(clippy::too_many_arguments, reason = "a batch of GRPO is eight columns")]

use napi::bindgen_prelude::{Float32ArraySlice, Uint32ArraySlice};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{face, record};
use crate::memory::{Float32Array, Float64Array};
use crate::slot::Slot;

include!("../../../faces/objective_losses.rs");
