//! Estimates of returns and advantages of steps.
//!
//! The table is `bindings/faces/objective_steps.rs`, the same for WebAssembly.

use napi_derive::napi;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::slot::Slot;
use crate::tensor::{Tensor, TensorDict};

include!("../../../faces/objective_steps.rs");
