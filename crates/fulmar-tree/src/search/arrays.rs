//! The nodes of a search as tensors.

use fulmar_core::Result;
use fulmar_tensor::{Tensor, TensorDict};

use crate::search::Search;
use crate::search::search_tree::SearchTree;
use crate::search::select::visit_probabilities;

impl Search {
    /// Returns what the roots know: `visit_counts` `[B, A]`, `visit_probs` `[B, A]`, `value` `[B]` and `qvalues` `[B, A]`, as `f32`.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it.
    pub fn summary(&self) -> Result<TensorDict> {
        let mut summary = TensorDict::new(&[self.trees.len()])?;
        let cells = [self.trees.len(), self.num_actions];
        let roots = |column: &dyn Fn(&SearchTree) -> Vec<f32>| {
            self.trees.iter().flat_map(|growing| column(&growing.tree)).collect::<Vec<f32>>()
        };
        let counts = roots(&|tree| tree.visits[tree.row(0)].iter().map(|visits| *visits as f32).collect());
        summary.set("visit_counts", Tensor::from_vec(&cells, counts)?)?;
        let probabilities = roots(&|tree| visit_probabilities(&tree.visits[tree.row(0)]));
        summary.set("visit_probs", Tensor::from_vec(&cells, probabilities)?)?;
        let values = roots(&|tree| vec![tree.node_values[0]]);
        summary.set("value", Tensor::from_vec(&cells[..1], values)?)?;
        let qvalues = roots(&|tree| tree.qvalues[tree.row(0)].to_vec());
        summary.set("qvalues", Tensor::from_vec(&cells, qvalues)?)?;
        Ok(summary)
    }

    /// Returns all nodes of all trees under the names of mctx: `[B, N]` and `[B, N, A]`, where N is that of the largest tree. -1 marks a
    /// missing parent or child; nodes that were never added have no visits.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for it.
    pub fn arrays(&self) -> Result<TensorDict> {
        let num_nodes = self.trees.iter().map(|growing| growing.tree.num_nodes()).max().unwrap_or(0);
        let (nodes, cells) = ([self.trees.len(), num_nodes], [self.trees.len(), num_nodes, self.num_actions]);
        let mut arrays = TensorDict::new(&nodes)?;
        let integers = |shape: &[usize], fill: i32, column: &dyn Fn(&SearchTree) -> &Vec<i32>| {
            Tensor::from_vec(shape, self.column(shape, fill, column))
        };
        let floats = |shape: &[usize], column: &dyn Fn(&SearchTree) -> &Vec<f32>| {
            Tensor::from_vec(shape, self.column(shape, 0.0, column))
        };
        arrays.set("node_visits", integers(&nodes, 0, &|tree| &tree.node_visits)?)?;
        arrays.set("raw_values", floats(&nodes, &|tree| &tree.raw_values)?)?;
        arrays.set("node_values", floats(&nodes, &|tree| &tree.node_values)?)?;
        arrays.set("parents", integers(&nodes, -1, &|tree| &tree.parents)?)?;
        arrays.set("action_from_parent", integers(&nodes, -1, &|tree| &tree.action_from_parent)?)?;
        arrays.set("children_index", integers(&cells, -1, &|tree| &tree.children)?)?;
        arrays.set("children_prior_logits", floats(&cells, &|tree| &tree.logits)?)?;
        arrays.set("children_visits", integers(&cells, 0, &|tree| &tree.visits)?)?;
        arrays.set("children_rewards", floats(&cells, &|tree| &tree.rewards)?)?;
        arrays.set("children_discounts", floats(&cells, &|tree| &tree.discounts)?)?;
        arrays.set("children_values", floats(&cells, &|tree| &tree.values)?)?;
        Ok(arrays)
    }

    /// One column of all trees; shorter trees are filled up.
    fn column<T: Copy>(&self, shape: &[usize], fill: T, column: &dyn Fn(&SearchTree) -> &Vec<T>) -> Vec<T> {
        let each: usize = shape[1..].iter().product();
        let mut values = Vec::with_capacity(shape[0] * each);
        for (at, growing) in self.trees.iter().enumerate() {
            values.extend_from_slice(column(&growing.tree));
            values.resize((at + 1) * each, fill);
        }
        values
    }
}
