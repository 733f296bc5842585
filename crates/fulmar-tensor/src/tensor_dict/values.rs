//! Operations that write elements: in place, at an index, where a mask is true, and as padding.

use fulmar_core::{Dtype, Error, ErrorKind, Result};

use super::batch::first_of;
use super::{Entry, TensorDict};
use crate::index::Index;
use crate::key::Key;
use crate::non_tensor::NonTensor;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

/// Options of [`TensorDict::pad_sequence`].
///
/// # Examples
/// ```
/// let options = fulmar_tensor::PadSequence::default();
/// assert_eq!((options.dim, options.value, options.mask), (0, 0.0, None));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct PadSequence<'a> {
    /// The batch dimension in which lengths differ.
    pub dim: isize,
    /// The padding value.
    pub value: f64,
    /// The name of a dictionary to add: for each key, bools that are true at elements and false at padding.
    pub mask: Option<&'a str>,
}

impl TensorDict {
    /// Writes `value`, broadcast, over the elements of the tensor at `key`, even if the dictionary is locked.
    /// Copies all elements first if another tensor shares them.
    ///
    /// # Errors
    /// `UnknownName` if there is no entry; `Incompatible` if it is not a tensor or has another dtype;
    /// `ShapeMismatch` if `value` does not broadcast. After an error nothing has changed.
    pub fn write(&mut self, key: impl Into<Key>, value: &Tensor) -> Result<()> {
        self.write_at(key, &[], value)
    }

    /// Writes `value` to the batch elements at `index` of the tensor at `key`.
    ///
    /// # Errors
    /// The errors of [`TensorDict::write`] and [`TensorDict::at`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("reward", Tensor::from_vec_f32(&[2], vec![0.5, 1.0])?)?;
    /// dict.write_at("reward", &[(-1).into()], &Tensor::from_vec_f32(&[], vec![2.0])?)?;
    /// assert_eq!(dict.tensor("reward")?.as_f32()?, [0.5, 2.0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn write_at(&mut self, key: impl Into<Key>, index: &[Index], value: &Tensor) -> Result<()> {
        let key = key.into();
        self.tensor(key.clone())?;
        let index = Index::within(index, self.batch_size.len())?;
        let found = self.holder(&key).and_then(|(dict, name)| dict.entries.get_mut(name));
        if let Some(Entry::Tensor(tensor)) = found {
            tensor.set_at(&index, value).map_err(|error| error.at(&key))?;
        }
        Ok(())
    }

    /// Writes the entries of `other` over the entries at the same keys, as [`TensorDict::set_at`] with an
    /// empty index does, even if the dictionary is locked.
    ///
    /// # Errors
    /// `UnknownName` if a key has no entry here; the errors of [`TensorDict::set_at`]. After an error nothing
    /// has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// dict.lock();
    /// dict.write_all(&dict.zeros_like()?)?;
    /// assert_eq!(dict.tensor("id")?.as_slice::<i64>()?, [0, 0]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn write_all(&mut self, other: &Self) -> Result<()> {
        for key in other.leaf_keys() {
            self.entry(key)?;
        }
        self.set_at(&[], other)
    }

    /// Writes `value` to the batch elements at `index` of all tensors, cast to each dtype as by
    /// [`Tensor::to`]. JSON values stay.
    ///
    /// # Errors
    /// The errors of [`TensorDict::at`]; with the key, `OutOfRange` if an integer dtype cannot hold `value`;
    /// `Incompatible` if an entry is ragged. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// dict.fill_at(&[(-1).into()], 7.0)?;
    /// assert_eq!(dict.tensor("id")?.as_slice::<i64>()?, [1, 7]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn fill_at(&mut self, index: &[Index], value: f64) -> Result<()> {
        let index = Index::within(index, self.batch_size.len())?;
        let value = Tensor::scalar(Dtype::F64, value)?;
        let locked = self.locked;
        *self = self.filled(&self.batch_size, &|tensor| {
            let mut filled = tensor.clone();
            filled.set_at(&index, &value.to(tensor.dtype())?.to_device(tensor.device())?)?;
            Ok(filled)
        })?;
        self.set_locked(locked);
        Ok(())
    }

    /// Writes the entries of `part` over the batch elements at `index`. Entries that `part` lacks stay;
    /// entries that only `part` has are added, with 0 (or null) elsewhere, unless the dictionary is locked.
    /// Copies all elements first where another tensor shares them.
    ///
    /// # Errors
    /// The errors of [`TensorDict::at`]; with the key, `ShapeMismatch` if the batch size of `part` is not
    /// that of the index, or a shape differs; `Incompatible` if a kind or dtype differs, or an entry is
    /// ragged; `Closed` if an entry would be added to a locked dictionary. After an error nothing has
    /// changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut ring = TensorDict::new(&[3])?;
    /// ring.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
    /// let mut row = TensorDict::new(&[])?;
    /// row.set("id", Tensor::from_vec(&[], vec![9_i64])?)?;
    /// ring.set_at(&[1.into()], &row)?;
    /// assert_eq!(ring.tensor("id")?.as_slice::<i64>()?, [1, 9, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn set_at(&mut self, index: &[Index], part: &Self) -> Result<()> {
        let index = Index::within(index, self.batch_size.len())?;
        let target = Tensor::one_element_as(&self.batch_size).at(&index)?;
        if part.batch_size != target.shape() {
            let detail = format!(
                "part must have the batch size of the index, {:?}: got {:?}",
                target.shape(),
                part.batch_size
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        self.check_part(part, self.locked)?;
        self.write_part(&index, part)
    }

    /// Applies `to` to each tensor, and to the values of each ragged tensor; keys stay the same. JSON values
    /// stay.
    ///
    /// # Errors
    /// The errors of `to`; `ShapeMismatch`, with the key, if the shape that it gives does not begin with the
    /// batch size, or a ragged entry gets another number of values.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut dict = TensorDict::new(&[2])?;
    /// dict.set("image", Tensor::from_vec(&[2, 1, 2], vec![1_u8, 2, 3, 4])?)?;
    /// let flat = dict.apply(&|tensor| tensor.reshape(&[2, 2]))?;
    /// assert_eq!(flat.tensor("image")?.shape(), [2, 2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn apply(&self, to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.map(self.batch_size.clone(), |entry| match entry {
            Entry::Tensor(tensor) => Entry::Tensor(to(tensor)?).fitted(&self.batch_size),
            Entry::Ragged(ragged) => Ragged::new(to(ragged.values())?, ragged.offsets()).map(Entry::Ragged),
            Entry::NonTensor(_) => Ok(entry.clone()),
            Entry::Dict(dict) => dict.apply(to).map(Entry::Dict),
        })
    }

    /// Fills the batch elements where `mask`, bools of the batch's shape, is true with `value`. JSON values
    /// stay. Copies.
    ///
    /// # Errors
    /// `Incompatible` if `mask` does not hold bools or an entry is ragged; `ShapeMismatch` if it has another
    /// shape; `OutOfRange` if no element of a dtype equals `value`.
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Result<Self> {
        self.check_mask(mask)?;
        let index = match (self.batch_size.as_slice(), mask.as_slice::<bool>()) {
            // A mask without dimensions selects the one batch element.
            ([], Ok([true])) => Vec::new(),
            ([], _) => return Ok(self.clone()),
            _ => vec![mask.clone().into()],
        };
        self.filled(&self.batch_size, &|tensor| {
            let mut filled = tensor.clone();
            filled.set_at(&index, &tensor.like_scalar(value)?)?;
            Ok(filled)
        })
    }

    /// Pads the batch with `around[i]` elements of `value` before and after those of batch dimension `i`, the
    /// first dimension first. A JSON value that the batch shares stays one. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if `around` is longer than the batch size; `OutOfRange` if no element of a dtype
    /// equals `value`; `Incompatible` at a ragged entry and at per-element values; `OutOfMemory` if the
    /// result does not fit in memory.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut batch = TensorDict::new(&[2])?;
    /// batch.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// assert_eq!(batch.pad(&[(0, 1)], -1.0)?.tensor("id")?.as_slice::<i64>()?, [1, 2, -1]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn pad(&self, around: &[(usize, usize)], value: f64) -> Result<Self> {
        if around.len() > self.batch_size.len() {
            let detail = format!(
                "padding must be for at most {} batch dimensions: got {}",
                self.batch_size.len(),
                around.len()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut batch_size = self.batch_size.clone();
        for (len, (before, after)) in batch_size.iter_mut().zip(around) {
            *len = len.saturating_add(*before).saturating_add(*after);
        }
        self.filled(&batch_size, &|tensor| tensor.pad(around, value))
    }

    /// Stacks `parts` along a new first dimension, after padding shorter ones at the end of one batch
    /// dimension. Copies.
    ///
    /// # Errors
    /// `Empty` without parts; `OutOfRange` if a part has no such dimension; the errors of [`TensorDict::pad`]
    /// and [`TensorDict::stack`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{PadSequence, Tensor, TensorDict};
    /// let mut long = TensorDict::new(&[2])?;
    /// long.set("id", Tensor::from_vec(&[2], vec![1_i64, 2])?)?;
    /// let short = long.slice(0..1)?;
    /// let batch = TensorDict::pad_sequence(&[long, short], &PadSequence { mask: Some("masks"), ..Default::default() })?;
    /// assert_eq!(batch.tensor("id")?.as_slice::<i64>()?, [1, 2, 1, 0]);
    /// assert_eq!(batch.tensor(["masks", "id"])?.as_slice::<bool>()?, [true, true, true, false]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn pad_sequence(parts: &[Self], options: &PadSequence<'_>) -> Result<Self> {
        let dim = first_of(parts)?.batch_dim(options.dim)?;
        let length = |part: &Self| Ok(part.batch_size[part.batch_dim(dim as isize)?]);
        let lengths = parts.iter().map(length).collect::<Result<Vec<_>>>()?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let padded = parts.iter().zip(&lengths).map(|(part, len)| {
            let mut around = vec![(0, 0); dim + 1];
            around[dim].1 = longest - len;
            part.pad(&around, options.value)
        });
        let mut batch = Self::stack(&padded.collect::<Result<Vec<_>>>()?, 0)?;
        if let Some(name) = options.mask {
            let holds = lengths.iter().flat_map(|len| (0..longest).map(move |at| at < *len)).collect();
            // One bool for each step, broadcast over every further batch dimension.
            let mut shape = vec![1; batch.batch_size.len()];
            (shape[0], shape[dim + 1]) = (parts.len(), longest);
            let mask = Tensor::from_vec(&shape, holds)?.expand(&batch.batch_size)?;
            for key in batch.leaf_keys() {
                batch.set(key.below(name), mask.clone())?;
            }
        }
        Ok(batch)
    }

    /// Checks that `mask` holds one bool for each element of the batch.
    pub(super) fn check_mask(&self, mask: &Tensor) -> Result<()> {
        if mask.dtype() != Dtype::Bool || mask.shape() != self.batch_size {
            let detail = format!(
                "mask must be bools of the batch size {:?}: got {} of {:?}",
                self.batch_size,
                mask.dtype().name(),
                mask.shape()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        Ok(())
    }

    /// Applies `to` to every tensor; other entries cannot be filled with a number.
    fn filled(&self, batch_size: &[usize], to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let grown = batch_size != self.batch_size.as_slice();
        self.map(batch_size.to_vec(), |entry| match entry {
            Entry::Tensor(tensor) => to(tensor).map(Entry::Tensor),
            Entry::Dict(dict) => {
                let inner = [batch_size, &dict.batch_size[batch_size.len()..]].concat();
                dict.filled(&inner, to).map(Entry::Dict)
            }
            Entry::NonTensor(values) if !grown || values.shape().is_none() => Ok(entry.clone()),
            Entry::NonTensor(_) | Entry::Ragged(_) => {
                let detail =
                    format!("an entry must be a tensor to be filled: got one of kind {}", entry.kind());
                Err(Error::new(ErrorKind::Incompatible, detail))
            }
        })
    }

    /// Checks that [`TensorDict::write_part`] will succeed; `locked` applies to the whole tree.
    fn check_part(&self, part: &Self, locked: bool) -> Result<()> {
        for (name, entry) in part.entries() {
            self.check_part_entry(part, name, entry, locked)
                .map_err(|error| error.at(format!("{name:?}")))?;
        }
        Ok(())
    }

    fn check_part_entry(&self, part: &Self, name: &str, entry: &Entry, locked: bool) -> Result<()> {
        let (batch, part_batch) = (self.batch_size.len(), part.batch_size.len());
        let incompatible = |detail: String| Err(Error::new(ErrorKind::Incompatible, detail));
        match (self.entries.get(name), entry) {
            (_, Entry::Ragged(_)) | (Some(Entry::Ragged(_)), _) => {
                incompatible("rows of a ragged entry can only be joined by cat: got rows to write".to_owned())
            }
            (None, _) if locked => {
                let detail = "a dictionary must be unlocked to get a new key: got a locked one";
                Err(Error::new(ErrorKind::Closed, detail))
            }
            (Some(Entry::Tensor(have)), Entry::Tensor(new)) if have.dtype() != new.dtype() => {
                incompatible(format!("dtype must be {}: got {}", have.dtype().name(), new.dtype().name()))
            }
            (Some(Entry::Tensor(have)), Entry::Tensor(new)) => {
                check_features(&have.shape()[batch..], &new.shape()[part_batch..])
            }
            (Some(Entry::Dict(have)), Entry::Dict(new)) => {
                check_features(&have.batch_size[batch..], &new.batch_size[part_batch..])?;
                have.check_part(new, locked)
            }
            (None, Entry::Dict(new)) => self.blank_dict(new, part_batch).check_part(new, locked),
            (Some(Entry::NonTensor(_)), Entry::NonTensor(_)) | (None, _) => Ok(()),
            (Some(have), new) => incompatible(format!("kind must be {}: got {}", have.kind(), new.kind())),
        }
    }

    fn write_part(&mut self, index: &[Index], part: &Self) -> Result<()> {
        for (name, entry) in part.entries() {
            if !self.entries.contains_key(name) {
                let blank = self.blank(entry, part.batch_size.len())?;
                self.entries.insert(name.to_owned(), blank);
            }
            match (self.entries.get_mut(name), entry) {
                (Some(Entry::Tensor(have)), Entry::Tensor(new)) => have.set_at(index, new)?,
                (Some(Entry::Dict(have)), Entry::Dict(new)) => have.write_part(index, new)?,
                (Some(Entry::NonTensor(have)), Entry::NonTensor(new)) if index.is_empty() => {
                    *have = new.clone();
                }
                (Some(Entry::NonTensor(have)), Entry::NonTensor(new)) => {
                    *have = have.with_at(&self.batch_size, index, (new, &part.batch_size))?;
                }
                // `check_part` has refused other kinds.
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns zeros for the whole batch, shaped like `entry` of a part with `part_batch` batch dimensions.
    fn blank(&self, entry: &Entry, part_batch: usize) -> Result<Entry> {
        Ok(match entry {
            Entry::Tensor(new) => {
                let shape = [&self.batch_size[..], &new.shape()[part_batch..]].concat();
                Tensor::zeros(new.dtype(), &shape)?.to_device(new.device())?.into()
            }
            Entry::Dict(new) => self.blank_dict(new, part_batch).into(),
            Entry::NonTensor(_) | Entry::Ragged(_) => NonTensor::shared(serde_json::Value::Null).into(),
        })
    }

    fn blank_dict(&self, like: &Self, part_batch: usize) -> Self {
        let batch_size = [&self.batch_size[..], &like.batch_size[part_batch..]].concat();
        Self::holding(batch_size, indexmap::IndexMap::new())
    }
}

fn check_features(want: &[usize], got: &[usize]) -> Result<()> {
    if want == got {
        return Ok(());
    }
    let detail = format!("shape after the batch must be {want:?}: got {got:?}");
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}
