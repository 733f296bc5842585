//! Warm-up of recurrent states.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Index, Key, TensorDict};

use crate::time::next_key;
use crate::transform::Transform;

/// Runs a recurrent model over the first `burn_in` steps of every sequence, and passes on the rest, which
/// begins with the resulting states. Time is the last batch dimension. Has no JSON form, as the model is a
/// function.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{BurnInTransform, Transform};
/// let double = |mut steps: TensorDict| {
///     let state: Vec<f32> = steps.tensor("h")?.to_f32_vec().iter().map(|h| 2.0 * h).collect();
///     steps.set(["next", "h"], Tensor::from_vec(&[2], state)?)?;
///     Ok(steps)
/// };
/// let mut batch = TensorDict::new(&[3])?;
/// batch.set("h", Tensor::from_vec(&[3], vec![1.0_f32, 2.0, 0.0])?)?;
/// let warm = BurnInTransform::new(double, 2, vec!["h".into()]).forward(batch)?;
/// assert_eq!(warm.tensor("h")?.to_f32_vec(), [4.0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct BurnInTransform<M> {
    module: M,
    burn_in: usize,
    out_keys: Vec<Key>,
}

impl<M: FnMut(TensorDict) -> Result<TensorDict> + Send> BurnInTransform<M> {
    /// Makes a burn-in with `module`, which writes the states after each step to `out_keys`, below `next`.
    #[must_use]
    pub fn new(module: M, burn_in: usize, out_keys: Vec<Key>) -> Self {
        Self { module, burn_in, out_keys }
    }
}

impl<M: FnMut(TensorDict) -> Result<TensorDict> + Send> Transform for BurnInTransform<M> {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        if self.burn_in == 0 {
            return Ok(dict);
        }
        let len = dict.batch_size().last().copied().unwrap_or(0);
        if self.burn_in >= len {
            let detail =
                format!("burn_in must be less than {len}, the number of steps: got {}", self.burn_in);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let mut parts = dict.split_sizes(&[self.burn_in, len - self.burn_in], -1)?;
        let (mut rest, first) = (parts.swap_remove(1), parts.swap_remove(0));
        let time = rest.batch_size().len() - 1;
        let warmed = (self.module)(first)?;
        for key in &self.out_keys {
            let last = warmed.tensor(next_key(key))?.slice(time, self.burn_in - 1..self.burn_in)?;
            let mut states = rest.tensor(key.clone())?.clone();
            let mut at = vec![Index::ALL; time];
            at.push((0..1).into());
            states.set_at(&at, &last)?;
            rest.set(key.clone(), states)?;
        }
        Ok(rest)
    }
}
