//! Whole buffers against golden rows, operation by operation.

use std::collections::BTreeMap;

use fulmar_core::ErrorKind;
use fulmar_replay::{
    CompressedListStorage, ConditionalUpdate, LazyStackStorage, ListStorage, PrioritizedOptions,
    PromptGroupOptions, Reduction, ReplayBuffer, ReplayBufferOptions, SampleUnitOptions, SamplerOptions,
    SharedStorage, SliceOptions, Storage, TensorStorage, WriterOptions,
};
use fulmar_tensor::{Index, Key, Tensor, TensorDict};
use serde_json::Value;

use crate::allocations::allocations;
use crate::golden_dicts::{assert_dict, assert_items, dict, items_of_index, key, tensor};
use crate::golden_rows::{assert_close, index, list, number, numbers, rows};

/// Topics that are not about one buffer of dictionaries: ensembles and shared storages have other tests, and
/// other payloads than dictionaries are not supported.
const OTHER_TOPICS: [&str; 6] =
    ["ensemble", "ensemble_routed", "shared_storage", "pytree_payload", "list_payload", "string_payload"];

fn storage(setup: &Value, num_lanes: usize) -> Box<dyn Storage> {
    let capacity = index(&setup["storage"]["max_size"]);
    match setup["storage"]["cls"].as_str().unwrap() {
        "ListStorage" => Box::new(ListStorage::new(capacity).unwrap()),
        "LazyStackStorage" => Box::new(LazyStackStorage::new(capacity).unwrap()),
        "CompressedListStorage" => Box::new(CompressedListStorage::new(capacity, 3).unwrap()),
        _ if setup["storage"]["ndim"] == 2 => {
            Box::new(TensorStorage::new(&[capacity.div_ceil(num_lanes), num_lanes]).unwrap())
        }
        _ => Box::new(TensorStorage::new(&[capacity]).unwrap()),
    }
}

fn reduction(value: &Value, default: Reduction) -> Reduction {
    if value.is_null() { default } else { serde_json::from_value(value.clone()).unwrap() }
}

fn options(setup: &Value, with_index: bool) -> ReplayBufferOptions {
    let (writer, sampler) = (&setup["writer"], &setup["sampler"]);
    let writer = match writer["cls"].as_str().unwrap_or("RoundRobinWriter") {
        "TensorDictMaxValueWriter" => WriterOptions::MaxValue {
            rank_key: key(&writer["rank_key"]).unwrap_or_else(|| Key::from(["next", "reward"])),
            reduction: reduction(&writer["reduction"], Reduction::Sum),
        },
        "ImmutableDatasetWriter" => WriterOptions::Immutable,
        _ => WriterOptions::RoundRobin { track_generations: writer["track_generations"] == true },
    };
    let priorities = PrioritizedOptions {
        alpha: sampler["alpha"].as_f64().unwrap_or(0.7) as f32,
        beta: sampler["beta"].as_f64().unwrap_or(0.9) as f32,
        eps: sampler["eps"].as_f64().unwrap_or(1e-8) as f32,
        max_priority_within_buffer: sampler["max_priority_within_buffer"] == true,
    };
    let kind = sampler["cls"].as_str().unwrap_or("RandomSampler");
    let sampler_options = match kind {
        "PrioritizedSampler" => SamplerOptions::Prioritized { priorities },
        "ConsumingSampler" => SamplerOptions::Consuming { max_sample_count: 1 },
        "SamplerWithoutReplacement" => SamplerOptions::WithoutReplacement { drop_last: false, shuffle: true },
        _ => SamplerOptions::Random,
    };
    ReplayBufferOptions {
        batch_size: setup["batch_size"].as_u64().map(|size| size as usize),
        sampler: sampler_options,
        writer,
        write_info: with_index,
        reduction: reduction(&sampler["reduction"], Reduction::Max),
        ..Default::default()
    }
}

/// The outcome of an operation compared to its row.
enum Outcome {
    Same,
    /// An intended difference after which the buffer's state differs: the rule's name.
    Departs(&'static str),
    /// An intended difference with the same state.
    Differs(&'static str),
}

struct Player<'a> {
    setup: &'a Value,
    /// `true` if stored items of the row include their row numbers.
    with_index: bool,
    num_lanes: usize,
    buffer: ReplayBuffer,
}

impl Player<'_> {
    fn play(&mut self, what: &str, op: &Value) -> Outcome {
        let (kind, failed) = (op["op"].as_str().unwrap(), !op["error"].is_null());
        match kind {
            "len" => {
                assert_eq!(self.buffer.len(), index(&op["ok"]), "{what}");
                Outcome::Same
            }
            "add" | "extend" => self.write(what, op, failed),
            "get" => self.get(what, op, failed),
            "setitem" | "set_at_" | "set_" | "write_all" => self.edit(what, op, failed),
            "read_all" => {
                // The row has the number of items returned, not the number requested.
                let end = op["ok"]["$td"][0].as_u64().map(|end| end as usize);
                let all = self.buffer.read_all_in_order(end).unwrap();
                assert_items(what, &all, &op["ok"]);
                Outcome::Same
            }
            "sample_size" => self.sample_size(what, op, failed),
            "sample_index" => self.sample_index(what, op, failed),
            "stats" => {
                let stats = self.buffer.stats();
                let expected: BTreeMap<&str, &Value> = list(&op["ok"]["$dict"])
                    .iter()
                    .map(|pair| (pair[0].as_str().unwrap(), &pair[1]))
                    .collect();
                assert_eq!(self.buffer.len(), index(expected["size"]), "{what}");
                assert_eq!(
                    (stats.capacity, stats.write_count as usize),
                    (index(expected["capacity"]), index(expected["write_count"])),
                    "{what}"
                );
                Outcome::Same
            }
            "empty" => {
                let cleared = self.buffer.clear(op["kwargs"]["empty_write_count"] == false);
                assert_eq!(cleared.is_err(), failed, "{what}");
                Outcome::Same
            }
            "state_roundtrip" => {
                let state = self.buffer.state().unwrap();
                let mut fresh = ReplayBuffer::new(
                    storage(self.setup, self.num_lanes),
                    options(self.setup, self.with_index),
                )
                .unwrap();
                fresh.restore(&state).unwrap();
                assert_eq!(fresh.state().unwrap(), state, "{what}");
                self.buffer = fresh;
                if failed { Outcome::Differs("every writer has a state") } else { Outcome::Same }
            }
            "generations_of" => {
                let asked: Vec<i64> = numbers(&op["index"]).into_iter().map(|row| row as i64).collect();
                let got: Vec<f64> =
                    self.buffer.generations_of(&asked).into_iter().map(|one| one as f64).collect();
                assert_eq!(got, numbers(&op["ok"]), "{what}");
                Outcome::Same
            }
            "update_priority" => {
                let rows: Vec<i64> = numbers(&op["index"]).into_iter().map(|row| row as i64).collect();
                let priorities: Vec<f32> =
                    numbers(&op["priority"]).into_iter().map(|one| one as f32).collect();
                assert_eq!(self.buffer.update_priority(&rows, &priorities).is_err(), failed, "{what}");
                Outcome::Same
            }
            "update_tensordict_priority" => {
                assert_eq!(
                    self.buffer.update_tensordict_priority(&dict(&op["data"])).is_err(),
                    failed,
                    "{what}"
                );
                Outcome::Same
            }
            "set_alpha" => {
                self.buffer.sampler_mut().set_parameter("alpha", number(&op["value"])).unwrap();
                Outcome::Same
            }
            "update_if_present" => self.update_if_present(what, op, failed),
            "write_at" => {
                let rows: Vec<usize> = numbers(&op["index"]).into_iter().map(|row| row as usize).collect();
                self.buffer.write_at(&rows, &dict(&op["data"])).unwrap();
                Outcome::Same
            }
            other => panic!("{what}: {other} is no operation"),
        }
    }

    fn write(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        let before = (self.buffer.storage().len(), self.buffer.writer().cursor());
        let data = &op["data"];
        let items = if data.get("$td").is_some() {
            dict(data)
        } else {
            let value = tensor(data);
            let batch = if op["op"] == "add" { Vec::new() } else { vec![value.shape()[0]] };
            let mut items = TensorDict::new(&batch).unwrap();
            items.set("value", value).unwrap();
            items
        };
        let result = match op["op"].as_str() {
            Some("add") => self.buffer.add(&items).map(|row| vec![row]),
            _ if op["kwargs"]["update_priority"] == false => self.buffer.extend_without_priorities(&items),
            _ => self.buffer.extend(&items),
        };
        let rows = match result {
            Ok(rows) => rows,
            Err(error) => {
                assert_eq!(
                    (self.buffer.storage().len(), self.buffer.writer().cursor()),
                    before,
                    "{what}: {error}"
                );
                if items.batch_size().contains(&0) {
                    return Outcome::Differs("an empty write is an error");
                }
                if failed {
                    return Outcome::Departs("a write that fails changes nothing");
                }
                assert!(
                    [ErrorKind::UnknownName, ErrorKind::Incompatible].contains(&error.kind()),
                    "{what}: {error}"
                );
                return Outcome::Departs("leaves that are missing or too many are refused");
            }
        };
        if failed {
            return Outcome::Departs("what can be stored is stored");
        }
        let got: Vec<f64> = rows
            .iter()
            .flat_map(|row| match row {
                Some(row) => self.buffer.coordinates(*row).into_iter().map(|at| at as f64).collect(),
                None => vec![-1.0],
            })
            .collect();
        let expected = if op["ok"].is_null() { vec![-1.0] } else { numbers(&op["ok"]) };
        if self.setup["sampler"]["cls"] == "ConsumingSampler" && got != expected {
            assert_eq!(got.len(), expected.len(), "{what}");
            return Outcome::Departs("which rows are free is chance");
        }
        assert_eq!(got, expected, "{what}");
        Outcome::Same
    }

    fn get(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        if let Some(name) = key(&op["index"]) {
            let all = self.buffer.read_all_in_order(None).unwrap();
            assert_eq!(all.tensor(name).unwrap(), &tensor(&op["ok"]), "{what}");
            return Outcome::Same;
        }
        let got = self.buffer.at(&items_of_index(&op["index"]));
        if failed {
            let Ok(got) = got else { return Outcome::Same };
            let masked = op["error"]["msg"].as_str().unwrap().contains("bool");
            assert!(masked || got.batch_size().contains(&0), "{what}");
            return Outcome::Differs("nothing, and a mask, can be read from any storage");
        }
        if op["ok"].to_string().contains("uninit") {
            return Outcome::Differs("memory that was not written is not shown");
        }
        let is_list = ["ListStorage", "CompressedListStorage"]
            .contains(&self.setup["storage"]["cls"].as_str().unwrap());
        if let Err(error) = &got
            && is_list
            && op["ok"].get("$lazy").is_some()
        {
            assert_eq!(error.kind(), ErrorKind::UnknownName, "{what}");
            return Outcome::Differs("rows of a list that are read together are alike");
        }
        let got = got.unwrap_or_else(|error| panic!("{what}: {error}"));
        if op["ok"].get("$t").is_some() {
            assert_eq!(got.tensor("value").unwrap(), &tensor(&op["ok"]), "{what}");
        } else if self.setup["storage"]["cls"] == "CompressedListStorage" {
            // Upstream returns nested entries in another form.
            return Outcome::Differs("compressed items come back as they were");
        } else {
            assert_items(what, &got, &op["ok"]);
        }
        Outcome::Same
    }

    fn edit(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        let is_list = self.setup["storage"]["cls"].as_str().unwrap().contains("List");
        let before = self.buffer.storage().len();
        let result = match op["op"].as_str().unwrap() {
            "write_all" => {
                let end = op["kwargs"]["end"].as_u64().map(|end| end as usize);
                self.buffer.write_all(&dict(&op["data"]), end)
            }
            "setitem" => self.buffer.set_at(&items_of_index(&op["index"]), &dict(&op["data"])),
            name => {
                let at = if name == "set_" { vec![Index::ALL] } else { items_of_index(&op["index"]) };
                let value = if op["value"].get("$t").is_some() {
                    tensor(&op["value"])
                } else {
                    return Outcome::Departs("values are tensors");
                };
                self.buffer.set_key_at(&key(&op["key"]).unwrap(), &value, &at)
            }
        };
        if failed {
            if result.is_ok() {
                assert!(is_list, "{what}");
                return Outcome::Departs("lists can be edited too");
            }
            return Outcome::Same;
        }
        if before == 0 || op["state"]["len"] != before {
            assert!(result.is_err() || self.buffer.storage().len() == before, "{what}");
            return Outcome::Departs("an edit does not append");
        }
        result.unwrap_or_else(|error| panic!("{what}: {error}"));
        if is_list || self.setup["storage"]["cls"] == "LazyStackStorage" {
            return Outcome::Departs("an edit keeps the leaves that it does not name");
        }
        if self.setup["storage"]["cls"] == "LazyMemmapStorage" && op["op"] == "write_all" {
            return Outcome::Departs("a leaf can be added to any storage");
        }
        Outcome::Same
    }

    fn sample_size(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        let count = op["batch_size"].as_u64().map(|count| count as usize);
        let batch = self.buffer.sample(count);
        if count == Some(0) {
            assert_eq!(batch.unwrap_err().kind(), ErrorKind::OutOfRange, "{what}");
            return Outcome::Differs("a batch of nothing is an error");
        }
        match batch {
            Err(error) if failed => {
                assert!([ErrorKind::Empty, ErrorKind::OutOfRange].contains(&error.kind()), "{what}: {error}");
            }
            Err(error) => panic!("{what}: {error}"),
            Ok(batch) => {
                assert!(!failed, "{what}");
                let shape: Vec<usize> = list(&op["ok"]).iter().map(index).collect();
                assert_eq!(batch.items.batch_size()[0], shape[0], "{what}");
            }
        }
        Outcome::Same
    }

    fn sample_index(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        let rows: Vec<usize> = match op["index"]["$tuple"].as_array() {
            Some(dims) => {
                let (time, lane) = (numbers(&dims[0]), numbers(&dims[1]));
                time.iter()
                    .zip(lane)
                    .map(|(time, lane)| *time as usize * self.num_lanes + lane as usize)
                    .collect()
            }
            None => numbers(&op["index"]).into_iter().map(|row| row as usize).collect(),
        };
        let batch = self.buffer.batch_of(&rows);
        assert_eq!(batch.is_err(), failed, "{what}");
        if let Ok(batch) = batch
            && self.setup["storage"]["cls"] != "CompressedListStorage"
        {
            let mut items = batch.items;
            let with_index =
                op["ok"]["k"].get("index").is_some() || op["ok"]["items"][0]["k"].get("index").is_some();
            if !with_index {
                items.remove("index").unwrap();
            } else if items.get("index").is_none() {
                return Outcome::Differs("items include their rows if the buffer writes them");
            }
            assert_items(what, &items, &op["ok"]);
        }
        Outcome::Same
    }

    fn update_if_present(&mut self, what: &str, op: &Value, failed: bool) -> Outcome {
        let given = &op["kwargs"];
        let whole =
            |value: &Value| -> Vec<i64> { numbers(value).into_iter().map(|one| one as i64).collect() };
        let (version_key, version) = (key(&given["version_key"]), given.get("version").map(whole));
        let versions = match (&version_key, &version) {
            (Some(key), Some(version)) => Some((key, &version[..])),
            (None, None) => None,
            // The type has both or neither.
            _ => return Outcome::Same,
        };
        let (rows, generations) = (whole(&given["index"]), whole(&given["generation"]));
        let patch = dict(&given["patch"]);
        let require_newer = given["require_newer"] == true;
        let update = ConditionalUpdate {
            rows: &rows,
            generations: &generations,
            patch: &patch,
            versions,
            require_newer,
        };
        let result = self.buffer.update_if_present(&update);
        if failed {
            if result.is_ok() {
                assert_eq!(self.setup["storage"]["cls"], "ListStorage", "{what}");
                return Outcome::Departs("lists can be edited too");
            }
            return Outcome::Same;
        }
        let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected: BTreeMap<&str, &Value> =
            list(&op["ok"]["$dict"]).iter().map(|pair| (pair[0].as_str().unwrap(), &pair[1])).collect();
        let flags = |value: &Value| -> Vec<bool> {
            list(&value["d"]).iter().map(|flag| flag.as_bool().unwrap()).collect()
        };
        assert_eq!(result.updated, flags(expected["updated"]), "{what}");
        assert_eq!(result.version_rejected.is_none(), expected["version_rejected"].is_null(), "{what}");
        if let Some(rejected) = &result.version_rejected {
            assert_eq!(rejected, &flags(expected["version_rejected"]), "{what}");
        }
        assert_eq!(result.stale_count(), index(expected["stale_count"]), "{what}");
        Outcome::Same
    }

    fn compare(&self, what: &str, state: &Value) {
        assert_eq!(self.buffer.len(), index(&state["len"]), "{what}");
        assert_eq!(self.buffer.storage().len(), index(&state["storage_len"]), "{what}");
        if self.setup["writer"]["cls"] != "TensorDictMaxValueWriter" && state["cursor"].is_u64() {
            assert_eq!(self.buffer.writer().cursor(), index(&state["cursor"]), "{what}");
            assert_eq!(self.buffer.writer().write_count(), state["write_count"].as_u64().unwrap(), "{what}");
        }
        if let Some(expected) = state["generations"].as_array() {
            let rows: Vec<i64> = (0..expected.len() as i64).collect();
            let expected: Vec<i64> = expected.iter().map(|one| one.as_i64().unwrap()).collect();
            assert_eq!(self.buffer.generations_of(&rows), expected, "{what}");
        }
        let contents = &state["contents"];
        let compressed = self.setup["storage"]["cls"] == "CompressedListStorage";
        if !contents.is_null()
            && contents != "same"
            && !compressed
            && !contents.to_string().contains("uninit")
        {
            let rows: Vec<usize> = (0..self.buffer.storage().len()).collect();
            if contents["$t"].is_string() || contents[0].get("$t").is_some() {
                return;
            }
            match contents.as_array() {
                // Row by row: not all rows have the same leaves.
                Some(items) => items.iter().zip(rows).for_each(|(item, row)| {
                    let got = self.buffer.storage().get(&[row]).unwrap().index(0).unwrap();
                    assert_dict(&format!("{what} row {row}"), &got, dict(item));
                }),
                None => {
                    let got = self.buffer.storage().get(&rows).unwrap();
                    let expected = dict(contents);
                    let flat = if expected.batch_size().len() > 1 && self.setup["storage"]["ndim"] == 2 {
                        expected.flatten(0, 1).unwrap()
                    } else {
                        expected
                    };
                    assert_dict(what, &got, flat);
                }
            }
        }
        if let (Some(_), Ok(json)) = (state["sum_leaves"].as_array(), self.buffer.sampler().state()) {
            let leaves: Vec<f64> = numbers(&json["tree"]["leaves"]);
            let mut expected = numbers(&state["sum_leaves"]);
            expected.truncate(leaves.len());
            assert_close(what, &leaves, &expected, 1e-5, 1e-12);
        }
    }
}

#[test]
fn buffers_do_what_the_golden_rows_say() {
    let (mut run, mut other) = (BTreeMap::new(), BTreeMap::new());
    let (mut left, mut rules, mut num_ops) = (BTreeMap::new(), BTreeMap::new(), 0);
    for row in rows("buffer_ops") {
        let topic = row["topic"].as_str().unwrap().to_owned();
        if OTHER_TOPICS.contains(&topic.as_str()) {
            *other.entry(topic).or_insert(0) += 1;
            continue;
        }
        *run.entry(topic).or_insert(0) += 1;
        let setup = &row["setup"];
        let stores_index = |op: &Value| {
            let contents = &op["state"]["contents"];
            contents["k"].get("index").is_some() || contents[0]["k"].get("index").is_some()
        };
        let with_index = list(&row["ops"]).iter().any(stores_index);
        // Upstream determines the number of lanes at the first write, Fulmar by the storage.
        let num_lanes = row["ops"][0]["data"]["$td"][0].as_u64().map_or(1, |lanes| lanes as usize);
        let buffer = ReplayBuffer::new(storage(setup, num_lanes), options(setup, with_index));
        let Ok(buffer) = buffer else {
            assert!(row["topic"] == "prioritized_errors" || !row["error"].is_null(), "{}", row["id"]);
            continue;
        };
        let mut player = Player { setup, with_index, num_lanes, buffer };
        for (at, op) in list(&row["ops"]).iter().enumerate() {
            let what = format!("{} op {at} {}", row["id"], op["op"]);
            match player.play(&what, op) {
                Outcome::Same => {}
                Outcome::Differs(rule) => *rules.entry(rule).or_insert(0) += 1,
                Outcome::Departs(rule) => {
                    *rules.entry(rule).or_insert(0) += 1;
                    *left.entry(op["op"].as_str().unwrap().to_owned()).or_insert(0) +=
                        list(&row["ops"]).len() - at - 1;
                    break;
                }
            }
            if op["op"] == "state_roundtrip" && op["state"]["max_size"] != player.buffer.storage().capacity()
            {
                *rules.entry("a storage that is loaded keeps its capacity").or_insert(0) += 1;
                break;
            }
            player.compare(&what, &op["state"]);
            num_ops += 1;
        }
    }
    println!("rows run whole or until a rule departs: {run:?}; operations compared: {num_ops}");
    println!("deliberate differences: {rules:?}; operations behind them, by the one that departed: {left:?}");
    println!("rows of other kinds: {other:?}");
    assert!(num_ops > 900, "{num_ops}");
}

#[test]
fn what_is_said_of_a_row_stands_at_all_elements_of_an_item_that_is_a_batch() {
    let sampler = SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() };
    let options = ReplayBufferOptions { sampler, seed: 1, ..Default::default() };
    let mut buffer = ReplayBuffer::new(Box::new(ListStorage::new(5).unwrap()), options).unwrap();
    let mut items = TensorDict::new(&[3, 2]).unwrap();
    let errors = fulmar_tensor::Tensor::from_vec(&[3, 2], vec![1.0_f32, 2.0, 1.0, 4.0, 1.0, 8.0]).unwrap();
    items.set("td_error", errors).unwrap();
    buffer.extend(&items).unwrap();
    let batch = buffer.sample(Some(7)).unwrap();
    assert_eq!(batch.items.batch_size(), [7, 2]);
    let weights = batch.info.tensor("priority_weight").unwrap().to_vec::<f32>().unwrap();
    let spread = batch.items.tensor("priority_weight").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(spread, weights.iter().flat_map(|weight| [*weight; 2]).collect::<Vec<_>>());
}

#[test]
fn buffers_of_one_storage_learn_of_each_others_writes() {
    for row in rows("buffer_ops").iter().filter(|row| row["topic"] == "shared_storage") {
        let priorities = PrioritizedOptions { alpha: 1.0, beta: 1.0, ..Default::default() };
        let options =
            ReplayBufferOptions { sampler: SamplerOptions::Prioritized { priorities }, ..Default::default() };
        let capacity = index(&row["setup"]["max_size"]);
        let shared = SharedStorage::new(Box::new(TensorStorage::new(&[capacity]).unwrap()));
        let mut first = ReplayBuffer::new(Box::new(shared.clone()), options.clone()).unwrap();
        let mut second = ReplayBuffer::new(Box::new(shared), options).unwrap();
        for op in list(&row["ops"]) {
            let (writer, other, count) = match op["extend_through_first"].as_u64() {
                Some(count) => (&mut first, &mut second, count as usize),
                None => (&mut second, &mut first, index(&op["extend_through_second"])),
            };
            let mut items = TensorDict::new(&[count]).unwrap();
            items.set("x", fulmar_tensor::Tensor::zeros(fulmar_core::Dtype::F32, &[count]).unwrap()).unwrap();
            writer.extend(&items).unwrap();
            other.update_priority(&[], &[]).unwrap();
            for (buffer, at) in [(&first, 0), (&second, 1)] {
                assert_eq!(buffer.len(), index(&op["len"][at]), "{op}");
                assert_eq!(buffer.writer().cursor(), index(&op["cursors"][at]), "{op}");
                let leaves = numbers(&buffer.sampler().state().unwrap()["tree"]["leaves"]);
                let mut expected = numbers(&op["leaves"][at]);
                expected.truncate(leaves.len());
                assert_close("leaves", &leaves, &expected, 1e-5, 0.0);
            }
        }
    }
}

#[test]
fn priorities_of_rows_that_were_emptied_meanwhile_are_passed_over() {
    let sampler = SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() };
    let options = ReplayBufferOptions { sampler, ..Default::default() };
    let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[8]).unwrap()), options).unwrap();
    buffer.extend(&TensorDict::new(&[8]).unwrap()).unwrap();
    buffer.clear(false).unwrap();
    buffer.extend(&TensorDict::new(&[2]).unwrap()).unwrap();
    buffer.update_priority(&[7, 1], &[9.0, 2.0]).unwrap();
    assert!(buffer.sample(Some(64)).unwrap().rows.iter().all(|row| *row < 2));
    assert_eq!(buffer.update_priority(&[8], &[1.0]).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_write_that_sampler_or_unit_refuses_changes_nothing() {
    let priorities = PrioritizedOptions::default();
    let slices = SliceOptions { slice_len: Some(1), ..Default::default() };
    let unit =
        SampleUnitOptions::Sequence { window: Default::default(), done_key: Some(["next", "done"].into()) };
    let sampled_by = |sampler| ReplayBufferOptions { sampler, ..Default::default() };
    let cases = [
        sampled_by(SamplerOptions::StalenessAware {
            max_staleness: None,
            weights: Vec::new(),
            version_key: "version".into(),
        }),
        sampled_by(SamplerOptions::Slice { slices, trajectories: Default::default() }),
        sampled_by(SamplerOptions::SliceWithoutReplacement {
            slices,
            epochs: Default::default(),
            trajectories: Default::default(),
        }),
        sampled_by(SamplerOptions::PrioritizedSlice { slices, priorities, trajectories: Default::default() }),
        sampled_by(SamplerOptions::StreamingSlice { slice_len: 1, trajectories: Default::default() }),
        sampled_by(SamplerOptions::PromptGroup {
            groups: PromptGroupOptions { num_groups: Some(1), ..Default::default() },
            group_key: "query".into(),
            reward_key: "reward".into(),
        }),
        sampled_by(SamplerOptions::Prioritized { priorities }),
        ReplayBufferOptions { unit, ..Default::default() },
    ];
    for options in cases {
        let mut buffer =
            ReplayBuffer::new(Box::new(TensorStorage::new(&[4]).unwrap()), options.clone()).unwrap();
        let mut items = TensorDict::new(&[3]).unwrap();
        let error = f32::NAN;
        items.set("td_error", fulmar_tensor::Tensor::from_vec(&[3], vec![1.0, error, 2.0]).unwrap()).unwrap();
        let before = buffer.state().unwrap();
        assert!(buffer.extend(&items).is_err(), "{options:?}");
        assert_eq!(buffer.state().unwrap(), before, "{options:?}");
    }
}

/// An item of `num_leaves` leaves, `step` in the first and in the priority.
fn one(step: usize, num_leaves: usize, priority: f32) -> TensorDict {
    let mut item = TensorDict::new(&[]).unwrap();
    for leaf in 0..num_leaves {
        let values = vec![step as f32, leaf as f32];
        item.set(["in", &format!("leaf {leaf}")], Tensor::from_vec_f32(&[2], values).unwrap()).unwrap();
    }
    item.set("td_error", Tensor::from_vec_f32(&[1], vec![priority]).unwrap()).unwrap();
    item
}

#[test]
fn items_added_one_by_one_are_those_of_an_extend() {
    for write_info in [false, true] {
        let make = || {
            let sampler = SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() };
            let writer = WriterOptions::RoundRobin { track_generations: true };
            let options = ReplayBufferOptions { seed: 5, sampler, writer, write_info, ..Default::default() };
            ReplayBuffer::new(Box::new(TensorStorage::new(&[5]).unwrap()), options).unwrap()
        };
        let (mut added, mut extended) = (make(), make());
        for step in 0..20 {
            let item = match step % 7 {
                4 => one(step, 4, 1.0),
                5 => one(step, 3, -1.0),
                6 => one(step, 2, 1.0),
                _ => one(step, 3, step as f32),
            };
            let kept = item.clone();
            let rows = extended.extend(&item.unsqueeze(0).unwrap()).map(|rows| rows[0]);
            assert_eq!(added.add(&item), rows, "step {step}");
            assert_eq!(item, kept);
            assert_eq!(rows.is_err(), step % 7 > 3, "step {step}");
        }
        let rows = [0, 1, 2, 3, 4];
        assert_eq!(added.storage().get(&rows).unwrap(), extended.storage().get(&rows).unwrap());
        assert_eq!(added.sample(Some(50)).unwrap().items, extended.sample(Some(50)).unwrap().items);
        let generations = |buffer: &ReplayBuffer| buffer.generations_of(&[0, 1, 2, 3, 4]);
        assert_eq!(generations(&added), generations(&extended));
    }
}

#[test]
fn adding_an_item_allocates_no_more_if_it_has_more_leaves() {
    let counts = [2, 20].map(|num_leaves| {
        let storage = Box::new(TensorStorage::new(&[50]).unwrap());
        let options = ReplayBufferOptions { write_info: false, ..Default::default() };
        let mut buffer = ReplayBuffer::new(storage, options).unwrap();
        let mut item = one(0, num_leaves, 1.0);
        item.remove("td_error").unwrap();
        for _ in 0..3 {
            buffer.add(&item).unwrap();
        }
        let before = allocations();
        buffer.add(&item).unwrap();
        allocations() - before
    });
    assert_eq!(counts[0], counts[1]);
}
