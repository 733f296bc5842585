//! Reads and writes of whole rows of the first batch dimension in place, the hot path of buffers.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result};

use super::{Entry, TensorDict};
use crate::device::compute_of;
use crate::element::with_element;
use crate::tensor::Tensor;

impl TensorDict {
    /// Runs [`TensorDict::index_select`] into the tensors of `out`, without allocation if `out` has the
    /// layout of the result. Any other `out` is replaced.
    ///
    /// # Errors
    /// The errors of [`TensorDict::index_select`]. After an error `out` is unchanged.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut ring = TensorDict::new(&[3])?;
    /// ring.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
    /// let mut batch = ring.index_select(&[0, 0])?;
    /// ring.index_select_into(&[2, 1], &mut batch)?;
    /// assert_eq!(batch.tensor("id")?.as_slice::<i64>()?, [3, 2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn index_select_into(&self, indices: &[usize], out: &mut Self) -> Result<()> {
        let len = self.batch_size.first().copied().unwrap_or(0);
        let in_range = indices.iter().all(|index| *index < len);
        if in_range && out.is_laid_out_as(self, indices.len()) {
            self.copy_rows_to(indices, out)
        } else {
            *out = self.index_select(indices)?;
            Ok(())
        }
    }

    /// Writes element `i` of `items` over element `indices[i]`; if an index comes twice, the last element
    /// wins. `items` must have exactly the keys of this dictionary. One item may come without its batch
    /// dimension.
    ///
    /// # Errors
    /// `ShapeMismatch` if the batch size of `items` does not match `indices` and the further dimensions of
    /// this dictionary, or a feature shape differs; `UnknownName` for a missing or an additional key;
    /// `Incompatible` if a kind or a dtype differs, or an entry is not a tensor; `OutOfRange` if there is no
    /// such element. All name the key. After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut ring = TensorDict::new(&[3])?;
    /// ring.set("id", Tensor::from_vec(&[3], vec![1_i64, 2, 3])?)?;
    /// let mut items = TensorDict::new(&[2])?;
    /// items.set("id", Tensor::from_vec(&[2], vec![8_i64, 9])?)?;
    /// ring.index_copy(&[2, 0], &items)?;
    /// assert_eq!(ring.tensor("id")?.as_slice::<i64>()?, [9, 2, 8]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn index_copy(&mut self, indices: &[usize], items: &Self) -> Result<()> {
        let len = self.batch_size.first().copied().unwrap_or(0);
        if let Some(index) = indices.iter().find(|index| **index >= len) {
            let detail = format!("index must be < {len}, the batch size: got {index}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.check_rows(items, indices.len())?;
        self.copy_rows_from(indices, items)
    }

    /// Checks that [`TensorDict::index_copy`] would accept `items` as `count` elements.
    ///
    /// # Errors
    /// The errors of [`TensorDict::index_copy`].
    pub fn check_rows(&self, items: &Self, count: usize) -> Result<()> {
        check_lead(&self.batch_size, &items.batch_size, count)?;
        for (at, name) in items.entries.keys().enumerate() {
            if self.entry_near(at, name).is_none() {
                let detail = format!("{name:?}: leaf must be one of those stored");
                return Err(Error::new(ErrorKind::UnknownName, detail));
            }
        }
        for (at, (name, have)) in self.entries.iter().enumerate() {
            let Some(new) = items.entry_near(at, name) else {
                let detail = format!("{name:?}: leaf must be given, as the storage holds it");
                return Err(Error::new(ErrorKind::UnknownName, detail));
            };
            check_entry(have, new, count).map_err(|error| error.at(format!("{name:?}")))?;
        }
        Ok(())
    }

    /// Returns the entry called `name`, which is found without hashing where it is number `at`.
    fn entry_near(&self, at: usize, name: &str) -> Option<&Entry> {
        match self.entries.get_index(at) {
            Some((key, entry)) if key == name => Some(entry),
            _ => self.entries.get(name),
        }
    }

    fn is_laid_out_as(&self, source: &Self, count: usize) -> bool {
        let same_entries = source.entries.iter().all(|(name, from)| match (from, self.entries.get(name)) {
            (Entry::Tensor(from), Some(Entry::Tensor(to))) => {
                from.dtype == to.dtype
                    && leads(&to.shape, count, &from.shape)
                    && to.is_contiguous()
                    && from.is_contiguous()
                    && Arc::strong_count(&to.storage) == 1
            }
            (Entry::Dict(from), Some(Entry::Dict(to))) => to.is_laid_out_as(from, count),
            _ => false,
        });
        leads(&self.batch_size, count, &source.batch_size)
            && self.entries.len() == source.entries.len()
            && same_entries
    }

    fn copy_rows_to(&self, indices: &[usize], out: &mut Self) -> Result<()> {
        for (name, from) in &self.entries {
            match (from, out.entries.get_mut(name)) {
                (Entry::Tensor(from), Some(Entry::Tensor(to))) => {
                    let (compute, inner) = (compute_of([from, &*to])?, row_len(from));
                    with_element!(from.dtype, T => {
                        compute.gather(from.as_slice::<T>()?, inner, indices, to.as_mut_slice::<T>()?);
                    });
                }
                (Entry::Dict(from), Some(Entry::Dict(to))) => from.copy_rows_to(indices, to)?,
                // `is_laid_out_as` has refused other kinds.
                _ => {}
            }
        }
        Ok(())
    }

    fn copy_rows_from(&mut self, indices: &[usize], items: &Self) -> Result<()> {
        for (at, (name, to)) in self.entries.iter_mut().enumerate() {
            match (to, items.entry_near(at, name)) {
                (Entry::Tensor(to), Some(Entry::Tensor(from))) => {
                    let (compute, inner) = (compute_of([&*to, from])?, row_len(to));
                    with_element!(to.dtype, T => {
                        if from.is_contiguous() {
                            compute.scatter(from.as_slice::<T>()?, inner, indices, to.as_mut_slice::<T>()?);
                        } else {
                            let from = from.dense()?;
                            compute.scatter(from.as_slice::<T>()?, inner, indices, to.as_mut_slice::<T>()?);
                        }
                    });
                }
                (Entry::Dict(to), Some(Entry::Dict(from))) => to.copy_rows_from(indices, from)?,
                // `check_rows` has refused other kinds.
                _ => {}
            }
        }
        Ok(())
    }
}

fn row_len(tensor: &Tensor) -> usize {
    tensor.shape[1..].iter().product()
}

/// Returns whether `shape` is `[count, ...]` with the further dimensions of `like`.
fn leads(shape: &[usize], count: usize, like: &[usize]) -> bool {
    shape.len() == like.len() && shape.first() == Some(&count) && shape[1..] == like[1..]
}

/// Checks that `shape` is `like` with `count` parts in its first dimension, or `like` without that dimension.
fn check_lead(like: &[usize], shape: &[usize], count: usize) -> Result<()> {
    if leads(shape, count, like) || (count == 1 && like.get(1..) == Some(shape)) {
        return Ok(());
    }
    let want = [&[count], like.get(1..).unwrap_or_default()].concat();
    Err(Error::new(ErrorKind::ShapeMismatch, format!("shape must be {want:?}: got {shape:?}")))
}

fn check_entry(have: &Entry, new: &Entry, count: usize) -> Result<()> {
    match (have, new) {
        (Entry::Tensor(have), Entry::Tensor(new)) if have.dtype != new.dtype => {
            let detail = format!("dtype must be {}: got {}", have.dtype.name(), new.dtype.name());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
        (Entry::Tensor(have), Entry::Tensor(new)) => check_lead(&have.shape, &new.shape, count),
        (Entry::Dict(have), Entry::Dict(new)) => have.check_rows(new, count),
        (have, new) => {
            let detail = format!("kind must be {}, a dense one: got {}", have.kind(), new.kind());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_by_the_name_of_its_leaf() {
        let dict = |shape: &[usize], key: &str| {
            let mut dict = TensorDict::new(&shape[..1]).unwrap();
            dict.set(["in", key], Tensor::zeros(fulmar_core::Dtype::F32, shape).unwrap()).unwrap();
            dict
        };
        let mut ring = dict(&[4, 2], "a");
        let kind = |error: Error| (error.kind(), error.detail().starts_with("\"in\": \"a\""));
        let refused = ring.index_copy(&[1], &dict(&[1, 3], "a")).unwrap_err();
        assert_eq!(kind(refused), (ErrorKind::ShapeMismatch, true));
        assert_eq!(ring.index_copy(&[1], &dict(&[1, 2], "b")).unwrap_err().kind(), ErrorKind::UnknownName);
        assert_eq!(ring.index_copy(&[4], &dict(&[1, 2], "a")).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(ring.index_copy(&[0], &dict(&[2, 2], "a")).unwrap_err().kind(), ErrorKind::ShapeMismatch);
        let mut out = ring.index_select(&[0]).unwrap();
        assert_eq!(ring.index_select_into(&[4], &mut out).unwrap_err().kind(), ErrorKind::OutOfRange);
        ring.index_select_into(&[0, 1], &mut out).unwrap();
        assert_eq!(out.batch_size(), [2]);
    }
}
