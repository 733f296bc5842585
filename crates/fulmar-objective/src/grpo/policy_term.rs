//! The policy term: the surrogate of each token, and its gradient.

use super::{GrpoLoss, Scored, Term, sequences};
use crate::surrogate::{RatioLevel, Surrogate, sigmoid};

impl GrpoLoss {
    pub(super) fn add_policy(&self, tokens: &mut [Scored], grad_t: &mut [f64]) -> Term {
        let (mut loss, mut sum) = (0.0, 0.0);
        for sequence in sequences(tokens) {
            let sequence_weight = self.sequence_weight(sequence);
            let mut shared = 0.0;
            for t in &*sequence {
                // VESPO includes the corrections in the weight of the sequence.
                let is_vespo = matches!(self.options.surrogate, Surrogate::Vespo { .. });
                let factor = match t.factor {
                    _ if !t.is_chosen => 0.0,
                    factor if is_vespo && factor > 0.0 => 1.0,
                    factor => factor,
                };
                let (value, gradient) = self.surrogate(t, sequence_weight);
                loss += t.weight * factor * value;
                sum += factor * value;
                if self.shares_gradient() {
                    shared += t.weight * factor * gradient;
                } else if self.holds_ratio() || !t.is_clamped {
                    grad_t[t.token.index] += t.weight * factor * gradient;
                }
            }
            let shared = shared / self.shared_among(sequence);
            for t in sequence.iter().filter(|t| self.shares_gradient() && self.passes(t) && !t.is_clamped) {
                grad_t[t.token.index] += shared;
            }
        }
        Term { loss, mean: sum / tokens.len().max(1) as f64 }
    }

    /// Returns whether the ratio of a sequence has the same gradient with respect to each of its tokens'
    /// log-probabilities.
    pub(super) fn shares_ratio(&self) -> bool {
        matches!(self.options.ratio, RatioLevel::Sequence | RatioLevel::SequenceProduct)
    }

    /// Returns whether the surrogate weighs `log p` with a ratio without gradient.
    fn holds_ratio(&self) -> bool {
        matches!(self.options.surrogate, Surrogate::Cispo { .. } | Surrogate::Vespo { .. })
    }

    /// Returns whether the policy term of a sequence has the same gradient with respect to each of its
    /// tokens' log-probabilities.
    fn shares_gradient(&self) -> bool {
        self.shares_ratio() && !self.holds_ratio() || self.options.surrogate == Surrogate::Gmpo
    }

    /// Returns the divisor of a sequence's sum of log-ratios: its length for a geometric mean, 1 for a
    /// product.
    pub(super) fn shared_among(&self, sequence: &[Scored]) -> f64 {
        if self.options.ratio == RatioLevel::SequenceProduct { 1.0 } else { sequence.len() as f64 }
    }

    /// Returns whether a token contributes to the gradient of its sequence's ratio.
    fn passes(&self, t: &Scored) -> bool {
        let [low_log, high_log] = self.clip_log;
        self.options.surrogate != Surrogate::Gmpo
            || if t.advantage > 0.0 { t.log_ratio <= high_log } else { t.log_ratio >= low_log }
    }

    /// Returns the statistic of the whole sequence: the log-ratio of VESPO, the mean of GMPO's clipped
    /// log-ratios.
    fn sequence_weight(&self, sequence: &[Scored]) -> f64 {
        let [low_log, high_log] = self.clip_log;
        match self.options.surrogate {
            Surrogate::Vespo { .. } => {
                let corrected = |t: &Scored| {
                    t.log_ratio.clamp(-20.0, 20.0) + if t.factor > 0.0 { libm::log(t.factor) } else { 0.0 }
                };
                let log_ratio = sequence.iter().map(corrected).sum::<f64>();
                log_ratio.clamp(VESPO_LOG_MIN, VESPO_LOG_MAX)
            }
            Surrogate::Gmpo => {
                let clipped = |t: &Scored| {
                    if t.advantage > 0.0 { t.log_ratio.min(high_log) } else { t.log_ratio.max(low_log) }
                };
                sequence.iter().map(clipped).sum::<f64>() / sequence.len() as f64
            }
            _ => 0.0,
        }
    }

    /// Returns `L` and `dL/dl` of one token. Uses branches instead of products, so that no `inf * 0` arises.
    pub(super) fn surrogate(&self, t: &Scored, sequence_weight: f64) -> (f64, f64) {
        let a = t.advantage;
        let plain = |ratio: f64| (-ratio * a, -ratio * a);
        match self.options.surrogate {
            Surrogate::Clip => self.clipped(t),
            Surrogate::None => plain(libm::exp(t.push)),
            Surrogate::Gmpo => plain(libm::exp(sequence_weight)),
            Surrogate::Cispo { cap } => {
                let weight = libm::exp(t.push).min(cap);
                (-weight * a * t.log_prob, -weight * a)
            }
            Surrogate::Vespo { positive, negative } => {
                let phi = if a >= 0.0 { positive } else { negative }.at(sequence_weight);
                (-phi * a * t.log_prob, -phi * a)
            }
            Surrogate::Sapo { tau_positive, tau_negative } => {
                let tau = if a > 0.0 { tau_positive } else { tau_negative };
                let ratio = libm::exp(t.push);
                let gate = sigmoid(tau * (ratio - 1.0));
                (-4.0 / tau * gate * a, -4.0 * gate * (1.0 - gate) * ratio * a)
            }
            Surrogate::Dppo { delta } => {
                let moved = libm::exp(t.log_prob) - libm::exp(t.old_log_prob);
                let too_far = if a > 0.0 { moved > delta } else { moved < -delta };
                if too_far { (0.0, 0.0) } else { plain(t.ratio) }
            }
        }
    }

    pub(super) fn clipped(&self, t: &Scored) -> (f64, f64) {
        let (clip, [low_log, high_log]) = (self.options.clip_epsilon, self.clip_log);
        let ratio = libm::exp(t.push);
        let bound = if t.advantage >= 0.0 {
            (t.push > high_log).then_some(1.0 + clip.high)
        } else if t.push < low_log {
            Some(1.0 - clip.low)
        } else {
            self.options.dual_clip.filter(|&delta| ratio > delta)
        };
        match bound {
            Some(bound) => (-bound * t.advantage, 0.0),
            None => (-ratio * t.advantage, -ratio * t.advantage),
        }
    }
}

/// VESPO's bounds on the log-ratio of a sequence: the logarithm of 1e-8, and 20, where `e^20` is still a
/// finite weight.
const VESPO_LOG_MIN: f64 = -18.420_680_743_952_367;

const VESPO_LOG_MAX: f64 = 20.0;
