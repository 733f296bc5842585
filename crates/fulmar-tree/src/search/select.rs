//! The choice of an action in a node, and of the answer at the root.

use fulmar_core::Rng;

use crate::search::halving::considered_visits;
use crate::search::numeric::{argmax, max, min, softmax, sum};
use crate::search::options::{QTransform, SearchOptions, SearchPolicy};
use crate::search::search_tree::SearchTree;

/// Scores that are this close are equal, and chance decides.
const TIE: f32 = 1e-7;
/// The least score of an action that is considered.
const LOW_LOGIT: f32 = -1e9;

/// The state of the choices of one tree.
#[derive(Debug, Clone)]
pub(crate) struct Chooser {
    pub(crate) rng: Rng,
    /// True where an action of the root is not allowed, `[A]`.
    pub(crate) invalid: Vec<bool>,
    /// `[A]`; empty for other policies than `Gumbel`.
    pub(crate) gumbel: Vec<f32>,
    /// Visits of the root's actions before this search, `[A]`.
    pub(crate) base_visits: Vec<i32>,
    considered: Vec<i32>,
    values: Vec<f32>,
    scores: Vec<f32>,
}

impl Chooser {
    pub(crate) fn new(
        rng: Rng,
        invalid: Vec<bool>,
        gumbel: Vec<f32>,
        base_visits: Vec<i32>,
        options: &SearchOptions,
    ) -> Self {
        let num_actions = invalid.len();
        let num_valid = invalid.iter().filter(|is_invalid| !**is_invalid).count();
        let considered = if options.policy == SearchPolicy::Gumbel {
            considered_visits(options.max_num_considered_actions.min(num_valid), options.num_simulations)
        } else {
            Vec::new()
        };
        let (values, scores) = (vec![0.0; num_actions], vec![0.0; num_actions]);
        Self { rng, invalid, gumbel, base_visits, considered, values, scores }
    }

    /// Returns the parent and the action of the next simulation: down from the root to an action that was never taken, or to `max_depth`.
    pub(crate) fn descend(
        &mut self,
        tree: &SearchTree,
        options: &SearchOptions,
        max_depth: usize,
    ) -> (usize, usize) {
        let (mut node, mut depth) = (0, 0);
        loop {
            let action = self.choose(tree, node, options);
            depth += 1;
            let child = tree.children[node * tree.num_actions + action];
            if child < 0 || depth >= max_depth {
                return (node, action);
            }
            node = child as usize;
        }
    }

    fn choose(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) -> usize {
        match options.policy {
            SearchPolicy::Muzero => self.puct(tree, node, options),
            SearchPolicy::Gumbel if node == 0 => self.halving(tree, options),
            SearchPolicy::Gumbel => self.improved(tree, node, options),
            SearchPolicy::Ucb | SearchPolicy::Ucb1Tuned => self.upper_bound(tree, node, options),
            SearchPolicy::Exp3 => self.drawn(tree, node, options),
        }
    }

    fn puct(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) -> usize {
        self.transform(tree, node, options);
        let visits = tree.node_visits[node] as f32;
        let base = options.pb_c_base;
        let factor = visits.sqrt() * (options.pb_c_init + libm::logf((visits + base + 1.0) / base));
        let row = tree.row(node);
        let actions =
            self.scores.iter_mut().zip(&self.values).zip(&tree.probs[row.clone()]).zip(&tree.visits[row]);
        for (((score, value), prob), visits) in actions {
            *score = value + factor * prob / (*visits + 1) as f32;
        }
        self.best(node)
    }

    /// Sequential halving, at the root.
    fn halving(&mut self, tree: &SearchTree, options: &SearchOptions) -> usize {
        let taken =
            tree.visits[tree.row(0)].iter().zip(&self.base_visits).map(|(visits, base)| visits - base);
        let simulation = taken.sum::<i32>() as usize;
        let considered = self.considered.get(simulation).copied().unwrap_or_default();
        self.score_considered(tree, options, considered);
        argmax(&self.scores)
    }

    fn score_considered(&mut self, tree: &SearchTree, options: &SearchOptions, considered: i32) {
        self.transform(tree, 0, options);
        let logits = &tree.logits[tree.row(0)];
        let largest = max(logits);
        for (at, score) in self.scores.iter_mut().enumerate() {
            let is_considered = tree.visits[at] - self.base_visits[at] == considered && !self.invalid[at];
            let value = self.gumbel[at] + (logits[at] - largest) + self.values[at];
            *score = if is_considered { value.max(LOW_LOGIT) } else { f32::NEG_INFINITY };
        }
    }

    /// The action that brings the visits nearest to the improved policy.
    fn improved(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) -> usize {
        self.transform(tree, node, options);
        let row = tree.row(node);
        let visits = &tree.visits[row.clone()];
        self.values.iter_mut().zip(&tree.logits[row]).for_each(|(value, logit)| *value += logit);
        softmax(&self.values, &mut self.scores);
        let total = 1.0 + visits.iter().sum::<i32>() as f32;
        self.scores.iter_mut().zip(visits).for_each(|(score, visits)| *score -= *visits as f32 / total);
        argmax(&self.scores)
    }

    /// UCB1 and UCB1-tuned.
    fn upper_bound(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) -> usize {
        self.transform(tree, node, options);
        let is_tuned = options.policy == SearchPolicy::Ucb1Tuned;
        let default = if is_tuned { 2.0 } else { std::f32::consts::SQRT_2 };
        let constant = options.exploration_constant.unwrap_or(default);
        let row = tree.row(node);
        let log = libm::logf(tree.visits[row.clone()].iter().sum::<i32>().max(1) as f32);
        for (at, cell) in row.enumerate() {
            let visits = tree.visits[cell] as f32;
            self.scores[at] = if tree.probs[cell] == 0.0 {
                f32::NEG_INFINITY
            } else if visits == 0.0 {
                f32::INFINITY
            } else if is_tuned {
                let mean = tree.qvalues[cell];
                let variance = tree.extras[cell] / visits - mean * mean + (constant * log / visits).sqrt();
                self.values[at] + (log / visits * variance.clamp(0.0, 0.25)).sqrt()
            } else {
                self.values[at] + constant * (log / visits).sqrt()
            };
        }
        self.best(node)
    }

    /// Draws an action by EXP3.
    fn drawn(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) -> usize {
        exp3_probabilities(tree, node, options.exp3_gamma, &mut self.scores);
        if node == 0 {
            self.scores
                .iter_mut()
                .zip(&self.invalid)
                .filter(|(_, invalid)| **invalid)
                .for_each(|(score, _)| *score = 0.0);
        }
        draw(&mut self.rng, &self.scores)
    }

    /// Returns the action of the largest score; chance decides between those that are equal.
    fn best(&mut self, node: usize) -> usize {
        if node == 0 {
            let invalid = self.scores.iter_mut().zip(&self.invalid).filter(|(_, invalid)| **invalid);
            invalid.for_each(|(score, _)| *score = f32::NEG_INFINITY);
        }
        let best = argmax(&self.scores);
        let least = self.scores[best] - TIE;
        let num_equal = self.scores.iter().filter(|score| **score >= least).count();
        if num_equal <= 1 {
            return best;
        }
        let chosen = self.rng.below(num_equal as u64).unwrap_or(0) as usize;
        let mut equal = (0..self.scores.len()).filter(|at| self.scores[*at] >= least);
        equal.nth(chosen).unwrap_or(best)
    }

    /// Writes the transformed values of the actions of a node.
    fn transform(&mut self, tree: &SearchTree, node: usize, options: &SearchOptions) {
        transform(tree, node, options.transform(), &mut self.values);
    }

    /// Returns the answer of a finished search and the weight of each action.
    pub(crate) fn answer(&mut self, tree: &SearchTree, options: &SearchOptions) -> (usize, Vec<f32>) {
        if options.policy == SearchPolicy::Gumbel {
            return self.gumbel_answer(tree, options);
        }
        let weights = visit_probabilities(&tree.visits[tree.row(0)]);
        let largest = max(&weights);
        let tempered: Vec<f32> = if options.temperature == 0.0 {
            weights.iter().map(|weight| f32::from(u8::from(*weight == largest))).collect()
        } else {
            let power = 1.0 / options.temperature;
            weights
                .iter()
                .map(
                    |weight| {
                        if *weight > 0.0 { libm::expf(power * libm::logf(weight / largest)) } else { 0.0 }
                    },
                )
                .collect()
        };
        (draw(&mut self.rng, &tempered), weights)
    }

    fn gumbel_answer(&mut self, tree: &SearchTree, options: &SearchOptions) -> (usize, Vec<f32>) {
        let taken =
            tree.visits[tree.row(0)].iter().zip(&self.base_visits).map(|(visits, base)| visits - base);
        let considered = taken.max().unwrap_or(0);
        self.score_considered(tree, options, considered);
        let action = argmax(&self.scores);
        let logits = &tree.logits[tree.row(0)];
        self.values.iter_mut().zip(logits).for_each(|(value, logit)| *value += logit);
        mask(&mut self.values, &self.invalid);
        let mut weights = vec![0.0; self.values.len()];
        softmax(&self.values, &mut weights);
        (action, weights)
    }
}

/// Makes logits of actions that are not allowed the least number; those of allowed ones are at most 0 then.
pub(crate) fn mask(logits: &mut [f32], invalid: &[bool]) {
    if !invalid.contains(&true) {
        return;
    }
    let largest = max(logits);
    let logits = logits.iter_mut().zip(invalid);
    logits.for_each(|(logit, invalid)| *logit = if *invalid { f32::MIN } else { *logit - largest });
}

/// Returns the share of each action in the visits; equal shares without visits.
pub(crate) fn visit_probabilities(visits: &[i32]) -> Vec<f32> {
    let total = visits.iter().sum::<i32>();
    if total == 0 {
        return vec![1.0 / visits.len() as f32; visits.len()];
    }
    visits.iter().map(|visits| *visits as f32 / total as f32).collect()
}

/// The probabilities of EXP3 over the allowed actions of a node.
pub(crate) fn exp3_probabilities(tree: &SearchTree, node: usize, gamma: f32, out: &mut [f32]) {
    let row = tree.row(node);
    let (weights, probs) = (&tree.extras[row.clone()], &tree.probs[row]);
    let num_allowed = probs.iter().filter(|prob| **prob > 0.0).count();
    let allowed =
        weights.iter().zip(probs).map(|(weight, prob)| if *prob > 0.0 { *weight } else { f32::NEG_INFINITY });
    let logits: Vec<f32> = allowed.collect();
    softmax(&logits, out);
    let floor = gamma / num_allowed.max(1) as f32;
    let out = out.iter_mut().zip(probs);
    out.for_each(|(out, prob)| *out = if *prob > 0.0 { (1.0 - gamma) * *out + floor } else { 0.0 });
}

fn draw(rng: &mut Rng, weights: &[f32]) -> usize {
    let mut left = rng.uniform_f32() * sum(weights);
    for (at, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return at;
        }
    }
    argmax(weights)
}

fn transform(tree: &SearchTree, node: usize, transform: Option<QTransform>, out: &mut [f32]) {
    let row = tree.row(node);
    let (qvalues, visits) = (&tree.qvalues[row.clone()], &tree.visits[row.clone()]);
    match transform {
        None => out.copy_from_slice(qvalues),
        Some(QTransform::ByMinMax { min_value, max_value }) => {
            complete(out, qvalues, visits, min_value);
            out.iter_mut().for_each(|q| *q = (*q - min_value) / (max_value - min_value));
        }
        Some(QTransform::ByParentAndSiblings { epsilon }) => {
            let value = tree.node_values[node];
            complete(out, qvalues, visits, value);
            let (least, largest) = (min(out).min(value), max(out).max(value));
            complete(out, qvalues, visits, least);
            rescale(out, least, largest, epsilon);
        }
        Some(QTransform::CompletedByMixValue {
            value_scale,
            maxvisit_init,
            rescale_values,
            use_mixed_value,
            epsilon,
        }) => {
            let raw = tree.raw_values[node];
            let value =
                if use_mixed_value { mixed(raw, qvalues, visits, &tree.probs[row], out) } else { raw };
            complete(out, qvalues, visits, value);
            if rescale_values {
                rescale(out, min(out), max(out), epsilon);
            }
            let scale = (maxvisit_init + visits.iter().copied().max().unwrap_or(0) as f32) * value_scale;
            out.iter_mut().for_each(|q| *q *= scale);
        }
    }
}

/// Writes the values of visited actions, and `value` for the others.
fn complete(out: &mut [f32], qvalues: &[f32], visits: &[i32], value: f32) {
    let actions = out.iter_mut().zip(qvalues).zip(visits);
    actions.for_each(|((out, q), visits)| *out = if *visits > 0 { *q } else { value });
}

fn rescale(out: &mut [f32], least: f32, largest: f32, epsilon: f32) {
    let range = (largest - least).max(epsilon);
    out.iter_mut().for_each(|q| *q = (*q - least) / range);
}

/// The mean of a node's own value, once, and the mean of its visited actions by their priors, once for each visit.
fn mixed(raw: f32, qvalues: &[f32], visits: &[i32], probs: &[f32], work: &mut [f32]) -> f32 {
    let visited = |prob: f32, visits: i32| if visits > 0 { prob.max(f32::MIN_POSITIVE) } else { 0.0 };
    let actions = work.iter_mut().zip(probs).zip(visits);
    actions.for_each(|((work, prob), visits)| *work = visited(*prob, *visits));
    let total = sum(work);
    if total == 0.0 {
        return raw;
    }
    work.iter_mut().zip(qvalues).for_each(|(work, q)| *work = *work * *q / total);
    let num_visits = visits.iter().sum::<i32>() as f32;
    (raw + num_visits * sum(work)) / (num_visits + 1.0)
}
