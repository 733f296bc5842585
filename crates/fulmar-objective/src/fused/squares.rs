//! The sums of squared probabilities of rows, from the same logits as their log-probabilities.
//!
//! `useWeighting` of [`crate::DpoLoss`] needs them: WPO, <https://arxiv.org/abs/2406.11827>. They are
//! weights, not a term of the loss, so they have no gradient.

use fulmar_compute::Compute;
use fulmar_core::Result;

use super::{
    LOGITS_CHUNK, LinearHead, TokenLogProbs, check_found, for_scaled, token_log_probs, vocabulary_of,
};

/// Returns [`token_log_probs`] and the logarithm of the sum of each row's squared probabilities, `[N]` in
/// `[-ln V, 0]`.
///
/// # Errors
/// The errors of [`token_log_probs`].
///
/// # Examples
/// ```
/// use fulmar_objective::token_log_probs_and_squares;
/// let (found, squares) = token_log_probs_and_squares(&[0.0, 0.0, 9.0, f32::NEG_INFINITY], &[1, 0], 1.0, Default::default())?;
/// assert_eq!(found.log_prob, [-std::f32::consts::LN_2, 0.0]);
/// assert_eq!(squares, [-std::f32::consts::LN_2, 0.0]); // ln(1/4 + 1/4) and ln 1
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn token_log_probs_and_squares(
    logits: &[f32],
    ids: &[u32],
    temperature: f64,
    compute: Compute,
) -> Result<(TokenLogProbs, Vec<f32>)> {
    let found = token_log_probs(logits, ids, temperature, compute)?;
    let vocab = vocabulary_of(logits, ids)?;
    let mut squares = Vec::with_capacity(ids.len());
    for_scaled(logits, vocab, temperature, compute, |_, logits| {
        squares.extend(compute.log_sum_sq_prob_rows(logits, vocab));
    })?;
    Ok((found, squares))
}

impl LinearHead<'_> {
    /// Returns [`LinearHead::log_probs`] and the logarithm of the sum of each row's squared probabilities,
    /// from one chunk of logits at a time.
    ///
    /// # Errors
    /// The errors of [`LinearHead::log_probs`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_objective::LinearHead;
    /// let weight = [1.0, 0.0, 0.0, 1.0].as_slice().into();
    /// let head = LinearHead { weight, panels: None, bias: None, width: 2, temperature: 1.0, precision: Default::default(), compute: Default::default() };
    /// let (found, squares) = head.log_probs_and_squares(&[0.0, 0.0], &[0])?;
    /// assert_eq!((found.log_prob, squares), (vec![-std::f32::consts::LN_2], vec![-std::f32::consts::LN_2]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn log_probs_and_squares(&self, hidden: &[f32], ids: &[u32]) -> Result<(TokenLogProbs, Vec<f32>)> {
        self.check_rows(hidden, ids)?;
        self.placed(hidden, |head, hidden| {
            let (mut found, mut squares) =
                (self.compute.log_probs(ids.len())?, Vec::with_capacity(ids.len()));
            head.walk(hidden, LOGITS_CHUNK, |rows, logits| {
                squares.extend(self.compute.log_sum_sq_prob_rows(&*logits, logits.len() / rows.len()));
                found.find(rows.start, &*logits, &ids[rows]);
                self.compute.check()
            })?;
            let found = found.read()?;
            check_found(&found, 0)?;
            Ok((TokenLogProbs::of(&found), squares))
        })
    }
}
