//! Splitting and packing of batches.
//!
//! The table is `bindings/faces/model_batches.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::face;

type Float32Array = Vec<f32>;
type Uint8Array = Vec<u8>;
type Uint32Array = Vec<u32>;

include!("../../../faces/model_batches.rs");
