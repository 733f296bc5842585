//! Prompt groups and staleness against golden rows, and at their edges.

use std::collections::{BTreeMap, BTreeSet};

use fulmar_core::ErrorKind;
use fulmar_core::limits::REPLAY_STALENESS_WEIGHTS_MAX;
use fulmar_replay::{GroupStrategy, PromptGroupOptions, PromptGroupSampler, StalenessAwareSampler};
use proptest::prelude::*;
use serde_json::Value;

use crate::golden_rows::{assert_drawn, index, indices, list, number, numbers, topic};

fn strategy(name: &Value) -> GroupStrategy {
    serde_json::from_value(name.clone()).unwrap()
}

fn by_group(samples_per_group: usize, strategy: GroupStrategy, seed: u64) -> PromptGroupSampler {
    let options =
        PromptGroupOptions { samples_per_group: Some(samples_per_group), strategy, ..Default::default() };
    PromptGroupSampler::new(options, seed).unwrap()
}

#[test]
fn groups_are_drawn_as_in_the_golden_rows() {
    for row in topic("samplers", "prompt_group", 10) {
        let what = row["id"].as_str().unwrap();
        let args = &row["args"];
        let size = index(&args["samples_per_group"]);
        let keys: Vec<String> = list(&row["query"]).iter().map(Value::to_string).collect();
        let rewards = numbers(&row["reward"]);
        let rows: Vec<usize> = (0..keys.len()).collect();
        let mut sampler = by_group(size, strategy(&args["strategy"]), 2);
        sampler.extend(&rows, &keys, &rewards).unwrap();
        let groups: BTreeMap<String, Vec<usize>> = row["groups"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, rows)| (key.clone(), indices(rows)))
            .collect();
        assert_eq!(sampler.num_groups(), groups.len(), "{what}");
        for _ in 0..200 {
            let drawn = sampler.sample(size * index(&args["num_groups_requested"])).unwrap();
            assert_eq!(drawn.len(), index(&row["rows"]), "{what}");
            let blocks: Vec<&str> = drawn.chunks(size).map(|block| keys[block[0]].as_str()).collect();
            let distinct: BTreeSet<&&str> = blocks.iter().collect();
            assert_eq!(
                distinct.len(),
                blocks.len().min(groups.len()),
                "{what}: groups come once before again"
            );
            for (key, block) in blocks.iter().zip(drawn.chunks(size)) {
                assert!(block.iter().all(|row| groups[*key].contains(row)), "{what}: {block:?} is one group");
                let within = &row["within"][*key];
                if let Some(all) = within["all"].as_array() {
                    assert_eq!(distinct_of(block), all.iter().map(index).collect(), "{what}");
                } else if within.is_array() {
                    // Among equal rewards upstream's choice of rows is random, so rewards are compared.
                    let sorted = |rows: &[usize]| {
                        let mut rewards: Vec<f64> = rows.iter().map(|&row| rewards[row]).collect();
                        rewards.sort_by(f64::total_cmp);
                        rewards
                    };
                    assert_eq!(sorted(block), sorted(&indices(within)), "{what}");
                    assert!(
                        args["strategy"] != "recency" || distinct_of(block) == distinct_of(&indices(within))
                    );
                } else {
                    assert_eq!(
                        distinct_of(block).len(),
                        size.min(groups[*key].len()),
                        "{what}: rows are distinct"
                    );
                }
            }
        }
    }
}

fn distinct_of(rows: &[usize]) -> BTreeSet<usize> {
    rows.iter().copied().collect()
}

#[test]
fn rewards_are_chosen_as_in_the_golden_rows() {
    for row in topic("samplers", "prompt_group_literal", 10) {
        let (rewards, size) = (numbers(&row["reward"]), index(&row["samples_per_group"]));
        let mut sampler = by_group(size, strategy(&row["strategy"]), 0);
        let rows: Vec<usize> = (0..rewards.len()).collect();
        sampler.extend(&rows, &vec!["one"; rows.len()], &rewards).unwrap();
        let mut chosen: Vec<f64> =
            sampler.sample(size).unwrap().into_iter().map(|row| rewards[row]).collect();
        chosen.sort_by(f64::total_cmp);
        assert_eq!(chosen, numbers(&row["ok"]), "{}", row["id"]);
    }
}

#[test]
fn shapes_of_groups_are_refused_as_in_the_golden_rows() {
    let mut keys = 0;
    for row in topic("samplers", "prompt_group_errors", 7) {
        let mut given: serde_json::Map<String, Value> = list(&row["args"]["$dict"])
            .iter()
            .map(|pair| {
                (
                    pair[0]
                        .as_str()
                        .unwrap()
                        .replace("num_g", "numG")
                        .replace("samples_per_g", "samplesPerG"),
                    pair[1].clone(),
                )
            })
            .collect();
        if given.remove("reward_key").is_some() {
            keys += 1; // Rewards are arguments here, so no key can be missing.
            continue;
        }
        let refused = match serde_json::from_value::<PromptGroupOptions>(Value::Object(given)) {
            Err(_) => true,
            Ok(options) => {
                let drawn = PromptGroupSampler::new(options, 0).and_then(|mut sampler| {
                    sampler.extend(&[0], &["a"], &[0.0])?;
                    sampler.sample(index(&row["batch_size"]))
                });
                drawn.is_err_and(|error| error.kind() == ErrorKind::OutOfRange)
            }
        };
        assert!(refused, "{}", row["id"]);
    }
    assert_eq!(keys, 1);
}

proptest! {
    #[test]
    fn groups_follow_the_rows_that_are_written(
        writes in prop::collection::vec(prop::collection::vec((0..12_usize, 0..5_u8, -5..5_i8), 1..8), 1..12),
        seed in any::<u64>(),
    ) {
        let mut sampler = by_group(3, GroupStrategy::Recency, seed);
        let mut naive: BTreeMap<usize, (String, usize)> = BTreeMap::new();
        let mut clock = 0;
        for write in writes {
            let rows: Vec<usize> = write.iter().map(|&(row, ..)| row).collect();
            let keys: Vec<String> = write.iter().map(|&(_, key, _)| key.to_string()).collect();
            let rewards: Vec<f64> = write.iter().map(|&(.., reward)| f64::from(reward)).collect();
            sampler.extend(&rows, &keys, &rewards).unwrap();
            for (row, key) in rows.into_iter().zip(keys) {
                naive.insert(row, (key, clock));
                clock += 1;
            }
            let distinct: BTreeSet<&String> = naive.values().map(|(key, _)| key).collect();
            prop_assert_eq!(sampler.num_groups(), distinct.len());
            let json = serde_json::to_string(&sampler.state()).unwrap();
            let mut again = PromptGroupSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
            let drawn = sampler.sample(3 * distinct.len()).unwrap();
            prop_assert_eq!(&again.sample(3 * distinct.len()).unwrap(), &drawn);
            for block in drawn.chunks(3) {
                let key = &naive[&block[0]].0;
                let mut peers: Vec<(usize, usize)> =
                    naive.iter().filter(|(_, (other, _))| other == key).map(|(&row, &(_, clock))| (clock, row)).collect();
                peers.sort_unstable_by(|a, b| b.cmp(a));
                let newest: BTreeSet<usize> = peers.into_iter().take(3).map(|(_, row)| row).collect();
                prop_assert_eq!(distinct_of(block), newest);
            }
        }
    }

    #[test]
    fn staleness_follows_the_rows_that_are_written(
        writes in prop::collection::vec((0..10_usize, 0..6_i64), 1..60),
        seed in any::<u64>(),
    ) {
        let mut sampler = StalenessAwareSampler::new(None, seed);
        let mut naive = BTreeMap::new();
        for (row, version) in writes {
            sampler.extend(&[row], &[version]).unwrap();
            naive.insert(row, version);
        }
        let json = serde_json::to_string(&sampler.state()).unwrap();
        let mut again = StalenessAwareSampler::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        let drawn = sampler.sample_for(6, 300).unwrap();
        prop_assert_eq!(&again.sample_for(6, 300).unwrap(), &drawn);
        for (row, staleness) in drawn.rows.iter().zip(drawn.staleness) {
            prop_assert_eq!(6 - naive[row], staleness as i64);
        }
    }
}

#[test]
fn fresh_rows_are_likelier_as_in_the_golden_rows() {
    let (mut drawn_rows, mut keys) = (0, 0);
    for row in topic("samplers", "staleness", 8) {
        let what = row["id"].as_str().unwrap();
        let args = &row["args"];
        if args["storage"].is_null() || args["storage"] == "ListStorage" {
            keys += 1; // The storage lacks the key, or keys at all: versions are arguments here.
            continue;
        }
        let max = u64::try_from(args["max_staleness"].as_i64().unwrap()).ok();
        let versions: Vec<i64> =
            numbers(&args["versions"]).into_iter().map(|version| version as i64).collect();
        let consumer = args["consumer_version"].as_i64().unwrap();
        let mut sampler = StalenessAwareSampler::new(max, 4);
        sampler.extend(&(0..versions.len()).collect::<Vec<_>>(), &versions).unwrap();
        let drawn = sampler.sample_for(consumer, 20_000);
        if !row["error"].is_null() {
            assert_eq!(drawn.unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
            continue;
        }
        let drawn = drawn.unwrap();
        assert_drawn(what, &drawn.rows, &numbers(&row["probabilities"]));
        let reported: BTreeSet<(usize, u64)> = drawn.rows.into_iter().zip(drawn.staleness).collect();
        let expected: BTreeSet<(usize, u64)> = list(&row["staleness_reported"])
            .iter()
            .map(|pair| (index(&pair[0]), number(&pair[1]) as u64))
            .collect();
        assert_eq!(reported, expected, "{what}");
        drawn_rows += 1;
    }
    assert_eq!((drawn_rows, keys), (4, 2));
}

#[test]
fn what_groups_and_versions_cannot_be_is_refused() {
    let mut groups = by_group(2, GroupStrategy::Reward, 0);
    assert_eq!(groups.sample(2).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(groups.extend(&[0], &["a"], &[f64::NAN]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert_eq!(groups.extend(&[0, 1], &["a"], &[0.0]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(groups.extend(&[usize::MAX], &["a"], &[0.0]).unwrap_err().kind(), ErrorKind::OutOfRange);
    groups.extend(&[0, 1], &["a", "b"], &[0.0, 1.0]).unwrap();
    let mut state = groups.state();
    state.groups[1].1[0].row = 0;
    assert_eq!(PromptGroupSampler::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut stale = StalenessAwareSampler::new(Some(1), 0);
    assert_eq!(stale.sample_for(1, 1).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(stale.extend(&[0, 1], &[1]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(stale.extend(&[usize::MAX], &[1]).unwrap_err().kind(), ErrorKind::OutOfRange);
    stale.extend(&[0], &[i64::MIN]).unwrap();
    assert_eq!(stale.sample_for(i64::MAX, 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    let mut state = stale.state();
    state.versions.push((3, vec![0]));
    assert_eq!(StalenessAwareSampler::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn weights_of_staleness_are_those_of_the_table_and_bounded() {
    // Staleness 0 to 3; the last weight of the table applies from 2 on.
    let weights = [1.0, 0.0, 3.0];
    let mut sampler = StalenessAwareSampler::new(None, 11).weighted(weights.to_vec()).unwrap();
    sampler.extend(&[0, 1, 2, 3], &[9, 8, 7, 6]).unwrap();
    let drawn = sampler.sample_for(9, 70_000).unwrap();
    let count = |row: usize| drawn.rows.iter().filter(|other| **other == row).count() as f64;
    let chi_square: f64 = [(0, 10_000.0), (2, 30_000.0), (3, 30_000.0)]
        .iter()
        .map(|(row, want)| (count(*row) - want).powi(2) / want)
        .sum();
    assert!(count(1) == 0.0 && chi_square < 13.8, "{chi_square}");
    let whole =
        StalenessAwareSampler::from_state(&sampler.state()).unwrap().weighted(weights.to_vec()).unwrap();
    let [mut left, mut right] = [sampler, whole];
    assert_eq!(left.sample_for(9, 20).unwrap(), right.sample_for(9, 20).unwrap());
    let mut none = StalenessAwareSampler::new(Some(5), 0).weighted(vec![0.0]).unwrap();
    none.extend(&[0], &[1]).unwrap();
    assert_eq!(none.sample_for(1, 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    let kind = |weights| {
        StalenessAwareSampler::new(None, 0).weighted(weights).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(kind(vec![1.0; REPLAY_STALENESS_WEIGHTS_MAX]), Ok(()));
    assert_eq!(kind(vec![1.0; REPLAY_STALENESS_WEIGHTS_MAX + 1]), Err(ErrorKind::LimitExceeded));
    assert_eq!(kind(vec![-1.0]), Err(ErrorKind::OutOfRange));
    assert_eq!(kind(vec![f64::NAN]), Err(ErrorKind::NonFinite));
}
