//! The sums of squared probabilities at each trained token.

use fulmar_core::Result;

use super::{Decoder, Scores};
use crate::packing::{Read, TokenBatch};

impl Decoder {
    /// Runs [`Decoder::forward`] and also returns the logarithm of the sum of the squared probabilities at
    /// each masked token, `[T]` in `[-ln V, 0]` and 0 where the mask is 0, by which WPO weighs pairs. Both
    /// come from the same chunk of logits; the sums have no gradient.
    ///
    /// # Errors
    /// The errors of [`Decoder::forward`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1], ..Default::default() };
    /// let (scores, squares) = decoder.forward_with_squares(&batch)?;
    /// assert!(squares[0] == 0.0 && squares[1] >= -5_f32.ln() && squares[1] < 0.0);
    /// // More than the square of one of them.
    /// assert!(squares[1] > 2.0 * scores.log_prob[1]);
    /// decoder.backward(&[0.0, -1.0], None)?;
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn forward_with_squares(&mut self, batch: &TokenBatch<'_>) -> Result<(Scores, Vec<f32>)> {
        let mut squares = vec![0.0; batch.ids.len()];
        let (compute, vocab) = (self.compute(), self.config().vocab_size);
        let scores = self.keeping(Read::Before, |decoder, activations, policy| {
            decoder.run_with(batch, activations, policy, |targets, logits| {
                let found = compute.log_sum_sq_prob_rows(logits, vocab);
                for (target, found) in targets.iter().zip(found) {
                    squares[target.token as usize] = found;
                }
            })
        })?;
        Ok((scores, squares))
    }
}
