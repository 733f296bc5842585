//! Sequences of steps cut into trajectories.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, PadSequence, Ragged, Tensor, TensorDict};
use serde::Deserialize;

use crate::next_state::integers;
use crate::number::check_size;
use crate::time::{Steps, flags, next_key};

/// How [`split_trajectories`] finds trajectories, and where it says what it did.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SplitOptions {
    /// The dictionary that gets `mask` and `traj_ids`; `collector` unless told.
    pub prefix: Key,
    /// Integers that differ from a trajectory to the next; unless told `traj_ids` of `prefix`, if it is there and `done_key` is not
    /// told.
    pub trajectory_key: Option<Key>,
    /// What ends a trajectory, below `next`, where no integers say it; `done` unless told.
    pub done_key: Option<Key>,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self { prefix: "collector".into(), trajectory_key: None, done_key: None }
    }
}

/// The trajectories of `dict`, whose last batch dimension is time, `[trajectories, longest]`, with zeros behind shorter ones. Adds
/// below `prefix` the bools `mask`, true at steps, and, where it went by ends, the integers `traj_ids`.
///
/// # Errors
/// `UnknownName` if there is neither the one nor the other; `ShapeMismatch` without a batch dimension; `LimitExceeded` if padding
/// would take too much; `Incompatible` if an entry is no tensor; `Empty` without steps.
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

/// [`split_trajectories`] without padding: a dictionary of as many elements as there are trajectories, each tensor a [`Ragged`] of
/// one row a trajectory.
///
/// # Errors
/// Those of [`split_trajectories`].
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

/// All steps in one batch dimension, and where trajectories begin.
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
