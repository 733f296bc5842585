//! Transitions over several steps, made while rows are written.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;
use serde::Deserialize;

use crate::multi_step::MultiStep;
use crate::time::joined;
use crate::transform::Transform;

/// [`MultiStep`] over all written rows, with time in the last batch dimension: the last `nSteps` steps are
/// held back until the next ones arrive, or until [`Transform::flush`] ends the stream.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{MultiStep, MultiStepTransform, Transform};
/// let mut rows = TensorDict::new(&[3])?;
/// rows.set(["next", "reward"], Tensor::from_vec(&[3], vec![1.0_f32, 2.0, 4.0])?)?;
/// rows.set(["next", "done"], Tensor::from_vec(&[3], vec![false; 3])?)?;
/// let mut transform = MultiStepTransform::new(MultiStep::new(2, 1.0)?);
/// let stored = transform.inverse(rows)?.unwrap_or(TensorDict::new(&[])?);
/// assert_eq!(stored.tensor(["next", "reward"])?.to_f32_vec(), [3.0]);
/// let rest = transform.flush()?.unwrap_or(TensorDict::new(&[])?);
/// assert_eq!(rest.tensor(["next", "reward"])?.to_f32_vec(), [6.0, 4.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct MultiStepTransform {
    options: MultiStep,
    #[serde(skip)]
    held: Option<TensorDict>,
}

impl MultiStepTransform {
    /// Makes a transform that holds no rows.
    #[must_use]
    pub fn new(options: MultiStep) -> Self {
        Self { options, held: None }
    }

    pub(crate) fn checked(self) -> Result<Self> {
        Ok(Self::new(self.options.checked()?))
    }
}

impl Transform for MultiStepTransform {
    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        let Some(all) = joined(self.held.clone(), Some(dict))? else { return Ok(None) };
        let Some(&len) = all.batch_size().last() else {
            let detail = "rows must have a batch dimension, which is time: got batch size []";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let ready = len.saturating_sub(self.options.n_steps);
        // Run it even if nothing is ready: invalid rows must not be held.
        let stepped = self.options.stepped(all.clone())?;
        let stored = first_steps(&stepped, ready, len)?.swap_remove(0);
        self.held = first_steps(&all, ready, len)?.pop();
        Ok((ready > 0).then_some(stored))
    }

    fn flush(&mut self) -> Result<Option<TensorDict>> {
        let rest = self.held.take().map(|held| self.options.stepped(held)).transpose()?;
        Ok(rest.filter(|rest| rest.batch_size().last() != Some(&0)))
    }

    fn clear(&mut self) {
        self.held = None;
    }

    fn state(&self) -> Result<TensorDict> {
        let mut state = TensorDict::new(&[])?;
        if let Some(held) = &self.held {
            state.set("held", held.clone())?;
        }
        Ok(state)
    }

    fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        let held = if state.is_empty() { None } else { Some(state.dict("held")?.clone()) };
        if let Some(held) = &held {
            self.options.stepped(held.clone())?;
        }
        self.held = held;
        Ok(())
    }
}

/// Returns the first `count` of `len` steps, and the rest.
fn first_steps(dict: &TensorDict, count: usize, len: usize) -> Result<Vec<TensorDict>> {
    dict.split_sizes(&[count, len - count], -1)
}
