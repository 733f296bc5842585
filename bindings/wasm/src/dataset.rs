//! The face of `fulmar-dataset`: files of public data sets.
//!
//! The table of classes and methods is `bindings/faces/dataset.rs`, the same for Node.

use std::cell::RefCell;

use fulmar::tensor;
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::tensor::TensorDict;

type Uint8Array = Vec<u8>;

include!("../../faces/dataset.rs");
