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
