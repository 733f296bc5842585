//! Operations on the batch dimensions of a whole dictionary. Feature dimensions are never changed.

use std::ops::Range;

use fulmar_core::{Error, ErrorKind, Result};

use super::batch_shape::dim_in;
use super::dim_names::Names;
use super::{Entry, TensorDict};
use crate::non_tensor::{Batched, NonTensor};
use crate::ragged::Ragged;
use crate::tensor::Tensor;

impl TensorDict {
    /// Returns the element at `at` of the first batch dimension, without that dimension; a ragged entry gives
    /// its row. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no batch dimension or no such element.
    pub fn index(&self, at: usize) -> Result<Self> {
        let len = self.first_dim()?;
        if at >= len {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("index must be < {len}, the batch size: got {at}"),
            ));
        }
        let part = self.map(self.batch_size[1..].to_vec(), |entry| match entry {
            Entry::Tensor(tensor) => tensor.select(0, at).map(Entry::Tensor),
            Entry::Ragged(ragged) => ragged.row(at).map(Entry::Tensor),
            Entry::NonTensor(values) => values.select(0, at).map(Entry::NonTensor),
            Entry::Dict(dict) => dict.index(at).map(Entry::Dict),
        })?;
        Ok(part.named(self.names.get(1..).unwrap_or_default().to_vec()))
    }

    /// Returns the elements `range` of the first batch dimension. Shares the elements.
    ///
    /// # Errors
    /// `OutOfRange` if there is no batch dimension, or the range is backwards or ends past it.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let len = self.first_dim()?;
        if range.start > range.end || range.end > len {
            let detail = format!("range must be in 0..{len}, the batch size: got {range:?}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        self.map(self.with_first_dim(range.len()), |entry| match entry {
            Entry::Tensor(tensor) => tensor.slice(0, range.clone()).map(Entry::Tensor),
            Entry::Ragged(ragged) => ragged.slice(range.clone()).map(Entry::Ragged),
            Entry::NonTensor(values) => values.slice(0, range.clone()).map(Entry::NonTensor),
            Entry::Dict(dict) => dict.slice(range.clone()).map(Entry::Dict),
        })
    }

    /// Returns the elements at `indices` of the first batch dimension, in that order; an index may come
    /// twice. Copies.
    ///
    /// # Errors
    /// `OutOfRange` if there is no batch dimension or no such element.
    pub fn index_select(&self, indices: &[usize]) -> Result<Self> {
        let len = self.first_dim()?;
        if let Some(index) = indices.iter().find(|index| **index >= len) {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("index must be < {len}, the batch size: got {index}"),
            ));
        }
        self.map(self.with_first_dim(indices.len()), |entry| match entry {
            Entry::Tensor(tensor) => tensor.index_select(0, indices).map(Entry::Tensor),
            Entry::Ragged(ragged) => ragged.index_select(indices).map(Entry::Ragged),
            Entry::NonTensor(values) => values.index_select(0, indices).map(Entry::NonTensor),
            Entry::Dict(dict) => dict.index_select(indices).map(Entry::Dict),
        })
    }

    /// Stacks `parts` along a new batch dimension `dim`, from the end of the result's if negative. Copies.
    /// JSON values become one for each element.
    ///
    /// # Errors
    /// `Empty` without parts; `ShapeMismatch` if batch sizes or, at a named key, shapes differ; `UnknownName`
    /// if the keys of parts differ; `Incompatible` if kinds or dtypes differ at a key, or an entry is ragged;
    /// `OutOfRange` if `dim` is past the batch dimensions.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let mut step = TensorDict::new(&[])?;
    /// step.set("reward", Tensor::from_vec_f32(&[], vec![0.5])?)?;
    /// let batch = TensorDict::stack(&[step.clone(), step], 0)?;
    /// assert_eq!((batch.batch_size(), batch.tensor("reward")?.as_f32()?), (&[2][..], &[0.5, 0.5][..]));
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn stack(parts: &[Self], dim: isize) -> Result<Self> {
        let dim = dim_in(dim, first_of(parts)?.batch_size.len() + 1)?;
        Self::stack_at(parts, dim)
    }

    /// Stacks along a dimension counted from the start.
    pub(crate) fn stack_at(parts: &[Self], dim: usize) -> Result<Self> {
        let first = first_of(parts)?;
        for part in parts {
            check_batch_size(first, part, part.batch_size == first.batch_size)?;
        }
        let mut batch_size = first.batch_size.clone();
        batch_size.insert(dim, parts.len());
        let join = Join {
            tensors: Tensor::stack,
            ragged: refuse_stack,
            values: NonTensor::stack,
            dicts: Self::stack_at,
        };
        join.all(parts, batch_size, dim)
    }

    /// Concatenates `parts` along their batch dimension `dim`, from the end if negative; the other dimensions
    /// must agree. Copies. JSON values stay shared if all parts share the same one.
    ///
    /// # Errors
    /// The errors of [`TensorDict::stack`], except that ragged entries are allowed: they concatenate by rows.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Ragged, Tensor, TensorDict};
    /// let mut rows = TensorDict::new(&[2])?;
    /// rows.set("ids", Ragged::new(Tensor::from_vec(&[3], vec![1_u32, 2, 3])?, &[0_u32, 1, 3])?)?;
    /// let both = TensorDict::cat(&[rows.clone(), rows], 0)?;
    /// assert_eq!(both.ragged("ids")?.offsets(), [0, 1, 3, 4, 6]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn cat(parts: &[Self], dim: isize) -> Result<Self> {
        let dim = first_of(parts)?.batch_dim(dim)?;
        Self::cat_at(parts, dim)
    }

    fn cat_at(parts: &[Self], dim: usize) -> Result<Self> {
        let first = first_of(parts)?;
        let without_dim = |dict: &Self| {
            let mut others = dict.batch_size.clone();
            if dim < others.len() {
                others[dim] = 0;
            }
            others
        };
        for part in parts {
            check_batch_size(first, part, without_dim(part) == without_dim(first))?;
        }
        let mut batch_size = first.batch_size.clone();
        batch_size[dim] = parts.iter().map(|part| part.batch_size[dim]).sum();
        let join =
            Join { tensors: Tensor::cat, ragged: Ragged::cat, values: NonTensor::cat, dicts: Self::cat_at };
        join.all(parts, batch_size, dim)
    }

    /// Returns the length of the first batch dimension.
    fn first_dim(&self) -> Result<usize> {
        self.batch_size.first().copied().ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfRange,
                "a dictionary must have a batch dimension to be indexed: got batch size []",
            )
        })
    }

    fn with_first_dim(&self, len: usize) -> Vec<usize> {
        [&[len], &self.batch_size[1..]].concat()
    }

    /// Applies `map` to every entry, in a batch of `batch_size`. Dimension names stay if the number of
    /// dimensions does.
    pub(super) fn map(&self, batch_size: Vec<usize>, map: impl Fn(&Entry) -> Result<Entry>) -> Result<Self> {
        let entries = self.entries.iter().map(|(name, entry)| {
            Ok((name.clone(), map(entry).map_err(|error| error.at(format!("{name:?}")))?))
        });
        // A nested dictionary keeps its further batch dimensions, which `map` computes.
        let names = if batch_size.len() == self.batch_size.len() { self.names.clone() } else { Names::new() };
        Ok(Self::holding(batch_size, entries.collect::<Result<_>>()?).named(names))
    }
}

/// One way to join the entries of several dictionaries, for each kind of entry.
struct Join {
    tensors: fn(&[Tensor], usize) -> Result<Tensor>,
    ragged: fn(&[Ragged]) -> Result<Ragged>,
    values: fn(&[Batched<'_>], usize) -> Result<NonTensor>,
    dicts: fn(&[TensorDict], usize) -> Result<TensorDict>,
}

impl Join {
    fn all(&self, parts: &[TensorDict], batch_size: Vec<usize>, dim: usize) -> Result<TensorDict> {
        let mut joined = TensorDict::holding(batch_size, indexmap::IndexMap::new());
        for part in parts {
            check_keys(&parts[0], part)?;
        }
        if let [first, others @ ..] = parts
            && others.iter().all(|part| part.names == first.names)
        {
            joined.names = first.names.clone();
            if !joined.names.is_empty() && joined.batch_size.len() > first.batch_size.len() {
                joined.names.insert(dim, None);
            }
        }
        for name in parts[0].entries.keys() {
            let entry = self.one(parts, name, dim).map_err(|error| error.at(format!("{name:?}")))?;
            joined.entries.insert(name.clone(), entry);
        }
        Ok(joined)
    }

    fn one(&self, parts: &[TensorDict], name: &str, dim: usize) -> Result<Entry> {
        match &parts[0].entries[name] {
            Entry::Tensor(_) => {
                let tensors = each(parts, name, |entry| {
                    if let Entry::Tensor(tensor) = entry { Some(tensor.clone()) } else { None }
                });
                (self.tensors)(&tensors?, dim).map(Entry::Tensor)
            }
            Entry::Ragged(_) => {
                let ragged = each(parts, name, |entry| {
                    if let Entry::Ragged(ragged) = entry { Some(ragged.clone()) } else { None }
                });
                (self.ragged)(&ragged?).map(Entry::Ragged)
            }
            Entry::Dict(_) => {
                let dicts =
                    each(
                        parts,
                        name,
                        |entry| if let Entry::Dict(dict) = entry { Some(dict.clone()) } else { None },
                    );
                (self.dicts)(&dicts?, dim).map(Entry::Dict)
            }
            Entry::NonTensor(_) => {
                let values =
                    each(
                        parts,
                        name,
                        |entry| if let Entry::NonTensor(values) = entry { Some(values) } else { None },
                    );
                let sizes = parts.iter().map(|part| part.batch_size.as_slice());
                (self.values)(&values?.into_iter().zip(sizes).collect::<Vec<_>>(), dim).map(Entry::NonTensor)
            }
        }
    }
}

/// Returns the result of `pick` for the entry `name` of every part.
fn each<'a, T>(parts: &'a [TensorDict], name: &str, pick: impl Fn(&'a Entry) -> Option<T>) -> Result<Vec<T>> {
    let kind = parts[0].entries[name].kind();
    let of = |part: &'a TensorDict| {
        let entry = &part.entries[name];
        pick(entry).ok_or_else(|| {
            let detail = format!("parts must have one kind of entry: got {kind} and {}", entry.kind());
            Error::new(ErrorKind::Incompatible, detail)
        })
    };
    parts.iter().map(of).collect()
}

fn refuse_stack(_: &[Ragged]) -> Result<Ragged> {
    let detail = "a ragged entry must be joined with cat, which joins rows: got stack";
    Err(Error::new(ErrorKind::Incompatible, detail))
}

pub(super) fn first_of(parts: &[TensorDict]) -> Result<&TensorDict> {
    parts
        .first()
        .ok_or_else(|| Error::new(ErrorKind::Empty, "parts must hold at least one dictionary: got 0"))
}

fn check_batch_size(first: &TensorDict, part: &TensorDict, agree: bool) -> Result<()> {
    if agree {
        return Ok(());
    }
    let detail =
        format!("parts must have one batch size: got {:?} and {:?}", first.batch_size, part.batch_size);
    Err(Error::new(ErrorKind::ShapeMismatch, detail))
}

fn check_keys(first: &TensorDict, part: &TensorDict) -> Result<()> {
    let missing = first.entries.keys().find(|name| !part.entries.contains_key(*name));
    let extra = part.entries.keys().find(|name| !first.entries.contains_key(*name));
    match missing.or(extra) {
        Some(name) => {
            let detail = format!("parts must have one set of keys: got {name:?} in some of them only");
            Err(Error::new(ErrorKind::UnknownName, detail))
        }
        None => Ok(()),
    }
}
