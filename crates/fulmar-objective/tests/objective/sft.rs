//! `SftLoss` against trl, against the published values of torchrl, and against finite differences.

use crate::rows::{assert_all_near, assert_near, flat, number, rows};
use crate::sequences::{bits, offsets_of};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{KlEstimator, KlPenalty, SftBatch, SftLoss, SftOptions, SftReduction};

fn options(reduction: SftReduction, normalize_by_seq_length: bool) -> SftOptions {
    SftOptions { reduction, normalize_by_seq_length, ..SftOptions::default() }
}

#[test]
fn the_token_mean_equals_trl() {
    let all = rows("preference", |row| row["kind"] == "trl_sft");
    assert_eq!(all.len(), 2);
    for row in all {
        let options = SftOptions {
            reduction: SftReduction::TokenMean,
            dft: row["loss_type"] == "dft",
            ..SftOptions::default()
        };
        let (log_prob, mask) = (flat(&row["log_probs"]), bits(&flat(&row["label_mask"])));
        let offsets = offsets_of(&row["log_probs"]);
        let batch = SftBatch { log_prob: &log_prob, ref_log_prob: None, mask: &mask, offsets: &offsets };
        let result = SftLoss::new(options).unwrap().forward(&batch).unwrap();
        assert_near("loss", result.output.loss, number(&row["loss"]), 1e-9);
        assert_all_near("gradient", &result.output.grad_log_prob, &flat(&row["gradient"]), 1e-9);
    }
}

/// Upstream's class refuses to start without a tokenizer and so gives no value; a loss of log-probabilities
/// has nothing to tokenize.
#[test]
fn the_inputs_of_torchrl_give_its_formula() {
    let all = rows("preference", |row| row["kind"] == "torchrl_SFTLoss");
    assert_eq!(all.len(), 12);
    for row in all {
        let config = &row["config"];
        let is_minor = config["loss_function"] == "minor_sft";
        let normalize_by_seq_length = config["normalize_by_seq_length"] == true;
        let is_mean = config["reduction"] == "mean";
        let options = SftOptions {
            reduction: if is_mean { SftReduction::Mean } else { SftReduction::Sum },
            normalize_by_seq_length,
            minor_beta: is_minor.then(|| number(&config["beta"])),
            ..SftOptions::default()
        };
        let (log_prob, mask) = (flat(&row["log_probs"]), bits(&flat(&row["assistant_mask"])));
        let reference =
            row["ref_or_teacher_log_probs"].is_array().then(|| flat(&row["ref_or_teacher_log_probs"]));
        let offsets = offsets_of(&row["log_probs"]);
        let batch = SftBatch {
            log_prob: &log_prob,
            ref_log_prob: reference.as_deref(),
            mask: &mask,
            offsets: &offsets,
        };
        let result = SftLoss::new(options).unwrap().forward(&batch).unwrap();
        let mut sequences = Vec::new();
        for bounds in offsets.windows(2) {
            let trained: Vec<usize> =
                (bounds[0] as usize..bounds[1] as usize).filter(|&t| mask[t] == 1).collect();
            let length = if normalize_by_seq_length { trained.len().max(1) as f64 } else { 1.0 };
            let sum = |values: &[f64]| trained.iter().map(|&t| values[t]).sum::<f64>() / length;
            let own = sum(&log_prob);
            sequences.push(match &reference {
                Some(reference) if is_minor => {
                    (1.0 + (-number(&config["beta"]) * (own - sum(reference))).exp()).ln()
                }
                _ => -own,
            });
        }
        assert_all_near("sequences", &result.sequence_loss, &sequences, 1e-9);
        let wanted = sequences.iter().sum::<f64>() / if is_mean { sequences.len() as f64 } else { 1.0 };
        assert_near("loss", result.output.loss, wanted, 1e-9);
        assert_eq!(row["expected_error"]["message"], "Tokenizer must be provided.");
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
    let reductions = [
        SftReduction::Mean,
        SftReduction::Sum,
        SftReduction::TokenMean,
        SftReduction::GlobalTokens(5.0),
        SftReduction::GlobalSequences(7.0),
    ];
    for case in 0..200 {
        let mut log_prob: Vec<f64> = (0..9).map(|_| -2.0 * rng.uniform_f64()).collect();
        let reference: Vec<f64> = log_prob.iter().map(|l| l + 0.3 * rng.normal()).collect();
        let mut mask: Vec<u8> = (0..9).map(|_| rng.below(2).unwrap() as u8).collect();
        mask[8] = 1;
        let estimator = [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3][case % 3];
        let kl_to_ref = KlPenalty { estimator, coefficient: 0.3, importance_weighted: false };
        let options = SftOptions { kl_to_ref, ..options(reductions[case % 5], case % 8 < 4) };
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

/// Compares three sequences of four tokens, alone and together, under each reduction and its counterpart over
/// a whole step.
#[test]
fn micro_batches_add_up_to_one_batch_under_every_reduction() {
    let mut rng = Rng::new(4).stream("sft");
    let log_prob: Vec<f64> = (0..12).map(|_| -2.0 * rng.uniform_f64()).collect();
    let reference: Vec<f64> = log_prob.iter().map(|l| l + 0.3 * rng.normal()).collect();
    let mask = [0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1];
    let twins = [
        (SftReduction::Mean, SftReduction::GlobalSequences(3.0)),
        (SftReduction::Sum, SftReduction::Sum),
        (SftReduction::TokenMean, SftReduction::GlobalTokens(7.0)),
    ];
    for (here, of_step) in twins {
        for (minor_beta, dft) in [(None, false), (None, true), (Some(0.3), false)] {
            if minor_beta.is_some() && here == SftReduction::TokenMean {
                continue; // it needs a reduction by sequences
            }
            let run = |reduction, tokens: std::ops::Range<usize>, offsets: &[u32]| {
                let batch = SftBatch {
                    log_prob: &log_prob[tokens.clone()],
                    ref_log_prob: Some(&reference[tokens.clone()]),
                    mask: &mask[tokens],
                    offsets,
                };
                let loss = SftLoss::new(SftOptions { minor_beta, dft, ..options(reduction, true) }).unwrap();
                loss.forward(&batch).unwrap().output
            };
            let whole = run(here, 0..12, &[0, 4, 8, 12]);
            let parts: Vec<_> = [0..4, 4..8, 8..12].map(|tokens| run(of_step, tokens, &[0, 4])).to_vec();
            assert_near("loss", parts.iter().map(|part| part.loss).sum(), whole.loss, 1e-12);
            let gradient: Vec<f64> = parts.iter().flat_map(|part| part.grad_log_prob.clone()).collect();
            assert_all_near("gradient", &gradient, &whole.grad_log_prob, 1e-12);
        }
    }
}

#[test]
fn a_dynamic_weight_is_the_probability_of_the_token_and_has_no_gradient() {
    let options = SftOptions { dft: true, ..options(SftReduction::TokenMean, true) };
    let log_prob = [0.5_f64.ln(), 0.25_f64.ln()];
    let batch = SftBatch { log_prob: &log_prob, ref_log_prob: None, mask: &[1, 1], offsets: &[0, 2] };
    let output = SftLoss::new(options).unwrap().forward(&batch).unwrap().output;
    assert_near("loss", output.loss, (0.5 * 2.0_f64.ln() + 0.25 * 4.0_f64.ln()) / 2.0, 1e-12);
    assert_all_near("gradient", &output.grad_log_prob, &[-0.25, -0.125], 1e-12);
}

#[test]
fn what_a_supervised_loss_cannot_do_is_refused() {
    let kl_to_ref = KlPenalty { importance_weighted: true, ..KlPenalty::default() };
    let weighted = SftOptions { kl_to_ref, ..SftOptions::default() };
    assert_eq!(SftLoss::new(weighted).unwrap_err().kind(), ErrorKind::OutOfRange);
    for reduction in [SftReduction::GlobalTokens(0.0), SftReduction::GlobalSequences(f64::NAN)] {
        assert_eq!(SftLoss::new(options(reduction, true)).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
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
    // Sums of -1 and -3, then -2 and -2.
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
    assert_eq!(refused(SftOptions { dft: true, ..minor(0.1) }), ErrorKind::Incompatible);
    let kl_to_ref = KlPenalty { coefficient: 0.1, ..KlPenalty::default() };
    assert_eq!(refused(SftOptions { kl_to_ref, ..minor(0.1) }), ErrorKind::Incompatible);
    let batch = SftBatch { log_prob: &[-1.0], ref_log_prob: None, mask: &[1], offsets: &[0, 1] };
    assert_eq!(SftLoss::new(minor(0.1)).unwrap().forward(&batch).unwrap_err().kind(), ErrorKind::Empty);
}
