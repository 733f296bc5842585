//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for WebAssembly.

use napi::bindgen_prelude::Float64Array;
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::tensor::{Lend, Share, Tensor, TensorDict, TensorDictList, face};

include!("../../faces/replay.rs");
