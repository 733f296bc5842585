//! Metrics of a batch in addition to its loss.

use super::{Dropped, GrpoLoss, SAMPLER_LOG_RATIO_SHOWN, Scored, Term};
use crate::kl::KlEstimator;
use crate::output::Metric;

impl GrpoLoss {
    /// Returns the metrics of corrections, if there is a sampler or a rule that rejects.
    pub(super) fn correction_metrics(
        &self,
        has_sampler: bool,
        tokens: &[Scored],
        dropped: &Dropped,
        metrics: &mut Vec<Metric>,
    ) {
        let denominator = tokens.len() as f64;
        let mean = |name, sum: f64| Metric { name, value: sum / denominator.max(1.0), denominator };
        if has_sampler {
            let ratio = |t: &Scored| libm::exp(t.sampler_log_ratio.min(SAMPLER_LOG_RATIO_SHOWN));
            let num_lacking = tokens.iter().filter(|t| t.lacks_sampler).count() as f64;
            let known = denominator - num_lacking;
            let off = tokens.iter().fold(0.0, |sum, t| sum + t.sampler_log_ratio.abs());
            let max = tokens.iter().map(ratio).fold(0.0, f64::max);
            let factor = tokens.iter().map(|t| t.factor).fold(0.0, f64::max);
            let truncated = tokens.iter().filter(|t| t.is_truncated).count();
            let shown = |t: &Scored| t.sampler_log_ratio.min(SAMPLER_LOG_RATIO_SHOWN);
            let kl: f64 = tokens.iter().map(|t| KlEstimator::K3.at(shown(t)).0).sum();
            metrics.extend([
                mean("samplerRatioMean", tokens.iter().map(ratio).sum()),
                Metric { name: "samplerRatioMax", value: max, denominator: 1.0 },
                Metric { name: "samplerLogRatioAbs", value: off / known.max(1.0), denominator: known },
                Metric { name: "samplerKl", value: kl / known.max(1.0), denominator: known },
                mean("correctionMean", tokens.iter().map(|t| t.factor).sum()),
                Metric { name: "correctionMax", value: factor, denominator: 1.0 },
                mean("correctionFraction", truncated as f64),
                Metric { name: "numSamplerUnknown", value: num_lacking, denominator: 1.0 },
            ]);
        }
        if !self.options.corrections.is_empty() || self.options.off_policy_threshold.is_some() {
            metrics.push(Metric { name: "numRejected", value: dropped.rejected as f64, denominator: 1.0 });
        }
    }

    /// Returns the terms `[policy, to_ref, to_inference, entropy]` of the loss, then their means over tokens.
    pub(super) fn term_metrics(&self, terms: [Option<Term>; 4], num_tokens: usize) -> Vec<Metric> {
        let options = &self.options;
        let in_loss = [
            true,
            options.kl_to_ref.coefficient > 0.0,
            options.kl_to_inference.coefficient > 0.0,
            options.entropy_coefficient > 0.0,
        ];
        let names = ["policyLoss", "klToRefLoss", "klToInferenceLoss", "entropyLoss"];
        let losses = (0..4).filter(|&index| in_loss[index]).filter_map(|index| {
            terms[index].map(|term| Metric { name: names[index], value: term.loss, denominator: 1.0 })
        });
        let means = ["klToRef", "klToInference", "entropy"].into_iter().zip(&terms[1..]).filter_map(
            |(name, term)| term.map(|term| Metric { name, value: term.mean, denominator: num_tokens as f64 }),
        );
        losses.chain(means).collect()
    }

    pub(super) fn ratio_metrics(&self, tokens: &[Scored], metrics: &mut Vec<Metric>) {
        let [low_log, high_log] = self.clip_log;
        let (mut low, mut high, mut clipped, mut dual) = (0.0, 0.0, 0.0, 0.0);
        let (mut kl, mut kl_approx, mut ratio, mut ratio_max) = (0.0, 0.0, 0.0, 0.0_f64);
        let share = |hit: bool| f64::from(u8::from(hit));
        for t in tokens {
            let (below, above) = (t.push < low_log, t.push > high_log);
            clipped += share(below || above);
            low += share(below && t.advantage < 0.0);
            high += share(above && t.advantage > 0.0);
            dual += share(t.advantage < 0.0 && self.options.dual_clip.is_some_and(|delta| t.ratio > delta));
            kl += KlEstimator::K3.at(t.log_ratio).0;
            kl_approx -= t.log_ratio;
            ratio += t.ratio;
            ratio_max = ratio_max.max(t.ratio);
        }
        let denominator = tokens.len() as f64;
        let mean = |name, sum: f64| Metric { name, value: sum / denominator.max(1.0), denominator };
        metrics.extend([
            mean("clipFraction", clipped),
            mean("clipFractionLow", low),
            mean("clipFractionHigh", high),
        ]);
        metrics.extend(self.options.dual_clip.map(|_| mean("dualClipFraction", dual)));
        metrics.extend([mean("kl", kl), mean("klApprox", kl_approx), mean("ratioMean", ratio)]);
        metrics.push(Metric { name: "ess", value: effective_share(tokens, ratio_max), denominator });
        metrics.push(Metric { name: "ratioMax", value: ratio_max, denominator: 1.0 });
    }
}

/// Returns the quantile of `values` at `share`, in `[0, 1)`, with linear interpolation. Uses single
/// precision, as `torch.quantile` does for `float32`, so that a share that falls on a value gives that value.
/// 0 without values.
pub(super) fn quantile_of(values: &[f64], share: f64) -> f64 {
    let mut sorted: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    sorted.sort_by(f32::total_cmp);
    let rank = share as f32 * sorted.len().saturating_sub(1) as f32;
    let below = rank.floor();
    let (Some(&low), part) = (sorted.get(below as usize), rank - below) else { return 0.0 };
    let high = sorted.get(below as usize + 1).copied().unwrap_or(low);
    let between = if part < 0.5 { low + part * (high - low) } else { high - (high - low) * (1.0 - part) };
    f64::from(between)
}

/// Returns `(sum r)^2 / (N sum r^2)`, with ratios relative to the largest so that squares cannot overflow; 0
/// without tokens.
fn effective_share(tokens: &[Scored], ratio_max: f64) -> f64 {
    let (mut sum, mut square_sum) = (0.0, 0.0);
    for scored in tokens {
        let scaled = scored.ratio / ratio_max;
        sum += scaled;
        square_sum += scaled * scaled;
    }
    if tokens.is_empty() { 0.0 } else { sum * sum / (square_sum * tokens.len() as f64) }
}

pub(super) fn count_metrics(
    num_tokens: usize,
    num_sequences: usize,
    dropped: &Dropped,
    metrics: &mut Vec<Metric>,
) {
    let counts = [
        ("numTokens", num_tokens),
        ("numSequences", num_sequences),
        ("numNonFinite", dropped.non_finite),
        ("numExtremeRatio", dropped.extreme),
        ("numKlMasked", dropped.kl_masked),
    ];
    metrics.extend(counts.map(|(name, count)| Metric { name, value: count as f64, denominator: 1.0 }));
}
