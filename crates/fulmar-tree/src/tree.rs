//! A tree of rollouts: vertices that branch or end, and the steps between them.

use std::collections::VecDeque;
use std::fmt::Write;

use fulmar_core::limits::TREE_PATHS_MAX;
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};

use crate::forest::MctsForestOptions;
use crate::tree_builder::{Plan, Vertex};

/// A tree that [`MctsForest::tree`](crate::MctsForest::tree) read. Vertices have numbers in the order of a breadth-first walk, the root
/// has 0; a vertex that several paths reach is one vertex. It keeps its own steps: later rollouts do not change it.
#[derive(Debug, Clone)]
pub struct Tree {
    vertices: Vec<Vertex>,
    parents: Vec<Vec<usize>>,
    /// Steps of all vertices, one after another.
    steps: TensorDict,
    /// The last observation of each vertex.
    data: TensorDict,
    done_keys: Vec<Key>,
}

impl Tree {
    pub(crate) fn new(
        plan: Plan,
        root: &TensorDict,
        steps: TensorDict,
        options: &MctsForestOptions,
    ) -> Result<Self> {
        let last: Vec<usize> =
            plan.vertices.iter().filter(|one| one.steps.0 < one.steps.1).map(|one| one.steps.1 - 1).collect();
        let next = steps.dict("next")?.select(&options.observation_keys)?.index_select(&last)?;
        let has_no_steps = plan.vertices[0].steps.0 == plan.vertices[0].steps.1;
        let data = if has_no_steps { TensorDict::cat(&[root.unsqueeze(0)?, next], 0)? } else { next };
        let mut parents = vec![Vec::new(); plan.vertices.len()];
        for (at, vertex) in plan.vertices.iter().enumerate() {
            vertex.children.iter().for_each(|child| parents[*child].push(at));
        }
        parents.iter_mut().for_each(Vec::dedup);
        Ok(Self { vertices: plan.vertices, parents, steps, data, done_keys: options.done_keys.clone() })
    }

    /// Returns the number of vertices.
    #[must_use]
    pub fn num_vertices(&self) -> usize {
        self.vertices.len()
    }

    /// Returns the children of a vertex, in the order of their edges.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn children(&self, id: usize) -> Result<&[usize]> {
        Ok(&self.vertex(id)?.children)
    }

    /// Returns the vertices that a vertex is a child of, ascending.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn parents(&self, id: usize) -> Result<&[usize]> {
        self.vertex(id)?;
        Ok(&self.parents[id])
    }

    /// Returns the hash of the first edge of a vertex; `None` for the root.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn hash(&self, id: usize) -> Result<Option<i64>> {
        Ok(self.vertex(id)?.hash)
    }

    /// Returns the rows of the edges that leave the last state of a vertex; `None` if it ends there.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn index(&self, id: usize) -> Result<Option<Vec<usize>>> {
        Ok(self.vertex(id)?.index.as_ref().map(|index| index.iter().map(|edge| *edge as usize).collect()))
    }

    /// Returns the steps that lead to a vertex from its parent, `[T]`: a view. `None` for a root that branches.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn rollout(&self, id: usize) -> Result<Option<TensorDict>> {
        let (start, end) = self.vertex(id)?.steps;
        if start == end { Ok(None) } else { self.steps.slice(start..end).map(Some) }
    }

    /// Returns the last observation of a vertex, without a batch dimension.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn node_data(&self, id: usize) -> Result<TensorDict> {
        self.vertex(id)?;
        self.data.index(id)
    }

    /// Returns whether the last step to a vertex ended its episode; false without steps or marks.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn is_terminal(&self, id: usize) -> Result<bool> {
        let Some(rollout) = self.rollout(id)? else { return Ok(false) };
        let next = rollout.dict("next")?;
        let Some(mark) = self.done_keys.iter().find_map(|key| next.tensor(key.clone()).ok()) else {
            return Ok(false);
        };
        let marks = mark.to(Dtype::Bool)?.select(0, mark.shape()[0] - 1)?.to_vec::<bool>()?;
        Ok(marks.into_iter().any(|is_done| is_done))
    }

    /// Returns the steps from the root to the vertex at a path, `[T]`; `None` without steps. A path says which child to take at each
    /// vertex. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such child.
    pub fn rollout_from_path(&self, path: &[usize]) -> Result<Option<TensorDict>> {
        let mut ids = vec![0];
        for (depth, child) in path.iter().enumerate() {
            let children = self.children(ids[depth])?;
            let Some(id) = children.get(*child) else {
                let detail = format!(
                    "path[{depth}] must be < {}, the number of children: got {child}",
                    children.len()
                );
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            };
            ids.push(*id);
        }
        let mut rows = Vec::new();
        for id in ids {
            let (start, end) = self.vertices[id].steps;
            rows.extend(start..end);
        }
        if rows.is_empty() { Ok(None) } else { self.steps.index_select(&rows).map(Some) }
    }

    /// Returns parent and child of each link, breadth first.
    #[must_use]
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let mut links = Vec::new();
        for parent in self.breadth_first() {
            links.extend(self.vertices[parent].children.iter().map(|child| (parent, *child)));
        }
        links
    }

    /// Returns all vertices in the order of a breadth-first walk.
    #[must_use]
    pub fn breadth_first(&self) -> Vec<usize> {
        let mut is_seen = vec![false; self.vertices.len()];
        let mut order = vec![0];
        is_seen[0] = true;
        let mut next = 0;
        while next < order.len() {
            for &child in &self.vertices[order[next]].children {
                if !std::mem::replace(&mut is_seen[child], true) {
                    order.push(child);
                }
            }
            next += 1;
        }
        order
    }

    /// Returns the path and the vertex of each way to go down from the root, breadth first, the empty path first. A shared vertex comes
    /// once for each path to it.
    #[must_use]
    pub fn paths(&self) -> Paths<'_> {
        Paths { tree: self, queue: VecDeque::from([(Vec::new(), 0)]) }
    }

    /// Returns the path of each way to a vertex without children, breadth first.
    pub fn valid_paths(&self) -> impl Iterator<Item = Vec<usize>> {
        self.paths().filter(|(_, id)| self.vertices[*id].children.is_empty()).map(|(path, _)| path)
    }

    /// Returns the paths of [`Tree::paths`] with their vertices, as a list.
    ///
    /// # Errors
    /// `LimitExceeded` if there are more than [`TREE_PATHS_MAX`].
    pub fn all_paths(&self) -> Result<Vec<(Vec<usize>, usize)>> {
        let paths: Vec<_> = self.paths().take(TREE_PATHS_MAX + 1).collect();
        if paths.len() > TREE_PATHS_MAX {
            let detail = format!("the tree must have at most {TREE_PATHS_MAX} paths: got more");
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok(paths)
    }

    /// Returns the number of links of the longest path.
    #[must_use]
    pub fn max_length(&self) -> usize {
        let mut longest = vec![0; self.vertices.len()];
        for id in self.children_first() {
            longest[id] =
                self.vertices[id].children.iter().map(|child| longest[*child] + 1).max().unwrap_or(0);
        }
        longest[0]
    }

    /// Returns the vertex whose first edge has a hash, the first in breadth-first order.
    ///
    /// # Errors
    /// `OutOfRange` without such a vertex.
    pub fn vertex_by_hash(&self, hash: i64) -> Result<usize> {
        let found = self.breadth_first().into_iter().find(|id| self.vertices[*id].hash == Some(hash));
        found.ok_or_else(|| {
            Error::new(ErrorKind::OutOfRange, format!("hash must be that of a vertex: got {hash}"))
        })
    }

    /// Writes a line for each vertex with steps, depth first: its path, as Python writes a tuple, indented by its depth, and `label`. The
    /// children of a shared vertex are written where it comes first.
    #[must_use]
    pub fn to_text(&self, label: &dyn Fn(usize) -> String) -> String {
        let mut text = String::new();
        let mut is_written = vec![false; self.vertices.len()];
        let mut stack = vec![(0, Vec::new())];
        while let Some((id, path)) = stack.pop() {
            let vertex = &self.vertices[id];
            if vertex.steps.0 < vertex.steps.1 {
                let indent = " ".repeat(path.len().saturating_sub(1));
                let _ = writeln!(text, "{indent}{} {}", tuple(&path), label(id));
            }
            if !std::mem::replace(&mut is_written[id], true) {
                for (at, child) in vertex.children.iter().enumerate().rev() {
                    stack.push((*child, [&path[..], &[at]].concat()));
                }
            }
        }
        text.pop();
        text
    }

    /// Returns the default label of a vertex: its last observation as JSON.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such vertex.
    pub fn label(&self, id: usize) -> Result<String> {
        let data = self.node_data(id)?;
        let mut fields = serde_json::Map::new();
        for key in data.leaf_keys() {
            let tensor: &Tensor = data.tensor(key.clone())?;
            let numbers = tensor.to(Dtype::F64)?.to_vec::<f64>()?;
            let shown = |number: f64| {
                if number.fract() == 0.0 && number.abs() < 1e15 {
                    serde_json::json!(number as i64)
                } else {
                    serde_json::json!(number)
                }
            };
            let values: Vec<serde_json::Value> = numbers.into_iter().map(shown).collect();
            let value = if tensor.rank() == 0 {
                values.into_iter().next().unwrap_or_default()
            } else {
                values.into()
            };
            fields.insert(key.path().join("."), value);
        }
        Ok(serde_json::Value::Object(fields).to_string())
    }

    pub(crate) fn children_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.vertices.len());
        let mut is_seen = vec![false; self.vertices.len()];
        let mut stack = vec![(0, 0)];
        is_seen[0] = true;
        while let Some((id, next)) = stack.last_mut() {
            let Some(&child) = self.vertices[*id].children.get(*next) else {
                order.push(*id);
                stack.pop();
                continue;
            };
            *next += 1;
            if !std::mem::replace(&mut is_seen[child], true) {
                stack.push((child, 0));
            }
        }
        order
    }

    fn vertex(&self, id: usize) -> Result<&Vertex> {
        let wrong =
            || Error::new(ErrorKind::OutOfRange, format!("id must be < {}: got {id}", self.vertices.len()));
        self.vertices.get(id).ok_or_else(wrong)
    }
}

/// The iterator of [`Tree::paths`].
#[derive(Debug)]
pub struct Paths<'a> {
    tree: &'a Tree,
    queue: VecDeque<(Vec<usize>, usize)>,
}

impl Iterator for Paths<'_> {
    type Item = (Vec<usize>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let (path, id) = self.queue.pop_front()?;
        for (at, child) in self.tree.vertices[id].children.iter().enumerate() {
            self.queue.push_back(([&path[..], &[at]].concat(), *child));
        }
        Some((path, id))
    }
}

/// Writes a path as Python writes a tuple.
fn tuple(path: &[usize]) -> String {
    match path {
        [one] => format!("({one},)"),
        _ => format!("({})", path.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
