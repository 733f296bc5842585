//! Values in the notation of golden files. Tests of other crates use this module too.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use fulmar_core::Dtype;
use fulmar_tensor::{Entry, LazyStack, NonTensor, Ragged, Tensor, TensorDict, bf16, f16};
use serde_json::Value;

/// Returns the dictionary of `value`.
pub fn dict(value: &Value) -> TensorDict {
    match entry(value) {
        Entry::Dict(dict) => dict,
        other => panic!("must be a dictionary: got {other:?}"),
    }
}

/// Returns the entry of `value`. Lazy stacks are materialised, as reading them does.
pub fn entry(value: &Value) -> Entry {
    if value.get("$t").is_some() {
        return tensor(value).into();
    }
    if let Some(rows) = value.get("$njt") {
        let rows: Vec<_> = rows.as_array().unwrap().iter().map(tensor).collect();
        return Ragged::from_rows(&rows).unwrap().into();
    }
    if let Some(dim) = value.get("$lazy") {
        let parts = value["items"].as_array().unwrap().iter().map(dict).collect();
        return LazyStack::new(parts, dim.as_i64().unwrap() as isize).unwrap().to_dict().unwrap().into();
    }
    if let Some(values) = value.get("$nts") {
        return NonTensor::nested(&shape(&value["b"]), plain(values)).unwrap().into();
    }
    if let Some(size) = value.get("$td") {
        let mut dict = TensorDict::new(&shape(size)).unwrap();
        for (name, value) in value["k"].as_object().unwrap() {
            dict.set(name.as_str(), entry(value)).unwrap();
        }
        return dict.into();
    }
    NonTensor::shared(plain(value.get("$nt").unwrap_or(value))).into()
}

/// Returns a value with Python's dictionaries as objects.
pub fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(object) => match object.get("$dict") {
            Some(pairs) => {
                let pairs = pairs.as_array().unwrap().iter();
                pairs.map(|pair| (pair[0].as_str().unwrap().to_owned(), plain(&pair[1]))).collect()
            }
            None => object.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        },
        _ => value.clone(),
    }
}

/// Returns the tensor of `value`.
pub fn tensor(value: &Value) -> Tensor {
    let dims = shape(&value["s"]);
    let numbers = value["d"].as_array().unwrap();
    let float = |x: &Value| x.as_f64().or_else(|| x.as_str()?.parse().ok()).unwrap();
    let floats = || numbers.iter().map(float);
    let integers = || numbers.iter().map(|x| x.as_i64().unwrap());
    match dtype(value["$t"].as_str().unwrap()) {
        Dtype::F64 => Tensor::from_vec(&dims, floats().collect()),
        Dtype::F32 => Tensor::from_vec(&dims, floats().map(|x| x as f32).collect()),
        Dtype::F16 => Tensor::from_vec(&dims, floats().map(f16::from_f64).collect()),
        Dtype::Bf16 => Tensor::from_vec(&dims, floats().map(bf16::from_f64).collect()),
        Dtype::I64 => Tensor::from_vec(&dims, integers().collect()),
        Dtype::I32 => Tensor::from_vec(&dims, integers().map(|x| x as i32).collect()),
        Dtype::I16 => Tensor::from_vec(&dims, integers().map(|x| x as i16).collect()),
        Dtype::I8 => Tensor::from_vec(&dims, integers().map(|x| x as i8).collect()),
        Dtype::U8 => Tensor::from_vec(&dims, integers().map(|x| x as u8).collect()),
        Dtype::U32 => Tensor::from_vec(&dims, integers().map(|x| x as u32).collect()),
        Dtype::Bool => Tensor::from_vec(&dims, numbers.iter().map(|x| x == true).collect()),
    }
    .unwrap()
}

fn dtype(name: &str) -> Dtype {
    let short = match name {
        "bool" => name.to_owned(),
        "bfloat16" => "bf16".to_owned(),
        _ => name.replace("float", "f").replace("uint", "u").replace("int", "i"),
    };
    Dtype::parse(&short).unwrap()
}

fn shape(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
}
