//! The face of `fulmar-transform`: transforms, and the cutting of steps into trajectories.
//!
//! The table of classes and methods is `bindings/faces/transform.rs`, the same for WebAssembly.

use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::tensor::TensorDict;

include!("../../faces/transform.rs");
