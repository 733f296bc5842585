//! Golden values as tensors, dictionaries and JSON values.

use fulmar_core::Dtype;
use fulmar_spec::TensorSpec;
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::Outcome::{self, Same, Wrong};

pub(crate) fn value_equals(got: &Entry, want: &Value, any_dtype: bool) -> Outcome {
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

pub(crate) fn all_are(nested: &Value, one: &Value) -> bool {
    nested.as_array().is_some_and(|values| values.iter().all(|value| value == one || all_are(value, one)))
}

pub(crate) fn same(equal: bool, got: impl FnOnce() -> String) -> Outcome {
    if equal { Same } else { Wrong(got()) }
}

/// Returns a golden value; `None` if no [`Entry`] can hold it.
pub(crate) fn entry(value: &Value) -> Option<Entry> {
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

pub(crate) fn tensor(value: &Value) -> Tensor {
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

/// Returns the elements as texts of doubles, so that NaN equals NaN.
pub(crate) fn elements(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        Dtype::F64 => tensor.to_vec::<f64>().unwrap(),
        Dtype::I64 => tensor.to_vec::<i64>().unwrap().into_iter().map(|x| x as f64).collect(),
        Dtype::I32 => tensor.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect(),
        _ => tensor.to_f32_vec().into_iter().map(f64::from).collect(),
    }
}

/// Returns all numbers of nested arrays, in order.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
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

/// Casts tensors of `value` to the dtypes of `spec`, for comparisons that ignore the dtype.
pub(crate) fn cast_like(spec: &TensorSpec, value: &Entry) -> Entry {
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

pub(crate) fn nested(shape: &Value, flat: &Value) -> Value {
    let mut values = flat.as_array().unwrap().clone();
    let sizes = sizes(shape);
    for dim in (1..sizes.len()).rev() {
        let mut inner = values.into_iter();
        let outer: usize = sizes[..dim].iter().product();
        values = (0..outer).map(|_| inner.by_ref().take(sizes[dim]).collect()).collect();
    }
    if sizes.is_empty() { values[0].clone() } else { Value::Array(values) }
}

pub(crate) fn ends(spec: &TensorSpec, value: &Entry) -> bool {
    match value {
        Entry::Tensor(tensor) => spec.shape().ends(tensor.shape()),
        _ => true,
    }
}

pub(crate) fn shape_of(value: &Entry) -> Option<Vec<usize>> {
    if let Entry::Tensor(tensor) = value { Some(tensor.shape().to_vec()) } else { None }
}

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    let value = value.get("$tuple").unwrap_or(value);
    value.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize).collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn dtype_of(name: &str) -> Dtype {
    let all = Dtype::ALL.into_iter().find(|dtype| torch_name(*dtype) == name);
    all.unwrap_or_else(|| panic!("unknown dtype {name}"))
}

pub(crate) fn torch_name(dtype: Dtype) -> &'static str {
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
