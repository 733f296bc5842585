//! Lazy stacks: set, insert, concatenate, and functions of each part.

use fulmar_core::{Error, ErrorKind, Result};

use super::LazyStack;
use crate::key::Key;
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict};

impl LazyStack {
    /// Sets an entry of the whole stack at `key`; each part gets its slice along the stacked dimension.
    ///
    /// # Errors
    /// `ShapeMismatch` if the stacked dimension of the entry is not as long as the number of parts; the
    /// errors of [`TensorDict::set`]. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{LazyStack, Tensor, TensorDict};
    /// let mut stack = LazyStack::new(vec![TensorDict::new(&[])?, TensorDict::new(&[])?], 0)?;
    /// stack.set("id", Tensor::from_vec(&[2], vec![7_i64, 8])?)?;
    /// assert_eq!(stack.parts()[1].tensor("id")?.as_slice::<i64>()?, [8]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn set(&mut self, key: impl Into<Key>, entry: impl Into<Entry>) -> Result<()> {
        let key = key.into();
        let slices = self.slices_of(&entry.into()).map_err(|error| error.at(&key))?;
        let mut parts = self.parts.clone();
        for (part, slice) in parts.iter_mut().zip(slices) {
            part.set(key.clone(), slice)?;
        }
        self.parts = parts;
        Ok(())
    }

    /// Writes the entries of `item` over the entries of part `at`, as [`TensorDict::set_at`] does.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such part; the errors of [`TensorDict::set_at`]. After an error nothing
    /// has changed.
    pub fn set_part(&mut self, at: usize, item: &TensorDict) -> Result<()> {
        let count = self.parts.len();
        match self.parts.get_mut(at) {
            Some(part) => part.set_at(&[], item),
            None => Err(no_part(at, count)),
        }
    }

    /// Inserts `part` before part `at`, or at the end if `at` is the number of parts.
    ///
    /// # Errors
    /// `OutOfRange` if `at` is larger; `ShapeMismatch` if the part has another number of batch dimensions.
    /// After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{LazyStack, TensorDict};
    /// let mut stack = LazyStack::new(vec![TensorDict::new(&[2])?], 0)?;
    /// stack.insert(0, TensorDict::new(&[5])?)?;
    /// assert_eq!(stack.batch_size(), [Some(2), None]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn insert(&mut self, at: usize, part: TensorDict) -> Result<()> {
        if at > self.parts.len() {
            return Err(no_part(at, self.parts.len() + 1));
        }
        let mut parts = self.parts.clone();
        parts.insert(at, part);
        *self = Self::along(parts, self.dim)?;
        Ok(())
    }

    /// Appends `part`.
    ///
    /// # Errors
    /// The errors of [`LazyStack::insert`].
    pub fn push(&mut self, part: TensorDict) -> Result<()> {
        self.insert(self.parts.len(), part)
    }

    /// Concatenates the parts of all `stacks`.
    ///
    /// # Errors
    /// `Empty` without stacks; `Incompatible` if they are stacked along different dimensions; the errors of
    /// [`LazyStack::new`].
    pub fn cat(stacks: &[Self]) -> Result<Self> {
        let dim = same_dim(stacks)?;
        Self::along(stacks.iter().flat_map(|stack| stack.parts.clone()).collect(), dim)
    }

    /// Stacks `stacks` along a new first dimension, part by part. Copies.
    ///
    /// # Errors
    /// `Empty` without stacks; `Incompatible` if they are stacked along different dimensions; `ShapeMismatch`
    /// if their numbers of parts differ; the errors of [`TensorDict::stack`].
    pub fn stack(stacks: &[Self]) -> Result<Self> {
        let dim = same_dim(stacks)?;
        let count = stacks[0].parts.len();
        if let Some(other) = stacks.iter().find(|stack| stack.parts.len() != count) {
            let detail = format!("stacks must have {count} parts: got {}", other.parts.len());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let joined = (0..count).map(|at| {
            let parts: Vec<_> = stacks.iter().map(|stack| stack.parts[at].clone()).collect();
            TensorDict::stack(&parts, 0)
        });
        Self::along(joined.collect::<Result<_>>()?, dim + 1)
    }

    /// Keeps only the entries at `keys` of every part.
    ///
    /// # Errors
    /// `UnknownName` if a part lacks one.
    pub fn select(&self, keys: &[Key]) -> Result<Self> {
        self.mapped(self.dim, |part| part.select(keys))
    }

    /// Applies [`TensorDict::apply`] to every part.
    ///
    /// # Errors
    /// The errors of [`TensorDict::apply`].
    pub fn apply(&self, to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.mapped(self.dim, |part| part.apply(to))
    }

    /// Applies `to` to every part and stacks the results along `dim`.
    pub(super) fn mapped(&self, dim: usize, to: impl Fn(&TensorDict) -> Result<TensorDict>) -> Result<Self> {
        Self::along(self.parts.iter().map(to).collect::<Result<_>>()?, dim)
    }

    /// Returns the slice of `entry`, an entry of the whole stack, for each part.
    fn slices_of(&self, entry: &Entry) -> Result<Vec<Entry>> {
        let (dim, count) = (self.dim, self.parts.len());
        let len = match entry {
            Entry::Tensor(tensor) => tensor.shape().get(dim).copied(),
            Entry::Ragged(ragged) => (dim == 0).then(|| ragged.num_rows()),
            Entry::NonTensor(values) => values.shape().map_or(Some(count), |shape| shape.get(dim).copied()),
            Entry::Dict(dict) => dict.batch_size().get(dim).copied(),
        };
        if len != Some(count) {
            let detail = format!(
                "dimension {dim} of the entry must have length {count}, one for each part: got {len:?}"
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let slice = |at| match entry {
            Entry::Tensor(tensor) => tensor.select(dim, at).map(Entry::Tensor),
            Entry::Ragged(ragged) => ragged.row(at).map(Entry::Tensor),
            Entry::NonTensor(values) => values.select(dim, at).map(Entry::NonTensor),
            Entry::Dict(dict) => Ok(Entry::Dict(dict.unbind(dim as isize)?.swap_remove(at))),
        };
        (0..count).map(slice).collect()
    }
}

fn same_dim(stacks: &[LazyStack]) -> Result<usize> {
    let Some(first) = stacks.first() else {
        return Err(Error::new(ErrorKind::Empty, "stacks must hold at least one stack: got 0"));
    };
    if let Some(other) = stacks.iter().find(|stack| stack.dim != first.dim) {
        let detail = format!("stacks must be along one dimension: got {} and {}", first.dim, other.dim);
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    Ok(first.dim)
}

fn no_part(at: usize, count: usize) -> Error {
    Error::new(ErrorKind::OutOfRange, format!("at must be < {count}: got {at}"))
}
