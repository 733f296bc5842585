//! `GrpoLoss` against a second, slow implementation over padded rows, against finite differences, and against the
//! table of values that torchrl and trl gave for one small batch.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::Rng;
use fulmar_objective::{
    Advantage, Clip, Envelope, GrpoLoss, GrpoOptions, KlEstimator, KlPenalty, LossBatch, Normalization,
    RatioLevel, Surrogate,
};

struct Batch {
    log_prob: Vec<f64>,
    old_log_prob: Vec<f64>,
    ref_log_prob: Vec<f64>,
    entropy: Vec<f64>,
    advantage: Vec<f64>,
    mask: Vec<u8>,
    offsets: Vec<u32>,
}

impl Batch {
    /// Sequences of 0 to 7 tokens, some masked, garbage at masked places, at least one token trained.
    fn random(rng: &mut Rng) -> Self {
        let num_sequences = 1 + rng.below(6).unwrap() as usize;
        let mut offsets = vec![0];
        for _ in 0..num_sequences {
            offsets.push(offsets[offsets.len() - 1] + rng.below(8).unwrap() as u32);
        }
        offsets.push(offsets[num_sequences] + 1);
        let num_tokens = offsets[num_sequences + 1] as usize;
        let mut mask: Vec<u8> = (0..num_tokens).map(|_| u8::from(rng.below(4).unwrap() > 0)).collect();
        mask[num_tokens - 1] = 1;
        let log_prob: Vec<f64> = (0..num_tokens).map(|_| -3.0 * rng.uniform_f64()).collect();
        let near = |rng: &mut Rng, scale: f64| log_prob.iter().map(|l| l + scale * rng.normal()).collect();
        let (old_log_prob, ref_log_prob) = (near(rng, 0.4), near(rng, 0.5));
        let entropy = (0..num_tokens).map(|_| 2.0 * rng.uniform_f64()).collect();
        let advantage = (0..=num_sequences).map(|_| rng.normal()).collect();
        let mut batch = Self { log_prob, old_log_prob, ref_log_prob, entropy, advantage, mask, offsets };
        for t in (0..num_tokens).filter(|&t| batch.mask[t] == 0) {
            let garbage = [f64::NAN, f64::INFINITY, 1e30][t % 3];
            (batch.log_prob[t], batch.ref_log_prob[t], batch.entropy[t]) = (garbage, garbage, garbage);
        }
        batch
    }

    fn view(&self) -> LossBatch<'_, f64> {
        LossBatch {
            log_prob: &self.log_prob,
            old_log_prob: &self.old_log_prob,
            ref_log_prob: Some(&self.ref_log_prob),
            sampler_log_prob: None,
            entropy: Some(&self.entropy),
            advantage: Advantage::PerSequence(&self.advantage),
            mask: &self.mask,
            offsets: &self.offsets,
        }
    }
}

fn random_options(rng: &mut Rng) -> GrpoOptions {
    let normalization = [
        Normalization::TokenMean,
        Normalization::SequenceMean,
        Normalization::FixedLength(9.0),
        Normalization::GlobalTokens(31.0),
        Normalization::GlobalSequences(5.0),
    ][rng.below(5).unwrap() as usize];
    let mut penalty = || KlPenalty {
        estimator: [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3][rng.below(3).unwrap() as usize],
        coefficient: rng.uniform_f64(),
        importance_weighted: rng.below(2).unwrap() == 1,
    };
    GrpoOptions {
        kl_to_ref: penalty(),
        kl_to_inference: penalty(),
        normalization,
        clip_epsilon: Clip { low: 0.1 + 0.3 * rng.uniform_f64(), high: 0.5 * rng.uniform_f64() },
        dual_clip: (rng.below(2).unwrap() == 1).then(|| 1.6 + rng.uniform_f64()),
        kl_mask_threshold: (rng.below(3).unwrap() == 0).then_some(0.3),
        log_ratio_max: 20.0,
        entropy_coefficient: rng.uniform_f64(),
        ..GrpoOptions::default()
    }
}

/// Returns the ratio of a token's policy term, given the tokens `kept` of its sequence.
fn naive_ratio(batch: &Batch, options: &GrpoOptions, kept: &[usize], t: usize) -> f64 {
    let w = |t: usize| batch.log_prob[t] - batch.old_log_prob[t];
    let (sum, length) = (kept.iter().map(|&t| w(t)).sum::<f64>(), kept.len() as f64);
    match options.ratio {
        RatioLevel::Token => w(t),
        RatioLevel::Sequence | RatioLevel::SequenceToken => sum / length,
        RatioLevel::SequenceProduct => sum,
    }
    .exp()
}

/// Returns the policy term of a token, given the tokens `kept` of its sequence.
fn naive_policy(batch: &Batch, options: &GrpoOptions, kept: &[usize], s: usize, t: usize) -> f64 {
    let (a, clip) = (batch.advantage[s], options.clip_epsilon);
    let w = |t: usize| batch.log_prob[t] - batch.old_log_prob[t];
    let (sum, length) = (kept.iter().map(|&t| w(t)).sum::<f64>(), kept.len() as f64);
    let ratio = naive_ratio(batch, options, kept, t);
    match options.surrogate {
        Surrogate::Clip => {
            let best = (ratio * a).min(ratio.clamp(1.0 - clip.low, 1.0 + clip.high) * a);
            let floor = options.dual_clip.filter(|_| a < 0.0).map_or(best, |delta| delta * a);
            -best.max(floor)
        }
        Surrogate::None => -ratio * a,
        Surrogate::Cispo { cap } => -ratio.min(cap) * a * batch.log_prob[t],
        Surrogate::Sapo { tau_positive, tau_negative } => {
            let tau = if a > 0.0 { tau_positive } else { tau_negative };
            -4.0 / tau / (1.0 + (-tau * (ratio - 1.0)).exp()) * a
        }
        Surrogate::Vespo { positive, negative } => {
            let (Envelope { k, lambda }, weight) = (if a >= 0.0 { positive } else { negative }, sum.exp());
            -weight.powf(k) * (lambda * (1.0 - weight)).exp() * a * batch.log_prob[t]
        }
        Surrogate::Gmpo => {
            let bounded = |t: usize| if a > 0.0 { w(t).min(clip.high) } else { w(t).max(-clip.low) };
            -(kept.iter().map(|&t| bounded(t)).sum::<f64>() / length).exp() * a
        }
        Surrogate::Dppo { delta } => {
            let moved = batch.log_prob[t].exp() - batch.old_log_prob[t].exp();
            if moved * a.signum() > delta { 0.0 } else { -ratio * a }
        }
    }
}

/// Returns the least entropy among the highest share of the trained tokens.
fn naive_threshold(batch: &Batch, options: &GrpoOptions, trained: &impl Fn(usize) -> bool) -> f64 {
    let all = (0..batch.mask.len()).filter(|&t| trained(t)).map(|t| batch.entropy[t]);
    let mut entropy: Vec<f64> = all.collect();
    entropy.sort_by(f64::total_cmp);
    if options.top_entropy_quantile == 1.0 || entropy.is_empty() {
        return f64::NEG_INFINITY;
    }
    let place = (1.0 - options.top_entropy_quantile) * (entropy.len() - 1) as f64;
    let (low, high) = (entropy[place.floor() as usize], entropy[place.ceil() as usize]);
    // The threshold is in single precision; a token's entropy on it may be slightly below.
    f64::from((low + (high - low) * (place - place.floor())) as f32)
}

/// Computes the formulas as written in the papers: minimum of two branches, sequence by sequence.
fn naive_loss(batch: &Batch, options: &GrpoOptions) -> f64 {
    let trained = |t: usize| {
        let w = batch.log_prob[t] - batch.old_log_prob[t];
        batch.mask[t] == 1 && options.kl_mask_threshold.is_none_or(|limit| 0.5 * w * w <= limit)
    };
    let threshold = naive_threshold(batch, options, &trained);
    let token = |s: usize, t: usize| {
        let range = batch.offsets[s] as usize..batch.offsets[s + 1] as usize;
        let kept: Vec<usize> = range.filter(|&t| trained(t)).collect();
        // The importance weight of a penalty is the ratio of the loss, as in trl.
        let ratio = naive_ratio(batch, options, &kept, t);
        let kl = |penalty: KlPenalty, d: f64| {
            let value = match penalty.estimator {
                KlEstimator::K1 => -d,
                KlEstimator::K2 => d * d / 2.0,
                KlEstimator::K3 => d.exp() - 1.0 - d,
            };
            penalty.coefficient * if penalty.importance_weighted { ratio * value } else { value }
        };
        let is_chosen = batch.entropy[t] >= threshold;
        let to_ref = kl(options.kl_to_ref, batch.ref_log_prob[t] - batch.log_prob[t]);
        let to_old = kl(options.kl_to_inference, batch.old_log_prob[t] - batch.log_prob[t]);
        let chosen =
            naive_policy(batch, options, &kept, s, t) - options.entropy_coefficient * batch.entropy[t];
        to_ref + to_old + if is_chosen { chosen } else { 0.0 }
    };
    let (mut total, mut count, mut mean_sum) = (0.0, 0, 0.0);
    let num_sequences = batch.offsets.len() - 1;
    for s in 0..num_sequences {
        let range = batch.offsets[s] as usize..batch.offsets[s + 1] as usize;
        let losses: Vec<f64> = range.filter(|&t| trained(t)).map(|t| token(s, t)).collect();
        total += losses.iter().sum::<f64>();
        count += losses.len();
        mean_sum += losses.iter().sum::<f64>() / losses.len().max(1) as f64;
    }
    match options.normalization {
        Normalization::TokenMean => total / count.max(1) as f64,
        Normalization::SequenceMean => mean_sum / num_sequences as f64,
        Normalization::FixedLength(length) => total / (num_sequences as f64 * length),
        Normalization::GlobalTokens(tokens) => total / tokens,
        Normalization::GlobalSequences(sequences) => mean_sum / sequences,
    }
}

#[test]
fn ten_thousand_random_batches_give_the_naive_value() {
    let mut rng = Rng::new(1).stream("grpo");
    for case in 0..10_000 {
        let (batch, options) = (Batch::random(&mut rng), random_options(&mut rng));
        let output = GrpoLoss::new(options.clone()).unwrap().forward(&batch.view()).unwrap();
        let naive = naive_loss(&batch, &options);
        assert!((output.loss - naive).abs() <= 1e-11 * naive.abs().max(1.0), "case {case}: {naive}");
        assert!(output.metrics.iter().all(|metric| metric.value.is_finite()), "case {case}");
    }
}

/// Returns a random surrogate with a ratio that it supports.
fn random_family(rng: &mut Rng) -> (RatioLevel, Surrogate) {
    let mut number = |from: f64, to: f64| from + (to - from) * rng.uniform_f64();
    let envelope = |k: f64, lambda: f64| Envelope { k, lambda };
    let surrogates = [
        Surrogate::Cispo { cap: number(0.5, 5.0) },
        Surrogate::Sapo { tau_positive: number(0.2, 3.0), tau_negative: number(0.2, 3.0) },
        Surrogate::Vespo {
            positive: envelope(number(0.0, 3.0), number(0.0, 3.0)),
            negative: envelope(number(0.0, 3.0), number(0.0, 3.0)),
        },
        Surrogate::Gmpo,
        Surrogate::Dppo { delta: number(0.05, 0.5) },
    ];
    let ratios =
        [RatioLevel::Token, RatioLevel::Sequence, RatioLevel::SequenceToken, RatioLevel::SequenceProduct];
    match rng.below(22).unwrap() as usize {
        kind @ 0..2 => (RatioLevel::Token, surrogates[3 + kind]),
        kind @ 2..10 => (ratios[kind % 4], [Surrogate::Clip, Surrogate::None][(kind - 2) / 4]),
        kind => (ratios[kind % 4], surrogates[(kind - 10) / 4]),
    }
}

#[test]
fn ten_thousand_random_batches_of_the_family_give_the_naive_value() {
    let mut rng = Rng::new(12).stream("family");
    for case in 0..10_000 {
        let (batch, (ratio, surrogate)) = (Batch::random(&mut rng), random_family(&mut rng));
        let top_entropy_quantile = [1.0, 0.2, 0.75][rng.below(3).unwrap() as usize];
        let options = GrpoOptions { ratio, surrogate, top_entropy_quantile, ..random_options(&mut rng) };
        let output = GrpoLoss::new(options.clone()).unwrap().forward(&batch.view()).unwrap();
        let naive = naive_loss(&batch, &options);
        assert!(
            (output.loss - naive).abs() <= 1e-10 * naive.abs().max(1.0),
            "case {case} {options:?}: {} against {naive}",
            output.loss
        );
    }
}

/// Returns whether a step of 1e-6 could carry the token over a kink or across the mask threshold.
fn near_kink(batch: &Batch, options: &GrpoOptions, t: usize) -> bool {
    let w = batch.log_prob[t] - batch.old_log_prob[t];
    let clip = options.clip_epsilon;
    let bounds = [(1.0 - clip.low).ln(), clip.high.ln_1p(), options.dual_clip.unwrap_or(9.0).ln()];
    let threshold = (2.0 * options.kl_mask_threshold.unwrap_or(9.0)).sqrt();
    bounds.iter().any(|bound| (w - bound).abs() < 1e-4) || (w.abs() - threshold).abs() < 1e-4
}

#[test]
fn gradients_equal_finite_differences() {
    let (mut rng, step, mut num_checked) = (Rng::new(2).stream("grpo"), 1e-6, 0);
    for _ in 0..300 {
        let (mut batch, options) = (Batch::random(&mut rng), random_options(&mut rng));
        let loss = GrpoLoss::new(options.clone()).unwrap();
        let output = loss.forward(&batch.view()).unwrap();
        for (t, grad_entropy) in output.grad_entropy.unwrap().into_iter().enumerate() {
            if batch.mask[t] == 0 {
                assert_eq!((output.grad_log_prob[t], grad_entropy), (0.0, 0.0));
                continue;
            }
            if near_kink(&batch, &options, t) {
                continue;
            }
            let mut slope = |place: fn(&mut Batch) -> &mut Vec<f64>| {
                let here = place(&mut batch)[t];
                let mut at = |value: f64| {
                    place(&mut batch)[t] = value;
                    loss.forward(&batch.view()).unwrap().loss
                };
                let slope = (at(here + step) - at(here - step)) / (2.0 * step);
                at(here);
                slope
            };
            let by_log_prob = slope(|batch| &mut batch.log_prob);
            let by_entropy = slope(|batch| &mut batch.entropy);
            assert!(
                (by_log_prob - output.grad_log_prob[t]).abs() < 1e-7,
                "{by_log_prob} at {t}: {options:?}"
            );
            assert!((by_entropy - grad_entropy).abs() < 1e-7, "{by_entropy} at {t}: {options:?}");
            num_checked += 1;
        }
    }
    assert!(num_checked > 3_000, "got {num_checked}");
}

#[test]
fn single_precision_is_double_precision_rounded_once() {
    let mut rng = Rng::new(3).stream("grpo");
    for _ in 0..200 {
        let mut batch = Batch::random(&mut rng);
        let options = random_options(&mut rng);
        let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
        let [log_prob, old, reference, entropy, advantage] =
            [&batch.log_prob, &batch.old_log_prob, &batch.ref_log_prob, &batch.entropy, &batch.advantage]
                .map(|values| narrow(values));
        let loss = GrpoLoss::new(options).unwrap();
        let single = loss
            .forward(&LossBatch {
                log_prob: &log_prob,
                old_log_prob: &old,
                ref_log_prob: Some(&reference),
                sampler_log_prob: None,
                entropy: Some(&entropy),
                advantage: Advantage::PerSequence(&advantage),
                mask: &batch.mask,
                offsets: &batch.offsets,
            })
            .unwrap();
        let widen = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
        batch.log_prob = widen(&log_prob);
        batch.old_log_prob = widen(&old);
        batch.ref_log_prob = widen(&reference);
        batch.entropy = widen(&entropy);
        batch.advantage = widen(&advantage);
        let double = loss.forward(&batch.view()).unwrap();
        assert_eq!((single.loss, single.grad_log_prob), (double.loss, narrow(&double.grad_log_prob)));
    }
}

#[test]
fn micro_batches_under_global_tokens_add_up_to_one_batch() {
    let mut rng = Rng::new(4).stream("grpo");
    for _ in 0..100 {
        let batch = Batch::random(&mut rng);
        let num_tokens = batch.mask.iter().filter(|&&bit| bit == 1).count() as f64;
        let normalization = Normalization::GlobalTokens(num_tokens);
        let options = GrpoOptions { normalization, kl_mask_threshold: None, ..random_options(&mut rng) };
        let loss = GrpoLoss::new(options.clone()).unwrap();
        let (mut sum, mut gradient) = (0.0, vec![]);
        for s in 0..batch.offsets.len() - 1 {
            let range = batch.offsets[s] as usize..batch.offsets[s + 1] as usize;
            if !batch.mask[range.clone()].contains(&1) {
                gradient.extend(vec![0.0; range.len()]);
                continue;
            }
            let part = loss
                .forward(&LossBatch {
                    log_prob: &batch.log_prob[range.clone()],
                    old_log_prob: &batch.old_log_prob[range.clone()],
                    ref_log_prob: Some(&batch.ref_log_prob[range.clone()]),
                    sampler_log_prob: None,
                    entropy: Some(&batch.entropy[range.clone()]),
                    advantage: Advantage::PerSequence(&batch.advantage[s..=s]),
                    mask: &batch.mask[range.clone()],
                    offsets: &[0, range.len() as u32],
                })
                .unwrap();
            sum += part.loss;
            gradient.extend(part.grad_log_prob);
        }
        let whole = loss.forward(&batch.view()).unwrap();
        assert!((whole.loss - sum).abs() < 1e-12);
        assert_eq!(whole.grad_log_prob, gradient);
        let token_mean = GrpoOptions { normalization: Normalization::TokenMean, ..options };
        assert_eq!(GrpoLoss::new(token_mean).unwrap().forward(&batch.view()).unwrap(), whole);
    }
}

/// Two rows of four tokens: probabilities, not logarithms, as in the published table.
fn table_batch() -> Batch {
    let ln = |values: [f64; 8]| values.map(f64::ln).to_vec();
    Batch {
        log_prob: ln([0.5, 0.6, 0.9, 0.2, 0.5, 0.5, 0.3, 0.8]),
        old_log_prob: ln([0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.6, 0.8]),
        ref_log_prob: ln([0.4, 0.4, 0.4, 0.4, 0.7, 0.7, 0.7, 0.7]),
        entropy: vec![0.0; 8],
        advantage: vec![1.0, -1.0],
        mask: vec![0, 1, 1, 1, 0, 0, 1, 1],
        offsets: vec![0, 4, 8],
    }
}

#[test]
fn the_table_of_values_that_torchrl_and_trl_gave_is_reproduced() {
    let kl = |coefficient, importance_weighted| KlPenalty {
        coefficient,
        importance_weighted,
        ..KlPenalty::default()
    };
    let base = GrpoOptions::default;
    let prompt_mean = || GrpoOptions { normalization: Normalization::SequenceMean, ..base() };
    let fixed = GrpoOptions { normalization: Normalization::FixedLength(4.0), ..base() };
    let wide = GrpoOptions { clip_epsilon: Clip { low: 0.2, high: 0.28 }, ..base() };
    let masked = GrpoOptions { kl_mask_threshold: Some(0.1), ..base() };
    let token_mean = [0.0, -0.24, 0.0, -0.08, 0.0, 0.0, 0.0, 0.2];
    let prompt = [0.0, -0.2, 0.0, -0.066_666_7, 0.0, 0.0, 0.0, 0.25];
    let dr_grpo = [0.0, -0.15, 0.0, -0.05, 0.0, 0.0, 0.0, 0.125];
    let dapo = [0.0, -0.233_333, 0.011_111, -0.1, 0.0, 0.0, -0.026_667, 0.2025];
    let corrected = [0.0, -0.230_269, 0.029_193, -0.085_545, 0.0, 0.0, -0.008_473, 0.202_671];
    let grpo = [0.0, -0.194_444, 0.009_259, -0.083_333, 0.0, 0.0, -0.033_333, 0.253_125];
    let dropped = [0.0, -0.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5];
    let table: [(GrpoOptions, f64, [f64; 8]); 8] = [
        (base(), -0.2, token_mean),
        (prompt_mean(), -0.016_666_7, prompt),
        (wide, -0.216, token_mean),
        (masked, -0.1, dropped),
        (fixed, -0.125, dr_grpo),
        (GrpoOptions { kl_to_ref: kl(0.1, false), ..base() }, -0.177_421, dapo),
        (GrpoOptions { kl_to_ref: kl(0.1, true), ..base() }, -0.181_590, corrected),
        (GrpoOptions { kl_to_ref: kl(0.1, false), ..prompt_mean() }, 0.006_270, grpo),
    ];
    for (options, loss, gradient) in table {
        let output = GrpoLoss::new(options.clone()).unwrap().forward(&table_batch().view()).unwrap();
        assert!((output.loss - loss).abs() < 1e-6, "{options:?}: {}", output.loss);
        for (got, expected) in output.grad_log_prob.iter().zip(gradient) {
            assert!((got - expected).abs() < 1e-6, "{options:?}: {got} against {expected}");
        }
    }
}

#[test]
fn the_table_of_metrics_is_reproduced_with_masked_denominators() {
    let options = GrpoOptions {
        clip_epsilon: Clip { low: 0.2, high: 0.28 }, // one ratio is 1.2, where rounding would decide
        kl_to_ref: KlPenalty { coefficient: 0.5, ..KlPenalty::default() },
        kl_to_inference: KlPenalty { coefficient: 0.1, ..KlPenalty::default() },
        ..GrpoOptions::default()
    };
    let output = GrpoLoss::new(options).unwrap().forward(&table_batch().view()).unwrap();
    let check = |name: &str, expected: f64| {
        let got = output.metric(name).unwrap();
        assert!((got - expected).abs() < 1e-6, "{name}: {got} against {expected}");
    };
    // torchrl divides by all 8 positions where 5 are trained; its value for the KL is 0.1411158, and 0.2257852 masked.
    check("clipFraction", 0.375 * 8.0 / 5.0);
    check("klApprox", 0.104_916 * 8.0 / 5.0);
    check("klToRef", 0.225_785_2);
    check("klToRefLoss", 0.5 * 0.225_785_2);
    check("klToInference", 0.131_194_9 * 8.0 / 5.0);
    check("ess", 0.788_506);
    check("numTokens", 5.0);
}

#[test]
fn on_policy_every_ratio_is_exactly_one() {
    let mut rng = Rng::new(5).stream("grpo");
    for _ in 0..100 {
        let mut batch = Batch::random(&mut rng);
        batch.old_log_prob = batch.log_prob.clone();
        for epsilon in [0.0, 0.2] {
            let options = GrpoOptions { clip_epsilon: Clip::symmetric(epsilon), ..GrpoOptions::default() };
            let output = GrpoLoss::new(options).unwrap().forward(&batch.view()).unwrap();
            for (name, expected) in [
                ("clipFraction", 0.0),
                ("clipFractionLow", 0.0),
                ("clipFractionHigh", 0.0),
                ("ratioMean", 1.0),
                ("ratioMax", 1.0),
                ("kl", 0.0),
                ("klApprox", 0.0),
                ("ess", 1.0),
                ("numNonFinite", 0.0),
            ] {
                assert_eq!(output.metric(name), Some(expected), "{name}");
            }
        }
    }
}
