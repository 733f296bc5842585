//! The losses of the GRPO family against trl row by row, against the table of values that the published programs gave for one small
//! batch, against finite differences, and split into micro-batches.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    Advantage, Clip, Correction, CorrectionLevel, CorrectionRule, Envelope, GrpoLoss, GrpoOptions,
    KlEstimator, KlPenalty, LossBatch, LossOutput, Normalization, RatioLevel, Surrogate,
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

    /// One of its sequences alone.
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
            // trl keeps temperatures as singles.
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
        // The ratios are given; a sampler is made that has them. VESPO multiplies those of a sequence, upstream with those of padding.
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
        assert_near(&format!("{id} policy"), metric("policyLoss"), number(&upstream["policy_loss"]), TIGHT);
    } else {
        assert_near(&format!("{id} loss"), output.loss, number(&row["outputs"]["loss"]), TIGHT);
    }
    assert_all_near(&format!("{id} gradient"), &output.grad_log_prob, &wanted, TIGHT);
    "equal"
}

/// Probabilities of two answers, and what the published programs make of them.
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
    // The bounds of a mask are strict upstream where a ratio stands on them; here they are inside, up to rounding.
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
        (RatioLevel::Token, Surrogate::Sapo { tau_positive: 1.0, tau_negative: 1.05 }),
        (RatioLevel::Token, VESPO),
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
            let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
            let options = GrpoOptions { ratio, surrogate, kl_to_ref, ..GrpoOptions::default() };
            let output = batch.run(&options);
            if ratio == RatioLevel::SequenceToken {
                continue; // its value holds the other tokens fixed
            }
            if matches!(surrogate, Surrogate::Cispo { .. }) || surrogate == VESPO {
                // The weight is held fixed, so the policy term is linear in the log-probabilities.
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
            // What a batch counts by itself, and what stands for it over a whole step.
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
    assert_eq!(refused(sequence_of(Surrogate::Cispo { cap: 5.0 })), ErrorKind::Incompatible);
    let weighed = Correction { level: CorrectionLevel::Sequence, ..Correction::default() };
    assert_eq!(refused(GrpoOptions { corrections: vec![weighed], ..pushed(VESPO) }), ErrorKind::Incompatible);
    let loss =
        GrpoLoss::new(GrpoOptions { corrections: vec![Correction::default()], ..GrpoOptions::default() })
            .unwrap();
    let batch = Batch { sampler_log_prob: None, ..table() };
    assert_eq!(loss.forward(&batch.view()).unwrap_err().kind(), ErrorKind::Empty);
}
