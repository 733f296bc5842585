//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::tensor::{Lend, Share, Tensor, TensorDict, TensorDictList, face};

type Float64Array = Vec<f64>;

include!("../../faces/replay.rs");
