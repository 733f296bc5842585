//! The state of a tree, for checkpoints.

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::PriorityTree;
use super::key::top_of;

/// The state of a [`PriorityTree`] for a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PriorityTreeState {
    /// Maximum number of rows.
    pub capacity: usize,
    /// All leaves are below two to this power; determines the unit.
    pub top: i32,
    /// The leaf of each row, absent if unset; rows after the last set one are omitted.
    pub leaves: Vec<Option<f32>>,
}

impl PriorityTree {
    /// Returns the state for a checkpoint. Costs O(rows).
    #[must_use]
    pub fn state(&self) -> PriorityTreeState {
        let leaves = (0..self.end).map(|row| self.leaf(row)).collect();
        PriorityTreeState { capacity: self.capacity, top: self.top, leaves }
    }

    /// Restores a tree from its state.
    ///
    /// # Errors
    /// The errors of [`PriorityTree::new`] and [`PriorityTree::update`]; `Corrupt` if the state is
    /// inconsistent.
    pub fn from_state(state: &PriorityTreeState) -> Result<Self> {
        let mut tree = Self::new(state.capacity)?;
        let (rows, leaves): (Vec<_>, Vec<_>) =
            state.leaves.iter().enumerate().filter_map(|(row, leaf)| Some((row, (*leaf)?))).unzip();
        tree.update(&rows, &leaves)?;
        let top = top_of(tree.largest());
        if !(top..=128).contains(&state.top) {
            let detail = format!("top must be in {top}..=128, as the leaves are: got {}", state.top);
            return Err(Error::new(ErrorKind::Corrupt, detail));
        }
        tree.top = state.top;
        if tree.even.is_none() {
            tree.sum_up();
        }
        Ok(tree)
    }
}
