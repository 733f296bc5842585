//! Stacks that are not materialised: dictionaries in a list, with keys and shapes that may differ.

mod change;
mod index;

use fulmar_core::{Error, ErrorKind, Result};

use crate::key::Key;
use crate::ragged::{PadSide, Ragged};
use crate::tensor::Tensor;
use crate::tensor_dict::{Entry, TensorDict, dim_in};

/// A lazy stack of dictionaries along a new batch dimension; entries are stacked on request. Cloning shares
/// the elements.
///
/// # Examples
/// ```
/// use fulmar_tensor::{LazyStack, PadSide, Tensor, TensorDict};
/// let episode = |ids: Vec<i64>| {
///     let mut dict = TensorDict::new(&[])?;
///     dict.set("ids", Tensor::from_vec(&[ids.len()], ids)?)?;
///     Ok::<_, fulmar_core::Error>(dict)
/// };
/// let stack = LazyStack::new(vec![episode(vec![1, 2])?, episode(vec![3])?], 0)?;
/// assert_eq!(stack.ragged("ids")?.offsets(), [0, 2, 3]);
/// assert_eq!(stack.padded("ids", PadSide::Right, 0.0)?.to_vec::<i64>()?, [1, 2, 3, 0]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LazyStack {
    dim: usize,
    parts: Vec<TensorDict>,
}

/// One dictionary, or a lazy stack.
///
/// # Examples
/// ```
/// use fulmar_tensor::{LazyStack, Stacked, TensorDict};
/// let same = LazyStack::new(vec![TensorDict::new(&[2])?, TensorDict::new(&[2])?], 0)?;
/// assert!(matches!(same.maybe_dense()?, Stacked::Dict(dict) if dict.batch_size() == [2, 2]));
/// let other = LazyStack::new(vec![TensorDict::new(&[2])?, TensorDict::new(&[3])?], 0)?;
/// assert!(matches!(other.maybe_dense()?, Stacked::Lazy(_)));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Stacked {
    /// A dictionary.
    Dict(TensorDict),
    /// A lazy stack.
    Lazy(LazyStack),
}

impl LazyStack {
    /// Stacks `parts` lazily along `dim`, from the end of the stack's dimensions if negative. The lengths of
    /// their batch dimensions may differ.
    ///
    /// # Errors
    /// `Empty` without parts; `ShapeMismatch` if their numbers of batch dimensions differ; `OutOfRange` for
    /// an invalid `dim`.
    pub fn new(parts: Vec<TensorDict>, dim: isize) -> Result<Self> {
        let dim = dim_in(dim, rank_of(&parts)? + 1)?;
        Ok(Self { dim, parts })
    }

    /// Stacks lazily along a dimension counted from the start.
    pub(crate) fn along(parts: Vec<TensorDict>, dim: usize) -> Result<Self> {
        let rank = rank_of(&parts)?;
        if dim > rank {
            let detail = format!("dim must be <= {rank}, the number of batch dimensions: got {dim}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        Ok(Self { dim, parts })
    }

    /// Returns the stacked dictionaries.
    #[must_use]
    pub fn parts(&self) -> &[TensorDict] {
        &self.parts
    }

    /// Returns the batch dimension of the stack.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the batch size of the stack, with `None` for a dimension in which parts differ.
    #[must_use]
    pub fn batch_size(&self) -> Vec<Option<usize>> {
        let rank = self.parts[0].batch_size().len();
        let mut sizes: Vec<_> = (0..rank)
            .map(|dim| {
                let mut lengths = self.parts.iter().map(|part| part.batch_size()[dim]);
                let first = lengths.next();
                first.filter(|first| lengths.all(|len| len == *first))
            })
            .collect();
        sizes.insert(self.dim, Some(self.parts.len()));
        sizes
    }

    /// Returns the keys of the leaves that every part has, in the order of the first.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = self.parts[0].leaf_keys();
        keys.retain(|key| {
            self.parts[1..]
                .iter()
                .all(|part| part.get(key.clone()).is_some_and(|entry| !matches!(entry, Entry::Dict(_))))
        });
        keys
    }

    /// Returns the names of the top-level entries that every part has.
    #[must_use]
    pub fn names(&self) -> Vec<Key> {
        let all_have = |name: &str| self.parts[1..].iter().all(|part| part.get(name).is_some());
        let entries = self.parts[0].entries().filter(|(name, _)| all_have(name));
        entries.map(|(name, _)| name.into()).collect()
    }

    /// Returns the entry at `key`, stacked. Copies.
    ///
    /// # Errors
    /// `UnknownName` if a part has no such entry; the errors of [`TensorDict::stack`], so `ShapeMismatch`
    /// where [`LazyStack::ragged`] or [`LazyStack::padded`] can help.
    pub fn get(&self, key: impl Into<Key>) -> Result<Entry> {
        let key = key.into();
        let alone = self.parts.iter().map(|part| {
            let mut alone = TensorDict::new(part.batch_size())?;
            alone.set("", part.entry(key.clone())?.clone())?;
            Ok(alone)
        });
        let stacked = TensorDict::stack_at(&alone.collect::<Result<Vec<_>>>()?, self.dim);
        stacked.and_then(|stacked| stacked.entry("").cloned()).map_err(|error| error.at(&key))
    }

    /// Returns the tensors at `key` as rows, which may differ in their first dimension. Copies.
    ///
    /// # Errors
    /// `Incompatible` if the parts have batch dimensions; the errors of [`TensorDict::tensor`] and
    /// [`Ragged::from_rows`].
    pub fn ragged(&self, key: impl Into<Key>) -> Result<Ragged> {
        let key = key.into();
        let rank = self.parts[0].batch_size().len();
        if rank != 0 {
            let detail = format!("parts must have no batch dimensions to be rows: got {rank}");
            return Err(Error::new(ErrorKind::Incompatible, detail).at(&key));
        }
        let rows = self.parts.iter().map(|part| part.tensor(key.clone()).cloned());
        let rows = rows.collect::<Result<Vec<Tensor>>>()?;
        if rows.iter().any(|row| row.rank() == 0) {
            let detail = "rows must have at least 1 dimension: got a scalar";
            return Err(Error::new(ErrorKind::ShapeMismatch, detail).at(&key));
        }
        Ragged::from_rows(&rows).map_err(|error| error.at(&key))
    }

    /// Returns the tensors at `key`, short ones padded with `fill` on `side`. Copies.
    ///
    /// # Errors
    /// The errors of [`LazyStack::ragged`] and [`Ragged::to_padded`].
    pub fn padded(&self, key: impl Into<Key>, side: PadSide, fill: f64) -> Result<Tensor> {
        self.ragged(key)?.to_padded(side, fill)
    }

    /// Returns one dictionary of the entries that all parts have: stacked if shapes agree, ragged if first
    /// dimensions differ. Copies.
    ///
    /// # Errors
    /// The errors of [`LazyStack::get`] and [`LazyStack::ragged`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        let mut sizes = Vec::new();
        for size in self.batch_size() {
            sizes.push(size.ok_or_else(|| {
                let detail = "parts must have one batch size to be one dictionary: got several";
                Error::new(ErrorKind::ShapeMismatch, detail)
            })?);
        }
        let mut dict = TensorDict::new(&sizes)?;
        for key in self.keys() {
            let entry = match self.get(key.clone()) {
                Err(error) if error.kind() == ErrorKind::ShapeMismatch => {
                    self.ragged(key.clone()).map(Entry::Ragged)
                }
                stacked => stacked,
            };
            dict.set(key, entry?)?;
        }
        Ok(dict)
    }

    /// Returns the entry of each part at `key`. Shares the elements.
    ///
    /// # Errors
    /// `UnknownName` if a part has no such entry.
    pub fn list(&self, key: impl Into<Key>) -> Result<Vec<Entry>> {
        let key = key.into();
        self.parts.iter().map(|part| part.entry(key.clone()).cloned()).collect()
    }

    /// Materialises the stack as [`TensorDict::stack`] does. Copies.
    ///
    /// # Errors
    /// The errors of [`TensorDict::stack`].
    pub fn dense(&self) -> Result<TensorDict> {
        TensorDict::stack_at(&self.parts, self.dim)
    }

    /// Returns [`LazyStack::dense`] if keys and shapes agree, else this stack.
    ///
    /// # Errors
    /// `LimitExceeded` if it would have too many elements; `OutOfMemory` if there is no memory for it.
    pub fn maybe_dense(self) -> Result<Stacked> {
        match self.dense() {
            Ok(dict) => Ok(Stacked::Dict(dict)),
            Err(error) if matches!(error.kind(), ErrorKind::LimitExceeded | ErrorKind::OutOfMemory) => {
                Err(error)
            }
            Err(_) => Ok(Stacked::Lazy(self)),
        }
    }

    /// Returns [`LazyStack::to_dict`], or an error if that would lose an entry.
    ///
    /// # Errors
    /// `UnknownName` if a part has an entry that another lacks; the errors of [`LazyStack::to_dict`].
    pub(crate) fn into_dict(self) -> Result<TensorDict> {
        let shared = self.keys();
        for part in &self.parts {
            if let Some(key) = part.leaf_keys().into_iter().find(|key| !shared.contains(key)) {
                let detail = format!("parts must have one set of keys: got {key} in some of them only");
                return Err(Error::new(ErrorKind::UnknownName, detail));
            }
        }
        match self.dense() {
            Err(error) if error.kind() == ErrorKind::ShapeMismatch => self.to_dict(),
            stacked => stacked,
        }
    }
}

/// Returns the number of batch dimensions that all `parts` have.
fn rank_of(parts: &[TensorDict]) -> Result<usize> {
    let Some(first) = parts.first() else {
        return Err(Error::new(ErrorKind::Empty, "parts must hold at least one dictionary: got 0"));
    };
    let rank = first.batch_size().len();
    if let Some(part) = parts.iter().find(|part| part.batch_size().len() != rank) {
        let detail = format!(
            "parts must have one number of batch dimensions: got batch sizes {:?} and {:?}",
            first.batch_size(),
            part.batch_size()
        );
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(rank)
}
