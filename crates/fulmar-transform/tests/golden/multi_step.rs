//! Transitions over several steps. TorchRL keeps the end flags of each step, as `legacyDone` does: with it
//! all but two named differences are equal, and without it the flags are those of the last step.

use fulmar_tensor::{Tensor, TensorDict};
use fulmar_transform::{Compose, Result, Transform};
use serde_json::{Value, json};

use crate::Outcome::{self, Decided, Same, Wrong};
use crate::value::{compared, dict};

const PADDING: &str = "nothing looks into padding";
const NONTERMINAL: &str = "one step is terminal only where its trajectory ends";

pub(crate) fn post_processed(row: &Value) -> Outcome {
    let input = dict(&row["input"]);
    let run = |legacy: bool| built("MultiStep", row, legacy).and_then(|mut step| step.forward(input.clone()));
    let (got, Some(want)) = (run(true), row.get("ok")) else {
        return if run(false).is_err() { Same } else { Wrong("done".to_owned()) };
    };
    let got = got.unwrap();
    ends_are_those_of_the_arrival(&input, &run(false).unwrap(), &got);
    judged(row, &got, &dict(want))
}

pub(crate) fn written(row: &Value) -> Outcome {
    let mut transforms = match built("MultiStepTransform", row, true) {
        Ok(transforms) => transforms,
        Err(error) => return if row.get("error").is_some() { Same } else { Wrong(error.to_string()) },
    };
    let mut contents: Option<TensorDict> = None;
    let mut outcome = Same;
    for op in row["ops"].as_array().unwrap() {
        // A saved and loaded state continues in the same way.
        let state = transforms.state().unwrap();
        transforms = built("MultiStepTransform", row, true).unwrap();
        transforms.load_state(&state).unwrap();
        let stored = transforms.inverse(dict(&op["extend"])).unwrap();
        let time = dict(&op["extend"]).batch_size().len() - 1;
        contents = match (contents, stored) {
            (Some(before), Some(stored)) => Some(TensorDict::cat(&[before, stored], -1).unwrap()),
            (before, stored) => before.or(stored),
        };
        let Some(want) = op["contents"].as_object() else {
            assert!(contents.is_none());
            continue;
        };
        let mut want = dict(&Value::Object(want.clone()));
        want.remove("index").unwrap();
        // The buffer of two dimensions lists time first.
        let got = contents.clone().unwrap();
        let got = if time == 1 && got.batch_size() != want.batch_size() {
            got.transpose(0, 1).unwrap()
        } else {
            got
        };
        match judged(row, &got, &want) {
            Same => {}
            Wrong(got) => return Wrong(got),
            decided => outcome = decided,
        }
    }
    outcome
}

fn built(topic: &str, row: &Value, legacy: bool) -> Result<Compose> {
    let gamma = row["gamma"].as_f64().unwrap_or(0.5);
    let description =
        json!({ "type": topic, "nSteps": row["n_steps"], "gamma": gamma, "legacyDone": legacy });
    Compose::from_json(&json!([description]).to_string())
}

fn judged(row: &Value, got: &TensorDict, want: &TensorDict) -> Outcome {
    let outcome = compared(got, want, 1e-6);
    if outcome == Same {
        return Same;
    }
    let mask = got.tensor(["collector", "mask"]).ok().map(|mask| mask.to_vec::<bool>().unwrap());
    if let Some(mask) = mask.filter(|mask| mask.contains(&false)) {
        // Steps in front of padding, and padding itself, differ; all others are the same.
        let whole = |at: usize| {
            let len = got.batch_size()[1];
            (at / len * len..(at / len + 1) * len).all(|at| mask[at])
        };
        let rows: Vec<i64> = (0..mask.len()).filter(|at| whole(*at)).map(|at| at as i64).collect();
        let only = |dict: &TensorDict| {
            let rows = Tensor::from_vec(&[rows.len()], rows.clone()).unwrap();
            dict.reshape(&[-1]).unwrap().at(&[rows.into()]).unwrap()
        };
        return match compared(&only(got), &only(want), 1e-6) {
            Same => Decided(PADDING),
            other => other,
        };
    }
    if row["n_steps"] == 1 {
        let without = |dict: &TensorDict| dict.exclude(&["nonterminal".into()]);
        if compared(&without(got), &without(want), 1e-6) == Same {
            let ours = got.tensor("nonterminal").unwrap().to_vec::<bool>().unwrap();
            let theirs = want.tensor("nonterminal").unwrap().to_vec::<bool>().unwrap();
            assert!(ours.contains(&true) && !theirs.contains(&true));
            return Decided(NONTERMINAL);
        }
    }
    outcome
}

/// `fixed` equals `legacy` except for the end flags, which come from `stepsToNextObs - 1` steps later.
fn ends_are_those_of_the_arrival(input: &TensorDict, fixed: &TensorDict, legacy: &TensorDict) {
    let counts = fixed.tensor("steps_to_next_obs").unwrap().to_vec::<i64>().unwrap();
    for name in ["done", "terminated", "truncated"] {
        let before = input.tensor(["next", name]).unwrap().to_vec::<bool>().unwrap();
        let want: Vec<bool> = counts.iter().enumerate().map(|(at, k)| before[at + *k as usize - 1]).collect();
        assert_eq!(fixed.tensor(["next", name]).unwrap().to_vec::<bool>().unwrap(), want, "{name}");
    }
    let ends = ["done", "terminated", "truncated"].map(|name| ["next", name].into());
    assert_eq!(compared(&fixed.exclude(&ends), &legacy.exclude(&ends), 0.0), Same);
}
