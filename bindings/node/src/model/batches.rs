//! Splitting and packing of batches.
//!
//! The table is `bindings/faces/model_batches.rs`, the same for WebAssembly.

use napi::bindgen_prelude::{Float32Array, Uint8Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::face;
use crate::slot::Slot;

include!("../../../faces/model_batches.rs");
