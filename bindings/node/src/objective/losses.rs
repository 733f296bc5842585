//! Losses of batches.
//!
//! The table is `bindings/faces/objective_losses.rs`, the same for WebAssembly.

use napi::bindgen_prelude::{Float32Array, Float64Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::tensor::{Share, face};

/// Value, metrics and gradient of a loss.
#[napi(object)]
pub struct LossOutput {
    /// The sum of all terms.
    pub loss: f64,
    /// JSON array of `{name, value, denominator}`.
    pub metrics_json: String,
    /// `[T]`
    pub grad_log_prob: Float32Array,
    /// `[T]`
    pub grad_entropy: Option<Float32Array>,
    /// `[S]`
    pub sequence_loss: Option<Float64Array>,
}

impl From<objective::LossOutput> for LossOutput {
    fn from(output: objective::LossOutput) -> Self {
        Self {
            loss: output.loss,
            metrics_json: output.metrics_json(),
            grad_log_prob: output.grad_log_prob.into(),
            grad_entropy: output.grad_entropy.map(Into::into),
            sequence_loss: None,
        }
    }
}

impl From<objective::SftOutput> for LossOutput {
    fn from(result: objective::SftOutput) -> Self {
        let sequence_loss = Some(result.sequence_loss.into());
        Self { sequence_loss, ..result.output.into() }
    }
}

/// Value, metrics and gradients of a loss of rewards.
#[napi(object)]
pub struct RewardLossOutput {
    /// The sum of all terms.
    pub loss: f64,
    /// JSON array of `{name, value, denominator}`.
    pub metrics_json: String,
    /// The gradient by each reward of a chosen answer.
    pub grad_chosen: Float32Array,
    /// The gradient by each reward of a rejected answer.
    pub grad_rejected: Float32Array,
}

impl From<objective::BradleyTerryOutput> for RewardLossOutput {
    fn from(output: objective::BradleyTerryOutput) -> Self {
        Self {
            loss: output.loss,
            metrics_json: objective::metrics_json(&output.metrics),
            grad_chosen: output.grad_chosen.into(),
            grad_rejected: output.grad_rejected.into(),
        }
    }
}

/// Checks options for the loss called `loss`.
#[napi]
pub fn check_loss_options(loss: String, options_json: String) -> Result<()> {
    guard(|| check_options(&loss, &options_json))
}

include!("../../../faces/objective_losses.rs");
