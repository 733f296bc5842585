//! Folders written by torchrl 0.14.1, loaded; our own, written and loaded; damaged ones, refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::limits::HDF5_FILE_BYTES_MAX;
use fulmar_core::{ErrorKind, Result};
use fulmar_replay::{
    CompressedListStorage, EnsembleOptions, LazyStackStorage, ListStorage, ReplayBuffer,
    ReplayBufferEnsemble, ReplayBufferOptions, SharedReplayBuffer, Storage, StorageCheckpointer,
    StorageEnsembleCheckpointer, TensorStorage,
};
use fulmar_replay_files::{
    CompressedListStorageCheckpointer, FlatStorageCheckpointer, H5StorageCheckpointer,
    ListStorageCheckpointer, NestedStorageCheckpointer, TensorStorageCheckpointer,
};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use proptest::prelude::*;
use serde_json::{Value, json};

use self::golden_value::{dict, entry, tensor};

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ted").join(path)
}

fn rows(topic: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden("ted.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["topic"] == topic).collect()
}

fn fixture(row: &Value) -> PathBuf {
    golden(row["fixture"].as_str().unwrap())
}

/// Returns a unique path with nothing at it.
fn fresh(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-checkpoints-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn checkpointer(name: &str) -> Box<dyn StorageCheckpointer> {
    match name {
        "FlatStorageCheckpointer" => Box::<FlatStorageCheckpointer>::default(),
        "NestedStorageCheckpointer" => Box::<NestedStorageCheckpointer>::default(),
        "H5StorageCheckpointer" => Box::<H5StorageCheckpointer>::default(),
        _ => Box::new(TensorStorageCheckpointer),
    }
}

fn buffer(storage: impl Storage + 'static, sampler: &Value, writer: &Value) -> ReplayBuffer {
    let options = json!({ "seed": 7, "batchSize": 2, "sampler": sampler, "writer": writer });
    let options: ReplayBufferOptions = serde_json::from_value(options).unwrap();
    ReplayBuffer::new(Box::new(storage), options).unwrap()
}

fn ring(shape: &[usize]) -> ReplayBuffer {
    buffer(TensorStorage::new(shape).unwrap(), &json!({ "kind": "random" }), &json!({ "kind": "roundRobin" }))
}

fn all(buffer: &ReplayBuffer) -> TensorDict {
    buffer.read_all_in_order(None).unwrap()
}

#[test]
fn buffers_of_torchrl_are_loaded_and_written_again() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for row in rows("rb_checkpoint") {
        let (id, name) = (row["id"].as_str().unwrap(), row["checkpointer"].as_str().unwrap());
        let contents = dict(&row["contents"]);
        let (form, capacity) = (checkpointer(name), row["storage"]["max_size"].as_u64().unwrap() as usize);
        let shape = if row["storage"]["ndim"] == 2 { vec![capacity / 2, 2] } else { vec![capacity] };
        let check = |buffer: &ReplayBuffer| {
            let contents = if shape.len() == 2 { contents.flatten(0, 1).unwrap() } else { contents.clone() };
            assert_eq!(all(buffer), contents, "{id}");
            let (writer, len) = (buffer.writer(), buffer.len() as u64);
            let counts = (len, writer.cursor() as u64, writer.write_count());
            let said = ["len", "cursor", "write_count"].map(|key| row[key].as_u64().unwrap());
            assert_eq!(counts, (said[0], said[1], said[2]), "{id}");
        };
        let mut one = ring(&shape);
        one.loads(fixture(&row), &*form).unwrap();
        check(&one);
        let path = fresh(id);
        one.dumps(&path, &*form).unwrap();
        let mut other = ring(&shape);
        other.loads(&path, &*form).unwrap();
        check(&other);
        assert_eq!(one.sample(None).unwrap(), other.sample(None).unwrap(), "{id}: draws go on");
        fs::remove_dir_all(path).unwrap();
        // Upstream cannot load full lanes; Fulmar can.
        let lanes = row["after_load"].get("error").is_some();
        *kinds.entry(format!("{name}{}", if lanes { " of lanes" } else { "" })).or_default() += 1;
    }
    println!("rb_checkpoint: {kinds:?}");
    assert_eq!(kinds.values().sum::<usize>(), 40);
}

fn sampler_of(name: &str) -> Value {
    let slices = json!({ "numSlices": 1, "strictLength": false });
    match name {
        "SamplerWithoutReplacement" => json!({ "kind": "withoutReplacement" }),
        "PrioritizedSampler" => json!({ "kind": "prioritized", "priorities": { "alpha": 0.5 } }),
        "PrioritizedSliceSampler" => json!({ "kind": "prioritizedSlice", "slices": slices }),
        "SliceSamplerWithoutReplacement" => {
            json!({ "kind": "sliceWithoutReplacement", "slices": slices })
        }
        "StalenessAwareSampler" => {
            json!({ "kind": "stalenessAware", "maxStaleness": 3, "versionKey": ["action"] })
        }
        _ => json!({ "kind": "random" }),
    }
}

#[test]
fn samplers_and_writers_of_torchrl_are_loaded_and_written_again() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for row in rows("rb_parts") {
        let (id, name) = (row["id"].as_str().unwrap(), row["sampler"].as_str().unwrap());
        let writer = if row.get("top_values").is_some() {
            json!({ "kind": "maxValue" })
        } else {
            json!({ "kind": "roundRobin", "trackGenerations": row.get("generations").is_some() })
        };
        let load = |path: &Path| {
            let mut buffer = buffer(TensorStorage::new(&[6]).unwrap(), &sampler_of(name), &writer);
            buffer.loads(path, &TensorStorageCheckpointer).map(|()| buffer)
        };
        let mut one = load(&fixture(&row)).unwrap();
        let check = |buffer: &ReplayBuffer| {
            let said = ["cursor", "write_count"].map(|key| row[key].as_u64().unwrap());
            assert_eq!([buffer.writer().cursor() as u64, buffer.writer().write_count()], said, "{id}");
            check_part(id, &row, buffer);
        };
        check(&one);
        let path = fresh(id);
        one.dumps(&path, &TensorStorageCheckpointer).unwrap();
        for (file, said) in row["json"].as_object().unwrap() {
            let ours: Value = serde_json::from_slice(&fs::read(path.join(file)).unwrap()).unwrap();
            assert_eq!(&ours, said, "{id}: {file}");
        }
        let upstream = row["files"].as_array().unwrap().iter().map(|file| file[0].as_str().unwrap());
        for file in upstream.filter(|file| !file.starts_with("storage/") && file.ends_with(".memmap")) {
            let read = |folder: &Path| {
                let bytes = fs::read(folder.join(file)).unwrap();
                // Any valid heap order is accepted: upstream's is a heap, ours is sorted.
                let width = if file.ends_with("current_top_values.memmap") { 8 } else { bytes.len() };
                let mut parts: Vec<Vec<u8>> = bytes.chunks(width).map(<[u8]>::to_vec).collect();
                parts.sort();
                parts
            };
            assert_eq!(read(&path), read(&fixture(&row)), "{id}: {file}");
        }
        let mut other = load(&path).unwrap();
        check(&other);
        // Items of these rows have no versions: their actions serve as versions, all in the past.
        for buffer in [&mut one, &mut other] {
            let _ = buffer.sampler_mut().set_parameter("consumerVersion", 1000.0);
        }
        assert_eq!(one.sample(None).unwrap(), other.sample(None).unwrap(), "{id}: draws go on");
        // Without our own file, the folder equals one of upstream's.
        fs::remove_file(path.join("fulmar_state.json")).unwrap();
        check(&load(&path).unwrap());
        fs::remove_dir_all(path).unwrap();
        *kinds.entry(format!("{name}, {}", row["writer"].as_str().unwrap())).or_default() += 1;
    }
    println!("rb_parts: {kinds:?}");
    assert_eq!(kinds.values().sum::<usize>(), 9);
}

/// Checks the sampler and the writer of a row.
fn check_part(id: &str, row: &Value, buffer: &ReplayBuffer) {
    let (sampler, writer) = (buffer.sampler().state().unwrap(), buffer.writer().state().unwrap());
    if let Some(leaves) = row["leaves"].as_array() {
        let priorities = if sampler.get("priorities").is_some() { &sampler["priorities"] } else { &sampler };
        let ours: Vec<f32> = serde_json::from_value(priorities["tree"]["leaves"].clone()).unwrap();
        let said: Vec<f32> = leaves.iter().map(|leaf| leaf.as_f64().unwrap() as f32).collect();
        assert_eq!(ours, said, "{id}");
        assert_eq!(priorities["maxPriority"], row["max_priority"], "{id}");
        assert!((priorities["options"]["alpha"].as_f64().unwrap() - 0.7).abs() < 1e-6, "{id}");
    }
    if let Some(left) = row["sample_list"].as_array() {
        let taken = sampler["taken"].as_u64().unwrap() as usize;
        assert_eq!(&sampler["order"].as_array().unwrap()[taken..], left, "{id}");
        assert_eq!(sampler["ranOut"], row["ran_out"], "{id}");
    }
    if let Some(generations) = row["generations"].as_array() {
        assert_eq!(writer["generations"].as_array().unwrap(), generations, "{id}");
    }
    for pair in row["top_values"].as_array().into_iter().flatten() {
        assert_eq!(writer["ranks"][pair[1].as_u64().unwrap() as usize], pair[0], "{id}");
    }
    if row["sampler"] == "StalenessAwareSampler" {
        assert!(sampler["sampler"]["maxStaleness"].is_null(), "{id}");
    }
}

#[test]
fn storages_of_torchrl_are_loaded_and_those_that_it_cannot_write_are_written() {
    let mut kinds = BTreeMap::<&str, usize>::new();
    for row in rows("storage_checkpoint") {
        let (id, capacity) = (row["id"].as_str().unwrap(), row["max_size"].as_u64().unwrap() as usize);
        let load =
            |form: &dyn StorageCheckpointer| form.load(&[capacity], &fixture(&row).join("storage")).unwrap();
        let kind = match row["storage"].as_str().unwrap() {
            "CompressedListStorage" => {
                let rows = load(&CompressedListStorageCheckpointer::default());
                assert_eq!(TensorDict::cat(&rows.items, 0).unwrap(), dict(&row["data"]), "{id}");
                "compressed"
            }
            "LazyMemmapStorage" if row["data"].get("$t").is_some() => {
                let rows = load(&TensorStorageCheckpointer);
                assert_eq!(rows.items[0].tensor("_-single-tensor-_").unwrap(), &tensor(&row["data"]), "{id}");
                "one tensor"
            }
            "LazyMemmapStorage" => {
                let rows = load(&TensorStorageCheckpointer);
                let tuple = &row["data"]["$tuple"];
                let pairs = &tuple[1]["$dict"];
                for (key, value) in [
                    (vec!["0"], &tuple[0]),
                    (vec!["1", "a"], &pairs[0][1]),
                    (vec!["1", "b", "0"], &pairs[1][1][0]),
                ] {
                    let key: Vec<String> = key.into_iter().map(str::to_owned).collect();
                    assert_eq!(rows.items[0].tensor(key).unwrap(), &tensor(value), "{id}");
                }
                "tree"
            }
            name => {
                assert!(row.get("dump_error").is_some(), "{id}");
                let items = match entry(&row["data"]) {
                    Entry::Dict(items) => items,
                    other => {
                        let mut items = TensorDict::new(&[3]).unwrap();
                        items.set("x", other).unwrap();
                        items
                    }
                };
                let mut storage: Box<dyn Storage> = if name == "ListStorage" {
                    Box::new(ListStorage::new(capacity).unwrap())
                } else {
                    Box::new(LazyStackStorage::new(capacity).unwrap())
                };
                storage.set(&[0, 1, 2], &items).unwrap();
                let path = fresh(id);
                ListStorageCheckpointer.save(&*storage, 3, &path).unwrap();
                let rows = ListStorageCheckpointer.load(&[capacity], &path).unwrap();
                assert_eq!(TensorDict::cat(&rows.items, 0).unwrap(), items, "{id}");
                fs::remove_dir_all(path).unwrap();
                "only here"
            }
        };
        *kinds.entry(kind).or_default() += 1;
    }
    println!("storage_checkpoint: {kinds:?}");
    let counts = [("compressed", 1), ("one tensor", 1), ("only here", 2), ("tree", 1)];
    assert_eq!(kinds, BTreeMap::from(counts));
}

/// `count` steps from number `from` on, in trajectories that end at multiples of 3.
fn steps(from: i64, count: usize) -> TensorDict {
    let numbers: Vec<i64> = (from..from + count as i64).collect();
    let column = |of: &dyn Fn(i64) -> i64| {
        Tensor::from_vec(&[count], numbers.iter().map(|number| of(*number)).collect()).unwrap()
    };
    let ends = |of: &dyn Fn(i64) -> bool| {
        Tensor::from_vec(&[count, 1], numbers.iter().map(|number| of(*number)).collect()).unwrap()
    };
    let mut items = TensorDict::new(&[count]).unwrap();
    items.set("observation", column(&|number| number + 10 * (number / 3))).unwrap();
    items.set(["next", "observation"], column(&|number| number + 10 * (number / 3) + 1)).unwrap();
    items.set(["next", "reward"], ends(&|_| false).to(fulmar_core::Dtype::F32).unwrap()).unwrap();
    items.set("done", ends(&|_| false)).unwrap();
    items.set(["next", "done"], ends(&|number| number % 3 == 2)).unwrap();
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_form_brings_every_ring_back(capacity in 1_usize..9, count in 1_usize..20, seed in 0_u64..4) {
        for (at, name) in ["", "FlatStorageCheckpointer", "NestedStorageCheckpointer", "H5StorageCheckpointer"]
            .into_iter()
            .enumerate()
        {
            let sampler = [json!({ "kind": "prioritized" }), json!({ "kind": "withoutReplacement" })];
            let new = || {
                let storage = TensorStorage::new(&[capacity]).unwrap();
                buffer(storage, &sampler[seed as usize % 2], &json!({ "kind": "roundRobin", "trackGenerations": seed > 1 }))
            };
            let (mut one, mut other) = (new(), new());
            one.extend(&steps(0, count)).unwrap();
            one.update_priority(&[0], &[5.0]).unwrap();
            one.sample(None).unwrap();
            let path = fresh(&format!("ring-{at}-{capacity}-{count}-{seed}"));
            let form = checkpointer(name);
            one.dumps(&path, &*form).unwrap();
            other.loads(&path, &*form).unwrap();
            fs::remove_dir_all(&path).unwrap();
            prop_assert_eq!(one.state().unwrap(), other.state().unwrap());
            for buffer in [&mut one, &mut other] {
                buffer.extend(&steps(50, 2)).unwrap();
            }
            prop_assert_eq!(one.sample(Some(4)).unwrap(), other.sample(Some(4)).unwrap());
            prop_assert_eq!(one.state().unwrap(), other.state().unwrap());
        }
    }
}

#[test]
fn rows_that_are_not_alike_and_values_that_are_no_tensors_come_back() {
    let item = |len: usize, name: &str| {
        let mut item = TensorDict::new(&[]).unwrap();
        item.set("tokens", Tensor::from_vec(&[len], vec![len as i64; len]).unwrap()).unwrap();
        item.set("name", NonTensor::shared(json!(name))).unwrap();
        item
    };
    let new = || {
        buffer(
            LazyStackStorage::new(4).unwrap(),
            &json!({ "kind": "random" }),
            &json!({ "kind": "roundRobin" }),
        )
    };
    let (mut one, mut other) = (new(), new());
    one.add(&item(1, "a")).unwrap();
    one.add(&item(3, "b")).unwrap();
    let path = fresh("ragged");
    one.dumps(&path, &ListStorageCheckpointer).unwrap();
    other.loads(&path, &ListStorageCheckpointer).unwrap();
    assert_eq!(one.batch_of(&[1, 0]).unwrap(), other.batch_of(&[1, 0]).unwrap());
    fs::remove_dir_all(&path).unwrap();

    let mut storage = TensorStorage::new(&[4]).unwrap();
    storage.set(&[0], &item(2, "c").unsqueeze(0).unwrap()).unwrap();
    TensorStorageCheckpointer.save(&storage, 1, &path).unwrap();
    assert_eq!(TensorStorageCheckpointer.load(&[4], &path).unwrap().items, [storage.get(&[0]).unwrap()]);
    fs::remove_dir_all(&path).unwrap();

    let mut storage = CompressedListStorage::new(4, 3).unwrap();
    storage.set(&[0], &item(2, "c").unsqueeze(0).unwrap()).unwrap();
    let error = CompressedListStorageCheckpointer::default().save(&storage, 1, &path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
}

#[test]
fn an_empty_buffer_comes_back_empty_where_the_form_can_say_so() {
    let path = fresh("empty");
    let mut other = ring(&[4]);
    other.extend(&steps(0, 2)).unwrap();
    ring(&[4]).dumps(&path, &TensorStorageCheckpointer).unwrap();
    other.loads(&path, &TensorStorageCheckpointer).unwrap();
    assert!(other.is_empty());
    fs::remove_dir_all(&path).unwrap();
    let error = ring(&[4]).dumps(&path, &FlatStorageCheckpointer::default()).unwrap_err();
    assert!(!path.exists(), "{error}");
}

#[test]
fn nothing_is_written_over_and_nothing_is_left_of_a_write_that_fails() {
    let folder = fresh("over");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("one");
    let mut one = ring(&[4]);
    one.extend(&steps(0, 2)).unwrap();
    one.dumps(&path, &TensorStorageCheckpointer).unwrap();
    let error = one.dumps(&path, &TensorStorageCheckpointer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    // A next observation that differs from the observation of the next step.
    let mut odd = ring(&[4]);
    odd.extend(&steps(0, 1)).unwrap();
    odd.extend(&steps(4, 1)).unwrap();
    let error = odd.dumps(folder.join("two"), &FlatStorageCheckpointer::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.detail().contains("\"observation\""), "{error}");
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
    fs::remove_dir_all(folder).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files_of(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_of(&path, found) } else { found.push(path) }
    }
}

/// Loads a folder into a buffer with content, which must stay unchanged after an error.
fn refused(what: &str, path: &Path, form: &dyn StorageCheckpointer, sampler: &Value) -> Result<()> {
    let mut buffer = buffer(TensorStorage::new(&[6]).unwrap(), sampler, &json!({ "kind": "roundRobin" }));
    buffer.extend(&steps(60, 5)).unwrap();
    let before = buffer.state().unwrap();
    let loaded = buffer.loads(path, form);
    if loaded.is_err() {
        assert_eq!(buffer.state().unwrap(), before, "{what}: the buffer stays");
    }
    loaded
}

#[test]
fn damaged_folders_are_refused_by_the_name_of_the_file_and_leave_the_buffer_as_it_was() {
    let sampler = json!({ "kind": "prioritized" });
    let mut kinds = BTreeMap::<String, usize>::new();
    for (at, name) in [
        "TensorStorageCheckpointer",
        "FlatStorageCheckpointer",
        "NestedStorageCheckpointer",
        "H5StorageCheckpointer",
    ]
    .into_iter()
    .enumerate()
    {
        let mut one = buffer(TensorStorage::new(&[6]).unwrap(), &sampler, &json!({ "kind": "roundRobin" }));
        one.extend(&steps(0, 8)).unwrap();
        let (whole, damaged) = (fresh(&format!("whole-{at}")), fresh(&format!("damaged-{at}")));
        let form = checkpointer(name);
        one.dumps(&whole, &*form).unwrap();
        refused("whole", &whole, &*form, &sampler).unwrap();
        let mut files = Vec::new();
        files_of(&whole, &mut files);
        for file in files {
            let file = file.strip_prefix(&whole).unwrap();
            let bytes = fs::read(whole.join(file)).unwrap();
            for (how, content) in
                [("missing", None), ("short", Some(&bytes[..bytes.len() - 1])), ("none", Some(&[][..]))]
            {
                if file.ends_with("fulmar_state.json") && how == "missing" {
                    continue;
                }
                copy(&whole, &damaged);
                match content {
                    None => fs::remove_file(damaged.join(file)).unwrap(),
                    Some(bytes) => fs::write(damaged.join(file), bytes).unwrap(),
                }
                let what = format!("{name}: {} {how}", file.display());
                let error = refused(&what, &damaged, &*form, &sampler).expect_err(&what);
                let kind = error.kind();
                assert!(
                    matches!(kind, ErrorKind::Corrupt | ErrorKind::Malformed),
                    "{what}: {kind:?} {error}"
                );
                let leaf = file.file_name().unwrap().to_str().unwrap().split('.').next().unwrap();
                assert!(error.detail().contains(leaf), "{what}: {error}");
                *kinds.entry(format!("{kind:?}")).or_default() += 1;
                fs::remove_dir_all(&damaged).unwrap();
            }
        }
        fs::remove_dir_all(whole).unwrap();
    }
    println!("damaged: {kinds:?}");
}

#[test]
fn folders_of_other_buffers_are_refused() {
    let path = fresh("other");
    let mut one = ring(&[8]);
    one.extend(&steps(0, 8)).unwrap();
    one.dumps(&path, &TensorStorageCheckpointer).unwrap();
    let random = json!({ "kind": "random" });
    let kind =
        |sampler: &Value| refused("other", &path, &TensorStorageCheckpointer, sampler).unwrap_err().kind();
    assert_eq!(kind(&random), ErrorKind::Incompatible, "another capacity");
    let mut lanes = ring(&[4, 2]);
    assert_eq!(lanes.loads(&path, &TensorStorageCheckpointer).unwrap_err().kind(), ErrorKind::Incompatible);
    let mut flat = ring(&[8]);
    let error = flat.loads(&path, &FlatStorageCheckpointer::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownName, "another form: {error}");
    let mut prioritized = buffer(
        TensorStorage::new(&[8]).unwrap(),
        &json!({ "kind": "prioritized" }),
        &json!({ "kind": "roundRobin" }),
    );
    let error = prioritized.loads(&path, &TensorStorageCheckpointer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "another sampler: {error}");

    // Impossible values, with and without our own file.
    fs::remove_file(path.join("fulmar_state.json")).unwrap();
    let edits = [
        ("writer/metadata.json", json!({ "cursor": 8, "write_count": 8 })),
        ("writer/metadata.json", json!({ "cursor": 3 })),
        ("storage/storage_metadata.json", json!({ "metadata": {}, "is_pytree": false, "len": 9 })),
        ("storage/storage_metadata.json", json!({ "metadata": {}, "is_pytree": false, "len": -1 })),
        (
            "storage/storage_metadata.json",
            json!({ "metadata": { "..a": { "dtype": "torch.int64", "shape": [8] } }, "is_pytree": true, "len": 8 }),
        ),
        (
            "storage/storage_metadata.json",
            json!({ "metadata": { "a": { "dtype": "torch.int64", "shape": [1u64 << 60] } }, "is_pytree": true, "len": 8 }),
        ),
    ];
    let kinds: Vec<_> = edits
        .iter()
        .map(|(file, value)| {
            let before = fs::read(path.join(file)).unwrap();
            fs::write(path.join(file), value.to_string()).unwrap();
            let mut buffer = ring(&[8]);
            let kind = buffer.loads(&path, &TensorStorageCheckpointer).err().map(|error| error.kind());
            fs::write(path.join(file), before).unwrap();
            kind
        })
        .collect();
    let corrupt = Some(ErrorKind::Corrupt);
    assert_eq!(kinds, [corrupt, None, corrupt, corrupt, Some(ErrorKind::Forbidden), corrupt]);
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn storages_of_an_ensemble_come_back_each_with_its_own_rows() {
    let path = fresh("ensemble");
    let mut storages = [3, 5, 4].map(|capacity| TensorStorage::new(&[capacity]).unwrap());
    storages[0].set(&[0, 1, 2], &steps(0, 3)).unwrap();
    storages[2].set(&[0, 1], &steps(9, 2)).unwrap();
    let form = StorageEnsembleCheckpointer { member: Box::<FlatStorageCheckpointer>::default() };
    let members: Vec<(&dyn Storage, usize)> =
        storages.iter().zip([0, 0, 2]).map(|(storage, cursor)| (storage as &dyn Storage, cursor)).collect();
    form.save(&members, &path).unwrap();
    let rows = form.load(&[&[3], &[5], &[4]], &path).unwrap();
    assert_eq!(rows[0].items, [steps(0, 3)]);
    assert!(rows[1].is_empty());
    assert_eq!(rows[2].items, [steps(9, 2)]);
    assert_eq!(form.load(&[&[3], &[5]], &path).unwrap_err().kind(), ErrorKind::Incompatible, "more storages");
    fs::remove_dir_all(path.join("2")).unwrap();
    let error = form.load(&[&[3], &[5], &[4]], &path).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.detail().starts_with("storage 2"), "{error}");
    fs::remove_dir_all(path).unwrap();
}

/// Returns two buffers with prioritised draws, the second empty unless `both`.
fn ensemble(both: bool) -> ReplayBufferEnsemble {
    let options = json!({ "seed": 3, "batchSize": 2, "sampler": {"kind": "prioritized", "priorities": {"alpha": 0.7}} });
    let buffer = |count: usize| {
        let storage = Box::new(TensorStorage::new(&[4]).unwrap());
        let options = serde_json::from_value(options.clone()).unwrap();
        let buffer = SharedReplayBuffer::new(storage, options).unwrap();
        if count > 0 {
            buffer.extend(&steps(10, count)).unwrap();
        }
        buffer
    };
    let options = EnsembleOptions { batch_size: Some(4), ..EnsembleOptions::default() };
    ReplayBufferEnsemble::new(vec![buffer(6), buffer(if both { 3 } else { 0 })], options).unwrap()
}

#[test]
fn an_ensemble_goes_on_as_if_never_stopped() {
    let path = fresh("whole-ensemble");
    let form = StorageEnsembleCheckpointer { member: Box::new(TensorStorageCheckpointer) };
    let mut one = ensemble(true);
    one.sample(None).unwrap();
    one.dumps(&path, &form).unwrap();
    assert_eq!(one.dumps(&path, &form).unwrap_err().kind(), ErrorKind::Io, "never written over");
    let mut other = ensemble(false);
    other.loads(&path, &form).unwrap();
    for _ in 0..8 {
        let (one, other) = (one.sample(None).unwrap(), other.sample(None).unwrap());
        assert_eq!((one.items, one.buffer_ids), (other.items, other.buffer_ids));
    }
    let next = |ensemble: &ReplayBufferEnsemble| ensemble.buffers()[0].extend(&steps(90, 1)).unwrap();
    assert_eq!(next(&one), next(&other));
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_ensemble_with_an_empty_buffer_comes_back_and_a_damaged_one_changes_nothing() {
    let path = fresh("damaged-ensemble");
    let form = StorageEnsembleCheckpointer { member: Box::new(TensorStorageCheckpointer) };
    ensemble(false).dumps(&path, &form).unwrap();
    let mut other = ensemble(true);
    other.loads(&path, &form).unwrap();
    assert!(other.buffers()[1].is_empty().unwrap());

    fs::remove_dir_all(path.join("writer/1")).unwrap();
    let mut other = ensemble(true);
    let before: Vec<_> = other.buffers().iter().map(|buffer| buffer.state().unwrap()).collect();
    let error = other.loads(&path, &form).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.detail().starts_with("storage 1"), "{error}");
    let after: Vec<_> = other.buffers().iter().map(|buffer| buffer.state().unwrap()).collect();
    assert_eq!(after, before);
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn an_hdf5_file_is_held_to_its_first_bytes_and_its_limit_before_it_is_read() {
    let folder = std::env::temp_dir().join(format!("fulmar-large-hdf5-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let form = H5StorageCheckpointer::default();
    for (bytes, kind) in
        [(HDF5_FILE_BYTES_MAX, ErrorKind::Corrupt), (HDF5_FILE_BYTES_MAX + 1, ErrorKind::LimitExceeded)]
    {
        // A sparse file: reading it would take all of that memory.
        fs::File::create(folder.join(&form.file)).unwrap().set_len(bytes).unwrap();
        assert_eq!(form.load(&[4], &folder).unwrap_err().kind(), kind);
    }
    fs::remove_dir_all(folder).unwrap();
}
