//! The face of `fulmar-tensor`: tensors, ragged tensors, tensor dictionaries and safetensors files.
//!
//! The table of classes and methods is `bindings/faces/tensor.rs`, the same for WebAssembly.

use napi::bindgen_prelude::{Float32Array, Float64Array, Uint8Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;

include!("../../faces/tensor.rs");
