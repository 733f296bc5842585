//! Values in the notation of the rows.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Index, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde_json::Value;

/// Returns the key of a name or of a tuple of names.
pub fn key(value: &Value) -> Result<Key> {
    fn lists(value: &Value) -> Value {
        match value.get("$tuple").unwrap_or(value) {
            Value::Array(parts) => parts.iter().map(lists).collect(),
            other => other.clone(),
        }
    }
    Key::unravel(&lists(value))
}

pub fn keys(values: &Value) -> Result<Vec<Key>> {
    values.as_array().unwrap().iter().map(key).collect()
}

/// Formats keys as rows show them.
pub fn shown(keys: &[Key]) -> Value {
    let one = |key: &Key| match key.path() {
        [name] => Value::from(name.as_str()),
        path => path.into(),
    };
    keys.iter().map(one).collect()
}

/// Returns the option called `name` of a call.
pub fn option<'a>(args: &'a Value, name: &str) -> Option<&'a Value> {
    let pairs = args["kwargs"]["$dict"].as_array()?;
    pairs.iter().find(|pair| pair[0] == name).map(|pair| &pair[1])
}

pub fn shape(value: &Value) -> Vec<usize> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
}

/// Returns the numbers of a list, with their signs.
pub fn signed(value: &Value) -> Vec<isize> {
    let list = value.get("$tuple").unwrap_or(value).as_array().unwrap();
    list.iter().map(|number| number.as_i64().unwrap() as isize).collect()
}

pub fn index(value: &Value) -> Vec<Index> {
    match value.get("$tuple") {
        Some(items) => items.as_array().unwrap().iter().map(index_item).collect(),
        None => vec![index_item(value)],
    }
}

fn index_item(value: &Value) -> Index {
    match value {
        Value::Number(at) => at.as_i64().unwrap().into(),
        Value::Null => Index::NewAxis,
        Value::Array(items) if items.first().is_some_and(Value::is_boolean) => {
            let mask: Vec<_> = items.iter().map(|item| item == true).collect();
            Tensor::from_vec(&[mask.len()], mask).unwrap().into()
        }
        Value::Array(items) => Index::list(items.iter().map(|at| at.as_i64().unwrap()).collect()),
        _ if value.get("$ellipsis").is_some() => Index::Ellipsis,
        _ => match (value.get("$slice"), value.get("$range")) {
            (Some(bounds), _) => {
                let step = bounds[2].as_u64().unwrap_or(1) as usize;
                Index::Slice { start: bounds[0].as_i64(), stop: bounds[1].as_i64(), step }
            }
            (_, Some(bounds)) => {
                Index::list((bounds[0].as_i64().unwrap()..bounds[1].as_i64().unwrap()).collect())
            }
            _ => Index::Pick(tensor(value)),
        },
    }
}

pub fn tensor(value: &Value) -> Tensor {
    let numbers = value["d"].as_array().unwrap();
    let shape = shape(&value["s"]);
    let float = |x: &Value| x.as_f64().unwrap_or_else(|| x.as_str().unwrap().parse().unwrap());
    let integers = || numbers.iter().map(|x| x.as_i64().unwrap());
    let made = match value.get("$t").or_else(|| value.get("$np")).unwrap().as_str().unwrap() {
        "float64" => Tensor::from_vec(&shape, numbers.iter().map(float).collect()),
        "float32" => Tensor::from_vec(&shape, numbers.iter().map(|x| float(x) as f32).collect()),
        "int64" => Tensor::from_vec(&shape, integers().collect()),
        "int32" => Tensor::from_vec(&shape, integers().map(|x| x as i32).collect()),
        "bool" => Tensor::from_vec(&shape, numbers.iter().map(|x| x == true).collect()),
        other => panic!("a dtype of no row: {other}"),
    };
    made.unwrap()
}

pub fn dict_of(value: &Value) -> TensorDict {
    match entry(value, &[]) {
        Ok(Entry::Dict(dict)) => dict,
        other => panic!("must be a dictionary: got {other:?}"),
    }
}

/// Returns the entry for a value, in a dictionary of `batch_size`. Python's numbers and lists of numbers are
/// tensors.
pub fn entry(value: &Value, batch_size: &[usize]) -> Result<Entry> {
    if value.get("$t").or_else(|| value.get("$np")).is_some() {
        return Ok(tensor(value).into());
    }
    if let Some(rows) = value.get("$njt") {
        let rows: Vec<_> = rows.as_array().unwrap().iter().map(tensor).collect();
        return Ragged::from_rows(&rows).map(Entry::from);
    }
    if let Some(values) = value.get("$nts") {
        return NonTensor::nested(&shape(&value["b"]), values.clone()).map(Entry::from);
    }
    if let Some(size) = value.get("$td") {
        let size: Option<Vec<_>> =
            size.as_array().unwrap().iter().map(|dim| Some(dim.as_u64()? as usize)).collect();
        let Some(size) = size else {
            return Err(Error::new(ErrorKind::OutOfRange, "a batch size of -1"));
        };
        let mut dict = TensorDict::new(&size)?;
        for (name, value) in value["k"].as_object().unwrap() {
            dict.set(name.as_str(), entry(value, &size)?)?;
        }
        if let Some(names) = value.get("names") {
            dict.set_names(&names.as_array().unwrap().iter().map(Value::as_str).collect::<Vec<_>>())?;
        }
        return Ok(dict.into());
    }
    if let Some(pairs) = value.get("$dict") {
        let mut dict = TensorDict::new(batch_size)?;
        for pair in pairs.as_array().unwrap() {
            dict.set(key(&pair[0])?, entry(&pair[1], batch_size)?)?;
        }
        return Ok(dict.into());
    }
    Ok(match value.get("$nt").unwrap_or(value) {
        Value::Number(number) if number.is_f64() => {
            Tensor::scalar(Dtype::F32, number.as_f64().unwrap())?.into()
        }
        Value::Number(number) => Tensor::scalar(Dtype::I64, number.as_f64().unwrap())?.into(),
        Value::Bool(value) => Tensor::scalar(Dtype::Bool, f64::from(u8::from(*value)))?.into(),
        Value::Array(list) if list.iter().all(Value::is_number) => {
            let numbers: Vec<_> = list.iter().map(|number| number.as_i64().unwrap()).collect();
            Tensor::from_vec(&[numbers.len()], numbers)?.into()
        }
        list @ Value::Array(_) => NonTensor::nested(batch_size, list.clone())?.into(),
        plain => NonTensor::shared(plain.clone()).into(),
    })
}

/// Returns the names of the dimensions here and in nested dictionaries.
pub fn names_of(dict: &TensorDict) -> Vec<Vec<Option<&str>>> {
    let below = dict.entries().filter_map(|(_, entry)| match entry {
        Entry::Dict(dict) => Some(names_of(dict)),
        _ => None,
    });
    std::iter::once(dict.names()).chain(below.flatten()).collect()
}

/// Applies Python's arithmetic with a number: integers stay integers, bools become integers.
pub fn with_each(tensor: &Tensor, to: impl Fn(f64) -> f64) -> Result<Tensor> {
    let values: Vec<f64> = tensor.to(Dtype::F64)?.to_vec::<f64>()?.into_iter().map(to).collect();
    let dtype = if tensor.dtype() == Dtype::Bool { Dtype::I64 } else { tensor.dtype() };
    Tensor::from_vec(tensor.shape(), values)?.to(dtype)
}
