//! One tree of a search: nodes and their actions as arrays.
//!
//! N nodes, A actions. Node 0 is the root; simulation i adds the node `base + i`, so a parent has a smaller number than its children.

use crate::search::numeric::softmax;

/// No parent, no child.
pub(crate) const NONE: i32 = -1;

/// Numbers that only some policies keep, `[N, A]`; otherwise empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extra {
    None,
    /// Sums of the squares of returns.
    Squares,
    /// Logarithms of the weights of EXP3.
    Weights,
}

/// The model's answer to one action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Reward of the action.
    pub reward: f32,
    /// Factor of all that follows: 0 after the end, -1 or its product with a discount where the other player moves next.
    pub discount: f32,
    /// Value of the new state.
    pub value: f32,
}

#[derive(Debug, Clone)]
pub(crate) struct SearchTree {
    pub(crate) num_actions: usize,
    pub(crate) extra: Extra,
    /// The number of the next node to add.
    pub(crate) next: usize,
    // [N]
    pub(crate) node_visits: Vec<i32>,
    pub(crate) raw_values: Vec<f32>,
    pub(crate) node_values: Vec<f32>,
    pub(crate) parents: Vec<i32>,
    pub(crate) action_from_parent: Vec<i32>,
    // [N, A]
    pub(crate) children: Vec<i32>,
    pub(crate) logits: Vec<f32>,
    pub(crate) probs: Vec<f32>,
    pub(crate) visits: Vec<i32>,
    pub(crate) rewards: Vec<f32>,
    pub(crate) discounts: Vec<f32>,
    pub(crate) values: Vec<f32>,
    /// `reward + discount * value`.
    pub(crate) qvalues: Vec<f32>,
    pub(crate) extras: Vec<f32>,
}

impl SearchTree {
    pub(crate) fn new(num_nodes: usize, num_actions: usize, extra: Extra) -> Self {
        let cells = num_nodes * num_actions;
        Self {
            num_actions,
            extra,
            next: 0,
            node_visits: vec![0; num_nodes],
            raw_values: vec![0.0; num_nodes],
            node_values: vec![0.0; num_nodes],
            parents: vec![NONE; num_nodes],
            action_from_parent: vec![NONE; num_nodes],
            children: vec![NONE; cells],
            logits: vec![0.0; cells],
            probs: vec![0.0; cells],
            visits: vec![0; cells],
            rewards: vec![0.0; cells],
            discounts: vec![0.0; cells],
            values: vec![0.0; cells],
            qvalues: vec![0.0; cells],
            extras: if extra == Extra::None { Vec::new() } else { vec![0.0; cells] },
        }
    }

    pub(crate) fn num_nodes(&self) -> usize {
        self.node_visits.len()
    }

    /// Returns the first cell of a node.
    pub(crate) fn row(&self, node: usize) -> std::ops::Range<usize> {
        node * self.num_actions..(node + 1) * self.num_actions
    }

    /// Writes the state of a node, also again where `max_depth` leads to it again.
    pub(crate) fn set_node(&mut self, node: usize, logits: &[f32], value: f32) {
        let row = self.row(node);
        self.logits[row.clone()].copy_from_slice(logits);
        softmax(logits, &mut self.probs[row]);
        self.raw_values[node] = value;
        self.node_values[node] = value;
        self.node_visits[node] += 1;
        self.next = self.next.max(node + 1);
    }

    /// Adds the node that an action leads to.
    pub(crate) fn expand(
        &mut self,
        parent: usize,
        action: usize,
        node: usize,
        outcome: Outcome,
        logits: &[f32],
    ) {
        self.set_node(node, logits, outcome.value);
        let cell = parent * self.num_actions + action;
        self.children[cell] = node as i32;
        self.rewards[cell] = outcome.reward;
        self.discounts[cell] = outcome.discount;
        self.parents[node] = parent as i32;
        self.action_from_parent[node] = action as i32;
    }

    /// Adds the value of a node to all nodes above it. `returned` takes each cell with the return that it got.
    pub(crate) fn backward(&mut self, leaf: usize, mut returned: impl FnMut(&mut Self, usize, f32)) {
        let (mut node, mut value) = (leaf, self.node_values[leaf]);
        while self.parents[node] != NONE {
            let parent = self.parents[node] as usize;
            let cell = parent * self.num_actions + self.action_from_parent[node] as usize;
            value = self.rewards[cell] + self.discounts[cell] * value;
            let count = self.node_visits[parent] as f32;
            self.values[cell] = self.node_values[node];
            self.qvalues[cell] = self.rewards[cell] + self.discounts[cell] * self.node_values[node];
            self.visits[cell] += 1;
            self.node_values[parent] = (self.node_values[parent] * count + value) / (count + 1.0);
            self.node_visits[parent] += 1;
            returned(self, cell, value);
            node = parent;
        }
    }

    /// Returns the part below an action of the root as a tree of its own with room for `num_more` nodes, and the node that each of its
    /// nodes was; `None` if the action was never taken.
    pub(crate) fn subtree(&self, action: usize, num_more: usize) -> Option<(Self, Vec<usize>)> {
        let root = usize::try_from(self.children[action]).ok()?;
        let mut new_of = vec![NONE; self.next];
        let mut kept = Vec::new();
        for node in root..self.next {
            let parent = self.parents[node];
            let is_kept = node == root || (parent >= root as i32 && new_of[parent as usize] != NONE);
            if is_kept && self.node_visits[node] > 0 {
                new_of[node] = kept.len() as i32;
                kept.push(node);
            }
        }
        let mut tree = Self::new(kept.len() + num_more, self.num_actions, self.extra);
        tree.next = kept.len();
        for (to, &from) in kept.iter().enumerate() {
            tree.copy_node(self, from, to, &new_of);
        }
        Some((tree, kept))
    }

    fn copy_node(&mut self, other: &Self, from: usize, to: usize, new_of: &[i32]) {
        self.node_visits[to] = other.node_visits[from];
        self.raw_values[to] = other.raw_values[from];
        self.node_values[to] = other.node_values[from];
        if to > 0 {
            self.parents[to] = new_of[other.parents[from] as usize];
            self.action_from_parent[to] = other.action_from_parent[from];
        }
        let (source, target) = (other.row(from), self.row(to));
        for (to, from) in self.children[target.clone()].iter_mut().zip(&other.children[source.clone()]) {
            *to = if *from == NONE { NONE } else { new_of[*from as usize] };
        }
        self.visits[target.clone()].copy_from_slice(&other.visits[source.clone()]);
        let columns = [
            (&mut self.logits, &other.logits),
            (&mut self.probs, &other.probs),
            (&mut self.rewards, &other.rewards),
            (&mut self.discounts, &other.discounts),
            (&mut self.values, &other.values),
            (&mut self.qvalues, &other.qvalues),
            (&mut self.extras, &other.extras),
        ];
        for (to, from) in columns.into_iter().filter(|(to, _)| !to.is_empty()) {
            to[target.clone()].copy_from_slice(&from[source.clone()]);
        }
    }
}
