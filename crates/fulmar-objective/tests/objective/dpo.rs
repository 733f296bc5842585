//! `DpoLoss` against a naive version, against finite differences, split into micro-batches, and at its edges; its golden rows are read
//! by `preference.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use crate::naive_dpo::{Batch, naive_loss};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{DpoLoss, DpoLossType, DpoOptions, FDivergence, LossOutput};

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

fn smooths(kind: DpoLossType) -> bool {
    matches!(kind, DpoLossType::ExoPair | DpoLossType::Robust | DpoLossType::Aot | DpoLossType::AotUnpaired)
}

fn sorts(kind: DpoLossType) -> bool {
    matches!(kind, DpoLossType::Aot | DpoLossType::AotUnpaired)
}

fn takes_scores(kind: DpoLossType) -> bool {
    use DpoLossType::{AotUnpaired, ApoDown, ApoZero, BcoPair, NcaPair, SppoHard};
    !matches!(kind, DpoLossType::Aot | AotUnpaired | ApoZero | ApoDown | BcoPair | NcaPair | SppoHard)
}

/// Returns random options that `kind` supports.
fn random_options(rng: &mut Rng, kind: DpoLossType) -> DpoOptions {
    let mut loss_weights = BTreeMap::from([(kind, 0.5 + rng.uniform_f64())]);
    if rng.below(3).unwrap() == 0 {
        loss_weights.insert(DpoLossType::Sft, 0.5);
    }
    let divergences = [
        FDivergence::ReverseKl,
        FDivergence::ForwardKl,
        FDivergence::JsDivergence,
        FDivergence::AlphaDivergence(2.0 * rng.uniform_f64()),
    ];
    DpoOptions {
        loss_weights,
        beta: 0.05 + rng.uniform_f64(),
        label_smoothing: if smooths(kind) { 0.01 + 0.4 * rng.uniform_f64() } else { 0.0 },
        f_divergence: if takes_scores(kind) {
            divergences[rng.below(4).unwrap() as usize]
        } else {
            FDivergence::ReverseKl
        },
        ld_alpha: (rng.below(2).unwrap() == 0).then(|| rng.uniform_f64()),
        use_weighting: !sorts(kind) && rng.below(3).unwrap() == 0,
        discopop_tau: 0.3 + 0.5 * rng.uniform_f64(),
        ..DpoOptions::default()
    }
}

fn run(batch: &Batch, options: &DpoOptions) -> LossOutput<f64> {
    DpoLoss::new(options.clone()).unwrap().forward(&batch.view()).unwrap()
}

fn assert_near(what: &str, got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance * expected.abs().max(1.0),
        "{what}: got {got}, expected {expected}"
    );
}

#[test]
fn ten_thousand_random_batches_give_the_naive_value() {
    let mut rng = Rng::new(5).stream("dpo");
    for case in 0..10_000 {
        let kind = ALL[case % 15];
        let num_pairs = 1 + rng.below(5).unwrap() as usize;
        let (options, batch) = (random_options(&mut rng, kind), Batch::random(&mut rng, num_pairs));
        let what = format!("case {case} {options:?}");
        assert_near(&what, run(&batch, &options).loss, naive_loss(&batch, &options), 1e-9);
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let mut rng = Rng::new(6).stream("dpo");
    for case in 0..600 {
        let kind = ALL[case % 15];
        // Weights of pairs have no gradient, so their gradient is compared separately below.
        let options = DpoOptions { use_weighting: false, ..random_options(&mut rng, kind) };
        let mut batch = Batch::random(&mut rng, 3);
        for (t, gradient) in run(&batch, &options).grad_log_prob.into_iter().enumerate() {
            let here = batch.log_prob[t];
            let mut at = |by: f64| {
                batch.log_prob[t] = here + by;
                run(&batch, &options).loss
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            batch.log_prob[t] = here;
            assert_near(&format!("case {case} [{t}] {options:?}"), gradient, slope, 2e-6);
        }
    }
}

#[test]
fn pairs_that_the_policy_finds_unlikely_weigh_less_and_their_weight_has_no_gradient() {
    let mut rng = Rng::new(7).stream("dpo");
    let batch = Batch::random(&mut rng, 1);
    let plain = run(&batch, &DpoOptions::default());
    let weighted = run(&batch, &DpoOptions { use_weighting: true, ..DpoOptions::default() });
    let weight = weighted.loss / plain.loss;
    assert!(weight > 0.0 && (weight - 1.0).abs() > 1e-3);
    for (weighted, plain) in weighted.grad_log_prob.iter().zip(plain.grad_log_prob) {
        assert_near("gradient", *weighted, weight * plain, 1e-12);
    }
}

#[test]
fn eight_micro_batches_are_one_batch_of_eight() {
    let mut rng = Rng::new(8).stream("dpo");
    for kind in ALL.into_iter().filter(|&kind| !sorts(kind)) {
        let batch = Batch::random(&mut rng, 8);
        let num_chosen_tokens = Some(batch.num_chosen_tokens());
        let options =
            DpoOptions { num_pairs: Some(8.0), num_chosen_tokens, ..random_options(&mut rng, kind) };
        let whole = run(&batch, &options);
        let parts: Vec<_> = (0..8).map(|p| run(&batch.pair(p), &options)).collect();
        assert_near("loss", parts.iter().map(|part| part.loss).sum(), whole.loss, 1e-12);
        let gradient: Vec<f64> = parts.iter().flat_map(|part| part.grad_log_prob.clone()).collect();
        for (got, want) in gradient.iter().zip(&whole.grad_log_prob) {
            assert_near("gradient", *got, *want, 1e-12);
        }
        let alone = DpoOptions { num_pairs: None, num_chosen_tokens: None, ..options };
        assert_near("counts of the batch", run(&batch, &alone).loss, whole.loss, 1e-12);
    }
}

#[test]
fn optimal_transport_does_not_care_who_was_paired_with_whom() {
    let mut rng = Rng::new(9).stream("dpo");
    let batch = Batch::random(&mut rng, 4);
    let loss_weights = BTreeMap::from([(DpoLossType::AotUnpaired, 1.0)]);
    let options = DpoOptions { loss_weights, ..DpoOptions::default() };
    let swapped = batch.with_rejected_of(&[2, 0, 3, 1]);
    assert_near("loss", run(&swapped, &options).loss, run(&batch, &options).loss, 1e-12);
}

#[test]
fn options_outside_their_range_or_read_by_no_loss_are_refused() {
    let refused = |options: DpoOptions| DpoLoss::new(options).unwrap_err().kind();
    let with = |kind| DpoOptions { loss_weights: BTreeMap::from([(kind, 1.0)]), ..DpoOptions::default() };
    let sigmoid = DpoOptions::default;
    for beta in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(DpoOptions { beta, ..sigmoid() }), ErrorKind::OutOfRange);
        assert_eq!(refused(DpoOptions { discopop_tau: beta, ..sigmoid() }), ErrorKind::OutOfRange);
        let loss_weights = BTreeMap::from([(DpoLossType::Hinge, beta)]);
        assert_eq!(refused(DpoOptions { loss_weights, ..sigmoid() }), ErrorKind::OutOfRange);
    }
    for label_smoothing in [-0.1, 0.5, f64::NAN] {
        let options = DpoOptions { label_smoothing, ..with(DpoLossType::Robust) };
        assert_eq!(refused(options), ErrorKind::OutOfRange);
    }
    for ld_alpha in [-0.1, 1.1, f64::NAN] {
        assert_eq!(refused(DpoOptions { ld_alpha: Some(ld_alpha), ..sigmoid() }), ErrorKind::OutOfRange);
    }
    for count in [0.0, 0.5, f64::NAN] {
        assert_eq!(refused(DpoOptions { num_pairs: Some(count), ..sigmoid() }), ErrorKind::OutOfRange);
        assert_eq!(
            refused(DpoOptions { num_chosen_tokens: Some(count), ..sigmoid() }),
            ErrorKind::OutOfRange
        );
    }
    let f_divergence = FDivergence::AlphaDivergence(f64::NAN);
    assert_eq!(refused(DpoOptions { f_divergence, ..sigmoid() }), ErrorKind::OutOfRange);
    assert_eq!(refused(DpoOptions { loss_weights: BTreeMap::new(), ..sigmoid() }), ErrorKind::Empty);
    let together = [
        DpoOptions { label_smoothing: 0.1, ..sigmoid() },
        with(DpoLossType::ExoPair),
        DpoOptions { f_divergence: FDivergence::ForwardKl, ..with(DpoLossType::ApoZero) },
        DpoOptions { use_weighting: true, ..with(DpoLossType::Aot) },
        DpoOptions { num_pairs: Some(8.0), ..with(DpoLossType::AotUnpaired) },
        DpoOptions { num_pairs: Some(8.0), ..with(DpoLossType::Sft) },
    ];
    for options in together {
        assert_eq!(refused(options.clone()), ErrorKind::Incompatible, "{options:?}");
    }
}

#[test]
fn batches_that_cannot_be_compared_are_refused_by_name() {
    let batch = || Batch {
        log_prob: vec![-1.0, -2.0, -3.0],
        ref_log_prob: vec![-1.0, -2.0, -3.0],
        log_sum_sq_prob: vec![-1.0; 3],
        mask: vec![1, 1, 1],
        offsets: vec![0, 1, 3],
    };
    let refused = |change: fn(&mut Batch)| {
        let mut batch = batch();
        change(&mut batch);
        let error = DpoLoss::default().forward(&batch.view()).unwrap_err();
        (error.kind(), error.detail().to_owned())
    };
    type Case = (fn(&mut Batch), ErrorKind, &'static str);
    let expected: [Case; 9] = [
        (|b| b.log_prob[1] = f64::NAN, ErrorKind::NonFinite, "log_prob[1] must be finite: got NaN"),
        (
            |b| b.ref_log_prob[2] = f64::NEG_INFINITY,
            ErrorKind::NonFinite,
            "ref_log_prob[2] must be finite: got -inf",
        ),
        (
            |b| b.ref_log_prob.truncate(2),
            ErrorKind::ShapeMismatch,
            "ref_log_prob length must equal log_prob = 3: got 2",
        ),
        (
            |b| b.log_sum_sq_prob.truncate(1),
            ErrorKind::ShapeMismatch,
            "log_sum_sq_prob length must equal log_prob = 3: got 1",
        ),
        (|b| b.mask.truncate(1), ErrorKind::ShapeMismatch, "mask length must equal log_prob = 3: got 1"),
        (|b| b.mask = vec![0; 3], ErrorKind::Empty, "mask must train at least one token: got 0 of 3"),
        (
            |b| b.mask[0] = 0,
            ErrorKind::Empty,
            "mask must train at least one token of every sequence: it trains 0 of sequence 0",
        ),
        (|b| b.mask[0] = 2, ErrorKind::OutOfRange, "mask[0] must be 0 or 1: got 2"),
        (
            |b| b.offsets = vec![0, 3],
            ErrorKind::ShapeMismatch,
            "offsets must bound pairs of sequences: got 1 sequences",
        ),
    ];
    for (change, kind, detail) in expected {
        assert_eq!(refused(change), (kind, detail.to_owned()));
    }
    let weighted = DpoLoss::new(DpoOptions { use_weighting: true, ..DpoOptions::default() }).unwrap();
    let batch = batch();
    let without = fulmar_objective::PreferenceBatch { log_sum_sq_prob: None, ..batch.view() };
    assert_eq!(weighted.forward(&without).unwrap_err().kind(), ErrorKind::Empty);
}

#[test]
fn what_stands_outside_answers_is_not_read() {
    let mut batch = Batch::random(&mut Rng::new(10), 2);
    let before = run(&batch, &DpoOptions::default());
    for t in 0..batch.mask.len() {
        if batch.mask[t] == 0 {
            (batch.log_prob[t], batch.ref_log_prob[t]) = (f64::NAN, f64::INFINITY);
        }
    }
    assert_eq!(run(&batch, &DpoOptions::default()), before);
}
