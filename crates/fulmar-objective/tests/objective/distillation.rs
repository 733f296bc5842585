//! `DistillationLoss` against torchrl row by row, against finite differences, and at its edges.

use crate::rows::{assert_all_near, assert_near, flat, lines, rows};
use fulmar_core::ErrorKind;
use fulmar_objective::{DistillationLoss, DistillationOptions, KlDirection, SftBatch, SftReduction};

#[test]
fn loss_and_gradient_equal_torchrl() {
    let rows = rows("preference", |row| row["kind"] == "torchrl_DistillationLoss");
    assert_eq!(rows.len(), 12);
    for row in rows {
        let config = &row["config"];
        let reduction = config["reduction"].as_str().unwrap();
        let options = DistillationOptions {
            direction: if config["kl_direction"] == "forward" {
                KlDirection::Forward
            } else {
                KlDirection::Reverse
            },
            reduction: if reduction == "mean" { SftReduction::Mean } else { SftReduction::Sum },
            normalize_by_seq_length: config["normalize_by_seq_length"] == true,
            ..Default::default()
        };
        let mut offsets = vec![0];
        for sequence in lines(&row["log_probs"]) {
            offsets.push(offsets[offsets.len() - 1] + lines(sequence).len() as u32);
        }
        let (log_prob, teacher) = (flat(&row["log_probs"]), flat(&row["ref_or_teacher_log_probs"]));
        let mask: Vec<u8> = flat(&row["assistant_mask"]).iter().map(|bit| *bit as u8).collect();
        let batch =
            SftBatch { log_prob: &log_prob, ref_log_prob: Some(&teacher), mask: &mask, offsets: &offsets };
        let result = DistillationLoss::new(options).unwrap().forward(&batch).unwrap();
        let wanted = flat(&row["outputs"]["loss_distill"]);
        if reduction == "none" {
            assert_all_near("sequences", &result.sequence_loss, &wanted, 1e-9);
        } else {
            assert_near("loss", result.output.loss, wanted[0], 1e-9);
        }
        assert_all_near("gradient", &result.output.grad_log_prob, &flat(&row["gradients"]), 1e-9);
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let (log_prob, teacher) = ([-1.0, -0.3, -2.5, -0.7], [-0.5, -2.5, -0.1, -0.7]);
    for direction in [KlDirection::Reverse, KlDirection::Forward] {
        let loss = DistillationLoss::new(DistillationOptions { direction, ..DistillationOptions::default() })
            .unwrap();
        let run = |log_prob: &[f64; 4]| {
            let (mask, offsets) = ([1, 1, 0, 1], [0, 3, 4]);
            let batch = SftBatch { log_prob, ref_log_prob: Some(&teacher), mask: &mask, offsets: &offsets };
            loss.forward(&batch).unwrap().output
        };
        for t in 0..4 {
            let moved = |by: f64| {
                let mut moved = log_prob;
                moved[t] += by;
                run(&moved).loss
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert_near("slope", run(&log_prob).grad_log_prob[t], slope, 1e-8);
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let loss = DistillationLoss::default();
    let kind = |batch: SftBatch<'_, f64>| loss.forward(&batch).unwrap_err().kind();
    let batch = SftBatch {
        log_prob: &[-1.0, -2.0],
        ref_log_prob: Some(&[-1.0, -2.0]),
        mask: &[1, 0],
        offsets: &[0, 2],
    };
    assert_eq!(kind(SftBatch { ref_log_prob: None, ..batch }), ErrorKind::Empty);
    assert_eq!(kind(SftBatch { mask: &[0, 0], ..batch }), ErrorKind::Empty);
    assert_eq!(kind(SftBatch { ref_log_prob: Some(&[-1.0]), ..batch }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(SftBatch { ref_log_prob: Some(&[f64::NAN, 0.0]), ..batch }), ErrorKind::NonFinite);
    let reduction = SftReduction::GlobalTokens(0.5);
    let refused = DistillationLoss::new(DistillationOptions { reduction, ..DistillationOptions::default() });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfRange);
}

fn loss_of(
    reduction: SftReduction,
    teacher: &[f64; 4],
    mask: &[u8; 4],
) -> fulmar_core::Result<fulmar_objective::SftOutput<f64>> {
    let options = DistillationOptions { reduction, ..DistillationOptions::default() };
    DistillationLoss::new(options)?.forward(&SftBatch {
        log_prob: &[-1.0, -0.3, -2.5, -0.7],
        ref_log_prob: Some(teacher),
        mask,
        offsets: &[0, 2, 4],
    })
}

#[test]
fn a_sequence_without_a_trained_token_does_not_dilute_the_mean() {
    let teacher = [-0.5, -2.5, -0.1, -0.7];
    let both = loss_of(SftReduction::Mean, &teacher, &[1, 1, 0, 0]).unwrap();
    let alone = DistillationLoss::default()
        .forward(&SftBatch {
            log_prob: &[-1.0, -0.3],
            ref_log_prob: Some(&teacher[..2]),
            mask: &[1, 1],
            offsets: &[0, 2],
        })
        .unwrap();
    assert_eq!(both.output.loss, alone.output.loss);
    assert_eq!(both.output.grad_log_prob[..2], alone.output.grad_log_prob);
    assert_eq!(both.sequence_loss, [alone.output.loss, 0.0]);
}

#[test]
fn a_micro_batch_that_trains_nothing_adds_nothing_to_a_step() {
    for reduction in [SftReduction::GlobalTokens(9.0), SftReduction::GlobalSequences(3.0)] {
        let found = loss_of(reduction, &[0.0; 4], &[0; 4]).unwrap();
        assert_eq!((found.output.loss, found.output.grad_log_prob), (0.0, vec![0.0; 4]));
        assert!(found.output.metrics.iter().all(|metric| metric.value.is_finite()));
    }
    for reduction in [SftReduction::Mean, SftReduction::Sum, SftReduction::TokenMean] {
        assert_eq!(loss_of(reduction, &[-1.0; 4], &[0; 4]).unwrap_err().kind(), ErrorKind::Empty);
    }
}

#[test]
fn a_teacher_that_is_zero_at_every_trained_token_is_refused() {
    let refused = loss_of(SftReduction::Mean, &[0.0, -0.0, -1.0, -1.0], &[1, 1, 0, 0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfRange);
    assert!(refused.detail().contains("exactly 0 at all 2 trained tokens"), "{refused}");
    assert!(loss_of(SftReduction::Mean, &[0.0, -1e-30, 0.0, 0.0], &[1, 1, 1, 1]).is_ok(), "one is not 0");
}
