//! Scalar heads of a decoder, moments of its distribution, and the cost of its activations.

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::model;
use napi::bindgen_prelude::{AsyncTask, Float32Array};
use napi_derive::napi;

use super::{Decoder, OwnedBatch};
use crate::error::{Result, guard};
use crate::task::{Work, task};

#[napi]
impl Decoder {
    /// Returns a copy with a new scalar head.
    #[napi(ts_return_type = "Promise<Decoder>")]
    pub fn with_scalar_head(&self, head_json: String, seed: f64) -> AsyncTask<Work<Decoder>> {
        let decoder = self.inner.clone();
        task(move || {
            let head: model::ScalarHead = options_from_json("head", &head_json)?;
            let seed = integer_from_f64("seed", seed)?;
            decoder.with(|decoder| Ok(decoder.with_scalar_head(head, seed)?.into()))
        })
    }

    /// Computes the head's values at masked tokens.
    #[napi(ts_return_type = "Promise<Float32Array>")]
    pub fn values(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
    ) -> AsyncTask<Work<Float32Array>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || decoder.with(|decoder| Ok(decoder.values(&batch.borrow())?.into())))
    }

    /// Computes the same, and keeps the activations for `backwardValues`.
    #[napi(ts_return_type = "Promise<Float32Array>")]
    pub fn forward_values(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
    ) -> AsyncTask<Work<Float32Array>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || decoder.with(|decoder| Ok(decoder.forward_values(&batch.borrow())?.into())))
    }

    /// Adds to the gradients.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn backward_values(&self, grad_value: &[f32]) -> AsyncTask<Work<()>> {
        let (decoder, grad_value) = (self.inner.clone(), grad_value.to_vec());
        task(move || decoder.with(|decoder| decoder.backward_values(&grad_value)))
    }

    /// Returns `[3 T]`: log-probs of masked tokens, entropies, and logarithms of sums of squared probabilities; keeps the activations for
    /// `backward`.
    #[napi(ts_return_type = "Promise<Float32Array>")]
    pub fn forward_with_squares(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
    ) -> AsyncTask<Work<Float32Array>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || {
            decoder.with(|decoder| {
                let (scores, squares) = decoder.forward_with_squares(&batch.borrow())?;
                Ok([scores.log_prob, scores.entropy, squares].concat().into())
            })
        })
    }

    /// Sets whether backward passes recompute activations.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn recompute_activations(&self, recomputes: bool) -> AsyncTask<Work<()>> {
        let decoder = self.inner.clone();
        task(move || {
            decoder.with(|decoder| {
                decoder.recompute_activations(recomputes);
                Ok(())
            })
        })
    }

    /// Returns the bytes of the last forward pass and its workspace.
    #[napi]
    pub fn trace_bytes(&self) -> Result<f64> {
        guard(|| self.inner.with(|decoder| Ok(decoder.trace_bytes() as f64)))
    }

    /// Returns the number of rows of the last forward pass that an engine had kept.
    #[napi]
    pub fn num_kept_rows(&self) -> Result<f64> {
        guard(|| self.inner.with(|decoder| Ok(decoder.num_kept_rows() as f64)))
    }

    /// Returns the operations of a forward pass over one sequence.
    #[napi]
    pub fn flops(&self, length: f64) -> Result<f64> {
        guard(|| {
            let config = model::DecoderConfig::from_json(&self.config_json)?;
            Ok(config.flops(fulmar::core::index_from_f64("length", length)?))
        })
    }
}
