//! Rows of episodes one behind the other: what several data sets check and do.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::Value;

use crate::rows::{named, unfit};

/// Refuses a column of another number of rows; `None` is a single value.
pub(crate) fn check_rows(found: Option<usize>, rows: usize) -> Result<()> {
    if found == Some(rows) {
        return Ok(());
    }
    let found = found.map_or_else(|| "a single value".to_owned(), |found| found.to_string());
    Err(Error::new(ErrorKind::ShapeMismatch, format!("must have {rows} rows: got {found}")))
}

/// Refuses an episode with other keys, or rows of another shape or dtype, than the first.
pub(crate) fn check_alike(first: &TensorDict, other: &TensorDict) -> Result<()> {
    for (name, entry) in first.entries() {
        let Some(found) = other.get(name) else {
            let detail = "must be in every episode: it is missing";
            return Err(named(Error::new(ErrorKind::UnknownName, detail), name));
        };
        match (entry, found) {
            (Entry::Dict(first), Entry::Dict(other)) => {
                check_alike(first, other).map_err(|error| named(error, name))?;
            }
            (Entry::NonTensor(_), Entry::NonTensor(_)) => {}
            (Entry::Tensor(first), Entry::Tensor(other)) => {
                let (want, got) = (
                    (first.dtype().name(), &first.shape()[1..]),
                    (other.dtype().name(), &other.shape()[1..]),
                );
                if want != got {
                    let detail = format!(
                        "rows must be of {} {:?} as in the first episode: got {} {:?}",
                        want.0, want.1, got.0, got.1
                    );
                    return Err(named(Error::new(ErrorKind::ShapeMismatch, detail), name));
                }
            }
            (_, found) => return Err(named(unfit(found), name)),
        }
    }
    match other.entries().find(|(name, _)| first.get(*name).is_none()) {
        Some((name, _)) => {
            let detail = "must be in every episode: the first has none";
            Err(named(Error::new(ErrorKind::UnknownName, detail), name))
        }
        None => Ok(()),
    }
}

/// Returns the rows of dictionaries of the same keys, one behind the other.
pub(crate) fn cat(parts: &[&TensorDict], total: usize) -> Result<TensorDict> {
    let mut all = TensorDict::new(&[total])?;
    for (name, entry) in parts[0].entries() {
        let entry: Entry = match entry {
            Entry::Dict(_) => {
                let inner = parts.iter().map(|part| part.dict(name)).collect::<Result<Vec<_>>>()?;
                cat(&inner, total)?.into()
            }
            Entry::NonTensor(_) => {
                let mut values = Vec::with_capacity(total);
                for part in parts {
                    if let Value::Array(rows) = part.non_tensor(name)?.to_json() {
                        values.extend(rows);
                    }
                }
                NonTensor::each(&[total], values)?.into()
            }
            _ => {
                let tensors =
                    parts.iter().map(|part| part.tensor(name).cloned()).collect::<Result<Vec<_>>>()?;
                Tensor::cat(&tensors, 0)?.into()
            }
        };
        all.set(name, entry)?;
    }
    Ok(all)
}
