//! Splits of Atari DQN replay: those of torchrl's rows, those of a writer of the test's own, damaged ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod golden_rows;
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use fulmar_core::ErrorKind;
use fulmar_dataset::{AtariStorage, convert_atari_split};
use fulmar_replay::{PartialReads as _, Storage as _, check_storage_reads};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict, memmap};
use proptest::prelude::*;
use serde_json::{Value, json};

use self::golden_rows::{assert_rows, golden, rows_of};

const PONG: &str = "raw/gs/atari-replay-datasets/dqn/Pong/1/replay_logs";

/// A folder that is not there.
fn new_folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-atari-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// Converts the first splits of Pong.
fn converted(name: &str, num_splits: usize) -> (PathBuf, AtariStorage) {
    let folder = new_folder(name);
    for split in 0..num_splits {
        convert_atari_split(golden(PONG), split, "Pong/1", folder.join(split.to_string())).unwrap();
    }
    let storage = AtariStorage::open(&folder).unwrap();
    (folder, storage)
}

/// Returns rows as torchrl has them where no slices are drawn: flags of u8, `[rows]`.
fn as_upstream(rows: &TensorDict) -> TensorDict {
    let mut rows = rows.clone();
    for name in ["done", "terminated", "truncated"] {
        for path in [vec![name.to_owned()], vec!["next".to_owned(), name.to_owned()]] {
            let flags = rows.tensor(path.clone()).unwrap();
            let flags = flags.to(fulmar_core::Dtype::U8).unwrap().squeeze(1).unwrap();
            rows.set(path, flags).unwrap();
        }
    }
    rows
}

/// Returns a value of Python as JSON.
fn plain(value: &Value) -> Value {
    if let Some(pairs) = value["$dict"].as_array() {
        let pairs = pairs.iter().map(|pair| (pair[0].as_str().unwrap().to_owned(), plain(&pair[1])));
        return Value::Object(pairs.collect());
    }
    match (value["d"].as_array(), value["s"].as_array()) {
        (Some(numbers), Some(shape)) if shape.is_empty() => numbers[0].clone(),
        (Some(numbers), Some(_)) => json!(numbers),
        _ => value.clone(),
    }
}

/// Compares rows, whose metadata may be there once for all of them.
fn assert_like(rows: &TensorDict, want: &Value, at: &str) {
    let mut want = want.clone();
    let metadata = want["k"].as_object_mut().unwrap().remove("metadata").unwrap();
    assert_rows(&as_upstream(rows).exclude(&["metadata".into()]), &want, at);
    let Some(Entry::NonTensor(found)) = rows.get("metadata") else { panic!("{at}: no metadata") };
    let len = rows.batch_size()[0];
    let all = |found: &NonTensor| match found.shape() {
        Some(_) => found.to_json(),
        None => json!(vec![found.to_json(); len]),
    };
    let wanted: Vec<Value> = match metadata["$nts"].as_array() {
        Some(values) => values.iter().map(plain).collect(),
        None => vec![plain(&metadata["$nt"]); len],
    };
    assert_eq!(all(found), json!(wanted), "{at}");
}

/// Compares rows without the flags that samplers of slices set.
fn assert_sample(rows: &TensorDict, want: &Value, at: &str) {
    let mut want = want.clone();
    for name in ["done", "truncated"] {
        want["k"]["next"]["k"].as_object_mut().unwrap().remove(name);
    }
    let metadata = want["k"].as_object_mut().unwrap().remove("metadata").unwrap();
    assert_eq!(metadata["$nts"].as_array().unwrap().len(), rows.batch_size()[0]);
    let without = [["next", "done"].into(), ["next", "truncated"].into(), "metadata".into()];
    assert_rows(&as_upstream(rows).exclude(&without), &want, at);
}

/// Returns rows as torchrl does where it is wrong: grouped by their splits, and with the next frame of a terminal step that is the only
/// one of its split.
fn upstream_batch(storage: &AtariStorage, index: &[usize]) -> TensorDict {
    let split_of = |row: usize| usize::from(row >= 13) + usize::from(row >= 34);
    let mut index = index.to_vec();
    index.sort_by_key(|row| split_of(*row));
    let mut rows = storage.get(&index).unwrap();
    let mut next = rows.tensor(["next", "observation"]).unwrap().to_vec::<u8>().unwrap();
    for (at, row) in index.iter().enumerate() {
        let is_alone = index.iter().filter(|other| split_of(**other) == split_of(*row)).count() == 1;
        if is_alone && split_of(row + 1) == split_of(*row) {
            let after =
                storage.get(&[row + 1]).unwrap().tensor("observation").unwrap().to_vec::<u8>().unwrap();
            next[at * 84 * 84..(at + 1) * 84 * 84].copy_from_slice(&after);
        }
    }
    rows.set(["next", "observation"], Tensor::from_vec(&[index.len(), 84, 84], next).unwrap()).unwrap();
    rows
}

fn indices(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as usize).collect()
}

#[test]
fn splits_become_the_rows_of_torchrl() {
    let rows: Vec<_> =
        rows_of("datasets.jsonl", "AtariDQN").into_iter().filter(|row| row["ok"].is_object()).collect();
    assert_eq!(rows.len(), 5);
    for row in &rows {
        let (id, ok) = (row["id"].as_str().unwrap(), &row["ok"]);
        let num_splits = row["options"]["_max_runs"].as_u64().unwrap_or(3) as usize;
        let (folder, storage) = converted(id, num_splits);
        assert_eq!(storage.len(), ok["len"].as_u64().unwrap() as usize);
        let all: Vec<usize> = (0..storage.len()).collect();
        assert_like(&storage.get(&all).unwrap(), &ok["all"], id);
        assert_like(&upstream_batch(&storage, &indices(&ok["rows"]["index"])), &ok["rows"]["data"], id);
        if ok["sample"].is_object() {
            let mut batch = ok["sample"]["batch"].clone();
            batch["k"].as_object_mut().unwrap().remove("index").unwrap();
            let rows = upstream_batch(&storage, &indices(&ok["sample"]["index"]["d"]));
            assert_sample(&rows, &batch, id);
        }
        if let Some(episodes) = ok["episodes"]["d"].as_array() {
            assert_eq!(json!(storage.episodes()), json!(episodes));
        }
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_split_is_read_as_a_storage_must_be() {
    // Metadata is one value for rows of one split.
    let (folder, mut storage) = converted("suite", 1);
    let all = storage.get(&(0..13).collect::<Vec<_>>()).unwrap();
    check_storage_reads(&mut storage, &all).unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_folder_of_a_split_is_that_of_torchrl() {
    let rows = rows_of("datasets.jsonl", "AtariDQN");
    let (folder, storage) = converted("tree", 3);
    for file in rows[0]["ok"]["tree"].as_array().unwrap() {
        let (name, len) =
            (file[0].as_str().unwrap().strip_prefix("Pong/1/").unwrap(), file[1].as_u64().unwrap());
        // Descriptions have other spaces, and the mark of a whole folder is TypeScript's to write.
        if !name.ends_with(".json") {
            assert_eq!(fs::metadata(folder.join(name)).unwrap().len(), len, "{name}");
        } else if name != "processed.json" {
            assert!(folder.join(name).is_file(), "{name}");
        }
    }
    let split = memmap::load(folder.join("1")).unwrap();
    assert_eq!(split.batch_size(), &[] as &[usize]);
    assert_eq!(split.tensor(["data", "observation"]).unwrap().shape(), [22, 84, 84]);
    assert_eq!(storage.metadata()[1]["add_count"], 42);
    // TorchRL keeps flags as bools if the file does.
    let path = folder.join("1/data/next/meta.json");
    let meta = fs::read_to_string(&path).unwrap().replace("torch.uint8", "torch.bool");
    fs::write(&path, meta).unwrap();
    let all: Vec<usize> = (0..53).collect();
    assert_eq!(AtariStorage::open(&folder).unwrap().get(&all).unwrap(), storage.get(&all).unwrap());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn broken_splits_are_typed_errors_that_name_the_file() {
    let rows = rows_of("broken.jsonl", "AtariDQN");
    assert_eq!(rows.len(), 13);
    for row in &rows {
        let (case, must) = (row["case"].as_str().unwrap(), row["must"].as_str().unwrap());
        let source = golden(row["files"][0].as_str().unwrap()).parent().unwrap().to_owned();
        let folder = new_folder("broken");
        let result = convert_atari_split(&source, 0, "Pong/1", folder.join("0"));
        if must.starts_with("loads") {
            assert_eq!(result.unwrap(), 13, "{case}");
            assert_loads(case, &AtariStorage::open(&folder).unwrap());
            fs::remove_dir_all(&folder).unwrap();
            continue;
        }
        let error = result.unwrap_err();
        let kind = match case {
            "no observations" => ErrorKind::Io,
            "actions one short" => ErrorKind::ShapeMismatch,
            "float64 observations" | "an object array (pickle)" => ErrorKind::Incompatible,
            "a header of 7 * 10^15 bytes" => ErrorKind::LimitExceeded,
            _ => ErrorKind::Corrupt,
        };
        assert_eq!(error.kind(), kind, "{case}: {error}");
        assert!(error.to_string().contains("_ckpt.0.gz"), "{case}: {error}");
        assert!(!folder.join("0").exists(), "{case} left a folder");
        let text = error.to_string();
        assert!(case != "actions one short" || text.contains("13") && text.contains("12"), "{text}");
        assert!(case != "float64 observations" || text.contains("u8") && text.contains("f64"), "{text}");
        let _ = fs::remove_dir_all(&folder);
    }
}

fn assert_loads(case: &str, storage: &AtariStorage) {
    let (folder, first) = converted("whole", 1);
    let all: Vec<usize> = (0..13).collect();
    let (found, want) = (storage.get(&all).unwrap(), first.get(&all).unwrap());
    for key in ["observation", "action"] {
        let same = found.tensor(key).unwrap() == want.tensor(key).unwrap();
        assert!(same || case == "big-endian rewards", "{case}: {key}");
    }
    assert_eq!(found.tensor(["next", "reward"]).unwrap().dtype(), fulmar_core::Dtype::F32);
    fs::remove_dir_all(folder).unwrap();
}

/// The arrays of a split.
#[derive(Debug, Clone)]
struct Split {
    frames: Vec<u8>,
    actions: Vec<i32>,
    rewards: Vec<f32>,
    ends: Vec<u8>,
}

const SIZE: [usize; 2] = [3, 2];

fn split() -> impl Strategy<Value = Split> {
    (1_usize..9).prop_flat_map(|len| {
        let frames = prop::collection::vec(any::<u8>(), 6 * len);
        let actions = prop::collection::vec(any::<i32>(), len);
        let rewards = prop::collection::vec(-9_f32..9.0, len);
        let ends = prop::collection::vec(0_u8..2, len);
        (frames, actions, rewards, ends).prop_map(|(frames, actions, rewards, ends)| Split {
            frames,
            actions,
            rewards,
            ends,
        })
    })
}

/// Writes an array as NumPy does.
fn write_array(path: &Path, kind: &str, shape: &str, bytes: &[u8]) {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut file = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.write_all(bytes).unwrap();
    file.finish().unwrap();
}

impl Split {
    fn len(&self) -> usize {
        self.actions.len()
    }

    fn write(&self, folder: &Path, number: usize) {
        let path = |name: &str| folder.join(format!("{name}_ckpt.{number}.gz"));
        let (len, [height, width]) = (self.len(), SIZE);
        let rows = format!("({len},)");
        let bytes =
            |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        write_array(
            &path("$store$_observation"),
            "|u1",
            &format!("({len}, {height}, {width})"),
            &self.frames,
        );
        write_array(&path("$store$_action"), "<i4", &rows, &bytes(&self.actions));
        let rewards: Vec<u8> = self.rewards.iter().flat_map(|reward| reward.to_le_bytes()).collect();
        write_array(&path("$store$_reward"), "<f4", &rows, &rewards);
        write_array(&path("$store$_terminal"), "|u1", &rows, &self.ends);
        write_array(&path("add_count"), "<i8", "()", &(number as i64).to_le_bytes());
        write_array(&path("invalid_range"), "<i8", "(0,)", &[]);
    }

    /// The frame after a step, the obvious way.
    fn next_frame(&self, step: usize) -> Vec<u8> {
        let after = self.frames.get(6 * (step + 1)..6 * (step + 2));
        match after {
            Some(frame) if self.ends[step] == 0 => frame.to_vec(),
            _ => vec![0; 6],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_are_those_of_a_naive_reading(splits in prop::collection::vec(split(), 1..4), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..12)) {
        let source = new_folder("source");
        let folder = new_folder("property");
        fs::create_dir_all(&source).unwrap();
        for (number, split) in splits.iter().enumerate() {
            split.write(&source, number);
            prop_assert_eq!(convert_atari_split(&source, number, "Pong/1", folder.join(number.to_string())).unwrap(), split.len());
        }
        let storage = AtariStorage::open(&folder).unwrap();
        let naive: Vec<_> = splits.iter().flat_map(|split| (0..split.len()).map(move |step| (split, step))).collect();
        prop_assert_eq!(storage.len(), naive.len());
        let rows: Vec<usize> = picks.iter().map(|pick| pick.index(naive.len())).collect();
        let items = storage.get(&rows).unwrap();
        let of = |body: &dyn Fn(&Split, usize) -> Vec<u8>| rows.iter().flat_map(|row| body(naive[*row].0, naive[*row].1)).collect::<Vec<u8>>();
        prop_assert_eq!(items.tensor("observation").unwrap().to_vec::<u8>().unwrap(), of(&|split, step| split.frames[6 * step..6 * (step + 1)].to_vec()));
        prop_assert_eq!(items.tensor(["next", "observation"]).unwrap().to_vec::<u8>().unwrap(), of(&|split, step| split.next_frame(step)));
        let ends: Vec<bool> = rows.iter().map(|row| naive[*row].0.ends[naive[*row].1] == 1).collect();
        prop_assert_eq!(items.tensor(["next", "done"]).unwrap(), &Tensor::from_vec(&[rows.len(), 1], ends).unwrap());
        let actions: Vec<i32> = rows.iter().map(|row| naive[*row].0.actions[naive[*row].1]).collect();
        prop_assert_eq!(items.tensor("action").unwrap().to_vec::<i32>().unwrap(), actions);
        let keys = [["next", "done"].into(), "action".into()];
        prop_assert_eq!(storage.read_keys(&rows, &keys).unwrap(), items.select(&keys).unwrap());
        let mut out = storage.get(&rows.iter().rev().copied().collect::<Vec<_>>()).unwrap();
        storage.read_into(&rows, &mut out).unwrap();
        prop_assert_eq!(&out, &items);
        prop_assert_eq!(storage.get(&[naive.len()]).unwrap_err().kind(), ErrorKind::OutOfRange);
        fs::remove_dir_all(source).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn damaged_folders_of_rows_are_typed_errors() {
    let (folder, mut storage) = converted("damaged", 2);
    assert_eq!(storage.set(&[0], &storage.get(&[0]).unwrap()).unwrap_err().kind(), ErrorKind::Forbidden);
    let kind = |name: &str, damage: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, damage(whole.clone())).unwrap();
        let error = AtariStorage::open(&folder).unwrap_err();
        fs::write(&path, whole).unwrap();
        assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
        error.kind()
    };
    let cut = |mut bytes: Vec<u8>| {
        bytes.pop();
        bytes
    };
    let swap = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(from, to).into_bytes()
    };
    for name in
        ["0/data/observation.memmap", "0/data/action.memmap", "1/data/next/reward.memmap", "0/data/meta.json"]
    {
        assert_eq!(kind(name, &cut), ErrorKind::Corrupt, "{name}");
    }
    assert_eq!(kind("0/data/meta.json", &swap("[13]", "[12]")), ErrorKind::ShapeMismatch);
    assert_eq!(kind("0/data/meta.json", &swap("torch.int32", "torch.int64")), ErrorKind::Incompatible);
    assert_eq!(kind("1/data/meta.json", &swap("[22,84,84]", "[11,84,168]")), ErrorKind::ShapeMismatch);
    assert_eq!(
        kind("1/data/meta.json", &swap("[22,84,84]", "[99999999999,99999999,99999999]")),
        ErrorKind::LimitExceeded
    );
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(AtariStorage::open(&folder).unwrap_err().kind(), ErrorKind::Io);
    fs::create_dir(&folder).unwrap();
    assert_eq!(AtariStorage::open(&folder).unwrap_err().kind(), ErrorKind::Empty);
    fs::remove_dir_all(folder).unwrap();
}
