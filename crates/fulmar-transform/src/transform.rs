//! The trait of all transforms.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::TensorDict;

/// Changes dictionaries on their way into a buffer and out of it. A function from dictionary to dictionary is
/// a transform too.
///
/// The data that a transform keeps between calls (a generator's position, held rows) is its state. It can be
/// saved, and emptying a buffer clears it.
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
    /// Transforms a sampled batch for a reader.
    ///
    /// # Errors
    /// The errors of the transform; most require their keys, in a documented shape.
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        Ok(dict)
    }

    /// Transforms written rows for storage; `None` if all of them are held back.
    ///
    /// # Errors
    /// The errors of the transform; then nothing has been held back.
    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        Ok(Some(dict))
    }

    /// Releases the held rows for storage, as no more rows come.
    ///
    /// # Errors
    /// The errors of the transform.
    fn flush(&mut self) -> Result<Option<TensorDict>> {
        Ok(None)
    }

    /// Drops the held rows.
    fn clear(&mut self) {}

    /// Returns the state for [`Transform::load_state`], in a dictionary without batch dimensions; empty
    /// for a stateless transform.
    ///
    /// # Errors
    /// The errors of [`TensorDict::set`].
    fn state(&self) -> Result<TensorDict> {
        TensorDict::new(&[])
    }

    /// Restores a state that [`Transform::state`] returned for a transform with the same options.
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

    /// Sets the current version of the policy, for transforms that check the age of rows.
    fn set_policy_version(&mut self, _version: i64) {}
}

impl<F: FnMut(TensorDict) -> Result<TensorDict> + Send> Transform for F {
    fn forward(&mut self, dict: TensorDict) -> Result<TensorDict> {
        self(dict)
    }
}
