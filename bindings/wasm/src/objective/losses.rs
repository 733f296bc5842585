//! Losses of batches.
//!
//! The tables are `bindings/faces/objective_losses.rs`, the same for Node.
#![expect(clippy::too_many_arguments, reason = "a batch of GRPO is eight columns")]
#![expect(
    clippy::useless_conversion,
    reason = "the tables convert to arrays of Node, which are vectors here"
)]

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::{face, record};

type Float32Array = Vec<f32>;
type Float64Array = Vec<f64>;
type Float32ArraySlice = Vec<f32>;
type Uint32ArraySlice = Vec<u32>;

include!("../../../faces/objective_losses.rs");
