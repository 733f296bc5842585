//! The form for HDF5 files: a dictionary for each trajectory.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, NonTensor, Ragged, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::ring::{STORAGE_SHAPE, TedKeys, leaves, ring_of, with_ring};

/// The number of trajectories and of upstream's steps.
const LEN: &str = "_len";
/// The prefix of a trajectory's number.
const TRAJECTORY: &str = "traj_";

/// Returns the nested form with one dictionary for each trajectory, `traj_0` and so on, and tensors in place
/// of JSON values. Shares the elements.
///
/// # Errors
/// `Malformed` if `nested` lacks the position of its ring; `Incompatible`, with the key, if an entry is not
/// ragged; `OutOfRange` if a count does not fit an `i64`.
///
/// # Examples
/// ```
/// use fulmar_ted::{Ring, TedKeys, hdf5_combine, hdf5_split, ted_to_nested};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let mut steps = TensorDict::new(&[2])?;
/// steps.set("action", Tensor::from_vec(&[2], vec![4_i64, 5])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[2, 1], vec![true, true])?)?;
/// let keys = TedKeys::default();
/// let nested = ted_to_nested(&steps, Ring::default(), &keys)?;
/// let split = hdf5_split(&nested, &keys)?;
/// assert_eq!(split.tensor(["traj_1", "action"])?.as_slice::<i64>()?, [5]);
/// assert_eq!(hdf5_combine(&split, &keys)?, nested);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn hdf5_split(nested: &TensorDict, keys: &TedKeys) -> Result<TensorDict> {
    let (ring, shape) = ring_of(nested, keys)?;
    let count = nested.batch_size().first().copied().unwrap_or(0);
    let mut split = TensorDict::new(&[])?;
    let steps = shape.iter().product::<usize>();
    let scalar = |value: usize| Tensor::from_vec(&[], vec![signed(value)?]);
    // Upstream writes the filled length and never reads it.
    let lanes = shape[1..].iter().product::<usize>();
    split.set(LEN, scalar(if ring.is_full { steps } else { ring.cursor * lanes })?)?;
    let dims = shape.iter().map(|dim| signed(*dim)).collect::<Result<Vec<_>>>()?;
    split.set(STORAGE_SHAPE, Tensor::from_vec(&[dims.len()], dims)?)?;
    split.set(keys.is_full.clone(), Tensor::from_vec(&[], vec![ring.is_full])?)?;
    split.set(keys.shift.clone(), scalar(ring.cursor)?)?;
    // As many digits as the count has, one less for a power of ten: names then sort like numbers.
    let digits = count.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
    for (key, entry) in leaves(nested, keys) {
        let Entry::Ragged(ragged) = entry else { return Err(not_ragged(&key, entry)) };
        for at in 0..count {
            let path = [&[format!("{TRAJECTORY}{at:0digits$}")], key.path()].concat();
            split.set(path, ragged.row(at)?)?;
        }
    }
    Ok(split)
}

/// Returns the nested form of the trajectories in `split`, in numerical order. Copies.
///
/// # Errors
/// `UnknownName` if a key of the ring, or an entry in some trajectory, is missing; `Malformed` if a key of
/// the ring has another form; `Incompatible` or `ShapeMismatch`, with the key, if trajectories cannot be
/// joined.
pub fn hdf5_combine(split: &TensorDict, keys: &TedKeys) -> Result<TensorDict> {
    let mut ring = TensorDict::new(&[])?;
    let shape = counts(split, &STORAGE_SHAPE.into())?;
    let is_full = split.tensor(keys.is_full.clone())?.to_vec::<bool>()?;
    for (key, value) in [
        (keys.is_full.clone(), json!(is_full.first())),
        (keys.shift.clone(), json!(counts(split, &keys.shift)?.first())),
        (STORAGE_SHAPE.into(), json!(shape)),
    ] {
        ring.set(key, NonTensor::shared(value))?;
    }
    let (ring, shape) = ring_of(&ring, keys)?;
    let trajectories = trajectories(split)?;
    let mut nested = with_ring(&[trajectories.len()], ring, &shape, keys)?;
    let Some(first) = trajectories.first() else {
        return Err(Error::new(ErrorKind::Empty, "a file must hold at least one trajectory: got 0"));
    };
    for key in first.leaf_keys() {
        let rows =
            trajectories.iter().map(|dict| dict.tensor(key.clone()).cloned()).collect::<Result<Vec<_>>>()?;
        if rows.iter().any(|row| row.rank() == 0) {
            let detail = "a trajectory must have one element a step: got a scalar";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(key));
        }
        nested.set(key.clone(), Ragged::from_rows(&rows).map_err(|error| error.at(&key))?)?;
    }
    Ok(nested)
}

fn trajectories(split: &TensorDict) -> Result<Vec<&TensorDict>> {
    let mut numbered = Vec::new();
    for (name, entry) in split.entries() {
        if let (Some(number), Entry::Dict(dict)) = (name.strip_prefix(TRAJECTORY), entry) {
            let number: usize = number.parse().map_err(|_| {
                Error::new(ErrorKind::Malformed, format!("a trajectory must have a number: got {name:?}"))
            })?;
            numbered.push((number, dict));
        }
    }
    numbered.sort_by_key(|(number, _)| *number);
    Ok(numbered.into_iter().map(|(_, dict)| dict).collect())
}

fn counts(split: &TensorDict, key: &Key) -> Result<Vec<Value>> {
    Ok(split
        .tensor(key.clone())?
        .to_vec::<i64>()
        .map_err(|error| error.at(key))?
        .into_iter()
        .map(Value::from)
        .collect())
}

fn signed(count: usize) -> Result<i64> {
    i64::try_from(count)
        .map_err(|_| Error::new(ErrorKind::OutOfRange, format!("a count must fit an i64: got {count}")))
}

fn not_ragged(key: &Key, entry: &Entry) -> Error {
    let detail = format!("{key} must be a ragged tensor: got an entry of kind {}", entry.kind());
    Error::new(ErrorKind::Incompatible, detail)
}
