//! Specs of values that match one of several specs.

use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Entry, NonTensor, Tensor};
use serde_json::Value;

use crate::number::floats;
use crate::shape::Shape;
use crate::spec::{TensorSpec, tensor};
use crate::step::Step;
use crate::structure::check_depth;

/// One of several specs of one class, shape and dtype, or one of several JSON values.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice(Choices);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choices {
    Specs(Vec<TensorSpec>),
    Values { shape: Shape, values: Vec<Value> },
}

impl Choice {
    /// Returns a choice between specs.
    ///
    /// # Errors
    /// `Empty` without specs; `Incompatible` or `ShapeMismatch` if class, dtype or shape differ; `LimitExceeded` if the nesting would be too
    /// deep.
    pub fn of_specs(specs: Vec<TensorSpec>) -> Result<Self> {
        let Some(first) = specs.first() else {
            return Err(Error::new(ErrorKind::Empty, "choices must hold at least one spec: got 0"));
        };
        check_depth(&specs)?;
        for spec in &specs {
            if spec.kind() != first.kind() || spec.dtype() != first.dtype() {
                let got =
                    |spec: &TensorSpec| format!("{} of {:?}", spec.kind(), spec.dtype().map(Dtype::name));
                let detail =
                    format!("choices must be of one class and dtype: got {} and {}", got(first), got(spec));
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            if spec.shape() != first.shape() {
                let detail =
                    format!("choices must have one shape: got {} and {}", first.shape(), spec.shape());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        }
        Ok(Self(Choices::Specs(specs)))
    }

    /// Returns a choice between JSON values, each of them for a whole batch of `shape`.
    ///
    /// # Errors
    /// `Empty` without values.
    pub fn of_values(shape: impl Into<Shape>, values: Vec<Value>) -> Result<Self> {
        if values.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "choices must hold at least one value: got 0"));
        }
        Ok(Self(Choices::Values { shape: shape.into(), values }))
    }

    /// Returns the specs; empty if the choice is between JSON values.
    pub(crate) fn specs(&self) -> &[TensorSpec] {
        match &self.0 {
            Choices::Specs(specs) => specs,
            Choices::Values { .. } => &[],
        }
    }

    pub(crate) const fn choices(&self) -> &Choices {
        &self.0
    }

    pub(crate) fn shape(&self) -> Shape {
        match &self.0 {
            Choices::Specs(specs) => specs[0].shape(),
            Choices::Values { shape, .. } => shape.clone(),
        }
    }

    pub(crate) fn dtype(&self) -> Option<Dtype> {
        match &self.0 {
            Choices::Specs(specs) => specs[0].dtype(),
            Choices::Values { .. } => None,
        }
    }

    pub(crate) fn check(&self, value: &Entry) -> Result<()> {
        match &self.0 {
            Choices::Specs(specs) => {
                let fit = first_fit(specs, |spec| spec.check(value));
                fit.map_err(|error| {
                    error.at(format!("no choice of {} fits, the last of them because", specs.len()))
                })
            }
            Choices::Values { values, .. } => match value {
                Entry::NonTensor(have) if have.shape().is_none() && values.contains(&have.to_json()) => {
                    Ok(())
                }
                other => {
                    let detail = format!(
                        "value must be one of {}: got {}",
                        Value::from(values.clone()),
                        described(other)
                    );
                    Err(Error::new(ErrorKind::OutOfRange, detail))
                }
            },
        }
    }

    pub(crate) fn project(&self, value: &Entry) -> Result<Entry> {
        if self.check(value).is_ok() {
            return Ok(value.clone());
        }
        let Choices::Specs(specs) = &self.0 else { return self.first(&|spec| spec.zero(&[])) };
        let mut best: Option<(f64, Entry)> = None;
        for spec in specs {
            let candidate = spec.project(value)?;
            let far = distance(value, &candidate)?;
            if best.as_ref().is_none_or(|(least, _)| far < *least) {
                best = Some((far, candidate));
            }
        }
        best.map(|(_, entry)| entry)
            .ok_or_else(|| Error::new(ErrorKind::Empty, "choices must hold at least one spec: got 0"))
    }

    pub(crate) fn rand(&self, rng: &mut Rng, batch: &[usize]) -> Result<Entry> {
        match &self.0 {
            Choices::Specs(specs) => specs[rng.below(specs.len() as u64)? as usize].rand(rng, batch),
            Choices::Values { values, .. } => {
                Ok(NonTensor::shared(values[rng.below(values.len() as u64)? as usize].clone()).into())
            }
        }
    }

    /// Applies `make` to the first spec, or to the first value.
    pub(crate) fn first(&self, make: &dyn Fn(&TensorSpec) -> Result<Entry>) -> Result<Entry> {
        match &self.0 {
            Choices::Specs(specs) => make(&specs[0]),
            Choices::Values { values, .. } => Ok(NonTensor::shared(values[0].clone()).into()),
        }
    }

    pub(crate) fn cardinality(&self) -> Result<Option<u128>> {
        match &self.0 {
            Choices::Specs(specs) => {
                let counts = specs.iter().map(TensorSpec::cardinality).collect::<Result<Vec<_>>>()?;
                Ok(counts.into_iter().try_fold(0_u128, |total, count| Some(total.saturating_add(count?))))
            }
            Choices::Values { values, .. } => Ok(Some(values.len() as u128)),
        }
    }

    /// Returns all values of the first choice, then of the next.
    pub(crate) fn enumerate(&self, use_mask: bool) -> Result<Entry> {
        match &self.0 {
            Choices::Specs(specs) => {
                let parts = specs.iter().map(|spec| spec.enumerate(use_mask)).collect::<Result<Vec<_>>>()?;
                let tensors = parts.iter().map(|part| tensor(part).cloned()).collect::<Result<Vec<_>>>()?;
                Tensor::cat(&tensors, 0).map(Entry::Tensor)
            }
            Choices::Values { values, .. } => {
                NonTensor::each(&[values.len()], values.clone()).map(Entry::NonTensor)
            }
        }
    }

    pub(crate) fn map(&self, map: impl Fn(&TensorSpec) -> Result<TensorSpec>) -> Result<Self> {
        match &self.0 {
            Choices::Specs(specs) => Self::of_specs(specs.iter().map(map).collect::<Result<_>>()?),
            Choices::Values { .. } => Ok(self.clone()),
        }
    }

    pub(crate) fn moved(&self, step: &Step) -> Result<Self> {
        match &self.0 {
            Choices::Specs(_) => self.map(|spec| spec.moved(step)),
            Choices::Values { shape, values } => {
                Ok(Self(Choices::Values { shape: step.shape(shape)?, values: values.clone() }))
            }
        }
    }

    pub(crate) fn depth(&self) -> usize {
        match &self.0 {
            Choices::Specs(specs) => specs.iter().map(TensorSpec::depth).max().unwrap_or(0),
            Choices::Values { .. } => 0,
        }
    }
}

/// Returns the first success of `make` over the specs, else the last error.
pub(crate) fn first_fit<T>(specs: &[TensorSpec], make: impl Fn(&TensorSpec) -> Result<T>) -> Result<T> {
    let mut last = Err(Error::new(ErrorKind::Empty, "choices must hold at least one spec: got 0"));
    for spec in specs {
        last = make(spec);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Returns the distance of two tensors; 0 for other entries, for which the first choice is as good as any.
fn distance(from: &Entry, to: &Entry) -> Result<f64> {
    let (Entry::Tensor(from), Entry::Tensor(to)) = (from, to) else { return Ok(0.0) };
    Ok(floats(from)?
        .iter()
        .zip(floats(to)?)
        .map(|(from, to)| (from - to).abs())
        .filter(|far| !far.is_nan())
        .sum())
}

fn described(value: &Entry) -> String {
    match value {
        Entry::NonTensor(values) => values.to_json().to_string(),
        other => other.kind().to_owned(),
    }
}
