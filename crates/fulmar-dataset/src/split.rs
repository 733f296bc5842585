//! Rows one behind the other as trajectories side by side.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Index, NonTensor, Tensor, TensorDict};
use serde_json::Value;

/// Returns rows `[N]` as trajectories `[n, T_max]`, each from behind a `next.done` to the next one. Shorter ones
/// end in zeros. Adds `mask`, true for rows, and `traj_ids`, the number of the trajectory, zero behind its end.
///
/// # Errors
/// `UnknownName` or `Incompatible` without flags at `next.done`; `Empty` without rows; `OutOfMemory`.
///
/// # Examples
/// ```
/// use fulmar_dataset::split_trajectories;
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3, 1], vec![false, true, false])?)?;
/// let split = split_trajectories(&steps)?;
/// assert_eq!(split.tensor("id")?.to_vec::<i64>()?, [1, 2, 3, 0]);
/// assert_eq!(split.tensor("mask")?.to_vec::<bool>()?, [true, true, true, false]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn split_trajectories(steps: &TensorDict) -> Result<TensorDict> {
    split_behind(steps, &done_of(steps)?)
}

/// Returns the flags at `next.done`.
pub(crate) fn done_of(steps: &TensorDict) -> Result<Vec<bool>> {
    steps.tensor(["next", "done"])?.to_vec::<bool>()
}

/// Does the same with a trajectory that ends at each row of `ends`.
pub(crate) fn split_behind(steps: &TensorDict, ends: &[bool]) -> Result<TensorDict> {
    let lens = lens_of(ends);
    let Some(longest) = lens.iter().copied().max() else {
        return Err(Error::new(ErrorKind::Empty, "steps must have rows: they have none"));
    };
    // The place of each row among the padded ones.
    let starts = (0..lens.len()).map(|at| at * longest);
    let places: Vec<usize> = starts.zip(&lens).flat_map(|(start, len)| start..start + len).collect();
    let mut split = padded(steps, &places, &[lens.len(), longest])?;
    let number = |at: usize| i64::try_from(at / longest).unwrap_or(i64::MAX);
    let ids = Tensor::from_vec(&[ends.len()], places.iter().map(|at| number(*at)).collect::<Vec<_>>())?;
    let mask = Tensor::from_vec(&[ends.len()], vec![true; ends.len()])?;
    split.set("traj_ids", spread(&ids, &places, &[lens.len(), longest])?)?;
    split.set("mask", spread(&mask, &places, &[lens.len(), longest])?)?;
    Ok(split)
}

fn lens_of(done: &[bool]) -> Vec<usize> {
    let mut lens: Vec<usize> = done.split_inclusive(|done| *done).map(<[bool]>::len).collect();
    lens.retain(|len| *len > 0);
    lens
}

fn padded(steps: &TensorDict, places: &[usize], batch: &[usize; 2]) -> Result<TensorDict> {
    let mut split = TensorDict::new(batch)?;
    for (name, entry) in steps.entries() {
        let entry: Entry = match entry {
            Entry::Tensor(tensor) => spread(tensor, places, batch)?.into(),
            Entry::Dict(inner) => padded(inner, places, batch)?.into(),
            Entry::NonTensor(values) => {
                let mut all = vec![Value::Null; batch[0] * batch[1]];
                if let Value::Array(rows) = values.to_json() {
                    places.iter().zip(rows).for_each(|(place, row)| all[*place] = row);
                }
                NonTensor::each(batch, all)?.into()
            }
            other => {
                let detail = format!("an entry must be a tensor: got one of kind {}", other.kind());
                return Err(Error::new(ErrorKind::Incompatible, detail).at(format!("{name:?}")));
            }
        };
        split.set(name, entry)?;
    }
    Ok(split)
}

fn spread(rows: &Tensor, places: &[usize], batch: &[usize; 2]) -> Result<Tensor> {
    let mut shape = vec![batch[0] * batch[1]];
    shape.extend(&rows.shape()[1..]);
    let mut all = Tensor::zeros(rows.dtype(), &shape)?;
    let at = places.iter().map(|place| i64::try_from(*place).unwrap_or(i64::MAX)).collect();
    all.set_at(&[Index::list(at)], rows)?;
    let mut shape = batch.to_vec();
    shape.extend(&rows.shape()[1..]);
    all.reshape(&shape)
}
