//! Stacks of dictionaries with different keys, and specs made from dictionaries.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, TensorDict};

use crate::choice::Choices;
use crate::composite::Composite;
use crate::non_tensor::NonTensorSpec;
use crate::shape::Shape;
use crate::spec::TensorSpec;
use crate::stacked::Stacked;
use crate::step::Step;

/// Returns whether `spec` contains a [`Stacked`].
#[must_use]
pub fn contains_lazy_spec(spec: &TensorSpec) -> bool {
    match spec {
        TensorSpec::Stacked(_) => true,
        TensorSpec::Composite(composite) => composite.specs().any(|(_, spec)| contains_lazy_spec(spec)),
        TensorSpec::Choice(choice) => match choice.choices() {
            Choices::Specs(specs) => specs.iter().any(contains_lazy_spec),
            Choices::Values { .. } => false,
        },
        _ => false,
    }
}

/// Returns whether all dictionaries of every stack in `spec` have the same keys, nested ones included.
#[must_use]
pub fn check_no_exclusive_keys(spec: &TensorSpec) -> bool {
    match spec {
        TensorSpec::Composite(composite) => composite.specs().all(|(_, spec)| check_no_exclusive_keys(spec)),
        TensorSpec::Stacked(stacked) => {
            let keys = |spec: &TensorSpec| {
                let TensorSpec::Composite(composite) = spec else { return Vec::new() };
                let mut keys: Vec<_> =
                    composite.nested_keys().iter().map(|key| key.path().to_vec()).collect();
                keys.sort_unstable();
                keys
            };
            let first = keys(&stacked.specs()[0]);
            stacked.specs().iter().all(|spec| keys(spec) == first && check_no_exclusive_keys(spec))
        }
        _ => true,
    }
}

/// Returns the spec with the keys of every stacked dictionary in all of its stack. A missing key is added at
/// the end with a spec of the same kind whose first dimension after the batch, if it has one, is 0.
///
/// # Errors
/// `LimitExceeded` if the nesting would be too deep; `Incompatible` if a key is a dictionary in only some of
/// a stack.
///
/// # Examples
/// ```
/// use fulmar_core::{Dtype, Rng};
/// use fulmar_spec::{Composite, TensorSpec, check_no_exclusive_keys, consolidate_spec};
/// let robot = |key: &str| -> fulmar_spec::Result<TensorSpec> {
///     let mut composite = Composite::new([])?;
///     composite.set(key, TensorSpec::unbounded([2], Dtype::F32)?)?;
///     Ok(composite.into())
/// };
/// let robots = TensorSpec::stack(&[robot("camera")?, robot("lidar")?], 0)?;
/// assert!(robots.rand(&mut Rng::new(1), &[]).is_err());
/// let robots = consolidate_spec(&robots)?;
/// assert!(check_no_exclusive_keys(&robots));
/// assert!(robots.contains(&robots.rand(&mut Rng::new(1), &[])?));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn consolidate_spec(spec: &TensorSpec) -> Result<TensorSpec> {
    match spec {
        TensorSpec::Composite(composite) => composite.map(consolidate_spec).map(TensorSpec::Composite),
        TensorSpec::Stacked(stacked) => {
            let specs = stacked.specs().iter().map(consolidate_spec).collect::<Result<Vec<_>>>()?;
            let of = |spec: &TensorSpec| {
                if let TensorSpec::Composite(inner) = spec { Some(inner.clone()) } else { None }
            };
            let Some(composites) = specs.iter().map(of).collect::<Option<Vec<_>>>() else {
                return Stacked::new(specs, stacked.dim()).map(TensorSpec::Stacked);
            };
            let unified = unified(&composites)?.into_iter().map(TensorSpec::Composite).collect();
            Stacked::new(unified, stacked.dim()).map(TensorSpec::Stacked)
        }
        other => Ok(other.clone()),
    }
}

/// Returns the unbounded spec of `dict`: its shapes and dtypes, JSON values as examples. With
/// `unsqueeze_null_shapes` a scalar becomes `[1]`; with `dynamic_shape` the last dimension becomes dynamic.
///
/// # Errors
/// `ShapeMismatch` if a dimension of the batch would become dynamic; `Incompatible` for a ragged entry; those of [`Composite::set`].
///
/// # Examples
/// ```
/// use fulmar_spec::make_composite_from_td;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut step = TensorDict::new(&[])?;
/// step.set("observation", Tensor::from_vec(&[3], vec![0.5_f32; 3])?)?;
/// let spec = make_composite_from_td(&step, true, false)?;
/// assert_eq!(spec.get("observation").map(|leaf| leaf.shape()), Some([3].into()));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn make_composite_from_td(
    dict: &TensorDict,
    unsqueeze_null_shapes: bool,
    dynamic_shape: bool,
) -> Result<Composite> {
    let mut composite = Composite::new(dict.batch_size())?;
    for (name, entry) in dict.entries() {
        let spec = match entry {
            Entry::Tensor(tensor) => {
                let mut dims: Vec<_> = tensor.shape().iter().copied().map(Some).collect();
                match dims.last_mut() {
                    Some(last) if dynamic_shape => *last = None,
                    None if unsqueeze_null_shapes => dims.push(Some(1)),
                    _ => {}
                }
                TensorSpec::unbounded(dims, tensor.dtype())?
            }
            Entry::NonTensor(values) => {
                let batched = values.shape().is_some();
                let mut example = values.to_json();
                for _ in values.shape().unwrap_or_default() {
                    example =
                        example.as_array().and_then(|values| values.first().cloned()).unwrap_or_default();
                }
                TensorSpec::NonTensor(NonTensorSpec::new(dict.batch_size(), example, batched)?)
            }
            Entry::Dict(inner) => make_composite_from_td(inner, unsqueeze_null_shapes, dynamic_shape)
                .map_err(|error| error.at(format!("{name:?}")))?
                .into(),
            Entry::Ragged(_) => {
                let detail = format!("{name:?} must be no ragged tensor, which no spec describes: got one");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        };
        composite.set(name, spec)?;
    }
    Ok(composite)
}

/// Returns the dictionaries with the keys of all of them.
fn unified(members: &[Composite]) -> Result<Vec<Composite>> {
    let mut whole = members.to_vec();
    let names = members.iter().flat_map(Composite::entries).map(|(name, _)| name);
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let found: Vec<_> = members.iter().map(|member| member.get(name)).collect();
        let Some(model) = found.iter().copied().flatten().next() else { continue };
        let batch = members[0].shape().rank();
        let lacking = |member: &Composite| !member.entries().any(|(other, _)| other == name);
        if let TensorSpec::Composite(model) = model {
            let inner = found.iter().zip(members).map(|(spec, member)| match spec {
                Some(TensorSpec::Composite(inner)) => Ok(inner.clone()),
                None if lacking(member) => Composite::new(model.shape().clone()),
                _ => {
                    let detail =
                        format!("{name:?} must be a dictionary in all of a stack or in none: got some");
                    Err(Error::new(ErrorKind::Incompatible, detail))
                }
            });
            for (member, inner) in whole.iter_mut().zip(unified(&inner.collect::<Result<Vec<_>>>()?)?) {
                member.set(name, TensorSpec::from(inner))?;
            }
            continue;
        }
        for (member, own) in whole.iter_mut().zip(members) {
            if lacking(own) {
                member.set(name, emptied(model, batch)?)?;
            }
        }
    }
    Ok(whole)
}

/// Returns a spec of the same kind with empty values, if a dimension can express that.
fn emptied(spec: &TensorSpec, batch: usize) -> Result<TensorSpec> {
    let shape: Shape = spec.shape();
    let free = if let TensorSpec::Leaf(leaf) = spec { shape.rank() - leaf.cell_rank() } else { shape.rank() };
    match shape.dims().get(batch) {
        Some(Some(_)) if batch < free => spec.moved(&Step::Slice { dim: batch, start: 0, end: 0 }),
        _ => Ok(spec.clone()),
    }
}
