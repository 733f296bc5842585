//! Random windows: the set of starts.

use fulmar_tensor::{Tensor, TensorDict};
use fulmar_transform::{Compose, Transform};
use serde_json::{Value, json};

use crate::Outcome::{self, Decided, Same, Wrong};
use crate::value::options;

pub(crate) fn starts(row: &Value) -> Outcome {
    let (len, size) = (row["length"].as_u64().unwrap(), row["config"]["sub_seq_len"].as_u64().unwrap());
    let mut description = options(&row["config"]);
    description.insert("type".to_owned(), json!("RandomCropTensorDict"));
    let mut crop = Compose::from_json(&json!([description]).to_string()).unwrap();
    let mut batch = TensorDict::new(&[1, len as usize]).unwrap();
    let ids = Tensor::from_vec(&[1, len as usize], (0..len as i64).collect()).unwrap();
    batch.set("id", ids).unwrap();
    let mut reached = vec![0; len as usize];
    for _ in 0..300 {
        let Ok(window) = crop.forward(batch.clone()) else {
            return if row.get("error").is_some() && size > len { Same } else { Wrong("refused".to_owned()) };
        };
        let ids = window.tensor("id").unwrap().to_vec::<i64>().unwrap();
        assert_eq!(ids.len() as u64, size);
        assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1));
        reached[ids[0] as usize] += 1;
    }
    let reached: Vec<u64> = (0..len).filter(|start| reached[*start as usize] > 0).collect();
    let all: Vec<u64> = (0..=len - size).collect();
    let theirs: Vec<u64> = row["ok"]["$dict"][0][1]
        .as_array()
        .map(|starts| starts.iter().map(|start| start.as_u64().unwrap()).collect())
        .unwrap_or_default();
    if reached == all && theirs == all[..all.len() - 1] {
        return Decided("the last window is drawn as often as the others");
    }
    Wrong(format!("{reached:?}"))
}
