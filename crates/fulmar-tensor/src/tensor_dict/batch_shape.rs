//! Index, reshape, reorder, repeat and split the batch dimensions. Feature dimensions are never changed;
//! negative dimensions count from the last batch dimension.

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};

use super::dim_names::{Names, forgotten, indexed};
use super::{Entry, TensorDict};
use crate::index::Index;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

impl TensorDict {
    /// Returns the batch elements at `index`, which consumes batch dimensions only. Shares the elements
    /// unless an item is [`Index::Pick`] of more than one position; then it copies.
    ///
    /// # Errors
    /// The errors of [`Tensor::at`]; `Incompatible` at a ragged entry if its rows would not have one dimension.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Index, Tensor, TensorDict};
    /// let mut batch = TensorDict::new(&[2, 3])?;
    /// batch.set("ids", Tensor::from_vec(&[2, 3], vec![1_u32, 2, 3, 4, 5, 6])?)?;
    /// let last = batch.at(&[Index::Ellipsis, (-1).into()])?;
    /// assert_eq!((last.batch_size(), last.tensor("ids")?.to_vec::<u32>()?), (&[2][..], vec![3, 6]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn at(&self, index: &[Index]) -> Result<Self> {
        let index = Index::within(index, self.batch_size.len())?;
        self.moved_named(&|tensor| tensor.at(&index), &|names| indexed(names, &index))
    }

    /// Returns the batch elements where `mask` is true; one batch dimension replaces the dimensions of the
    /// mask. Copies.
    ///
    /// # Errors
    /// `Incompatible` if `mask` does not hold bools; the errors of [`TensorDict::at`].
    pub fn masked_select(&self, mask: &Tensor) -> Result<Self> {
        if mask.dtype() != Dtype::Bool {
            let detail = format!("mask must hold bools: got {}", mask.dtype().name());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        self.at(&[mask.clone().into()])
    }

    /// Gathers batch elements along dimension `dim`: `index`, integers of the batch's rank, gives each
    /// element's position in `dim`. Copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if `index` has another number of dimensions, or is longer than the batch in another
    /// dimension; `OutOfRange` if there is no such dimension or position; the errors of [`TensorDict::at`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut batch = TensorDict::new(&[2, 2])?;
    /// batch.set("ids", Tensor::from_vec(&[2, 2], vec![1_u32, 2, 3, 4])?)?;
    /// let chosen = batch.gather(1, &Tensor::from_vec(&[2, 1], vec![1_i64, 0])?)?;
    /// assert_eq!(chosen.tensor("ids")?.to_vec::<u32>()?, [2, 3]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn gather(&self, dim: isize, index: &Tensor) -> Result<Self> {
        let (rank, dim) = (self.batch_size.len(), self.batch_dim(dim)?);
        let fits = |(at, (got, have)): (usize, (&usize, &usize))| at == dim || got <= have;
        if index.rank() != rank || !index.shape().iter().zip(&self.batch_size).enumerate().all(fits) {
            let detail = format!(
                "index must be within the batch size {:?} except in dimension {dim}: got {:?}",
                self.batch_size,
                index.shape()
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        // The positions in `dim`, and each element's own positions in the other dimensions, broadcast.
        let item = |at: usize| {
            if at == dim {
                return Ok(index.clone().into());
            }
            let mut shape = vec![1; rank];
            shape[at] = index.shape()[at];
            Tensor::from_vec(&shape, (0..shape[at] as i64).collect()).map(Index::Pick)
        };
        let items = (0..rank).map(item).collect::<Result<Vec<_>>>()?;
        self.moved(&|tensor| tensor.at(&items))
    }

    /// Reshapes the batch, row-major; one -1 in `batch_size` is inferred. Shares the elements if strides
    /// allow, else copies.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of elements differs, or -1 cannot be inferred; `OutOfRange` for any
    /// other negative length; `LimitExceeded` if a tensor would have too many dimensions; `Incompatible` at a
    /// ragged entry if the batch would not have one dimension.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut batch = TensorDict::new(&[6])?;
    /// batch.set("ids", Tensor::zeros(fulmar_core::Dtype::U32, &[6, 5])?)?;
    /// assert_eq!(batch.reshape(&[2, -1])?.tensor("ids")?.shape(), [2, 3, 5]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn reshape(&self, batch_size: &[isize]) -> Result<Self> {
        let (rank, batch_size) =
            (self.batch_size.len(), inferred(batch_size, num_elements(&self.batch_size)?)?);
        self.moved_named(
            &|tensor| tensor.reshape(&[&batch_size, &tensor.shape()[rank..]].concat()),
            &|names| {
                forgotten(names, 0..rank, batch_size.len());
            },
        )
    }

    /// Reshapes the batch without a copy.
    ///
    /// # Errors
    /// The errors of [`TensorDict::reshape`]; `Incompatible` at an entry whose strides do not allow it.
    pub fn view(&self, batch_size: &[isize]) -> Result<Self> {
        let (rank, batch_size) =
            (self.batch_size.len(), inferred(batch_size, num_elements(&self.batch_size)?)?);
        self.moved_named(&|tensor| tensor.view(&[&batch_size, &tensor.shape()[rank..]].concat()), &|names| {
            forgotten(names, 0..rank, batch_size.len());
        })
    }

    /// Merges the batch dimensions from `first` to `last`, both included; without batch dimensions, gives one
    /// of length 1.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or `last` comes before `first`.
    pub fn flatten(&self, first: isize, last: isize) -> Result<Self> {
        if self.batch_size.is_empty() && matches!((first, last), (0 | -1, 0 | -1)) {
            return self.reshape(&[1]);
        }
        let (first, last) = (self.batch_dim(first)?, self.batch_dim(last)?);
        if last < first {
            let detail = format!("last must be >= first, {first}: got {last}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        let merged = num_elements(&self.batch_size[first..=last])?;
        self.with_dims(first, last + 1, &[merged])
    }

    /// Splits batch dimension `dim` into `sizes`; one -1 is inferred.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `ShapeMismatch` if the product of `sizes` is not its
    /// length.
    pub fn unflatten(&self, dim: isize, sizes: &[isize]) -> Result<Self> {
        let dim = self.batch_dim(dim)?;
        let sizes = inferred(sizes, self.batch_size[dim])?;
        self.with_dims(dim, dim + 1, &sizes)
    }

    /// Reorders the batch dimensions. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `ShapeMismatch` if `order` does not name each once.
    pub fn permute(&self, order: &[isize]) -> Result<Self> {
        let rank = self.batch_size.len();
        let order = order.iter().map(|dim| self.batch_dim(*dim)).collect::<Result<Vec<_>>>()?;
        if order.len() != rank {
            let detail = format!("order must name each of {rank} batch dimensions once: got {order:?}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let permute = |tensor: &Tensor| {
            tensor.permute(&order.iter().copied().chain(rank..tensor.rank()).collect::<Vec<_>>())
        };
        self.moved_named(&permute, &|names| {
            let firsts: Vec<_> = order.iter().map(|dim| names[*dim].clone()).collect();
            names[..rank].clone_from_slice(&firsts);
        })
    }

    /// Exchanges two batch dimensions. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension.
    pub fn transpose(&self, left: isize, right: isize) -> Result<Self> {
        let (left, right) = (self.batch_dim(left)?, self.batch_dim(right)?);
        self.moved_named(&|tensor| tensor.transpose(left, right), &|names| names.swap(left, right))
    }

    /// Inserts a batch dimension of length 1 before `dim`; -1 appends it. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such place; `LimitExceeded` if a tensor would have too many dimensions.
    pub fn unsqueeze(&self, dim: isize) -> Result<Self> {
        let dim = dim_in(dim, self.batch_size.len() + 1)?;
        self.moved_named(&|tensor| tensor.unsqueeze(dim), &|names| names.insert(dim, None))
    }

    /// Removes batch dimension `dim` if its length is 1. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension.
    pub fn squeeze(&self, dim: isize) -> Result<Self> {
        let dim = self.batch_dim(dim)?;
        let goes = self.batch_size[dim] == 1;
        // A nested dictionary agrees in its first dimensions, so it loses the same ones.
        self.moved_named(&|tensor| tensor.squeeze(dim), &|names| {
            forgotten(names, dim..dim + usize::from(goes), 0);
        })
    }

    /// Removes all batch dimensions of length 1. Shares the elements.
    ///
    /// # Errors
    /// `Incompatible` at a ragged entry if its batch dimension would be removed.
    pub fn squeeze_all(&self) -> Result<Self> {
        let mut ones = (0..self.batch_size.len()).rev().filter(|dim| self.batch_size[*dim] == 1);
        ones.try_fold(self.clone(), |dict, dim| dict.squeeze(dim as isize))
    }

    /// Broadcasts batch dimensions of length 1, and new leading ones, to `batch_size`. Shares the elements; a
    /// value that the batch shares stays one.
    ///
    /// # Errors
    /// The errors of [`Tensor::expand`].
    pub fn expand(&self, batch_size: &[usize]) -> Result<Self> {
        let rank = self.batch_size.len();
        self.moved_named(&|tensor| tensor.expand(&[batch_size, &tensor.shape()[rank..]].concat()), &|names| {
            forgotten(names, 0..0, batch_size.len() - rank);
        })
    }

    /// Tiles the batch `counts[i]` times along dimension `i`.
    ///
    /// # Errors
    /// The errors of [`Tensor::repeat`].
    pub fn repeat(&self, counts: &[usize]) -> Result<Self> {
        let rank = self.batch_size.len();
        if counts.len() != rank {
            let detail = format!("counts must be one for each of {rank} batch dimensions: got {counts:?}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        self.moved(&|tensor| tensor.repeat(&[counts, &vec![1; tensor.rank() - rank]].concat()))
    }

    /// Repeats each part of dimension `dim` `count` times in a row. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `LimitExceeded` if the result has more than
    /// [`TENSOR_EXPANDED_MAX`](fulmar_core::limits::TENSOR_EXPANDED_MAX) elements.
    pub fn repeat_interleave(&self, count: usize, dim: isize) -> Result<Self> {
        let dim = self.batch_dim(dim)?;
        self.moved(&|tensor| {
            let mut shape = tensor.shape().to_vec();
            shape.insert(dim + 1, count);
            let repeated = tensor.unsqueeze(dim + 1)?.expand(&shape)?;
            shape.remove(dim + 1);
            shape[dim] *= count;
            repeated.reshape(&shape)
        })
    }

    /// Splits dimension `dim` into parts of `size`; the last may be shorter. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or `size` is 0.
    ///
    /// # Examples
    /// ```
    /// let batch = fulmar_tensor::TensorDict::new(&[5])?;
    /// let sizes: Vec<_> = batch.split(2, 0)?.iter().map(|part| part.batch_size()[0]).collect();
    /// assert_eq!(sizes, [2, 2, 1]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Self>> {
        let len = self.batch_size[self.batch_dim(dim)?];
        if size == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "size must be at least 1: got 0"));
        }
        let count = len.div_ceil(size).max(1);
        self.split_sizes(&(0..count).map(|part| size.min(len - part * size)).collect::<Vec<_>>(), dim)
    }

    /// Splits dimension `dim` into parts of `sizes`. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension; `ShapeMismatch` if `sizes` do not add up to its length.
    pub fn split_sizes(&self, sizes: &[usize], dim: isize) -> Result<Vec<Self>> {
        let dim = self.batch_dim(dim)?;
        let len = self.batch_size[dim];
        if sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size)) != Some(len) {
            let detail = format!("sizes must add up to {len}, the length of dimension {dim}: got {sizes:?}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let mut start = 0;
        let parts = sizes.iter().map(|size| {
            let range = start..start + size;
            start += size;
            // Ragged entries have one batch dimension and slice without visiting every row.
            if dim == 0 { self.slice(range) } else { self.moved(&|tensor| tensor.slice(dim, range.clone())) }
        });
        parts.collect()
    }

    /// Splits dimension `dim` into at most `count` parts of equal length; the last may be shorter. Shares the
    /// elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension or `count` is 0.
    ///
    /// # Examples
    /// ```
    /// let batch = fulmar_tensor::TensorDict::new(&[5])?;
    /// let sizes: Vec<_> = batch.chunk(2, 0)?.iter().map(|part| part.batch_size()[0]).collect();
    /// assert_eq!(sizes, [3, 2]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn chunk(&self, count: usize, dim: isize) -> Result<Vec<Self>> {
        let len = self.batch_size[self.batch_dim(dim)?];
        if count == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "count must be at least 1: got 0"));
        }
        self.split(len.div_ceil(count).max(1), dim)
    }

    /// Returns the parts of dimension `dim`, which is removed. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no such dimension.
    pub fn unbind(&self, dim: isize) -> Result<Vec<Self>> {
        let dim = self.batch_dim(dim)?;
        let part = |at| if dim == 0 { self.index(at) } else { self.selected(dim, at) };
        (0..self.batch_size[dim]).map(part).collect()
    }

    /// Replaces the batch dimensions `start..end` by `dims`.
    fn with_dims(&self, start: usize, end: usize, dims: &[usize]) -> Result<Self> {
        let reshape = |tensor: &Tensor| {
            let (before, after) = (&tensor.shape()[..start], &tensor.shape()[end..]);
            tensor.reshape(&[before, dims, after].concat())
        };
        self.moved_named(&reshape, &|names| forgotten(names, start..end, dims.len()))
    }

    fn selected(&self, dim: usize, at: usize) -> Result<Self> {
        self.moved_named(&|tensor| tensor.select(dim, at), &|names| drop(names.remove(dim)))
    }

    /// Calls [`TensorDict::moved_named`] with unchanged dimension names.
    pub(super) fn moved(&self, to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.moved_named(to, &|_| ())
    }

    /// Applies `to`, which moves whole parts along the first dimensions, to every tensor. For other entries
    /// it applies `to` to a tensor with one number for each batch element. `rename` updates the dimension
    /// names.
    fn moved_named(
        &self,
        to: &dyn Fn(&Tensor) -> Result<Tensor>,
        rename: &dyn Fn(&mut Names),
    ) -> Result<Self> {
        let batch_size = to(&Tensor::one_element_as(&self.batch_size))?.shape().to_vec();
        let unchanged = batch_size == self.batch_size;
        let moved = self.map(batch_size, |entry| match entry {
            Entry::Tensor(tensor) => to(tensor).map(Entry::Tensor),
            Entry::Ragged(ragged) if self.batch_size.is_empty() && unchanged => {
                Ok(Entry::Ragged(ragged.clone()))
            }
            Entry::Ragged(ragged) if self.batch_size.is_empty() => Err(not_rows(ragged.num_rows())),
            Entry::Ragged(ragged) => moved_rows(ragged, to),
            Entry::NonTensor(values) => values.moved(to).map(Entry::NonTensor),
            Entry::Dict(dict) => dict.moved_named(to, rename).map(Entry::Dict),
        })?;
        let mut names = self.names.clone();
        if !names.is_empty() {
            rename(&mut names);
        }
        Ok(moved.named(names))
    }

    /// Returns the batch dimension `dim`, from the end if negative.
    pub(super) fn batch_dim(&self, dim: isize) -> Result<usize> {
        dim_in(dim, self.batch_size.len())
    }
}

pub(crate) fn dim_in(dim: isize, rank: usize) -> Result<usize> {
    let from_start = if dim < 0 { dim.checked_add_unsigned(rank) } else { Some(dim) };
    from_start.and_then(|dim| usize::try_from(dim).ok()).filter(|dim| *dim < rank).ok_or_else(|| {
        Error::new(
            ErrorKind::OutOfRange,
            format!("dim must be in -{rank}..{rank}, the batch dimensions: got {dim}"),
        )
    })
}

/// Returns `sizes` with -1 replaced by the rest of `len`.
fn inferred(sizes: &[isize], len: usize) -> Result<Vec<usize>> {
    if let Some(size) = sizes.iter().find(|size| **size < -1) {
        return Err(Error::new(ErrorKind::OutOfRange, format!("a length must be >= 0, or -1: got {size}")));
    }
    let known: Vec<_> = sizes.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
    let product = num_elements(&known)?;
    let left = len.checked_div(product);
    let open = sizes.len() - known.len();
    if open > 1
        || (open == 1 && left.is_none_or(|left| left * product != len))
        || (open == 0 && product != len)
    {
        let detail = format!("lengths must multiply up to {len}, with -1 at most once: got {sizes:?}");
        return Err(Error::new(ErrorKind::ShapeMismatch, detail));
    }
    Ok(sizes.iter().map(|size| usize::try_from(*size).unwrap_or(left.unwrap_or(0))).collect())
}

fn moved_rows(ragged: &Ragged, to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Entry> {
    let rows = Tensor::from_vec(&[ragged.num_rows()], (0..ragged.num_rows() as i64).collect())?;
    let rows_after = to(&rows)?;
    let at: Vec<_> = rows_after.to_vec::<i64>()?.into_iter().map(|row| row as usize).collect();
    match rows_after.rank() {
        0 => ragged.row(at[0]).map(Entry::Tensor),
        1 if at.windows(2).all(|pair| pair[1] == pair[0] + 1) => {
            let start = at.first().copied().unwrap_or(0);
            ragged.slice(start..start + at.len()).map(Entry::Ragged)
        }
        1 => ragged.index_select(&at).map(Entry::Ragged),
        _ => Err(not_rows(ragged.num_rows())),
    }
}

fn not_rows(rows: usize) -> Error {
    let detail = format!("a ragged entry must keep one batch dimension for its {rows} rows");
    Error::new(ErrorKind::Incompatible, detail)
}
