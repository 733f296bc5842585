//! Shapes of specs, in which a dimension may have any length.

use std::fmt;

use fulmar_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The length of each dimension of a spec. A dynamic dimension, -1 in JSON, takes any length.
///
/// # Examples
/// ```
/// use fulmar_spec::Shape;
/// let shape = Shape::from_signed(&[-1, 2])?;
/// assert_eq!((shape.dims(), shape.to_string()), (&[None, Some(2)][..], "[-1, 2]".to_owned()));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<i64>", into = "Vec<i64>")]
pub struct Shape(Vec<Option<usize>>);

impl Shape {
    /// Returns a shape from `dims`, with -1 for dynamic dimensions.
    ///
    /// # Errors
    /// `OutOfRange` for a length below -1.
    pub fn from_signed(dims: &[i64]) -> Result<Self> {
        let one = |dim: &i64| match usize::try_from(*dim) {
            Ok(len) => Ok(Some(len)),
            Err(_) if *dim == -1 => Ok(None),
            Err(_) => Err(Error::new(
                ErrorKind::OutOfRange,
                format!("shape must hold lengths from 0, or -1 for any: got {dims:?}"),
            )),
        };
        dims.iter().map(one).collect::<Result<_>>().map(Self)
    }

    /// Returns the length of each dimension; `None` for a dynamic one.
    #[must_use]
    pub fn dims(&self) -> &[Option<usize>] {
        &self.0
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Returns the lengths, with 1 for a dynamic dimension: the smallest value that a spec of this shape can
    /// make.
    #[must_use]
    pub fn sizes(&self) -> Vec<usize> {
        self.0.iter().map(|dim| dim.unwrap_or(1)).collect()
    }

    /// Returns whether a value's `shape` ends with these dimensions. Dimensions before them are a batch.
    #[must_use]
    pub fn ends(&self, shape: &[usize]) -> bool {
        shape.len() >= self.rank() && self.is(&shape[shape.len() - self.rank()..])
    }

    /// Returns whether `other` begins with these dimensions.
    pub(crate) fn begins(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    fn is(&self, shape: &[usize]) -> bool {
        self.0.iter().zip(shape).all(|(want, have)| want.is_none_or(|len| len == *have))
    }
}

impl From<Vec<Option<usize>>> for Shape {
    fn from(dims: Vec<Option<usize>>) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Self(sizes.iter().copied().map(Some).collect())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Self(sizes.map(Some).to_vec())
    }
}

impl TryFrom<Vec<i64>> for Shape {
    type Error = Error;

    fn try_from(dims: Vec<i64>) -> Result<Self> {
        Self::from_signed(&dims)
    }
}

impl From<Shape> for Vec<i64> {
    fn from(shape: Shape) -> Self {
        shape.0.into_iter().map(|dim| dim.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Vec::<i64>::from(self.clone()))
    }
}
