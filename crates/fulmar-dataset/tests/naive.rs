//! Conversions compared with naive ones, row by row, over files of random shapes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_dataset::{D4rlOptions, MinariMetadata, read_d4rl, read_minari, split_trajectories};
use fulmar_ted::{Hdf5File, write_hdf5};
use fulmar_tensor::{Tensor, TensorDict};
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
