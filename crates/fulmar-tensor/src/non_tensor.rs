//! Texts and other JSON values in a dictionary: one value for the whole batch, or one for each element.

use std::ops::Range;
use std::sync::Arc;

use fulmar_core::{Error, ErrorKind, Result, num_elements};
use serde_json::Value;

use crate::index::Index;
use crate::storage::zeroed;
use crate::tensor::Tensor;

/// A JSON value that a whole batch shares, or a batch of them. Cloning shares the values.
///
/// # Examples
/// ```
/// use fulmar_tensor::NonTensor;
/// use serde_json::json;
/// assert_eq!(NonTensor::shared(json!("sum the digits")).to_json(), "sum the digits");
/// let each = NonTensor::each(&[2], vec![json!("a"), json!({ "b": 1 })])?;
/// assert_eq!(each.to_json(), json!(["a", { "b": 1 }]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NonTensor(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Shared(Arc<Value>),
    /// The value of a batch element is `values[index]`. `index`, a tensor of `u32`, has the shape of the
    /// batch, so tensor operations move the values too.
    Each {
        index: Tensor,
        values: Arc<[Value]>,
    },
}

/// Values with their batch size.
pub(crate) type Batched<'a> = (&'a NonTensor, &'a [usize]);

impl NonTensor {
    /// Makes one value for every element of any batch.
    #[must_use]
    pub fn shared(value: Value) -> Self {
        Self(Kind::Shared(Arc::new(value)))
    }

    /// Makes one value for each element of a batch of `shape`, row-major.
    ///
    /// # Errors
    /// `ShapeMismatch` if the number of values differs from `shape`; `LimitExceeded` for 2^32 values or more,
    /// or too many dimensions.
    pub fn each(shape: &[usize], values: Vec<Value>) -> Result<Self> {
        let Ok(len) = u32::try_from(values.len()) else {
            let detail = format!("values must be fewer than 2^32: got {}", values.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        };
        let index = Tensor::from_vec(shape, (0..len).collect::<Vec<u32>>())?;
        Ok(Self::picked(index, values.into()))
    }

    /// Makes one value for each element of a batch of `shape` from arrays nested to its rank. Deeper arrays
    /// belong to the values.
    ///
    /// # Errors
    /// `ShapeMismatch` if the arrays do not have this `shape`; the errors of [`NonTensor::each`].
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::NonTensor;
    /// use serde_json::json;
    /// assert_eq!(NonTensor::nested(&[2], json!([["a", "b"], ["c"]]))?.shape(), Some(&[2][..]));
    /// assert!(NonTensor::nested(&[2, 2], json!([["a", "b"], ["c"]])).is_err());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn nested(shape: &[usize], values: Value) -> Result<Self> {
        let mut level = vec![values];
        for (dim, len) in shape.iter().enumerate() {
            let mut inner = Vec::new();
            for value in level {
                match value {
                    Value::Array(values) if values.len() == *len => inner.extend(values),
                    Value::Array(values) => {
                        return Err(not_nested(shape, dim, &format!("an array of {}", values.len())));
                    }
                    _ => return Err(not_nested(shape, dim, "a value that is no array")),
                }
            }
            level = inner;
        }
        Self::each(shape, level)
    }

    /// Returns the batch shape of these values; `None` if one value serves any batch.
    #[must_use]
    pub fn shape(&self) -> Option<&[usize]> {
        match &self.0 {
            Kind::Shared(_) => None,
            Kind::Each { index, .. } => Some(index.shape()),
        }
    }

    /// Returns the shared value, or the values as nested arrays of the batch's shape.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match &self.0 {
            Kind::Shared(value) => (**value).clone(),
            Kind::Each { index, .. } => {
                let shape = index.shape();
                let mut values = self.rows(index.num_elements());
                for dim in (1..shape.len()).rev() {
                    let mut inner = values.into_iter();
                    let outer: usize = shape[..dim].iter().product();
                    values = (0..outer).map(|_| inner.by_ref().take(shape[dim]).collect()).collect();
                }
                Value::Array(values)
            }
        }
    }

    pub(crate) fn select(&self, dim: usize, at: usize) -> Result<Self> {
        self.map_index(|index| index.select(dim, at))
    }

    pub(crate) fn slice(&self, dim: usize, range: Range<usize>) -> Result<Self> {
        self.map_index(|index| index.slice(dim, range))
    }

    pub(crate) fn index_select(&self, dim: usize, indices: &[usize]) -> Result<Self> {
        self.map_index(|index| index.index_select(dim, indices))
    }

    /// Applies `to`, an operation that moves elements, to a batch of values.
    pub(crate) fn moved(&self, to: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        self.map_index(to)
    }

    /// Returns the values of a batch of `batch_size` with other values at `index`. Stays shared if both share
    /// one value.
    pub(crate) fn with_at(
        &self,
        batch_size: &[usize],
        index: &[Index],
        (part, part_size): Batched<'_>,
    ) -> Result<Self> {
        if self.shape().is_none() && self == part {
            return Ok(self.clone());
        }
        let (mut indices, values) = Self::merged(&[(self, batch_size), (part, part_size)])?;
        let part = indices.swap_remove(1);
        indices[0].set_at(index, &part)?;
        Ok(Self::picked(indices.swap_remove(0), values))
    }

    /// Stacks values: one for each element, even if all parts share one.
    pub(crate) fn stack(parts: &[Batched<'_>], dim: usize) -> Result<Self> {
        let (indices, values) = Self::merged(parts)?;
        Ok(Self::picked(Tensor::stack(&indices, dim)?, values))
    }

    /// Concatenates values; stays shared if all parts share one value.
    pub(crate) fn cat(parts: &[Batched<'_>], dim: usize) -> Result<Self> {
        if let Some((first @ Self(Kind::Shared(_)), _)) = parts.first()
            && parts.iter().all(|(part, _)| part == first)
        {
            return Ok((*first).clone());
        }
        let (indices, values) = Self::merged(parts)?;
        Ok(Self::picked(Tensor::cat(&indices, dim)?, values))
    }

    /// Merges the values of all parts into one table, and returns each part's indices into it.
    fn merged(parts: &[Batched<'_>]) -> Result<(Vec<Tensor>, Arc<[Value]>)> {
        let mut table = Vec::new();
        let mut indices = Vec::with_capacity(parts.len());
        for (part, batch_size) in parts {
            let base = table.len() as u32;
            let mut index = zeroed::<u32>(num_elements(batch_size)?)?;
            match &part.0 {
                Kind::Shared(value) => {
                    table.push((**value).clone());
                    index.fill(base);
                }
                Kind::Each { .. } => {
                    table.extend(part.rows(index.len()));
                    index.iter_mut().zip(base..).for_each(|(at, next)| *at = next);
                }
            }
            indices.push(Tensor::from_vec(batch_size, index)?);
        }
        if u32::try_from(table.len()).is_err() {
            let detail = format!("values must be fewer than 2^32: got {}", table.len());
            return Err(Error::new(ErrorKind::LimitExceeded, detail));
        }
        Ok((indices, table.into()))
    }

    fn map_index(&self, map: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Self> {
        match &self.0 {
            Kind::Shared(_) => Ok(self.clone()),
            Kind::Each { index, values } => Ok(Self::picked(map(index)?, Arc::clone(values))),
        }
    }

    /// Makes values from indices; a batch without dimensions is one shared value.
    fn picked(index: Tensor, values: Arc<[Value]>) -> Self {
        match index.as_slice::<u32>() {
            Ok([at]) if index.rank() == 0 => Self::shared(values[*at as usize].clone()),
            _ => Self(Kind::Each { index, values }),
        }
    }

    /// Returns `len` values, row-major.
    fn rows(&self, len: usize) -> Vec<Value> {
        match &self.0 {
            Kind::Shared(value) => vec![(**value).clone(); len],
            Kind::Each { index, values } => {
                let picks = index.cloned::<u32>();
                picks.into_iter().map(|at| values[at as usize].clone()).collect()
            }
        }
    }
}

fn not_nested(shape: &[usize], dim: usize, got: &str) -> Error {
    let detail = format!("values must be arrays of shape {shape:?}: got {got} in dimension {dim}");
    Error::new(ErrorKind::ShapeMismatch, detail)
}

impl PartialEq for NonTensor {
    fn eq(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.to_json() == other.to_json()
    }
}
