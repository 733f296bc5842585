//! Monte-Carlo tree search over arrays, many trees at once.
//!
//! Each simulation goes down from the root by the policy to an action that was never taken, asks the model for its outcome, adds a node,
//! and adds the node's value, with rewards and discounts, to all nodes above it:
//!
//! ```text
//! for simulation in 0..num_simulations:
//!     node, action = descend(tree)                       # root and interior policies
//!     reward, discount, value, logits = model(state[node], action)
//!     tree.expand(node, action, ...)
//!     for parent on the way up: value = reward + discount * value; mean(parent) += value
//! ```
//! After Danihelka et al., "Policy improvement by planning with Gumbel" (<https://openreview.net/forum?id=bERaNdoegnO>).

mod arrays;
mod halving;
mod model;
mod numeric;
mod options;
mod search_tree;
mod select;

use std::ops::Range;

use fulmar_core::{Error, ErrorKind, Result, Rng};
#[cfg(not(target_family = "wasm"))]
use rayon::prelude::*;

pub use self::halving::considered_visits;
pub use self::model::{SearchModel, TableModel};
use self::numeric::{dirichlet, gumbel, softmax};
pub use self::options::{QTransform, SearchOptions, SearchPolicy};
pub use self::search_tree::Outcome;
use self::search_tree::{Extra, SearchTree};
use self::select::{Chooser, exp3_probabilities, mask};

/// Roots of B trees of A actions.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchRoot<'a> {
    /// `[B, A]`.
    pub logits: &'a [f32],
    /// `[B]`.
    pub values: &'a [f32],
    /// `[B, A]`: true where an action is not allowed; empty if all are.
    pub invalid_actions: &'a [bool],
    /// `[B, A]`: Gumbel numbers in place of drawn ones, already scaled; empty to draw them.
    pub gumbel: &'a [f32],
}

/// The node that a simulation adds to a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// The node in whose state the action is taken.
    pub parent: usize,
    /// The action.
    pub action: usize,
    /// The number of the node: a new one, or a known one at `max_depth`.
    pub node: usize,
}

/// The answers of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchAnswer {
    /// The action of each tree, `[B]`.
    pub actions: Vec<u32>,
    /// `[B, A]`: the improved policy: shares of visits, or of `Gumbel` the softmax of logits and completed values.
    pub action_weights: Vec<f32>,
}

/// B trees that grow by one node a simulation. Equal seeds give equal trees on every platform, whatever the number of threads.
///
/// # Examples
/// ```
/// use fulmar_tree::{Outcome, Search, SearchModel, SearchOptions, SearchPolicy, SearchRoot};
/// /// Counts up to 3 by 1 or 2; saying 3 wins.
/// struct Count;
/// impl SearchModel for Count {
///     type State = usize;
///     fn step(&self, count: &usize, action: usize, logits: &mut [f32]) -> fulmar_core::Result<(Outcome, usize)> {
///         let next = count + action + 1;
///         logits.copy_from_slice(&[0.0, if next < 2 { 0.0 } else { f32::NEG_INFINITY }]);
///         let is_end = next >= 3;
///         let outcome = Outcome { reward: f32::from(u8::from(is_end)), discount: if is_end { 0.0 } else { -1.0 }, value: 0.0 };
///         Ok((outcome, next))
///     }
/// }
/// let root = SearchRoot { logits: &[0.0, 0.0], values: &[0.0], ..Default::default() };
/// let options = SearchOptions { num_simulations: 50, policy: SearchPolicy::Ucb, temperature: 0.0, ..Default::default() };
/// let mut search = Search::new(&root, options)?;
/// search.run(&Count, &[1])?; // the other player said 1
/// assert_eq!(search.answer().actions, [1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Search {
    options: SearchOptions,
    num_actions: usize,
    trees: Vec<Growing>,
    simulation: usize,
}

#[derive(Debug, Clone)]
struct Growing {
    tree: SearchTree,
    chooser: Chooser,
    /// The number of the node of the first simulation.
    base: usize,
}

impl Search {
    /// Makes trees of their roots alone.
    ///
    /// # Errors
    /// `Empty` without trees or actions; `ShapeMismatch` if lengths differ; `NonFinite` if a value or a Gumbel number is not finite, or a
    /// logit is NaN or `INFINITY`; `OutOfRange` if an option is not in its range; `LimitExceeded` above
    /// [`SEARCH_ACTIONS_MAX`](fulmar_core::limits::SEARCH_ACTIONS_MAX).
    pub fn new(root: &SearchRoot<'_>, options: SearchOptions) -> Result<Self> {
        let num_actions = check_root(root)?;
        let options = options.checked(root.values.len(), num_actions)?;
        let num_nodes = options.num_simulations + 1;
        let trees = (0..root.values.len())
            .map(|at| {
                let (logits, invalid, mut rng) = (
                    part(root.logits, at, num_actions),
                    invalid(root, at, num_actions),
                    rng_of(&options, at),
                );
                let logits = root_logits(logits, &invalid, &options, &mut rng);
                let mut tree = SearchTree::new(num_nodes, num_actions, extra(options.policy));
                tree.set_node(0, &logits, root.values[at]);
                grow(tree, invalid, root, at, rng, &options)
            })
            .collect();
        Ok(Self { options, num_actions, trees, simulation: 0 })
    }

    /// Makes trees that begin with what `earlier` found below an action of each of its roots; a tree whose action was never taken begins
    /// with its root alone. The second result has, for each tree, the earlier node that each of its nodes was.
    ///
    /// # Errors
    /// The errors of [`Search::new`]; `ShapeMismatch` if trees or actions of both searches differ in number; `OutOfRange` if there is no such
    /// action; `Incompatible` if one policy keeps numbers that the other does not.
    pub fn reuse(
        root: &SearchRoot<'_>,
        options: SearchOptions,
        earlier: &Self,
        actions: &[u32],
    ) -> Result<(Self, Vec<Vec<usize>>)> {
        let mut search = Self::new(root, options)?;
        let (have, want) =
            ((earlier.trees.len(), earlier.num_actions), (search.trees.len(), search.num_actions));
        if have != want || actions.len() != want.0 {
            let detail = format!(
                "the earlier search must have {} trees of {} actions, and one action taken of each: got {} of {}, and {}",
                want.0,
                want.1,
                have.0,
                have.1,
                actions.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if extra(earlier.options.policy) != extra(search.options.policy) {
            return Err(Error::new(
                ErrorKind::Incompatible,
                "the earlier search must have the same policy: got another",
            ));
        }
        let num_more = search.options.num_simulations;
        let mut kept_nodes = Vec::new();
        for (at, growing) in search.trees.iter_mut().enumerate() {
            let action = actions[at] as usize;
            if action >= earlier.num_actions {
                let detail = format!("actions must be < {}: got {action}", earlier.num_actions);
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
            let Some((mut tree, kept)) = earlier.trees[at].tree.subtree(action, num_more) else {
                kept_nodes.push(Vec::new());
                continue;
            };
            let row = tree.row(0);
            let fresh = growing.tree.row(0);
            tree.logits[row.clone()].copy_from_slice(&growing.tree.logits[fresh.clone()]);
            tree.probs[row].copy_from_slice(&growing.tree.probs[fresh]);
            growing.chooser.base_visits = tree.visits[tree.row(0)].to_vec();
            growing.base = kept.len();
            growing.tree = tree;
            kept_nodes.push(kept);
        }
        Ok((search, kept_nodes))
    }

    /// Returns the number of trees.
    #[must_use]
    pub fn num_trees(&self) -> usize {
        self.trees.len()
    }

    /// Returns the number of actions.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.num_actions
    }

    /// Returns the number of simulations that are left.
    #[must_use]
    pub fn num_left(&self) -> usize {
        self.options.num_simulations - self.simulation
    }

    /// Returns the next node of each tree, for a model that the caller asks; [`Search::expand`] takes its answer.
    ///
    /// # Errors
    /// `Closed` if no simulation is left.
    pub fn select(&mut self) -> Result<Vec<Leaf>> {
        if self.num_left() == 0 {
            return Err(Error::new(ErrorKind::Closed, "the search must have simulations left: got 0"));
        }
        let (options, simulation) = (&self.options, self.simulation);
        Ok(self.trees.iter_mut().map(|growing| growing.next(options, simulation)).collect())
    }

    /// Adds the nodes of [`Search::select`] with the model's outcomes and its logits `[B, A]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if lengths differ; `NonFinite` if a number is not finite, except logits of `NEG_INFINITY`; then nothing has changed.
    pub fn expand(&mut self, leaves: &[Leaf], outcomes: &[Outcome], logits: &[f32]) -> Result<()> {
        let (num_trees, num_actions) = (self.trees.len(), self.num_actions);
        check_len("leaves", leaves.len(), num_trees)?;
        check_len("outcomes", outcomes.len(), num_trees)?;
        check_len("logits", logits.len(), num_trees * num_actions)?;
        let in_tree = |(leaf, growing): (&Leaf, &Growing)| {
            leaf.parent < growing.tree.next
                && leaf.action < num_actions
                && leaf.node <= growing.base + self.simulation
        };
        if !leaves.iter().zip(&self.trees).all(in_tree) {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                "leaves must be those of the last select: got unknown ones",
            ));
        }
        check_logits(logits)?;
        outcomes.iter().try_for_each(check_outcome)?;
        for (at, growing) in self.trees.iter_mut().enumerate() {
            growing.add(leaves[at], outcomes[at], part(logits, at, num_actions), &self.options);
        }
        self.simulation += 1;
        Ok(())
    }

    /// Runs all simulations that are left over a model, the trees on all threads. `states` are those of the roots, `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if there is not one state for each tree; `Closed` if the search was begun with [`Search::select`] or has nodes of an
    /// earlier one: use [`Search::run_with`]; the errors of the model; `NonFinite` if it gives a number that is not finite.
    pub fn run<M: SearchModel>(&mut self, model: &M, states: &[M::State]) -> Result<()>
    where
        M::State: Sync,
    {
        if self.simulation > 0 || self.trees.iter().any(|growing| growing.base > 1) {
            return Err(Error::new(ErrorKind::Closed, "the search must have root nodes only: got more"));
        }
        let mut kept: Vec<Vec<Option<M::State>>> =
            states.iter().map(|state| vec![Some(state.clone())]).collect();
        self.run_with(model, &mut kept, self.num_left())
    }

    /// Runs `count` simulations, or as many as are left; `states` has the state of each node of each tree, and those of new nodes are
    /// added. After an error the search is over.
    ///
    /// # Errors
    /// `ShapeMismatch` if a state is missing; those of the model; `NonFinite` if it gives a number that is not finite.
    pub fn run_with<M: SearchModel>(
        &mut self,
        model: &M,
        states: &mut [Vec<Option<M::State>>],
        count: usize,
    ) -> Result<()> {
        check_len("states", states.len(), self.trees.len())?;
        let end = self.simulation + count.min(self.num_left());
        let (options, simulations) = (&self.options, self.simulation..end);
        // After an error trees differ in their numbers of simulations.
        self.simulation = options.num_simulations;
        let run = |(growing, states): (&mut Growing, &mut Vec<Option<M::State>>)| {
            growing.run(model, states, options, simulations.clone())
        };
        #[cfg(not(target_family = "wasm"))]
        if self.trees.len() > 1 {
            self.trees.par_iter_mut().zip(states.par_iter_mut()).try_for_each(run)?;
            self.simulation = end;
            return Ok(());
        }
        self.trees.iter_mut().zip(states.iter_mut()).try_for_each(run)?;
        self.simulation = end;
        Ok(())
    }

    /// Chooses the action of each tree. Draws once more each time it is called.
    pub fn answer(&mut self) -> SearchAnswer {
        let mut answer = SearchAnswer { actions: Vec::new(), action_weights: Vec::new() };
        for growing in &mut self.trees {
            let (action, weights) = growing.chooser.answer(&growing.tree, &self.options);
            answer.actions.push(action as u32);
            answer.action_weights.extend(weights);
        }
        answer
    }
}

impl Growing {
    fn next(&mut self, options: &SearchOptions, simulation: usize) -> Leaf {
        let max_depth = options.max_depth.unwrap_or(usize::MAX);
        let (parent, action) = self.chooser.descend(&self.tree, options, max_depth);
        let known = self.tree.children[parent * self.tree.num_actions + action];
        let node = usize::try_from(known).unwrap_or(self.base + simulation);
        Leaf { parent, action, node }
    }

    fn add(&mut self, leaf: Leaf, outcome: Outcome, logits: &[f32], options: &SearchOptions) {
        self.tree.expand(leaf.parent, leaf.action, leaf.node, outcome, logits);
        let [least, largest] = options.value_range;
        let mut probabilities = vec![0.0; if self.tree.extra == Extra::Weights { logits.len() } else { 0 }];
        self.tree.backward(leaf.node, |tree, cell, value| match tree.extra {
            Extra::None => {}
            Extra::Squares => tree.extras[cell] += value * value,
            Extra::Weights => {
                let (node, action) = (cell / tree.num_actions, cell % tree.num_actions);
                exp3_probabilities(tree, node, options.exp3_gamma, &mut probabilities);
                let reward = ((value - least) / (largest - least)).clamp(0.0, 1.0);
                if probabilities[action] > 0.0 {
                    tree.extras[cell] +=
                        options.exp3_gamma / tree.num_actions as f32 * reward / probabilities[action];
                }
            }
        });
    }

    fn run<M: SearchModel>(
        &mut self,
        model: &M,
        states: &mut Vec<Option<M::State>>,
        options: &SearchOptions,
        simulations: Range<usize>,
    ) -> Result<()> {
        let mut logits = vec![0.0; self.tree.num_actions];
        states.resize(self.tree.num_nodes(), None);
        for simulation in simulations {
            let leaf = self.next(options, simulation);
            let Some(state) = &states[leaf.parent] else {
                let detail = format!("states must have one for node {}: got nothing", leaf.parent);
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            };
            let (outcome, state) = model.step(state, leaf.action, &mut logits)?;
            check_outcome(&outcome)?;
            check_logits(&logits)?;
            states[leaf.node] = Some(state);
            self.add(leaf, outcome, &logits, options);
        }
        Ok(())
    }
}

fn grow(
    tree: SearchTree,
    invalid: Vec<bool>,
    root: &SearchRoot<'_>,
    at: usize,
    mut rng: Rng,
    options: &SearchOptions,
) -> Growing {
    let num_actions = tree.num_actions;
    let gumbel = match options.policy {
        SearchPolicy::Gumbel if root.gumbel.is_empty() => {
            (0..num_actions).map(|_| options.gumbel_scale * gumbel(&mut rng)).collect()
        }
        SearchPolicy::Gumbel => part(root.gumbel, at, num_actions).to_vec(),
        _ => Vec::new(),
    };
    Growing { tree, chooser: Chooser::new(rng, invalid, gumbel, vec![0; num_actions], options), base: 1 }
}

/// The logits of a root: with noise for `Muzero`, masked for all.
fn root_logits(logits: &[f32], invalid: &[bool], options: &SearchOptions, rng: &mut Rng) -> Vec<f32> {
    let mut logits = logits.to_vec();
    if options.policy == SearchPolicy::Muzero {
        let mut probs = vec![0.0; logits.len()];
        softmax(&logits, &mut probs);
        if options.dirichlet_fraction > 0.0 {
            let mut noise = vec![0.0; logits.len()];
            dirichlet(rng, f64::from(options.dirichlet_alpha), &mut noise);
            let share = options.dirichlet_fraction;
            probs
                .iter_mut()
                .zip(noise)
                .for_each(|(prob, noise)| *prob = (1.0 - share) * *prob + share * noise);
        }
        logits
            .iter_mut()
            .zip(probs)
            .for_each(|(logit, prob)| *logit = libm::logf(prob.max(f32::MIN_POSITIVE)));
    }
    mask(&mut logits, invalid);
    logits
}

fn extra(policy: SearchPolicy) -> Extra {
    match policy {
        SearchPolicy::Ucb1Tuned => Extra::Squares,
        SearchPolicy::Exp3 => Extra::Weights,
        SearchPolicy::Muzero | SearchPolicy::Gumbel | SearchPolicy::Ucb => Extra::None,
    }
}

fn rng_of(options: &SearchOptions, tree: usize) -> Rng {
    Rng::new(options.seed).stream("search").fork(tree as u64)
}

fn invalid(root: &SearchRoot<'_>, at: usize, num_actions: usize) -> Vec<bool> {
    if root.invalid_actions.is_empty() {
        vec![false; num_actions]
    } else {
        part(root.invalid_actions, at, num_actions).to_vec()
    }
}

fn part<T>(values: &[T], at: usize, len: usize) -> &[T] {
    &values[at * len..(at + 1) * len]
}

fn check_root(root: &SearchRoot<'_>) -> Result<usize> {
    let num_trees = root.values.len();
    if num_trees == 0 || root.logits.is_empty() {
        let detail = format!("the root must have at least one tree and one action: got {num_trees} trees");
        return Err(Error::new(ErrorKind::Empty, detail));
    }
    let num_actions = root.logits.len() / num_trees;
    check_len("logits", root.logits.len(), num_actions * num_trees)?;
    for (name, len) in [("invalid_actions", root.invalid_actions.len()), ("gumbel", root.gumbel.len())] {
        if len > 0 {
            check_len(name, len, num_actions * num_trees)?;
        }
    }
    check_logits(root.logits)?;
    for (name, values) in [("values", root.values), ("gumbel", root.gumbel)] {
        if let Some(wrong) = values.iter().find(|value| !value.is_finite()) {
            return Err(Error::new(ErrorKind::NonFinite, format!("{name} must be finite: got {wrong}")));
        }
    }
    Ok(num_actions)
}

fn check_outcome(outcome: &Outcome) -> Result<()> {
    let Outcome { reward, discount, value } = *outcome;
    for (name, number) in [("reward", reward), ("discount", discount), ("value", value)] {
        if !number.is_finite() {
            return Err(Error::new(ErrorKind::NonFinite, format!("{name} must be finite: got {number}")));
        }
    }
    Ok(())
}

fn check_logits(logits: &[f32]) -> Result<()> {
    match logits.iter().find(|logit| logit.is_nan() || **logit == f32::INFINITY) {
        Some(wrong) => {
            Err(Error::new(ErrorKind::NonFinite, format!("logits must be finite or -inf: got {wrong}")))
        }
        None => Ok(()),
    }
}

fn check_len(name: &str, len: usize, want: usize) -> Result<()> {
    if len == want {
        return Ok(());
    }
    Err(Error::new(ErrorKind::ShapeMismatch, format!("{name} must have {want} elements: got {len}")))
}
