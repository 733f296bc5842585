//! Other batch sizes for the same entries, reordering along the batch, and state dictionaries.

use fulmar_core::{Error, ErrorKind, Result};
use indexmap::IndexMap;

use super::{Entry, TensorDict};
use crate::tensor::Tensor;

impl TensorDict {
    /// Returns the same entries with batch size `sizes`; a nested dictionary whose batch size does not begin
    /// with it gets it too. Shares the elements.
    ///
    /// # Errors
    /// `ShapeMismatch`, with the key, if a shape does not begin with it; `LimitExceeded` if it has too many dimensions.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// assert_eq!(dict.with_batch_size(&[2])?.batch_size(), [2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn with_batch_size(&self, sizes: &[usize]) -> Result<Self> {
        let mut sized = self.clone().rebatched(sizes)?;
        if !self.names.is_empty() {
            let mut names = self.names.clone();
            names.resize(sizes.len(), None);
            sized.name_first(&names);
        }
        Ok(sized)
    }

    /// Sets the batch size to the common leading dimensions of all shapes, at most `dims_max`. JSON values
    /// that the whole batch shares have no shape.
    ///
    /// # Errors
    /// The errors of [`TensorDict::with_batch_size`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set("image", Tensor::from_vec(&[2, 3, 1], vec![0_u8; 6])?)?;
    /// dict.set("label", Tensor::from_vec(&[2, 3], vec![0_i64; 6])?)?;
    /// assert_eq!(dict.auto_batch_size(None)?.batch_size(), [2, 3]);
    /// assert_eq!(dict.auto_batch_size(Some(1))?.batch_size(), [2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn auto_batch_size(&self, dims_max: Option<usize>) -> Result<Self> {
        let mut shared: Option<Vec<usize>> = None;
        for key in self.leaf_keys() {
            let shape = match self.get(key) {
                Some(Entry::Tensor(tensor)) => tensor.shape().to_vec(),
                Some(Entry::Ragged(ragged)) => vec![ragged.num_rows()],
                Some(Entry::NonTensor(values)) => match values.shape() {
                    Some(shape) => shape.to_vec(),
                    None => continue,
                },
                Some(Entry::Dict(_)) | None => continue,
            };
            let prefix = shared.as_ref().map_or(shape.len(), |shared| {
                shared.iter().zip(&shape).take_while(|(left, right)| left == right).count()
            });
            shared = Some(shape[..prefix].to_vec());
        }
        let mut sizes = shared.unwrap_or_default();
        sizes.truncate(dims_max.unwrap_or(usize::MAX));
        self.with_batch_size(&sizes)
    }

    /// Rolls the parts of dimension `dim` by `shift` places; the last ones come first. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; the errors of [`Tensor::index_select`]; `Incompatible` at
    /// a ragged entry if `dim` is not the first.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[3])?;
    /// dict.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
    /// assert_eq!(dict.roll(1, 0)?.tensor("id")?.as_slice::<i64>()?, [3, 1, 2]);
    /// assert_eq!(dict.flip(0)?.tensor("id")?.as_slice::<i64>()?, [3, 2, 1]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn roll(&self, shift: isize, dim: isize) -> Result<Self> {
        self.ordered(dim, |at, len| (at as isize - shift % len as isize).rem_euclid(len as isize) as usize)
    }

    /// Reverses the parts of dimension `dim`. Copies.
    ///
    /// # Errors
    /// The errors of [`TensorDict::roll`].
    pub fn flip(&self, dim: isize) -> Result<Self> {
        self.ordered(dim, |at, len| len - 1 - at)
    }

    /// Returns the size of the elements of all tensors in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.entries
            .values()
            .map(|entry| match entry {
                Entry::Tensor(tensor) => tensor.size_bytes(),
                Entry::Ragged(ragged) => ragged.values().size_bytes(),
                Entry::NonTensor(_) => 0,
                Entry::Dict(dict) => dict.size_bytes(),
            })
            .sum()
    }

    /// Returns all tensors by their path with dots between the names, in order. Shares the elements. Ragged
    /// tensors and JSON values are not part of a state.
    ///
    /// # Errors
    /// `Incompatible` if two paths give one name.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[])?;
    /// dict.set(["layer", "bias"], Tensor::from_vec(&[1], vec![1.0_f32])?)?;
    /// let state = dict.state_dict()?;
    /// assert_eq!(state.keys().collect::<Vec<_>>(), ["layer.bias"]);
    /// let mut other = TensorDict::new(&[])?;
    /// other.set(["layer", "bias"], Tensor::from_vec(&[1], vec![0.0_f32])?)?;
    /// other.load_state_dict(&state)?;
    /// assert_eq!(other, dict);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn state_dict(&self) -> Result<IndexMap<String, Tensor>> {
        let mut state = IndexMap::new();
        for key in self.leaf_keys() {
            if let Some(Entry::Tensor(tensor)) = self.get(key.clone()) {
                let name = key.path().join(".");
                if state.insert(name.clone(), tensor.clone()).is_some() {
                    let detail = format!("names of a state must differ: got {name:?} twice");
                    return Err(Error::new(ErrorKind::Incompatible, detail));
                }
            }
        }
        Ok(state)
    }

    /// Copies the tensors of `state` into the tensors of the same name. A locked dictionary stays locked.
    ///
    /// # Errors
    /// `UnknownName` if the names differ from those of [`TensorDict::state_dict`]; with the name,
    /// `ShapeMismatch` or `Incompatible` if a shape or a dtype differs. After an error nothing has changed.
    pub fn load_state_dict(&mut self, state: &IndexMap<String, Tensor>) -> Result<()> {
        let own = self.state_dict()?;
        let missing = own.keys().find(|name| !state.contains_key(*name));
        if let Some(name) = missing.or_else(|| state.keys().find(|name| !own.contains_key(*name))) {
            let detail =
                format!("a state must have the names of this dictionary: got {name:?} in one of them only");
            return Err(Error::new(ErrorKind::UnknownName, detail));
        }
        for (name, have) in &own {
            let new = &state[name];
            if new.dtype() != have.dtype() {
                let detail = format!("dtype must be {}: got {}", have.dtype().name(), new.dtype().name());
                return Err(Error::new(ErrorKind::Incompatible, detail).at(format!("{name:?}")));
            }
            if new.shape() != have.shape() {
                let detail = format!("shape must be {:?}: got {:?}", have.shape(), new.shape());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(format!("{name:?}")));
            }
        }
        for key in self.leaf_keys() {
            if let Some(new) = state.get(&key.path().join("."))
                && let Some((dict, name)) = self.holder(&key)
                && let Some(Entry::Tensor(have)) = dict.entries.get_mut(name)
            {
                *have = new.clone();
            }
        }
        Ok(())
    }

    /// Reorders the parts of dimension `dim`: `source` maps a position and the length to the position to
    /// read.
    fn ordered(&self, dim: isize, source: impl Fn(usize, usize) -> usize) -> Result<Self> {
        let dim = self.batch_dim(dim)?;
        let len = self.batch_size[dim];
        let order: Vec<_> = (0..len).map(|at| source(at, len)).collect();
        if dim == 0 {
            self.index_select(&order)
        } else {
            self.moved(&|tensor| tensor.index_select(dim, &order))
        }
    }
}
