//! What every transform can be asked.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;

/// Changes dictionaries on their way into a buffer and out of it. A function from dictionary to dictionary is one, too.
///
/// What a transform remembers between calls (a position of a generator, rows held back) is its state. It can be saved, and a
/// buffer that is emptied clears it.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{Compose, Transform};
/// let mut transforms = Compose::default();
/// transforms.push(|mut batch: TensorDict| {
///     batch.remove("secret")?;
///     Ok(batch)
/// });
/// let mut batch = TensorDict::new(&[1])?;
/// batch.set("secret", Tensor::from_vec(&[1], vec![42_i64])?)?;
/// assert_eq!(transforms.forward(batch)?.num_entries(), 0);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub trait Transform: Send {
    /// What a reader gets for a batch that was sampled.
    ///
    /// # Errors
    /// Those of the transform; most need the keys they are told of, in a shape that they say.
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        Ok(dict)
    }

    /// What is stored for rows that are written; nothing if all of them are held back for later.
    ///
    /// # Errors
    /// Those of the transform; then nothing has been held back.
    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        Ok(Some(dict))
    }

    /// What was held back, to be stored now that no more rows come. Nothing is held afterwards.
    ///
    /// # Errors
    /// Those of the transform.
    fn flush(&mut self) -> Result<Option<TensorDict>> {
        Ok(None)
    }

    /// Forgets what was held back.
    fn clear(&mut self) {}

    /// What [`Transform::load_state`] needs to go on from here, in a dictionary without batch dimensions; empty if that is nothing.
    ///
    /// # Errors
    /// Those of [`TensorDict::set`].
    fn state(&self) -> Result<TensorDict> {
        TensorDict::new(&[])
    }

    /// Goes on where [`Transform::state`] was taken from a transform with the same options.
    ///
    /// # Errors
    /// `UnknownName`, `Incompatible` or `ShapeMismatch` if it is not such a state; then nothing has changed.
    fn load_state(&mut self, state: &TensorDict) -> Result<()> {
        if state.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = state.leaf_keys().iter().map(ToString::to_string).collect();
        let detail = format!("state must be empty for this transform: got {}", keys.join(", "));
        Err(Error::new(ErrorKind::Incompatible, detail))
    }

    /// Says which version of the policy is in use; transforms that judge the age of rows listen.
    fn set_policy_version(&mut self, _version: i64) {}
}

impl<F: FnMut(TensorDict) -> Result<TensorDict> + Send> Transform for F {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        self(dict)
    }
}
