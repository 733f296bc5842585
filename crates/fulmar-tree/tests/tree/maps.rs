//! Tests of maps: torchrl's programs, a naive twin, keys of one hash, limits, state.

use std::collections::HashMap;
use std::sync::Arc;

use fulmar_core::limits::MAP_KEYS_MAX;
use fulmar_core::{ErrorKind, Result};
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tree::{QueryModule, QueryOptions, RowHash, SipHash, TensorDictMap, TensorDictMapOptions};
use proptest::prelude::*;
use serde_json::Value;

use crate::golden_value::dict;
use crate::rows;

/// Hashes of four bits: many keys share one.
struct FourBits;

impl RowHash for FourBits {
    fn hash_rows(&self, rows: &Tensor, rank: usize) -> Result<Vec<i64>> {
        Ok(SipHash::default().hash_rows(rows, rank)?.into_iter().map(|hash| hash & 15).collect())
    }
}

fn map(max_size: usize) -> TensorDictMap {
    let query = QueryModule::new(vec!["k".into()], QueryOptions::default()).unwrap();
    TensorDictMap::new(query, TensorDictMapOptions { max_size, ..Default::default() }).unwrap()
}

fn keys(numbers: &[i64]) -> TensorDict {
    let mut keys = TensorDict::new(&[numbers.len()]).unwrap();
    keys.set("k", Tensor::from_slice(&[numbers.len()], numbers).unwrap()).unwrap();
    keys
}

fn values(numbers: &[f32]) -> TensorDict {
    let mut values = TensorDict::new(&[numbers.len()]).unwrap();
    values.set("v", Tensor::from_slice(&[numbers.len()], numbers).unwrap()).unwrap();
    values
}

fn numbers(dict: &TensorDict) -> Vec<f32> {
    dict.tensor("v").unwrap().to_vec().unwrap()
}

/// The keys of an operation: numbers, or rows of numbers.
fn keys_of(op: &Value) -> TensorDict {
    let rows = op["keys"].as_array().unwrap();
    let each = rows[0].as_array().map(Vec::len);
    let flat: Vec<i64> = rows
        .iter()
        .flat_map(|row| row.as_array().cloned().unwrap_or_else(|| vec![row.clone()]))
        .map(|number| number.as_i64().unwrap())
        .collect();
    let shape = [&[rows.len()], &each.map_or(vec![], |each| vec![each])[..]].concat();
    let mut keys = TensorDict::new(&[rows.len()]).unwrap();
    keys.set("k", Tensor::from_vec(&shape, flat).unwrap()).unwrap();
    keys
}

/// The values of an operation: `v`, and `w` where rows have it.
fn values_of(op: &Value, has_w: bool) -> TensorDict {
    let list: Vec<i64> = crate::integers(&op["values"]);
    let mut values = values(&list.iter().map(|one| *one as f32).collect::<Vec<_>>());
    if has_w {
        let thrice: Vec<i64> = list.iter().flat_map(|one| [*one; 3]).collect();
        values.set("w", Tensor::from_vec(&[list.len(), 3], thrice).unwrap()).unwrap();
    }
    values
}

fn sum(new: TensorDict, old: Option<TensorDict>) -> Result<TensorDict> {
    let Some(old) = old else { return Ok(new) };
    let mut merged = TensorDict::new(new.batch_size())?;
    let floats = |dict: &TensorDict| dict.tensor("v")?.to_vec::<f32>();
    let added = floats(&new)?.iter().zip(floats(&old)?).map(|(new, old)| new + old).collect();
    merged.set("v", Tensor::from_vec(new.batch_size(), added)?)?;
    if let Ok(w) = new.tensor("w") {
        let added =
            w.to_vec::<i64>()?.into_iter().zip(old.tensor("w")?.to_vec::<i64>()?).map(|(new, old)| new + old);
        merged.set("w", Tensor::from_vec(w.shape(), added.collect())?)?;
    }
    Ok(merged)
}

#[test]
fn programs_of_upstream_give_its_values() {
    let all = [
        rows("mcts", "TensorDictMap"),
        rows("trees", "TensorDictMap"),
        rows("trees", "TensorDictMap_write_fn"),
    ];
    for row in all.concat() {
        let mut map = map(row["max_size"].as_u64().unwrap() as usize);
        let has_w = row["id"].as_str().unwrap().starts_with("trees");
        let mut known = std::collections::HashSet::new();
        for op in row["ops"].as_array().unwrap() {
            match op["op"].as_str().unwrap() {
                "set" if row.get("write_fn").is_some() => {
                    map.insert_with(&keys_of(op), &values_of(op, has_w), &mut sum).unwrap();
                }
                "set" => {
                    let got = map.insert(&keys_of(op), &values_of(op, has_w));
                    assert_eq!(got.is_err(), op.get("error").is_some(), "{}", row["id"]);
                    if got.is_ok() {
                        known.extend(op["keys"].as_array().unwrap().iter().map(Value::to_string));
                    }
                }
                "get" => assert_eq!(map.get(&keys_of(op)).unwrap(), dict(&op["ok"]), "{}", row["id"]),
                "contains" | "in" => {
                    let got = map.contains(&keys_of(op)).unwrap();
                    match op.get("truth") {
                        Some(truth) => {
                            let truth: Vec<bool> = serde_json::from_value(truth.clone()).unwrap();
                            assert_eq!(got.to_vec::<bool>().unwrap(), truth, "{}", row["id"]);
                        }
                        None => {
                            let keys = op["keys"].as_array().unwrap().iter();
                            let truth: Vec<bool> = keys.map(|key| known.contains(&key.to_string())).collect();
                            assert_eq!(got.to_vec::<bool>().unwrap(), truth, "{}", row["id"]);
                        }
                    }
                }
                // Upstream counts writes, ours are keys.
                "len" => assert_eq!(map.len(), known.len(), "{}", row["id"]),
                "clear" => {
                    map.clear();
                    known.clear();
                }
                other => panic!("{other} is not known"),
            }
            if let Some(distinct) = op["distinct"].as_u64() {
                assert_eq!(map.len() as u64, distinct, "{}", row["id"]);
            }
        }
    }
}

#[test]
fn keys_of_one_hash_stay_apart() {
    let hashes: Vec<Arc<dyn RowHash>> = vec![Arc::new(FourBits)];
    let options = QueryOptions { hashes, ..Default::default() };
    let query = QueryModule::new(vec!["k".into()], options).unwrap();
    let mut map =
        TensorDictMap::new(query, TensorDictMapOptions { max_size: 500, ..Default::default() }).unwrap();
    let all: Vec<i64> = (0..500).collect();
    let written: Vec<f32> = all.iter().map(|key| *key as f32 * 2.0).collect();
    map.insert(&keys(&all), &values(&written)).unwrap();
    assert_eq!((map.len(), numbers(&map.get(&keys(&all)).unwrap())), (500, written));
    assert!(!map.contains(&keys(&[500])).unwrap().to_vec::<bool>().unwrap()[0]);
}

#[test]
fn zeros_of_both_signs_and_all_nans_are_one_key_unless_the_map_is_compatible() {
    for (compatible, count) in [(false, 2), (true, 3)] {
        let query = QueryModule::new(vec!["k".into()], QueryOptions::default()).unwrap();
        let options = TensorDictMapOptions { compatible, ..Default::default() };
        let mut map = TensorDictMap::new(query, options).unwrap();
        let mut keys = TensorDict::new(&[3]).unwrap();
        keys.set("k", Tensor::from_vec(&[3], vec![0.0_f32, -0.0, f32::NAN]).unwrap()).unwrap();
        map.insert(&keys, &values(&[1.0, 2.0, 3.0])).unwrap();
        assert_eq!(map.len(), count);
    }
}

#[test]
fn an_unknown_key_is_an_error_that_names_its_row() {
    let mut map = map(10);
    assert!(!map.contains(&keys(&[1])).unwrap().to_vec::<bool>().unwrap()[0], "an empty map has no key");
    map.insert(&keys(&[1]), &values(&[1.0])).unwrap();
    let error = map.get(&keys(&[1, 2])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
    assert!(error.detail().contains("row 1"), "{error}");
}

#[test]
fn a_refused_write_changes_nothing() {
    let mut map = map(3);
    map.insert(&keys(&[1, 2]), &values(&[1.0, 2.0])).unwrap();
    let before = map.state().unwrap();
    let kind = |result: Result<Vec<usize>>| result.unwrap_err().kind();
    assert_eq!(kind(map.insert(&keys(&[3, 4]), &values(&[3.0, 4.0]))), ErrorKind::LimitExceeded);
    assert_eq!(kind(map.insert(&keys(&[3]), &values(&[3.0, 4.0]))), ErrorKind::ShapeMismatch);
    assert_eq!(kind(map.insert(&keys(&[3]), &keys(&[3]))), ErrorKind::UnknownName);
    let mut wide = TensorDict::new(&[1]).unwrap();
    wide.set("k", Tensor::from_vec(&[1, 2], vec![1_i64, 2]).unwrap()).unwrap();
    assert_eq!(kind(map.insert(&wide, &values(&[3.0]))), ErrorKind::ShapeMismatch);
    wide.set("k", Tensor::from_vec(&[1], vec![1_i32]).unwrap()).unwrap();
    assert_eq!(kind(map.insert(&wide, &values(&[3.0]))), ErrorKind::Incompatible);
    assert_eq!(map.state().unwrap(), before);
    map.insert(&keys(&[3]), &values(&[3.0])).unwrap();
    assert_eq!(numbers(&map.get(&keys(&[3, 1])).unwrap()), [3.0, 1.0]);
}

#[test]
fn a_map_has_at_least_one_key_and_at_most_the_limit() {
    let made = |max_size| {
        let query = QueryModule::new(vec!["k".into()], QueryOptions::default()).unwrap();
        TensorDictMap::new(query, TensorDictMapOptions { max_size, ..Default::default() })
            .err()
            .map(|error| error.kind())
    };
    assert_eq!(
        (made(MAP_KEYS_MAX), made(MAP_KEYS_MAX + 1), made(0)),
        (None, Some(ErrorKind::OutOfRange), Some(ErrorKind::OutOfRange))
    );
}

#[test]
fn a_map_made_for_a_pair_keeps_the_entries_of_its_values() {
    let mut wide = values(&[1.0]);
    wide.set("more", Tensor::from_vec(&[1], vec![1_i64]).unwrap()).unwrap();
    let mut map = TensorDictMap::from_tensordict_pair(
        &keys(&[1]),
        &values(&[1.0]),
        vec!["k".into()],
        Default::default(),
    )
    .unwrap();
    assert!(map.is_empty());
    map.insert(&keys(&[1]), &wide).unwrap();
    assert_eq!(map.get(&keys(&[1])).unwrap(), values(&[1.0]));
    let error = TensorDictMap::from_tensordict_pair(&keys(&[1]), &wide, vec!["x".into()], Default::default())
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::UnknownName);
}

#[test]
fn a_batch_of_any_shape_is_written_and_read_in_that_shape() {
    let mut map = map(10);
    let grid = keys(&[1, 2, 3, 4]).reshape(&[2, 2]).unwrap();
    map.insert(&grid, &values(&[1.0, 2.0, 3.0, 4.0]).reshape(&[2, 2]).unwrap()).unwrap();
    assert_eq!(map.get(&grid).unwrap().batch_size(), [2, 2]);
    let one = keys(&[3]).index(0).unwrap();
    assert_eq!(map.get(&one).unwrap().batch_size(), [0_usize; 0]);
    assert_eq!(numbers(&map.get(&one).unwrap()), [3.0]);
    assert_eq!(map.contains(&one).unwrap().shape(), [0_usize; 0]);
}

#[test]
fn state_and_folder_come_back_and_damaged_ones_are_refused() {
    let mut source = map(10);
    let empty = source.state().unwrap();
    source.insert(&keys(&[5, 7, 9]), &values(&[1.0, 2.0, 3.0])).unwrap();
    let folder = std::env::temp_dir().join(format!("fulmar-map-{}", std::process::id()));
    source.dump(&folder).unwrap();
    let mut other = map(10);
    other.load(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(other.state().unwrap(), source.state().unwrap());
    assert_eq!(numbers(&other.get(&keys(&[9, 5])).unwrap()), [3.0, 1.0]);
    assert_eq!(map(2).load_state(&source.state().unwrap()).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let mut twice = source.state().unwrap();
    twice.set("keys", keys(&[5, 5, 9])).unwrap();
    twice.set("hashes", Tensor::from_vec(&[3], vec![1_i64, 1, 2]).unwrap()).unwrap();
    assert_eq!(other.load_state(&twice).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(other.len(), 3);
    other.load_state(&empty).unwrap();
    assert!(other.is_empty());
}

proptest! {
    #[test]
    fn a_map_is_a_plain_hash_map(ops in prop::collection::vec((any::<bool>(), prop::collection::vec(0_i64..12, 1..5)), 1..30)) {
        let (mut map, mut plain) = (map(20), HashMap::new());
        for (turn, (is_write, batch)) in ops.iter().enumerate() {
            if *is_write {
                let written: Vec<f32> = (0..batch.len()).map(|at| (turn * 10 + at) as f32).collect();
                map.insert_with(&keys(batch), &values(&written), &mut sum).unwrap();
                for (key, value) in batch.iter().zip(&written) {
                    *plain.entry(*key).or_insert(0.0) += value;
                }
            }
            let known: Vec<bool> = batch.iter().map(|key| plain.contains_key(key)).collect();
            prop_assert_eq!(map.contains(&keys(batch)).unwrap().to_vec::<bool>().unwrap(), known.clone());
            if known.iter().all(|is_known| *is_known) {
                let expected: Vec<f32> = batch.iter().map(|key| plain[key]).collect();
                prop_assert_eq!(numbers(&map.get(&keys(batch)).unwrap()), expected);
            }
            prop_assert_eq!(map.len(), plain.len());
        }
    }
}
