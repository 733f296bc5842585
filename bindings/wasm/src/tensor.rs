//! The face of `fulmar-tensor`: tensors, ragged tensors, tensor dictionaries and safetensors files.
//!
//! The table of classes and methods is `bindings/faces/tensor.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};

type Float32Array = Vec<f32>;
type Float64Array = Vec<f64>;
type Uint8Array = Vec<u8>;
type Uint32Array = Vec<u32>;

include!("../../faces/tensor.rs");
