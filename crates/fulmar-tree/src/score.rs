//! Scores of the actions of nodes, batched over nodes.
//!
//! n visits of an action, N visits of its node, w the sum of its returns, s the sum of their squares, P its prior, K actions:
//!
//! | score | formula |
//! |---|---|
//! | PUCT | `w/n + c P sqrt(N) / (1 + n)` |
//! | UCB | `w/n + c sqrt(N) / (1 + n)`; as UCB1 `w/n + c sqrt(ln N / n)` (Auer et al. 2002, <https://doi.org/10.1023/A:1013689704352>) |
//! | UCB1-tuned | `m + sqrt(ln N / n * min(1/4, max(0, s/n - m^2 + sqrt(c ln N / n))))`, `m = w/n` |
//! | EXP3 | `(1 - gamma) weight / sum(weights) + gamma / K`; reward r: `weight *= exp(gamma / K * r / p)` |

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Element, Key, Tensor, TensorDict};
use serde::Deserialize;

/// A score with its constants.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Score {
    /// PUCT, as AlphaZero has it. An action without visits has the mean `unvisited`; NaN, as in torchrl, if absent.
    Puct {
        /// Weight of the prior.
        c: f64,
        /// The mean of an action without visits.
        unvisited: Option<f64>,
    },
    /// UCB. An action without visits has the mean `unvisited`; NaN if absent; an infinite score with `ucb1`.
    Ucb {
        /// Weight of the exploration.
        c: f64,
        /// The mean of an action without visits.
        unvisited: Option<f64>,
        /// True: the formula of UCB1.
        #[serde(default)]
        ucb1: bool,
    },
    /// UCB1-tuned. An action without visits has a tenth of the largest number of the dtype.
    Ucb1Tuned {
        /// Weight of the exploration in the estimate of the variance.
        exploration_constant: f64,
    },
    /// EXP3.
    Exp3 {
        /// Share of uniform exploration, in `[0, 1]`.
        gamma: f64,
    },
}

/// Keys of the entries that a [`Score`] reads.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ScoreKeys {
    /// `[.., K]`: sum of the returns of each action.
    pub win_count: Key,
    /// `[.., K]`: visits of each action.
    pub visits: Key,
    /// `[]`, `[..]`, `[.., 1]` or `[.., K]`: visits of each node.
    pub total_visits: Key,
    /// `[.., K]`: prior of each action.
    pub prior_prob: Key,
    /// `[.., K]`: sum of the squares of the returns of each action.
    pub sum_squared_rewards: Key,
    /// `[.., K]`: weight of each action.
    pub weights: Key,
    /// K.
    pub num_actions: Key,
}

impl Default for ScoreKeys {
    fn default() -> Self {
        Self {
            win_count: "win_count".into(),
            visits: "visits".into(),
            total_visits: "total_visits".into(),
            prior_prob: "prior_prob".into(),
            sum_squared_rewards: "sum_squared_rewards".into(),
            weights: "weights".into(),
            num_actions: "num_actions".into(),
        }
    }
}

impl Score {
    /// Checks the constants.
    ///
    /// # Errors
    /// `OutOfRange` if `gamma` is not in `[0, 1]`, or another constant is negative; `NonFinite` if one is not finite.
    pub fn checked(self) -> Result<Self> {
        let (name, value, max) = match self {
            Self::Puct { c, .. } | Self::Ucb { c, .. } => ("c", c, f64::MAX),
            Self::Ucb1Tuned { exploration_constant } => {
                ("exploration_constant", exploration_constant, f64::MAX)
            }
            Self::Exp3 { gamma } => ("gamma", gamma, 1.0),
        };
        if !value.is_finite() {
            return Err(Error::new(ErrorKind::NonFinite, format!("{name} must be finite: got {value}")));
        }
        if !(0.0..=max).contains(&value) {
            let rule = if max == 1.0 { "in [0, 1]" } else { ">= 0" };
            return Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be {rule}: got {value}")));
        }
        Ok(self)
    }

    /// Returns the score of each action of each node, `[.., K]`, in the dtype of the returns or weights: `f64`, otherwise `f32`.
    ///
    /// # Errors
    /// `UnknownName` or `Incompatible`, with the key, if an entry is missing or not a tensor; `ShapeMismatch` if two shapes do not agree.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// use fulmar_tree::{Score, ScoreKeys};
    /// let mut node = TensorDict::new(&[])?;
    /// node.set("win_count", Tensor::from_vec(&[2], vec![10.0_f32, 20.0])?)?;
    /// node.set("visits", Tensor::from_vec(&[2], vec![5.0_f32, 10.0])?)?;
    /// node.set("total_visits", Tensor::from_vec(&[], vec![50.0_f32])?)?;
    /// let score = Score::Ucb { c: 0.0, unvisited: None, ucb1: false };
    /// assert_eq!(score.forward(&node, &ScoreKeys::default())?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn forward(&self, node: &TensorDict, keys: &ScoreKeys) -> Result<Tensor> {
        let main = if let Self::Exp3 { .. } = self { &keys.weights } else { &keys.win_count };
        if node.get(main.clone()).is_some() && node.tensor(main.clone())?.dtype() == Dtype::F64 {
            self.scores::<f64>(node, keys)
        } else {
            self.scores::<f32>(node, keys)
        }
    }

    fn scores<T: Real>(&self, node: &TensorDict, keys: &ScoreKeys) -> Result<Tensor> {
        if let Self::Exp3 { gamma } = self {
            let weights = weights(node, keys)?;
            let num_actions = weights.shape().last().copied().unwrap_or(0);
            let numbers = weights.to(T::DTYPE)?.to_vec::<T>()?;
            return Tensor::from_vec(weights.shape(), probabilities(&numbers, num_actions, T::of(*gamma)));
        }
        let wins = node.tensor(keys.win_count.clone())?;
        let shape = wins.shape();
        let num_actions = shape.last().copied().unwrap_or(1);
        let of = |key: &Key| column::<T>(node, key, shape);
        let (wins, visits) = (of(&keys.win_count)?, of(&keys.visits)?);
        let totals = Totals::<T>::of(node.tensor(keys.total_visits.clone())?, shape, num_actions)?;
        let mut scores = wins;
        match *self {
            Self::Puct { c, unvisited } => {
                let (priors, c) = (of(&keys.prior_prob)?, T::of(c));
                totals.for_nodes(&mut scores, |at, total, score| {
                    let (visits, root) = (visits[at], total.root());
                    *score = mean(*score, visits, unvisited) + c * priors[at] * root / (T::ONE + visits);
                });
            }
            Self::Ucb { c, unvisited, ucb1 } => {
                let c = T::of(c);
                totals.for_nodes(&mut scores, |at, total, score| {
                    let visits = visits[at];
                    *score = if ucb1 && visits == T::ZERO {
                        T::of(f64::INFINITY)
                    } else if ucb1 {
                        *score / visits + c * (total.at_least(T::ONE).log() / visits).root()
                    } else {
                        mean(*score, visits, unvisited) + c * total.root() / (T::ONE + visits)
                    };
                });
            }
            Self::Ucb1Tuned { exploration_constant } => {
                let (squares, c) = (of(&keys.sum_squared_rewards)?, T::of(exploration_constant));
                totals.for_nodes(&mut scores, |at, total, score| {
                    *score = tuned(*score, visits[at], squares[at], total, c);
                });
            }
            Self::Exp3 { .. } => {}
        }
        Tensor::from_vec(shape, scores)
    }
}

/// Returns the weights of EXP3: the entry, or ones for the batch and the number of actions.
///
/// # Errors
/// `UnknownName` or `Incompatible`, with the key, if an entry is missing or not a tensor; `ShapeMismatch` if there is not one weight for each
/// action; `OutOfRange` if the number of actions is not a whole number from 1.
pub fn weights(node: &TensorDict, keys: &ScoreKeys) -> Result<Tensor> {
    let counts = node.tensor(keys.num_actions.clone())?.to(Dtype::F64)?.to_vec::<f64>()?;
    let count = counts.first().copied().unwrap_or(0.0);
    if count < 1.0 || count.fract() != 0.0 || counts.iter().any(|other| *other != count) {
        let detail = format!("{} must be one whole number from 1: got {counts:?}", keys.num_actions);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let shape = [node.batch_size(), &[count as usize]].concat();
    if node.get(keys.weights.clone()).is_none() {
        let ones: Vec<f32> = vec![1.0; fulmar_core::num_elements(&shape)?];
        return Tensor::from_vec(&shape, ones);
    }
    let weights = node.tensor(keys.weights.clone())?;
    if weights.shape().last() != Some(&(count as usize)) {
        let detail = format!(
            "{} must have {count} elements, one for each action: got shape {:?}",
            keys.weights,
            weights.shape()
        );
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(weights.clone())
}

/// Returns the weights `[.., K]` of EXP3 after `action` gave `reward` where it had `probability[.., action]`; unchanged where that is 0. The
/// formula is for rewards in `[0, 1]`.
///
/// # Errors
/// `ShapeMismatch` if the shapes differ; `OutOfRange` if there is no such action or `gamma` is not in `[0, 1]`; `NonFinite` if the reward is
/// not finite.
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// let weights = Tensor::from_vec(&[2], vec![1.0_f32, 1.0])?;
/// let probability = Tensor::from_vec(&[2], vec![0.5_f32, 0.5])?;
/// let after = fulmar_tree::exp3_update(&weights, &probability, 1, 0.5, 0.1)?.to_vec::<f32>()?;
/// assert_eq!(after, [1.0, 0.05_f32.exp()]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn exp3_update(
    weights: &Tensor,
    probability: &Tensor,
    action: usize,
    reward: f64,
    gamma: f64,
) -> Result<Tensor> {
    Score::Exp3 { gamma }.checked()?;
    if !reward.is_finite() {
        return Err(Error::new(ErrorKind::NonFinite, format!("reward must be finite: got {reward}")));
    }
    if weights.shape() != probability.shape() {
        let (weights, probability) = (weights.shape(), probability.shape());
        let detail =
            format!("probability must have the shape {weights:?} of the weights: got {probability:?}");
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    let num_actions = weights.shape().last().copied().unwrap_or(0);
    if action >= num_actions {
        let detail = format!("action must be < {num_actions}: got {action}");
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let probabilities = probability.to(Dtype::F64)?.to_vec::<f64>()?;
    let mut numbers = weights.to(Dtype::F64)?.to_vec::<f64>()?;
    for at in (action..numbers.len()).step_by(num_actions) {
        if probabilities[at] > 0.0 {
            numbers[at] *= libm::exp(gamma / num_actions as f64 * (reward / probabilities[at]));
        }
    }
    Tensor::from_vec(weights.shape(), numbers)?.to(weights.dtype())
}

/// Singles or doubles.
trait Real:
    Element
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    /// A tenth of the largest number.
    const LARGE: Self;
    fn of(value: f64) -> Self;
    fn root(self) -> Self;
    fn log(self) -> Self;

    fn at_least(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    fn at_most(self, other: Self) -> Self {
        if self > other { other } else { self }
    }
}

macro_rules! real {
    ($type:ty, $log:path) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LARGE: Self = <$type>::MAX / 10.0;

            fn of(value: f64) -> Self {
                value as Self
            }

            fn root(self) -> Self {
                self.sqrt()
            }

            fn log(self) -> Self {
                $log(self)
            }
        }
    };
}

real!(f32, libm::logf);
real!(f64, libm::log);

fn mean<T: Real>(wins: T, visits: T, unvisited: Option<f64>) -> T {
    match unvisited {
        Some(value) if visits == T::ZERO => T::of(value),
        _ => wins / visits,
    }
}

fn tuned<T: Real>(wins: T, visits: T, squares: T, total: T, c: T) -> T {
    if visits <= T::ZERO {
        return T::LARGE;
    }
    let (mean, log) = (wins / visits, total.at_least(T::ONE).log());
    let variance = squares / visits - mean * mean + (c * log / visits).root();
    mean + (log / visits * variance.at_least(T::ZERO).at_most(T::of(0.25))).root()
}

fn probabilities<T: Real>(weights: &[T], num_actions: usize, gamma: T) -> Vec<T> {
    let mut probabilities = Vec::with_capacity(weights.len());
    for row in weights.chunks_exact(num_actions.max(1)) {
        let sum = row.iter().fold(T::ZERO, |sum, weight| sum + *weight);
        let sum = if sum == T::ZERO { T::ONE } else { sum };
        let floor = gamma / T::of(num_actions as f64);
        probabilities.extend(row.iter().map(|weight| (T::ONE - gamma) * (*weight / sum) + floor));
    }
    probabilities
}

/// The entry at a key, which must have a shape.
fn column<T: Real>(node: &TensorDict, key: &Key, shape: &[usize]) -> Result<Vec<T>> {
    let tensor = node.tensor(key.clone())?;
    if tensor.shape() != shape {
        let detail = format!("{key} must have the shape {shape:?} of the returns: got {:?}", tensor.shape());
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    tensor.to(T::DTYPE)?.to_vec::<T>()
}

/// Visits of the nodes, each for some actions.
struct Totals<T> {
    values: Vec<T>,
    /// Number of scores that one of them is for.
    each: usize,
}

impl<T: Real> Totals<T> {
    fn of(totals: &Tensor, shape: &[usize], num_actions: usize) -> Result<Self> {
        let lead = shape.split_last().map_or(&[][..], |(_, lead)| lead);
        let each = match totals.shape() {
            have if have.iter().all(|len| *len == 1) => shape.iter().product(),
            have if have == shape => 1,
            have if have == lead || have == [lead, &[1]].concat() => num_actions,
            have => {
                let detail =
                    format!("total_visits must have the shape [], {lead:?} or {lead:?} and 1: got {have:?}");
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
        };
        Ok(Self { values: totals.to(T::DTYPE)?.to_vec::<T>()?, each })
    }

    fn for_nodes(&self, scores: &mut [T], mut body: impl FnMut(usize, T, &mut T)) {
        for (node, scores) in scores.chunks_mut(self.each.max(1)).enumerate() {
            let total = self.values[node];
            scores.iter_mut().enumerate().for_each(|(at, score)| body(node * self.each + at, total, score));
        }
    }
}
