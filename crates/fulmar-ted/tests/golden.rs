//! Rings of steps in torchrl 0.14.1's conversions, in memory and in folders: read and made with equal
//! contents.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::{Dtype, ErrorKind};
use fulmar_ted::{
    Ring, TedKeys, flat_to_ted, hdf5_combine, hdf5_split, nested_to_ted, read_hdf5, ted_to_flat,
    ted_to_nested, write_hdf5,
};
use fulmar_tensor::{Entry, Tensor, TensorDict, memmap};
use serde_json::Value;

use self::golden_value::{dict, entry, plain};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ted").join(path)
}

fn rows(topic: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden("ted.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["topic"] == topic).collect()
}

fn ring(row: &Value, cursor: &str) -> Ring {
    Ring { cursor: row[cursor].as_u64().unwrap() as usize, is_full: row["is_full"] == true }
}

fn convert(steps: &TensorDict, ring: Ring, to: &str) -> fulmar_ted::Result<TensorDict> {
    let keys = TedKeys::default();
    if to == "flat" { ted_to_flat(steps, ring, &keys) } else { ted_to_nested(steps, ring, &keys) }
}

fn back(converted: &TensorDict, to: &str) -> fulmar_ted::Result<(TensorDict, Ring)> {
    let keys = TedKeys::default();
    if to == "flat" { flat_to_ted(converted, &keys) } else { nested_to_ted(converted, &keys) }
}

/// The expected result of a row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// Upstream's values.
    Same,
    /// Steps whose next observation differs from that of the next step are refused. Upstream returns other
    /// ones, or fails on the cursor 0 of a full ring first.
    Lossy,
    /// Upstream cannot load back what it wrote of full lanes.
    Lanes,
    /// A plain folder of the ring itself.
    Tensor,
}

#[test]
fn conversions_give_what_torchrl_gives_and_bring_the_steps_back() {
    let mut rules = BTreeMap::<Rule, usize>::new();
    for row in rows("ted_convert") {
        let id = row["id"].as_str().unwrap();
        let (steps, ring, to) = (dict(&row["data"]), ring(&row, "shift"), row["to"].as_str().unwrap());
        let converted = convert(&steps, ring, to);
        let said = plain(&row["ok"]);
        let rule = if row.get("error").is_some() {
            Rule::Lossy
        } else {
            let equal = |leaf: &Value| leaf == true;
            if said["back_equal"].as_object().unwrap().values().all(equal) { Rule::Same } else { Rule::Lossy }
        };
        if rule == Rule::Lossy {
            let error = converted.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible, "{id}");
            assert!(error.detail().starts_with("\"observation\": "), "{id}: {error}");
        } else {
            let converted = converted.unwrap();
            assert_eq!(back(&converted, to).unwrap(), (steps, ring), "{id}");
            for (name, value) in said["converted"].as_object().unwrap() {
                assert_eq!(converted.get(name.as_str()), Some(&entry(value)), "{id} {name}");
            }
        }
        *rules.entry(rule).or_default() += 1;
    }
    println!("ted_convert: {rules:?}");
    assert_eq!(rules, BTreeMap::from([(Rule::Same, 14), (Rule::Lossy, 6)]));
}

/// Returns the first steps of each lane.
fn written(steps: &TensorDict, len: usize) -> TensorDict {
    steps.slice(0..len).unwrap()
}

#[test]
fn checkpoints_of_torchrl_hold_what_it_said_and_ours_are_the_same() {
    let mut rules = BTreeMap::<Rule, usize>::new();
    for row in rows("rb_checkpoint") {
        let id = row["id"].as_str().unwrap();
        let folder = golden(row["fixture"].as_str().unwrap()).join("storage");
        let contents = dict(&row["contents"]);
        let lanes: usize = contents.batch_size()[1..].iter().product();
        let len = row["len"].as_u64().unwrap() as usize / lanes;
        let checkpointer = row["checkpointer"].as_str().unwrap();
        let to = match checkpointer {
            "FlatStorageCheckpointer" => "flat",
            "NestedStorageCheckpointer" => "nested",
            "TensorStorageCheckpointer" => {
                let steps = memmap::load(&folder).unwrap();
                assert_eq!(written(&steps, len), written(&contents, len), "{id}");
                *rules.entry(Rule::Tensor).or_default() += 1;
                continue;
            }
            _ => "hdf5",
        };
        let stored = if to == "hdf5" {
            let bytes = fs::read(folder.join("checkpoint.h5")).unwrap();
            let split = read_hdf5(&bytes).unwrap();
            let nested = hdf5_combine(&split, &TedKeys::default()).unwrap();
            assert_eq!(read_hdf5(&write_hdf5(&split).unwrap()).unwrap(), split, "{id}");
            if ring_is_full(&row) {
                assert_eq!(hdf5_split(&nested, &TedKeys::default()).unwrap(), split, "{id}");
            }
            nested
        } else {
            memmap::load(&folder).unwrap()
        };
        let (steps, ring) = back(&stored, to).unwrap();
        assert_eq!(
            (ring.cursor as u64, ring.is_full),
            (row["cursor"].as_u64().unwrap(), row["is_full"] == true),
            "{id}"
        );
        assert_eq!(written(&steps, len), written(&contents, len), "{id}");
        let again = convert(&steps, ring, to).unwrap();
        assert_eq!(back(&again, to).unwrap(), (steps, ring), "{id}");
        // Upstream stores unwritten memory; for full rings the forms are equal.
        if ring.is_full {
            for (name, entry) in again.entries() {
                assert_eq!(Some(entry), stored.get(name), "{id} {name}");
            }
        } else {
            unwritten_is_zero(&again);
        }
        let rule = if row["after_load"].get("error").is_some() { Rule::Lanes } else { Rule::Same };
        *rules.entry(rule).or_default() += 1;
    }
    println!("rb_checkpoint: {rules:?}");
    let counts = [(Rule::Same, 27), (Rule::Lanes, 3), (Rule::Tensor, 10)];
    assert_eq!(rules, BTreeMap::from(counts));
}

fn ring_is_full(row: &Value) -> bool {
    row["is_full"] == true
}

#[test]
fn hdf5_files_of_tensordict_hold_what_it_said() {
    let rows = rows("persistent_h5");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let read = read_hdf5(&fs::read(golden(row["fixture"].as_str().unwrap())).unwrap()).unwrap();
        let want = dict(&row["value"]);
        for key in want.leaf_keys() {
            assert_eq!(read.get(key.clone()), want.get(key.clone()), "{key}");
        }
        assert_eq!(read.leaf_keys().len(), want.leaf_keys().len());
    }
}

/// The fixture has 5 of 8 steps.
fn unwritten_is_zero(converted: &TensorDict) {
    for (name, entry) in converted.entries() {
        let values = match entry {
            Entry::Tensor(tensor) => tensor,
            Entry::Ragged(ragged) => ragged.values(),
            _ => continue,
        };
        let rows = values.shape()[0];
        let tail = values.slice(0, rows - 3..rows).unwrap();
        assert!(tail.to_bytes().iter().all(|byte| *byte == 0), "{name} shows {tail:?}");
    }
}

#[test]
fn the_rest_of_the_file_is_of_other_crates() {
    let mut topics = BTreeMap::<String, usize>::new();
    for line in fs::read_to_string(golden("ted.jsonl")).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        *topics.entry(row["topic"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    // Read in fulmar-tensor and here.
    for topic in ["memmap", "archive", "consolidate", "ted_convert", "rb_checkpoint", "persistent_h5"] {
        assert!(topics.remove(topic).is_some_and(|rows| rows > 0), "{topic}");
    }
    println!("not of these crates: {topics:?}");
    let elsewhere = [("rb_parts", 9), ("storage_checkpoint", 5)];
    assert_eq!(topics, elsewhere.map(|(topic, rows)| (topic.to_owned(), rows)).into());
}

/// The headers of its two groups are copies of the root's.
#[test]
fn a_file_whose_groups_contain_each_other_is_refused() {
    let mut dict = TensorDict::new(&[]).unwrap();
    for key in [["a", "x"], ["a", "y"], ["a", "z"], ["b", "x"], ["b", "y"], ["b", "z"]] {
        dict.set(key, Tensor::zeros(Dtype::F32, &[1]).unwrap()).unwrap();
    }
    let mut bytes = write_hdf5(&dict).unwrap();
    let headers: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"OHDR")).collect();
    let holds = |part: &[u8], at: usize| part.windows(8).any(|word| word == at.to_le_bytes());
    let root = headers.iter().position(|at| holds(&bytes[..headers[0]], *at)).unwrap();
    let copy = bytes[headers[root]..headers[root + 1]].to_vec();
    let groups: Vec<usize> = headers.iter().copied().filter(|at| holds(&copy, *at)).collect();
    assert_eq!(groups.len(), 2);
    for group in groups {
        bytes[group..group + copy.len()].copy_from_slice(&copy);
    }
    let error = read_hdf5(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
}
