//! Tests of the search: trees of mctx to the last count, exact games, seeds, reuse, limits.

use fulmar_core::limits::SEARCH_ACTIONS_MAX;
use fulmar_core::{ErrorKind, Result};
use fulmar_tensor::Tensor;
use fulmar_tree::{
    Outcome, QTransform, Search, SearchModel, SearchOptions, SearchPolicy, SearchRoot, TableModel,
    considered_visits,
};
use serde_json::{Value, json};

use crate::golden_value::tensor;
use crate::{integers, rows};

fn table(row: &Value) -> TableModel {
    let column = |name: &str| tensor(&row["model"][name]);
    TableModel::new(
        &column("next"),
        &column("reward"),
        &column("discount"),
        &column("logits"),
        &column("value"),
    )
    .unwrap()
}

fn options(row: &Value, policy: SearchPolicy) -> SearchOptions {
    let upstream = &row["options"];
    let number = |name: &str, default: f32| upstream[name].as_f64().map_or(default, |value| value as f32);
    let defaults = SearchOptions::default();
    SearchOptions {
        num_simulations: row["num_simulations"].as_u64().unwrap() as usize,
        policy,
        max_depth: upstream["max_depth"].as_u64().map(|depth| depth as usize),
        max_num_considered_actions: upstream["max_num_considered_actions"]
            .as_u64()
            .map_or(16, |count| count as usize),
        pb_c_init: number("pb_c_init", defaults.pb_c_init),
        pb_c_base: number("pb_c_base", defaults.pb_c_base),
        dirichlet_fraction: 0.0,
        temperature: 0.0,
        ..defaults
    }
}

fn assert_close(got: &Tensor, want: &Value, what: &str) {
    let want = tensor(want);
    assert_eq!(got.shape(), want.shape(), "{what}");
    for (at, (got, want)) in got.to_f32_vec().into_iter().zip(want.to_f32_vec()).enumerate() {
        assert!((got - want).abs() <= 1e-5 + 1e-4 * want.abs(), "{what}[{at}]: got {got}, expected {want}");
    }
}

#[test]
fn trees_are_those_of_mctx_to_the_last_count() {
    let all = [(SearchPolicy::Muzero, "muzero_policy"), (SearchPolicy::Gumbel, "gumbel_muzero_policy")];
    for (policy, topic) in all {
        for row in rows("mctx", topic) {
            let id = row["id"].as_str().unwrap();
            let model = table(&row);
            let states: Vec<u32> = integers(&row["root_state"]["d"]);
            let (logits, values) = model.root(&states).unwrap();
            let invalid: Vec<bool> = match &row["invalid_actions"] {
                Value::Null => Vec::new(),
                mask => tensor(mask).to_f32_vec().into_iter().map(|bit| bit != 0.0).collect(),
            };
            let gumbel = if row["root_gumbel"].is_null() {
                Vec::new()
            } else {
                tensor(&row["root_gumbel"]).to_f32_vec()
            };
            let root =
                SearchRoot { logits: &logits, values: &values, invalid_actions: &invalid, gumbel: &gumbel };
            let mut search = Search::new(&root, options(&row, policy)).unwrap();
            search.run(&model, &states).unwrap();
            let arrays = search.arrays().unwrap();
            for name in ["node_visits", "parents", "action_from_parent", "children_index", "children_visits"]
            {
                assert_eq!(arrays.tensor(name).unwrap(), &tensor(&row["tree"][name]), "{id} {name}");
            }
            for name in [
                "raw_values",
                "node_values",
                "children_prior_logits",
                "children_rewards",
                "children_discounts",
                "children_values",
            ] {
                assert_close(arrays.tensor(name).unwrap(), &row["tree"][name], &format!("{id} {name}"));
            }
            let summary = search.summary().unwrap();
            for name in ["visit_counts", "visit_probs", "value", "qvalues"] {
                assert_close(summary.tensor(name).unwrap(), &row["summary"][name], &format!("{id} {name}"));
            }
            let answer = search.answer();
            let weights =
                Tensor::from_vec(summary.tensor("qvalues").unwrap().shape(), answer.action_weights).unwrap();
            assert_close(&weights, &row["action_weights"], &format!("{id} action_weights"));
            assert_eq!(answer.actions, integers::<u32>(&row["action"]["d"]), "{id}");
        }
    }
}

#[test]
fn the_considered_visits_are_those_of_mctx() {
    for row in rows("mctx", "considered_visits_sequence") {
        let number = |name: &str| row[name].as_u64().unwrap() as usize;
        let got = considered_visits(number("max_num_considered_actions"), number("num_simulations"));
        assert_eq!(json!(got), row["ok"], "{}", row["id"]);
    }
}

/// Nim: take any number from one heap; a player without a move loses. Action 5 h + n - 1 takes n from heap h.
struct Nim;

fn nim_logits(heaps: [u8; 3], logits: &mut [f32]) {
    for (at, logit) in logits.iter_mut().enumerate() {
        *logit = if heaps[at / 5] as usize > at % 5 { 0.0 } else { f32::NEG_INFINITY };
    }
}

impl SearchModel for Nim {
    type State = [u8; 3];

    fn step(&self, heaps: &[u8; 3], action: usize, logits: &mut [f32]) -> Result<(Outcome, [u8; 3])> {
        let mut next = *heaps;
        let is_over = *heaps == [0; 3];
        if !is_over {
            next[action / 5] = next[action / 5].saturating_sub(action as u8 % 5 + 1);
        }
        nim_logits(next, logits);
        let is_won = !is_over && next == [0; 3];
        let outcome = Outcome {
            reward: f32::from(u8::from(is_won)),
            discount: if next == [0; 3] { 0.0 } else { -1.0 },
            value: if next == [0; 3] { 0.0 } else { playouts(next) },
        };
        Ok((outcome, next))
    }
}

/// The mean result of some random games from a position, for the player to move.
fn playouts(heaps: [u8; 3]) -> f32 {
    let seed = heaps.iter().fold(0, |seed, heap| seed * 8 + u64::from(*heap));
    let mut rng = fulmar_core::Rng::new(seed);
    let mut game = || {
        let (mut heaps, mut result) = (heaps, -1.0);
        while heaps != [0; 3] {
            let heap = rng.below(3).unwrap() as usize;
            if heaps[heap] > 0 {
                heaps[heap] -= rng.below(u64::from(heaps[heap])).unwrap() as u8 + 1;
                result = -result;
            }
        }
        result
    };
    (0..16).map(|_| game()).sum::<f32>() / 16.0
}

fn nim_rows() -> Vec<([u8; 3], Vec<usize>)> {
    let games =
        rows("trees", "game").into_iter().filter(|row| row["game"].as_str().unwrap().starts_with("nim"));
    let position = |row: Value| {
        let heaps: Vec<u8> = integers(&row["state"]);
        let best = row["best"].as_array().unwrap().iter();
        let best =
            best.map(|pair| 5 * pair[0].as_u64().unwrap() as usize + pair[1].as_u64().unwrap() as usize - 1);
        ([heaps[0], heaps[1], heaps[2]], best.collect())
    };
    games.map(position).collect()
}

#[test]
fn policies_without_learned_priors_find_a_best_move_of_nim() {
    for policy in [SearchPolicy::Gumbel, SearchPolicy::Ucb, SearchPolicy::Ucb1Tuned] {
        for (heaps, best) in nim_rows() {
            let mut logits = [0.0; 15];
            nim_logits(heaps, &mut logits);
            let invalid: Vec<bool> = logits.iter().map(|logit| *logit == f32::NEG_INFINITY).collect();
            let root =
                SearchRoot { logits: &[0.0; 15], values: &[0.0], invalid_actions: &invalid, gumbel: &[] };
            let options =
                SearchOptions { num_simulations: 2000, policy, temperature: 0.0, ..Default::default() };
            let mut search = Search::new(&root, options).unwrap();
            search.run(&Nim, &[heaps]).unwrap();
            let action = search.answer().actions[0] as usize;
            assert!(best.contains(&action), "{policy:?} {heaps:?}: got {action}, best {best:?}");
        }
    }
}

#[test]
fn exp3_prefers_the_best_arm_of_a_bandit() {
    let column = |values: [f32; 3]| Tensor::from_vec(&[1, 3], values.to_vec()).unwrap();
    let next = Tensor::from_vec(&[1, 3], vec![0_i64; 3]).unwrap();
    let value = Tensor::from_vec(&[1], vec![0.0_f32]).unwrap();
    let model =
        TableModel::new(&next, &column([-0.8, 0.9, 0.1]), &column([0.0; 3]), &column([0.0; 3]), &value)
            .unwrap();
    let root = SearchRoot { logits: &[0.0; 3], values: &[0.0], ..Default::default() };
    let options = SearchOptions { num_simulations: 3000, policy: SearchPolicy::Exp3, ..Default::default() };
    let mut search = Search::new(&root, options).unwrap();
    search.run(&model, &[0]).unwrap();
    let probs = search.summary().unwrap().tensor("visit_probs").unwrap().to_f32_vec();
    assert!(probs[1] > 0.75 && probs[0] > 0.01 && probs[2] > 0.01, "{probs:?}");
}

/// A model of random numbers, in place.
fn random_table(num_states: usize, num_actions: usize, seed: u64) -> TableModel {
    let mut rng = fulmar_core::Rng::new(seed);
    let cells = [num_states, num_actions];
    let mut numbers = |count: usize| (0..count).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
    let (reward, logits) = (numbers(num_states * num_actions), numbers(num_states * num_actions));
    let value = numbers(num_states);
    let next: Vec<i64> =
        (0..num_states * num_actions).map(|_| rng.below(num_states as u64).unwrap() as i64).collect();
    let discount = vec![0.9_f32; num_states * num_actions];
    let column = |values: Vec<f32>| Tensor::from_vec(&cells, values).unwrap();
    let value = Tensor::from_vec(&[num_states], value).unwrap();
    TableModel::new(
        &Tensor::from_vec(&cells, next).unwrap(),
        &column(reward),
        &column(discount),
        &column(logits),
        &value,
    )
    .unwrap()
}

fn searched(model: &TableModel, states: &[u32], options: &SearchOptions) -> Search {
    let (logits, values) = model.root(states).unwrap();
    let root = SearchRoot { logits: &logits, values: &values, ..Default::default() };
    let mut search = Search::new(&root, options.clone()).unwrap();
    search.run(model, states).unwrap();
    search
}

const POLICIES: [SearchPolicy; 5] = [
    SearchPolicy::Muzero,
    SearchPolicy::Gumbel,
    SearchPolicy::Ucb,
    SearchPolicy::Ucb1Tuned,
    SearchPolicy::Exp3,
];

#[test]
fn a_seed_decides_the_trees_whatever_their_number_and_the_way_of_asking() {
    let model = random_table(20, 4, 1);
    for policy in POLICIES {
        let options = SearchOptions { num_simulations: 40, policy, seed: 9, ..Default::default() };
        let states: Vec<u32> = (0..8).collect();
        let mut many = searched(&model, &states, &options);
        let mut few = searched(&model, &states[..2], &options);
        let first_two = |search: &Search| search.arrays().unwrap().slice(0..2).unwrap();
        assert_eq!(first_two(&many), first_two(&few), "{policy:?}");
        assert_eq!(many.answer().actions[..2], few.answer().actions[..], "{policy:?}");
        // The same search, one simulation at a time.
        let (logits, values) = model.root(&states).unwrap();
        let root = SearchRoot { logits: &logits, values: &values, ..Default::default() };
        let mut stepped = Search::new(&root, options.clone()).unwrap();
        let mut known: Vec<Vec<u32>> = states.iter().map(|state| vec![*state; 41]).collect();
        while stepped.num_left() > 0 {
            let leaves = stepped.select().unwrap();
            let (mut outcomes, mut logits) = (Vec::new(), vec![0.0; 32]);
            for (tree, leaf) in leaves.iter().enumerate() {
                let row = &mut logits[4 * tree..4 * tree + 4];
                let (outcome, state) = model.step(&known[tree][leaf.parent], leaf.action, row).unwrap();
                known[tree][leaf.node] = state;
                outcomes.push(outcome);
            }
            stepped.expand(&leaves, &outcomes, &logits).unwrap();
        }
        assert_eq!(stepped.arrays().unwrap(), many.arrays().unwrap(), "{policy:?}");
        let other = searched(&model, &states, &SearchOptions { seed: 10, ..options });
        assert_ne!(other.arrays().unwrap(), many.arrays().unwrap(), "{policy:?}");
    }
}

#[test]
fn the_mean_of_each_node_is_that_of_the_returns_below_it() {
    let model = random_table(12, 3, 2);
    for policy in POLICIES {
        let search =
            searched(&model, &[0, 1], &SearchOptions { num_simulations: 60, policy, ..Default::default() });
        let arrays = search.arrays().unwrap();
        let column = |name: &str| arrays.tensor(name).unwrap().to_f32_vec();
        let (visits, children) = (column("node_visits"), column("children_index"));
        let (raw, means) = (column("raw_values"), column("node_values"));
        let (counts, rewards, discounts) =
            (column("children_visits"), column("children_rewards"), column("children_discounts"));
        for tree in 0..2 {
            for node in 0..61 {
                let at = tree * 61 + node;
                let (mut sum, mut total) = (f64::from(raw[at]), 1.0);
                for cell in 3 * at..3 * at + 3 {
                    if children[cell] >= 0.0 {
                        let below = f64::from(means[tree * 61 + children[cell] as usize]);
                        sum += f64::from(counts[cell])
                            * (f64::from(rewards[cell]) + f64::from(discounts[cell]) * below);
                        total += f64::from(counts[cell]);
                    }
                }
                assert_eq!(total, f64::from(visits[at]), "{policy:?}");
                assert!((sum / total - f64::from(means[at])).abs() < 1e-4, "{policy:?} node {node}");
            }
        }
    }
}

#[test]
fn a_part_of_a_tree_goes_on_and_knows_which_nodes_it_was() {
    let model = random_table(20, 3, 3);
    for policy in POLICIES {
        let options = SearchOptions { num_simulations: 50, policy, ..Default::default() };
        let mut first = searched(&model, &[4], &options);
        let action = first.answer().actions[0];
        let mut logits = [0.0; 3];
        let (outcome, state) = model.step(&4, action as usize, &mut logits).unwrap();
        let root = SearchRoot { logits: &logits, values: &[outcome.value], ..Default::default() };
        let (mut second, kept) = Search::reuse(&root, options.clone(), &first, &[action]).unwrap();
        let before = first.arrays().unwrap();
        let number = |arrays: &fulmar_tensor::TensorDict, name: &str, at: usize| {
            arrays.tensor(name).unwrap().to_f32_vec()[at]
        };
        let arrays = second.arrays().unwrap();
        for (to, from) in kept[0].iter().enumerate() {
            for name in ["node_visits", "node_values", "raw_values"] {
                assert_eq!(number(&arrays, name, to), number(&before, name, *from), "{policy:?} {name}");
            }
        }
        assert_eq!(number(&arrays, "node_visits", 0), number(&before, "children_visits", action as usize));
        // Its states: of the root and of all below it.
        let mut states: Vec<Option<u32>> = vec![Some(state)];
        for node in 1..kept[0].len() {
            let parent = number(&arrays, "parents", node) as usize;
            let action = number(&arrays, "action_from_parent", node) as usize;
            let (_, state) = model.step(&states[parent].unwrap(), action, &mut [0.0; 3]).unwrap();
            states.push(Some(state));
        }
        assert_eq!(second.run(&model, &[state]).unwrap_err().kind(), ErrorKind::Closed);
        second.run_with(&model, &mut [states], 50).unwrap();
        let grown = second.arrays().unwrap();
        assert_eq!(number(&grown, "node_visits", 0), number(&arrays, "node_visits", 0) + 50.0, "{policy:?}");
        second.answer();
        let error = Search::reuse(&root, options.clone(), &first, &[7]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        let error = Search::reuse(&root, options, &first, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    }
    let first = searched(
        &model,
        &[4],
        &SearchOptions { num_simulations: 1, policy: SearchPolicy::Ucb, ..Default::default() },
    );
    let never = (0..3)
        .find(|action| first.arrays().unwrap().tensor("children_index").unwrap().to_f32_vec()[*action] < 0.0)
        .unwrap();
    let (logits, values) = model.root(&[0]).unwrap();
    let root = SearchRoot { logits: &logits, values: &values, ..Default::default() };
    let same = SearchOptions { policy: SearchPolicy::Ucb, ..Default::default() };
    let (mut fresh, kept) = Search::reuse(&root, same, &first, &[never as u32]).unwrap();
    assert!(kept[0].is_empty());
    fresh.run(&model, &[0]).unwrap();
    let other = SearchOptions { policy: SearchPolicy::Exp3, ..Default::default() };
    assert_eq!(Search::reuse(&root, other, &first, &[0]).unwrap_err().kind(), ErrorKind::Incompatible);
}

#[test]
fn actions_of_the_root_that_are_not_allowed_are_never_taken() {
    let model = random_table(6, 4, 5);
    let (logits, values) = model.root(&[2]).unwrap();
    for policy in POLICIES {
        let root = SearchRoot {
            logits: &logits,
            values: &values,
            invalid_actions: &[true, false, true, false],
            gumbel: &[],
        };
        let mut search = Search::new(&root, SearchOptions { policy, ..Default::default() }).unwrap();
        search.run(&model, &[2]).unwrap();
        let counts = search.summary().unwrap().tensor("visit_counts").unwrap().to_f32_vec();
        assert_eq!((counts[0], counts[2]), (0.0, 0.0), "{policy:?}");
        assert!([1, 3].contains(&search.answer().actions[0]), "{policy:?}");
    }
}

#[test]
fn an_answer_is_drawn_by_visits_to_the_power_of_the_inverse_temperature() {
    let model = random_table(6, 3, 6);
    let (logits, values) = model.root(&[1]).unwrap();
    let root = SearchRoot { logits: &logits, values: &values, ..Default::default() };
    let options = SearchOptions {
        policy: SearchPolicy::Muzero,
        temperature: 2.0,
        num_simulations: 30,
        ..Default::default()
    };
    let mut search = Search::new(&root, options).unwrap();
    search.run(&model, &[1]).unwrap();
    let probs = search.summary().unwrap().tensor("visit_probs").unwrap().to_f32_vec();
    let roots: Vec<f64> = probs.iter().map(|prob| f64::from(*prob).sqrt()).collect();
    let mut counts = [0.0; 3];
    (0..9000).for_each(|_| counts[search.answer().actions[0] as usize] += 1.0);
    let total: f64 = roots.iter().sum();
    let expected: Vec<f64> = roots.iter().map(|root| 9000.0 * root / total).collect();
    let seen = (0..3).filter(|at| expected[*at] > 0.0);
    let chi_square: f64 = seen.map(|at| (counts[at] - expected[at]).powi(2) / expected[at]).sum();
    assert!(chi_square < 13.8, "2 degrees of freedom, p = 0.001: got {chi_square}");
}

#[test]
fn transforms_of_values_are_read_from_json() {
    let read = |json: &str| serde_json::from_str::<QTransform>(json).unwrap();
    assert_eq!(read(r#"{"kind":"byParentAndSiblings"}"#), QTransform::by_parent_and_siblings());
    assert_eq!(read(r#"{"kind":"completedByMixValue"}"#), QTransform::completed_by_mix_value());
    let range = QTransform::ByMinMax { min_value: -1.0, max_value: 1.0 };
    assert_eq!(read(r#"{"kind":"byMinMax","minValue":-1,"maxValue":1}"#), range);
    let model = random_table(6, 3, 7);
    for transform in [range, QTransform::by_parent_and_siblings(), QTransform::completed_by_mix_value()] {
        for policy in POLICIES {
            searched(
                &model,
                &[0],
                &SearchOptions { policy, qtransform: Some(transform), ..Default::default() },
            );
        }
    }
}

#[test]
fn wrong_roots_options_and_answers_are_refused() {
    let made = |logits: &[f32], values: &[f32], options: SearchOptions| {
        let root = SearchRoot { logits, values, ..Default::default() };
        Search::new(&root, options).err().map(|error| error.kind())
    };
    let plain = SearchOptions::default;
    assert_eq!(made(&[0.0; 4], &[0.0; 2], plain()), None);
    assert_eq!(made(&[], &[], plain()), Some(ErrorKind::Empty));
    assert_eq!(made(&[0.0; 3], &[0.0; 2], plain()), Some(ErrorKind::ShapeMismatch));
    assert_eq!(made(&[f32::NAN, 0.0], &[0.0], plain()), Some(ErrorKind::NonFinite));
    assert_eq!(made(&[f32::NEG_INFINITY, 0.0], &[0.0], plain()), None);
    assert_eq!(made(&[0.0], &[f32::INFINITY], plain()), Some(ErrorKind::NonFinite));
    let wrong = [
        SearchOptions { num_simulations: 0, ..plain() },
        SearchOptions { max_depth: Some(0), ..plain() },
        SearchOptions { max_num_considered_actions: 0, ..plain() },
        SearchOptions { dirichlet_fraction: 1.5, ..plain() },
        SearchOptions { dirichlet_alpha: 0.0, ..plain() },
        SearchOptions { temperature: -1.0, ..plain() },
        SearchOptions { pb_c_base: f32::NAN, ..plain() },
        SearchOptions { exp3_gamma: 0.0, ..plain() },
        SearchOptions { value_range: [1.0, 1.0], ..plain() },
        SearchOptions {
            qtransform: Some(QTransform::ByMinMax { min_value: 1.0, max_value: 0.0 }),
            ..plain()
        },
    ];
    for options in wrong {
        assert_eq!(made(&[0.0], &[0.0], options), Some(ErrorKind::OutOfRange));
    }
    let root = SearchRoot { logits: &[0.0; 2], values: &[0.0], ..Default::default() };
    let mut search = Search::new(&root, SearchOptions { num_simulations: 1, ..plain() }).unwrap();
    let leaves = search.select().unwrap();
    let outcome = Outcome { reward: 0.0, discount: 1.0, value: 0.0 };
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(search.expand(&leaves, &[outcome], &[0.0])), ErrorKind::ShapeMismatch);
    let broken = Outcome { value: f32::NAN, ..outcome };
    assert_eq!(kind(search.expand(&leaves, &[broken], &[0.0; 2])), ErrorKind::NonFinite);
    let mut elsewhere = leaves.clone();
    elsewhere[0].parent = 5;
    assert_eq!(kind(search.expand(&elsewhere, &[outcome], &[0.0; 2])), ErrorKind::OutOfRange);
    search.expand(&leaves, &[outcome], &[0.0; 2]).unwrap();
    assert_eq!(search.select().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_search_has_at_most_so_many_actions() {
    let root = SearchRoot { logits: &[0.0], values: &[0.0], ..Default::default() };
    let options =
        |num_simulations| SearchOptions { num_simulations, policy: SearchPolicy::Ucb, ..Default::default() };
    assert!(Search::new(&root, options(SEARCH_ACTIONS_MAX - 1)).is_ok());
    assert_eq!(Search::new(&root, options(SEARCH_ACTIONS_MAX)).unwrap_err().kind(), ErrorKind::LimitExceeded);
}
