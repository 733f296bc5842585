//! The face of `fulmar-spec`: specs, their values and lists of them.
//!
//! The table of classes and methods is `bindings/faces/spec.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::tensor::{Ragged, Tensor, TensorDict};

type Float64Array = Vec<f64>;

include!("../../faces/spec.rs");
