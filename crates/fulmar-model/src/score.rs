//! The likeliest ids at each scored token.

use fulmar_core::Result;

use crate::decoder::{Decoder, Scores};
use crate::packing::TokenBatch;
use crate::request::check_top_log_probs;

/// The `k` likeliest ids at each masked token of a batch, the likeliest first; 0 where the mask is 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopLogProbs {
    /// `[T, k]`
    pub ids: Vec<u32>,
    /// Natural log-probs `[T, k]`.
    pub log_prob: Vec<f32>,
}

impl Decoder {
    /// Runs [`Decoder::score`] and also returns the `top_k` likeliest ids at each masked token. All come from
    /// one pass over a row of logits, so entropies are free.
    ///
    /// # Errors
    /// The errors of [`TokenBatch::check`]; `OutOfRange` if `top_k` is above the vocabulary; `LimitExceeded`
    /// for too many ids in all.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let decoder = Decoder::new(config, 1)?;
    /// let batch = TokenBatch { ids: &[1, 2, 3], offsets: &[0, 3], mask: &[0, 0, 1], ..Default::default() };
    /// let (scores, top) = decoder.score_top_k(&batch, 5)?;
    /// let place = 2 * 5 + top.ids[2 * 5..].iter().take_while(|id| **id != 3).count();
    /// assert_eq!(top.log_prob[place], scores.log_prob[2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn score_top_k(&self, batch: &TokenBatch<'_>, top_k: usize) -> Result<(Scores, TopLogProbs)> {
        check_top_log_probs(top_k, batch.ids.len(), self.config())?;
        let size = batch.ids.len() * top_k;
        let mut top = TopLogProbs { ids: vec![0; size], log_prob: vec![0.0; size] };
        let vocab = self.config().vocab_size;
        let scores = self.score_with(batch, |targets, logits| {
            for (row, target) in targets.iter().enumerate() {
                let logits = logits.slice(row * vocab..(row + 1) * vocab);
                let likeliest = self.compute().top_k_log_probs(logits, top_k);
                for (at, (id, log_prob)) in (target.token as usize * top_k..).zip(likeliest) {
                    (top.ids[at], top.log_prob[at]) = (id, log_prob);
                }
            }
        })?;
        Ok((scores, top))
    }
}
