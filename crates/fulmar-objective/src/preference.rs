//! Losses of preference pairs. With the log-ratios `c = log pi(chosen) - log ref(chosen)` and `r` likewise of
//! the rejected answer, `x = beta (c - r)`, `s` the sigmoid, `e` the label smoothing and `l(x) = -log s(x)`:
//!
//! | loss | value | paper |
//! |---|---|---|
//! | sigmoid (DPO) | `l(x)` | <https://arxiv.org/abs/2305.18290> |
//! | hinge (SLiC) | `max(0, 1 - x)` | <https://arxiv.org/abs/2305.10425> |
//! | ipo | `(c / len_c - r / len_r - 1 / (2 beta))^2` | <https://arxiv.org/abs/2310.12036> |
//! | exoPair | `q log(q / (1 - e)) + (1 - q) log((1 - q) / e)`, `q = s(x)` | <https://arxiv.org/abs/2402.00856> |
//! | ncaPair | `l(beta c) + l(-beta c) / 2 + l(-beta r) / 2` | <https://arxiv.org/abs/2402.05369> |
//! | robust | `((1 - e) l(x) - e l(-x)) / (1 - 2 e)` | <https://arxiv.org/abs/2403.00409> |
//! | bcoPair | `l(beta c) + l(-beta r)` | <https://arxiv.org/abs/2404.04656> |
//! | sppoHard | `(c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2` | <https://arxiv.org/abs/2405.00675> |
//! | aot | `(1 - e) l(y) + e l(-y)`, `y = beta (d - d_ref)`: sorted differences of the policy and of the reference | <https://arxiv.org/abs/2406.05882> |
//! | aotUnpaired | the same with `y = beta (c - r)`, both sorted independently | the same |
//! | apoZero | `s(-beta c) + s(beta r)` | <https://arxiv.org/abs/2408.06266> |
//! | apoDown | `s(beta c) + s(-x)` | the same |
//! | discopop | `(1 - m) l(x) + m e^-x`, `m = s(x / tau)` | <https://arxiv.org/abs/2406.08414> |
//! | sft | `-log pi(chosen)`, the mean over tokens | |
//! | sigmoidNorm | `l(beta (c / len_c - r / len_r))` | <https://arxiv.org/abs/2405.14734> |
//!
//! Under another divergence `c` and `r` become scores `f'(e^c)` and `f'(e^r)`, <https://arxiv.org/abs/2309.16240>.

use serde::Deserialize;

use crate::bradley_terry::softplus;
use crate::surrogate::sigmoid;

/// The loss of a pair, see the module.
///
/// # Examples
/// ```
/// use fulmar_objective::DpoLossType;
/// assert_ne!(DpoLossType::default(), DpoLossType::Ipo);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DpoLossType {
    /// Direct preference optimisation.
    #[default]
    Sigmoid,
    /// Sequence likelihood calibration.
    Hinge,
    /// Identity preference optimisation, by means over tokens.
    Ipo,
    /// Efficient exact optimisation; needs label smoothing.
    ExoPair,
    /// Noise contrastive alignment.
    NcaPair,
    /// DPO for labels of which a share, the label smoothing, is wrong.
    Robust,
    /// Binary classifier optimisation without its shift.
    BcoPair,
    /// Self-play preference optimisation with hard probabilities.
    SppoHard,
    /// Alignment by optimal transport of differences.
    Aot,
    /// Alignment by optimal transport of unpaired chosen and rejected answers.
    AotUnpaired,
    /// Anchored optimisation, for chosen answers that are better than the model.
    ApoZero,
    /// Anchored optimisation, for chosen answers that are worse than the model.
    ApoDown,
    /// The loss discovered by a language model.
    Discopop,
    /// The likelihood of the chosen answers, to be mixed with another loss.
    Sft,
    /// DPO by means over tokens.
    SigmoidNorm,
}

/// The inputs of the formulas besides a pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairShape {
    pub beta: f64,
    pub label_smoothing: f64,
    pub discopop_tau: f64,
}

impl DpoLossType {
    /// Returns the name of its term in metrics.
    pub(crate) const fn metric(self) -> &'static str {
        match self {
            Self::Sigmoid => "sigmoidLoss",
            Self::Hinge => "hingeLoss",
            Self::Ipo => "ipoLoss",
            Self::ExoPair => "exoPairLoss",
            Self::NcaPair => "ncaPairLoss",
            Self::Robust => "robustLoss",
            Self::BcoPair => "bcoPairLoss",
            Self::SppoHard => "sppoHardLoss",
            Self::Aot => "aotLoss",
            Self::AotUnpaired => "aotUnpairedLoss",
            Self::ApoZero => "apoZeroLoss",
            Self::ApoDown => "apoDownLoss",
            Self::Discopop => "discopopLoss",
            Self::Sft => "sftLoss",
            Self::SigmoidNorm => "sigmoidNormLoss",
        }
    }

    /// Returns whether it uses label smoothing.
    pub(crate) const fn smooths(self) -> bool {
        matches!(self, Self::ExoPair | Self::Robust | Self::Aot | Self::AotUnpaired)
    }

    /// Returns whether it sorts the whole batch, so that its pairs are not the given ones.
    pub(crate) const fn sorts(self) -> bool {
        matches!(self, Self::Aot | Self::AotUnpaired)
    }

    /// Returns whether it compares means over tokens.
    pub(crate) const fn averages(self) -> bool {
        matches!(self, Self::Ipo | Self::SigmoidNorm)
    }

    /// Returns whether it uses differences of scores, as other divergences than the reverse KL need.
    pub(crate) const fn takes_scores(self) -> bool {
        matches!(
            self,
            Self::Sigmoid
                | Self::SigmoidNorm
                | Self::Hinge
                | Self::Ipo
                | Self::ExoPair
                | Self::Robust
                | Self::Discopop
                | Self::Sft
        )
    }

    /// Returns the value of a pair, and its derivatives with respect to `c` and `r`. [`DpoLossType::Sft`] is
    /// not a function of them.
    pub(crate) fn at(self, [c, r]: [f64; 2], shape: &PairShape) -> (f64, [f64; 2]) {
        let PairShape { beta, label_smoothing: e, discopop_tau: tau } = *shape;
        let x = beta * (c - r);
        let of_margin = |(value, slope): (f64, f64)| (value, [beta * slope, -beta * slope]);
        let of_each = |chosen: (f64, f64), rejected: (f64, f64)| {
            (chosen.0 + rejected.0, [beta * chosen.1, beta * rejected.1])
        };
        let smoothed = |wrong: f64| {
            let ((right, right_slope), (flipped, flipped_slope)) = (log_loss(x), minus(log_loss(-x)));
            ((1.0 - e) * right + wrong * flipped, (1.0 - e) * right_slope + wrong * flipped_slope)
        };
        match self {
            Self::Sigmoid | Self::SigmoidNorm => of_margin(log_loss(x)),
            Self::Hinge => of_margin(if x < 1.0 { (1.0 - x, -1.0) } else { (0.0, 0.0) }),
            Self::Ipo => {
                let off = c - r - 0.5 / beta;
                (off * off, [2.0 * off, -2.0 * off])
            }
            Self::ExoPair => {
                let (q, log_right, log_wrong) = (sigmoid(x), libm::log1p(-e), libm::log(e));
                let value = q * (-softplus(-x) - log_right) + sigmoid(-x) * (-softplus(x) - log_wrong);
                of_margin((value, q * sigmoid(-x) * (x - log_right + log_wrong)))
            }
            Self::Robust => {
                let (value, slope) = smoothed(-e);
                of_margin((value / (1.0 - 2.0 * e), slope / (1.0 - 2.0 * e)))
            }
            Self::Aot | Self::AotUnpaired => of_margin(smoothed(e)),
            Self::NcaPair => {
                let (up, down) = (log_loss(beta * c), minus(log_loss(-beta * c)));
                let (value, slope) = minus(log_loss(-beta * r));
                of_each((up.0 + 0.5 * down.0, up.1 + 0.5 * down.1), (0.5 * value, 0.5 * slope))
            }
            Self::BcoPair => of_each(log_loss(beta * c), minus(log_loss(-beta * r))),
            Self::SppoHard => {
                let (off_c, off_r) = (c - 0.5 / beta, r + 0.5 / beta);
                (off_c * off_c + off_r * off_r, [2.0 * off_c, 2.0 * off_r])
            }
            Self::ApoZero => of_each(minus(gate(-beta * c)), gate(beta * r)),
            Self::ApoDown => {
                let (behind, slope) = minus(gate(-x));
                let (value, [by_c, by_r]) = of_each(gate(beta * c), (0.0, 0.0));
                (value + behind, [by_c + beta * slope, by_r - beta * slope])
            }
            Self::Discopop => {
                let ((plain, plain_slope), (_, mix_slope)) = (log_loss(x), gate(x / tau));
                // Returns `m e^-x` and its derivative, in one exponent: the factors alone overflow.
                let steep = libm::exp(-x - softplus(-x / tau));
                let rest = sigmoid(-x / tau);
                let value = rest * plain + steep;
                of_margin((value, rest * plain_slope - mix_slope / tau * plain + steep * (rest / tau - 1.0)))
            }
            Self::Sft => (0.0, [0.0, 0.0]),
        }
    }
}

/// Returns `-log s(x)` and its derivative.
fn log_loss(x: f64) -> (f64, f64) {
    (softplus(-x), -sigmoid(-x))
}

/// Returns `s(x)` and its derivative.
pub(crate) fn gate(x: f64) -> (f64, f64) {
    (sigmoid(x), sigmoid(x) * sigmoid(-x))
}

/// Returns the derivative of `f(-x)` from that of `f`.
const fn minus((value, slope): (f64, f64)) -> (f64, f64) {
    (value, -slope)
}

/// The `f`-divergence from the reference; the score of a log-ratio `c` is `f'(e^c)`.
///
/// # Examples
/// ```
/// use fulmar_objective::FDivergence;
/// assert_eq!(FDivergence::ForwardKl.score(0.0), (0.0, 1.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FDivergence {
    /// `c`.
    #[default]
    ReverseKl,
    /// `1 - e^-c`.
    ForwardKl,
    /// `log 2 + log s(c)`.
    JsDivergence,
    /// `(e^((a - 1) c) - 1) / (a - 1)` with `a` as given: the reverse KL at 1, the forward one at 0.
    AlphaDivergence(f64),
}

impl FDivergence {
    /// Returns the score of a log-ratio, and its derivative.
    #[must_use]
    pub fn score(self, c: f64) -> (f64, f64) {
        match self {
            Self::ReverseKl => (c, 1.0),
            Self::ForwardKl => Self::AlphaDivergence(0.0).score(c),
            Self::JsDivergence => (std::f64::consts::LN_2 - softplus(-c), sigmoid(-c)),
            Self::AlphaDivergence(alpha) if (alpha - 1.0).abs() < 1e-6 => (c, 1.0),
            Self::AlphaDivergence(alpha) => {
                let power = (alpha - 1.0) * c;
                let inside = power.min(SCORE_POWER_MAX);
                let slope = if power > inside { 0.0 } else { libm::exp(inside) };
                (libm::expm1(inside) / (alpha - 1.0), slope)
            }
        }
    }
}

/// Score exponents above it are clamped, as in TRL: `e^80` is still a finite single.
const SCORE_POWER_MAX: f64 = 80.0;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [DpoLossType; 15] = [
        DpoLossType::Sigmoid,
        DpoLossType::Hinge,
        DpoLossType::Ipo,
        DpoLossType::ExoPair,
        DpoLossType::NcaPair,
        DpoLossType::Robust,
        DpoLossType::BcoPair,
        DpoLossType::SppoHard,
        DpoLossType::Aot,
        DpoLossType::AotUnpaired,
        DpoLossType::ApoZero,
        DpoLossType::ApoDown,
        DpoLossType::Discopop,
        DpoLossType::Sft,
        DpoLossType::SigmoidNorm,
    ];

    #[test]
    fn every_loss_has_the_derivatives_of_its_value() {
        let step = 1e-6;
        for loss in ALL {
            for label_smoothing in [0.01, 0.3] {
                let shape = PairShape { beta: 0.4, label_smoothing, discopop_tau: 0.05 };
                for (c, r) in [(0.3, -0.7), (-2.0, 1.5), (0.0, 0.1), (6.0, -3.0), (-0.4, -0.5)] {
                    let (_, slopes) = loss.at([c, r], &shape);
                    let value = |c, r| loss.at([c, r], &shape).0;
                    let by_c = (value(c + step, r) - value(c - step, r)) / (2.0 * step);
                    let by_r = (value(c, r + step) - value(c, r - step)) / (2.0 * step);
                    for (slope, want) in slopes.into_iter().zip([by_c, by_r]) {
                        assert!(
                            (slope - want).abs() <= 1e-7 * want.abs().max(1.0),
                            "{loss:?} ({c}, {r}): {slope} against {want}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn far_apart_answers_stay_finite() {
        let shape = PairShape { beta: 1.0, label_smoothing: 0.1, discopop_tau: 0.05 };
        for loss in ALL {
            for pair in [[1e4, -1e4], [-1e4, 1e4]] {
                let (value, slopes) = loss.at(pair, &shape);
                assert!(
                    value.is_finite() && slopes.iter().all(|slope| slope.is_finite()),
                    "{loss:?} {pair:?}"
                );
            }
        }
    }

    #[test]
    fn every_divergence_scores_equal_policies_0_with_slope_1_or_less() {
        let all = [
            FDivergence::ReverseKl,
            FDivergence::ForwardKl,
            FDivergence::JsDivergence,
            FDivergence::AlphaDivergence(0.5),
            FDivergence::AlphaDivergence(2.0),
        ];
        for divergence in all {
            assert!(divergence.score(0.0).0.abs() < 1e-15, "{divergence:?}");
            for c in [-3.0, -0.5, 0.0, 0.4, 2.0] {
                let slope = (divergence.score(c + 1e-6).0 - divergence.score(c - 1e-6).0) / 2e-6;
                assert!((divergence.score(c).1 - slope).abs() < 1e-7, "{divergence:?} at {c}");
            }
        }
        assert_eq!(FDivergence::AlphaDivergence(1.0).score(0.7), (0.7, 1.0));
        assert_eq!(FDivergence::ForwardKl.score(-1e4).1, 0.0);
        assert!(FDivergence::ForwardKl.score(-1e4).0.is_finite());
    }
}
