//! The vertices of a tree, breadth first from the state of its root.

use std::collections::{HashMap, VecDeque};

use crate::forest::MctsForest;

/// A vertex: the steps that lead to it, and what leaves it.
#[derive(Debug, Clone)]
pub(crate) struct Vertex {
    pub(crate) hash: Option<i64>,
    /// The first and the end of its steps; equal without steps.
    pub(crate) steps: (usize, usize),
    /// Edges of its last state; `None` if no action is known there, or a cycle ends here.
    pub(crate) index: Option<Vec<u32>>,
    pub(crate) children: Vec<usize>,
}

/// The vertices of a tree and the edges of all their steps.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) steps: Vec<u32>,
}

/// Makes the vertices below `state`. A vertex that several lead to is made once; a link that would close a cycle leads to a copy
/// without children.
pub(crate) fn build(forest: &MctsForest, state: usize, max_depth: Option<usize>, compact: bool) -> Plan {
    let mut builder = Builder { forest, compact, plan: Plan { vertices: Vec::new(), steps: Vec::new() } };
    match forest.edges_of(state) {
        &[edge] => builder.add(state, edge, None),
        edges => {
            let index = Some(edges.to_vec());
            builder.plan.vertices.push(Vertex { hash: None, steps: (0, 0), index, children: Vec::new() });
            0
        }
    };
    builder.grow(state, max_depth);
    cut_cycles(&mut builder.plan);
    builder.plan
}

struct Builder<'a> {
    forest: &'a MctsForest,
    compact: bool,
    plan: Plan,
}

impl Builder<'_> {
    fn grow(&mut self, root_state: usize, max_depth: Option<usize>) {
        let mut queue = VecDeque::from([(0, 0)]);
        let mut made: HashMap<u32, usize> = HashMap::new();
        while let Some((at, depth)) = queue.pop_front() {
            let Some(index) = self.plan.vertices[at].index.clone() else { continue };
            let state = self.last_state(at).unwrap_or(root_state);
            for (edge, hash) in index.iter().zip(self.hashes(&index)) {
                let child = match made.get(edge) {
                    Some(child) => *child,
                    None => {
                        let child = self.add(state, *edge, Some(hash));
                        made.insert(*edge, child);
                        if max_depth.is_none_or(|max| depth < max) {
                            queue.push_back((child, depth + 1));
                        }
                        child
                    }
                };
                self.plan.vertices[at].children.push(child);
            }
        }
    }

    /// Adds the vertex that `edge` of `state` leads to: through all states with one known action if the tree is compact.
    fn add(&mut self, state: usize, edge: u32, hash: Option<i64>) -> usize {
        let start = self.plan.steps.len();
        let mut passed = std::collections::HashSet::from([state]);
        let mut edge = edge;
        let index = loop {
            self.plan.steps.push(edge);
            let state = self.forest.target_of(edge);
            match self.forest.edges_of(state) {
                [] => break None,
                &[next] if self.compact => {
                    if !passed.insert(state) {
                        break None;
                    }
                    edge = next;
                }
                edges => break Some(edges.to_vec()),
            }
        };
        let steps = (start, self.plan.steps.len());
        self.plan.vertices.push(Vertex { hash, steps, index, children: Vec::new() });
        self.plan.vertices.len() - 1
    }

    fn last_state(&self, at: usize) -> Option<usize> {
        let (start, end) = self.plan.vertices[at].steps;
        (start < end).then(|| self.forest.target_of(self.plan.steps[end - 1]))
    }

    fn hashes(&self, index: &[u32]) -> Vec<i64> {
        let mut hashes: Vec<i64> = index.iter().map(|edge| self.forest.hash_of(*edge)).collect();
        if self.forest.options().compatible {
            hashes.sort_unstable();
        }
        hashes
    }
}

/// Leads each link to a vertex on its own path to a copy of that vertex without children. Depth first, without recursion.
fn cut_cycles(plan: &mut Plan) {
    let count = plan.vertices.len();
    let (mut is_on_path, mut is_done) = (vec![false; count], vec![false; count]);
    let mut copies: HashMap<usize, usize> = HashMap::new();
    let mut path = vec![(0, 0)];
    is_on_path[0] = true;
    while let Some((at, next)) = path.last_mut() {
        let at = *at;
        let Some(&child) = plan.vertices[at].children.get(*next) else {
            (is_on_path[at], is_done[at]) = (false, true);
            path.pop();
            continue;
        };
        let link = *next;
        *next += 1;
        if child >= count || is_done[child] {
            continue;
        }
        if is_on_path[child] {
            let copy = *copies.entry(child).or_insert_with(|| {
                let copy = Vertex { children: Vec::new(), ..plan.vertices[child].clone() };
                plan.vertices.push(copy);
                plan.vertices.len() - 1
            });
            plan.vertices[at].children[link] = copy;
        } else {
            is_on_path[child] = true;
            path.push((child, 0));
        }
    }
}
