//! Losses of batches.
//!
//! The table is `bindings/faces/objective_losses.rs`, the same for Node.

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};
use crate::face::face;

/// Value, metrics and gradient of a loss.
#[wasm_bindgen(getter_with_clone)]
pub struct LossOutput {
    /// The sum of all terms.
    pub loss: f64,
    /// JSON array of `{name, value, denominator}`.
    #[wasm_bindgen(js_name = metricsJson)]
    pub metrics_json: String,
    /// `[T]`
    #[wasm_bindgen(js_name = gradLogProb)]
    pub grad_log_prob: Vec<f32>,
    /// `[T]`
    #[wasm_bindgen(js_name = gradEntropy)]
    pub grad_entropy: Option<Vec<f32>>,
    /// `[S]`
    #[wasm_bindgen(js_name = sequenceLoss)]
    pub sequence_loss: Option<Vec<f64>>,
}

impl From<objective::LossOutput> for LossOutput {
    fn from(output: objective::LossOutput) -> Self {
        Self {
            loss: output.loss,
            metrics_json: output.metrics_json(),
            grad_log_prob: output.grad_log_prob,
            grad_entropy: output.grad_entropy,
            sequence_loss: None,
        }
    }
}

impl From<objective::SftOutput> for LossOutput {
    fn from(result: objective::SftOutput) -> Self {
        let sequence_loss = Some(result.sequence_loss);
        Self { sequence_loss, ..result.output.into() }
    }
}

/// Value, metrics and gradients of a loss of rewards.
#[wasm_bindgen(getter_with_clone)]
pub struct RewardLossOutput {
    /// The sum of all terms.
    pub loss: f64,
    /// JSON array of `{name, value, denominator}`.
    #[wasm_bindgen(js_name = metricsJson)]
    pub metrics_json: String,
    /// The gradient by each reward of a chosen answer.
    #[wasm_bindgen(js_name = gradChosen)]
    pub grad_chosen: Vec<f32>,
    /// The gradient by each reward of a rejected answer.
    #[wasm_bindgen(js_name = gradRejected)]
    pub grad_rejected: Vec<f32>,
}

impl From<objective::BradleyTerryOutput> for RewardLossOutput {
    fn from(output: objective::BradleyTerryOutput) -> Self {
        Self {
            loss: output.loss,
            metrics_json: objective::metrics_json(&output.metrics),
            grad_chosen: output.grad_chosen,
            grad_rejected: output.grad_rejected,
        }
    }
}

/// Checks options for the loss called `loss`.
#[wasm_bindgen(js_name = checkLossOptions)]
pub fn check_loss_options(loss: &str, options_json: &str) -> Result<()> {
    guard(|| check_options(loss, options_json))
}

include!("../../../faces/objective_losses.rs");
