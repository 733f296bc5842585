//! `group_advantage` against torchrl, trl and torchtitan, and where rounding misled them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod rows;

use fulmar_core::{ErrorKind, Rng};
use fulmar_objective::{AdvantageOptions, AdvantageScale, Groups, StdKind, group_advantage};
use rows::{assert_all_near, flat, lines, number, rows};
use serde_json::Value;

fn torchrl() -> AdvantageOptions {
    AdvantageOptions { epsilon: 0.0, std_floor: 1e-6, ..AdvantageOptions::default() }
}

/// The statistic of each trajectory: its rewards reduced, or every one of them.
fn returns_of(rewards: &[f64], reduction: Option<&str>) -> Vec<f64> {
    match reduction {
        Some("sum") => vec![rewards.iter().sum()],
        Some("mean") => vec![rewards.iter().sum::<f64>() / rewards.len() as f64],
        Some("max") => vec![rewards.iter().copied().fold(f64::MIN, f64::max)],
        _ => rewards.to_vec(),
    }
}

/// The lengths of the trajectories that an emitted group was made of, found by their rewards.
fn emitted_lengths(row: &Value, output: &Value) -> Vec<usize> {
    let (rewards, group) = (flat(&output["reward"]), &output["group"][0]);
    let fed: Vec<Vec<f64>> = lines(&row["calls"])
        .iter()
        .flat_map(|call| lines(&call["trajectories"]))
        .filter(|trajectory| trajectory["group"] == *group)
        .map(|trajectory| flat(&trajectory["rewards"]))
        .collect();
    let same =
        |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
    let group_size = number(&row["config"]["grpo_size"]) as usize;
    // Trajectories are emitted in the order they came, though some may be left out: search for a fitting choice.
    fn search(
        rest: &[f64],
        fed: &[Vec<f64>],
        left: usize,
        same: &dyn Fn(&[f64], &[f64]) -> bool,
    ) -> Option<Vec<usize>> {
        if left == 0 {
            return rest.is_empty().then(Vec::new);
        }
        (0..fed.len()).find_map(|first| {
            let length = fed[first].len();
            let fits = length <= rest.len() && same(&rest[..length], &fed[first]);
            let tail = fits.then(|| search(&rest[length..], &fed[first + 1..], left - 1, same))??;
            Some([vec![length], tail].concat())
        })
    }
    search(&rewards, &fed, group_size, &same).unwrap()
}

#[test]
fn emitted_groups_of_trajectories_equal_torchrl() {
    let mut num_groups = 0;
    for row in rows("advantages", |row| row["kind"] == "mc_advantage") {
        let tolerance = if row["dtype"] == "float64" { 1e-9 } else { 1e-5 };
        for output in lines(&row["outputs"]).iter().filter(|output| output.is_object()) {
            let reduction = row["config"]["trajectory_return"].as_str();
            let (mut rest, mut returns) = (flat(&output["reward"]), vec![]);
            let lengths = emitted_lengths(&row, output);
            for &length in &lengths {
                let later = rest.split_off(length);
                returns.extend(returns_of(&rest, reduction));
                rest = later;
            }
            let groups = [0, returns.len() as u32];
            let result = group_advantage(&returns, None, Groups::Offsets(&groups), &torchrl()).unwrap();
            let spread: Vec<f64> = match reduction {
                Some(_) => {
                    lengths.iter().zip(&result.advantage).flat_map(|(&length, &a)| vec![a; length]).collect()
                }
                None => result.advantage,
            };
            assert_all_near(row["id"].as_str().unwrap(), &spread, &flat(&output["advantage"]), tolerance);
            num_groups += 1;
        }
    }
    assert!(num_groups >= 15, "got {num_groups}");
}

#[test]
fn token_rewards_of_a_group_are_compared_with_each_other_as_in_torchrl() {
    for row in rows("advantages", |row| row["kind"] == "mc_advantage_ragged_tokens") {
        let rewards = flat(&row["token_rewards"]);
        let result = group_advantage(&rewards, None, Groups::Size(rewards.len()), &torchrl()).unwrap();
        assert_all_near("tokens", &result.advantage, &flat(&row["outputs"][1]), 1e-9);
    }
}

#[test]
fn every_scale_and_rollouts_without_a_score_equal_trl() {
    for row in rows("advantages", |row| row["kind"] == "trl_grpo_advantages") {
        let weights = flat(&row["reward_weights"]);
        let per_func = lines(&row["rewards_per_func"]);
        let scored: Vec<u8> =
            per_func.iter().map(|row| u8::from(lines(row).iter().any(|reward| !reward.is_null()))).collect();
        let sum = |row: &Value| {
            let terms = lines(row).iter().zip(&weights).filter(|(reward, _)| !reward.is_null());
            terms.map(|(reward, weight)| number(reward) * weight).sum::<f64>()
        };
        let rewards: Vec<f64> = per_func.iter().map(sum).collect();
        let scale = match row["scale_rewards"].as_str().unwrap() {
            "group" => AdvantageScale::Group,
            "batch" => AdvantageScale::Batch,
            _ => AdvantageScale::None,
        };
        let options = AdvantageOptions { scale, std_floor: 0.0, ..AdvantageOptions::default() };
        let size = Groups::Size(number(&row["num_generations"]) as usize);
        let result = group_advantage(&rewards, Some(&scored), size, &options).unwrap();
        assert_all_near(row["id"].as_str().unwrap(), &result.advantage, &flat(&row["advantages"]), 1e-5);
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
        let options = AdvantageOptions { scale, std: StdKind::Population, epsilon: 1e-6, std_floor: 0.0 };
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
