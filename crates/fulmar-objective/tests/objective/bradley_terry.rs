//! `BradleyTerryLoss` against trl row by row, against finite differences, split into micro-batches, and at its edges.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{BradleyTerryLoss, BradleyTerryOptions, BradleyTerryOutput, RewardPairs};

fn run(
    chosen: &[f64],
    rejected: &[f64],
    margin: Option<&[f64]>,
    options: BradleyTerryOptions,
) -> BradleyTerryOutput<f64> {
    BradleyTerryLoss::new(options)
        .unwrap()
        .forward(&RewardPairs { chosen, rejected, margin, offsets: None })
        .unwrap()
}

#[test]
fn loss_gradient_and_metrics_equal_trl() {
    let rows = rows("preference", |row| row["kind"] == "trl_reward_modeling");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let center_coefficient = row["center_rewards_coefficient"].as_f64().unwrap_or(0.0);
        let margin = (!row["margin"].is_null()).then(|| flat(&row["margin"]));
        let (chosen, rejected) = (flat(&row["rewards_chosen"]), flat(&row["rewards_rejected"]));
        let options = BradleyTerryOptions { center_coefficient, num_pairs: None, ..Default::default() };
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

/// Compares from the first token that differs to the end of the longer answer.
#[test]
fn rewards_of_tokens_equal_torchrl() {
    let all = rows("preference", |row| row["kind"] == "torchrl_reward_modeling");
    assert_eq!(all.len(), 1);
    let row = &all[0];
    let (chosen_ids, rejected_ids) = (lines(&row["chosen_ids"]), lines(&row["rejected_ids"]));
    let mut compared = Vec::new();
    for (pair, (chosen, rejected)) in
        chosen_ids.iter().map(flat).zip(rejected_ids.iter().map(flat)).enumerate()
    {
        let end =
            |ids: &[f64]| ids.iter().position(|id| *id == number(&row["pad_token_id"])).unwrap_or(ids.len());
        let differs =
            chosen.iter().zip(&rejected).position(|(left, right)| left != right).unwrap_or(chosen.len());
        compared.push((pair, differs..end(&chosen).max(end(&rejected))));
    }
    let of = |name: &str| -> Vec<f64> {
        compared
            .iter()
            .flat_map(|(pair, range)| flat(&lines(&row[name])[*pair])[range.clone()].to_vec())
            .collect()
    };
    let mut offsets = vec![0_u32];
    for (_, range) in &compared {
        offsets.push(offsets[offsets.len() - 1] + range.len() as u32);
    }
    let (chosen, rejected) = (of("chosen_rewards"), of("rejected_rewards"));
    let pairs = RewardPairs { chosen: &chosen, rejected: &rejected, margin: None, offsets: Some(&offsets) };
    let output = BradleyTerryLoss::default().forward(&pairs).unwrap();
    assert_near("loss", output.loss, number(&row["loss"]), 1e-9);
    let spread = |gradient: &[f64]| {
        let mut full: Vec<Vec<f64>> = chosen_ids.iter().map(|ids| vec![0.0; lines(ids).len()]).collect();
        for ((pair, range), bounds) in compared.iter().zip(offsets.windows(2)) {
            full[*pair][range.clone()].copy_from_slice(&gradient[bounds[0] as usize..bounds[1] as usize]);
        }
        full.concat()
    };
    assert_all_near("chosen", &spread(&output.grad_chosen), &flat(&row["gradients"]["chosen_rewards"]), 1e-9);
    assert_all_near(
        "rejected",
        &spread(&output.grad_rejected),
        &flat(&row["gradients"]["rejected_rewards"]),
        1e-9,
    );
}

#[test]
fn gradients_are_slopes_and_micro_batches_add_up() {
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let mut draw = || (0..8).map(|_| 2.0 * rng.normal()).collect::<Vec<f64>>();
        let (chosen, rejected, margin) = (draw(), draw(), draw());
        let options =
            BradleyTerryOptions { center_coefficient: 0.05, num_pairs: Some(8.0), ..Default::default() };
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
    let pairs = RewardPairs { chosen: &[1.0], rejected: &[0.0], margin: None, offsets: None };
    assert_eq!(kind(RewardPairs { rejected: &[], ..pairs }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(RewardPairs { offsets: Some(&[0, 2]), ..pairs }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(RewardPairs { offsets: Some(&[1, 1]), ..pairs }), ErrorKind::OutOfRange);
    assert_eq!(kind(RewardPairs { margin: Some(&[0.0, 1.0]), ..pairs }), ErrorKind::ShapeMismatch);
    assert_eq!(kind(RewardPairs { chosen: &[f64::NAN], ..pairs }), ErrorKind::NonFinite);
    for options in [
        BradleyTerryOptions { center_coefficient: -1.0, num_pairs: None, ..Default::default() },
        BradleyTerryOptions { center_coefficient: 0.0, num_pairs: Some(0.0), ..Default::default() },
    ] {
        assert_eq!(BradleyTerryLoss::new(options).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

/// One pair has rewards that differ by 1 at both compared tokens, the other equal answers; then two tokens of
/// a long pair with one of a short pair.
#[test]
fn compared_tokens_are_averaged_within_their_pair_and_equal_answers_count_nothing() {
    let run = |chosen: &[f64], offsets: &[u32]| {
        let rejected = vec![0.0; chosen.len()];
        let pairs = RewardPairs { chosen, rejected: &rejected, margin: None, offsets: Some(offsets) };
        BradleyTerryLoss::default().forward(&pairs).unwrap()
    };
    let with_equal = run(&[1.0, 1.0], &[0, 0, 2]);
    assert_near("one pair", with_equal.loss, 0.3133, 1e-4);
    let metric = |name: &str| with_equal.metrics.iter().find(|metric| metric.name == name).unwrap().value;
    assert_eq!(metric("numPairs"), 1.0);
    let both = run(&[1.0, 1.0, 0.0], &[0, 2, 3]);
    assert_near("mean of pairs", both.loss, (0.313_261_687 + 2.0_f64.ln()) / 2.0, 1e-8);
    assert_near("gradient", both.grad_chosen[0] / both.grad_chosen[2], 0.268_941_421 / 2.0 / 0.5, 1e-8);
    assert_eq!(run(&[], &[0, 0]).loss, 0.0);
}
