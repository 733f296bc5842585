//! A spec's answers about values.

use fulmar_core::{Dtype, Rng};
use fulmar_spec::TensorSpec;
use fulmar_tensor::Entry;
use serde_json::{Value, json};

use crate::Outcome::{self, Decided, Same, Skipped, Wrong};
use crate::form::built;
use crate::structure::{has_binary, index, indexed, masked, moved, structural};
use crate::value::{
    cast_like, elements, ends, entry, nested, numbers, same, shape_of, sizes, tensor, text, torch_name,
    value_equals,
};

pub(crate) fn answer(spec: &mut TensorSpec, name: &str, op: &Value, build: &Value) -> Outcome {
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
            (Ok(None), None) => {
                Decided("the number of values of an unbounded spec is undefined, without an error")
            }
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
        "eq_clone" | "clone_eq" => {
            let Some(want) = want else { return Decided("a spec equals its clone") };
            let want = if want.is_object() { &want["d"][0] } else { want };
            same(json!(*spec == spec.clone()) == *want, String::new)
        }
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
        "is_empty" => same(json!(spec.keys().unwrap().is_empty()) == *want.unwrap(), String::new),
        "index" => match (spec.index(&tensor(&op["idx"]), &tensor(&op["tensor"])), want) {
            (Ok(got), Some(want)) if elements(&got) == numbers(&want["d"]) => {
                Decided("a batch of indices names a batch of elements")
            }
            (Ok(_), None) => Decided("a batch of indices names a batch of elements"),
            (got, _) => Wrong(format!("{got:?}")),
        },
        "set" | "del" | "pop" | "get" => dictionary(spec, name, op),
        "getitem" => getitem(spec, op, build),
        "split" => {
            if want.is_none() {
                Same
            } else {
                Skipped("split")
            }
        }
        _ => structural(spec, name, op, build),
    }
}

pub(crate) fn rand_shape(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
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

/// The original's draws are in our domain.
pub(crate) fn rand_support(spec: &TensorSpec, want: Option<&Value>) -> Outcome {
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

pub(crate) fn is_in(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
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

pub(crate) fn projected(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
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

pub(crate) fn encoded(spec: &TensorSpec, value: &Value, want: Option<&Value>) -> Outcome {
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

pub(crate) fn decoded(spec: &TensorSpec, op: &Value) -> Outcome {
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

pub(crate) fn keys(spec: &TensorSpec, name: &str, want: &Value) -> Outcome {
    let path = |path: &[String]| if let [name] = path { json!(name) } else { json!(path) };
    let keys = match name {
        "keys" => spec.keys(),
        "keys_nested" => spec.nested_keys(),
        _ => spec.leaf_keys(),
    };
    let got: Vec<Value> = keys.unwrap().iter().map(|key| path(key.path())).collect();
    same(json!(got) == *want, || json!(got).to_string())
}

pub(crate) fn dictionary(spec: &mut TensorSpec, name: &str, op: &Value) -> Outcome {
    let Ok(composite) = spec.as_composite_mut() else { return Skipped("changes of stacked dictionaries") };
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

pub(crate) fn getitem(spec: &TensorSpec, op: &Value, build: &Value) -> Outcome {
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

/// Stacks of different shapes have only ragged values.
pub(crate) fn stacked_refusal(spec: &TensorSpec, error: Option<&str>) -> Outcome {
    if spec.kind().starts_with("Stacked") && error.is_some() {
        return Skipped("values of stacks whose shapes or keys differ");
    }
    Wrong(format!("{error:?}"))
}
