//! The denominator of a sum over tokens: one for every term of a loss, so that terms keep their proportion.

use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

/// The denominator of a loss over `S` sequences with `n_s` trained tokens each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Normalization {
    /// Divides by the trained tokens of this batch, `N = sum n_s` (TorchRL `token_mean`, TRL `bnpo`).
    #[default]
    TokenMean,
    /// Mean over sequences of the mean over their tokens: `S * n_s` (TorchRL `prompt_mean`, TRL `grpo`).
    /// A sequence without trained tokens adds 0 and still counts in `S`.
    SequenceMean,
    /// Divides by `S * length` (Dr. GRPO): tokens of long and short answers have the same weight.
    FixedLength(f64),
    /// Divides by a given number of tokens, counted over the whole optimizer step (DAPO): micro-batches then
    /// sum to the result of one big batch.
    GlobalTokens(f64),
    /// [`Normalization::SequenceMean`] with a given number of sequences, counted over the whole optimizer
    /// step: micro-batches then sum to the result of one big batch.
    GlobalSequences(f64),
}

impl Normalization {
    pub(crate) fn checked(self) -> Result<Self> {
        match self {
            Self::FixedLength(count) | Self::GlobalTokens(count) | Self::GlobalSequences(count)
                if !(count.is_finite() && count >= 1.0) =>
            {
                let detail = format!("normalization count must be a finite number >= 1: got {count}");
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
            other => Ok(other),
        }
    }

    /// Returns whether the denominator is that of a whole optimizer step, so that a micro-batch without
    /// trained tokens adds 0.
    pub(crate) fn is_global(self) -> bool {
        matches!(self, Self::GlobalTokens(_) | Self::GlobalSequences(_))
    }

    /// Returns the weight of one trained token of each sequence, `[S]`.
    pub(crate) fn weight_s(self, num_trained_s: &[usize]) -> Vec<f64> {
        let num_trained: usize = num_trained_s.iter().sum();
        let num_sequences = num_trained_s.len() as f64;
        let denominator = |count: usize| match self {
            Self::TokenMean => num_trained.max(1) as f64,
            Self::SequenceMean => num_sequences * count.max(1) as f64,
            Self::FixedLength(length) => num_sequences * length,
            Self::GlobalTokens(tokens) => tokens,
            Self::GlobalSequences(sequences) => sequences * count.max(1) as f64,
        };
        num_trained_s.iter().map(|&count| 1.0 / denominator(count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_reciprocal_of_the_stated_denominator() {
        let weights = |normalization: Normalization| normalization.weight_s(&[3, 0, 1]);
        assert_eq!(weights(Normalization::TokenMean), [0.25, 0.25, 0.25]);
        assert_eq!(weights(Normalization::SequenceMean), [1.0 / 9.0, 1.0 / 3.0, 1.0 / 3.0]);
        assert_eq!(weights(Normalization::FixedLength(4.0)), [1.0 / 12.0; 3]);
        assert_eq!(weights(Normalization::GlobalTokens(8.0)), [0.125; 3]);
        assert_eq!(weights(Normalization::GlobalSequences(2.0)), [1.0 / 6.0, 0.5, 0.5]);
    }

    #[test]
    fn a_count_below_one_is_refused() {
        for count in [0.0, 0.5, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                Normalization::FixedLength(count).checked().unwrap_err().kind(),
                ErrorKind::OutOfRange
            );
        }
        assert!(Normalization::GlobalTokens(1.0).checked().is_ok());
    }
}
