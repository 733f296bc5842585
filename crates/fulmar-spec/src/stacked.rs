//! Specs that differ along a dimension.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Index, Ragged, Tensor, TensorDict};

use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::step::Step;
use crate::structure::check_depth;

/// One spec for each index of dimension `dim`. The dimension is dynamic where their shapes differ.
///
/// If specs differ only in their first dimension, a value stacked along dimension 0 is a [`Ragged`] with one
/// row for each spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Stacked {
    specs: Vec<TensorSpec>,
    dim: usize,
}

impl Stacked {
    /// Stacks specs along a new dimension `dim`. Unlike [`TensorSpec::stack`] this stays a stack even if they
    /// are equal.
    ///
    /// # Errors
    /// `Empty` without specs; `Incompatible` if class or dtype differ; `ShapeMismatch` if the number of dimensions does; `OutOfRange` if `dim`
    /// is past it; `LimitExceeded` if the nesting would be too deep.
    pub fn new(specs: Vec<TensorSpec>, dim: usize) -> Result<Self> {
        let Some(first) = specs.first() else {
            return Err(Error::new(ErrorKind::Empty, "specs must hold at least one spec: got 0"));
        };
        check_depth(&specs)?;
        let rank = first.shape().rank();
        if dim > rank {
            return Err(Error::new(ErrorKind::OutOfRange, format!("dim must be <= {rank}: got {dim}")));
        }
        for spec in &specs {
            if spec.kind() != first.kind() || spec.dtype() != first.dtype() {
                let detail = format!(
                    "stacked specs must be of one class and dtype: got {} and {}",
                    first.kind(),
                    spec.kind()
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
            if spec.shape().rank() != rank {
                let detail = format!("stacked specs must have {rank} dimensions: got {}", spec.shape());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        }
        Ok(Self { specs, dim })
    }

    /// Returns the specs in order.
    #[must_use]
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// Returns the dimension of the stack.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    pub(crate) fn shape(&self) -> Shape {
        let shapes: Vec<_> = self.specs.iter().map(TensorSpec::shape).collect();
        let same = |dim: usize| shapes.iter().all(|shape| shape.dims()[dim] == shapes[0].dims()[dim]);
        let mut dims: Vec<_> =
            (0..shapes[0].rank()).map(|dim| shapes[0].dims()[dim].filter(|_| same(dim))).collect();
        dims.insert(self.dim, Some(self.specs.len()));
        dims.into()
    }

    /// Returns the parts of `value`, one for each spec.
    pub(crate) fn parts(&self, value: &Entry) -> Result<Vec<Entry>> {
        let lead = self.lead(value)?;
        (0..self.specs.len()).map(|index| part(value, lead + self.dim, index)).collect()
    }

    pub(crate) fn check(&self, value: &Entry) -> Result<()> {
        let lead = self.lead(value)?;
        for (index, spec) in self.specs.iter().enumerate() {
            let part = part(value, lead + self.dim, index)?;
            spec.check(&part).map_err(|error| error.at(format!("at index {index} of the stack")))?;
        }
        Ok(())
    }

    pub(crate) fn project(&self, value: &Entry) -> Result<Entry> {
        let lead = self.lead(value)?;
        let one = |(index, spec): (usize, &TensorSpec)| spec.project(&part(value, lead + self.dim, index)?);
        let parts = self.specs.iter().enumerate().map(one).collect::<Result<Vec<_>>>()?;
        joined(&parts, lead + self.dim)
    }

    pub(crate) fn build(
        &self,
        batch: &[usize],
        make: &mut dyn FnMut(&TensorSpec) -> Result<Entry>,
    ) -> Result<Entry> {
        let parts = self.specs.iter().map(make).collect::<Result<Vec<_>>>()?;
        joined(&parts, batch.len() + self.dim)
    }

    pub(crate) fn map(&self, map: impl Fn(&TensorSpec) -> Result<TensorSpec>) -> Result<Self> {
        Self::new(self.specs.iter().map(map).collect::<Result<_>>()?, self.dim)
    }

    /// Returns the spec after `step`; a single one if it selects along the stacked dimension.
    pub(crate) fn moved(&self, step: &Step) -> Result<TensorSpec> {
        let own = self.dim;
        step.shape(&self.shape())?;
        let beside = |dim: usize| if dim > own { dim - 1 } else { dim };
        let (dim, inner) = match step {
            Step::Select { dim, index } if *dim == own => return Ok(self.specs[*index].clone()),
            Step::Slice { dim, start, end } if *dim == own => {
                return TensorSpec::stack(&self.specs[*start..*end], own);
            }
            Step::Pick { dim, indices } if *dim == own => {
                let specs: Vec<_> = indices.iter().map(|index| self.specs[*index].clone()).collect();
                return TensorSpec::stack(&specs, own);
            }
            Step::Squeeze(dim) if *dim == own => return Ok(self.specs[0].clone()),
            Step::Unsqueeze(dim) if *dim <= own => (own + 1, step.clone()),
            Step::Unsqueeze(dim) => (own, Step::Unsqueeze(dim - 1)),
            Step::Squeeze(dim) => (own - usize::from(*dim < own), Step::Squeeze(beside(*dim))),
            Step::Select { dim, index } => {
                (own - usize::from(*dim < own), Step::Select { dim: beside(*dim), index: *index })
            }
            Step::Slice { dim, start, end } => {
                (own, Step::Slice { dim: beside(*dim), start: *start, end: *end })
            }
            Step::Pick { dim, indices } => (own, Step::Pick { dim: beside(*dim), indices: indices.clone() }),
            Step::Expand { rank, shape } | Step::Reshape { rank, shape } if *rank <= own => {
                (own + shape.rank() - rank, step.clone())
            }
            Step::Expand { rank, shape } => {
                let dim = shape.rank() - (rank - own);
                let mut dims = shape.dims().to_vec();
                if dims.remove(dim) != Some(self.specs.len()) {
                    let detail =
                        format!("the stacked dimension must stay {} long: got {shape}", self.specs.len());
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                (dim, Step::Expand { rank: rank - 1, shape: dims.into() })
            }
            Step::Reshape { .. } => {
                let detail =
                    format!("dimension {own}, along which specs differ, must not be reshaped: got {step:?}");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        let one = |spec: &TensorSpec| spec.moved(&own_lengths(&inner, spec));
        TensorSpec::stack(&self.specs.iter().map(one).collect::<Result<Vec<_>>>()?, dim)
    }

    /// Returns the number of dimensions of `value` before those of this spec.
    fn lead(&self, value: &Entry) -> Result<usize> {
        let (rank, own) = match value {
            Entry::Tensor(tensor) => (tensor.rank(), self.shape().rank()),
            Entry::Dict(dict) => (dict.batch_size().len(), self.shape().rank()),
            // One value is shared by all.
            Entry::NonTensor(values) if values.shape().is_none() => return Ok(0),
            Entry::Ragged(ragged) if self.dim == 0 && ragged.num_rows() == self.specs.len() => return Ok(0),
            other => {
                let detail = format!(
                    "value must be a stack of {} {}: got {}",
                    self.specs.len(),
                    self.specs[0].kind(),
                    other.kind()
                );
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        let sizes = if let Entry::Tensor(tensor) = value {
            tensor.shape()
        } else {
            crate::composite::dict(value)?.batch_size()
        };
        match rank.checked_sub(own) {
            Some(lead) if sizes[lead + self.dim] == self.specs.len() => Ok(lead),
            _ => {
                let detail = format!("shape must end with {}: got {sizes:?}", self.shape());
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
        }
    }
}

/// Returns the step for one spec of a stack: in dimensions in which specs differ, each keeps its length.
fn own_lengths(step: &Step, spec: &TensorSpec) -> Step {
    let Step::Expand { rank, shape } = step else { return step.clone() };
    let mut dims = shape.dims().to_vec();
    for (dim, own) in dims.iter_mut().rev().zip(spec.shape().dims()[..*rank].iter().rev()) {
        *dim = dim.or(*own);
    }
    Step::Expand { rank: *rank, shape: dims.into() }
}

/// Returns the part of `value` at `index` of dimension `dim`.
fn part(value: &Entry, dim: usize, index: usize) -> Result<Entry> {
    match value {
        Entry::Tensor(tensor) => tensor.select(dim, index).map(Entry::Tensor),
        Entry::Ragged(ragged) => ragged.row(index).map(Entry::Tensor),
        Entry::Dict(dict) => dict_part(dict, dim, index).map(Entry::Dict),
        Entry::NonTensor(_) => Ok(value.clone()),
    }
}

fn dict_part(dict: &TensorDict, dim: usize, index: usize) -> Result<TensorDict> {
    let mut at = vec![Index::ALL; dim];
    at.push(Index::At(index as i64));
    dict.at(&at)
}

/// Joins parts along a new dimension `dim`: to a tensor, a ragged one if necessary, or a dictionary.
fn joined(parts: &[Entry], dim: usize) -> Result<Entry> {
    let of = |part: &Entry| match part {
        Entry::Tensor(tensor) => Some(tensor.clone()),
        _ => None,
    };
    if let Some(tensors) = parts.iter().map(of).collect::<Option<Vec<Tensor>>>() {
        if dim > 0 || tensors.iter().all(|tensor| tensor.shape() == tensors[0].shape()) {
            return Tensor::stack(&tensors, dim).map(Entry::Tensor);
        }
        return Ragged::from_rows(&tensors).map(Entry::Ragged);
    }
    let of = |part: &Entry| match part {
        Entry::Dict(dict) => Some(dict.clone()),
        _ => None,
    };
    if let Some(dicts) = parts.iter().map(of).collect::<Option<Vec<TensorDict>>>() {
        return joined_dicts(&dicts, dim).map(Entry::Dict);
    }
    if parts.iter().all(|part| *part == parts[0]) {
        return Ok(parts[0].clone());
    }
    let detail =
        "stacked values must be tensors, dictionaries or one JSON value: got JSON values that differ";
    Err(Error::new(ErrorKind::Incompatible, detail))
}

/// Unlike [`TensorDict::stack`], makes a ragged entry of tensors whose first dimensions differ.
fn joined_dicts(dicts: &[TensorDict], dim: usize) -> Result<TensorDict> {
    let mut batch = dicts[0].batch_size().to_vec();
    batch.insert(dim, dicts.len());
    let mut whole = TensorDict::new(&batch)?;
    for name in dicts.iter().flat_map(TensorDict::entries).map(|(name, _)| name) {
        if whole.get(name).is_some() {
            continue;
        }
        let parts = dicts.iter().map(|dict| dict.entry(name).cloned()).collect::<Result<Vec<_>>>()?;
        whole.set(name, joined(&parts, dim).map_err(|error| error.at(format!("{name:?}")))?)?;
    }
    Ok(whole)
}
