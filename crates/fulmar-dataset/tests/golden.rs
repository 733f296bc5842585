//! Files of h5py and Minari as torchrl 0.14.1 reads them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod golden_rows;
#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;
mod numpy;
mod openml;
mod roboset;
mod vd4rl;

use std::path::Path;

use fulmar_core::ErrorKind;
use fulmar_dataset::{
    D4rlOptions, Minari, Vd4rlOptions, convert_d4rl, convert_minari, convert_roboset, convert_vd4rl,
    open_roboset, open_vd4rl, read_d4rl, split_trajectories,
};
use fulmar_ted::Hdf5File;
use fulmar_tensor::{TensorDict, memmap};
use serde_json::Value;

use self::golden_rows::{assert_rows, golden, rows_of};

#[test]
fn d4rl_files_become_the_rows_of_torchrl() {
    let mut num_rows = 0;
    for row in rows_of("datasets.jsonl", "D4RL").iter().filter(|row| row["ok"].is_object()) {
        let steps = d4rl_steps(row);
        assert_rows(&steps, &row["ok"]["all"], row["id"].as_str().unwrap());
        num_rows += 1;
    }
    assert_eq!(num_rows, 10);
}

fn d4rl_options(row: &Value) -> D4rlOptions {
    let use_truncated_as_done = row["options"]["use_truncated_as_done"] != false;
    let split_trajs = row["options"]["split_trajs"] == true;
    D4rlOptions { use_truncated_as_done, split_trajs }
}

fn d4rl_steps(row: &Value) -> TensorDict {
    let file = Hdf5File::open(golden(row["source"].as_str().unwrap())).unwrap();
    let read = read_d4rl(&file, d4rl_options(row)).unwrap();
    if row["ok"]["metadata"]["$td"].is_array() {
        assert_rows(&read.metadata, &row["ok"]["metadata"], "metadata");
    }
    read.steps
}

#[test]
fn flags_of_a_float_type_are_read() {
    let row = &rows_of("datasets.jsonl", "D4RL")[10];
    assert_eq!(row["error"]["class"], "NotImplementedError");
    let file = Hdf5File::open(golden(row["source"].as_str().unwrap())).unwrap();
    let steps = read_d4rl(&file, D4rlOptions::default()).unwrap().steps;
    let done = steps.tensor(["next", "done"]).unwrap().to_vec::<bool>().unwrap();
    assert!(done.contains(&true) && done.contains(&false));
}

#[test]
fn minari_folders_become_the_rows_of_torchrl() {
    let mut num_rows = 0;
    for row in rows_of("datasets.jsonl", "Minari").iter().filter(|row| row["ok"]["all"].is_object()) {
        let folder = golden(row["source"].as_str().unwrap()).join("data");
        let steps = minari_steps(&folder).unwrap();
        let steps = match row["options"]["split_trajs"] == true {
            true => split_trajectories(&steps).unwrap(),
            false => steps,
        };
        assert_rows(&steps, &row["ok"]["all"], row["id"].as_str().unwrap());
        num_rows += 1;
    }
    assert_eq!(num_rows, 6);
}

fn minari_steps(folder: &std::path::Path) -> fulmar_dataset::Result<TensorDict> {
    Ok(Minari::open(folder)?.steps)
}

#[test]
fn folders_of_torchrl_hold_the_rows_that_are_read() {
    let d4rl = memmap::load(golden("processed/d4rl/hopper-medium-v2")).unwrap();
    let row = &rows_of("datasets.jsonl", "D4RL")[0];
    assert_rows(&d4rl, &row["ok"]["all"], "d4rl");
    let minari = memmap::load(golden("processed/minari/cartpole/random-v0")).unwrap();
    let row = &rows_of("datasets.jsonl", "Minari")[0];
    assert_rows(&minari, &row["ok"]["all"], "minari");
}

/// Converts `source` to a folder, and returns its rows; the number of steps or the error comes from `convert`.
fn converted<T>(
    source: &Path,
    convert: impl FnOnce(&Path, &Path) -> fulmar_dataset::Result<T>,
) -> fulmar_dataset::Result<TensorDict> {
    let folder = std::env::temp_dir().join(format!("fulmar-golden-{}", std::process::id()));
    let rows = convert(source, &folder).and_then(|_| memmap::load(&folder));
    assert_eq!(folder.exists(), rows.is_ok(), "after an error there is no folder");
    if rows.is_ok() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    rows
}

#[test]
fn converted_folders_hold_the_rows_that_are_read_and_refuse_what_is_refused() {
    let mut num_rows = 0;
    for row in rows_of("datasets.jsonl", "Minari").iter().filter(|row| row["ok"]["all"].is_object()) {
        let source = golden(row["source"].as_str().unwrap()).join("data");
        assert_eq!(converted(&source, |source, to| convert_minari(source, to)), minari_steps(&source));
        num_rows += 1;
    }
    for row in rows_of("datasets.jsonl", "Roboset").iter().filter(|row| row["ok"].is_object()) {
        let source = golden(row["source"].as_str().unwrap());
        assert_eq!(converted(&source, |source, to| convert_roboset(source, to)), open_roboset(&source));
        num_rows += 1;
    }
    for row in rows_of("datasets.jsonl", "VD4RL").iter().filter(|row| row["ok"]["all"].is_object()) {
        let source = golden(row["source"].as_str().unwrap());
        for num_workers in [0, 3] {
            let options = Vd4rlOptions { num_workers, ..Vd4rlOptions::default() };
            let rows = converted(&source, |source, to| convert_vd4rl(source, to, options));
            assert_eq!(rows, open_vd4rl(&source, options).map(|read| read.steps));
        }
        num_rows += 1;
    }
    for row in rows_of("datasets.jsonl", "D4RL").iter().filter(|row| row["ok"].is_object()) {
        let (source, options) = (golden(row["source"].as_str().unwrap()), d4rl_options(row));
        assert_eq!(converted(&source, |source, to| convert_d4rl(source, to, options)), Ok(d4rl_steps(row)));
        num_rows += 1;
    }
    assert_eq!(num_rows, 23);
    let mut num_refused = 0;
    for row in rows_of("broken.jsonl", "D4RL") {
        let source = golden(row["files"][0].as_str().unwrap());
        let options = D4rlOptions::default();
        let read = Hdf5File::open(&source).and_then(|file| read_d4rl(&file, options)).map(|read| read.steps);
        let steps = converted(&source, |source, to| convert_d4rl(source, to, options));
        num_refused += usize::from(read.is_err());
        assert_eq!(steps.map_err(|error| error.to_string()), read.map_err(|error| error.to_string()));
    }
    for row in rows_of("broken.jsonl", "Minari").iter().filter(|row| row["files"].is_array()) {
        let file = golden(row["files"][0].as_str().unwrap());
        let source = file.parent().unwrap();
        let Err(read) = minari_steps(source) else { continue };
        let error = converted(source, |source, to| convert_minari(source, to)).unwrap_err();
        assert_eq!(error.kind(), read.kind(), "{source:?}: {error}");
        num_refused += 1;
    }
    assert!(num_refused > 15, "{num_refused}");
}

#[test]
fn broken_d4rl_files_are_typed_errors() {
    let mut seen = 0;
    for row in rows_of("broken.jsonl", "D4RL") {
        let path = row["files"][0].as_str().unwrap();
        let read = Hdf5File::open(golden(path)).and_then(|file| read_d4rl(&file, D4rlOptions::default()));
        let must = row["must"].as_str().unwrap();
        seen += 1;
        if let Err(error) = &read {
            assert!(error.detail().contains(path), "{path}: {error}");
        }
        match (must, &read) {
            ("loads" | "one transition", Ok(read)) => {
                assert_eq!(read.steps, golden_value::dict(&row["ok"]), "{path}");
            }
            (must, Ok(read)) if must.starts_with("reads them as [N]") => {
                let reward = read.steps.tensor(["next", "reward"]).unwrap();
                assert_eq!(reward.shape(), [11, 1]);
                let want = golden_value::tensor(&row["ok"]["k"]["next"]["k"]["reward"]);
                assert_eq!(reward.to_f32_vec(), want.to_f32_vec());
            }
            (must, Ok(read)) if must.starts_with("loads, or") => assert_rows(&read.steps, &row["ok"], path),
            (must, Ok(_)) if must.starts_with("refused or passed over") => {}
            (must, Ok(_)) => panic!("{path}: must be {must}"),
            ("loads" | "one transition", Err(error)) => panic!("{path}: {error}"),
            (must, Err(error)) => {
                assert!(
                    must.contains("LIMIT_EXCEEDED") == (error.kind() == ErrorKind::LimitExceeded),
                    "{path}: {error}"
                );
                if must.contains("layout version") {
                    assert_eq!(error.kind(), ErrorKind::Incompatible, "{path}: {error}");
                    assert!(
                        error.detail().contains("layout") && error.detail().contains('5'),
                        "{path}: {error}"
                    );
                }
                let case = row["case"].as_str().unwrap();
                let key = ["observations", "actions", "rewards", "terminals"]
                    .iter()
                    .find(|key| case.contains(*key));
                if must.contains("the key") {
                    assert!(error.detail().contains(key.unwrap_or(&"\"")), "{path}: {error}");
                }
                if must.contains("both lengths") {
                    assert!(
                        error.detail().contains("12") && error.detail().contains("11"),
                        "{path}: {error}"
                    );
                }
            }
        }
    }
    assert_eq!(seen, 25);
}

#[test]
fn broken_minari_folders_are_typed_errors() {
    let mut seen = 0;
    for row in rows_of("broken.jsonl", "Minari").iter().filter(|row| row["files"].is_array()) {
        let path = golden(row["files"][0].as_str().unwrap());
        let read = minari_steps(path.parent().unwrap());
        let (case, must) = (row["case"].as_str().unwrap(), row["must"].as_str().unwrap());
        seen += 1;
        let error = match (must, read) {
            ("loads", Ok(steps)) => {
                assert_eq!(steps.batch_size(), [93]);
                continue;
            }
            ("loads", Err(error)) => panic!("{case}: {error}"),
            (_, Ok(_)) => panic!("{case}: must be {must}"),
            (_, Err(error)) => error,
        };
        if must.contains("episode and key") {
            assert!(error.detail().contains("episode_"), "{case}: {error}");
            let keys = [("observation", "observations"), ("rewards", "rewards"), ("actions", "actions")];
            let key = keys.iter().find(|(word, _)| case.contains(word)).unwrap().1;
            assert!(
                error.detail().contains(key) || error.detail().contains("observation"),
                "{case}: {error}"
            );
        }
        if must.contains("both numbers") {
            assert!(error.detail().contains("93"), "{case}: {error}");
        }
        if must.contains("and the group") {
            assert!(error.detail().contains("file: ") || error.detail().contains('"'), "{case}: {error}");
        }
    }
    assert_eq!(seen, 11);
}
