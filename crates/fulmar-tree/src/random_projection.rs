//! The hash of a random projection: rows that are close to each other often have one hash.

use std::sync::OnceLock;

use fulmar_core::{Dtype, Error, ErrorKind, Result, Rng, num_elements};
use fulmar_tensor::Tensor;
use serde::Deserialize;

use crate::sip_hash::{RowHash, SipHash, SipHashOptions};

/// Options of [`RandomProjectionHash`].
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ProjectionOptions {
    /// Columns of the matrix, at least 1.
    pub num_components: usize,
    /// Dtype of the rows, of the matrix and of the projections: a float.
    pub dtype: String,
    /// Seed of the matrix.
    pub seed: u64,
    /// Key of the hash of a projection.
    pub key: [u64; 2],
}

impl Default for ProjectionOptions {
    fn default() -> Self {
        Self { num_components: 16, dtype: "bf16".to_owned(), seed: 0, key: [0; 2] }
    }
}

/// `SipHash(cast(row) . matrix)`, with a matrix `[features, components]` of standard normal numbers, which a seed and the number of
/// features decide, or a given one. Sums are singles, rounded to the dtype.
///
/// # Examples
/// ```
/// use fulmar_tensor::Tensor;
/// use fulmar_tree::{ProjectionOptions, RandomProjectionHash, RowHash};
/// let rows = Tensor::from_vec(&[2, 40], (0..80_u8).map(f32::from).collect::<Vec<f32>>())?;
/// let hash = RandomProjectionHash::new(&ProjectionOptions { seed: 7, ..Default::default() })?;
/// let hashes = hash.hash_rows(&rows, 1)?;
/// assert_eq!(hash.hash_rows(&rows, 1)?, hashes);
/// assert_ne!(hashes[0], hashes[1]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct RandomProjectionHash {
    dtype: Dtype,
    num_components: usize,
    seed: u64,
    hash: SipHash,
    matrix: OnceLock<Tensor>,
}

impl RandomProjectionHash {
    /// Makes one whose matrix is drawn at its first use.
    ///
    /// # Errors
    /// `OutOfRange` without components; `UnknownName` or `Incompatible` if the dtype is not a float.
    pub fn new(options: &ProjectionOptions) -> Result<Self> {
        let dtype = Dtype::parse(&options.dtype)?;
        if !matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
            let detail = format!("dtype must be a float: got {}", dtype.name());
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if options.num_components == 0 {
            return Err(Error::new(ErrorKind::OutOfRange, "num_components must be >= 1: got 0"));
        }
        let hash = SipHash::new(SipHashOptions { key: options.key, compatible: false });
        let &ProjectionOptions { num_components, seed, .. } = options;
        Ok(Self { dtype, num_components, seed, hash, matrix: OnceLock::new() })
    }

    /// Makes one with the matrix `[features, components]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if the matrix does not have two dimensions; those of [`RandomProjectionHash::new`].
    pub fn with_matrix(matrix: &Tensor, options: ProjectionOptions) -> Result<Self> {
        let &[_, num_components] = matrix.shape() else {
            let detail =
                format!("matrix must have the shape [features, components]: got {:?}", matrix.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let made = Self::new(&ProjectionOptions { num_components, ..options })?;
        let matrix = matrix.to(made.dtype)?;
        Ok(Self { matrix: OnceLock::from(matrix), ..made })
    }

    /// Returns the matrix; `None` before the first use of one that is drawn.
    #[must_use]
    pub fn matrix(&self) -> Option<&Tensor> {
        self.matrix.get()
    }

    fn drawn(&self, num_features: usize) -> Result<&Tensor> {
        if self.matrix.get().is_none() {
            let mut rng = Rng::new(self.seed).stream("projection");
            let shape = [num_features, self.num_components];
            let numbers: Vec<f32> = (0..num_elements(&shape)?).map(|_| rng.normal() as f32).collect();
            let matrix = Tensor::from_vec(&shape, numbers)?.to(self.dtype)?;
            return Ok(self.matrix.get_or_init(|| matrix));
        }
        self.matrix.get().ok_or_else(|| Error::new(ErrorKind::Closed, "the matrix must be there"))
    }
}

impl RowHash for RandomProjectionHash {
    fn hash_rows(&self, rows: &Tensor, rank: usize) -> Result<Vec<i64>> {
        let Some((num_features, lead)) = rows.shape().split_last().filter(|(_, lead)| lead.len() >= rank)
        else {
            let detail = format!("rows must have a last dimension of features: got shape {:?}", rows.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        };
        let matrix = self.drawn(*num_features)?;
        if matrix.shape()[0] != *num_features {
            let detail = format!("rows must have {} features: got {num_features}", matrix.shape()[0]);
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let shape = [lead, &[self.num_components]].concat();
        let projected = if self.dtype == Dtype::F64 {
            let (x, m) = (rows.to(Dtype::F64)?.to_vec::<f64>()?, matrix.to_vec::<f64>()?);
            Tensor::from_vec(&shape, product(&x, &m, *num_features, self.num_components))?
        } else {
            let (x, m) = (rows.to(self.dtype)?.to_f32_vec(), matrix.to_f32_vec());
            Tensor::from_vec(&shape, product(&x, &m, *num_features, self.num_components))?.to(self.dtype)?
        };
        self.hash.hash_rows(&projected, rank)
    }
}

/// Multiplies `[rows, inner]` by `[inner, outer]`, each sum in order.
fn product<T>(x: &[T], matrix: &[T], inner: usize, outer: usize) -> Vec<T>
where
    T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign,
{
    let num_rows = x.len().checked_div(inner).unwrap_or(0);
    let mut sums = vec![T::default(); num_rows * outer];
    for (row, sums) in sums.chunks_exact_mut(outer).enumerate() {
        for (value, weights) in x[row * inner..].iter().zip(matrix.chunks_exact(outer)).take(inner) {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += *value * *weight;
            }
        }
    }
    sums
}
