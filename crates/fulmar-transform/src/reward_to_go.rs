//! Discounted sums of the rewards from each step to the end of its trajectory.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{check_out_keys, doubles};
use crate::time::{Steps, flags, next_key};
use crate::transform::Transform;

/// Adds to each reward the discounted sum of it and the following ones. Every written sequence must contain
/// the end of a trajectory, as the sum over a part would be too small.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{Reward2GoTransform, Transform};
/// let mut rows = TensorDict::new(&[2])?;
/// rows.set(["next", "reward"], Tensor::from_vec(&[2], vec![1.0_f32, 2.0])?)?;
/// rows.set(["next", "done"], Tensor::from_vec(&[2], vec![false, true])?)?;
/// let stored = Reward2GoTransform { gamma: 0.5, ..Default::default() }.inverse(rows)?.unwrap_or(TensorDict::new(&[])?);
/// assert_eq!(stored.tensor("rtg")?.to_f32_vec(), [2.0, 2.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reward2GoTransform {
    /// The discount, from 0 to 1. Defaults to 1.
    pub gamma: f64,
    /// The keys of rewards. Defaults to `reward` below `next`.
    pub in_keys: Vec<Key>,
    /// The keys of the results. Defaults to `rtg`.
    pub out_keys: Vec<Key>,
    /// The flag that ends a trajectory, below `next`; `truncated` there ends one too.
    pub done_key: Key,
}

impl Default for Reward2GoTransform {
    fn default() -> Self {
        Self {
            gamma: 1.0,
            in_keys: vec![["next", "reward"].into()],
            out_keys: vec!["rtg".into()],
            done_key: "done".into(),
        }
    }
}

impl Reward2GoTransform {
    /// Checks and returns these options.
    ///
    /// # Errors
    /// `OutOfRange` if `gamma` is not in `0..=1`; `ShapeMismatch` if the numbers of input and output keys
    /// differ.
    pub fn checked(self) -> Result<Self> {
        check_discount("gamma", self.gamma)?;
        check_out_keys(&self.in_keys, &self.out_keys)?;
        Ok(self)
    }
}

impl Transform for Reward2GoTransform {
    fn inverse(&mut self, mut dict: TensorDict) -> Result<Option<TensorDict>> {
        let steps = Steps::of(&dict)?;
        let mut ends = flags(&dict, &next_key(&self.done_key))?;
        if dict.get(["next", "truncated"]).is_some() {
            let truncated = flags(&dict, &["next", "truncated"].into())?;
            ends.iter_mut().zip(truncated).for_each(|(end, truncated)| *end |= truncated);
        }
        if let Some(sequence) = ends.chunks(steps.len.max(1)).position(|ends| !ends.contains(&true)) {
            let detail =
                format!("a sequence must hold the end of a trajectory: sequence {sequence} does not");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let out_keys = if self.out_keys.is_empty() { &self.in_keys } else { &self.out_keys };
        let time = dict.batch_size().len() - 1;
        for (from, to) in self.in_keys.iter().zip(out_keys) {
            let sums = summed(dict.tensor(from.clone())?, dict.batch_size(), &ends, time, self.gamma)?;
            dict.set(to.clone(), sums)?;
        }
        Ok(Some(dict))
    }
}

/// Replaces each reward by the discounted sum of it and the following ones. If only the last step of an
/// episode has a reward, that is the reward of the episode.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{DensifyReward, Transform};
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set(["next", "reward"], Tensor::from_vec(&[3], vec![0.0_f32, 3.0, 0.0])?)?;
/// batch.set(["next", "done"], Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let dense = DensifyReward::default().forward(batch)?;
/// assert_eq!(dense.tensor(["next", "reward"])?.to_f32_vec(), [3.0, 3.0, 0.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DensifyReward {
    /// The reward, below `next`.
    pub reward_key: Key,
    /// The flag that ends an episode, below `next`.
    pub done_key: Key,
    /// The key of the result, below `next`. Defaults to the reward's key.
    pub reward_key_out: Option<Key>,
    /// The batch dimension of time, negative from the last. Defaults to the last.
    pub time_dim: isize,
    /// The discount, from 0 to 1. Defaults to 1.
    pub discount: f64,
}

impl Default for DensifyReward {
    fn default() -> Self {
        Self {
            reward_key: "reward".into(),
            done_key: "done".into(),
            reward_key_out: None,
            time_dim: -1,
            discount: 1.0,
        }
    }
}

impl DensifyReward {
    /// Checks and returns these options.
    ///
    /// # Errors
    /// `OutOfRange` if `discount` is not in `0..=1`.
    pub fn checked(self) -> Result<Self> {
        check_discount("discount", self.discount)?;
        Ok(self)
    }
}

impl Transform for DensifyReward {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        let rank = dict.batch_size().len() as isize;
        let time = if self.time_dim < 0 { self.time_dim + rank } else { self.time_dim };
        if time < 0 || time >= rank {
            let detail = format!(
                "timeDim must be a dimension of the batch size {:?}: got {}",
                dict.batch_size(),
                self.time_dim
            );
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let ends = flags(&dict, &next_key(&self.done_key))?;
        let reward = dict.tensor(next_key(&self.reward_key))?;
        let sums = summed(reward, dict.batch_size(), &ends, time as usize, self.discount)?;
        dict.set(next_key(self.reward_key_out.as_ref().unwrap_or(&self.reward_key)), sums)?;
        Ok(dict)
    }
}

fn summed(reward: &Tensor, batch: &[usize], ends: &[bool], time: usize, gamma: f64) -> Result<Tensor> {
    let mut sums = doubles(reward)?;
    let features = sums.len() / ends.len().max(1);
    let (len, stride) = (batch[time], batch[time + 1..].iter().product::<usize>());
    for at in (0..ends.len()).rev() {
        if ends[at] || (at / stride) % len == len - 1 {
            continue;
        }
        for feature in 0..features {
            sums[at * features + feature] += gamma * sums[(at + stride) * features + feature];
        }
    }
    Tensor::from_vec::<f64>(reward.shape(), sums)?.to(reward.dtype())
}

fn check_discount(name: &str, discount: f64) -> Result<()> {
    if (0.0..=1.0).contains(&discount) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be a number from 0 to 1: got {discount}")))
}
