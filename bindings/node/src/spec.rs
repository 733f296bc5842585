//! The face of `fulmar-spec`: specs, their values and lists of them.
//!
//! The table of classes and methods is `bindings/faces/spec.rs`, the same for WebAssembly.

use napi::bindgen_prelude::Float64Array;
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::tensor::{Ragged, Tensor, TensorDict};

include!("../../faces/spec.rs");
