//! Hindsight experience replay (Andrychowicz et al., <https://arxiv.org/abs/1707.01495>).
//!
//! ```text
//! the first floor(N * ratio) rows of a batch get as their goal what was achieved by step g of the episode s..=e of row i:
//! future   g = i + floor(u * (e - i + 1))       final  g = e
//! episode  g = s + floor(u * (e - s + 1))       random g = any row
//! goal     = the next achieved goal of g: where its action led
//! reward   = f(the rows with their new goals)
//! ```

use fulmar_core::{Error, ErrorKind, Result, Rng};
use fulmar_tensor::{Index, Key, Tensor, TensorDict};
use serde::{Deserialize, Serialize};

use crate::read::{Steps, TrajectoryKeys};
use crate::trajectory::check_follows;
use crate::{Batch, ReplayBuffer, Trajectory, TrajectoryIndex};

/// The step whose achievement becomes the goal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HindsightStrategy {
    /// This step or a later one of the episode.
    #[default]
    Future,
    /// The last step of the episode.
    Final,
    /// Any step of the episode.
    Episode,
    /// Any step of the buffer.
    Random,
}

impl HindsightStrategy {
    /// Returns the offset of the source in its episode, for step `before` of an episode of `len` steps and a
    /// draw `uniform` in `[0, 1)`; `None` if the source may be in another episode.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::HindsightStrategy;
    /// assert_eq!(HindsightStrategy::Future.source(2, 5, 0.5), Some(3));
    /// assert_eq!(HindsightStrategy::Final.source(2, 5, 0.5), Some(4));
    /// ```
    #[must_use]
    pub fn source(self, before: usize, len: usize, uniform: f64) -> Option<usize> {
        let below = |count: usize| ((uniform * count as f64) as usize).min(count.saturating_sub(1));
        match self {
            Self::Future => Some(before + below(len - before)),
            Self::Final => Some(len - 1),
            Self::Episode => Some(below(len)),
            Self::Random => None,
        }
    }
}

/// Options of relabelling; checked by [`HindsightReplayBuffer::new`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HindsightOptions {
    /// The fraction of a batch that is relabelled, in `[0, 1]`. Defaults to 0.8.
    pub her_ratio: f64,
    /// The step whose achievement becomes the goal. Defaults to a future one.
    pub strategy: HindsightStrategy,
    /// The key of the goal. Defaults to `"desired_goal"`.
    pub goal_key: Key,
    /// The key of the achievement, also below `"next"`. Defaults to `"achieved_goal"`.
    pub achieved_goal_key: Key,
    /// The key of the reward. Defaults to `["next", "reward"]`.
    pub reward_key: Key,
    /// The keys that delimit episodes. Defaults to those of [`TrajectoryKeys`].
    pub trajectories: TrajectoryKeys,
}

impl Default for HindsightOptions {
    fn default() -> Self {
        Self {
            her_ratio: 0.8,
            strategy: HindsightStrategy::Future,
            goal_key: Key::from("desired_goal"),
            achieved_goal_key: Key::from("achieved_goal"),
            reward_key: Key::from(["next", "reward"]),
            trajectories: TrajectoryKeys::default(),
        }
    }
}

/// Computes the rewards of relabelled rows, in the shape of the stored ones.
pub type RewardFunction = Box<dyn Fn(&TensorDict) -> Result<Tensor> + Send>;

/// A ring of goal-conditioned steps whose batches are relabelled.
///
/// # Examples
/// ```
/// use fulmar_replay::{HindsightOptions, HindsightReplayBuffer, HindsightStrategy, ReplayBuffer, TensorStorage};
/// use fulmar_tensor::{Tensor, TensorDict};
/// let buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[4])?), Default::default())?;
/// let options = HindsightOptions { her_ratio: 1.0, strategy: HindsightStrategy::Final, ..Default::default() };
/// let reward = Box::new(|rows: &TensorDict| Tensor::from_vec_f32(&[rows.batch_size()[0]], vec![1.0; rows.batch_size()[0]]));
/// let mut buffer = HindsightReplayBuffer::new(buffer, options, reward, 7)?;
/// let mut items = TensorDict::new(&[2])?;
/// items.set("desired_goal", Tensor::from_vec_f32(&[2], vec![-1.0; 2])?)?;
/// items.set(["next", "achieved_goal"], Tensor::from_vec_f32(&[2], vec![5.0, 6.0])?)?;
/// items.set(["next", "reward"], Tensor::from_vec_f32(&[2], vec![0.0; 2])?)?;
/// items.set(["next", "done"], Tensor::from_vec(&[2], vec![false, true])?)?;
/// buffer.extend(&items)?;
/// assert_eq!(buffer.sample(Some(3))?.items.tensor("desired_goal")?.as_f32()?, [6.0; 3]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct HindsightReplayBuffer {
    buffer: ReplayBuffer,
    hindsight: Hindsight,
    reward: RewardFunction,
}

impl std::fmt::Debug for HindsightReplayBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HindsightReplayBuffer").field("hindsight", &self.hindsight).finish_non_exhaustive()
    }
}

impl HindsightReplayBuffer {
    /// Relabels the batches of `buffer`, which must be empty; `seed` makes the goals reproducible.
    ///
    /// # Errors
    /// `OutOfRange` if the ratio is not in `[0, 1]`; `Incompatible` if the buffer has lanes or holds items.
    pub fn new(
        buffer: ReplayBuffer,
        options: HindsightOptions,
        reward: RewardFunction,
        seed: u64,
    ) -> Result<Self> {
        let hindsight = Hindsight::new(&buffer, options, seed)?;
        Ok(Self { buffer, hindsight, reward })
    }

    /// Returns the buffer below.
    #[must_use]
    pub const fn buffer(&self) -> &ReplayBuffer {
        &self.buffer
    }

    /// Writes `items`, `[steps]`, which follow those written last.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::extend`]; `UnknownName` if items have no key that delimits episodes;
    /// `Incompatible` if the writer is not a ring.
    pub fn extend(&mut self, items: &TensorDict) -> Result<Vec<Option<usize>>> {
        self.hindsight.check(items)?;
        let rows = self.buffer.extend(items)?;
        self.hindsight.extend(&rows, items)?;
        Ok(rows)
    }

    /// Draws a batch and relabels its first rows.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::sample`]; `UnknownName`, naming it, if a goal or reward is not stored;
    /// the errors of the reward function.
    pub fn sample(&mut self, count: Option<usize>) -> Result<Batch> {
        let batch = self.buffer.sample(count)?;
        self.relabelled(batch)
    }

    /// Returns the batch of the given rows, relabelled.
    ///
    /// # Errors
    /// The errors of [`HindsightReplayBuffer::sample`].
    pub fn batch_of(&mut self, rows: &[usize]) -> Result<Batch> {
        let batch = self.buffer.batch_of(rows)?;
        self.relabelled(batch)
    }

    /// Returns the episode of `row`, and the number of its steps before it; `None` for an empty row.
    #[must_use]
    pub fn episode_of(&self, row: usize) -> Option<(Trajectory, usize)> {
        self.hindsight.index.at(row)
    }

    /// Empties the buffer.
    ///
    /// # Errors
    /// The errors of [`ReplayBuffer::clear`].
    pub fn clear(&mut self) -> Result<()> {
        self.buffer.clear(false)?;
        self.hindsight.clear();
        Ok(())
    }

    fn relabelled(&mut self, mut batch: Batch) -> Result<Batch> {
        let count = self.hindsight.relabel(&self.buffer, &mut batch)?;
        if count > 0 {
            let rewards = (self.reward)(&batch.items.slice(0..count)?)?;
            self.hindsight.set_rewards(&mut batch, count, &rewards)?;
        }
        Ok(batch)
    }
}

/// The steps of [`HindsightReplayBuffer`] for a caller that computes rewards itself.
///
/// # Examples
/// ```
/// use fulmar_replay::{Hindsight, ReplayBuffer, TensorStorage};
/// let buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[4])?), Default::default())?;
/// assert!(Hindsight::new(&buffer, Default::default(), 7).is_ok());
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Hindsight {
    options: HindsightOptions,
    index: TrajectoryIndex,
    rng: Rng,
}

impl Hindsight {
    /// Returns the relabelling of `buffer`, which must be empty; `seed` makes the goals reproducible.
    ///
    /// # Errors
    /// The errors of [`HindsightReplayBuffer::new`].
    pub fn new(buffer: &ReplayBuffer, options: HindsightOptions, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&options.her_ratio) {
            let detail = format!("her_ratio must be in 0..=1: got {}", options.her_ratio);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let shape = buffer.storage().shape();
        if shape.len() != 1 || !buffer.storage().is_empty() {
            let detail =
                format!("the buffer must be empty and of one dimension to be relabelled: got {shape:?}");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let index = TrajectoryIndex::new(shape[0])?;
        Ok(Self { options, index, rng: Rng::new(seed).stream("hindsight") })
    }

    /// Refuses items without a key that delimits episodes.
    ///
    /// # Errors
    /// `UnknownName` for such items.
    pub fn check(&self, items: &TensorDict) -> Result<()> {
        self.options.trajectories.read(items).map(|_| ())
    }

    /// Records that `items` were written to `rows`.
    ///
    /// # Errors
    /// The errors of [`Hindsight::check`]; `Incompatible` if the rows do not follow those written last.
    pub fn extend(&mut self, rows: &[Option<usize>], items: &TensorDict) -> Result<()> {
        let kept: Vec<usize> = rows.iter().copied().flatten().collect();
        check_follows(self.index.cursor(), self.index.capacity(), &kept)?;
        match self.options.trajectories.read(items)? {
            Steps::Ids(id_t) => self.index.extend_ids(&id_t),
            Steps::Ends(end_t) => self.index.extend(&end_t),
        }
        Ok(())
    }

    /// Writes new goals to the first rows of a batch of `buffer` and returns their number. Their rewards
    /// still belong to the old goals.
    ///
    /// # Errors
    /// `UnknownName`, naming it, if a goal or reward is not stored.
    pub fn relabel(&mut self, buffer: &ReplayBuffer, batch: &mut Batch) -> Result<usize> {
        let achieved = Key::from([&["next".to_owned()], self.options.achieved_goal_key.path()].concat());
        for key in [&achieved, &self.options.goal_key, &self.options.reward_key] {
            batch.items.tensor(key.clone())?;
        }
        let count = (batch.rows.len() as f64 * self.options.her_ratio) as usize;
        if count == 0 {
            return Ok(0);
        }
        let len = buffer.storage().len();
        let sources =
            batch.rows[..count].iter().map(|row| self.source_of(*row, len)).collect::<Result<Vec<_>>>()?;
        let goals = buffer.storage().get(&sources)?.tensor(achieved)?.clone();
        let first = [Index::from(0..count as i64)];
        let goal = &self.options.goal_key;
        let next = Key::from([&["next".to_owned()], goal.path()].concat());
        batch.items.write_at(goal.clone(), &first, &goals)?;
        if batch.items.get(next.clone()).is_some() {
            batch.items.write_at(next, &first, &goals)?;
        }
        Ok(count)
    }

    /// Writes the rewards of the first `count` rows, in the shape of the stored ones.
    ///
    /// # Errors
    /// `UnknownName` if no rewards are stored; `ShapeMismatch` or `Incompatible` if these differ from them.
    pub fn set_rewards(&self, batch: &mut Batch, count: usize, rewards: &Tensor) -> Result<()> {
        let stored = batch.items.tensor(self.options.reward_key.clone())?.shape()[1..].to_vec();
        let rewards = rewards.reshape(&[&[count], &stored[..]].concat())?;
        batch.items.write_at(self.options.reward_key.clone(), &[Index::from(0..count as i64)], &rewards)
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.index.clear();
    }

    fn source_of(&mut self, row: usize, len: usize) -> Result<usize> {
        let uniform = self.rng.uniform_f64();
        let Some((episode, before)) = self.index.at(row) else {
            let detail = format!("row must hold a step to be relabelled: got {row}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        };
        match self.options.strategy.source(before, episode.len, uniform) {
            Some(step) => Ok((episode.start + step) % self.index.capacity()),
            None => Ok(self.rng.below(len as u64)? as usize),
        }
    }
}
