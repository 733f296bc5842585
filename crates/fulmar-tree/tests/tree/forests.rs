//! Tests of forests and trees: torchrl's rows, the documented cases, cycles, shared states, limits.

use fulmar_core::limits::{TREE_DRAWN_MAX, TREE_PATHS_MAX};
use fulmar_core::{ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tree::{MctsForest, MctsForestOptions, Tree};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::golden_value::dict;
use crate::{integers, rows};

fn forest(options: MctsForestOptions) -> MctsForest {
    MctsForest::new(options).unwrap()
}

/// A forest of steps `[from, action, to]`.
fn of_steps(steps: &[[i64; 3]]) -> MctsForest {
    let mut made = forest(MctsForestOptions { max_size: 100_000, ..Default::default() });
    made.extend(&rollout(steps)).unwrap();
    made
}

fn rollout(steps: &[[i64; 3]]) -> TensorDict {
    let column =
        |at: usize| Tensor::from_vec(&[steps.len()], steps.iter().map(|step| step[at]).collect()).unwrap();
    let mut dict = TensorDict::new(&[steps.len()]).unwrap();
    dict.set("observation", column(0)).unwrap();
    dict.set("action", column(1)).unwrap();
    dict.set(["next", "observation"], column(2)).unwrap();
    dict
}

fn state(number: i64) -> TensorDict {
    rollout(&[[number, 0, 0]]).index(0).unwrap()
}

fn flat(value: &Tensor) -> Value {
    json!(value.to_f32_vec())
}

fn floats(value: &Value) -> Value {
    json!(value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap() as f32).collect::<Vec<_>>())
}

/// Compares a vertex and all below it with the row.
fn assert_vertex(tree: &Tree, id: usize, row: &Value, what: &str) {
    assert_eq!(json!(id), row["node_id"], "{what}");
    assert_eq!(json!(tree.hash(id).unwrap()), row["hash"], "{what}: hash of {id}");
    match tree.index(id).unwrap() {
        Some(index) => assert_eq!(index, integers::<usize>(&row["index"]["d"]), "{what}"),
        None => assert_eq!(row["index"], Value::Null, "{what}"),
    }
    assert_eq!(tree.node_data(id).unwrap(), dict(&row["node_data"]), "{what}: data of {id}");
    let terminal = row["is_terminal"].as_bool().unwrap_or(row["is_terminal"]["d"][0] == true);
    assert_eq!(tree.is_terminal(id).unwrap(), terminal, "{what}");
    match (tree.rollout(id).unwrap(), row.get("rollout")) {
        (None, None) => {}
        (Some(steps), Some(want)) => {
            let at = |key: &[&str]| {
                flat(steps.tensor(key.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap())
            };
            assert_eq!(at(&["action"]), floats(&want["action"]), "{what}");
            assert_eq!(at(&["observation"]), floats(&want["observation"]), "{what}");
            assert_eq!(at(&["next", "observation"]), floats(&want["next_observation"]), "{what}");
            assert_eq!(at(&["next", "reward"]), floats(&want["reward"]), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
    let children = row["children"].as_array().unwrap();
    assert_eq!(tree.children(id).unwrap().len(), children.len(), "{what}");
    for (child, row) in tree.children(id).unwrap().iter().zip(children) {
        assert_vertex(tree, *child, row, what);
    }
}

#[test]
fn trees_of_upstream_s_rollouts_are_its_trees() {
    for row in rows("mcts", "MCTSForest") {
        let max_size = row["max_size"].as_u64().map_or(1000, |size| size as usize);
        let mut forest = forest(MctsForestOptions { max_size, compatible: true, ..Default::default() });
        let mut failed = false;
        for rollout in row["rollouts"].as_array().unwrap() {
            failed = forest.extend(&dict(rollout)).is_err();
        }
        assert_eq!(failed, row["len_after"][0].get("error").is_some(), "{}", row["id"]);
        let root = dict(&row["rollouts"][0]).index(0).unwrap();
        for tree_row in row["trees"].as_array().unwrap() {
            let what = format!("{} {}", row["id"], tree_row["max_depth"]);
            let max_depth = tree_row["max_depth"].as_u64().map(|depth| depth as usize);
            let got = forest.tree(&root, max_depth, tree_row["compact"] == true);
            let Some(want) = tree_row.get("ok") else {
                assert!(got.is_err(), "{what}");
                continue;
            };
            let tree = got.unwrap();
            assert_vertex(&tree, 0, &want["tree"], &what);
            assert_eq!(json!(tree.num_vertices()), want["num_vertices"], "{what}");
            assert_eq!(json!(tree.edges()), want["edges"], "{what}");
            assert_eq!(json!(tree.valid_paths().collect::<Vec<_>>()), want["valid_paths"], "{what}");
            assert_eq!(json!(tree.max_length()), want["max_length"], "{what}");
            assert_eq!(json!(tree.breadth_first()), want["vertex_ids"], "{what}");
            let paths: Vec<_> = tree.all_paths().unwrap().into_iter().map(|(path, _)| path).collect();
            assert_eq!(json!(paths), want["vertex_paths"], "{what}");
            for path in want["rollout_from_path"].as_array().unwrap() {
                let got = tree.rollout_from_path(&integers::<usize>(&path["path"])).unwrap().unwrap();
                assert_eq!(flat(got.tensor("action").unwrap()), floats(&path["ok"]["$dict"][0][1]), "{what}");
                assert_eq!(
                    flat(got.tensor(["next", "reward"]).unwrap()),
                    floats(&path["ok"]["$dict"][2][1]),
                    "{what}"
                );
            }
            let whole = tree.rollout_from_path(&[]).unwrap();
            match &want["rollout_from_empty_path"]["ok"] {
                Value::Null => assert!(whole.is_none(), "{what}"),
                steps => assert_eq!(whole.unwrap(), dict(steps), "{what}"),
            }
            assert_eq!(tree.rollout_from_path(&[99]).unwrap_err().kind(), ErrorKind::OutOfRange);
            let observed = |id| {
                format!(
                    "[{}]",
                    flat(tree.node_data(id).unwrap().tensor("observation").unwrap())[0].as_f64().unwrap()
                )
            };
            assert_eq!(json!(tree.to_text(&observed)), want["to_string"], "{what}");
            assert_eq!(tree.vertex_by_hash(1234).unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
        }
    }
}

#[test]
fn trees_of_numbered_states_are_upstream_s() {
    for row in rows("mcts", "MCTSForest_states") {
        let note = row["note"].as_str().unwrap();
        let options = match note {
            "wrong keys" => MctsForestOptions { observation_keys: vec!["obs".into()], ..Default::default() },
            _ => MctsForestOptions { compatible: true, ..Default::default() },
        };
        let mut forest = forest(options);
        for rollout in row["rollouts"].as_array().unwrap() {
            let got = forest.extend(&dict(rollout));
            assert_eq!(got.is_err(), row["len_after"][0].get("error").is_some(), "{note}");
        }
        for tree_row in row["trees"].as_array().unwrap() {
            let got = forest.tree(&dict(&row["root"]), None, tree_row["compact"] == true);
            let Some(want) = tree_row.get("ok") else {
                // Upstream fails where two paths meet; here they share the vertex.
                assert_eq!(got.is_ok(), note.starts_with("graph"), "{note}");
                continue;
            };
            let tree = got.unwrap();
            assert_eq!(json!(tree.edges()), want["edges"], "{note}");
            assert_eq!(json!(tree.max_length()), want["max_length"], "{note}");
            let observed = |id| {
                flat(tree.node_data(id).unwrap().tensor("observation").unwrap())[0]
                    .to_string()
                    .replace(".0", "")
            };
            assert_eq!(json!(tree.to_text(&observed)), want["to_string"], "{note}");
            assert_eq!(tree.valid_paths().count(), want["valid_paths"].as_array().unwrap().len(), "{note}");
        }
    }
}

#[test]
fn paths_that_meet_share_the_vertex_and_all_below_it() {
    // A diamond on a diamond: four paths, one end.
    let steps = [
        [0, 0, 1],
        [0, 1, 2],
        [1, 0, 3],
        [2, 0, 3],
        [3, 0, 4],
        [3, 1, 5],
        [4, 0, 6],
        [5, 0, 6],
        [6, 0, 7],
        [6, 1, 8],
    ];
    let tree = of_steps(&steps).tree(&state(0), None, true).unwrap();
    assert_eq!(tree.valid_paths().count(), 8);
    assert_eq!(tree.num_vertices(), 1 + 2 + 2 + 2);
    assert_eq!(tree.max_length(), 3);
    let shared = tree.children(1).unwrap()[0];
    assert_eq!((tree.parents(shared).unwrap(), tree.children(2).unwrap()[0]), (&[1, 2][..], shared));
    let meeting = tree.rollout_from_path(&[1, 0, 1]).unwrap().unwrap();
    assert_eq!(meeting.tensor("observation").unwrap().to_vec::<i64>().unwrap(), [0, 2, 3, 4, 6]);
}

#[test]
fn cycles_end_in_compact_and_in_full_trees() {
    let cases: [&[[i64; 3]]; 5] = [
        &[[0, 0, 0]],
        &[[0, 0, 1], [1, 0, 0]],
        &[[0, 0, 1], [1, 0, 2], [2, 0, 1]],
        &[[0, 0, 1], [0, 1, 2], [1, 0, 0], [2, 0, 0]],
        &[[0, 0, 1], [0, 1, 0], [1, 0, 2], [1, 1, 0], [2, 0, 1], [2, 1, 2]],
    ];
    for steps in cases {
        for compact in [true, false] {
            let tree = of_steps(steps).tree(&state(0), None, compact).unwrap();
            assert!(tree.valid_paths().count() >= 1);
            assert!(tree.max_length() <= 2 * steps.len());
            assert!(!tree.to_text(&|_| String::new()).is_empty());
        }
    }
    let loops = of_steps(&[[0, 0, 1], [1, 0, 2], [2, 0, 1]]).tree(&state(0), None, true).unwrap();
    let steps = loops.rollout(0).unwrap().unwrap();
    assert_eq!(steps.tensor("observation").unwrap().to_vec::<i64>().unwrap(), [0, 1, 2]);
}

proptest! {
    #[test]
    fn trees_of_any_graph_end_and_their_links_lead_down(steps in prop::collection::vec((0_i64..6, 0_i64..3, 0_i64..6), 1..40)) {
        let steps: Vec<[i64; 3]> = steps.into_iter().map(|(from, action, to)| [from, action, to]).collect();
        let forest = of_steps(&steps);
        let last: std::collections::HashMap<(i64, i64), i64> =
            steps.iter().map(|[from, action, to]| ((*from, *action), *to)).collect();
        prop_assert_eq!(forest.len(), last.len());
        for compact in [true, false] {
            let tree = forest.tree(&state(steps[0][0]), None, compact).unwrap();
            prop_assert!(tree.max_length() <= tree.num_vertices());
            // Each step is one that was written, and begins where the one before it ended.
            for (path, id) in tree.paths().take(200) {
                if let Some(rollout) = tree.rollout_from_path(&path).unwrap() {
                    let column = |key: &[&str]| rollout.tensor(key.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()).unwrap().to_vec::<i64>().unwrap();
                    let (from, action, to) = (column(&["observation"]), column(&["action"]), column(&["next", "observation"]));
                    prop_assert!((0..from.len()).all(|at| last[&(from[at], action[at])] == to[at]));
                    prop_assert!(from[1..].iter().zip(&to).all(|(from, to)| from == to));
                    prop_assert_eq!(tree.node_data(id).unwrap().tensor("observation").unwrap().to_vec::<i64>().unwrap(), &to[to.len() - 1..]);
                }
            }
        }
    }
}

#[test]
fn a_pair_that_comes_again_keeps_its_row_and_takes_the_new_outcome() {
    let mut forest = of_steps(&[[0, 0, 1], [0, 1, 2]]);
    assert_eq!(forest.extend(&rollout(&[[0, 0, 5]])).unwrap(), [0]);
    let node = forest.nodes(&state(0)).unwrap().remove(0);
    assert_eq!((forest.len(), node.index, node.visits), (2, vec![0, 1], vec![2, 1]));
    let child = forest.child(&state(0)).unwrap();
    assert_eq!(child.tensor(["next", "observation"]).unwrap().to_vec::<i64>().unwrap(), [5]);
    assert!(forest.nodes(&state(9)).unwrap()[0].index.is_empty());
}

#[test]
fn a_tree_does_not_change_when_its_forest_grows() {
    let mut forest = of_steps(&[[0, 0, 1], [1, 0, 2]]);
    let tree = forest.tree(&state(0), None, true).unwrap();
    forest.extend(&rollout(&[[1, 0, 7], [1, 1, 8]])).unwrap();
    let steps = tree.rollout(0).unwrap().unwrap();
    assert_eq!(steps.tensor(["next", "observation"]).unwrap().to_vec::<i64>().unwrap(), [1, 2]);
}

#[test]
fn one_step_is_added_without_a_batch_dimension_and_excluded_entries_are_not_kept() {
    let mut forest = forest(MctsForestOptions { excluded_keys: vec!["extra".into()], ..Default::default() });
    let mut step = state(3);
    step.set(["next", "extra"], Tensor::from_vec(&[], vec![1_i64]).unwrap()).unwrap();
    forest.extend(&step).unwrap();
    assert_eq!(forest.len(), 1);
    assert!(forest.child(&step).unwrap().get(["next", "extra"]).is_none());
}

#[test]
fn a_refused_rollout_changes_nothing() {
    let mut forest = forest(MctsForestOptions { max_size: 2, ..Default::default() });
    let kind = |result: Result<Vec<usize>>| result.unwrap_err().kind();
    assert_eq!(kind(forest.extend(&rollout(&[[0, 0, 1], [1, 0, 2], [2, 0, 3]]))), ErrorKind::LimitExceeded);
    assert!(forest.is_empty() && forest.state().unwrap().is_empty());
    let mut odd = rollout(&[[0, 0, 1]]);
    odd.set(["next", "observation"], Tensor::from_vec(&[1, 1], vec![1_i64]).unwrap()).unwrap();
    assert_eq!(kind(forest.extend(&odd)), ErrorKind::ShapeMismatch);
    odd.remove("next").unwrap();
    assert_eq!(kind(forest.extend(&odd)), ErrorKind::UnknownName);
    // The shapes of a refused first rollout do not bind later ones.
    let mut wide = TensorDict::new(&[1]).unwrap();
    for key in [vec!["observation"], vec!["action"], vec!["next", "observation"]] {
        let key: Vec<String> = key.into_iter().map(str::to_owned).collect();
        wide.set(key, Tensor::from_vec(&[1, 2], vec![1.0_f32, 2.0]).unwrap()).unwrap();
    }
    forest.extend(&wide).unwrap();
    assert_eq!(
        forest.tree(&rollout(&[[0, 0, 1]]).index(0).unwrap(), None, true).unwrap_err().kind(),
        ErrorKind::Incompatible
    );
    assert_eq!(forest.tree(&wide, None, true).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn state_comes_back_and_a_damaged_one_is_refused() {
    let mut source = of_steps(&[[0, 0, 1], [0, 1, 2], [1, 0, 3]]);
    source.extend(&rollout(&[[0, 1, 2]])).unwrap();
    let mut other = of_steps(&[[5, 5, 5]]);
    other.load_state(&source.state().unwrap()).unwrap();
    assert_eq!(other.state().unwrap(), source.state().unwrap());
    assert_eq!(other.nodes(&state(0)).unwrap(), source.nodes(&state(0)).unwrap());
    let mut damaged = source.state().unwrap();
    damaged.set("visits", Tensor::from_vec(&[1], vec![1_i64]).unwrap()).unwrap();
    assert_eq!(other.load_state(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(other.len(), 3);
    other.clear();
    assert!(other.is_empty() && other.nodes(&state(0)).unwrap()[0].index.is_empty());
}

#[test]
fn paths_are_listed_up_to_a_limit() {
    let ladder = |rungs: i64| {
        let steps: Vec<[i64; 3]> = (0..rungs).flat_map(|at| [[at, 0, at + 1], [at, 1, at + 1]]).collect();
        of_steps(&steps).tree(&state(0), None, true).unwrap()
    };
    // A ladder of n rungs has 2^(n + 1) - 1 paths.
    assert_eq!(ladder(19).all_paths().unwrap().len(), TREE_PATHS_MAX - 1);
    assert_eq!(ladder(20).all_paths().unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(ladder(20).max_length(), 20);
}

#[test]
fn pictures_have_each_vertex_once_and_escape_labels() {
    let tree = of_steps(&[[0, 0, 1], [0, 1, 2], [1, 0, 3], [2, 0, 3], [3, 0, 4], [3, 1, 5]])
        .tree(&state(0), None, true)
        .unwrap();
    for svg in [tree.to_svg(&|id| format!("<{id}>")), tree.to_box_svg(&|id| format!("<{id}>"))] {
        let svg = svg.unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        assert!(!svg.contains("<0>") && svg.contains("&lt;0&gt;"), "{svg}");
    }
    assert_eq!(tree.to_svg(&|_| String::new()).unwrap().matches("<circle").count(), tree.num_vertices());
}

#[test]
fn pictures_have_at_most_so_many_vertices() {
    let star = |count: i64| {
        let steps: Vec<[i64; 3]> = (0..count).map(|at| [0, at, at + 1]).collect();
        of_steps(&steps).tree(&state(0), None, true).unwrap().to_svg(&|_| String::new())
    };
    assert!(star(TREE_DRAWN_MAX as i64 - 1).is_ok());
    assert_eq!(star(TREE_DRAWN_MAX as i64).unwrap_err().kind(), ErrorKind::LimitExceeded);
}
