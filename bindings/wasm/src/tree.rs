//! The face of `fulmar-tree`: hashes, maps, forests and their trees, scores, searches.
//!
//! The table of classes and methods is `bindings/faces/tree.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::tensor::{Tensor, TensorDict};

type Float32Array = Vec<f32>;
type Float64Array = Vec<f64>;
type Uint32Array = Vec<u32>;

include!("../../faces/tree.rs");
