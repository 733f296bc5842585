//! Slices and windows in whole buffers: lanes, streams and the flags at their ends.

use std::collections::BTreeMap;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_replay::{
    EpisodeBoundary, Follower, ReplayBuffer, ReplayBufferOptions, RoundRobinWriter, SampleUnitOptions,
    Sampled, Sampler, SamplerOptions, SequenceOptions, SliceBy, SliceOptions, Stateful,
    StreamingSliceSamplerState, TensorStorage, TrajectoryKeys, Transition,
};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde_json::Value;

use crate::golden_dicts::{dict, key};
use crate::golden_rows::{assert_drawn, index, list, numbers, topic};

fn done_key() -> Key {
    Key::from(["next", "done"])
}

#[test]
fn slices_of_lanes_are_drawn_as_in_the_golden_rows() {
    for row in topic("slices", "slice_distribution_nd", 7) {
        let what = row["id"].as_str().unwrap();
        let lanes = index(&row["lanes"]);
        let slices = SliceOptions {
            slice_len: Some(index(&row["slice_len"])),
            strict_length: row["sampler"]["strict_length"] != false,
            ..Default::default()
        };
        let trajectories = TrajectoryKeys { id_key: None, end_keys: Some(vec![done_key()]) };
        let options = ReplayBufferOptions {
            sampler: SamplerOptions::Slice { slices, trajectories },
            ..Default::default()
        };
        let storage = TensorStorage::new(&[index(&row["storage"]["shape"][0]), lanes]).unwrap();
        let mut buffer = ReplayBuffer::new(Box::new(storage), options).unwrap();
        for write in list(&row["writes"]) {
            let time = index(&write["len"]);
            let flags =
                list(&write["done"]).iter().flat_map(list).map(|flag| flag.as_u64() == Some(1)).collect();
            let mut items = TensorDict::new(&[lanes, time]).unwrap();
            items.set(done_key(), Tensor::from_vec(&[lanes, time, 1], flags).unwrap()).unwrap();
            buffer.extend(&items).unwrap();
        }
        let mut kinds: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut probabilities = Vec::new();
        for slice in list(&row["slices"]) {
            let rows = list(&slice["slots"]).iter().map(|at| index(&at[0]) * lanes + index(&at[1])).collect();
            kinds.insert(rows, probabilities.len());
            let (over, under) = slice["p"].as_str().unwrap().split_once('/').unwrap_or(("1", "1"));
            probabilities.push(over.parse::<f64>().unwrap() / under.parse::<f64>().unwrap());
        }
        let mut drawn = Vec::new();
        for _ in 0..5_000 {
            let batch = buffer.sample(Some(index(&row["slice_len"]))).unwrap();
            drawn.push(
                *kinds.get(&batch.rows).unwrap_or_else(|| panic!("{what}: {:?} is no slice", batch.rows)),
            );
        }
        assert_drawn(what, &drawn, &probabilities);
    }
}

#[test]
fn streams_give_the_slices_of_the_golden_rows() {
    let mut ops = 0;
    for row in topic("slices", "streaming_slice", 10) {
        let given = &row["sampler"];
        let trajectories = TrajectoryKeys {
            id_key: key(&given["traj_key"]),
            end_keys: key(&given["end_key"]).map(|key| vec![key]),
        };
        let sampler = SamplerOptions::StreamingSlice { slice_len: index(&given["slice_len"]), trajectories };
        let options = ReplayBufferOptions { sampler, ..Default::default() };
        let storage = TensorStorage::new(&[index(&row["capacity"])]).unwrap();
        let mut buffer = ReplayBuffer::new(Box::new(storage), options).unwrap();
        for (at, op) in list(&row["ops"]).iter().enumerate() {
            let what = format!("{} op {at}", row["id"]);
            match op["op"].as_str().unwrap() {
                "extend" => {
                    buffer.extend(&dict(&op["data"])).unwrap();
                }
                "sample" => {
                    let batch = buffer.sample(Some(index(&op["batch_size"]))).unwrap();
                    let mut expected = dict(&op["sample"]);
                    expected.remove("index").unwrap();
                    let rows: Vec<usize> =
                        numbers(&op["sample"]["k"]["index"]).iter().map(|row| *row as usize).collect();
                    assert_eq!(batch.rows, rows, "{what}");
                    let mut got = batch.items;
                    got.remove("index").unwrap();
                    assert_eq!(got, expected, "{what}");
                }
                _ => {
                    let state = buffer.sampler().state().unwrap();
                    let state: StreamingSliceSamplerState = serde_json::from_value(state).unwrap();
                    let rows =
                        |slice: &[(usize, u32)]| slice.iter().map(|(row, _)| *row as f64).collect::<Vec<_>>();
                    let queued: Vec<_> = state.queued.iter().map(|slice| rows(slice)).collect();
                    let expected: Vec<_> =
                        list(&op["queued"]).iter().map(|slice| numbers(&slice[0])).collect();
                    assert_eq!(queued, expected, "{what}");
                    assert_eq!(rows(&state.pending), numbers(&op["pending"]), "{what}");
                }
            }
            ops += 1;
        }
    }
    assert!(ops > 80, "{ops}");
}

/// A user's sampler that returns slices chosen beforehand.
struct Chosen {
    rows: Vec<usize>,
    slice_len: usize,
}

impl Sampler for Chosen {
    fn sample(&mut self, _: usize, _: usize) -> Result<Sampled> {
        let mut sampled = Sampled::plain(self.rows.clone())?;
        sampled.slice_lens = vec![self.slice_len; self.rows.len() / self.slice_len];
        Ok(sampled)
    }
}

impl Stateful for Chosen {
    fn state(&self) -> Result<Value> {
        Ok(Value::Null)
    }

    fn restore(&mut self, _: &Value) -> Result<()> {
        Err(Error::new(ErrorKind::Incompatible, "a chosen sampler has no state: got one"))
    }
}

impl Follower for Chosen {
    fn extend(&mut self, _: &[usize], _: &TensorDict) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self) {}
}

#[test]
fn slices_are_flagged_as_in_the_golden_rows() {
    let (mut compared, mut short) = (0, 0);
    for row in topic("slices", "slice_flags", 18) {
        let (what, given, stored) = (row["id"].as_str().unwrap(), &row["sampler"], &row["storage"]);
        let ok: BTreeMap<&str, &Value> =
            list(&row["ok"]["$dict"]).iter().map(|pair| (pair[0].as_str().unwrap(), &pair[1])).collect();
        let rows: Vec<usize> = numbers(&ok["index"]["$tuple"][0]).iter().map(|row| *row as usize).collect();
        let slice_len = index(&row["slice_len"]);
        let expected = dict(ok["sample"]);
        if rows.len() != slice_len * index(&row["num"]) || expected.get("collector").is_some() {
            // The length of each slice is not in the row.
            short += 1;
            continue;
        }
        let count = index(&stored["len"]);
        let column = |name: &str| numbers(&stored[name]);
        let mut items = TensorDict::new(&[count]).unwrap();
        for name in ["step", "episode"] {
            let values = column(name).into_iter().map(|value| value as i64).collect();
            items.set(name, Tensor::from_vec::<i64>(&[count], values).unwrap()).unwrap();
        }
        for (name, place) in [
            ("next.done", done_key()),
            ("next.terminated", Key::from(["next", "terminated"])),
            ("next.truncated", Key::from(["next", "truncated"])),
            ("is_init", Key::from("is_init")),
        ] {
            if expected.get(place.clone()).is_some() && stored[name].is_array() {
                let flags = column(name).into_iter().map(|flag| flag != 0.0).collect();
                items.set(place, Tensor::from_vec(&[count, 1], flags).unwrap()).unwrap();
            }
        }
        let truncated_key = match given.get("truncated_key") {
            None => Some(Key::from(["next", "truncated"])),
            Some(value) => key(value),
        };
        let init_key =
            if given.get("init_key").is_some_and(Value::is_null) { None } else { Some(Key::from("is_init")) };
        let options = ReplayBufferOptions { truncated_key, init_key, ..Default::default() };
        let mut buffer = ReplayBuffer::of_parts(
            Box::new(TensorStorage::over(&items).unwrap()),
            Box::new(Chosen { rows, slice_len }),
            Box::new(RoundRobinWriter::new(count).unwrap()),
            Box::new(Transition),
            options,
        )
        .unwrap();
        let mut got = buffer.sample(Some(1)).unwrap().items;
        for key in got.leaf_keys().into_iter().filter(|key| *key != Key::from("index")) {
            let Some(want) = expected.get(key.clone()) else { panic!("{what} {key} must not be there") };
            assert_eq!(got.entry(key.clone()).unwrap(), want, "{what} {key}");
        }
        got.remove("index").unwrap();
        assert!(got.leaf_keys().len() + 1 >= expected.leaf_keys().len(), "{what}");
        compared += 1;
    }
    println!("slice_flags: {compared} batches compared, {short} whose slices differ in length");
    assert!(compared >= 8, "{compared} {short}");
}

#[test]
fn each_first_step_is_as_likely_where_slices_are_drawn_by_steps() {
    let slices = SliceOptions { slice_len: Some(2), by: SliceBy::Steps, ..Default::default() };
    let sampler = SamplerOptions::Slice { slices, trajectories: TrajectoryKeys::default() };
    let options = ReplayBufferOptions { sampler, ..Default::default() };
    let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[8]).unwrap()), options).unwrap();
    let mut items = TensorDict::new(&[8]).unwrap();
    let done = vec![false, true, false, false, false, false, false, true];
    items.set(done_key(), Tensor::from_vec(&[8], done).unwrap()).unwrap();
    buffer.extend(&items).unwrap();
    let drawn: Vec<usize> = (0..500)
        .flat_map(|_| {
            buffer.sample(Some(20)).unwrap().rows.chunks(2).map(|slice| slice[0]).collect::<Vec<_>>()
        })
        .collect();
    assert_drawn("first steps", &drawn, &[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn windows_go_on_after_an_edit_moved_an_end() {
    let window = SequenceOptions { length: 3, episode_boundary: EpisodeBoundary::Pad, ..Default::default() };
    let unit = SampleUnitOptions::Sequence { window, done_key: Some(done_key()) };
    let options = ReplayBufferOptions { unit, ..Default::default() };
    let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[4]).unwrap()), options).unwrap();
    let items = |done: &[bool]| {
        let mut items = TensorDict::new(&[done.len()]).unwrap();
        items.set(done_key(), Tensor::from_slice(&[done.len()], done).unwrap()).unwrap();
        items
    };
    buffer.extend(&items(&[false; 6])).unwrap();
    assert_eq!(buffer.batch_of(&[3]).unwrap().rows, [3, 0, 1]);
    buffer.set_at(&[0.into()], &items(&[true]).index(0).unwrap()).unwrap();
    let batch = buffer.batch_of(&[3]).unwrap();
    assert_eq!(batch.rows, [3, 0, 0]);
    assert_eq!(batch.items.tensor("validity_mask").unwrap().to_vec::<bool>().unwrap(), [true, true, false]);
    assert_eq!(batch.items.tensor("index").unwrap().to_vec::<i64>().unwrap(), [3, 0, 0]);
}
