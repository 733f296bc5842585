//! Every transform against TorchRL's results for the same dictionaries.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod crop;
mod multi_step;
mod order;
mod transform;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

/// The comparison of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Same,
    /// An intended difference, with its reason.
    Decided(&'static str),
    Wrong(String),
}

#[test]
fn every_row_agrees_or_has_a_named_reason() {
    let mut tally: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows("transforms").iter().chain(&rows("multistep")) {
        let topic = row["topic"].as_str().unwrap();
        let outcome = match topic {
            "MultiStep" => multi_step::post_processed(row),
            "MultiStepTransform" => multi_step::written(row),
            "RandomCropTensorDict" => crop::starts(row),
            "BurnInTransform" => transform::burnt_in(row),
            "split_trajectories" => transform::split(row),
            "transform_order" => order::run(row),
            _ => transform::run(row),
        };
        match outcome {
            Outcome::Same => *tally.entry((topic.to_owned(), "same".to_owned())).or_default() += 1,
            Outcome::Decided(reason) => *tally.entry((topic.to_owned(), reason.to_owned())).or_default() += 1,
            Outcome::Wrong(got) => wrong.push(format!("{}: {got}", row["id"])),
        }
    }
    for ((topic, outcome), count) in &tally {
        println!("{count:4} {topic}: {outcome}");
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(tally.values().sum::<usize>(), 173 + 50);
}

fn rows(name: &str) -> Vec<Value> {
    let path = format!("{}/../../tests/golden/transform/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
