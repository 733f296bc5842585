//! `group_advantage` against torchrl, trl and torchtitan, and cases in which rounding misled them.

use crate::rows::{assert_all_near, flat, lines, number, rows};
use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{
    AdvantageOptions, AdvantageScale, Baseline, Groups, RewardAggregation, RewardTable, StdKind,
    group_advantage, multi_reward_advantage,
};
use serde_json::Value;

fn torchrl() -> AdvantageOptions {
    AdvantageOptions { epsilon: 0.0, std_floor: 1e-6, ..AdvantageOptions::default() }
}

#[test]
fn several_rewards_at_every_scale_and_rollouts_without_a_score_equal_trl() {
    for row in rows("advantages", |row| row["kind"] == "trl_grpo_advantages") {
        let weights = flat(&row["reward_weights"]);
        let per_func: Vec<&Value> = lines(&row["rewards_per_func"]).iter().flat_map(lines).collect();
        let scored: Vec<u8> = per_func.iter().map(|reward| u8::from(!reward.is_null())).collect();
        let reward: Vec<f64> = per_func.iter().map(|reward| reward.as_f64().unwrap_or(f64::NAN)).collect();
        let table = RewardTable { reward: &reward, scored: Some(&scored), weights: &weights };
        let scale = match row["scale_rewards"].as_str().unwrap() {
            "group" => AdvantageScale::Group,
            "batch" => AdvantageScale::Batch,
            _ => AdvantageScale::None,
        };
        let aggregation = match row["multi_objective_aggregation"].as_str().unwrap() {
            "sum_then_normalize" => RewardAggregation::SumThenNormalize,
            _ => RewardAggregation::NormalizeThenSum,
        };
        let options = AdvantageOptions { scale, std_floor: 0.0, ..AdvantageOptions::default() };
        let size = Groups::Size(number(&row["num_generations"]) as usize);
        let result = multi_reward_advantage(table, size, aggregation, &options).unwrap();
        assert_all_near(row["id"].as_str().unwrap(), &result.advantage, &flat(&row["advantages"]), 1e-5);
    }
}

#[test]
fn leave_one_out_equals_trl_plain_and_normalised_over_the_batch() {
    for row in rows("advantages", |row| row["kind"] == "trl_rloo_advantages") {
        let mut reward = flat(&row["rewards"]);
        if row["reward_clip_range"].is_array() {
            let range = flat(&row["reward_clip_range"]);
            reward.iter_mut().for_each(|reward| *reward = reward.clamp(range[0], range[1]));
        }
        let is_normalized = row["normalize_advantages"] == true;
        let scale = if is_normalized { AdvantageScale::Batch } else { AdvantageScale::None };
        let baseline = Baseline::LeaveOneOut;
        let options = AdvantageOptions { baseline, scale, std_floor: 0.0, ..AdvantageOptions::default() };
        let size = Groups::Size(number(&row["num_generations"]) as usize);
        let result = group_advantage(&reward, None, size, &options).unwrap();
        assert_all_near(row["id"].as_str().unwrap(), &result.advantage, &flat(&row["advantages"]), 1e-5);
    }
}

#[test]
fn ten_thousand_random_batches_equal_the_plain_formulas() {
    let mut rng = Rng::new(12).stream("advantage");
    for case in 0..10_000 {
        let (num_groups, size) = (1 + rng.below(4).unwrap() as usize, 2 + rng.below(9).unwrap() as usize);
        let coarse = case % 3 == 0;
        let draw = |rng: &mut Rng| if coarse { rng.below(2).unwrap() as f64 } else { 3.0 + rng.normal() };
        let reward: Vec<f64> = (0..num_groups * size).map(|_| draw(&mut rng)).collect();
        let leave_one_out = rng.below(2).unwrap() == 1;
        let options = AdvantageOptions {
            baseline: if leave_one_out { Baseline::LeaveOneOut } else { Baseline::Group },
            scale: [AdvantageScale::Group, AdvantageScale::Batch, AdvantageScale::None][case % 3],
            ..AdvantageOptions::default()
        };
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let std = |values: &[f64]| {
            let squares: f64 = values.iter().map(|value| (value - mean(values)).powi(2)).sum();
            (squares / (values.len() as f64 - 1.0).max(1.0)).sqrt()
        };
        let difference = |group: &[f64]| -> Vec<f64> {
            let others = |i: usize| (group.iter().sum::<f64>() - group[i]) / (size as f64 - 1.0);
            (0..size).map(|i| group[i] - if leave_one_out { others(i) } else { mean(group) }).collect()
        };
        let differences: Vec<f64> = reward.chunks(size).flat_map(difference).collect();
        let expected: Vec<f64> = differences
            .chunks(size)
            .zip(reward.chunks(size))
            .flat_map(|(difference, group)| {
                let spread = match options.scale {
                    AdvantageScale::Group => std(difference),
                    AdvantageScale::Batch if leave_one_out => std(&differences),
                    AdvantageScale::Batch => std(&reward),
                    AdvantageScale::None => 1.0 - options.epsilon,
                };
                let is_flat = group.iter().all(|reward| *reward == group[0]);
                let divisor = spread.max(options.std_floor) + options.epsilon;
                difference.iter().map(move |d| if is_flat { 0.0 } else { d / divisor }).collect::<Vec<_>>()
            })
            .collect();
        let got = group_advantage(&reward, None, Groups::Size(size), &options).unwrap();
        assert_all_near(&format!("case {case} {options:?}"), &got.advantage, &expected, 1e-9);
    }
}

#[test]
fn population_deviation_equals_torchtitan() {
    for row in rows("torchtitan", |row| row["kind"] == "advantage") {
        let rewards = flat(&row["rewards"]);
        let scale = match row["should_std_normalize"] == true {
            true => AdvantageScale::Group,
            false => AdvantageScale::None,
        };
        let options = AdvantageOptions {
            scale,
            std: StdKind::Population,
            epsilon: 1e-6,
            std_floor: 0.0,
            ..AdvantageOptions::default()
        };
        let result = group_advantage(&rewards, None, Groups::Size(rewards.len()), &options).unwrap();
        assert_all_near("advantage", &result.advantage, &flat(&row["advantages"]), 1e-12);
    }
    let options = AdvantageOptions { std: StdKind::Population, epsilon: 1e-6, ..torchrl() };
    let result = group_advantage(&[1.0, 0.0, 0.0, 0.0], None, Groups::Size(4), &options).unwrap();
    assert_all_near("published", &result.advantage[..2], &[1.732_046_807_578, -0.577_348_935_859], 1e-11);
}

#[test]
fn a_group_of_equal_rewards_gets_exactly_zero_where_float_rounding_gave_upstream_a_push() {
    // In single precision upstream gave -0.0074506 for each of 7 rewards of 0.1, and 0.0298023 for 7 of 0.3.
    for (reward, size) in [(0.1, 7), (0.1, 12), (0.3, 7), (1.0, 4), (1.15, 6)] {
        for scale in [AdvantageScale::Group, AdvantageScale::Batch, AdvantageScale::None] {
            let options = AdvantageOptions { scale, ..torchrl() };
            let result = group_advantage(&vec![reward; size], None, Groups::Size(size), &options).unwrap();
            assert_eq!((result.advantage, result.degenerate), (vec![0.0; size], vec![true]));
        }
    }
}

#[test]
fn a_rollout_without_a_score_changes_nothing_for_the_others() {
    let options = AdvantageOptions::default();
    let reward = [1.0, f64::NAN, 0.0, 5.0, f64::NAN, f64::NAN];
    let scored = [1, 0, 1, 1, 0, 0];
    let result = group_advantage(&reward, Some(&scored), Groups::Size(3), &options).unwrap();
    let alone = group_advantage(&[1.0, 0.0], None, Groups::Size(2), &options).unwrap();
    assert_eq!(result.advantage, [alone.advantage[0], 0.0, alone.advantage[1], 0.0, 0.0, 0.0]);
    assert_eq!((result.degenerate, result.mean), (vec![false, true], vec![0.5, 5.0]));
}

#[test]
fn advantages_of_a_group_sum_to_zero_whatever_the_offset_of_the_rewards() {
    let mut rng = Rng::new(3).stream("advantage");
    for offset in [0.0, -1e3, 1e9] {
        let reward: Vec<f64> = (0..64).map(|_| offset + rng.normal()).collect();
        let groups = [0, 2, 30, 64];
        let result =
            group_advantage(&reward, None, Groups::Offsets(&groups), &AdvantageOptions::default()).unwrap();
        for pair in groups.windows(2) {
            let sum: f64 = result.advantage[pair[0] as usize..pair[1] as usize].iter().sum();
            assert!(sum.abs() < 1e-5, "got {sum}");
        }
    }
}

#[test]
fn bad_groups_and_rewards_are_refused_by_kind() {
    let default = AdvantageOptions::default();
    let kind = |reward: &[f64], groups: Groups<'_>| {
        group_advantage(reward, None, groups, &default).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(kind(&[], Groups::Size(2)), Err(ErrorKind::Empty));
    assert_eq!(kind(&[1.0], Groups::Size(1)), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(&[1.0, 2.0], Groups::Size(0)), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(&[1.0, 2.0], Groups::Size(2)), Ok(()));
    assert_eq!(kind(&[1.0, 2.0, 3.0], Groups::Size(2)), Err(ErrorKind::ShapeMismatch));
    assert_eq!(kind(&[1.0, 2.0, 3.0], Groups::Offsets(&[0, 2, 3])), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(&[1.0, 2.0, 3.0], Groups::Offsets(&[0, 2])), Err(ErrorKind::ShapeMismatch));
    assert_eq!(kind(&[1.0, f64::NAN], Groups::Size(2)), Err(ErrorKind::NonFinite));
    assert_eq!(kind(&[1e308, -1e308], Groups::Size(2)), Err(ErrorKind::NonFinite));
    let short = group_advantage(&[1.0, 2.0], Some(&[1]), Groups::Size(2), &default).unwrap_err();
    assert_eq!(short.to_string(), "scored length must equal reward = 2: got 1");
    let nan = group_advantage(&[1.0, 0.0, f64::NAN, 1.0], None, Groups::Size(2), &default).unwrap_err();
    assert_eq!(nan.to_string(), "reward[2] must be finite: got NaN");
    let options = AdvantageOptions { epsilon: -1.0, ..default };
    let error = group_advantage(&[1.0, 2.0], None, Groups::Size(2), &options).unwrap_err();
    assert_eq!(error.to_string(), "epsilon must be a finite number >= 0: got -1");
}

#[test]
fn groups_come_from_a_size_or_from_bounds_and_not_from_both() {
    assert_eq!(Groups::either(Some(4), None), Ok(Groups::Size(4)));
    assert_eq!(Groups::either(None, Some(&[0, 2])), Ok(Groups::Offsets(&[0, 2])));
    for wrong in [Groups::either(None, None), Groups::either(Some(2), Some(&[0, 2]))] {
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Malformed);
    }
}

#[test]
fn a_rollout_that_is_alone_in_its_group_is_not_in_the_deviation_of_leave_one_out_differences() {
    let options = AdvantageOptions {
        baseline: Baseline::LeaveOneOut,
        scale: AdvantageScale::Batch,
        epsilon: 0.0,
        std_floor: 0.0,
        ..AdvantageOptions::default()
    };
    let of = |reward: &[f64], scored: &[u8]| {
        group_advantage(reward, Some(scored), Groups::Size(2), &options).unwrap().advantage
    };
    let without = of(&[1.0, 0.0, 0.5, 0.0], &[1, 1, 1, 1]);
    let with = of(&[1.0, 0.0, 0.5, 0.0, 9.0, 0.0], &[1, 1, 1, 1, 1, 0]);
    assert_eq!(with, [&without[..], &[0.0, 0.0]].concat());
    // Differences 1, -1, 0.5, -0.5 have the unbiased deviation sqrt(2.5 / 3).
    assert_all_near(
        "advantage",
        &with[..2],
        &[1.0 / (2.5_f64 / 3.0).sqrt(), -1.0 / (2.5_f64 / 3.0).sqrt()],
        1e-12,
    );
}
