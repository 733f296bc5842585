//! Heads of a decoder that read one number, how sure it is, and what its trace costs.

use fulmar::core::{integer_from_f64, options_from_json};
use fulmar::model;
use napi::bindgen_prelude::{AsyncTask, Float32Array};
use napi_derive::napi;

use super::{Decoder, OwnedBatch};
use crate::error::{Result, guard};
use crate::task::{Work, task};

#[napi]
impl Decoder {
    /// A copy with a fresh head that reads one number.
    #[napi(ts_return_type = "Promise<Decoder>")]
    pub fn with_scalar_head(&self, head_json: String, seed: f64) -> AsyncTask<Work<Decoder>> {
        let decoder = self.inner.clone();
        task(move || {
            let head: model::ScalarHead = options_from_json("head", &head_json)?;
            let seed = integer_from_f64("seed", seed)?;
            decoder.with(|decoder| Ok(decoder.with_scalar_head(head, seed)?.into()))
        })
    }

    /// Numbers that the head reads at masked tokens.
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

    /// The same, kept for `backwardValues`.
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
    pub fn backward_values(&self, d_value: &[f32]) -> AsyncTask<Work<()>> {
        let (decoder, d_value) = (self.inner.clone(), d_value.to_vec());
        task(move || decoder.with(|decoder| decoder.backward_values(&d_value)))
    }

    /// `[3 T]`: log-probs of masked tokens, entropies, and logarithms of sums of squared probabilities, kept for `backward`.
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

    /// Whether backward passes compute activations again.
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

    /// Bytes of the last forward pass and its scratch.
    #[napi]
    pub fn trace_bytes(&self) -> Result<f64> {
        guard(|| self.inner.with(|decoder| Ok(decoder.trace_bytes() as f64)))
    }

    /// Operations of a forward pass over one sequence.
    #[napi]
    pub fn flops(&self, length: f64) -> Result<f64> {
        guard(|| {
            let config = model::DecoderConfig::from_json(&self.config_json)?;
            Ok(config.flops(fulmar::core::index_from_f64("length", length)?))
        })
    }
}
