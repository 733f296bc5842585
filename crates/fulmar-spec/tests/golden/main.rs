//! Every spec of `tests/golden/spec/specs.jsonl` answers as the original does, or as a named decision
//! specifies.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod answer;
mod form;
mod structure;
mod value;

use std::collections::BTreeMap;

use fulmar_spec::{TensorSpec, make_composite_from_td};
use fulmar_tensor::Entry;
use serde_json::{Value, json};

use crate::answer::{answer, encoded};
use crate::form::{argument, built, described};
use crate::structure::moved;
use crate::value::{entry, same, text};

/// The outcome of one question to a spec.
enum Outcome {
    Same,
    /// An intended difference from the original.
    Decided(&'static str),
    /// Not supported.
    Skipped(&'static str),
    Wrong(String),
}

use Outcome::{Decided, Same, Skipped, Wrong};

#[derive(Default)]
struct Tally {
    same: usize,
    decided: BTreeMap<&'static str, usize>,
    skipped: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Tally {
    fn count(&mut self, place: &str, outcome: Outcome) {
        match outcome {
            Same => self.same += 1,
            Decided(rule) => *self.decided.entry(rule).or_default() += 1,
            Skipped(kind) => *self.skipped.entry(kind.to_owned()).or_default() += 1,
            Wrong(what) => self.wrong.push(format!("{place}: {what}")),
        }
    }
}

#[test]
fn every_row_is_answered_or_named() {
    let mut tally = Tally::default();
    let rows = golden_rows();
    for row in &rows {
        let place = format!("{} {}", text(&row["id"]), row["build"]);
        match text(&row["topic"]) {
            "spec" | "composite" | "stacked" => spec_row(&mut tally, &place, row),
            "encode_checked" => {
                let spec = built(&row["build"]).unwrap();
                let want = row.get("ok");
                tally.count(&place, encoded(&spec, &row["value"], want));
            }
            "equality" => equality_row(&mut tally, row),
            "choice_errors" => tally.count(&place, Skipped("choice_errors: Rust's types exclude them")),
            "make_composite_from_td" => tally.count(&place, composite_from_td(row)),
            "check_env_specs" => {
                tally.count(&place, Skipped("check_env_specs: environments are TypeScript's"));
            }
            other => panic!("unknown topic {other}"),
        }
    }
    println!("{} rows: {} answers equal", rows.len(), tally.same);
    println!("decided otherwise: {:#?}", tally.decided);
    println!("skipped: {:#?}", tally.skipped);
    println!("wrong: {}", tally.wrong.len());
    let shown: Vec<_> =
        tally.wrong.iter().take(60).map(|line| line.chars().take(520).collect::<String>()).collect();
    assert!(tally.wrong.is_empty(), "{}", shown.join("\n"));
    assert!(tally.same >= 7_275, "no answer is lost to a decision: got {}", tally.same);
}

fn spec_row(tally: &mut Tally, place: &str, row: &Value) {
    let spec = built(&row["build"]);
    if row.get("build_error").is_some() {
        let outcome = if spec.is_err() { Same } else { Wrong("was built".to_owned()) };
        return tally.count(place, outcome);
    }
    let mut spec = match spec {
        Ok(spec) => spec,
        Err(error) => {
            let n = argument(&row["build"], 0, "n").and_then(|n| n.as_i64());
            let outcome = if text(&row["build"]["cls"]) == "Categorical" && n.is_some_and(|n| n < 1) {
                Decided("Categorical has at least one value")
            } else if text(&row["build"]["cls"]) == "Bounded" && text(&row["note"]) == "low > high" {
                Decided("low is at most high")
            } else if row["build"].get("names").is_some() {
                Decided("names are one for each dimension")
            } else {
                Wrong(format!("not built: {error}"))
            };
            return tally.count(place, outcome);
        }
    };
    let described = described(&row["spec"]);
    tally.count(
        place,
        if Ok(&spec) == described.as_ref() { Same } else { Wrong(format!("spec {:?}", spec.to_json())) },
    );
    let json = spec.to_json().to_string();
    assert_eq!(TensorSpec::from_json(&json).as_ref(), Ok(&spec), "{json}");
    let mut locked = false;
    for op in row["ops"].as_array().unwrap() {
        let name = text(&op["op"]);
        locked |= name == "lock";
        let outcome = if locked && ["lock", "set", "del", "unlock", "sub_unlock"].contains(&name) {
            Skipped("locks: a shared reference is the lock")
        } else {
            answer(&mut spec, name, op, &row["build"])
        };
        tally.count(&format!("{place}\n    {op}"), outcome);
    }
}

fn golden_rows() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/spec/specs.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 162, "the golden file is whole");
    rows
}

fn equality_row(tally: &mut Tally, row: &Value) {
    let specs: Vec<_> = row["specs"].as_array().unwrap().iter().map(|build| built(build).unwrap()).collect();
    for (left, wants) in specs.iter().zip(row["matrix"].as_array().unwrap()) {
        for (right, want) in specs.iter().zip(wants.as_array().unwrap()) {
            let got = left == right;
            if want.is_string() {
                tally.count("equality", if got { Wrong("equal".to_owned()) } else { Same });
                continue;
            }
            tally.count(
                "equality",
                same(json!(got) == *want, || format!("{left:?} == {right:?} is {got}, not {want}")),
            );
        }
    }
}

fn composite_from_td(row: &Value) -> Outcome {
    let Some(Entry::Dict(dict)) = entry(&row["input"]) else {
        return Skipped("values that no dictionary holds");
    };
    let flag = |name: &str, default| row["kwargs"].get(name).map_or(default, |flag| *flag == true);
    let got =
        make_composite_from_td(&dict, flag("unsqueeze_null_shapes", true), flag("dynamic_shape", false));
    moved(got.map(TensorSpec::from), row.get("ok"), &Value::Null)
}
