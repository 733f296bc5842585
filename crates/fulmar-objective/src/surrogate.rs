//! The policy term of a token, given its ratio `r = p / p_old` and its advantage `A`: the rules by which
//! losses of the GRPO family differ.
//!
//! | rule | value | gradient with respect to `log p` |
//! |---|---|---|
//! | clip (PPO, GRPO, DAPO, GSPO) | `-min(r A, clip(r) A)` | `-r A`, or 0 where clipped |
//! | CISPO, <https://arxiv.org/abs/2506.13585> | `-min(r, cap) A log p`, no gradient through the weight |
//! `-min(r, cap) A` |
//! | SAPO, <https://arxiv.org/abs/2511.20347> | `-4 / tau sigmoid(tau (r - 1)) A` | `-4 s (1 - s) r A`, `s` the sigmoid |
//! | VESPO, <https://arxiv.org/abs/2602.10693> | `-phi(W) A log p`, `W` the ratio of the sequence, no gradient through the weight | `-phi(W) A` |
//! | GMPO, <https://arxiv.org/abs/2507.20673> | `-exp(mean of one-sidedly clipped log r) A` | that over the tokens, 0 at clipped ones |
//! | DPPO | `-r A`, 0 where `p` is too far from `p_old` | the same |
//! | none | `-r A` | `-r A` |

use fulmar_core::Result;
use serde::Deserialize;

use crate::Clip;
use crate::clip::out_of_range;

/// The level at which the ratio of a token's policy term is computed.
///
/// # Examples
/// ```
/// use fulmar_objective::RatioLevel;
/// assert_eq!(RatioLevel::default(), RatioLevel::Token);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RatioLevel {
    /// The token's own ratio.
    #[default]
    Token,
    /// The geometric mean over its sequence, whose gradient all tokens share (GSPO, <https://arxiv.org/abs/2507.18071>).
    Sequence,
    /// The value of [`RatioLevel::Sequence`] with the gradient of the token alone, for advantages that differ from token to token.
    SequenceToken,
    /// The product over its sequence, whose gradient all tokens share (RLOO,
    /// <https://arxiv.org/abs/2402.14740>): the answer is one action.
    SequenceProduct,
}

impl RatioLevel {
    /// Returns its name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Sequence => "sequence",
            Self::SequenceToken => "sequenceToken",
            Self::SequenceProduct => "sequenceProduct",
        }
    }
}

/// VESPO's `phi(W) = W^k e^(lambda (1 - W))`, which is 1 at `W = 1` and 0 far from it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// The power of `W`, at least 0.
    pub k: f64,
    /// The rate of decrease, at least 0.
    pub lambda: f64,
}

impl Envelope {
    /// Returns `phi` of a sequence with the log-ratio `log_weight`.
    pub(crate) fn at(self, log_weight: f64) -> f64 {
        libm::exp(self.lambda + self.k * log_weight - self.lambda * libm::exp(log_weight))
    }
}

/// The rule, see the module.
///
/// # Examples
/// ```
/// use fulmar_objective::{Envelope, Surrogate};
/// let vespo = Surrogate::Vespo { positive: Envelope { k: 2.0, lambda: 3.0 }, negative: Envelope { k: 3.0, lambda: 2.0 } };
/// assert_ne!(vespo, Surrogate::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Surrogate {
    /// The ratio clipped by `clip_epsilon`, and by `dual_clip`.
    #[default]
    Clip,
    /// The capped ratio as a weight: no token loses its gradient.
    Cispo {
        /// The largest weight, above 0: a bound on the ratio itself, not on its distance from 1.
        cap: f64,
    },
    /// A soft gate around 1.
    Sapo {
        /// Sharpness of the gate for positive advantages, above 0.
        tau_positive: f64,
        /// Sharpness of the gate for other advantages, above 0.
        tau_negative: f64,
    },
    /// The ratio of the whole sequence as a weight that vanishes far from 1.
    Vespo {
        /// The envelope for advantages of at least 0.
        positive: Envelope,
        /// The envelope for negative advantages.
        negative: Envelope,
    },
    /// The geometric mean of individually clipped ratios; `clip_epsilon` are distances of `log r` from 0.
    Gmpo,
    /// Drops tokens whose probability left the old one by more than `delta` in the direction of their
    /// advantage.
    Dppo {
        /// The bound, above 0.
        delta: f64,
    },
    /// The unclipped ratio.
    None,
}

impl Surrogate {
    pub(crate) fn checked(self) -> Result<Self> {
        let positive = |name: &str, value: f64| {
            if value.is_finite() && value > 0.0 {
                Ok(())
            } else {
                Err(out_of_range(&format!("{name} must be a finite number > 0"), value))
            }
        };
        match self {
            Self::Cispo { cap } => positive("cispo.cap", cap)?,
            Self::Sapo { tau_positive, tau_negative } => {
                positive("sapo.tauPositive", tau_positive)?;
                positive("sapo.tauNegative", tau_negative)?;
            }
            Self::Vespo { positive, negative } => {
                for (name, value) in [
                    ("vespo.positive.k", positive.k),
                    ("vespo.positive.lambda", positive.lambda),
                    ("vespo.negative.k", negative.k),
                    ("vespo.negative.lambda", negative.lambda),
                ] {
                    if !(value.is_finite() && value >= 0.0) {
                        return Err(out_of_range(&format!("{name} must be a finite number >= 0"), value));
                    }
                }
            }
            Self::Dppo { delta } => positive("dppo.delta", delta)?,
            Self::Clip | Self::Gmpo | Self::None => {}
        }
        Ok(self)
    }

    /// Returns the log-ratios beyond which a token counts as clipped.
    pub(crate) fn clip_log(self, clip: Clip) -> [f64; 2] {
        match self {
            Self::Clip => [libm::log1p(-clip.low), libm::log1p(clip.high)],
            Self::Gmpo => [-clip.low, clip.high],
            Self::Cispo { cap } => [f64::NEG_INFINITY, libm::log(cap)],
            Self::Sapo { .. } | Self::Vespo { .. } | Self::Dppo { .. } | Self::None => {
                [f64::NEG_INFINITY, f64::INFINITY]
            }
        }
    }
}

/// Returns `1 / (1 + e^-x)`, without overflow.
pub(crate) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + libm::exp(-x))
    } else {
        let small = libm::exp(x);
        small / (1.0 + small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sigmoid_never_overflows() {
        assert_eq!((sigmoid(0.0), sigmoid(1e9), sigmoid(-1e9)), (0.5, 1.0, 0.0));
    }

    #[test]
    fn the_envelope_is_one_on_policy_and_falls_on_both_sides() {
        let phi = Envelope { k: 2.0, lambda: 3.0 };
        assert_eq!(phi.at(0.0), 1.0);
        assert!(phi.at(3.0) < 1e-10 && phi.at(-10.0) < 1e-6);
    }
}
