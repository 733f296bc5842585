//! Chunks of future actions.

use fulmar_core::Result;
use fulmar_tensor::{Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{at_least_1, check_size};
use crate::time::{Steps, flags};
use crate::transform::Transform;

/// Adds to each action the `chunkSize` actions from it on, `[..., T, chunkSize, A]`. After the end of a
/// trajectory the last action is repeated, and `action_is_pad` is true.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{ActionChunkTransform, Transform};
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set("action", Tensor::from_vec(&[3, 1], vec![1_i64, 2, 3])?)?;
/// batch.set(["next", "done"], Tensor::from_vec(&[3], vec![false; 3])?)?;
/// let chunked = ActionChunkTransform::new(2)?.forward(batch)?;
/// assert_eq!(chunked.tensor(["vla_action", "chunk"])?.to_vec::<i64>()?, [1, 2, 2, 3, 3, 3]);
/// assert_eq!(chunked.tensor("action_is_pad")?.to_vec::<bool>()?, [false, false, false, false, false, true]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ActionChunkTransform {
    /// Number of actions in a chunk.
    pub chunk_size: usize,
    /// The key of the actions. Defaults to `action`.
    #[serde(default = "action")]
    pub in_key: Key,
    /// The key of the chunks. Defaults to `["vla_action", "chunk"]`.
    #[serde(default = "chunk")]
    pub out_key: Key,
    /// The key of the padding flags. Defaults to `action_is_pad`.
    #[serde(default = "pad")]
    pub pad_key: Key,
    /// The flag that ends a trajectory; `null` if only the end of a sequence does. Defaults to `["next",
    /// "done"]`.
    #[serde(default = "done")]
    pub done_key: Option<Key>,
}

fn action() -> Key {
    "action".into()
}

fn chunk() -> Key {
    ["vla_action", "chunk"].into()
}

fn pad() -> Key {
    "action_is_pad".into()
}

fn done() -> Option<Key> {
    Some(["next", "done"].into())
}

impl ActionChunkTransform {
    /// Makes chunks of `chunk_size`, with the defaults for all other options.
    ///
    /// # Errors
    /// `OutOfRange` if `chunk_size` is 0.
    pub fn new(chunk_size: usize) -> Result<Self> {
        Self { chunk_size, in_key: action(), out_key: chunk(), pad_key: pad(), done_key: done() }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        at_least_1("chunkSize", self.chunk_size)?;
        Ok(self)
    }
}

impl Transform for ActionChunkTransform {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        let steps = Steps::of(&dict)?;
        let ends = match &self.done_key {
            Some(key) => flags(&dict, key)?,
            None => vec![false; steps.total()],
        };
        let (batch, size) = (dict.batch_size().to_vec(), self.chunk_size);
        let actions = dict.tensor(self.in_key.clone())?;
        let features = &actions.shape()[batch.len()..];
        let shape = [batch.as_slice(), &[size], features].concat();
        check_size(&[&shape[..=batch.len()], &[features.iter().product::<usize>().max(1)]].concat())?;
        let lasts = steps.lasts(&ends);
        let each = || {
            lasts.iter().enumerate().flat_map(|(at, last)| (0..size).map(move |ahead| (at + ahead, *last)))
        };
        let picks: Vec<usize> = each().map(|(at, last)| at.min(last)).collect();
        let flat = actions.reshape(&[&[steps.total()], features].concat())?;
        let chunks = flat.index_select(0, &picks)?.reshape(&shape)?;
        let repeated = each().map(|(at, last)| at > last).collect();
        dict.set(self.out_key.clone(), chunks)?;
        dict.set(self.pad_key.clone(), Tensor::from_vec::<bool>(&shape[..=batch.len()], repeated)?)?;
        Ok(dict)
    }
}
