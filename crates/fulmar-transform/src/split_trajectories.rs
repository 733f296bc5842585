//! Splits sequences of steps into trajectories.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, PadSequence, Ragged, Tensor, TensorDict};
use serde::Deserialize;

use crate::next_state::integers;
use crate::number::check_size;
use crate::time::{Steps, flags, next_key};

/// Options of [`split_trajectories`].
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SplitOptions {
    /// The dictionary that gets `mask` and `traj_ids`. Defaults to `collector`.
    pub prefix: Key,
    /// The key of trajectory ids. Defaults to `traj_ids` of `prefix`, if that exists and `done_key` is not
    /// given.
    pub trajectory_key: Option<Key>,
    /// The flag that ends a trajectory, below `next`, if there are no ids. Defaults to `done`.
    pub done_key: Option<Key>,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self { prefix: "collector".into(), trajectory_key: None, done_key: None }
    }
}

/// Returns the trajectories of `dict`, whose last batch dimension is time, as `[trajectories, longest]`,
/// shorter ones padded with zeros. Adds below `prefix` the bools `mask`, true at steps, and, if it split by
/// end flags, the integers `traj_ids`.
///
/// # Errors
/// `UnknownName` if there are neither ids nor end flags; `ShapeMismatch` without a batch dimension;
/// `LimitExceeded` if padding would take too much memory; `Incompatible` if an entry is not a tensor; `Empty`
/// without steps.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{SplitOptions, split_trajectories};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("obs", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let split = split_trajectories(&steps, &SplitOptions::default())?;
/// assert_eq!(split.batch_size(), [2, 2]);
/// assert_eq!(split.tensor("obs")?.to_vec::<i64>()?, [1, 2, 3, 0]);
/// assert_eq!(split.tensor(["collector", "mask"])?.to_vec::<bool>()?, [true, true, true, false]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn split_trajectories(dict: &TensorDict, options: &SplitOptions) -> Result<TensorDict> {
    let cut = Cut::of(dict, options)?;
    let longest = cut.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as usize;
    let num = cut.offsets.len() - 1;
    check_size(&[num, longest])?;
    for key in cut.steps.leaf_keys() {
        if let Some(Entry::Tensor(tensor)) = cut.steps.get(key) {
            check_size(&[&[num, longest], &tensor.shape()[1..]].concat())?;
        }
    }
    let parts = cut.offsets.windows(2).map(|pair| cut.steps.slice(pair[0] as usize..pair[1] as usize));
    let mut split = TensorDict::pad_sequence(&parts.collect::<Result<Vec<_>>>()?, &PadSequence::default())?;
    let lengths = cut.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
    let mask = lengths.flat_map(|len| (0..longest).map(move |step| step < len)).collect();
    split.set(below(&options.prefix, "mask"), Tensor::from_vec::<bool>(&[num, longest], mask)?)?;
    Ok(split)
}

/// Splits without padding: returns a dictionary with one element for each trajectory, each tensor a
/// [`Ragged`] with one row for each.
///
/// # Errors
/// The errors of [`split_trajectories`].
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{SplitOptions, split_trajectories_ragged};
/// let mut steps = TensorDict::new(&[3])?;
/// steps.set("obs", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// steps.set(["next", "done"], Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let split = split_trajectories_ragged(&steps, &SplitOptions::default())?;
/// assert_eq!(split.ragged("obs")?.offsets(), [0, 2, 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn split_trajectories_ragged(dict: &TensorDict, options: &SplitOptions) -> Result<TensorDict> {
    let cut = Cut::of(dict, options)?;
    let mut split = TensorDict::new(&[cut.offsets.len() - 1])?;
    for key in cut.steps.leaf_keys() {
        let values = cut.steps.tensor(key.clone())?.clone();
        split.set(key, Ragged::new(values, &cut.offsets)?)?;
    }
    Ok(split)
}

/// All steps in one batch dimension, and the starts of trajectories.
struct Cut {
    steps: TensorDict,
    offsets: Vec<u64>,
}

impl Cut {
    fn of(dict: &TensorDict, options: &SplitOptions) -> Result<Self> {
        let shape = Steps::of(dict)?;
        if shape.total() == 0 {
            let detail = format!("steps must be at least one: got batch size {:?}", dict.batch_size());
            return Err(Error::new(ErrorKind::Empty, detail));
        }
        let ids = below(&options.prefix, "traj_ids");
        let known = dict.get(ids.clone()).is_some() && options.done_key.is_none();
        let by_id = options.trajectory_key.clone().or_else(|| known.then(|| ids.clone()));
        let ends = match &by_id {
            Some(key) => {
                let ids = integers(dict, key)?;
                (0..ids.len()).map(|at| at + 1 < ids.len() && ids[at] != ids[at + 1]).collect()
            }
            None => flags(dict, &next_key(&options.done_key.clone().unwrap_or_else(|| "done".into())))?,
        };
        let firsts = shape.firsts(&ends);
        let mut offsets: Vec<u64> = firsts.iter().map(|first| *first as u64).collect();
        offsets.dedup();
        let mut steps = dict.reshape(&[-1])?;
        if by_id.is_none() {
            let number = |first: &usize| offsets.partition_point(|offset| *offset < *first as u64) as i64;
            let numbers = firsts.iter().map(number).collect();
            steps.set(ids, Tensor::from_vec::<i64>(&[shape.total()], numbers)?)?;
        }
        offsets.push(shape.total() as u64);
        Ok(Self { steps, offsets })
    }
}

fn below(prefix: &Key, name: &str) -> Key {
    let mut path = prefix.path().to_vec();
    path.push(name.to_owned());
    Key::from(path)
}
