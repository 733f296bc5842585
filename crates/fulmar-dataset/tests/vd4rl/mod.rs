//! Files of V-D4RL as torchrl 0.14.1 reads them.

use std::fs;
use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_dataset::{LengthPolicy, Vd4rl, Vd4rlOptions, open_vd4rl, split_trajectories};
use fulmar_ted::write_hdf5;
use fulmar_tensor::{Tensor, TensorDict};
use serde_json::Value;

use super::golden_rows::{assert_rows, golden, rows_of};

/// A folder of this test alone, with one file.
struct Alone(PathBuf);

impl Alone {
    fn with(path: &str) -> Self {
        let name = path.replace('/', "-");
        let folder = std::env::temp_dir().join(format!("fulmar-vd4rl-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(golden(path), folder.join(path.rsplit('/').next().unwrap())).unwrap();
        Self(folder)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shortest() -> Vd4rlOptions {
    Vd4rlOptions { length_policy: LengthPolicy::Shortest, ..Vd4rlOptions::default() }
}

/// Takes the flags away that we derive in addition.
fn without_flags(steps: &TensorDict) -> TensorDict {
    let mut steps = steps.clone();
    for name in ["is_init", "done", "terminated", "truncated"] {
        steps.remove(name).unwrap();
    }
    for name in ["done", "terminated", "truncated"] {
        steps.remove(["next", name]).unwrap();
    }
    steps
}

#[test]
fn vd4rl_folders_become_the_rows_of_torchrl() {
    let mut num_rows = 0;
    for row in rows_of("datasets.jsonl", "VD4RL").iter().filter(|row| row["ok"]["all"].is_object()) {
        let steps =
            open_vd4rl(golden(row["source"].as_str().unwrap()), Vd4rlOptions::default()).unwrap().steps;
        let steps = match row["dataset_id"].as_str().unwrap().ends_with("84px") {
            true => without_flags(&steps),
            false => steps,
        };
        // torchrl does not split: its rows are those without.
        assert_rows(&steps, &row["ok"]["all"], row["id"].as_str().unwrap());
        num_rows += 1;
    }
    assert_eq!(num_rows, 4);
}

#[test]
fn flags_of_hdf5_are_those_of_step_types_and_discounts() {
    let folder = golden("raw/hub/datasets/conglu/vd4rl/vd4rl/main/walker_walk/random/84px");
    let steps = open_vd4rl(folder, Vd4rlOptions::default()).unwrap().steps;
    let kinds = steps.tensor(["state", "step_type"]).unwrap().to_vec::<i32>().unwrap();
    let discount = steps.tensor("discount").unwrap().to_f32_vec();
    let bools = |key: fulmar_tensor::Key| steps.tensor(key).unwrap().to_vec::<bool>().unwrap();
    let (first, done) = (bools("is_init".into()), bools(["next", "done"].into()));
    let (terminated, truncated) = (bools(["next", "terminated"].into()), bools(["next", "truncated"].into()));
    for row in 0..kinds.len() {
        assert_eq!((first[row], done[row]), (kinds[row] == 0, kinds[row] == 2), "row {row}");
        assert_eq!(terminated[row], kinds[row] == 2 && discount[row] == 0.0, "row {row}");
        assert_eq!(truncated[row], done[row] && !terminated[row], "row {row}");
    }
    let split = split_trajectories(&steps).unwrap();
    assert_eq!(split.batch_size()[0], kinds.iter().filter(|kind| **kind == 2).count());
}

#[test]
fn broken_vd4rl_files_are_typed_errors() {
    let mut seen = 0;
    for row in rows_of("broken.jsonl", "VD4RL") {
        let path = row["files"][0].as_str().unwrap();
        let alone = Alone::with(path);
        let read = open_vd4rl(&alone.0, Vd4rlOptions::default());
        let (case, must) = (row["case"].as_str().unwrap(), row["must"].as_str().unwrap());
        seen += 1;
        let error = match (must, read) {
            ("loads", Ok(read)) => {
                assert_rows(&read.steps, &row["upstream"]["ok"], path);
                continue;
            }
            ("loads", Err(error)) => panic!("{path}: {error}"),
            (_, Ok(_)) => panic!("{path}: must be {must}"),
            (_, Err(error)) => error,
        };
        assert!(error.detail().contains(path.rsplit('/').next().unwrap()), "{path}: {error}");
        assert!(
            !case.contains("image") || error.detail().contains("image") || error.detail().contains("pixels"),
            "{error}"
        );
        assert!(
            !case.contains("short") || error.detail().contains("\"reward\": must have 5 rows"),
            "{error}"
        );
        assert!(!must.starts_with("refused") || error.kind() == ErrorKind::Forbidden, "{path}: {error}");
        assert!(!case.contains("object") || error.kind() == ErrorKind::Incompatible, "{path}: {error}");
        assert!(!case.contains("64 MB") || error.kind() == ErrorKind::ShapeMismatch, "{path}: {error}");
    }
    assert_eq!(seen, 11);
}

#[test]
fn arrays_of_other_lengths_are_cut_if_that_is_asked_for() {
    let alone = Alone::with("broken/vd4rl/short.npz");
    let read = open_vd4rl(&alone.0, shortest()).unwrap();
    assert_eq!((read.steps.batch_size(), read.num_cut), (&[4][..], 1));
    let whole = Alone::with("broken/vd4rl/good.npz");
    let read = open_vd4rl(&whole.0, shortest()).unwrap();
    assert_eq!((read.steps.batch_size(), read.num_cut), (&[5][..], 0));
}

#[test]
fn folders_without_files_are_refused() {
    let error = open_vd4rl(golden("raw/web"), Vd4rlOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(rows_of("datasets.jsonl", "VD4RL").iter().any(|row| row["error"] != Value::Null));
}

#[test]
fn threads_read_the_same_rows_in_the_same_order() {
    let folder = golden("raw/hub/datasets/conglu/vd4rl/vd4rl/main/walker_walk/random/64px");
    let alone = open_vd4rl(&folder, Vd4rlOptions::default()).unwrap();
    for num_workers in [1, 2, 3, 64] {
        assert_eq!(
            open_vd4rl(&folder, Vd4rlOptions { num_workers, ..Vd4rlOptions::default() }).unwrap(),
            alone
        );
    }
    let error = open_vd4rl(&folder, Vd4rlOptions { num_workers: 65, ..Vd4rlOptions::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
}

#[test]
fn an_episode_that_was_cut_stays_apart_from_the_next() {
    let mut steps = TensorDict::new(&[4]).unwrap();
    steps.set("is_init", Tensor::from_vec(&[4], vec![true, false, true, false]).unwrap()).unwrap();
    steps.set(["next", "done"], Tensor::from_vec(&[4, 1], vec![false, false, false, true]).unwrap()).unwrap();
    let split = Vd4rl { steps, num_cut: 1 }.split().unwrap();
    assert_eq!((split.steps.batch_size(), split.num_cut), (&[2, 2][..], 1));
}

#[test]
fn a_group_in_a_file_is_refused_by_name_and_a_path_is_said_once() {
    let folder = Alone(std::env::temp_dir().join(format!("fulmar-vd4rl-{}-group", std::process::id())));
    fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("a.hdf5");
    let mut file = TensorDict::new(&[]).unwrap();
    file.set(["notes", "x"], Tensor::from_vec_f32(&[1], vec![1.0]).unwrap()).unwrap();
    fs::write(&path, write_hdf5(&file).unwrap()).unwrap();
    let error = open_vd4rl(&folder.0, Vd4rlOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.detail().contains("notes"), "{error}");
    fs::write(&path, b"no such file").unwrap();
    let detail = open_vd4rl(&folder.0, Vd4rlOptions::default()).unwrap_err().detail().to_owned();
    assert_eq!(detail.matches("a.hdf5").count(), 1, "{detail}");
}
