//! KL estimates against torchrl.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::rows::{assert_all_near, assert_near, flat, lines, rows};
use crate::sequences::offsets_of;
use fulmar_compute::Compute;
use fulmar_core::ErrorKind;
use fulmar_objective::{
    AdaptiveKlController, Correction, CorrectionLevel, CorrectionRule, KlEstimator, KlReward,
    KlRewardOptions, RewardPlace, importance_weights, kl_estimate, kl_reward,
};
use serde_json::Value;

#[test]
fn k1_and_k3_and_their_gradients_equal_torchrl() {
    for row in rows("kl", |row| row["kind"] == "k3_token_estimate") {
        let (log_prob, reference) = (flat(&row["log_probs"]), flat(&row["target_log_probs"]));
        let (mask, count) = (vec![1; log_prob.len()], lines(&row["k3"]).len() as f64);
        let estimate =
            |estimator| kl_estimate(&log_prob, &reference, &mask, estimator, Compute::Cpu).unwrap();
        let k3 = estimate(KlEstimator::K3);
        assert_all_near("k3", &k3.kl, &flat(&row["k3"]), 1e-9);
        assert_near("k3 mean", k3.mean, flat(&row["k3"]).iter().sum::<f64>() / count, 1e-9);
        let summed: Vec<f64> = k3.grad_log_prob.iter().map(|gradient| gradient * count).collect();
        assert_all_near("k3 gradient", &summed, &flat(&row["k3_grad_log_probs"]), 1e-9);
        assert_all_near("k1", &estimate(KlEstimator::K1).kl, &flat(&row["k1_from_KLComputation"]), 1e-9);
    }
}

#[test]
fn masked_means_equal_the_published_table() {
    let ln = |values: [f64; 8]| values.map(f64::ln);
    let log_prob = ln([0.5, 0.6, 0.9, 0.2, 0.5, 0.5, 0.3, 0.8]);
    let reference = ln([0.4, 0.4, 0.4, 0.4, 0.7, 0.7, 0.7, 0.7]);
    for (estimator, masked, all) in [
        (KlEstimator::K1, -0.038_104, -0.080_040),
        (KlEstimator::K2, 0.203_821, 0.144_652),
        (KlEstimator::K3, 0.225_785, 0.159_891),
    ] {
        let mean =
            |mask: [u8; 8]| kl_estimate(&log_prob, &reference, &mask, estimator, Compute::Cpu).unwrap().mean;
        assert_near("masked", mean([0, 1, 1, 1, 0, 0, 1, 1]), masked, 1e-6);
        assert_near("all", mean([1; 8]), all, 1e-6);
    }
}

/// Returns the row's rewards at every token minus its KL, in the row's precision.
fn penalized(row: &Value, log_probs: &str, mask: &[u8]) -> KlReward<f64> {
    let config = if row["config"].is_object() { &row["config"] } else { row };
    let coefficient =
        [&config["coeff"], &config["coef"]].iter().find_map(|value| value.as_f64()).unwrap_or(1.0);
    let options =
        KlRewardOptions { coefficient, place: RewardPlace::EveryToken, ..KlRewardOptions::default() };
    let (log_prob, reference) = (flat(&row[log_probs]), flat(&row["ref_log_probs"]));
    kl_reward(&log_prob, &reference, mask, &offsets_of(&row[log_probs]), &flat(&row["rewards"]), &options)
        .unwrap()
}

#[test]
fn rewards_less_the_divergence_equal_torchrl() {
    let mut num_rows = 0;
    for row in rows("kl", |row| row["kind"] == "KLComputation" || row["kind"] == "KLRewardTransform") {
        num_rows += 1;
        let (log_probs, kl) = match row["kind"] == "KLComputation" {
            true => ("gen_log_probs", "kl"),
            false => ("log_probs", "kl_penalty"),
        };
        let mask: Vec<u8> = match row["assistant_mask"].is_array() {
            true => flat(&row["assistant_mask"]).iter().map(|bit| *bit as u8).collect(),
            false => {
                let prompt = |s: usize| row["prompt_lengths"][s].as_u64().unwrap_or(0) as usize;
                let bits = |(s, tokens): (usize, &Value)| {
                    (0..lines(tokens).len()).map(|t| u8::from(t >= prompt(s))).collect::<Vec<_>>()
                };
                lines(&row[log_probs]).iter().enumerate().flat_map(bits).collect()
            }
        };
        let got = penalized(&row, log_probs, &mask);
        if row["expected_error"].is_object() {
            // Sequences of unequal length, which upstream cannot stack.
            assert_eq!(row["upstream_bug"], true);
            assert_eq!(got.reward.len(), mask.len());
            continue;
        }
        assert_all_near("kl", &got.kl, &flat(&row["outputs"][kl]), 1e-6);
        if row["outputs"]["reward"].is_array() {
            assert_all_near("reward", &got.reward, &flat(&row["outputs"]["reward"]), 1e-6);
        }
    }
    assert_eq!(num_rows, 6);
}

#[test]
fn a_reward_at_the_last_token_sums_to_the_reward_less_the_divergence() {
    let (log_prob, reference) = ([-1.0, -2.0, -3.0, -1.0], [-2.0, -2.5, -1.0, -9.0]);
    let options = KlRewardOptions { coefficient: 0.1, ..KlRewardOptions::default() };
    let got =
        kl_reward(&log_prob, &reference, &[1, 1, 0, 0], &[0, 3, 3, 4], &[5.0, 7.0, 2.0], &options).unwrap();
    assert_all_near("reward", &got.reward, &[-0.1, 5.0 - 0.05, 0.0, 2.0], 1e-12);
    let refuse = |coefficient, reward: &[f64]| {
        let options = KlRewardOptions { coefficient, ..options };
        kl_reward(&log_prob, &reference, &[1; 4], &[0, 4], reward, &options).unwrap_err().kind()
    };
    assert_eq!(refuse(-1.0, &[1.0]), ErrorKind::OutOfRange);
    assert_eq!(refuse(1.0, &[1.0, 2.0]), ErrorKind::ShapeMismatch);
    assert_eq!(refuse(1.0, &[f64::NAN]), ErrorKind::NonFinite);
}

#[test]
fn importance_weights_equal_those_of_trl() {
    for row in rows("kl", |row| row["kind"] == "trl_vllm_importance_ratio") {
        let (level, rule) = row["mode"].as_str().unwrap().split_once('_').unwrap();
        let correction = Correction {
            level: if level == "token" { CorrectionLevel::Token } else { CorrectionLevel::Sequence },
            rule: if rule == "truncate" { CorrectionRule::Truncate } else { CorrectionRule::Mask },
            min: row["clip_min"].as_f64().unwrap_or(0.0),
            max: row["clip_max"].as_f64().unwrap_or(f64::INFINITY),
        };
        let old = flat(&row["old_log_probs"]);
        let mask: Vec<u8> = flat(&row["completion_mask"]).iter().map(|bit| *bit as u8).collect();
        let offsets = offsets_of(&row["old_log_probs"]);
        let got = importance_weights(
            &old,
            &flat(&row["sampling_log_probs"]),
            &mask,
            &offsets,
            &correction,
            Compute::Cpu,
        )
        .unwrap();
        let expected = flat(&row["ratio"]);
        let per_sequence = expected.len() + 1 == offsets.len();
        for (s, pair) in offsets.windows(2).enumerate() {
            for t in pair[0] as usize..pair[1] as usize {
                let want = expected[if per_sequence { s } else { t }];
                assert_near("ratio", got[t], if mask[t] == 1 { want } else { 1.0 }, 1e-6);
            }
        }
    }
}

#[test]
fn the_controller_follows_torchrl_and_refuses_what_it_cannot_steer_by() {
    let mut controller = AdaptiveKlController::new(0.1, 6.0, 10_000.0).unwrap();
    // Upstream takes values times minus the coefficient; these are its numbers.
    for (scaled, count, expected) in [(0.1, 10, 0.09998), (10.0, 100, 0.100_179_96), (0.6, 64, 0.100_178_81)]
    {
        let kl = vec![scaled / controller.coefficient(); count];
        assert_near("coefficient", controller.update(&kl).unwrap(), expected, 1e-8);
    }
    assert_eq!(controller.update(&[]).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(controller.update(&[f64::NAN]).unwrap_err().kind(), ErrorKind::NonFinite);
    let kind = |controller: Result<AdaptiveKlController, fulmar_core::Error>| controller.unwrap_err().kind();
    assert_eq!(kind(AdaptiveKlController::new(0.0, 1.0, 1.0)), ErrorKind::OutOfRange);
    let mut short = AdaptiveKlController::new(0.1, 1.0, 1.0).unwrap();
    assert_eq!(short.update(&[0.0; 5]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(short.coefficient(), 0.1);
}

#[test]
fn rewards_of_tokens_stay_in_their_places() {
    let (log_prob, reference) = ([-1.0, -2.0, -3.0, -1.0], [-2.0, -2.5, -1.0, -9.0]);
    let options = KlRewardOptions { coefficient: 0.1, ..KlRewardOptions::default() };
    let of = |reward: &[f64], offsets: &[u32]| {
        kl_reward(&log_prob, &reference, &[1, 1, 0, 1], offsets, reward, &options)
    };
    let got = of(&[5.0, 6.0, 7.0, 8.0], &[0, 3, 4]).unwrap();
    assert_all_near("reward", &got.reward, &[4.9, 5.95, 7.0, 7.2], 1e-12);
    assert_eq!(of(&[1.0; 3], &[0, 3, 4]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    // Four sequences and four tokens, but not one token each: the layout is ambiguous.
    assert_eq!(
        of(&[1.0; 4], &[0, 0, 2, 3, 4]).unwrap_err().detail(),
        "reward must not be ambiguous: got length 4, both of sequences and of tokens"
    );
    assert_eq!(of(&[1.0; 4], &[0, 1, 2, 3, 4]).unwrap().reward.len(), 4);
    let error = of(&[1.0, f64::NAN, 1.0, 1.0], &[0, 3, 4]).unwrap_err();
    assert_eq!((error.kind(), error.detail()), (ErrorKind::NonFinite, "reward[1] must be finite: got NaN"));
}
