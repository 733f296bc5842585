//! Splitting and packing of batches.
//!
//! The table is `bindings/faces/model_batches.rs`, the same for WebAssembly.

use napi::bindgen_prelude::{Float32Array, Uint8Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::tensor::{Share, face};

include!("../../../faces/model_batches.rs");
