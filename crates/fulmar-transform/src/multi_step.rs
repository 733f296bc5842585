//! Transitions over several steps. With `k_t` the minimum of `nSteps` and the number of steps from `t` to the
//! end of its trajectory:
//!
//! ```text
//! reward_t <- sum of gamma^j reward_{t+j} for j < k_t        next_t <- next_{t+k_t-1}, with its done and terminated
//! ```
//!
//! Sutton and Barto, "Reinforcement Learning", chapter 7.

use fulmar_core::Result;
use fulmar_tensor::{Entry, Key, Tensor, TensorDict};
use serde::Deserialize;

use crate::number::{at_least_1, check_gamma, doubles};
use crate::time::{Steps, flags, next_key};
use crate::transform::Transform;

/// Makes transitions over `nSteps` steps of a batch of whole sequences, with time in the last batch
/// dimension. Adds `stepsToNextObs` (`k`), `gamma` (`gamma^k`), `nonterminal` (whether more steps of the
/// trajectory follow) and, below `next`, `original_reward`, all under the field's names.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{MultiStep, Transform};
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set(["next", "obs"], Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
/// batch.set(["next", "reward"], Tensor::from_vec(&[3], vec![1.0_f32, 1.0, 1.0])?)?;
/// batch.set(["next", "done"], Tensor::from_vec(&[3], vec![false, true, false])?)?;
/// let stepped = MultiStep::new(2, 0.5)?.forward(batch)?;
/// assert_eq!(stepped.tensor(["next", "reward"])?.to_f32_vec(), [1.5, 1.0, 1.0]);
/// assert_eq!(stepped.tensor(["next", "obs"])?.to_vec::<i64>()?, [2, 2, 3]);
/// assert_eq!(stepped.tensor(["next", "done"])?.to_vec::<bool>()?, [true, true, false]);
/// assert_eq!(stepped.tensor("steps_to_next_obs")?.to_vec::<i64>()?, [2, 1, 1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MultiStep {
    /// Maximum number of steps in a transition.
    pub n_steps: usize,
    /// The discount of a step, more than 0 and at most 1.
    pub gamma: f64,
    /// The keys of rewards, below `next`; the original is stored with `original_` before its last name.
    /// Defaults to `reward`.
    #[serde(default = "reward")]
    pub reward_keys: Vec<Key>,
    /// The flag that ends a trajectory, below `next`. Defaults to `done`.
    #[serde(default = "done")]
    pub done_key: Key,
    /// More end flags, below `next`, used only with `legacyDone`. Defaults to `terminated` and `truncated`.
    #[serde(default = "ends")]
    pub done_keys: Vec<Key>,
    /// The key of bools that are false at padding, which is ignored; optional. Defaults to `["collector",
    /// "mask"]`.
    #[serde(default = "mask")]
    pub mask_key: Key,
    /// If true, keeps the end flags of every step, as TorchRL does, instead of those of the transition's last
    /// step.
    #[serde(default)]
    pub legacy_done: bool,
}

fn reward() -> Vec<Key> {
    vec!["reward".into()]
}

fn done() -> Key {
    "done".into()
}

fn ends() -> Vec<Key> {
    vec!["terminated".into(), "truncated".into()]
}

fn mask() -> Key {
    ["collector", "mask"].into()
}

impl MultiStep {
    /// Makes transitions over `n_steps` steps, with the defaults for all other options.
    ///
    /// # Errors
    /// `OutOfRange` if `n_steps` is 0, or `gamma` is not in `(0, 1]`.
    pub fn new(n_steps: usize, gamma: f64) -> Result<Self> {
        let (done_key, done_keys, mask_key) = (done(), ends(), mask());
        let reward_keys = reward();
        Self { n_steps, gamma, reward_keys, done_key, done_keys, mask_key, legacy_done: false }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self> {
        at_least_1("nSteps", self.n_steps)?;
        check_gamma("gamma", self.gamma)?;
        Ok(self)
    }

    /// Returns the result of [`MultiStep`] for `dict`.
    pub(crate) fn stepped(&self, mut dict: TensorDict) -> Result<TensorDict> {
        let steps = Steps::of(&dict)?;
        let batch = dict.batch_size().to_vec();
        let (mut ends, mask) = (flags(&dict, &next_key(&self.done_key))?, self.mask(&dict)?);
        // No step uses padding, and padding uses no step.
        for at in 1..ends.len() {
            ends[at - 1] |= mask[at - 1] != mask[at];
        }
        let lasts = steps.lasts(&ends);
        let counts: Vec<usize> =
            lasts.iter().enumerate().map(|(at, last)| self.n_steps.min(last + 1 - at)).collect();
        let arrivals: Vec<usize> = counts.iter().enumerate().map(|(at, count)| at + count - 1).collect();
        let before = dict.dict("next")?.clone();
        let flat = before.exclude(&self.reward_keys).reshape(&[-1])?;
        let mut next = flat.index_select(&arrivals)?.reshape(&signed(&batch))?;
        for key in &self.reward_keys {
            let reward = before.tensor(key.clone())?;
            next.set(original(key), reward.clone())?;
            next.set(key.clone(), self.sums(reward, &counts)?)?;
        }
        for key in [&self.done_key].into_iter().chain(&self.done_keys).filter(|_| self.legacy_done) {
            if let Some(Entry::Tensor(end)) = before.get(key.clone()) {
                next.set(key.clone(), end.clone())?;
            }
        }
        dict.set("next", next)?;
        let numbers = counts.iter().map(|count| *count as i64).collect();
        dict.set("steps_to_next_obs", Tensor::from_vec::<i64>(&batch, numbers)?)?;
        let discounts = counts.iter().map(|count| power(self.gamma, *count) as f32).collect();
        dict.set("gamma", Tensor::from_vec::<f32>(&batch, discounts)?)?;
        let more = lasts.iter().enumerate().map(|(at, last)| mask[at] && *last > at).collect();
        dict.set("nonterminal", Tensor::from_vec::<bool>(&batch, more)?)?;
        Ok(dict)
    }

    fn mask(&self, dict: &TensorDict) -> Result<Vec<bool>> {
        match dict.get(self.mask_key.clone()) {
            Some(_) => flags(dict, &self.mask_key),
            None => Ok(vec![true; dict.batch_size().iter().product()]),
        }
    }

    fn sums(&self, reward: &Tensor, counts: &[usize]) -> Result<Tensor> {
        let values = doubles(reward)?;
        let features = values.len() / counts.len().max(1);
        let sum = |index: usize| {
            let (at, feature) = (index / features, index % features);
            // From the last reward on, so that no power of gamma is needed.
            (at..at + counts[at])
                .rev()
                .fold(0.0, |sum, at| values[at * features + feature] + self.gamma * sum)
        };
        let sums = (0..values.len()).map(sum).collect();
        Tensor::from_vec::<f64>(reward.shape(), sums)?.to(reward.dtype())
    }
}

impl Transform for MultiStep {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        self.stepped(dict)
    }
}

/// Returns `gamma^count` by multiplication, which is the same on every target.
fn power(gamma: f64, count: usize) -> f64 {
    (0..count).fold(1.0, |power, _| power * gamma)
}

fn original(key: &Key) -> Key {
    let mut path = key.path().to_vec();
    if let Some(name) = path.last_mut() {
        name.insert_str(0, "original_");
    }
    Key::from(path)
}

fn signed(batch: &[usize]) -> Vec<isize> {
    batch.iter().map(|len| *len as isize).collect()
}
