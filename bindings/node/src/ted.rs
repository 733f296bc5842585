//! The face of `fulmar-ted`: rings of steps in the forms that they have on disk, and HDF5 files.
//!
//! The table of classes and methods is `bindings/faces/ted.rs`, the same for WebAssembly.

use fulmar::tensor;
use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::tensor::TensorDict;

include!("../../faces/ted.rs");
