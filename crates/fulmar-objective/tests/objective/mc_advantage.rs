//! Queues of groups, and the selection of rollouts, against torchrl.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::rows::{assert_all_near, assert_near, flat, lines, number, rows};
use fulmar_core::ErrorKind;
use fulmar_core::limits::{GROUP_ROLLOUTS_MAX, PENDING_GROUPS_MAX};
use fulmar_objective::{McAdvantage, McAdvantageOptions, McAdvantageStats, McGroup, TrajectoryReturn};
use serde_json::{Value, json};

fn options_of(config: &Value) -> McAdvantageOptions {
    let size = |name: &str| config[name].as_u64().map(|size| size as usize);
    McAdvantageOptions {
        trajectory_return: config["trajectory_return"].as_str().map(|name| match name {
            "sum" => TrajectoryReturn::Sum,
            "max" => TrajectoryReturn::Max,
            _ => TrajectoryReturn::Mean,
        }),
        keep_return_bounds: config["keep_return_bounds"].as_array().map(|_| {
            let bounds = flat(&config["keep_return_bounds"]);
            [bounds[0], bounds[1]]
        }),
        candidate_group_size: size("candidate_group_size"),
        candidate_selection_min_size: size("candidate_selection_min_size"),
        ..McAdvantageOptions::of_size(size("grpo_size").unwrap())
    }
}

fn assert_stats(id: &str, got: &McAdvantageStats, expected: &Value) {
    let got = serde_json::to_value(got).unwrap();
    for (name, value) in expected.as_object().unwrap() {
        let camel: String = name
            .split('_')
            .enumerate()
            .map(|(at, word)| if at == 0 { word.to_owned() } else { word[..1].to_uppercase() + &word[1..] })
            .collect();
        // Before the first rollout there is no largest return; upstream reports minus infinity.
        let ours = got[&camel].as_f64().unwrap_or(f64::NEG_INFINITY);
        if ours != number(value) {
            assert_near(&format!("{id} {name}"), ours, number(value), 1e-6);
        }
    }
}

#[test]
fn groups_come_out_as_from_torchrl_with_its_counts() {
    let mut num_groups = 0;
    for row in rows("advantages", |row| row["kind"] == "mc_advantage") {
        let id = row["id"].as_str().unwrap();
        if row["expected_error"].is_object() {
            assert_eq!(
                McAdvantage::new(options_of(&row["config"])).unwrap_err().kind(),
                ErrorKind::OutOfRange
            );
            continue;
        }
        let tolerance = if row["dtype"] == "float64" { 1e-9 } else { 1e-5 };
        let mut queues = McAdvantage::new(options_of(&row["config"])).unwrap();
        let mut rollouts: Vec<Vec<f64>> = vec![];
        for (call, output) in lines(&row["calls"]).iter().zip(lines(&row["outputs"])) {
            let (mut advantage, mut reward) = (vec![], vec![]);
            for trajectory in lines(&call["trajectories"]) {
                rollouts.push(flat(&trajectory["rewards"]));
                let (_, group) =
                    queues.push(&trajectory["group"].to_string(), rollouts.last().unwrap()).unwrap();
                advantage.extend(group.advantages.concat());
                reward.extend(group.tickets.iter().flat_map(|&ticket| rollouts[ticket as usize].clone()));
                num_groups += usize::from(!group.tickets.is_empty());
            }
            let expected = |name: &str| if output.is_null() { vec![] } else { flat(&output[name]) };
            assert_all_near(&format!("{id} reward"), &reward, &expected("reward"), 1e-6);
            assert_all_near(&format!("{id} advantage"), &advantage, &expected("advantage"), tolerance);
        }
        assert_stats(id, &queues.stats(), &row["stats"]);
    }
    assert!(num_groups >= 15, "got {num_groups}");
}

#[test]
fn rewards_of_tokens_are_compared_with_each_other_as_in_torchrl() {
    for row in rows("advantages", |row| row["kind"] == "mc_advantage_ragged_tokens") {
        let mut queues = McAdvantage::new(options_of(&row["config"])).unwrap();
        for (rewards, output) in lines(&row["token_rewards"]).iter().zip(lines(&row["outputs"])) {
            let (_, group) = queues.push("group", &flat(rewards)).unwrap();
            let expected = if output.is_null() { vec![] } else { flat(output) };
            assert_all_near("tokens", &group.advantages.concat(), &expected, 1e-9);
        }
    }
}

fn dynamic(candidates: usize) -> McAdvantage {
    McAdvantage::new(McAdvantageOptions {
        trajectory_return: Some(TrajectoryReturn::Sum),
        keep_return_bounds: Some([0.1, 0.9]),
        candidate_group_size: Some(candidates),
        ..McAdvantageOptions::of_size(2)
    })
    .unwrap()
}

#[test]
fn a_group_is_written_early_rescued_or_dropped() {
    let fed = |rewards: &[f64]| {
        let mut queues = dynamic(4);
        let groups: Vec<McGroup> =
            rewards.iter().map(|reward| queues.push("a", &[*reward]).unwrap().1).collect();
        (groups.last().unwrap().clone(), queues.stats())
    };
    let (group, stats) = fed(&[0.0, 1.0]);
    assert_eq!((group.tickets, stats.rescued_groups, stats.unselected_trajectories), (vec![0, 1], 0, 0));
    let (group, stats) = fed(&[0.0, 0.0, 1.0]);
    assert_eq!((group.tickets, group.released), (vec![0, 2], vec![0, 1, 2]));
    assert_eq!((stats.rescued_groups, stats.selected_trajectories, stats.unselected_trajectories), (1, 2, 1));
    let (group, stats) = fed(&[0.0; 3]);
    assert_eq!((group, stats.queued_trajectories, stats.dropped_groups), (McGroup::default(), 3, 0));
    let (group, stats) = fed(&[0.0; 4]);
    assert_eq!((group.tickets, group.released), (vec![], vec![0, 1, 2, 3]));
    assert_eq!((stats.dropped_groups, stats.written_groups, stats.queued_groups), (1, 0, 0));
}

#[test]
fn a_choice_of_ones_own_is_asked_for_and_checked() {
    let mut queues = dynamic(3);
    queues.enqueue("a", &[0.0]).unwrap();
    assert_eq!(queues.candidates("a"), None);
    queues.enqueue("a", &[1.0]).unwrap();
    queues.enqueue("a", &[5.0, 5.0]).unwrap();
    assert_eq!(queues.candidates("a"), Some(vec![0.0, 1.0, 10.0]));
    let kind =
        |queues: &mut McAdvantage, choice: &[usize]| queues.settle("a", Some(choice)).unwrap_err().kind();
    assert_eq!(kind(&mut queues, &[0]), ErrorKind::ShapeMismatch);
    assert_eq!(kind(&mut queues, &[0, 3]), ErrorKind::OutOfRange);
    assert_eq!(kind(&mut queues, &[1, 1]), ErrorKind::OutOfRange);
    assert_eq!(queues.enqueue("a", &[0.0]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let group = queues.settle("a", Some(&[2, 0])).unwrap();
    assert_eq!((group.tickets, group.advantages[0].len()), (vec![2, 0], 2));
    assert_eq!(queues.settle("a", None).unwrap_err().kind(), ErrorKind::UnknownName);
}

#[test]
fn queues_are_kept_cleared_and_given_up() {
    let mut queues = dynamic(4);
    for group in ["a", "b", "b"] {
        queues.push(group, &[0.0]).unwrap();
    }
    let saved = queues.state_json().unwrap();
    assert_eq!(queues.evict_oldest(), [0]);
    assert_eq!(queues.clear_queues(), [1, 2]);
    assert_eq!((queues.evict_oldest(), queues.stats().queued_groups), (vec![], 0));
    assert_eq!((queues.stats().completed_trajectories, queues.stats().dropped_groups), (3, 1));
    let mut again = dynamic(4);
    again.load_state_json(&saved).unwrap();
    let (ticket, group) = again.push("a", &[1.0]).unwrap();
    assert_eq!((ticket, group.tickets), (3, vec![0, 3]));
    again.reset_stats();
    assert_eq!((again.stats().completed_trajectories, again.stats().queued_trajectories), (0, 2));
}

#[test]
fn broken_states_options_and_rewards_are_refused_by_kind() {
    let mut queues = dynamic(4);
    queues.push("a", &[0.0]).unwrap();
    let state: Value = serde_json::from_str(&queues.state_json().unwrap()).unwrap();
    for (path, value) in
        [("/queues/a", json!([])), ("/numPushed", json!(0)), ("/queues/a/0/rewards", json!([]))]
    {
        let mut broken = state.clone();
        let path = if path == "/numPushed" { "/num_pushed" } else { path };
        *broken.pointer_mut(path).unwrap() = value;
        assert_eq!(
            queues.load_state_json(&broken.to_string()).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "{path}"
        );
    }
    assert_eq!(queues.load_state_json("{").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(queues.push("a", &[]).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(queues.push("a", &[f64::NAN]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(queues.push("a", &[1e308, 1e308]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(queues.stats().completed_trajectories, 1);
    let sum = Some(TrajectoryReturn::Sum);
    let base = McAdvantageOptions::of_size(2);
    for options in [
        McAdvantageOptions::of_size(1),
        McAdvantageOptions { keep_return_bounds: Some([0.0, 1.0]), ..base.clone() },
        McAdvantageOptions { candidate_group_size: Some(3), ..base.clone() },
        McAdvantageOptions { trajectory_return: sum, candidate_group_size: Some(1), ..base.clone() },
        McAdvantageOptions { trajectory_return: sum, keep_return_bounds: Some([1.0, 1.0]), ..base.clone() },
        McAdvantageOptions { trajectory_return: sum, candidate_selection_min_size: Some(1), ..base.clone() },
        McAdvantageOptions { trajectory_return: sum, candidate_selection_min_size: Some(3), ..base.clone() },
        McAdvantageOptions::of_size(GROUP_ROLLOUTS_MAX + 1),
    ] {
        assert_eq!(McAdvantage::new(options).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    assert!(McAdvantage::new(McAdvantageOptions::of_size(GROUP_ROLLOUTS_MAX)).is_ok());
}

#[test]
fn only_so_many_groups_wait() {
    let mut queues = McAdvantage::new(McAdvantageOptions::of_size(2)).unwrap();
    for group in 0..PENDING_GROUPS_MAX {
        queues.push(&group.to_string(), &[0.0]).unwrap();
    }
    assert_eq!(queues.push("more", &[0.0]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(queues.push("0", &[1.0]).unwrap().1.tickets.len(), 2);
    assert!(queues.push("more", &[0.0]).is_ok());
}
