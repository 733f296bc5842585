//! The ragged layout that every loss reads: `S` sequences, one after another, in flat arrays of `T` tokens.
//!
//! `offsets[s]..offsets[s + 1]` are the tokens of sequence `s`. Nothing is padded. A token is *trained* when its
//! mask is 1; values at other positions (NaN included) are never read into a sum.

use fulmar_core::{Error, ErrorKind, Result};

use crate::Real;

/// Advantages, one for each sequence or one for each token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Advantage<'a, T = f32> {
    /// One value for each sequence, `[S]`, shared by its tokens.
    PerSequence(&'a [T]),
    /// One value for each token, `[T]`.
    PerToken(&'a [T]),
}

impl<'a, T> Advantage<'a, T> {
    /// Infers the layout from the length: `[S]` or `[T]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if the length is neither, or is both while the layouts differ (as many tokens as
    /// sequences, but not one in each): then name the layout with the enum.
    ///
    /// # Examples
    /// ```
    /// use fulmar_objective::Advantage;
    /// assert_eq!(Advantage::infer(&[1.0, -1.0], &[0, 3, 5])?, Advantage::PerSequence(&[1.0, -1.0]));
    /// assert!(Advantage::infer(&[1.0, -1.0], &[0, 2, 2]).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn infer(advantage: &'a [T], offsets: &[u32]) -> Result<Self> {
        Self::infer_as("advantage", advantage, offsets)
    }

    /// Runs [`Advantage::infer`]; errors call the values `name`.
    pub(crate) fn infer_as(name: &str, advantage: &'a [T], offsets: &[u32]) -> Result<Self> {
        let num_sequences = offsets.len().saturating_sub(1);
        let num_tokens = offsets.last().map_or(0, |&end| end as usize);
        let one_each = offsets.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == 1);
        match (advantage.len() == num_sequences, advantage.len() == num_tokens) {
            (true, true) if !one_each => Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!(
                    "{name} must not be ambiguous: got length {num_sequences}, both of sequences and of tokens"
                ),
            )),
            (true, _) => Ok(Self::PerSequence(advantage)),
            (false, true) => Ok(Self::PerToken(advantage)),
            (false, false) => Err(Error::new(
                ErrorKind::ShapeMismatch,
                format!(
                    "{name} length must be {num_sequences} (sequences) or {num_tokens} (tokens): got {}",
                    advantage.len()
                ),
            )),
        }
    }

    fn check(&self, num_tokens: usize, num_sequences: usize) -> Result<()> {
        match self {
            Self::PerSequence(advantage_s) => {
                check_len("advantage", advantage_s.len(), "number of sequences", num_sequences)
            }
            Self::PerToken(advantage_t) => check_len("advantage", advantage_t.len(), "log_prob", num_tokens),
        }
    }
}

impl<T: Real> Advantage<'_, T> {
    /// Returns the advantage of a trained token.
    pub(crate) fn at(&self, token: Token) -> Result<f64> {
        let (index, advantage) = match self {
            Self::PerSequence(advantage_s) => (token.sequence, advantage_s[token.sequence]),
            Self::PerToken(advantage_t) => (token.index, advantage_t[token.index]),
        };
        finite("advantage", index, advantage.into())
    }
}

/// The inputs of a policy-gradient loss. All slices have one entry for each token unless stated otherwise.
#[derive(Debug, Clone, Copy)]
pub struct LossBatch<'a, T = f32> {
    /// Log-probabilities of the tokens under the policy in training.
    pub log_prob: &'a [T],
    /// Log-probabilities under the policy that sampled them. On-policy: the same slice as `log_prob`.
    pub old_log_prob: &'a [T],
    /// Log-probabilities under a frozen reference.
    pub ref_log_prob: Option<&'a [T]>,
    /// Log-probabilities from the program that sampled the tokens, if it differs from the one of
    /// `old_log_prob`.
    pub sampler_log_prob: Option<&'a [T]>,
    /// Entropy of the current distribution at each token, in nats.
    pub entropy: Option<&'a [T]>,
    /// The advantage, per sequence or per token.
    pub advantage: Advantage<'a, T>,
    /// 1 where the token is trained, else 0.
    pub mask: &'a [u8],
    /// `[S + 1]` bounds of the sequences, from 0 to `T`.
    pub offsets: &'a [u32],
}

impl<T: Real> LossBatch<'_, T> {
    /// Checks every length against every other, then lists the trained tokens.
    pub(crate) fn trained(&self, may_be_empty: bool) -> Result<Vec<Token>> {
        let num_tokens = self.log_prob.len();
        check_len("old_log_prob", self.old_log_prob.len(), "log_prob", num_tokens)?;
        check_optional("ref_log_prob", self.ref_log_prob, num_tokens)?;
        check_optional("sampler_log_prob", self.sampler_log_prob, num_tokens)?;
        check_optional("entropy", self.entropy, num_tokens)?;
        let tokens = trained_tokens(num_tokens, self.mask, self.offsets, may_be_empty)?;
        self.advantage.check(num_tokens, self.offsets.len() - 1)?;
        Ok(tokens)
    }
}

/// The inputs of a supervised loss.
#[derive(Debug, Clone, Copy)]
pub struct SftBatch<'a, T = f32> {
    /// `[T]` log-probabilities of the tokens under the policy in training.
    pub log_prob: &'a [T],
    /// `[T]` log-probabilities under a frozen reference.
    pub ref_log_prob: Option<&'a [T]>,
    /// `[T]` 1 where the token is trained, else 0.
    pub mask: &'a [u8],
    /// `[S + 1]` bounds of the sequences, from 0 to `T`.
    pub offsets: &'a [u32],
}

impl<T: Real> SftBatch<'_, T> {
    pub(crate) fn trained(&self, may_be_empty: bool) -> Result<Vec<Token>> {
        check_optional("ref_log_prob", self.ref_log_prob, self.log_prob.len())?;
        trained_tokens(self.log_prob.len(), self.mask, self.offsets, may_be_empty)
    }
}

/// The position of one trained token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub index: usize,
    pub sequence: usize,
}

/// Returns the trained tokens in order. There must be at least one, unless `may_be_empty`: with denominators
/// of a whole optimizer step, a micro-batch without trained tokens adds 0.
fn trained_tokens(num_tokens: usize, mask: &[u8], offsets: &[u32], may_be_empty: bool) -> Result<Vec<Token>> {
    check_len("mask", mask.len(), "log_prob", num_tokens)?;
    check_offsets(offsets, num_tokens)?;
    check_mask(mask)?;
    let mut tokens = Vec::with_capacity(num_tokens);
    for (sequence, pair) in offsets.windows(2).enumerate() {
        let range = pair[0] as usize..pair[1] as usize;
        tokens.extend(range.filter(|&index| mask[index] == 1).map(|index| Token { index, sequence }));
    }
    if tokens.is_empty() && !may_be_empty {
        let detail = format!("mask must train at least one token: got 0 of {num_tokens}");
        return Err(Error::new(ErrorKind::Empty, detail));
    }
    Ok(tokens)
}

pub(crate) fn check_len(name: &str, len: usize, against: &str, expected: usize) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    let detail = format!("{name} length must equal {against} = {expected}: got {len}");
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

pub(crate) fn check_optional<T>(name: &str, values: Option<&[T]>, expected: usize) -> Result<()> {
    values.map_or(Ok(()), |values| check_len(name, values.len(), "log_prob", expected))
}

/// Checks that offsets start at 0, never decrease, and end at `num_items`.
pub(crate) fn check_offsets(offsets: &[u32], num_items: usize) -> Result<()> {
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::new(ErrorKind::Empty, "offsets must hold at least one bound: got []"));
    };
    if first != 0 {
        return Err(Error::new(ErrorKind::OutOfRange, format!("offsets[0] must be 0: got {first}")));
    }
    if let Some(index) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        let (low, high) = (offsets[index], offsets[index + 1]);
        let detail = format!("offsets[{}] must be >= offsets[{index}] = {low}: got {high}", index + 1);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    if last as usize != num_items {
        let detail = format!("last offset must equal the number of tokens = {num_items}: got {last}");
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(())
}

pub(crate) fn check_mask(mask: &[u8]) -> Result<()> {
    mask.iter().position(|&bit| bit > 1).map_or(Ok(()), |index| {
        let detail = format!("mask[{index}] must be 0 or 1: got {}", mask[index]);
        Err(Error::new(ErrorKind::OutOfRange, detail))
    })
}

/// Returns `value` if it is finite, else an error that names it: for a computed number, which may have
/// overflowed.
pub(crate) fn finite_value(name: &str, value: f64) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::new(ErrorKind::NonFinite, format!("{name} must be finite: got {value}")))
}

/// Returns `value` if it is finite, else an error that names the position.
pub(crate) fn finite(name: &str, index: usize, value: f64) -> Result<f64> {
    if value.is_finite() {
        return Ok(value);
    }
    Err(Error::new(ErrorKind::NonFinite, format!("{name}[{index}] must be finite: got {value}")))
}
