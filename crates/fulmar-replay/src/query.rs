//! Queries of trajectories by a predicate, which can be serialised.

use fulmar_core::limits::REPLAY_PREDICATE_DEPTH_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde::{Deserialize, Serialize};

use crate::ReplayBuffer;
use crate::read::{Reduction, Steps, TrajectoryKeys, count_of, numbers};

/// A number computed from a trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "camelCase", deny_unknown_fields)]
pub enum TrajectoryValue {
    /// The number of steps.
    Length,
    /// The sum of all rewards, at `["next", "reward"]`.
    TotalReward,
    /// The values of all its steps at a key.
    Leaf {
        /// The key.
        key: Key,
        /// The reduction to one number.
        reduce: TrajectoryReduction,
    },
}

/// A reduction of the values of a trajectory's steps to one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TrajectoryReduction {
    /// The sum.
    Sum,
    /// The mean.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum of the first step's values.
    First,
    /// The sum of the last step's values.
    Last,
    /// 1 if any is not 0, else 0.
    Any,
    /// 1 if all are not 0, else 0.
    All,
}

/// A comparison of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// Below.
    #[serde(rename = "<")]
    Below,
    /// Below or equal.
    #[serde(rename = "<=")]
    AtMost,
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Not equal.
    #[serde(rename = "!=")]
    Other,
    /// Above or equal.
    #[serde(rename = ">=")]
    AtLeast,
    /// Above.
    #[serde(rename = ">")]
    Above,
}

/// A condition on a trajectory.
///
/// # Examples
/// ```
/// use fulmar_replay::TrajectoryPredicate;
/// let json = r#"{"not": {"value": {"of": "length"}, "is": "<", "than": 10}}"#;
/// let predicate: TrajectoryPredicate = serde_json::from_str(json).unwrap();
/// assert!(predicate.required_keys().is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a predicate must be {value, is, than}, {and}, {or} or {not}")]
pub enum TrajectoryPredicate {
    /// A comparison with a number of the trajectory.
    Compare(Comparand),
    /// All of these must hold.
    And {
        /// The predicates.
        and: Vec<TrajectoryPredicate>,
    },
    /// At least one of these must hold.
    Or {
        /// The predicates.
        or: Vec<TrajectoryPredicate>,
    },
    /// This must not hold.
    Not {
        /// The predicate.
        not: Box<TrajectoryPredicate>,
    },
}

/// A number of a trajectory and the number it is compared to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparand {
    /// The number of the trajectory.
    pub value: TrajectoryValue,
    /// The comparison.
    pub is: Comparison,
    /// The other number.
    pub than: f64,
}

impl TrajectoryPredicate {
    /// Returns the keys that must be read, in order of appearance, each once.
    #[must_use]
    pub fn required_keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut open = vec![self];
        while let Some(predicate) = open.pop() {
            match predicate {
                Self::Compare(Comparand { value, .. }) => {
                    let key = match value {
                        TrajectoryValue::Length => continue,
                        TrajectoryValue::TotalReward => Key::from(["next", "reward"]),
                        TrajectoryValue::Leaf { key, .. } => key.clone(),
                    };
                    if !keys.contains(&key) {
                        keys.push(key);
                    }
                }
                Self::And { and: parts } | Self::Or { or: parts } => open.extend(parts.iter().rev()),
                Self::Not { not } => open.push(not),
            }
        }
        keys
    }

    /// Returns whether `trajectory`, `[steps]`, satisfies the predicate.
    ///
    /// # Errors
    /// `UnknownName` if it lacks a key; `Empty` if it has no step; `LimitExceeded` if the predicate is nested
    /// too deep.
    pub fn holds(&self, trajectory: &TensorDict) -> Result<bool> {
        self.holds_at(trajectory, 1)
    }

    fn holds_at(&self, trajectory: &TensorDict, depth: usize) -> Result<bool> {
        if depth > REPLAY_PREDICATE_DEPTH_MAX {
            let detail = format!("predicate must be nested at most {REPLAY_PREDICATE_DEPTH_MAX} deep");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        match self {
            Self::Compare(Comparand { value, is, than }) => Ok(is.holds(value.of(trajectory)?, *than)),
            Self::And { and } => {
                for part in and {
                    if !part.holds_at(trajectory, depth + 1)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or { or } => {
                for part in or {
                    if part.holds_at(trajectory, depth + 1)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not { not } => Ok(!not.holds_at(trajectory, depth + 1)?),
        }
    }
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::Other => left != right,
            Self::AtLeast => left >= right,
            Self::Above => left > right,
        }
    }
}

impl TrajectoryValue {
    fn of(&self, trajectory: &TensorDict) -> Result<f64> {
        let (key, reduce) = match self {
            Self::Length => return Ok(count_of(trajectory) as f64),
            Self::TotalReward => (Key::from(["next", "reward"]), TrajectoryReduction::Sum),
            Self::Leaf { key, reduce } => (key.clone(), *reduce),
        };
        let values = numbers(trajectory.tensor(key)?)?;
        let width = values.len() / count_of(trajectory).max(1);
        let flag = |flag: bool| Ok(f64::from(u8::from(flag)));
        match reduce {
            TrajectoryReduction::Sum => Reduction::Sum.of(&values),
            TrajectoryReduction::Mean => Reduction::Mean.of(&values),
            TrajectoryReduction::Max => Reduction::Max.of(&values),
            TrajectoryReduction::Min => Reduction::Min.of(&values),
            TrajectoryReduction::First => Reduction::Sum.of(&values[..width]),
            TrajectoryReduction::Last => Reduction::Sum.of(&values[values.len() - width..]),
            TrajectoryReduction::Any => flag(values.iter().any(|value| *value != 0.0)),
            TrajectoryReduction::All => flag(values.iter().all(|value| *value != 0.0)),
        }
    }
}

impl ReplayBuffer {
    /// Returns the trajectories that satisfy `predicate`, or all without one, lane by lane from the oldest,
    /// each `[steps]`. The unfinished trajectory is included with its steps so far.
    ///
    /// # Errors
    /// `UnknownName` if a key is missing; the errors of [`TrajectoryPredicate::holds`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::{ListStorage, ReplayBuffer};
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut buffer = ReplayBuffer::new(Box::new(ListStorage::new(8)?), Default::default())?;
    /// let mut items = TensorDict::new(&[5])?;
    /// items.set("episode", Tensor::from_vec(&[5], vec![0_i64, 0, 1, 1, 1])?)?;
    /// buffer.extend(&items)?;
    /// let lens: Vec<_> = buffer.query(None, &Default::default())?.iter().map(|one| one.batch_size()[0]).collect();
    /// assert_eq!(lens, [2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn query(
        &self,
        predicate: Option<&TrajectoryPredicate>,
        keys: &TrajectoryKeys,
    ) -> Result<Vec<TensorDict>> {
        let lanes: usize = self.storage().shape()[1..].iter().product();
        let mut found = Vec::new();
        for lane in 0..lanes {
            let rows: Vec<usize> =
                self.rows_from_oldest().into_iter().filter(|row| row % lanes == lane).collect();
            if rows.is_empty() {
                continue;
            }
            let items = self.storage().get(&rows)?;
            let ends = match keys.read(&items)? {
                Steps::Ids(id_t) => crate::ends_of_ids(&id_t, 1, false)?,
                Steps::Ends(end_t) => end_t,
            };
            let mut start = 0;
            for (step, ends) in ends.iter().enumerate() {
                if !ends && step + 1 < rows.len() {
                    continue;
                }
                let trajectory = items.slice(start..step + 1)?;
                start = step + 1;
                if predicate.map_or(Ok(true), |predicate| predicate.holds(&trajectory))? {
                    found.push(trajectory);
                }
            }
        }
        Ok(found)
    }
}
