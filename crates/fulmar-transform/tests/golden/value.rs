//! Values of golden rows, and comparisons.

use fulmar_core::Dtype;
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde_json::{Map, Value, json};

use crate::Outcome;

pub(crate) fn dict(value: &Value) -> TensorDict {
    let mut dict = TensorDict::new(&sizes(&value["$td"])).unwrap();
    for (name, entry) in value["k"].as_object().unwrap() {
        let entry: Entry =
            if entry.get("$td").is_some() { self::dict(entry).into() } else { tensor(entry).into() };
        dict.set(name.as_str(), entry).unwrap();
    }
    dict
}

pub(crate) fn tensor(value: &Value) -> Tensor {
    let dtype = match value["$t"].as_str().unwrap() {
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        "int64" => Dtype::I64,
        "int8" => Dtype::I8,
        "uint8" => Dtype::U8,
        "bool" => Dtype::Bool,
        other => panic!("{other}"),
    };
    let values = value["d"].as_array().unwrap().iter().map(number).collect();
    Tensor::from_vec::<f64>(&sizes(&value["s"]), values).unwrap().to(dtype).unwrap()
}

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|len| len.as_u64().unwrap() as usize).collect()
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(bit) => f64::from(u8::from(*bit)),
        Value::String(text) if text == "NaN" => f64::NAN,
        other => other.as_f64().unwrap(),
    }
}

/// Checks equal keys, shapes and dtypes, and elements within `tolerance`.
pub(crate) fn compared(got: &TensorDict, want: &TensorDict, tolerance: f64) -> Outcome {
    let keys = |dict: &TensorDict| {
        let mut keys: Vec<String> = dict.nested_keys().iter().map(ToString::to_string).collect();
        keys.sort();
        keys
    };
    if got.batch_size() != want.batch_size() || keys(got) != keys(want) {
        return Outcome::Wrong(format!(
            "{:?} {:?} for {:?} {:?}",
            got.batch_size(),
            keys(got),
            want.batch_size(),
            keys(want)
        ));
    }
    for key in want.leaf_keys() {
        let (have, wanted) = (got.tensor(key.clone()).unwrap(), want.tensor(key.clone()).unwrap());
        if !near(have, wanted, tolerance) {
            return Outcome::Wrong(format!(
                "{key}: {:?} {:?} {:?} for {:?} {:?} {:?}",
                have.dtype(),
                have.shape(),
                have.to_f32_vec(),
                wanted.dtype(),
                wanted.shape(),
                wanted.to_f32_vec()
            ));
        }
    }
    Outcome::Same
}

pub(crate) fn near(got: &Tensor, want: &Tensor, tolerance: f64) -> bool {
    let doubles = |tensor: &Tensor| tensor.to(Dtype::F64).unwrap().to_vec::<f64>().unwrap();
    let close = |(got, want): (&f64, &f64)| {
        (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance + 1e-5 * want.abs()
    };
    got.dtype() == want.dtype()
        && got.shape() == want.shape()
        && doubles(got).iter().zip(&doubles(want)).all(close)
}

pub(crate) fn key(value: &Value) -> Key {
    let value = value.get("$tuple").unwrap_or(value);
    match value {
        Value::String(name) => Key::from(name.as_str()),
        path => Key::from(serde_json::from_value::<Vec<String>>(path.clone()).unwrap()),
    }
}

/// Returns the options of a row under our names, keys as lists of names.
pub(crate) fn options(config: &Value) -> Map<String, Value> {
    let mut options = Map::new();
    let pairs: Vec<(String, Value)> = match config.get("$dict") {
        Some(pairs) => serde_json::from_value(pairs.clone()).unwrap(),
        None => config.as_object().map(|all| all.clone().into_iter().collect()).unwrap_or_default(),
    };
    for (name, value) in pairs {
        let path = |value: &Value| json!(key(value).path());
        let value = match name.as_str() {
            "swap" => continue,
            _ if name.ends_with("keys") && value.is_boolean() => value,
            _ if name.ends_with("keys") || name.ends_with("keys_inv") => {
                value.as_array().unwrap().iter().map(path).collect()
            }
            _ if name.ends_with("key") => path(&value),
            "dtype" => json!(if value["$dtype"] == "float64" { "f64" } else { "f32" }),
            _ => value,
        };
        options.insert(camel(&name), value);
    }
    options
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap().to_lowercase();
    for word in words {
        camel.push_str(&word[..1].to_uppercase());
        camel.push_str(&word[1..]);
    }
    camel
}
