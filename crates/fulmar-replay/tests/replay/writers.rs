//! Writers against golden rows and against a naive ring.

use std::collections::BTreeMap;

use crate::golden_rows::{assert_unread, index, indices, list, number, numbers, rows};
use fulmar_core::ErrorKind;
use fulmar_core::limits::REPLAY_ROWS_MAX;
use fulmar_replay::{
    ImmutableWriter, MaxValueWriter, ReplayBuffer, ReplayBufferOptions, RoundRobinWriter, TensorStorage,
    WriterOptions,
};
use fulmar_tensor::TensorDict;
use proptest::prelude::*;
use serde_json::Value;

/// Operations that concern only the contents of a buffer.
const CONTENTS: [&str; 14] = [
    "get",
    "setitem",
    "sample_index",
    "sample_size",
    "stats",
    "len",
    "read_all",
    "write_all",
    "set_",
    "set_at_",
    "update_",
    "update_if_present",
    "update_priority",
    "set_alpha",
];

#[test]
fn golden_rows_of_kinds_not_built_yet_are_counted() {
    // The other operations are followed, with the rows they take, without the contents of rows.
    let read = [
        "consuming",
        "generations",
        "inplace",
        "max_value",
        "prioritized",
        "prioritized_errors",
        "ring",
        "shared_storage",
        "storage_x_writer",
        "tensor_payload",
        "update_if_present",
        "ensemble",
        "ensemble_routed",
        "errors",
        "ndim2",
        "prioritized_reduction",
        "schema_drift",
    ];
    // Payloads other than dictionaries are not supported.
    let unread = [("list_payload", 3), ("pytree_payload", 3), ("string_payload", 1)];
    assert_unread("buffer_ops", &read, &unread);
}

#[test]
fn a_ring_does_what_the_golden_rows_say() {
    let ring = [
        "ring",
        "generations",
        "storage_x_writer",
        "inplace",
        "update_if_present",
        "prioritized",
        "tensor_payload",
    ];
    let (mut applied, mut appended) = (BTreeMap::new(), 0);
    for row in rows("buffer_ops").iter().filter(|row| ring.contains(&row["topic"].as_str().unwrap())) {
        let setup = &row["setup"];
        let name = setup["writer"]["cls"].as_str().unwrap_or("RoundRobinWriter");
        if !name.ends_with("RoundRobinWriter") {
            continue;
        }
        let capacity = index(&setup["storage"]["max_size"]);
        let mut writer = RoundRobinWriter::new(capacity).unwrap();
        if setup["writer"]["track_generations"] == true {
            writer = writer.tracking_generations();
        }
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            let kind = op["op"].as_str().unwrap();
            if kind == "setitem" && op["error"].is_null() && index(&op["state"]["len"]) > writer.len() {
                // Upstream an edit of a list may append; here only writers choose rows.
                assert_eq!(writer.write_at(&[writer.len()]).unwrap_err().kind(), ErrorKind::OutOfRange);
                appended += 1;
                break;
            }
            match kind {
                "extend" if !op["error"].is_null() || indices(&op["ok"]).is_empty() => {
                    // Some storages refuse an empty batch upstream, every writer does here.
                    assert_eq!(writer.extend(0).unwrap_err().kind(), ErrorKind::Empty, "{what}");
                }
                "extend" => {
                    let expected = indices(&op["ok"]);
                    assert_eq!(writer.extend(expected.len()).unwrap(), expected, "{what}");
                }
                "add" => assert_eq!(writer.extend(1).unwrap(), indices(&op["ok"]), "{what}"),
                "write_at" => writer.write_at(&indices(&op["index"])).unwrap(),
                "generations_of" => {
                    let asked: Vec<i64> = numbers(&op["index"]).into_iter().map(|row| row as i64).collect();
                    let expected: Vec<i64> =
                        numbers(&op["ok"]).into_iter().map(|number| number as i64).collect();
                    assert_eq!(writer.generations_of(&asked), expected, "{what}");
                }
                "empty" => {
                    writer.clear();
                    if op["kwargs"]["empty_write_count"] != false {
                        writer.reset_write_count();
                    }
                }
                "state_roundtrip" => {
                    let json = serde_json::to_string(&writer.state()).unwrap();
                    let again = RoundRobinWriter::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
                    assert_eq!(again, writer, "{what}");
                    writer = again;
                }
                other => {
                    assert!(CONTENTS.contains(&other) || other == "update_tensordict_priority", "{what}");
                }
            }
            let state = &op["state"];
            assert_eq!(
                (writer.len(), writer.cursor()),
                (index(&state["len"]), index(&state["cursor"])),
                "{what}"
            );
            assert_eq!(writer.write_count(), state["write_count"].as_u64().unwrap(), "{what}");
            if let Some(expected) = state["generations"].as_array() {
                let all: Vec<i64> = (0..capacity as i64).collect();
                let expected: Vec<i64> = expected.iter().map(|number| number.as_i64().unwrap()).collect();
                assert_eq!(writer.generations_of(&all), expected, "{what}");
            }
            *applied.entry(kind.to_owned()).or_insert(0) += 1;
        }
    }
    println!("operations on rings: {applied:?}; buffers left where an edit appends: {appended}");
    assert!(
        applied["extend"] > 150 && applied["add"] > 50 && applied["write_at"] == 3 && applied["empty"] > 15
    );
}

#[test]
fn the_best_items_stay_as_in_the_golden_rows() {
    let mut applied = 0;
    for row in rows("buffer_ops") {
        let setup = &row["setup"];
        if setup["writer"]["cls"] != "TensorDictMaxValueWriter" || setup["storage"]["ndim"] == 2 {
            continue;
        }
        let mut writer = MaxValueWriter::new(index(&setup["storage"]["max_size"])).unwrap();
        for op in list(&row["ops"]) {
            let what = format!("{} {op}", row["id"]);
            match op["op"].as_str().unwrap() {
                "extend" | "add" if !op["error"].is_null() => continue,
                "extend" | "add" => {
                    let given = writer.extend(&ranks(setup, op)).unwrap();
                    let given: Vec<f64> =
                        given.into_iter().map(|row| row.map_or(-1.0, |row| row as f64)).collect();
                    let expected = if op["ok"].is_null() { vec![-1.0] } else { numbers(&op["ok"]) };
                    assert_eq!(given, expected, "{what}");
                }
                "empty" => {
                    writer.clear();
                    if op["kwargs"]["empty_write_count"] != false {
                        writer.reset_write_count();
                    }
                }
                // Not supported upstream; here it must change nothing.
                "state_roundtrip" => {
                    let json = serde_json::to_string(&writer.state()).unwrap();
                    writer = MaxValueWriter::from_state(&serde_json::from_str(&json).unwrap()).unwrap();
                }
                other => assert!(CONTENTS.contains(&other), "{what}"),
            }
            let state = &op["state"];
            assert_eq!(writer.len(), index(&state["len"]), "{what}");
            assert!(
                op["op"] == "empty" || writer.write_count() == state["write_count"].as_u64().unwrap(),
                "{what}"
            );
            let mut kept: Vec<(f64, usize)> = writer.ranks().into_iter().zip(0..).collect();
            kept.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut expected: Vec<(f64, usize)> =
                list(&state["top_values"]).iter().map(|pair| (number(&pair[0]), index(&pair[1]))).collect();
            expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            assert_eq!(kept, expected, "{what}");
            applied += 1;
        }
    }
    assert!(applied > 200, "{applied}");
}

/// Returns the rank of each item of `op`, reduced as in `setup`.
fn ranks(setup: &Value, op: &Value) -> Vec<f64> {
    let items = op["data"]["$td"].as_array().and_then(|shape| shape.first()).map_or(1, index);
    let (key, reduction) =
        (&setup["writer"]["rank_key"], setup["writer"]["reduction"].as_str().unwrap_or("sum"));
    let leaves = &op["data"]["k"];
    let leaf = key.as_str().map_or(&leaves["next"]["k"]["reward"], |key| &leaves[key]);
    let values: Vec<f32> = numbers(leaf).into_iter().map(|value| value as f32).collect();
    let width = values.len() / items;
    let reduce = |values: &[f32]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f32::total_cmp);
        match reduction {
            "sum" => values.iter().sum::<f32>(),
            "mean" => values.iter().sum::<f32>() / width as f32,
            "max" => sorted[width - 1],
            "min" => sorted[0],
            "median" => sorted[(width - 1) / 2],
            other => panic!("{other} is no reduction"),
        }
    };
    values.chunks(width).map(|values| f64::from(reduce(values))).collect()
}

#[test]
fn an_immutable_writer_refuses_as_in_the_golden_rows() {
    let mut refused = 0;
    for row in
        rows("buffer_ops").iter().filter(|row| row["setup"]["writer"]["cls"] == "ImmutableDatasetWriter")
    {
        for op in list(&row["ops"]).iter().filter(|op| op["op"] == "extend" || op["op"] == "add") {
            assert!(!op["error"].is_null());
            assert_eq!(ImmutableWriter.extend(1).unwrap_err().kind(), ErrorKind::Incompatible);
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_buffer_with_an_immutable_writer_keeps_its_rows() {
    let items = TensorDict::new(&[2]).unwrap();
    let options = ReplayBufferOptions { writer: WriterOptions::Immutable, ..Default::default() };
    let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::over(&items).unwrap()), options).unwrap();
    for keeps_count in [false, true] {
        assert_eq!(buffer.clear(keeps_count).unwrap_err().kind(), ErrorKind::Incompatible);
    }
    assert_eq!(buffer.len(), 2);
}

proptest! {
    #[test]
    fn a_ring_agrees_with_writing_one_by_one(
        capacity in 1..20_usize,
        counts in prop::collection::vec(1..50_usize, 1..10),
    ) {
        let mut ring = RoundRobinWriter::new(capacity).unwrap().tracking_generations();
        let mut naive = RoundRobinWriter::new(capacity).unwrap().tracking_generations();
        let mut contents = std::collections::VecDeque::new();
        let mut slots = vec![None; capacity];
        let mut item = 0_usize;
        for count in counts {
            let rows = ring.extend(count).unwrap();
            let single: Vec<usize> = (0..count).flat_map(|_| naive.extend(1).unwrap()).collect();
            prop_assert_eq!(&rows, &single);
            for row in rows {
                slots[row] = Some(item);
                contents.push_back(item);
                item += 1;
            }
            while contents.len() > capacity {
                contents.pop_front();
            }
            let mut kept: Vec<usize> = slots[..ring.len()].iter().flatten().copied().collect();
            kept.sort_unstable();
            prop_assert_eq!(&kept, &contents.iter().copied().collect::<Vec<_>>());
        }
        prop_assert_eq!(ring, naive);
    }

    #[test]
    fn the_best_agree_with_sorting(
        capacity in 1..8_usize,
        batches in prop::collection::vec(prop::collection::vec(0..20_i32, 1..12), 1..8),
    ) {
        let mut writer = MaxValueWriter::new(capacity).unwrap();
        let mut all: Vec<f64> = Vec::new();
        let mut slots = BTreeMap::new();
        for batch in batches {
            let ranks: Vec<f64> = batch.into_iter().map(f64::from).collect();
            for (row, &rank) in writer.extend(&ranks).unwrap().into_iter().zip(&ranks) {
                if let Some(row) = row {
                    slots.insert(row, rank);
                }
            }
            all.extend(&ranks);
            all.sort_by(|a, b| b.total_cmp(a));
            all.truncate(capacity);
            let mut kept = writer.ranks();
            prop_assert_eq!(&kept, &slots.values().copied().collect::<Vec<_>>());
            kept.sort_by(|a, b| b.total_cmp(a));
            prop_assert_eq!(&kept, &all);
        }
    }
}

#[test]
fn freed_rows_are_reused_before_the_ring_goes_on() {
    let mut writer = RoundRobinWriter::new(8).unwrap();
    writer.extend(8).unwrap();
    assert_eq!(writer.extend_reusing([1, 2], 6).unwrap(), [1, 2, 0, 3, 4, 5]);
    assert_eq!((writer.cursor(), writer.len(), writer.write_count()), (6, 8, 14));
    assert_eq!(writer.extend_reusing([], 9).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(writer.extend_reusing([8], 1).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn what_a_writer_cannot_take_is_refused() {
    assert_eq!(RoundRobinWriter::new(0).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(RoundRobinWriter::new(REPLAY_ROWS_MAX).unwrap().capacity(), REPLAY_ROWS_MAX);
    assert_eq!(RoundRobinWriter::new(REPLAY_ROWS_MAX + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let mut ring = RoundRobinWriter::new(4).unwrap();
    assert_eq!(ring.extend(0).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(ring.extend(REPLAY_ROWS_MAX + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    ring.extend(2).unwrap();
    assert_eq!(ring.write_at(&[2]).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(ring.write_at(&[]).unwrap_err().kind(), ErrorKind::Empty);
    let mut state = ring.state();
    state.cursor = 3;
    assert_eq!(RoundRobinWriter::from_state(&state).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut best = MaxValueWriter::new(2).unwrap();
    assert_eq!(best.extend(&[]).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(best.extend(&[1.0, f64::NAN]).unwrap_err().kind(), ErrorKind::NonFinite);
    assert!(best.is_empty());
    let mut state = best.state();
    state.ranks = vec![1.0; 3];
    assert_eq!(MaxValueWriter::from_state(&state).unwrap_err().kind(), ErrorKind::OutOfRange);
}
