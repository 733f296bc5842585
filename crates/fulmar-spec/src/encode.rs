//! Converts plain JSON to values and back.

use fulmar_core::limits::TENSOR_RANK_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::{Map, Number, Value};

use crate::choice::{Choices, first_fit};
use crate::leaf::{Leaf, Space, check_elements};
use crate::number::{floats, integers, is_whole, of_floats, of_integers, whole_range};
use crate::spec::{TensorSpec, tensor};

impl TensorSpec {
    /// Converts plain JSON to a value: nested arrays of numbers, for one-hot specs the indices of the ones,
    /// for dictionaries an object with every key. The shape is that of the spec, without a batch; a single
    /// number is valid for a spec of one element.
    ///
    /// # Errors
    /// `Malformed` for JSON that is not an array of numbers; the errors of [`TensorSpec::check`] for the
    /// value.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_spec::TensorSpec;
    /// use serde_json::json;
    /// let action = TensorSpec::one_hot(3, [2, 3], Dtype::Bool)?;
    /// let value = action.encode(&json!([0, 2]))?;
    /// assert_eq!(action.decode(&value)?, json!([0, 2]));
    /// assert!(action.encode(&json!([0, 3])).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn encode(&self, value: &Value) -> Result<Entry> {
        let entry = match self {
            Self::Leaf(leaf) => encode_leaf(leaf, value)?.into(),
            Self::NonTensor(spec) if spec.batched() => {
                NonTensor::nested(&spec.shape().sizes(), value.clone())?.into()
            }
            Self::NonTensor(_) => NonTensor::shared(value.clone()).into(),
            Self::Choice(choice) => match choice.choices() {
                Choices::Specs(specs) => first_fit(specs, |spec| spec.encode(value))?,
                Choices::Values { .. } => NonTensor::shared(value.clone()).into(),
            },
            Self::Composite(composite) => {
                let Value::Object(object) = value else { return Err(malformed("an object", value)) };
                let mut dict = TensorDict::new(&composite.shape().sizes())?;
                for (name, spec) in composite.specs() {
                    let value = object.get(name).ok_or_else(|| {
                        Error::new(
                            ErrorKind::UnknownName,
                            format!("value must have the key {name:?}: got an object without it"),
                        )
                    })?;
                    dict.set(name, spec.encode(value).map_err(|error| error.at(format!("{name:?}")))?)?;
                }
                dict.into()
            }
            Self::Stacked(stacked) => {
                let detail =
                    format!("stacked specs must be encoded one by one: got {}", stacked.specs().len());
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        self.check(&entry)?;
        Ok(entry)
    }

    /// Converts a value of this spec to plain JSON, the inverse of [`TensorSpec::encode`]. Batch dimensions
    /// before the shape of the spec are kept.
    ///
    /// # Errors
    /// The errors of [`TensorSpec::check`].
    pub fn decode(&self, value: &Entry) -> Result<Value> {
        self.check(value)?;
        match (self, value) {
            (Self::Leaf(leaf), _) => decode_leaf(leaf, tensor(value)?),
            (Self::Composite(composite), Entry::Dict(dict)) => {
                let mut object = Map::new();
                for (name, spec) in composite.specs() {
                    if let Some(entry) = dict.get(name) {
                        object.insert(name.to_owned(), spec.decode(entry)?);
                    }
                }
                Ok(Value::Object(object))
            }
            (_, Entry::NonTensor(values)) => Ok(values.to_json()),
            (Self::Choice(choice), _) => first_fit(choice.specs(), |spec| spec.decode(value)),
            _ => {
                let detail = format!("stacked specs must be decoded one by one: got {}", self.kind());
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        }
    }
}

fn encode_leaf(leaf: &Leaf, value: &Value) -> Result<Tensor> {
    let Space::Discrete(discrete) = &leaf.space else { return plain(leaf, value) };
    if !discrete.class.is_one_hot() {
        return plain(leaf, value);
    }
    let indices = leaf.indexed()?;
    let choices = plain(&indices, value)?;
    indices.check(&choices)?;
    leaf.recoded(&indices, &choices)
}

fn decode_leaf(leaf: &Leaf, value: &Tensor) -> Result<Value> {
    match &leaf.space {
        Space::Discrete(discrete) if discrete.class.is_one_hot() => {
            Ok(tensor_to_json(&leaf.indexed()?.recoded(leaf, value)?)?)
        }
        _ => tensor_to_json(value),
    }
}

/// Returns the numbers of `value` in the shape of `leaf`.
fn plain(leaf: &Leaf, value: &Value) -> Result<Tensor> {
    let tensor = tensor_from_json(value, leaf.dtype)?;
    let shape = leaf.shape.sizes();
    let lone = tensor.rank() == 0 && shape.iter().all(|len| *len == 1);
    if lone {
        return tensor.reshape(&shape);
    }
    if tensor.rank() == leaf.shape.rank() && leaf.shape.ends(tensor.shape()) {
        return Ok(tensor);
    }
    let detail = format!("value must be of shape {}: got {:?}", leaf.shape, tensor.shape());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

/// Converts nested arrays of numbers and bools to a tensor; infinities and NaN are texts.
pub fn tensor_from_json(value: &Value, dtype: Dtype) -> Result<Tensor> {
    let mut shape = Vec::new();
    let mut level = vec![value];
    while let Some(Value::Array(first)) = level.first() {
        let len = first.len();
        if shape.len() == TENSOR_RANK_MAX {
            let detail = format!("arrays must be nested at most {TENSOR_RANK_MAX} deep");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        shape.push(len);
        let mut inner = Vec::new();
        for value in level {
            match value {
                Value::Array(values) if values.len() == len => inner.extend(values),
                other => return Err(malformed("arrays of one length", other)),
            }
        }
        level = inner;
    }
    if is_whole(dtype) {
        let values = level.into_iter().map(|value| whole(value, dtype)).collect::<Result<_>>()?;
        return of_integers(dtype, &shape, values);
    }
    of_floats(dtype, &shape, level.into_iter().map(float).collect::<Result<_>>()?)
}

/// Returns the elements as nested arrays.
pub fn tensor_to_json(tensor: &Tensor) -> Result<Value> {
    let mut values: Vec<Value> = match tensor.dtype() {
        Dtype::Bool => tensor.to_vec::<bool>()?.into_iter().map(Value::Bool).collect(),
        dtype if is_whole(dtype) => integers(tensor)?.into_iter().map(Value::from).collect(),
        _ => floats(tensor)?.into_iter().map(float_to_json).collect(),
    };
    for dim in (1..tensor.rank()).rev() {
        let mut inner = values.into_iter();
        let outer = num_elements(&tensor.shape()[..dim])?;
        check_elements(outer)?;
        values = (0..outer).map(|_| inner.by_ref().take(tensor.shape()[dim]).collect()).collect();
    }
    if tensor.rank() == 0 { Ok(values.pop().unwrap_or_default()) } else { Ok(Value::Array(values)) }
}

fn whole(value: &Value, dtype: Dtype) -> Result<i64> {
    let (low, high) = whole_range(dtype);
    let number = match value {
        Value::Bool(value) => Some(i64::from(*value)),
        // A whole float becomes the integer that it equals.
        Value::Number(number) => number.as_i64().or_else(|| {
            number
                .as_f64()
                .filter(|x| x.trunc() == *x && x.abs() <= 9_007_199_254_740_992.0)
                .map(|x| x as i64)
        }),
        other => return Err(malformed("a number", other)),
    };
    number.filter(|number| (low..=high).contains(number)).ok_or_else(|| {
        let detail = format!("value must be an integer from {low} to {high}: got {value}");
        Error::new(ErrorKind::OutOfRange, detail)
    })
}

fn float(value: &Value) -> Result<f64> {
    match value {
        Value::Bool(value) => Ok(f64::from(u8::from(*value))),
        Value::Number(number) => number.as_f64().ok_or_else(|| malformed("a number", value)),
        Value::String(text) => match text.as_str() {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(malformed("a number", value)),
        },
        other => Err(malformed("a number", other)),
    }
}

fn float_to_json(value: f64) -> Value {
    match Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => "NaN".into(),
        None if value > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}

fn malformed(want: &str, got: &Value) -> Error {
    let got = match got {
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(object) => format!("an object of {}", object.len()),
        other => other.to_string(),
    };
    Error::new(ErrorKind::Malformed, format!("value must be {want}: got {got}"))
}
