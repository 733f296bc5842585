//! The face of `fulmar-dataset`: files of public data sets.
//!
//! The table of classes and methods is `bindings/faces/dataset.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::face;
use crate::tensor::TensorDict;

include!("../../faces/dataset.rs");
