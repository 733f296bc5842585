//! The tree against golden rows, against a naive one, and at its limits.

use crate::golden_rows::{assert_drawn, index, indices, list, number, numbers, rows};
use fulmar_core::limits::{REPLAY_ROWS_MAX, REPLAY_SAMPLE_ROWS_MAX};
use fulmar_core::{ErrorKind, Rng};
use fulmar_replay::{PriorityTree, PriorityTreeState};
use proptest::prelude::*;
use serde_json::Value;

#[test]
fn a_sum_tree_does_what_the_golden_rows_say() {
    let rows: Vec<Value> = rows("segment_tree").into_iter().filter(|row| row["kind"] == "sum").collect();
    assert_eq!(rows.len(), 70);
    for row in &rows {
        let (mut tree, mut leaves) = of_row(row);
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            match op["op"].as_str().unwrap() {
                "update" => update(&mut tree, &mut leaves, op),
                "query" => {
                    for ((l, r), expected) in ranges(op) {
                        let got = tree.sum_in(l, r).unwrap();
                        // Ours is a sum of integers: every leaf is rounded to a whole number of units.
                        let slack = 1e-6 * expected + (r - l) as f64 * tree.unit();
                        assert!((got - expected).abs() <= slack, "{what}: got {got}");
                    }
                }
                "scan" => {
                    for (x, expected) in numbers(&op["x"]).into_iter().zip(indices(&op["ok"])) {
                        assert_scan(&what, &tree, &leaves, x, expected);
                    }
                }
                _ => at(&what, &tree, op, 0.0),
            }
        }
    }
}

#[test]
fn a_min_tree_does_what_the_golden_rows_say() {
    let rows: Vec<Value> = rows("segment_tree").into_iter().filter(|row| row["kind"] == "min").collect();
    assert_eq!(rows.len(), 67);
    for row in &rows {
        let (mut tree, mut leaves) = of_row(row);
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            match op["op"].as_str().unwrap() {
                "update" => update(&mut tree, &mut leaves, op),
                "query" => {
                    for ((l, r), expected) in ranges(op) {
                        let got = tree.min_in(l, r).unwrap();
                        let identity = expected == number(&row["identity"]);
                        assert_eq!(got, if identity { None } else { Some(expected as f32) }, "{what}");
                    }
                }
                _ => at(&what, &tree, op, number(&row["identity"])),
            }
        }
    }
}

fn of_row(row: &Value) -> (PriorityTree, Vec<f64>) {
    let size = index(&row["size"]);
    (PriorityTree::new(size).unwrap(), vec![0.0; size])
}

fn update(tree: &mut PriorityTree, leaves: &mut [f64], op: &Value) {
    let rows = indices(&op["index"]);
    let mut values = numbers(&op["value"]);
    if values.len() == 1 {
        values = vec![values[0]; rows.len()];
    }
    for (&row, &value) in rows.iter().zip(&values) {
        leaves[row] = value;
    }
    let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
    tree.update(&rows, &values).unwrap();
}

fn ranges(op: &Value) -> Vec<((usize, usize), f64)> {
    let ends = indices(&op["l"]).into_iter().zip(indices(&op["r"]));
    ends.zip(numbers(&op["ok"])).collect()
}

/// Leaves are `f32`, so those of float64 rows are close, and those of float32 rows equal.
fn at(what: &str, tree: &PriorityTree, op: &Value, identity: f64) {
    for (row, expected) in indices(&op["index"]).into_iter().zip(numbers(&op["ok"])) {
        let got = tree.leaf(row);
        let unset = expected == identity && got.is_none();
        assert!(unset || got == Some(expected as f32), "{what}: got {got:?}, expected {expected}");
    }
}

/// Checks for the same leaf, or a neighbour if the sum ends within rounding of `x`. Sums of f32 let the
/// golden tree exceed its last leaf if `x` is the total; ours stays within.
fn assert_scan(what: &str, tree: &PriorityTree, leaves: &[f64], x: f64, expected: usize) {
    let (got, expected) = (tree.lower_bound(x), expected.min(leaves.len()));
    if got == expected {
        return;
    }
    let slack = 1e-6 * x.abs() + leaves.len() as f64 * tree.unit();
    let before: f64 = leaves[..got.min(expected)].iter().sum();
    let through: f64 = leaves[..got.max(expected).min(leaves.len())].iter().sum();
    let first: f64 = before + leaves[got.min(expected)];
    assert!(
        (x - first).abs() <= slack && (through - first).abs() <= slack,
        "{what}: {x} gives {got}, not {expected}"
    );
}

/// The naive tree: a list of leaves, with the unit of the fast one.
struct Naive(Vec<Option<f32>>);

impl Naive {
    fn masses(&self, unit: f64) -> Vec<u64> {
        let mass = |leaf: f32| {
            if leaf > 0.0 { ((f64::from(leaf) / unit).round_ties_even() as u64).max(1) } else { 0 }
        };
        self.0.iter().map(|leaf| leaf.map_or(0, mass)).collect()
    }

    fn row_at(&self, unit: f64, mut mass: u64) -> usize {
        for (row, own) in self.masses(unit).into_iter().enumerate() {
            if mass < own {
                return row;
            }
            mass -= own;
        }
        self.0.len()
    }
}

fn leaf() -> impl Strategy<Value = f32> {
    let wide = (-30..30_i32, 1.0..10.0_f32).prop_map(|(exponent, mantissa)| mantissa * 10_f32.powi(exponent));
    prop_oneof![3 => 0.0..10.0_f32, 1 => wide, 1 => Just(0.0), 1 => Just(f32::MAX), 1 => Just(f32::from_bits(1))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_tree_agrees_with_a_naive_one(
        capacity in 1..2_500_usize,
        updates in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), leaf()), 0..150), 1..8),
        seed in any::<u64>(),
    ) {
        let mut tree = PriorityTree::new(capacity).unwrap();
        let mut naive = Naive(vec![None; capacity]);
        let mut rng = Rng::new(seed);
        for update in updates {
            let (rows, leaves): (Vec<_>, Vec<_>) = update.iter().map(|(at, leaf)| (at.index(capacity), *leaf)).unzip();
            tree.update(&rows, &leaves).unwrap();
            for (&row, &leaf) in rows.iter().zip(&leaves) {
                naive.0[row] = Some(leaf);
            }
            let masses = naive.masses(tree.unit());
            prop_assert_eq!(tree.total(), masses.iter().sum::<u64>());
            prop_assert_eq!(tree.min(), naive.0.iter().flatten().copied().reduce(f32::min));
            let max = naive.0.iter().flatten().copied().reduce(f32::max);
            prop_assert_eq!(tree.max().map(|(_, leaf)| leaf), max);
            prop_assert_eq!(tree.max().map(|(row, _)| row), naive.0.iter().position(|&leaf| leaf.is_some() && leaf == max));
            let start = rng.below(capacity as u64).unwrap() as usize;
            let end = start + 1 + rng.below((capacity - start) as u64).unwrap() as usize;
            let exact = masses[start..end].iter().sum::<u64>() as f64 * tree.unit();
            prop_assert_eq!(tree.sum_in(start, end).unwrap(), exact);
            let least = naive.0[start..end].iter().flatten().copied().reduce(f32::min);
            prop_assert_eq!(tree.min_in(start, end).unwrap(), least);
            if tree.total() > 0 {
                let drawn: Vec<u64> = (0..70).map(|_| rng.below(tree.total()).unwrap()).collect();
                let expected: Vec<usize> = drawn.iter().map(|&mass| naive.row_at(tree.unit(), mass)).collect();
                prop_assert_eq!(tree.rows_at(&drawn), expected);
            }
        }
        let beyond = [tree.total(), 1 << 63, (1 << 63) + tree.total() / 2, u64::MAX];
        prop_assert_eq!(tree.rows_at(&beyond), vec![capacity; 4]);
        let json = serde_json::to_string(&tree.state()).unwrap();
        let again = PriorityTree::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
        prop_assert_eq!((again.total(), again.unit()), (tree.total(), tree.unit()));
    }
}

#[test]
fn the_order_of_updates_does_not_change_a_sum() {
    let mut rng = Rng::new(3);
    let leaves: Vec<f32> = (0..5_000).map(|_| rng.uniform_f32() + 0.001).collect();
    let mut order: Vec<usize> = (0..5_000).collect();
    let mut totals = Vec::new();
    for _ in 0..3 {
        rng.shuffle(&mut order);
        let mut tree = PriorityTree::new(5_000).unwrap();
        for rows in order.chunks(7) {
            tree.update(rows, &rows.iter().map(|&row| leaves[row]).collect::<Vec<_>>()).unwrap();
        }
        totals.push((tree.total(), tree.rows_at(&[tree.total() / 3])));
    }
    assert!(totals.iter().all(|total| *total == totals[0]), "{totals:?}");
}

#[test]
fn a_million_updates_leave_no_drift() {
    let mut tree = PriorityTree::new(300).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..4_000 {
        let rows: Vec<usize> = (0..256).map(|_| rng.below(300).unwrap() as usize).collect();
        let leaves: Vec<f32> = (0..256).map(|_| rng.uniform_f32() * 100.0).collect();
        tree.update(&rows, &leaves).unwrap();
    }
    let rows: Vec<usize> = (0..300).collect();
    tree.update(&rows, &vec![1.0; 300]).unwrap();
    assert_eq!(tree.sum(), 300.0);
    tree.update(&rows, &vec![0.0; 300]).unwrap();
    assert_eq!(tree.total(), 0);
}

#[test]
fn the_smallest_leaf_can_be_drawn_beside_the_largest() {
    let mut tree = PriorityTree::new(40).unwrap();
    tree.update(&[3, 17], &[f32::from_bits(1), f32::MAX]).unwrap();
    let drawn = tree.rows_at(&[0, 1, tree.total() - 1]);
    assert_eq!(drawn, [3, 17, 17]);
}

#[test]
fn resolution_comes_back_once_an_outlier_is_gone() {
    let mut tree = PriorityTree::new(100).unwrap();
    tree.update(&[0, 1, 2], &[1e30, 1.0, 3.0]).unwrap();
    let coarse = tree.unit();
    tree.update(&[0], &[0.0]).unwrap();
    assert!(tree.unit() < coarse * 1e-20, "{} against {coarse}", tree.unit());
    assert_eq!(tree.sum(), 4.0);
}

#[test]
fn every_row_of_many_can_be_drawn() {
    // A tree of f32 sums begins to lose rows at 16 million equal leaves.
    let capacity = (1 << 24) + 5_000;
    let mut tree = PriorityTree::new(capacity).unwrap();
    let rows: Vec<usize> = (0..capacity).collect();
    tree.update(&rows, &vec![0.1; capacity]).unwrap();
    let each = tree.total() / capacity as u64;
    assert_eq!(each * capacity as u64, tree.total(), "equal leaves have equal masses");
    let tail: Vec<usize> = (capacity - 5_000..capacity).collect();
    let masses: Vec<u64> = tail.iter().map(|&row| row as u64 * each + each - 1).collect();
    assert_eq!(tree.rows_at(&masses), tail);
    let front: Vec<u64> = (0..5_000).map(|row| row * each).collect();
    assert_eq!(tree.rows_at(&front), (0..5_000).collect::<Vec<_>>());
}

#[test]
fn draws_follow_the_leaves() {
    let mut tree = PriorityTree::new(200).unwrap();
    let leaves: Vec<f32> = (0..200_u16).map(|row| f32::from(row % 23)).collect();
    tree.update(&(0..200).collect::<Vec<_>>(), &leaves).unwrap();
    let drawn = tree.sample(&mut Rng::new(11), 60_000).unwrap();
    assert_drawn("leaves", &drawn, &leaves.into_iter().map(f64::from).collect::<Vec<_>>());
}

#[test]
fn a_seed_gives_these_rows_on_every_target() {
    let mut tree = PriorityTree::new(1_000).unwrap();
    let leaves: Vec<f32> = (0..1_000_u16).map(|row| 0.37 * f32::from(row)).collect();
    tree.update(&(0..1_000).collect::<Vec<_>>(), &leaves).unwrap();
    let drawn = tree.sample(&mut Rng::new(7), 8).unwrap();
    assert_eq!(drawn, SEED_7);
}

/// Results of this test on x86-64; every other machine must give the same.
const SEED_7: [usize; 8] = [866, 293, 891, 978, 92, 921, 500, 373];

#[test]
fn what_cannot_be_a_leaf_is_refused_and_changes_nothing() {
    let mut tree = PriorityTree::new(4).unwrap();
    tree.update(&[0], &[2.0]).unwrap();
    for (rows, leaves, kind) in [
        (vec![1], vec![f32::NAN], ErrorKind::NonFinite),
        (vec![1], vec![f32::INFINITY], ErrorKind::NonFinite),
        (vec![0, 1], vec![1.0, -3.0], ErrorKind::OutOfRange),
        (vec![0, 4], vec![1.0, 1.0], ErrorKind::OutOfRange),
        (vec![0, 1], vec![1.0], ErrorKind::ShapeMismatch),
    ] {
        let error = tree.update(&rows, &leaves).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((tree.sum(), tree.leaf(1)), (2.0, None));
    }
    tree.update(&[1], &[-0.0]).unwrap();
    assert_eq!((tree.min(), tree.sum()), (Some(0.0), 2.0));
    for (start, end) in [(2, 2), (3, 2), (0, 5)] {
        assert_eq!(tree.sum_in(start, end).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(tree.min_in(start, end).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
}

#[test]
fn a_draw_without_mass_is_refused() {
    let mut tree = PriorityTree::new(4).unwrap();
    let mut rng = Rng::new(1);
    assert_eq!(tree.sample(&mut rng, 1).unwrap_err().kind(), ErrorKind::Empty);
    tree.update(&[0], &[0.0]).unwrap();
    assert_eq!(tree.sample(&mut rng, 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    tree.update(&[0], &[1.0]).unwrap();
    assert_eq!(tree.sample(&mut rng, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(tree.sample(&mut rng, REPLAY_SAMPLE_ROWS_MAX + 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(tree.sample(&mut rng, REPLAY_SAMPLE_ROWS_MAX).unwrap().len(), REPLAY_SAMPLE_ROWS_MAX);
    tree.clear();
    assert_eq!((tree.total(), tree.min(), tree.max(), tree.leaf(0)), (0, None, None, None));
}

#[test]
fn a_capacity_of_none_or_too_many_is_refused() {
    assert_eq!(PriorityTree::new(0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(PriorityTree::new(REPLAY_ROWS_MAX + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let state = |top, leaves| PriorityTreeState { capacity: 2, top, leaves };
    assert_eq!(PriorityTree::from_state(&state(1, vec![Some(8.0)])).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(PriorityTree::from_state(&state(200, vec![])).unwrap_err().kind(), ErrorKind::Corrupt);
    let many = PriorityTree::from_state(&state(4, vec![None, None, Some(1.0)]));
    assert_eq!(many.unwrap_err().kind(), ErrorKind::OutOfRange);
    let negative = PriorityTree::from_state(&state(4, vec![Some(-1.0)]));
    assert_eq!(negative.unwrap_err().kind(), ErrorKind::OutOfRange);
}

proptest! {
    /// A tree of rows with one leaf writes no node until another leaf comes, which must not be observable.
    #[test]
    fn rows_of_one_leaf_count_as_if_they_were_set_one_by_one(
        capacity in 1_usize..700,
        runs in prop::collection::vec((0_usize..700, 0_usize..700), 1..4),
        leaf in leaf(),
        others in prop::collection::vec((0_usize..700, leaf()), 0..4),
        seed in any::<u64>(),
    ) {
        let mut filled = PriorityTree::new(capacity).unwrap();
        let mut plain = PriorityTree::new(capacity).unwrap();
        // From the last row to the first: only a tree of one row can begin so without nodes.
        for (start, end) in runs {
            let rows = start.min(capacity)..end.min(capacity);
            filled.fill(rows.clone(), leaf).unwrap();
            for row in rows.rev() {
                plain.update(&[row], &[leaf]).unwrap();
            }
        }
        for at in 0..=others.len() {
            prop_assert_eq!(filled.state(), plain.state());
            prop_assert_eq!((filled.total(), filled.min(), filled.max()), (plain.total(), plain.min(), plain.max()));
            let middle = capacity / 2;
            for (start, end) in [(0, capacity), (middle, capacity), (0, middle.max(1))] {
                prop_assert_eq!(filled.sum_in(start, end).unwrap(), plain.sum_in(start, end).unwrap());
                prop_assert_eq!(filled.min_in(start, end).unwrap(), plain.min_in(start, end).unwrap());
            }
            let masses: Vec<u64> = (0..=8).map(|part| plain.total() / 8 * part).collect();
            prop_assert_eq!(filled.rows_at(&masses), plain.rows_at(&masses));
            prop_assert_eq!(filled.lower_bound(plain.sum() / 2.0), plain.lower_bound(plain.sum() / 2.0));
            let draw = |tree: &PriorityTree| tree.sample(&mut Rng::new(seed), 50).map_err(|error| error.kind());
            prop_assert_eq!(draw(&filled), draw(&plain));
            let again = PriorityTree::from_state(&filled.state()).unwrap();
            prop_assert_eq!(draw(&again), draw(&plain));
            let Some((row, leaf)) = others.get(at) else { break };
            filled.update(&[row % capacity], &[*leaf]).unwrap();
            plain.update(&[row % capacity], &[*leaf]).unwrap();
        }
        filled.clear();
        prop_assert_eq!(filled.state(), PriorityTree::new(capacity).unwrap().state());
        prop_assert!(filled.fill(0..capacity + 1, 1.0).is_err() && filled.fill(0..1, f32::NAN).is_err());
    }
}
