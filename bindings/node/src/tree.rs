//! The face of `fulmar-tree`: hashes, maps, forests and their trees, scores, searches.
//!
//! The table of classes and methods is `bindings/faces/tree.rs`, the same for WebAssembly.

use napi::bindgen_prelude::{Float32Array, Float64Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::tensor::{Tensor, TensorDict};

include!("../../faces/tree.rs");
