//! Scalar heads of a decoder, moments of its distribution, and the cost of its activations.

use fulmar::core::{index_from_f64, integer_from_f64, options_from_json};
use fulmar::model;
use wasm_bindgen::prelude::*;

use super::Decoder;
use crate::error::{Result, guard};

#[wasm_bindgen]
impl Decoder {
    /// Returns a copy with a new scalar head.
    #[wasm_bindgen(js_name = withScalarHead)]
    pub fn with_scalar_head(&self, head_json: &str, seed: f64) -> Result<Self> {
        guard(|| {
            let head: model::ScalarHead = options_from_json("head", head_json)?;
            Ok(self.inner.borrow().with_scalar_head(head, integer_from_f64("seed", seed)?)?.into())
        })
    }

    /// Computes the head's values at masked tokens.
    pub fn values(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
    ) -> Result<Vec<f32>> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            self.inner.borrow().values(&batch)
        })
    }

    /// Computes the same, and keeps the activations for `backwardValues`.
    #[wasm_bindgen(js_name = forwardValues)]
    pub fn forward_values(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
    ) -> Result<Vec<f32>> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            self.inner.borrow_mut().forward_values(&batch)
        })
    }

    /// Adds to the gradients.
    #[wasm_bindgen(js_name = backwardValues)]
    pub fn backward_values(&self, grad_value: &[f32]) -> Result<()> {
        guard(|| self.inner.borrow_mut().backward_values(grad_value))
    }

    /// Returns `[3 T]`: log-probs of masked tokens, entropies, and logarithms of sums of squared probabilities; keeps the activations for
    /// `backward`.
    #[wasm_bindgen(js_name = forwardWithSquares)]
    pub fn forward_with_squares(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
    ) -> Result<Vec<f32>> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            let (scores, squares) = self.inner.borrow_mut().forward_with_squares(&batch)?;
            Ok([scores.log_prob, scores.entropy, squares].concat())
        })
    }

    /// Sets whether backward passes recompute activations.
    #[wasm_bindgen(js_name = recomputeActivations)]
    pub fn recompute_activations(&self, recomputes: bool) -> Result<()> {
        guard(|| {
            self.inner.borrow_mut().recompute_activations(recomputes);
            Ok(())
        })
    }

    /// Returns the bytes of the last forward pass and its workspace.
    #[wasm_bindgen(js_name = traceBytes)]
    pub fn trace_bytes(&self) -> Result<f64> {
        guard(|| Ok(self.inner.borrow().trace_bytes() as f64))
    }

    /// Returns the number of rows of the last forward pass that an engine had kept.
    #[wasm_bindgen(js_name = numKeptRows)]
    pub fn num_kept_rows(&self) -> Result<f64> {
        guard(|| Ok(self.inner.borrow().num_kept_rows() as f64))
    }

    /// Returns the operations of a forward pass over one sequence.
    pub fn flops(&self, length: f64) -> Result<f64> {
        guard(|| Ok(self.inner.borrow().config().flops(index_from_f64("length", length)?)))
    }
}
