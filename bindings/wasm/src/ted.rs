//! The face of `fulmar-ted`: rings of steps in the forms that they have on disk, and HDF5 files.
//!
//! The table of classes and methods is `bindings/faces/ted.rs`, the same for Node.

use std::cell::RefCell;

use fulmar::tensor;
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::tensor::TensorDict;

type Uint8Array = Vec<u8>;

include!("../../faces/ted.rs");
