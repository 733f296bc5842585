//! Files of RoboSet as torchrl 0.14.1 reads them.

use fulmar_core::ErrorKind;
use fulmar_dataset::{open_roboset, read_roboset, split_trials};
use fulmar_ted::{Hdf5File, write_hdf5};
use fulmar_tensor::{Tensor, TensorDict, memmap};
use proptest::prelude::*;

use super::golden_rows::{assert_rows, golden, rows_of};

#[test]
fn roboset_folders_become_the_rows_of_torchrl() {
    let mut num_rows = 0;
    for row in rows_of("datasets.jsonl", "Roboset").iter().filter(|row| row["ok"].is_object()) {
        // torchrl does not split the first time: its rows are those without.
        let steps = open_roboset(golden(row["source"].as_str().unwrap())).unwrap();
        assert_rows(&steps, &row["ok"]["all"], row["id"].as_str().unwrap());
        num_rows += 1;
    }
    assert_eq!(num_rows, 3);
    let door = memmap::load(golden("processed/roboset/door")).unwrap();
    assert_rows(&door, &rows_of("datasets.jsonl", "Roboset")[0]["ok"]["all"], "processed");
}

/// A trial without a flag at its end.
fn endless(file: &mut TensorDict, name: &str, rows: usize) {
    let column = |width: usize| Tensor::from_vec_f32(&[rows, width], vec![1.0; rows * width]).unwrap();
    file.set([name, "observations"], column(2)).unwrap();
    file.set([name, "actions"], column(1)).unwrap();
    file.set([name, "rewards"], column(1)).unwrap();
    file.set([name, "done"], Tensor::from_vec(&[rows], vec![false; rows]).unwrap()).unwrap();
}

#[test]
fn a_trial_without_a_flag_at_its_end_stays_apart_from_the_next() {
    let open = |names: &[(&str, usize)]| {
        let mut file = TensorDict::new(&[]).unwrap();
        names.iter().for_each(|(name, rows)| endless(&mut file, name, *rows));
        Hdf5File::from_bytes(write_hdf5(&file).unwrap()).unwrap()
    };
    let files = [open(&[("Trial0", 2), ("Trial1", 3)]), open(&[("Trial1", 1)])];
    let split = split_trials(&read_roboset(&files).unwrap()).unwrap();
    assert_eq!(split.batch_size(), [3, 3]);
    let mask = split.tensor("mask").unwrap().to_vec::<bool>().unwrap();
    assert_eq!(mask, [true, true, false, true, true, true, true, false, false]);
}

#[test]
fn a_data_set_beside_the_trials_is_refused_by_name() {
    let mut file = TensorDict::new(&[]).unwrap();
    endless(&mut file, "Trial0", 2);
    file.set("notes", Tensor::from_vec_f32(&[1], vec![1.0]).unwrap()).unwrap();
    let error = read_roboset(&[Hdf5File::from_bytes(write_hdf5(&file).unwrap()).unwrap()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.detail().contains("notes"), "{error}");
}

#[test]
fn broken_roboset_files_are_typed_errors() {
    let mut seen = 0;
    for row in rows_of("broken.jsonl", "Roboset") {
        let path = row["files"][0].as_str().unwrap();
        let read = Hdf5File::open(golden(path)).and_then(|file| read_roboset(&[file]));
        let (case, must) = (row["case"].as_str().unwrap(), row["must"].as_str().unwrap());
        seen += 1;
        match (must.starts_with("typed error"), read) {
            (false, Ok(steps)) => assert_rows(&steps, &row["upstream"]["ok"], path),
            (false, Err(error)) => panic!("{path}: {error}"),
            (true, Ok(_)) => panic!("{path}: must be {must}"),
            (true, Err(error)) => {
                let detail = error.detail();
                assert!(detail.contains(path), "{path}: {error}");
                let key = ["rewards", "done", "extra"]
                    .iter()
                    .find(|key| must.contains("key") && path.contains(&key[..4]));
                assert!(key.is_none_or(|key| detail.contains(key)), "{path}: {error}");
                assert!(!must.contains("trial") || detail.contains("Trial"), "{path}: {error}");
                assert!(!case.contains("short") || detail.contains("4 rows: got 3"), "{path}: {error}");
            }
        }
    }
    assert_eq!(seen, 7);
}

#[test]
fn folders_without_files_are_refused() {
    let error = open_roboset(golden("raw/web")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
    assert_eq!(open_roboset(golden("raw/nothing")).unwrap_err().kind(), ErrorKind::Io);
}

/// Trials of any numbers and lengths.
fn trials() -> impl Strategy<Value = Vec<Vec<(u8, usize)>>> {
    let file = proptest::collection::btree_map(any::<u8>(), 0_usize..5, 1..4);
    proptest::collection::vec(file.prop_map(|trials| trials.into_iter().collect()), 1..4)
}

fn written(trials: &[(u8, usize)]) -> Hdf5File {
    let mut file = TensorDict::new(&[]).unwrap();
    for (number, len) in trials {
        let name = format!("Trial{number}");
        let column = |start: f32| {
            let values = (0..*len).map(|step| start + step as f32).collect();
            Tensor::from_vec_f32(&[*len], values).unwrap()
        };
        file.set([name.as_str(), "observations"], column(f32::from(*number)).unsqueeze(1).unwrap()).unwrap();
        file.set([name.as_str(), "actions"], column(0.0)).unwrap();
        file.set([name.as_str(), "rewards"], column(1.0)).unwrap();
        let done = (0..*len).map(|step| step + 1 == *len).collect::<Vec<_>>();
        file.set([name.as_str(), "done"], Tensor::from_vec(&[*len], done).unwrap()).unwrap();
    }
    Hdf5File::from_bytes(write_hdf5(&file).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn trials_come_by_number_then_by_file_step_by_step(files in trials()) {
        // The same, a step at a time.
        let mut want = Vec::new();
        for number in 0..=u8::MAX {
            for (seed, trials) in (0_i64..).zip(&files) {
                for (_, len) in trials.iter().filter(|(found, _)| *found == number) {
                    for step in 0..*len {
                        let next = if step + 1 < *len { f32::from(number) + (step + 1) as f32 } else { 0.0 };
                        want.push((i64::from(number), seed, f32::from(number) + step as f32, next, step + 1 == *len));
                    }
                }
            }
        }
        let read = read_roboset(&files.iter().map(|trials| written(trials)).collect::<Vec<_>>());
        if want.is_empty() {
            prop_assert_eq!(read.unwrap_err().kind(), ErrorKind::Empty);
            return Ok(());
        }
        let steps = read.unwrap();
        let numbers = |key: &str| steps.tensor(key).unwrap().to_vec::<i64>().unwrap();
        let (episode, seed) = (numbers("episode"), numbers("seed"));
        let observation = steps.tensor("observation").unwrap().to_f32_vec();
        let next = steps.tensor(["next", "observation"]).unwrap().to_f32_vec();
        let done = steps.tensor(["next", "terminated"]).unwrap().to_vec::<bool>().unwrap();
        let found: Vec<_> =
            (0..episode.len()).map(|row| (episode[row], seed[row], observation[row], next[row], done[row])).collect();
        prop_assert_eq!(found, want);
    }
}
