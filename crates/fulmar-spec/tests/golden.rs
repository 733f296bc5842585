//! Every spec of `tests/golden/spec/specs.jsonl` answers as the original does, or as a named decision says.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use fulmar_core::{Dtype, Rng};
use fulmar_spec::{At, Shape, TensorSpec};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::{Map, Value, json};

/// What became of one question to a spec.
enum Outcome {
    Same,
    /// The original answers otherwise, on purpose of ours.
    Decided(&'static str),
    /// Not built.
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
            "make_composite_from_td" => tally.count(&place, Skipped("make_composite_from_td")),
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
    assert!(tally.same >= 7_167, "no answer is lost to a decision: got {}", tally.same);
}

fn spec_row(tally: &mut Tally, place: &str, row: &Value) {
    let spec = built(&row["build"]);
    if row.get("build_error").is_some() {
        let outcome = if spec.is_err() { Same } else { Wrong("was built".to_owned()) };
        return tally.count(place, outcome);
    }
    if row["build"].get("names").is_some() {
        return tally.count(place, Skipped("names of dimensions"));
    }
    let mut spec = match spec {
        Ok(spec) => spec,
        Err(error) => {
            let n = argument(&row["build"], 0, "n").and_then(|n| n.as_i64());
            let outcome = if text(&row["build"]["cls"]) == "Categorical" && n.is_some_and(|n| n < 1) {
                Decided("Categorical has at least one value")
            } else if text(&row["build"]["cls"]) == "Bounded" && text(&row["note"]) == "low > high" {
                Decided("low is at most high")
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

fn answer(spec: &mut TensorSpec, name: &str, op: &Value, build: &Value) -> Outcome {
    let want = op.get("ok");
    if want.is_some_and(|want| want.to_string().contains("malformed_result")) {
        return Skipped("answers that the original cannot describe");
    }
    match name {
        "zero" | "one" => {
            let batch = op.get("shape").map(sizes).unwrap_or_default();
            let got = if name == "zero" { spec.zero(&batch) } else { spec.one(&batch) };
            match (got, want) {
                (Ok(got), Some(want)) => value_equals(&got, want, true),
                (Ok(_), None) => Decided("ones of every kind"),
                (Err(error), Some(_)) => stacked_refusal(spec, Some(error.detail())),
                (Err(_), None) => Same,
            }
        }
        "cardinality" => match (spec.cardinality(), want) {
            (Err(_), None) => Same,
            (Ok(_), Some(_)) if has_binary(build) => Decided("Binary has 2^n values"),
            (Ok(Some(1)), Some(want)) if *want == 0 => Decided("an empty dictionary has one value"),
            (Ok(None), Some(want)) if want == "Infinity" => Same,
            (Ok(None), None) => Decided("an endless spec has no number of values, which is no error"),
            (Ok(Some(got)), Some(want)) => {
                let want = want.as_u64().or_else(|| want["d"][0].as_u64());
                if want.map(u128::from) == Some(got) { Same } else { Wrong(format!("{got}")) }
            }
            (got, _) => Wrong(format!("{got:?}")),
        },
        "ndim" => {
            if json!(spec.shape().rank()) == *want.unwrap() {
                Same
            } else {
                Wrong(spec.shape().to_string())
            }
        }
        "rand_shape" => rand_shape(spec, op, build),
        "rand_support" => rand_support(spec, want),
        "rand_ok" | "rand_in" => match spec.rand(&mut Rng::new(3), &[]) {
            Ok(value) if spec.contains(&value) => Same,
            got => stacked_refusal(spec, got.err().as_ref().map(fulmar_core::Error::detail)),
        },
        "is_in_zero" => match spec.zero(&[]).map(|zero| spec.contains(&zero)) {
            Ok(got) => match want {
                Some(want) => same(json!(got) == *want.get("d").map_or(want, |d| &d[0]), || got.to_string()),
                None => Decided("a stack along any dimension is checked"),
            },
            Err(error) => stacked_refusal(spec, Some(error.detail())),
        },
        "enumerate" => {
            let use_mask = op["args"][0].as_bool().unwrap_or(false);
            match (spec.enumerate(use_mask), want) {
                (Err(_), None) => Same,
                (Ok(_), Some(_)) if has_binary(build) => Decided("Binary has 2^n values"),
                (Ok(_), Some(want)) if want["k"] == json!({}) => Decided("an empty dictionary has one value"),
                (Ok(got), Some(want)) => value_equals(&got, want, false),
                (Ok(_), None) => Decided("what may be anything is left out of an enumeration"),
                (Err(_), Some(_)) if spec.kind().starts_with("Stacked") => Skipped("enumerate of stacks"),
                (Err(error), Some(_)) => Wrong(error.to_string()),
            }
        }
        "is_in" => is_in(spec, op, build),
        "project" => projected(spec, op, build),
        "encode" if op.get("value").is_some() => encoded(spec, &op["value"], want),
        "encode" => Decided("a dictionary is encoded whole"),
        "to_numpy" => decoded(spec, op),
        "expand" => moved(spec.expand(shape(&op["shape"])), want, build),
        "unsqueeze" => {
            let rank = spec.shape().rank() as i64;
            let dim = op.get("dim").and_then(Value::as_i64).unwrap_or(0);
            let dim = if dim < 0 { dim + rank + 1 } else { dim };
            moved(spec.unsqueeze(dim as usize), want, build)
        }
        "squeeze" if op.get("after_unsqueeze").is_some() => {
            moved(spec.unsqueeze(0).and_then(|spec| spec.squeeze(0)), want, build)
        }
        "squeeze" => moved(spec.squeeze_all(), want, build),
        "unsqueeze_squeeze" => moved(spec.unsqueeze(0).and_then(|spec| spec.squeeze(0)), want, build),
        "index_expanded" => match index(&op["index"], &expanded(spec, &op["expanded_by"]).shape()) {
            Some(index) => indexed(moved(expanded(spec, &op["expanded_by"]).at(&index), want, build), build),
            None if want.is_none() => Same,
            None => Skipped("index by keys"),
        },
        "reshape_expanded" => {
            let target = shape(&op["shape"]);
            moved(expanded(spec, &op["expanded_by"]).reshape(target), want, build)
        }
        "flatten_expanded" => moved(expanded(spec, &op["expanded_by"]).flatten(0, 1), want, build),
        "unflatten_expanded" => {
            moved(expanded(spec, &json!([6])).unflatten(0, shape(&op["sizes"])), want, build)
        }
        "unbind_expanded" | "unbind" => {
            let dim = op.get("dim").and_then(Value::as_u64).unwrap_or(0) as usize;
            let from = if name == "unbind" { spec.clone() } else { expanded(spec, &op["expanded_by"]) };
            let dim = if name == "unbind" && op.get("dim").is_none() { stack_dim(build) } else { dim };
            match (from.unbind(dim), want) {
                (Ok(parts), Some(want)) => {
                    let want = want.as_array().unwrap();
                    let all =
                        parts.iter().zip(want).map(|(part, want)| moved(Ok(part.clone()), Some(want), build));
                    let first_bad = all.into_iter().find(|outcome| !matches!(outcome, Same));
                    if parts.len() == want.len() {
                        first_bad.unwrap_or(Same)
                    } else {
                        Wrong(parts.len().to_string())
                    }
                }
                (Ok(_), None) => Decided("what can be indexed can be unbound"),
                (Err(_), None) => Same,
                (Err(error), Some(_)) => Wrong(error.to_string()),
            }
        }
        "eq_clone" | "clone_eq" => {
            let Some(want) = want else { return Decided("a spec equals its clone") };
            let want = if want.is_object() { &want["d"][0] } else { want };
            same(json!(*spec == spec.clone()) == *want, String::new)
        }
        "eq_expand" => {
            let got = spec.expand([&[Some(2)], spec.shape().dims()].concat()).unwrap() == *spec;
            match want {
                Some(want) if json!(got) == *want => Same,
                _ if !got => Decided("specs of two shapes differ"),
                _ => Wrong(got.to_string()),
            }
        }
        "to_f64" | "to" => moved(spec.to_dtype(Dtype::F64), want, build),
        "to_i64" => moved(spec.to_dtype(Dtype::I64), want, build),
        "to_one_hot_spec" => moved(spec.to_one_hot_spec(), want, build),
        "to_categorical_spec" => moved(spec.to_categorical_spec(), want, build),
        "to_one_hot" | "to_categorical" => {
            let value = tensor(&op["value"]);
            let got =
                if name == "to_one_hot" { spec.to_one_hot(&value) } else { spec.to_categorical(&value) };
            match (got, want) {
                (Ok(got), Some(want)) => value_equals(&got.into(), want, false),
                (got, want) => same(got.is_err() && want.is_none(), || format!("{got:?}")),
            }
        }
        "update_mask" => {
            spec.update_mask(Some(tensor(&op["mask"]))).unwrap();
            moved(Ok(spec.clone()), want, build)
        }
        "keys" | "keys_nested" | "keys_leaves" => keys(spec, name, want.unwrap()),
        "is_empty" => match spec {
            TensorSpec::Composite(composite) => {
                same(json!(composite.entries().count() == 0) == *want.unwrap(), String::new)
            }
            _ => Skipped("keys of stacked dictionaries"),
        },
        "set" | "del" | "pop" | "get" => dictionary(spec, name, op),
        "getitem" => getitem(spec, op, build),
        "empty" => Skipped("empty"),
        "contains_lazy" => Skipped("contains_lazy_spec"),
        "no_exclusive" => Skipped("check_no_exclusive_keys"),
        "consolidate" => Skipped("consolidate_spec"),
        "index" => Skipped("index"),
        "split" => {
            if want.is_none() {
                Same
            } else {
                Skipped("split")
            }
        }
        "refine_names" => Skipped("names of dimensions"),
        "lock" | "unlock" | "sub_unlock" => Skipped("locks: a shared reference is the lock"),
        other => panic!("unknown op {other}"),
    }
}

fn rand_shape(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
    let (got, Some(want)) = (spec.rand(&mut Rng::new(7), &sizes(&op["shape"])), op.get("ok")) else {
        return Wrong("the original refuses".to_owned());
    };
    let got = got.unwrap();
    assert!(spec.contains(&got), "{:?}", spec.check(&got));
    let Entry::Tensor(tensor) = got else {
        return Skipped("shapes of JSON values, which have none when shared");
    };
    if json!(tensor.shape()) == want["$dict"][0][1] {
        Same
    } else if build["cls"] == "MultiCategorical" && tensor.shape() == [4, 1] {
        Decided("a draw has the shape of the spec, also for one choice")
    } else {
        Wrong(format!("{:?}", tensor.shape()))
    }
}

/// What the original draws lies in our domain.
fn rand_support(spec: &TensorSpec, want: Option<&Value>) -> Outcome {
    let Some(dtype) = spec.dtype() else { return Skipped("rand_support of JSON values") };
    let Some(want) = want else { return Wrong("the original refuses".to_owned()) };
    let Some(want) = want.as_array() else { return Skipped("rand_support of more values than were listed") };
    for value in want {
        let flat: Vec<Value> = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let value = tensor(&json!({ "$t": torch_name(dtype), "s": spec.shape().sizes(), "d": flat }));
        if let Err(error) = spec.check(&value.into()) {
            return Wrong(error.to_string());
        }
    }
    Same
}

fn is_in(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
    let Some(value) = entry(&op["value"]) else { return Skipped("values that no dictionary holds") };
    let got = spec.contains(&value);
    let want = op.get("ok").map(|want| if want.is_object() { want["d"][0] == true } else { *want == true });
    match (got, want) {
        (got, Some(want)) if got == want => Same,
        (false, None) => Same,
        (false, Some(true)) if op["value"].to_string().contains("NaN") => Decided("NaN is in no domain"),
        (false, Some(true)) if masked(build) => Decided("a masked one-hot has one 1"),
        (false, Some(true)) if op["value"].to_string().contains('-') && spec.kind() == "OneHot" => {
            Decided("a one-hot holds one 1 and zeros")
        }
        (false, Some(true)) if !ends(spec, &value) => Decided("a value is not broadcast to its spec"),
        (got, _) => Wrong(format!("{got}, {:?}", spec.check(&value))),
    }
}

fn projected(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
    let value = entry(&op["value"]).unwrap();
    let got = match spec.project(&value) {
        Ok(got) => got,
        Err(_) if op.get("ok").is_none() => return Same,
        Err(_) if !ends(spec, &value) => return Decided("a value is not broadcast to its spec"),
        Err(error) => return Wrong(error.to_string()),
    };
    if let Err(error) = spec.check(&got) {
        return Wrong(format!("projected outside: {error}"));
    }
    let Some(want) = op.get("ok") else { return Decided("every dtype and class can be projected") };
    let outcome = value_equals(&got, want, true);
    match (outcome, entry(want)) {
        (Same, _) => Same,
        (_, Some(want)) if !spec.contains(&cast_like(spec, &want)) => {
            Decided("a projection is in the domain")
        }
        _ if masked(build) => Decided("a masked projection is the nearest, no draw"),
        _ if op["value"]["d"].to_string().contains('-')
            && build["cls"].as_str().unwrap().starts_with("Unbounded") =>
        {
            Decided("integers saturate, they do not wrap")
        }
        (other, _) => other,
    }
}

fn encoded(spec: &TensorSpec, value: &Value, want: Option<&Value>) -> Outcome {
    let plain = match value.get("$t").or(value.get("$np")) {
        Some(_) => nested(&value["s"], &value["d"]),
        None => value.clone(),
    };
    let got = spec.encode(&plain);
    match (got, want) {
        (Err(_), None) => Same,
        (Ok(got), Some(want)) => match value_equals(&got, want, true) {
            Wrong(_) if spec.kind().ends_with("OneHot") => {
                Decided("a one-hot value is encoded from one index for each choice")
            }
            other => other,
        },
        (Ok(_), None) if spec.kind().ends_with("OneHot") => {
            Decided("a one-hot value is encoded from one index for each choice")
        }
        (Ok(_), None) if plain.is_boolean() => Decided("a bool is 0 or 1"),
        (Ok(got), None) => Wrong(format!("{got:?}")),
        (Err(error), Some(want)) => {
            let want = entry(want).unwrap();
            if !spec.contains(&cast_like(spec, &want)) {
                Decided("what is encoded is checked")
            } else if spec.kind().ends_with("OneHot") {
                Decided("a one-hot value is encoded from one index for each choice")
            } else if spec.dtype() == Some(Dtype::Bool) {
                Decided("a bool is 0 or 1")
            } else if plain.to_string().contains('.') {
                Decided("a fraction is no integer")
            } else if shape_of(&want) != Some(spec.shape().sizes()) || plain.is_array() {
                Decided("what is encoded has the shape of the spec")
            } else {
                Wrong(error.to_string())
            }
        }
    }
}

fn decoded(spec: &TensorSpec, op: &Value) -> Outcome {
    let Some(value) = entry(&op["value"]) else { return Skipped("values that no dictionary holds") };
    match (spec.decode(&value), op.get("ok")) {
        (Ok(got), Some(want)) if want.get("$np").is_some() => {
            same(numbers(&got) == numbers(&nested(&want["s"], &want["d"])), || got.to_string())
        }
        (Err(_), None) => Same,
        (Err(_), Some(_)) if !spec.contains(&value) => Decided("what is decoded is checked"),
        (Ok(_), _) => Skipped("to_numpy of dictionaries and JSON values"),
        (Err(error), _) => Wrong(error.to_string()),
    }
}

/// A spec after a structural operation against its description.
fn moved(got: fulmar_spec::Result<TensorSpec>, want: Option<&Value>, build: &Value) -> Outcome {
    let Some(want) = want else {
        return match got {
            Err(_) => Same,
            Ok(_) if build.to_string().contains("[-1,") => {
                Decided("the known dimensions of a dynamic spec are reshaped")
            }
            Ok(_) if build["cls"] == "OneHot" => Decided("squeezing leaves the last dimension of a one-hot"),
            Ok(_) if build["cls"] == "MultiCategorical" => Decided("nvec is reshaped with its spec"),
            Ok(_)
                if build["cls"] == "Bounded"
                    || build["cls"] == "BoundedContinuous"
                    || build["cls"] == "BoundedDiscrete" =>
            {
                Decided("bounds are reshaped with their spec")
            }
            Ok(_) if build["cls"] == "Choice" => Decided("a choice is indexed as its specs are"),
            Ok(_) if build.to_string().contains("null") => {
                Decided("an entry that may be anything is passed over")
            }
            Ok(_) if masked(build) => Decided("masks are kept"),
            Ok(got) => Wrong(got.to_json().to_string()),
        };
    };
    let want = match described(&want["spec"]) {
        Ok(want) => want,
        Err(_) if build.to_string().contains("Infinity") => return Decided("infinite bounds saturate"),
        Err(_) if build["cls"] == "OneHot" => return Decided("the last dimension of a one-hot is n"),
        Err(error) => return Wrong(format!("the description cannot be read: {error}")),
    };
    let mut got = match got {
        Ok(got) => got,
        Err(_) if build["cls"] == "OneHot" => return Decided("the last dimension of a one-hot is n"),
        Err(_) if build["cls"] == "MultiCategorical" && want.kind() == "Stacked" => {
            return Skipped("one-hots of nested nvec");
        }
        Err(_) if build["cls"] == "MultiCategorical" => {
            return Decided("the choices of a cell are not indexed");
        }
        Err(_) if want.shape() == [5].into() => {
            return Decided("an expansion drops no dimension");
        }
        Err(_) if want.shape().dims().iter().filter(|dim| dim.is_none()).count() > 1 => {
            return Decided("one dimension is counted, not two");
        }
        Err(error) => return Wrong(error.to_string()),
    };
    if got == want {
        return Same;
    }
    if build.to_string().contains("Infinity") && got.dtype() == Some(Dtype::I64) {
        return Decided("infinite bounds saturate");
    }
    if build["cls"] == "MultiCategorical" && got.shape().rank() == want.shape().rank() {
        return Decided("the choices of a cell are not indexed");
    }
    if build["cls"] == "NonTensor" && got.shape() == want.shape() {
        return Decided("what is batched stays batched");
    }
    if want.shape() == [1].into() && got.shape() == [].into() {
        return Decided("every dimension of length 1 is squeezed");
    }
    if masked(build) && want.mask().is_some() && got.shape() == want.shape() {
        return Decided("a mask is indexed as its spec is");
    }
    if masked(build) && want.mask().is_none() && got.mask().is_some() {
        got.update_mask(None).unwrap();
        if got == want {
            return Decided("masks are kept");
        }
    }
    if want.shape().dims().contains(&None) && !got.shape().dims().contains(&None) {
        return Decided("a dynamic dimension of a reshape is counted");
    }
    Wrong(format!("got {}\nwant {}", got.to_json(), want.to_json()))
}

fn keys(spec: &TensorSpec, name: &str, want: &Value) -> Outcome {
    let TensorSpec::Composite(composite) = spec else { return Skipped("keys of stacked dictionaries") };
    let path = |path: &[String]| if let [name] = path { json!(name) } else { json!(path) };
    let got: Vec<Value> = match name {
        "keys" => composite.entries().map(|(name, _)| json!(name)).collect(),
        "keys_nested" => composite.nested_keys().iter().map(|key| path(key.path())).collect(),
        _ => composite.leaf_keys().iter().map(|key| path(key.path())).collect(),
    };
    same(json!(got) == *want, || json!(got).to_string())
}

fn dictionary(spec: &mut TensorSpec, name: &str, op: &Value) -> Outcome {
    let TensorSpec::Composite(composite) = spec else { return Skipped("keys of stacked dictionaries") };
    let path = |key: &Value| -> Vec<String> {
        let key = key.get("$tuple").unwrap_or(key);
        key.as_array().map_or_else(
            || vec![text(key).to_owned()],
            |names| names.iter().map(|name| text(name).to_owned()).collect(),
        )
    };
    match name {
        "set" => {
            let set = composite.set(path(&op["key"]), built(&op["value"]).unwrap());
            moved(set.map(|()| spec.clone()), op.get("ok"), &json!({}))
        }
        "get" => same(composite.get(path(&op["args"][0])).is_none(), || "found".to_owned()),
        "pop" => {
            let found = composite.get(path(&op["args"][0])).cloned();
            assert_eq!(composite.remove(path(&op["args"][0])), found.is_some());
            match found {
                Some(found) => moved(Ok(found), op.get("ok"), &json!({})),
                None => same(op.get("ok").is_none(), || "missing".to_owned()),
            }
        }
        _ => same(composite.remove(path(&op["key"])) == op.get("ok").is_some(), || "del".to_owned()),
    }
}

fn getitem(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
    if let (Some(key), TensorSpec::Composite(composite)) = (op.get("key"), spec) {
        let key = key.get("$tuple").unwrap_or(key);
        let path: Vec<String> = key.as_array().map_or_else(
            || vec![text(key).to_owned()],
            |names| names.iter().map(|name| text(name).to_owned()).collect(),
        );
        return match (composite.get(path), op.get("ok")) {
            (Some(found), want) => moved(Ok(found.clone()), want, build),
            (None, want) => same(want.is_none(), || "missing".to_owned()),
        };
    }
    match index(&op["index"], &spec.shape()) {
        Some(index) => indexed(moved(spec.at(&index), op.get("ok"), build), build),
        None if op.get("ok").is_none() => Same,
        None => Skipped("index by keys"),
    }
}

/// The original indexes a stack along the stacked dimension alone, or its specs by what is left of the index.
fn indexed(outcome: Outcome, build: &Value) -> Outcome {
    match outcome {
        Wrong(_) if build["cls"] == "stack" => Decided("a stack is indexed dimension by dimension"),
        other => other,
    }
}

/// Stacks of different shapes have no value but a ragged one.
fn stacked_refusal(spec: &TensorSpec, error: Option<&str>) -> Outcome {
    if spec.kind().starts_with("Stacked") && error.is_some() {
        return Skipped("values of stacks whose shapes or keys differ");
    }
    Wrong(format!("{error:?}"))
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

/// The spec that a call of the original's constructor makes.
fn built(build: &Value) -> fulmar_spec::Result<TensorSpec> {
    if build["cls"] == "stack" {
        let specs =
            build["specs"].as_array().unwrap().iter().map(built).collect::<fulmar_spec::Result<Vec<_>>>()?;
        let rank = specs[0].shape().rank() as i64;
        let dim = build["dim"].as_i64().unwrap();
        return TensorSpec::stack(&specs, if dim < 0 { dim + rank + 1 } else { dim } as usize);
    }
    TensorSpec::from_json(&constructor(build).to_string())
}

fn constructor(build: &Value) -> Value {
    if build.is_null() {
        return Value::Null;
    }
    let class = text(&build["cls"]);
    let mut form = Map::new();
    let kind = class.trim_end_matches("Continuous").trim_end_matches("Discrete");
    form.insert("type".to_owned(), json!(kind));
    let positions: &[&str] = match kind {
        "Unbounded" | "NonTensor" => &["shape"],
        "Bounded" => &["low", "high", "shape"],
        "Categorical" | "OneHot" | "Binary" => &["n", "shape"],
        "MultiCategorical" | "MultiOneHot" => &["nvec", "shape"],
        "Choice" => {
            let choices = build["choices"].as_array().unwrap();
            return match choices.first().and_then(|first| first.get("$nt")) {
                Some(_) => {
                    json!({ "type": "Choice", "shape": choices[0]["b"], "values": choices.iter().map(|nt| &nt["$nt"]).collect::<Vec<_>>() })
                }
                None => {
                    json!({ "type": "Choice", "choices": choices.iter().map(constructor).collect::<Vec<_>>() })
                }
            };
        }
        "Composite" => {
            let entries: Map<_, _> = build["k"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, spec)| (name.clone(), constructor(spec)))
                .collect();
            return json!({ "type": "Composite", "shape": build["shape"], "entries": entries });
        }
        other => panic!("unknown class {other}"),
    };
    for (at, name) in positions.iter().enumerate() {
        if let Some(value) = argument(build, at, name) {
            form.insert((*name).to_owned(), value);
        }
    }
    for (from, to) in
        [("dtype", "dtype"), ("mask", "mask"), ("example_data", "example"), ("batched", "batched")]
    {
        if let Some(value) = argument(build, usize::MAX, from) {
            form.insert(to.to_owned(), value);
        }
    }
    if class == "UnboundedDiscrete" && !form.contains_key("dtype") {
        form.insert("dtype".to_owned(), json!("i64"));
    }
    Value::Object(form)
}

fn argument(build: &Value, at: usize, name: &str) -> Option<Value> {
    let value = build["kwargs"].get(name).or_else(|| build["args"].get(at))?;
    Some(if let Some(dims) = value.get("$tuple") {
        dims.clone()
    } else if let Some(dtype) = value.get("$dtype") {
        json!(dtype_of(text(dtype)).name())
    } else if value.get("$t").is_some() {
        nested(&value["s"], &value["d"])
    } else {
        value.clone()
    })
}

/// The spec that the original describes.
fn described(spec: &Value) -> fulmar_spec::Result<TensorSpec> {
    TensorSpec::from_json(&description(spec).to_string())
}

fn description(spec: &Value) -> Value {
    if spec.is_null() {
        return Value::Null;
    }
    let class = text(&spec["cls"]);
    let kind = class.trim_end_matches("Continuous").trim_end_matches("Discrete");
    let table = |name: &str| {
        spec.get(name)
            .map(|table| if table.is_object() { nested(&table["s"], &table["d"]) } else { table.clone() })
    };
    let mut form = json!({ "type": kind, "shape": spec["shape"] });
    match kind {
        "Composite" => {
            let entries: Map<_, _> = spec["k"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, spec)| (name.clone(), description(spec)))
                .collect();
            form["entries"] = Value::Object(entries);
            return form;
        }
        "Choice" => {
            let choices = spec["choices"].as_array().unwrap();
            let mut first = |value: &Value| {
                let mut value = value.get("$nt").or(value.get("$nts")).unwrap().clone();
                for _ in 0..choices[0]["b"].as_array().map_or(0, Vec::len) {
                    value = if value.is_array() { value[0].clone() } else { value };
                }
                value
            };
            if choices[0].get("cls").is_some() {
                return json!({ "type": "Choice", "choices": choices.iter().map(description).collect::<Vec<_>>() });
            }
            form["values"] = choices.iter().map(&mut first).collect();
            return form;
        }
        "Stacked" | "StackedComposite" => {
            let specs: Vec<_> = spec["specs"].as_array().unwrap().iter().map(description).collect();
            return json!({ "type": "Stacked", "dim": spec["stack_dim"], "specs": specs });
        }
        "NonTensor" => {
            form["example"] = spec["example_data"].clone();
            form["batched"] = spec["batched"].clone();
            return form;
        }
        _ => {}
    }
    form["dtype"] = json!(dtype_of(text(&spec["dtype"])).name());
    let tables: &[&str] = match kind {
        "Bounded" => &["low", "high"],
        "Categorical" | "OneHot" => &["n", "mask"],
        "MultiCategorical" | "MultiOneHot" => &["nvec", "mask"],
        _ => &[],
    };
    for name in tables {
        if let Some(value) = table(name) {
            form[*name] = value;
        }
    }
    form
}

fn expanded(spec: &TensorSpec, by: &Value) -> TensorSpec {
    let shape = spec.shape();
    let by = shape_of_json(by);
    spec.expand([by.dims(), shape.dims()].concat()).unwrap()
}

/// The parts of an index; nothing if it holds what ours does not.
fn index(index: &Value, shape: &Shape) -> Option<Vec<At>> {
    let parts =
        index.get("$tuple").map_or_else(|| vec![index.clone()], |parts| parts.as_array().unwrap().clone());
    let mut out = Vec::new();
    let named = parts.iter().filter(|part| part.get("$ellipsis").is_none() && !part.is_null()).count();
    let mut dim = 0;
    for part in parts {
        let len = shape.dims().get(dim).copied().flatten();
        let wrap = |at: i64| {
            if at < 0 { usize::try_from(at + len.unwrap_or(0) as i64).ok() } else { Some(at as usize) }
        };
        out.push(if part.get("$ellipsis").is_some() {
            dim += shape.rank().saturating_sub(named);
            At::Ellipsis
        } else if part.is_null() {
            At::New
        } else {
            dim += 1;
            if let Some(at) = part.as_i64() {
                At::Index(wrap(at).unwrap_or(usize::MAX))
            } else if let Some(slice) = part.get("$slice") {
                if slice[2].as_i64().is_some_and(|step| step != 1) {
                    return None;
                }
                if slice[0].is_null() && slice[1].is_null() {
                    At::All
                } else {
                    let end = slice[1].as_i64().map_or(len, wrap)?;
                    At::Range(slice[0].as_i64().map_or(Some(0), wrap)?..end.min(len.unwrap_or(end)))
                }
            } else if let Some(list) = part.as_array() {
                At::Indices(list.iter().map(|at| at.as_i64().and_then(wrap)).collect::<Option<_>>()?)
            } else if part["$t"] == "bool" {
                let flags = part["d"].as_array()?.iter().enumerate();
                At::Indices(flags.filter(|(_, flag)| **flag == true).map(|(at, _)| at).collect())
            } else if part["$t"] == "int64" {
                At::Indices(
                    part["d"]
                        .as_array()?
                        .iter()
                        .map(|at| at.as_i64().and_then(wrap))
                        .collect::<Option<_>>()?,
                )
            } else if let Some(range) = part.get("$range") {
                At::Indices((range[0].as_u64()? as usize..range[1].as_u64()? as usize).collect())
            } else {
                return None;
            }
        });
    }
    Some(out)
}

fn value_equals(got: &Entry, want: &Value, any_dtype: bool) -> Outcome {
    let equal = match got {
        Entry::Tensor(tensor) => match want.get("$t") {
            Some(dtype) => {
                json!(tensor.shape()) == want["s"]
                    && (any_dtype || dtype_of(text(dtype)) == tensor.dtype())
                    && elements(tensor) == numbers(&want["d"])
            }
            None => false,
        },
        Entry::Dict(dict) => match want.get("$td") {
            Some(batch) => {
                let entries = want["k"].as_object().unwrap();
                json!(dict.batch_size()) == *batch
                    && dict.num_entries() == entries.len()
                    && entries.iter().all(|(name, want)| {
                        dict.get(name.as_str())
                            .is_some_and(|got| matches!(value_equals(got, want, any_dtype), Same))
                    })
            }
            None => false,
        },
        Entry::NonTensor(values) => {
            let shown = values.to_json();
            let want = want.get("$nt").or(want.get("$nts")).cloned().unwrap_or_default();
            shown == want || all_are(&want, &shown) || all_are(&shown, &want)
        }
        Entry::Ragged(ragged) => want.get("$njt").and_then(Value::as_array).is_some_and(|rows| {
            rows.len() == ragged.num_rows()
                && rows.iter().enumerate().all(|(at, row)| {
                    matches!(value_equals(&ragged.row(at).unwrap().into(), row, any_dtype), Same)
                })
        }),
    };
    if let (false, Some(rows), Entry::Tensor(tensor)) =
        (equal, want.get("$njt").and_then(Value::as_array), got)
    {
        let parts = (0..rows.len()).all(|at| {
            matches!(value_equals(&tensor.select(0, at).unwrap().into(), &rows[at], any_dtype), Same)
        });
        return same(parts, || format!("{got:?}"));
    }
    same(equal, || format!("{got:?}"))
}

fn all_are(nested: &Value, one: &Value) -> bool {
    nested.as_array().is_some_and(|values| values.iter().all(|value| value == one || all_are(value, one)))
}

fn same(equal: bool, got: impl FnOnce() -> String) -> Outcome {
    if equal { Same } else { Wrong(got()) }
}

/// A golden value; nothing for what no [`Entry`] holds.
fn entry(value: &Value) -> Option<Entry> {
    if value.get("$t").is_some() {
        return Some(tensor(value).into());
    }
    if let Some(batch) = value.get("$td") {
        let mut dict = TensorDict::new(&sizes(batch)).unwrap();
        for (name, value) in value["k"].as_object().unwrap() {
            dict.set(name.as_str(), entry(value)?).unwrap();
        }
        return Some(dict.into());
    }
    Some(NonTensor::shared(value.get("$nt")?.clone()).into())
}

fn tensor(value: &Value) -> Tensor {
    let dtype = dtype_of(text(&value["$t"]));
    let bits: Vec<f64> = numbers(&value["d"]);
    let bytes: Vec<u8> = bits
        .iter()
        .flat_map(|x| match dtype {
            Dtype::F64 => x.to_le_bytes().to_vec(),
            Dtype::F32 => (*x as f32).to_le_bytes().to_vec(),
            Dtype::F16 => fulmar_tensor::f16::from_f64(*x).to_le_bytes().to_vec(),
            Dtype::Bf16 => fulmar_tensor::bf16::from_f64(*x).to_le_bytes().to_vec(),
            Dtype::I64 => (*x as i64).to_le_bytes().to_vec(),
            Dtype::I32 => (*x as i32).to_le_bytes().to_vec(),
            Dtype::I16 => (*x as i16).to_le_bytes().to_vec(),
            Dtype::I8 => (*x as i8).to_le_bytes().to_vec(),
            Dtype::U8 => vec![*x as u8],
            Dtype::U32 => (*x as u32).to_le_bytes().to_vec(),
            Dtype::Bool => vec![u8::from(*x != 0.0)],
        })
        .collect();
    Tensor::from_bytes(dtype, &sizes(&value["s"]), &bytes).unwrap()
}

/// The elements as texts of doubles, so that NaN equals NaN.
fn elements(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        Dtype::F64 => tensor.to_vec::<f64>().unwrap(),
        Dtype::I64 => tensor.to_vec::<i64>().unwrap().into_iter().map(|x| x as f64).collect(),
        Dtype::I32 => tensor.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
        _ => tensor.to_f32_vec().into_iter().map(f64::from).collect(),
    }
}

/// All numbers of nested arrays, in order.
fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        Value::Bool(value) => vec![f64::from(u8::from(*value))],
        Value::String(text) => vec![match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            _ => f64::NEG_INFINITY,
        }],
        number => vec![number.as_f64().unwrap()],
    }
}

/// Tensors of `value` as the dtypes of `spec`, for comparisons that leave the dtype aside.
fn cast_like(spec: &TensorSpec, value: &Entry) -> Entry {
    let (Entry::Tensor(value), Some(dtype)) = (value, spec.dtype()) else { return value.clone() };
    let flat: Vec<Value> = elements(value)
        .into_iter()
        .map(|x| {
            if x.is_nan() {
                json!("NaN")
            } else if x.is_infinite() {
                json!(if x > 0.0 { "Infinity" } else { "-Infinity" })
            } else {
                json!(x)
            }
        })
        .collect();
    tensor(&json!({ "$t": torch_name(dtype), "s": value.shape(), "d": flat })).into()
}

fn nested(shape: &Value, flat: &Value) -> Value {
    let mut values = flat.as_array().unwrap().clone();
    let sizes = sizes(shape);
    for dim in (1..sizes.len()).rev() {
        let mut inner = values.into_iter();
        let outer: usize = sizes[..dim].iter().product();
        values = (0..outer).map(|_| inner.by_ref().take(sizes[dim]).collect()).collect();
    }
    if sizes.is_empty() { values[0].clone() } else { Value::Array(values) }
}

fn ends(spec: &TensorSpec, value: &Entry) -> bool {
    match value {
        Entry::Tensor(tensor) => spec.shape().ends(tensor.shape()),
        _ => true,
    }
}

fn shape_of(value: &Entry) -> Option<Vec<usize>> {
    if let Entry::Tensor(tensor) = value { Some(tensor.shape().to_vec()) } else { None }
}

fn masked(build: &Value) -> bool {
    build["kwargs"].get("mask").is_some()
}

fn has_binary(build: &Value) -> bool {
    build.to_string().contains("\"Binary\"")
}

fn stack_dim(build: &Value) -> usize {
    build["dim"].as_u64().unwrap_or(0) as usize
}

fn shape(value: &Value) -> Shape {
    shape_of_json(value.get("$tuple").unwrap_or(value))
}

fn shape_of_json(value: &Value) -> Shape {
    Shape::from_signed(&value.as_array().unwrap().iter().map(|dim| dim.as_i64().unwrap()).collect::<Vec<_>>())
        .unwrap()
}

fn sizes(value: &Value) -> Vec<usize> {
    let value = value.get("$tuple").unwrap_or(value);
    value.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn dtype_of(name: &str) -> Dtype {
    let all = Dtype::ALL.into_iter().find(|dtype| torch_name(*dtype) == name);
    all.unwrap_or_else(|| panic!("unknown dtype {name}"))
}

fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "float64",
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
        Dtype::I64 => "int64",
        Dtype::I32 => "int32",
        Dtype::I16 => "int16",
        Dtype::I8 => "int8",
        Dtype::U8 => "uint8",
        Dtype::U32 => "uint32",
        Dtype::Bool => "bool",
    }
}
