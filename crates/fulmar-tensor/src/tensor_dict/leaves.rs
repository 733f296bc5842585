//! Functions of every leaf, with keys and another batch size if wanted; zeros, sums and selection.

use fulmar_core::{Error, ErrorKind, Result};

use super::{Entry, TensorDict};
use crate::key::Key;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

/// Options of [`TensorDict::apply_named`].
///
/// # Examples
/// ```
/// let options = fulmar_tensor::ApplyOptions::default();
/// assert!(options.batch_size.is_none() && !options.keep_empty);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ApplyOptions<'a> {
    /// The batch size of the result and of all nested dictionaries, for functions that change leading
    /// dimensions.
    pub batch_size: Option<&'a [usize]>,
    /// If `true`, dictionaries that lose their last entry stay, empty.
    pub keep_empty: bool,
}

impl TensorDict {
    /// Applies `to` to each tensor, and to the values of each ragged tensor, with its key; an entry for which
    /// `to` returns `None` is removed. JSON values stay. Returns `None` if every entry is removed.
    ///
    /// # Errors
    /// The errors of `to`; `ShapeMismatch`, with the key, if a shape does not begin with the batch size, or a
    /// ragged entry gets another number of values.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_tensor::{ApplyOptions, Key, Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
    /// dict.set(["next", "id"], Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// let floats = dict.apply_named(
    ///     &|_, tensor| Ok((tensor.dtype() == Dtype::F32).then(|| tensor.clone())),
    ///     &ApplyOptions::default(),
    /// )?;
    /// assert_eq!(floats.map(|floats| floats.leaf_keys()), Some(vec![Key::from("reward")]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn apply_named(
        &self,
        to: &dyn Fn(&Key, &Tensor) -> Result<Option<Tensor>>,
        options: &ApplyOptions<'_>,
    ) -> Result<Option<Self>> {
        self.applied(&[], to, options)
    }

    fn applied(
        &self,
        above: &[String],
        to: &dyn Fn(&Key, &Tensor) -> Result<Option<Tensor>>,
        options: &ApplyOptions<'_>,
    ) -> Result<Option<Self>> {
        let batch_size = options.batch_size.unwrap_or(&self.batch_size);
        let mut result = Self::new(batch_size)?.named(if batch_size == self.batch_size {
            self.names.clone()
        } else {
            Vec::new()
        });
        for (name, entry) in self.entries() {
            let path = [above, &[name.to_owned()]].concat();
            let key = Key::from(path.clone());
            let made = match entry {
                Entry::Tensor(tensor) => to(&key, tensor)?.map(Entry::Tensor),
                Entry::Ragged(ragged) => match to(&key, ragged.values())? {
                    Some(values) => Some(Entry::Ragged(Ragged::new(values, ragged.offsets())?)),
                    None => None,
                },
                Entry::NonTensor(_) => Some(entry.clone()),
                Entry::Dict(dict) => dict.applied(&path, to, options)?.map(Entry::Dict),
            };
            if let Some(entry) = made {
                let fitted = entry.fitted(batch_size).map_err(|error| error.at(&key))?;
                result.entries.insert(name.to_owned(), fitted);
            }
        }
        let lost_all = result.entries.is_empty() && !self.entries.is_empty();
        Ok((options.keep_empty || !lost_all).then_some(result))
    }

    /// Returns the same keys and shapes with zeros (`false` for bools); JSON values stay.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them.
    pub fn zeros_like(&self) -> Result<Self> {
        self.apply(&|tensor| Tensor::zeros(tensor.dtype(), tensor.shape())?.to_device(tensor.device()))
    }

    /// Returns the sum of each tensor along batch dimension `dim`, which is removed, or of all its elements,
    /// without a batch, if there is no `dim`. Integers and bools add up to `i64`. A JSON value that the batch
    /// shares stays.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; the errors of [`Tensor::sum`]; `Incompatible`, with the
    /// key, at a ragged entry or at per-element values.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("reward", Tensor::from_vec_f32(&[2, 2], vec![0.5, 1.0, 2.0, 4.0])?)?;
    /// assert_eq!(dict.sum(Some(0))?.tensor("reward")?.as_f32()?, [2.5, 5.0]);
    /// assert_eq!(dict.sum(None)?.tensor("reward")?.as_f32()?, [7.5]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn sum(&self, dim: Option<isize>) -> Result<Self> {
        let dim = dim.map(|dim| self.batch_dim(dim)).transpose()?;
        self.summed(dim)
    }

    fn summed(&self, dim: Option<usize>) -> Result<Self> {
        let (mut batch_size, mut names) = (self.batch_size.clone(), self.names.clone());
        match dim {
            Some(dim) => {
                batch_size.remove(dim);
                (dim < names.len()).then(|| names.remove(dim));
            }
            None => (batch_size, names) = (Vec::new(), Vec::new()),
        }
        let summed = self.map(batch_size, |entry| match entry {
            Entry::Tensor(tensor) => {
                dim.map_or_else(|| tensor.sum(), |dim| tensor.sum_dim(dim)).map(Entry::Tensor)
            }
            Entry::Dict(dict) => dict.summed(dim).map(Entry::Dict),
            Entry::NonTensor(values) if values.shape().is_none() => Ok(entry.clone()),
            Entry::NonTensor(_) | Entry::Ragged(_) => {
                let detail =
                    format!("an entry must be a tensor to be summed: got one of kind {}", entry.kind());
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        });
        Ok(summed?.named(names))
    }

    /// Takes this dictionary where `mask`, bools of the shape of the batch, is true, and `other` where it is
    /// false. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if `mask` or `other` has another shape; with the key, `UnknownName`, `Incompatible` or `ShapeMismatch` if the
    /// dictionaries differ in keys, kinds, dtypes or shapes, or an entry is ragged.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// let mask = Tensor::from_vec(&[2], vec![true, false])?;
    /// assert_eq!(dict.where_else(&mask, &dict.zeros_like()?)?.tensor("id")?.as_slice::<i64>()?, [1, 0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn where_else(&self, mask: &Tensor, other: &Self) -> Result<Self> {
        self.check_mask(mask)?;
        if self.batch_size != other.batch_size {
            let detail =
                format!("other must have the batch size {:?}: got {:?}", self.batch_size, other.batch_size);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let lacks = |dict: &Self, key: &Key| dict.get(key.clone()).is_none();
        let missing = self.leaf_keys().into_iter().find(|key| lacks(other, key));
        if let Some(key) = missing.or_else(|| other.leaf_keys().into_iter().find(|key| lacks(self, key))) {
            let detail =
                format!("other must have the keys of this dictionary: got {key} in one of them only");
            return Err(Error::new(ErrorKind::UnknownName, detail));
        }
        let elsewhere: Vec<bool> = mask.to_vec::<bool>()?.into_iter().map(|holds| !holds).collect();
        let mut result = self.clone();
        match (&self.batch_size[..], &elsewhere[..]) {
            // A mask without dimensions selects all or nothing.
            ([], [true]) => result.set_at(&[], other)?,
            ([], _) => {}
            _ => {
                let index = [Tensor::from_vec(mask.shape(), elsewhere)?.into()];
                result.set_at(&index, &other.at(&index)?)?;
            }
        }
        result.unlock();
        Ok(result)
    }
}
