//! Specs from the original's constructor calls and descriptions.

use fulmar_spec::TensorSpec;
use serde_json::{Map, Value, json};

use crate::value::{dtype_of, nested, text};

/// Returns the spec that a call of the original's constructor makes.
pub(crate) fn built(build: &Value) -> fulmar_spec::Result<TensorSpec> {
    if build["cls"] == "stack" {
        let specs =
            build["specs"].as_array().unwrap().iter().map(built).collect::<fulmar_spec::Result<Vec<_>>>()?;
        let rank = specs[0].shape().rank() as i64;
        let dim = build["dim"].as_i64().unwrap();
        return TensorSpec::stack(&specs, if dim < 0 { dim + rank + 1 } else { dim } as usize);
    }
    TensorSpec::from_json(&constructor(build).to_string())
}

pub(crate) fn constructor(build: &Value) -> Value {
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
            return json!({ "type": "Composite", "shape": build["shape"], "names": build["names"], "entries": entries });
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

pub(crate) fn argument(build: &Value, at: usize, name: &str) -> Option<Value> {
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

/// Returns the spec that the original describes.
pub(crate) fn described(spec: &Value) -> fulmar_spec::Result<TensorSpec> {
    TensorSpec::from_json(&description(spec).to_string())
}

pub(crate) fn description(spec: &Value) -> Value {
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
            form["names"] = spec["names"].clone();
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
