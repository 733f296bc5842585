//! The losses of the GRPO family against trl row by row, against the values that the published programs gave
//! for one small batch, against finite differences, and split into micro-batches.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use fulmar_compute::Compute;
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    Advantage, Clip, Correction, CorrectionLevel, CorrectionRule, Envelope, GrpoLoss, GrpoOptions,
    GrpoPreset, KlEstimator, KlPenalty, LossBatch, LossOutput, Normalization, RatioLevel, Surrogate,
    importance_weights,
};
use serde_json::Value;

const TIGHT: f64 = 1e-9;

struct Batch {
    log_prob: Vec<f64>,
    old_log_prob: Vec<f64>,
    ref_log_prob: Option<Vec<f64>>,
    sampler_log_prob: Option<Vec<f64>>,
    entropy: Option<Vec<f64>>,
    advantage: Vec<f64>,
    mask: Vec<u8>,
    offsets: Vec<u32>,
}

impl Batch {
    fn view(&self) -> LossBatch<'_, f64> {
        LossBatch {
            log_prob: &self.log_prob,
            old_log_prob: &self.old_log_prob,
            ref_log_prob: self.ref_log_prob.as_deref(),
            sampler_log_prob: self.sampler_log_prob.as_deref(),
            entropy: self.entropy.as_deref(),
            advantage: Advantage::PerSequence(&self.advantage),
            mask: &self.mask,
            offsets: &self.offsets,
        }
    }

    fn run(&self, options: &GrpoOptions) -> LossOutput<f64> {
        GrpoLoss::new(options.clone()).unwrap().forward(&self.view()).unwrap()
    }

    /// Returns one of its sequences.
    fn sequence(&self, s: usize) -> Self {
        let range = self.offsets[s] as usize..self.offsets[s + 1] as usize;
        let part = |values: &Option<Vec<f64>>| values.as_ref().map(|values| values[range.clone()].to_vec());
        Self {
            log_prob: self.log_prob[range.clone()].to_vec(),
            old_log_prob: self.old_log_prob[range.clone()].to_vec(),
            ref_log_prob: part(&self.ref_log_prob),
            sampler_log_prob: part(&self.sampler_log_prob),
            entropy: part(&self.entropy),
            advantage: vec![self.advantage[s]],
            mask: self.mask[range.clone()].to_vec(),
            offsets: vec![0, range.len() as u32],
        }
    }
}

const VESPO: Surrogate = Surrogate::Vespo {
    positive: Envelope { k: 2.0, lambda: 3.0 },
    negative: Envelope { k: 3.0, lambda: 2.0 },
};

fn trl_options(row: &Value) -> GrpoOptions {
    let config = &row["config"];
    let low = number(&config["epsilon"]);
    let clip_epsilon = Clip { low, high: config["epsilon_high"].as_f64().unwrap_or(low) };
    let tokens = Normalization::GlobalTokens(number(&row["num_items_in_batch"]).max(1.0));
    let (surrogate, normalization) = match row["loss"].as_str().unwrap() {
        "grpo" => (Surrogate::Clip, Normalization::SequenceMean),
        "bnpo" => (Surrogate::Clip, Normalization::TokenMean),
        "dr_grpo" => (Surrogate::Clip, Normalization::FixedLength(number(&config["max_completion_length"]))),
        "dapo" => (Surrogate::Clip, tokens),
        "luspo" => (Surrogate::Clip, Normalization::FixedLength(1.0)),
        "cispo" => (Surrogate::Cispo { cap: clip_epsilon.high }, tokens),
        "sapo" => {
            // trl stores temperatures in single precision.
            let tau = |side: &str| f64::from(number(&config[format!("sapo_temperature_{side}")]) as f32);
            let (tau_positive, tau_negative) = (tau("pos"), tau("neg"));
            (Surrogate::Sapo { tau_positive, tau_negative }, Normalization::SequenceMean)
        }
        "vespo" => (VESPO, tokens),
        "gmpo" => (Surrogate::Gmpo, Normalization::SequenceMean),
        other => panic!("{other}"),
    };
    let corrections = if row["importance_sampling_ratio"].is_null() {
        Vec::new()
    } else {
        vec![Correction {
            rule: CorrectionRule::Mask,
            min: 1e-20,
            max: f64::INFINITY,
            ..Correction::default()
        }]
    };
    GrpoOptions {
        ratio: serde_json::from_value(config["importance_sampling_level"].clone()).unwrap(),
        top_entropy_quantile: number(&config["top_entropy_quantile"]),
        surrogate,
        normalization,
        clip_epsilon,
        corrections,
        off_policy_threshold: config["off_policy_mask_threshold"].as_f64(),
        keep_rejected: true,
        kl_to_ref: KlPenalty {
            estimator: KlEstimator::K3,
            coefficient: number(&config["beta"]),
            importance_weighted: config["use_bias_correction_kl"] == true && row["loss"] != "gmpo",
        },
        log_ratio_max: 700.0,
        entropy_coefficient: number(&config["entropy_coef"]),
        ..GrpoOptions::default()
    }
}

fn trl_batch(row: &Value) -> Batch {
    let cur = &row["cur_log_probs"];
    let lengths: Vec<usize> = lines(cur).iter().map(|sequence| lines(sequence).len()).collect();
    let mut mask = flat(&row["mask"]);
    if !row["tool_mask"].is_null() {
        mask.iter_mut().zip(flat(&row["tool_mask"])).for_each(|(bit, tool)| *bit *= tool);
    }
    let old_log_prob = flat(if row["old_log_probs"].is_null() { cur } else { &row["old_log_probs"] });
    let given = |name: &str| (!row[name].is_null()).then(|| flat(&row[name]));
    let mut offsets = vec![0];
    for length in &lengths {
        offsets.push(offsets[offsets.len() - 1] + *length as u32);
    }
    let sampler_log_prob = if row["importance_sampling_ratio"].is_null() {
        given("sampling_log_probs")
    } else {
        // The ratios are given; the sampler's log-probabilities are computed from them. VESPO multiplies the
        // ratios of a sequence, upstream including padding.
        let mut sampler = old_log_prob.clone();
        for (s, ratios) in lines(&row["importance_sampling_ratio"]).iter().map(flat).enumerate() {
            let range = offsets[s] as usize..offsets[s + 1] as usize;
            let trained = mask[range.clone()].iter().sum::<f64>().max(1.0);
            let product: f64 = ratios.iter().map(|ratio| ratio.max(1e-8).ln()).sum();
            for (t, at) in range.enumerate() {
                let ratio = ratios[if ratios.len() == 1 { 0 } else { t }];
                let log_ratio = if ratio > 0.0 { ratio.ln() } else { -100.0 };
                sampler[at] -= if row["loss"] == "vespo" { product / trained } else { log_ratio };
            }
        }
        Some(sampler)
    };
    Batch {
        log_prob: flat(cur),
        old_log_prob,
        ref_log_prob: given("ref_log_probs"),
        sampler_log_prob,
        entropy: given("entropies"),
        advantage: flat(&row["advantages"]),
        mask: mask.iter().map(|&bit| bit as u8).collect(),
        offsets,
    }
}

#[test]
fn every_row_of_the_family_agrees_or_has_a_named_reason() {
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows("family", |_| true) {
        let outcome = if row["library"] == "torchrl" {
            "torchrl's cispo has no gradient outside the clip range"
        } else if row["expected_error"].is_object() {
            let level =
                serde_json::from_value::<RatioLevel>(row["config"]["importance_sampling_level"].clone());
            assert!(level.is_err());
            "refused"
        } else {
            compare(&row)
        };
        *tally.entry(outcome).or_default() += 1;
    }
    println!("{tally:?}");
    assert_eq!(tally.values().sum::<usize>(), 96);
    assert_eq!((tally["torchrl's cispo has no gradient outside the clip range"], tally["refused"]), (29, 8));
    assert_eq!(tally["equal"], 59);
}

#[test]
fn ratios_of_sequences_weighted_penalties_and_entropy_masks_equal_trl() {
    let mut num_checked = 0;
    for row in rows("levels", |_| true) {
        compare(&row);
        let theirs = &row["outputs"]["metrics"];
        if let Some(kl) = theirs["kl"].as_f64() {
            let ours = trl_batch(&row).run(&trl_options(&row)).metric("klToRef").unwrap();
            assert_near(row["id"].as_str().unwrap(), ours, kl, 1e-6);
        }
        num_checked += 1;
    }
    assert_eq!(num_checked, 32);
}

fn compare(row: &Value) -> &'static str {
    let (batch, id) = (trl_batch(row), row["id"].as_str().unwrap());
    let output = batch.run(&trl_options(row));
    let upstream = &row["outputs"]["metrics"];
    let metric = |name: &str| output.metric(name).unwrap();
    let wanted = flat(&row["gradients"]["cur_log_probs"]);
    assert_near(&format!("{id} entropy"), metric("entropy"), number(&upstream["entropy"]), 1e-6);
    if let Some(share) = upstream["cispo_clip_ratio"].as_f64() {
        assert_near(&format!("{id} clipped"), metric("clipFractionHigh"), share, 1e-6);
    }
    if number(&row["config"]["entropy_coef"]) > 0.0 {
        // Upstream takes the penalty into its policy loss.
        let policy = metric("policyLoss") + output.metric("klToRefLoss").unwrap_or(0.0);
        assert_near(&format!("{id} policy"), policy, number(&upstream["policy_loss"]), TIGHT);
    } else {
        assert_near(&format!("{id} loss"), output.loss, number(&row["outputs"]["loss"]), TIGHT);
    }
    assert_all_near(&format!("{id} gradient"), &output.grad_log_prob, &wanted, TIGHT);
    "equal"
}

/// Probabilities of two answers, with the results of the published programs.
fn table() -> Batch {
    let log = |values: [f64; 8]| values.map(f64::ln).to_vec();
    Batch {
        log_prob: log([0.5, 0.6, 0.9, 0.2, 0.5, 0.5, 0.3, 0.8]),
        old_log_prob: log([0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.6, 0.8]),
        ref_log_prob: Some(log([0.4, 0.4, 0.4, 0.4, 0.7, 0.7, 0.7, 0.7])),
        sampler_log_prob: Some(log([0.5, 0.55, 0.4, 0.6, 0.5, 0.4, 0.5, 0.9])),
        entropy: None,
        advantage: vec![1.0, -1.0],
        mask: vec![0, 1, 1, 1, 0, 0, 1, 1],
        offsets: vec![0, 4, 8],
    }
}

#[test]
fn one_small_batch_gives_the_published_values() {
    let clip = |low, high| Clip { low, high };
    let sequence = |clip_epsilon, normalization| GrpoOptions {
        ratio: RatioLevel::Sequence,
        clip_epsilon,
        normalization,
        ..GrpoOptions::default()
    };
    let pushed = |surrogate| GrpoOptions { surrogate, ..GrpoOptions::default() };
    let gmpo = GrpoOptions {
        clip_epsilon: clip(0.4, 0.4),
        normalization: Normalization::SequenceMean,
        ..pushed(Surrogate::Gmpo)
    };
    let sapo = GrpoOptions {
        normalization: Normalization::SequenceMean,
        ..pushed(Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1.05 })
    };
    let corrected = |level, rule, min, max| GrpoOptions {
        corrections: vec![Correction { level, rule, min, max }],
        keep_rejected: true,
        ..GrpoOptions::default()
    };
    let off_policy =
        GrpoOptions { off_policy_threshold: Some(0.2), keep_rejected: true, ..GrpoOptions::default() };
    let vespo = GrpoOptions {
        corrections: corrected(CorrectionLevel::Token, CorrectionRule::Truncate, 0.0, 1.2).corrections,
        ..pushed(VESPO)
    };
    let tokens = CorrectionLevel::Token;
    let (truncate, masked) = (CorrectionRule::Truncate, CorrectionRule::Mask);
    // Upstream the bounds of a mask are exclusive for a ratio on them; here they are inclusive, up to
    // rounding.
    let cases: [(&str, GrpoOptions, f64, [f64; 5]); 13] = [
        ("cispo 5", pushed(Surrogate::Cispo { cap: 5.0 }), 0.124257, [-0.24, -0.36, -0.08, 0.1, 0.2]),
        ("cispo 1.28", pushed(Surrogate::Cispo { cap: 1.28 }), 0.113299, [-0.24, -0.256, -0.08, 0.1, 0.2]),
        ("sapo", sapo, -0.232593, [-0.198013, -0.256692, -0.061009, 0.116767, 0.25]),
        ("vespo", pushed(VESPO), 0.402708, [-0.224517, -0.224517, -0.224517, 0.067957, 0.067957]),
        (
            "gspo",
            sequence(clip(3e-4, 4e-4), Normalization::SequenceMean),
            0.023630,
            [-0.158740, -0.158740, -0.158740, 0.0, 0.0],
        ),
        (
            "gspo 0.2",
            sequence(clip(0.2, 0.2), Normalization::SequenceMean),
            -0.076220,
            [-0.158740, -0.158740, -0.158740, 0.0, 0.0],
        ),
        (
            "luspo",
            sequence(clip(0.2, 0.2), Normalization::FixedLength(1.0)),
            -0.628661,
            [-0.476220, -0.476220, -0.476220, 0.0, 0.0],
        ),
        ("gmpo", gmpo, -0.037959, [-0.149108, 0.0, -0.149108, 0.0, 0.204683]),
        (
            "token truncate",
            corrected(tokens, truncate, 0.0, 1.2),
            -0.203071,
            [-0.218182, 0.0, -0.066667, 0.0, 0.177778],
        ),
        (
            "token mask",
            corrected(tokens, masked, 0.0, 1.2 + 1e-9),
            0.084929,
            [-0.218182, 0.0, -0.066667, 0.0, 0.177778],
        ),
        (
            "sequence mask",
            corrected(CorrectionLevel::Sequence, masked, 0.9, 3.0),
            -0.146303,
            [-0.227273, 0.0, -0.075758, 0.0, 0.213333],
        ),
        ("vespo truncated", vespo, 0.412589, [-0.234855, -0.234855, -0.234855, 0.077156, 0.077156]),
        ("off-policy", off_policy, -0.56, [-0.24, 0.0, -0.08, 0.0, 0.0]),
    ];
    for (name, options, loss, gradient) in cases {
        let output = table().run(&options);
        assert_near(name, output.loss, loss, 1e-6);
        let trained: Vec<f64> = [1, 2, 3, 6, 7].map(|t| output.grad_log_prob[t]).to_vec();
        assert_all_near(name, &trained, &gradient, 1e-6);
        if options.ratio == RatioLevel::Sequence {
            let token = table().run(&GrpoOptions { ratio: RatioLevel::SequenceToken, ..options });
            assert_near(name, token.loss, loss, 1e-6);
            assert_all_near(name, &token.grad_log_prob, &output.grad_log_prob, 1e-9);
        }
    }
}

#[test]
fn rejected_tokens_leave_the_denominator_unless_they_are_kept() {
    let corrections = vec![Correction { rule: CorrectionRule::Mask, max: 1.1, ..Correction::default() }];
    let run = |keep_rejected| {
        table().run(&GrpoOptions {
            corrections: corrections.clone(),
            keep_rejected,
            ..GrpoOptions::default()
        })
    };
    let (kept, gone) = (run(true), run(false));
    assert_eq!((kept.metric("numTokens"), gone.metric("numTokens")), (Some(5.0), Some(3.0)));
    assert_eq!((kept.metric("numRejected"), gone.metric("numRejected")), (Some(2.0), Some(2.0)));
    assert_near("mean over what is left", gone.loss, kept.loss * 5.0 / 3.0, TIGHT);
}

#[test]
fn dppo_drops_what_moved_too_far() {
    let log = |values: [f64; 3]| values.map(f64::ln).to_vec();
    let batch = |advantage| Batch {
        log_prob: log([0.5, 0.9, 0.2]),
        old_log_prob: log([0.5, 0.6, 0.5]),
        ref_log_prob: None,
        sampler_log_prob: None,
        entropy: None,
        advantage: vec![advantage],
        mask: vec![1; 3],
        offsets: vec![0, 3],
    };
    let options = GrpoOptions {
        surrogate: Surrogate::Dppo { delta: 0.2 },
        kl_to_inference: KlPenalty { estimator: KlEstimator::K2, coefficient: 2e-3, ..KlPenalty::default() },
        ..GrpoOptions::default()
    };
    assert_near("up", batch(1.0).run(&options).loss, -0.466332, 1e-6);
    assert_near("down", batch(-1.0).run(&options).loss, 0.833668, 1e-6);
}

fn family() -> Vec<(RatioLevel, Surrogate)> {
    vec![
        (RatioLevel::Token, Surrogate::Clip),
        (RatioLevel::Sequence, Surrogate::Clip),
        (RatioLevel::SequenceToken, Surrogate::Clip),
        (RatioLevel::SequenceProduct, Surrogate::Clip),
        (RatioLevel::Token, Surrogate::None),
        (RatioLevel::Sequence, Surrogate::None),
        (RatioLevel::SequenceProduct, Surrogate::None),
        (RatioLevel::Token, Surrogate::Cispo { cap: 1.1 }),
        (RatioLevel::Sequence, Surrogate::Cispo { cap: 1.1 }),
        (RatioLevel::Token, Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1.05 }),
        (RatioLevel::Sequence, Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1.05 }),
        (RatioLevel::SequenceProduct, Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1.05 }),
        (RatioLevel::Token, VESPO),
        (RatioLevel::Sequence, VESPO),
        (RatioLevel::Token, Surrogate::Gmpo),
        (RatioLevel::Token, Surrogate::Dppo { delta: 0.3 }),
    ]
}

/// Eight sequences of 1 to 6 tokens, each with one that is trained.
fn random(rng: &mut Rng) -> Batch {
    let mut offsets = vec![0_u32];
    for _ in 0..8 {
        offsets.push(offsets[offsets.len() - 1] + 1 + rng.below(6).unwrap() as u32);
    }
    let count = offsets[8] as usize;
    let mut mask: Vec<u8> = (0..count).map(|_| u8::from(rng.below(4).unwrap() > 0)).collect();
    offsets[1..].iter().for_each(|end| mask[*end as usize - 1] = 1);
    let log_prob: Vec<f64> = (0..count).map(|_| -3.0 * rng.uniform_f64()).collect();
    let near =
        |rng: &mut Rng, scale: f64| log_prob.iter().map(|l| l + scale * rng.normal()).collect::<Vec<_>>();
    Batch {
        old_log_prob: near(rng, 0.3),
        ref_log_prob: Some(near(rng, 0.5)),
        sampler_log_prob: Some(near(rng, 0.3)),
        entropy: None,
        advantage: (0..8).map(|_| rng.normal()).collect(),
        log_prob,
        mask,
        offsets,
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let mut rng = Rng::new(7);
    for round in 0..20 {
        let batch = random(&mut rng);
        for (ratio, surrogate) in family() {
            // An importance weight has its own gradient: that of the token's ratio, or of the sequence's.
            let importance_weighted = round % 2 == 1;
            let kl_to_ref = KlPenalty { coefficient: 0.1, importance_weighted, ..KlPenalty::default() };
            let options = GrpoOptions { ratio, surrogate, kl_to_ref, ..GrpoOptions::default() };
            let output = batch.run(&options);
            if ratio == RatioLevel::SequenceToken {
                continue; // its value holds the other tokens fixed
            }
            if matches!(surrogate, Surrogate::Cispo { .. }) || surrogate == VESPO {
                // The weight has no gradient, so the policy term is linear in the log-probabilities.
                let policy = batch.run(&GrpoOptions { kl_to_ref: KlPenalty::default(), ..options });
                let linear: f64 = policy.grad_log_prob.iter().zip(&batch.log_prob).map(|(g, l)| g * l).sum();
                assert_near("linear", policy.loss, linear, 1e-9);
                continue;
            }
            for t in 0..batch.log_prob.len() {
                let step = 1e-6;
                let moved = |by: f64| {
                    let mut moved = Batch { ..random_copy(&batch) };
                    moved.log_prob[t] += by;
                    moved.run(&options).loss
                };
                let slope = (moved(step) - moved(-step)) / (2.0 * step);
                assert_near(
                    &format!("{round} {ratio:?} {surrogate:?} [{t}]"),
                    output.grad_log_prob[t],
                    slope,
                    1e-6,
                );
            }
        }
    }
}

fn random_copy(batch: &Batch) -> Batch {
    Batch {
        log_prob: batch.log_prob.clone(),
        old_log_prob: batch.old_log_prob.clone(),
        ref_log_prob: batch.ref_log_prob.clone(),
        sampler_log_prob: batch.sampler_log_prob.clone(),
        entropy: batch.entropy.clone(),
        advantage: batch.advantage.clone(),
        mask: batch.mask.clone(),
        offsets: batch.offsets.clone(),
    }
}

#[test]
fn eight_micro_batches_are_one_batch_of_eight() {
    let mut rng = Rng::new(11);
    for _ in 0..10 {
        let batch = random(&mut rng);
        for (ratio, surrogate) in family() {
            let num_tokens = batch.mask.iter().filter(|&&bit| bit == 1).count() as f64;
            // A denominator counted over a batch, and its counterpart over a whole step.
            let twins = [
                (Normalization::TokenMean, Normalization::GlobalTokens(num_tokens)),
                (Normalization::SequenceMean, Normalization::GlobalSequences(8.0)),
                (Normalization::FixedLength(6.0), Normalization::GlobalTokens(8.0 * 6.0)),
            ];
            for (here, normalization) in twins {
                let corrections = vec![Correction { max: 1.2, ..Correction::default() }];
                let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
                let options = GrpoOptions {
                    ratio,
                    surrogate,
                    normalization,
                    corrections,
                    kl_to_ref,
                    ..GrpoOptions::default()
                };
                let whole = batch.run(&GrpoOptions { normalization: here, ..options.clone() });
                let parts: Vec<_> = (0..8).map(|s| batch.sequence(s).run(&options)).collect();
                assert_near("loss", parts.iter().map(|part| part.loss).sum(), whole.loss, TIGHT);
                let gradient: Vec<f64> = parts.iter().flat_map(|part| part.grad_log_prob.clone()).collect();
                assert_all_near("gradient", &gradient, &whole.grad_log_prob, TIGHT);
            }
        }
    }
}

#[test]
fn options_outside_their_range_are_refused() {
    let refused =
        |options: GrpoOptions| GrpoLoss::new(options).map(|_| ()).map_err(|error| error.kind()).unwrap_err();
    let pushed = |surrogate| GrpoOptions { surrogate, ..GrpoOptions::default() };
    for surrogate in [
        Surrogate::Cispo { cap: 0.0 },
        Surrogate::Sapo { tau_positive: 0.0, tau_negative: 1.0 },
        Surrogate::Sapo { tau_positive: 1.0, tau_negative: f64::NAN },
        Surrogate::Vespo {
            positive: Envelope { k: -1.0, lambda: 1.0 },
            negative: Envelope { k: 1.0, lambda: 1.0 },
        },
        Surrogate::Dppo { delta: f64::INFINITY },
    ] {
        assert_eq!(refused(pushed(surrogate)), ErrorKind::OutOfRange, "{surrogate:?}");
    }
    let corrected = |min, max| GrpoOptions {
        corrections: vec![Correction { min, max, ..Correction::default() }],
        ..GrpoOptions::default()
    };
    for (min, max) in [(-0.1, 1.0), (f64::NAN, 1.0), (1.0, 1.0), (0.0, f64::NAN)] {
        assert_eq!(refused(corrected(min, max)), ErrorKind::OutOfRange, "{min} {max}");
    }
    assert_eq!(
        refused(GrpoOptions { off_policy_threshold: Some(-1.0), ..GrpoOptions::default() }),
        ErrorKind::OutOfRange
    );
    let sequence_of = |surrogate| GrpoOptions { ratio: RatioLevel::Sequence, ..pushed(surrogate) };
    for surrogate in [Surrogate::Gmpo, Surrogate::Dppo { delta: 0.2 }] {
        assert_eq!(refused(sequence_of(surrogate)), ErrorKind::Incompatible, "bounds of single tokens");
    }
    for share in [0.0, -0.5, 1.5, f64::NAN] {
        let options = GrpoOptions { top_entropy_quantile: share, ..GrpoOptions::default() };
        assert_eq!(refused(options), ErrorKind::OutOfRange, "{share}");
    }
    let weighed = Correction { level: CorrectionLevel::Sequence, ..Correction::default() };
    assert_eq!(refused(GrpoOptions { corrections: vec![weighed], ..pushed(VESPO) }), ErrorKind::Incompatible);
    let loss =
        GrpoLoss::new(GrpoOptions { corrections: vec![Correction::default()], ..GrpoOptions::default() })
            .unwrap();
    let batch = Batch { sampler_log_prob: None, ..table() };
    assert_eq!(loss.forward(&batch.view()).unwrap_err().kind(), ErrorKind::Empty);
}

/// Two sequences of two tokens with a sampler, and nothing trained where `mask` is 0.
fn with_sampler(sampler: [f64; 4]) -> Batch {
    Batch {
        log_prob: vec![-1.0, -0.5, -2.0, -0.3],
        old_log_prob: vec![-1.1, -0.5, -1.5, -0.4],
        ref_log_prob: None,
        sampler_log_prob: Some(sampler.to_vec()),
        entropy: None,
        advantage: vec![1.0, -1.0],
        mask: vec![1, 1, 0, 1],
        offsets: vec![0, 2, 4],
    }
}

#[test]
fn a_token_whose_sampler_told_nothing_has_the_ratio_one_and_is_trained() {
    for level in [CorrectionLevel::Token, CorrectionLevel::Sequence, CorrectionLevel::Geometric] {
        for rule in [CorrectionRule::Truncate, CorrectionRule::Mask, CorrectionRule::Veto] {
            let correction = Correction { level, rule, min: 0.5, max: 2.0 };
            let options = GrpoOptions { corrections: vec![correction], ..GrpoOptions::default() };
            // Values where the mask is 0 are not read.
            let unknown = with_sampler([f64::NAN, -0.7, f64::NAN, -0.6]);
            let equal = with_sampler([-1.1, -0.7, 0.0, -0.6]);
            let (got, wanted) = (unknown.run(&options), equal.run(&options));
            assert_eq!(
                (got.loss, &got.grad_log_prob),
                (wanted.loss, &wanted.grad_log_prob),
                "{correction:?}"
            );
            assert!(got.grad_log_prob[0] != 0.0, "it is trained");
            let metric = |name: &str| got.metric(name).unwrap();
            assert_eq!((metric("numTokens"), metric("numNonFinite")), (3.0, 0.0));
            assert_eq!(metric("numSamplerUnknown"), 1.0);
            assert_near("of the known ones", metric("samplerRatioMax"), f64::exp(0.2), TIGHT);
            assert_near("over those that are known", metric("samplerLogRatioAbs"), 0.2, TIGHT);
            let weights = |batch: &Batch| {
                let sampler = batch.sampler_log_prob.as_deref().unwrap();
                let Batch { old_log_prob, mask, offsets, .. } = batch;
                importance_weights(old_log_prob, sampler, mask, offsets, &correction, Compute::Cpu)
            };
            assert_eq!(
                weights(&unknown).unwrap(),
                weights(&equal).unwrap(),
                "the same rule outside the loss"
            );
            let infinite = with_sampler([-1.0, f64::NEG_INFINITY, 0.0, 0.0]);
            let refused = GrpoLoss::new(options.clone()).unwrap().forward(&infinite.view()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NonFinite);
            assert_eq!(refused.detail(), "sampler_log_prob[1] must be finite: got -inf");
            assert_eq!(weights(&infinite).unwrap_err(), refused);
        }
    }
    // Nor does it keep a sequence that drifted from the sampler.
    let options = GrpoOptions { off_policy_threshold: Some(0.05), ..GrpoOptions::default() };
    let rejected = |last| with_sampler([-1.0, -0.5, 0.0, last]).run(&options).metric("numRejected").unwrap();
    assert_eq!((rejected(f64::NAN), rejected(-0.1)), (0.0, 1.0));
}

#[test]
fn metrics_of_a_sampler_are_its_divergence_and_the_factors_of_the_tokens() {
    let correction = Correction { min: 0.9, max: 1.1, ..Correction::default() };
    let options = GrpoOptions { corrections: vec![correction], ..GrpoOptions::default() };
    let batch = with_sampler([-1.0, f64::NAN, 0.0, -0.6]);
    let got = batch.run(&options);
    let trained = [0, 1, 3];
    let log_ratio = |at: usize| {
        let sampler = batch.sampler_log_prob.as_deref().unwrap()[at];
        if sampler.is_nan() { 0.0 } else { batch.old_log_prob[at] - sampler }
    };
    let k3 = |d: f64| d.exp() - 1.0 - d;
    let factor = |at: &usize| log_ratio(*at).exp().clamp(0.9, 1.1);
    let metric = |name: &str| got.metric(name).unwrap();
    let kl = trained.iter().map(|at| k3(log_ratio(*at))).sum::<f64>() / 2.0;
    assert_near("over the two that are known", metric("samplerKl"), kl, TIGHT);
    let mean = trained.iter().map(factor).sum::<f64>() / 3.0;
    assert_near("correctionMean", metric("correctionMean"), mean, TIGHT);
    let max = trained.iter().map(factor).fold(0.0, f64::max);
    assert_near("correctionMax", metric("correctionMax"), max, TIGHT);
    let cut = trained.iter().filter(|at| !(0.9..=1.1).contains(&log_ratio(**at).exp())).count();
    assert!((1..3).contains(&cut), "the case must truncate some: {cut}");
    assert_near("correctionFraction", metric("correctionFraction"), cut as f64 / 3.0, TIGHT);
}

#[test]
fn the_importance_weight_of_a_penalty_is_the_ratio_of_the_loss() {
    let batch = table();
    let kl =
        |importance_weighted| KlPenalty { coefficient: 0.1, importance_weighted, ..KlPenalty::default() };
    let run = |ratio, kl_to_ref| {
        let options = GrpoOptions { ratio, kl_to_ref, surrogate: Surrogate::None, ..GrpoOptions::default() };
        batch.run(&options).metric("klToRefLoss").unwrap()
    };
    // Sequence by sequence, by hand: k3 of each token times the ratio of its sequence.
    let trained = [[1, 2, 3].as_slice(), &[6, 7]];
    let by_hand = |mean: bool| -> f64 {
        let sums = trained.iter().map(|tokens| {
            let w: f64 = tokens.iter().map(|&t| batch.log_prob[t] - batch.old_log_prob[t]).sum();
            let k3 = |&t: &usize| {
                let d = batch.ref_log_prob.as_ref().unwrap()[t] - batch.log_prob[t];
                d.exp() - 1.0 - d
            };
            let ratio = if mean { (w / tokens.len() as f64).exp() } else { w.exp() };
            ratio * tokens.iter().map(k3).sum::<f64>()
        });
        0.1 * sums.sum::<f64>() / 5.0
    };
    assert_near("gspo", run(RatioLevel::Sequence, kl(true)), by_hand(true), TIGHT);
    assert_near("gspo-token", run(RatioLevel::SequenceToken, kl(true)), by_hand(true), TIGHT);
    assert_near("product", run(RatioLevel::SequenceProduct, kl(true)), by_hand(false), TIGHT);
    assert_near("none", run(RatioLevel::Sequence, kl(false)), run(RatioLevel::Token, kl(false)), TIGHT);
    assert!((run(RatioLevel::Token, kl(true)) - by_hand(true)).abs() > 1e-4, "the ratios of tokens differ");
}

#[test]
fn a_clamped_ratio_is_torchtitans_and_has_no_gradient() {
    let torchtitan = GrpoPreset::Torchtitan.options().unwrap();
    assert_eq!((torchtitan.log_ratio_max, torchtitan.clamp_log_ratio), (10.0, true));
    let batch = |log_prob: f64, advantage| Batch {
        log_prob: vec![log_prob, -1.0],
        old_log_prob: vec![-20.0, -1.0],
        ref_log_prob: None,
        sampler_log_prob: None,
        entropy: None,
        advantage: vec![advantage],
        mask: vec![1, 1],
        offsets: vec![0, 2],
    };
    // Upstream: r = e^clamp(d, -10, 10), the mean over both tokens.
    for (log_prob, advantage) in [(-9.0, -1.0), (-31.0, 1.0), (-11.0, -1.0), (-9.0, 1.0), (-31.0, -1.0)] {
        let d: f64 = log_prob + 20.0;
        let ratio = d.clamp(-10.0, 10.0).exp();
        let policy = |ratio: f64| -(ratio * advantage).min(ratio.clamp(0.8, 1.2) * advantage);
        let output = batch(log_prob, advantage).run(&torchtitan);
        assert_near("loss", output.loss, (policy(ratio) - advantage) / 2.0, TIGHT);
        let moves = d.abs() <= 10.0 && policy(ratio) == -ratio * advantage;
        let gradient = if moves { -ratio * advantage / 2.0 } else { 0.0 };
        assert_all_near("gradient", &output.grad_log_prob, &[gradient, -advantage / 2.0], TIGHT);
        assert_eq!(output.metric("numTokens"), Some(2.0), "it still counts");
        assert_eq!(output.metric("numExtremeRatio"), Some(f64::from(u8::from(d.abs() > 10.0))));
    }
    // By default such a token is dropped; at the default bound one token would have a gradient of 4e5.
    let dropped = batch(-9.0, -1.0).run(&GrpoOptions { log_ratio_max: 10.0, ..GrpoOptions::default() });
    assert_eq!((dropped.loss, dropped.metric("numTokens")), (1.0, Some(1.0)));
    assert!(batch(-7.0, -1.0).run(&GrpoOptions::default()).grad_log_prob[0] > 2e5);
    // Under a sequence's ratio the other tokens keep their gradient.
    let sequence =
        GrpoOptions { ratio: RatioLevel::SequenceProduct, surrogate: Surrogate::None, ..torchtitan };
    let output = batch(-9.0, -1.0).run(&sequence);
    let product = f64::exp(10.0);
    assert_all_near("sequence", &output.grad_log_prob, &[0.0, product], 1e-9);
    // Under an importance weight the estimate keeps its own gradient.
    let kl_to_ref = KlPenalty { coefficient: 0.5, importance_weighted: true, estimator: KlEstimator::K2 };
    let weighed = GrpoOptions { kl_to_ref, ratio: RatioLevel::Token, ..sequence };
    let with = Batch { ref_log_prob: Some(vec![-9.5, -1.0]), ..batch(-9.0, 0.0) };
    assert_all_near("penalty", &with.run(&weighed).grad_log_prob, &[0.25 * product * 0.5, 0.0], 1e-9);
}

#[test]
fn the_policy_term_is_that_of_the_tokens_of_highest_entropy() {
    let entropy = vec![9.0, 0.1, 0.9, 0.5, 9.0, 9.0, 0.3, 0.7];
    let batch = || Batch { entropy: Some(entropy.clone()), ..table() };
    let run = |top_entropy_quantile, entropy_coefficient| {
        let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
        let surrogate = Surrogate::None;
        batch().run(&GrpoOptions {
            top_entropy_quantile,
            entropy_coefficient,
            kl_to_ref,
            surrogate,
            ..GrpoOptions::default()
        })
    };
    let (all, half) = (run(1.0, 0.0), run(0.5, 0.0));
    // Trained entropies are 0.1, 0.9, 0.5, 0.3 and 0.7: the middle one is the threshold, and stays.
    assert_eq!(half.metric("numHighEntropy"), Some(3.0));
    let only_kl = {
        let zero = Batch { advantage: vec![0.0, 0.0], ..batch() };
        let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
        zero.run(&GrpoOptions { kl_to_ref, surrogate: Surrogate::None, ..GrpoOptions::default() })
    };
    for t in 0..8 {
        let wanted = if [2, 3, 7].contains(&t) { &all } else { &only_kl };
        assert_near("gradient", half.grad_log_prob[t], wanted.grad_log_prob[t], TIGHT);
    }
    assert_eq!(
        (all.metric("numTokens"), half.metric("numTokens")),
        (Some(5.0), Some(5.0)),
        "the mean is over all"
    );
    assert_eq!(all.metric("klToRefLoss"), half.metric("klToRefLoss"));
    let bonus = run(0.5, 0.2);
    let by_entropy = bonus.grad_entropy.as_ref().unwrap();
    assert_all_near("bonus", by_entropy, &[0.0, 0.0, -0.04, -0.04, 0.0, 0.0, 0.0, -0.04], TIGHT);
    assert_near("entropy", bonus.metric("entropy").unwrap(), 0.5, TIGHT);
    assert_eq!(run(0.01, 0.0).metric("numHighEntropy"), Some(1.0));
    let loss = GrpoLoss::new(GrpoOptions { top_entropy_quantile: 0.5, ..GrpoOptions::default() }).unwrap();
    let refused = loss.forward(&table().view()).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.detail()),
        (ErrorKind::Empty, "entropy must be given when topEntropyQuantile is below 1")
    );
}

#[test]
fn a_share_that_falls_on_an_entropy_keeps_it() {
    // In double precision (1 - 0.45) * 20 is a little more than 11, and the token at place 11 would be lost.
    for (share, count, kept) in [(0.45, 21, 10.0), (0.8, 11, 9.0), (0.3, 11, 4.0), (0.9, 11, 10.0)] {
        let batch = Batch {
            log_prob: vec![-1.0; count],
            old_log_prob: vec![-1.0; count],
            ref_log_prob: None,
            sampler_log_prob: None,
            entropy: Some((0..count).map(|t| f64::from((t * 8 % count) as f32 / 3.0)).collect()),
            advantage: vec![1.0],
            mask: vec![1; count],
            offsets: vec![0, count as u32],
        };
        let options = GrpoOptions { top_entropy_quantile: share, ..GrpoOptions::default() };
        assert_eq!(batch.run(&options).metric("numHighEntropy"), Some(kept), "{share} of {count}");
    }
}

#[test]
fn a_micro_batch_that_trains_nothing_adds_nothing_to_a_step() {
    for normalization in [Normalization::GlobalTokens(5.0), Normalization::GlobalSequences(2.0)] {
        let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
        let options =
            GrpoOptions { normalization, kl_to_ref, entropy_coefficient: 0.1, ..GrpoOptions::default() };
        let masked = Batch { mask: vec![0; 8], entropy: Some(vec![0.5; 8]), ..table() };
        let output = masked.run(&options);
        assert_eq!((output.loss, output.grad_log_prob), (0.0, vec![0.0; 8]));
        assert_eq!(output.grad_entropy, Some(vec![0.0; 8]));
        assert!(output.metrics.iter().all(|metric| metric.value == 0.0 || metric.name == "numSequences"));
        let nothing = Batch {
            log_prob: vec![],
            old_log_prob: vec![],
            ref_log_prob: Some(vec![]),
            sampler_log_prob: None,
            entropy: Some(vec![]),
            advantage: vec![],
            mask: vec![],
            offsets: vec![0],
        };
        assert_eq!(nothing.run(&options).loss, 0.0);
    }
    let masked = Batch { mask: vec![0; 8], ..table() };
    for normalization in
        [Normalization::TokenMean, Normalization::SequenceMean, Normalization::FixedLength(4.0)]
    {
        let loss = GrpoLoss::new(GrpoOptions { normalization, ..GrpoOptions::default() }).unwrap();
        assert_eq!(loss.forward(&masked.view()).unwrap_err().kind(), ErrorKind::Empty);
    }
}
