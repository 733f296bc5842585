//! `BradleyTerryLoss` against trl row by row, against finite differences, split into micro-batches, and at its edges.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod rows;

use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{BradleyTerryLoss, BradleyTerryOptions, BradleyTerryOutput, RewardPairs};
use rows::{assert_all_near, assert_near, flat, lines, number, rows};

fn run(
    chosen: &[f64],
    rejected: &[f64],
    margin: Option<&[f64]>,
    options: BradleyTerryOptions,
) -> BradleyTerryOutput<f64> {
    BradleyTerryLoss::new(options).unwrap().forward(&RewardPairs { chosen, rejected, margin }).unwrap()
}

#[test]
fn loss_gradient_and_metrics_equal_trl() {
    let rows = rows("reward_modeling", |_| true);
    assert_eq!(rows.len(), 4);
    for row in rows {
        let center_coefficient = row["center_rewards_coefficient"].as_f64().unwrap_or(0.0);
        let margin = (!row["margin"].is_null()).then(|| flat(&row["margin"]));
        let (chosen, rejected) = (flat(&row["rewards_chosen"]), flat(&row["rewards_rejected"]));
        let options = BradleyTerryOptions { center_coefficient, num_pairs: None };
        let output = run(&chosen, &rejected, margin.as_deref(), options);
        assert_near("loss", output.loss, number(&row["loss"]), 1e-9);
        let gradient = [output.grad_chosen.clone(), output.grad_rejected.clone()].concat();
        assert_all_near("gradient", &gradient, &flat(&row["gradient"]), 1e-9);
        let metric = |name: &str| output.metrics.iter().find(|metric| metric.name == name).unwrap().value;
        assert_near("pairs", metric("numPairs"), lines(&row["rewards_chosen"]).len() as f64, 0.0);
        let upstream = &row["metrics"];
        for (ours, theirs) in [("accuracy", "accuracy"), ("margin", "margin"), ("meanReward", "mean_reward")]
        {
            assert_near(ours, metric(ours), number(&upstream[theirs]), 1e-6);
        }
    }
}

#[test]
fn gradients_are_slopes_and_micro_batches_add_up() {
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let mut draw = || (0..8).map(|_| 2.0 * rng.normal()).collect::<Vec<f64>>();
        let (chosen, rejected, margin) = (draw(), draw(), draw());
        let options = BradleyTerryOptions { center_coefficient: 0.05, num_pairs: Some(8.0) };
        let whole = run(&chosen, &rejected, Some(&margin), options);
        for at in 0..8 {
            let moved = |by: f64| {
                let (mut up, mut down) = (chosen.clone(), rejected.clone());
                up[at] += by;
                down[at] -= 2.0 * by;
                run(&up, &down, Some(&margin), options).loss
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            assert_near("slope", whole.grad_chosen[at] - 2.0 * whole.grad_rejected[at], slope, 1e-7);
        }
        let part = |at: usize| run(&chosen[at..=at], &rejected[at..=at], Some(&margin[at..=at]), options);
        assert_near("parts", (0..8).map(|at| part(at).loss).sum(), whole.loss, 1e-12);
    }
}

#[test]
fn far_apart_rewards_stay_finite_and_what_cannot_be_is_refused() {
    let output = run(&[-1e6], &[1e6], None, BradleyTerryOptions::default());
    assert_eq!((output.loss, output.grad_chosen[0]), (2e6, -1.0));
    assert_eq!(run(&[], &[], None, BradleyTerryOptions::default()).loss, 0.0);
    let loss = BradleyTerryLoss::default();
    let kind = |pairs: RewardPairs<'_, f64>| loss.forward(&pairs).unwrap_err().kind();
    let pairs = RewardPairs { chosen: &[1.0], rejected: &[0.0], margin: None };
    assert_eq!(kind(RewardPairs { rejected: &[], ..pairs }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(RewardPairs { margin: Some(&[0.0, 1.0]), ..pairs }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(RewardPairs { chosen: &[f64::NAN], ..pairs }), ErrorKind::NonFinite);
    for options in [
        BradleyTerryOptions { center_coefficient: -1.0, num_pairs: None },
        BradleyTerryOptions { center_coefficient: 0.0, num_pairs: Some(0.0) },
    ] {
        assert_eq!(BradleyTerryLoss::new(options).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}
