//! Fields of records: entries of a dictionary with a dtype.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Tensor, TensorDict};

/// Refuses other keys than those of a record.
pub(super) fn check_names(dict: &TensorDict, known: &[&str]) -> Result<()> {
    match dict.entries().find(|(name, _)| !known.contains(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let detail = format!("dict must have the keys {} alone: got {name}", known.join(", "));
            Err(Error::new(ErrorKind::UnknownName, detail))
        }
    }
}

/// Returns the tensor of a field.
pub(super) fn field(dict: &TensorDict, name: &str, dtype: Dtype) -> Result<Tensor> {
    let tensor = dict.tensor(name)?;
    check_dtype(name, tensor, dtype)?;
    Ok(tensor.clone())
}

/// Returns the tensor of a field that may be absent.
pub(super) fn optional(dict: &TensorDict, name: &str, dtype: Dtype) -> Result<Option<Tensor>> {
    dict.get(name).map(|_| field(dict, name, dtype)).transpose()
}

/// Returns a dictionary of the fields that there are.
pub(super) fn dict_of<const N: usize>(
    batch_size: &[usize],
    fields: [(&str, Option<Entry>); N],
) -> Result<TensorDict> {
    let mut dict = TensorDict::new(batch_size)?;
    for (name, entry) in fields {
        if let Some(entry) = entry {
            dict.set(name, entry)?;
        }
    }
    Ok(dict)
}

/// Refuses a tensor of another dtype.
pub(super) fn check_dtype(name: &str, tensor: &Tensor, dtype: Dtype) -> Result<()> {
    if tensor.dtype() == dtype {
        return Ok(());
    }
    let detail = format!("{name} must be {}: got {}", dtype.name(), tensor.dtype().name());
    Err(Error::new(ErrorKind::Incompatible, detail))
}

/// Refuses a tensor of another shape.
pub(super) fn check_shape(name: &str, tensor: &Tensor, shape: &[usize]) -> Result<()> {
    if tensor.shape() == shape {
        return Ok(());
    }
    let detail = format!("{name} must be of {shape:?}: got {:?}", tensor.shape());
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
