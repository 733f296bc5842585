//! Models that a search asks for what an action leads to.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::Tensor;

use crate::search::search_tree::Outcome;

/// A model of single steps; the core runs a whole search over it, trees on all threads.
pub trait SearchModel: Sync {
    /// A state: a number, a board, a hidden vector.
    type State: Clone + Send;

    /// Takes `action` in `state`: writes the logits of the new state's actions, `NEG_INFINITY` for those that are not allowed there, and
    /// returns the new state.
    ///
    /// # Errors
    /// Errors of the model, which end the search.
    fn step(&self, state: &Self::State, action: usize, logits: &mut [f32]) -> Result<(Outcome, Self::State)>;
}

/// A model that is a table: S states, A actions.
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// use fulmar_tree::TableModel;
/// let column = |values: [f32; 2]| Tensor::from_vec(&[1, 2], values.to_vec());
/// let next = Tensor::from_vec(&[1, 2], vec![0_i64, 0])?;
/// let value = Tensor::from_vec(&[1], vec![0.5_f32])?;
/// let model = TableModel::new(&next, &column([1.0, 0.0])?, &column([0.9, 0.9])?, &column([0.0, 0.0])?, &value)?;
/// assert_eq!(model.num_states(), 1);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TableModel {
    num_actions: usize,
    next: Vec<u32>,
    reward: Vec<f32>,
    discount: Vec<f32>,
    logits: Vec<f32>,
    value: Vec<f32>,
}

impl TableModel {
    /// Makes one of `next` `[S, A]`, whole numbers below S, `reward`, `discount` and `logits` `[S, A]`, and `value` `[S]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a shape differs; `OutOfRange` if a next state is not below S.
    pub fn new(
        next: &Tensor,
        reward: &Tensor,
        discount: &Tensor,
        logits: &Tensor,
        value: &Tensor,
    ) -> Result<Self> {
        let &[num_states, num_actions] = next.shape() else {
            let detail = format!("next must have the shape [states, actions]: got {:?}", next.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let column = |name: &str, tensor: &Tensor, shape: &[usize]| {
            if tensor.shape() != shape {
                let detail = format!("{name} must have the shape {shape:?}: got {:?}", tensor.shape());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
            Ok(tensor.to_f32_vec())
        };
        let cells = [num_states, num_actions];
        let states = next.to(Dtype::F64)?.to_vec::<f64>()?;
        if let Some(wrong) =
            states.iter().find(|state| !((0.0..num_states as f64).contains(*state) && state.fract() == 0.0))
        {
            let detail = format!("next must be whole numbers < {num_states}: got {wrong}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self {
            num_actions,
            next: states.into_iter().map(|state| state as u32).collect(),
            reward: column("reward", reward, &cells)?,
            discount: column("discount", discount, &cells)?,
            logits: column("logits", logits, &cells)?,
            value: column("value", value, &[num_states])?,
        })
    }

    /// Returns the number of states.
    #[must_use]
    pub fn num_states(&self) -> usize {
        self.value.len()
    }

    /// Returns the number of actions.
    #[must_use]
    pub fn num_actions(&self) -> usize {
        self.num_actions
    }

    /// Returns logits `[B, A]` and values `[B]` of states, as a search wants them of its roots.
    ///
    /// # Errors
    /// `OutOfRange` if a state is not below S.
    pub fn root(&self, states: &[u32]) -> Result<(Vec<f32>, Vec<f32>)> {
        if let Some(state) = states.iter().find(|state| **state as usize >= self.num_states()) {
            let detail = format!("states must be < {}: got {state}", self.num_states());
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let logits = states.iter().flat_map(|state| self.logits_of(*state)).copied().collect();
        Ok((logits, states.iter().map(|state| self.value[*state as usize]).collect()))
    }

    fn logits_of(&self, state: u32) -> &[f32] {
        let start = state as usize * self.num_actions;
        &self.logits[start..start + self.num_actions]
    }
}

impl SearchModel for TableModel {
    type State = u32;

    fn step(&self, state: &u32, action: usize, logits: &mut [f32]) -> Result<(Outcome, u32)> {
        let cell = *state as usize * self.num_actions + action;
        let next = self.next[cell];
        logits.copy_from_slice(self.logits_of(next));
        let outcome = Outcome {
            reward: self.reward[cell],
            discount: self.discount[cell],
            value: self.value[next as usize],
        };
        Ok((outcome, next))
    }
}
