//! Estimates of returns and advantages of steps.
//!
//! The table is `bindings/faces/objective_steps.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{Share, face};
use crate::tensor::{Tensor, TensorDict};

include!("../../../faces/objective_steps.rs");
