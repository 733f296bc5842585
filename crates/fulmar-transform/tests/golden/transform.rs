//! Transforms that read or write a dictionary, and the splitting of trajectories.

use fulmar_tensor::{Tensor, TensorDict};
use fulmar_transform::{
    ActionChunkTransform, BurnInTransform, Compose, SplitOptions, Transform, split_trajectories,
    split_trajectories_ragged,
};
use serde_json::{Value, json};

use crate::Outcome::{self, Decided, Same, Wrong};
use crate::value::{compared, dict, near, options};

pub(crate) fn run(row: &Value) -> Outcome {
    let input = dict(&row["input"]);
    let got = described(row).and_then(|mut transform| match row["direction"].as_str().unwrap() {
        "forward" => transform.forward(input.clone()),
        _ => transform.inverse(input.clone()).map(Option::unwrap),
    });
    let tolerance = if row["topic"] == "Resize" { 1e-4 } else { 1e-6 };
    let (got, want) = match (got, row.get("ok")) {
        (Err(_), None) => return Same,
        (Ok(got), Some(want)) => (got, dict(want)),
        (got, _) => return Wrong(format!("{got:?}")),
    };
    let outcome = compared(&got, &want, tolerance);
    if row["topic"] == "ActionChunkTransform" && outcome != Same {
        // TorchRL does not find a nested key given as a list, and then ignores ends.
        let mut endless = ActionChunkTransform::new(got.tensor("action_is_pad").unwrap().shape()[2]).unwrap();
        endless.done_key = None;
        let named = row["config"].to_string().contains("done_key");
        if named && compared(&endless.forward(input.clone()).unwrap(), &want, tolerance) == Same {
            return Decided("a list of names is a nested key");
        }
    }
    if row["topic"] == "SelectTransform" && outcome != Same {
        // Entries selected by name are the same; the rest are the end flags and rewards of `next`.
        let mut rest = got.clone();
        for name in ["reward", "done"] {
            if want.get(["next", name]).is_none() {
                rest.remove(["next", name]).unwrap();
            }
        }
        if want.get("next").is_none() && rest.dict("next").unwrap().is_empty() {
            rest.remove("next").unwrap();
        }
        if compared(&rest, &want, tolerance) == Same {
            return Decided("rewards and ends of `next` are kept, too");
        }
    }
    outcome
}

fn described(row: &Value) -> fulmar_transform::Result<Compose> {
    let topic = row["topic"].as_str().unwrap();
    let mut description = options(&row["config"]);
    // Arguments that the rows omit.
    match topic {
        "RewardScaling" => {
            description.extend([("loc".to_owned(), json!(1.0)), ("scale".to_owned(), json!(0.5))]);
        }
        "PolicyAgeFilter" if row["config"].is_null() => {
            let strict = row["note"].as_str().unwrap().ends_with("strict True");
            description.insert("strict".to_owned(), json!(strict));
        }
        _ => {}
    }
    description.insert("type".to_owned(), json!(topic));
    Compose::from_json(&json!([description]).to_string())
}

/// `h = 0.5 (is_init ? 0 : h) + x`: the first step reads `h`, the others the result of the step before.
pub(crate) fn burnt_in(row: &Value) -> Outcome {
    let model = |mut steps: TensorDict| {
        let &[sequences, len] = steps.batch_size() else { panic!() };
        let (x, h) = (steps.tensor("x")?.to_f32_vec(), steps.tensor("h")?.to_f32_vec());
        let is_init = steps.tensor("is_init")?.to_vec::<bool>()?;
        let mut next = vec![0.0_f32; x.len()];
        for at in 0..x.len() {
            let before = if at % len == 0 { h[at] } else { next[at - 1] };
            next[at] = 0.5 * if is_init[at] { 0.0 } else { before } + x[at];
        }
        steps.set(["next", "h"], Tensor::from_vec(&[sequences, len, 1], next)?)?;
        Ok(steps)
    };
    let burn_in = options(&row["config"])["burnIn"].as_u64().unwrap() as usize;
    let got = BurnInTransform::new(model, burn_in, vec!["h".into()]).forward(dict(&row["input"]));
    match (got, row.get("ok")) {
        (Err(_), None) => Same,
        (Ok(got), Some(want)) => compared(&got, &dict(want), 1e-6),
        (got, _) => Wrong(format!("{got:?}")),
    }
}

pub(crate) fn split(row: &Value) -> Outcome {
    let options: SplitOptions = serde_json::from_value(Value::Object(options(&row["config"]))).unwrap();
    let (input, want) = (dict(&row["input"]), dict(&row["ok"]));
    let outcome = compared(&split_trajectories(&input, &options).unwrap(), &want, 1e-6);
    let ragged = split_trajectories_ragged(&input, &options).unwrap();
    for key in ragged.leaf_keys() {
        let padded =
            ragged.ragged(key.clone()).unwrap().to_padded(fulmar_tensor::PadSide::Right, 0.0).unwrap();
        if !near(&padded, want.tensor(key.clone()).unwrap(), 1e-6) {
            return Wrong(format!("ragged {key}"));
        }
    }
    outcome
}
