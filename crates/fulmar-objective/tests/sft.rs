//! `SftLoss` against trl, against the published values of torchrl, and against finite differences.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod rows;

use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{KlEstimator, KlPenalty, SftBatch, SftLoss, SftOptions, SftReduction};
use rows::{assert_all_near, assert_near, flat, lines, number, rows};

fn options(reduction: SftReduction, normalize_by_seq_length: bool) -> SftOptions {
    SftOptions { reduction, normalize_by_seq_length, ..SftOptions::default() }
}

#[test]
fn the_token_mean_equals_trl() {
    for row in rows("preference", |row| row["kind"] == "trl_sft") {
        let lengths = lines(&row["log_probs"]).iter().map(|sequence| lines(sequence).len() as u32);
        let offsets: Vec<u32> = std::iter::once(0)
            .chain(lengths.scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let log_prob = flat(&row["log_probs"]);
        let mask: Vec<u8> = flat(&row["label_mask"]).iter().map(|&bit| bit as u8).collect();
        let batch = SftBatch { log_prob: &log_prob, ref_log_prob: None, mask: &mask, offsets: &offsets };
        let result = SftLoss::new(options(SftReduction::TokenMean, true)).unwrap().forward(&batch).unwrap();
        assert_near("loss", result.output.loss, number(&row["loss"]), 1e-9);
        assert_all_near("gradient", &result.output.grad_log_prob, &flat(&row["gradient"]), 1e-9);
    }
}

#[test]
fn mean_and_sum_over_sequences_equal_the_published_values() {
    // Sums of the trained log-probs are -1 and -3, as in torchrl's documentation of the reductions.
    let batch = SftBatch {
        log_prob: &[-0.5, -0.5, -9.0, -3.0],
        ref_log_prob: None,
        mask: &[1, 1, 0, 1],
        offsets: &[0, 3, 4],
    };
    let run =
        |reduction, normalize| SftLoss::new(options(reduction, normalize)).unwrap().forward(&batch).unwrap();
    assert_eq!(run(SftReduction::Mean, false).output.loss, 2.0);
    assert_eq!(run(SftReduction::Sum, false).output.loss, 4.0);
    assert_eq!(run(SftReduction::Sum, false).sequence_loss, [1.0, 3.0]);
    assert_eq!(run(SftReduction::Mean, true).output.loss, 1.75);
    assert_eq!(run(SftReduction::Sum, true).sequence_loss, [0.5, 3.0]);
    assert_eq!(run(SftReduction::GlobalTokens(8.0), true).output.loss, 0.5);
}

#[test]
fn every_reduction_has_the_gradient_of_its_value() {
    let (mut rng, step) = (Rng::new(1).stream("sft"), 1e-6);
    let reductions =
        [SftReduction::Mean, SftReduction::Sum, SftReduction::TokenMean, SftReduction::GlobalTokens(5.0)];
    for case in 0..200 {
        let mut log_prob: Vec<f64> = (0..9).map(|_| -2.0 * rng.uniform_f64()).collect();
        let reference: Vec<f64> = log_prob.iter().map(|l| l + 0.3 * rng.normal()).collect();
        let mut mask: Vec<u8> = (0..9).map(|_| rng.below(2).unwrap() as u8).collect();
        mask[8] = 1;
        let estimator = [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3][case % 3];
        let kl_to_ref = KlPenalty { estimator, coefficient: 0.3, importance_weighted: false };
        let options = SftOptions { kl_to_ref, ..options(reductions[case % 4], case % 8 < 4) };
        let loss = SftLoss::new(options).unwrap();
        let run = |log_prob: &[f64]| {
            let batch =
                SftBatch { log_prob, ref_log_prob: Some(&reference), mask: &mask, offsets: &[0, 4, 4, 9] };
            loss.forward(&batch).unwrap()
        };
        let gradient = run(&log_prob).output.grad_log_prob;
        for t in 0..9 {
            let here = log_prob[t];
            log_prob[t] = here + step;
            let above = run(&log_prob).output.loss;
            log_prob[t] = here - step;
            let slope = (above - run(&log_prob).output.loss) / (2.0 * step);
            log_prob[t] = here;
            assert!(
                (slope - gradient[t]).abs() < 1e-7,
                "case {case} token {t}: {slope} against {}",
                gradient[t]
            );
        }
    }
}

#[test]
fn what_a_supervised_loss_cannot_do_is_refused() {
    let kl_to_ref = KlPenalty { importance_weighted: true, ..KlPenalty::default() };
    let weighted = SftOptions { kl_to_ref, ..SftOptions::default() };
    assert_eq!(SftLoss::new(weighted).unwrap_err().kind(), ErrorKind::OutOfRange);
    let none = options(SftReduction::GlobalTokens(0.0), true);
    assert_eq!(SftLoss::new(none).unwrap_err().kind(), ErrorKind::OutOfRange);
    let forward = |log_prob: &[f64], mask: &[u8]| {
        let batch = SftBatch { log_prob, ref_log_prob: None, mask, offsets: &[0, 2] };
        SftLoss::default().forward(&batch).map(|result| result.output.loss)
    };
    assert_eq!(forward(&[f64::NEG_INFINITY, -1.0], &[0, 1]), Ok(1.0));
    assert_eq!(forward(&[f64::NEG_INFINITY, -1.0], &[1, 1]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(forward(&[-1.0, -1.0], &[0, 0]).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(forward(&[-1.0], &[1]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn minor_sft_gives_the_published_values_and_its_gradient_is_a_slope() {
    let (log_prob, reference) = ([-0.5, -0.5, -3.0, -9.0], [-1.0, -1.0, -2.0, 0.0]);
    let run = |log_prob: &[f64; 4], reduction, normalize| {
        let options = SftOptions { minor_beta: Some(0.1), ..options(reduction, normalize) };
        let (mask, offsets) = ([1, 1, 1, 0], [0, 2, 4]);
        let batch = SftBatch { log_prob, ref_log_prob: Some(&reference), mask: &mask, offsets: &offsets };
        SftLoss::new(options).unwrap().forward(&batch).unwrap()
    };
    // Sums of -1 and -3 beside -2 and -2.
    let mean = run(&log_prob, SftReduction::Mean, false);
    assert_all_near("sequences", &mean.sequence_loss, &[0.6444, 0.7444], 1e-4);
    assert_near("mean", mean.output.loss, 0.6944, 1e-4);
    assert_near("sum", run(&log_prob, SftReduction::Sum, false).output.loss, 1.3888, 1e-4);
    for (reduction, normalize) in [(SftReduction::Mean, true), (SftReduction::Sum, false)] {
        let gradient = run(&log_prob, reduction, normalize).output.grad_log_prob;
        for t in 0..4 {
            let moved = |by: f64| {
                let mut moved = log_prob;
                moved[t] += by;
                run(&moved, reduction, normalize).output.loss
            };
            assert_near("slope", gradient[t], (moved(1e-6) - moved(-1e-6)) / 2e-6, 1e-8);
        }
    }
}

#[test]
fn minor_sft_is_refused_without_what_it_needs() {
    let refused = |options: SftOptions| SftLoss::new(options).unwrap_err().kind();
    let minor = |beta| SftOptions { minor_beta: Some(beta), ..SftOptions::default() };
    for beta in [0.0, -1.0, f64::NAN] {
        assert_eq!(refused(minor(beta)), ErrorKind::OutOfRange);
    }
    let reduction = SftReduction::TokenMean;
    assert_eq!(refused(SftOptions { reduction, ..minor(0.1) }), ErrorKind::Incompatible);
    let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
    assert_eq!(refused(SftOptions { kl_to_ref, ..minor(0.1) }), ErrorKind::Incompatible);
    let batch = SftBatch { log_prob: &[-1.0], ref_log_prob: None, mask: &[1], offsets: &[0, 1] };
    assert_eq!(SftLoss::new(minor(0.1)).unwrap().forward(&batch).unwrap_err().kind(), ErrorKind::Empty);
}
