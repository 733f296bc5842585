//! KL estimates against torchrl.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod rows;

use fulmar_objective::{KlEstimator, kl_estimate};
use rows::{assert_all_near, assert_near, flat, lines, rows};

#[test]
fn k1_and_k3_and_their_gradients_equal_torchrl() {
    for row in rows("kl", |row| row["kind"] == "k3_token_estimate") {
        let (log_prob, reference) = (flat(&row["log_probs"]), flat(&row["target_log_probs"]));
        let (mask, count) = (vec![1; log_prob.len()], lines(&row["k3"]).len() as f64);
        let estimate = |estimator| kl_estimate(&log_prob, &reference, &mask, estimator).unwrap();
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
        let mean = |mask: [u8; 8]| kl_estimate(&log_prob, &reference, &mask, estimator).unwrap().mean;
        assert_near("masked", mean([0, 1, 1, 1, 0, 0, 1, 1]), masked, 1e-6);
        assert_near("all", mean([1; 8]), all, 1e-6);
    }
}
