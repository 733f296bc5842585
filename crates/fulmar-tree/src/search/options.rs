//! Options of a search.

use fulmar_core::limits::SEARCH_ACTIONS_MAX;
use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

/// The rule by which a simulation chooses the next action, and the search its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SearchPolicy {
    /// PUCT over priors, with Dirichlet noise at the root (MuZero, <https://arxiv.org/abs/1911.08265>).
    Muzero,
    /// Sequential halving over Gumbel draws at the root, completed values below (<https://openreview.net/forum?id=bERaNdoegnO>).
    #[default]
    Gumbel,
    /// UCB1 over values; each action is tried once first.
    Ucb,
    /// UCB1-tuned over values and the squares of returns; each action is tried once first.
    Ucb1Tuned,
    /// EXP3: actions are drawn by weights that grow with returns.
    Exp3,
}

/// The scale of values in the choice of an action.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum QTransform {
    /// `(q - min) / (max - min)`; an action without visits has `min`.
    ByMinMax {
        /// The least value.
        min_value: f32,
        /// The largest value.
        max_value: f32,
    },
    /// From the least to the largest of the values of the node and its visited actions; an action without visits has the least.
    ByParentAndSiblings {
        /// Least difference that is divided by.
        #[serde(default = "epsilon")]
        epsilon: f32,
    },
    /// `value_scale * (maxvisit_init + most visits) * q`, where an action without visits has the mean of the node's own value and the
    /// visited ones' by their priors.
    CompletedByMixValue {
        /// Factor of all values.
        #[serde(default = "value_scale")]
        value_scale: f32,
        /// Added to the visits of the most visited action.
        #[serde(default = "maxvisit_init")]
        maxvisit_init: f32,
        /// True: values are scaled to `[0, 1]` first.
        #[serde(default = "yes")]
        rescale_values: bool,
        /// False: an action without visits has the node's own value.
        #[serde(default = "yes")]
        use_mixed_value: bool,
        /// Least difference that is divided by.
        #[serde(default = "epsilon")]
        epsilon: f32,
    },
}

fn epsilon() -> f32 {
    1e-8
}

fn value_scale() -> f32 {
    0.1
}

fn maxvisit_init() -> f32 {
    50.0
}

fn yes() -> bool {
    true
}

impl QTransform {
    /// Returns [`QTransform::ByParentAndSiblings`] with its defaults.
    #[must_use]
    pub fn by_parent_and_siblings() -> Self {
        Self::ByParentAndSiblings { epsilon: epsilon() }
    }

    /// Returns [`QTransform::CompletedByMixValue`] with its defaults.
    #[must_use]
    pub fn completed_by_mix_value() -> Self {
        Self::CompletedByMixValue {
            value_scale: value_scale(),
            maxvisit_init: maxvisit_init(),
            rescale_values: true,
            use_mixed_value: true,
            epsilon: epsilon(),
        }
    }
}

/// Options of a search. Defaults are those of mctx.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct SearchOptions {
    /// Simulations of each tree, at least 1.
    pub num_simulations: usize,
    /// The policy.
    pub policy: SearchPolicy,
    /// Most actions from the root to a node; `num_simulations` if absent.
    pub max_depth: Option<usize>,
    /// The scale of values. If absent `ByParentAndSiblings` for `Muzero`, `CompletedByMixValue` for `Gumbel`, values as they are otherwise.
    pub qtransform: Option<QTransform>,
    /// Share of noise in the priors of the root, in `[0, 1]`; `Muzero` alone.
    pub dirichlet_fraction: f32,
    /// Concentration of the noise, above 0.
    pub dirichlet_alpha: f32,
    /// The answer is drawn by `visits^(1 / temperature)`; the most visited action at 0. Not for `Gumbel`.
    pub temperature: f32,
    /// Constant of PUCT; `Muzero` alone.
    pub pb_c_init: f32,
    /// Constant of PUCT, above 0; `Muzero` alone.
    pub pb_c_base: f32,
    /// Factor of the Gumbel draws, from 0; `Gumbel` alone.
    pub gumbel_scale: f32,
    /// Most actions that sequential halving begins with, at least 1; `Gumbel` alone.
    pub max_num_considered_actions: usize,
    /// Weight of exploration: of UCB1, and of the estimate of the variance of UCB1-tuned. If absent the square root of 2, and 2.
    pub exploration_constant: Option<f32>,
    /// Share of uniform exploration, in `(0, 1]`; `Exp3` alone.
    pub exp3_gamma: f32,
    /// Least and largest return, which `Exp3` scales to `[0, 1]`.
    pub value_range: [f32; 2],
    /// Seed of noise, draws and ties.
    pub seed: u64,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            num_simulations: 32,
            policy: SearchPolicy::default(),
            max_depth: None,
            qtransform: None,
            dirichlet_fraction: 0.25,
            dirichlet_alpha: 0.3,
            temperature: 1.0,
            pb_c_init: 1.25,
            pb_c_base: 19652.0,
            gumbel_scale: 1.0,
            max_num_considered_actions: 16,
            exploration_constant: None,
            exp3_gamma: 0.1,
            value_range: [-1.0, 1.0],
            seed: 0,
        }
    }
}

impl SearchOptions {
    /// Checks the options for `num_trees` trees of `num_actions` actions.
    pub(crate) fn checked(self, num_trees: usize, num_actions: usize) -> Result<Self> {
        let numbers = [
            ("dirichlet_fraction", self.dirichlet_fraction, 0.0, 1.0),
            ("dirichlet_alpha", self.dirichlet_alpha, f32::MIN_POSITIVE, f32::MAX),
            ("temperature", self.temperature, 0.0, f32::MAX),
            ("pb_c_init", self.pb_c_init, 0.0, f32::MAX),
            ("pb_c_base", self.pb_c_base, f32::MIN_POSITIVE, f32::MAX),
            ("gumbel_scale", self.gumbel_scale, 0.0, f32::MAX),
            ("exploration_constant", self.exploration_constant.unwrap_or(0.0), 0.0, f32::MAX),
            ("exp3_gamma", self.exp3_gamma, f32::MIN_POSITIVE, 1.0),
        ];
        for (name, value, min, max) in numbers {
            if !(min..=max).contains(&value) {
                let low = if min > 0.0 { "above 0" } else { ">= 0" };
                let high = if max == 1.0 { " and <= 1" } else { " and finite" };
                return Err(out_of_range(format!("{name} must be {low}{high}: got {value}")));
            }
        }
        for (name, value) in [
            ("num_simulations", self.num_simulations),
            ("max_depth", self.max_depth.unwrap_or(1)),
            ("max_num_considered_actions", self.max_num_considered_actions),
        ] {
            if value == 0 {
                return Err(out_of_range(format!("{name} must be >= 1: got 0")));
            }
        }
        let [least, largest] = self.value_range;
        if !(least < largest && least.is_finite() && largest.is_finite()) {
            let detail =
                format!("value_range must be a smaller and a larger number: got {least} and {largest}");
            return Err(out_of_range(detail));
        }
        if let Some(QTransform::ByMinMax { min_value, max_value }) = self.qtransform
            && !(min_value < max_value && min_value.is_finite() && max_value.is_finite())
        {
            return Err(out_of_range(format!("max_value must be above {min_value}: got {max_value}")));
        }
        check_count(num_trees, self.num_simulations, num_actions)?;
        Ok(self)
    }

    pub(crate) fn transform(&self) -> Option<QTransform> {
        let default = match self.policy {
            SearchPolicy::Muzero => Some(QTransform::by_parent_and_siblings()),
            SearchPolicy::Gumbel => Some(QTransform::completed_by_mix_value()),
            SearchPolicy::Ucb | SearchPolicy::Ucb1Tuned | SearchPolicy::Exp3 => None,
        };
        self.qtransform.or(default)
    }
}

fn check_count(num_trees: usize, num_simulations: usize, num_actions: usize) -> Result<()> {
    let nodes = num_simulations.checked_add(1).and_then(|nodes| nodes.checked_mul(num_trees));
    match nodes.and_then(|nodes| nodes.checked_mul(num_actions)) {
        Some(count) if count <= SEARCH_ACTIONS_MAX => Ok(()),
        _ => {
            let detail = format!(
                "trees x (num_simulations + 1) x actions must be <= {SEARCH_ACTIONS_MAX}: got {num_trees} x ({num_simulations} + 1) x {num_actions}"
            );
            Err(Error::new(ErrorKind::LimitExceeded, detail))
        }
    }
}

fn out_of_range(detail: String) -> Error {
    Error::new(ErrorKind::OutOfRange, detail)
}
