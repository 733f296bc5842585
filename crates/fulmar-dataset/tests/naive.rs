//! Conversions compared with naive ones, row by row, over files of random shapes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_dataset::{
    D4rlOptions, MinariMetadata, convert_d4rl, count_episodes, read_d4rl, read_minari, split_trajectories,
    write_minari,
};
use fulmar_ted::{Hdf5Attributes, Hdf5File, write_hdf5, write_hdf5_with_texts};
use fulmar_tensor::{NonTensor, Tensor, TensorDict, memmap};
use proptest::prelude::*;

/// Columns of a D4RL file: two numbers an observation.
#[derive(Debug, Clone)]
struct Columns {
    observation: Vec<f32>,
    reward: Vec<f32>,
    terminal: Vec<bool>,
    timeout: Option<Vec<bool>>,
    next_observation: Option<Vec<f32>>,
}

fn columns() -> impl Strategy<Value = Columns> {
    (2_usize..20).prop_flat_map(|rows| {
        let numbers = |len| proptest::collection::vec(-9.0_f32..9.0, len);
        let flags = proptest::collection::vec(any::<bool>(), rows);
        (
            numbers(2 * rows),
            numbers(rows),
            flags.clone(),
            proptest::option::of(flags),
            proptest::option::of(numbers(2 * rows)),
        )
            .prop_map(|(observation, reward, terminal, timeout, next_observation)| Columns {
                observation,
                reward,
                terminal,
                timeout,
                next_observation,
            })
    })
}

fn file(columns: &Columns) -> Hdf5File {
    let rows = columns.reward.len();
    let mut dict = TensorDict::new(&[]).unwrap();
    let wide = |values: &[f32]| Tensor::from_slice(&[rows, 2], values).unwrap();
    dict.set("observations", wide(&columns.observation)).unwrap();
    dict.set("actions", wide(&columns.observation)).unwrap();
    dict.set("rewards", Tensor::from_slice(&[rows], &columns.reward).unwrap()).unwrap();
    dict.set("terminals", Tensor::from_slice(&[rows], &columns.terminal).unwrap()).unwrap();
    if let Some(timeout) = &columns.timeout {
        dict.set("timeouts", Tensor::from_slice(&[rows], timeout).unwrap()).unwrap();
    }
    if let Some(next) = &columns.next_observation {
        dict.set("next_observations", wide(next)).unwrap();
    }
    Hdf5File::from_bytes(write_hdf5(&dict).unwrap()).unwrap()
}

fn flags(steps: &TensorDict, key: &[&str]) -> Vec<bool> {
    let key = serde_json::json!(key);
    steps.tensor(fulmar_tensor::Key::unravel(&key).unwrap()).unwrap().to_vec::<bool>().unwrap()
}

#[test]
fn infos_keep_their_names_and_other_columns_replace_leaves_of_theirs() {
    let column = |first: f32| Tensor::from_vec(&[3], vec![first, first + 1.0, first + 2.0]).unwrap();
    let mut dict = TensorDict::new(&[]).unwrap();
    for (name, first) in [("observations", 1.0), ("actions", 4.0), ("rewards", 7.0), ("reward", 10.0)] {
        dict.set(name, column(first)).unwrap();
    }
    dict.set("terminals", Tensor::zeros(fulmar_core::Dtype::Bool, &[3]).unwrap()).unwrap();
    dict.set("short", Tensor::from_vec(&[2], vec![1.0_f32, 2.0]).unwrap()).unwrap();
    dict.set(["infos", "deep", "x"], column(20.0)).unwrap();
    let missions = NonTensor::shared(serde_json::json!(["go", "on", "stop"]));
    dict.set(["infos", "mission"], missions).unwrap();
    let bytes = write_hdf5_with_texts(&dict, &Hdf5Attributes::new()).unwrap();
    let source = std::env::temp_dir().join(format!("fulmar-infos-{}.hdf5", std::process::id()));
    let folder = source.with_extension("rows");
    std::fs::write(&source, &bytes).unwrap();
    assert_eq!(convert_d4rl(&source, &folder, D4rlOptions::default()), Ok(2));
    let steps = memmap::load(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::remove_file(&source).unwrap();
    let numbers = |key: &[&str]| {
        let key = fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap();
        steps.tensor(key).unwrap().to_f32_vec()
    };
    assert_eq!(numbers(&["info", "deep", "x"]), [20.0, 21.0]);
    assert_eq!(numbers(&["next", "info", "deep", "x"]), [21.0, 22.0]);
    assert_eq!(numbers(&["reward"]), [10.0, 11.0]);
    assert_eq!(numbers(&["next", "reward"]), [7.0, 8.0]);
    assert!(steps.get("short").is_none());
    let missions = |next: &TensorDict| next.dict("info").unwrap().non_tensor("mission").unwrap().to_json();
    assert_eq!(missions(&steps), serde_json::json!(["go", "on"]));
    assert_eq!(missions(steps.dict("next").unwrap()), serde_json::json!(["on", "stop"]));
    let read = read_d4rl(&Hdf5File::from_bytes(bytes).unwrap(), D4rlOptions::default()).unwrap();
    assert_eq!(read.steps, steps);
}

proptest! {
    #[test]
    fn a_d4rl_file_becomes_the_same_rows_one_by_one(columns in columns(), use_truncated_as_done in any::<bool>()) {
        let options = D4rlOptions { use_truncated_as_done, ..D4rlOptions::default() };
        let steps = read_d4rl(&file(&columns), options).unwrap().steps;
        let rows = columns.reward.len() - 1;
        prop_assert_eq!(steps.batch_size(), [rows]);
        let done = |row: usize| {
            let timeout = columns.timeout.as_ref().is_some_and(|timeout| timeout[row]);
            columns.terminal[row] || (use_truncated_as_done && timeout)
        };
        let observation = steps.tensor("observation").unwrap().to_f32_vec();
        let next = steps.tensor(["next", "observation"]).unwrap().to_f32_vec();
        let (reward, next_reward) = (
            steps.tensor("reward").unwrap().to_f32_vec(),
            steps.tensor(["next", "reward"]).unwrap().to_f32_vec(),
        );
        let (root_done, next_done) = (flags(&steps, &["done"]), flags(&steps, &["next", "done"]));
        prop_assert_eq!(steps.get("truncated").is_some(), columns.timeout.is_some());
        for row in 0..rows {
            for at in [2 * row, 2 * row + 1] {
                prop_assert_eq!(observation[at], columns.observation[at]);
                let follows = columns.next_observation.as_ref().map_or(columns.observation[at + 2], |next| next[at]);
                prop_assert_eq!(next[at], if done(row) { 0.0 } else { follows });
            }
            prop_assert_eq!(next_reward[row], columns.reward[row]);
            prop_assert_eq!(next_done[row], done(row));
            prop_assert_eq!(reward[row], if row == 0 { 0.0 } else { columns.reward[row - 1] });
            prop_assert_eq!(root_done[row], row > 0 && done(row - 1));
        }
    }

    #[test]
    fn episodes_become_rows_in_the_order_of_their_numbers(lens in proptest::collection::vec(1_usize..6, 1..13)) {
        let mut dict = TensorDict::new(&[]).unwrap();
        let mut want = Vec::new();
        for (number, len) in lens.iter().enumerate() {
            let name = format!("episode_{number}");
            let value = |step: usize| (100 * number + step) as f64;
            let mut set = |key: &str, tensor: Tensor| dict.set([name.as_str(), key], tensor).unwrap();
            set("observations", Tensor::from_vec(&[len + 1, 1], (0..=*len).map(value).collect::<Vec<_>>()).unwrap());
            set("actions", Tensor::from_vec(&[*len], vec![number as i64; *len]).unwrap());
            set("rewards", Tensor::from_vec(&[*len], (0..*len).map(value).collect::<Vec<_>>()).unwrap());
            set("terminations", Tensor::from_vec(&[*len], (1..=*len).map(|at| at == *len).collect::<Vec<_>>()).unwrap());
            set("truncations", Tensor::from_vec(&[*len], vec![false; *len]).unwrap());
            want.extend((0..*len).map(|step| (number as i64, value(step), value(step + 1), step + 1 == *len)));
        }
        let file = Hdf5File::from_bytes(write_hdf5(&dict).unwrap()).unwrap();
        let metadata = MinariMetadata::parse(&format!(
            r#"{{"total_episodes": {}, "total_steps": {}, "observation_space": "{{}}", "action_space": "{{}}"}}"#,
            lens.len(),
            lens.iter().sum::<usize>(),
        )).unwrap();
        let steps = read_minari(&file, &metadata).unwrap();
        let column = |key: &[&str]| {
            let key = fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap();
            steps.tensor(key).unwrap().to_vec::<f64>().unwrap()
        };
        let (now, next) = (column(&["observation"]), column(&["next", "observation"]));
        let episode = steps.tensor("episode").unwrap().to_vec::<i64>().unwrap();
        let done = flags(&steps, &["next", "done"]);
        prop_assert_eq!(done.len(), want.len());
        for (row, want) in want.into_iter().enumerate() {
            prop_assert_eq!((episode[row], now[row], next[row], done[row]), want);
        }
        let split = split_trajectories(&steps).unwrap();
        prop_assert_eq!(split.batch_size(), [lens.len(), lens.iter().copied().max().unwrap()]);
        let mask = flags(&split, &["mask"]);
        let values = split.tensor("observation").unwrap().to_vec::<f64>().unwrap();
        let kept: Vec<_> = values.iter().zip(&mask).filter_map(|(value, kept)| kept.then_some(*value)).collect();
        prop_assert_eq!(kept, now);
    }
}

/// Steps of episodes of these lengths: two numbers an observation, a text, an info.
fn steps_of(lens: &[usize]) -> TensorDict {
    let total: usize = lens.iter().sum();
    let mut steps = TensorDict::new(&[total]).unwrap();
    let at = |len: &usize, number: usize, step: usize| (100 * number + step.min(*len)) as f64;
    let each = |later: usize| {
        let rows = lens.iter().enumerate();
        rows.flat_map(|(number, len)| (0..*len).map(move |step| at(len, number, step + later)))
            .collect::<Vec<_>>()
    };
    for (later, prefix) in [(0, vec![]), (1, vec!["next"])] {
        let mut set = |key: &[&str], entry: fulmar_tensor::Entry| {
            let key: Vec<_> = prefix.iter().chain(key).copied().collect();
            steps.set(fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap(), entry).unwrap();
        };
        let values = each(later);
        let texts = values.iter().map(|value| serde_json::json!(format!("at {value}"))).collect();
        set(&["observation", "at"], Tensor::from_slice(&[total, 1], &values).unwrap().into());
        set(&["observation", "text"], fulmar_tensor::NonTensor::each(&[total], texts).unwrap().into());
        set(&["info", "x"], Tensor::from_slice(&[total], &values).unwrap().into());
    }
    let number: Vec<_> = lens.iter().enumerate().flat_map(|(at, len)| vec![at as i64; *len]).collect();
    steps.set("action", Tensor::from_slice(&[total], &number).unwrap()).unwrap();
    steps.set("episode", Tensor::from_vec(&[total], number).unwrap()).unwrap();
    let ends: Vec<_> = lens.iter().flat_map(|len| (1..=*len).map(move |step| step == *len)).collect();
    let rewards = Tensor::from_slice(&[total, 1], &each(0)).unwrap();
    steps.set(["next", "reward"], rewards).unwrap();
    for key in ["done", "terminated"] {
        steps.set(["next", key], Tensor::from_slice(&[total, 1], &ends).unwrap()).unwrap();
    }
    steps.set(["next", "truncated"], Tensor::from_vec(&[total, 1], vec![false; total]).unwrap()).unwrap();
    steps
}

fn read_back(steps: &TensorDict) -> TensorDict {
    let file = Hdf5File::from_bytes(write_minari(steps).unwrap()).unwrap();
    let metadata = MinariMetadata::parse(&format!(
        r#"{{"total_episodes": {}, "total_steps": {}, "observation_space": "{{}}", "action_space": "{{}}"}}"#,
        count_episodes(steps).unwrap(),
        steps.batch_size()[0],
    ))
    .unwrap();
    read_minari(&file, &metadata).unwrap()
}

proptest! {
    #[test]
    fn written_steps_are_read_back(lens in proptest::collection::vec(1_usize..6, 1..13), has_numbers in any::<bool>()) {
        let mut steps = steps_of(&lens);
        let again = if has_numbers {
            read_back(&steps)
        } else {
            let mut bare = steps.clone();
            bare.remove("episode").unwrap();
            read_back(&bare)
        };
        prop_assert_eq!(count_episodes(&steps).unwrap(), lens.len());
        for key in [vec!["observation"], vec!["next"], vec!["info"], vec!["action"], vec!["episode"]] {
            let key = fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap();
            prop_assert_eq!(sorted(again.entry(key.clone()).unwrap()), sorted(steps.entry(key).unwrap()));
        }
        // The flags are derived where only `done` is there.
        let mut next = steps.dict("next").unwrap().clone();
        next.remove("terminated").unwrap();
        next.remove("truncated").unwrap();
        steps.set("next", next).unwrap();
        let derived = read_back(&steps);
        prop_assert_eq!(derived.tensor(["next", "terminated"]).unwrap(), again.tensor(["next", "done"]).unwrap());
    }
}

/// The content in the order of keys, tensors as bytes.
fn sorted(entry: &fulmar_tensor::Entry) -> String {
    match entry {
        fulmar_tensor::Entry::Dict(dict) => {
            let mut parts: Vec<_> =
                dict.entries().map(|(name, entry)| format!("{name}: {}", sorted(entry))).collect();
            parts.sort();
            format!("{{{}}}", parts.join(", "))
        }
        fulmar_tensor::Entry::Tensor(tensor) => {
            format!("{:?} {:?} {:?}", tensor.dtype(), tensor.shape(), tensor.to_bytes())
        }
        fulmar_tensor::Entry::NonTensor(values) => values.to_json().to_string(),
        other => other.kind().to_owned(),
    }
}

#[test]
fn steps_that_the_format_cannot_hold_are_refused_by_key() {
    use fulmar_core::ErrorKind;
    let refused = |change: &dyn Fn(&mut TensorDict)| {
        let mut steps = steps_of(&[3, 2]);
        change(&mut steps);
        let error = write_minari(&steps).unwrap_err();
        (error.kind(), error.to_string())
    };
    let column = |value: Vec<i64>| Tensor::from_vec(&[5], value).unwrap();
    let check = |change: &dyn Fn(&mut TensorDict), kind: ErrorKind, part: &str| {
        let (found, text) = refused(change);
        assert!(found == kind && text.contains(part), "{found:?}: {text}");
    };
    let set_next = |key: &'static str, tensor: Tensor| {
        move |steps: &mut TensorDict| {
            steps.set(["next", key], tensor.clone()).unwrap();
        }
    };
    check(&|steps| drop(steps.remove("action")), ErrorKind::UnknownName, "action");
    check(&|steps| steps.set("rewards", column(vec![0; 5])).unwrap(), ErrorKind::Incompatible, "rewards");
    check(
        &|steps| steps.set("episode", column(vec![0, 0, 1, 0, 0])).unwrap(),
        ErrorKind::Incompatible,
        "row 3",
    );
    check(&|steps| steps.set("episode", column(vec![-1; 5])).unwrap(), ErrorKind::OutOfRange, "-1");
    check(&set_next("other", column(vec![0; 5])), ErrorKind::Incompatible, "other");
    check(
        &set_next("done", Tensor::from_vec(&[5, 1], vec![false; 5]).unwrap()),
        ErrorKind::Incompatible,
        "done",
    );
    check(
        &set_next("terminated", Tensor::from_vec(&[5, 1], vec![2_i64; 5]).unwrap()),
        ErrorKind::OutOfRange,
        "got 2",
    );
    check(
        &|steps| {
            steps
                .set(["next", "observation", "at"], Tensor::from_vec(&[5, 1], vec![0.0_f64; 5]).unwrap())
                .unwrap();
        },
        ErrorKind::Incompatible,
        "at",
    );
    assert_eq!(write_minari(&TensorDict::new(&[0]).unwrap()).unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(
        write_minari(&TensorDict::new(&[1, 1]).unwrap()).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
}
