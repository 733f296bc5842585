//! The result of a loss: the value, numbers to log, and the gradient.

use fulmar_core::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::Real;

/// One number to log. Means carry their denominator, so that means of several batches can be joined exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Metric {
    /// camelCase, the same in JavaScript.
    pub name: &'static str,
    /// The mean, maximum or count; 0 without data.
    pub value: f64,
    /// The number of tokens in a mean; 1 for a term of the loss, a maximum or a count.
    pub denominator: f64,
}

/// Value, metrics and gradient of one loss over one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct LossOutput<T = f32> {
    /// The value of all terms together; the gradient is its derivative.
    pub loss: f64,
    /// Numbers to log, in a fixed order.
    pub metrics: Vec<Metric>,
    /// `[T]` derivative of `loss` with respect to each log-probability; exactly 0 where nothing is trained.
    pub grad_log_prob: Vec<T>,
    /// `[T]` derivative of `loss` with respect to each entropy, present if the loss has an entropy term.
    pub grad_entropy: Option<Vec<T>>,
}

impl<T: Real> LossOutput<T> {
    /// Narrows gradients, and refuses a value, a metric or a gradient that overflowed.
    pub(crate) fn checked(
        loss: f64,
        metrics: Vec<Metric>,
        grad_log_prob: &[f64],
        grad_entropy: Option<&[f64]>,
    ) -> Result<Self> {
        let loss = finite_loss(loss)?;
        let grad_log_prob = narrow(grad_log_prob)?;
        let grad_entropy = grad_entropy.map(narrow).transpose()?;
        Ok(Self { loss, metrics: finite_metrics(metrics)?, grad_log_prob, grad_entropy })
    }
}

impl<T> LossOutput<T> {
    /// Returns the value of the metric called `name`.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    /// Returns the metrics as a JSON array of `{name, value, denominator}`.
    #[must_use]
    pub fn metrics_json(&self) -> String {
        metrics_json(&self.metrics)
    }
}

/// Formats `metrics` as a JSON array of `{name, value, denominator}`.
#[must_use]
pub fn metrics_json(metrics: &[Metric]) -> String {
    serde_json::to_string(metrics).unwrap_or_default()
}

/// Narrows a gradient and refuses one that overflowed.
pub(crate) fn narrow<T: Real>(gradient_t: &[f64]) -> Result<Vec<T>> {
    let narrowed: Vec<T> = gradient_t.iter().map(|&gradient| T::narrow(gradient)).collect();
    match narrowed.iter().position(|&gradient| !gradient.into().is_finite()) {
        None => Ok(narrowed),
        Some(index) => {
            let detail = format!("gradient[{index}] must be finite: got {}", gradient_t[index]);
            Err(Error::new(ErrorKind::NonFinite, detail))
        }
    }
}

/// Refuses metrics that overflowed, as JSON cannot represent them.
pub(crate) fn finite_metrics(metrics: Vec<Metric>) -> Result<Vec<Metric>> {
    match metrics.iter().find(|metric| !metric.value.is_finite()) {
        None => Ok(metrics),
        Some(Metric { name, value, .. }) => {
            let detail = format!("metric {name} must be finite: got {value}");
            Err(Error::new(ErrorKind::NonFinite, detail))
        }
    }
}

/// Refuses a loss that overflowed.
pub(crate) fn finite_loss(loss: f64) -> Result<f64> {
    if loss.is_finite() {
        return Ok(loss);
    }
    Err(Error::new(ErrorKind::NonFinite, format!("loss must be finite: got {loss}")))
}
