//! The selection of rollouts against torchrl.

use crate::rows::{assert_all_near, flat, lines, number, rows};
use fulmar_core::ErrorKind;
use fulmar_core::limits::{GROUP_ROLLOUTS_MAX, PENDING_GROUPS_MAX, SELECTOR_COMBINATIONS_MAX};
use fulmar_objective::{McAdvantageSelector, SelectionStrategy, TopKRewardOptions, TopKRewardSelector};

#[test]
fn choices_equal_those_of_torchrl() {
    let mut num_refused = 0;
    for row in rows("advantages", |row| row["kind"] == "selector") {
        let selector = McAdvantageSelector {
            strategy: match row["strategy"].as_str().unwrap() {
                "balanced" => SelectionStrategy::Balanced,
                "first" => SelectionStrategy::First,
                _ => SelectionStrategy::Uniform,
            },
            max_combinations: number(&row["max_combinations"]) as usize,
        };
        let bounds = row["keep_return_bounds"].as_array().map(|_| flat(&row["keep_return_bounds"]));
        let bounds = bounds.map(|bounds| [bounds[0], bounds[1]]);
        let got = selector.select(&flat(&row["returns"]), number(&row["group_size"]) as usize, bounds);
        if row["expected_error"].is_object() {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::OutOfRange);
            num_refused += 1;
            continue;
        }
        let expected = row["selected"].as_array().map(|_| flat(&row["selected"]));
        let got = got.unwrap().map(|ids| ids.into_iter().map(|id| id as f64).collect::<Vec<_>>());
        assert_eq!(got.is_some(), expected.is_some(), "{}", row["id"]);
        assert_all_near(
            row["id"].as_str().unwrap(),
            &got.unwrap_or_default(),
            &expected.unwrap_or_default(),
            0.0,
        );
    }
    assert_eq!(num_refused, 1);
}

#[test]
fn too_many_subsets_are_searched_by_exchanges() {
    let returns = [vec![0.0; 30], vec![1.0; 3]].concat();
    let selector = McAdvantageSelector { max_combinations: 10, ..McAdvantageSelector::default() };
    assert_eq!(selector.select(&returns, 4, Some([0.4, 0.6])).unwrap(), Some(vec![31, 11, 21, 32]));
    assert_eq!(selector.select(&returns, 4, Some([0.8, 0.9])).unwrap(), None);
    let many: Vec<f64> = (0..GROUP_ROLLOUTS_MAX).map(|i| (i % 2) as f64).collect();
    assert_eq!(selector.select(&many, 8, Some([0.4, 0.6])).unwrap().unwrap().len(), 8);
}

#[test]
fn the_best_above_the_median_are_kept_as_in_torchrl() {
    for row in rows("advantages", |row| row["kind"] == "topk") {
        let selector = TopKRewardSelector::new(TopKRewardOptions {
            total_dialog_turns: number(&row["total_dialog_turns"]) as usize,
            topk_size: number(&row["topk_size"]) as usize,
        });
        if row["expected_error"].is_object() {
            assert_eq!(selector.unwrap_err().kind(), ErrorKind::OutOfRange);
            continue;
        }
        let (mut selector, mut rewards) = (selector.unwrap(), vec![]);
        for (item, output) in lines(&row["items"]).iter().zip(lines(&row["outputs"])) {
            rewards.push(number(&item["reward"]));
            let got = selector.push(item["prompt"].as_str().unwrap(), number(&item["reward"])).unwrap();
            let kept: Option<Vec<f64>> =
                got.compared.map(|tickets| tickets.iter().map(|&ticket| rewards[ticket as usize]).collect());
            assert_eq!(kept, output.as_array().map(|_| flat(output)));
        }
    }
}

#[test]
fn a_prompt_starts_again_once_its_rollouts_were_compared() {
    let mut selector =
        TopKRewardSelector::new(TopKRewardOptions { total_dialog_turns: 2, topk_size: 1 }).unwrap();
    let mut push = |reward| selector.push("p", reward).unwrap();
    assert_eq!((push(0.0).compared, push(1.0).compared), (None, Some(vec![1])));
    let (waiting, equal) = (push(9.0), push(9.0));
    assert_eq!((waiting.compared, equal.compared, equal.released), (None, Some(vec![]), vec![2, 3]));
}

#[test]
fn limits_and_bad_values_are_refused_by_kind() {
    let kind = |selector: McAdvantageSelector, returns: &[f64], size, bounds| {
        selector.select(returns, size, bounds).unwrap_err().kind()
    };
    let default = McAdvantageSelector::default;
    assert_eq!(kind(default(), &[1.0, f64::NAN], 2, None), ErrorKind::NonFinite);
    assert_eq!(kind(default(), &[1.0], 0, None), ErrorKind::OutOfRange);
    assert_eq!(kind(default(), &[1.0, 2.0], 1, Some([1.0, 0.0])), ErrorKind::OutOfRange);
    assert_eq!(kind(default(), &[0.0; GROUP_ROLLOUTS_MAX + 1], 2, None), ErrorKind::LimitExceeded);
    let combinations = |max_combinations| McAdvantageSelector { max_combinations, ..default() };
    for max in [0, SELECTOR_COMBINATIONS_MAX + 1] {
        assert_eq!(kind(combinations(max), &[0.0, 1.0], 1, None), ErrorKind::OutOfRange);
    }
    assert!(combinations(SELECTOR_COMBINATIONS_MAX).select(&[0.0, 1.0], 1, None).is_ok());
    let mut selector =
        TopKRewardSelector::new(TopKRewardOptions { total_dialog_turns: 2, topk_size: 1 }).unwrap();
    assert_eq!(selector.push("p", f64::INFINITY).unwrap_err().kind(), ErrorKind::NonFinite);
    for prompt in 0..PENDING_GROUPS_MAX {
        selector.push(&prompt.to_string(), 0.0).unwrap();
    }
    assert_eq!(selector.push("more", 0.0).unwrap_err().kind(), ErrorKind::LimitExceeded);
}
