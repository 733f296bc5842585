//! The JSON form of specs, with its defaults.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::Tensor;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::choice::{Choice, Choices};
use crate::composite::Composite;
use crate::discrete::Class;
use crate::encode::{tensor_from_json, tensor_to_json};
use crate::leaf::{Leaf, Space, discrete};
use crate::non_tensor::NonTensorSpec;
use crate::number::{floats, integers};
use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::stacked::Stacked;

/// A spec in its JSON form. Bounds, masks and `nvec` are numbers or nested arrays that are broadcast to
/// `shape`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Form {
    /// `shape` defaults to `[1]` and `dtype` to `f32`.
    Unbounded { shape: Option<Shape>, dtype: Option<Name> },
    /// `shape` defaults to that of the bounds and `dtype` to `f32`.
    Bounded { shape: Option<Shape>, dtype: Option<Name>, low: Value, high: Value },
    /// `shape` defaults to `[]` and `dtype` to `i64`.
    Categorical {
        shape: Option<Shape>,
        dtype: Option<Name>,
        n: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<Value>,
    },
    /// `shape` defaults to `[n]` and `dtype` to `bool`.
    OneHot {
        shape: Option<Shape>,
        dtype: Option<Name>,
        n: i64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<Value>,
    },
    /// `shape` defaults to that of `nvec` and `dtype` to `i64`.
    MultiCategorical {
        shape: Option<Shape>,
        dtype: Option<Name>,
        nvec: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<Value>,
    },
    /// `shape` defaults to the sum of `nvec` and `dtype` to `bool`.
    MultiOneHot {
        shape: Option<Shape>,
        dtype: Option<Name>,
        nvec: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<Value>,
    },
    /// `n` is the last dimension; `shape` defaults to `[n]` and `dtype` to `i8`.
    Binary {
        shape: Option<Shape>,
        dtype: Option<Name>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<usize>,
    },
    /// `shape` defaults to `[1]` and `example` to null.
    NonTensor {
        shape: Option<Shape>,
        #[serde(default)]
        example: Value,
        #[serde(default)]
        batched: bool,
    },
    /// `choices` are specs, or `values` JSON values of `shape`.
    Choice {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Shape>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choices: Option<Vec<Form>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        values: Option<Vec<Value>>,
    },
    /// `shape` defaults to `[]`; a null entry accepts anything. `names` are those of the dimensions.
    Composite {
        #[serde(default)]
        shape: Shape,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        names: Option<Vec<Option<String>>>,
        entries: IndexMap<String, Option<Form>>,
    },
    /// The specs along dimension `dim`.
    Stacked { dim: usize, specs: Vec<Form> },
}

/// A dtype by its name.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(pub(crate) Dtype);

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Dtype::parse(&name).map(Self)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.name().to_owned()
    }
}

impl TryFrom<Form> for TensorSpec {
    type Error = Error;

    fn try_from(form: Form) -> Result<Self> {
        match form {
            Form::Unbounded { shape, dtype } => {
                Self::unbounded(shape.unwrap_or([1].into()), or(dtype, Dtype::F32))
            }
            Form::Bounded { shape, dtype, low, high } => bounded(shape, or(dtype, Dtype::F32), &low, &high),
            Form::Categorical { shape, dtype, n, mask } => {
                let counts = Tensor::from_vec(&[1], vec![n])?;
                leaf(Class::Categorical, shape.unwrap_or_default(), or(dtype, Dtype::I64), counts, mask)
            }
            Form::OneHot { shape, dtype, n, mask } => {
                let shape = shape.map_or_else(|| Shape::from_signed(&[n.max(0)]), Ok)?;
                leaf(Class::OneHot, shape, or(dtype, Dtype::Bool), Tensor::from_vec(&[1], vec![n])?, mask)
            }
            Form::MultiCategorical { shape, dtype, nvec, mask } => {
                let counts = table("nvec", &nvec, Dtype::I64)?;
                let shape = shape.unwrap_or_else(|| counts.shape().into());
                leaf(Class::MultiCategorical, shape, or(dtype, Dtype::I64), counts, mask)
            }
            Form::MultiOneHot { shape, dtype, nvec, mask } => {
                let counts = table("nvec", &nvec, Dtype::I64)?;
                let sum =
                    integers(&counts)?.iter().fold(0_i64, |sum, count| sum.saturating_add((*count).max(0)));
                let shape = shape.map_or_else(|| Shape::from_signed(&[sum]), Ok)?;
                leaf(Class::MultiOneHot, shape, or(dtype, Dtype::Bool), counts, mask)
            }
            Form::Binary { shape, dtype, n } => {
                let shape = match (shape, n) {
                    (Some(shape), n) if n.is_none() || shape.dims().last() == Some(&n) => shape,
                    (None, Some(n)) => [n].into(),
                    (shape, n) => {
                        let shape = shape.map_or("null".to_owned(), |shape| shape.to_string());
                        let detail = format!(
                            "Binary must have n or a shape that ends with it: got n {n:?} and shape {shape}"
                        );
                        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                    }
                };
                Self::binary(shape, or(dtype, Dtype::I8))
            }
            Form::NonTensor { shape, example, batched } => {
                NonTensorSpec::new(shape.unwrap_or([1].into()), example, batched).map(Self::NonTensor)
            }
            Form::Choice { shape, choices: None, values: Some(values) } => {
                Choice::of_values(shape.unwrap_or_default(), values).map(Self::Choice)
            }
            Form::Choice { shape: None, choices: Some(choices), values: None } => {
                Choice::of_specs(all(choices)?).map(Self::Choice)
            }
            Form::Choice { .. } => Err(Error::new(
                ErrorKind::Malformed,
                "Choice must have either choices, or values and their shape",
            )),
            Form::Composite { shape, names, entries } => {
                let mut composite = Composite::new(shape)?;
                if let Some(names) = names {
                    composite.set_names(names)?;
                }
                for (name, form) in entries {
                    let spec = form
                        .map(Self::try_from)
                        .transpose()
                        .map_err(|error| error.at(format!("{name:?}")))?;
                    composite.set(name.as_str(), spec)?;
                }
                Ok(composite.into())
            }
            Form::Stacked { dim, specs } => Stacked::new(all(specs)?, dim).map(Self::Stacked),
        }
    }
}

impl From<TensorSpec> for Form {
    fn from(spec: TensorSpec) -> Self {
        match spec {
            TensorSpec::Leaf(leaf) => leaf_form(leaf),
            TensorSpec::NonTensor(spec) => Self::NonTensor {
                shape: Some(spec.shape().clone()),
                example: spec.example_data().clone(),
                batched: spec.batched(),
            },
            TensorSpec::Choice(choice) => match choice.choices() {
                Choices::Specs(specs) => Self::Choice {
                    shape: None,
                    choices: Some(specs.iter().cloned().map(Self::from).collect()),
                    values: None,
                },
                Choices::Values { shape, values } => {
                    Self::Choice { shape: Some(shape.clone()), choices: None, values: Some(values.clone()) }
                }
            },
            TensorSpec::Composite(composite) => Self::Composite {
                shape: composite.shape().clone(),
                names: composite.names().map(<[_]>::to_vec),
                entries: composite
                    .entries()
                    .map(|(name, spec)| (name.to_owned(), spec.cloned().map(Self::from)))
                    .collect(),
            },
            TensorSpec::Stacked(stacked) => Self::Stacked {
                dim: stacked.dim(),
                specs: stacked.specs().iter().cloned().map(Self::from).collect(),
            },
        }
    }
}

fn leaf_form(leaf: Leaf) -> Form {
    let (shape, dtype) = (Some(leaf.shape), Some(Name(leaf.dtype)));
    let json = |table: &Tensor| tensor_to_json(table).unwrap_or_default();
    let discrete = match leaf.space {
        Space::Unbounded => return Form::Unbounded { shape, dtype },
        Space::Bounded { low, high } => {
            return Form::Bounded { shape, dtype, low: json(&low), high: json(&high) };
        }
        Space::Discrete(discrete) => discrete,
    };
    let mask = discrete.mask.as_ref().map(json);
    let nvec = json(&discrete.counts);
    let n = nvec[0].as_i64().unwrap_or_default();
    match discrete.class {
        Class::Categorical => Form::Categorical { shape, dtype, n, mask },
        Class::OneHot => Form::OneHot { shape, dtype, n, mask },
        Class::MultiCategorical => Form::MultiCategorical { shape, dtype, nvec, mask },
        Class::MultiOneHot => Form::MultiOneHot { shape, dtype, nvec, mask },
        Class::Binary => Form::Binary { shape, dtype, n: None },
    }
}

fn leaf(class: Class, shape: Shape, dtype: Dtype, counts: Tensor, mask: Option<Value>) -> Result<TensorSpec> {
    let mask = mask.map(|mask| table("mask", &mask, Dtype::Bool)).transpose()?;
    Leaf::new(shape, dtype, discrete(class, counts, mask)).map(TensorSpec::Leaf)
}

fn bounded(shape: Option<Shape>, dtype: Dtype, low: &Value, high: &Value) -> Result<TensorSpec> {
    let (low, high) = (table("low", low, dtype)?, table("high", high, dtype)?);
    for bound in [&low, &high] {
        if floats(bound)?.iter().any(|x| x.is_nan()) {
            return Err(Error::new(ErrorKind::OutOfRange, "bounds must be numbers: got NaN"));
        }
    }
    let wider = if high.rank() > low.rank() { &high } else { &low };
    if shape.is_none() && wider.rank() == 0 {
        let detail = "Bounded must have a shape, or bounds that have one";
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let shape = shape.unwrap_or_else(|| wider.shape().into());
    TensorSpec::bounded_by(&low, &high, shape, dtype)
}

fn table(name: &str, value: &Value, dtype: Dtype) -> Result<Tensor> {
    tensor_from_json(value, dtype).map_err(|error| error.at(name))
}

fn all(forms: Vec<Form>) -> Result<Vec<TensorSpec>> {
    forms.into_iter().map(TensorSpec::try_from).collect()
}

fn or(name: Option<Name>, default: Dtype) -> Dtype {
    name.map_or(default, |name| name.0)
}
